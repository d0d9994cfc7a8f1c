//! Checkpoint passes: the index and all else that is known, written into the log bit by bit, round and round.
//!
//! ```text
//!   log ──▶ … e e e [begin] e L e e L e L e … e L e [groups, layers, segments, end] e e …
//!              ▲      ▲                                    │ durable
//!              │      S: the pass's start                  ▼
//!              R: oldest entry prepared        superblock: "this pass, replay from R"
//!                 and not applied at S                     │ durable
//!                                                          ▼
//!                          segments that died before S and end before R are free
//! ```
//!
//! R is taken at the *start*: an entry that waits at S may be applied right after its leaf was written, and then only
//! its record tells of it. A leaf says what is committed, and what is committed is durable, so it names nothing that
//! could be lost.

use super::carry::{Carrying, carry};
use super::layers::OpenPass;
use super::segments::Role;
use super::{Shard, ShardCore, State, sorted_ids};
use crate::error::AppendError;
use crate::format::{
    EntryHead, EntryKind, GroupState, LayerRecord, LeafData, LeafKey, MAX_RECORD_BYTES, MemberState, PassBegin,
    PassEnd, PassId, RecordKind, RecordPointer, RecordSeq, SegmentIndex, SegmentUse, ShardRoot, StopMark, Stream,
};
use runtime::background_step;
use std::collections::BTreeSet;
use std::rc::Rc;
use types::{GroupId, Mutant, mutant};

/// A pass is complete for each such part of the device that is written, 4 %: what opening has to
/// replay stays short, and the passes cost little of a device's writes.
const WRITTEN_PER_PASS_DIVISOR: u64 = 25;
/// A pass is due when this part of the segments holds nothing any more, whoever writes or not.
const DEAD_SEGMENTS_DIVISOR: u32 = 16;
/// A pass that is written in good time frees this many times what it writes.
const WORTH_TIMES_COST: u64 = 12;
/// One that clients wait for.
const WORTH_TIMES_COST_IN_NEED: u64 = 4;
/// A pass that is written because few segments are free ends when this part of the room that is left before clients
/// have to wait is written.
const ROOM_PER_PASS_DIVISOR: u64 = 2;
/// Leaves of one record, in bytes: small enough not to hold up what clients write behind it.
const LEAVES_PER_RECORD_BYTES: usize = 128 << 10;
/// The longest that becomes: with the last leaf, header and padding.
const LONGEST_STEP_BYTES: usize = LEAVES_PER_RECORD_BYTES + (16 << 10);
/// An entry behind the leaves, most of them.
const END_ENTRY_BYTES: usize = 512;
/// List elements of one group state or segment table: 16 and 32 bytes each, so that an entry stays below 64 KiB.
const ITEMS_PER_ENTRY: usize = 1024;
/// Records of a hurried pass that may wait: two under way, one ready.
const BACKLOG_OF_A_HURRIED_PASS: usize = 2;

/// Where a shard is with its passes.
#[derive(Default)]
pub(crate) struct PassState {
    /// What the superblock says.
    pub(crate) root: ShardRoot,
    /// How far the walk of the pass under way is; merges of layers add to it.
    pub(super) open: Option<OpenPass>,
    /// Leaves that the walk left out: what is on its way to them must be in them.
    pub(super) deferred: BTreeSet<LeafKey>,
    /// One has begun, and the superblock does not say yet that it is complete.
    under_way: bool,
    /// Dead segments were left when the last pass ended, for entries waited in older records.
    held_back: bool,
    /// What is to be written again, and whether something was since the last pass began.
    pub(super) carrying: Carrying,
    /// Bytes that a pass writes, about.
    cost_bytes: u64,
    /// How often a pass was asked for, and how many of these askings began before a pass that is complete.
    asked: u64,
    answered: u64,
}

/// A pass under way.
struct Pass {
    id: PassId,
    begin: RecordSeq,
    replay_start: RecordSeq,
    counts: PassEnd,
    /// It was urgent or asked for when it began: it does not wait for clients to write.
    hurried: bool,
    /// Else it ends when so much is written behind its begin: half of what is written per pass, or less if segments are
    /// short.
    length_bytes: u64,
    /// The askings that it answers.
    asked: u64,
}

impl ShardCore {
    /// Bytes this shard writes per pass.
    fn written_per_pass(&self) -> u64 {
        let geometry = self.store.geometry;
        geometry.device_size_bytes / WRITTEN_PER_PASS_DIVISOR / u64::from(geometry.shard_count)
    }

    /// Clients wait for segments, or will with the next one, and a pass would free some: more than it costs, or else
    /// the cleaner would have to stop too. Or so much was deleted that it should be free soon.
    pub(super) fn is_urgent(&self, state: &State) -> bool {
        let free = self.store.pool.free_count();
        let is_worth_it = free <= self.space().for_overwrites + 1 && self.pays(state, WORTH_TIMES_COST_IN_NEED);
        let many_are_dead = state.segments.deaths > self.store.geometry.segment_count / DEAD_SEGMENTS_DIVISOR;
        let others_wait = state.pass.carrying.is_done && free <= self.space().for_overwrites + 1;
        is_worth_it || many_are_dead || others_wait || free <= self.space().for_moves + 1 && self.frees_something(state)
    }

    /// A pass would free more than it costs, and few segments are free: the fewer, the less it has to free.
    fn is_worth_it(&self, state: &State) -> bool {
        let (free, space) = (self.store.pool.free_count(), &self.space());
        let left = u64::from(free.saturating_sub(space.for_overwrites));
        let range = u64::from(space.passes_begin - space.for_overwrites);
        let times = WORTH_TIMES_COST_IN_NEED + (WORTH_TIMES_COST - WORTH_TIMES_COST_IN_NEED) * left / range;
        free <= space.passes_begin && self.pays(state, times)
    }

    /// Whether a pass would free so many times what it writes.
    fn pays(&self, state: &State, times: u64) -> bool {
        let dead_bytes = u64::from(state.segments.deaths) * u64::from(self.store.geometry.segment_size_bytes);
        state.segments.deaths > 0 && dead_bytes >= times * state.pass.cost_bytes
    }

    /// Bytes that the shard may write before clients have to wait.
    fn room_bytes(&self) -> u64 {
        let free = self.store.pool.free_count().saturating_sub(self.space().for_overwrites);
        let geometry = &self.store.geometry;
        u64::from(free) * u64::from(geometry.segment_size_bytes) / u64::from(geometry.shard_count)
    }

    pub(super) fn frees_something(&self, state: &State) -> bool {
        let moved_on = || state.records.oldest_waiting().is_none_or(|oldest| oldest > state.pass.root.replay_start.seq);
        let empty_bytes = u64::from(state.segments.empties) * u64::from(self.store.geometry.segment_size_bytes);
        // A pass leaves segments behind that are empty too: it is worth it only where it frees more than it leaves.
        let empties_are_worth_it = empty_bytes > 2 * state.pass.cost_bytes;
        state.segments.deaths > 0 || empties_are_worth_it || state.pass.held_back && moved_on()
    }

    /// A pass shall not take the last segments.
    fn segments_are_short(&self) -> bool {
        self.store.pool.free_count() <= self.space().for_moves
    }

    fn pass_is_due(&self, state: &State) -> bool {
        if state.lost.any {
            // What is lost must be found again at the next opening: a pass would hide it.
            return false;
        }
        if state.pass.asked > state.pass.answered {
            return true;
        }
        // The last segments are for openings, epochs and deletes: a pass that frees nothing would only use them up.
        let affordable = self.store.pool.free_count() > self.space().for_overwrites || self.frees_something(state);
        self.is_urgent(state)
            || self.is_worth_it(state)
            || affordable && state.log.written_since_pass >= self.written_per_pass()
    }

    /// Whether the next records of a pass have room. They may take the last segments: each pass frees one at least.
    fn has_room_for_pass(&self, state: &mut State, length_bytes: usize) -> bool {
        state.log.segments_are_short = self.segments_are_short();
        state.log.segments_are_short && state.log.has_open(Stream::Hot, length_bytes)
            || state.secure(self, Stream::Checkpoint, length_bytes, 0)
    }

    /// Whether the pass may write its next leaves: in step with what is written, so that it ends in time; at once if it
    /// is hurried, if clients wait for it, or somebody for the next one.
    fn may_go_on(&self, state: &State, pass: &Pass) -> bool {
        let in_need = self.clients_wait() || self.is_urgent(state);
        if pass.hurried || in_need || state.pass.asked > pass.asked {
            return state.log.backlog() <= BACKLOG_OF_A_HURRIED_PASS;
        }
        state.pass.open.is_none_or(|open| {
            let share = u64::from(open.slots) * state.log.written_since_pass;
            u64::from(open.next_slot) * pass.length_bytes <= share
        })
    }
}

impl PassState {
    /// Whether one has begun and is not complete.
    pub(super) fn is_under_way(&self) -> bool {
        self.under_way
    }

    /// Bytes that a pass writes, about.
    pub(crate) fn cost_bytes(&self) -> u64 {
        self.cost_bytes
    }

    /// Asks for a pass that begins after now.
    pub(super) fn ask(&mut self) -> u64 {
        self.asked += 1;
        self.asked
    }

    /// Whether such a pass is complete.
    pub(super) fn is_answered(&self, asked: u64) -> bool {
        self.answered >= asked
    }
}

/// Writes passes as long as the shard lives.
pub(crate) async fn run_passes(core: Rc<ShardCore>) {
    let due = || {
        let state = core.state.borrow();
        match core.may_carry(&state) {
            true => Some(Due::Carry),
            false => core.pass_is_due(&state).then_some(Due::Pass),
        }
    };
    while let Some(due) = core.until(&core.durable_changed, due).await {
        let done = match due {
            Due::Carry => carry(&core).await,
            Due::Pass => write_pass(&core).await,
        };
        if done.is_none() {
            return;
        }
    }
}

/// What gives segments back.
enum Due {
    Pass,
    /// What waits in the oldest record is to be written again: the next pass can then do more.
    Carry,
}

/// One pass, from its begin to the segments it frees. `None` when the shard has ended.
async fn write_pass(core: &Rc<ShardCore>) -> Option<()> {
    let hurried = {
        let state = core.state.borrow();
        state.pass.asked > state.pass.answered || core.is_urgent(&state)
    };
    let length_bytes = (core.written_per_pass() / 2).min(core.room_bytes() / ROOM_PER_PASS_DIVISOR);
    core.room_for_pass(core.store.geometry.block_size_bytes as usize).await?;
    let mut pass = core.state.borrow_mut().begin_pass(hurried, length_bytes);
    core.store.set_pass_bytes(core.index, core.state.borrow().pass.cost_bytes());
    core.work.wake_all();
    // From here on the begin has its place for good, and leaves are written behind it.
    durable_through(core, pass.begin).await?;
    let mut leaves = Vec::new();
    while core.state.borrow().pass.open.is_some_and(|open| open.next_slot < open.slots) {
        let may_go_on = || core.may_go_on(&core.state.borrow(), &pass).then_some(());
        core.until(&core.durable_changed, may_go_on).await?;
        background_step().await;
        core.room_for_pass(LONGEST_STEP_BYTES).await?;
        core.state.borrow_mut().write_leaves(&mut pass, &mut leaves);
        core.work.wake_all();
    }
    let bytes = core.state.borrow().pass_end_bytes();
    let may_end = || {
        let mut state = core.state.borrow_mut();
        let is_settled = state.pass.deferred.is_empty() && !state.members.has_skips();
        (is_settled && core.has_room_for_pass(&mut state, bytes)).then_some(())
    };
    core.until(&core.durable_changed, may_end).await?;
    let end = core.state.borrow_mut().end_pass(&mut pass);
    core.work.wake_all();
    durable_through(core, end).await?;
    let root = core.state.borrow_mut().root_of(&pass, end);
    core.store.set_root(&core.device, core.index, root).await.ok()?;
    core.counters.borrow_mut().passes += 1;
    let mut state = core.state.borrow_mut();
    state.pass.root = root;
    state.forget_endings(&root);
    state.pass.answered = pass.asked;
    state.pass.under_way = false;
    for held in [pass.begin, pass.replay_start, end] {
        state.records.release(held);
    }
    state.free_segments(core);
    core.tell_use(&state);
    drop(state);
    core.durable_changed.wake_all();
    Some(())
}

impl ShardCore {
    /// Waits until the next records of a pass have room: what finds none would be the end of the device, and what
    /// clients delete meanwhile, or another shard's pass, may give it. `None` when the shard has ended.
    async fn room_for_pass(&self, length_bytes: usize) -> Option<()> {
        let has_room = || self.has_room_for_pass(&mut self.state.borrow_mut(), length_bytes).then_some(());
        self.until(&self.durable_changed, has_room).await
    }
}

impl Shard {
    /// Writes a pass now, and returns when it is complete: the next opening begins there.
    ///
    /// # Errors
    /// When the shard has failed or was closed. While parts of the index are lost no pass is written: then at once.
    pub async fn pass_now(&self) -> Result<(), AppendError> {
        let asked = {
            let mut state = self.core.state.borrow_mut();
            if state.lost.any {
                return Ok(());
            }
            state.pass.ask()
        };
        self.core.durable_changed.wake_all();
        let answered = || match self.core.state.borrow().pass.is_answered(asked) {
            true => Some(Ok(())),
            false => self.core.check_open().err().map(Err),
        };
        self.core.durable_changed.until(answered).await
    }
}

/// Resolves when the record is durable; `None` when the shard has ended.
pub(super) async fn durable_through(core: &Rc<ShardCore>, seq: RecordSeq) -> Option<()> {
    let durable = || match core.durable_record.get() >= seq {
        true => Some(Some(())),
        false => core.check_open().err().map(|_| None),
    };
    core.durable_changed.until(durable).await
}

impl State {
    /// Estimates what a pass costs, from the index as it is.
    pub(crate) fn estimate_pass(&mut self) {
        self.pass.cost_bytes = self.index.pass_bytes();
    }

    /// What comes behind the leaves of a pass, at most but for the lists of groups, of which most are short.
    fn pass_end_bytes(&self) -> usize {
        let entries = self.groups.len() + self.layers.len() + self.endings.len() + 2;
        let tables = self.segments.ours().count() * SegmentUse::ENCODED_BYTES;
        (entries * END_ENTRY_BYTES + tables).min(MAX_RECORD_BYTES / 2)
    }

    fn begin_pass(&mut self, hurried: bool, length_bytes: u64) -> Pass {
        let oldest = self.records.oldest_waiting();
        let id = PassId(self.pass.root.pass.0 + 1);
        let begin = self.log.begin(&mut self.records, RecordKind::Checkpoint).seq;
        let replay_start = oldest.filter(|_| !mutant(Mutant::PreparedForgottenByPass)).unwrap_or(begin);
        for held in [begin, replay_start] {
            self.records.hold(held);
        }
        // Known only if it is on the device already; the superblock says it in any case.
        let pointer = self.records.known_place(replay_start).map_or(RecordPointer::default(), |place| place.pointer);
        let payload = PassBegin { replay_start: pointer }.encode();
        self.checkpoint_entry(&EntryHead::of_pass(EntryKind::PassBegin, id), &payload);
        self.log.written_since_pass = 0;
        self.segments.deaths = 0;
        self.segments.empties = 0;
        self.pass.carrying.is_done = false;
        self.estimate_pass();
        let slots = self.index.slot_count();
        self.pass.under_way = true;
        self.pass.open = Some(OpenPass { id, next_slot: 0, slots, extra_leaves: 0 });
        Pass { id, begin, replay_start, counts: PassEnd::default(), hurried, length_bytes, asked: self.pass.asked }
    }

    /// Adds an entry to a checkpoint record; returns the record.
    fn checkpoint_entry(&mut self, head: &EntryHead, payload: &[u8]) -> RecordSeq {
        let bytes = EntryHead::encoded_bytes(payload.len());
        let batch = self.log.batch_for(&mut self.records, RecordKind::Checkpoint, bytes, 0);
        batch.push_entry(|out| head.encode_with(payload, out));
        batch.seq
    }

    /// Writes the next leaves into one record.
    fn write_leaves(&mut self, pass: &mut Pass, leaf_bytes: &mut Vec<u8>) {
        let Some(mut open) = self.pass.open else { return };
        let mut written = 0;
        while open.next_slot < open.slots && written < LEAVES_PER_RECORD_BYTES {
            let slot = open.next_slot;
            open.next_slot += 1;
            let key = self.index.leaf_at(slot).map(|(key, _)| key);
            if key.is_some_and(|key| self.defers(key)) {
                continue;
            }
            self.index.compact_at(slot);
            let Some(bytes) = self.write_leaf(slot, pass.id, leaf_bytes) else { continue };
            written += bytes + EntryHead::encoded_bytes(LeafData::ENCODED_BYTES);
            pass.counts.leaves += 1;
        }
        self.pass.open = Some(open);
    }

    /// Writes the leaf in a slot, by way of `leaf_bytes`. Returns its length; `None` if the slot is vacant.
    pub(super) fn write_leaf(&mut self, slot: u32, pass: PassId, leaf_bytes: &mut Vec<u8>) -> Option<usize> {
        let (key, view) = self.index.leaf_at(slot)?;
        if view.stored_count == 0 && mutant(Mutant::TombstoneLost) {
            return None;
        }
        leaf_bytes.clear();
        let data = LeafData::append(&view, leaf_bytes);
        let mut head = EntryHead::of_pass(EntryKind::Leaf, pass);
        (head.layer, head.chunk) = (key.layer, key.chunk);
        let entry_bytes = EntryHead::encoded_bytes(LeafData::ENCODED_BYTES);
        let (log, records) = (&mut self.log, &mut self.records);
        let kind = RecordKind::Checkpoint;
        let batch = log.batch_for(records, kind, entry_bytes, leaf_bytes.len());
        batch.push_with_data(&head, &data.encode(), leaf_bytes);
        Some(leaf_bytes.len())
    }

    /// Writes all that is not leaves, and the end. Returns the end's record.
    fn end_pass(&mut self, pass: &mut Pass) -> RecordSeq {
        for group in sorted_ids(&self.groups) {
            self.write_group_state(group, pass);
        }
        let is_left_out = |layer: &LayerRecord| {
            let is_empty = || self.index.layer_usage(layer.layer).leaves == 0;
            mutant(Mutant::LayerStateLost) || mutant(Mutant::LayerRecordLostByCleaning) && is_empty()
        };
        let known = self.layers.values().filter(|layer| !is_left_out(layer));
        let layers: Vec<_> = known.map(LayerRecord::encode).collect();
        for payload in layers {
            self.checkpoint_entry(&EntryHead::of_pass(EntryKind::LayerState, pass.id), &payload);
            pass.counts.layers += 1;
        }
        for ending in self.endings_of_pass() {
            let head = EntryHead::of_pass(EntryKind::MergeState, pass.id);
            self.checkpoint_entry(&head, &ending.encode());
            pass.counts.merges += 1;
        }
        pass.counts.leaves += self.pass.open.take().map_or(0, |open| open.extra_leaves);
        self.write_segment_table(pass);
        pass.counts.begin = self.records.place(pass.begin).pointer;
        let payload = pass.counts.encode();
        let end = self.checkpoint_entry(&EntryHead::of_pass(EntryKind::PassEnd, pass.id), &payload);
        self.records.hold(end);
        end
    }

    /// A group's state; in several entries if its lists are long.
    fn write_group_state(&mut self, group: GroupId, pass: &mut Pass) {
        let of = &self.groups[&group];
        let own = &of.own;
        let mut payloads = Vec::new();
        let pieces = own.epochs.len().max(own.volume_epochs.len()).div_ceil(ITEMS_PER_ENTRY).max(1);
        let piece_of =
            |len: usize, piece: usize| (piece * ITEMS_PER_ENTRY).min(len)..((piece + 1) * ITEMS_PER_ENTRY).min(len);
        for piece in 0..pieces {
            let epochs = &own.epochs[piece_of(own.epochs.len(), piece)];
            let volumes = &own.volume_epochs[piece_of(own.volume_epochs.len(), piece)];
            let (mut record, mut member) = (&[][..], MemberState::default());
            if piece == 0 {
                record = &own.record;
                member = MemberState { number: own.member.0, bytes: &own.member.1 };
            }
            let mut payload = Vec::new();
            GroupState::encode(of.committed, epochs, volumes, record, member, &mut payload);
            payloads.push(payload);
        }
        let mut head = EntryHead::of_pass(EntryKind::GroupState, pass.id);
        head.group = group;
        for payload in payloads {
            self.checkpoint_entry(&head, &payload);
            pass.counts.groups += 1;
        }
    }

    fn write_segment_table(&mut self, pass: &mut Pass) {
        let uses: Vec<_> = self
            .segments
            .ours()
            .map(|(segment, state)| SegmentUse {
                segment,
                stream: state.stream,
                sealed: state.role != Role::Open,
                generation: state.generation,
                first_record: state.first_record,
                last_record: state.last_record.max(state.first_record),
            })
            .collect();
        for uses in uses.chunks(ITEMS_PER_ENTRY) {
            let mut payload = Vec::new();
            uses.iter().for_each(|one| one.encode(&mut payload));
            self.checkpoint_entry(&EntryHead::of_pass(EntryKind::Segments, pass.id), &payload);
            pass.counts.segments += uses.len() as u64;
        }
    }

    fn root_of(&mut self, pass: &Pass, end: RecordSeq) -> ShardRoot {
        ShardRoot {
            pass: pass.id,
            pass_first: self.records.place(pass.begin).pointer,
            pass_last: self.records.place(end).pointer,
            replay_start: self.records.place(pass.replay_start).pointer,
            // Past the record at which an assertion failed: it will not be replayed again.
            stopped: match self.pass.root.stopped {
                mark if mark.record < self.records.place(pass.replay_start).pointer.seq => StopMark::default(),
                mark => mark,
            },
        }
    }

    /// Gives back what nothing needs: not the index, not replay, not a read under way.
    pub(crate) fn free_segments(&mut self, core: &ShardCore) {
        let root = self.pass.root;
        let dead: Vec<SegmentIndex> = self
            .segments
            .ours()
            .filter(|(_, state)| state.role == Role::Sealed && state.live_units == 0)
            .map(|(segment, _)| segment)
            .collect();
        let mut left = false;
        for segment in dead {
            let state = self.segments.get_mut(segment);
            // Died before the first leaf of the pass was written, so none of its leaves names it; and replay, which
            // would apply entries that name it, begins behind it.
            let unnamed = state.died_at <= root.pass_first.seq
                || mutant(Mutant::FreedBeforePassForgot)
                || mutant(Mutant::SegmentReusedBeforeMovesDurable);
            let unread = state.last_record < root.replay_start.seq || mutant(Mutant::YoungSegmentFreed);
            let forgotten = unnamed && unread;
            if !forgotten && !mutant(Mutant::SegmentReusedTooEarly) {
                left = true;
            } else if self.segments.leave(segment) {
                core.store.pool.give(segment);
                core.counters.borrow_mut().segments_freed += 1;
            }
        }
        self.pass.held_back = left && root.replay_start.seq < root.pass_first.seq;
    }

    /// A read in the segment has ended.
    pub(super) fn unpin(&mut self, core: &ShardCore, segment: SegmentIndex) {
        let state = self.segments.get_mut(segment);
        state.pins -= u32::from(!mutant(Mutant::ReadPinIgnored));
        if state.pins == 0 && state.role == Role::Leaving {
            state.role = Role::NotOurs;
            core.store.pool.give(segment);
            core.counters.borrow_mut().segments_freed += 1;
        }
    }
}
