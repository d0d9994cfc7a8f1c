//! Segments are freed and used again; a full device says so and comes back.

use crate::common::moments::Writer;
use crate::common::shards::two_shards;
use crate::common::*;
use runtime::IoBuf;
use runtime::sim::{DiskFaults, Random};
use store::format::{Codec, StoredLength};
use store::{AppendError, BlockCoding, EntryKind};
use types::*;

const GROUP: GroupId = GroupId(1);

/// Overwrites a working set of 24 chunks, 128 KiB at a time, until this much was written.
async fn overwrite(client: Client, seed: u64, bytes: u64) {
    let random = Random::new(seed);
    for _ in 0..bytes / (32 * BLOCK_BYTES as u64) {
        let chunk = ChunkId(random.below(24) as u32);
        let range = BlockRange::new(32 * random.below(8) as u32, 32);
        client.write_with_room(GROUP, chunk, range).await.expect("overwrites find room for ever");
        assert!(client.below(8).await);
    }
    client.settle().await;
}

#[test]
fn overwriting_twenty_times_the_device_needs_no_more_than_the_device() {
    let (rig, client) = fresh(21, 256 * MIB, 1);
    let model = client.model.clone();
    let mut client = Some(client);
    // In four parts, with a power loss behind each: freed segments stay free, used ones used.
    for part in 0..4 {
        let writing = client.take().expect("open");
        let shard = writing.shard.clone();
        rig.run(overwrite(writing, part, 5 * 256 * MIB));
        let statistics = shard.statistics();
        assert!(statistics.segments_freed > 200, "{statistics:?}");
        assert!(statistics.passes > 50, "{statistics:?}");
        // A pass per 4 % of the device, and what it writes is small where writes are large.
        assert!(statistics.checkpoint_bytes * 50 < statistics.appended_bytes, "{statistics:?}");
        drop(shard);
        rig.node.restart();
        let opened = reopen(&rig, &model);
        let check = opened.clone();
        rig.run(async move { check.verify().await });
        client = Some(opened);
    }
}

#[test]
fn opening_reads_little_of_the_log() {
    let (rig, client) = fresh(22, 256 * MIB, 1);
    let writing = client.clone();
    rig.run(overwrite(writing, 22, 600 * MIB));
    drop(client);
    rig.node.restart();
    let (_, recovery) = rig.open();
    // A pass is complete for every 4 %; replay begins at the start of the last complete one.
    assert!(recovery.counters.log_bytes < 256 * MIB / 25 * 3, "{:?}", recovery.counters);
    assert!(recovery.counters.leaves >= 24, "{:?}", recovery.counters);
}

/// Writes new chunks until the store refuses.
async fn fill(client: &Client) -> u32 {
    for chunk in 0.. {
        for part in 0..8 {
            match client.write_with_room(GROUP, ChunkId(chunk), BlockRange::new(32 * part, 32)).await {
                Ok(_) => assert!(client.below(8).await),
                Err(AppendError::NoSpace { .. }) => {
                    client.settle().await;
                    return chunk;
                }
                Err(other) => panic!("{other}"),
            }
        }
    }
    unreachable!("the device is finite")
}

#[test]
fn a_full_device_refuses_new_blocks_and_comes_back_when_old_ones_are_deleted() {
    let (rig, client) = fresh(23, 256 * MIB, 1);
    let model = client.model.clone();
    let filling = client.clone();
    let chunks = rig.run(async move {
        let chunks = fill(&filling).await;
        // Overwrites, and deletes all the more, have a reserve of their own.
        for part in 0..4 {
            let written = filling.write_with_room(GROUP, ChunkId(part), BlockRange::new(0, 32)).await;
            written.expect("an overwrite");
        }
        filling.settle().await;
        filling.verify().await;
        chunks
    });
    // 50 segments of 4 MiB, less what is left at the end of each where the next record does not fit.
    assert!(chunks > 150, "{chunks} MiB");
    drop(client);
    rig.node.restart();
    let client = reopen(&rig, &model);
    rig.run(async move {
        for chunk in 0..chunks {
            client.ask(GROUP, Op::Zero(ChunkId(chunk), BlockRange::new(0, 256))).expect("deletes always work");
            assert!(client.below(8).await);
        }
        client.settle().await;
        // What died is free after a pass, which is hurried now.
        for _ in 0..1000 {
            if client.shard.store().usage().used_bytes < 32 * MIB {
                break;
            }
            runtime::sleep(std::time::Duration::from_millis(10)).await;
        }
        assert!(client.shard.store().usage().used_bytes < 32 * MIB, "{:?}", client.shard.store().usage());
        let again = fill(&client).await;
        assert!(again + 8 > chunks, "{again} of {chunks}");
        client.verify().await;
    });
}

#[test]
fn a_full_device_can_be_overwritten_for_ever() {
    let (rig, client) = fresh(24, 256 * MIB, 1);
    rig.run(async move {
        let chunks = fill(&client).await;
        let random = Random::new(24);
        // One block here and there leaves something alive in every segment: without a cleaner that would be the end.
        for _ in 0..200_000 {
            let chunk = ChunkId(random.below(u64::from(chunks)) as u32);
            let range = BlockRange::new(random.below(256) as u32, 1);
            client.write_with_room(GROUP, chunk, range).await.expect("overwrites find room for ever");
            assert!(client.below(64).await);
        }
        client.settle().await;
        let statistics = client.shard.statistics();
        assert!(statistics.segments_cleaned > 100 && statistics.cleaning_errors == 0, "{statistics:?}");
        let amplification = statistics.appended_bytes as f64 / (200_000.0 + f64::from(chunks) * 256.0) / 4096.0;
        println!("{amplification:.2} device bytes per byte: {statistics:?}");
        assert!(statistics.throttled > 0 && client.shard.is_throttling(), "who writes so fast waits for the cleaner");
        runtime::sleep(std::time::Duration::from_secs(11)).await;
        assert!(!client.shard.is_throttling(), "nobody waits any more");
        client.verify().await;
        client.ask(GROUP, Op::Zero(ChunkId(0), BlockRange::new(0, 256))).expect("deletes always work");
        client.settle().await;
        client.verify().await;
    });
}

/// Each refused append ends segments that are not full, and takes new ones: of a full device also those that are kept for
/// moves. It goes on from there.
#[test]
fn a_full_device_that_refuses_appends_goes_on() {
    let (rig, client) = fresh(26, 256 * MIB, 1);
    let shard = client.shard.clone();
    let overwrite = async |client: &Client, seed: u64, blocks: u64, chunks: u32| {
        let random = Random::new(seed);
        for _ in 0..blocks {
            let chunk = ChunkId(random.below(u64::from(chunks)) as u32);
            let range = BlockRange::new(random.below(256) as u32, 1);
            client.write_with_room(GROUP, chunk, range).await.expect("overwrites find room for ever");
            assert!(client.below(64).await);
        }
        client.settle().await;
    };
    let filling = client.clone();
    let chunks = rig.run(async move {
        let chunks = fill(&filling).await;
        overwrite(&filling, 26, 40_000, chunks).await;
        chunks
    });
    let free = || {
        let usage = shard.store().usage();
        (usage.capacity_bytes - usage.used_bytes) / (4 * MIB)
    };
    let mut fewest = u64::MAX;
    for round in 0..60 {
        let before = shard.statistics().append_failures;
        let (writing, disk) = (client.clone(), rig.disk.clone());
        rig.run(async move {
            let written = writing.write_with_room(GROUP, ChunkId(round), BlockRange::new(0, 1)).await;
            written.expect("overwrites find room for ever");
            disk.set_faults(DiskFaults { write_error: 1_000_000, ..DiskFaults::default() });
        });
        rig.world.run_until(|| shard.statistics().append_failures > before).expect("an append fails");
        rig.disk.set_faults(DiskFaults::default());
        let going_on = client.clone();
        rig.run(async move { going_on.settle().await });
        fewest = fewest.min(free());
        let going_on = client.clone();
        rig.run(async move { overwrite(&going_on, u64::from(round), 8, chunks).await });
    }
    println!("{fewest} segments were free: {:?}", shard.statistics());
    assert!(fewest <= 2, "{fewest} were free: what is kept for moves was never needed");
    rig.run(async move {
        overwrite(&client, 27, 5_000, chunks).await;
        client.verify().await;
    });
}

/// What one shard of a device has is whole, what the other has is half dead: who writes to the first waits for what is
/// cleaned in the second.
#[test]
fn a_shard_without_anything_to_clean_waits_for_one_that_has() {
    let rig = Rig::new(25, 256 * MIB, runtime::sim::DiskOptions::default());
    rig.run(async move {
        let clients = two_shards().await;
        let write = async |which: usize, chunk: u64, range: BlockRange| {
            let (group, client) = &clients[which];
            let written = client.write_with_room(*group, ChunkId(chunk as u32), range).await;
            written.expect("there is always something to clean");
            assert!(client.below(16).await);
        };
        for chunk in 0..95 {
            for part in 0..8 {
                write(0, chunk, BlockRange::new(32 * part, 32)).await;
                write(1, chunk, BlockRange::new(32 * part, 32)).await;
            }
        }
        let random = Random::new(25);
        for i in 0..40_000 {
            let block = BlockRange::new(random.below(256) as u32, 1);
            // Few to the first: none of its segments is worth cleaning.
            write(usize::from(i % 40 != 0), random.below(95), block).await;
        }
        for (_, client) in &clients {
            client.settle().await;
            client.verify().await;
        }
        assert!(clients[1].1.shard.statistics().segments_cleaned > 20);
    });
}

#[test]
fn writers_with_a_pace_of_their_own_never_wait_for_ever() {
    crate::common::shards::writers_with_a_pace_of_their_own_never_wait_for_ever();
}

#[test]
fn a_pass_ends_although_its_writers_wait() {
    crate::common::shards::a_pass_ends_although_its_writers_wait(0);
}

/// Blocks that compress to next to nothing, each alone in its chunk: a quarter of what lies on the device is index. It
/// is said to be full before a pass finds no room; what is stored can be read, deleted and overwritten.
#[test]
fn a_device_full_of_index_goes_on() {
    const CHUNKS_AT_ONCE: u32 = 256;
    let rig = Rig::formatted(28, 256 * MIB, runtime::sim::DiskOptions::default());
    let write = |version: u64| {
        let coding = BlockCoding::new(KeyId(0), Some(&[StoredLength::new(1, Codec::Lz4)]));
        let bytes = bytes_of(ChunkId(0), BlockRange::new(0, 1), version);
        EntryKind::Write { range: BlockRange::new(7, 1), bytes: IoBuf::copy_of(&bytes[..512]).freeze(), coding }
    };
    let written = rig.run(async move {
        let (shard, recovery) = open().await;
        let writer = Writer::begin(&shard, &recovery, GROUP).await;
        let mut chunks = 0;
        while chunks < 1_000_000 {
            let is_told = shard.store().takes_new_blocks(0);
            match writer.try_ask(LAYER, ChunkId(chunks), write(1)) {
                Ok(_) => {
                    assert!(is_told, "block {chunks} was taken: {:?}", shard.store().usage());
                    chunks += 1;
                }
                Err(AppendError::NoSpace { .. }) => {
                    assert!(!is_told, "it said that it has room");
                    break;
                }
                Err(AppendError::Busy) => {
                    writer.settle().await;
                    shard.room().await.expect("an open shard");
                }
                Err(other) => panic!("after {chunks} chunks: {other}"),
            }
            if chunks % CHUNKS_AT_ONCE == 0 {
                writer.settle().await;
            }
        }
        writer.settle().await;
        for _ in 0..2 {
            shard.pass_now().await.expect("room for a pass");
        }
        chunks
    });
    assert!((100_000..1_000_000).contains(&written), "{written} chunks were written");
    rig.node.restart();
    rig.run(async move {
        let (shard, recovery) = open().await;
        assert_eq!(recovery.damage, []);
        let writer = Writer::begin(&shard, &recovery, GROUP).await;
        let random = Random::new(28);
        for number in 0..10_000 {
            writer.ask(LAYER, ChunkId(random.below(written.into()) as u32), write(2)).await;
            if number % CHUNKS_AT_ONCE == 0 {
                writer.settle().await;
            }
        }
        for chunk in 0..written / 4 {
            let whole = BlockRange::new(0, BLOCKS_PER_CHUNK);
            writer.ask(LAYER, ChunkId(chunk), EntryKind::Zero { range: whole, hides_below: false }).await;
            if chunk % CHUNKS_AT_ONCE == 0 {
                writer.settle().await;
            }
        }
        writer.settle().await;
        shard.pass_now().await.expect("room for a pass");
        let statistics = shard.statistics();
        assert_eq!((statistics.append_failures, statistics.cleaning_errors), (0, 0), "{statistics:?}");
    });
}

/// What has its place in a group's order is taken from what is kept for overwrites, until that is used up. What a member
/// tells of its room is what it would do.
#[test]
fn a_full_device_takes_new_blocks_that_have_their_place_in_the_order() {
    let rig = Rig::formatted(29, 256 * MIB, runtime::sim::DiskOptions::default());
    rig.run(async move {
        let (shard, recovery) = open().await;
        let writer = Writer::begin(&shard, &recovery, GROUP).await;
        let store = shard.store().clone();
        let write = |part: u32| {
            let (chunk, range) = (ChunkId(part / 8), BlockRange::new(32 * (part % 8), 32));
            (chunk, EntryKind::write(range, bytes_of(chunk, range, 1)))
        };
        let mut part = 0;
        loop {
            let (chunk, kind) = write(part);
            let is_told = store.takes_new_blocks(0);
            match writer.try_ask(LAYER, chunk, kind) {
                Ok(_) => part += 1,
                Err(AppendError::Busy) => {
                    writer.settle().await;
                    shard.room().await.expect("an open shard");
                }
                Err(AppendError::NoSpace { .. }) => break assert!(!is_told, "it said that it has room"),
                Err(other) => panic!("{other}"),
            }
            assert!(is_told, "part {part} was taken");
            writer.settle().await;
        }
        let refused_from = part;
        let mut seq = shard.prepared_through(GROUP);
        let term = shard.history(GROUP).last().expect("one began").0;
        loop {
            let (chunk, kind) = write(part);
            let next = Seq(seq.0 + 1);
            let (volume_epoch, commit) = (VolumeEpoch(1), seq);
            let entry = store::Entry { group: GROUP, term, seq: next, commit, volume_epoch, layer: LAYER, chunk, kind };
            match shard.prepare_ordered(entry) {
                Ok(position) => {
                    (seq, part) = (next, part + 1);
                    crate::common::members::durable(&shard, position).await;
                    shard.commit(GROUP, seq);
                }
                Err(AppendError::Busy) => shard.room().await.expect("an open shard"),
                Err(AppendError::NoSpace { .. }) => break,
                Err(other) => panic!("{other}"),
            }
            assert!(!store.takes_new_blocks(0));
        }
        let (mib, usage) = ((part - refused_from) / 8, store.usage());
        println!("{} MiB, then {mib} MiB more that had a place: {usage:?}", refused_from / 8);
        // Nine tenths of what is usable before, and the last of them: less what is left at the ends of segments.
        assert!(mib > 16, "{mib} MiB, {usage:?}");
        // All of it can be read, and deleted.
        assert_eq!(crate::common::members::versions(&shard, (part - 1) / 8, 32).await, [1; 32]);
        let mut last = Default::default();
        for chunk in 0..refused_from / 16 {
            seq.0 += 1;
            let kind = EntryKind::Zero { range: BlockRange::new(0, 256), hides_below: false };
            let (volume_epoch, commit, chunk) = (VolumeEpoch(1), Seq(0), ChunkId(chunk));
            let entry = store::Entry { group: GROUP, term, seq, commit, volume_epoch, layer: LAYER, chunk, kind };
            last = shard.prepare(entry).expect("deletes always work");
        }
        crate::common::members::durable(&shard, last).await;
        shard.commit(GROUP, seq);
        // When what died is found.
        for _ in 0..1000 {
            if store.takes_new_blocks(MIB) {
                break;
            }
            runtime::sleep(std::time::Duration::from_millis(10)).await;
        }
        assert!(store.takes_new_blocks(MIB), "{:?}", store.usage());
        let (chunk, kind) = write(part);
        let (volume_epoch, commit, seq) = (VolumeEpoch(1), Seq(0), Seq(seq.0 + 1));
        let entry = store::Entry { group: GROUP, term, seq, commit, volume_epoch, layer: LAYER, chunk, kind };
        let queued = shard.prepare(entry);
        assert!(!matches!(queued, Err(AppendError::NoSpace { .. })), "{queued:?}");
    });
}
