//! How fast goes what no client waits for: catch-up and scrub of a core share one rate.
//!
//! ```text
//!   clients' commits ── how long each took ──► beside nothing else: the longest but a tenth of 64 (usual)
//!                                         └──► beside it: longer than four times that ──► the rate falls by an eighth
//!                                                         not                   ──► it rises by an eight-hundredth
//! ```
//!
//! So it settles where about one commit of a hundred takes longer than four times what one of ten takes without, which is about twice
//! what one of a hundred takes. What is usual is learnt anew whenever something begins to go, at a low rate then, and in between. While
//! clients are quiet nothing is held back. It never falls below [`RATE_MIN`]: a copy that is missing is a risk as well.

use runtime::{Instant, now};
use std::cell::Cell;
use std::time::Duration;

/// Bytes a second: the least, the most that is of any interest, and the first.
const RATE_MIN: u64 = 32 << 20;
const RATE_MAX: u64 = 1 << 30;
const RATE_FIRST: u64 = 64 << 20;
/// One part of these: how far a commit that took too long lets the rate fall, and one that did not lets it rise.
const FALLS: u64 = 8;
const RISES: u64 = 800;
/// A commit takes too long if it takes so many times as long as is usual.
const TOO_LONG: u64 = 4;
/// Commits of which it is learnt what is usual, and of how many of them the shortest is it, of those that took longest.
const LEARNT: u32 = 64;
const LONGEST: usize = 7;
/// A piece costs as much as so many bytes before its first.
const PIECE_BYTES: u64 = 16 << 10;
/// It is waited for them for so long at most: when nothing went for a while, and again so often, for load and devices change.
const LEARNING: Duration = Duration::from_millis(200);
const LEARN_AFTER: Duration = Duration::from_secs(1);
const LEARN_EVERY: Duration = Duration::from_secs(10);
/// Clients are quiet if no commit of theirs was seen for so long; and a commit was beside nothing else if nothing went for so long.
const QUIET: Duration = Duration::from_millis(100);
const SETTLED: Duration = Duration::from_millis(20);
/// Blocks that go in one piece, with and without clients: how long who comes in between waits.
const PIECE_BLOCKS: u32 = 16;
const PIECE_BLOCKS_QUIET: u32 = 64;

/// See the module.
pub(crate) struct Pace {
    /// Bytes a second beside clients.
    rate: Cell<u64>,
    /// What a commit takes at most, as a rule, with nothing beside it, ns; 0: not known.
    usual_ns: Cell<u64>,
    /// Commits with nothing beside them, the last few: how many, and how long the longest took, falling.
    alone: Cell<(u32, [u64; LONGEST])>,
    /// When something went last, and when the next may go.
    went_at: Cell<Option<Instant>>,
    next_at: Cell<Instant>,
    /// When a client's write was committed last.
    committed_at: Cell<Option<Instant>>,
    /// Until when nothing goes, so that it is learnt how clients fare without; and when next.
    learns_until: Cell<Option<Instant>>,
    learn_next: Cell<Instant>,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            rate: Cell::new(RATE_FIRST),
            usual_ns: Cell::new(0),
            alone: Cell::default(),
            went_at: Cell::default(),
            next_at: Cell::default(),
            committed_at: Cell::default(),
            learns_until: Cell::default(),
            learn_next: Cell::default(),
        }
    }
}

impl Pace {
    /// A client's write was committed so long after it was given its place.
    pub(crate) fn committed_after(&self, took: Duration, at: Instant) {
        self.committed_at.set(Some(at));
        let (took, usual) = (took.as_nanos() as u64, self.usual_ns.get());
        if !is_within(self.went_at.get(), SETTLED, at) {
            let (count, mut longest) = self.alone.get();
            let place = longest.partition_point(|longer| *longer >= took);
            if place < LONGEST {
                longest[place..].rotate_right(1);
                longest[place] = took;
            }
            self.alone.set((count + 1, longest));
            if count + 1 == LEARNT {
                self.has_learnt();
            }
        } else if usual > 0 {
            let rate = self.rate.get();
            let next = if took > TOO_LONG * usual { rate - rate / FALLS } else { rate + rate / RISES };
            self.rate.set(next.clamp(RATE_MIN, RATE_MAX));
        }
    }

    /// So many blocks go in one piece.
    pub(crate) fn piece_blocks(&self) -> u32 {
        self.piece_blocks_at(now())
    }

    fn piece_blocks_at(&self, at: Instant) -> u32 {
        if self.are_clients_quiet(at) { PIECE_BLOCKS_QUIET } else { PIECE_BLOCKS }
    }

    /// Waits until so many bytes may go.
    pub(crate) async fn wait_for(&self, bytes: usize) {
        loop {
            let at = now();
            let Some(until) = self.go(bytes as u64, at) else { return };
            runtime::sleep(until.since(at)).await;
        }
    }

    /// Lets a piece go now; or says when to ask again.
    fn go(&self, bytes: u64, at: Instant) -> Option<Instant> {
        if !self.are_clients_quiet(at) {
            if let Some(until) = self.learns(at) {
                return Some(until);
            }
            let next = self.next_at.get();
            if next > at {
                return Some(next);
            }
            let takes_ns = (bytes + PIECE_BYTES) * 1_000_000_000 / self.rate.get();
            self.next_at.set(at + Duration::from_nanos(takes_ns));
        }
        self.went_at.set(Some(at));
        None
    }

    /// When to ask again, while it is being learnt how clients fare with nothing beside them.
    fn learns(&self, at: Instant) -> Option<Instant> {
        let Some(until) = self.learns_until.get() else {
            let goes_on = is_within(self.went_at.get(), LEARN_AFTER, at);
            if goes_on && at < self.learn_next.get() {
                return None;
            }
            if !goes_on {
                // What was right for the last time may be far too much now, and each step down is a client's that waited.
                self.rate.set(RATE_FIRST);
            }
            self.alone.set((0, [0; LONGEST]));
            self.usual_ns.set(0);
            self.learns_until.set(Some(at + LEARNING));
            return Some(at + SETTLED);
        };
        if at < until && self.usual_ns.get() == 0 {
            return Some(until.min(at + SETTLED));
        }
        if self.usual_ns.get() == 0 {
            self.has_learnt();
        }
        self.learns_until.set(None);
        self.learn_next.set(at + LEARN_EVERY);
        None
    }

    fn has_learnt(&self) {
        let (count, longest) = self.alone.replace((0, [0; LONGEST]));
        // A tenth of them; of few the longest.
        let place = (count as usize * LONGEST / LEARNT as usize).saturating_sub(1);
        self.usual_ns.set(longest[place]);
        log::trace!(
            "commits take {} µs as a rule; {} MiB may go in a second",
            longest[place] / 1000,
            self.rate.get() >> 20
        );
    }

    fn are_clients_quiet(&self, at: Instant) -> bool {
        !is_within(self.committed_at.get(), QUIET, at)
    }
}

/// Whether that was less than so long ago.
fn is_within(that: Option<Instant>, time: Duration, at: Instant) -> bool {
    that.is_some_and(|that| at.since(that) < time)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PIECE: u64 = 64 << 10;
    const STEP: Duration = Duration::from_micros(500);
    const USUAL: Duration = Duration::from_micros(300);

    /// A core: its clock, and one waiting piece after the other.
    struct Core {
        pace: Pace,
        clock: Instant,
        wakes_at: Instant,
        commits: u64,
    }

    impl Core {
        fn new() -> Self {
            let clock = Instant(1_000_000_000);
            Self { pace: Pace::default(), clock, wakes_at: clock, commits: 0 }
        }

        /// Two thousand commits a second, one in 200 of which takes thrice as long as others, and nothing beside them.
        fn clients_alone(&mut self, seconds: u64) {
            for _ in 0..2000 * seconds {
                self.clock = self.clock + STEP;
                self.commits += 1;
                let took = if self.commits.is_multiple_of(200) { 3 * USUAL } else { USUAL };
                self.pace.committed_after(took, self.clock);
            }
            self.wakes_at = self.clock;
        }

        /// Bytes that go in so many seconds, as many as may, at most one piece in half a millisecond. What a commit takes depends
        /// on how many went in the hundredth of a second before; `None`: no client writes.
        fn recover(&mut self, seconds: u64, takes: impl Fn(u64, u64) -> Option<Duration>) -> u64 {
            let (mut all, mut before) = (0, std::collections::VecDeque::from([0; 20]));
            for _ in 0..2000 * seconds {
                self.clock = self.clock + STEP;
                self.commits += 1;
                if let Some(took) = takes(before.iter().sum(), self.commits) {
                    self.pace.committed_after(took, self.clock);
                }
                let mut went = 0;
                if self.wakes_at <= self.clock {
                    match self.pace.go(PIECE, self.clock) {
                        None => went = PIECE,
                        Some(until) => self.wakes_at = until,
                    }
                }
                before.pop_front();
                before.push_back(went);
                all += went;
            }
            all
        }
    }

    #[test]
    fn all_goes_while_clients_are_quiet() {
        let mut core = Core::new();
        assert_eq!(core.recover(1, |_, _| None), 2000 * PIECE);
        assert_eq!(core.pace.piece_blocks_at(core.clock), PIECE_BLOCKS_QUIET);
    }

    #[test]
    fn clients_that_are_not_slowed_down_hold_little_back() {
        let mut core = Core::new();
        core.clients_alone(2);
        core.recover(5, |_, _| Some(USUAL));
        let went = core.recover(10, |_, _| Some(USUAL));
        assert!(went > 10 * 1900 * PIECE, "{went} bytes in ten seconds, a fiftieth of which it learns");
        assert_eq!(core.pace.piece_blocks_at(core.clock), PIECE_BLOCKS);
    }

    #[test]
    fn it_settles_where_one_commit_in_a_hundred_is_slowed_down() {
        let mut core = Core::new();
        core.clients_alone(10);
        // One in fifty as soon as six pieces go in a hundredth of a second, all from twelve on.
        let takes = |went: u64, number: u64| match went / PIECE {
            12.. => Some(10 * USUAL),
            6.. if number.is_multiple_of(50) => Some(10 * USUAL),
            _ => Some(USUAL),
        };
        core.recover(10, takes);
        let rate = core.recover(20, takes) / 20;
        assert!((30 << 20..=60 << 20).contains(&rate), "{} MiB/s", rate >> 20);
    }

    #[test]
    fn clients_that_are_always_slowed_down_leave_the_least() {
        let mut core = Core::new();
        core.clients_alone(2);
        let takes = |went, _| Some(if went > 0 { 20 * USUAL } else { USUAL });
        core.recover(5, takes);
        let went = core.recover(10, takes) / 10;
        let least = RATE_MIN * PIECE / (PIECE + PIECE_BYTES);
        assert!((least * 9 / 10..=least * 11 / 10).contains(&went), "{went} bytes a second");
        // And all of it again when they are quiet.
        assert!(core.recover(2, |_, _| None) > 1800 * 2 * PIECE);
    }

    #[test]
    fn it_begins_slowly_whatever_was_right_before() {
        let mut core = Core::new();
        core.clients_alone(2);
        core.recover(20, |_, _| Some(USUAL));
        assert_eq!(core.pace.rate.get(), RATE_MAX);
        core.clients_alone(2);
        let went = core.recover(1, |_, _| Some(USUAL));
        assert!(went < 6 * RATE_FIRST, "{went} bytes in the first second");
    }

    #[test]
    fn what_is_usual_is_learnt_first_where_it_is_not_known() {
        let mut core = Core::new();
        // Slow from the first piece on: taken for usual, it would hold nothing back.
        let takes = |went, _| Some(if went > 0 { 20 * USUAL } else { USUAL });
        core.recover(5, takes);
        assert!((USUAL..2 * USUAL).contains(&Duration::from_nanos(core.pace.usual_ns.get())));
        assert!(core.recover(1, takes) <= 2 * RATE_MIN);
    }

    #[test]
    fn it_is_learnt_again_as_times_change() {
        let mut core = Core::new();
        core.clients_alone(2);
        // A device that has become slower for all.
        core.recover(60, |_, _| Some(4 * USUAL));
        assert!(core.pace.usual_ns.get() > 3 * USUAL.as_nanos() as u64, "{}", core.pace.usual_ns.get());
        assert!(core.recover(5, |_, _| Some(4 * USUAL)) > 5 * 1000 * PIECE);
    }

    #[test]
    fn a_piece_of_any_length_goes() {
        let mut core = Core::new();
        core.clients_alone(2);
        core.recover(1, |_, _| Some(USUAL));
        let mut goes = || {
            core.clock = core.clock + STEP;
            core.pace.committed_after(USUAL, core.clock);
            core.pace.go(u64::MAX / 2_000_000_000, core.clock).is_none()
        };
        assert!((0..100).any(|_| goes()));
    }
}
