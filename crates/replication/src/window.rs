//! A group's entries on their way, at its primary: given a place in the order, not committed yet.

use std::collections::VecDeque;
use std::task::Waker;
use types::Seq;

/// Entries of one group that may be prepared and not committed; then its writers wait.
pub const PREPARED_ENTRIES_MAX: usize = 4096;
/// Bytes of one group that may be prepared and not committed.
pub const PREPARED_BYTES_MAX: usize = 16 << 20;

/// What is known of an entry on its way.
#[derive(Default)]
struct OnItsWay {
    bytes: usize,
    /// Who waits for its commit.
    waiter: Option<Waker>,
}

/// The order of one group in one reign of its primary.
#[derive(Default)]
pub(crate) struct Window {
    /// Which reign: what was given a place in an earlier one may not be there any more.
    reign: u32,
    committed: Seq,
    /// Those behind `committed`, in order, without a gap.
    entries: VecDeque<OnItsWay>,
    bytes: usize,
}

impl Window {
    /// A reign begins: `committed` is committed, and everything through `last` is in the log.
    pub(crate) fn begin(&mut self, committed: Seq, last: Seq) {
        assert!(committed <= last, "committed {committed} is ahead of the log's end {last}");
        self.reign += 1;
        self.committed = committed;
        self.entries.clear();
        self.entries.resize_with((last.0 - committed.0) as usize, OnItsWay::default);
        self.bytes = 0;
    }

    /// The reign is over: nobody knows what becomes of the entries. Returns who waits for them.
    pub(crate) fn end(&mut self) -> Vec<Waker> {
        self.reign += 1;
        self.bytes = 0;
        self.entries.drain(..).filter_map(|entry| entry.waiter).collect()
    }

    /// Takes out all who wait: the group has stopped.
    pub(crate) fn take_waiters(&mut self) -> Vec<Waker> {
        self.entries.iter_mut().filter_map(|entry| entry.waiter.take()).collect()
    }

    /// Which reign it is.
    pub(crate) fn reign(&self) -> u32 {
        self.reign
    }

    pub(crate) fn committed(&self) -> Seq {
        self.committed
    }

    /// The last entry that was given a place.
    pub(crate) fn last(&self) -> Seq {
        Seq(self.committed.0 + self.entries.len() as u64)
    }

    /// Whether an entry of `bytes` may join. One that is alone always may.
    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        self.entries.is_empty()
            || (self.entries.len() < PREPARED_ENTRIES_MAX && self.bytes + bytes <= PREPARED_BYTES_MAX)
    }

    /// Entries that are on their way.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The next entry is on its way.
    pub(crate) fn push(&mut self, bytes: usize) {
        self.bytes += bytes;
        self.entries.push_back(OnItsWay { bytes, waiter: None });
    }

    /// Everything through `commit` is committed: takes the next such entry out. The waiter is woken by the caller.
    pub(crate) fn pop_committed(&mut self, commit: Seq) -> Option<Option<Waker>> {
        if self.committed >= commit {
            return None;
        }
        let entry = self.entries.pop_front().expect("committed entries were on their way");
        self.bytes -= entry.bytes;
        self.committed.0 += 1;
        Some(entry.waiter)
    }

    /// Whoever waits for the commit of `seq`. One per entry.
    pub(crate) fn wait_for(&mut self, seq: Seq, waker: &Waker) {
        let index = (seq.0 - self.committed.0 - 1) as usize;
        let waiter = &mut self.entries[index].waiter;
        match waiter {
            Some(known) => known.clone_from(waker),
            None => *waiter = Some(waker.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drain(window: &mut Window, commit: Seq) {
        while window.pop_committed(commit).is_some() {}
    }

    #[test]
    fn what_was_prepared_before_the_reign_is_committed_with_what_follows() {
        let mut window = Window::default();
        window.begin(Seq(7), Seq(9));
        window.push(0);
        assert_eq!((window.committed(), window.last()), (Seq(7), Seq(10)));
        drain(&mut window, Seq(10));
        assert_eq!((window.committed(), window.last()), (Seq(10), Seq(10)));
    }

    #[test]
    fn a_full_window_has_no_room_and_an_empty_one_takes_anything() {
        let mut window = Window::default();
        assert!(window.has_room(2 * PREPARED_BYTES_MAX));
        window.push(PREPARED_BYTES_MAX);
        assert!(!window.has_room(1));
        drain(&mut window, Seq(1));
        (0..PREPARED_ENTRIES_MAX).for_each(|_| window.push(0));
        assert!(!window.has_room(0));
    }

    #[test]
    fn another_reign_knows_nothing_of_the_entries_of_the_last() {
        let mut window = Window::default();
        window.begin(Seq(0), Seq(0));
        window.push(10);
        window.wait_for(Seq(1), Waker::noop());
        let reign = window.reign();
        assert_eq!(window.end().len(), 1);
        window.begin(Seq(0), Seq(1));
        assert_ne!(window.reign(), reign);
        assert_eq!((window.last(), window.end().len()), (Seq(1), 0));
    }
}
