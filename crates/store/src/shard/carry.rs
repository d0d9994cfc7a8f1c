//! What waits in an old record is written again at the end of the log: replay then begins behind it, and the segments
//! before can be used again. As the cleaner moves blocks, so this moves entries that have a place in their group's order
//! and are not committed.
//!
//! ```text
//!   log      … 5 6 7 │ dead │ dead │ dead │ … 8 9 │ 5' 6' 7'
//!   replay ────▲ before                              │ durable: 5 6 7 wait here from now on
//!                              after, of the next pass ▲
//! ```
//!
//! Without it one group that cannot commit would hold back every segment behind its oldest entry, until the device has
//! none left; and then also for what that group needs to go on.
//!
//! **Never** in the place of the first before it is durable: a crash between the two leaves the first, which the last
//! complete pass still begins with. What was cut, skipped or applied meanwhile is left as it is: the copy says nothing
//! that its first did not say, and replay takes it for the same entry ([`EntryFlags::CARRIED`]).

use super::pass::durable_through;
use super::prepared::Wanted;
use super::{Action, Prepared, Role, ShardCore, State, guard};
use crate::entry::Entry;
use crate::format::record::record_length_bytes;
use crate::format::{EntryFlags, MAX_RECORD_BYTES, RecordSeq, Stream};
use crate::ordered::ordered_bytes;
use std::rc::Rc;
use types::{Epoch, GroupId, Mutant, Seq, mutant};

/// An entry on its way to its new record.
struct Carried {
    group: GroupId,
    seq: Seq,
    epoch: Epoch,
    from: RecordSeq,
    to: RecordSeq,
    /// What it is there.
    action: Action,
}

impl ShardCore {
    /// The record whose entries are to be written again: the oldest that something waits in, if it holds back segments
    /// that are dead or worth cleaning, and clients wait for segments or will.
    pub(super) fn carry_is_due(&self, state: &State) -> Option<RecordSeq> {
        let (free, space) = (self.store.pool.free_count(), self.space());
        if free > space.for_overwrites + 1 || state.lost.any {
            return None;
        }
        let oldest = state.records.oldest()?;
        let is_old = oldest.seq <= self.durable_record.get()
            && oldest.place.is_some_and(|place| state.segments.get(place.pointer.segment).role != Role::Open);
        if !is_old || state.pass.uncarried == Some(oldest.seq) || !state.has_prepared_in(oldest.seq) {
            return None;
        }
        let has_room = free > self.kept_for_passes() || state.log.has_open(Stream::Hot, MAX_RECORD_BYTES);
        let holds_back = || state.pass.held_back && oldest.seq < state.pass.root.pass_first.seq;
        (has_room && (holds_back() || state.cleaning_is_held_up(self))).then_some(oldest.seq)
    }

    /// Free segments that are left to passes: they give back what is dead.
    fn kept_for_passes(&self) -> u32 {
        u32::from(self.store.shard_count())
    }
}

/// Writes again what waits in the record. `None` when the shard has ended.
pub(super) async fn carry(core: &Rc<ShardCore>, record: RecordSeq) -> Option<()> {
    let wanted = core.state.borrow().prepared_in(record);
    let all: Vec<Wanted> = wanted.iter().flat_map(|(_, of_group)| of_group).copied().collect();
    let _kept = core.keep(&all);
    let mut entries = Vec::with_capacity(all.len());
    for (group, of_group) in &wanted {
        let read = core.read_entries(*group, of_group, &mut entries).await;
        core.note_read(&read);
        core.check_open().ok()?;
        if read.is_err() {
            // Whoever needs it is told then; as long as it is there, nothing before it becomes free.
            core.state.borrow_mut().pass.uncarried = Some(record);
            return Some(());
        }
    }
    let Some(carried) = core.state.borrow_mut().queue_again(core, record, entries) else { return Some(()) };
    let Some(last) = carried.iter().map(|one| one.to).max() else { return Some(()) };
    core.counters.borrow_mut().carried += carried.len() as u64;
    core.work.wake_all();
    if !mutant(Mutant::CarriedBeforeDurable) {
        durable_through(core, last).await?;
    }
    core.state.borrow_mut().take_the_copies(carried);
    core.durable_changed.wake_all();
    Some(())
}

impl State {
    fn has_prepared_in(&self, record: RecordSeq) -> bool {
        // A skip on its way would leave them behind, and come before them in the log.
        let may_go = self.groups.values().filter(|of| of.skips_on_the_way == 0);
        may_go.flat_map(|of| &of.prepared).any(|entry| entry.record == record)
    }

    /// What waits in the record, by group, in order.
    fn prepared_in(&self, record: RecordSeq) -> Vec<(GroupId, Vec<Wanted>)> {
        let mut found = Vec::new();
        for group in super::sorted_ids(&self.groups) {
            let is_it = |entry: &&Prepared| entry.record == record;
            let of_group: Vec<_> = self.groups[&group].prepared.iter().filter(is_it).map(Wanted::of).collect();
            if !of_group.is_empty() {
                found.push((group, of_group));
            }
        }
        found
    }

    /// Queues those that still wait in `record`; `None` if there is no room.
    fn queue_again(&mut self, core: &ShardCore, record: RecordSeq, mut entries: Vec<Entry>) -> Option<Vec<Carried>> {
        entries.retain(|entry| {
            let of = self.groups.get(&entry.group);
            let waits = of.is_some_and(|of| of.skips_on_the_way == 0 && of.waits(entry.seq, entry.epoch, record));
            waits || mutant(Mutant::CarriedThoughCut) && of.is_some_and(|of| entry.seq > of.committed)
        });
        let (mut heads, mut blocks) = (0, 0);
        for entry in &entries {
            let bytes = ordered_bytes(entry).expect("it was in the log");
            (heads, blocks) = (heads + bytes.head, blocks + bytes.blocks);
        }
        let length_bytes = record_length_bytes(heads, blocks, self.log.block_size_bytes);
        if !self.secure(core, Stream::Hot, length_bytes, core.kept_for_passes()) {
            return None;
        }
        let mut carried = Vec::with_capacity(entries.len());
        for entry in entries {
            let Entry { group, seq, epoch, .. } = entry;
            let committed = self.groups[&group].committed;
            let (to, action) = self.encode_ordered(entry, committed, EntryFlags::CARRIED);
            self.log.next_position();
            self.records.hold(to);
            carried.push(Carried { group, seq, epoch, from: record, to, action });
        }
        Some(carried)
    }

    /// Replay: puts a copy in the place of its first, or where that would be.
    pub(crate) fn place_carried(&mut self, group: GroupId, entry: Prepared) {
        guard::at(entry.record);
        let of = self.groups.entry(group).or_default();
        if entry.seq <= of.committed || entry.epoch < of.applied_epoch() {
            return;
        }
        self.records.hold(entry.record);
        match of.prepared.binary_search_by_key(&entry.seq, |there| there.seq) {
            Ok(at) if of.prepared[at].epoch == entry.epoch => {
                let first = std::mem::replace(&mut of.prepared[at], entry);
                self.records.release(first.record);
            }
            Ok(_) => {
                // Its first took the place of this, and is damaged.
                self.drop_last_while(group, |last| last.seq >= entry.seq);
                self.groups.get_mut(&group).expect("entered just above").prepared.push_back(entry);
            }
            Err(at) => of.prepared.insert(at, entry),
        }
    }

    /// The copies are durable: what still waits waits there.
    fn take_the_copies(&mut self, carried: Vec<Carried>) {
        for Carried { group, seq, epoch, from, to, action } in carried {
            let of = self.groups.get_mut(&group);
            let waiting = of.and_then(|of| of.waiting_mut(seq, epoch)).filter(|entry| entry.record == from);
            let (left, unused) = match waiting {
                Some(entry) => {
                    entry.record = to;
                    (from, std::mem::replace(&mut entry.action, action))
                }
                None => (to, action),
            };
            self.records.release(left);
            unused.recycle(&mut self.spare_sums);
        }
    }
}

impl super::Group {
    fn waits(&self, seq: Seq, epoch: Epoch, record: RecordSeq) -> bool {
        self.prepared.iter().any(|entry| (entry.seq, entry.epoch, entry.record) == (seq, epoch, record))
    }

    /// The entry, if it is not applied.
    fn waiting_mut(&mut self, seq: Seq, epoch: Epoch) -> Option<&mut Prepared> {
        self.prepared.iter_mut().find(|entry| (entry.seq, entry.epoch) == (seq, epoch))
    }
}
