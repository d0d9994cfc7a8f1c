//! Records, histories, beats: what is said once, left out, or refused.

use super::*;

fn prepare_of(record: &Membership) -> Said {
    Said::Group(Message::Prepare { record: record.clone().into(), before: BEFORE, commit: Seq(4) }, Vec::new())
}

#[test]
fn a_record_travels_once_per_connection_and_epoch() {
    let (mut sender, mut receiver) = (Sender::new(), Receiver::new());
    let mut later = record();
    later.epoch.0 += 1;
    let other = Membership { min_in_sync: 1, ..later.clone() };
    let record_bytes = 40 + 3 * 16;
    let mut sent = |record: &Membership, group| {
        let envelope = Envelope { group, ..ENVELOPE };
        let bytes = encode(&mut sender, &envelope, &prepare_of(record));
        let frame = receiver.frame(&shared(&bytes)).expect("good").expect("whole");
        let header = FrameHeader { envelope, ..frame.header };
        assert!(is_same(&frame, &Frame { header, said: prepare_of(record) }), "{frame:?}");
        bytes.len() - FRAME_HEADER_BYTES - 40
    };
    assert_eq!([sent(&record(), GROUP), sent(&record(), GROUP)], [record_bytes, 0]);
    assert_eq!([sent(&record(), GroupId(1)), sent(&record(), GROUP)], [record_bytes, 0], "per group");
    assert_eq!([sent(&later, GROUP), sent(&later, GROUP)], [record_bytes, 0], "per epoch");
    assert_eq!(sent(&other, GROUP), record_bytes, "another one of the same epoch is never taken for it");
    assert_eq!(sent(&record(), GROUP), record_bytes, "only the last one is remembered");
}

#[test]
fn a_record_that_was_never_sent_cannot_be_referred_to() {
    let mut sender = Sender::new();
    encode(&mut sender, &ENVELOPE, &prepare_of(&record()));
    let referring = encode(&mut sender, &ENVELOPE, &prepare_of(&record()));
    let not_sent = WireError::RecordNotSent { group: GROUP, epoch: Epoch(6) };
    assert_eq!(refused(&referring), not_sent, "on another connection");
    let mut receiver = Receiver::new();
    let older = Membership { epoch: Epoch(5), ..record() };
    let older = encode(&mut Sender::new(), &ENVELOPE, &prepare_of(&older));
    assert!(receiver.frame(&shared(&older)).is_ok());
    assert_eq!(receiver.frame(&shared(&referring)).map(drop), Err(not_sent), "of another epoch");
}

/// What could not be sent is not remembered as sent.
#[test]
fn a_message_that_cannot_be_sent_leaves_nothing_behind() {
    let (mut sender, mut out, mut blocks) = (Sender::new(), vec![7; 3], Vec::new());
    let Said::Group(message, _) = prepare_of(&record()) else { unreachable!() };
    let mut entries = fuzz::entries(true);
    entries.last_mut().expect("some").group = GroupId(9);
    let foreign = WireError::ForeignEntry { group: GROUP, found: GroupId(9) };
    assert_eq!(sender.encode(&ENVELOPE, &message, &entries, &mut out, &mut blocks), Err(foreign));
    assert!(out == [7; 3] && blocks.is_empty());
    let whole = encode(&mut sender, &ENVELOPE, &prepare_of(&record()));
    assert!(first_frame(&whole).is_ok(), "the record travels with it");
    let crowd = Membership { joining: (20..34).map(StoreId).collect(), ..record() };
    let ask = Message::Ask { record: crowd.into() };
    assert!(matches!(sender.encode(&ENVELOPE, &ask, &[], &mut out, &mut blocks), Ok(0)), "16 members");
    let crowd = Membership { joining: (20..35).map(StoreId).collect(), ..record() };
    let ask = Message::Ask { record: crowd.into() };
    let too_many = sender.encode(&ENVELOPE, &ask, &[], &mut out, &mut blocks);
    assert!(matches!(too_many, Err(WireError::Field { field: "number of members", found: 17, .. })), "{too_many:?}");
}

#[test]
fn no_more_records_are_remembered_than_a_bound_and_both_sides_know_which() {
    let (mut sender, mut receiver) = (Sender::new(), Receiver::new());
    let mut sent = |group| {
        let envelope = Envelope { group: GroupId(group), ..ENVELOPE };
        let bytes = encode(&mut sender, &envelope, &prepare_of(&record()));
        assert!(receiver.frame(&shared(&bytes)).is_ok_and(|frame| frame.is_some()));
        bytes.len()
    };
    let most = MAX_RECORDS_REMEMBERED as u32;
    let in_full = sent(0);
    (1..=most).for_each(|group| assert_eq!(sent(group), in_full));
    assert_eq!(sent(most), in_full, "one too many: it is sent each time");
    assert!(sent(most - 1) < in_full && sent(0) < in_full);
}

#[test]
fn a_record_that_no_map_holds_is_refused() {
    let twice = with_meta("ask", |meta| meta.copy_within(48..64, 64));
    assert!(matches!(refused(&twice), WireError::Field { what: "record", .. }), "a member twice");
    let other_epoch = with_meta("ask", |meta| meta[4] = 7);
    assert!(matches!(refused(&other_epoch), WireError::Field { what: "record", .. }));
    let endless = with_meta("ask", |meta| {
        meta[7] = 0xff;
        meta[8 + 11] = 0xff;
    });
    assert!(matches!(refused(&endless), WireError::Field { what: "record", field: "epoch", .. }));
    let crowd = with_meta("ask", |meta| meta[8 + 2] = 200);
    assert!(matches!(refused(&crowd), WireError::Field { field: "number of members", found: 201, .. }));
}

fn told(history: History) -> Said {
    Said::Group(Message::Told { epoch: Epoch(9000), history, committed: Seq(0), whole: true, turns: 3 }, Vec::new())
}

/// See `wire/history.rs` for why that is safe.
#[test]
fn of_a_long_history_the_oldest_epochs_are_left_out() {
    let mut history = History::default();
    (1..=5000_u32).for_each(|epoch| (0..3).for_each(|_| history.push(term(epoch))));
    let sent = encode(&mut Sender::new(), &ENVELOPE, &told(history.clone()));
    let Some(Frame { said: Said::Group(Message::Told { history: came, .. }, _), .. }) =
        first_frame(&sent).expect("good")
    else {
        panic!("told");
    };
    assert_eq!((came.starts().len(), came.end()), (MAX_HISTORY_EPOCHS, history.end()));
    assert_eq!(came.starts()[1..], history.starts()[5000 - MAX_HISTORY_EPOCHS + 1..]);
    assert_eq!((history.agreement(&came), came.agreement(&history)), (history.last(), history.last()));
}

/// Looking for an agreement would not end with such a one, or fail.
#[test]
fn a_history_that_does_not_rise_is_refused() {
    let start = |epoch, seq| (Term::from(Epoch(epoch)), Seq(seq));
    let bad = [
        (vec![start(2, 5), start(2, 6)], 9),
        (vec![start(2, 5), start(1, 6)], 9),
        (vec![start(1, 6), start(2, 6)], 9),
        (vec![start(1, 0)], 9),
        (vec![start(0, 1)], 9),
        (vec![start(1, 10)], 9),
        (vec![start(u32::MAX, 1)], 9),
        (vec![start(1, 1)], u64::MAX),
    ];
    for (starts, last) in bad {
        let history = History::new(starts.clone(), Seq(last));
        let Said::Group(message, _) = told(history) else { unreachable!() };
        let sent = Sender::new().encode(&ENVELOPE, &message, &[], &mut Vec::new(), &mut Vec::new());
        assert!(matches!(sent, Err(WireError::Field { .. })), "{starts:?} through {last}: {sent:?}");
        let forged = with_meta("told", |meta| {
            meta.truncate(32);
            meta[8..16].copy_from_slice(&last.to_le_bytes());
            meta[16..20].copy_from_slice(&(starts.len() as u32).to_le_bytes());
            for (term, first) in &starts {
                meta.extend(term.epoch.0.to_le_bytes());
                meta.extend(term.mark.to_le_bytes());
                meta.extend(first.0.to_le_bytes());
            }
            meta.resize(meta.len().next_multiple_of(8), 0);
        });
        assert!(matches!(refused(&forged), WireError::Field { .. }), "{starts:?} through {last}");
    }
}

#[test]
fn an_answer_that_would_except_too_many_groups_grants_nothing() {
    let answer = |groups: u32| {
        let except = |group| Excepted { group: GroupId(group), place: 0, below: Epoch(1) };
        let grants = Grants::AllBut((0..groups).map(except).collect());
        let line = StoreLine { store: StoreId(1), life: Incarnation(1), shards: 1, cores: 1, ..StoreLine::default() };
        let (incarnation, cores, stores) = (Incarnation(1), Cores::default(), vec![line; 64]);
        let message = NodeMessage::BeatAnswer(BeatAnswer { echo_ns: 1, incarnation, cores, stores, grants });
        let sent = encode(&mut Sender::new(), &Envelope::default(), &Said::Node(message));
        match first_frame(&sent).expect("good").expect("whole").said {
            Said::Node(NodeMessage::BeatAnswer(answer)) => answer.grants,
            other => panic!("{other:?}"),
        }
    };
    let most = MAX_EXCEPTED as u32;
    assert!(matches!(answer(most), Grants::AllBut(excepted) if excepted.len() == MAX_EXCEPTED));
    assert_eq!(answer(most + 1), Grants::Nothing);
}

#[test]
fn a_reason_is_plain_text_of_bounded_length() {
    let reason = format!("line\n\x1b[31m{}", "é".repeat(MAX_REASON_BYTES));
    let message = NodeMessage::HelloRefused(HelloRefused { reason });
    let sent = encode(&mut Sender::new(), &Envelope::default(), &Said::Node(message));
    match first_frame(&sent).expect("good").expect("whole").said {
        Said::Node(NodeMessage::HelloRefused(HelloRefused { reason })) => {
            assert!(reason.starts_with("line  [31mé") && reason.len() <= MAX_REASON_BYTES, "{reason}");
            assert!(reason.len() > MAX_REASON_BYTES - 2);
        }
        other => panic!("{other:?}"),
    }
    let forged = with_meta("hello-refused", |meta| meta[8] = 0x1b);
    assert!(matches!(refused(&forged), WireError::Field { .. }), "it goes to a log");
}
