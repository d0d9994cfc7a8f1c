//! A group that cannot commit on a device that is nearly full: what it has prepared is written again and again, so that
//! the others go on.

use super::members::{durable, entry, open_whole, rig, term};
use super::moments::{Writer, versions_in};
use super::*;
use runtime::sim::Latency;

const GROUP: GroupId = super::members::GROUP;
const OTHER: GroupId = GroupId(2);
/// The group's blocks.
const BLOCKS: u32 = 16;
/// The other group's chunks: a quarter of the device.
const CHUNKS: std::ops::Range<u32> = 50..114;

/// What the group does next.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    Any,
    Commit,
    Cut,
}

/// The group's order as it should be, entry by entry: the block each writes and its version; an epoch start without.
#[derive(Default)]
struct Order {
    entries: Vec<(LogPosition, Option<(u32, u64)>)>,
    epoch: u32,
    /// What comes next is the start of an epoch.
    begins_epoch: bool,
    versions: u64,
}

impl Order {
    /// Prepares a write, or the start of the next epoch; nothing if there is no room now.
    fn prepare(&mut self, shard: &Shard, block: Option<u32>) {
        let seq = self.entries.len() as u64 + 1;
        let block = block.filter(|_| !self.begins_epoch && seq > 1);
        let epoch = self.epoch + u32::from(block.is_none());
        let kind = block.map_or(EntryKind::EpochStart, |block| {
            let range = BlockRange::new(block, 1);
            EntryKind::write(range, bytes_of(ChunkId(0), range, self.versions + 1))
        });
        match shard.prepare_ordered(entry(epoch, seq, ChunkId(0), kind)) {
            Ok(position) => {
                (self.epoch, self.begins_epoch) = (epoch, false);
                self.versions += 1;
                self.entries.push((position, block.map(|block| (block, self.versions))));
            }
            Err(store::AppendError::Busy) => {}
            Err(error) => panic!("{error}"),
        }
    }

    fn durable(&self, shard: &Shard) -> usize {
        let through = shard.durable_through();
        self.entries.iter().take_while(|(position, _)| *position <= through).count()
    }

    /// What the blocks hold when so many entries are applied.
    fn content(&self, applied: usize) -> Vec<u64> {
        let mut blocks = vec![0; BLOCKS as usize];
        let writes = self.entries[..applied].iter().filter_map(|(_, write)| *write);
        writes.for_each(|(block, version)| blocks[block as usize] = version);
        blocks
    }
}

/// One group's entries wait, in several records, while another overwrites its blocks: four times what the device holds.
/// All of it finds room, and what waits is there after a restart.
pub fn one_that_waits_fills_no_device(seed: u64) {
    let rig = rig(seed);
    let order = Rc::new(RefCell::new(Order::default()));
    let (of_run, of_restart) = (order.clone(), order.clone());
    rig.run(async move {
        let (shard, recovery) = open_whole().await;
        let writer = Writer::begin(&shard, &recovery, OTHER).await;
        for block in [None, Some(0), Some(1), None, Some(1), Some(2)] {
            of_run.borrow_mut().prepare(&shard, block);
            let last = of_run.borrow().entries.last().expect("there is room").0;
            durable(&shard, last).await;
        }
        for version in 1..=16 {
            for chunk in CHUNKS.map(ChunkId) {
                writer.write_chunk(LAYER, chunk, version).await;
            }
        }
        assert!(shard.statistics().carried >= 6, "{:?}", shard.statistics());
        assert_eq!((shard.committed_through(GROUP), shard.prepared_through(GROUP)), (Seq(0), Seq(6)));
    });
    rig.node.crash();
    rig.node.start();
    rig.run(async move {
        let (shard, _) = open_whole().await;
        assert_eq!((shard.committed_through(GROUP), shard.prepared_through(GROUP)), (Seq(0), Seq(6)));
        assert_eq!(shard.history(GROUP), [(term(1), Seq(1)), (term(2), Seq(4))]);
        assert!(shard.commit(GROUP, Seq(6)).is_done());
        assert!(shard.commit(OTHER, shard.prepared_through(OTHER)).is_done());
        let seen = versions_in(&shard, &[LAYER], ChunkId(0), BlockRange::new(0, BLOCKS)).await;
        assert_eq!(seen, of_restart.borrow().content(6));
        for chunk in CHUNKS.map(ChunkId) {
            let seen = versions_in(&shard, &[LAYER], chunk, BlockRange::new(0, BLOCKS_PER_CHUNK)).await;
            assert!(seen.iter().all(|version| *version == 16), "chunk {chunk}: {seen:?}");
        }
    });
}

/// Three segments of entries wait on a device that is nearly full: they are written again while somebody writes, and the
/// store comes to rest when nobody does.
pub fn what_waits_comes_to_rest(seed: u64) {
    let rig = rig(seed);
    let large = BlockRange::new(0, 32);
    rig.run(async move {
        let (shard, recovery) = open_whole().await;
        let writer = Writer::begin(&shard, &recovery, OTHER).await;
        shard.prepare(entry(1, 1, ChunkId(0), EntryKind::EpochStart)).expect("there is room");
        for seq in 2..98 {
            let kind = EntryKind::write(large, bytes_of(ChunkId(0), large, seq));
            durable(&shard, shard.prepare(entry(1, seq, ChunkId(0), kind)).expect("there is room")).await;
        }
        let mut version = 1;
        while shard.statistics().carried < 200 {
            for chunk in CHUNKS.map(ChunkId) {
                writer.write_chunk(LAYER, chunk, version).await;
            }
            version += 1;
        }
        assert!(version < 40, "{version} rounds");
        runtime::sleep(Duration::from_secs(30)).await;
        let at_rest = shard.statistics();
        runtime::sleep(Duration::from_secs(60)).await;
        let later = shard.statistics();
        assert_eq!((later.carried, later.passes), (at_rest.carried, at_rest.passes));
        assert_eq!(shard.prepared_through(GROUP), Seq(97));
    });
    rig.node.crash();
    rig.node.start();
    rig.run(async move {
        let (shard, _) = open_whole().await;
        assert!(shard.commit(GROUP, Seq(97)).is_done());
        assert_eq!(versions_in(&shard, &[LAYER], ChunkId(0), large).await, [97; 32]);
    });
}

/// A group that commits late, and is cut now and then, beside one that fills the device: what a loss of power would leave
/// has all of the order that was durable. Returns how many entries were written again.
pub fn carried_at_every_moment(seed: u64) -> u64 {
    // Slow enough for something to happen to an entry between its reading, its writing and the flush.
    let slow = |base_ns| Latency { base_ns, spread_ns: base_ns, per_kib_ns: 0, slow: 0, slow_ns: 0 };
    let options = DiskOptions { read: slow(4_000_000), flush: slow(1_000_000), ..DiskOptions::default() };
    let rig = Rig::formatted(seed, 256 * MIB, options);
    let order = Rc::new(RefCell::new(Order::default()));
    let (shard, writer) = rig.run(async {
        let (shard, recovery) = open_whole().await;
        let writer = Rc::new(Writer::begin(&shard, &recovery, OTHER).await);
        for chunk in CHUNKS.chain(CHUNKS).map(ChunkId) {
            writer.write_chunk(LAYER, chunk, 1).await;
        }
        (shard, writer)
    });
    let random = Random::new(rig.random.next_u64());
    let (asked, of_task) = (shard.clone(), order.clone());
    // What is done next: something that hurts an entry that is being read, or written again.
    let next = Rc::new(std::cell::Cell::new(Next::Any));
    let hurry = next.clone();
    let task = async move {
        let ended = Rc::new(std::cell::Cell::new(false));
        let told = ended.clone();
        spawn(async move {
            for version in 2..=12 {
                for chunk in CHUNKS.map(ChunkId) {
                    writer.write_chunk(LAYER, chunk, version).await;
                }
            }
            told.set(true);
        });
        while !ended.get() {
            let mut slices = random.below(40);
            while slices > 0 && hurry.get() == Next::Any {
                runtime::sleep(Duration::from_micros(200)).await;
                slices -= 1;
            }
            if hurry.get() == Next::Cut {
                // The copies are durable, and what waits in the next record is being read.
                runtime::sleep(Duration::from_millis(4)).await;
            }
            step(&asked, &mut of_task.borrow_mut(), (&random, hurry.replace(Next::Any)));
        }
    };
    let (seen, mut before, mut until) = (shard.clone(), 0, 0);
    let is_of_interest = |moment: u64| {
        let carried = seen.statistics().carried;
        if std::mem::replace(&mut before, carried) < carried {
            until = moment + 40;
            next.set(if carried % 3 == 0 { Next::Cut } else { Next::Commit });
        }
        moment.is_multiple_of(20) && moment < until
    };
    rig.at_moments(is_of_interest, task, |image| {
        let (order, durable) = (order.borrow(), order.borrow().durable(&shard));
        let (expected, through) = (order.content(durable), Seq(durable as u64));
        image.run(async move {
            let (shard, _) = open_whole().await;
            assert!(shard.prepared_through(GROUP) >= through, "{through} was durable");
            assert!(shard.commit(GROUP, through).is_done());
            assert_eq!(shard.committed_through(GROUP), through, "none is left out");
            let seen = versions_in(&shard, &[LAYER], ChunkId(0), BlockRange::new(0, BLOCKS)).await;
            assert_eq!(seen, expected, "through {through}");
        });
    });
    shard.statistics().carried
}

/// A write, as long as few wait; sometimes one is committed, or all but some are cut and a new epoch begins.
fn step(shard: &Shard, order: &mut Order, (random, next): (&Random, Next)) {
    let committed = shard.committed_through(GROUP).0 as usize;
    let waiting = order.entries.len() - committed;
    let drawn = match next {
        Next::Any => random.below(64),
        Next::Commit => 0,
        Next::Cut => 2,
    };
    match drawn {
        0..2 if order.durable(shard) > committed => {
            assert!(shard.commit(GROUP, Seq(committed as u64 + 1)).is_done(), "it is durable");
        }
        2 if waiting > 0 => {
            let most = if next == Next::Cut { waiting.min(4) } else { waiting };
            let kept = committed + random.below(most as u64) as usize;
            assert!(shard.cut(GROUP, Seq(kept as u64)));
            order.entries.truncate(kept);
            order.begins_epoch = true;
        }
        _ if waiting < 40 => order.prepare(shard, Some(random.below(BLOCKS.into()) as u32)),
        _ => {}
    }
}
