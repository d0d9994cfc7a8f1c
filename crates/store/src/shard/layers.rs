//! Layers that end: merged into their child or deleted, chunk by chunk, by entries of the chunks' groups.
//!
//! ```text
//!   before            merge L → C of this chunk                      after
//!   C  │a│ │0│ │      a block that C says nothing of: what L says    C  │a│b│0│ │
//!   L  │x│b│c│ │      one that C has itself: L's is dead             L  (no leaf)
//! ```
//!
//! One entry names up to 64 chunks and is applied in one turn; a read that looks in C and then in L finds the same at
//! every moment. No block moves on the device. C's leaf takes the entry's sequence, so that replay applies it once, and
//! a member that was away sees that the chunk has changed.
//!
//! **A pass under way** may have been at C's slot and not yet at L's: it would hold neither. So the merged leaf is
//! written into it at once, unless its walk still comes to it.
//!
//! **Moves.** The cleaner may have copied a block of L before the merge and record it after: until no record can name L
//! any more, [`State::endings`](super::State) says who took its blocks.

use super::group::Merge;
use super::{Action, Shard, State};
use crate::format::blocks::BlockState;
use crate::format::entry::ChunkList;
use crate::format::{
    EntryFlags, EntryHead, LayerRecord, LeafKey, MergeRecord, PassId, RecordSeq, ShardRoot, StoredBlock,
};
use crate::index::LayerUsage;
use types::{BLOCKS_PER_CHUNK, BlockRange, ChunkId, LayerId, Mutant, Seq, mutant};

/// Slots of the index that one step of a walk looks at: some 20 µs.
const SLOTS_PER_STEP: u32 = 4096;

/// A layer that ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ending {
    /// The layer that takes its blocks; 0: none, it is deleted.
    pub(crate) into: LayerId,
    /// No record behind this one names it; 0 as long as it is under way.
    pub(crate) gone: RecordSeq,
    /// Once it is gone and its record was known: its parent, which its children have from then on.
    pub(crate) parent: Option<LayerId>,
}

/// Where a walk over the leaves of a shard is. Begins with the default.
#[derive(Clone, Copy, Debug, Default)]
pub struct LeafCursor {
    next_slot: u32,
    /// Slots when it began: leaves that live all the time are in these.
    slots: u32,
}

impl LeafCursor {
    /// The next slots to look at, and whether others come behind them.
    fn step(&mut self, budget: u32, slots: u32) -> (u32, u32, bool) {
        let first = self.next_slot;
        if first == 0 {
            self.slots = slots;
        }
        self.next_slot = first.saturating_add(budget.max(1)).min(self.slots);
        (first, self.next_slot - first, self.next_slot < self.slots)
    }
}

impl Shard {
    /// The layers known here, by id.
    pub fn layers(&self) -> Vec<LayerRecord> {
        let state = self.core.state.borrow();
        state.layers.values().filter(|layer| !state.is_gone(layer.layer)).copied().collect()
    }

    /// The same, and layers that are gone of which chunks are here still: of groups that are behind, and will be told.
    pub fn layers_held(&self) -> Vec<LayerRecord> {
        let state = self.core.state.borrow();
        state.layers.values().filter(|layer| !state.is_over(layer.layer)).copied().collect()
    }

    /// What is known of a layer.
    pub fn layer(&self, layer: LayerId) -> Option<LayerRecord> {
        let state = self.core.state.borrow();
        state.layers.get(&layer).filter(|layer| !state.is_over(layer.layer)).copied()
    }

    /// Layers in which anything is known of the chunk, emptied leaves included.
    pub fn layers_of(&self, chunk: ChunkId) -> Vec<LayerId> {
        let state = self.core.state.borrow();
        let mut layers = state.index.layers_of(chunk);
        layers.sort_unstable();
        layers
    }

    /// What a layer holds here. Exact: counted with each change of the index.
    pub fn layer_usage(&self, layer: LayerId) -> LayerUsage {
        self.core.state.borrow().index.layer_usage(layer)
    }

    /// The next chunks of which a layer says anything, or said once, in no order: a step of a walk over all leaves,
    /// added to `out`. Returns false when the walk is over. It finds every leaf that lives from its begin to its end.
    pub fn walk_layer(&self, layer: LayerId, cursor: &mut LeafCursor, out: &mut Vec<ChunkId>) -> bool {
        let state = self.core.state.borrow();
        let (first, count, goes_on) = cursor.step(SLOTS_PER_STEP, state.index.slot_count());
        let of_layer = state.index.keys_in(first, count).filter(|key| key.layer == layer);
        out.extend(of_layer.map(|key| key.chunk));
        goes_on
    }

    /// The next leaves, each with the last entry of its group that is in it (0: it is not to be trusted): a step of a
    /// walk over all of them that looks at `budget` slots of the index, added to `out`, in no order. Returns false when
    /// the walk is over. It tells of every leaf that lives from its begin to its end.
    pub fn walk_leaves(&self, cursor: &mut LeafCursor, budget: u32, out: &mut Vec<(LayerId, ChunkId, Seq)>) -> bool {
        let index = &self.core.state.borrow().index;
        let (first, count, goes_on) = cursor.step(budget, index.slot_count());
        out.extend(index.leaves_in(first, count).map(|(key, last_seq)| (key.layer, key.chunk, last_seq)));
        goes_on
    }

    /// The same, of leaves that have blocks with bytes on the device, each with how many.
    pub fn walk_stored(&self, cursor: &mut LeafCursor, budget: u32, out: &mut Vec<(LayerId, ChunkId, u16)>) -> bool {
        let index = &self.core.state.borrow().index;
        let (first, count, goes_on) = cursor.step(budget, index.slot_count());
        let stored = index.stored_in_slots(first, count).filter(|(_, blocks)| *blocks > 0);
        out.extend(stored.map(|(key, blocks)| (key.layer, key.chunk, blocks)));
        goes_on
    }

    /// Blocks of a chunk of which any of `layers` says something: what was written or zeroed in them. Added to `out`,
    /// in order, neighbours joined.
    pub fn changed_blocks(&self, layers: &[LayerId], chunk: ChunkId, out: &mut Vec<BlockRange>) {
        let state = self.core.state.borrow();
        let mut changed = [false; BLOCKS_PER_CHUNK as usize];
        for layer in layers {
            let key = LeafKey { layer: *layer, chunk };
            state.index.lookup(key, BlockRange::new(0, BLOCKS_PER_CHUNK), |block, found| {
                changed[usize::from(block)] |= found != BlockState::Absent;
            });
        }
        let mut first = 0;
        for run in changed.chunk_by(|a, b| a == b) {
            if run[0] {
                out.push(BlockRange::new(first, run.len() as u32));
            }
            first += run.len() as u32;
        }
    }
}

impl State {
    pub(super) fn queue_merge(&mut self, mut head: EntryHead, merge: Merge) -> (RecordSeq, Action) {
        assert_ne!(merge.from, merge.into, "a layer goes to another one");
        assert!(!merge.chunks.is_empty(), "a merge of chunks");
        head.layer = merge.from;
        if merge.hides_below {
            head.flags = head.flags.with(EntryFlags::HIDES_BELOW);
        }
        let mut payload = merge.into.0.to_le_bytes().to_vec();
        ChunkList::encode(&merge.chunks, &mut payload);
        (self.queue_plain(&head, &payload), Action::Merge(Box::new(merge)))
    }

    /// An entry is written again in a later record: layers that it may name are not forgotten before.
    pub(super) fn names_layers_again(&mut self, action: &Action, record: RecordSeq) {
        if matches!(action, Action::Layer(_) | Action::Merge(_) | Action::LayerDelete(..)) {
            let gone = self.endings.values_mut().filter(|ending| ending.gone > RecordSeq(0));
            gone.for_each(|ending| ending.gone = ending.gone.max(record));
        }
    }

    pub(super) fn queue_layer_delete(
        &mut self,
        mut head: EntryHead,
        layer: LayerId,
        chunks: Vec<ChunkId>,
    ) -> (RecordSeq, Action) {
        head.layer = layer;
        let mut payload = Vec::new();
        ChunkList::encode(&chunks, &mut payload);
        (self.queue_plain(&head, &payload), Action::LayerDelete(layer, chunks.into()))
    }

    /// A layer became known. One that is gone is told of once more only by replay, or by a group that comes late.
    pub(crate) fn apply_layer(&mut self, layer: LayerRecord) {
        let parent = self.living(layer.parent);
        match self.endings.get_mut(&layer.layer).filter(|ending| ending.gone > RecordSeq(0)) {
            Some(ending) => {
                ending.parent = Some(parent);
                self.layers.entry(layer.layer).or_insert(LayerRecord { parent, ..layer });
                self.hand_on_children(layer.layer);
            }
            None => drop(self.layers.insert(layer.layer, LayerRecord { parent, ..layer })),
        }
    }

    /// Another member knows the layer. What was known of it here, also that it is gone, stays as it is.
    pub(crate) fn install_layer(&mut self, layer: LayerRecord) {
        if !self.layers.contains_key(&layer.layer) && !self.endings.contains_key(&layer.layer) {
            self.apply_layer(layer);
        }
    }

    /// The layer, or the nearest one below it that is not gone.
    fn living(&self, mut layer: LayerId) -> LayerId {
        while let Some(parent) = self.endings.get(&layer).and_then(|ending| ending.parent) {
            layer = parent;
        }
        layer
    }

    /// A layer is gone: its children, as far as they are known, have its parent.
    fn hand_on_children(&mut self, gone: LayerId) {
        let parent = self.living(gone);
        self.layers.values_mut().filter(|child| child.parent == gone).for_each(|child| child.parent = parent);
    }

    pub(crate) fn apply_merge(&mut self, merge: &Merge, seq: Seq) {
        let Merge { from, into, hides_below, .. } = *merge;
        self.endings.entry(from).or_default().into = into;
        for &chunk in &merge.chunks {
            let (from, into) = (LeafKey { layer: from, chunk }, LeafKey { layer: into, chunk });
            self.lost.hand_on(from, into);
            let (segments, gathering) = (&mut self.segments, self.log.gathering());
            self.index.apply_merge(from, into, seq, hides_below, |block| segments.displaced(block, gathering));
            self.members.note_met(into, seq);
            if self.members.end_leaf(from) {
                // Replay installs it before the merge takes from it.
                self.index.distrust(into);
            }
            self.write_into_open_pass(into);
        }
    }

    /// Chunks of the layer are gone; without any, the layer itself.
    pub(crate) fn apply_layer_delete(&mut self, layer: LayerId, chunks: &[ChunkId]) {
        for &chunk in chunks {
            let key = LeafKey { layer, chunk };
            let (segments, gathering) = (&mut self.segments, self.log.gathering());
            self.index.apply_delete(key, |block| segments.displaced(block, gathering));
            self.members.end_leaf(key);
            self.lost.is_found(key);
        }
        if chunks.is_empty() {
            let ending = self.endings.entry(layer).or_default();
            ending.gone = self.log.gathering();
            if let Some(ended) = self.layers.get(&layer) {
                ending.parent = Some(ended.parent);
            }
            self.keep_family(layer);
            self.hand_on_children(layer);
        }
    }

    fn is_gone(&self, layer: LayerId) -> bool {
        self.endings.get(&layer).is_some_and(|ending| ending.gone > RecordSeq(0))
    }

    /// Whether a layer is gone, and nothing of it is here.
    fn is_over(&self, layer: LayerId) -> bool {
        self.is_gone(layer) && self.index.layer_usage(layer).leaves == 0
    }

    /// A layer is gone. Its family stays known until its ending is forgotten: something of it may be here, or come, of a group of
    /// which this member has not everything yet, and by the family it is found whose that is.
    fn keep_family(&mut self, layer: LayerId) {
        let is_empty = self.index.layer_usage(layer).leaves == 0;
        if is_empty && mutant(Mutant::LateLeafHasNoFamily) || mutant(Mutant::GoneLayerForgotten) {
            self.layers.remove(&layer);
        }
    }

    /// The leaf was made what another member has of it: nothing, of a layer that is gone.
    pub(super) fn end_emptied(&mut self, key: LeafKey) {
        let is_empty = || {
            let mut is_empty = true;
            let all = BlockRange::new(0, BLOCKS_PER_CHUNK);
            self.index.lookup(key, all, |_, found| is_empty &= found == BlockState::Absent);
            is_empty
        };
        if self.is_gone(key.layer) && is_empty() {
            self.index.apply_delete(key, |_| {});
            self.keep_family(key.layer);
        }
    }

    /// The leaf that holds what a record says of `key`: of the layer itself, or of the one that took its blocks.
    pub(crate) fn holder_of(&self, mut key: LeafKey) -> LeafKey {
        while self.index.slot_of(key).is_none()
            && let Some(ending) = self.endings.get(&key.layer).filter(|ending| ending.into != LayerId(0))
        {
            key.layer = ending.into;
        }
        key
    }

    /// The leaf that holds a block which a record says is `stored`: `None` if the index names another, or none.
    pub(crate) fn holder_of_block(&self, key: LeafKey, block: u16, stored: StoredBlock) -> Option<LeafKey> {
        let mut is_it = false;
        let key = self.holder_of(key);
        let range = BlockRange::new(u32::from(block), 1);
        self.index.lookup(key, range, |_, state| is_it = state.stored() == Some(stored));
        is_it.then_some(key)
    }

    /// What a pass says of a layer that ends.
    pub(crate) fn load_ending(&mut self, record: &MergeRecord) {
        let ending = self.endings.entry(record.from).or_default();
        if record.into != LayerId(0) {
            ending.into = record.into;
        }
        if record.gone > RecordSeq(0) {
            ending.gone = ending.gone.max(record.gone);
            ending.parent = (record.parent != record.from).then_some(record.parent);
            self.keep_family(record.from);
            self.hand_on_children(record.from);
        }
    }

    /// Replay is over: no record before `next` names a layer that is gone from here on.
    pub(crate) fn settle_endings(&mut self, next: RecordSeq) {
        self.endings.values_mut().filter(|ending| ending.gone > RecordSeq(0)).for_each(|ending| ending.gone = next);
    }

    /// A pass is complete: layers that were gone before it and before where replay begins are never named again by what
    /// replay reads, nor, if they were gone before its first record, by what the cleaner finds in a segment.
    pub(super) fn forget_endings(&mut self, root: &ShardRoot) {
        let alive = self
            .segments
            .ours()
            .filter(|(_, one)| one.live_units > 0 && !mutant(Mutant::EndingForgottenTooEarly))
            .map(|(_, one)| one.first_record);
        let first_named =
            root.pass_first.seq.min(root.replay_start.seq).min(alive.min().unwrap_or(RecordSeq(u64::MAX)));
        let (index, layers) = (&self.index, &mut self.layers);
        self.endings.retain(|layer, ending| {
            let is_held = index.layer_usage(*layer).leaves > 0;
            let stays = ending.gone == RecordSeq(0) || ending.gone >= first_named || is_held;
            if !stays {
                layers.remove(layer);
            }
            stays
        });
    }

    /// The endings, as a pass writes them.
    pub(super) fn endings_of_pass(&self) -> Vec<MergeRecord> {
        let record = |(&from, ending): (&LayerId, &Ending)| {
            let Ending { into, gone, parent } = *ending;
            MergeRecord { from, into, gone, parent: parent.unwrap_or(from) }
        };
        self.endings.iter().map(record).collect()
    }

    /// See the module: what the open pass would miss.
    fn write_into_open_pass(&mut self, key: LeafKey) {
        let Some(OpenPass { next_slot, slots, .. }) = self.pass.open else { return };
        let slot = self.index.slot_of(key).expect("a leaf that was just changed");
        if (next_slot..slots).contains(&slot) || mutant(Mutant::MergedLeafNotInPass) || self.defers(key) {
            return;
        }
        self.write_extra_leaf(slot);
    }

    /// Adds a leaf to the open pass, beside its walk.
    fn write_extra_leaf(&mut self, slot: u32) {
        if let Some(open) = &mut self.pass.open {
            open.extra_leaves += 1;
            let id = open.id;
            self.write_leaf(slot, id, &mut Vec::new());
        }
    }

    /// Whether the open pass leaves a leaf out for now: something is on its way to it.
    pub(super) fn defers(&mut self, key: LeafKey) -> bool {
        let defers = self.members.is_on_the_way_to(key) && !mutant(Mutant::InstallMissedByPass);
        if defers {
            self.pass.deferred.insert(key);
        }
        defers
    }

    /// Writes a leaf into the open pass that this left out, if nothing is on its way to it any more.
    pub(super) fn write_deferred_leaf(&mut self, key: LeafKey) {
        if self.members.is_on_the_way_to(key) || !self.pass.deferred.remove(&key) {
            return;
        }
        // It may have ended since.
        if let Some(slot) = self.index.slot_of(key) {
            self.write_extra_leaf(slot);
        }
    }
}

/// The walk over the leaves of the pass under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct OpenPass {
    pub(super) id: PassId,
    /// Slots that its walk still comes to: from here …
    pub(super) next_slot: u32,
    /// … up to here.
    pub(super) slots: u32,
    /// Leaves that were added to it beside the walk: by merges, and those that were left out at first.
    pub(super) extra_leaves: u64,
}
