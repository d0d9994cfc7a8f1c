//! Entries outside the group's order: what concerns this member of it alone. They take effect when they are durable, in
//! the order of the log, and each is written with how far the order is applied here.
//!
//! ```text
//!   Begin (record 8) ─ Blocks (9) ─ Zero (9) ─ … ─ End (12)        the leaf, as readers and passes see it
//!     │ durable          │ durable               │ durable, and all before it were when it was queued
//!     ▼                  ▼                       ▼
//!   emptied, untrusted   blocks are there        trusted, unless an entry was left out that the image lacks
//! ```
//!
//! **The order goes on meanwhile**, and whether an entry of it is applied before a begin takes effect or after may be
//! otherwise in replay, which knows of its commit only later. So a leaf that is not to be trusted takes nothing of the
//! order: it notes what it left out. An entry that was applied between the queueing of a begin and its effect counts
//! as left out, for replay will come to it behind the begin.
//!
//! **A pass under way** would write a leaf without what is on its way to it behind the record that brings this, and
//! replay, which takes a leaf for newer than all before it, would lose it. So the walk of a pass leaves such leaves
//! out, they are written when nothing is on its way to them any more, and the pass ends after that.

use super::{Action, BlockSum, Group, Prepared, Shard, Skip, State, Sums, guard};
use crate::entry::{Entry, EntryKind, LogPosition};
use crate::format::blocks::BlockState;
use crate::format::entry::MAX_MEMBER_STATE_BYTES;
use crate::format::{DeviceUnit, EntryFlags, EntryHead, LayerRecord, LeafKey, RecordSeq, StoredBlock, UNIT_BYTES};
use std::collections::VecDeque;
use types::{BlockRange, GroupId, Seq, VolumeEpoch, VolumeId};

/// One step of an install.
#[derive(Debug)]
pub(crate) enum Install {
    Begin {
        /// What the leaf holds stays.
        keeps: bool,
    },
    /// `offset_bytes`: where the blocks begin, from the first block of the record.
    Blocks {
        range: BlockRange,
        offset_bytes: u32,
        sums: Sums,
    },
    Zero {
        range: BlockRange,
        hides_below: bool,
    },
    End(Seq),
}

enum Step {
    /// The member's state with this number.
    State(GroupId, u64, Vec<u8>),
    Install(LeafKey, Install),
    Skip(GroupId, Skip),
    Layer(LayerRecord),
}

/// An entry that is in the log and has not taken effect.
struct Pending {
    record: RecordSeq,
    /// The group's order was applied up to here when it was queued.
    commit: Seq,
    step: Step,
    /// Its leaf has ended since.
    is_void: bool,
}

/// What is on its way to a leaf.
#[derive(Default)]
struct OnTheWay {
    steps: u32,
    /// The last entry of the order that the leaf met meanwhile.
    met: Seq,
}

/// Entries outside the order on their way to the device, in the order of the log.
#[derive(Default)]
pub(crate) struct MemberEntries {
    pending: VecDeque<Pending>,
    leaves: hashbrown::HashMap<LeafKey, OnTheWay, foldhash::fast::FixedState>,
    /// Skips among them.
    pub(super) skips: u32,
}

impl MemberEntries {
    /// Whether steps of an install are on their way to the leaf.
    pub(super) fn is_on_the_way_to(&self, key: LeafKey) -> bool {
        !self.leaves.is_empty() && self.leaves.contains_key(&key)
    }

    /// Whether a skip is on its way: what a pass would say of the group is older, and would come behind it in the log.
    pub(super) fn has_skips(&self) -> bool {
        self.skips > 0
    }

    /// The leaf met an entry of the order.
    pub(super) fn note_met(&mut self, key: LeafKey, seq: Seq) {
        if self.leaves.is_empty() {
            return;
        }
        if let Some(on_the_way) = self.leaves.get_mut(&key) {
            on_the_way.met = on_the_way.met.max(seq);
        }
    }

    /// The leaf has ended: what is on its way to it is void. Returns whether anything was.
    pub(super) fn end_leaf(&mut self, key: LeafKey) -> bool {
        let is_of_leaf = |step: &Step| matches!(step, Step::Install(other, _) if *other == key);
        let found = self.is_on_the_way_to(key);
        if found {
            let of_leaf = self.pending.iter_mut().filter(|pending| is_of_leaf(&pending.step));
            of_leaf.for_each(|pending| pending.is_void = true);
        }
        found
    }

    /// One step less is on its way. Returns the last entry that the leaf met since the first of them was queued.
    fn arrived(&mut self, key: LeafKey) -> Seq {
        let on_the_way = self.leaves.get_mut(&key).expect("it was counted when it was queued");
        let met = on_the_way.met;
        on_the_way.steps -= 1;
        if on_the_way.steps == 0 {
            self.leaves.remove(&key);
        }
        met
    }
}

impl EntryKind {
    /// Whether it takes no place in the group's order.
    pub(crate) fn is_of_member(&self) -> bool {
        super::kind_of(self).is_of_member()
    }
}

impl State {
    /// Encodes an entry outside the group's order into the record that gathers.
    pub(super) fn queue_member_entry(&mut self, entry: Entry) -> LogPosition {
        let mut head = EntryHead::new(super::kind_of(&entry.kind));
        head.group = entry.group;
        head.commit = self.groups.get(&entry.group).map_or(Seq(0), |of| of.committed);
        let (commit, key) = (head.commit, LeafKey { layer: entry.layer, chunk: entry.chunk });
        let (record, step) = match entry.kind {
            EntryKind::MemberState { state } => {
                assert!(state.len() <= MAX_MEMBER_STATE_BYTES, "a member's state of {} bytes", state.len());
                let of = self.groups.entry(entry.group).or_default();
                of.member_states += 1;
                head.seq = Seq(of.member_states);
                (self.queue_plain(&head, &state), Step::State(entry.group, head.seq.0, state.to_vec()))
            }
            EntryKind::Skip { through, epochs, volumes, record } => {
                let skip = Skip { through, epochs, volumes, record: record.to_vec() };
                self.groups.entry(entry.group).or_default().skips_on_the_way += 1;
                self.members.skips += 1;
                (self.queue_plain(&head, &skip.payload()), Step::Skip(entry.group, skip))
            }
            EntryKind::InstallLayer { record: layer } => {
                assert_eq!(layer.layer, entry.layer, "a layer's record goes with its id");
                head.layer = entry.layer;
                (self.queue_plain(&head, &layer.encode()), Step::Layer(layer))
            }
            kind => {
                (head.layer, head.chunk) = (key.layer, key.chunk);
                let (record, install) = self.queue_install(head, key, kind);
                self.members.leaves.entry(key).or_default().steps += 1;
                (record, Step::Install(key, install))
            }
        };
        self.records.hold(record);
        self.members.pending.push_back(Pending { record, commit, step, is_void: false });
        self.log.next_position()
    }

    fn queue_install(&mut self, mut head: EntryHead, key: LeafKey, kind: EntryKind) -> (RecordSeq, Install) {
        match kind {
            EntryKind::InstallBegin { keeps } => {
                head.flags = if keeps { EntryFlags::KEEPS } else { EntryFlags::default() };
                (self.queue_plain(&head, &[]), Install::Begin { keeps })
            }
            EntryKind::Install { range, bytes, coding } => {
                let (record, offset_bytes, sums) = self.queue_blocks(head, key, range, (bytes, &coding));
                (record, Install::Blocks { range, offset_bytes, sums })
            }
            EntryKind::InstallZero { range, hides_below } => {
                head.flags = if hides_below { EntryFlags::HIDES_BELOW } else { EntryFlags::default() };
                (self.queue_plain(&head.with_range(range), &[]), Install::Zero { range, hides_below })
            }
            EntryKind::InstallEnd { last_seq } => {
                // Of what is on its way together a crash may take any part, and the end must not be what is left.
                let on_the_way = self.members.is_on_the_way_to(key);
                assert!(!on_the_way, "{key:?}: the end of an install before all of it is durable");
                (self.queue_plain(&head, &last_seq.0.to_le_bytes()), Install::End(last_seq))
            }
            other => unreachable!("{other:?} has a place in the group's order"),
        }
    }

    /// What is in records up to `durable` takes effect.
    pub(super) fn apply_member_entries(&mut self, durable: RecordSeq) {
        while self.members.pending.front().is_some_and(|pending| pending.record <= durable) {
            let Pending { record, commit, step, is_void } =
                self.members.pending.pop_front().expect("looked at just above");
            guard::at(record);
            match step {
                Step::State(group, number, bytes) => {
                    self.groups.entry(group).or_default().see_member_state(number, &bytes);
                }
                Step::Layer(layer) => self.install_layer(layer),
                Step::Skip(group, skip) => {
                    self.skip(group, &skip, commit);
                    self.end_skip(group, durable);
                }
                Step::Install(key, install) => {
                    let met = self.members.arrived(key);
                    if !is_void {
                        let left_out = if met > commit { met } else { Seq(0) };
                        let blocks = self.records.place(record).blocks;
                        self.apply_install(key, &install, blocks, left_out);
                    }
                    if let Install::Blocks { sums, .. } = install {
                        sums.recycle(&mut self.spare_sums);
                    }
                    self.write_deferred_leaf(key);
                }
            }
            self.records.release(record);
        }
    }

    /// Applies a step. `blocks`: where the blocks of its record begin; `left_out`: the last entry of the order behind a
    /// begin that the leaf has met already.
    pub(crate) fn apply_install(&mut self, key: LeafKey, install: &Install, blocks: DeviceUnit, left_out: Seq) {
        let (segments, gathering) = (&mut self.segments, self.log.gathering());
        let displaced = |block| segments.displaced(block, gathering);
        match install {
            Install::Begin { keeps: true } => {
                // Replay would find what the entry replaced.
                assert_eq!(left_out, Seq(0), "{key:?}: an entry came before the begin of its install was durable");
                self.index.keep_for_install(key);
            }
            Install::Begin { keeps: false } => {
                self.index.begin_install(key, left_out, displaced);
                // Whatever was lost of it, it will be whole.
                self.lost.is_found(key);
                if let Some(sure) = &mut self.lost.all_but {
                    sure.insert(key);
                }
            }
            Install::Blocks { range, offset_bytes, sums } => {
                let first = DeviceUnit(blocks.0 + u64::from(*offset_bytes) / UNIT_BYTES as u64);
                let mut end = first;
                let states = sums.as_slice().iter().map(|&(checksum, stored): &BlockSum| {
                    let block = StoredBlock { location: end, stored, checksum };
                    end = block.end();
                    BlockState::Stored(block)
                });
                if self.index.install(key, *range, states, displaced) {
                    self.segments.born(first, (end.0 - first.0) as u32);
                }
            }
            Install::Zero { range, hides_below } => {
                let zero = if *hides_below { BlockState::Zero } else { BlockState::Absent };
                self.index.install(key, *range, std::iter::repeat(zero), displaced);
            }
            Install::End(last_seq) => {
                self.index.end_install(key, *last_seq);
                self.end_emptied(key);
            }
        }
    }
}

impl Group {
    /// A state of this member: the one with the highest number counts.
    pub(crate) fn see_member_state(&mut self, number: u64, bytes: &[u8]) {
        self.member_states = self.member_states.max(number);
        if number > self.own.member.0 {
            self.own.member = (number, bytes.to_vec());
        }
    }
}

impl Shard {
    /// What this member of the group keeps for itself, as far as it is durable; empty if that is nothing.
    pub fn member_state(&self, group: GroupId) -> Vec<u8> {
        self.core.state.borrow().groups.get(&group).map_or_else(Vec::new, |of| of.own.member.1.clone())
    }

    /// The highest epoch of each volume in the group, prepared ones included.
    pub fn volume_epochs(&self, group: GroupId) -> Vec<(VolumeId, VolumeEpoch)> {
        self.core.state.borrow().groups.get(&group).map_or_else(Vec::new, |of| of.seen().volume_epochs)
    }

    /// The group's last record, a prepared one included. None: none is known.
    pub fn group_record(&self, group: GroupId) -> Option<Vec<u8>> {
        let record = self.core.state.borrow().groups.get(&group).map(|of| of.seen().record);
        record.filter(|record| !record.is_empty())
    }

    /// Layers of which prepared entries of the group tell: who applies these knows them.
    pub fn layers_of_prepared(&self, group: GroupId) -> Vec<LayerRecord> {
        let state = self.core.state.borrow();
        let prepared = state.groups.get(&group).map(|of| &of.prepared);
        let layer = |entry: &Prepared| match entry.action {
            Action::Layer(record) => Some(record),
            _ => None,
        };
        prepared.into_iter().flatten().filter_map(layer).collect()
    }
}
