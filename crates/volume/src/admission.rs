//! Who may touch a chunk now.
//!
//! Commands that overlap in a 4 KiB block, and are not both reads, run one after the other in the order in which they
//! entered. Each chunk of each volume has one such order, on the chunk's core. A command that needs two chunks enters
//! the second only when it may run on the first, lower chunk first: whoever waits holds only lower chunks than the
//! one it waits for, so no ring of waiting commands can close, on one core or several.

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use std::cell::RefCell;
use std::task::{Poll, Waker};
use types::{BlockRange, ChunkId, VolumeId};

/// What a command does to its blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Runs beside other reads.
    Read,
    /// Runs alone.
    Write,
}

/// A place in a chunk's order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TicketId(u32);

const NONE: u32 = u32::MAX;

struct Ticket {
    key: (VolumeId, ChunkId),
    range: BlockRange,
    access: Access,
    granted: bool,
    waker: Option<Waker>,
    previous: u32,
    next: u32,
}

impl Ticket {
    fn conflicts(&self, range: BlockRange, access: Access) -> bool {
        self.range.overlaps(range) && (self.access == Access::Write || access == Access::Write)
    }
}

/// The order of one chunk: a list through the tickets.
#[derive(Clone, Copy)]
struct Chain {
    first: u32,
    last: u32,
    waiting: u32,
}

#[derive(Default)]
struct Table {
    /// Chunks that somebody is in.
    chains: HashMap<(VolumeId, ChunkId), Chain, FixedState>,
    tickets: Vec<Ticket>,
    free: Vec<u32>,
}

/// All chunks of one core. Takes no memory once as many commands have been in it before.
#[derive(Default)]
pub(crate) struct Admission(RefCell<Table>);

impl Admission {
    /// Takes a place at the end of the chunk's order.
    pub(crate) fn enter(&self, key: (VolumeId, ChunkId), range: BlockRange, access: Access) -> TicketId {
        self.0.borrow_mut().enter(key, range, access)
    }

    /// Whether the ticket's turn has come.
    pub(crate) fn is_granted(&self, id: TicketId) -> bool {
        self.0.borrow().tickets[id.0 as usize].granted
    }

    /// Ready when the ticket's turn has come.
    pub(crate) fn poll_granted(&self, id: TicketId, waker: &Waker) -> Poll<()> {
        let ticket = &mut self.0.borrow_mut().tickets[id.0 as usize];
        if ticket.granted {
            return Poll::Ready(());
        }
        ticket.waker = Some(waker.clone());
        Poll::Pending
    }

    /// Gives the place up, used or not; whoever waited for it alone may run.
    pub(crate) fn leave(&self, id: TicketId) {
        self.0.borrow_mut().leave(id);
    }

    #[cfg(test)]
    fn is_empty(&self) -> bool {
        self.0.borrow().chains.is_empty()
    }
}

impl Table {
    fn enter(&mut self, key: (VolumeId, ChunkId), range: BlockRange, access: Access) -> TicketId {
        let ticket = Ticket { key, range, access, granted: true, waker: None, previous: NONE, next: NONE };
        let id = match self.free.pop() {
            Some(id) => {
                self.tickets[id as usize] = ticket;
                id
            }
            None => {
                self.tickets.push(ticket);
                (self.tickets.len() - 1) as u32
            }
        };
        match self.chains.entry(key) {
            Entry::Vacant(place) => {
                place.insert(Chain { first: id, last: id, waiting: 0 });
            }
            Entry::Occupied(mut chain) => {
                let chain = chain.get_mut();
                let granted = !conflicts_before(&self.tickets, chain.first, NONE, range, access);
                self.tickets[chain.last as usize].next = id;
                let ticket = &mut self.tickets[id as usize];
                ticket.previous = chain.last;
                ticket.granted = granted;
                chain.last = id;
                chain.waiting += u32::from(!granted);
            }
        }
        TicketId(id)
    }

    fn leave(&mut self, id: TicketId) {
        let (key, previous, next, granted) = {
            let ticket = &mut self.tickets[id.0 as usize];
            ticket.waker = None;
            (ticket.key, ticket.previous, ticket.next, ticket.granted)
        };
        let Entry::Occupied(mut place) = self.chains.entry(key) else { unreachable!("a ticket is in its chain") };
        let chain = place.get_mut();
        chain.waiting -= u32::from(!granted);
        match previous {
            NONE => chain.first = next,
            previous => self.tickets[previous as usize].next = next,
        }
        match next {
            NONE => chain.last = previous,
            next => self.tickets[next as usize].previous = previous,
        }
        self.free.push(id.0);
        if chain.first == NONE {
            place.remove();
        } else if chain.waiting > 0 {
            chain.waiting -= grant(&mut self.tickets, chain.first);
        }
    }
}

/// Whether one of the tickets from `first` up to `end` stands against this access.
fn conflicts_before(tickets: &[Ticket], first: u32, end: u32, range: BlockRange, access: Access) -> bool {
    let mut at = first;
    while at != end {
        let ticket = &tickets[at as usize];
        if ticket.conflicts(range, access) {
            return true;
        }
        at = ticket.next;
    }
    false
}

/// Lets those run that wait for nobody before them. Returns how many.
fn grant(tickets: &mut [Ticket], first: u32) -> u32 {
    let (mut at, mut granted) = (first, 0);
    while at != NONE {
        let Ticket { range, access, next, granted: runs, .. } = tickets[at as usize];
        if !runs && !conflicts_before(tickets, first, at, range, access) {
            let ticket = &mut tickets[at as usize];
            ticket.granted = true;
            granted += 1;
            if let Some(waker) = ticket.waker.take() {
                waker.wake();
            }
        }
        at = next;
    }
    granted
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: (VolumeId, ChunkId) = (VolumeId(1), ChunkId(2));

    fn range(first: u32, count: u32) -> BlockRange {
        BlockRange::new(first, count)
    }

    #[test]
    fn what_does_not_overlap_runs_together() {
        let admission = Admission::default();
        let tickets: Vec<_> = (0..8).map(|i| admission.enter(KEY, range(i * 2, 2), Access::Write)).collect();
        assert!(tickets.iter().all(|&ticket| admission.is_granted(ticket)));
        let other_chunk = admission.enter((VolumeId(1), ChunkId(3)), range(0, 256), Access::Write);
        let other_volume = admission.enter((VolumeId(2), ChunkId(2)), range(0, 256), Access::Write);
        assert!(admission.is_granted(other_chunk) && admission.is_granted(other_volume));
        tickets.into_iter().chain([other_chunk, other_volume]).for_each(|ticket| admission.leave(ticket));
        assert!(admission.is_empty());
    }

    #[test]
    fn overlapping_commands_run_in_the_order_in_which_they_came() {
        let admission = Admission::default();
        let first = admission.enter(KEY, range(0, 4), Access::Write);
        let second = admission.enter(KEY, range(3, 2), Access::Write);
        let third = admission.enter(KEY, range(4, 4), Access::Write);
        assert!(admission.is_granted(first) && !admission.is_granted(second));
        assert!(!admission.is_granted(third), "it overlaps the second, which came before it");
        admission.leave(first);
        assert!(admission.is_granted(second) && !admission.is_granted(third));
        admission.leave(second);
        assert!(admission.is_granted(third));
    }

    #[test]
    fn reads_run_beside_reads_and_never_pass_a_write() {
        let admission = Admission::default();
        let reads: Vec<_> = (0..3).map(|_| admission.enter(KEY, range(0, 8), Access::Read)).collect();
        assert!(reads.iter().all(|&read| admission.is_granted(read)));
        let write = admission.enter(KEY, range(7, 1), Access::Write);
        let late = admission.enter(KEY, range(0, 8), Access::Read);
        assert!(!admission.is_granted(write) && !admission.is_granted(late));
        reads.into_iter().for_each(|read| admission.leave(read));
        assert!(admission.is_granted(write) && !admission.is_granted(late));
        admission.leave(write);
        assert!(admission.is_granted(late));
    }

    #[test]
    fn one_that_gives_up_waiting_lets_the_next_one_pass() {
        let admission = Admission::default();
        let first = admission.enter(KEY, range(0, 1), Access::Write);
        let second = admission.enter(KEY, range(0, 3), Access::Write);
        let third = admission.enter(KEY, range(2, 1), Access::Write);
        admission.leave(second);
        assert!(admission.is_granted(third) && admission.is_granted(first));
    }

    /// Property: at any time those that run do not conflict, and whoever waits has a reason before it in the order.
    #[test]
    fn random_orders_keep_the_rule() {
        let mut state = 0x5eed_u64;
        let mut random = move |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        let admission = Admission::default();
        let mut inside: Vec<(TicketId, BlockRange, Access)> = Vec::new();
        for _ in 0..20_000 {
            if inside.len() < 12 && random(2) == 0 {
                let first = random(14) as u32;
                let range = range(first, 1 + random(u64::from(16 - first)) as u32);
                let access = if random(2) == 0 { Access::Read } else { Access::Write };
                inside.push((admission.enter(KEY, range, access), range, access));
            } else if !inside.is_empty() {
                let (ticket, ..) = inside.remove(random(inside.len() as u64) as usize);
                admission.leave(ticket);
            }
            for (index, &(ticket, range, access)) in inside.iter().enumerate() {
                let stands_against = |&(_, other, its): &(TicketId, BlockRange, Access)| {
                    other.overlaps(range) && (access == Access::Write || its == Access::Write)
                };
                let must_wait = inside[..index].iter().any(stands_against);
                assert_eq!(admission.is_granted(ticket), !must_wait);
            }
        }
    }
}
