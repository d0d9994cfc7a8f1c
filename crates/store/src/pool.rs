//! The segments that nobody uses, shared by the shards of a device. A lock is taken once per segment, not per append.

use crate::format::{Generation, SegmentIndex};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::task::{Poll, Waker};
use types::{Mutant, mutant};

/// Generations left out at each opening. A segment's header may have been lost with the power while records behind it
/// were not; no later use may have the generation of such a one. At most two appends per shard, each with one retry,
/// can be in that state: 8 × 2 × 2, twice over.
const GENERATIONS_SKIPPED: u64 = 64;

/// Deliberate bugs that show when what was freed last is used first.
const REUSES_TOO_EARLY: [Mutant; 5] = [
    Mutant::SegmentReusedTooEarly,
    Mutant::YoungSegmentFreed,
    Mutant::FreedBeforePassForgot,
    Mutant::SegmentReusedBeforeMovesDurable,
    Mutant::ReadPinIgnored,
];

/// Segments nobody uses, oldest first.
pub(crate) struct Pool {
    state: Mutex<State>,
    /// Length of the list, for those who only want to know whether there is room.
    free: AtomicU32,
    /// Segments ever given back.
    given: AtomicU64,
    /// How often that happened, or a shard was short of segments.
    events: AtomicU64,
    /// Tasks, one per shard, that want to know of the next event.
    waiting: Mutex<Vec<Waker>>,
}

struct State {
    free: VecDeque<SegmentIndex>,
    /// Segments that nobody gets for now, each with whether nobody uses it.
    withheld: Vec<(SegmentIndex, bool)>,
    last_generation: Generation,
}

impl Pool {
    /// `free` segments, and the highest generation found on the device.
    pub(crate) fn new(free: VecDeque<SegmentIndex>, highest: Generation) -> Self {
        let count = AtomicU32::new(free.len() as u32);
        let last_generation = Generation(highest.0 + GENERATIONS_SKIPPED);
        Self {
            state: Mutex::new(State { free, withheld: Vec::new(), last_generation }),
            free: count,
            given: AtomicU64::new(0),
            events: AtomicU64::new(0),
            waiting: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poison| poison.into_inner())
    }

    /// A segment to append to, and the generation of this use of it.
    pub(crate) fn take(&self) -> Option<(SegmentIndex, Generation)> {
        self.take_of(&mut self.lock())
    }

    fn take_of(&self, state: &mut State) -> Option<(SegmentIndex, Generation)> {
        let segment = match REUSES_TOO_EARLY.into_iter().any(mutant) {
            true => state.free.pop_back()?,
            false => state.free.pop_front()?,
        };
        state.last_generation.0 += 1;
        self.free.store(state.free.len() as u32, Ordering::Relaxed);
        Some((segment, state.last_generation))
    }

    /// As [`take`](Self::take), if more than so many are free.
    pub(crate) fn take_above(&self, kept_back: u32) -> Option<(SegmentIndex, Generation)> {
        let mut state = self.lock();
        if state.free.len() as u32 <= kept_back { None } else { self.take_of(&mut state) }
    }

    /// Nothing needs what is in `segment` any more, of whose shard it was.
    pub(crate) fn give(&self, segment: SegmentIndex) {
        let mut state = self.lock();
        debug_assert!(!state.free.contains(&segment), "segment {} is free already", segment.0);
        if let Some((_, is_free)) = state.withheld.iter_mut().find(|(withheld, _)| *withheld == segment) {
            *is_free = true;
            return;
        }
        state.free.push_back(segment);
        self.free.store(state.free.len() as u32, Ordering::Relaxed);
        drop(state);
        self.given.fetch_add(1, Ordering::Release);
        self.tell();
    }

    /// Somebody waits for a segment: whichever shard can clean something should look.
    pub(crate) fn tell(&self) {
        self.events.fetch_add(1, Ordering::Release);
        self.wake();
    }

    /// How often it was told.
    pub(crate) fn events(&self) -> u64 {
        self.events.load(Ordering::Acquire)
    }

    /// Segments that were ever given back.
    pub(crate) fn given(&self) -> u64 {
        self.given.load(Ordering::Acquire)
    }

    /// Resolves when there were more than `seen` events, or `over` says that nobody wants to know any more.
    pub(crate) async fn watch(&self, seen: u64, over: impl Fn() -> bool) {
        poll_fn(|cx| {
            // Registered first: a segment given back between the two is not missed.
            self.waiting.lock().unwrap_or_else(|poison| poison.into_inner()).push(cx.waker().clone());
            if self.events() > seen || over() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// Makes those who wait look again.
    pub(crate) fn wake(&self) {
        let waiting = std::mem::take(&mut *self.waiting.lock().unwrap_or_else(|poison| poison.into_inner()));
        waiting.into_iter().for_each(Waker::wake);
    }

    /// Nobody gets `segment` until [`give_withheld`](Self::give_withheld): an index names it. It may look free, or be
    /// another shard's, which goes on using it.
    pub(crate) fn withhold(&self, segment: SegmentIndex) {
        let mut state = self.lock();
        if state.withheld.iter().any(|(withheld, _)| *withheld == segment) {
            return;
        }
        let in_list = state.free.len();
        state.free.retain(|free| *free != segment);
        let is_free = state.free.len() < in_list || mutant(Mutant::OthersSegmentGiven);
        state.withheld.push((segment, is_free));
        self.free.store(state.free.len() as u32, Ordering::Relaxed);
    }

    /// No index names what is withheld any more: what nobody uses is free.
    pub(crate) fn give_withheld(&self) {
        let withheld = std::mem::take(&mut self.lock().withheld);
        withheld.into_iter().filter(|(_, is_free)| *is_free).for_each(|(segment, _)| self.give(segment));
    }

    /// Segments in the list.
    pub(crate) fn free_count(&self) -> u32 {
        self.free.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What an index names is nobody's next, whether it looked free or is given back only later.
    #[test]
    fn what_is_withheld_is_free_only_if_nobody_uses_it() {
        let [looked_free, given_back, in_use, free] = [1, 2, 3, 4].map(SegmentIndex);
        let pool = Pool::new([looked_free, free].into(), Generation(0));
        for segment in [looked_free, given_back, in_use, looked_free] {
            pool.withhold(segment);
        }
        assert_eq!(pool.free_count(), 1);
        pool.give(given_back);
        let taken = || pool.take().map(|(segment, _)| segment);
        assert_eq!([taken(), taken()], [Some(free), None]);
        pool.give_withheld();
        assert_eq!([taken(), taken(), taken()], [Some(looked_free), Some(given_back), None]);
        pool.give(in_use);
        assert_eq!(taken(), Some(in_use));
    }
}
