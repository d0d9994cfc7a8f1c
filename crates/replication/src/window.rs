//! A group's entries on their way: given a place in the order, not committed yet.

use std::collections::VecDeque;
use std::task::Waker;
use types::{Seq, StoreId};

/// Entries of one group that may be prepared and not committed; then its writers wait.
pub(crate) const PREPARED_ENTRIES_MAX: usize = 4096;
/// Bytes of one group that may be prepared and not committed.
pub(crate) const PREPARED_BYTES_MAX: usize = 16 << 20;

/// What is known of an entry on its way.
#[derive(Default)]
struct OnItsWay {
    bytes: usize,
    /// Who waits for its commit.
    waiter: Option<Waker>,
}

/// An in-sync member and how far it has prepared.
#[derive(Clone, Copy, Debug)]
struct Member {
    store: StoreId,
    prepared_through: Seq,
}

/// The order of one group, seen from its primary.
pub(crate) struct Window {
    committed: Seq,
    /// Those behind `committed`, in order, without a gap.
    entries: VecDeque<OnItsWay>,
    bytes: usize,
    /// In-sync members; an entry is committed when all of them have prepared it.
    members: Vec<Member>,
    min_in_sync: usize,
}

impl Window {
    /// A group of which `committed` is committed and everything through `prepared_through` is on each of `members`.
    pub(crate) fn new(committed: Seq, prepared_through: Seq, members: &[StoreId], min_in_sync: u32) -> Self {
        assert!(committed <= prepared_through, "committed {committed} is ahead of prepared {prepared_through}");
        let mut entries = VecDeque::new();
        entries.resize_with((prepared_through.0 - committed.0) as usize, OnItsWay::default);
        let members = members.iter().map(|&store| Member { store, prepared_through }).collect();
        Self { committed, entries, bytes: 0, members, min_in_sync: min_in_sync as usize }
    }

    pub(crate) fn committed(&self) -> Seq {
        self.committed
    }

    /// The place that the next entry gets.
    pub(crate) fn next_seq(&self) -> Seq {
        Seq(self.committed.0 + self.entries.len() as u64 + 1)
    }

    /// Whether an entry of `bytes` may join. One that is alone always may.
    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        self.entries.is_empty()
            || (self.entries.len() < PREPARED_ENTRIES_MAX && self.bytes + bytes <= PREPARED_BYTES_MAX)
    }

    /// The entry at [`next_seq`](Self::next_seq) is on its way.
    pub(crate) fn push(&mut self, bytes: usize) {
        self.bytes += bytes;
        self.entries.push_back(OnItsWay { bytes, waiter: None });
    }

    /// `store` has prepared everything through `through`. Returns the new commit number if it went up.
    pub(crate) fn prepared(&mut self, store: StoreId, through: Seq) -> Option<Seq> {
        assert!(through < self.next_seq(), "{through} was never given out");
        let member = self.members.iter_mut().find(|member| member.store == store)?;
        member.prepared_through = member.prepared_through.max(through);
        if self.members.len() < self.min_in_sync {
            return None; // never the last one standing
        }
        let commit = self.members.iter().map(|member| member.prepared_through).min()?;
        (commit > self.committed).then_some(commit)
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

    /// Takes out all waiters: the group has stopped.
    pub(crate) fn take_waiters(&mut self) -> Vec<Waker> {
        self.entries.iter_mut().filter_map(|entry| entry.waiter.take()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: StoreId = StoreId(1);
    const B: StoreId = StoreId(2);

    fn drain(window: &mut Window, commit: Seq) {
        while window.pop_committed(commit).is_some() {}
    }

    #[test]
    fn the_commit_number_is_the_least_of_all_in_sync_members() {
        let mut window = Window::new(Seq(0), Seq(0), &[A, B], 2);
        (0..5).for_each(|_| window.push(10));
        assert_eq!(window.prepared(A, Seq(5)), None, "B has nothing yet");
        assert_eq!(window.prepared(B, Seq(3)), Some(Seq(3)));
        drain(&mut window, Seq(3));
        assert_eq!((window.committed(), window.next_seq()), (Seq(3), Seq(6)));
        assert_eq!(window.prepared(StoreId(9), Seq(5)), None, "a stranger counts for nothing");
        assert_eq!(window.prepared(B, Seq(2)), None, "what was said once stays said");
        assert_eq!(window.prepared(B, Seq(5)), Some(Seq(5)));
    }

    #[test]
    fn too_few_members_commit_nothing() {
        let mut window = Window::new(Seq(0), Seq(0), &[A], 2);
        window.push(10);
        assert_eq!(window.prepared(A, Seq(1)), None);
    }

    #[test]
    fn what_was_prepared_before_the_start_is_committed_with_what_follows() {
        let mut window = Window::new(Seq(7), Seq(9), &[A], 1);
        assert_eq!(window.next_seq(), Seq(10));
        window.push(0);
        assert_eq!(window.prepared(A, Seq(10)), Some(Seq(10)));
        drain(&mut window, Seq(10));
        assert_eq!(window.next_seq(), Seq(11));
    }

    #[test]
    fn a_full_window_has_no_room_and_an_empty_one_takes_anything() {
        let mut window = Window::new(Seq(0), Seq(0), &[A], 1);
        assert!(window.has_room(2 * PREPARED_BYTES_MAX));
        window.push(PREPARED_BYTES_MAX);
        assert!(!window.has_room(1));
        window.prepared(A, Seq(1));
        drain(&mut window, Seq(1));
        (0..PREPARED_ENTRIES_MAX).for_each(|_| window.push(0));
        assert!(!window.has_room(0));
    }
}
