//! How fast goes what no client waits for: catch-up and scrub of a core share one budget.
//!
//! ```text
//!   clients' commits ── how long the slow ones took ──► share: 10 % … 100 % ──► bytes that may go in this period, evenly,
//!                                                                               of as many as went at most before
//! ```
//!
//! While clients are quiet nothing is held back. When the slow ones of their writes, one in fifty, take longer than they do without it, the
//! share falls by a third each period; when they do not, it rises again, slowly. It never falls below a tenth: a copy that is missing is a
//! risk as well. How long they take without it is learnt while nothing goes: of clients that come when something does, or have changed
//! since, in a pause that is made for it.

use runtime::{Instant, now};
use std::cell::{Cell, RefCell};
use std::time::Duration;

/// The share is looked at so often.
const PERIOD: Duration = Duration::from_millis(100);
/// Least and most of what can go, in thousandths.
const SHARE_MIN: u64 = 100;
const SHARE_MAX: u64 = 1000;
/// What it rises by in a period: it takes seconds to be whole again.
const RISE: u64 = 16;
/// Blocks that go at a time, while clients are quiet and while they are not.
const BLOCKS_AT_ONCE: u32 = 64;
const BLOCKS_BESIDE_CLIENTS: u32 = 16;
/// Clients are slowed down when the slow ones of their writes take so many times as long as without recovery, and this much longer: in tenths.
const SLOWER_TENTHS: u64 = 13;
const SLOWER_NS: u64 = 50_000;
/// The slow ones are one in so many.
const SLOW_PART: u32 = 50;
/// A wait is looked at again after so long.
const LOOK: Duration = Duration::from_millis(2);
/// How clients fare without recovery is learnt again after so long, in so many periods in which nothing goes: what was under way ends in
/// the first.
const LEARN_AFTER: Duration = Duration::from_secs(10);
const LEARN_PERIODS: u32 = 2;

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
    /// Commits of clients in this period, and whether there were any in the one before.
    timed: RefCell<Took>,
    has_clients: Cell<bool>,
    /// How long the slow ones take while nothing else goes, ns; 0: not known. When that was learnt.
    alone_ns: Cell<u64>,
    learnt: Cell<Instant>,
    /// Periods in which nothing goes, for that.
    pauses: Cell<u32>,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            began: Cell::default(),
            spent: Cell::new(0),
            most: Cell::new(0),
            is_whole: Cell::new(false),
            share: Cell::new(SHARE_MAX),
            timed: RefCell::default(),
            has_clients: Cell::new(false),
            alone_ns: Cell::new(0),
            learnt: Cell::default(),
            pauses: Cell::new(0),
        }
    }
}

impl Pace {
    /// A client's write was committed so long after it was given its place.
    pub(crate) fn committed_after(&self, took: Duration, at: Instant) {
        self.look(at);
        self.timed.borrow_mut().note(took);
    }

    /// Blocks that go at a time: clients wait behind few.
    pub(crate) fn blocks_at_once(&self) -> u32 {
        if self.has_clients.get() { BLOCKS_BESIDE_CLIENTS } else { BLOCKS_AT_ONCE }
    }

    /// Waits until so many bytes may go.
    pub(crate) async fn wait_for(&self, bytes: usize) {
        while !self.takes(bytes as u64, now()) {
            runtime::sleep(LOOK).await;
        }
    }

    /// Takes so many bytes out of the period's budget, if there is any left by now.
    fn takes(&self, bytes: u64, at: Instant) -> bool {
        self.look(at);
        if self.pauses.get() > 0 {
            return false;
        }
        let share = self.share.get();
        let passed = at.since(self.began.get()).min(PERIOD).as_micros() as u64;
        let may = self.most.get() * share / SHARE_MAX * passed / PERIOD.as_micros() as u64;
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
        let (spent, took) = (self.spent.replace(0), self.timed.take().slow_ns());
        self.has_clients.set(took.is_some());
        let (share, most) = (self.share.get(), self.most.get());
        let is_whole = self.is_whole.replace(spent > 0) && spent > 0;
        let pauses = self.pauses.replace(self.pauses.get().saturating_sub(1));
        if passed >= 2 * PERIOD {
            // Nothing went for a while, and nobody was timed beside it.
            self.share.set(SHARE_MAX);
            self.pauses.set(0);
            return;
        }
        if share == SHARE_MAX && is_whole {
            self.most.set(spent.max(most - most / 64));
        }
        let Some(took) = took else {
            self.share.set(SHARE_MAX);
            self.pauses.set(0);
            return;
        };
        let alone = self.alone_ns.get();
        if spent == 0 && pauses <= 1 {
            // The mean of some periods: one alone is noise. Of pauses there are few.
            let before = if pauses > 0 { 1 } else { 7 };
            self.alone_ns.set(if alone == 0 { took } else { (before * alone + took) / (before + 1) });
            self.learnt.set(at);
        } else if spent > 0 && (alone == 0 || at.since(self.learnt.get()) >= LEARN_AFTER) {
            self.pauses.set(LEARN_PERIODS);
        } else if spent > 0 {
            let is_slower = took > SLOWER_TENTHS * alone / 10 + SLOWER_NS;
            self.share.set(match is_slower {
                true if most == 0 => SHARE_MAX,
                true => (share * 2 / 3).max(SHARE_MIN),
                false => (share + RISE).min(SHARE_MAX),
            });
        }
    }
}

/// How long commits took: how many, by powers of two of ns in eighths.
struct Took {
    counts: [u32; 512],
    all: u32,
}

impl Default for Took {
    fn default() -> Self {
        Self { counts: [0; 512], all: 0 }
    }
}

impl Took {
    fn note(&mut self, took: Duration) {
        let ns = (took.as_nanos() as u64).max(8);
        let power = ns.ilog2();
        self.counts[(power * 8) as usize + (ns >> (power - 3) & 7) as usize] += 1;
        self.all += 1;
    }

    /// So long took all but the slow ones; none: nothing was timed.
    fn slow_ns(&self) -> Option<u64> {
        let mut left = self.all.checked_sub(1)? / SLOW_PART + 1;
        let slow = self.counts.iter().rposition(|count| {
            left = left.saturating_sub(*count);
            left == 0
        })?;
        Some((8 + slow as u64 % 8) << (slow / 8 - 3))
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

    /// Most are as fast as ever.
    #[test]
    fn a_few_slow_writes_hold_it_back() {
        let (pace, mut clock) = (Pace::default(), Instant(1_000_000_000));
        for _ in 0..100 {
            clock = Instant(clock.0 + 10_000_000);
            pace.committed_after(Duration::from_micros(300), clock);
        }
        let at = Cell::new(0);
        let went = run(&pace, &mut clock, 20, |_| {
            at.set(at.get() + 1);
            Some(Duration::from_micros(if at.get() % 10 == 0 { 5000 } else { 300 }))
        });
        assert!(went <= 7 * PIECE, "{went} bytes of {} per period", 50 * PIECE);
    }

    /// How they fare without it is learnt in a pause, again and again.
    #[test]
    fn clients_that_come_while_something_is_copied_are_not_slowed_down_for_long() {
        let (pace, mut clock) = (Pace::default(), Instant(1_000_000_000));
        run(&pace, &mut clock, 10, |_| None);
        let slow = |went| Some(Duration::from_micros(if went > 0 { 9000 } else { 300 }));
        let went = run(&pace, &mut clock, 25, slow);
        assert!((4 * PIECE..=7 * PIECE).contains(&went), "{went} bytes of {} per period", 50 * PIECE);
        // Others come, whose writes take as long with it as without.
        let went = run(&pace, &mut clock, 450, |_| Some(Duration::from_millis(9)));
        assert!(went >= 40 * PIECE, "{went} bytes of {} per period", 50 * PIECE);
    }

    #[test]
    fn slow_commits_are_told_within_an_eighth() {
        let mut took = Took::default();
        assert_eq!(took.slow_ns(), None);
        for us in 1..=100 {
            took.note(Duration::from_micros(us));
        }
        let slow = took.slow_ns().expect("some were timed");
        assert!((87_000..=99_000).contains(&slow), "{slow}");
        took.note(Duration::ZERO);
        assert!(took.slow_ns().is_some());
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
