//! The store alone: one device, one core, no protocol and no replication above it.

use runtime::channel::WaitList;
use runtime::sim::Random;
use runtime::{Device, IoBuf, SharedBuf};
use std::cell::{Cell, RefCell};
use std::io;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;
use store::{AppendError, Entry, EntryKind, FormatOptions, LogPosition, Shard, Statistics, Store, Usage};
use types::{
    BLOCK_BYTES, BLOCKS_PER_CHUNK, BlockRange, ChunkId, ClusterId, Epoch, GroupId, LayerId, Seq, ShardIndex, StoreId,
    VolumeEpoch,
};

/// Groups that the load is spread over: as many as a pool of one device has.
const GROUPS: u32 = 100;
const LAYER: LayerId = LayerId(1);
/// Largest entry: 64 KiB, the unit of an untorn write.
const FILL_BLOCKS: u32 = 16;
/// Pieces of a fill under way at once: a disk that flushes each is busy with the next meanwhile.
const FILL_DEPTH: u32 = 32;

/// All shards of one store on the current core, and the order of each group.
pub struct StoreLoad {
    store: Arc<Store>,
    shards: Vec<Rc<Shard>>,
    next_seq: RefCell<Vec<u64>>,
    /// Recycled lists for the checksums of reads.
    checksums: RefCell<Vec<Vec<u32>>>,
    blocks: u64,
    payload: SharedBuf,
    written: Cell<u64>,
    /// Writes that waited for a segment.
    waited: Cell<u64>,
}

/// What a store that was opened holds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reopened {
    /// Memory of its index, as it counts itself.
    pub index_bytes: u64,
    /// Blocks that it names.
    pub blocks: u64,
    /// Bytes of log that were scanned.
    pub log_bytes: u64,
    /// Memory of the process with all of it open.
    pub resident_bytes: u64,
    /// From the start until all shards were open.
    pub seconds: f64,
}

impl StoreLoad {
    /// Formats the file at `path`, which must not be a store yet, and opens it for a load over `blocks` blocks.
    ///
    /// # Errors
    /// What the device or the store says.
    pub async fn create(path: &Path, blocks: u64) -> io::Result<Self> {
        Self::create_for(path, |_| blocks).await
    }

    /// As [`create`](Self::create), for as many blocks as `blocks` makes of how large the store turns out to be.
    ///
    /// # Errors
    /// What the device or the store says.
    pub async fn create_for(path: &Path, blocks: impl FnOnce(&Usage) -> u64) -> io::Result<Self> {
        let device = Device::open(path).await?;
        let options = FormatOptions {
            cluster: ClusterId(1),
            store: StoreId(1),
            hash_key: [7; 32],
            segment_size_bytes: None,
            shard_count: None,
        };
        store::format(&device, &options).await.map_err(io::Error::other)?;
        let store = Store::open(&device).await.map_err(io::Error::other)?;
        let mut shards = Vec::new();
        for index in 0..store.shard_count() {
            let opened = Shard::open(&store, device.clone(), ShardIndex(index)).await.map_err(io::Error::other)?;
            shards.push(opened.0);
        }
        let blocks = blocks(&store.usage());
        let random = Random::new(99);
        let mut payload = IoBuf::new(FILL_BLOCKS as usize * BLOCK_BYTES);
        payload.chunks_exact_mut(8).for_each(|word| word.copy_from_slice(&random.next_u64().to_le_bytes()));
        Ok(Self {
            store,
            shards,
            next_seq: RefCell::new(vec![1; GROUPS as usize]),
            checksums: RefCell::default(),
            blocks,
            payload: payload.freeze(),
            written: Cell::new(0),
            waited: Cell::new(0),
        })
    }

    fn place(block: u64) -> (GroupId, ChunkId, u32) {
        let chunk = (block / u64::from(BLOCKS_PER_CHUNK)) as u32;
        let group = chunk.wrapping_mul(0x9E37_79B1) % GROUPS;
        (GroupId(group + 1), ChunkId(chunk), (block % u64::from(BLOCKS_PER_CHUNK)) as u32)
    }

    fn shard_of(&self, group: GroupId) -> &Rc<Shard> {
        &self.shards[usize::from(self.store.shard_of(group).0)]
    }

    /// Writes `count` blocks from `block` on, within one chunk, durably, and applies them.
    ///
    /// # Errors
    /// What the store says.
    pub async fn write(&self, block: u64, count: u32) -> io::Result<()> {
        let (group, chunk, first) = Self::place(block);
        let shard = self.shard_of(group).clone();
        let mut has_waited = false;
        let (seq, position) = loop {
            let of_group = group.0 as usize - 1;
            let seq = Seq(self.next_seq.borrow()[of_group]);
            let entry = Entry {
                group,
                term: Epoch(1).into(),
                seq,
                commit: shard.committed_through(group),
                volume_epoch: VolumeEpoch(1),
                layer: LAYER,
                chunk,
                kind: EntryKind::write(
                    BlockRange::new(first, count),
                    self.payload.slice(0..count as usize * BLOCK_BYTES),
                ),
            };
            match shard.prepare(entry) {
                Ok(position) => {
                    self.next_seq.borrow_mut()[of_group] += 1;
                    break (seq, position);
                }
                Err(AppendError::Busy) => has_waited = true,
                Err(refused) => return Err(io::Error::other(refused)),
            }
            shard.room().await.map_err(io::Error::other)?;
        };
        self.waited.set(self.waited.get() + u64::from(has_waited));
        let mut durable: LogPosition = shard.durable_through();
        while durable < position {
            durable = shard.durable_changed(durable).await.map_err(io::Error::other)?;
        }
        shard.commit(group, seq);
        self.written.set(self.written.get() + u64::from(count) * BLOCK_BYTES as u64);
        Ok(())
    }

    /// Begins each group's epoch; the first thing to do.
    ///
    /// # Errors
    /// What the store says.
    pub async fn begin(&self) -> io::Result<()> {
        for group in 1..=GROUPS {
            let group = GroupId(group);
            let shard = self.shard_of(group);
            let entry = Entry {
                group,
                term: Epoch(1).into(),
                seq: Seq(1),
                commit: Seq(0),
                volume_epoch: VolumeEpoch(0),
                layer: LayerId(0),
                chunk: ChunkId(0),
                kind: EntryKind::EpochStart,
            };
            let position = shard.prepare(entry).map_err(io::Error::other)?;
            let mut durable = shard.durable_through();
            while durable < position {
                durable = shard.durable_changed(durable).await.map_err(io::Error::other)?;
            }
            shard.commit(group, Seq(1));
            self.next_seq.borrow_mut()[group.0 as usize - 1] = 2;
        }
        Ok(())
    }

    /// Writes every block once, in order, in pieces of 64 KiB.
    ///
    /// # Errors
    /// What the store says.
    pub async fn fill(self: &Rc<Self>) -> io::Result<()> {
        let pieces = self.blocks / u64::from(FILL_BLOCKS);
        self.write_all(FILL_DEPTH, pieces, FILL_BLOCKS, |number| number * u64::from(FILL_BLOCKS)).await
    }

    /// Writes every block once in an order without neighbours, `depth` at a time: the worst case for the index.
    ///
    /// # Errors
    /// What the store says.
    pub async fn fill_randomly(self: &Rc<Self>, depth: u32) -> io::Result<()> {
        // A full cycle over all blocks: an odd step in a power of two, skipping what lies beyond the end.
        let (cycle, step) = (self.blocks.next_power_of_two(), 0x5851_F42D_4C95_7F2D_u64 | 1);
        self.write_all(depth, cycle, 1, move |number| number.wrapping_mul(step) & (cycle - 1)).await
    }

    /// Writes `count` blocks at `block_of` each number below `pieces`, `depth` at a time.
    async fn write_all(
        self: &Rc<Self>,
        depth: u32,
        pieces: u64,
        count: u32,
        block_of: impl Fn(u64) -> u64 + Copy + 'static,
    ) -> io::Result<()> {
        let (next, alive, ended) = (Rc::new(Cell::new(0_u64)), Rc::new(Cell::new(depth)), Rc::new(WaitList::default()));
        let failure = Rc::new(RefCell::new(None));
        for _ in 0..depth {
            let (store, next, alive) = (self.clone(), next.clone(), alive.clone());
            let (ended, failure) = (ended.clone(), failure.clone());
            runtime::spawn(async move {
                while next.get() < pieces && failure.borrow().is_none() {
                    let block = block_of(next.replace(next.get() + 1));
                    if block < store.blocks
                        && let Err(error) = store.write(block, count).await
                    {
                        failure.borrow_mut().get_or_insert(error);
                    }
                }
                alive.set(alive.get() - 1);
                ended.wake_all();
            });
        }
        ended.until(|| (alive.get() == 0).then_some(())).await;
        failure.take().map_or(Ok(()), Err)
    }

    /// Makes up an index of all blocks, each anywhere on the device, and writes a checkpoint of it.
    ///
    /// # Errors
    /// What the store says.
    pub async fn make_up(&self) -> io::Result<()> {
        let chunks = (self.blocks / u64::from(BLOCKS_PER_CHUNK)) as u32 / self.shards.len() as u32;
        for shard in &self.shards {
            let made = store::write_synthetic_pass(shard, LAYER, chunks, store::SyntheticLayout::Random).await;
            made.map_err(io::Error::other)?;
        }
        Ok(())
    }

    /// Opens the store at `path`, all its shards one after the other on this core.
    ///
    /// # Errors
    /// What the store says, and a store that is damaged.
    pub async fn reopen(path: &Path) -> io::Result<Reopened> {
        let started = Instant::now();
        let device = Device::open(path).await?;
        let store = Store::open(&device).await.map_err(io::Error::other)?;
        let (mut opened, mut shards) = (Reopened::default(), Vec::new());
        let mut recovered = Vec::new();
        for index in 0..store.shard_count() {
            let read = Shard::recover(&store, device.clone(), ShardIndex(index)).await;
            recovered.push(read.map_err(io::Error::other)?);
        }
        for read in recovered {
            let (shard, recovery) = read.begin().await.map_err(io::Error::other)?;
            if let Some(damage) = recovery.damage.first() {
                return Err(io::Error::other(damage.to_string()));
            }
            let statistics = shard.statistics();
            opened.index_bytes += statistics.index_bytes;
            opened.blocks += statistics.live_bytes / BLOCK_BYTES as u64;
            opened.log_bytes += recovery.counters.log_bytes;
            shards.push(shard);
        }
        opened.seconds = started.elapsed().as_secs_f64();
        opened.resident_bytes = crate::cpu::resident_bytes()?;
        for shard in shards {
            shard.close().await;
        }
        Ok(opened)
    }

    /// Reads one random block.
    ///
    /// # Errors
    /// What the store says.
    pub async fn read_random(&self, random: &Random) -> io::Result<()> {
        let (group, chunk, first) = Self::place(random.below(self.blocks));
        let mut checksums = self.checksums.borrow_mut().pop().unwrap_or_default();
        checksums.clear();
        let shard = self.shard_of(group);
        let (result, _) =
            shard.read(&[LAYER], chunk, BlockRange::new(first, 1), IoBuf::new(BLOCK_BYTES), &mut checksums).await;
        self.checksums.borrow_mut().push(checksums);
        result.map_err(io::Error::other)
    }

    /// Writes one random block.
    ///
    /// # Errors
    /// What the store says.
    pub async fn write_random(&self, random: &Random) -> io::Result<()> {
        self.write(random.below(self.blocks), 1).await
    }

    /// Bytes written so far: to the device, and by clients.
    pub fn written_bytes(&self) -> (u64, u64) {
        (self.shards.iter().map(|shard| shard.statistics().appended_bytes).sum(), self.written.get())
    }

    /// What all shards together have done.
    pub fn statistics(&self) -> Statistics {
        self.shards.iter().map(|shard| shard.statistics()).fold(Statistics::default(), |mut sum, one| {
            sum.appends += one.appends;
            sum.appended_bytes += one.appended_bytes;
            sum.checkpoint_bytes += one.checkpoint_bytes;
            sum.moved_bytes += one.moved_bytes;
            sum.segments_cleaned += one.segments_cleaned;
            sum.passes += one.passes;
            sum
        })
    }

    /// How full the store is.
    pub fn usage(&self) -> Usage {
        self.store.usage()
    }

    /// Bytes of one segment.
    pub fn segment_bytes(&self) -> u64 {
        u64::from(self.store.geometry().segment_size_bytes)
    }

    /// Blocks that the load covers.
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Writes that had to wait for a segment.
    pub fn waited(&self) -> u64 {
        self.waited.get()
    }

    /// Memory of the index, and blocks that it names.
    pub fn index(&self) -> (u64, u64) {
        let all = self.shards.iter().map(|shard| shard.statistics());
        all.fold((0, 0), |(bytes, blocks), s| (bytes + s.index_bytes, blocks + s.live_bytes / BLOCK_BYTES as u64))
    }

    /// Ends the shards' background tasks, all that was queued being durable.
    pub async fn close(&self) {
        for shard in &self.shards {
            shard.close().await;
        }
    }
}
