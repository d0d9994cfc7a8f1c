//! A simulated node with one disk, and a client that knows what must be on it.
#![allow(dead_code)] // Each test file uses its part.

pub mod carry;
pub mod cleaning;
pub mod installs;
pub mod layers;
pub mod lost;
pub mod members;
pub mod moments;
pub mod openings;
pub mod reader;
pub mod shards;
pub mod skips;
pub mod tombstones;

use runtime::sim::{DiskOptions, NodeOptions, Random, SimDisk, SimNode, World};
use runtime::{Device, IoBuf, spawn};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use store::check::{CheckOptions, Checked};
use store::format::{Codec, StoredLength};
use store::{
    BlockCoding, Content, Entry, EntryKind, FormatOptions, LogPosition, Recovery, Shard, Store, StoredBlocks, Want,
};
use types::*;

pub const DISK: &str = "disk";
pub const MIB: u64 = 1 << 20;
/// The one layer that the tests write to.
pub const LAYER: LayerId = LayerId(7);

pub struct Rig {
    pub world: World,
    pub node: SimNode,
    pub disk: SimDisk,
    pub random: Random,
    pub size_bytes: u64,
    pub options: DiskOptions,
}

impl Rig {
    pub fn new(seed: u64, size_bytes: u64, options: DiskOptions) -> Self {
        let world = World::new(seed);
        let node = world.add_node(1, NodeOptions::default());
        let disk = node.add_disk(DISK, size_bytes, options);
        Self { world, node, disk, random: Random::new(seed), size_bytes, options }
    }

    /// A formatted disk with one shard.
    pub fn formatted(seed: u64, size_bytes: u64, options: DiskOptions) -> Self {
        let rig = Self::new(seed, size_bytes, options);
        rig.run(async move {
            let device = device().await;
            store::format(&device, &format_options()).await.expect("the disk can be formatted");
        });
        rig
    }

    pub fn run<T: 'static>(&self, future: impl Future<Output = T> + 'static) -> T {
        self.world.run_on(&self.node, 0, future).expect("it ends")
    }

    /// Opens the store and its first shard.
    pub fn open(&self) -> (Rc<Shard>, Recovery) {
        self.run(async { open().await })
    }
}

pub fn format_options() -> FormatOptions {
    FormatOptions {
        cluster: ClusterId(1),
        store: StoreId(2),
        hash_key: [7; 32],
        segment_size_bytes: None,
        shard_count: Some(1),
    }
}

pub async fn device() -> Device {
    Device::open(Path::new(DISK)).await.expect("the disk is there")
}

pub async fn open() -> (Rc<Shard>, Recovery) {
    let device = device().await;
    let store = Store::open(&device).await.expect("a store");
    Shard::open(&store, device, ShardIndex(0)).await.expect("a shard")
}

/// The bytes of a block in its nth writing.
pub fn fill_block(block: &mut [u8], chunk: ChunkId, number: u16, version: u64) {
    if version == 0 {
        return block.fill(0);
    }
    let base = version.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u64::from(chunk.0) << 20 ^ u64::from(number);
    for (i, word) in block.chunks_exact_mut(8).enumerate() {
        word.copy_from_slice(&base.wrapping_add(i as u64).to_le_bytes());
    }
}

/// The version that a block's bytes are, if they are one.
pub fn version_of(block: &[u8], chunk: ChunkId, number: u16) -> u64 {
    let first = u64::from_le_bytes(*block.first_chunk().expect("a block"));
    if first == 0 {
        return 0;
    }
    // The multiplier's inverse modulo 2^64.
    (first ^ u64::from(chunk.0) << 20 ^ u64::from(number)).wrapping_mul(0xf1de83e19937733d)
}

pub fn bytes_of(chunk: ChunkId, range: BlockRange, version: u64) -> runtime::SharedBuf {
    let mut buf = IoBuf::new(range.bytes());
    for (i, block) in buf.chunks_exact_mut(BLOCK_BYTES).enumerate() {
        fill_block(block, chunk, range.first + i as u16, version);
    }
    buf.freeze()
}

#[derive(Clone, Copy, Debug)]
pub enum Op {
    Epoch(Epoch),
    Write(ChunkId, BlockRange, u64),
    Zero(ChunkId, BlockRange),
    Other,
}

/// One group as the client knows it: every entry it asked for, in order, and how many were acknowledged.
#[derive(Clone, Default)]
pub struct GroupModel {
    pub epoch: Epoch,
    pub ops: Vec<Op>,
    pub acknowledged: Seq,
    /// What the first entries that are no longer in `ops` came to.
    pub base: BTreeMap<(ChunkId, u16), u64>,
    pub base_seq: u64,
}

impl GroupModel {
    pub fn last_seq(&self) -> Seq {
        Seq(self.base_seq + self.ops.len() as u64)
    }

    /// Forgets what did not survive.
    pub fn cut(&mut self, through: Seq) {
        assert!(through >= self.acknowledged, "acknowledged {}, survived {through}", self.acknowledged);
        assert!(through <= self.last_seq(), "{through} survived and {} were asked for", self.last_seq());
        self.ops.truncate((through.0 - self.base_seq) as usize);
    }

    /// The version of each block after all entries.
    pub fn content(&mut self) -> &BTreeMap<(ChunkId, u16), u64> {
        self.base_seq += self.ops.len() as u64;
        for op in self.ops.drain(..) {
            let (chunk, range, version) = match op {
                Op::Write(chunk, range, version) => (chunk, range, version),
                Op::Zero(chunk, range) => (chunk, range, 0),
                Op::Epoch(_) | Op::Other => continue,
            };
            for block in range.first..range.end() as u16 {
                self.base.insert((chunk, block), version);
            }
        }
        &self.base
    }
}

/// What all groups must hold.
#[derive(Clone, Default)]
pub struct Model {
    pub groups: BTreeMap<GroupId, GroupModel>,
    pub next_version: u64,
    /// Blocks are written as if they were compressed, to lengths that follow from their versions.
    pub coded: bool,
}

/// Length and codec of a block in its nth writing, where blocks are compressed.
pub fn coded_length(number: u16, version: u64) -> StoredLength {
    match (u64::from(number) + version) % 9 {
        0 | 8 => StoredLength::RAW,
        units => StoredLength::new(units as u8, if version.is_multiple_of(2) { Codec::Lz4 } else { Codec::Zstd }),
    }
}

/// A write of blocks of which only the front is kept, as long as a codec would have made them.
pub fn coded_write(chunk: ChunkId, range: BlockRange, version: u64) -> EntryKind {
    let (whole, mut stored, mut lengths) = (bytes_of(chunk, range, version), Vec::new(), Vec::new());
    for (block, number) in whole.chunks_exact(BLOCK_BYTES).zip(range.first..) {
        lengths.push(coded_length(number, version));
        stored.extend_from_slice(&block[..coded_length(number, version).bytes()]);
    }
    let coding = BlockCoding::new(KeyId(0), Some(&lengths));
    EntryKind::Write { range, bytes: IoBuf::copy_of(&stored).freeze(), coding }
}

pub type SharedModel = Rc<RefCell<Model>>;

/// Asks for entries and commits what is durable, as a primary of groups with one member does.
#[derive(Clone)]
pub struct Client {
    pub shard: Rc<Shard>,
    pub model: SharedModel,
    /// Entries queued and not durable: position, group, sequence.
    waiting: Rc<RefCell<std::collections::VecDeque<(LogPosition, GroupId, Seq)>>>,
}

impl Client {
    /// Takes over the groups: cuts the model to what survived, begins a new epoch in each, commits all.
    pub async fn take_over(shard: &Rc<Shard>, recovery: &Recovery, model: &SharedModel) -> Self {
        for found in &recovery.groups {
            let mut model = model.borrow_mut();
            let group = model.groups.get_mut(&found.group).expect("a group that was asked for");
            assert!(!found.damaged, "group {} damaged", found.group);
            group.cut(found.prepared_through);
        }
        for (id, group) in &mut model.borrow_mut().groups {
            if !recovery.groups.iter().any(|found| found.group == *id) {
                group.cut(Seq(0));
            }
        }
        let client = Self { shard: shard.clone(), model: model.clone(), waiting: Rc::default() };
        let ids: Vec<_> = model.borrow().groups.keys().copied().collect();
        for id in ids {
            let epoch = {
                let mut model = model.borrow_mut();
                let group = model.groups.get_mut(&id).expect("listed");
                group.epoch.0 += 1;
                group.epoch
            };
            client.ask(id, Op::Epoch(epoch)).expect("there is room for an epoch");
        }
        client.settle().await;
        client
    }

    /// Queues one entry.
    pub fn ask(&self, id: GroupId, op: Op) -> Result<LogPosition, store::AppendError> {
        let entry = {
            let model = self.model.borrow();
            let group = &model.groups[&id];
            let (chunk, kind) = match op {
                Op::Epoch(_) => (ChunkId(0), EntryKind::EpochStart),
                Op::Write(chunk, range, version) if model.coded => (chunk, coded_write(chunk, range, version)),
                Op::Write(chunk, range, version) => (chunk, EntryKind::write(range, bytes_of(chunk, range, version))),
                Op::Zero(chunk, range) => (chunk, EntryKind::Zero { range, hides_below: false }),
                Op::Other => (ChunkId(0), EntryKind::Noop),
            };
            Entry {
                group: id,
                term: group.epoch.into(),
                seq: Seq(group.last_seq().0 + 1),
                commit: group.acknowledged,
                volume_epoch: VolumeEpoch(1),
                layer: LAYER,
                chunk,
                kind,
            }
        };
        let seq = entry.seq;
        let position = self.shard.prepare(entry)?;
        self.model.borrow_mut().groups.get_mut(&id).expect("asked above").ops.push(op);
        self.waiting.borrow_mut().push_back((position, id, seq));
        Ok(position)
    }

    /// Writes blocks in the next version.
    pub fn write(&self, id: GroupId, chunk: ChunkId, range: BlockRange) -> Result<LogPosition, store::AppendError> {
        let version = {
            let mut model = self.model.borrow_mut();
            model.next_version += 1;
            model.next_version
        };
        self.ask(id, Op::Write(chunk, range, version))
    }

    /// Writes blocks in the next version, once there is room for them.
    pub async fn write_with_room(
        &self,
        id: GroupId,
        chunk: ChunkId,
        range: BlockRange,
    ) -> Result<LogPosition, store::AppendError> {
        loop {
            match self.write(id, chunk, range) {
                Err(store::AppendError::Busy) => {
                    self.settle().await;
                    self.shard.room().await?;
                }
                queued => return queued,
            }
        }
    }

    /// Commits and acknowledges what is durable.
    pub fn acknowledge(&self) {
        let durable = self.shard.durable_through();
        loop {
            let first = self.waiting.borrow().front().copied().filter(|(position, ..)| *position <= durable);
            let Some((_, id, seq)) = first else { return };
            self.waiting.borrow_mut().pop_front();
            self.shard.commit(id, seq);
            self.model.borrow_mut().groups.get_mut(&id).expect("asked for").acknowledged = seq;
        }
    }

    /// Entries that are not acknowledged.
    pub fn depth(&self) -> usize {
        self.waiting.borrow().len()
    }

    /// Waits until everything queued is acknowledged.
    pub async fn settle(&self) {
        while self.depth() > 0 {
            let seen = self.shard.durable_through();
            self.acknowledge();
            if self.depth() > 0 && self.shard.durable_changed(seen).await.is_err() {
                return self.no_assertion_failed();
            }
        }
    }

    /// The store may have failed, or been closed; it stops by itself only where it has a bug.
    fn no_assertion_failed(&self) {
        let failed = self.shard.store().failed();
        assert!(!matches!(failed, Some(store::AppendError::Stopped { .. })), "{failed:?}");
    }

    /// Waits until fewer than `depth` are not acknowledged. Returns false if the shard has failed.
    pub async fn below(&self, depth: usize) -> bool {
        loop {
            let seen = self.shard.durable_through();
            self.acknowledge();
            if self.depth() < depth {
                return true;
            }
            if self.shard.durable_changed(seen).await.is_err() {
                self.no_assertion_failed();
                return false;
            }
        }
    }

    /// Reads everything that was ever written, and compares.
    pub async fn verify(&self) {
        let chunks: Vec<(ChunkId, BTreeMap<u16, u64>)> = {
            let mut model = self.model.borrow_mut();
            let mut chunks: BTreeMap<ChunkId, BTreeMap<u16, u64>> = BTreeMap::new();
            for group in model.groups.values_mut() {
                for ((chunk, block), version) in group.content() {
                    chunks.entry(*chunk).or_default().insert(*block, *version);
                }
            }
            chunks.into_iter().collect()
        };
        for (chunk, blocks) in chunks {
            let range = BlockRange::new(0, BLOCKS_PER_CHUNK);
            let mut sums = Vec::new();
            let buf = IoBuf::new(range.bytes());
            let (read, bytes) = self.shard.read_stored(&[LAYER], chunk, range, Want::Plain, buf, &mut sums).await;
            if let Content::Stored(stored) = read.unwrap_or_else(|error| panic!("{error}")) {
                assert!(self.model.borrow().coded, "nothing was compressed");
                verify_coded(stored, chunk, &blocks);
                continue;
            }
            let mut expected = vec![0; BLOCK_BYTES];
            for (i, block) in bytes.chunks_exact(BLOCK_BYTES).enumerate() {
                let version = blocks.get(&(i as u16)).copied().unwrap_or(0);
                fill_block(&mut expected, chunk, i as u16, version);
                assert!(
                    block == expected,
                    "chunk {chunk} block {i} is not version {version} but {}",
                    version_of(block, chunk, i as u16)
                );
                assert_eq!(sums[i], crc32c::crc32c(block));
            }
        }
    }
}

/// Compares what is stored of a whole chunk.
fn verify_coded(mut stored: StoredBlocks, chunk: ChunkId, blocks: &BTreeMap<u16, u64>) {
    let (mut expected, mut number) = (vec![0; BLOCK_BYTES], 0);
    stored.for_each(|found| {
        let version = blocks.get(&number).copied().unwrap_or(0);
        fill_block(&mut expected, chunk, number, version);
        let (length, bytes) = match found {
            Some((length, _, bytes)) => (Some(length), &*bytes),
            None => (None, &[][..]),
        };
        let wanted = (version > 0).then(|| coded_length(number, version));
        assert_eq!(length, wanted, "chunk {chunk} block {number} version {version}");
        assert!(bytes == &expected[..bytes.len()], "chunk {chunk} block {number} is not version {version}");
        number += 1;
    });
    assert_eq!(number, 256);
}

/// A model with this many empty groups.
pub fn model_of(groups: u32) -> SharedModel {
    let groups = (1..=groups).map(|id| (GroupId(id), GroupModel::default())).collect();
    Rc::new(RefCell::new(Model { groups, ..Model::default() }))
}

/// One step of a random client: a write of some blocks, or sometimes a zero. Each group has its own chunks.
pub fn random_op(
    client: &Client,
    random: &Random,
    groups: u32,
    chunks: u32,
) -> Result<LogPosition, store::AppendError> {
    let group = random.below(u64::from(groups)) as u32;
    let chunk = ChunkId(group + groups * random.below(u64::from(chunks)) as u32);
    let first = random.below(256) as u32;
    let most = if random.one_in(8) { 32 } else { 4 };
    let count = (1 + random.below(most) as u32).min(256 - first);
    let range = BlockRange::new(first, count);
    match random.below(10) {
        0 => client.ask(GroupId(group + 1), Op::Zero(chunk, range)),
        _ => client.write(GroupId(group + 1), chunk, range),
    }
}

/// A store on an empty disk, opened, with groups taken over.
pub fn fresh(seed: u64, size_bytes: u64, groups: u32) -> (Rig, Client) {
    let rig = Rig::formatted(seed, size_bytes, DiskOptions::default());
    let model = model_of(groups);
    let client = reopen(&rig, &model);
    (rig, client)
}

/// Opens and takes over; demands that nothing is damaged.
pub fn reopen(rig: &Rig, model: &SharedModel) -> Client {
    let model = model.clone();
    rig.run(async move {
        let (shard, recovery) = open().await;
        assert_eq!(recovery.damage, []);
        Client::take_over(&shard, &recovery, &model).await
    })
}

pub fn store_of(shard: &Shard) -> Arc<Store> {
    shard.store().clone()
}

/// Odd seeds have 4 KiB device blocks; every other pair has the short passes of eight shards.
pub fn rig_for(seed: u64) -> Rig {
    let block_size_bytes = if seed.is_multiple_of(2) { 512 } else { 4096 };
    let rig = Rig::new(seed, 256 * MIB, DiskOptions { block_size_bytes, ..DiskOptions::default() });
    let shard_count = if (seed / 2).is_multiple_of(2) { 1 } else { 8 };
    rig.run(async move {
        let device = device().await;
        let options = FormatOptions { shard_count: Some(shard_count), ..format_options() };
        store::format(&device, &options).await.expect("the disk can be formatted");
    });
    rig
}

/// The lights go out, or, in so many of four cases, only the process ends.
pub fn end(rig: &Rig, kills_of_4: u64) {
    if rig.random.below(4) < kills_of_4 {
        rig.node.kill();
    } else {
        rig.node.crash();
    }
    rig.node.start();
}

/// Checks the whole device, which nobody has open.
pub fn check(rig: &Rig, options: CheckOptions) -> Checked {
    rig.run(async move { store::check::check(&device().await, options).await.expect("a store's device") })
}

/// Writes in the background until it is ended or fails.
pub fn write_on(rig: &Rig, client: &Client, groups: u32, chunks: u32) {
    let depth = [1, 4, 16, 64][rig.random.below(4) as usize];
    let random = Random::new(rig.random.next_u64());
    let client = client.clone();
    rig.node.spawn(0, async move {
        spawn(async move {
            loop {
                if random.one_in(200) {
                    runtime::sleep(Duration::from_millis(random.below(1500))).await;
                }
                if random_op(&client, &random, groups, chunks).is_err() || !client.below(depth).await {
                    return;
                }
            }
        });
    });
}
