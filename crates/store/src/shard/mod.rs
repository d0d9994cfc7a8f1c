//! One shard: its log, its index, its groups. Lives on one core.

mod append;
mod batch;
mod carry;
mod clean;
mod group;
mod guard;
mod image;
mod known;
mod layers;
mod losses;
mod member;
mod moves;
mod pass;
mod prepared;
mod read;
mod records;
mod segments;
mod skip;
mod statistics;
mod stretch;
mod trouble;
mod victims;
mod watchdog;

pub(crate) use append::{OpenSegment, segment_header};
pub(crate) use clean::Cleaning;
pub(crate) use group::{Action, BlockSum, Group, Groups, Merge, Prepared, Sums, raise, sorted_ids};
pub use image::{ImageBlock, LeafImage};
pub use known::KnownBlock;
pub(crate) use layers::Ending;
pub use layers::LeafCursor;
use losses::Lost;
pub(crate) use member::{Install, MemberEntries};
pub(crate) use moves::Moves;
pub(crate) use pass::PassState;
pub(crate) use read::SpareLists;
pub use read::{Content, StoredBlocks, Want, ZERO_BLOCK_CHECKSUM};
pub(crate) use records::{Place, Records};
pub(crate) use segments::{Role, Segments};
pub(crate) use skip::Skip;
pub use statistics::Statistics;
pub use trouble::{DAMAGE_LISTED_MAX, Trouble};
pub use watchdog::{APPEND_SLOW, Asked, DEVICE_SILENT, Slow};
pub(crate) use {
    guard::{Assertion, catch_in},
    trouble::Troubles,
    watchdog::Watchdog,
};

use crate::entry::{AppendTimes, BlockCoding, Entry, EntryKind, LogPosition, MAX_ENTRY_BLOCKS, MAX_GROUP_RECORD_BYTES};
use crate::error::{AppendError, ReadError};
use crate::format::{
    DeviceUnit, EntryFlags, EntryHead, EntryKind as Kind, LayerRecord, LeafKey, RecordKind, RecordSeq, StoredBlock,
    Stream, UNIT_BYTES,
};
use crate::index::Index;
use crate::space::Space;
use crate::store::{Store, Usage};
use append::Log;
use runtime::channel::WaitList;
use runtime::{Device, Instant, SharedBuf, now};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use types::{BlockRange, ChunkId, GroupId, LayerId, Mutant, Seq, ShardIndex, mutant};

/// A record of one entry without blocks, of the longest.
const SMALL_RECORD_BYTES: usize = MAX_GROUP_RECORD_BYTES + 2 * types::BLOCK_BYTES;

/// How long after a writer had to wait for the cleaner this is told.
const THROTTLING_TOLD: Duration = Duration::from_secs(10);
/// The chunk that [`Mutant::AssertionFails`] is about.
const UNLUCKY: ChunkId = ChunkId(13);

/// Whether blocks that take the place of nothing are refused where too much lives.
#[derive(Clone, Copy, PartialEq, Eq)]
enum NewBlocks {
    AreRefused,
    /// Their entry has a place in its group's order already.
    HaveASequence,
}

/// One shard of an open store. Its log goes on in the background until it is closed or dropped.
pub struct Shard {
    pub(crate) core: Rc<ShardCore>,
}

impl Drop for Shard {
    fn drop(&mut self) {
        self.core.close_now();
    }
}

/// What the shard's tasks share.
pub(crate) struct ShardCore {
    pub(crate) store: Arc<Store>,
    pub(crate) device: Device,
    pub(crate) index: ShardIndex,
    /// Never borrowed across an await.
    pub(crate) state: RefCell<State>,
    pub(crate) durable: Cell<LogPosition>,
    pub(crate) durable_record: Cell<RecordSeq>,
    /// Of the record that became durable last.
    pub(crate) last_append: Cell<AppendTimes>,
    /// Something became durable, failed, or was closed.
    pub(crate) durable_changed: WaitList,
    /// There may be room for what was refused with [`AppendError::Busy`].
    pub(crate) room_changed: WaitList,
    /// When an entry was last refused with [`AppendError::Busy`].
    pub(crate) throttled_at: Cell<Option<Instant>>,
    /// Segments that had been given back, and were free, when the other shards were last told that somebody waits for
    /// one.
    pub(crate) told: Cell<Option<(u64, u32)>>,
    /// There may be something to issue.
    pub(crate) work: WaitList,
    pub(crate) closed: Cell<bool>,
    /// What is counted as it happens; the index is asked when somebody wants to know.
    pub(crate) counters: RefCell<Statistics>,
    pub(crate) watchdog: Watchdog,
    pub(crate) troubles: Troubles,
}

/// What changes with each append.
pub(crate) struct State {
    pub(crate) log: Log,
    pub(crate) records: Records,
    pub(crate) segments: Segments,
    pub(crate) groups: Groups,
    pub(crate) index: Index,
    pub(crate) layers: BTreeMap<LayerId, LayerRecord>,
    /// Layers that end, or have ended and may still be named by records.
    pub(crate) endings: BTreeMap<LayerId, Ending>,
    pub(crate) pass: PassState,
    pub(crate) moves: Moves,
    pub(crate) members: MemberEntries,
    pub(crate) cleaning: Cleaning,
    /// Chunks whose leaf was damaged.
    pub(crate) lost: Lost,
    spare_sums: Vec<Vec<BlockSum>>,
    /// Lists that reads have used.
    spare_lists: Vec<SpareLists>,
}

/// What became of a [commit](Shard::commit).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Committed {
    /// It was done.
    Done,
    /// The store takes nothing more, for another reason; nothing is read there any more either.
    StoreStopped,
    /// An assertion failed at it, and has stopped the store.
    Asserted,
}

impl Committed {
    /// Whether it was done.
    pub fn is_done(self) -> bool {
        self == Self::Done
    }
}

impl State {
    pub(crate) fn new(segments: Segments) -> Self {
        Self {
            log: Log::new(segments.geometry().segment_size_bytes, segments.geometry().block_size_bytes),
            records: Records::default(),
            segments,
            groups: Groups::default(),
            index: Index::new(),
            layers: BTreeMap::new(),
            endings: BTreeMap::new(),
            pass: PassState::default(),
            moves: Moves::default(),
            members: MemberEntries::default(),
            cleaning: Cleaning::default(),
            lost: Lost::default(),
            spare_sums: Vec::new(),
            spare_lists: Vec::new(),
        }
    }

    /// Puts an entry into its group's order, behind what is there. An entry of a newer epoch drops what older epochs
    /// prepared from its sequence on; one that is there already, of the same epoch, is replaced (it was sent again).
    /// Returns false if the entry is of an epoch that no longer owns its sequence: it is void.
    pub(crate) fn place_entry(&mut self, group: GroupId, entry: Prepared) -> bool {
        guard::at(entry.record);
        if entry.term < self.groups.entry(group).or_default().last_term() {
            return false;
        }
        self.drop_last_while(group, |last| last.seq >= entry.seq);
        let of = self.groups.get_mut(&group).expect("entered just above");
        self.records.hold(entry.record);
        of.prepared.push_back(entry);
        true
    }

    /// Applies the entries of the group up to `through`; behind a skip that is on its way.
    fn commit(&mut self, group: GroupId, through: Seq, durable: RecordSeq) {
        let Some(of) = self.groups.get_mut(&group) else { return };
        if of.skips_on_the_way > 0 {
            of.commit_held = of.commit_held.max(through);
            return;
        }
        while let Some(first) = self.groups.get(&group).and_then(|of| of.prepared.front())
            && first.seq <= through
        {
            guard::at(first.record);
            assert!(first.record <= durable, "group {group} seq {}: committed before it is durable", first.seq);
            self.apply_first(group);
        }
    }

    /// Applies the oldest entry of the group that is not applied.
    pub(crate) fn apply_first(&mut self, group: GroupId) {
        let of = self.groups.get_mut(&group).expect("the caller looked at it");
        let Prepared { seq, term, record, action } = of.prepared.pop_front().expect("the caller looked at it");
        guard::at(record);
        of.committed = of.committed.max(seq);
        match action {
            Action::Write { key, range, offset_bytes, sums } => {
                self.members.note_met(key, seq);
                assert!(!mutant(Mutant::AssertionFails) || key.chunk != UNLUCKY, "chunk {} is written to", key.chunk);
                let place = self.records.place(record);
                let first = DeviceUnit(place.blocks.0 + u64::from(offset_bytes) / UNIT_BYTES as u64);
                self.apply_write(key, seq, range, first, sums.as_slice());
                sums.recycle(&mut self.spare_sums);
            }
            Action::Zero { key, mut range, hides_below } => {
                self.members.note_met(key, seq);
                if mutant(Mutant::DiscardDropsNeighbour) {
                    range = BlockRange::new(range.first.into(), (range.end() + 1).min(256) - u32::from(range.first));
                }
                let (segments, gathering) = (&mut self.segments, self.log.gathering());
                self.index.apply_zero(key, seq, range, hides_below, |block| segments.displaced(block, gathering));
            }
            Action::Layer(layer) => self.apply_layer(layer),
            Action::Merge(merge) => self.apply_merge(&merge, seq),
            Action::LayerDelete(layer, chunks) => self.apply_layer_delete(layer, &chunks),
            own => of.own.see(seq, term, &own),
        }
        self.records.release(record);
    }

    /// Counts the live blocks of each segment anew, after replay.
    pub(crate) fn count_live(&mut self) {
        self.segments.begin_counting();
        let segments = &mut self.segments;
        self.index.for_each_stored(|_, _, block| segments.born(block.location, u32::from(block.stored.units())));
    }

    fn apply_write(&mut self, key: LeafKey, seq: Seq, range: BlockRange, first: DeviceUnit, sums: &[BlockSum]) {
        let (segments, gathering) = (&mut self.segments, self.log.gathering());
        let mut end = first;
        let blocks = sums.iter().map(|&(checksum, stored)| {
            let block = StoredBlock { location: end, stored, checksum };
            end = block.end();
            block
        });
        if self.index.apply_write(key, seq, range, blocks, |block| segments.displaced(block, gathering)) {
            self.segments.born(first, (end.0 - first.0) as u32);
        }
    }

    /// Whether every block of the range is stored in this very layer, and all of them take no less than `bytes`: then
    /// writing it takes the place of something.
    fn is_overwrite(&self, key: LeafKey, range: BlockRange, bytes: usize) -> bool {
        let (mut all, mut stored_bytes) = (true, 0);
        self.index.lookup(key, range, |_, state| match state.stored() {
            Some(block) => stored_bytes += block.stored.bytes(),
            None => all = false,
        });
        all && stored_bytes >= bytes
    }
}

impl Shard {
    /// Its number within the store.
    pub fn index(&self) -> ShardIndex {
        self.core.index
    }

    /// The store it belongs to.
    pub fn store(&self) -> &Arc<Store> {
        &self.core.store
    }

    /// Queues an entry at the end of the shard's log, now: the order of calls is the order in the log. It is durable
    /// when [`durable_through`](Self::durable_through) has reached the position returned.
    ///
    /// # Errors
    /// No space, none until more is cleaned, a failed device, a closed shard. Nothing was queued then: the sequence may
    /// be given to another entry.
    ///
    /// An entry that breaks a rule of [`Entry`] (too many blocks, a sequence out of order) stops the store; a
    /// [`Skip`](EntryKind::Skip) that does, which another member said, is refused as invalid.
    pub fn prepare(&self, entry: Entry) -> Result<LogPosition, AppendError> {
        self.queue(entry, NewBlocks::AreRefused)
    }

    /// As [`prepare`](Self::prepare), for an entry that has a sequence already: others of its group may have it, and
    /// without it this member could not go on. New blocks may use what is kept for overwrites.
    ///
    /// # Errors
    /// As of [`prepare`](Self::prepare); no space only where nothing can be cleaned any more.
    pub fn prepare_ordered(&self, entry: Entry) -> Result<LogPosition, AppendError> {
        self.queue(entry, NewBlocks::HaveASequence)
    }

    fn queue(&self, entry: Entry, new_blocks: NewBlocks) -> Result<LogPosition, AppendError> {
        self.core.check_open()?;
        skip::check_skip(&entry)?;
        let position = self.core.guarded(|| {
            let mut state = self.core.state.borrow_mut();
            let space = self.core.check_space(&state, &entry, new_blocks);
            space.inspect_err(|error| self.core.note_refused(error))?;
            Ok(if entry.kind.is_of_member() { state.queue_member_entry(entry) } else { state.queue(entry) })
        })??;
        self.core.counters.borrow_mut().entries += 1;
        self.core.work.wake_all();
        Ok(position)
    }

    /// Whether every block of the range is stored in this very layer, and all of them take no less than `bytes`: then
    /// writing them takes no more room.
    pub fn is_overwrite(&self, layer: LayerId, chunk: ChunkId, range: BlockRange, bytes: usize) -> bool {
        self.core.state.borrow().is_overwrite(LeafKey { layer, chunk }, range, bytes)
    }

    /// Resolves when what was refused with [`AppendError::Busy`] may be tried again.
    ///
    /// # Errors
    /// When the shard has failed or was closed.
    pub async fn room(&self) -> Result<(), AppendError> {
        let (core, given) = (&self.core, self.core.store.pool.given());
        let now = Some((given, core.store.pool.free_count()));
        if core.told.replace(now) != now {
            core.store.pool.tell();
        }
        let changed = || match core.check_open() {
            Err(error) => Some(Err(error)),
            Ok(()) => {
                let more = core.has_room_for_overwrites() || core.store.pool.given() > given;
                (more || core.store.is_exhausted()).then_some(Ok(()))
            }
        };
        core.room_changed.until(changed).await
    }

    /// All entries up to this position are durable.
    pub fn durable_through(&self) -> LogPosition {
        self.core.durable.get()
    }

    /// Resolves when [`durable_through`](Self::durable_through) is above `seen`.
    ///
    /// # Errors
    /// When the shard has failed or was closed: what is not durable now never will be.
    pub async fn durable_changed(&self, seen: LogPosition) -> Result<LogPosition, AppendError> {
        let core = self.core.clone();
        core.durable_changed
            .until(|| match core.durable.get() {
                now if now > seen => Some(Ok(now)),
                _ => core.check_open().err().map(Err),
            })
            .await
    }

    /// When the last record of [`durable_through`](Self::durable_through) went to the device and was durable.
    pub fn last_append(&self) -> AppendTimes {
        self.core.last_append.get()
    }

    /// Applies the entries of `group` up to `through` to the index, in order. Reads see them from now on; beside a
    /// [`Skip`](EntryKind::Skip) that is on its way when that is durable.
    ///
    /// If one of them is not durable here, the caller must not have taken it for committed: the store stops.
    pub fn commit(&self, group: GroupId, through: Seq) -> Committed {
        if self.core.store.failed().is_some() {
            return Committed::StoreStopped;
        }
        let committed = self.core.guarded(|| {
            let mut state = self.core.state.borrow_mut();
            let queued = state.log.backlog();
            state.commit(group, through, self.core.durable_record.get());
            if state.log.backlog() > queued {
                // Merged leaves, for the pass under way.
                self.core.work.wake_all();
            }
            self.core.tell_use(&state);
            self.core.let_go();
            if mutant(Mutant::SegmentReusedTooEarly) {
                state.free_segments(&self.core);
            }
        });
        match committed {
            Ok(()) => Committed::Done,
            Err(_) => Committed::Asserted,
        }
    }

    /// Sequence of the last entry of the group in the log; 0 if there is none.
    pub fn prepared_through(&self, group: GroupId) -> Seq {
        self.core.state.borrow().groups.get(&group).map_or(Seq(0), Group::prepared_through)
    }

    /// Everything of the group up to here is in the index.
    pub fn committed_through(&self, group: GroupId) -> Seq {
        self.core.state.borrow().groups.get(&group).map_or(Seq(0), |of| of.committed)
    }

    /// Whether anything of the chunk is in the layer: blocks, or zeroes that hide what lies below.
    pub fn holds(&self, layer: LayerId, chunk: ChunkId) -> bool {
        self.core.state.borrow().index.holds(LeafKey { layer, chunk })
    }

    /// What the shard has done since it was opened.
    pub fn statistics(&self) -> Statistics {
        self.core.statistics()
    }

    /// Whether writers wait for the cleaner, or did a moment ago.
    pub fn is_throttling(&self) -> bool {
        self.core.throttled_at.get().is_some_and(|at| now().since(at) < THROTTLING_TOLD)
    }

    /// Equal for equal contents of the index. Takes time in the number of blocks.
    pub fn index_digest(&self) -> u128 {
        self.core.state.borrow().index.digest()
    }

    /// As [`index_digest`](Self::index_digest), wherever the blocks lie: the cleaner moves them.
    pub fn contents_digest(&self) -> u128 {
        self.core.state.borrow().index.contents_digest()
    }

    /// Equal for equal contents of these leaves, told in any order: which blocks are stored, with what sum and length,
    /// which are zeroes, and which absent; not where they lie, nor which entry came last. For comparing members of a
    /// group when nothing is on its way. Takes time in the number of blocks: many leaves are asked for in parts, whose
    /// digests add up (wrapping).
    ///
    /// # Errors
    /// A leaf that is lost, or not to be trusted: what the group holds of it is not known here.
    pub fn group_digest(&self, leaves: impl IntoIterator<Item = (LayerId, ChunkId)>) -> Result<u128, ReadError> {
        let state = self.core.state.borrow();
        let mut sum: u128 = 0;
        for (layer, chunk) in leaves {
            let key = LeafKey { layer, chunk };
            if state.lost.has(key) {
                return Err(ReadError::IndexLost { layer, chunk });
            }
            if state.index.is_untrusted(key) {
                return Err(ReadError::Untrusted { layer, chunk });
            }
            sum = sum.wrapping_add(state.index.leaf_digest(key));
        }
        Ok(sum)
    }

    /// Blocks of these leaves that have bytes on the device.
    pub fn live_blocks(&self, leaves: impl IntoIterator<Item = (LayerId, ChunkId)>) -> u64 {
        let state = self.core.state.borrow();
        leaves.into_iter().map(|(layer, chunk)| state.index.stored_in(LeafKey { layer, chunk })).sum()
    }

    /// Waits until all that is queued is durable, then ends the shard's background tasks.
    pub async fn close(&self) {
        let last = self.core.state.borrow().log.position();
        while self.durable_through() < last {
            if self.durable_changed(self.durable_through()).await.is_err() {
                break;
            }
        }
        self.core.close_now();
    }
}

/// Starts the shard's background tasks.
pub(crate) fn run_tasks(core: &Rc<ShardCore>) {
    core.spawn(append::run_appender(core.clone()));
    core.spawn(append::run_ticker(core.clone()));
    core.spawn(pass::run_passes(core.clone()));
    core.spawn(carry::run_carrier(core.clone()));
    core.spawn(watchdog::run_watchdog(core.clone()));
    core.spawn(clean::run_cleaner(core.clone()));
    let cleaned = core.clone();
    core.spawn(async move {
        while cleaned.check_open().is_ok() {
            let seen = cleaned.store.pool.events();
            cleaned.durable_changed.wake_all();
            cleaned.room_changed.wake_all();
            cleaned.store.pool.watch(seen, || cleaned.check_open().is_err()).await;
        }
    });
    let core = core.clone();
    runtime::spawn(async move {
        core.store.watch(|| core.closed.get()).await;
        core.wake_all();
        // Reads that the device does not answer.
        runtime::wake_all_tasks();
    });
}

impl ShardCore {
    /// Who may take the last segments now.
    pub(crate) fn space(&self) -> Space {
        self.store.space()
    }

    pub(crate) fn check_open(&self) -> Result<(), AppendError> {
        if self.closed.get() {
            return Err(AppendError::Closed);
        }
        self.store.failed().map_or(Ok(()), Err)
    }

    /// Resolves when `ready` says so, asked again with each of `changes`; `None` when the shard has ended.
    pub(crate) async fn until<T>(&self, changes: &WaitList, mut ready: impl FnMut() -> Option<T>) -> Option<T> {
        let ready = || match self.check_open() {
            Err(_) => Some(None),
            Ok(()) => ready().map(Some),
        };
        changes.until(ready).await
    }

    fn close_now(&self) {
        self.closed.set(true);
        self.store.wake_watchers();
        self.wake_all();
    }

    /// The device failed: all who wait are told, those of other shards by their watchers.
    pub(crate) fn fail(&self, reason: &str) {
        self.store.fail(reason);
        self.wake_all();
    }

    fn wake_all(&self) {
        self.store.pool.wake();
        self.durable_changed.wake_all();
        self.room_changed.wake_all();
        self.work.wake_all();
        self.watchdog.wake();
        self.troubles.wake();
    }

    /// What waited in the log may wait no more: where segments are short, whoever makes them free looks again.
    fn let_go(&self) {
        if self.segments_run_out() {
            self.durable_changed.wake_all();
        }
    }

    /// Lets the store know how much of it lives, and how much of it can be free.
    pub(crate) fn tell_use(&self, state: &State) {
        self.store.set_use(self.index, state.segments.live_bytes(), state.segments.dead_count());
    }

    /// Free segments, less what is queued here and has none yet; other shards may have as much.
    fn free_for(&self, state: &State) -> u32 {
        let queued = state.log.segments_queued() * u32::from(self.store.shard_count());
        self.store.pool.free_count().saturating_sub(queued)
    }

    fn has_room_for_overwrites(&self) -> bool {
        self.free_for(&self.state.borrow()) > self.space().for_overwrites
    }

    fn note_refused(&self, error: &AppendError) {
        if matches!(error, AppendError::Busy) {
            self.counters.borrow_mut().throttled += 1;
            self.throttled_at.set(Some(now()));
        }
        if let AppendError::NoSpace { live_bytes, usable_bytes } = error
            && self.store.begin_refusing()
        {
            self.troubles.tell(Trouble::Full { live_bytes: *live_bytes, usable_bytes: *usable_bytes });
        }
    }

    fn check_space(&self, state: &State, entry: &Entry, new_blocks: NewBlocks) -> Result<(), AppendError> {
        let free = self.free_for(state);
        if self.store.is_far_from_full(free) {
            return Ok(());
        }
        let key = LeafKey { layer: entry.layer, chunk: entry.chunk };
        let kept_back = match &entry.kind {
            EntryKind::Write { .. } if mutant(Mutant::ReserveOpenToNewBlocks) => self.space().for_moves,
            EntryKind::Write { range, bytes, .. } => {
                let usage = self.store.usage();
                let are_refused = new_blocks == NewBlocks::AreRefused && !usage.has_room_for(0);
                if are_refused && !state.is_overwrite(key, *range, bytes.len()) {
                    return Err(AppendError::NoSpace {
                        live_bytes: usage.live_bytes,
                        usable_bytes: usage.usable_bytes,
                    });
                }
                self.space().for_overwrites
            }
            // What a member lacks is no new data of its clients: it may fill what is kept for overwrites.
            EntryKind::Install { .. } => self.space().for_overwrites,
            EntryKind::Zero { .. }
            | EntryKind::Merge { .. }
            | EntryKind::LayerDelete { .. }
            | EntryKind::InstallBegin { .. }
            | EntryKind::InstallZero { .. }
            | EntryKind::InstallEnd { .. } => self.space().for_zeroes,
            EntryKind::EpochStart
            | EntryKind::VolumeEpoch { .. }
            | EntryKind::Layer { .. }
            | EntryKind::GroupRecord { .. }
            | EntryKind::MemberState { .. }
            | EntryKind::InstallLayer { .. }
            | EntryKind::Skip { .. }
            | EntryKind::Noop => self.space().for_groups,
        };
        let longest = SMALL_RECORD_BYTES.max(skip::skip_bytes(entry) + 2 * types::BLOCK_BYTES);
        // What is small, and a group cannot go on without, may also fill the segment that is open.
        let takes_none = kept_back < self.space().for_overwrites && state.log.has_open(Stream::Hot, longest);
        if free > kept_back || takes_none {
            return Ok(());
        }
        if self.store.is_exhausted() {
            let Usage { live_bytes, usable_bytes, .. } = self.store.usage();
            return Err(AppendError::NoSpace { live_bytes, usable_bytes });
        }
        Err(AppendError::Busy)
    }
}

impl State {
    /// Encodes the entry into the record that gathers and notes it in its group's order.
    fn queue(&mut self, entry: Entry) -> LogPosition {
        let of = self.groups.entry(entry.group).or_default();
        let (expected, committed) = (of.prepared_through(), of.committed);
        assert!(entry.seq > committed, "group {} seq {} is committed up to {committed}", entry.group, entry.seq);
        assert!(
            of.may_take(entry.seq),
            "group {} seq {} leaves a hole behind {expected}, or what was cut",
            entry.group,
            entry.seq
        );
        assert_eq!(of.skips_on_the_way, 0, "group {} seq {} beside a skip that is not durable", entry.group, entry.seq);
        let (group, seq, term) = (entry.group, entry.seq, entry.term);
        let commit = entry.commit.min(committed);
        let (record, action) = self.encode_ordered(entry, commit, EntryFlags::default());
        let prepared = Prepared { seq, term, record, action };
        let placed = self.place_entry(group, prepared);
        assert!(placed, "group {group} seq {seq}: term {term} is over");
        self.log.next_position()
    }

    /// Encodes an entry of a group's order into the record that gathers. Returns that record, and what applying the
    /// entry does.
    ///
    /// `commit`: never more than is applied here. Replay applies up to it before it loads the leaves of later records,
    /// which would then lack what they do not hold.
    fn encode_ordered(&mut self, entry: Entry, commit: Seq, flags: EntryFlags) -> (RecordSeq, Action) {
        let mut head = EntryHead::new(kind_of(&entry.kind));
        (head.group, head.term, head.seq, head.commit) = (entry.group, entry.term, entry.seq, commit);
        (head.volume_epoch, head.flags) = (entry.volume_epoch, flags);
        let key = LeafKey { layer: entry.layer, chunk: entry.chunk };
        match entry.kind {
            EntryKind::Write { range, bytes, coding } => self.queue_write(head, key, range, (bytes, &coding)),
            EntryKind::Zero { range, hides_below } => {
                (head.layer, head.chunk) = (key.layer, key.chunk);
                head.flags = flags.with(if hides_below { EntryFlags::HIDES_BELOW } else { EntryFlags::default() });
                let record = self.queue_plain(&head.with_range(range), &[]);
                (record, Action::Zero { key, range, hides_below })
            }
            EntryKind::EpochStart => (self.queue_plain(&head, &[]), Action::EpochStart),
            EntryKind::VolumeEpoch { volume } => {
                let record = self.queue_plain(&head, &volume.0.to_le_bytes());
                (record, Action::VolumeEpoch(volume, entry.volume_epoch))
            }
            EntryKind::Layer { record: layer } => {
                assert_eq!(layer.layer, entry.layer, "a layer's record goes with its id");
                head.layer = entry.layer;
                (self.queue_plain(&head, &layer.encode()), Action::Layer(layer))
            }
            EntryKind::GroupRecord { record: bytes } => {
                assert!(bytes.len() <= MAX_GROUP_RECORD_BYTES, "a group's record of {} bytes", bytes.len());
                (self.queue_plain(&head, &bytes), Action::GroupRecord(bytes.to_vec()))
            }
            EntryKind::Merge { into, chunks, hides_below } => {
                let merge = Merge { from: entry.layer, into, chunks, hides_below };
                self.queue_merge(head, merge)
            }
            EntryKind::LayerDelete { chunks } => self.queue_layer_delete(head, entry.layer, chunks),
            EntryKind::Noop => (self.queue_plain(&head, &[]), Action::Noop),
            EntryKind::MemberState { .. }
            | EntryKind::InstallBegin { .. }
            | EntryKind::Install { .. }
            | EntryKind::InstallZero { .. }
            | EntryKind::InstallEnd { .. }
            | EntryKind::InstallLayer { .. }
            | EntryKind::Skip { .. } => unreachable!("it has no place in the group's order"),
        }
    }

    fn queue_write(
        &mut self,
        head: EntryHead,
        key: LeafKey,
        range: BlockRange,
        blocks: (SharedBuf, &BlockCoding),
    ) -> (RecordSeq, Action) {
        let (record, offset_bytes, sums) = self.queue_blocks(head, key, range, blocks);
        (record, Action::Write { key, range, offset_bytes, sums })
    }

    /// Queues an entry with its blocks. Returns its record, where in it they begin, and their sums.
    fn queue_blocks(
        &mut self,
        mut head: EntryHead,
        key: LeafKey,
        range: BlockRange,
        (bytes, coding): (SharedBuf, &BlockCoding),
    ) -> (RecordSeq, u32, Sums) {
        let count = usize::from(range.count);
        assert!(range.count <= MAX_ENTRY_BLOCKS, "an entry of {count} blocks; split it");
        assert_eq!(bytes.len(), coding.bytes(range.count), "bytes for each block");
        (head.layer, head.chunk, head.key) = (key.layer, key.chunk, coding.key());
        let head = head.with_range(range);
        let (log, records) = (&mut self.log, &mut self.records);
        let alignment = log.block_size_bytes as usize;
        let batch = log.batch_for(records, RecordKind::Log, EntryHead::write_bytes(count), bytes.len());
        let offset_bytes = batch.blocks_bytes() as u32;
        let mut sums = Sums::for_blocks(count, &mut self.spare_sums);
        let queued = bytes.len();
        batch.push_write(&head, bytes, coding, alignment, &mut |sum| sums.push(sum));
        let record = batch.seq;
        log.note_queued(queued);
        (record, offset_bytes, sums)
    }

    fn queue_plain(&mut self, head: &EntryHead, payload: &[u8]) -> RecordSeq {
        let bytes = EntryHead::encoded_bytes(payload.len());
        let batch = self.log.batch_for(&mut self.records, RecordKind::Log, bytes, 0);
        batch.push_entry(|out| head.encode_with(payload, out));
        batch.begins_epoch |= head.kind == Kind::EpochStart;
        batch.seq
    }
}

pub(crate) fn kind_of(kind: &EntryKind) -> Kind {
    match kind {
        EntryKind::Write { .. } => Kind::Write,
        EntryKind::Zero { .. } => Kind::Zero,
        EntryKind::EpochStart => Kind::EpochStart,
        EntryKind::VolumeEpoch { .. } => Kind::VolumeEpoch,
        EntryKind::Layer { .. } => Kind::Layer,
        EntryKind::GroupRecord { .. } => Kind::GroupRecord,
        EntryKind::Merge { .. } => Kind::Merge,
        EntryKind::LayerDelete { .. } => Kind::LayerDelete,
        EntryKind::Noop => Kind::Noop,
        EntryKind::MemberState { .. } => Kind::MemberState,
        EntryKind::InstallBegin { .. } => Kind::InstallBegin,
        EntryKind::Install { .. } => Kind::Install,
        EntryKind::InstallZero { .. } => Kind::InstallZero,
        EntryKind::InstallEnd { .. } => Kind::InstallEnd,
        EntryKind::InstallLayer { .. } => Kind::InstallLayer,
        EntryKind::Skip { .. } => Kind::Skip,
    }
}
