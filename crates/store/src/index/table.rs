//! All leaves of a shard: hash tables of slot numbers, and the slots.

mod install;

use super::leaf::Leaf;
use crate::format::blocks::BlockState;
use crate::format::leaf::LEAF_HEAD_BYTES;
use crate::format::{DeviceUnit, EntryHead, LeafData, LeafKey, LeafView, StoredBlock};
use blake2::digest::consts::U16;
use blake2::digest::{Digest, FixedOutput};
use core::hash::BuildHasher;
use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashTable};
use types::{BlockRange, ChunkId, LayerId, Mutant, Seq, mutant};

/// Tables, each with its share of the leaves. A table that grows hashes all it holds again: 1/256 of the leaves at once
/// is a millisecond per TiB and not a quarter of a second.
const TABLES: usize = 256;
/// What a leaf takes in a pass besides its blocks: entry and head.
const LEAF_FRONT_BYTES: u64 = (EntryHead::encoded_bytes(LeafData::ENCODED_BYTES) + LEAF_HEAD_BYTES) as u64;
/// Slots are allocated by this many, and never move.
const SLOTS_PER_PAGE: usize = 4096;

#[derive(Debug)]
struct Slot {
    key: LeafKey,
    leaf: Leaf,
}
const _: () = assert!(size_of::<Option<Slot>>() == 40);

impl Slot {
    fn digest(&self, last_seq: Seq, seen: &impl Fn(StoredBlock) -> StoredBlock) -> u128 {
        let mut hash = blake2::Blake2s::<U16>::new();
        Digest::update(&mut hash, self.key.layer.0.to_le_bytes());
        Digest::update(&mut hash, self.key.chunk.0.to_le_bytes());
        Digest::update(&mut hash, last_seq.0.to_le_bytes());
        Digest::update(&mut hash, [u8::from(self.leaf.is_untrusted())]);
        self.leaf.read(BlockRange::new(0, types::BLOCKS_PER_CHUNK), |block, state| {
            let mut text = [0; 2 + StoredBlock::ENCODED_BYTES];
            text[..2].copy_from_slice(&block.to_le_bytes());
            match state {
                BlockState::Absent => return,
                BlockState::Zero => {}
                BlockState::Stored(stored) => seen(stored).encode(&mut text[2..]),
            }
            Digest::update(&mut hash, text);
        });
        u128::from_le_bytes(hash.finalize_fixed().into())
    }
}

/// What a layer holds in one shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LayerUsage {
    /// Blocks that have bytes on the device.
    pub stored_blocks: u64,
    /// Units of 512 bytes that they take there.
    pub stored_units: u64,
    /// Chunks that it says anything of, or said once.
    pub leaves: u64,
}

/// What a leaf counts for, before and after a change; units may be those of the changed blocks alone.
#[derive(Clone, Copy, Default)]
struct Held {
    blocks: u16,
    units: u64,
    body_bytes: usize,
}

impl Held {
    fn by(leaf: &Leaf) -> Self {
        Self { blocks: leaf.stored_count(), units: leaf.stored_units(), body_bytes: leaf.body_bytes() }
    }
}

/// Where each block of a shard is. See the module.
#[derive(Debug)]
pub struct Index {
    tables: Box<[HashTable<u32>]>,
    pages: Vec<Box<[Option<Slot>]>>,
    /// Slots ever used; those below without a leaf are in `vacant`.
    slot_count: u32,
    vacant: Vec<u32>,
    stored_blocks: u64,
    body_bytes: usize,
    /// What each layer that has a leaf holds.
    layers: HashMap<LayerId, LayerUsage, FixedState>,
    hasher: FixedState,
}

impl Default for Index {
    fn default() -> Self {
        Self::new()
    }
}

impl Index {
    /// An index that says nothing of any block.
    pub fn new() -> Self {
        Self {
            tables: (0..TABLES).map(|_| HashTable::new()).collect(),
            pages: Vec::new(),
            slot_count: 0,
            vacant: Vec::new(),
            stored_blocks: 0,
            body_bytes: 0,
            layers: HashMap::with_hasher(FixedState::with_seed(0)),
            hasher: FixedState::with_seed(0),
        }
    }

    // ---- looking up

    /// What is known of each block of `range`, in order: `told` gets the block's number in the chunk and its state.
    pub fn lookup(&self, key: LeafKey, range: BlockRange, mut told: impl FnMut(u16, BlockState)) {
        match self.find(key) {
            Some(slot) => slot.leaf.read(range, told),
            None => (range.first..range.end() as u16).for_each(|block| told(block, BlockState::Absent)),
        }
    }

    /// As [`lookup`](Self::lookup), into `states`, one per block of `range`; those that are not [`BlockState::Absent`]
    /// are left alone. Called for one layer after the other, the newest first, it gives what a reader sees. Returns
    /// false, and does nothing, if the leaf is not to be trusted.
    #[must_use]
    pub fn fill(&self, key: LeafKey, range: BlockRange, states: &mut [BlockState]) -> bool {
        assert_eq!(states.len(), usize::from(range.count));
        let Some(slot) = self.find(key) else { return true };
        if slot.leaf.is_untrusted() {
            return false;
        }
        slot.leaf.read(range, |block, found| {
            let state = &mut states[usize::from(block - range.first)];
            if *state == BlockState::Absent {
                *state = found;
            }
        });
        true
    }

    /// The last entry of its group that is in a leaf; 0 if there is no leaf, or one that is not to be trusted.
    pub fn last_seq(&self, key: LeafKey) -> Seq {
        self.find(key).map_or(Seq(0), |slot| slot.leaf.last_seq())
    }

    /// Whether a leaf says anything of any block: where it is stored, or that zeroes hide what lies below.
    pub fn holds(&self, key: LeafKey) -> bool {
        self.find(key).is_some_and(|slot| !slot.leaf.is_empty())
    }

    // ---- applying entries

    /// Applies a write: `blocks` are stored from `range.first` on, one for each block of `range`. `displaced` is told
    /// of each block that was stored there before. Returns whether it was applied: an entry that is in the leaf already
    /// (`seq` not above its `last_seq`) is not.
    ///
    /// # Panics
    /// If `blocks` has fewer than `range` says.
    pub fn apply_write(
        &mut self,
        key: LeafKey,
        seq: Seq,
        range: BlockRange,
        mut blocks: impl Iterator<Item = StoredBlock>,
        displaced: impl FnMut(StoredBlock),
    ) -> bool {
        let next = move |_| BlockState::Stored(blocks.next().expect("a stored block for each block written"));
        self.apply(key, seq, range, next, displaced)
    }

    /// Applies a zero: the blocks of `range` read as zeroes; with `hides_below` also where a layer below holds
    /// something. Else as [`apply_write`](Self::apply_write).
    pub fn apply_zero(
        &mut self,
        key: LeafKey,
        seq: Seq,
        range: BlockRange,
        hides_below: bool,
        displaced: impl FnMut(StoredBlock),
    ) -> bool {
        let zero = if hides_below { BlockState::Zero } else { BlockState::Absent };
        self.apply(key, seq, range, move |_| zero, displaced)
    }

    fn apply(
        &mut self,
        key: LeafKey,
        seq: Seq,
        range: BlockRange,
        mut change: impl FnMut(BlockState) -> BlockState,
        mut displaced: impl FnMut(StoredBlock),
    ) -> bool {
        let number = self.find_or_add(key);
        let leaf = &mut slot_mut(&mut self.pages, number).leaf;
        if leaf.is_untrusted() {
            let noted = if mutant(Mutant::LeftOutForgotten) { Seq(0) } else { seq };
            leaf.distrust(noted.max(leaf.reached()));
            return false;
        }
        if seq <= leaf.last_seq() && !mutant(Mutant::EntryAppliedTwice) {
            return false;
        }
        assert!(seq > leaf.last_seq(), "leaf {key:?} has entry {} and is given {seq}", leaf.last_seq());
        let mut before = Held { blocks: leaf.stored_count(), units: 0, body_bytes: leaf.body_bytes() };
        let mut units = 0;
        leaf.update(range, |old| {
            if let Some(block) = old.stored() {
                before.units += u64::from(block.stored.units());
                displaced(block);
            }
            let new = change(old);
            units += new.stored().map_or(0, |block| u64::from(block.stored.units()));
            new
        });
        leaf.set_last_seq(seq);
        let after = Held { blocks: leaf.stored_count(), units, body_bytes: leaf.body_bytes() };
        self.count_change(key.layer, before, after);
        true
    }

    /// Applies a move: each block of `range` that the index still has at the place that `from` says is from now on at
    /// the place that `to` says (length, codec and sum stay). `moved` is told of each that was, as it was, and of its
    /// new place; the copies of the others are dead. `last_seq` stays.
    ///
    /// # Panics
    /// If `from` or `to` has fewer than `range` says.
    pub fn apply_move(
        &mut self,
        key: LeafKey,
        range: BlockRange,
        mut from: impl Iterator<Item = DeviceUnit>,
        mut to: impl Iterator<Item = DeviceUnit>,
        mut moved: impl FnMut(StoredBlock, DeviceUnit),
    ) {
        let Some(number) = self.slot_number(key) else { return };
        let leaf = &mut slot_mut(&mut self.pages, number).leaf;
        let before = Held { blocks: leaf.stored_count(), units: 0, body_bytes: leaf.body_bytes() };
        leaf.update(range, |old| {
            let from = from.next().expect("an old place for each block");
            let to = to.next().expect("a new place for each block");
            match old {
                BlockState::Stored(block) if block.location == from || mutant(Mutant::MoveAppliedBlindly) => {
                    moved(block, to);
                    BlockState::Stored(StoredBlock { location: to, ..block })
                }
                other => other,
            }
        });
        let after = Held { body_bytes: leaf.body_bytes(), ..before };
        self.count_change(key.layer, before, after);
    }

    /// Puts a leaf that a checkpoint stored in its place; what was there is forgotten, nobody is told.
    pub fn load(&mut self, key: LeafKey, view: &LeafView<'_>) {
        let number = self.find_or_add(key);
        let leaf = &mut slot_mut(&mut self.pages, number).leaf;
        let before = Held::by(leaf);
        *leaf = Leaf::from_view(view);
        let after = Held::by(leaf);
        self.count_change(key.layer, before, after);
    }

    /// Forgets a leaf that says nothing of any block and whose `last_seq` is `through` or less: the time for that is
    /// when every member of the group is in sync beyond it. Returns whether it did.
    pub fn forget_empty(&mut self, key: LeafKey, through: Seq) -> bool {
        let Some(number) = self.slot_number(key) else { return false };
        let leaf = &slot_mut(&mut self.pages, number).leaf;
        if !leaf.is_empty() || leaf.is_untrusted() || leaf.last_seq() > through {
            return false;
        }
        self.take(key);
        true
    }

    /// Takes a leaf out.
    fn take(&mut self, key: LeafKey) -> Option<Leaf> {
        let number = self.slot_number(key)?;
        let hash = self.hasher.hash_one(key);
        let found = self.tables[table_of(hash)].find_entry(hash, |other| *other == number);
        found.expect("a leaf that was just found").remove();
        let slot = self.pages[number as usize / SLOTS_PER_PAGE][number as usize % SLOTS_PER_PAGE].take();
        self.vacant.push(number);
        let Slot { leaf, .. } = slot.expect("a table names only slots in use");
        self.count_change(key.layer, Held::by(&leaf), Held::default());
        let of_layer = self.layers.get_mut(&key.layer).expect("a layer with a leaf is counted");
        of_layer.leaves -= 1;
        if of_layer.leaves == 0 {
            self.layers.remove(&key.layer);
        }
        Some(leaf)
    }

    /// Applies the merge of one chunk: what the leaf `from` says goes to the leaf `into` where that says nothing, and
    /// `from` is gone. `displaced` is told of each block that nobody sees any more. If the leaf `into` has the entry
    /// already (`seq` not above its `last_seq`) it holds what came from `from`, and all of that was there twice. If it is
    /// not to be trusted it will be installed with what came from `from`. What takes from a leaf that is not to be
    /// trusted is not to be trusted either.
    pub fn apply_merge(
        &mut self,
        from: LeafKey,
        into: LeafKey,
        seq: Seq,
        hides_below: bool,
        displaced: impl FnMut(StoredBlock),
    ) {
        if self.leave_out(into, seq) || seq <= self.last_seq(into) {
            return self.apply_delete(from, displaced);
        }
        let below = self.take(from).unwrap_or_default();
        let number = self.find_or_add(into);
        let leaf = &mut slot_mut(&mut self.pages, number).leaf;
        let before = Held::by(leaf);
        leaf.take_below(&below, hides_below, displaced);
        leaf.set_last_seq(seq);
        if below.is_untrusted() {
            leaf.distrust(seq);
        }
        let after = Held::by(leaf);
        if !mutant(Mutant::MergedBlocksNotCounted) {
            self.count_change(into.layer, before, after);
        }
    }

    /// Applies the deletion of one chunk of a layer: the leaf is gone. `displaced` is told of each block of it.
    pub fn apply_delete(&mut self, key: LeafKey, mut displaced: impl FnMut(StoredBlock)) {
        if let Some(leaf) = self.take(key) {
            leaf.read(BlockRange::new(0, types::BLOCKS_PER_CHUNK), |_, state| {
                state.stored().into_iter().for_each(&mut displaced);
            });
        }
    }

    fn count_change(&mut self, layer: LayerId, before: Held, after: Held) {
        self.body_bytes = self.body_bytes + after.body_bytes - before.body_bytes;
        if (after.blocks, after.units) != (before.blocks, before.units) {
            let count = |blocks: u64| blocks + u64::from(after.blocks) - u64::from(before.blocks);
            self.stored_blocks = count(self.stored_blocks);
            let of_layer = self.layers.get_mut(&layer).expect("a layer with a leaf is counted");
            of_layer.stored_blocks = count(of_layer.stored_blocks);
            of_layer.stored_units = of_layer.stored_units + after.units - before.units;
        }
    }

    // ---- walking, for checkpoints and counts

    /// Slots `0..slot_count()` hold all leaves. A leaf keeps its slot as long as it lives; one that comes later may
    /// take any: a pass that walks the slots once sees every leaf that lived from its start to its end.
    pub fn slot_count(&self) -> u32 {
        self.slot_count
    }

    /// The leaf in a slot, ready to be stored; `None` if the slot is vacant.
    pub fn leaf_at(&self, slot: u32) -> Option<(LeafKey, LeafView<'_>)> {
        let slot = self.pages.get(slot as usize / SLOTS_PER_PAGE)?[slot as usize % SLOTS_PER_PAGE].as_ref()?;
        Some((slot.key, slot.leaf.view()))
    }

    /// Gives memory back where a leaf's blocks have come to lie in order. A pass calls it for each slot it comes to.
    pub fn compact_at(&mut self, slot: u32) {
        let Some(LeafKey { layer, .. }) = self.leaf_at(slot).map(|(key, _)| key) else { return };
        let leaf = &mut slot_mut(&mut self.pages, slot).leaf;
        let before = Held::by(leaf);
        leaf.compact();
        let after = Held::by(leaf);
        self.count_change(layer, before, after);
    }

    /// Tells of every stored block. Takes time in the number of blocks: for opening and for tests.
    pub fn for_each_stored(&self, mut told: impl FnMut(LeafKey, u16, StoredBlock)) {
        for slot in self.slots() {
            slot.leaf.read(BlockRange::new(0, types::BLOCKS_PER_CHUNK), |block, state| {
                if let BlockState::Stored(stored) = state {
                    told(slot.key, block, stored);
                }
            });
        }
    }

    /// Layers that have a leaf for the chunk, in no order.
    pub fn layers_of(&self, chunk: ChunkId) -> Vec<LayerId> {
        let has_leaf = |layer: &LayerId| self.find(LeafKey { layer: *layer, chunk }).is_some();
        self.layers.keys().copied().filter(has_leaf).collect()
    }

    /// The slot of a leaf, if there is one.
    pub fn slot_of(&self, key: LeafKey) -> Option<u32> {
        self.slot_number(key)
    }

    /// The leaves in slots `from..from + count`, each with the last entry that is in it.
    pub fn leaves_in(&self, from: u32, count: u32) -> impl Iterator<Item = (LeafKey, Seq)> + '_ {
        let slots = from..self.slot_count.min(from.saturating_add(count));
        let slot =
            |number: u32| self.pages[number as usize / SLOTS_PER_PAGE][number as usize % SLOTS_PER_PAGE].as_ref();
        slots.filter_map(slot).map(|slot| (slot.key, slot.leaf.last_seq()))
    }

    /// The keys in slots `from..from + count`.
    pub fn keys_in(&self, from: u32, count: u32) -> impl Iterator<Item = LeafKey> + '_ {
        (from..self.slot_count.min(from.saturating_add(count))).filter_map(|number| key_at(&self.pages, number))
    }

    /// A number that is equal for equal contents: same leaves, same `last_seq`, same state of each block, however
    /// they are packed and in whatever order they came. Takes time in the number of blocks.
    pub fn digest(&self) -> u128 {
        self.digest_of(|stored| stored)
    }

    /// As [`digest`](Self::digest), wherever the blocks lie: the cleaner moves them.
    pub fn contents_digest(&self) -> u128 {
        self.digest_of(|stored| StoredBlock { location: DeviceUnit(0), ..stored })
    }

    fn digest_of(&self, seen: impl Fn(StoredBlock) -> StoredBlock) -> u128 {
        self.slots().fold(0, |sum, slot| sum.wrapping_add(slot.digest(slot.leaf.reached(), &seen)))
    }

    /// What a leaf adds to a digest of what it says of its blocks: wherever they lie, and whichever entry said it last.
    /// 0 if it says nothing, as where there is no leaf.
    pub fn leaf_digest(&self, key: LeafKey) -> u128 {
        let anywhere = |stored| StoredBlock { location: DeviceUnit(0), ..stored };
        self.find(key).filter(|slot| !slot.leaf.is_empty()).map_or(0, |slot| slot.digest(Seq(0), &anywhere))
    }

    // ---- counts

    /// Leaves, empty ones too.
    pub fn leaf_count(&self) -> usize {
        self.slot_count as usize - self.vacant.len()
    }

    /// Blocks that have bytes on the device.
    pub fn stored_blocks(&self) -> u64 {
        self.stored_blocks
    }

    /// The leaves in slots `from..from + count`, each with its blocks that have bytes on the device.
    pub fn stored_in_slots(&self, from: u32, count: u32) -> impl Iterator<Item = (LeafKey, u16)> + '_ {
        let slots = from..self.slot_count.min(from.saturating_add(count));
        let slot =
            |number: u32| self.pages[number as usize / SLOTS_PER_PAGE][number as usize % SLOTS_PER_PAGE].as_ref();
        slots.filter_map(slot).map(|slot| (slot.key, slot.leaf.stored_count()))
    }

    /// Blocks of a leaf that have bytes on the device.
    pub fn stored_in(&self, key: LeafKey) -> u64 {
        self.find(key).map_or(0, |slot| u64::from(slot.leaf.stored_count()))
    }

    /// The layers that have a leaf, by id, and how many leaves.
    pub fn layers(&self) -> Vec<(LayerId, u64)> {
        let held = self.layers.iter().filter(|(_, usage)| usage.leaves > 0);
        let mut layers: Vec<_> = held.map(|(layer, usage)| (*layer, usage.leaves)).collect();
        layers.sort_unstable();
        layers
    }

    /// What a layer holds.
    pub fn layer_usage(&self, layer: LayerId) -> LayerUsage {
        self.layers.get(&layer).copied().unwrap_or_default()
    }

    /// Memory it takes, as the allocator counts it; the counts of layers, a few bytes for each, apart.
    pub fn memory_bytes(&self) -> usize {
        let tables: usize = self.tables.iter().map(HashTable::allocation_size).sum();
        let pages = self.pages.len() * SLOTS_PER_PAGE * size_of::<Option<Slot>>();
        self.body_bytes + tables + pages + self.vacant.capacity() * 4
    }

    /// Bytes that all leaves take in a pass, about.
    pub fn pass_bytes(&self) -> u64 {
        let leaves = u64::from(self.slot_count) - self.vacant.len() as u64;
        self.body_bytes as u64 + leaves * LEAF_FRONT_BYTES
    }

    // ---- slots

    fn slots(&self) -> impl Iterator<Item = &Slot> {
        self.pages.iter().flat_map(|page| page.iter()).flatten()
    }

    fn slot_number(&self, key: LeafKey) -> Option<u32> {
        let hash = self.hasher.hash_one(key);
        self.tables[table_of(hash)].find(hash, |number| key_at(&self.pages, *number) == Some(key)).copied()
    }

    fn find(&self, key: LeafKey) -> Option<&Slot> {
        let number = self.slot_number(key)? as usize;
        self.pages[number / SLOTS_PER_PAGE][number % SLOTS_PER_PAGE].as_ref()
    }

    fn find_or_add(&mut self, key: LeafKey) -> u32 {
        if let Some(number) = self.slot_number(key) {
            return number;
        }
        let number = self.vacant.pop().unwrap_or_else(|| {
            if self.slot_count as usize == self.pages.len() * SLOTS_PER_PAGE {
                self.pages.push((0..SLOTS_PER_PAGE).map(|_| None).collect());
            }
            self.slot_count += 1;
            self.slot_count - 1
        });
        let page = &mut self.pages[number as usize / SLOTS_PER_PAGE];
        page[number as usize % SLOTS_PER_PAGE] = Some(Slot { key, leaf: Leaf::default() });
        self.layers.entry(key.layer).or_default().leaves += 1;
        let hash = self.hasher.hash_one(key);
        let (pages, hasher) = (&self.pages, &self.hasher);
        self.tables[table_of(hash)].insert_unique(hash, number, |other| {
            hasher.hash_one(key_at(pages, *other).expect("a table names only slots in use"))
        });
        number
    }
}

/// Bits that the tables themselves use neither for the bucket (the lowest) nor for the tag (the highest 7).
fn table_of(hash: u64) -> usize {
    (hash >> 40) as usize % TABLES
}

fn key_at(pages: &[Box<[Option<Slot>]>], number: u32) -> Option<LeafKey> {
    pages[number as usize / SLOTS_PER_PAGE][number as usize % SLOTS_PER_PAGE].as_ref().map(|slot| slot.key)
}

fn slot_mut(pages: &mut [Box<[Option<Slot>]>], number: u32) -> &mut Slot {
    let slot = &mut pages[number as usize / SLOTS_PER_PAGE][number as usize % SLOTS_PER_PAGE];
    slot.as_mut().expect("a table names only slots in use")
}
