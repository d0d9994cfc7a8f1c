//! A member that goes on behind entries it lacks, and the lights that go out meanwhile.

use super::members::*;
use super::moments::versions_in;
use super::*;
use std::cell::Cell;
use store::check::{Severity, What};

/// Committed here before the skip.
pub const COMMITTED: u64 = 4;
/// The last that is prepared here, of an epoch that the group never had.
pub const PREPARED: u64 = 11;
/// Entries that follow the skip.
const FOLLOWING: u64 = 6;
const VOLUME: VolumeId = VolumeId(12);

/// An entry that says so much of what is committed.
pub fn saying(commit: u64, entry: Entry) -> Entry {
    Entry { commit: Seq(commit), ..entry }
}

pub fn record_of(text: &str) -> runtime::SharedBuf {
    IoBuf::copy_of(text.as_bytes()).freeze()
}

/// The skip through an entry, as another member would tell of it.
pub fn skip_of(through: u64, epochs: &[(u32, u64)], record: &str) -> EntryKind {
    EntryKind::Skip {
        through: Seq(through),
        epochs: epochs.iter().map(|(epoch, first)| (term(*epoch), Seq(*first))).collect(),
        volumes: vec![(VOLUME, VolumeEpoch(7))],
        record: record_of(record),
    }
}

/// A skip as an entry: outside the order.
pub fn skip(through: u64, epochs: &[(u32, u64)], record: &str) -> Entry {
    let kind = skip_of(through, epochs, record);
    Entry { layer: LayerId(0), volume_epoch: VolumeEpoch(0), ..entry(0, 0, ChunkId(0), kind) }
}

/// Two entries of epoch 1 that are committed, two that are not known to be, and what epoch 3 prepared here alone: of
/// chunk 0, of a volume's epoch, of the group's record.
pub fn lone_tail() -> Vec<Entry> {
    let (record, volume) = (record_of("of epoch 3"), VOLUME);
    let raised = entry(3, 8, ChunkId(0), EntryKind::VolumeEpoch { volume });
    vec![
        saying(COMMITTED, start(3, 5)),
        saying(COMMITTED, write(3, 6, 0, 0)),
        write(3, 7, 0, 5),
        Entry { volume_epoch: VolumeEpoch(9), ..raised },
        entry(3, 9, ChunkId(0), EntryKind::GroupRecord { record }),
        write(3, 10, 2, 0),
        write(3, PREPARED, 0, 1),
    ]
}

/// A member with its tail.
pub async fn with_lone_tail() -> Rc<Shard> {
    let (shard, _) = open_whole().await;
    prepare(&shard, [start(1, 1), write(1, 2, 0, 0), write(1, 3, 0, 1), write(1, COMMITTED, 1, 0)]).await;
    assert!(shard.commit(GROUP, Seq(COMMITTED)).is_done());
    prepare(&shard, lone_tail()).await;
    shard
}

/// What is known to have come of the skip.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Known {
    is_asked: bool,
    is_durable: bool,
    /// Entries behind it that are durable.
    following: u64,
}

/// A skip, with passes beside it and a cleaner that never rests: into what is prepared here, or behind all of it. Each
/// loss of power leaves the member as it was, or as it shall be; what was skipped is never applied. Returns how many of
/// each there were.
pub fn a_skip_at_every_moment(seed: u64) -> [u64; 2] {
    let through = if seed.is_multiple_of(2) { 9 } else { 100 };
    let rig = rig(seed);
    let shard = rig.run(with_lone_tail());
    let known = Rc::new(Cell::new(Known::default()));
    let (skipping, told) = (shard.clone(), known.clone());
    let task = async move { skip_beside_all(&skipping, &told, through, seed).await };
    let mut met = [0u64; 2];
    rig.at_every_moment(1, task, |image| {
        let of_image = known.get();
        let is_skipped = image.run(judge(of_image, through));
        met[usize::from(is_skipped)] += 1;
        if (met[0] + met[1]).is_multiple_of(16) {
            image.run(async move {
                let (shard, _) = open_whole().await;
                shard.pass_now().await.expect("an open shard");
            });
            // It was skipped at the latest by who judged it.
            let known = Known { is_asked: true, is_durable: true, ..of_image };
            assert!(image.run(judge(known, through)), "a pass has it as the log has");
            end(image, 1);
            nothing_is_damaged(image);
        }
    });
    lose_power(&rig);
    assert!(rig.run(judge(known.get(), through)));
    the_reader_sees_what_the_store_does(&rig);
    met
}

async fn skip_beside_all(shard: &Rc<Shard>, known: &Cell<Known>, through: u64, seed: u64) {
    shard.store().clean_below(u32::MAX);
    let passing = shard.clone();
    spawn(async move {
        // Some find the skip on its way, others nothing of it in their range.
        for _ in 0..seed % 3 {
            let _ = passing.pass_now().await;
        }
    });
    runtime::sleep(Duration::from_micros(seed * 37 % 400)).await;
    // One more of the tail leaves in the same record.
    let last = shard.prepare(write(3, PREPARED + 1, 0, 2)).expect("there is room");
    known.set(Known { is_asked: true, ..known.get() });
    let asked = shard.prepare(skip(through, &[(1, 1), (4, 7)], "of epoch 4")).expect("there is room");
    assert!(last < asked && shard.commit(GROUP, Seq(7)).is_done(), "it is not applied any more");
    assert_eq!(shard.committed_through(GROUP), Seq(COMMITTED));
    durable(shard, asked).await;
    known.set(Known { is_durable: true, ..known.get() });
    assert_eq!((shard.committed_through(GROUP), shard.prepared_through(GROUP)), (Seq(through), Seq(through)));
    assert_eq!(shard.history(GROUP), [(term(1), Seq(1)), (term(4), Seq(7))]);
    assert_eq!(shard.volume_epochs(GROUP), [(VOLUME, VolumeEpoch(7))]);
    assert_eq!(shard.group_record(GROUP).as_deref(), Some(&b"of epoch 4"[..]));
    assert!(shard.commit(GROUP, Seq(through)).is_done());
    for number in 1..=FOLLOWING {
        let seq = through + number;
        prepare(shard, [saying(seq - 1, write(4, seq, 3, number as u32))]).await;
        known.set(Known { following: number, ..known.get() });
        shard.commit(GROUP, Seq(seq));
    }
}

/// Returns whether the skip is there.
async fn judge(known: Known, through: u64) -> bool {
    let (shard, recovery) = open_whole().await;
    let found = &recovery.groups[0];
    let is_skipped = found.epoch_history.last().is_some_and(|last| last.0 == term(4));
    assert!(if is_skipped { known.is_asked } else { !known.is_durable }, "{known:?} {found:?}");
    let prepared = found.prepared_through.0;
    if is_skipped {
        assert!(found.committed.0 >= through && prepared >= through + known.following, "{known:?} {found:?}");
        assert_eq!(found.epoch_history, [(term(1), Seq(1)), (term(4), Seq(7))]);
        assert_eq!(found.record.as_deref(), Some(&b"of epoch 4"[..]));
        assert_eq!(found.volume_epochs, [(VOLUME, VolumeEpoch(7))]);
    } else {
        assert!(found.committed <= Seq(COMMITTED) && prepared >= PREPARED, "{known:?} {found:?}");
        assert_eq!(found.epoch_history, [(term(1), Seq(1)), (term(3), Seq(5))]);
        assert_eq!(found.record.as_deref(), Some(&b"of epoch 3"[..]));
        // Once more, now that the power is back.
        assert!(shard.commit(GROUP, Seq(COMMITTED)).is_done());
        prepare(&shard, [skip(through, &[(1, 1), (4, 7)], "of epoch 4")]).await;
        assert_eq!(shard.prepared_through(GROUP), Seq(through));
    }
    shard.commit(GROUP, Seq(u64::MAX));
    assert_eq!(shard.committed_through(GROUP), shard.prepared_through(GROUP));
    let [of_tail, before, beside] = [(0, 6), (1, 1), (2, 1)].map(|(chunk, count)| (ChunkId(chunk), count));
    let held = async |(chunk, count)| versions_in(&shard, &[LAYER], chunk, BlockRange::new(0, count)).await;
    assert_eq!(held(of_tail).await, [2, 3, 0, 0, 0, 0], "{known:?}: what was skipped is not applied");
    assert_eq!((held(before).await, held(beside).await), (vec![COMMITTED], vec![0]));
    let behind = prepared.saturating_sub(through).min(FOLLOWING);
    let expected =
        (0..=FOLLOWING).map(|number| if is_skipped && (1..=behind).contains(&number) { through + number } else { 0 });
    assert_eq!(held((ChunkId(3), FOLLOWING as u32 + 1)).await, expected.collect::<Vec<_>>());
    is_skipped
}

fn nothing_is_damaged(rig: &Rig) {
    let checked = check(rig, CheckOptions::default());
    let is_slot = |what: &What| matches!(what, What::Damage(store::Damage::Superblock { .. }));
    let damage = checked.findings.iter().filter(|one| one.severity() > Severity::Trace && !is_slot(&one.what));
    assert_eq!(damage.collect::<Vec<_>>(), [] as [&store::check::Finding; 0]);
}

/// What `tools/read-device.py` extracts is what the store reads.
pub fn the_reader_sees_what_the_store_does(rig: &Rig) {
    let extracted = reader::DiskCopy::of(&rig.disk, rig.size_bytes).extract(LAYER, 4 * MIB);
    rig.run(async move {
        let (shard, _) = open_whole().await;
        shard.commit(GROUP, Seq(u64::MAX));
        for (chunk, seen) in (0..).map(ChunkId).zip(extracted.chunks_exact(MIB as usize)) {
            let stored = versions_in(&shard, &[LAYER], chunk, BlockRange::new(0, 256)).await;
            for (block, (version, seen)) in (0..).zip(stored.into_iter().zip(seen.chunks_exact(BLOCK_BYTES))) {
                assert_eq!(
                    version_of(seen, chunk, block),
                    version,
                    "chunk {chunk} block {block}, as the reader has it"
                );
            }
        }
    });
}
