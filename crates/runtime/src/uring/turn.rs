//! One turn of a core's loop: letters, timers, ready tasks, the end of the turn, and then the kernel, once.

use super::mailbox::Message;
use super::reactor::{Reactor, Wait};
use crate::core::Core;
use crate::time::Instant;
use std::rc::Rc;
use std::time::Duration;

/// Tasks polled between two looks at the kernel: bounds what a task that keeps waking itself can hold up.
const POLLS_MAX: usize = 4096;
/// Longest spin before a sleep, and only with requests outstanding: about what sleeping and waking cost.
const SPIN_MAX: Duration = Duration::from_micros(20);
/// After this many spins in vain in a row only every 64th is tried: on a slow disk they only burn.
const VAIN_SPINS_MAX: u32 = 4;

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
    vain_spins: u32,
    /// Runs in a row that ended before a look at the kernel.
    unlooked: u32,
}

impl Loop {
    pub(super) fn new(core: Rc<Core>, reactor: Reactor) -> Self {
        Self { core, reactor, messages: Vec::new(), stopping: false, vain_spins: 0, unlooked: 0 }
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

    /// Whether something is left to do that nothing else will come for.
    pub(super) fn has_more(&self) -> bool {
        self.core.executor.has_work() || self.reactor.is_due()
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
        let worth_a_spin = self.reactor.operations().prompt() > 0 && self.may_spin();
        if worth_a_spin && (self.reactor.enter(Wait::No) > 0 || self.spin(deadline)) {
            return;
        }
        self.sleep(deadline);
    }

    fn may_spin(&mut self) -> bool {
        if self.vain_spins < VAIN_SPINS_MAX {
            return true;
        }
        self.vain_spins += 1;
        self.vain_spins.is_multiple_of(64)
    }

    /// Looks for completions and letters without a system call. Returns whether there is something to do.
    fn spin(&mut self, deadline: Option<Instant>) -> bool {
        if self.reactor.operations().prompt() == 0 {
            return false;
        }
        let start = self.core.now();
        let end = deadline.map_or(start + SPIN_MAX, |deadline| deadline.min(start + SPIN_MAX));
        loop {
            if self.reactor.has_completions() {
                self.vain_spins = 0;
                self.reactor.enter(Wait::No);
                return true;
            }
            if self.has_work() {
                return true;
            }
            if self.core.now() >= end {
                self.vain_spins = self.vain_spins.saturating_add(1);
                return false;
            }
            for _ in 0..16 {
                std::hint::spin_loop();
            }
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
