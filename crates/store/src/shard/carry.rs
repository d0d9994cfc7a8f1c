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

use super::clean::{READ_TRIES, RETRY_WAIT};
use super::pass::durable_through;
use super::prepared::Wanted;
use super::{Action, Prepared, ShardCore, State, guard};
use crate::entry::Entry;
use crate::format::record::record_length_bytes;
use crate::format::{EntryFlags, MAX_RECORD_BYTES, RecordSeq, Stream};
use crate::ordered::ordered_bytes;
use runtime::{Instant, now, sleep};
use std::rc::Rc;
use std::time::Duration;
use types::{GroupId, Mutant, Seq, Term, mutant};

/// How often it is looked what is held back, as long as segments are short: that takes time in their number.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// A record that could not be read is tried again after this.
const TRIED_AGAIN_AFTER: Duration = Duration::from_secs(10);
/// Besides its entries and blocks: where the entries go into two records, the header and padding of the second.
const ROOM_BESIDE_BYTES: usize = 2 * types::BLOCK_BYTES;

/// An entry on its way to its new record.
struct Carried {
    group: GroupId,
    seq: Seq,
    term: Term,
    from: RecordSeq,
    to: RecordSeq,
    /// What it is there.
    action: Action,
}

/// What is to be written again.
#[derive(Default)]
pub(crate) struct Carrying {
    /// What waits in records up to this one.
    through: Option<RecordSeq>,
    /// Something was, since the last pass began: the next one frees what it held back.
    pub(super) is_done: bool,
    /// A record that could not be read, and when.
    failed: Option<(RecordSeq, Instant)>,
}

/// As long as segments are short and something waits, looks whether it holds back enough to be written again.
pub(super) async fn run_carrier(core: Rc<ShardCore>) {
    let is_short = || (core.segments_run_out() && core.state.borrow().records.oldest_waiting().is_some()).then_some(());
    while core.until(&core.durable_changed, is_short).await.is_some() {
        sleep(LOOK_EVERY).await;
        let through = core.held_back_through(&core.state.borrow());
        core.state.borrow_mut().pass.carrying.through = through;
        if through.is_some() {
            core.durable_changed.wake_all();
        }
    }
}

impl ShardCore {
    /// Clients wait for segments, or will with the next one.
    pub(super) fn segments_run_out(&self) -> bool {
        self.store.pool.free_count() <= self.space().for_overwrites + 1
    }

    /// Whether writing again what waits would free more than it costs.
    pub(super) fn carry_pays(&self, state: &State) -> bool {
        self.held_back_through(state).is_some()
    }

    /// What waits up to this record holds back more than it costs to write it again, and the pass that is due then. So it
    /// comes to an end where nobody writes: each round leaves less behind than it frees.
    fn held_back_through(&self, state: &State) -> Option<RecordSeq> {
        let oldest = state.records.oldest_waiting().filter(|_| self.segments_run_out() && !state.lost.any)?;
        let (held_bytes, through) = state.held_back(self, oldest)?;
        let cost_bytes = state.waiting_bytes(oldest, through) / 2 + 2 * state.pass.cost_bytes();
        (held_bytes > cost_bytes).then_some(through)
    }

    /// Whether what waits in the oldest record is to be written again, and can be now.
    pub(super) fn may_carry(&self, state: &State) -> bool {
        let Some(through) = state.pass.carrying.through else { return false };
        let Some(oldest) = state.records.oldest_waiting().filter(|oldest| *oldest <= through) else { return false };
        let has_failed = |(record, at): (RecordSeq, Instant)| record == oldest && now().since(at) < TRIED_AGAIN_AFTER;
        if oldest > self.durable_record.get() || state.pass.carrying.failed.is_some_and(has_failed) {
            return false;
        }
        let bytes = state.waiting_bytes(oldest, oldest);
        let has_room = || {
            let longest = (bytes as usize + ROOM_BESIDE_BYTES).min(MAX_RECORD_BYTES);
            self.store.pool.free_count() > self.kept_for_passes() || state.log.has_open(Stream::Hot, longest)
        };
        bytes > 0 && has_room()
    }

    /// Free segments that are left to passes: they give back what is dead.
    fn kept_for_passes(&self) -> u32 {
        u32::from(self.store.shard_count()) + self.store.kept_for_long_passes()
    }
}

/// Writes again what waits in the oldest record. `None` when the shard has ended.
pub(super) async fn carry(core: &Rc<ShardCore>) -> Option<()> {
    let oldest = core.state.borrow().records.oldest_waiting();
    let Some(record) = oldest else { return Some(()) };
    let wanted = core.state.borrow().prepared_in(record);
    let Some((_, first)) = wanted.first() else { return Some(()) };
    let _kept = core.keep(first);
    let mut read = core.read_waiting(record, &wanted).await;
    for _ in 1..READ_TRIES {
        if read.is_ok() {
            break;
        }
        sleep(RETRY_WAIT).await;
        core.check_open().ok()?;
        read = core.read_waiting(record, &wanted).await;
    }
    core.note_read(&read.as_ref().map(drop).map_err(Clone::clone));
    core.check_open().ok()?;
    let Ok(entries) = read else {
        // As long as it is there, nothing behind it becomes free.
        core.state.borrow_mut().pass.carrying.failed = Some((record, now()));
        return Some(());
    };
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
    /// Bytes of the entries that wait in these records, about.
    fn waiting_bytes(&self, first: RecordSeq, last: RecordSeq) -> u64 {
        // A skip on its way would leave them behind, and come before them in the log.
        let may_go = self.groups.values().filter(|of| of.skips_on_the_way == 0);
        let waiting = may_go.flat_map(|of| &of.prepared).filter(|entry| (first..=last).contains(&entry.record));
        waiting.map(|entry| entry.action.about_bytes() as u64).sum()
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
            let waits = of.is_some_and(|of| of.skips_on_the_way == 0 && of.waits(entry.seq, entry.term, record));
            waits || mutant(Mutant::CarriedThoughCut) && of.is_some_and(|of| entry.seq > of.committed)
        });
        let (mut heads, mut blocks) = (0, 0);
        for entry in &entries {
            let bytes = ordered_bytes(entry).expect("it was in the log");
            (heads, blocks) = (heads + bytes.head, blocks + bytes.blocks);
        }
        let length_bytes = (record_length_bytes(heads, blocks, self.log.block_size_bytes) + ROOM_BESIDE_BYTES)
            .min((core.store.geometry.segment_size_bytes - self.log.block_size_bytes) as usize);
        if !self.secure(core, Stream::Hot, length_bytes, core.kept_for_passes()) {
            return None;
        }
        let mut carried = Vec::with_capacity(entries.len());
        for entry in entries {
            let Entry { group, seq, term, .. } = entry;
            let committed = self.groups[&group].committed;
            let (to, action) = self.encode_ordered(entry, committed, EntryFlags::CARRIED);
            self.log.next_position();
            self.records.hold(to);
            self.names_layers_again(&action, to);
            carried.push(Carried { group, seq, term, from: record, to, action });
        }
        Some(carried)
    }

    /// Replay: puts a copy in the place of its first, or where that would be.
    pub(crate) fn place_carried(&mut self, group: GroupId, entry: Prepared) {
        guard::at(entry.record);
        let of = self.groups.entry(group).or_default();
        if entry.seq <= of.committed || entry.term < of.applied_term() {
            return;
        }
        self.records.hold(entry.record);
        match of.prepared.binary_search_by_key(&entry.seq, |there| there.seq) {
            Ok(at) if of.prepared[at].term == entry.term => {
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
        self.pass.carrying.is_done = true;
        for Carried { group, seq, term, from, to, action } in carried {
            let of = self.groups.get_mut(&group);
            let waiting = of.and_then(|of| of.waiting_mut(seq, term)).filter(|entry| entry.record == from);
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
    fn waits(&self, seq: Seq, term: Term, record: RecordSeq) -> bool {
        let at = self.prepared.partition_point(|entry| entry.seq < seq);
        self.prepared.get(at).is_some_and(|entry| (entry.seq, entry.term, entry.record) == (seq, term, record))
    }

    /// The entry, if it is not applied.
    fn waiting_mut(&mut self, seq: Seq, term: Term) -> Option<&mut Prepared> {
        let at = self.prepared.partition_point(|entry| entry.seq < seq);
        self.prepared.get_mut(at).filter(|entry| (entry.seq, entry.term) == (seq, term))
    }
}
