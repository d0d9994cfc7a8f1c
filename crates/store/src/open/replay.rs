//! Applying what the scan reads, in the order of records: leaves replace, entries wait until a later record says that
//! they are committed, and are applied unless the leaf holds them already.

use super::GroupRecovery;
use crate::error::Damage;
use crate::format::blocks::UNIT_BYTES;
use crate::format::entry::{MovedBlocks, StoredSums};
use crate::format::{
    DeviceUnit, Entry, EntryBody, EntryFlags, EntryHead, EntryKind, GroupState, LeafData, PassEnd, PassId, Record,
    RecordKind, RecordPointer, RecordSeq, SegmentUse, SeqRange, ShardRoot, StoredBlock,
};
use crate::shard::{Action, Group, Install, Merge, Place, Prepared, Skip, State, Sums, raise, sorted_ids};
use types::{GroupId, Mutant, Seq, ShardIndex, Term, mutant};

/// What replay keeps of a group besides its order.
#[derive(Clone, Copy, Debug, Default)]
struct Trace {
    /// Highest commit number that any record or state said.
    committed: Seq,
    /// Whether anything was seen that says where the group's order stands.
    known: bool,
    /// Records were missing, and nothing that came later shows that none of them was this group's.
    suspect: bool,
    /// The same, of records that no opening accepted as missing: what is prepared may have been cut in them.
    cut_in_doubt: bool,
    /// The state of the last pass was found.
    has_state: bool,
    /// The first sequence that is missing between two that are there: for good, unless a later entry takes its place.
    torn_out: Option<Seq>,
    /// Records were missing before anything of the group was seen.
    begun_in_doubt: bool,
    /// Entries outside the order were seen: of those that are missing no later one tells.
    has_outside: bool,
    /// Entries were missing that were applied when others behind them were skipped.
    lacked_applied: bool,
    /// Some that were applied may be in what is missing, and nobody knows which.
    begins_in_doubt: bool,
}

impl Trace {
    fn begun(in_doubt: bool) -> Self {
        Self { suspect: in_doubt, begun_in_doubt: in_doubt, ..Self::default() }
    }
}

/// What is rebuilt.
pub(crate) struct Replay {
    pub(crate) state: State,
    pub(crate) damage: Vec<Damage>,
    pub(crate) harmless: Vec<Damage>,
    pub(crate) entries: u64,
    pub(crate) leaves: u64,
    /// Segments named by the last pass.
    pub(crate) table: Vec<SegmentUse>,
    shard: ShardIndex,
    root: ShardRoot,
    traces: hashbrown::HashMap<GroupId, Trace, foldhash::fast::FixedState>,
    anything_missing: bool,
    /// The last record that was given.
    last_record: RecordSeq,
    /// Records are missing of those before the last pass, which are read for what waits in them: any group's.
    waited_for_is_missing: bool,
    found: PassEnd,
    end: Option<PassEnd>,
}

/// What of the last pass was not found.
pub(crate) enum PassVerdict {
    Complete,
    Lacks { leaves: u64, others: u64 },
}

impl Replay {
    /// `list_leaves`: the last pass is not whole, and only those of its leaves that are found are sure.
    pub(crate) fn new(mut state: State, shard: ShardIndex, root: ShardRoot, list_leaves: bool) -> Self {
        state.lost.all_but = list_leaves.then(Default::default);
        Self {
            state,
            damage: Vec::new(),
            harmless: Vec::new(),
            entries: 0,
            leaves: 0,
            table: Vec::new(),
            shard,
            root,
            traces: Default::default(),
            anything_missing: false,
            last_record: RecordSeq(root.replay_start.seq.0.saturating_sub(1)),
            waited_for_is_missing: false,
            found: PassEnd::default(),
            end: None,
        }
    }

    /// Records that were due are not there: what they held of any group is not known. `was_accepted`: an opening found
    /// that they were never durable.
    pub(crate) fn something_is_missing(&mut self, was_accepted: bool) {
        self.anything_missing = true;
        self.waited_for_is_missing |= self.last_record.0 + 1 < self.root.pass_first.seq.0;
        for trace in self.traces.values_mut() {
            trace.suspect = true;
            trace.cut_in_doubt |= !was_accepted;
        }
    }

    /// Records that are due before this one.
    pub(crate) fn missing_before(&self, record: RecordSeq) -> SeqRange {
        SeqRange { first: RecordSeq(self.last_record.0 + 1), last: RecordSeq(record.0 - 1) }
    }

    /// The next record. `bytes` begin with it; of a checkpoint record all of it is there.
    pub(crate) fn record(&mut self, record: &Record<'_>, place: Place, bytes: &[u8]) {
        let seq = record.header.seq;
        self.last_record = seq;
        // Who takes over what was in a leaf of the pass that was not found is as lost as that one.
        let is_in_doubt = self.state.lost.all_but.is_some() && seq >= self.root.pass_first.seq;
        self.state.lost.any |= is_in_doubt && !mutant(Mutant::MergeHidesLostLeaf);
        let blocks_offset_bytes = record.header.blocks_offset_bytes(self.state.log.block_size_bytes) as u32;
        self.state.records.push(seq, Some(place));
        if record.header.kind == RecordKind::Checkpoint && record.check_padding(bytes).is_err() {
            let RecordPointer { segment, offset_bytes, .. } = place.pointer;
            self.harmless.push(Damage::Padding { shard: self.shard, record: seq, segment, offset_bytes });
        }
        self.state.segments.get_mut(place.pointer.segment).last_record = seq;
        for entry in record.entries() {
            self.entries += 1;
            match &entry.body {
                // What passes before the last complete one hold is in that one too, or is gone: a leaf of a layer that
                // was merged away since would come back.
                EntryBody::Leaf(_) | EntryBody::LayerState(_) | EntryBody::MergeState(_)
                    if seq < self.root.pass_first.seq && !mutant(Mutant::StaleLeafLoaded) => {}
                EntryBody::Leaf(data) => self.leaf(&entry, data, place, bytes),
                EntryBody::GroupState(state) => self.group_state(&entry, state, seq),
                EntryBody::LayerState(layer) => {
                    self.found.layers += self.of_last_pass(&entry, seq);
                    self.state.apply_layer(*layer);
                }
                EntryBody::MergeState(ending) => {
                    self.found.merges += self.of_last_pass(&entry, seq);
                    self.state.load_ending(ending);
                }
                EntryBody::Segments(table) => {
                    let count = table.iter().count() as u64;
                    self.found.segments += self.of_last_pass(&entry, seq) * count;
                    if self.of_last_pass(&entry, seq) == 1 {
                        self.table.extend(table.iter());
                    }
                }
                EntryBody::PassEnd(end) if entry.head.pass() == self.root.pass => self.end = Some(*end),
                EntryBody::PassBegin(_) | EntryBody::PassEnd(_) | EntryBody::Opening(_) => {}
                EntryBody::Move(moved) => self.moved(&entry, moved, place, blocks_offset_bytes),
                EntryBody::MemberState(_)
                | EntryBody::InstallBegin
                | EntryBody::Install(_)
                | EntryBody::InstallZero
                | EntryBody::InstallEnd(_)
                | EntryBody::InstallLayer(_) => self.of_member(&entry, place, blocks_offset_bytes),
                EntryBody::Skip(state) => self.skip(&entry, state),
                _ => self.ordered(&entry, blocks_offset_bytes, seq),
            }
        }
    }

    /// What the cleaner moved. It was applied when it was durable, and what was applied before it is in leaves or
    /// earlier records: where the index names another place by now, the copy was dead then or died since.
    fn moved(&mut self, entry: &Entry<'_>, moved: &MovedBlocks<'_>, place: Place, blocks_offset_bytes: u32) {
        let stored = moved.sums.iter().zip(moved.from());
        let from: Vec<_> =
            stored.map(|((checksum, stored), location)| StoredBlock { location, stored, checksum }).collect();
        let first = place.blocks.0 + u64::from(entry.data_offset_bytes - blocks_offset_bytes) / UNIT_BYTES as u64;
        let range = entry.head.range().expect("a move has blocks");
        self.state.apply_move(entry.head.leaf_key(), range, &from, DeviceUnit(first));
    }

    /// 1 if the entry is part of the last complete pass. An attempt that a crash ended has the same number and lies
    /// before it.
    fn of_last_pass(&self, entry: &Entry<'_>, record: RecordSeq) -> u64 {
        let same = self.root.pass != PassId(0) && entry.head.pass() == self.root.pass;
        u64::from(same && record >= self.root.pass_first.seq)
    }

    fn leaf(&mut self, entry: &Entry<'_>, data: &LeafData, place: Place, bytes: &[u8]) {
        let key = entry.head.leaf_key();
        self.leaves += 1;
        self.found.leaves += self.of_last_pass(entry, place.pointer.seq);
        match data.decode(&bytes[entry.data_offset_bytes as usize..]) {
            // Everything that was applied so far was in the leaf when it was written: else something is wrong with it.
            Ok(view) if view.last_seq >= self.state.index.reached(key) => {
                self.state.index.load(key, &view);
                self.state.lost.leaves.remove(&key);
            }
            _ => {
                self.state.lost.leaves.insert(key);
                self.damage.push(Damage::Leaf {
                    shard: self.shard,
                    record: place.pointer.seq,
                    segment: place.pointer.segment,
                    offset_bytes: place.pointer.offset_bytes,
                    layer: key.layer,
                    chunk: key.chunk,
                });
            }
        }
        if entry.head.pass() >= self.root.pass
            && let Some(sure) = &mut self.state.lost.all_but
        {
            sure.insert(key);
        }
    }

    fn group_state(&mut self, entry: &Entry<'_>, state: &GroupState<'_>, record: RecordSeq) {
        let id = entry.head.group;
        self.found.groups += self.of_last_pass(entry, record);
        // What it says was applied when it was written: first the entries, then what they may not say any more.
        self.note_cut(id, self.first_cut(id, state.committed, |seq| term_of(state, seq)));
        self.note_commit(id, state.committed);
        let trace = self.traces.get_mut(&id).expect("noted just above");
        let group = self.state.groups.entry(id).or_default();
        let through = group.prepared_through();
        if trace.suspect && through < state.committed && !mutant(Mutant::StateTakenForEntries) {
            // It tells of entries that are missing, and what was written of leaves before may lack what they say. Where
            // it is the first that is known of the group, they may be any.
            trace.begins_in_doubt |= !trace.known;
            note_torn_out(trace, Seq(through.0 + 1));
        }
        trace.known = true;
        trace.has_state |= entry.head.pass() >= self.root.pass;
        group.committed = group.committed.max(state.committed);
        for epoch in state.epochs() {
            if group.own.epochs.last().is_none_or(|last| last.0 < epoch.0) {
                group.own.epochs.push(epoch);
            }
        }
        for (volume, epoch) in state.volumes() {
            raise(&mut group.own.volume_epochs, volume, epoch);
        }
        if !state.record.is_empty() {
            group.own.record = state.record.to_vec();
        }
        group.see_member_state(state.member.number, state.member.bytes);
    }

    /// An entry outside the order. It took effect when it was durable, and no leaf behind it lacks what it says.
    fn of_member(&mut self, entry: &Entry<'_>, place: Place, blocks_offset_bytes: u32) {
        let head = &entry.head;
        self.note_commit(head.group, head.commit);
        self.traces.get_mut(&head.group).expect("noted just above").has_outside = true;
        let range = || head.range().expect("an install of blocks has some");
        let install = match &entry.body {
            EntryBody::MemberState(state) => {
                return self.state.groups.entry(head.group).or_default().see_member_state(head.seq.0, state);
            }
            EntryBody::InstallLayer(layer) => return self.state.install_layer(*layer),
            EntryBody::Install(sums) => {
                let offset_bytes = entry.data_offset_bytes - blocks_offset_bytes;
                Install::Blocks { range: range(), offset_bytes, sums: sums_of(sums) }
            }
            EntryBody::InstallZero => {
                Install::Zero { range: range(), hides_below: head.flags.has(EntryFlags::HIDES_BELOW) }
            }
            EntryBody::InstallEnd(last_seq) => Install::End(*last_seq),
            _ => Install::Begin { keeps: head.flags.has(EntryFlags::KEEPS) },
        };
        self.state.apply_install(head.leaf_key(), &install, place.blocks, Seq(0));
    }

    /// The group's order went on behind what the member lacked: what was prepared then is not applied any more, and what
    /// of it was missing is not missed. What was applied by then must be here.
    fn skip(&mut self, entry: &Entry<'_>, state: &GroupState<'_>) {
        let (id, applied) = (entry.head.group, entry.head.commit);
        self.note_cut(id, self.first_cut(id, applied, |seq| term_of(state, seq)));
        self.note_commit(id, applied);
        let before = self.state.groups.get(&id).map_or(Seq(0), Group::prepared_through);
        let skip = Skip::of(state);
        if mutant(Mutant::SkippedEntriesApplied) {
            self.note_commit(id, skip.through);
        }
        if skip.through > applied {
            let trace = self.traces.get_mut(&id).expect("noted just above");
            trace.lacked_applied |= trace.known && before < applied;
            trace.torn_out = trace.torn_out.filter(|missing| *missing <= applied);
            if trace.suspect && !trace.known && applied > Seq(0) {
                // Some of what was applied may be in what is missing, and nothing behind the skip can show that it is not.
                trace.torn_out = Some(applied);
                trace.begins_in_doubt = true;
            }
            (trace.suspect, trace.cut_in_doubt, trace.known) = (false, false, true);
        }
        self.state.skip(id, &skip, applied);
    }

    /// An entry of a group's order.
    fn ordered(&mut self, entry: &Entry<'_>, blocks_offset_bytes: u32, record: RecordSeq) {
        let head = &entry.head;
        let key = head.leaf_key();
        let action = match &entry.body {
            EntryBody::Write(sums) => Action::Write {
                key,
                range: head.range().expect("a write has blocks"),
                offset_bytes: entry.data_offset_bytes - blocks_offset_bytes,
                sums: sums_of(sums),
            },
            EntryBody::Zero => Action::Zero {
                key,
                range: head.range().expect("a zero has blocks"),
                hides_below: head.flags.has(EntryFlags::HIDES_BELOW),
            },
            EntryBody::EpochStart => Action::EpochStart,
            EntryBody::VolumeEpoch(volume) => Action::VolumeEpoch(*volume, head.volume_epoch),
            EntryBody::Layer(layer) => Action::Layer(*layer),
            EntryBody::GroupRecord(bytes) => Action::GroupRecord(bytes.to_vec()),
            EntryBody::Merge(into, chunks) => {
                let hides_below = head.flags.has(EntryFlags::HIDES_BELOW);
                let merge = Merge { from: head.layer, into: *into, chunks: chunks.iter().collect(), hides_below };
                if mutant(Mutant::MergeNotOrdered) {
                    self.state.apply_merge(&merge, head.seq);
                    Action::Noop
                } else {
                    Action::Merge(Box::new(merge))
                }
            }
            EntryBody::LayerDelete(_) if mutant(Mutant::LayerDeleteNotReplayed) => Action::Noop,
            EntryBody::LayerDelete(chunks) => Action::LayerDelete(head.layer, chunks.iter().collect()),
            _ => Action::Noop,
        };
        let prepared = Prepared { seq: head.seq, term: head.term, record, action };
        if head.flags.has(EntryFlags::CARRIED) && !mutant(Mutant::CarriedTakenForNew) {
            return self.carried(head, prepared);
        }
        // A store takes no entry behind one of a newer epoch: that one was cut.
        let applied = self.state.groups.get(&head.group).map_or(Term::NONE, Group::applied_term);
        if head.term >= applied {
            self.state.drop_last_while(head.group, |last| last.term > head.term);
        }
        let (before, term) = self
            .state
            .groups
            .get(&head.group)
            .map_or((Seq(0), Term::NONE), |group| (group.prepared_through(), group.last_term()));
        // An epoch begins with its start: that alone may follow on what an older one wrote.
        let follows = head.seq.0 <= before.0 + 1 && (head.term == term || head.kind == EntryKind::EpochStart);
        let cut = self.first_cut(head.group, head.seq, |_| head.term);
        if !self.state.place_entry(head.group, prepared) {
            return;
        }
        self.note_cut(head.group, cut);
        let missing_before = self.anything_missing;
        let trace = self.traces.entry(head.group).or_insert(Trace::begun(missing_before));
        if trace.known && follows {
            (trace.suspect, trace.cut_in_doubt) = (false, false);
            trace.torn_out = trace.torn_out.filter(|missing| head.seq > *missing);
        } else if trace.known && trace.suspect {
            note_torn_out(trace, Seq(before.0.min(head.seq.0 - 1) + 1));
        } else if trace.suspect {
            note_beginning(trace, head.seq);
        }
        trace.known = true;
        self.note_commit(head.group, head.commit);
    }

    /// An entry that was in the order when it was written once more. Where its first is not here, that lies before the
    /// replay start, and all that is here came behind it.
    fn carried(&mut self, head: &EntryHead, entry: Prepared) {
        self.note_cut(head.group, self.first_cut(head.group, head.seq, |_| head.term));
        self.note_commit(head.group, head.commit);
        let trace = self.traces.get_mut(&head.group).expect("noted just above");
        if trace.suspect && !trace.known {
            note_beginning(trace, head.seq);
        }
        trace.known = true;
        self.state.place_carried(head.group, entry);
    }

    /// The first of the entries prepared here that may have been cut in records that are missing, if any may: the last of them
    /// up to `through` is of another epoch than the group's entry there, by what is found behind those records. If it is of
    /// the same one, so are all before it.
    fn first_cut(&self, id: GroupId, through: Seq, term_at: impl FnOnce(Seq) -> Term) -> Option<Seq> {
        let is_in_doubt = self.traces.get(&id).is_some_and(|trace| trace.cut_in_doubt);
        let group = self.state.groups.get(&id).filter(|_| is_in_doubt && !mutant(Mutant::CutTakenForCommitted))?;
        let last = group.prepared.iter().rev().find(|entry| entry.seq <= through)?;
        (last.term != term_at(last.seq)).then(|| group.prepared[0].seq)
    }

    fn note_cut(&mut self, id: GroupId, first: Option<Seq>) {
        if let (Some(first), Some(trace)) = (first, self.traces.get_mut(&id)) {
            note_torn_out(trace, first);
        }
    }

    /// All of the group up to `commit` was committed: it is applied, as far as it is there.
    fn note_commit(&mut self, id: GroupId, commit: Seq) {
        let missing_before = self.anything_missing;
        let trace = self.traces.entry(id).or_insert(Trace::begun(missing_before));
        trace.committed = trace.committed.max(commit);
        let committed = trace.committed;
        while let Some(group) = self.state.groups.get(&id)
            && let Some(first) = group.prepared.front()
            && first.seq <= committed
        {
            if group.committed > Seq(0) && first.seq.0 > group.committed.0 + 1 {
                // What lies between was committed, too.
                note_torn_out(trace, Seq(group.committed.0 + 1));
            }
            self.state.apply_first(id);
        }
    }

    /// Cuts each group's order at its first hole: what lies behind was never acknowledged, or the group is damaged.
    pub(crate) fn cut_at_holes(&mut self) {
        let State { groups, records, .. } = &mut self.state;
        for (id, group) in groups.iter_mut() {
            let doubtful = self.traces.get(id).is_some_and(|trace| trace.begun_in_doubt);
            let mut due = match group.committed {
                // Nothing says where the order began: with the first entry that is there, if none can be missing.
                Seq(0) if !doubtful => group.prepared.front().map_or(Seq(1), |first| first.seq),
                committed => Seq(committed.0 + 1),
            };
            let whole = group.prepared.iter().take_while(|entry| {
                let follows = entry.seq == due;
                due.0 += 1;
                follows
            });
            let whole = whole.count();
            if whole < group.prepared.len()
                && let Some(trace) = self.traces.get_mut(id)
            {
                note_torn_out(trace, Seq(group.prepared[whole].seq.0 - 1));
            }
            for dropped in group.prepared.drain(whole..) {
                records.release(dropped.record);
            }
        }
    }

    /// Whether the last pass was found whole.
    pub(crate) fn pass_verdict(&self) -> PassVerdict {
        if self.root.pass == PassId(0) {
            return PassVerdict::Complete;
        }
        let Some(end) = &self.end else { return PassVerdict::Lacks { leaves: 0, others: 1 } };
        let found = &self.found;
        let leaves = end.leaves.saturating_sub(found.leaves);
        let others = end.groups.saturating_sub(found.groups)
            + end.layers.saturating_sub(found.layers)
            + end.merges.saturating_sub(found.merges)
            + end.segments.saturating_sub(found.segments);
        if leaves + others == 0 { PassVerdict::Complete } else { PassVerdict::Lacks { leaves, others } }
    }

    /// Leaves nobody knows which are lost: only the listed ones are sure.
    pub(crate) fn doubt_unlisted_leaves(&mut self) {
        self.state.lost.all_but.get_or_insert_default();
    }

    /// What is told of each group. `records_damaged`: records that were durable are missing; `states_lost`: parts of
    /// the last pass are.
    pub(crate) fn groups(&mut self, records_damaged: bool, states_lost: bool) -> Vec<GroupRecovery> {
        let mut recovered = Vec::new();
        for id in sorted_ids(&self.state.groups) {
            let trace = self.traces.get(&id).copied().unwrap_or_default();
            let group = &self.state.groups[&id];
            let lacks_committed = group.prepared_through() < trace.committed || trace.lacked_applied;
            if lacks_committed {
                self.damage.push(Damage::GroupEntries { shard: self.shard, group: id });
            }
            let has_outside = self.anything_missing && (trace.has_outside || group.member_states > 0);
            let damaged = lacks_committed
                || records_damaged && (trace.suspect || trace.torn_out.is_some() || self.waited_for_is_missing)
                || records_damaged && has_outside
                || states_lost && !trace.has_state;
            // What came in order is whole up to the first that is missing; of all else nothing says what of it is.
            let is_of_all = has_outside
                || self.waited_for_is_missing
                || states_lost
                || trace.begun_in_doubt
                || trace.begins_in_doubt
                || trace.lacked_applied;
            let doubtful_from = if is_of_all { Seq(0) } else { trace.torn_out.unwrap_or(Seq(u64::MAX)) };
            let doubtful_from = if damaged { doubtful_from } else { Seq(u64::MAX) };
            recovered.push(GroupRecovery::of(id, group, (damaged, doubtful_from)));
        }
        recovered
    }
}

/// The epoch of an entry of the group, by what a state says of it.
fn term_of(state: &GroupState<'_>, seq: Seq) -> Term {
    state.epochs().take_while(|(_, first)| *first <= seq).last().map_or(Term::NONE, |(term, _)| term)
}

fn note_torn_out(trace: &mut Trace, missing: Seq) {
    trace.torn_out = Some(trace.torn_out.map_or(missing, |first| first.min(missing)));
}

/// The first entry that is known of a group, behind records that are missing: unless the group begins with it, what came
/// before may be in those, and nothing behind can show that it is not.
fn note_beginning(trace: &mut Trace, first: Seq) {
    if first > Seq(1) && !mutant(Mutant::BeginningTakenForWhole) {
        trace.begins_in_doubt = true;
        note_torn_out(trace, Seq(1));
    }
}

fn sums_of(sums: &StoredSums<'_>) -> Sums {
    let mut kept = Sums::for_blocks(sums.count(), &mut Vec::new());
    sums.iter().for_each(|sum| kept.push(sum));
    kept
}
