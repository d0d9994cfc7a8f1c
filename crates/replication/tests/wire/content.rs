//! Whatever a connection carries arrives as it was sent.

use super::*;

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
