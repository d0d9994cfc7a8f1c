//! The node protocol's bytes: what is sent is what is understood, and nothing else is taken.

use replication::protocol::{History, Membership, Message};
use replication::wire::fuzz::{
    self, BEFORE, ENVELOPE, GROUP, Random, encode, is_same, record, sample_frames, samples, seal,
};
use replication::wire::*;
use runtime::{IoBuf, SharedBuf};
use store::format::{Codec, StoredLength};
use store::{BlockCoding, Entry, EntryKind, OrderedError};
use types::*;

fn shared(bytes: &[u8]) -> SharedBuf {
    IoBuf::copy_of(bytes).freeze()
}

/// The only frame of a connection.
fn first_frame(bytes: &[u8]) -> Result<Option<Frame>, WireError> {
    Receiver::of(Features::KNOWN).frame(&shared(bytes))
}

fn refused(bytes: &[u8]) -> WireError {
    match first_frame(bytes) {
        Err(why) => why,
        Ok(taken) => panic!("taken: {taken:?}"),
    }
}

/// A whole frame of the sample.
fn sample(name: &str) -> Vec<u8> {
    sample_frames().into_iter().find(|(known, _)| *known == name).expect("a sample").1
}

/// The sample's frame with another meta part, and right sums.
fn with_meta(name: &str, change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let frame = sample(name);
    let header = FrameHeader::decode(&frame).expect("good").expect("whole");
    let (head, body) = frame.split_at(FRAME_HEADER_BYTES);
    let (meta, blocks) = body.split_at(header.meta_bytes as usize);
    let mut meta = meta.to_vec();
    change(&mut meta);
    let mut frame = [head, &meta, blocks].concat();
    frame[8..12].copy_from_slice(&(meta.len() as u32).to_le_bytes());
    seal(&frame)
}

/// The sample's frame with other bytes in its header, and right sums.
fn with_header(name: &str, at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut frame = sample(name);
    frame[at..at + bytes.len()].copy_from_slice(bytes);
    seal(&frame)
}

// ---- bytes ---------------------------------------------------------------------------------------------------------

/// `xx*n` is n times that byte.
fn golden(text: &str) -> Vec<u8> {
    let byte = |pair: &str| u8::from_str_radix(pair, 16).expect("hexadecimal");
    let mut bytes = Vec::new();
    for word in text.split_whitespace() {
        match word.split_once('*') {
            Some((value, count)) => bytes.resize(bytes.len() + count.parse::<usize>().expect("a number"), byte(value)),
            None => bytes.extend((0..word.len()).step_by(2).map(|at| byte(&word[at..at + 2]))),
        }
    }
    bytes
}

/// The file was made from the tables in the documentation, by other means than the code that is tested.
#[test]
fn golden_bytes() {
    let mut lines = include_str!("wire-golden.txt").lines().filter(|line| !line.starts_with('#'));
    let mut check = |name: String, sent: &[u8]| {
        let header = FrameHeader::decode(sent).expect("good").expect("whole");
        let sent = &sent[..FRAME_HEADER_BYTES + header.meta_bytes as usize];
        let (golden_name, text) = lines.next().and_then(|line| line.split_once(": ")).expect("a line per sample");
        assert_eq!((golden_name, golden(text).as_slice()), (name.as_str(), sent), "{sent:02x?}");
    };
    for (name, envelope, said) in samples() {
        check(name.to_owned(), &encode(&mut Sender::new(), &envelope, &said));
    }
    for (name, envelope, said) in samples() {
        let has_record = ["prepare", "prepare-with-blocks", "ask", "fetch", "refused"].contains(&name);
        if has_record {
            let mut sender = Sender::new();
            let ask = Said::Group(Message::Ask { record: record().into() }, Vec::new());
            encode(&mut sender, &ENVELOPE, &ask);
            check(format!("/{name}"), &encode(&mut sender, &envelope, &said));
        }
    }
    assert_eq!(lines.next(), None);
}

#[test]
fn every_kind_says_what_was_said() {
    let mut kinds = Vec::new();
    for (name, envelope, said) in samples() {
        let sent = encode(&mut Sender::new(), &envelope, &said);
        let frame = first_frame(&sent).expect("good").expect("whole");
        assert_eq!((frame.header.envelope, frame.header.frame_bytes()), (envelope, sent.len()), "{name}");
        assert!(is_same(&frame, &Frame { header: frame.header, said }), "{name}: {frame:?}");
        kinds.push(frame.header.kind);
    }
    assert!(Kind::ALL.iter().all(|kind| kinds.contains(kind)), "a sample of each kind");
}

#[test]
fn one_changed_byte_is_refused_wherever_it_is() {
    for (name, frame) in sample_frames().into_iter().filter(|(name, _)| !name.starts_with("all")) {
        for at in 0..frame.len() {
            for change in [0x01, 0x80, 0xff] {
                let mut bytes = frame.clone();
                bytes[at] ^= change;
                if let Ok(taken) = first_frame(&bytes) {
                    panic!("{name}: byte {at} ^ {change:#x}: {taken:?}");
                }
            }
        }
    }
}

#[test]
fn what_is_not_all_there_is_waited_for() {
    for (name, frame) in sample_frames().into_iter().filter(|(name, _)| !name.starts_with("all")) {
        for length in 0..frame.len() {
            assert!(matches!(first_frame(&frame[..length]), Ok(None)), "{name}: {length} of {} bytes", frame.len());
        }
    }
}

/// With sums put right, so that what lies behind them decides: refused, or taken and then sent again as the same.
#[test]
fn no_byte_makes_a_decoder_panic() {
    let samples = sample_frames();
    for (_, frame) in &samples {
        for at in 0..frame.len().min(1200) {
            for value in [0x00, 0x01, 0x28, 0x7f, 0x80, 0xff] {
                let mut bytes = frame.clone();
                bytes[at] = value;
                fuzz::frames(&bytes);
            }
        }
    }
    let mut random = Random(5);
    for _ in 0..20_000 {
        let mut bytes = samples[random.below(samples.len() as u64) as usize].1.clone();
        for _ in 0..=random.below(4) {
            let at = random.below(bytes.len().min(1200) as u64) as usize;
            bytes[at] = random.number() as u8;
        }
        if random.below(8) == 0 {
            bytes.truncate(random.below(bytes.len() as u64) as usize);
        }
        fuzz::frames(&bytes);
    }
}

// ---- random content ------------------------------------------------------------------------------------------------

fn random_record(random: &mut Random) -> Membership {
    let count = 1 + random.below(MAX_MEMBERS as u64);
    let mut record = Membership {
        epoch: Epoch(1 + random.below(1 << 30) as u32),
        primary: StoreId(random.number().into()),
        life: Incarnation(random.number()),
        min_in_sync: random.below(4) as usize,
        ..Membership::default()
    };
    for member in 0..count {
        let store = StoreId(u128::from(random.number()) << 64 | u128::from(member));
        let list = [&mut record.in_sync, &mut record.eligible, &mut record.joining];
        list.into_iter().nth(random.below(3) as usize).expect("three lists").push(store);
    }
    record
}

/// Whose entries of this epoch are.
fn term(epoch: u32) -> Term {
    Term::led_by(Epoch(epoch), StoreId(7), Incarnation(u64::from(epoch)))
}

fn random_history(random: &mut Random) -> History {
    let mut history = History::new(Vec::new(), Seq(random.below(1 << 40)));
    let mut epoch = 0;
    for _ in 0..random.below(200) {
        epoch += random.below(3) as u32;
        history.push(term(1 + epoch));
    }
    history
}

fn random_bytes(random: &mut Random, length: usize) -> SharedBuf {
    let mut buf = IoBuf::new(length);
    buf.fill_with(|| random.number() as u8);
    buf.freeze()
}

fn random_kind(random: &mut Random) -> EntryKind {
    let first = random.below(200);
    let range = BlockRange::new(first as u32, 1 + random.below(32) as u32);
    let hides_below = random.below(2) == 0;
    let mut chunks: Vec<_> = (0..1 + random.below(64)).map(|_| ChunkId(random.number() as u32)).collect();
    chunks.sort();
    chunks.dedup();
    match random.below(10) {
        0 => EntryKind::write(range, random_bytes(random, range.bytes())),
        1 => {
            let mut lengths = Vec::new();
            lengths.resize_with(range.count.into(), || match random.below(3) {
                0 => StoredLength::RAW,
                1 => StoredLength::new(1 + random.below(7) as u8, Codec::Lz4),
                _ => StoredLength::new(1 + random.below(7) as u8, Codec::Zstd),
            });
            let length = lengths.iter().map(|length| length.bytes()).sum();
            let coding = BlockCoding::new(KeyId(random.number() as u32), Some(&lengths));
            EntryKind::Write { range, bytes: random_bytes(random, length), coding }
        }
        2 => EntryKind::Zero { range, hides_below },
        3 => EntryKind::EpochStart,
        4 => EntryKind::VolumeEpoch { volume: VolumeId(random.number()) },
        5 => {
            let layer = store::format::LayerRecord { layer: LayerId(7), parent: LayerId(6), ..Default::default() };
            EntryKind::Layer { record: layer }
        }
        6 => {
            let length = random.below(3000) as usize;
            EntryKind::GroupRecord { record: random_bytes(random, length) }
        }
        7 => EntryKind::Merge { into: LayerId(random.number() | 8), chunks, hides_below },
        8 => EntryKind::LayerDelete { chunks },
        _ => EntryKind::Noop,
    }
}

/// Entries that follow each other in a log of this record's group; and the place before them.
fn random_entries(random: &mut Random, record: &Membership) -> (replication::protocol::Place, Vec<Entry>) {
    let mut epoch = 1 + random.below(record.epoch.0.into()) as u32;
    let mut seq = random.below(1 << 40);
    let before = (term(epoch), Seq(seq));
    let entry = |_| {
        seq += 1;
        epoch = (epoch + (random.below(4) == 0) as u32).min(record.epoch.0);
        let commit = Seq(random.below(seq));
        let (volume_epoch, chunk) = (VolumeEpoch(random.number() as u32), ChunkId(random.number() as u32));
        let kind = random_kind(random);
        Entry { group: GROUP, term: term(epoch), seq: Seq(seq), commit, volume_epoch, layer: LayerId(7), chunk, kind }
    };
    (before, [(); 6].map(entry).into())
}

fn random_message(random: &mut Random) -> (Message, Vec<Entry>) {
    let record = random_record(random);
    let (epoch, seq) = (record.epoch, Seq(random.below(1 << 60)));
    let (before, entries) = random_entries(random, &record);
    let message = match random.below(7) {
        0 => return (Message::Prepare { record: record.into(), before, commit: seq }, entries),
        1 => return (Message::Fetched { epoch, before }, entries),
        2 => Message::Prepared { epoch, through: seq },
        3 => Message::Ask { record: record.into() },
        4 => {
            let (history, committed) = (random_history(random), Seq(random.below(1 << 40)));
            Message::Told { epoch, history, committed, whole: random.below(2) == 0, turns: random.below(9) as u32 }
        }
        5 => Message::Fetch { record: record.into(), behind: seq },
        _ => Message::Refused { record: record.into() },
    };
    (message, Vec::new())
}

fn random_node_message(random: &mut Random) -> NodeMessage {
    let mut cores = Cores::default();
    (0..random.below(20)).for_each(|_| cores.insert(random.below(Cores::MOST as u64) as usize));
    let mut stores = Vec::new();
    stores.resize_with(random.below(65) as usize, || StoreLine {
        store: StoreId(random.number().into()),
        life: Incarnation(random.number()),
        shards: 1 + random.below(8) as u16,
        first_core: random.below(9) as u16,
        cores: 1 + random.below(16) as u16,
        is_full: random.below(2) == 1,
        reaches_map: random.below(2) == 1,
    });
    let (time, incarnation) = (random.number(), Incarnation(random.number()));
    match random.below(4) {
        0 => {
            let count = (random.below(2) == 1).then(|| random.number());
            NodeMessage::Beat(Beat { sent_ns: time, incarnation, cores, stores, count })
        }
        1 => {
            let mut groups: Vec<_> = (0..random.below(400))
                .map(|_| Excepted {
                    group: GroupId(random.below(200) as u32),
                    place: random.below(64) as u16,
                    below: Epoch(random.number() as u32),
                })
                .collect();
            groups.sort();
            groups.dedup_by_key(|excepted| (excepted.group, excepted.place));
            let grants = if groups.len() > 350 { Grants::Nothing } else { Grants::AllBut(groups) };
            NodeMessage::BeatAnswer(BeatAnswer { echo_ns: time, incarnation, cores, stores, grants })
        }
        2 => {
            let reason = (0..random.below(300)).map(|_| ['a', 'ö', ' ', '✗'][random.below(4) as usize]).collect();
            NodeMessage::HelloRefused(HelloRefused { reason })
        }
        _ => NodeMessage::Hello(Hello {
            cluster: ClusterId(random.number().into()),
            node: NodeId(random.number() as u32),
            incarnation,
            core: random.number() as u16,
            to_core: random.number() as u16,
            speaks: Protocol {
                oldest: random.number() as u16,
                newest: random.number() as u16,
                features: Features(random.number()),
                release: Release([1, random.number() as u16, 7]),
            },
            nonce: [random.number() as u8; 32],
            proof: [random.number() as u8; 32],
        }),
    }
}

fn random_call(random: &mut Random) -> CallMessage {
    let length = random.below(3) * random.below(200_000);
    let head = (0..random.below(3000)).map(|_| random.number() as u8).collect();
    let parcel = Parcel { head, bytes: random_bytes(random, length as usize) };
    match random.below(3) {
        0 => CallMessage::Call(Service(random.number() as u16), parcel),
        1 => CallMessage::Reply(Ok(parcel)),
        _ => CallMessage::Reply(Err("too many".to_owned())),
    }
}

#[test]
fn a_call_that_is_too_long_is_not_sent() {
    let most = |head: usize, bytes: usize| {
        CallMessage::Call(Service(1), Parcel { head: vec![7; head], bytes: shared(&vec![8; bytes]) })
    };
    let encoded = |message: &CallMessage| {
        let (mut out, mut blocks) = (Vec::new(), Vec::new());
        let encoded = encode_call(&Envelope::default(), message, &mut out, &mut blocks);
        (encoded.is_ok(), out.is_empty() && blocks.is_empty())
    };
    assert_eq!(encoded(&most(MAX_CALL_HEAD_BYTES, MAX_CALL_BYTES)), (true, false));
    assert_eq!(encoded(&most(MAX_CALL_HEAD_BYTES + 1, 1)), (false, true));
    assert_eq!(encoded(&most(1, MAX_CALL_BYTES + 1)), (false, true));
    let long = with_meta("call", |meta| meta[8..12].copy_from_slice(&(MAX_CALL_HEAD_BYTES as u32 + 1).to_le_bytes()));
    assert!(matches!(refused(&long), WireError::Field { field: "length of the head", .. }));
    let other = with_meta("reply", |meta| meta[2] = 2);
    assert!(matches!(refused(&other), WireError::Field { field: "what a reply says", found: 2, .. }));
}

/// Many messages on one connection, whatever they hold, arrive as they were sent.
#[test]
fn a_connection_carries_any_content() {
    for seed in 0..20 {
        let mut random = Random(seed);
        let (mut sender, mut receiver) = (Sender::new(), Receiver::of(Features::KNOWN));
        for _ in 0..100 {
            let (envelope, said) = if random.below(8) == 0 {
                let request = RequestId(random.number());
                (Envelope { request, ..Envelope::default() }, Said::Call(random_call(&mut random)))
            } else if random.below(4) == 0 {
                let request = RequestId(random.number());
                (Envelope { request, ..Envelope::default() }, Said::Node(random_node_message(&mut random)))
            } else {
                let (message, entries) = random_message(&mut random);
                let (sender, receiver) = (StoreId(random.number().into()), StoreId(random.number().into()));
                let (remaining_ms, attempt) = (random.number() as u32, random.number());
                (Envelope { sender, receiver, remaining_ms, attempt, ..ENVELOPE }, Said::Group(message, entries))
            };
            let sent = encode(&mut sender, &envelope, &said);
            let frame = receiver.frame(&shared(&sent)).expect("good").expect("whole");
            let header = FrameHeader { envelope, ..frame.header };
            assert!(is_same(&frame, &Frame { header, said }), "seed {seed}: {frame:?}");
        }
    }
}

// ---- headers -------------------------------------------------------------------------------------------------------

/// From the header alone: nothing of the body has come, nothing is kept for it.
#[test]
fn lengths_beyond_all_bounds_are_refused_before_the_body() {
    for kind in Kind::ALL {
        let (name, ..) = samples()
            .into_iter()
            .find(|(name, ..)| {
                FrameHeader::decode(&sample(name)).is_ok_and(|header| header.is_some_and(|header| header.kind == kind))
            })
            .expect("a sample of each kind");
        for (at, most) in [(8, kind.meta_bytes_max()), (12, kind.blocks_bytes_max())] {
            for found in [most + 1, u32::MAX] {
                let header = with_header(name, at, &found.to_le_bytes());
                match FrameHeader::decode(&header[..FRAME_HEADER_BYTES]) {
                    Err(WireError::TooLong { kind: of, found: told, most: allowed, .. }) => {
                        assert_eq!((of, told, allowed), (kind, found, most));
                    }
                    other => panic!("{kind:?}: {other:?}"),
                }
            }
        }
        let whole = kind.meta_bytes_max() as usize + kind.blocks_bytes_max() as usize;
        assert!(whole <= MAX_BODY_BYTES && MAX_BODY_BYTES <= (1 << 20) + (512 << 10));
    }
}

#[test]
fn what_this_build_does_not_know_is_refused_and_says_what_to_do() {
    let mut http = b"GET / HTTP/1.1\r\n".to_vec();
    assert_eq!(refused(&http), WireError::Magic);
    http.truncate(1);
    assert_eq!(refused(&http), WireError::Magic, "at the first byte");
    let mut later = sample("ask");
    later[4] = 4;
    let version = WireError::Version { found: 4, supported: WIRE_VERSION };
    assert_eq!((refused(&later), refused(&later[..6])), (version.clone(), version), "whatever the rest is");
    assert_eq!(refused(&with_header("ask", 6, &[99])), WireError::Kind { found: 99 });
    assert!(WireError::Kind { found: 99 }.to_string().contains("upgrade it"));
    assert_eq!(refused(&with_header("ask", 16, &[0, 4])), WireError::Features { bits: 1 << 10 });
    assert!(matches!(refused(&with_header("ask", 7, &[3])), WireError::Field { field: "class", found: 3, .. }));
    assert!(matches!(refused(&with_header("beat", 80, &[1])), WireError::Field { .. }), "a beat is of no group");
    let tenant = first_frame(&with_header("ask", 90, &[1])).expect("a reader need not know it");
    assert!(tenant.is_some());
}

/// A later version appends fields to the fixed part and lists behind the others.
#[test]
fn what_a_later_version_appends_is_skipped() {
    for (name, envelope, said) in samples() {
        let later = with_meta(name, |meta| {
            let fixed = usize::from(u16::from_le_bytes([meta[0], meta[1]]));
            meta[..2].copy_from_slice(&(fixed as u16 + 16).to_le_bytes());
            meta.splice(fixed..fixed, [0xee; 16]);
            meta.extend([0xdd; 24]);
        });
        // Who knows the later version reads what it appends.
        let agreed = if name.ends_with("rehearsed") { Features::KNOWN } else { Features::NONE };
        let frame = Receiver::of(agreed).frame(&shared(&later));
        let frame = frame.unwrap_or_else(|why| panic!("{name}: {why}")).expect("whole");
        let header = FrameHeader { envelope, ..frame.header };
        assert!(is_same(&frame, &Frame { header, said }), "{name}: {frame:?}");
    }
}

/// What a rehearsed release has beyond this one: its field behind a beat is skipped, its kind of frame refused, by who has not agreed
/// on it.
#[test]
fn what_was_not_agreed_on_is_not_taken() {
    let plain = |name| Receiver::new().frame(&shared(&sample(name)));
    let Ok(Some(Frame { said: Said::Node(NodeMessage::Beat(beat)), .. })) = plain("beat-rehearsed") else {
        panic!("a beat");
    };
    assert_eq!((beat.count, beat.stores.len(), beat.sent_ns), (None, 1, 5), "the stores behind the field are found");
    let refused_as = WireError::NotAgreed { kind: Kind::Rehearsed };
    assert_eq!(plain("rehearsed").map(drop), Err(refused_as.clone()));
    let frame = sample("rehearsed");
    let header = FrameHeader::decode(&frame).expect("good").expect("whole");
    assert_eq!(Receiver::of(Features(1)).judge(&header), Err(refused_as), "before there is a body");
    let needs = refused(&with_header("ping", 16, &Features::REHEARSAL.0.to_le_bytes()));
    assert!(matches!(needs, WireError::Field { field: "features that the reader must have", .. }), "{needs}");
}

/// Blocks that are received where the header says can be written to a device from there.
#[test]
fn blocks_lie_aligned_in_the_buffer_they_are_received_in() {
    let sent = sample("prepare-with-blocks");
    let header = FrameHeader::decode(&sent).expect("good").expect("whole");
    let at = header.body_at_bytes();
    let mut buffer = IoBuf::new(at + header.body_bytes());
    buffer[at..].copy_from_slice(&sent[FRAME_HEADER_BYTES..]);
    let buffer = buffer.freeze();
    let Ok(Said::Group(_, entries)) = Receiver::new().decode(&header, &buffer.slice(at..buffer.len())) else {
        panic!("a good body");
    };
    let inside = buffer.as_ptr_range();
    let mut found = 0;
    for entry in &entries {
        match &entry.kind {
            EntryKind::Write { bytes, coding: _, range } => {
                assert!(inside.contains(&bytes.as_ptr()), "no copy");
                assert!(range.first != 3 || bytes.as_ptr().addr().is_multiple_of(runtime::buf::ALIGNMENT));
                found += 1;
            }
            EntryKind::GroupRecord { record } => assert!(inside.contains(&record.as_ptr()), "no copy"),
            _ => {}
        }
    }
    assert_eq!(found, 2);
}

// ---- records -------------------------------------------------------------------------------------------------------

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

// ---- histories, beats ----------------------------------------------------------------------------------------------

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

// ---- entries -------------------------------------------------------------------------------------------------------

/// Heads of the sample's entries begin there in its meta part.
const HEADS_AT: usize = 40 + 40 + 3 * 16;

#[test]
fn a_block_that_changed_names_group_and_entry() {
    let mut sent = sample("prepare-with-blocks");
    let last = sent.len() - 1;
    sent[last] ^= 1;
    match refused(&sent) {
        WireError::Entry(OrderedError::Sum { group, seq, block, .. }) => {
            assert_eq!((group, seq, block), (GROUP, Seq(1011), 255));
        }
        other => panic!("{other}"),
    }
}

#[test]
fn entries_follow_each_other_and_are_of_the_frames_group() {
    let change = |at: usize, value: u8| refused(&with_meta("prepare", |meta| meta[HEADS_AT + at] = value));
    let second = 80;
    assert_eq!(change(16, 9), WireError::ForeignEntry { group: GROUP, found: GroupId(0x0102_0309) });
    let order = |expected, found| WireError::EntryOrder { group: GROUP, expected: Seq(expected), found: Seq(found) };
    assert_eq!(change(24, 0xea), order(1001, 1002), "a hole behind the one before");
    assert_eq!(change(second + 24, 0xeb), order(1002, 1003), "a hole");
    // The mark stays as it was.
    let epoch = |seq, found, mark| {
        let (group, least, most) = (GROUP, BEFORE.0, Epoch(6));
        WireError::EntryEpoch { group, seq: Seq(seq), found: Term::new(Epoch(found), mark), least, most }
    };
    assert_eq!(change(20, 4), epoch(1001, 4, 0x5EED_0005), "older than the one before");
    assert_eq!(change(second + 20, 4), epoch(1002, 4, 0x5EED_0006), "falls");
    assert_eq!(change(second + 20, 7), epoch(1002, 7, 0x5EED_0006), "newer than the message");
    assert_eq!(change(64, 4), epoch(1001, 5, 0x5EED_0004), "of the same epoch, and another's");
}

#[test]
fn entries_that_no_store_would_take_are_refused() {
    // The second entry is an epoch start: 80 bytes that can be made one outside any order, or none at all.
    let second = |change: &dyn Fn(&mut [u8])| refused(&with_meta("prepare", |meta| change(&mut meta[HEADS_AT + 80..])));
    let installs = second(&|head| {
        head[8] = 11;
        head[20..44].fill(0);
        head[64..68].fill(0);
    });
    assert!(matches!(installs, WireError::Entry(OrderedError::Kind { kind: 11, .. })), "{installs}");
    for kind in [16, 32, 77] {
        let why = second(&|head| head[8] = kind);
        assert!(matches!(why, WireError::Entry(OrderedError::Format(_))), "kind {kind}: {why}");
    }
    let atomic = second(&|head| head[60] = 1);
    assert!(matches!(atomic, WireError::Entry(OrderedError::Format(_))), "{atomic}");
    let outside = [
        EntryKind::InstallBegin { keeps: false },
        EntryKind::MemberState { state: shared(b"x") },
        EntryKind::InstallEnd { last_seq: Seq(1) },
        EntryKind::InstallZero { range: BlockRange::new(0, 1), hides_below: false },
        EntryKind::Install { range: BlockRange::new(0, 1), bytes: shared(&[0; 4096]), coding: BlockCoding::PLAIN },
    ];
    let too_much = [
        EntryKind::write(BlockRange::new(0, 33), shared(&[0; 33 * 4096])),
        EntryKind::GroupRecord { record: shared(&[0; (64 << 10) + 1]) },
        EntryKind::Merge { into: LayerId(1), chunks: Vec::new(), hides_below: false },
        EntryKind::Merge { into: LayerId(7), chunks: vec![ChunkId(1)], hides_below: false },
        EntryKind::LayerDelete { chunks: (0..65).map(ChunkId).collect() },
        EntryKind::LayerDelete { chunks: vec![ChunkId(2), ChunkId(1)] },
    ];
    let send = |kind: EntryKind| {
        let message = Message::Fetched { epoch: Epoch(6), before: BEFORE };
        Sender::new().encode(&ENVELOPE, &message, &[entry(1001, kind)], &mut Vec::new(), &mut Vec::new())
    };
    for kind in outside {
        assert!(matches!(send(kind.clone()), Err(WireError::Entry(OrderedError::Kind { .. }))), "{kind:?}");
    }
    for kind in too_much {
        assert!(matches!(send(kind.clone()), Err(WireError::Entry(OrderedError::Limit { .. }))), "{kind:?}");
    }
    let short = EntryKind::write(BlockRange::new(0, 2), shared(&[0; 4096]));
    assert!(matches!(send(short), Err(WireError::Entry(OrderedError::Blocks { expected: 8192, found: 4096, .. }))));
}

fn entry(seq: u64, kind: EntryKind) -> Entry {
    let (term, layer, chunk, volume_epoch) = (term(6), LayerId(7), ChunkId(1), VolumeEpoch(1));
    Entry { group: GROUP, term, seq: Seq(seq), commit: Seq(0), volume_epoch, layer, chunk, kind }
}

/// The number of entries must be the number said, and no byte of blocks is left over.
#[test]
fn counts_that_do_not_fit_the_entries_are_refused() {
    for count in [8, 10, 0, 4097, u32::MAX] {
        let forged = with_meta("prepare", |meta| meta[12..16].copy_from_slice(&count.to_le_bytes()));
        assert!(matches!(refused(&forged), WireError::Field { what: "entries", .. }), "{count}");
    }
    let mut longer = sample("prepare-with-blocks");
    let blocks = u32::from_le_bytes(longer[12..16].try_into().expect("four bytes"));
    longer[12..16].copy_from_slice(&(blocks + 512).to_le_bytes());
    longer.extend([0; 512]);
    assert!(matches!(refused(&seal(&longer)), WireError::Short { what: "blocks", .. }));
    let mut shorter = sample("prepare-with-blocks");
    shorter[12..16].copy_from_slice(&(blocks - 512).to_le_bytes());
    shorter.truncate(shorter.len() - 512);
    assert!(matches!(refused(&seal(&shorter)), WireError::Entry(OrderedError::Blocks { .. })));
}

/// What does not fit into one frame goes with the next.
#[test]
fn a_frame_takes_as_many_entries_as_its_bounds_allow() {
    let block = shared(&[7; 4096]);
    let write = |seq| entry(seq, EntryKind::write(BlockRange::new(0, 1), block.clone()));
    let noop = |seq| entry(seq, EntryKind::Noop);
    let large = shared(&[1; 64 << 10]);
    let record = |seq| entry(seq, EntryKind::GroupRecord { record: large.clone() });
    let taken = |make: &dyn Fn(u64) -> Entry, count: u64| {
        let entries: Vec<_> = (1001..=1000 + count).map(make).collect();
        let message = Message::Prepare { record: fuzz::record().into(), before: BEFORE, commit: Seq(0) };
        let (mut out, mut blocks) = (Vec::new(), Vec::new());
        let taken = Sender::new().encode(&ENVELOPE, &message, &entries, &mut out, &mut blocks).expect("it can be sent");
        blocks.iter().for_each(|part| out.extend_from_slice(part));
        match first_frame(&out).expect("good").expect("whole").said {
            Said::Group(_, came) => assert_eq!(came.len(), taken),
            other => panic!("{other:?}"),
        }
        taken
    };
    assert_eq!([taken(&write, 256), taken(&write, 300)], [256, 256], "1 MiB of blocks");
    assert_eq!([taken(&noop, 4096), taken(&noop, 4100)], [4096, 4096], "4,096 entries");
    assert_eq!([taken(&record, 1), taken(&record, 20)], [1, 7], "512 KiB of heads");
}

/// Made by Python's `hashlib.blake2s`, of the hellos of `wire-golden.txt`.
#[test]
fn a_proof_is_of_both_hellos_and_of_who_speaks() {
    let hello_of = |name| {
        let sample = samples().into_iter().find(|(is, ..)| *is == name).expect("there is one");
        match sample.2 {
            Said::Node(NodeMessage::Hello(hello) | NodeMessage::HelloAnswer(hello)) => hello,
            other => panic!("{other:?}"),
        }
    };
    let (hello, answer) = (hello_of("hello"), hello_of("hello-answer"));
    let key = ClusterKey(std::array::from_fn(|index| index as u8));
    let is = |proof: [u8; 32], hex: &str| {
        let digits: String = proof.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(digits, hex);
    };
    is(key.answerer(&hello, &answer), "3cb818894316f694759473d28e4395d978ee8e28707e2a0b1bda839b566f43ca");
    is(key.opener(&hello, &answer), "80bbb24b219a17af2c60cd43b8618b40f1f29f093cfb668a3476689a37e9e270");
    let opener = key.opener(&hello, &answer);
    for bit in 0..256 {
        let mut other = opener;
        other[bit / 8] ^= 1 << (bit % 8);
        assert!(!same_proof(&opener, &other));
    }
    assert!(same_proof(&opener, &opener.clone()));
}

/// Whoever changes a hello on its way so that it says something else has no proof for it.
#[test]
fn no_field_of_a_hello_can_be_changed() {
    let key = ClusterKey([3; 32]);
    let hello_in = |frame: &[u8]| match first_frame(frame).expect("good").expect("whole").said {
        Said::Node(NodeMessage::Hello(hello) | NodeMessage::HelloAnswer(hello)) => hello,
        other => panic!("{other:?}"),
    };
    let (hello, answer) = (hello_in(&sample("hello")), hello_in(&sample("hello-answer")));
    let (answerer, opener) = (key.answerer(&hello, &answer), key.opener(&hello, &answer));
    let mut changed = 0;
    for bit in 16..8 * 120 {
        let other = |name| hello_in(&with_meta(name, |meta| meta[bit / 8] ^= 1 << (bit % 8)));
        let (other_hello, other_answer) = (other("hello"), other("hello-answer"));
        if other_hello == hello {
            continue;
        }
        changed += 1;
        assert_ne!(key.opener(&other_hello, &answer), opener, "bit {bit} of the hello");
        assert_ne!(key.opener(&hello, &other_answer), opener, "bit {bit} of the answer");
        assert_ne!(key.answerer(&other_hello, &answer), answerer, "bit {bit} of the hello");
        let is_proof = (80..112).contains(&(bit / 8));
        assert_eq!(key.answerer(&hello, &other_answer) == answerer, is_proof, "bit {bit} of the answer");
    }
    // All but the length and what is zero.
    assert_eq!(changed, 8 * (120 - 2 - 2 - 2));
}
