//! Chains of layers in one shard, and a plain model of what each of them must hold.
//!
//! The harness is what a cluster's map and a head are to a store: it knows which layers there are, who reads through
//! which, and ends those that nobody needs. It survives every crash; what the shard was asked for and had not
//! acknowledged may be lost, from the end of each group's order.

use super::*;
use std::collections::{BTreeSet, VecDeque};
use store::format::LayerRecord;
use store::{LeafCursor, MAX_ENTRY_CHUNKS};

pub const GROUPS: u32 = 3;
/// Enough full leaves for two records of a pass, so that a pass can be half way.
pub const CHUNKS: u32 = 66;
const MOST_TOPS: usize = 3;
const MOST_SNAPSHOTS: usize = 4;
const WHOLE: BlockRange = BlockRange { first: 0, count: 256 };

/// What was asked for.
#[derive(Clone, Debug)]
pub enum Ask {
    Epoch,
    Layer(LayerId, LayerId),
    Write(LayerId, ChunkId, BlockRange, u64),
    Zero(LayerId, ChunkId, BlockRange, bool),
    Merge(LayerId, LayerId, Vec<ChunkId>, bool),
    Delete(LayerId, Vec<ChunkId>),
}

#[derive(Clone, Default)]
struct Order {
    epoch: Epoch,
    /// Asked for and not in the contents.
    asked: VecDeque<Ask>,
    /// Sequence of what is in the contents.
    settled: Seq,
}

type Contents = BTreeMap<(LayerId, ChunkId), BTreeMap<u16, u64>>;

/// A layer that is being merged away (into its child) or deleted.
#[derive(Clone, Copy)]
struct Ending {
    layer: LayerId,
    into: Option<LayerId>,
}

/// What all must be.
#[derive(Clone, Default)]
pub struct Tree {
    orders: Vec<Order>,
    contents: Contents,
    /// Each layer and its parent, 0 none.
    parents: BTreeMap<LayerId, LayerId>,
    /// Layers that a volume writes to.
    tops: Vec<LayerId>,
    /// Layers that a snapshot names.
    named: BTreeSet<LayerId>,
    ending: Option<Ending>,
    /// Layers that the shard was told of, and has said so; those that it was told are gone.
    told: BTreeSet<LayerId>,
    over: BTreeSet<LayerId>,
    next_layer: u64,
    next_version: u64,
    pub merged_chunks: u64,
    pub ended_layers: u64,
}

pub type SharedTree = Rc<RefCell<Tree>>;

pub fn new_tree() -> SharedTree {
    let orders = (0..GROUPS).map(|_| Order::default()).collect();
    Rc::new(RefCell::new(Tree { orders, ..Tree::default() }))
}

impl Tree {
    /// Layers that there ever were: the first volume's, and one for each snapshot, clone and rollback.
    pub fn layers_made(&self) -> u64 {
        self.next_layer
    }

    /// The layer and what it is read through, newest first.
    fn chain(&self, top: LayerId) -> Vec<LayerId> {
        let parent = |layer: &LayerId| self.parents.get(layer).copied().filter(|parent| *parent != LayerId(0));
        std::iter::successors(Some(top), parent).collect()
    }

    fn children(&self, of: LayerId) -> Vec<LayerId> {
        self.parents.iter().filter(|(_, parent)| **parent == of).map(|(child, _)| *child).collect()
    }

    fn new_layer(&mut self, parent: LayerId) -> LayerId {
        self.next_layer += 1;
        let layer = LayerId(self.next_layer);
        self.parents.insert(layer, parent);
        layer
    }

    fn version(&self, chain: &[LayerId], chunk: ChunkId, block: u16) -> u64 {
        let found = chain.iter().find_map(|layer| self.contents.get(&(*layer, chunk))?.get(&block));
        found.copied().unwrap_or(0)
    }

    /// Layers that a volume or a snapshot names and that the device was told of.
    fn known_to_readers(&self) -> Vec<LayerId> {
        self.tops.iter().chain(&self.named).copied().filter(|layer| self.told.contains(layer)).collect()
    }

    /// The first block of a layer, as somebody read it from its beginning, that is not what it must be: (chunk, block,
    /// the version that is due).
    fn first_difference(&self, layer: LayerId, bytes: &[u8]) -> Option<(ChunkId, u16, u64)> {
        let chain = self.chain(layer);
        let mut expected = vec![0; BLOCK_BYTES];
        (0..).zip(bytes.chunks_exact(BLOCK_BYTES)).find_map(|(number, block)| {
            let (chunk, block_of_chunk) = (ChunkId(number / BLOCKS_PER_CHUNK), (number % BLOCKS_PER_CHUNK) as u16);
            let version = self.version(&chain, chunk, block_of_chunk);
            fill_block(&mut expected, chunk, block_of_chunk, version);
            (block != expected).then_some((chunk, block_of_chunk, version))
        })
    }

    fn apply(&mut self, ask: Ask) {
        match ask {
            Ask::Epoch => {}
            Ask::Layer(layer, _) => {
                self.told.insert(layer);
            }
            Ask::Write(layer, chunk, range, version) => {
                let blocks = self.contents.entry((layer, chunk)).or_default();
                blocks.extend((range.first..range.end() as u16).map(|block| (block, version)));
            }
            Ask::Zero(layer, chunk, range, hides_below) => {
                let blocks = self.contents.entry((layer, chunk)).or_default();
                for block in range.first..range.end() as u16 {
                    if hides_below {
                        blocks.insert(block, 0)
                    } else {
                        blocks.remove(&block)
                    };
                }
            }
            Ask::Merge(from, into, chunks, hides_below) => {
                for chunk in chunks {
                    let below = self.contents.remove(&(from, chunk)).unwrap_or_default();
                    let blocks = self.contents.entry((into, chunk)).or_default();
                    for (block, version) in below {
                        blocks.entry(block).or_insert(version);
                    }
                    blocks.retain(|_, version| hides_below || *version > 0);
                    self.merged_chunks += 1;
                }
            }
            Ask::Delete(layer, chunks) => {
                chunks.iter().for_each(|chunk| drop(self.contents.remove(&(layer, *chunk))));
                if chunks.is_empty() {
                    self.told.remove(&layer);
                    self.over.insert(layer);
                }
            }
        }
    }

    /// Of what the group was asked for, all through `through` is there.
    fn settle(&mut self, group: usize, through: Seq) {
        while self.orders[group].settled < through {
            let ask = self.orders[group].asked.pop_front().expect("what is there was asked for");
            self.orders[group].settled.0 += 1;
            self.apply(ask);
        }
    }
}

/// The primary of the groups and the head of the volumes.
#[derive(Clone)]
pub struct Family {
    pub shard: Rc<Shard>,
    pub tree: SharedTree,
    waiting: Rc<RefCell<VecDeque<(LogPosition, usize, Seq)>>>,
    walk: Rc<RefCell<Walk>>,
    random: Rc<Random>,
}

/// Where the ending of a layer is; begins anew after a crash.
#[derive(Default)]
struct Walk {
    cursor: LeafCursor,
    over: bool,
    chunks: Vec<ChunkId>,
}

impl Family {
    /// Opens, takes the groups over, and compares what the shard knows of layers.
    pub async fn open(tree: &SharedTree, seed: u64) -> Self {
        let (shard, recovery) = open().await;
        assert_eq!(recovery.damage, []);
        for found in &recovery.groups {
            assert!(!found.damaged, "group {} damaged", found.group);
        }
        for index in 0..GROUPS as usize {
            let found = recovery.groups.iter().find(|found| found.group.0 as usize == index + 1);
            let through = found.map_or(Seq(0), |found| found.prepared_through);
            let order = &mut tree.borrow_mut().orders[index];
            assert!(through >= order.settled, "acknowledged {}, survived {through}", order.settled);
            order.asked.truncate((through.0 - order.settled.0) as usize);
            order.epoch.0 += 1;
        }
        let random = Rc::new(Random::new(seed));
        let family = Self { shard, tree: tree.clone(), waiting: Rc::default(), walk: Rc::default(), random };
        for group in 0..GROUPS as usize {
            family.ask(group, Ask::Epoch).expect("there is room for an epoch");
        }
        family.settle().await;
        // As a head does with its first request: what the crash took is told again.
        let untold: Vec<_> = {
            let tree = tree.borrow();
            tree.parents.clone().into_iter().filter(|(layer, _)| !tree.told.contains(layer)).collect()
        };
        for (layer, parent) in untold {
            family.ask(0, Ask::Layer(layer, parent)).expect("there is room for a layer");
        }
        family.settle().await;
        let known: BTreeMap<_, _> = family.shard.layers().iter().map(|known| (known.layer, known.parent)).collect();
        let tree = tree.borrow();
        for told in &tree.told {
            assert_eq!(known.get(told), Some(&tree.parents[told]), "layer {told} and its parent");
        }
        for over in &tree.over {
            assert!(!known.contains_key(over), "layer {over} is gone");
        }
        drop(tree);
        family
    }

    pub fn ask(&self, group: usize, ask: Ask) -> Result<(), store::AppendError> {
        let entry = {
            let tree = self.tree.borrow();
            let order = &tree.orders[group];
            let none = (LayerId(0), ChunkId(0));
            let ((layer, chunk), kind) = match &ask {
                Ask::Epoch => (none, EntryKind::EpochStart),
                Ask::Layer(layer, parent) => {
                    let record = LayerRecord { layer: *layer, parent: *parent, ..LayerRecord::default() };
                    ((*layer, ChunkId(0)), EntryKind::Layer { record })
                }
                Ask::Write(layer, chunk, range, version) => {
                    let bytes = bytes_of(*chunk, *range, *version);
                    ((*layer, *chunk), EntryKind::write(*range, bytes))
                }
                Ask::Zero(layer, chunk, range, hides_below) => {
                    ((*layer, *chunk), EntryKind::Zero { range: *range, hides_below: *hides_below })
                }
                Ask::Merge(from, into, chunks, hides_below) => {
                    let (into, chunks, hides_below) = (*into, chunks.clone(), *hides_below);
                    ((*from, ChunkId(0)), EntryKind::Merge { into, chunks, hides_below })
                }
                Ask::Delete(layer, chunks) => ((*layer, ChunkId(0)), EntryKind::LayerDelete { chunks: chunks.clone() }),
            };
            let seq = Seq(order.settled.0 + order.asked.len() as u64 + 1);
            let (group, epoch, commit) = (GroupId(group as u32 + 1), order.epoch, order.settled);
            Entry { group, term: epoch.into(), seq, commit, volume_epoch: VolumeEpoch(1), layer, chunk, kind }
        };
        let seq = entry.seq;
        let position = self.shard.prepare(entry)?;
        self.tree.borrow_mut().orders[group].asked.push_back(ask);
        self.waiting.borrow_mut().push_back((position, group, seq));
        Ok(())
    }

    /// Commits what is durable.
    fn acknowledge(&self) {
        let durable = self.shard.durable_through();
        while let Some((_, group, seq)) = {
            let first = self.waiting.borrow().front().copied();
            first.filter(|(position, ..)| *position <= durable)
        } {
            self.waiting.borrow_mut().pop_front();
            self.shard.commit(GroupId(group as u32 + 1), seq);
            self.tree.borrow_mut().settle(group, seq);
        }
    }

    /// Waits until all that was asked for is acknowledged.
    pub async fn settle(&self) {
        self.below(1).await;
    }

    /// Waits until fewer than `depth` are not acknowledged.
    pub async fn below(&self, depth: usize) {
        loop {
            let seen = self.shard.durable_through();
            self.acknowledge();
            if self.waiting.borrow().len() < depth || self.shard.durable_changed(seen).await.is_err() {
                return;
            }
        }
    }

    /// The first volume, full and overwritten here and there.
    pub async fn fill(&self) {
        let top = self.add_top(LayerId(0)).expect("an empty device has room");
        for chunk in (0..CHUNKS).map(ChunkId) {
            for first in (0..256).step_by(32) {
                self.write(top, chunk, BlockRange::new(first, 32)).expect("an empty device has room");
            }
            for _ in 0..8 {
                let block = BlockRange::new(self.random.below(256) as u32, 1);
                self.write(top, chunk, block).expect("an empty device has room");
            }
            self.below(8).await;
        }
        self.settle().await;
    }

    fn write(&self, layer: LayerId, chunk: ChunkId, range: BlockRange) -> Result<(), store::AppendError> {
        let version = {
            let mut tree = self.tree.borrow_mut();
            tree.next_version += 1;
            tree.next_version
        };
        self.ask(group_of(chunk), Ask::Write(layer, chunk, range, version))
    }

    fn add_top(&self, parent: LayerId) -> Result<LayerId, store::AppendError> {
        let layer = {
            let mut tree = self.tree.borrow_mut();
            let layer = tree.new_layer(parent);
            tree.tops.push(layer);
            layer
        };
        self.ask(self.random.below(u64::from(GROUPS)) as usize, Ask::Layer(layer, parent))?;
        Ok(layer)
    }

    /// One random thing that a volume, an administrator or the ending of layers does.
    pub async fn step(&self) -> Result<(), store::AppendError> {
        match self.random.below(100) {
            0..60 => self.write_or_zero(),
            60..88 => self.end_some().await,
            88..92 => self.snapshot().await,
            92..94 => self.clone_or_roll_back().await,
            94..98 => {
                self.forget();
                Ok(())
            }
            _ => {
                let shard = self.shard.clone();
                spawn(async move { drop(shard.pass_now().await) });
                Ok(())
            }
        }
    }

    fn write_or_zero(&self) -> Result<(), store::AppendError> {
        let (top, deep) = {
            let tree = self.tree.borrow();
            let top = tree.tops[self.random.below(tree.tops.len() as u64) as usize];
            (top, tree.chain(top).len() > 1)
        };
        let chunk = ChunkId(self.random.below(u64::from(CHUNKS)) as u32);
        let first = self.random.below(256) as u32;
        let range = BlockRange::new(first, (1 + self.random.below(4) as u32).min(256 - first));
        if self.random.one_in(4) {
            return self.ask(group_of(chunk), Ask::Zero(top, chunk, range, deep));
        }
        self.write(top, chunk, range)
    }

    /// A volume's top becomes a snapshot, and what nobody named stays without a name.
    async fn snapshot(&self) -> Result<(), store::AppendError> {
        self.settle().await;
        let old = {
            let mut tree = self.tree.borrow_mut();
            let which = self.random.below(tree.tops.len() as u64) as usize;
            let old = tree.tops.remove(which);
            if tree.named.len() < MOST_SNAPSHOTS && !self.random.one_in(4) {
                tree.named.insert(old);
            }
            old
        };
        self.add_top(old).map(drop)
    }

    async fn clone_or_roll_back(&self) -> Result<(), store::AppendError> {
        self.settle().await;
        let from = {
            let mut tree = self.tree.borrow_mut();
            let named: Vec<_> = tree.named.iter().copied().collect();
            let Some(&from) = named.get(self.random.below(1 + named.len() as u64) as usize) else { return Ok(()) };
            if tree.tops.len() >= MOST_TOPS || self.random.one_in(2) {
                // Rolled back: what the volume wrote since is nobody's.
                let which = self.random.below(tree.tops.len() as u64) as usize;
                tree.tops.remove(which);
            }
            from
        };
        self.add_top(from).map(drop)
    }

    /// A snapshot, or a volume that is not the last, is deleted.
    fn forget(&self) {
        let mut tree = self.tree.borrow_mut();
        let named: Vec<_> = tree.named.iter().copied().collect();
        match named.get(self.random.below(1 + named.len() as u64) as usize) {
            Some(snapshot) => {
                tree.named.remove(snapshot);
            }
            None if tree.tops.len() > 1 => {
                let which = self.random.below(tree.tops.len() as u64) as usize;
                tree.tops.remove(which);
            }
            None => {}
        }
    }

    /// A step in ending a layer that nobody names: with one child it is merged, with none it is deleted.
    async fn end_some(&self) -> Result<(), store::AppendError> {
        let Some(Ending { layer, into }) = self.ending() else { return Ok(()) };
        if !self.walk.borrow().over {
            let mut walk = self.walk.borrow_mut();
            let Walk { cursor, over, chunks } = &mut *walk;
            *over = !self.shard.walk_layer(layer, cursor, chunks);
            return Ok(());
        }
        let some = self.some_chunks();
        if !some.is_empty() {
            let group = group_of(some[0]);
            let hides_below = self.tree.borrow().parents[&layer] != LayerId(0);
            return self.ask(
                group,
                into.map_or(Ask::Delete(layer, some.clone()), |into| {
                    Ask::Merge(layer, into, some.clone(), hides_below)
                }),
            );
        }
        self.settle().await;
        if self.shard.layer_usage(layer).leaves > 0 {
            *self.walk.borrow_mut() = Walk::default();
            return Ok(());
        }
        for group in 0..GROUPS as usize {
            self.ask(group, Ask::Delete(layer, Vec::new()))?;
        }
        self.settle().await;
        *self.walk.borrow_mut() = Walk::default();
        let mut tree = self.tree.borrow_mut();
        let parent = tree.parents.remove(&layer).expect("it was there until now");
        if let Some(into) = into {
            tree.parents.insert(into, parent);
        }
        tree.ending = None;
        tree.ended_layers += 1;
        Ok(())
    }

    fn ending(&self) -> Option<Ending> {
        let mut tree = self.tree.borrow_mut();
        if tree.ending.is_none() && self.waiting.borrow().is_empty() {
            let wanted = |layer: &LayerId| tree.tops.contains(layer) || tree.named.contains(layer);
            let unwanted: Vec<_> = tree.parents.keys().copied().filter(|layer| !wanted(layer)).collect();
            tree.ending = unwanted.into_iter().find_map(|layer| match *tree.children(layer) {
                [] => Some(Ending { layer, into: None }),
                [child] => Some(Ending { layer, into: Some(child) }),
                _ => None,
            });
        }
        tree.ending
    }

    /// Some of the chunks that the walk found, of one group.
    fn some_chunks(&self) -> Vec<ChunkId> {
        let chunks = &mut self.walk.borrow_mut().chunks;
        let Some(&first) = chunks.last() else { return Vec::new() };
        let most = 1 + self.random.below(MAX_ENTRY_CHUNKS as u64 / 4) as usize;
        let group = group_of(first);
        let mut some: Vec<_> = chunks.iter().copied().filter(|chunk| group_of(*chunk) == group).take(most).collect();
        chunks.retain(|chunk| !some.contains(chunk));
        some.sort_unstable();
        some
    }

    /// Everything that a volume or a snapshot sees is what it must be; all counts are what the model counts.
    pub async fn verify(&self) {
        self.settle().await;
        self.verify_counts();
        let tops: Vec<LayerId> = {
            let tree = self.tree.borrow();
            tree.tops.iter().chain(&tree.named).copied().collect()
        };
        for top in tops {
            for chunk in (0..CHUNKS).map(ChunkId).filter(|_| self.random.one_in(4)) {
                self.verify_chunk(top, chunk).await;
            }
        }
    }

    fn verify_counts(&self) {
        let tree = self.tree.borrow();
        let mut total = 0;
        for over in (1..=tree.next_layer).map(LayerId).filter(|layer| !tree.parents.contains_key(layer)) {
            assert_eq!(self.shard.layer_usage(over).leaves, 0, "leaves of layer {over}, which is over");
        }
        for &layer in tree.parents.keys() {
            let of_layer = tree.contents.range((layer, ChunkId(0))..(LayerId(layer.0 + 1), ChunkId(0)));
            let stored: usize = of_layer.map(|(_, blocks)| blocks.values().filter(|v| **v > 0).count()).sum();
            let usage = self.shard.layer_usage(layer);
            assert_eq!(usage.stored_blocks, stored as u64, "blocks of layer {layer}");
            total += usage.stored_blocks;
        }
        assert_eq!(self.shard.statistics().live_bytes, total * BLOCK_BYTES as u64, "what lives in all segments");
    }

    async fn verify_chunk(&self, top: LayerId, chunk: ChunkId) {
        let chain = self.tree.borrow().chain(top);
        let mut sums = Vec::new();
        let (read, bytes) = self.shard.read(&chain, chunk, WHOLE, IoBuf::new(WHOLE.bytes()), &mut sums).await;
        read.unwrap_or_else(|error| panic!("{error}"));
        let mut expected = vec![0; BLOCK_BYTES];
        for (i, block) in bytes.chunks_exact(BLOCK_BYTES).enumerate() {
            let version = self.tree.borrow().version(&chain, chunk, i as u16);
            fill_block(&mut expected, chunk, i as u16, version);
            let found = version_of(block, chunk, i as u16);
            assert!(block == expected, "{chain:?} chunk {chunk} block {i} is not version {version} but {found}");
        }
    }
}

fn group_of(chunk: ChunkId) -> usize {
    (chunk.0 % GROUPS) as usize
}

/// A disk with the short passes of eight shards.
fn rig_with_short_passes(seed: u64) -> Rig {
    let block_size_bytes = if seed.is_multiple_of(2) { 512 } else { 4096 };
    let rig = Rig::new(seed, 512 * MIB, DiskOptions { block_size_bytes, ..DiskOptions::default() });
    rig.run(async move {
        let device = device().await;
        let options = FormatOptions { shard_count: Some(8), ..format_options() };
        store::format(&device, &options).await.expect("the disk can be formatted");
    });
    rig
}

/// What a run met.
#[derive(Clone, Copy, Debug, Default)]
pub struct Met {
    pub merged_chunks: u64,
    pub ended_layers: u64,
    pub passes: u64,
    /// Segments cleaned, in every other round.
    pub cleaned: u64,
}

/// A family of volumes through `rounds` crashes and kills, `steps` between two of them at most.
pub fn layers_survive(seed: u64, rounds: u32, steps: u64) -> Met {
    layers_survive_watched(seed, rounds, steps, |_, _| None)
}

/// What somebody made of a layer of the disk while no store was open.
pub struct Extracted {
    pub layer: LayerId,
    pub bytes: Vec<u8>,
}

/// The same; `extract` is called after each crash or kill, with a layer that the device knows, and what it makes of it
/// must be what the layer shows when the store is open again.
pub fn layers_survive_watched(
    seed: u64,
    rounds: u32,
    steps: u64,
    mut extract: impl FnMut(&Rig, LayerId) -> Option<Extracted>,
) -> Met {
    let mut extracted: Option<Extracted> = None;
    let rig = rig_with_short_passes(seed);
    let tree = new_tree();
    let mut met = Met::default();
    for round in 0..rounds {
        let (of_round, round_seed) = (tree.clone(), rig.random.next_u64());
        let family = rig.run(async move {
            let family = Family::open(&of_round, round_seed).await;
            if round == 0 {
                family.fill().await;
            }
            if round % 2 == 0 {
                family.shard.store().clean_below(u32::MAX);
            }
            family.verify().await;
            family
        });
        if let Some(Extracted { layer, bytes }) = extracted.take() {
            assert_eq!(
                tree.borrow().first_difference(layer, &bytes),
                None,
                "seed {seed}, round {round}, layer {layer}"
            );
        }
        let (driver, count, depth) = (family.clone(), rig.random.between(1, steps), rig.random.between(1, 24) as usize);
        rig.run(async move {
            for _ in 0..count {
                if driver.step().await.is_err() {
                    break;
                }
                driver.below(depth).await;
            }
        });
        if rig.random.one_in(3) {
            let check = family.clone();
            rig.run(async move { check.verify().await });
        }
        let statistics = family.shard.statistics();
        assert_eq!(statistics.cleaning_errors, 0, "{statistics:?}");
        (met.passes, met.cleaned) = (met.passes + statistics.passes, met.cleaned + statistics.segments_cleaned);
        end(&rig, 1);
        let known = tree.borrow().known_to_readers();
        extracted = extract(&rig, known[round as usize % known.len()]);
    }
    let tree = tree.borrow();
    Met { merged_chunks: tree.merged_chunks, ended_layers: tree.ended_layers, ..met }
}

/// One entry of a group, queued and durable, but not committed.
async fn prepare(shard: &Shard, group: u32, seq: u64, layer: LayerId, kind: EntryKind) {
    let (term, commit, volume_epoch) = (Epoch(1).into(), Seq(0), VolumeEpoch(1));
    let (group, seq, chunk) = (GroupId(group), Seq(seq), ChunkId(0));
    let position = shard.prepare(Entry { group, term, seq, commit, volume_epoch, layer, chunk, kind }).expect("room");
    while shard.durable_through() < position {
        shard.durable_changed(shard.durable_through()).await.expect("a good device");
    }
}

/// A pass is written while a merge waits; then it is applied, and another pass is written, which replays from behind
/// the merge, for an entry of another group waits there: among the records of the older pass.
pub fn an_ended_leaf_in_an_older_pass_stays_away() {
    let rig = rig_with_short_passes(1);
    let (old, new) = (LayerId(1), LayerId(2));
    let ended = rig.run(async move {
        let (shard, _) = open().await;
        let range = BlockRange::new(0, 4);
        prepare(&shard, 1, 1, LayerId(0), EntryKind::EpochStart).await;
        let bytes = bytes_of(ChunkId(0), range, 1);
        prepare(&shard, 1, 2, old, EntryKind::write(range, bytes)).await;
        shard.commit(GroupId(1), Seq(2));
        let merge = EntryKind::Merge { into: new, chunks: vec![ChunkId(0)], hides_below: false };
        prepare(&shard, 1, 3, old, merge).await;
        prepare(&shard, 2, 1, LayerId(0), EntryKind::EpochStart).await;
        shard.pass_now().await.expect("a good device");
        shard.commit(GroupId(1), Seq(3));
        shard.pass_now().await.expect("a good device");
        shard
    });
    assert_eq!((ended.layer_usage(old).leaves, ended.layer_usage(new).stored_blocks), (0, 4));
    rig.node.crash();
    rig.node.start();
    let (shard, recovery) = rig.open();
    assert_eq!(recovery.damage, []);
    assert_eq!((shard.layer_usage(old).leaves, shard.layer_usage(new).stored_blocks), (0, 4));
    assert_eq!(shard.statistics().live_bytes, 4 * BLOCK_BYTES as u64);
}

/// One group says that a layer is gone, of which another, which is behind, brings a chunk only then. Whose that is stays known.
pub fn a_late_leaf_of_a_layer_that_is_gone_has_its_family() {
    let rig = rig_with_short_passes(1);
    let layer = LayerId(1);
    let family_of = move |shard: &Shard| {
        let held = shard.layers_held().into_iter().find(|record| record.layer == layer);
        (held.map(|record| record.family), shard.layer(layer).map(|record| record.family))
    };
    let shard = rig.run(async move {
        let (shard, _) = open().await;
        let record = LayerRecord { layer, family: FamilyId(3), ..LayerRecord::default() };
        for group in [1, 2] {
            prepare(&shard, group, 1, LayerId(0), EntryKind::EpochStart).await;
        }
        prepare(&shard, 1, 2, layer, EntryKind::Layer { record }).await;
        prepare(&shard, 1, 3, layer, EntryKind::LayerDelete { chunks: Vec::new() }).await;
        shard.commit(GroupId(1), Seq(3));
        assert_eq!(family_of(&shard), (None, None), "nothing of it is here");
        let range = BlockRange::new(0, 4);
        prepare(&shard, 2, 2, layer, EntryKind::write(range, bytes_of(ChunkId(0), range, 1))).await;
        shard.commit(GroupId(2), Seq(2));
        shard
    });
    let known = (Some(FamilyId(3)), Some(FamilyId(3)));
    assert_eq!(family_of(&shard), known);
    drop(shard);
    rig.node.crash();
    rig.node.start();
    let (shard, _) = rig.open();
    shard.commit(GroupId(1), Seq(3));
    assert_eq!(family_of(&shard), (None, None));
    shard.commit(GroupId(2), Seq(2));
    assert_eq!(family_of(&shard), known, "also after a start");
}

/// A pass has been at a chunk of the child and not yet at the parent's, which is merged into it now: the pass would
/// have neither.
pub fn a_merge_behind_the_walk_of_a_pass_is_in_it() {
    const FILLERS: u32 = 400;
    let rig = rig_with_short_passes(1);
    let (child, filler, parent, bulk) = (LayerId(1), LayerId(2), LayerId(3), LayerId(4));
    let group = GroupId(1);
    rig.run(async move {
        let (shard, _) = open().await;
        let four = BlockRange::new(0, 4);
        prepare(&shard, 1, 1, LayerId(0), EntryKind::EpochStart).await;
        prepare(&shard, 1, 2, child, EntryKind::write(four, bytes_of(ChunkId(0), four, 1))).await;
        let mut seq = 3;
        // Leaves of some kilobytes each: a pass takes them in several steps.
        for chunk in (0..FILLERS).map(ChunkId) {
            for block in (0..types::BLOCKS_PER_CHUNK).step_by(2) {
                let kind = EntryKind::Zero { range: BlockRange::new(block, 1), hides_below: true };
                let (term, commit, volume_epoch) = (Epoch(1).into(), Seq(0), VolumeEpoch(1));
                let zero = Entry { group, term, seq: Seq(seq), commit, volume_epoch, layer: filler, chunk, kind };
                shard.prepare(zero).expect("room");
                seq += 1;
            }
        }
        let behind = BlockRange::new(8, 4);
        prepare(&shard, 1, seq, parent, EntryKind::write(behind, bytes_of(ChunkId(0), behind, 1))).await;
        shard.commit(group, Seq(seq));
        shard.pass_now().await.expect("a good device");
        let before = shard.statistics();
        let mut merged = false;
        // A pass goes on in step with what is written.
        while shard.statistics().passes == before.passes {
            seq += 1;
            let range = BlockRange::new(0, store::MAX_ENTRY_BLOCKS.into());
            prepare(&shard, 1, seq, bulk, EntryKind::write(range, bytes_of(ChunkId(0), range, seq))).await;
            if !merged && shard.statistics().checkpoint_bytes > before.checkpoint_bytes {
                merged = true;
                seq += 1;
                let merge = EntryKind::Merge { into: child, chunks: vec![ChunkId(0)], hides_below: false };
                prepare(&shard, 1, seq, parent, merge).await;
            }
            shard.commit(group, Seq(seq));
        }
        assert!(merged, "the pass was under way before it was complete");
    });
    rig.node.crash();
    rig.node.start();
    let (shard, recovery) = rig.open();
    assert_eq!(recovery.damage, []);
    shard.commit(group, shard.prepared_through(group));
    assert_eq!((shard.layer_usage(parent).leaves, shard.layer_usage(child).stored_blocks), (0, 8));
}
