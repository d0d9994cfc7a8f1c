//! Whether a core looks for what comes before it sleeps. Between going to sleep and being woken lies more than a request takes: 20 to 30 µs
//! on bare metal with an idle state left, and on a virtual machine, whose halted processor its host has to wake.
//!
//! A core looks if it was idle for less than the longest look the last time: the next request is expected as soon. While it looks it
//! offers its processor to others, and where these take it for long it sleeps instead.

use crate::time::Instant;
use std::time::Duration;

/// Longest look, where nobody says otherwise: what Linux polls for before it halts a processor of a virtual machine (haltpoll,
/// `guest_halt_poll_ns`).
pub const BUSY_POLL: Duration = Duration::from_micros(200);

/// Somebody else had the processor for so long: there is other work for it.
const OTHERS_WORK: Duration = Duration::from_micros(100);
/// Then nothing is looked for so long.
const AWAY: Duration = Duration::from_micros(100);

/// What one core has seen of its idle times.
pub(super) struct BusyPoll {
    /// Zero: it always sleeps.
    longest: Duration,
    is_brief: bool,
    away_until: Instant,
}

impl BusyPoll {
    pub(super) fn new(longest: Duration) -> Self {
        Self { longest, is_brief: false, away_until: Instant(0) }
    }

    /// How long to look, from now on: `None` where sleeping is better.
    pub(super) fn until(&self, now: Instant) -> Option<Instant> {
        (self.is_brief && now >= self.away_until).then(|| now + self.longest)
    }

    /// Offers the processor to whoever waits for it, behind a look that began at `last`. Returns the time, and whether to look on:
    /// nobody had the processor for long since then, asked or not.
    pub(super) fn offer(&mut self, last: Instant, now: impl Fn() -> Instant) -> (Instant, bool) {
        for _ in 0..16 {
            std::hint::spin_loop();
        }
        // SAFETY: no pointers.
        unsafe { libc::sched_yield() };
        let now = now();
        let goes_on = now.since(last) < OTHERS_WORK;
        if !goes_on {
            self.away_until = now + AWAY;
        }
        (now, goes_on)
    }

    /// The core has been idle for so long, looking and asleep.
    pub(super) fn was_idle(&mut self, time: Duration) {
        self.is_brief = time < self.longest;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_millis(1);

    #[test]
    fn it_looks_behind_a_brief_idle_time_alone() {
        let mut poll = BusyPoll::new(BUSY_POLL);
        let now = Instant(5_000_000);
        assert_eq!(poll.until(now), None);
        poll.was_idle(BUSY_POLL / 2);
        assert_eq!(poll.until(now), Some(now + BUSY_POLL));
        poll.was_idle(BUSY_POLL);
        assert_eq!(poll.until(now), None);
    }

    #[test]
    fn it_never_looks_with_no_time_for_it() {
        let mut poll = BusyPoll::new(Duration::ZERO);
        poll.was_idle(Duration::ZERO);
        assert_eq!(poll.until(Instant(5_000_000)), None);
    }

    #[test]
    fn it_sleeps_where_others_work() {
        let last = Instant(5_000_000);
        let mut poll = BusyPoll::new(BUSY_POLL);
        poll.was_idle(BUSY_POLL / 2);
        let (after, goes_on) = poll.offer(last, || last + OTHERS_WORK / 2);
        assert!(goes_on && poll.until(after).is_some());
        let (after, goes_on) = poll.offer(last, || last + LONG);
        assert!(!goes_on);
        assert_eq!(poll.until(after), None);
        assert!(poll.until(after + AWAY).is_some());
    }
}
