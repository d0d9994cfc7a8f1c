//! How fast goes what no client waits for: catch-up and scrub of a core share one budget.
//!
//! ```text
//!   clients' commits ── how long each took ──► share: 10 % … 100 % ──► bytes that may go in this period
//!                                                                      of as many as went at most before
//! ```
//!
//! While clients are quiet nothing is held back. When their writes take longer than they do without it, the share falls
//! by a third each period; when they do not, it rises again. It never falls below a tenth: a copy that is missing is a risk
//! as well.

use runtime::{Instant, now};
use std::cell::Cell;
use std::time::Duration;

/// The share is looked at so often.
const PERIOD: Duration = Duration::from_millis(100);
/// Least and most of what can go, in thousandths.
const SHARE_MIN: u64 = 100;
const SHARE_MAX: u64 = 1000;
/// Clients are slowed down when their writes take so many times as long as without recovery, and this much longer.
const SLOWER: u64 = 2;
const SLOWER_NS: u64 = 200_000;
/// A wait is looked at again after so long.
const LOOK: Duration = Duration::from_millis(5);

/// See the module.
pub(crate) struct Pace {
    began: Cell<Instant>,
    /// Bytes that went in this period.
    spent: Cell<u64>,
    /// The most that went in a period in which nothing was held back; it sinks slowly then, for devices and networks become
    /// slower, too.
    most: Cell<u64>,
    /// Something went in the period before: this one shows how much can.
    is_whole: Cell<bool>,
    share: Cell<u64>,
    /// Commits of clients in this period: how many were timed, and how long they took together.
    timed: Cell<(u64, u64)>,
    /// How long one takes while nothing else goes, ns; 0: not known.
    alone_ns: Cell<u64>,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            began: Cell::default(),
            spent: Cell::new(0),
            most: Cell::new(0),
            is_whole: Cell::new(false),
            share: Cell::new(SHARE_MAX),
            timed: Cell::new((0, 0)),
            alone_ns: Cell::new(0),
        }
    }
}

impl Pace {
    /// A client's write was committed so long after it was given its place.
    pub(crate) fn committed_after(&self, took: Duration, at: Instant) {
        self.look(at);
        let (count, sum) = self.timed.get();
        self.timed.set((count + 1, sum.saturating_add(took.as_nanos() as u64)));
    }

    /// Waits until so many bytes may go.
    pub(crate) async fn wait_for(&self, bytes: usize) {
        while !self.takes(bytes as u64, now()) {
            runtime::sleep(LOOK).await;
        }
    }

    /// Takes so many bytes out of the period's budget, if there is any left.
    fn takes(&self, bytes: u64, at: Instant) -> bool {
        self.look(at);
        let share = self.share.get();
        let may = self.most.get() * share / SHARE_MAX;
        // The first of a period always goes: however large a piece is, it is not held for ever.
        let goes = share == SHARE_MAX || self.spent.get() == 0 || self.spent.get() + bytes <= may;
        if goes {
            self.spent.set(self.spent.get() + bytes);
        }
        goes
    }

    /// Ends the period, if it is over.
    fn look(&self, at: Instant) {
        let passed = at.since(self.began.get());
        if passed < PERIOD {
            return;
        }
        self.began.set(at);
        let (spent, (count, sum)) = (self.spent.replace(0), self.timed.replace((0, 0)));
        let (share, most) = (self.share.get(), self.most.get());
        let is_whole = self.is_whole.replace(spent > 0) && spent > 0;
        if passed >= 2 * PERIOD {
            // Nothing went for a while, and nobody was timed beside it.
            self.share.set(SHARE_MAX);
            return;
        }
        if share == SHARE_MAX && is_whole {
            self.most.set(spent.max(most - most / 64));
        }
        let Some(mean) = sum.checked_div(count) else {
            self.share.set(SHARE_MAX);
            return;
        };
        let alone = self.alone_ns.get();
        if spent == 0 {
            // The mean of some periods: one alone is noise.
            self.alone_ns.set(if alone == 0 { mean } else { (7 * alone + mean) / 8 });
            return;
        }
        let is_slower = alone > 0 && mean > SLOWER * alone + SLOWER_NS;
        self.share.set(match is_slower {
            true if self.most.get() == 0 => SHARE_MAX,
            true => (share * 2 / 3).max(SHARE_MIN),
            false => (share + share / 8).min(SHARE_MAX),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PIECE: u64 = 64 << 10;

    /// Periods in which a commit takes what `takes` says, by how much went in it; returns the bytes of the last ones.
    fn run(pace: &Pace, clock: &mut Instant, periods: u32, takes: impl Fn(u64) -> Option<Duration>) -> u64 {
        let mut of_last = 0;
        for _ in 0..periods {
            let mut went = 0;
            // A disk that does 50 pieces in a period.
            for _ in 0..50 {
                *clock = Instant(clock.0 + PERIOD.as_nanos() as u64 / 50);
                if let Some(took) = takes(went) {
                    pace.committed_after(took, *clock);
                }
                went += if pace.takes(PIECE, *clock) { PIECE } else { 0 };
            }
            of_last = (of_last + went) / 2;
        }
        of_last
    }

    #[test]
    fn all_goes_while_clients_are_quiet() {
        let (pace, mut clock) = (Pace::default(), Instant(1_000_000_000));
        assert!(run(&pace, &mut clock, 20, |_| None) >= 49 * PIECE);
    }

    #[test]
    fn clients_that_are_not_slowed_down_hold_nothing_back() {
        let (pace, mut clock) = (Pace::default(), Instant(1_000_000_000));
        for _ in 0..100 {
            clock = Instant(clock.0 + 10_000_000);
            pace.committed_after(Duration::from_micros(300), clock);
        }
        assert!(run(&pace, &mut clock, 20, |_| Some(Duration::from_micros(400))) >= 49 * PIECE);
    }

    #[test]
    fn clients_that_are_slowed_down_leave_a_tenth() {
        let (pace, mut clock) = (Pace::default(), Instant(1_000_000_000));
        for _ in 0..100 {
            clock = Instant(clock.0 + 10_000_000);
            pace.committed_after(Duration::from_micros(300), clock);
        }
        let went = run(&pace, &mut clock, 20, |_| Some(Duration::from_millis(9)));
        assert!((4 * PIECE..=7 * PIECE).contains(&went), "{went} bytes of {} per period", 50 * PIECE);
        // And all of it again when they are quiet.
        assert!(run(&pace, &mut clock, 4, |_| None) >= 40 * PIECE);
    }

    #[test]
    fn a_piece_that_is_larger_than_the_budget_goes_in_the_end() {
        let (pace, mut clock) = (Pace::default(), Instant(1_000_000_000));
        run(&pace, &mut clock, 10, |_| None);
        for _ in 0..40 {
            clock = Instant(clock.0 + 10_000_000);
            pace.committed_after(Duration::from_micros(300), clock);
        }
        run(&pace, &mut clock, 20, |_| Some(Duration::from_millis(9)));
        let goes = |clock: &mut Instant| {
            *clock = Instant(clock.0 + PERIOD.as_nanos() as u64);
            pace.committed_after(Duration::from_millis(9), *clock);
            pace.takes(1 << 30, *clock)
        };
        assert!((0..3).any(|_| goes(&mut clock)));
    }
}
