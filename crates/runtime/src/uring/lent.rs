//! A core that the threads of a program run while they wait for it, so that what they wait for wakes one thread and not two.
//!
//! ```text
//!   a thread of the program                         the core's own thread
//!   ───────────────────────                         ─────────────────────
//!   lend: takes it, takes turns ── done ──► free ── nobody took it for a while ──► takes turns
//!            ▲                                                                         │
//!            └──────────────── lends, and it is the own thread's: that ends its turn ◄─┘
//! ```
//!
//! One thread at a time has the core and all that belongs to it: its tasks, timers, connections. So nothing of these is `Send`, and nothing
//! of them may be the thread's: tasks of such a core keep nothing in thread-locals from one poll to the next. It has no devices.
//!
//! **Promises.** Whoever leaves the core while something is left to do wakes its own thread, as does whoever needs that
//! ([`see_to_it`](Lent::see_to_it)). Left alone it is taken up within twice [`GRACE`]; so is what lies in a socket and was not read yet: where
//! much is under way there always is some, and two threads that take the core from each other at each turn do nothing else.

use super::cores::{Running, UringCoreHandle, end_process_on_panic};
use super::fit::{Uncancelled, is_place};
use super::mailbox::{Mailbox, Message};
use super::reactor::Reactor;
use super::turn::Loop;
use crate::core::{CoreHandle, CoreKey};
use crate::futex::{sleep_on, wake};
use crate::time::Instant;
use std::cell::UnsafeCell;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

/// The own thread takes the core when nobody did for so long.
const GRACE: Duration = Duration::from_millis(1);
/// Where two threads wait at a time, nobody lends for so long: the own thread serves them all.
const CROWDED: Duration = Duration::from_millis(100);

/// Who has the core.
const FREE: u32 = 0;
const OWN: u32 = 1;
const LENT: u32 = 2;

/// See the module.
pub struct Lent {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    key: CoreKey,
    mailbox: &'static Mailbox,
    /// [`FREE`], [`OWN`], [`LENT`]; also the word on which is waited for the own thread to let go.
    who: AtomicU32,
    /// Threads that wait for the own one to let go.
    wanted: AtomicU32,
    /// Threads that wait for something else, while whoever has the core sees to it.
    others: AtomicU32,
    /// Its own thread is to take it as soon as nobody has it.
    owed: AtomicBool,
    /// How often it was lent.
    times: AtomicU32,
    /// When two threads waited last, ns.
    crowded_at_ns: AtomicU64,
    /// The word on which the own thread sleeps: 1 has it take the core.
    call: AtomicU32,
    turns: UnsafeCell<Option<(Loop, Running)>>,
}

// SAFETY: `turns` is touched only by whoever has set `who` from FREE, until he sets it back; what is in it leaves nothing in that thread.
unsafe impl Sync for Shared {}
// SAFETY: as above.
unsafe impl Send for Shared {}

impl Lent {
    /// Starts the core, with its own thread. Whoever has it looks for what comes for so long before he sleeps, where he expects it as soon.
    ///
    /// # Errors
    /// Where the kernel is too old, or the system gives no thread or descriptor.
    pub fn start(busy_poll: Duration) -> io::Result<Self> {
        let (tell, told) = mpsc::channel();
        let body = move || match make(busy_poll) {
            Ok(shared) => {
                let shared = Arc::new(shared);
                let _ = tell.send(Ok(shared.clone()));
                end_process_on_panic(|| shared.serve());
            }
            Err(error) => drop(tell.send(Err(error))),
        };
        let thread = std::thread::Builder::new().name("cairn-core".to_owned()).spawn(body)?;
        let shared = told.recv().map_err(|_| io::Error::other("the core's thread ended at once"))??;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// The core.
    pub fn handle(&self) -> CoreHandle {
        CoreHandle::Uring(UringCoreHandle { key: self.shared.key })
    }

    /// Runs the core on this thread until `done`, for `timeout` at most; with none left, it is looked once what has come. `false`: it does
    /// not, as somebody else has it or waits, too, or the thread is no place for it: wait as one of the [others](Self::as_other).
    pub fn lend(&self, timeout: Option<Duration>, done: impl Fn() -> bool) -> bool {
        let shared = &*self.shared;
        if !is_place() || shared.is_crowded() {
            return false;
        }
        let until = timeout.map(|timeout| Instant(super::boot_clock_ns()) + timeout);
        loop {
            match shared.who.compare_exchange(FREE, LENT, Ordering::SeqCst, Ordering::SeqCst) {
                Ok(_) => break,
                Err(OWN) if timeout != Some(Duration::ZERO) => shared.want(until),
                Err(_) => return false,
            }
            if done() || until.is_some_and(|until| super::boot_clock_ns() >= until.0) {
                return true;
            }
            if shared.is_crowded() {
                return false;
            }
        }
        shared.times.fetch_add(1, Ordering::SeqCst);
        shared.run(until, done);
        shared.leave();
        true
    }

    /// Takes a turn if nobody has the core: what was just asked of it is begun. Looks for nothing that comes.
    pub fn give_a_turn(&self) {
        let shared = &*self.shared;
        if shared.who.load(Ordering::SeqCst) != FREE
            || !is_place()
            || shared.who.compare_exchange(FREE, LENT, Ordering::SeqCst, Ordering::SeqCst).is_err()
        {
            return;
        }
        shared.run(None, || true);
        shared.leave();
    }

    /// As one of several who wait: somebody has the core as long as `wait` takes.
    pub fn as_other<T>(&self, wait: impl FnOnce() -> T) -> T {
        let shared = &*self.shared;
        shared.others.fetch_add(1, Ordering::SeqCst);
        self.leave_to_own();
        let value = wait();
        shared.others.fetch_sub(1, Ordering::SeqCst);
        value
    }

    /// Its own thread takes the core as soon as nobody has it.
    pub fn see_to_it(&self) {
        self.shared.owed.store(true, Ordering::SeqCst);
        if self.shared.who.load(Ordering::SeqCst) == FREE {
            self.shared.call_own();
        }
    }

    /// The same, and nobody lends for a while: somebody waits elsewhere.
    pub fn leave_to_own(&self) {
        self.shared.crowded_at_ns.store(super::boot_clock_ns(), Ordering::SeqCst);
        self.see_to_it();
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.shared.mailbox.post(Message::Stop);
        self.shared.call_own();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // a panic there has ended the process already
        }
    }
}

impl std::fmt::Debug for Lent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Lent({:?})", self.shared.key)
    }
}

/// The core, in the hands of this thread.
fn make(busy_poll: Duration) -> io::Result<Shared> {
    let running = Running::with(Reactor::by_poller)?;
    running.core.forget();
    Ok(Shared {
        key: running.core.key,
        mailbox: running.reactor.mailbox(),
        who: AtomicU32::new(OWN),
        wanted: AtomicU32::new(0),
        others: AtomicU32::new(0),
        owed: AtomicBool::new(false),
        times: AtomicU32::new(0),
        crowded_at_ns: AtomicU64::new(0),
        call: AtomicU32::new(0),
        turns: UnsafeCell::new(Some((running.turns(busy_poll), running))),
    })
}

impl Shared {
    /// The own thread.
    fn serve(&self) {
        loop {
            self.run(None, || self.wanted.load(Ordering::SeqCst) > 0);
            // SAFETY: this thread has the core.
            let turns = unsafe { &mut *self.turns.get() };
            if turns.as_ref().is_some_and(|(turns, _)| turns.is_stopping()) {
                if let Some((turns, running)) = turns.take() {
                    drop(turns);
                    running.core.settle();
                    drop(running);
                }
                return;
            }
            self.leave();
            wake(&self.who, i32::MAX);
            self.wait_for_turn();
        }
    }

    /// Takes turns with the core that this thread has.
    fn run(&self, until: Option<Instant>, done: impl FnMut() -> bool) {
        // SAFETY: this thread has the core.
        let turns = unsafe { &mut *self.turns.get() };
        let Some((turns, running)) = turns else { return };
        let _uncancelled = Uncancelled::begin();
        end_process_on_panic(|| {
            running.core.settle();
            running.core.enter(|| turns.run(until, done));
            running.core.forget();
        });
    }

    /// Lets go of the core.
    fn leave(&self) {
        // SAFETY: this thread has the core.
        let turns = unsafe { &*self.turns.get() };
        let has_more = turns.as_ref().is_some_and(|(turns, _)| turns.is_stopping() || turns.has_more());
        self.who.store(FREE, Ordering::SeqCst);
        let is_owed = self.owed.load(Ordering::SeqCst) || self.others.load(Ordering::SeqCst) > 0;
        // Who has posted a letter and found the core in somebody's hands has left it at that.
        if has_more || is_owed || self.mailbox.has_letters() {
            self.call_own();
        }
    }

    /// Has the own thread let go, and waits for that.
    fn want(&self, until: Option<Instant>) {
        self.wanted.fetch_add(1, Ordering::SeqCst);
        self.mailbox.nudge();
        let left = until.map(|until| until.since(Instant(super::boot_clock_ns())));
        sleep_on(&self.who, OWN, left);
        self.wanted.fetch_sub(1, Ordering::SeqCst);
    }

    fn is_crowded(&self) -> bool {
        if self.others.load(Ordering::SeqCst) > 0 {
            return true;
        }
        let at_ns = self.crowded_at_ns.load(Ordering::Relaxed);
        at_ns > 0 && super::boot_clock_ns().saturating_sub(at_ns) < CROWDED.as_nanos() as u64
    }

    fn call_own(&self) {
        if self.call.swap(1, Ordering::SeqCst) == 0 {
            wake(&self.call, i32::MAX);
        }
    }

    /// The own thread: until the core is its again.
    fn wait_for_turn(&self) {
        let mut seen = self.times.load(Ordering::SeqCst);
        loop {
            sleep_on(&self.call, 0, Some(GRACE));
            let is_called = self.call.swap(0, Ordering::SeqCst) == 1;
            let times = self.times.load(Ordering::SeqCst);
            // Whoever wants it is let have it first, and calls if he has to.
            if (is_called || times == seen)
                && self.wanted.load(Ordering::SeqCst) == 0
                && self.who.compare_exchange(FREE, OWN, Ordering::SeqCst, Ordering::SeqCst).is_ok()
            {
                self.owed.store(false, Ordering::SeqCst);
                return;
            }
            seen = times;
        }
    }
}
