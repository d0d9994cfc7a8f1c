//! The map's service behind the simulated network: its state, its clock, and what is on its way to it.

use super::faults::{Fate, MapCounts, MapFaults, chance, up_to};
use crate::map::{REQUEST_DEADLINE, Revision};
use crate::state::MapState;
use std::collections::{BTreeMap, BTreeSet};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use types::NodeId;

/// What a request does to the state when it arrives; the time is that of the service.
pub(super) type Work = Box<dyn FnOnce(&mut MapState, Duration) + Send>;

/// A request on its way.
struct UnderWay {
    work: Work,
    fate: Fate,
    /// Under whom it was sent.
    leader: u64,
}

/// What the sender knows of its request's journey, or will know.
pub(super) struct Journey {
    pub(super) fate: Fate,
    pub(super) there: Duration,
    pub(super) back: Duration,
    /// When it arrives, unless it is late.
    pub(super) arrives: Duration,
    pub(super) leader: u64,
    pub(super) is_cut_off: bool,
}

/// Nobody runs the service: whoever comes to it, to ask, to hear an answer or to watch, first has it do all that is
/// due.
#[derive(Default)]
pub(super) struct Service {
    pub(super) state: MapState,
    pub(super) faults: MapFaults,
    pub(super) counts: MapCounts,
    clock: Clock,
    /// By the time of its arrival, then by the order of sending.
    under_way: BTreeMap<(Duration, u64), UnderWay>,
    requests: u64,
    /// Counts the leaders.
    leader: u64,
    /// The leader has changed, and the leases have not begun anew yet.
    leases_begin_anew: bool,
    cut_off: BTreeSet<NodeId>,
    is_unreachable: bool,
    /// Counts what watchers may want to look at again.
    changes: u64,
    watchers: Vec<Waker>,
}

impl Service {
    /// The service's time. `shows` is what the clock of `node` shows.
    pub(super) fn now(&mut self, node: Option<NodeId>, shows: Duration) -> Duration {
        self.clock.read(node, shows)
    }

    /// Takes a request to the service; it arrives whatever becomes of the sender.
    pub(super) fn send(&mut self, node: Option<NodeId>, now: Duration, work: Work) -> Journey {
        let is_cut_off = self.is_cut_off(node);
        let fate = if is_cut_off { Fate::cut_off() } else { self.faults.fate() };
        let (there, back) = (self.faults.travel(), self.faults.travel());
        let told_after = if is_cut_off { REQUEST_DEADLINE } else { (there + back).min(REQUEST_DEADLINE) };
        let leader = self.leader;
        let arrives = match fate {
            Fate::Late => now + told_after + up_to(self.faults.late_max),
            _ => now + there,
        };
        match fate {
            Fate::Lost => self.counts.requests_lost += 1,
            _ => {
                self.requests += 1;
                self.under_way.insert((arrives, self.requests), UnderWay { work, fate, leader });
                self.wake_watchers();
            }
        }
        Journey { fate, there, back, arrives, leader, is_cut_off }
    }

    /// Does all that is due by `now`, in the order of its time.
    pub(super) fn advance(&mut self, now: Duration) {
        if std::mem::take(&mut self.leases_begin_anew) {
            self.state.begin_leases_anew(now);
        }
        while let Some(due) = self.next_due().filter(|due| *due <= now) {
            match self.state.expired(due) {
                Some(lease) => drop(self.state.revoke(lease).expect("it was just there")),
                None => {
                    let ((at, _), request) = self.under_way.pop_first().expect("what else is due");
                    self.arrive(request, at);
                }
            }
            self.wake_watchers();
        }
    }

    fn arrive(&mut self, request: UnderWay, at: Duration) {
        if chance(self.faults.leader_changes) {
            self.new_leader();
            self.state.begin_leases_anew(at);
        }
        let is_undone = self.leader != request.leader && runtime::random_u64().is_multiple_of(2);
        match request.fate {
            _ if is_undone => {
                self.counts.requests_lost += 1;
                return;
            }
            Fate::Late => self.counts.requests_late += 1,
            Fate::AnswerLost => self.counts.answers_lost += 1,
            Fate::Answered if self.leader != request.leader => self.counts.answers_lost += 1,
            Fate::Answered | Fate::Lost => {}
        }
        let before = self.state.revision;
        (request.work)(&mut self.state, at);
        if self.state.revision > before && chance(self.faults.compactions) {
            self.state.compact(Revision(self.state.revision.0 - 1));
            self.counts.compactions += 1;
        }
    }

    /// When something happens next, if nobody does anything.
    pub(super) fn next_due(&self) -> Option<Duration> {
        let arrival = self.under_way.first_key_value().map(|((at, _), _)| *at);
        arrival.into_iter().chain(self.state.next_end()).min()
    }

    /// Whether a request that was sent under `leader` is answered by one who knows of it.
    pub(super) fn knows(&self, leader: u64) -> bool {
        self.leader == leader
    }

    /// A change of the leader at a time that nobody has told: leases begin anew when the service is looked at next.
    pub(super) fn change_leader(&mut self) {
        self.new_leader();
        self.leases_begin_anew = true;
        self.wake_watchers();
    }

    fn new_leader(&mut self) {
        self.leader += 1;
        self.counts.leader_changes += 1;
    }

    /// Everything as in `backup`, but for leases: they are gone, and their ids are not given again.
    pub(super) fn restore(&mut self, backup: &MapState) {
        let last_lease = self.state.last_lease;
        self.state = MapState { last_lease, ..backup.clone() };
        self.state.forget_leases();
        self.leader += 1;
        self.counts.restores += 1;
        self.wake_watchers();
    }

    pub(super) fn set_cut_off(&mut self, node: NodeId, cut_off: bool) {
        if cut_off {
            self.cut_off.insert(node);
        } else {
            self.cut_off.remove(&node);
        }
        self.wake_watchers();
    }

    pub(super) fn set_unreachable(&mut self, unreachable: bool) {
        self.is_unreachable = unreachable;
        self.wake_watchers();
    }

    pub(super) fn is_cut_off(&self, node: Option<NodeId>) -> bool {
        self.is_unreachable || node.is_some_and(|node| self.cut_off.contains(&node))
    }

    /// Names what a watcher has seen, for [`poll_changes`](Self::poll_changes).
    pub(super) fn changes(&self) -> u64 {
        self.changes
    }

    /// Resolves when there was a change after `seen`.
    pub(super) fn poll_changes(&mut self, seen: u64, cx: &Context<'_>) -> Poll<()> {
        if self.changes != seen {
            return Poll::Ready(());
        }
        if !self.watchers.iter().any(|watcher| watcher.will_wake(cx.waker())) {
            self.watchers.push(cx.waker().clone());
        }
        Poll::Pending
    }

    fn wake_watchers(&mut self) {
        self.changes += 1;
        self.watchers.drain(..).for_each(Waker::wake);
    }
}

/// The service's own clock, run by those of the nodes that come to it: a node's clock has a start and a rate of its
/// own. It follows the one that is furthest, so it never goes back, and goes as fast as the fastest.
#[derive(Default)]
struct Clock {
    now: Duration,
    /// What each node's clock showed, and this one, when the node first came.
    first: BTreeMap<Option<NodeId>, (Duration, Duration)>,
}

impl Clock {
    fn read(&mut self, node: Option<NodeId>, shows: Duration) -> Duration {
        let (shown, was) = *self.first.entry(node).or_insert((shows, self.now));
        self.now = self.now.max(was + shows.saturating_sub(shown));
        self.now
    }
}
