//! What clients' commands of one kind take, and the rate at which they do not take much longer.

use runtime::Instant;
use std::cell::Cell;
use std::time::Duration;

/// Bytes a second: the least, the most that is of any interest, and the first.
pub(super) const RATE_MIN: u64 = 32 << 20;
pub(super) const RATE_MAX: u64 = 1 << 30;
pub(super) const RATE_FIRST: u64 = 64 << 20;
/// One part of these: how far a command that took too long lets the rate fall, and one that did not lets it rise.
const FALLS: u64 = 8;
const RISES: u64 = 400;
/// A rate that another kind holds back rises to so many times what goes: so far it would fall before it counts.
const AHEAD: u64 = 2;
/// A command takes too long if it takes so many times as long as is usual.
const TOO_LONG: u64 = 4;
/// Commands of which it is learnt what is usual, and of how many of them the shortest is it, of those that took longest.
const LEARNT: u32 = 64;
const LONGEST: usize = 7;
/// A kind is quiet if no command of it was seen for so long.
const QUIET: Duration = Duration::from_millis(100);

/// See the module.
pub(super) struct Heard {
    /// Bytes a second beside them.
    rate: Cell<u64>,
    /// What one takes at most, as a rule, with nothing beside it, ns; 0: not known.
    usual_ns: Cell<u64>,
    /// Those with nothing beside them, the last few: how many, and how long the longest took, falling.
    alone: Cell<(u32, [u64; LONGEST])>,
    /// When one was seen last.
    at: Cell<Option<Instant>>,
}

impl Default for Heard {
    fn default() -> Self {
        Self { rate: Cell::new(RATE_FIRST), usual_ns: Cell::new(0), alone: Cell::default(), at: Cell::default() }
    }
}

impl Heard {
    pub(super) fn hear(&self, at: Instant) {
        self.at.set(Some(at));
    }

    pub(super) fn is_quiet(&self, at: Instant) -> bool {
        !is_within(self.at.get(), QUIET, at)
    }

    pub(super) fn rate(&self) -> u64 {
        self.rate.get()
    }

    /// What one takes at most, as a rule; zero: not known.
    pub(super) fn usual(&self) -> Duration {
        Duration::from_nanos(self.usual_ns.get())
    }

    pub(super) fn is_known(&self) -> bool {
        self.usual_ns.get() > 0
    }

    /// One took so long beside something else, which goes at this rate.
    pub(super) fn judge(&self, took: Duration, goes: u64) {
        if !self.is_known() {
            return;
        }
        let rate = self.rate.get();
        let is_too_long = took.as_nanos() as u64 > TOO_LONG * self.usual_ns.get();
        let next = if is_too_long { rate - rate / FALLS } else { (rate + rate / RISES).min(rate.max(AHEAD * goes)) };
        self.rate.set(next.clamp(RATE_MIN, RATE_MAX));
    }

    /// One took so long beside nothing else; whether enough is known by it.
    pub(super) fn learn_from(&self, took: Duration) -> bool {
        let took = took.as_nanos() as u64;
        let (count, mut longest) = self.alone.get();
        let place = longest.partition_point(|longer| *longer >= took);
        if place < LONGEST {
            longest[place..].rotate_right(1);
            longest[place] = took;
        }
        self.alone.set((count + 1, longest));
        let is_enough = count + 1 == LEARNT;
        if is_enough {
            self.make_do();
        }
        is_enough
    }

    /// What is usual is not known any more; nor what rate is right, if that may have changed.
    pub(super) fn begin_to_learn(&self, keeps_rate: bool) {
        if !keeps_rate {
            self.rate.set(RATE_FIRST);
        }
        self.alone.set(Default::default());
        self.usual_ns.set(0);
    }

    /// What was learnt so far is what is known; nothing of nothing.
    pub(super) fn make_do(&self) {
        let (count, longest) = self.alone.take();
        // A tenth of them; of few the longest.
        let place = (count as usize * LONGEST / LEARNT as usize).saturating_sub(1);
        self.usual_ns.set(longest[place]);
    }
}

/// Whether that was less than so long ago.
pub(super) fn is_within(that: Option<Instant>, time: Duration, at: Instant) -> bool {
    that.is_some_and(|that| at.since(that) < time)
}
