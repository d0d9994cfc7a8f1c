//! One turn of a core's loop: letters, timers, ready tasks, the end of the turn, and then the kernel, once.

use super::busy_poll::BusyPoll;
use super::mailbox::Message;
use super::reactor::{Reactor, Wait};
use crate::core::Core;
use crate::time::Instant;
use std::rc::Rc;
use std::time::Duration;

/// Tasks polled between two looks at the kernel: bounds what a task that keeps waking itself can hold up.
const POLLS_MAX: usize = 4096;

/// Ends of one turn: an append that gathered and was done at once (tmpfs) lets its answers gather, and they leave with
/// the same enter. Without this a write at depth 1 costs an enter more.
const TURN_ENDS_MAX: usize = 3;

/// How much longer background work may take than the turn before it: a store that cleans as fast as clients write at
/// random has about twice their work with it.
const BACKGROUND_PER_TURN: u32 = 2;

/// Runs that may end before a look at the kernel: what is done without it is not all there is to do.
const UNLOOKED_MAX: u32 = 64;

/// The loop of one core.
pub(super) struct Loop {
    core: Rc<Core>,
    reactor: Reactor,
    messages: Vec<Message>,
    stopping: bool,
    /// Runs in a row that ended before a look at the kernel.
    unlooked: u32,
    busy_poll: BusyPoll,
}

impl Loop {
    pub(super) fn new(core: Rc<Core>, reactor: Reactor, busy_poll: Duration) -> Self {
        let busy_poll = BusyPoll::new(busy_poll);
        Self { core, reactor, messages: Vec::new(), stopping: false, unlooked: 0, busy_poll }
    }

    /// Whether it was told to stop.
    pub(super) fn is_stopping(&self) -> bool {
        self.stopping
    }

    /// Takes turns until `done` or until told to stop; from that time on one more, behind a last look at the kernel. Call it with the core
    /// entered.
    pub(super) fn run(&mut self, until: Option<Instant>, mut done: impl FnMut() -> bool) {
        loop {
            self.turn();
            if self.stopping {
                return;
            }
            if done() {
                self.unlooked += 1;
                if self.unlooked < UNLOOKED_MAX {
                    return;
                }
                self.rest(Some(self.core.now()));
                return self.turn();
            }
            let is_time = until.is_some_and(|until| self.core.now() >= until);
            self.rest(until);
            if is_time {
                return self.turn();
            }
        }
    }

    fn turn(&mut self) {
        let began = self.core.now();
        self.read_letters();
        self.reactor.receive_rings().start_turn(); // may wake: never between the last task and a sleep
        self.wake_sleepers();
        self.run_ready();
        for _ in 0..TURN_ENDS_MAX {
            if !self.core.executor.end_turn() {
                break;
            }
            self.run_ready(); // what gathered leaves with this turn's enter
        }
        self.run_background(began);
    }

    fn read_letters(&mut self) {
        self.reactor.mailbox().collect(&mut self.messages);
        for message in self.messages.drain(..) {
            match message {
                Message::Wake(task) => self.core.executor.wake(task),
                Message::Spawn(make) => drop(crate::task::spawn(make())),
                Message::Stop => self.stopping = true,
            }
        }
    }

    fn wake_sleepers(&self) {
        if self.core.timers.borrow().next_deadline().is_none() {
            return;
        }
        let now = self.core.now();
        loop {
            let due = self.core.timers.borrow_mut().pop_due(now);
            let Some(waker) = due else { return };
            waker.wake();
        }
    }

    fn run_ready(&self) {
        for _ in 0..POLLS_MAX {
            if !self.core.executor.run_one() {
                return;
            }
        }
    }

    /// Steps of background work: one, and more as long as they do not take much longer than the turn that began then.
    fn run_background(&self, began: Instant) {
        if !self.core.executor.has_background() {
            return;
        }
        let now = self.core.now();
        let end = now + BACKGROUND_PER_TURN * now.since(began);
        while self.core.executor.begin_background_step() {
            self.run_ready();
            if self.core.now() >= end {
                return;
            }
        }
    }

    /// Whether something is left to do that nothing else will come for, and that is more than to read what has come: who asked for that
    /// takes a turn when he wants it.
    pub(super) fn has_more(&self) -> bool {
        self.core.executor.has_work() || self.reactor.has_to_act()
    }

    fn has_work(&self) -> bool {
        self.core.executor.has_work() || self.reactor.mailbox().has_letters()
    }

    /// Hands the kernel what gathered, and sleeps if there is nothing else to do.
    fn rest(&mut self, until: Option<Instant>) {
        self.unlooked = 0;
        if self.has_work() {
            if self.reactor.needs_enter() {
                self.reactor.enter(Wait::No);
            }
            return;
        }
        let deadline = self.core.timers.borrow().next_deadline();
        let deadline = [deadline, until].into_iter().flatten().min();
        let began = self.core.now();
        if let Some(end) = self.busy_poll.until(began)
            && deadline.is_none_or(|deadline| deadline > began)
            && self.look(began, deadline.map_or(end, |deadline| deadline.min(end)))
        {
            return;
        }
        self.sleep(deadline);
        self.busy_poll.was_idle(self.core.now().since(began));
    }

    /// Looks for what comes, without sleep, from now until the end. Returns whether there is something to do.
    fn look(&mut self, now: Instant, end: Instant) -> bool {
        let mut last = now;
        loop {
            if self.reactor.needs_enter() && self.reactor.enter(Wait::No) > 0 || self.has_work() {
                return true;
            }
            let (now, goes_on) = self.busy_poll.offer(last, || self.core.now());
            if !goes_on || now >= end {
                return false;
            }
            last = now;
        }
    }

    fn sleep(&self, deadline: Option<Instant>) {
        let wait = match deadline {
            None => Wait::Forever,
            Some(deadline) => match deadline.since(self.core.now()) {
                Duration::ZERO => Wait::No,
                time => Wait::For(time),
            },
        };
        if self.reactor.mailbox().fall_asleep() {
            self.reactor.enter(wait);
            self.reactor.mailbox().wake_up();
        } else {
            self.reactor.enter(Wait::No);
        }
    }
}
