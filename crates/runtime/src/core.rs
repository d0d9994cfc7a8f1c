//! A core: one executor, its timers, and the backend that serves it; and how cores find each other.

use crate::task::{Executor, TaskKey};
use crate::time::{Instant, Timers};
use crate::{sim, uring};
use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

/// Number of a core within the process (uring: below 0x8000) or of a simulated one within its thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CoreKey(pub(crate) u16);

impl CoreKey {
    /// Keys from here on are simulated cores: known to one thread only.
    pub(crate) const FIRST_SIMULATED: u16 = 0x8000;

    pub(crate) fn is_simulated(self) -> bool {
        self.0 >= Self::FIRST_SIMULATED
    }
}

/// Who serves a core's disk, net and clock.
pub(crate) enum Backend {
    Uring(uring::Reactor),
    Sim(sim::SimCore),
}

pub(crate) struct Core {
    pub(crate) key: CoreKey,
    pub(crate) executor: Executor,
    pub(crate) timers: RefCell<Timers>,
    pub(crate) backend: Backend,
}

impl Core {
    pub(crate) fn new(key: CoreKey, backend: Backend) -> Rc<Self> {
        let core = Rc::new(Self { key, executor: Executor::new(key), timers: RefCell::default(), backend });
        core.settle();
        core
    }

    /// Puts the core into its thread's list.
    pub(crate) fn settle(self: &Rc<Self>) {
        LOCAL.with_borrow_mut(|local| {
            let index = local.partition_point(|(k, _)| *k < self.key);
            local.insert(index, (self.key, self.clone()));
        });
    }

    /// Takes the core out of its thread's list: wakers of its tasks wake nobody from now on.
    pub(crate) fn forget(&self) {
        LOCAL.with_borrow_mut(|local| local.retain(|(k, _)| *k != self.key));
    }

    /// Runs `f` with this core as the current one.
    pub(crate) fn enter<T>(self: &Rc<Self>, f: impl FnOnce() -> T) -> T {
        let before = CURRENT.with_borrow_mut(|current| current.replace(self.clone()));
        let _restore = Restore(before);
        f()
    }

    pub(crate) fn now(&self) -> Instant {
        match &self.backend {
            Backend::Uring(reactor) => reactor.now(),
            Backend::Sim(core) => core.now(),
        }
    }
}

/// Puts the outer core back, also when `f` panics.
struct Restore(Option<Rc<Core>>);

impl Drop for Restore {
    fn drop(&mut self) {
        let before = self.0.take();
        let _ = CURRENT.try_with(|current| *current.borrow_mut() = before);
    }
}

thread_local! {
    static CURRENT: RefCell<Option<Rc<Core>>> = const { RefCell::new(None) };
    /// The cores that live on this thread, by key: one with uring, all of them in a simulation.
    static LOCAL: RefCell<Vec<(CoreKey, Rc<Core>)>> = const { RefCell::new(Vec::new()) };
}

/// Whether this thread can have a core: one that ends may have none any more.
pub(crate) fn is_there() -> bool {
    CURRENT.try_with(|_| ()).is_ok() && LOCAL.try_with(|_| ()).is_ok()
}

/// The core that the calling task runs on.
///
/// # Panics
/// Outside a reactor: the surface of this crate works only within tasks.
pub(crate) fn with_current<T>(f: impl FnOnce(&Rc<Core>) -> T) -> T {
    CURRENT
        .with_borrow(|current| f(current.as_ref().expect("called outside a reactor: use it within a task of a core")))
}

/// As [`with_current`], and nothing where there is no current core (a simulation that is being taken down).
pub(crate) fn with_current_if_any(f: impl FnOnce(&Rc<Core>)) {
    let _ = CURRENT.try_with(|current| {
        if let Ok(current) = current.try_borrow()
            && let Some(core) = current.as_ref()
        {
            f(core);
        }
    });
}

/// Runs `f` on a core of this thread; `None` if there is no such core here.
pub(crate) fn with_core<T>(key: CoreKey, f: impl FnOnce(&Core) -> T) -> Option<T> {
    let core = LOCAL
        .try_with(|local| {
            let local = local.try_borrow().ok()?;
            let index = local.binary_search_by_key(&key, |(k, _)| *k).ok()?;
            Some(local[index].1.clone())
        })
        .ok()??;
    Some(f(&core))
}

/// A core of this thread.
pub(crate) fn local_core(key: CoreKey) -> Option<Rc<Core>> {
    LOCAL.with_borrow(|local| {
        let index = local.binary_search_by_key(&key, |(k, _)| *k).ok()?;
        Some(local[index].1.clone())
    })
}

/// Whether no task is running on this thread: a simulation is driven from outside.
pub(crate) fn is_outside() -> bool {
    CURRENT.with_borrow(|current| current.is_none())
}

/// Wakes a task, wherever its core is.
pub(crate) fn wake(task: TaskKey) {
    let fast = CURRENT.try_with(|current| match &*current.borrow() {
        Some(core) if core.key == task.core() => {
            core.executor.wake(task);
            true
        }
        _ => false,
    });
    if fast.unwrap_or(false) || with_core(task.core(), |core| core.executor.wake(task)).is_some() {
        return;
    }
    if !task.core().is_simulated() {
        uring::wake_remote(task);
    }
}

/// The key of the current core.
pub fn core_key() -> CoreKey {
    with_current(|core| core.key)
}

/// A random number: from the operating system, or in a simulation from its seed.
pub fn random_u64() -> u64 {
    with_current(|core| match &core.backend {
        Backend::Uring(_) => uring::random_u64(),
        Backend::Sim(sim) => sim.random_u64(),
    })
}

/// A future that lives on one core.
pub type LocalFuture = Pin<Box<dyn Future<Output = ()>>>;

/// A core to start tasks on, from any thread of its process or any core of its simulated node.
#[derive(Clone, Debug)]
pub enum CoreHandle {
    /// A real core.
    Uring(uring::UringCoreHandle),
    /// A simulated one.
    Sim(sim::SimCoreHandle),
}

impl CoreHandle {
    /// Starts a task on that core: `make` is carried there and called there.
    pub fn spawn_on<F: Future<Output = ()> + 'static>(&self, make: impl FnOnce() -> F + Send + 'static) {
        let make = Box::new(move || Box::pin(make()) as LocalFuture);
        match self {
            Self::Uring(handle) => handle.spawn_boxed(make),
            Self::Sim(handle) => handle.spawn_boxed(make),
        }
    }

    /// The core's key.
    pub fn key(&self) -> CoreKey {
        match self {
            Self::Uring(handle) => handle.key(),
            Self::Sim(handle) => handle.key(),
        }
    }
}
