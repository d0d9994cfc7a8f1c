//! The segments that nobody uses, shared by the shards of a device. A lock is taken once per segment, not per append.

use crate::format::{Generation, SegmentIndex};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard};
use types::{Mutant, mutant};

/// Generations left out at each opening. A segment's header may have been lost with the power while records behind it
/// were not; no later use may have the generation of such a one. At most two appends per shard, each with one retry,
/// can be in that state: 8 × 2 × 2, twice over.
const GENERATIONS_SKIPPED: u64 = 64;

/// Segments nobody uses, oldest first.
pub(crate) struct Pool {
    state: Mutex<State>,
    /// Length of the list, for those who only want to know whether there is room.
    free: AtomicU32,
}

struct State {
    free: VecDeque<SegmentIndex>,
    last_generation: Generation,
}

impl Pool {
    /// `free` segments, and the highest generation found on the device.
    pub(crate) fn new(free: VecDeque<SegmentIndex>, highest: Generation) -> Self {
        let count = AtomicU32::new(free.len() as u32);
        let last_generation = Generation(highest.0 + GENERATIONS_SKIPPED);
        Self { state: Mutex::new(State { free, last_generation }), free: count }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poison| poison.into_inner())
    }

    /// A segment to append to, and the generation of this use of it.
    pub(crate) fn take(&self) -> Option<(SegmentIndex, Generation)> {
        let mut state = self.lock();
        let segment = match mutant(Mutant::SegmentReusedTooEarly) {
            true => state.free.pop_back()?,
            false => state.free.pop_front()?,
        };
        state.last_generation.0 += 1;
        self.free.store(state.free.len() as u32, Ordering::Relaxed);
        Some((segment, state.last_generation))
    }

    /// Nothing needs what is in `segment` any more.
    pub(crate) fn give(&self, segment: SegmentIndex) {
        let mut state = self.lock();
        debug_assert!(!state.free.contains(&segment), "segment {} is free already", segment.0);
        state.free.push_back(segment);
        self.free.store(state.free.len() as u32, Ordering::Relaxed);
    }

    /// Nobody gets `segment`, if nobody has it yet: it looked free, and is not.
    pub(crate) fn withdraw(&self, segment: SegmentIndex) {
        let mut state = self.lock();
        state.free.retain(|free| *free != segment);
        self.free.store(state.free.len() as u32, Ordering::Relaxed);
    }

    /// Segments in the list.
    pub(crate) fn free_count(&self) -> u32 {
        self.free.load(Ordering::Relaxed)
    }
}
