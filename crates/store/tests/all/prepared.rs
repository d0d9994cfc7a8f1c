//! What a member holds and does not know to be committed: cut where the group went another way, and read back to be
//! sent to another member.

use crate::common::carry::{carried_at_every_moment, one_that_waits_fills_no_device, what_waits_comes_to_rest};
use crate::common::members::*;
use crate::common::*;
use store::ReadError;
use store::format::LayerRecord;
use types::*;

#[test]
fn a_cut_forgets_what_lies_behind_and_nothing_that_is_committed() {
    a_cut_forgets_what_lies_behind(1);
}

#[test]
fn what_is_prepared_outlives_a_pass_that_does_not_hold_it() {
    what_is_prepared_outlives_a_pass(11);
}

#[test]
fn a_group_that_waits_fills_no_device() {
    one_that_waits_fills_no_device(12);
}

#[test]
fn a_group_that_waits_with_much_comes_to_rest() {
    what_waits_comes_to_rest(13);
}

#[test]
fn what_is_written_again_is_there_at_every_moment() {
    let carried: u64 = (0..4).map(carried_at_every_moment).sum();
    assert!(carried > 20, "{carried} entries were written again");
}

/// Not written down: who cut it cuts it again.
#[test]
fn what_was_cut_is_there_again_after_a_restart() {
    let rig = rig(2);
    rig.run(async {
        let (shard, _) = open_whole().await;
        prepare(&shard, [start(1, 1), write(1, 2, 0, 0), write(1, 3, 0, 1)]).await;
        assert!(shard.cut(GROUP, Seq(1)));
        assert_eq!(shard.prepared_through(GROUP), Seq(1));
    });
    lose_power(&rig);
    rig.run(async {
        let (shard, _) = open_whole().await;
        assert_eq!(shard.prepared_through(GROUP), Seq(3));
        assert!(shard.cut(GROUP, Seq(1)));
        shard.commit(GROUP, Seq(3));
        assert_eq!((shard.committed_through(GROUP), versions(&shard, 0, 2).await), (Seq(1), vec![0, 0]));
    });
}

/// A record that is on its way when its entries are cut gets to the device, and nothing waits in it: the next pass
/// begins behind it, and it is not read again.
#[test]
fn what_is_cut_under_way_does_no_harm_and_holds_nothing_back() {
    let rig = rig(3);
    rig.run(async {
        let (shard, _) = open_whole().await;
        let mut last = Default::default();
        for queued in [start(1, 1), write(1, 2, 0, 0), write(1, 3, 0, 1), write(1, 4, 0, 2)] {
            last = shard.prepare(queued).expect("there is room");
        }
        assert!(shard.durable_through() < last && shard.cut(GROUP, Seq(2)));
        last = shard.prepare(start(2, 3)).expect("there is room");
        runtime::turn_end().await;
        last = last.max(shard.prepare(write(2, 4, 0, 3)).expect("there is room"));
        assert!(shard.cut(GROUP, Seq(3)), "it is being written");
        durable(&shard, last).await;
        assert!(shard.commit(GROUP, Seq(3)).is_done());
        shard.pass_now().await.expect("an open shard");
        assert_eq!(versions(&shard, 0, 4).await, [2, 0, 0, 0]);
    });
    lose_power(&rig);
    rig.run(async {
        let (shard, recovery) = open_whole().await;
        let found = &recovery.groups[0];
        assert_eq!((found.committed, found.prepared_through), (Seq(3), Seq(3)), "what was cut lies before the pass");
        assert_eq!(shard.history(GROUP), [(term(1), Seq(1)), (term(2), Seq(3))]);
        assert_eq!(versions(&shard, 0, 4).await, [2, 0, 0, 0]);
    });
}

/// A primary began epoch 3 alone; the group went on with what another held of epoch 2. What this member is sent of that
/// comes behind its entries of epoch 3, in its log, and counts.
#[test]
fn an_older_epoch_takes_the_place_of_a_newer_one_that_was_cut() {
    let rig = rig(4);
    rig.run(async {
        let (shard, _) = open_whole().await;
        prepare(&shard, [start(1, 1), write(1, 2, 0, 0), start(3, 3), write(3, 4, 0, 0), write(3, 5, 0, 1)]).await;
        shard.commit(GROUP, Seq(2));
        assert!(shard.cut(GROUP, Seq(2)));
        prepare(&shard, [start(2, 3), write(2, 4, 0, 2)]).await;
        assert_eq!(shard.history(GROUP), [(term(1), Seq(1)), (term(2), Seq(3))]);
    });
    for with_newer in [false, true] {
        lose_power(&rig);
        rig.run(async move {
            let (shard, recovery) = open_whole().await;
            assert_eq!(recovery.groups[0].epoch_history[..2], [(term(1), Seq(1)), (term(2), Seq(3))]);
            if with_newer {
                assert_eq!(shard.prepared_through(GROUP), Seq(6));
                shard.commit(GROUP, Seq(6));
                assert_eq!(versions(&shard, 0, 4).await, [2, 0, 4, 6]);
            } else {
                assert_eq!(shard.prepared_through(GROUP), Seq(4), "the last of epoch 3 is gone too");
                prepare(&shard, [start(4, 5), write(4, 6, 0, 3)]).await;
            }
        });
    }
}

/// A group of which nothing is committed begins wherever its first entry says. What was cut of it lies in the log: a
/// later begin would leave it standing there.
#[test]
fn a_group_that_was_cut_to_nothing_begins_where_it_began() {
    let rig = rig(5);
    rig.run(async {
        let (shard, _) = open_whole().await;
        prepare(&shard, [start(1, 5), write(1, 6, 0, 0)]).await;
        assert!(shard.cut(GROUP, Seq(0)));
        assert_eq!(shard.prepared_through(GROUP), Seq(0));
        prepare(&shard, [start(2, 5)]).await;
        assert!(shard.cut(GROUP, Seq(4)));
        let refused = shard.prepare(start(3, 9)).expect_err("5 and 6 would come back");
        assert!(matches!(refused, store::AppendError::Stopped { .. }), "{refused}");
    });
}

/// One entry of each kind that a member may be asked for.
fn one_of_each() -> Vec<Entry> {
    let record = runtime::IoBuf::copy_of(b"what the map says").freeze();
    let range = BlockRange::new(40, 32);
    let merge = EntryKind::Merge { into: LayerId(9), chunks: vec![ChunkId(1), ChunkId(4)], hides_below: true };
    let layer = LayerRecord { layer: LAYER, parent: LayerId(3), ..LayerRecord::default() };
    let zero = |hides_below| EntryKind::Zero { range, hides_below };
    let kinds = [
        EntryKind::EpochStart,
        EntryKind::write(range, bytes_of(ChunkId(2), range, 77)),
        coded_write(ChunkId(2), BlockRange::new(250, 6), 5),
        EntryKind::GroupRecord { record },
        EntryKind::VolumeEpoch { volume: VolumeId(12) },
        EntryKind::Layer { record: layer },
        zero(false),
        zero(true),
        EntryKind::Noop,
        merge,
        EntryKind::LayerDelete { chunks: vec![ChunkId(5)] },
    ];
    let with_chunk = |kind: &EntryKind| matches!(kind, EntryKind::Write { .. } | EntryKind::Zero { .. });
    (1..).zip(kinds).map(|(seq, kind)| entry(1, seq, ChunkId(if with_chunk(&kind) { 2 } else { 0 }), kind)).collect()
}

fn text_of(entries: &[Entry]) -> Vec<String> {
    let bytes = |entry: &Entry| match &entry.kind {
        EntryKind::Write { bytes, .. } => bytes.to_vec(),
        EntryKind::GroupRecord { record } => record.to_vec(),
        _ => Vec::new(),
    };
    entries.iter().map(|entry| format!("{entry:?} {:?}", bytes(entry))).collect()
}

use store::{Entry, EntryKind};

#[test]
fn prepared_entries_are_read_back_as_they_were_prepared() {
    let rig = rig(6);
    rig.run(async {
        let (shard, _) = open_whole().await;
        let (asked, whole) = (one_of_each(), usize::MAX);
        let positions: Vec<_> = asked.iter().map(|one| shard.prepare(one.clone()).expect("there is room")).collect();
        assert!(shard.durable_through() < positions[0], "they are on their way");
        let all = shard.prepared_entries(GROUP, Seq(1), whole).await.expect("readable");
        assert_eq!(text_of(&all), text_of(&asked));
        // Behind a commit, and in parts: one at least.
        shard.commit(GROUP, Seq(2));
        let rest = shard.prepared_entries(GROUP, Seq(1), whole).await.expect("readable");
        assert_eq!(text_of(&rest), text_of(&asked[2..]));
        let one = shard.prepared_entries(GROUP, Seq(5), 1).await.expect("readable");
        assert_eq!(text_of(&one), text_of(&asked[4..5]));
        assert_eq!(shard.prepared_entries(GROUP, Seq(12), whole).await.expect("readable").len(), 0);
        assert_eq!(shard.prepared_entries(GroupId(9), Seq(1), whole).await.expect("readable").len(), 0);
    });
    lose_power(&rig);
    rig.run(async {
        let (shard, recovery) = open_whole().await;
        assert_eq!((recovery.groups[0].committed, recovery.groups[0].prepared_through), (Seq(0), Seq(11)));
        let mut asked = one_of_each();
        let all = shard.prepared_entries(GROUP, Seq(0), usize::MAX).await.expect("readable");
        assert_eq!(text_of(&all), text_of(&asked));
        // In parts of 200 KiB at most: those that fit.
        asked.truncate(3);
        let fits = shard.prepared_entries(GROUP, Seq(0), 150 << 10).await.expect("readable");
        assert_eq!(text_of(&fits[..3]), text_of(&asked));
    });
}

/// What a member that takes over must know, of what is applied and of what is prepared.
#[test]
fn what_is_known_of_a_group_counts_prepared_entries() {
    let rig = rig(10);
    rig.run(async {
        let (shard, _) = open_whole().await;
        assert_eq!((shard.volume_epochs(GROUP), shard.group_record(GROUP)), (vec![], None));
        let raised = |epoch, seq, volume, to| {
            let kind = EntryKind::VolumeEpoch { volume: VolumeId(volume) };
            Entry { volume_epoch: VolumeEpoch(to), ..entry(epoch, seq, ChunkId(0), kind) }
        };
        prepare(&shard, one_of_each()).await;
        prepare(&shard, [raised(1, 12, 12, 5), raised(1, 13, 3, 2)]).await;
        let (volumes, record) =
            (vec![(VolumeId(3), VolumeEpoch(2)), (VolumeId(12), VolumeEpoch(5))], b"what the map says");
        let layer = LayerRecord { layer: LAYER, parent: LayerId(3), ..LayerRecord::default() };
        for through in [0, 5, 12] {
            assert!(shard.commit(GROUP, Seq(through)).is_done());
            assert_eq!(shard.volume_epochs(GROUP), volumes);
            assert_eq!(shard.group_record(GROUP).as_deref(), Some(&record[..]));
            assert_eq!(shard.layers_of_prepared(GROUP), if through < 6 { vec![layer] } else { vec![] });
        }
        assert!(shard.cut(GROUP, Seq(12)));
        assert_eq!(shard.volume_epochs(GROUP), [(VolumeId(12), VolumeEpoch(5))]);
    });
}

/// What one member sends to another is what lies in its log, byte for byte, and decodes to what was prepared.
#[test]
fn entries_are_sent_in_the_bytes_of_the_log() {
    let rig = rig(9);
    rig.run(async {
        let (shard, _) = open_whole().await;
        let (asked, mut heads, mut blocks) = (one_of_each(), Vec::new(), Vec::new());
        for one in &asked {
            let start = heads.len();
            let stored = store::encode_ordered(one, &mut heads).expect("an entry of the order");
            blocks.extend_from_slice(stored.map(|stored| &stored[..]).unwrap_or_default());
            let said = store::ordered_bytes(one).expect("an entry of the order");
            assert_eq!((heads.len() - start, stored.map_or(0, |stored| stored.len())), (said.head, said.blocks));
        }
        prepare(&shard, asked.clone()).await;
        let device = device().await;
        let mut places = 0;
        // Segments of 4 MiB, behind the front area: no record lies in two.
        for segment in 0..10 {
            let buf = runtime::IoBuf::new((4 * MIB) as usize);
            let (read, buf) = device.read(MIB + segment * 4 * MIB, buf).await;
            read.expect("readable");
            let log = buf.windows(heads.len()).step_by(8);
            places += log.filter(|bytes| *bytes == heads).count();
        }
        assert_eq!(places, 1);
        let body = runtime::IoBuf::copy_of(&[&heads[..], &blocks[..]].concat()).freeze();
        let mut walk = store::OrderedEntries::new(&body, 0..heads.len(), heads.len() as u32);
        let mut found = Vec::new();
        while let Some(one) = walk.next_entry().expect("as it was sent") {
            found.push(one);
        }
        assert_eq!(text_of(&found), text_of(&asked));
        assert_eq!(walk.blocks_end_bytes() as usize, body.len());
    });
}

/// What is read is what is in the order: not an earlier entry of its sequence, of this epoch or another.
#[test]
fn an_entry_that_was_replaced_is_not_read_back() {
    let rig = rig(7);
    rig.run(async {
        let (shard, _) = open_whole().await;
        let again = Entry { volume_epoch: VolumeEpoch(2), ..write(1, 3, 0, 1) };
        let asked = [start(1, 1), write(1, 2, 0, 0), write(1, 3, 0, 0), again.clone()];
        prepare(&shard, asked.clone()).await;
        let found = shard.prepared_entries(GROUP, Seq(2), usize::MAX).await.expect("readable");
        assert_eq!(text_of(&found), text_of(&[asked[1].clone(), again]));
        assert!(shard.cut(GROUP, Seq(1)));
        prepare(&shard, [start(2, 2)]).await;
        let found = shard.prepared_entries(GROUP, Seq(1), usize::MAX).await.expect("readable");
        assert_eq!(text_of(&found), text_of(&[start(1, 1), start(2, 2)]));
    });
}

/// While entries are read they may be committed, what they wrote overwritten, and passes be written: the place that is
/// read is not given away.
#[test]
fn what_is_read_back_keeps_its_segment() {
    let rig = rig(8);
    rig.run(async {
        let (shard, _) = open_whole().await;
        let range = BlockRange::new(0, 32);
        let fill = |seq: u64| {
            let chunk = ChunkId(seq as u32 % 64);
            entry(1, seq, chunk, EntryKind::write(range, bytes_of(chunk, range, seq)))
        };
        prepare(&shard, [start(1, 1)]).await;
        prepare(&shard, (2..40).map(fill)).await;
        let reading = shard.clone();
        let read = std::rc::Rc::new(std::cell::RefCell::new(None));
        let told = read.clone();
        runtime::spawn(async move {
            let entries = reading.prepared_entries(GROUP, Seq(2), usize::MAX).await;
            *told.borrow_mut() = Some(entries);
        });
        // It has begun, and everything else goes on beside it.
        runtime::yield_now().await;
        shard.commit(GROUP, Seq(39));
        let mut seq = 40;
        while read.borrow().is_none() {
            prepare(&shard, (seq..seq + 8).map(fill)).await;
            seq += 8;
            shard.commit(GROUP, Seq(seq - 1));
            shard.pass_now().await.expect("an open shard");
        }
        let entries = read.take().expect("it has ended").expect("readable");
        assert_eq!(text_of(&entries), text_of(&(2..40).map(fill).collect::<Vec<_>>()));
    });
}

#[test]
fn an_entry_that_has_rotted_is_not_read_back() {
    let rig = Rig::formatted(9, 256 * MIB, runtime::sim::DiskOptions { block_size_bytes: 4096, ..Default::default() });
    rig.run(async {
        let (shard, _) = open_whole().await;
        prepare(&shard, [start(1, 1), write(1, 2, 0, 0), write(1, 3, 0, 1)]).await;
    });
    let [segment] = rig.segments_with(&bytes_of(ChunkId(0), BlockRange::new(1, 1), 3))[..] else { panic!("one") };
    let start_bytes = MIB + segment as u64 * 4 * MIB;
    let rotten = bytes_of(ChunkId(0), BlockRange::new(1, 1), 3);
    let mut block = vec![0; BLOCK_BYTES];
    let at = (0..1024).map(|i| start_bytes + i * 4096).find(|at| {
        rig.disk.peek(*at, &mut block);
        block[..] == rotten[..]
    });
    let (shard, _) = rig.open();
    rig.disk.flip_bit(at.expect("it is there"), 3);
    rig.run(async move {
        let error = shard.prepared_entries(GROUP, Seq(1), usize::MAX).await.expect_err("it is not as written");
        assert!(matches!(error, ReadError::Prepared { group: GROUP, seq: Seq(3), .. }), "{error}");
        let before = shard.prepared_entries(GROUP, Seq(1), 100).await.expect("another entry of the same record");
        assert_eq!(text_of(&before), text_of(&[start(1, 1)]));
    });
}
