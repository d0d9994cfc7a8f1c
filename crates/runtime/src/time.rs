//! Time: a monotonic clock per node (virtual in a simulation), sleeping, deadlines.

use crate::core::{self, Backend};
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// A point of this node's monotonic clock, in nanoseconds since some start. Never compared between nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(pub u64);

impl Instant {
    /// Time from `earlier` to `self`; zero if it is the other way round.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl std::ops::Add<Duration> for Instant {
    type Output = Self;
    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)))
    }
}

/// The sleepers of one core, by deadline.
#[derive(Default)]
pub(crate) struct Timers {
    sleepers: BTreeMap<(Instant, u64), Waker>,
    next_id: u64,
}

impl Timers {
    fn insert(&mut self, deadline: Instant, waker: Waker) -> u64 {
        self.next_id += 1;
        self.sleepers.insert((deadline, self.next_id), waker);
        self.next_id
    }

    /// The earliest deadline.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.sleepers.first_key_value().map(|((deadline, _), _)| *deadline)
    }

    /// One sleeper whose time has come; the caller wakes it outside any borrow.
    pub(crate) fn pop_due(&mut self, now: Instant) -> Option<Waker> {
        let entry = self.sleepers.first_entry()?;
        (entry.key().0 <= now).then(|| entry.remove())
    }

    pub(crate) fn clear(&mut self) {
        self.sleepers.clear();
    }
}

/// This node's monotonic clock.
pub fn now() -> Instant {
    core::with_current(|core| core.now())
}

/// Wall time in nanoseconds since 1970: recorded, and decided on only by terms that outlive a process (the trash).
pub fn wall_clock_ns() -> u64 {
    core::with_current(|core| match &core.backend {
        Backend::Uring(_) => crate::uring::wall_clock_ns(),
        Backend::Sim(sim) => sim.wall_clock_ns(),
    })
}

/// Resolves at `deadline`.
pub fn sleep_until(deadline: Instant) -> Sleep {
    Sleep { deadline, registered: None }
}

/// Resolves after `duration`.
pub fn sleep(duration: Duration) -> Sleep {
    sleep_until(now() + duration)
}

/// See [`sleep`].
pub struct Sleep {
    deadline: Instant,
    registered: Option<u64>,
}

impl Future for Sleep {
    type Output = ();
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        core::with_current(|core| {
            if let Some(id) = self.registered.take() {
                core.timers.borrow_mut().sleepers.remove(&(self.deadline, id));
            }
            if core.now() >= self.deadline {
                return Poll::Ready(());
            }
            self.registered = Some(core.timers.borrow_mut().insert(self.deadline, cx.waker().clone()));
            Poll::Pending
        })
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        let Some(id) = self.registered else { return };
        let key = (self.deadline, id);
        core::with_current_if_any(|core| {
            if let Ok(mut timers) = core.timers.try_borrow_mut() {
                timers.sleepers.remove(&key);
            }
        });
    }
}

/// The time ran out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the time ran out")]
pub struct Elapsed;

/// `future`'s output, or [`Elapsed`] once `duration` has passed; then the future is dropped.
pub async fn timeout<F: Future>(duration: Duration, future: F) -> Result<F::Output, Elapsed> {
    let mut sleep = std::pin::pin!(sleep(duration));
    let mut future = std::pin::pin!(future);
    std::future::poll_fn(|cx| {
        if let Poll::Ready(output) = future.as_mut().poll(cx) {
            return Poll::Ready(Ok(output));
        }
        sleep.as_mut().poll(cx).map(|()| Err(Elapsed))
    })
    .await
}
