//! The world: its time, its events, and whose turn it is.

use super::clock::KnownDeadline;
use super::core::{SimCore, SimCoreHandle};
use super::device::{OperationId, Storage};
use super::network::{Network, NetworkEvent};
use super::node::{Node, NodeOptions, SimNode};
use super::random::Random;
use super::trace::{EventKind, Trace, TraceEvent, TraceSink};
use crate::core::{Backend, Core, CoreHandle, CoreKey};
use crate::time::Instant;
use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::rc::Rc;
use std::time::Duration;

/// Tasks that one turn polls at most: a task that never waits cannot hold the core's clock.
const POLLS_PER_TURN: u64 = 256;
/// Shortest and longest time that a turn of a core takes.
const TURN_NS: (u64, u64) = (300, 2_000);
/// Steps after which `run_until` and `run_on` give up, unless told otherwise: minutes of real time, a livelock.
const DEFAULT_STEP_BOUND: u64 = 200_000_000;

/// Something that happens by itself.
#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    DiskDone(OperationId),
    Network(NetworkEvent),
}

struct Scheduled {
    time: u64,
    /// Order among events of the same time: that of their making.
    number: u64,
    event: Event,
}

impl PartialEq for Scheduled {
    fn eq(&self, other: &Self) -> bool {
        (self.time, self.number) == (other.time, other.number)
    }
}
impl Eq for Scheduled {}
impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Scheduled {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.time, self.number).cmp(&(other.time, other.number))
    }
}

/// A core that lives.
pub(super) struct LiveCore {
    pub(super) core: Rc<Core>,
    pub(super) node: u32,
    pub(super) index: u32,
    pub(super) paused: bool,
    /// When its last turn is over.
    free_at: u64,
    /// Its next deadline, as it was last.
    deadline: Cell<KnownDeadline>,
}

/// Everything of a world. Tasks reach it through their core.
pub(super) struct Shared {
    seed: u64,
    now: Cell<u64>,
    steps: Cell<u64>,
    next_key: Cell<u16>,
    schedule: Random,
    events: RefCell<BinaryHeap<Reverse<Scheduled>>>,
    next_event: Cell<u64>,
    pub(super) cores: RefCell<Vec<LiveCore>>,
    pub(super) nodes: RefCell<Vec<Node>>,
    pub(super) storage: RefCell<Storage>,
    pub(super) network: RefCell<Network>,
    trace: RefCell<Trace>,
}

/// What one step did.
enum Step {
    Ran,
    /// Nothing more until the limit; the time is now the limit.
    Limit,
    /// Nothing will ever happen again by itself.
    Idle,
}

/// Why a run ended before what it waited for came true.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Stopped {
    /// Every task waits and no event is left: a deadlock of what is simulated.
    #[error("nothing is left to happen: every task waits for something that will not come")]
    Idle,
    /// The bound on steps was reached: a livelock, or a bound too small.
    #[error("the bound on steps was reached: a livelock, or a bound too small (World::set_step_bound)")]
    StepBound,
}

impl Shared {
    pub(super) fn now(&self) -> u64 {
        self.now.get()
    }

    pub(super) fn node_now(&self, node: u32) -> Instant {
        self.nodes.borrow()[node as usize].clock.at(self.now())
    }

    /// Chance for one purpose, from the world's seed.
    pub(super) fn random_for(&self, purpose: u64) -> Random {
        Random::for_purpose(self.seed, purpose)
    }

    pub(super) fn schedule(&self, after_ns: u64, event: Event) {
        let number = self.next_event.get();
        self.next_event.set(number + 1);
        self.events.borrow_mut().push(Reverse(Scheduled { time: self.now() + after_ns, number, event }));
    }

    pub(super) fn trace(&self, kind: EventKind, place: (u32, u32), a: u64, b: u64, c: u64) {
        self.trace.borrow_mut().add(TraceEvent { time_ns: self.now(), kind, place, a, b, c });
    }

    /// Makes a core with a key that no living core of this thread has.
    pub(super) fn make_core(self: &Rc<Self>, node: u32, index: u32) -> CoreHandle {
        let key = loop {
            let key = CoreKey(self.next_key.get());
            self.next_key.set(key.0.checked_add(1).unwrap_or(CoreKey::FIRST_SIMULATED));
            if crate::core::local_core(key).is_none() {
                break key;
            }
        };
        let core = Core::new(key, Backend::Sim(SimCore { shared: self.clone(), node }));
        self.cores.borrow_mut().push(LiveCore {
            core,
            node,
            index,
            paused: false,
            free_at: self.now(),
            deadline: Cell::default(),
        });
        CoreHandle::Sim(SimCoreHandle { key })
    }

    /// Ends a node's cores and all their tasks.
    pub(super) fn end_cores(&self, node: u32) {
        let ended: Vec<LiveCore> = {
            let mut cores = self.cores.borrow_mut();
            let (ended, kept) = std::mem::take(&mut *cores).into_iter().partition(|core| core.node == node);
            *cores = kept;
            ended
        };
        for LiveCore { core, .. } in ended {
            // Dropped futures may still wake and spawn: on a core that is current and known, until none is left.
            core.enter(|| {
                loop {
                    core.executor.clear();
                    if !core.executor.has_ready() {
                        break;
                    }
                }
            });
            core.timers.borrow_mut().clear();
            core.forget();
        }
    }

    /// One event, or one turn of one core; time passes only when neither is due.
    fn step(&self, limit: u64) -> Step {
        self.steps.set(self.steps.get() + 1);
        loop {
            if let Some(event) = self.pop_due() {
                match event {
                    Event::DiskDone(id) => self.complete(id),
                    Event::Network(event) => self.network_event(event),
                }
                return Step::Ran;
            }
            let (chosen, mut next) = self.choose();
            if let Some(index) = chosen {
                self.run_turn(index);
                return Step::Ran;
            }
            if let Some(Reverse(event)) = self.events.borrow().peek() {
                next = next.min(event.time);
            }
            if next > limit {
                self.now.set(limit);
                return Step::Limit;
            }
            if next == u64::MAX {
                return Step::Idle;
            }
            self.now.set(next);
        }
    }

    fn pop_due(&self) -> Option<Event> {
        let mut events = self.events.borrow_mut();
        let due = events.peek().is_some_and(|Reverse(event)| event.time <= self.now());
        due.then(|| events.pop().expect("just seen").0.event)
    }

    /// A core that can run now, by the seed; and when, without one, the next can.
    fn choose(&self) -> (Option<usize>, u64) {
        let (mut chosen, mut candidates, mut next) = (None, 0, u64::MAX);
        let cores = self.cores.borrow();
        for (index, slot) in cores.iter().enumerate().filter(|(_, slot)| !slot.paused) {
            let due = if slot.core.executor.has_ready() {
                0
            } else if let Some(deadline) = slot.core.timers.borrow().next_deadline() {
                self.nodes.borrow()[slot.node as usize].clock.world_time_of_next(deadline, &slot.deadline)
            } else {
                continue;
            };
            let at = due.max(slot.free_at);
            if at > self.now() {
                next = next.min(at);
                continue;
            }
            candidates += 1;
            if candidates == 1 || self.schedule.one_in(candidates) {
                chosen = Some(index);
            }
        }
        (chosen, next)
    }

    fn run_turn(&self, index: usize) {
        let (core, place) = {
            let cores = self.cores.borrow();
            (cores[index].core.clone(), (cores[index].node, cores[index].index))
        };
        let polls = core.enter(|| {
            let now = core.now();
            loop {
                let Some(waker) = core.timers.borrow_mut().pop_due(now) else { break };
                waker.wake();
            }
            let mut polls = 0;
            while polls < POLLS_PER_TURN && core.executor.run_one() {
                polls += 1;
            }
            core.executor.end_turn();
            core.executor.begin_background_step();
            polls
        });
        self.trace(EventKind::Turn, place, polls, 0, 0);
        let cost = self.schedule.between(TURN_NS.0, TURN_NS.1);
        if let Some(slot) = self.cores.borrow_mut().iter_mut().find(|slot| slot.core.key == core.key) {
            slot.free_at = self.now() + cost;
        }
    }
}

/// A simulated world: nodes, disks and a network in one thread, in virtual time. Everything follows from the seed.
///
/// Dropping it ends all its nodes. One world per thread at a time.
pub struct World {
    pub(super) shared: Rc<Shared>,
    step_bound: Cell<u64>,
}

impl World {
    /// An empty world.
    pub fn new(seed: u64) -> Self {
        let shared = Rc::new(Shared {
            seed,
            now: Cell::new(0),
            steps: Cell::new(0),
            next_key: Cell::new(CoreKey::FIRST_SIMULATED),
            schedule: Random::for_purpose(seed, 1),
            events: RefCell::default(),
            next_event: Cell::new(0),
            cores: RefCell::default(),
            nodes: RefCell::default(),
            storage: RefCell::default(),
            network: RefCell::new(Network::new(Random::for_purpose(seed, 2))),
            trace: RefCell::default(),
        });
        Self { shared, step_bound: Cell::new(DEFAULT_STEP_BOUND) }
    }

    /// A new node with running cores.
    pub fn add_node(&self, cores: usize, options: NodeOptions) -> SimNode {
        Node::add(&self.shared, cores, options)
    }

    /// Time since the world began.
    pub fn now(&self) -> Duration {
        Duration::from_nanos(self.shared.now())
    }

    /// Steps made so far.
    pub fn steps(&self) -> u64 {
        self.shared.steps.get()
    }

    /// Steps after which one `run_until` or `run_on` gives up.
    pub fn set_step_bound(&self, steps: u64) {
        self.step_bound.set(steps);
    }

    /// One event or one turn. `false` if nothing will happen any more.
    pub fn step(&self) -> bool {
        !matches!(self.shared.step(u64::MAX), Step::Idle)
    }

    /// Runs until `done` says so; it is asked after every step.
    ///
    /// # Errors
    /// [`Stopped`]: it can not, or it took too many steps.
    pub fn run_until(&self, mut done: impl FnMut() -> bool) -> Result<(), Stopped> {
        for _ in 0..self.step_bound.get() {
            if done() {
                return Ok(());
            }
            if let Step::Idle = self.shared.step(u64::MAX) {
                return if done() { Ok(()) } else { Err(Stopped::Idle) };
            }
        }
        Err(Stopped::StepBound)
    }

    /// Runs for `duration` of the world's time, or until nothing is left to happen; then the time passes all the same.
    pub fn run_for(&self, duration: Duration) {
        let limit = self.shared.now() + duration.as_nanos() as u64;
        while let Step::Ran = self.shared.step(limit) {}
        self.shared.now.set(limit);
    }

    /// Runs until the time of the world is `until`, or `done` says so, which is asked after every step. Where nothing is
    /// left to happen the time passes all the same.
    ///
    /// # Errors
    /// [`Stopped::StepBound`]: it took too many steps.
    pub fn run_to(&self, until: Duration, mut done: impl FnMut() -> bool) -> Result<(), Stopped> {
        let limit = self.shared.now().max(until.as_nanos() as u64);
        for _ in 0..self.step_bound.get() {
            if done() {
                return Ok(());
            }
            match self.shared.step(limit) {
                Step::Ran => {}
                Step::Limit | Step::Idle => {
                    self.shared.now.set(limit);
                    return Ok(());
                }
            }
        }
        Err(Stopped::StepBound)
    }

    /// Runs `future` on a core of `node` until it ends, and everything else meanwhile.
    ///
    /// # Errors
    /// [`Stopped`], as [`run_until`](Self::run_until).
    pub fn run_on<T: 'static>(
        &self,
        node: &SimNode,
        core: usize,
        future: impl Future<Output = T> + 'static,
    ) -> Result<T, Stopped> {
        let slot = Rc::new(RefCell::new(None));
        let result = slot.clone();
        node.spawn(core, async move {
            let output = future.await;
            *result.borrow_mut() = Some(output);
        });
        self.run_until(|| slot.borrow().is_some())?;
        Ok(slot.take().expect("just seen"))
    }

    /// The hash of everything that has happened.
    pub fn trace_hash(&self) -> u64 {
        self.shared.trace.borrow().hash()
    }

    /// Events that have happened.
    pub fn trace_events(&self) -> u64 {
        self.shared.trace.borrow().events()
    }

    /// Gives every event to `sink` from now on, for whoever reads the trace of a failing seed.
    pub fn set_trace_sink(&self, sink: Option<TraceSink>) {
        self.shared.trace.borrow_mut().set_sink(sink);
    }

    /// Folds a note of the workload into the trace.
    pub fn note(&self, a: u64, b: u64, c: u64) {
        self.shared.trace(EventKind::Note, (0, 0), a, b, c);
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let nodes = self.shared.nodes.borrow().len() as u32;
        (0..nodes).for_each(|node| self.shared.end_cores(node));
    }
}
