//! What a store must keep while its cleaner works: sequences built by hand, and a storm of everything at once.

use super::moments::{Writer, versions_in};
use super::*;
use runtime::sim::DiskFaults;

const GROUP: GroupId = GroupId(1);
/// Blocks of a storm lie in so many chunks.
const STORM_CHUNKS: u32 = 10;
/// Entries of one round of a storm.
const STORM_OPS: u32 = 500;

/// What a test met: nothing, if these are small.
#[derive(Clone, Copy, Debug, Default)]
pub struct Met {
    pub losses: u64,
    pub cleaned: u64,
    pub freed: u64,
    pub passes: u64,
}

/// Writes, discards, passes at any time and a cleaner that never rests: at one of `every` moments the power goes, and
/// what is left holds what was acknowledged. What lives is counted exactly. Every fourth seed has blocks that are
/// compressed.
pub fn storm(seed: u64, rounds: u32, every: u64) -> Met {
    let rig = rig_for(seed);
    let (model, coded) = (model_of(1), seed % 4 == 3);
    model.borrow_mut().coded = coded;
    let client = reopen(&rig, &model);
    client.shard.store().clean_below(u32::MAX);
    let mut met = Met::default();
    for _ in 0..rounds {
        let random = Random::new(rig.random.next_u64());
        let storming = client.clone();
        let judge = |image: &Rig| {
            let of_image = Rc::new(RefCell::new(model.borrow().clone()));
            let reading = reopen(image, &of_image);
            image.run(async move { reading.verify().await });
        };
        met.losses += rig.at_every_moment(every, async move { storm_round(&storming, random).await }, judge);
        let stored: u64 =
            model.borrow_mut().groups.values_mut().map(|group| stored_bytes(group.content(), coded)).sum();
        assert_eq!(client.shard.statistics().live_bytes, stored, "bytes that live");
    }
    let statistics = client.shard.statistics();
    assert_eq!(statistics.cleaning_errors, 0, "{statistics:?}");
    Met { cleaned: statistics.segments_cleaned, freed: statistics.segments_freed, passes: statistics.passes, ..met }
}

async fn storm_round(client: &Client, random: Random) {
    let shard = client.shard.clone();
    let after = Duration::from_micros(random.below(3000));
    spawn(async move {
        runtime::sleep(after).await;
        shard.pass_now().await.expect("an open shard");
    });
    let depth = [4, 16, 64][random.below(3) as usize];
    for _ in 0..STORM_OPS {
        random_op(client, &random, 1, STORM_CHUNKS).expect("there is room");
        assert!(client.below(depth).await);
    }
    client.settle().await;
}

fn stored_bytes(content: &BTreeMap<(ChunkId, u16), u64>, coded: bool) -> u64 {
    let bytes = |(&(_, number), &version): (&(ChunkId, u16), &u64)| match (version, coded) {
        (0, _) => 0,
        (_, false) => BLOCK_BYTES as u64,
        (_, true) => coded_length(number, version).bytes() as u64,
    };
    content.iter().map(bytes).sum()
}

/// An entry that waits for its commit holds the replay start back: what died behind it is read by the next replay, and
/// its segments stay as they are, through any number of passes.
pub fn what_replay_reads_is_not_used_again() {
    let rig = Rig::formatted(41, 256 * MIB, DiskOptions::default());
    let writer = rig.run(async {
        let (shard, recovery) = open().await;
        let writer = Writer::begin(&shard, &recovery, GROUP).await;
        let waiting = Writer::begin(&shard, &recovery, GroupId(2)).await;
        waiting.write(LAYER, ChunkId(50), BlockRange::new(0, 1), 1).await;
        for version in 1..5 {
            for chunk in (0..5).map(ChunkId) {
                writer.write_chunk(LAYER, chunk, version).await;
            }
            shard.pass_now().await.expect("an open shard");
        }
        writer
    });
    let free = |writer: &Writer| writer.shard.store().usage();
    let used = free(&writer).used_bytes;
    assert!(used >= 20 * MIB, "nothing behind the entry that waits is given back: {used} bytes are used");
    rig.node.crash();
    rig.node.start();
    rig.run(async {
        let (shard, recovery) = open().await;
        assert_eq!(recovery.damage, []);
        shard.commit(GROUP, shard.prepared_through(GROUP));
        for chunk in (0..5).map(ChunkId) {
            let seen = versions_in(&shard, &[LAYER], chunk, BlockRange::new(0, BLOCKS_PER_CHUNK)).await;
            assert!(seen.iter().all(|version| *version == 4), "chunk {chunk}: {seen:?}");
        }
    });
}

/// A read that the device takes its time for finds what it was asked for, though all of it was overwritten meanwhile
/// and every segment that is free was used.
pub fn a_read_keeps_its_segment() {
    let rig = Rig::formatted(42, 256 * MIB, DiskOptions::default());
    let seen: Rc<RefCell<Option<Vec<u64>>>> = Rc::default();
    let (writer, reading) = (Rc::new(RefCell::new(None)), seen.clone());
    let opened = writer.clone();
    rig.run(async move {
        let (shard, recovery) = open().await;
        let of_group = Writer::begin(&shard, &recovery, GROUP).await;
        for chunk in (0..5).map(ChunkId) {
            of_group.write_chunk(LAYER, chunk, 1).await;
        }
        // The next record says that all of this was durable: the log is quiet from then on.
        runtime::sleep(Duration::from_secs(1)).await;
        *opened.borrow_mut() = Some(Rc::new(of_group));
    });
    let writer: Rc<Writer> = writer.take().expect("set just above");
    let shard = writer.shard.clone();
    rig.disk.set_faults(DiskFaults { hang: 1_000_000, ..DiskFaults::default() });
    rig.node.spawn(0, async move {
        let versions = versions_in(&shard, &[LAYER], ChunkId(0), BlockRange::new(0, 16)).await;
        *reading.borrow_mut() = Some(versions);
    });
    rig.world.run_for(Duration::from_millis(1));
    rig.disk.set_faults(DiskFaults::default());
    let writing = writer.clone();
    rig.run(async move {
        for version in 2..5 {
            for chunk in (0..5).map(ChunkId) {
                writing.write_chunk(LAYER, chunk, version).await;
            }
            writing.shard.pass_now().await.expect("an open shard");
        }
    });
    assert!(seen.borrow().is_none(), "the read is still under way");
    assert!(writer.shard.statistics().segments_freed > 0, "others were used again");
    rig.disk.set_hanging(false);
    rig.world.run_for(Duration::from_secs(1));
    let seen = seen.take().expect("the device has answered");
    assert!(seen.iter().all(|version| *version == 1), "{seen:?}");
}

/// Who asks for a pass gets it, also while another is under way that waits for clients to write, and none does.
pub fn a_pass_that_is_asked_for_waits_for_no_client() {
    let rig = Rig::formatted(43, 256 * MIB, DiskOptions::default());
    rig.run(async {
        let (shard, recovery) = open().await;
        let writer = Writer::begin(&shard, &recovery, GROUP).await;
        for chunk in (0..60).map(ChunkId) {
            writer.write_chunk(LAYER, chunk, 1).await;
            let before = shard.statistics().passes;
            shard.pass_now().await.expect("an open shard");
            assert!(shard.statistics().passes > before);
        }
    });
}

/// A store whose first segment holds 16 blocks that live, of chunk 0 of the layer, and nothing else: the first of its
/// blocks in version 1, all others in version 2 elsewhere.
async fn a_segment_with_little_alive(layer: LayerId) -> Writer {
    let (shard, recovery) = open().await;
    let writer = Writer::begin(&shard, &recovery, GROUP).await;
    for chunk in (0..5).map(ChunkId) {
        writer.write_chunk(layer, chunk, 1).await;
    }
    writer.write(layer, ChunkId(0), BlockRange::new(16, 16), 2).await;
    for first in (32..BLOCKS_PER_CHUNK).step_by(32) {
        writer.write(layer, ChunkId(0), BlockRange::new(first, 32), 2).await;
    }
    for chunk in (1..8).map(ChunkId) {
        writer.write_chunk(layer, chunk, 2).await;
    }
    shard.pass_now().await.expect("an open shard");
    writer
}

/// Reads what [`a_segment_with_little_alive`] wrote.
async fn is_as_written(shard: &Shard, layer: LayerId) {
    let seen = versions_in(shard, &[layer], ChunkId(0), BlockRange::new(0, BLOCKS_PER_CHUNK)).await;
    assert!(seen[..16].iter().all(|version| *version == 1), "{seen:?}");
    assert!(seen[16..].iter().all(|version| *version == 2), "{seen:?}");
}

/// Begins to clean what [`a_segment_with_little_alive`] wrote.
async fn begin_to_clean() -> Writer {
    let writer = a_segment_with_little_alive(LAYER).await;
    writer.shard.store().clean_below(u32::MAX);
    writer.write(LAYER, ChunkId(9), BlockRange::new(0, 1), 1).await;
    writer.settle().await;
    writer
}

/// A pass that begins while a move is on its way: its leaf may name the old place, and replay takes the leaf for newer
/// than the move. So the old place must stay until the pass after. `before`: from the begin of the pass to when the
/// first move is queued.
pub fn a_pass_beside_a_move_names_the_old_place(before: Duration) {
    let until_moved = Rig::formatted(44, 256 * MIB, DiskOptions::default()).run(async {
        let writer = begin_to_clean().await;
        let began = runtime::now();
        while writer.shard.statistics().moved_bytes == 0 {
            runtime::sleep(Duration::from_micros(5)).await;
        }
        runtime::now().since(began)
    });
    let rig = Rig::formatted(44, 256 * MIB, DiskOptions::default());
    let writer = rig.run(async move {
        let writer = begin_to_clean().await;
        let shard = writer.shard.clone();
        runtime::sleep(until_moved.saturating_sub(before)).await;
        let store = shard.store().clone();
        spawn(async move {
            // Else the cleaner asks for the next pass, which names the new place.
            runtime::sleep(before + Duration::from_micros(400)).await;
            store.clean_below(0);
        });
        shard.pass_now().await.expect("an open shard");
        writer
    });
    let shard = writer.shard.clone();
    let fill = async move {
        for chunk in (10..15).map(ChunkId) {
            writer.write_chunk(LAYER, chunk, 1).await;
        }
    };
    rig.at_every_moment(4, fill, |image| {
        image.run(async {
            let (shard, recovery) = open().await;
            assert_eq!(recovery.damage, []);
            shard.commit(GROUP, shard.prepared_through(GROUP));
            is_as_written(&shard, LAYER).await;
        });
    });
    assert!(shard.statistics().moved_bytes > 0, "{:?}", shard.statistics());
}

/// A layer is merged away and gone, and passes are complete since: what its records wrote is found by the cleaner all
/// the same, under the layer that took it.
pub fn blocks_of_a_layer_that_is_gone_are_moved() {
    let rig = Rig::formatted(45, 256 * MIB, DiskOptions::default());
    let (old, new) = (LayerId(1), LayerId(2));
    rig.run(async move {
        let writer = a_segment_with_little_alive(old).await;
        let shard = writer.shard.clone();
        let chunks = (0..8).map(ChunkId).collect();
        writer.ask(old, ChunkId(0), EntryKind::Merge { into: new, chunks, hides_below: false }).await;
        writer.ask(old, ChunkId(0), EntryKind::LayerDelete { chunks: Vec::new() }).await;
        writer.settle().await;
        for _ in 0..2 {
            shard.pass_now().await.expect("an open shard");
        }
        shard.store().clean_below(u32::MAX);
        writer.write(LAYER, ChunkId(9), BlockRange::new(0, 1), 1).await;
        writer.settle().await;
        runtime::sleep(Duration::from_millis(20)).await;
        let statistics = shard.statistics();
        assert!(statistics.cleaning_errors == 0 && statistics.segments_cleaned > 0, "{statistics:?}");
        is_as_written(&shard, new).await;
    });
    rig.node.crash();
    rig.node.start();
    rig.run(async move {
        let (shard, recovery) = open().await;
        assert_eq!(recovery.damage, []);
        is_as_written(&shard, new).await;
    });
}

/// A device that refuses new blocks takes every deletion, and has room again.
pub fn a_full_device_can_be_emptied() {
    let (rig, client) = fresh(46, 256 * MIB, 1);
    rig.run(async move {
        let mut written = 0;
        let next = |written: u32| (ChunkId(written / 8), BlockRange::new(written % 8 * 32, 32));
        while client.write_with_room(GROUP, next(written).0, next(written).1).await.is_ok() {
            assert!(client.below(16).await);
            written += 1;
        }
        client.settle().await;
        for chunk in 0..=written / 8 {
            let range = BlockRange::new(0, BLOCKS_PER_CHUNK);
            client.ask(GROUP, Op::Zero(ChunkId(chunk), range)).expect("deletes always work");
            assert!(client.below(4).await);
        }
        client.settle().await;
        client.shard.pass_now().await.expect("an open shard");
        for chunk in 0..written / 16 {
            for part in 0..8 {
                let part = BlockRange::new(32 * part, 32);
                client.write_with_room(GROUP, ChunkId(chunk), part).await.expect("there is room again");
                assert!(client.below(16).await);
            }
        }
    });
}

/// Records of an open segment that replay does not need rot, and others lie behind them: appends do not go on among
/// those.
pub fn rot_within_an_open_segment_hides_what_lies_behind() {
    let rig = Rig::formatted(47, 256 * MIB, DiskOptions { block_size_bytes: 4096, ..DiskOptions::default() });
    let behind = BlockRange::new(BLOCKS_PER_CHUNK - 32, 32);
    rig.run(async move {
        let (shard, recovery) = open().await;
        let writer = Writer::begin(&shard, &recovery, GROUP).await;
        for chunk in (0..3).map(ChunkId) {
            writer.write_chunk(LAYER, chunk, 1).await;
        }
        for _ in 0..2 {
            shard.pass_now().await.expect("an open shard");
        }
    });
    rig.node.crash();
    let of_chunk_0 = bytes_of(ChunkId(0), BlockRange::new(0, 1), 1);
    let [segment] = rig.segments_with(&of_chunk_0)[..] else { panic!("all is in one segment") };
    assert!(rig.segments()[segment].is_hot);
    let start = MIB + segment as u64 * 4 * MIB;
    // Headers of records alone, to the last: nothing shows where the blocks end that live.
    let mut block = vec![0; BLOCK_BYTES];
    for offset in (start + MIB / 4..start + 4 * MIB).step_by(4096) {
        rig.disk.peek(offset, &mut block);
        if block.starts_with(b"CRec") {
            rig.disk.flip_bit(offset, 0);
        }
    }
    rig.node.start();
    rig.run(async move {
        let (shard, recovery) = open().await;
        assert_eq!(recovery.damage, [], "replay needs none of it");
        let writer = Writer::begin(&shard, &recovery, GROUP).await;
        for chunk in (10..13).map(ChunkId) {
            writer.write_chunk(LAYER, chunk, 1).await;
        }
        writer.settle().await;
        let seen = versions_in(&shard, &[LAYER], ChunkId(2), behind).await;
        assert!(seen.iter().all(|version| *version == 1), "{seen:?}");
    });
}
