//! Opening a shard: scan, replay, judge, begin a new incarnation.

mod cursor;
mod replay;
mod scan;

use crate::error::{AppendError, Damage, OpenError};
use crate::format::opening::MAX_GAPS;
use crate::format::{
    EntryHead, EntryKind, FormatError, LayerRecord, LeafKey, Opening, RecordKind, RecordSeq, SegmentIndex, SegmentUse,
    SeqRange, ShardRoot, StoredBlock, Stream,
};
use crate::index::Index;
use crate::shard::{
    Group, OpenSegment, Segments, Shard, ShardCore, State, Troubles, Watchdog, catch_in, run_tasks, sorted_ids,
};
use crate::store::{FoundSegment, Store};
use replay::{PassVerdict, Replay};
use runtime::Device;
use runtime::channel::WaitList;
use scan::{Findings, Tail, scan};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use types::{GroupId, LayerId, Mutant, Seq, ShardIndex, Term, VolumeEpoch, VolumeId, mutant};

/// A store that an assertion stopped so often at one record is not opened again: it would stop there once more.
pub(crate) const STOPS_MAX: u32 = 2;

/// What was found when a shard was opened.
#[derive(Clone, Debug, Default)]
pub struct Recovery {
    /// Its groups, by id.
    pub groups: Vec<GroupRecovery>,
    /// Layers known here, by id.
    pub layers: Vec<LayerRecord>,
    /// What was durable and is not there. While there is any, nothing is freed and no pass is written, so that the next
    /// opening finds it again.
    pub damage: Vec<Damage>,
    /// What is not as it was written, and was of no use: nothing is lost.
    pub harmless: Vec<Damage>,
    /// Parts of the last checkpoint pass are lost, and groups may be that are not in `groups`.
    pub group_states_lost: bool,
    /// Records that never became durable; accepted, and never damage from now on.
    pub gaps: Vec<SeqRange>,
    /// How much there was to do.
    pub counters: RecoveryCounters,
}

/// How much there was to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecoveryCounters {
    /// Records read.
    pub records: u64,
    /// Entries in them.
    pub entries: u64,
    /// Leaves loaded.
    pub leaves: u64,
    /// Bytes of log between where replay begins and its end.
    pub log_bytes: u64,
    /// Segments freed at once: nothing in them was needed.
    pub segments_freed: u64,
}

/// What is known of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupRecovery {
    /// The group.
    pub group: GroupId,
    /// Its last record, prepared ones included.
    pub record: Option<Vec<u8>>,
    /// Each epoch and the first sequence it owns, prepared ones included.
    pub epoch_history: Vec<(Term, Seq)>,
    /// In the index up to here.
    pub committed: Seq,
    /// In the log up to here, without a hole.
    pub prepared_through: Seq,
    /// The highest epoch of each volume, prepared ones included.
    pub volume_epochs: Vec<(VolumeId, VolumeEpoch)>,
    /// What this member keeps for itself: the last that became durable. None: nothing.
    pub member_state: Option<Vec<u8>>,
    /// Records are damaged that may have held entries of this group: it must not serve what is here.
    pub damaged: bool,
    /// If it is: a leaf whose last entry is this or a later one may lack something that came before its last.
    pub doubtful_from: Seq,
}

impl GroupRecovery {
    fn of(id: GroupId, group: &Group, (damaged, doubtful_from): (bool, Seq)) -> Self {
        let seen = group.seen();
        Self {
            group: id,
            record: (!seen.record.is_empty()).then_some(seen.record),
            epoch_history: seen.epochs,
            committed: group.committed,
            prepared_through: group.prepared_through(),
            volume_epochs: seen.volume_epochs,
            member_state: Some(seen.member.1).filter(|state| !state.is_empty()),
            damaged,
            doubtful_from,
        }
    }
}

/// A shard that was read and has not begun to write.
///
/// Segments that an earlier life left behind are free only when their own shard has been read. So all shards of a
/// device are [read](Shard::recover) before the first one [begins](Recovered::begin): else it may find none free that
/// needs one.
pub struct Recovered {
    core: Rc<ShardCore>,
    recovery: Recovery,
    /// The record that begins the new incarnation.
    opening: RecordSeq,
}

impl Recovered {
    /// Writes the record that begins the new incarnation. What was prepared and is not known to be committed waits for
    /// [`Shard::commit`].
    ///
    /// # Errors
    /// A failing device, or one without a free segment: of either the whole store has failed.
    pub async fn begin(self) -> Result<(Rc<Shard>, Recovery), OpenError> {
        let Self { core, recovery, opening } = self;
        core.check_open()?;
        core.queue_opening(opening, &recovery.gaps);
        core.find_room_for_opening().map_err(|error| failed(&core.store, error))?;
        run_tasks(&core);
        core.opening_durable(opening).await?;
        Ok((Rc::new(Shard { core }), recovery))
    }
}

impl Shard {
    /// Opens the only shard of a device, or one whose others are open: [`recover`](Self::recover) and
    /// [`begin`](Recovered::begin).
    ///
    /// # Errors
    /// A failing device. Damage is no error: it is in the [`Recovery`].
    pub async fn open(
        store: &Arc<Store>,
        device: Device,
        index: ShardIndex,
    ) -> Result<(Rc<Self>, Recovery), OpenError> {
        Self::recover(store, device, index).await?.begin().await
    }

    /// Reads a shard on the current core, with a device opened there: loads the last pass, replays what came after it,
    /// and frees what nothing needs.
    ///
    /// # Errors
    /// A failing device: the whole store has failed. Damage is no error: it is in the [`Recovery`].
    ///
    /// An assertion that fails meanwhile stops the store, and one that failed there twice in a row is not
    /// asked for again.
    pub async fn recover(store: &Arc<Store>, device: Device, index: ShardIndex) -> Result<Recovered, OpenError> {
        let count = store.shard_count();
        if index.0 >= count {
            return Err(OpenError::NoSuchShard { index, count });
        }
        let mark = store.root(index).stopped;
        if mark.times >= STOPS_MAX {
            return Err(stopped(&store.stay_stopped(index, mark)));
        }
        match catch_in(Self::recover_unguarded(store, device.clone(), index)).await {
            Ok(recovered) => recovered.map_err(|error| failed(store, error)),
            Err(assertion) => {
                let error = store.stop(index, assertion.record, &assertion.message);
                // A device that cannot take this either is one more reason not to use it.
                let _ = store.mark_stopped(&device, index, assertion.record).await;
                Err(stopped(&error))
            }
        }
    }

    async fn recover_unguarded(store: &Arc<Store>, device: Device, index: ShardIndex) -> Result<Recovered, OpenError> {
        let (mut replay, mut findings) = read_shard(&device, store, index).await;
        findings.write_again(&device).await?;
        let mut recovery = conclude(store, index, &mut replay, &findings);
        recovery.layers = replay.state.layers.values().copied().collect();
        let core = Rc::new(start(store, device, index, replay, &findings, !recovery.damage.is_empty()));
        if recovery.damage.is_empty() {
            let mut state = core.state.borrow_mut();
            state.free_segments(&core);
            state.segments.count_empties();
            state.estimate_pass();
            store.set_pass_bytes(index, state.pass.cost_bytes());
        }
        core.tell_use(&core.state.borrow());
        recovery.counters.segments_freed = core.counters.borrow().segments_freed;
        Ok(Recovered { core, recovery, opening: findings.next_seq })
    }
}

/// What opening a shard would find, for who only looks: nothing is written.
pub(crate) struct Examined {
    /// Damage, and what is not as it was written and was of no use.
    pub(crate) damage: Vec<Damage>,
    state: State,
    /// Segments as the last pass knew them.
    table: Vec<SegmentUse>,
}

impl Examined {
    /// Where each block is. What is prepared is in it: it may have been acknowledged.
    pub(crate) fn index(&self) -> &Index {
        &self.state.index
    }

    /// Whether a block is what the index says of it, in its layer or in the one that took the layer's blocks.
    pub(crate) fn is_needed(&self, key: LeafKey, block: u16, stored: StoredBlock) -> bool {
        self.state.holder_of_block(key, block, stored).is_some()
    }

    /// The last record of a segment when the last pass was written, if it was in use.
    pub(crate) fn last_known(&self, found: &FoundSegment) -> Option<RecordSeq> {
        let is_it = |used: &&SegmentUse| (used.segment, used.generation) == (found.segment, found.generation);
        self.table.iter().find(is_it).map(|used| used.last_record)
    }
}

/// Reads a shard as opening does.
pub(crate) async fn examine(device: &Device, store: &Arc<Store>, index: ShardIndex) -> Examined {
    let (mut replay, findings) = read_shard(device, store, index).await;
    let mut recovery = conclude(store, index, &mut replay, &findings);
    recovery.damage.append(&mut recovery.harmless);
    let Replay { mut state, table, .. } = replay;
    apply_prepared(&mut state);
    Examined { damage: recovery.damage, state, table }
}

/// What opening would find in a shard, and the layers of which something is there, each with its chunks. What is prepared counts: it
/// may have been acknowledged.
pub(crate) async fn look_at_groups(
    device: &Device,
    store: &Arc<Store>,
    index: ShardIndex,
) -> (Recovery, Vec<(LayerId, u64)>) {
    let (mut replay, findings) = read_shard(device, store, index).await;
    let recovery = conclude(store, index, &mut replay, &findings);
    let Replay { mut state, .. } = replay;
    apply_prepared(&mut state);
    (recovery, state.index.layers())
}

fn apply_prepared(state: &mut State) {
    for group in sorted_ids(&state.groups) {
        while !state.groups[&group].prepared.is_empty() {
            state.apply_first(group);
        }
    }
}

async fn read_shard(device: &Device, store: &Arc<Store>, index: ShardIndex) -> (Replay, Findings) {
    let root = store.root(index);
    let segments = store.found_segments(index);
    let (mut replay, findings) = read_log(device, store, index, &segments, root, false).await;
    if matches!(replay.pass_verdict(), PassVerdict::Lacks { .. }) {
        // Once more, with a list of what was found of the pass: all else is in doubt, and so is who took something of it.
        (replay, _) = read_log(device, store, index, &segments, root, true).await;
    }
    (replay, findings)
}

/// One shard that the device does not serve is enough: no other acknowledges anything there.
fn failed(store: &Store, error: OpenError) -> OpenError {
    if error.is_of_device() {
        store.fail(&error.to_string());
    }
    error
}

fn stopped(error: &AppendError) -> OpenError {
    let reason = match error {
        AppendError::Stopped { reason } => reason.clone(),
        other => Arc::from(other.to_string()),
    };
    OpenError::Stopped { reason }
}

async fn read_log(
    device: &Device,
    store: &Arc<Store>,
    index: ShardIndex,
    segments: &[FoundSegment],
    root: ShardRoot,
    list_leaves: bool,
) -> (Replay, Findings) {
    let mut uses = Segments::new(store.geometry);
    segments.iter().for_each(|found| uses.adopt(found));
    let mut replay = Replay::new(State::new(uses), index, root, list_leaves);
    let start = match mutant(Mutant::ReplayFromPassStart) {
        true => root.pass_first,
        false => root.replay_start,
    };
    let findings = scan(device, store, index, segments, start, &mut replay).await;
    (replay, findings)
}

/// Judges what was read and says what is known.
fn conclude(store: &Store, shard: ShardIndex, replay: &mut Replay, findings: &Findings) -> Recovery {
    let (root, judgement) = (store.root(shard), findings.judge());
    let mut damage = findings.damage.clone();
    damage.extend(judgement.damaged.iter().map(|missing| Damage::Records {
        shard,
        records: missing.records,
        segment: missing.segment,
        offset_bytes: missing.offset_bytes,
    }));
    let mut recovery = Recovery::default();
    if let PassVerdict::Lacks { leaves, others } = replay.pass_verdict() {
        damage.push(Damage::Pass { shard, leaves, others });
        replay.doubt_unlisted_leaves();
        recovery.group_states_lost = true;
    } else {
        // The second time, all of it could be read.
        replay.state.lost.all_but = None;
    }
    replay.cut_at_holes();
    replay.state.count_live();
    let header_lost = lost_header_may_matter(store, replay, findings, root);
    if header_lost {
        replay.something_is_missing(false);
    }
    let records_damaged = !damage.is_empty() || header_lost;
    recovery.groups = replay.groups(records_damaged, recovery.group_states_lost);
    damage.append(&mut replay.damage);
    let headless = replay.state.segments.without_header();
    if !headless.is_empty() {
        let State { index, lost, .. } = &mut replay.state;
        index.for_each_stored(|key, _, block| {
            if store.geometry.segment_of(block.location).is_some_and(|segment| headless.contains(&segment)) {
                lost.headless.insert(key);
            }
        });
    }
    for segment in headless {
        // What the index names is there, or its checksums say that it is not; nothing may be written over it.
        store.withhold(segment);
        let offset_bytes = store.geometry.segment_start_bytes(segment);
        let error = FormatError::Magic { what: "segment header" };
        let told = Damage::SegmentHeader { segment, offset_bytes, error };
        // What is the device's is told below, but not by each shard; each that needs the segment lacks it.
        let is_it = |known: &Damage| matches!(known, Damage::SegmentHeader { segment: s, .. } if *s == segment);
        if !(header_lost || shard.0 == 0) || !store.damage().iter().any(is_it) {
            damage.push(told);
        }
    }
    if header_lost || shard.0 == 0 {
        damage.extend_from_slice(store.damage());
    }
    replay.state.lost.any = !damage.is_empty();
    if replay.state.lost.any {
        store.note_losses(shard);
    }
    recovery.damage = damage;
    recovery.harmless = std::mem::take(&mut replay.harmless);
    recovery.gaps = judgement.holes.iter().copied().take(MAX_GAPS).collect();
    recovery.counters = RecoveryCounters {
        records: findings.records,
        entries: replay.entries,
        leaves: replay.leaves,
        log_bytes: findings.scanned_bytes,
        segments_freed: 0,
    };
    recovery
}

/// Whether a segment whose header is lost may hold records of this shard that replay would need: unless the last pass
/// says that it was sealed before replay begins, and it has not been in use anew since. What the index names is not
/// free, and records of a next use are not among those that were read. But where records are missing, the index may
/// name what one of them had overwritten.
fn lost_header_may_matter(store: &Store, replay: &Replay, findings: &Findings, root: ShardRoot) -> bool {
    let index_is_sure = findings.damage.is_empty() && findings.judge().damaged.is_empty();
    let is_named = |lost: SegmentIndex| replay.state.segments.get(lost).live_units > 0;
    store.lost_headers.iter().any(|lost| {
        let known = replay.table.iter().find(|named| named.segment == *lost);
        let was_sealed = known.is_some_and(|named| named.sealed && named.last_record < root.replay_start.seq);
        let is_same_use = index_is_sure && is_named(*lost) || mutant(Mutant::HeaderOfNextUseIgnored);
        !(was_sealed && is_same_use)
    })
}

/// The shard as it goes on: counts of live blocks, the place of the next record.
fn start(
    store: &Arc<Store>,
    device: Device,
    index: ShardIndex,
    replay: Replay,
    findings: &Findings,
    damaged: bool,
) -> ShardCore {
    // What is damaged is left as it is, for whoever wants to look at it: the log goes on in another segment, which the
    // next openings find and go on in too. Else each start of a damaged shard, which frees nothing, would take a
    // segment.
    let root = store.root(index);
    let all_headers = !lost_header_may_matter(store, &replay, findings, root);
    let is_whole = |tail: &&Tail| match damaged {
        false => tail.is_whole(&replay.table),
        true => tail.stream == Stream::Hot && all_headers && findings.is_behind_all_damage(tail, &root),
    };
    let tails: Vec<Tail> = findings.tails.iter().filter(is_whole).copied().collect();
    let mut state = replay.state;
    state.settle_endings(findings.next_seq);
    state.pass.root = root;
    let mut open = Vec::new();
    for tail in tails {
        let Tail { stream, segment: FoundSegment { segment, generation, .. }, offset_bytes, last_record } = tail;
        state.segments.go_on_in(segment, last_record);
        open.push((stream, OpenSegment { segment, generation, offset_bytes }));
    }
    state.log.go_on(findings.next_seq, open, findings.scanned_bytes);
    ShardCore {
        store: store.clone(),
        device,
        index,
        state: RefCell::new(state),
        durable: Cell::default(),
        // Everything read was made durable before it was read, and what is missing is accepted.
        durable_record: Cell::new(RecordSeq(findings.next_seq.0 - 1)),
        last_append: Cell::default(),
        durable_changed: WaitList::default(),
        room_changed: WaitList::default(),
        throttled_at: Cell::default(),
        told: Cell::default(),
        work: WaitList::default(),
        closed: Cell::new(false),
        counters: RefCell::default(),
        watchdog: Watchdog::default(),
        troubles: Troubles::default(),
    }
}

impl ShardCore {
    fn queue_opening(&self, void_from: RecordSeq, gaps: &[SeqRange]) {
        let mut payload = Vec::new();
        let (now, before) = (self.store.incarnation(), self.store.previous_incarnation);
        Opening::encode(now, before, void_from, gaps, &mut payload);
        let State { log, records, .. } = &mut *self.state.borrow_mut();
        let batch = log.begin(records, RecordKind::Opening);
        assert_eq!(batch.seq, void_from, "the opening is the first record of its incarnation");
        batch.push_entry(|out| EntryHead::new(EntryKind::Opening).encode_with(&payload, out));
    }

    /// The opening waits for nobody who cleans: without it nothing is served, and nothing becomes free.
    fn find_room_for_opening(&self) -> Result<(), OpenError> {
        // A shard that lacks something makes nothing free: where all do, what is left of an open segment helps nobody.
        let is_stuck = self.store.all_have_losses() && self.store.pool.free_count() == 0;
        if !is_stuck && self.state.borrow_mut().secure_next(self) {
            return Ok(());
        }
        let headers_lost = self.store.lost_headers.len() as u32;
        Err(OpenError::NoSegment { segments: self.store.geometry.segment_count, headers_lost })
    }

    async fn opening_durable(&self, seq: RecordSeq) -> Result<(), AppendError> {
        let durable = || match self.durable_record.get() >= seq {
            true => Some(Ok(())),
            false => self.check_open().err().map(Err),
        };
        self.durable_changed.until(durable).await
    }
}
