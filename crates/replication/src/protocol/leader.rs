//! The primary's side of a group.

use super::member::{Effect, Member, Role, Session};
use super::{History, Membership, Message, Place};
use runtime::Instant;
use std::sync::Arc;
use types::{Epoch, Incarnation, Mutant, Seq, StoreId, Term, mutant};

/// So many messages with entries go to a member at once. Who lacks more than they hold is sent the rest behind its answer, or is made
/// whole, for nobody has that many at hand.
const SENDS_AT_ONCE_MAX: usize = 256;

/// Entries that begin an epoch: its start, and the record.
const BEGIN_ENTRIES: u64 = 2;

/// How long things last, on this member's clock, and how much is sent at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Settings {
    /// From the sending of a beat that was answered: so long the primary may read.
    pub lease: Instant,
    /// From the answering of a beat: so long nobody else leads. At least the lease, by the slowest clock.
    pub grant: Instant,
    /// Most entries of one message.
    pub batch_entries_max: u64,
}

/// A change of the record that the map was asked for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Change {
    pub(super) record: Arc<Membership>,
    pub(super) session: Session,
    /// Who is added by it, and counts already (R3).
    pub(super) adds: Option<StoreId>,
}

/// What the primary knows of another member.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Peer {
    store: StoreId,
    /// Which of its lives told its history; what an earlier one said counts for nothing (R9).
    incarnation: Incarnation,
    /// What it told, in this reign.
    told: Option<History>,
    whole: bool,
    /// How often it had changed whether it is whole: what was told before that, and comes later, is not so any more.
    turns: u32,
    /// It is not whole, and is sent entries behind what it skipped (R14).
    fills: bool,
    /// Durable there and equal to this log through here.
    prepared: Seq,
    /// Sent through here.
    sent: Seq,
    /// When the last beat that it granted was sent, and the last that it refused.
    granted: Option<Instant>,
    refused: Option<Instant>,
}

/// What a primary knows of another member, for whoever decides when to ask again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerStanding {
    /// Whether its present life has told its history, in this reign.
    pub has_told: bool,
    /// Whether it lacks nothing before its log's end.
    pub whole: bool,
    /// Whether it is not whole, and is sent entries behind what it skipped.
    pub fills: bool,
    /// Durable there through here.
    pub prepared: Seq,
    /// Sent through here.
    pub sent: Seq,
    /// The last beat that it answered was granted nothing for this group; when the last was sent that was.
    pub refuses_since: Option<Instant>,
}

impl Peer {
    /// Whether entries are sent to it.
    fn is_sent_to(&self) -> bool {
        self.told.is_some() && (self.whole || self.fills)
    }
}

/// How far a reign has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    /// Asks the others for their histories.
    Asking,
    /// Its log becomes as long as this member's, which ends there.
    Fetching(StoreId, Place),
    /// Has the longest log of all that told, and gives out nothing before enough are in sync: until then another may turn
    /// up that holds more.
    Ready,
    /// Gives out sequences.
    Leading,
}

/// A reign.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Leader {
    phase: Phase,
    /// The reign's first epoch: what was said in an earlier one was not said to it.
    since: Epoch,
    /// The reign's first entries go through here: nothing is read before they are committed (R6).
    begun: Seq,
    peers: Vec<Peer>,
}

impl Leader {
    fn peer(&mut self, store: StoreId) -> Option<&mut Peer> {
        self.peers.iter_mut().find(|peer| peer.store == store)
    }

    fn is_of_reign(&self, epoch: Epoch) -> bool {
        epoch >= self.since || mutant(Mutant::OldAnswerCounts)
    }

    /// Whether it gives out sequences.
    pub(super) fn is_leading(&self) -> bool {
        self.phase == Phase::Leading
    }

    /// Whether it has followed this reign.
    fn has_told(&self, store: StoreId) -> bool {
        self.peers.iter().any(|peer| peer.store == store && peer.told.is_some())
    }
}

impl Member {
    /// The reign begins: the map says so.
    pub(super) fn lead(&mut self) {
        let others: Vec<_> = self.record.members().filter(|store| *store != self.me).collect();
        let peer = |store| Peer {
            store,
            incarnation: Incarnation(0),
            told: None,
            whole: false,
            turns: 0,
            fills: false,
            prepared: Seq(0),
            sent: Seq(0),
            granted: None,
            refused: None,
        };
        let peers = others.iter().copied().map(peer).collect();
        self.role =
            Role::Leader(Box::new(Leader { phase: Phase::Asking, since: self.record.epoch, begun: Seq(0), peers }));
        others.into_iter().for_each(|store| self.ask(store));
        self.go_on(false);
    }

    fn ask(&mut self, store: StoreId) {
        self.effects.push(Effect::Send(store, Message::Ask { record: self.record.clone() }, None));
    }

    /// A member has told its history.
    pub(super) fn told(
        &mut self,
        from: StoreId,
        incarnation: Incarnation,
        epoch: Epoch,
        history: &History,
        (whole, turns): (bool, u32),
    ) {
        let (log, me_epoch) = (self.log.clone(), self.record.epoch);
        let Role::Leader(leader) = &mut self.role else { return };
        let phase = leader.phase;
        // One of an earlier epoch of this reign will do: since then only this primary could have changed the log.
        let is_of_reign = leader.is_of_reign(epoch) && epoch <= me_epoch;
        let Some(peer) = leader.peer(from).filter(|peer| is_of_reign && peer.incarnation <= incarnation) else {
            return;
        };
        if peer.incarnation == incarnation && turns < peer.turns && !mutant(Mutant::ToldOutOfOrder) {
            return;
        }
        peer.incarnation = incarnation;
        peer.told = Some(history.clone());
        (peer.whole, peer.turns, peer.fills) = (whole, turns, false);
        peer.prepared = if whole { log.agreement(history) } else { Seq(0) };
        peer.sent = peer.prepared;
        match phase {
            Phase::Leading => {
                self.send_to(from);
                self.advance_commit();
            }
            Phase::Asking | Phase::Fetching(..) | Phase::Ready => self.go_on(false),
        }
    }

    /// What any member has committed is committed: here too, as far as both logs are the same.
    pub(super) fn commit_what_is(&mut self, committed: Seq, history: &History) {
        let commit = committed.min(self.log.agreement(history)).min(self.durable);
        if self.leads() && commit > self.committed {
            self.committed = commit;
            self.effects.push(Effect::Commit(commit));
        }
    }

    /// Goes on towards the reign's first entry: when all have told that may hold something, or `time_is_over`.
    pub fn go_on(&mut self, time_is_over: bool) {
        let Role::Leader(leader) = &mut self.role else { return };
        if leader.phase == Phase::Leading {
            return;
        }
        let holds_all = |store: StoreId| self.record.in_sync.contains(&store) || self.record.eligible.contains(&store);
        let of_those = || leader.peers.iter().filter(|peer| holds_all(peer.store) && peer.whole);
        let missing = leader.peers.iter().any(|peer| holds_all(peer.store) && !(peer.told.is_some() && peer.whole));
        if leader.phase == Phase::Asking && missing && !time_is_over {
            return;
        }
        let told = of_those().filter_map(|peer| Some((peer.told.as_ref()?.end(), peer.store)));
        let goes_on = mutant(Mutant::LogShrinksInEpoch) || mutant(Mutant::OwnHistoryWins);
        match told.max().filter(|(end, _)| *end > self.log.end()) {
            // What was sent in this epoch stands: whoever hears it late must not take it for newer than what comes now.
            Some(_) if leader.phase == Phase::Ready && !goes_on => self.ask_anew(),
            Some((end, store)) if !mutant(Mutant::OwnHistoryWins) => {
                leader.phase = Phase::Fetching(store, end);
                let told = leader.peer(store).and_then(|peer| peer.told.as_ref()).expect("it told");
                let behind = self.log.agreement(told);
                self.fetch(store, behind);
            }
            _ => self.is_ready(),
        }
    }

    /// Somebody turned up who holds more, after this log was sent to others: in an epoch of its own all is asked again.
    fn ask_anew(&mut self) {
        if self.change.is_none() {
            let record = self.record.led_by(self.me, self.life);
            self.propose(Change { record: Arc::new(record), session: Session::Any, adds: None });
        }
    }

    fn fetch(&mut self, store: StoreId, behind: Seq) {
        let message = Message::Fetch { record: self.record.clone(), behind };
        self.effects.push(Effect::Send(store, message, None));
    }

    /// Nobody that told holds more. The others get what they lack; when all in sync have told, and are enough, the reign
    /// begins.
    fn is_ready(&mut self) {
        self.match_all();
        self.flush();
        let Role::Leader(leader) = &self.role else { return };
        let told = |store: &StoreId| *store == self.me || leader.has_told(*store);
        if self.record.may_commit() && self.record.in_sync.iter().all(told) || mutant(Mutant::BeginsAlone) {
            self.set_phase(Phase::Leading);
            self.begin_epoch();
            self.advance_commit();
        }
    }

    fn set_phase(&mut self, phase: Phase) {
        if let Role::Leader(leader) = &mut self.role {
            leader.phase = phase;
        }
    }

    /// Entries of the longest log have come.
    pub(super) fn fetched(&mut self, before: Place, entries: &[Term]) {
        let Role::Leader(leader) = &self.role else { return };
        let Phase::Fetching(store, longest) = leader.phase else { return };
        if before.1 > self.log.last() || self.log.term_at(before.1) != before.0 || !self.append(before, entries) {
            return;
        }
        match self.log.end() >= longest {
            true => self.is_ready(),
            false => self.fetch(store, Seq(before.1.0 + entries.len() as u64)),
        }
    }

    /// The epoch's first entries. Only the first epoch of a reign has to wait for them.
    pub(super) fn begin_epoch(&mut self) {
        let Role::Leader(leader) = &mut self.role else { return };
        let first = Seq(self.log.last().0 + 1);
        (0..BEGIN_ENTRIES).for_each(|_| self.log.push(self.record.term()));
        if leader.begun == Seq(0) {
            leader.begun = self.log.last();
        }
        self.effects.push(Effect::Begin(first, self.record.clone()));
        self.flush();
    }

    /// Each member that told its history is to be sent what it lacks, from where its log and this one, as it is now,
    /// agree. Once in an epoch: from then on this log only grows.
    fn match_all(&mut self) {
        let log = self.log.clone();
        let Role::Leader(leader) = &mut self.role else { return };
        if leader.phase == Phase::Ready {
            return;
        }
        leader.phase = Phase::Ready;
        for peer in leader.peers.iter_mut().filter(|peer| peer.whole) {
            if let Some(history) = &peer.told {
                let agreed = log.agreement(history);
                let is_kept = mutant(Mutant::AgreementOutlivesFetch);
                peer.prepared = if is_kept { peer.prepared.max(agreed).min(log.last()) } else { agreed };
                peer.sent = peer.prepared;
            }
        }
    }

    /// What it knows of another member, as its primary.
    pub fn peer(&self, store: StoreId) -> Option<PeerStanding> {
        let Role::Leader(leader) = &self.role else { return None };
        let peer = leader.peers.iter().find(|peer| peer.store == store)?;
        let Peer { whole, fills, prepared, sent, granted, refused, .. } = *peer;
        let refuses_since = refused.filter(|refused| Some(*refused) > granted).map(|_| granted.unwrap_or_default());
        Some(PeerStanding { has_told: peer.told.is_some(), whole, fills, prepared, sent, refuses_since })
    }

    /// Other members in sync that told, in this reign, that they lack nothing.
    pub fn whole_others(&self) -> usize {
        let Role::Leader(leader) = &self.role else { return 0 };
        let is_whole = |peer: &&Peer| peer.told.is_some() && peer.whole && self.record.in_sync.contains(&peer.store);
        leader.peers.iter().filter(is_whole).count()
    }

    /// Everything through here is durable on all who are sent entries.
    pub fn prepared_by_all(&self) -> Seq {
        let Role::Leader(leader) = &self.role else { return self.log.last() };
        let sent_to = leader.peers.iter().filter(|peer| peer.is_sent_to());
        sent_to.map(|peer| peer.prepared).fold(self.durable, Seq::min)
    }

    /// Whether it waits for entries of a longer log.
    pub fn is_fetching(&self) -> bool {
        matches!(&self.role, Role::Leader(leader) if matches!(leader.phase, Phase::Fetching(..)))
    }

    /// Whether others can be made whole: what is committed is here, and either all behind it will be, or nothing is before
    /// another is in sync.
    pub fn may_fill(&self) -> bool {
        self.has_begun() || self.may_change() && !self.record.may_commit()
    }

    /// Whether the reign's first entries are committed.
    pub fn has_begun(&self) -> bool {
        let Role::Leader(leader) = &self.role else { return false };
        leader.phase == Phase::Leading && leader.begun > Seq(0) && self.committed >= leader.begun
    }

    // ---- order -----------------------------------------------------------------------------------------------------

    /// The place of the next entry, if this member gives out places.
    pub fn next_place(&self) -> Option<Place> {
        match &self.role {
            Role::Leader(leader) if leader.phase == Phase::Leading => {
                Some((self.log.newest(), Seq(self.log.last().0 + 1)))
            }
            _ => None,
        }
    }

    /// An entry was appended at [`next_place`](Self::next_place).
    pub fn appended(&mut self) {
        self.log.push(self.log.newest());
    }

    /// Sends each member what it has not been sent.
    pub fn flush(&mut self) {
        let Role::Leader(leader) = &self.role else { return };
        if !matches!(leader.phase, Phase::Leading | Phase::Ready) {
            return;
        }
        for index in 0..leader.peers.len() {
            let Role::Leader(leader) = &self.role else { return };
            let peer = &leader.peers[index];
            if peer.is_sent_to() && peer.sent < self.log.last() {
                self.send_to(peer.store);
            }
        }
    }

    /// A member that is not whole goes on behind `at`, which is committed: from there on it is sent entries (R14).
    pub fn fills(&mut self, store: StoreId, incarnation: Incarnation, at: Place) {
        let is_ours = at.1 <= self.committed && self.log.term_at(at.1) == at.0;
        let may_fill = self.may_fill() && (!self.counts(store) || mutant(Mutant::FilledCounts));
        let Role::Leader(leader) = &mut self.role else { return };
        let Some(peer) = leader.peer(store).filter(|peer| peer.incarnation == incarnation && peer.told.is_some())
        else {
            return;
        };
        if is_ours && may_fill {
            (peer.whole, peer.fills, peer.prepared, peer.sent) = (false, true, at.1, at.1);
            self.send_to(store);
        }
    }

    /// Nobody makes it whole any more: it is sent nothing until somebody does.
    pub fn fills_no_more(&mut self, store: StoreId) {
        if let Role::Leader(leader) = &mut self.role
            && let Some(peer) = leader.peer(store)
        {
            peer.fills = false;
        }
    }

    /// Entries from `first` on were not sent after all.
    pub fn not_sent(&mut self, store: StoreId, first: Seq) {
        if let Role::Leader(leader) = &mut self.role
            && let Some(peer) = leader.peer(store)
        {
            peer.sent = peer.sent.min(Seq(first.0 - 1)).max(peer.prepared);
        }
    }

    /// What was sent may be lost: from the last acknowledged entry on it is sent again, or the history is asked for.
    pub fn resend(&mut self, store: StoreId) {
        let Role::Leader(leader) = &mut self.role else { return };
        let phase = leader.phase;
        let Some(peer) = leader.peer(store) else { return };
        if peer.told.is_none() {
            self.ask(store);
        } else if matches!(phase, Phase::Leading | Phase::Ready) && peer.is_sent_to() {
            peer.sent = peer.prepared;
            self.send_to(store);
        } else if matches!(phase, Phase::Fetching(from, _) if from == store) {
            self.go_on(true);
        }
    }

    /// A member is silent: what it has and nobody else cannot be waited for, and who does not count is not sent to.
    pub fn is_silent(&mut self, store: StoreId) {
        let Role::Leader(leader) = &mut self.role else { return };
        if matches!(leader.phase, Phase::Fetching(from, _) if from == store) {
            if let Some(peer) = leader.peer(store) {
                peer.told = None;
            }
            return self.go_on(true);
        }
        let counts = self.counts(store);
        let Role::Leader(leader) = &mut self.role else { return };
        if let Some(peer) = leader.peer(store).filter(|_| !counts) {
            // It is asked anew when it is back: nothing is kept for it, and nothing sent into the void.
            (peer.told, peer.fills, peer.prepared) = (None, false, Seq(0));
        }
    }

    fn send_to(&mut self, store: StoreId) {
        let last = self.log.last();
        let Role::Leader(leader) = &mut self.role else { return };
        let Some(peer) = leader.peer(store) else { return };
        if !peer.is_sent_to() {
            return;
        }
        for _ in 0..SENDS_AT_ONCE_MAX {
            let before = (self.log.term_at(peer.sent), peer.sent);
            let through = last.min(Seq(peer.sent.0 + self.settings.batch_entries_max));
            let entries = (peer.sent < through).then_some((Seq(peer.sent.0 + 1), through));
            peer.sent = through;
            let commit = if mutant(Mutant::CommitNumberAhead) { last } else { self.committed };
            let message = Message::Prepare { record: self.record.clone(), before, commit };
            self.effects.push(Effect::Send(store, message, entries));
            if through == last {
                return;
            }
        }
    }

    /// A member has something durable.
    pub(super) fn prepared(&mut self, from: StoreId, incarnation: Incarnation, epoch: Epoch, through: Seq) {
        let (last, mine) = (self.log.last(), self.record.epoch);
        let Role::Leader(leader) = &mut self.role else { return };
        let is_of_reign = leader.is_of_reign(epoch) && epoch <= mine;
        let Some(peer) = leader.peer(from).filter(|_| is_of_reign) else { return };
        if peer.incarnation != incarnation && !mutant(Mutant::IncarnationIgnored) {
            // An earlier life, which may have lost what it acknowledged, or one that has not told its history (R9).
            return;
        }
        if peer.told.is_some() && through <= last {
            peer.prepared = peer.prepared.max(through);
            self.advance_commit();
        }
    }

    /// Something was heard from a member: if it has started anew, nothing counts that it said before (R9).
    pub fn restarted(&mut self, store: StoreId, incarnation: Incarnation) {
        let Role::Leader(leader) = &mut self.role else { return };
        let Some(peer) = leader.peer(store) else { return };
        if peer.incarnation < incarnation && peer.told.is_some() && !mutant(Mutant::IncarnationIgnored) {
            (peer.told, peer.prepared, peer.granted, peer.fills, peer.turns) = (None, Seq(0), None, false, 0);
            // So that nothing that an earlier life said, and is heard late, counts again.
            peer.incarnation = incarnation;
            self.ask(store);
        }
    }

    // ---- commit ----------------------------------------------------------------------------------------------------

    /// The other members that count (R3).
    fn counting(&self) -> impl Iterator<Item = StoreId> + '_ {
        let added = self.change.as_ref().and_then(|change| change.adds);
        let added = added.filter(|_| !mutant(Mutant::AddedCountsLate));
        let stays = |store: &StoreId| match &self.change {
            Some(change) if mutant(Mutant::RemovedCountsNoMore) => change.record.in_sync.contains(store),
            _ => true,
        };
        self.record.in_sync.iter().copied().filter(stays).chain(added).filter(|store| *store != self.me)
    }

    /// Whether a member counts, or will as soon as the map has answered (R3).
    pub fn counts(&self, store: StoreId) -> bool {
        self.record.in_sync.contains(&store) || self.change.as_ref().is_some_and(|change| change.adds == Some(store))
    }

    /// Commits what is prepared on all that count.
    pub(super) fn advance_commit(&mut self) {
        let Role::Leader(leader) = &self.role else { return };
        if leader.phase != Phase::Leading {
            return;
        }
        let mut in_sync = self.record.in_sync.len();
        if mutant(Mutant::JoiningCounts) {
            in_sync += leader.peers.iter().filter(|peer| peer.told.is_some()).count();
        }
        if in_sync < self.record.min_in_sync && !mutant(Mutant::LastOneStanding) {
            return;
        }
        // Who is being made whole has no-ops where others have entries: it counts for nothing, whoever it is.
        let counts = |peer: &&Peer| peer.whole || mutant(Mutant::FilledCounts);
        let prepared = |store| {
            let peer = leader.peers.iter().find(|peer| peer.store == store).filter(counts);
            peer.map_or(Seq(0), |peer| peer.prepared)
        };
        let commit = self.counting().map(prepared).fold(self.durable, Seq::min);
        if commit > self.committed {
            self.committed = commit;
            self.effects.push(Effect::Commit(commit));
        }
    }

    /// Tells a member the commit number, if it has been sent everything: else it goes with that.
    pub fn tell_commit(&mut self, store: StoreId) {
        let last = self.log.last();
        if let Role::Leader(leader) = &mut self.role
            && leader.phase == Phase::Leading
            && leader.peer(store).is_some_and(|peer| peer.sent == last)
        {
            self.send_to(store);
        }
    }

    // ---- who counts ------------------------------------------------------------------------------------------------

    /// Members that are silent or slow are to be removed. One change is under way at a time.
    pub fn remove(&mut self, gone: &[StoreId]) {
        let gone: Vec<_> = self.record.in_sync.iter().copied().filter(|store| gone.contains(store)).collect();
        if self.change.is_some() || gone.is_empty() || gone.contains(&self.me) || !self.may_change() {
            return;
        }
        let record = self.record.without(&gone);
        self.propose(Change { record: Arc::new(record), session: Session::Any, adds: None });
    }

    /// A member that has all there is, is to count.
    pub fn add(&mut self, store: StoreId) {
        if self.change.is_some() || self.record.in_sync.contains(&store) || !self.has_all(store) {
            return;
        }
        let record = self.record.with(store);
        self.propose(Change { record: Arc::new(record), session: Session::Any, adds: Some(store) });
    }

    /// Whether it has the longest log of all that may hold something.
    fn may_change(&self) -> bool {
        matches!(&self.role, Role::Leader(leader) if matches!(leader.phase, Phase::Leading | Phase::Ready))
    }

    /// Through where a member must have prepared to be added: all that may be committed.
    fn needed(&self, leader: &Leader) -> Seq {
        match leader.phase {
            Phase::Leading => self.committed.max(leader.begun),
            _ => self.log.last(),
        }
    }

    /// Whether a member lacks nothing that is committed.
    fn has_all(&self, store: StoreId) -> bool {
        let Role::Leader(leader) = &self.role else { return false };
        let peer = leader.peers.iter().find(|peer| peer.store == store);
        self.may_change()
            && peer.is_some_and(|peer| peer.told.is_some() && peer.whole && peer.prepared >= self.needed(leader))
    }

    // ---- reading ---------------------------------------------------------------------------------------------------

    /// A beat that was sent to a member's node at `sent` was answered, with an exception for this group or not.
    pub fn beat_answered(&mut self, store: StoreId, incarnation: Incarnation, sent: Instant, is_granted: bool) {
        let Role::Leader(leader) = &mut self.role else { return };
        let Some(peer) = leader.peer(store) else { return };
        if peer.incarnation != incarnation || peer.told.is_none() {
            return;
        }
        let at = if is_granted { &mut peer.granted } else { &mut peer.refused };
        *at = (*at).max(Some(sent));
    }

    /// Whether an index that is read in this very turn is that of the group (R7). `session_until`: so long this node's session in the
    /// map lasts at least.
    pub fn may_read(&self, now: Instant, session_until: Instant) -> bool {
        let Role::Leader(leader) = &self.role else { return false };
        if !self.has_begun() {
            return false;
        }
        let lease = |store: StoreId| {
            let peer = leader.peers.iter().find(|peer| peer.store == store);
            peer.is_some_and(|peer| {
                peer.granted > peer.refused && peer.granted.is_some_and(|sent| now.0 < sent.0 + self.settings.lease.0)
            })
        };
        let has_leases = self.counting().all(lease) || mutant(Mutant::ReadPastLease);
        let has_session = self.record.eligible.is_empty() || now < session_until || mutant(Mutant::SessionIgnored);
        has_leases && has_session
    }
}
