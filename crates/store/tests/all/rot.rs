//! A disk that lies: writes that were acknowledged and not done, or done elsewhere, bits that turn over. What is read
//! is right or an error; a group that lost something is said to be damaged.

use crate::common::moments::Writer;
use crate::common::shards::both_shards;
use crate::common::*;
use runtime::IoBuf;
use runtime::sim::{DiskFaults, DiskOptions, Random};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;
use store::{Entry, EntryKind, Shard, Store};
use types::*;

const GROUPS: u32 = 4;
const CHUNKS: u32 = 3;
const SEEDS: u64 = 90;

/// Writes on a disk with these faults, and more behind it without; opens, and demands that each block that is returned
/// is the one written, and each group that lost something says so. Returns whether anything was noticed.
fn is_honest(seed: u64, faults: DiskFaults) -> bool {
    let rig = rig_for(seed);
    let model = model_of(GROUPS);
    // A past: holes that were accepted, epochs that dropped what was prepared, passes that were not completed.
    for _ in 0..rig.random.below(4) {
        write_on(&rig, &reopen(&rig, &model), GROUPS, CHUNKS);
        rig.world.run_for(Duration::from_micros(rig.random.between(1, 50_000)));
        end(&rig, 1);
    }
    let client = reopen(&rig, &model);
    rig.disk.set_faults(faults);
    let (random, count) = (Random::new(rig.random.next_u64()), rig.random.between(50, 800));
    let depth = [1, 4, 16, 64][rig.random.below(4) as usize];
    let writing = client.clone();
    rig.run(async move {
        for _ in 0..count {
            if random_op(&writing, &random, GROUPS, CHUNKS).is_err() || !writing.below(depth).await {
                return;
            }
        }
        writing.settle().await;
    });
    rig.disk.set_faults(DiskFaults::default());
    let writing = client.clone();
    rig.run(async move {
        for group in 1..=GROUPS {
            // Refused only if the device was caught lying.
            let _ = writing.ask(GroupId(group), Op::Other);
        }
        writing.settle().await;
        // The record of an idle store: from then on everything is known to have been durable.
        runtime::sleep(Duration::from_secs(3)).await;
    });
    drop(client);
    let mut noticed = false;
    // What was lost is found again the next time.
    for again in [false, true] {
        end(&rig, 2);
        let now = rig.run(judge(model.clone()));
        assert!(now || !again || !noticed, "what was noticed first is hidden now");
        noticed = now;
    }
    noticed
}

/// Opens and reads everything. Returns whether anything was noticed.
async fn judge(model: SharedModel) -> bool {
    let device = device().await;
    let Ok(store) = Store::open(&device).await else { return true };
    let Ok((shard, recovery)) = Shard::open(&store, device, ShardIndex(0)).await else { return true };
    let repaired = !store.repaired().is_empty();
    let mut noticed = !recovery.damage.is_empty() || !store.damage().is_empty();
    let mut expected: BTreeMap<(ChunkId, u16), u64> = BTreeMap::new();
    for (id, group) in &mut model.borrow_mut().groups {
        match recovery.groups.iter().find(|found| found.group == *id) {
            None => assert!(noticed || repaired, "group {id} is absent and nobody says so"),
            Some(found) if found.damaged => assert!(noticed, "damaged by what?"),
            Some(found) => {
                let (there, acknowledged) = (found.prepared_through, group.acknowledged);
                assert!(there >= acknowledged, "group {id}: {there} of {acknowledged} and nobody says so");
                shard.commit(*id, there);
                expected.extend(group.content());
            }
        }
    }
    for ((chunk, block), version) in expected {
        let range = BlockRange::new(u32::from(block), 1);
        let (read, bytes) = shard.read(&[LAYER], chunk, range, IoBuf::new(BLOCK_BYTES), &mut Vec::new()).await;
        let mut right = vec![0; BLOCK_BYTES];
        fill_block(&mut right, chunk, block, version);
        match read {
            Err(_) => noticed = true,
            Ok(()) => assert!(
                *bytes == right[..],
                "chunk {chunk} block {block} is not version {version} but {}; said: {:?}",
                version_of(&bytes, chunk, block),
                recovery.damage
            ),
        }
    }
    noticed
}

#[test]
fn a_disk_that_loses_misplaces_or_rots_is_found_out() {
    let none = DiskFaults::default();
    let mut noticed = 0;
    for seed in 0..SEEDS {
        let rate = [1_000, 5_000, 20_000][seed as usize / 3 % 3];
        noticed += u32::from(is_honest(
            seed,
            match seed % 3 {
                0 => DiskFaults { lost_write: rate, ..none },
                1 => DiskFaults { misplaced_write: rate, ..none },
                _ => DiskFaults { bit_rot: rate, ..none },
            },
        ));
    }
    assert!(noticed > SEEDS as u32 / 5, "the faults met nothing of interest: noticed {noticed} times");
}

/// A shard that has lost something frees nothing and writes no pass. It can be started again and again all the same,
/// and takes what is written.
#[test]
fn a_damaged_shard_can_be_started_for_ever() {
    let rig = Rig::formatted(48, 256 * MIB, DiskOptions { block_size_bytes: 4096, ..DiskOptions::default() });
    let group = GroupId(1);
    rig.run(async move {
        let (shard, recovery) = open().await;
        let writer = Writer::begin(&shard, &recovery, group).await;
        for chunk in (0..3).map(ChunkId) {
            writer.write_chunk(LAYER, chunk, 1).await;
        }
        // The record of an idle store: from then on everything is known to have been durable.
        runtime::sleep(Duration::from_secs(3)).await;
    });
    rig.node.crash();
    let of_chunk_1 = bytes_of(ChunkId(1), BlockRange::new(0, 1), 1);
    let [segment] = rig.segments_with(&of_chunk_1)[..] else { panic!("all is in one segment") };
    // Records of chunk 1, headers and all.
    let start = MIB + segment as u64 * 4 * MIB;
    for offset in (start + MIB..start + 3 * MIB / 2).step_by(4096) {
        rig.disk.flip_bit(offset, 0);
    }
    let mut used = Vec::new();
    for _ in 0..100 {
        rig.node.restart();
        let now = rig.run(async move {
            let (shard, recovery) = open().await;
            assert!(!recovery.damage.is_empty(), "what is lost stays lost");
            // A group of which nothing is lost goes on.
            let writer = Writer::begin(&shard, &recovery, GroupId(2)).await;
            writer.write(LAYER, ChunkId(9), BlockRange::new(0, 1), 2).await;
            writer.settle().await;
            shard.store().usage().used_bytes
        });
        used.push(now);
    }
    assert!(used[99] <= used[1], "each start takes a segment: {used:?}");
}

/// When what was lost has come from elsewhere, or is wanted no more, the device is as good as one that lost nothing: nothing of
/// the damage is found at the next opening, and segments whose headers were lost are used again.
#[test]
fn what_is_mended_is_used_again() {
    let rig = Rig::formatted(48, 256 * MIB, DiskOptions { block_size_bytes: 4096, ..DiskOptions::default() });
    let group = GroupId(1);
    let before = rig.run(async move {
        let (shard, recovery) = open().await;
        let before = shard.store().usage().used_bytes;
        let writer = Writer::begin(&shard, &recovery, group).await;
        for chunk in (0..12).map(ChunkId) {
            writer.write_chunk(LAYER, chunk, 1).await;
        }
        shard.pass_now().await.expect("it has room");
        for chunk in (12..20).map(ChunkId) {
            writer.write_chunk(LAYER, chunk, 1).await;
        }
        runtime::sleep(Duration::from_secs(3)).await;
        before
    });
    rig.node.crash();
    let mut hurt: Vec<_> = [0, 5, 13, 19]
        .map(|chunk| {
            let bytes = bytes_of(ChunkId(chunk), BlockRange::new(0, 1), 1);
            rig.segments_with(&bytes)[0]
        })
        .to_vec();
    hurt.dedup();
    assert!(hurt.len() >= 3, "chunks are in {hurt:?}");
    for segment in &hurt {
        // Nobody can tell what was there: neither the header nor the first record.
        let start = MIB + *segment as u64 * 4 * MIB;
        (start..start + MIB).step_by(64).for_each(|offset| rig.disk.flip_bit(offset, 3));
    }
    for is_mended in [false, true] {
        rig.node.restart();
        rig.run(async move {
            let (shard, recovery) = open().await;
            assert!(!recovery.damage.is_empty() && shard.has_losses(), "it is not mended");
            if !is_mended {
                assert_eq!(shard.losses_are_mended().await, Ok(false), "leaves are lost");
                return;
            }
            let queue = |chunk: u32, kind: EntryKind| {
                shard.prepare(entry_of(group, ChunkId(chunk), kind)).expect("it has room")
            };
            for chunk in 0..20 {
                queue(chunk, EntryKind::InstallBegin { keeps: false });
            }
            durable(&shard).await;
            for chunk in 0..20 {
                queue(chunk, EntryKind::InstallEnd { last_seq: Seq(0) });
            }
            durable(&shard).await;
            assert_eq!(shard.losses_are_mended().await, Ok(true));
            assert!(!shard.has_losses());
        });
        rig.node.crash();
    }
    rig.node.restart();
    rig.run(async move {
        let (shard, recovery) = open().await;
        assert_eq!(recovery.damage, [], "it was mended");
        assert_eq!(shard.store().damage(), [], "it was mended");
        shard.pass_now().await.expect("it has room");
        let used = shard.store().usage().used_bytes;
        assert!(used <= before + 4 * 4 * MIB, "{used} bytes are in use, {before} were");
        let writer = Writer::begin(&shard, &recovery, group).await;
        for round in 0..10 {
            for chunk in (0..12).map(ChunkId) {
                writer.write_chunk(LAYER, chunk, round).await;
            }
        }
    });
}

/// A shard that still names blocks in a segment whose header is lost keeps it, though replay needs nothing of it, and all other
/// shards lack nothing any more.
#[test]
fn a_segment_without_a_header_stays_with_who_needs_it() {
    let rig = Rig::new(49, 256 * MIB, DiskOptions { block_size_bytes: 4096, ..DiskOptions::default() });
    rig.run(async {
        let options = store::FormatOptions { shard_count: Some(2), ..format_options() };
        store::format(&device().await, &options).await.expect("the disk can be formatted");
        let shards = both_shards().await;
        for ((shard, recovery), group) in shards.iter().zip([GroupId(2), GroupId(1)]) {
            let writer = Writer::begin(shard, recovery, group).await;
            for chunk in (0..12).map(|chunk| ChunkId(chunk + 100 * group.0)) {
                writer.write_chunk(LAYER, chunk, 1).await;
            }
            shard.pass_now().await.expect("it has room");
            writer.write_chunk(LAYER, ChunkId(50 + 100 * group.0), 1).await;
            shard.pass_now().await.expect("it has room");
        }
        runtime::sleep(Duration::from_secs(3)).await;
    });
    rig.node.crash();
    let chunk = ChunkId(100);
    let [segment] = rig.segments_with(&bytes_of(chunk, BlockRange::new(0, 1), 1))[..] else { panic!("it is in one") };
    let start = MIB + segment as u64 * 4 * MIB;
    (start..start + 8192).step_by(64).for_each(|offset| rig.disk.flip_bit(offset, 3));
    for _ in 0..2 {
        rig.node.restart();
        rig.run(async move {
            let shards = both_shards().await;
            let [(other, _), (shard, recovery)] = &shards[..] else { panic!("there are two") };
            assert!(!recovery.damage.is_empty() && shard.has_losses(), "it needs the segment");
            assert_eq!(other.losses_are_mended().await, Ok(true), "it lacks nothing");
            assert_eq!(shard.losses_are_mended().await, Ok(false), "it lacks what is there");
            let (leaves, _) = shard.lost_leaves();
            assert!(leaves.contains(&(LAYER, chunk)), "{leaves:?}");
            let range = BlockRange::new(200, 1);
            let (read, bytes) = shard.read(&[LAYER], chunk, range, IoBuf::new(BLOCK_BYTES), &mut Vec::new()).await;
            let mut right = vec![0; BLOCK_BYTES];
            fill_block(&mut right, chunk, 200, 1);
            assert!(read.is_ok() && *bytes == right[..], "{read:?}");
        });
        rig.node.crash();
    }
}

fn entry_of(group: GroupId, chunk: ChunkId, kind: EntryKind) -> Entry {
    let (term, seq, volume_epoch) = (Term::NONE, Seq(0), VolumeEpoch(0));
    Entry { group, term, seq, commit: Seq(0), volume_epoch, layer: LAYER, chunk, kind }
}

async fn durable(shard: &Rc<Shard>) {
    let last = shard.prepare(entry_of(
        GroupId(1),
        ChunkId(0),
        EntryKind::MemberState { state: IoBuf::copy_of(&[1, 1]).freeze() },
    ));
    let last = last.expect("it has room");
    let mut seen = shard.durable_through();
    while seen < last {
        seen = shard.durable_changed(seen).await.expect("it is well");
    }
}
