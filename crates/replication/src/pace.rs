//! How fast goes what no client waits for: catch-up and scrub of a core share one rate.
//!
//! ```text
//!   clients' commits and reads,     ──► beside nothing else: the longest but a tenth of 64 (usual)
//!   each kind for itself: how long  └──► beside it: longer than four times that ──► its rate falls by an eighth
//!   each took                                       not                   ──► it rises by a four-hundredth
//! ```
//!
//! So it settles where about two of a hundred take longer than four times what one of ten takes without, which is about twice
//! what one of a hundred takes. What is usual is learnt anew whenever something begins to go, at a low rate then, and in between. The
//! lower rate of the kinds that are heard counts. While clients are quiet nothing is held back. It never falls below
//! [`RATE_MIN`](heard::RATE_MIN): a copy that is missing is a risk as well.
//!
//! A read is counted when it begins and ends; the clock is looked at for one at a time, and only while something goes.

mod heard;
#[cfg(test)]
mod tests;

use heard::{Heard, is_within};
use runtime::{Instant, now};
use std::cell::Cell;
use std::time::Duration;
use types::{BlockRange, Mutant, mutant};

/// A piece costs as much as so many bytes before its first, and each run of blocks in it behind the first run as so many.
const PIECE_BYTES: u64 = 16 << 10;
const RUN_BYTES: u64 = 4 << 10;
/// It is waited so long at most for what is usual: when nothing went for a while, and again so often, for load and devices change.
const LEARNING: Duration = Duration::from_millis(200);
const LEARN_AFTER: Duration = Duration::from_secs(1);
const LEARN_EVERY: Duration = Duration::from_secs(10);
/// A command was beside nothing else if nothing went for so long.
const SETTLED: Duration = Duration::from_millis(20);
/// Blocks that go in one piece, with and without clients: how long who comes in between waits.
const PIECE_BLOCKS: u32 = 16;
const PIECE_BLOCKS_QUIET: u32 = 64;
/// A read takes as long as all its parts of so many blocks: writes are cut there.
const READ_BLOCKS: u32 = 16;

/// See the module.
#[derive(Default)]
pub(crate) struct Pace {
    /// Clients' writes, from their place in the order until they are committed.
    commits: Heard,
    /// Clients' reads of the device.
    reads: Heard,
    /// Reads under way, and that have ended; and how many had when that was looked at last.
    reading: Cell<u32>,
    read: Cell<u32>,
    read_seen: Cell<u32>,
    /// Something goes, so that it matters how long reads take; and whether one is timed.
    listens: Cell<bool>,
    times: Cell<bool>,
    /// When something went last, and when the next may go.
    went_at: Cell<Option<Instant>>,
    next_at: Cell<Instant>,
    /// Until when nothing goes, so that it is learnt how clients fare without; and when next.
    learns_until: Cell<Option<Instant>>,
    learn_next: Cell<Instant>,
}

/// A read of a client's that is under way.
pub(crate) struct Reading<'a> {
    pace: &'a Pace,
    /// When it began, if it is timed.
    began: Option<Instant>,
}

impl Reading<'_> {
    /// The device has answered.
    pub(crate) fn came(self, range: BlockRange) {
        if self.began.is_some() {
            self.came_at(range, now());
        }
    }

    fn came_at(self, range: BlockRange, at: Instant) {
        if let Some(began) = self.began {
            let parts = u32::from(range.count).div_ceil(READ_BLOCKS).max(1);
            self.pace.read_after(at.since(began) / parts, at);
        }
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        let Self { pace, began } = self;
        if began.is_some() {
            pace.times.set(false);
        }
        pace.reading.set(pace.reading.get() - 1);
        pace.read.set(pace.read.get().wrapping_add(1));
    }
}

impl Pace {
    /// A client's write was committed so long after it was given its place.
    pub(crate) fn committed_after(&self, took: Duration, at: Instant) {
        self.commits.hear(at);
        self.judge(&self.commits, took, at);
    }

    /// A client reads, until the answer is dropped.
    pub(crate) fn begin_read(&self) -> Reading<'_> {
        self.begin_read_at(now)
    }

    fn begin_read_at(&self, at: impl Fn() -> Instant) -> Reading<'_> {
        self.reading.set(self.reading.get() + 1);
        let is_timed = self.listens.get() && !self.times.get();
        self.times.set(self.times.get() || is_timed);
        Reading { pace: self, began: is_timed.then(at) }
    }

    /// A part of a client's read took so long.
    fn read_after(&self, took: Duration, at: Instant) {
        self.listens.set(self.goes_on(at) || self.learns_until.get().is_some_and(|until| at < until));
        if !mutant(Mutant::ReadsNotHeard) {
            self.reads.hear(at);
            self.judge(&self.reads, took, at);
        }
    }

    fn judge(&self, kind: &Heard, took: Duration, at: Instant) {
        if is_within(self.went_at.get(), SETTLED, at) {
            kind.judge(took, self.rate(at));
        } else if kind.learn_from(took) {
            self.tell_learnt(at);
        }
    }

    /// So many blocks go in one piece.
    pub(crate) fn piece_blocks(&self) -> u32 {
        self.piece_blocks_at(now())
    }

    fn piece_blocks_at(&self, at: Instant) -> u32 {
        if self.are_clients_quiet(at) { PIECE_BLOCKS_QUIET } else { PIECE_BLOCKS }
    }

    /// Waits until a piece of so many bytes may go, in so many runs.
    pub(crate) async fn wait_for(&self, bytes: usize, runs: usize) {
        loop {
            let at = now();
            let Some(until) = self.go((bytes as u64, runs as u64), at) else { return };
            runtime::sleep(until.since(at)).await;
        }
    }

    /// Lets a piece go now; or says when to ask again.
    fn go(&self, (bytes, runs): (u64, u64), at: Instant) -> Option<Instant> {
        self.listens.set(true);
        if !self.are_clients_quiet(at) {
            if let Some(until) = self.learns(at) {
                return Some(until);
            }
            let next = self.next_at.get();
            if next > at {
                return Some(next);
            }
            let takes_ns = (bytes + PIECE_BYTES + runs.saturating_sub(1) * RUN_BYTES) * 1_000_000_000 / self.rate(at);
            self.next_at.set(at + Duration::from_nanos(takes_ns));
        }
        self.went_at.set(Some(at));
        None
    }

    /// When to ask again, while it is being learnt how clients fare with nothing beside them.
    fn learns(&self, at: Instant) -> Option<Instant> {
        let Some(until) = self.learns_until.get() else {
            let goes_on = self.goes_on(at);
            if goes_on && at < self.learn_next.get() {
                return None;
            }
            // What was right for the last time may be far too much now, and each step down is a client's that waited.
            self.kinds().for_each(|kind| kind.begin_to_learn(goes_on && !kind.is_quiet(at)));
            self.learns_until.set(Some(at + LEARNING));
            return Some(at + SETTLED);
        };
        if at < until && self.kinds().any(|kind| !kind.is_quiet(at) && !kind.is_known()) {
            return Some(until.min(at + SETTLED));
        }
        self.kinds().filter(|kind| !kind.is_known()).for_each(Heard::make_do);
        self.tell_learnt(at);
        self.learns_until.set(None);
        self.learn_next.set(at + LEARN_EVERY);
        None
    }

    fn tell_learnt(&self, at: Instant) {
        let (commits, reads) = (self.commits.usual(), self.reads.usual());
        let rate = self.rate(at) >> 20;
        log::trace!("commits take {commits:?} as a rule, reads {reads:?}; {rate} MiB may go in a second");
    }

    fn goes_on(&self, at: Instant) -> bool {
        is_within(self.went_at.get(), LEARN_AFTER, at)
    }

    fn kinds(&self) -> impl Iterator<Item = &Heard> {
        [&self.commits, &self.reads].into_iter()
    }

    /// Bytes a second: the least that any of the kinds allows that are heard.
    fn rate(&self, at: Instant) -> u64 {
        let heard = self.kinds().filter(|kind| !kind.is_quiet(at)).map(Heard::rate).min();
        heard.unwrap_or(heard::RATE_FIRST)
    }

    fn are_clients_quiet(&self, at: Instant) -> bool {
        let read = self.read.get();
        if (self.reading.get() > 0 || self.read_seen.replace(read) != read) && !mutant(Mutant::ReadsNotHeard) {
            self.reads.hear(at);
        }
        self.kinds().all(|kind| kind.is_quiet(at))
    }
}
