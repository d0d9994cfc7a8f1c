//! The groups of one shard: what they queue becomes durable together and is committed together.

use crate::error::StartError;
use crate::fill::bytes_of_groups;
use crate::group::{Group, GroupRef, MemberState};
use crate::left::Left;
use crate::node::{CoreGroups, Timing};
use crate::pace::Pace;
use crate::protocol::{Effect, History, Member, Place};
use crate::record::membership_of;
use cluster::{Forced, GroupRecord, decode};
use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashSet};
use runtime::channel::WaitList;
use runtime::now;
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;
use store::{AppendError, AppendTimes, Entry, GroupRecovery, LogPosition, ReadError, Recovery, Shard};
use types::{Epoch, FamilyId, GroupId, Incarnation, Mutant, Seq, StoreId, mutant};

/// The epoch of a group's first start.
const FIRST_EPOCH: Epoch = Epoch(1);
/// What has its place in the order, and finds no room in the store, is offered again so often.
const FULL_WAIT: Duration = Duration::from_millis(50);

/// An entry that the store has queued.
struct Queued {
    position: LogPosition,
    group: u32,
    place: Place,
}

/// Is shown entries.
#[cfg(feature = "witness")]
pub type Witness = dyn Fn(&Entry);

/// One shard of a store and the groups that live in it. Lives on the shard's core.
pub struct GroupShard {
    shard: Rc<Shard>,
    store: StoreId,
    groups: RefCell<Vec<GroupRef>>,
    by_id: RefCell<HashMap<GroupId, u32, FixedState>>,
    /// In the order of the log; the front becomes durable first.
    queued: RefCell<VecDeque<Queued>>,
    /// Of each group, the last that became durable with a record; empty between the records.
    settling: RefCell<Vec<(u32, Place)>>,
    /// Entries that have their place in the order, and that the store has not taken yet.
    intake: RefCell<VecDeque<(u32, Entry)>>,
    intake_changed: WaitList,
    /// Groups that have something to send at the end of this turn.
    dirty: RefCell<Vec<u32>>,
    dirtied: WaitList,
    /// What was found when the shard was opened, for groups whose record comes later.
    recovery: Recovery,
    /// Groups that the store has left, as far as what is here of them is being dropped.
    pub(crate) left: RefCell<HashMap<GroupId, Left, FixedState>>,
    /// Groups that have begun to be dropped in this life.
    pub(crate) gave_up: RefCell<HashSet<GroupId, FixedState>>,
    /// Families that the map does not know: their leaves are nobody's.
    pub(crate) orphans: RefCell<HashSet<FamilyId, FixedState>>,
    /// Times of the record that was settled last.
    settled: Cell<AppendTimes>,
    /// Nothing more is taken.
    has_ended: Cell<bool>,
    /// The node's share of this core, if there are other members.
    outside: OnceCell<Weak<CoreGroups>>,
    /// How fast goes what no client waits for; one for all shards of a core.
    pace: Rc<Pace>,
    #[cfg(feature = "witness")]
    witness: RefCell<Option<Rc<Witness>>>,
}

impl GroupShard {
    /// A shard without groups.
    pub fn new(shard: Rc<Shard>, store: StoreId, recovery: Recovery) -> Rc<Self> {
        Self::with(shard, store, recovery, Rc::default())
    }

    /// The same on a core that has a pace.
    pub(crate) fn with(shard: Rc<Shard>, store: StoreId, recovery: Recovery, pace: Rc<Pace>) -> Rc<Self> {
        let this = Rc::new(Self {
            shard,
            store,
            groups: RefCell::default(),
            by_id: RefCell::default(),
            queued: RefCell::default(),
            settling: RefCell::default(),
            intake: RefCell::default(),
            intake_changed: WaitList::default(),
            dirty: RefCell::default(),
            dirtied: WaitList::default(),
            recovery,
            left: RefCell::default(),
            gave_up: RefCell::default(),
            orphans: RefCell::default(),
            settled: Cell::default(),
            has_ended: Cell::new(false),
            outside: OnceCell::new(),
            pace,
            #[cfg(feature = "witness")]
            witness: RefCell::default(),
        });
        runtime::spawn(commit_loop(this.clone()));
        runtime::spawn(take_in_loop(this.clone()));
        runtime::spawn(flush_loop(this.clone()));
        this
    }

    /// Starts the groups of `records`, of which this store is the only member and each of which is already in its new
    /// epoch in the map; returns when those that can serve do. Groups that cannot are returned with the reason; they stay
    /// stopped.
    pub async fn start(
        shard: Rc<Shard>,
        store: StoreId,
        recovery: Recovery,
        records: Vec<GroupRecord>,
    ) -> (Rc<Self>, Vec<StartError>) {
        let this = Self::new(shard, store, recovery);
        let mut refused = Vec::new();
        let mut starting = Vec::with_capacity(records.len());
        for record in records {
            let checked = this.check_start(&record);
            let group = this.begin_alone(record);
            match checked {
                Ok(()) => starting.push(group),
                Err(error) => {
                    group.stop(&error.to_string());
                    refused.push(error);
                }
            }
        }
        for group in starting {
            group.with(|member| {
                if !member.leads() {
                    lead_alone(member)
                }
            });
            // Everything queued so far: with it all that was found prepared is committed.
            if let Err(error) = group.wait_begun().await {
                let reason = AppendError::Failed { reason: error.to_string().into() };
                refused.push(StartError::Append { group: group.id(), error: reason });
            }
        }
        (this, refused)
    }

    /// A group whose record of this start is in the map: the member begins with the one before it.
    fn begin_alone(self: &Rc<Self>, record: GroupRecord) -> GroupRef {
        let goes_on = mutant(Mutant::OldEpochAfterRestart) && record.epoch > FIRST_EPOCH;
        let before = Epoch(record.epoch.0 - u32::from(!goes_on));
        self.open(GroupRecord { epoch: before, ..record }, Timing::default())
    }

    /// A group takes part from now on. `record`: the map's, by a look that began after the store was opened.
    pub(crate) fn open(self: &Rc<Self>, record: GroupRecord, timing: Timing) -> GroupRef {
        let recovered = self.recovered(record.id);
        let in_log = || decode::<GroupRecord>("", recovered?.record.as_deref()?).ok();
        let record = if mutant(Mutant::StartedWithoutLook) { in_log().unwrap_or(record) } else { record };
        let epochs = recovered.map_or_else(Vec::new, |group| group.epoch_history.clone());
        let last = recovered.map_or(Seq(0), |group| group.prepared_through);
        let committed = recovered.map_or(Seq(0), |group| group.committed);
        let log = History::new(epochs, last);
        let mut written = self.state_as_found(record.id);
        // An operator has said whose copy counts, and nothing came here since.
        let heeds = |store: StoreId| store == self.store || !mutant(Mutant::ForceHeardByOneOnly);
        let is_news = |forced: &Forced| log.newest().epoch < forced.epoch && heeds(forced.store);
        let forced = record.forced.filter(is_news);
        let counts = forced.is_some_and(|forced| forced.store == self.store);
        if !counts && forced.is_some() {
            written.poison = None;
        }
        let heard = written.heard.filter(|_| !mutant(Mutant::HeardForgotten));
        let known = heard.into_iter().chain(in_log().map(|record| Arc::new(membership_of(&record))));
        let known = known.max_by_key(|known| known.epoch);
        let doubtful_from = match forced {
            Some(_) => (!counts).then_some(Seq(0)),
            None => self.doubtful_from(&record, recovered),
        };
        let mut member = Member::start(
            self.store,
            self.life(),
            timing.settings(),
            (membership_of(&record), known),
            log,
            committed,
            !counts && written.whole && doubtful_from.is_none() && !self.has_given_up(record.id),
            now(),
        );
        if let Some(poison) = written.poison {
            member.knows_poison(poison);
        }
        let is_lost = member.is_alone() && !member.is_whole() && !counts;
        let mut groups = self.groups.borrow_mut();
        let index = groups.len() as u32;
        self.by_id.borrow_mut().insert(record.id, index);
        let group = Rc::new(Group::new(record, member, Rc::downgrade(self), index, timing.kept_bytes));
        groups.push(group.clone());
        drop(groups);
        if let Some(from) = doubtful_from {
            group.set_doubtful_from(from);
            group.set_log_in_doubt(!mutant(Mutant::TornLogBelieved));
        }
        match forced {
            Some(forced) if counts => group.begin_to_count(forced),
            Some(forced) => group.has_heeded_force(forced.epoch),
            None => {}
        }
        if let Some(outside) = self.outside() {
            // What the index lost is damage that need not be met first.
            let (owner, (lost, are_more_lost)) = (outside.owner(), self.shard.lost_leaves());
            if are_more_lost {
                group.note_doubt();
            }
            for (layer, chunk) in lost {
                let family = self.shard.layer(layer).map_or(FamilyId(0), |record| record.family);
                if owner(family, chunk) == Some(group.id()) {
                    group.note_damage(&ReadError::IndexLost { layer, chunk });
                }
            }
        }
        if is_lost {
            // Nobody has what it lacks.
            group.stop(&StartError::Damaged { group: group.id() }.to_string());
        }
        group
    }

    /// Groups of which something was here when the shard was opened.
    pub(crate) fn recovered_groups(&self) -> impl Iterator<Item = GroupId> + '_ {
        self.recovery.groups.iter().map(|group| group.group)
    }

    /// What was found of the group when the shard was opened.
    fn recovered(&self, group: GroupId) -> Option<&GroupRecovery> {
        let groups = &self.recovery.groups;
        groups.binary_search_by_key(&group, |known| known.group).ok().map(|at| &groups[at])
    }

    /// What a member of the group wrote down of itself before the shard was opened.
    pub(crate) fn state_as_found(&self, group: GroupId) -> MemberState {
        MemberState::decode(self.recovered(group).and_then(|group| group.member_state.as_deref()))
    }

    /// Whether this store may lack something that it acknowledged: then from which entry on leaves are in doubt.
    fn doubtful_from(&self, record: &GroupRecord, recovered: Option<&GroupRecovery>) -> Option<Seq> {
        match recovered {
            Some(group) => group.damaged.then_some(group.doubtful_from),
            // The store knows nothing of it: it never began, or all that told of it is lost.
            None => (record.epoch >= FIRST_EPOCH && !self.recovery.damage.is_empty()).then_some(Seq(0)),
        }
    }

    /// Entries that the store has queued, and those that it has not taken.
    pub(crate) fn queue_lengths(&self) -> (usize, usize) {
        (self.queued.borrow().len(), self.intake.borrow().len())
    }

    /// Who is shown every entry that the store takes, from now on.
    #[cfg(feature = "witness")]
    pub fn set_witness(&self, witness: Rc<Witness>) {
        *self.witness.borrow_mut() = Some(witness);
    }

    #[cfg(feature = "witness")]
    fn show(&self, entry: &Entry) {
        if let Some(witness) = self.witness.borrow().as_ref() {
            witness(entry);
        }
    }

    /// Which of the store's lives this is.
    pub fn life(&self) -> Incarnation {
        self.shard.store().incarnation()
    }

    /// Whether nothing more is taken.
    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended.get()
    }

    /// The store.
    pub fn store_id(&self) -> StoreId {
        self.store
    }

    /// Times of the record whose entries were committed last: of theirs, to who waited for one of them and asks at once.
    pub(crate) fn settled(&self) -> AppendTimes {
        self.settled.get()
    }

    /// A group of this shard.
    pub fn group(&self, id: GroupId) -> Option<GroupRef> {
        let index = *self.by_id.borrow().get(&id)?;
        Some(self.group_at(index))
    }

    pub(crate) fn group_count(&self) -> u32 {
        self.groups.borrow().len() as u32
    }

    pub(crate) fn group_at(&self, index: u32) -> GroupRef {
        self.groups.borrow()[index as usize].clone()
    }

    /// All groups of this shard.
    pub fn groups(&self) -> Vec<GroupRef> {
        self.groups.borrow().clone()
    }

    /// The shard of the store below.
    pub fn store(&self) -> &Rc<Shard> {
        &self.shard
    }

    /// Bytes that are held here of each group; nothing, if it is not known yet whose all chunks are. Takes time in the number of
    /// chunks, between the turns in which clients are served.
    pub async fn bytes_of_groups(&self) -> Option<BTreeMap<GroupId, u64>> {
        bytes_of_groups(self, &self.outside()?.owner()).await
    }

    /// Where the other members are.
    pub(crate) fn outside(&self) -> Option<Rc<CoreGroups>> {
        self.outside.get()?.upgrade()
    }

    /// From now on there may be other members.
    pub(crate) fn pace(&self) -> &Pace {
        &self.pace
    }

    pub(crate) fn set_outside(&self, outside: &Rc<CoreGroups>) {
        let set = self.outside.set(Rc::downgrade(outside));
        assert!(set.is_ok(), "a shard belongs to one core");
    }

    // ---- entries -------------------------------------------------------------------------------------------------

    /// Queues an entry of the group at `index` that has no place in the order yet.
    pub(crate) fn prepare(&self, index: u32, entry: Entry) -> Result<(), AppendError> {
        if !self.intake.borrow().is_empty() {
            return Err(AppendError::Busy);
        }
        let place = (entry.term, entry.seq);
        #[cfg(feature = "witness")]
        let shown = entry.clone();
        let position = self.shard.prepare(entry)?;
        #[cfg(feature = "witness")]
        self.show(&shown);
        self.queued.borrow_mut().push_back(Queued { position, group: index, place });
        Ok(())
    }

    /// The same, of one that has its place: what is kept for overwrites is there for it (R17).
    fn queue(&self, index: u32, entry: Entry) -> Result<(), AppendError> {
        let place = (entry.term, entry.seq);
        #[cfg(feature = "witness")]
        let shown = entry.clone();
        let position = self.shard.prepare_ordered(entry)?;
        #[cfg(feature = "witness")]
        self.show(&shown);
        self.queued.borrow_mut().push_back(Queued { position, group: index, place });
        Ok(())
    }

    /// Queues an entry that has its place in the order: at once, or when the store takes it.
    pub(crate) fn take_in(&self, index: u32, entry: Entry) {
        if self.intake.borrow().is_empty() && self.queue(index, entry.clone()).is_ok() {
            return;
        }
        self.intake.borrow_mut().push_back((index, entry));
        self.intake_changed.wake_all();
    }

    /// Offers the store what it has not taken. The entries of a group stay in their order; those of others pass one that finds no
    /// room, as they may be what makes some.
    ///
    /// # Errors
    /// What the store said of one that is left.
    fn offer_intake(&self) -> Result<(), AppendError> {
        let mut without_room = Vec::new();
        let mut refused = Ok(());
        let mut at = 0;
        while let Some((index, entry)) = self.next_of_others(&mut at, &without_room) {
            match self.queue(index, entry) {
                Ok(()) => {
                    self.intake.borrow_mut().remove(at);
                    self.group_at(index).finds_no_room_since.set(None);
                }
                Err(error @ AppendError::NoSpace { .. }) if !mutant(Mutant::NobodyPassesFull) => {
                    let since = &self.group_at(index).finds_no_room_since;
                    since.set(since.get().or(Some(now())));
                    without_room.push(index);
                    refused = Err(error);
                }
                Err(error) => {
                    refused = Err(error);
                    break;
                }
            }
        }
        if self.intake.borrow().is_empty() {
            self.intake_changed.wake_all();
        }
        refused
    }

    /// The first entry of the intake from `at` on, where it then stands, that is of none of these groups.
    fn next_of_others(&self, at: &mut usize, groups: &[u32]) -> Option<(u32, Entry)> {
        let intake = self.intake.borrow();
        let (found, next) = intake.iter().enumerate().skip(*at).find(|(_, (index, _))| !groups.contains(index))?;
        *at = found;
        Some(next.clone())
    }

    /// Entries of the group behind `through` are not in its order any more.
    pub(crate) fn forget_queued(&self, index: u32, through: Seq) {
        self.queued.borrow_mut().retain(|queued| queued.group != index || queued.place.1 <= through);
        self.intake.borrow_mut().retain(|(group, entry)| *group != index || entry.seq <= through);
        self.group_at(index).finds_no_room_since.set(None);
        if self.intake.borrow().is_empty() {
            self.intake_changed.wake_all();
        }
    }

    /// Resolves when what the store, or those before in the queue, left no room for may be tried again.
    pub(crate) async fn room(&self) -> Result<(), AppendError> {
        if !self.intake.borrow().is_empty() {
            self.intake_changed.until(|| self.intake.borrow().is_empty().then_some(())).await;
        }
        self.shard.room().await
    }

    /// The group has something to send when this turn ends.
    pub(crate) fn mark_dirty(&self, group: &Group) {
        if !group.is_dirty.replace(true) {
            self.dirty.borrow_mut().push(group.index());
            self.dirtied.wake_all();
        }
    }

    /// Everything through `durable` is on the device.
    fn settle(&self, durable: LogPosition) {
        self.settled.set(self.shard.last_append());
        let mut settling = self.settling.take();
        {
            let mut queued = self.queued.borrow_mut();
            while queued.front().is_some_and(|front| front.position <= durable) {
                let Queued { group, place, .. } = queued.pop_front().expect("looked at just above");
                match settling.last_mut() {
                    Some((last, through)) if *last == group => *through = place,
                    _ => settling.push((group, place)),
                }
            }
        }
        for (index, place) in settling.drain(..) {
            self.group_at(index).is_durable(place);
        }
        *self.settling.borrow_mut() = settling;
    }

    pub(crate) fn stop_all(&self, reason: &str) {
        let groups = self.groups();
        groups.iter().for_each(|group| group.stop(reason));
        self.has_ended.set(true);
        self.intake.borrow_mut().clear();
        self.intake_changed.wake_all();
        self.dirtied.wake_all();
    }

    /// Whether the record may be served from what this member holds, alone.
    fn check_start(&self, record: &GroupRecord) -> Result<(), StartError> {
        let group = record.id;
        if record.primary != self.store || record.in_sync != [self.store] {
            return Err(StartError::NotOurs { group });
        }
        if record.in_sync.len() < record.min_in_sync as usize {
            return Err(StartError::TooFewInSync { group, in_sync: record.in_sync.len(), needed: record.min_in_sync });
        }
        let Some(recovered) = self.recovered(group) else {
            let may_be_lost = record.epoch > FIRST_EPOCH && !self.recovery.damage.is_empty();
            return if may_be_lost { Err(StartError::Damaged { group }) } else { Ok(()) };
        };
        if recovered.damaged {
            return Err(StartError::Damaged { group });
        }
        let in_history = recovered.epoch_history.last().map(|&(term, _)| term.epoch);
        let in_record = recovered.record.as_deref().and_then(|bytes| decode::<GroupRecord>("", bytes).ok());
        let member = in_history.max(in_record.map(|record| record.epoch)).unwrap_or_default();
        let goes_on = mutant(Mutant::OldEpochAfterRestart) && member == record.epoch;
        if member >= record.epoch && !goes_on {
            return Err(StartError::MapWentBack { group, map: record.epoch, member });
        }
        Ok(())
    }
}

/// The only member of its group leads it: the map has said so already.
fn lead_alone(member: &mut Member) {
    member.campaign();
    member.propose_to_lead(now());
    let asked = member.take_effects().into_iter().find_map(|effect| match effect {
        Effect::Propose(record, _) => Some(record),
        _ => None,
    });
    if let Some(record) = asked {
        member.changed(&record);
    }
}

/// Commits what becomes durable, for as long as the shard takes anything.
async fn commit_loop(shard: Rc<GroupShard>) {
    let mut seen = LogPosition(0);
    loop {
        match shard.shard.durable_changed(seen).await {
            Ok(durable) => {
                seen = durable;
                shard.settle(durable);
            }
            Err(error) => return shard.stop_all(&error.to_string()),
        }
    }
}

/// Offers the store what has its place in the order, in that order, for as long as it takes anything.
async fn take_in_loop(shard: Rc<GroupShard>) {
    loop {
        let next = || match shard.has_ended.get() {
            true => Some(false),
            false => (!shard.intake.borrow().is_empty()).then_some(true),
        };
        if !shard.intake_changed.until(next).await {
            return;
        }
        match shard.offer_intake() {
            Ok(()) => {}
            Err(AppendError::Busy) => {
                if shard.shard.room().await.is_err() {
                    return;
                }
            }
            // Somebody may delete something.
            Err(AppendError::NoSpace { .. }) => runtime::sleep(FULL_WAIT).await,
            Err(_) => return,
        }
    }
}

/// Sends what was given a place in a turn, at its end: what came together leaves together.
async fn flush_loop(shard: Rc<GroupShard>) {
    let mut due = Vec::new();
    loop {
        let due_or_over = || (shard.has_ended.get() || !shard.dirty.borrow().is_empty()).then_some(());
        shard.dirtied.until(due_or_over).await;
        if shard.has_ended.get() {
            return;
        }
        runtime::turn_end().await;
        std::mem::swap(&mut due, &mut *shard.dirty.borrow_mut());
        for index in due.drain(..) {
            let group = shard.groups.borrow()[index as usize].clone();
            group.flush();
        }
    }
}
