//! Records that are lost: what they held of a group is missed, whatever else is known of it.

use super::members::*;
use super::moments::{SegmentSeen, Writer, versions_in};
use super::shards::both_shards;
use super::skips::{saying, skip};
use super::*;
use runtime::sim::DiskOptions;
use std::cell::Cell;
use store::{Damage, Entry, EntryKind, GroupRecovery, ReadError, Shard};

/// Where on the device this version of a block is.
///
/// # Panics
/// If it is not in exactly one place. The disk has blocks of 4 KiB.
fn place_of(rig: &Rig, chunk: u32, block: u32, version: u64) -> u64 {
    let block = bytes_of(ChunkId(chunk), BlockRange::new(block, 1), version);
    let [segment] = rig.segments_with(&block)[..] else { panic!("it is in one place") };
    let start_bytes = MIB + segment as u64 * 4 * MIB;
    let mut seen = vec![0; BLOCK_BYTES];
    let at = (0..1024).map(|i| start_bytes + i * 4096).find(|at| {
        rig.disk.peek(*at, &mut seen);
        seen[..] == block[..]
    });
    at.expect("it is there")
}

/// The power goes, and the record that holds this version of a block is lost: as [`place_of`].
pub fn spoil_record_of(rig: &Rig, chunk: u32, block: u32, version: u64) {
    let at = place_of(rig, chunk, block, version);
    rig.node.crash();
    // Its record begins in the block before.
    rig.disk.flip_bit(at - 4096 + 90, 1);
    rig.node.start();
}

const SIZE_BYTES: u64 = 256 * MIB;

pub fn rig_of_4_kib(seed: u64) -> Rig {
    Rig::formatted(seed, SIZE_BYTES, DiskOptions { block_size_bytes: 4096, ..Default::default() })
}

/// The beginning of a group is lost of which no pass has said anything: what follows without a hole does not show that
/// nothing came before.
pub fn a_lost_beginning_is_missed(seed: u64) {
    for (committed, is_epoch_next) in [(0, false), (2, false), (3, false), (4, false), (2, true), (3, true), (4, true)]
    {
        let rig = rig_of_4_kib(seed);
        rig.run(async move {
            let (shard, _) = open_whole().await;
            prepare(&shard, [start(1, 1), write(1, 2, 0, 0)]).await;
            let follow = match is_epoch_next {
                true => [start(2, 3), write(2, 4, 0, 2), write(2, 5, 0, 3)],
                false => [write(1, 3, 0, 1), write(1, 4, 0, 2), write(1, 5, 0, 3)],
            };
            for one in follow {
                let committed = committed.min(one.seq.0 - 1);
                assert!(shard.commit(GROUP, Seq(committed)).is_done());
                prepare(&shard, [saying(committed, one)]).await;
            }
        });
        spoil_record_of(&rig, 0, 0, 2);
        let recovery = rig.open().1;
        assert!(!recovery.damage.is_empty());
        let found = &recovery.groups[0];
        assert!(found.damaged && found.doubtful_from == Seq(0), "{committed} {is_epoch_next}: {found:?}");
    }
}

/// Chunks that have a leaf each when a pass begins.
const LEAVES: u32 = 2000;

/// A pass is written in step with what clients write. Meanwhile a block is written of a leaf that the pass has already, or
/// has not yet, and that record is lost: what the pass says of the group in its end does not take the place of the entry.
pub fn what_a_pass_says_takes_no_entrys_place(seed: u64) {
    let mut damaged = 0;
    for chunk in (0..LEAVES).step_by(250) {
        let rig = rig_of_4_kib(seed);
        rig.run(async move {
            let (shard, _) = open_whole().await;
            let commit = |seq: u64| assert!(shard.commit(GROUP, Seq(seq)).is_done());
            prepare(&shard, [start(1, 1)]).await;
            prepare(&shard, (0..LEAVES).map(|chunk| write(1, 2 + u64::from(chunk), chunk, 0))).await;
            let mut last = 1 + u64::from(LEAVES);
            commit(last);
            let filler = Filler::begin(&shard).await;
            filler.begin_pass().await;
            last += 1;
            prepare(&shard, [saying(last - 1, write(1, last, chunk, 1))]).await;
            commit(last);
            filler.end_pass().await;
            for block in 2..4 {
                last += 1;
                prepare(&shard, [saying(last - 1, write(1, last, 0, block))]).await;
                commit(last);
            }
        });
        let version = 2 + u64::from(LEAVES);
        spoil_record_of(&rig, chunk, 1, version);
        let (shard, recovery) = rig.open();
        if recovery.groups[0].damaged {
            damaged += 1;
            continue;
        }
        let last = recovery.groups[0].prepared_through;
        let known = rig.run(async move {
            assert!(shard.commit(GROUP, last).is_done());
            versions(&shard, chunk, 2).await
        });
        assert_eq!(known, [2 + u64::from(chunk), version], "chunk {chunk}: an entry is gone, and nobody says so");
    }
    assert!(damaged > 0);
}

/// What comes behind a record that is lost, in which an epoch began.
#[derive(Clone, Copy, Debug)]
enum Behind {
    /// The next epoch.
    Epoch,
    /// An entry of that one.
    Entry,
    /// What a pass says of the group.
    State,
    /// What another member says of it, and where the order goes on.
    Skip,
}

/// Entries are prepared and cut, others take their place, and the record of these is lost: what was cut is not taken for
/// what was committed.
pub fn what_was_cut_is_not_taken_for_committed(seed: u64) {
    let last = 1 + u64::from(LEAVES);
    for behind in [Behind::Epoch, Behind::Entry, Behind::State, Behind::Skip] {
        let rig = rig_of_4_kib(seed);
        rig.run(async move {
            let (shard, _) = open_whole().await;
            let commit = |seq: u64| assert!(shard.commit(GROUP, Seq(seq)).is_done());
            prepare(&shard, [start(1, 1)]).await;
            prepare(&shard, (0..LEAVES).map(|chunk| write(1, 2 + u64::from(chunk), chunk, 0))).await;
            commit(last);
            let filler = Filler::begin(&shard).await;
            if let Behind::State = behind {
                filler.begin_pass().await;
            }
            prepare(&shard, [saying(last, write(1, last + 1, 0, 1)), write(1, last + 2, 0, 2)]).await;
            assert!(shard.cut(GROUP, Seq(last)));
            prepare(&shard, [start(2, last + 1), write(2, last + 2, 1, 1)]).await;
            commit(last + 2);
            if let Behind::State = behind {
                filler.end_pass().await;
            }
            let next = match behind {
                Behind::Epoch => start(3, last + 3),
                Behind::Entry | Behind::State => write(2, last + 3, 0, 3),
                Behind::Skip => skip(last + 20, &[(1, 1), (2, last + 1)], "of epoch 2"),
            };
            prepare(&shard, [saying(last + 2, next)]).await;
            if let Behind::Skip = behind {
                prepare(&shard, [write(2, last + 21, 0, 3)]).await;
            }
        });
        spoil_record_of(&rig, 1, 1, last + 2);
        let recovery = rig.open().1;
        assert!(!recovery.damage.is_empty());
        let found = &recovery.groups[0];
        assert!(found.damaged && found.doubtful_from == Seq(last + 1), "{behind:?}: {found:?}");
    }
}

/// The last record is torn when the power goes, and accepted as missing: it cut nothing. Records of another group that are
/// lost later do not bring what is prepared into doubt.
pub fn a_torn_record_cuts_nothing(seed: u64) {
    let rig = rig_of_4_kib(seed);
    let of_other = |entry| Entry { group: GroupId(2), ..entry };
    rig.run(async move {
        let (shard, _) = open_whole().await;
        prepare(&shard, [start(1, 1), write(1, 2, 0, 0), of_other(start(1, 1))]).await;
        assert!(shard.commit(GROUP, Seq(2)).is_done());
        prepare(&shard, [saying(2, write(1, 3, 0, 1))]).await;
        prepare(&shard, [of_other(write(1, 2, 5, 0))]).await;
    });
    let torn = place_of(&rig, 5, 0, 2);
    rig.node.crash();
    rig.disk.flip_bit(torn, 1);
    rig.node.start();
    rig.run(async move {
        let (shard, recovery) = open_whole().await;
        assert_eq!(recovery.gaps.len(), 1);
        prepare(&shard, [start(2, 4)]).await;
        prepare(&shard, [of_other(start(2, 2)), of_other(write(2, 3, 6, 0))]).await;
        prepare(&shard, [write(2, 5, 0, 2)]).await;
    });
    spoil_record_of(&rig, 6, 0, 3);
    let recovery = rig.open().1;
    let [found, other] = &recovery.groups[..] else { panic!("there are two") };
    assert!(!found.damaged && found.prepared_through == Seq(5), "{found:?}");
    assert!(other.damaged, "{other:?}");
}

/// An epoch begins in place of what is cut, and before that is durable another one: whatever of both is torn with the power, the later
/// one is not found without the earlier, behind what was cut.
pub fn no_epoch_is_found_without_the_one_before(seed: u64) {
    const CUT: Seq = Seq(4);
    let rig = rig_of_4_kib(seed);
    let images = Rc::new(RefCell::new(Vec::new()));
    let (disk, drawn) = (rig.disk.clone(), images.clone());
    rig.run(async move {
        let (shard, _) = open_whole().await;
        prepare(&shard, [start(1, 1), write(1, 2, 0, 0), write(1, 3, 0, 1), write(1, 4, 0, 2)]).await;
        assert!(shard.commit(GROUP, CUT).is_done());
        prepare(&shard, [saying(4, write(1, 5, 0, 3)), write(1, 6, 0, 4)]).await;
        assert!(shard.cut(GROUP, CUT));
        disk.set_delay(Duration::from_millis(20));
        shard.prepare(start(2, 5)).expect("there is room");
        runtime::sleep(Duration::from_millis(2)).await;
        for one in [start(3, 6), write(3, 7, 1, 0)] {
            shard.prepare(one).expect("there is room");
        }
        for _ in 0..5 {
            runtime::sleep(Duration::from_millis(9)).await;
            drawn.borrow_mut().extend((0..16).map(|draw| disk.after_power_loss(seed * 100 + draw)));
        }
    });
    let mut found_both = 0;
    for image in images.take() {
        let other = Rig::new(seed, SIZE_BYTES, DiskOptions { block_size_bytes: 4096, ..Default::default() });
        other.disk.insert(&image);
        let recovery = other.open().1;
        let has = |epoch| recovery.groups[0].epoch_history.iter().any(|(term, _)| term.epoch == Epoch(epoch));
        assert!(has(2) || !has(3), "{:?}", recovery.groups[0]);
        found_both += usize::from(has(3));
    }
    assert!(found_both > 0, "both come to be durable");
}

/// A place somewhere behind the last record cannot be read: what lies before it is read all the same, however near it is.
pub fn what_lies_before_a_bad_place_is_read(seed: u64) {
    for behind in [1, 2, 5, 20, 60] {
        let rig = rig_of_4_kib(seed);
        rig.run(async move {
            let (shard, _) = open_whole().await;
            prepare(&shard, [start(1, 1), write(1, 2, 0, 0)]).await;
            for seq in 3..9 {
                prepare(&shard, [saying(seq - 2, write(1, seq, 0, seq as u32))]).await;
            }
        });
        let last = place_of(&rig, 0, 8, 8) + behind * 4096;
        rig.node.crash();
        rig.disk.set_unreadable(Some(last..last + 4096));
        rig.node.start();
        let recovery = rig.open().1;
        assert_eq!(recovery.groups[0].prepared_through, Seq(8), "{behind} blocks before what cannot be read");
    }
}

/// A layer goes to its child behind a pass, and the record of the pass with the layer's leaf is lost; the child's is found.
/// What it took is not known then: it does not look as if nothing had been written.
pub fn a_lost_leaf_is_missed_in_who_takes_it(seed: u64) {
    const CHILD: LayerId = LayerId(8);
    for is_merged in [false, true] {
        let rig = rig_of_4_kib(seed);
        rig.run(async move {
            let (shard, _) = open_whole().await;
            let last = 2 + u64::from(LEAVES);
            prepare(&shard, [start(1, 1)]).await;
            prepare(&shard, (0..LEAVES).map(|chunk| write(1, 2 + u64::from(chunk), chunk, 0))).await;
            // Its leaf comes behind all of those.
            prepare(&shard, [Entry { layer: CHILD, ..write(1, last, 0, 1) }]).await;
            assert!(shard.commit(GROUP, Seq(last)).is_done());
            shard.pass_now().await.expect("it has room");
            let next = match is_merged {
                true => EntryKind::Merge { into: CHILD, chunks: vec![ChunkId(0)], hides_below: false },
                false => EntryKind::Noop,
            };
            prepare(&shard, [entry(1, last + 1, ChunkId(0), next)]).await;
            assert!(shard.commit(GROUP, Seq(last + 1)).is_done());
            prepare(&shard, [saying(last + 1, write(1, last + 2, 1, 1))]).await;
        });
        let is_of_pass = |seen: &SegmentSeen| seen.generation > 0 && !seen.is_hot && !seen.is_cold;
        let segment = rig.segments().iter().position(is_of_pass).expect("a pass was written");
        rig.node.crash();
        // Behind the segment's header and the begin of the pass.
        rig.disk.flip_bit(MIB + segment as u64 * 4 * MIB + 2 * 4096 + 90, 1);
        rig.node.start();
        let (shard, recovery) = rig.open();
        assert!(!recovery.damage.is_empty());
        rig.run(async move {
            let range = BlockRange::new(0, 2);
            let buf = IoBuf::new(range.bytes());
            let (read, _) = shard.read(&[CHILD], ChunkId(0), range, buf, &mut Vec::new()).await;
            match is_merged {
                true => assert_eq!(read, Err(ReadError::IndexLost { layer: CHILD, chunk: ChunkId(0) })),
                false => assert_eq!(read, Ok(()), "its leaf was found"),
            }
        });
    }
}

/// Writes of another group that fill the log.
struct Filler {
    shard: Rc<Shard>,
    last: Cell<u64>,
}

impl Filler {
    const GROUP: GroupId = GroupId(2);

    async fn begin(shard: &Rc<Shard>) -> Self {
        prepare(shard, [Entry { group: Self::GROUP, ..start(1, 1) }]).await;
        Self { shard: shard.clone(), last: Cell::new(1) }
    }

    /// The shard's first pass begins when 4 % of the device are written, and goes on in step with what follows.
    async fn begin_pass(&self) {
        while self.shard.statistics().checkpoint_bytes < 64 << 10 {
            self.write(128 << 10).await;
        }
    }

    async fn end_pass(&self) {
        assert_eq!(self.shard.statistics().passes, 0, "it is not complete yet");
        while self.shard.statistics().passes == 0 {
            self.write(MIB).await;
        }
    }

    async fn write(&self, bytes: u64) {
        for _ in 0..bytes / (32 * BLOCK_BYTES as u64) {
            let seq = self.last.get() + 1;
            // Nothing of it is overwritten: a pass that frees something is in a hurry.
            let (chunk, range) = (ChunkId(LEAVES + seq as u32), BlockRange::new(0, 32));
            let kind = EntryKind::write(range, bytes_of(chunk, range, seq));
            let one = Entry { group: Self::GROUP, ..entry(1, seq, chunk, kind) };
            prepare(&self.shard, [one]).await;
            assert!(self.shard.commit(Self::GROUP, Seq(seq)).is_done());
            self.last.set(seq);
        }
    }
}

/// A segment is free when the store is opened, for a block in it was overwritten: another shard takes it. Then the entry
/// that overwrote the block is lost, and the index names it once more. When that has come from elsewhere the segment is
/// still the other shard's.
pub fn a_segment_that_another_shard_took_stays_its(seed: u64) {
    let rig = Rig::new(seed, SIZE_BYTES, DiskOptions { block_size_bytes: 4096, ..Default::default() });
    let version = rig.run(async {
        let options = FormatOptions { shard_count: Some(2), ..format_options() };
        store::format(&device().await, &options).await.expect("the disk can be formatted");
        let (shard, _) = both_shards().await.pop().expect("there are two");
        prepare(&shard, [start(1, 1), write(1, 2, 0, 0)]).await;
        let last = fill(&shard, 3, 5 * MIB).await;
        shard.pass_now().await.expect("it has room");
        // From now on nothing in the first segment is needed. But the pass names it.
        prepare(&shard, [write(1, last + 1, 0, 0)]).await;
        assert!(shard.commit(GROUP, Seq(last + 1)).is_done());
        prepare(&shard, [saying(last + 1, write(1, last + 2, 2, 0))]).await;
        last + 1
    });
    let named = bytes_of(ChunkId(0), BlockRange::new(0, 1), 2);
    let [segment] = rig.segments_with(&named)[..] else { panic!("it is in one place") };
    lose_power(&rig);
    let mut shards = rig.run(both_shards());
    assert!(shards.iter().all(|(_, recovery)| recovery.damage.is_empty()));
    let (other, recovery) = shards.remove(0);
    let writer = Rc::new(rig.run(async move { Writer::begin(&other, &recovery, GroupId(2)).await }));
    let (generation, mut round) = (rig.segments()[segment].generation, 0);
    while rig.segments()[segment].generation == generation {
        round += 1;
        assert!(round < 400, "nobody takes the segment");
        let writer = writer.clone();
        rig.run(async move {
            writer.write_chunk(LAYER, ChunkId(100), round).await;
            writer.settle().await;
        });
    }
    assert_eq!(shards[0].0.statistics().passes, 0, "the pass still names the segment");
    drop((shards, writer));
    spoil_record_of(&rig, 0, 0, version);
    rig.run(async move {
        let shards = both_shards().await;
        let [(other, recovery), (shard, _)] = &shards[..] else { panic!("there are two") };
        assert!(other.commit(GroupId(2), recovery.groups[0].prepared_through).is_done());
        assert_eq!(shard.lost_leaves().0, [(LAYER, ChunkId(0))], "it names what is in the other's segment");
        let install = |kind| Entry { term: Term::NONE, volume_epoch: VolumeEpoch(0), ..entry(0, 0, ChunkId(0), kind) };
        prepare(shard, [install(EntryKind::InstallBegin { keeps: false })]).await;
        prepare(shard, [install(EntryKind::InstallEnd { last_seq: Seq(version) })]).await;
        assert_eq!(shard.losses_are_mended().await, Ok(true));
        // Over and over what is free.
        fill(shard, version, 2 * SIZE_BYTES).await;
        let known = versions_in(other, &[LAYER], ChunkId(100), BlockRange::new(0, BLOCKS_PER_CHUNK)).await;
        assert!(known.iter().all(|known| *known == round), "{known:?} is not {round}");
    });
}

/// Overwrites the same blocks until so much is written, from this sequence on. Returns the last.
async fn fill(shard: &Shard, first: u64, bytes: u64) -> u64 {
    let (chunk, range) = (ChunkId(1), BlockRange::new(0, 32));
    let last = first + bytes / range.bytes() as u64;
    for seq in first..=last {
        prepare(shard, [entry(1, seq, chunk, EntryKind::write(range, bytes_of(chunk, range, seq)))]).await;
        assert!(shard.commit(GROUP, Seq(seq)).is_done());
    }
    last
}

/// A chunk that stays as it is, and chunks that are overwritten until all segments were in use.
const KEPT: ChunkId = ChunkId(50);
const OVERWRITTEN: u32 = 3;

/// Header and first records of a segment are lost, which a pass found full and then freed, and which was in use again: what
/// the pass says of it is about another use. What the power left at many moments is opened and written to until the log is
/// in the next segment, for that is to be one that the last pass has freed.
pub fn a_lost_header_is_not_judged_by_an_earlier_use(seed: u64) {
    let rig = rig_of_4_kib(seed);
    let writer = Rc::new(rig.run(async {
        let (shard, recovery) = open_whole().await;
        let writer = Writer::begin(&shard, &recovery, GROUP).await;
        writer.write_chunk(LAYER, KEPT, 1).await;
        writer
    }));
    let overwrite = |version: u64| {
        let writer = writer.clone();
        rig.run(async move { writer.write_chunk(LAYER, ChunkId(version as u32 % OVERWRITTEN), version).await });
    };
    let mut version = 1;
    let newest = |rig: &Rig| {
        let segments = rig.segments();
        let hot = segments.iter().enumerate().filter(|(_, one)| one.is_hot);
        hot.max_by_key(|(_, one)| one.generation).map(|(segment, _)| segment).expect("a hot segment")
    };
    while rig.segments().iter().any(|one| one.generation == 0) || newest(&rig) > 8 {
        version += 1;
        overwrite(version);
    }
    let kept = segment_of(&rig, KEPT);
    let mut judged = 0;
    for _ in 0..16 {
        version += 1;
        overwrite(version);
        let other = rig.after_power_loss(version);
        lose_beginning(&other, kept);
        assert!(!look(&other).damaged, "replay needs nothing of it");

        let other = rig.after_power_loss(version);
        let before = newest(&other);
        let (shard, recovery) = other.open();
        let writing = other.run(async move { Writer::begin(&shard, &recovery, GROUP).await });
        let writing = Rc::new(writing);
        for part in 0..48 {
            let writing = writing.clone();
            let range = BlockRange::new(32 * (part % 8), 32);
            other.run(async move {
                writing.write(LAYER, ChunkId(9), range, 1).await;
                writing.settle().await;
            });
            if newest(&other) != before {
                break;
            }
        }
        let writes_pass = writing.shard.statistics().checkpoint_bytes > 0;
        let last = writing.shard.prepared_through(GROUP);
        // The record of an idle store: from then on everything is known to have been durable.
        other.world.run_for(Duration::from_secs(3));
        if writes_pass || newest(&other) == before {
            continue;
        }
        judged += 1;
        lose_beginning(&other, newest(&other));
        let found = look(&other);
        assert!(found.damaged, "{} of {last} are there, and nobody says so: {found:?}", found.prepared_through);
    }
    assert!(judged > 4, "the log came to the next segment {judged} times");
}

/// What opening a damaged store would say of its only group. (It would not go on: nothing is freed there.)
fn look(rig: &Rig) -> GroupRecovery {
    let known = rig.run(async { store::known(&device().await).await.expect("a store's device") });
    assert!(known.is_damaged);
    let [group] = &known.groups[..] else { panic!("there is one group") };
    group.clone()
}

/// The segment that a chunk's first block is in.
fn segment_of(rig: &Rig, chunk: ChunkId) -> usize {
    let [segment] = rig.segments_with(&bytes_of(chunk, BlockRange::new(0, 1), 1))[..] else { panic!("it is in one") };
    segment
}

/// The power goes, and a segment's header is lost with the records behind it.
fn lose_beginning(rig: &Rig, segment: usize) {
    rig.node.crash();
    let start_bytes = MIB + segment as u64 * 4 * MIB;
    (start_bytes..start_bytes + MIB).step_by(64).for_each(|offset| rig.disk.flip_bit(offset, 3));
    rig.node.start();
}

/// A group with three chunks in the first segment of a device, 128 KiB in each record.
fn with_three_chunks(seed: u64) -> (Rig, u64) {
    let rig = rig_of_4_kib(seed);
    rig.run(async {
        let (shard, recovery) = open_whole().await;
        let writer = Writer::begin(&shard, &recovery, GROUP).await;
        for part in 0..24 {
            writer.write(LAYER, ChunkId(part / 8), BlockRange::new(32 * (part % 8), 32), 1).await;
            writer.settle().await;
        }
    });
    let start_bytes = MIB + segment_of(&rig, ChunkId(0)) as u64 * 4 * MIB;
    (rig, start_bytes)
}

/// More is damaged in the segment that the log is in than the records are long that a power loss may tear: what lies behind
/// it was acknowledged all the same.
pub fn much_damage_does_not_end_the_log(seed: u64) {
    let (rig, start_bytes) = with_three_chunks(seed);
    // The record of an idle store: from then on everything is known to have been durable.
    rig.world.run_for(Duration::from_secs(3));
    rig.node.crash();
    (start_bytes + MIB / 4..start_bytes + MIB * 11 / 4).step_by(4096).for_each(|offset| rig.disk.flip_bit(offset, 0));
    for _ in 0..2 {
        rig.node.restart();
        rig.run(async {
            let (shard, recovery) = open().await;
            assert!(matches!(recovery.damage[..], [Damage::Records { .. }]), "{:?}", recovery.damage);
            let found = &recovery.groups[0];
            assert!(found.damaged && found.doubtful_from <= Seq(5), "{found:?}");
            let writer = Writer::begin(&shard, &recovery, GroupId(2)).await;
            writer.write_chunk(LAYER, ChunkId(9), 2).await;
        });
        rig.node.crash();
    }
}

/// Records of an earlier life lie behind the end of the log, as far as that segment goes: the store did not find them when
/// it was opened, and went on. They stay void when they are found later.
pub fn what_an_earlier_life_left_behind_the_end_stays_void(seed: u64) {
    let (rig, start_bytes) = with_three_chunks(seed);
    rig.node.crash();
    let mut left = vec![0; 4 * MIB as usize];
    rig.disk.peek(start_bytes, &mut left);
    let end = MIB as usize / 4;
    rig.disk.poke(start_bytes + end as u64, &vec![0; left.len() - end]);
    rig.node.restart();
    let last = rig.run(async {
        let (shard, recovery) = open_whole().await;
        let writer = Writer::begin(&shard, &recovery, GROUP).await;
        let last = writer.write(LAYER, ChunkId(9), BlockRange::new(0, 1), 2).await;
        writer.settle().await;
        last
    });
    rig.node.crash();
    for from in [MIB as usize / 2, MIB as usize * 11 / 4] {
        let other = rig.after_power_loss(seed);
        other.disk.poke(start_bytes + from as u64, &left[from..]);
        for _ in 0..2 {
            let (shard, recovery) = other.run(open_whole());
            let found = &recovery.groups[0];
            assert_eq!(found.epoch_history.iter().map(|(term, _)| term.epoch.0).collect::<Vec<_>>(), [1, 2]);
            assert_eq!(found.prepared_through, last);
            let known = other.run(async move {
                assert!(shard.commit(GROUP, last).is_done());
                let last_block = BlockRange::new(BLOCKS_PER_CHUNK - 1, 1);
                (versions(&shard, 9, 1).await, versions_in(&shard, &[LAYER], ChunkId(2), last_block).await)
            });
            assert_eq!(known, (vec![2], vec![0]));
            lose_power(&other);
        }
    }
}
