//! What the protocol decides for a member is done here: entries appended, cut and committed, messages sent, the map asked.

use super::{Group, MemberState};
use crate::fill::member::may_come;
use crate::protocol::{Effect, Member, Membership, Message, Place, Refusal};
use crate::record::{membership_of, with_membership};
use crate::shard::GroupShard;
use crate::wire::RequestId;
use cluster::GroupRecord;
use runtime::{Instant, IoBuf, now};
use std::rc::Rc;
use store::{Committed, Entry, EntryKind};
use types::{ChunkId, Epoch, Incarnation, LayerId, Mutant, Seq, StoreId, Term, VolumeEpoch, mutant};

/// A message from another member.
pub(crate) struct Received<'a> {
    pub(crate) message: &'a Message,
    /// What it names.
    pub(crate) request: RequestId,
    /// In which attempt to make this member whole it is sent.
    pub(crate) attempt: u64,
    pub(crate) entries: &'a mut Vec<Entry>,
}

impl Group {
    /// Has the member decide, and does what it says.
    pub(crate) fn with<T>(&self, decide: impl FnOnce(&mut Member) -> T) -> T {
        let decided = decide(&mut self.member.borrow_mut());
        self.carry_out(&mut Vec::new());
        decided
    }

    /// Looks at the member.
    pub(crate) fn member(&self) -> std::cell::Ref<'_, Member> {
        self.member.borrow()
    }

    /// A message has come, with these entries.
    pub(crate) fn receive(&self, from: StoreId, life: Incarnation, received: Received<'_>) {
        let Received { message, request, attempt, entries } = received;
        if self.stopped.get().is_some() {
            let refused = self.member.borrow().refuses(message);
            if let (Some(refused), Some(shard)) = (refused, self.shard.upgrade()) {
                self.send(&shard, from, refused, None);
            }
            return;
        }
        if !may_come(self, entries, attempt) {
            return;
        }
        match message {
            Message::Prepared { epoch, .. } => {
                self.timers.borrow_mut().heard_commit(from, Seq(request.0));
                self.follows_since(from, *epoch);
            }
            Message::Told { epoch, .. } => {
                self.timers.borrow_mut().told_history(from);
                self.follows_since(from, *epoch);
            }
            _ => {}
        }
        let mut terms = self.terms.take();
        terms.clear();
        terms.extend(entries.iter().map(|entry| entry.term));
        self.member.borrow_mut().receive(from, life, message, &terms);
        self.terms.replace(terms);
        self.carry_out(entries);
        if self.held_for.get() == Some(from) {
            self.add_held_for();
        }
        self.note_poison();
    }

    /// An entry that nobody can apply is written down: whoever starts anew must not try it either (R16).
    fn note_poison(&self) {
        let poison = self.poison_to_write();
        if poison == self.poison_noted.get() || mutant(Mutant::PoisonForgotten) {
            return;
        }
        // It is said again and again: once more where there is no room now.
        if self.write_state() {
            self.poison_noted.set(poison);
        }
    }

    /// A record that was heard of and is not in this member's log yet is written down: whoever starts anew must not go by an
    /// older map (R11).
    pub(crate) fn note_heard(&self) {
        let heard = {
            let member = self.member.borrow();
            let epoch = member.record().epoch;
            (epoch > self.heard_noted.get() && !member.has_in_log(epoch)).then_some(epoch)
        };
        if let Some(epoch) = heard
            && self.write_state()
        {
            self.heard_noted.set(epoch);
        }
    }

    /// What an operator's word has ended stands on the device until something of a later epoch stands there, too: a life that
    /// begins before that is to find it, and to give up what it stands for.
    fn poison_to_write(&self) -> Option<Seq> {
        let member = self.member.borrow();
        let is_over = member.has_in_log(self.forced_by.get());
        member.poison().or_else(|| self.poison_noted.get().filter(|_| !is_over))
    }

    /// What the member is to have written down of itself, if it is `whole` or not.
    fn state_to_write(&self, whole: bool) -> MemberState {
        let member = self.member.borrow();
        let heard = Some(member.record().clone()).filter(|record| !member.has_in_log(record.epoch));
        let is_forgotten = mutant(Mutant::FillNotNoted) || mutant(Mutant::LeftTakenForWhole);
        MemberState { whole: whole || is_forgotten, poison: self.poison_to_write(), heard }
    }

    /// What is to be written down of it that begins to lack something, or lacks nothing any more.
    pub(crate) fn state_to_note(&self, whole: bool) -> MemberState {
        self.noted_whole.set(whole);
        self.state_to_write(whole)
    }

    /// Queues it, as it is now; false if there is no room.
    pub(super) fn write_state(&self) -> bool {
        let Some(shard) = self.shard.upgrade() else { return false };
        let is_whole = match mutant(Mutant::NoteOverwritten) {
            true => !self.lacks_as_written.get(),
            false => self.noted_whole.get(),
        };
        let entry = Entry {
            group: self.id,
            term: Term::NONE,
            seq: Seq(0),
            commit: Seq(0),
            volume_epoch: VolumeEpoch(0),
            layer: LayerId(0),
            chunk: ChunkId(0),
            kind: EntryKind::MemberState { state: self.state_to_write(is_whole).encode() },
        };
        shard.store().prepare(entry).is_ok()
    }

    /// Whether this life may count for a primary in `store`, as far as that knows.
    pub(crate) fn counted_for(&self, store: StoreId) -> bool {
        self.told_to.borrow().iter().any(|(told, _)| *told == store)
    }

    /// A member follows another in this epoch: it leads in none before it.
    fn follows_since(&self, store: StoreId, epoch: Epoch) {
        self.told_to.borrow_mut().retain(|(told, told_in)| *told != store || *told_in >= epoch);
    }

    /// What a message to another member names: of a prepare, the commit number that it tells; of an answer to one, the last
    /// that was heard.
    pub(crate) fn request_of(&self, message: &Message) -> RequestId {
        match message {
            Message::Prepare { commit, .. } => RequestId(commit.0),
            Message::Prepared { .. } => RequestId(self.member.borrow().told_commit().0),
            _ => RequestId(0),
        }
    }

    /// Everything up to this entry is durable here.
    pub(crate) fn is_durable(&self, place: Place) {
        self.with(|member| member.is_durable(place));
        if mutant(Mutant::ReadBeforeCommitted)
            && self.is_leading.get()
            && let Some(shard) = self.shard.upgrade()
        {
            shard.store().commit(self.id, place.1);
        }
    }

    /// What was given a place in this turn is sent.
    pub(crate) fn flush(&self) {
        self.is_dirty.set(false);
        self.with(Member::flush);
    }

    fn carry_out(&self, entries: &mut Vec<Entry>) {
        let Some(shard) = self.shard.upgrade() else { return };
        while !self.member.borrow().is_idle() {
            let mut effects = self.spare.take();
            self.member.borrow_mut().swap_effects(&mut effects);
            for effect in effects.drain(..) {
                self.carry_out_one(&shard, effect, entries);
            }
            *self.spare.borrow_mut() = effects;
        }
        let (leads, gives_places) = {
            let member = self.member.borrow();
            (member.leads(), member.next_place().is_some())
        };
        if self.is_leading.get() && !gives_places {
            self.step_down();
        }
        if self.leads.replace(leads) != leads {
            self.wake();
        }
    }

    fn carry_out_one(&self, shard: &Rc<GroupShard>, effect: Effect, entries: &mut Vec<Entry>) {
        match effect {
            Effect::Cut(through) => {
                self.recent.borrow_mut().cut(through);
                shard.forget_queued(self.index, through);
                if !shard.store().cut(self.id, through) {
                    self.stop("its store cannot forget entries that were never committed");
                }
            }
            Effect::Append(known) => entries.drain(..).skip(known).for_each(|entry| {
                self.note_change(&entry);
                shard.take_in(self.index, entry);
            }),
            Effect::Commit(through) => self.commit(shard, through),
            Effect::Begin(first, record) => self.begin_epoch(shard, first, &record),
            Effect::Send(to, message, range) => self.send(shard, to, message, range),
            Effect::Propose(record, session) => {
                if let Some(outside) = shard.outside() {
                    outside.propose(shard, self, record, session);
                }
            }
            Effect::Stop(refusal) => self.stop(&told(&refusal)),
        }
    }

    /// What is committed is applied, and who waits for it is told.
    fn commit(&self, shard: &GroupShard, through: Seq) {
        let Some(through) = self.may_apply(through) else { return };
        // Where it was not, who waits is told when the shard's groups stop; nobody is told that it was committed.
        match shard.store().commit(self.id, through) {
            Committed::Done => {}
            Committed::Asserted => return self.cannot_apply(shard),
            Committed::StoreStopped if mutant(Mutant::AllGroupsPoisoned) => return self.cannot_apply(shard),
            Committed::StoreStopped => return,
        }
        if self.is_leading.get() {
            if let Some((_, began)) = self.timed_through(through) {
                let at = now();
                shard.pace().committed_after(at.since(began), at);
            }
            loop {
                let popped = self.window.borrow_mut().pop_committed(through);
                match popped {
                    Some(Some(waiter)) => waiter.wake(),
                    Some(None) => {}
                    None => break,
                }
            }
            let fillings = self.fillings.borrow();
            let awaited = fillings.iter().filter_map(|filling| filling.from());
            let acknowledged = awaited.fold(self.member.borrow().prepared_by_all(), Seq::min);
            self.recent.borrow_mut().release(through, acknowledged);
        }
        self.room.wake_all();
        self.commits.wake_all();
    }

    /// The write that is timed, if it is committed with these.
    fn timed_through(&self, through: Seq) -> Option<(Seq, Instant)> {
        let timed = self.timed.get().filter(|(seq, _)| *seq <= through)?;
        self.timed.set(None);
        Some(timed)
    }

    /// An assertion stopped the store at an entry. It would stop whoever takes over, one after the other: nobody is to, by
    /// himself (R16). The store's other groups have no part in it.
    #[cold]
    fn cannot_apply(&self, shard: &GroupShard) {
        if !mutant(Mutant::PoisonNotTold) {
            let poison = Seq(shard.store().committed_through(self.id).0 + 1);
            log::error!("group {}: entry {poison} cannot be applied: the group stops on all its members", self.id);
            self.member.borrow_mut().give_up(Some(poison));
        }
    }

    /// How far of what is committed may be applied: not behind a unit that is on its way; nothing, in a member that is not
    /// whole and that nobody makes whole.
    fn may_apply(&self, through: Seq) -> Option<Seq> {
        if self.member.borrow().is_whole() {
            return Some(through);
        }
        let filler = self.filler().filter(|filler| filler.is_going_on())?;
        Some(filler.bound().map_or(through, |bound| bound.min(through)))
    }

    /// What had to wait for a unit is applied.
    pub(crate) fn apply_deferred(&self) {
        let through = self.member.borrow().committed();
        if let Some(shard) = self.shard.upgrade() {
            self.commit(&shard, through);
        }
    }

    /// The first entries of an epoch: its start, and the group's record, kept on each member from now on.
    fn begin_epoch(&self, shard: &Rc<GroupShard>, first: Seq, record: &Membership) {
        if !self.is_leading.replace(true) {
            self.begin_reign(shard, Seq(first.0 - 1));
        }
        let bytes = IoBuf::copy_of(&cluster::encode(&with_membership(&self.base.borrow(), record))).freeze();
        let commit = self.window.borrow().committed();
        for (seq, kind) in (first.0..).zip([EntryKind::EpochStart, EntryKind::GroupRecord { record: bytes }]) {
            let entry = Entry {
                group: self.id,
                term: record.term(),
                seq: Seq(seq),
                commit,
                volume_epoch: VolumeEpoch(0),
                layer: LayerId(0),
                chunk: ChunkId(0),
                kind,
            };
            if !self.member.borrow().is_alone() {
                self.recent.borrow_mut().push(entry.clone());
            }
            shard.take_in(self.index, entry);
            self.window.borrow_mut().push(0);
        }
        self.room.wake_all();
    }

    /// From now on this member gives out places.
    fn begin_reign(&self, shard: &GroupShard, last: Seq) {
        self.is_slow_here.set(false);
        let committed = shard.store().committed_through(self.id);
        self.window.borrow_mut().begin(committed, last);
        self.recent.borrow_mut().clear();
        let mut layers = self.layers.borrow_mut();
        layers.clear();
        if self.member.borrow().is_alone() {
            // What any group told this store, it knows.
            layers.extend(shard.store().layers().iter().map(|record| record.layer));
        }
        drop(layers);
        self.heads.borrow_mut().begin(shard.store().volume_epochs(self.id), last);
    }

    fn step_down(&self) {
        self.is_leading.set(false);
        self.fillings.take().iter().for_each(|filling| filling.end());
        self.held.borrow_mut().clear();
        self.held_for.set(None);
        self.timed.set(None);
        let waiters = self.window.borrow_mut().end();
        waiters.into_iter().for_each(std::task::Waker::wake);
        self.recent.borrow_mut().clear();
        self.lacking.borrow_mut().clear();
        self.wake();
    }

    /// Who waits looks again.
    pub(crate) fn wake(&self) {
        self.room.wake_all();
        self.commits.wake_all();
    }

    fn send(&self, shard: &Rc<GroupShard>, to: StoreId, message: Message, range: Option<(Seq, Seq)>) {
        let Some(outside) = shard.outside() else { return };
        match &message {
            Message::Prepare { .. } => self.timers.borrow_mut().told_commit(to),
            Message::Told { epoch, .. } => {
                let mut told_to = self.told_to.borrow_mut();
                told_to.retain(|(store, _)| *store != to);
                told_to.push((to, *epoch));
            }
            _ => {}
        }
        let Some((first, through)) = range else {
            return outside.send(shard, self, to, &message, (&[], 0));
        };
        if self.lacking.borrow().contains(&to) {
            // What comes before these it does not get.
            return;
        }
        if let Some(entries) = self.recent.borrow_mut().range(first, through) {
            return match self.filling(to) {
                Some(filling) => {
                    let entries = filling.filtered(entries);
                    outside.send(shard, self, to, &message, (&entries, filling.attempt()));
                }
                None => outside.send(shard, self, to, &message, (entries, 0)),
            };
        }
        if first > shard.store().committed_through(self.id) {
            return outside.send_from_store(shard.clone(), self.id, to, message, (first, through));
        }
        if let Some(filling) = self.filling(to) {
            // What it is to be sent is gone: it begins anew.
            return filling.end();
        }
        let mut lacking = self.lacking.borrow_mut();
        if !lacking.contains(&to) {
            lacking.push(to);
        }
    }

    /// Members that lack what nobody can send them entry by entry.
    pub(crate) fn take_lacking(&self) -> Vec<StoreId> {
        self.lacking.take()
    }

    /// What the map says of it, who is who included. `known`: the epoch that was known here before the map was looked at;
    /// 0, if a watch told it some time ago.
    pub(crate) fn map_says(&self, record: &GroupRecord, known: Epoch) {
        if record.epoch >= self.member.borrow().record().epoch {
            self.base.borrow_mut().clone_from(record);
        }
        let who = membership_of(record);
        self.with(|member| if record.epoch < known { member.looked(&who) } else { member.learn(&who) });
        self.hear_of_force(record);
    }

    /// The map did not make a change: the record is another by now.
    pub(crate) fn conflicted(&self, wanted: &Membership, current: &GroupRecord) {
        let who = membership_of(current);
        self.with(|member| member.conflicted(wanted, &who));
    }

    /// Entries from `first` on did not go out to a member.
    pub(crate) fn not_sent(&self, to: StoreId, first: Seq) {
        // Whoever sends holds no part of the member.
        self.member.borrow_mut().not_sent(to, first);
    }
}

/// For an operator.
fn told(refusal: &Refusal) -> String {
    match refusal {
        Refusal::CommittedLost((epoch, seq)) => format!(
            "its primary does not have entry {seq} of epoch {epoch}, which was committed here: one of the two stores lost what it had acknowledged; `cairn group force` decides"
        ),
        Refusal::MapWentBack { map, known } => format!(
            "the map says epoch {map}, this member has been in epoch {known}: the map went back in time; restore a newer one, or make it anew of what the devices know (`cairn map rebuild`)"
        ),
        Refusal::TwoRecords { epoch } => format!(
            "there are two records of epoch {epoch}: the map went back in time, and others went on from there; restore a newer one, or make it anew of what the devices know (`cairn map rebuild`)"
        ),
    }
}
