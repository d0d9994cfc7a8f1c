//! Entries of a log and their blocks.

use super::*;

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
