//! One member's side of a group.

use super::leader::{Change, Leader, Settings};
use super::{History, Membership, Message, Place};
use runtime::Instant;
use std::sync::Arc;
use types::{Epoch, Incarnation, Mutant, Seq, StoreId, Term, mutant};

/// What is to be done, in this order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Effect {
    /// Entries behind it are forgotten; none of them is committed.
    Cut(Seq),
    /// Of the entries that came with the message, those behind the first so many are appended.
    Append(usize),
    /// Everything up to here is committed: the index takes it in.
    Commit(Seq),
    /// The first entries of the epoch are appended, from this sequence on: its start, and the record.
    Begin(Seq, Arc<Membership>),
    /// A message goes to a member, with the entries of these sequences, if any.
    Send(StoreId, Message, Option<(Seq, Seq)>),
    /// The map is asked to replace the record of the epoch before by this one; again and again until it answers (R12).
    Propose(Arc<Membership>, Session),
    /// The member cannot take part any more.
    Stop(Refusal),
}

/// Whether a change may be made only when a session in the map is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Session {
    /// It needs no session to be over.
    Any,
    /// That of this store's node must be over, in the same transaction.
    Over(StoreId),
}

/// Why a member cannot take part any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// A primary says that what is committed here is not in its log.
    CommittedLost(Place),
    /// The map says less than this member knows (R11).
    MapWentBack {
        /// The map's epoch.
        map: Epoch,
        /// This member's.
        known: Epoch,
    },
    /// There are two records of one epoch: the map went back, and others went on from there (R11).
    TwoRecords {
        /// Of both.
        epoch: Epoch,
    },
}

/// What the member does at present.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Role {
    Follower,
    /// Wants to lead: grants nothing for this group, and waits for the end of what it granted.
    Candidate,
    /// The map says that it leads, by a change that this incarnation asked for.
    Leader(Box<Leader>),
}

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Member {
    pub(super) me: StoreId,
    pub(super) life: Incarnation,
    pub(super) settings: Settings,
    /// The newest record that is known.
    pub(super) record: Arc<Membership>,
    /// All that is appended.
    pub(super) log: History,
    pub(super) durable: Seq,
    pub(super) committed: Seq,
    /// Nothing before the log's end is missing (R15).
    pub(super) whole: bool,
    /// How often that has changed in this life.
    turns: u32,
    pub(super) role: Role,
    /// A change of the record that the map was asked for and has not answered.
    pub(super) change: Option<Change>,
    /// Of a follower: equal to the primary's through here, in this epoch.
    matched: Seq,
    /// Of a follower: what the primary says is committed.
    told_commit: Seq,
    /// When a beat of a member's node was answered last, so that its primaries may read (R8).
    grants: Vec<(StoreId, Instant)>,
    /// When this life began: what an earlier one granted is not known any more.
    started: Instant,
    /// The record's primary will not read any more: it is dead, or gave the group up.
    primary_gone: bool,
    /// Whoever applies this entry stops: nobody takes over by himself (R16).
    poison: Option<Seq>,
    pub(super) effects: Vec<Effect>,
}

impl Member {
    /// A store has started, with what its log holds. `record`: the map's, by a linearizable look that began after the
    /// start. None that is older will do: what an earlier life was told, or asked the map for, is not in its log (R5). And the
    /// newest that an earlier life wrote down, if any: the map's is not older, unless it went back (R11).
    #[expect(clippy::too_many_arguments, reason = "each is another thing that a start knows")]
    pub fn start(
        me: StoreId,
        life: Incarnation,
        settings: Settings,
        (record, written): (Membership, Option<Arc<Membership>>),
        log: History,
        committed: Seq,
        whole: bool,
        now: Instant,
    ) -> Self {
        let durable = log.last();
        let mut member = Self {
            me,
            life,
            settings,
            record: Arc::new(record),
            log,
            durable,
            committed,
            whole,
            turns: 0,
            role: Role::Follower,
            change: None,
            matched: Seq(0),
            told_commit: Seq(0),
            grants: Vec::new(),
            started: now,
            primary_gone: false,
            poison: None,
            effects: Vec::new(),
        };
        member.compare_with_map(written);
        if mutant(Mutant::OldEpochAfterRestart) && member.record.primary == me && member.record.epoch > Epoch(0) {
            member.lead();
        }
        member
    }

    /// The map's record is what the member has; it stops if it has known a newer one, or another of the same epoch (R11).
    fn compare_with_map(&mut self, written: Option<Arc<Membership>>) {
        if mutant(Mutant::OldMapFollowed) {
            return;
        }
        let (map, in_log) = (self.record.epoch, self.log.newest());
        let known = written.as_ref().map_or(Epoch(0), |known| known.epoch).max(in_log.epoch);
        // Entries that an earlier build wrote have no mark.
        let in_sight = known == map && map > Epoch(0) && !self.is_alone() && !mutant(Mutant::TermUnmarked);
        let differs = written.as_ref().is_some_and(|known| known.epoch == map && **known != *self.record)
            || in_log.epoch == map && in_log.mark != 0 && in_log != self.record.term();
        if let Some(written) = written.filter(|written| written.epoch >= map) {
            // It says so to others.
            self.record = written;
        }
        if map < known {
            self.stop(Refusal::MapWentBack { map, known });
        } else if in_sight && differs {
            self.stop(Refusal::TwoRecords { epoch: map });
        }
    }

    /// What is to be done by now.
    pub fn take_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    /// The same, into a list that was used before.
    pub fn swap_effects(&mut self, spare: &mut Vec<Effect>) {
        debug_assert!(spare.is_empty(), "what was done is not done again");
        std::mem::swap(&mut self.effects, spare);
    }

    /// Whether there is nothing to do.
    pub fn is_idle(&self) -> bool {
        self.effects.is_empty()
    }

    /// Whether there is no other member.
    pub fn is_alone(&self) -> bool {
        self.record.members().all(|store| store == self.me)
    }

    /// Whether it leads, and there is nobody to look after.
    pub fn is_alone_and_leads(&self) -> bool {
        self.next_place().is_some() && self.is_alone()
    }

    /// This store.
    pub fn store(&self) -> StoreId {
        self.me
    }

    /// Whether it wants to lead, and has not been answered by the map.
    pub fn is_candidate(&self) -> bool {
        matches!(self.role, Role::Candidate)
    }

    /// Whether nothing before the log's end is missing (R15).
    pub fn is_whole(&self) -> bool {
        self.whole
    }

    /// An operator has said that this copy counts (R24): all that is in it is committed, but what nobody can apply, and what is
    /// behind that.
    pub fn commits_what_counts(&mut self) {
        if !mutant(Mutant::PoisonOutlivesForce) && self.poison.take().is_some() {
            self.log.cut(self.committed);
            self.durable = self.durable.min(self.committed);
            self.effects.push(Effect::Cut(self.committed));
        } else if self.durable > self.committed {
            self.committed = self.durable;
            self.effects.push(Effect::Commit(self.durable));
        }
    }

    /// It has, whatever it lacks, everything that counts.
    pub fn is_what_counts(&mut self) {
        self.becomes(true);
    }

    /// An operator has said that another's copy counts: what this one knows of entries that nobody can apply is over (R24).
    pub fn gives_way(&mut self) {
        self.poison = None;
    }

    /// It lacks something before its log's end, and has that written down: from now on it is neither chosen nor fetched
    /// from (R15).
    pub fn begins_to_fill(&mut self) {
        self.becomes(false);
        if matches!(self.role, Role::Candidate) {
            self.role = Role::Follower;
        }
        if self.record.primary != self.me {
            self.tell(self.record.primary);
        }
    }

    /// What it lacks are blocks that it cannot read, and nobody leads who could give it those: it may be chosen after all.
    pub fn goes_on_with_damage(&mut self) {
        self.becomes(true);
    }

    fn becomes(&mut self, whole: bool) {
        self.turns += u32::from(whole != self.whole);
        self.whole = whole;
    }

    /// Its log goes on behind the end of this one, all of which is committed (R14).
    pub fn skipped(&mut self, log: History) {
        let last = log.last();
        (self.log, self.durable, self.committed) = (log, last, last);
        (self.matched, self.told_commit) = (last, last);
    }

    /// Whether all that is committed here is in a log that this one is to go on behind; if not, it stops.
    pub fn may_skip_to(&mut self, log: &History) -> bool {
        let both = self.committed.min(log.last());
        // A history that is cut off at its front says nothing of what is before.
        let is_told = both == Seq(0) || log.starts().first().is_some_and(|(_, first)| *first <= both);
        let is_same = log.term_at(both) == self.log.term_at(both);
        if is_told && !is_same {
            let lost = (self.log.term_at(self.committed), self.committed);
            self.stop(Refusal::CommittedLost(lost));
        }
        is_same || !is_told
    }

    /// It lacks nothing any more, and has that written down; its primary is told.
    pub fn is_filled(&mut self) {
        self.becomes(true);
        if matches!(self.role, Role::Follower) {
            self.tell(self.record.primary);
        }
    }

    /// Everything up to here is durable.
    pub fn durable(&self) -> Seq {
        self.durable
    }

    /// Whether the map says that this life of the member leads, serving or not.
    pub fn leads(&self) -> bool {
        matches!(self.role, Role::Leader(_))
    }

    /// Whether this change waits for the map's answer.
    pub fn asked_for(&self, record: &Membership) -> bool {
        self.change.as_ref().is_some_and(|change| *change.record == *record)
    }

    /// The newest record that is known.
    pub fn record(&self) -> &Arc<Membership> {
        &self.record
    }

    /// What is appended.
    pub fn log(&self) -> &History {
        &self.log
    }

    /// Whether an entry of this epoch, or of a later one, is durable here.
    pub fn has_in_log(&self, epoch: Epoch) -> bool {
        self.log.term_at(self.durable).epoch >= epoch
    }

    /// Everything up to here is committed.
    pub fn committed(&self) -> Seq {
        self.committed
    }

    /// What the primary has said is committed, in this reign.
    pub(crate) fn told_commit(&self) -> Seq {
        self.told_commit
    }

    /// Whether a change of the record waits for the map's answer.
    pub fn change_under_way(&self) -> bool {
        self.change.is_some()
    }

    // ---- the map -------------------------------------------------------------------------------------------------

    /// The map says so, or another member that has it from there.
    pub fn learn(&mut self, record: &Membership) {
        if record.epoch == self.record.epoch && *record != *self.record {
            self.stop(Refusal::TwoRecords { epoch: record.epoch });
        } else if self.asked_for(record) {
            self.changed(record);
        } else if record.epoch > self.record.epoch {
            self.step_down();
            self.record = Arc::new(record.clone());
        }
    }

    /// A linearizable look at the map: it never says less than is known, unless it went back in time (R11).
    pub fn looked(&mut self, record: &Membership) {
        if mutant(Mutant::OldMapFollowed) && record.epoch < self.record.epoch {
            self.step_down();
            self.record = Arc::new(record.clone());
        } else if record.epoch < self.record.epoch {
            self.stop(Refusal::MapWentBack { map: record.epoch, known: self.record.epoch });
        } else {
            self.learn(record);
        }
    }

    /// The map has made this change. An answer to an earlier request changes nothing.
    pub fn changed(&mut self, record: &Membership) {
        if !self.asked_for(record) {
            return;
        }
        self.change = None;
        self.record = Arc::new(record.clone());
        if matches!(&self.role, Role::Leader(leader) if leader.is_leading()) {
            self.begin_epoch();
            self.advance_commit();
        } else {
            // Before its first entry a reign begins anew with each epoch: what was said in the one before was said of a
            // log that may have been cut since (R2).
            self.lead();
        }
    }

    /// The map refused this change: the record was `current` by then, or a session is not over.
    pub fn conflicted(&mut self, record: &Membership, current: &Membership) {
        if !self.asked_for(record) {
            return;
        }
        if record == current {
            return self.changed(record);
        }
        self.change = None;
        if let Role::Candidate = self.role {
            self.role = Role::Follower;
        }
        self.looked(current);
    }

    /// No answer came. The request may still be done (R12).
    pub fn unanswered(&mut self) {
        if mutant(Mutant::UnknownTakenForNo) {
            self.change = None;
            if let Role::Candidate = self.role {
                self.role = Role::Follower;
            }
        } else if let Some(change) = &self.change {
            self.effects.push(Effect::Propose(change.record.clone(), change.session));
        }
    }

    fn stop(&mut self, why: Refusal) {
        self.step_down();
        self.effects.push(Effect::Stop(why));
    }

    fn step_down(&mut self) {
        self.role = Role::Follower;
        self.change = None;
        self.matched = Seq(0);
        self.told_commit = Seq(0);
        self.primary_gone = false;
    }

    // ---- taking over -----------------------------------------------------------------------------------------------

    /// The primary is silent, or is this store's earlier life: from now on nothing is granted for this group. Who may
    /// not lead goes on granting.
    pub fn campaign(&mut self) {
        let may_lead = self.record.in_sync.contains(&self.me) || self.record.eligible.contains(&self.me);
        let is_free = self.change.is_none() && matches!(self.role, Role::Follower);
        if is_free && self.whole && may_lead && self.poison.is_none() {
            self.role = Role::Candidate;
        }
    }

    /// The primary was heard again before the map was asked.
    pub fn abandon(&mut self) {
        if self.change.is_none() && matches!(self.role, Role::Candidate) {
            self.role = Role::Follower;
        }
    }

    /// Who led in `epoch` reads no more: its supervisor says that this life of it is dead, or it said itself that it
    /// gave the group up. It may lead again in a later epoch.
    pub fn primary_is_gone(&mut self, epoch: Epoch) {
        self.primary_gone |= epoch == self.record.epoch;
    }

    /// Reads and writes no more in this epoch, and says so: another is to lead. With `poison` nobody is: whoever applies
    /// that entry stops (R16).
    pub fn give_up(&mut self, poison: Option<Seq>) {
        if !matches!(self.role, Role::Leader(_)) {
            return;
        }
        self.step_down();
        self.primary_gone = true;
        self.poison = poison;
        self.say_given_up();
    }

    /// The record names this store, which does not lead and cannot: a change that it asked for before it gave the group up
    /// was done after that, or it has started anew since, not whole, and its earlier life reads no more. Nobody waits for it:
    /// that its session is there keeps nobody out.
    pub fn cannot_lead(&mut self) {
        let is_named = self.record.primary == self.me && self.record.life <= self.life;
        let is_idle = matches!(self.role, Role::Follower) && self.change.is_none();
        if is_named && is_idle && !self.whole && !self.primary_gone {
            self.primary_gone = true;
            self.say_given_up();
        }
    }

    /// Says it again to those who may not have heard it.
    pub fn say_given_up(&mut self) {
        if self.record.primary != self.me || !self.primary_gone {
            return;
        }
        let message = Message::GaveUp { epoch: self.record.epoch, poison: self.poison };
        let others: Vec<_> = self.record.members().filter(|store| *store != self.me).collect();
        others.into_iter().for_each(|store| self.effects.push(Effect::Send(store, message.clone(), None)));
    }

    /// Whether the record's primary has said that it reads no more.
    pub fn is_given_up(&self) -> bool {
        self.primary_gone
    }

    /// An earlier life knew of an entry that nobody can apply (R16).
    pub fn knows_poison(&mut self, poison: Seq) {
        self.poison = self.poison.max(Some(poison));
    }

    /// The entry that nobody can apply, if there is one.
    pub fn poison(&self) -> Option<Seq> {
        self.poison
    }

    /// Asks the map for the lead, if it is this member's and everything granted to the primary is over (R8).
    pub fn propose_to_lead(&mut self, now: Instant) {
        if !matches!(self.role, Role::Candidate) || self.change.is_some() || !self.whole {
            return;
        }
        let primary = self.record.primary;
        let is_over = primary == self.me || self.primary_gone || self.grant_over(primary) <= now;
        if !is_over && !mutant(Mutant::LeaseNotAwaited) {
            return;
        }
        let (record, session) = if self.record.in_sync.contains(&self.me) {
            (self.record.led_by(self.me, self.life), Session::Any)
        } else if self.record.eligible.contains(&self.me) {
            // Who gave the group up reads no more, whatever its session.
            let session = if self.primary_gone { Session::Any } else { Session::Over(primary) };
            (self.record.rescued_by(self.me, self.life), session)
        } else {
            return;
        };
        self.propose(Change { record: Arc::new(record), session, adds: None });
    }

    pub(super) fn propose(&mut self, change: Change) {
        self.effects.push(Effect::Propose(change.record.clone(), change.session));
        self.change = Some(change);
    }

    /// When everything is over that was granted to `store`.
    fn grant_over(&self, store: StoreId) -> Instant {
        let granted = self.grants.iter().find(|(other, _)| *other == store);
        if granted.is_none() && mutant(Mutant::GrantForgottenByRestart) {
            return Instant(0);
        }
        Instant(granted.map_or(self.started, |(_, at)| *at).0 + self.settings.grant.0)
    }

    /// Whether a beat of `store`'s node may be answered without an exception for this group; if so, it is granted (R8).
    /// Only to the primary of the newest record: an earlier one may not have heard of its end.
    pub fn grant(&mut self, store: StoreId, now: Instant) -> bool {
        let is_primary = store == self.record.primary || mutant(Mutant::DeposedGranted);
        let grants = is_primary && matches!(self.role, Role::Follower);
        if grants {
            match self.grants.iter_mut().find(|(other, _)| *other == store) {
                Some((_, at)) => *at = now,
                None => self.grants.push((store, now)),
            }
        }
        grants
    }

    // ---- following -------------------------------------------------------------------------------------------------

    /// A message has come. `entries`: terms of those that came with it.
    pub fn receive(&mut self, from: StoreId, incarnation: Incarnation, message: &Message, entries: &[Term]) {
        self.restarted(from, incarnation);
        match message {
            Message::Refused { record } => self.learn(record),
            Message::Prepare { record, before, commit } => {
                if self.follows(from, record) {
                    self.prepare(from, *before, entries, *commit);
                }
            }
            Message::Ask { record } => {
                if self.follows(from, record) {
                    self.tell(from);
                }
            }
            Message::Fetch { record, behind } => {
                if self.follows(from, record) {
                    if *behind > self.durable {
                        return self.tell(from);
                    }
                    let before = (self.log.term_at(*behind), *behind);
                    let message = Message::Fetched { epoch: self.record.epoch, before };
                    let through = self.durable.min(Seq(behind.0 + self.settings.batch_entries_max));
                    let entries = (*behind < through).then_some((Seq(behind.0 + 1), through));
                    self.effects.push(Effect::Send(from, message, entries));
                }
            }
            Message::Told { epoch, history, committed, whole, turns } if *epoch <= self.record.epoch => {
                self.told(from, incarnation, *epoch, history, (*whole, *turns));
                self.commit_what_is(*committed, history);
            }
            Message::GaveUp { epoch, poison } => {
                // A later life says it of an earlier one, which is dead.
                if from == self.record.primary && incarnation >= self.record.life {
                    self.primary_is_gone(*epoch);
                    self.poison = self.poison.max(poison.filter(|_| *epoch == self.record.epoch));
                }
            }
            Message::Prepared { epoch, through } => self.prepared(from, incarnation, *epoch, *through),
            Message::Fetched { epoch, before } if *epoch == self.record.epoch => self.fetched(*before, entries),
            Message::Told { .. } | Message::Fetched { .. } => {}
        }
    }

    /// What a member that takes no part answers who goes by an older record, or by another of the same epoch: the map that
    /// has it went back, and whoever follows it serves less than this member knows of (R11).
    pub fn refuses(&self, message: &Message) -> Option<Message> {
        let (Message::Prepare { record, .. } | Message::Ask { record } | Message::Fetch { record, .. }) = message
        else {
            return None;
        };
        let is_newer =
            self.record.epoch > record.epoch || self.record.epoch == record.epoch && *self.record != **record;
        (is_newer && !mutant(Mutant::StoppedSaysNothing)).then(|| Message::Refused { record: self.record.clone() })
    }

    /// Whether the sender leads, as far as is known; else it is told (R5).
    fn follows(&mut self, from: StoreId, record: &Membership) -> bool {
        self.learn(record);
        if record.epoch < self.record.epoch && !mutant(Mutant::FenceIgnored) {
            self.effects.push(Effect::Send(from, Message::Refused { record: self.record.clone() }, None));
            return false;
        }
        !matches!(self.role, Role::Leader(_)) && (from == self.record.primary || mutant(Mutant::FenceIgnored))
    }

    /// What is durable here: only that would be there after a crash.
    fn tell(&mut self, to: StoreId) {
        let mut history = self.log.clone();
        history.cut(self.durable);
        let message = Message::Told {
            epoch: self.record.epoch,
            history,
            committed: self.committed,
            whole: self.whole,
            turns: self.turns,
        };
        self.effects.push(Effect::Send(to, message, None));
    }

    fn prepare(&mut self, from: StoreId, before: Place, entries: &[Term], commit: Seq) {
        let has_it = self.log.term_at(before.1) == before.0 || mutant(Mutant::NumberWithoutEpoch);
        if before.1 > self.log.last() || !has_it {
            // Something is missing here, or was never there: the primary finds out what (R2, R13).
            return self.tell(from);
        }
        if !self.append(before, entries) {
            return;
        }
        self.matched = self.matched.max(Seq(before.1.0 + entries.len() as u64));
        self.told_commit = self.told_commit.max(commit);
        self.settle();
        // What is still on its way to the device is acknowledged when it is there: one answer, not two.
        if self.durable >= self.matched || mutant(Mutant::PreparedBeforeDurable) {
            self.acknowledge();
        }
    }

    /// Takes entries behind `before` into the log; false if that is impossible.
    pub(super) fn append(&mut self, before: Place, entries: &[Term]) -> bool {
        let place = |index: usize| Seq(before.1.0 + 1 + index as u64);
        let is_here =
            |(index, term): (usize, &Term)| place(index) <= self.log.last() && self.log.term_at(place(index)) == *term;
        let known = entries.iter().enumerate().take_while(|entry| is_here(*entry)).count();
        let known = match mutant(Mutant::CutTooFarBehind) {
            true if known < entries.len() && self.log.last() >= place(known) => known + 1,
            _ => known,
        };
        if known < entries.len() && self.log.last() >= place(known) {
            let through = Seq(place(known).0 - 1);
            if through < self.committed {
                let lost = (self.log.term_at(self.committed), self.committed);
                self.effects.push(Effect::Stop(Refusal::CommittedLost(lost)));
                return false;
            }
            self.log.cut(through);
            self.durable = self.durable.min(through);
            self.effects.push(Effect::Cut(through));
        }
        entries[known..].iter().for_each(|term| self.log.push(*term));
        if known < entries.len() {
            self.effects.push(Effect::Append(known));
        }
        true
    }

    /// Commits what may be committed by what is known (R4).
    fn settle(&mut self) {
        let commit = self.told_commit.min(self.matched).min(self.durable);
        if commit > self.committed {
            self.committed = commit;
            self.effects.push(Effect::Commit(commit));
        }
    }

    fn acknowledge(&mut self) {
        let durable = if mutant(Mutant::PreparedBeforeDurable) { self.log.last() } else { self.durable };
        let through = self.matched.min(durable);
        let message = Message::Prepared { epoch: self.record.epoch, through };
        self.effects.push(Effect::Send(self.record.primary, message, None));
    }

    /// Of the group's order as it is in the store now, everything up to this entry is durable. What was cut meanwhile is
    /// not in it: a number alone would speak for the entry that took its place (R2).
    pub fn is_durable(&mut self, (term, through): Place) {
        let is_it = self.log.term_at(through) == term || mutant(Mutant::DurableWithoutEpoch);
        if through > self.log.last() || !is_it {
            return;
        }
        self.durable = self.durable.max(through);
        match self.role {
            Role::Leader(_) => self.advance_commit(),
            _ if self.matched > Seq(0) => {
                self.settle();
                self.acknowledge();
            }
            _ => {}
        }
    }
}
