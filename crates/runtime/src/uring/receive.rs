//! Receive buffers that the kernel picks when bytes arrive.
//!
//! A ring of 128 KiB buffers is shared by all connections of a core: a receive names no buffer, so a connection that
//! waits holds none. A buffer taken by the kernel leaves with the completion and a fresh one takes its place. What has
//! left is counted until its last handle is dropped, wherever that is; at the limit no fresh one comes and receives
//! wait, which is how a core stops reading when it can not keep up.

use super::mailbox::Mailbox;
use crate::buf::{Budget, IoBuf};
use io_uring::Submitter;
use io_uring::types::BufRingEntry;
use std::io;
use std::sync::atomic::{AtomicU16, Ordering};
use std::task::Waker;

/// Size of one receive buffer: what a socket gives at once on a fast network, and a 128 KiB command with its payload.
pub(super) const RECEIVE_BUFFER_BYTES: usize = 128 << 10;
/// Most buffers the kernel may pick from within one turn, before the ring is refilled.
const RING_ENTRIES: u16 = 32;
/// Buffers offered as long as turns need no more. They are used in turn, so fewer stay in the core's cache: with 4
/// instead of 32 a 4 KiB write at depth 128 costs 740 ns instead of 890 (examples/ping_pong.rs, turned around).
const OFFERED_MIN: u16 = 4;
/// Turns after which more offered than needed are taken for too many.
const TURNS_PER_LOOK: u32 = 1024;
/// Bytes of receive buffers that a core's tasks may hold: as much as a door lets be in flight per core.
const HELD_BYTES_MAX: usize = 64 << 20;
const HELD_MAX: u32 = (HELD_BYTES_MAX / RECEIVE_BUFFER_BYTES) as u32;
/// The one buffer group of a ring.
pub(super) const BUFFER_GROUP: u16 = 0;

pub(super) struct ReceiveRing {
    /// The entries, as shared with the kernel. Page-aligned, as it asks.
    memory: IoBuf,
    tail: u16,
    /// The buffers behind the entries, by buffer id.
    buffers: [Option<IoBuf>; RING_ENTRIES as usize],
    /// Ids that wait for a buffer.
    missing: Vec<u16>,
    demand: Demand,
    budget: &'static Budget,
    waiting: Vec<Waker>,
}

impl ReceiveRing {
    /// Registers the ring with the kernel and fills it.
    pub(super) fn register(submitter: &Submitter<'_>, mailbox: &'static Mailbox) -> io::Result<Self> {
        let memory = IoBuf::zeroed(usize::from(RING_ENTRIES) * size_of::<BufRingEntry>());
        // SAFETY: the memory is page-aligned and large enough, and lives until the ring is closed (see `Reactor`).
        unsafe {
            submitter.register_buf_ring_with_flags(memory.as_ptr() as u64, RING_ENTRIES, BUFFER_GROUP, 0)?;
        }
        let mut ring = Self {
            memory,
            tail: 0,
            buffers: [const { None }; RING_ENTRIES as usize],
            missing: (0..RING_ENTRIES).rev().collect(),
            demand: Demand { offered: OFFERED_MIN, taken: 0, peak: 0, turns: 0 },
            budget: mailbox.receive_budget(),
            waiting: Vec::new(),
        };
        ring.refill();
        Ok(ring)
    }

    /// At the start of a turn: puts fresh buffers where some are missing.
    pub(super) fn start_turn(&mut self) {
        self.demand.start_turn();
        self.refill();
    }

    /// A receive found no buffer: offer more. Most often others took all within one turn, and there are some by now.
    pub(super) fn found_empty(&mut self) {
        self.demand.found_empty();
        self.refill();
    }

    /// Offers as many buffers as turns need, as far as the limit allows, and wakes who waits for them.
    fn refill(&mut self) {
        let before = self.tail;
        while self.in_ring() < self.demand.offered {
            if !self.budget.has_room(HELD_MAX - u32::from(self.in_ring())) {
                break;
            }
            let id = self.missing.pop().expect("no more are offered than there are entries");
            self.offer(id, IoBuf::new(RECEIVE_BUFFER_BYTES));
        }
        if self.tail != before {
            self.publish();
            self.waiting.drain(..).for_each(Waker::wake);
        }
    }

    fn in_ring(&self) -> u16 {
        RING_ENTRIES - self.missing.len() as u16
    }

    fn offer(&mut self, id: u16, mut buffer: IoBuf) {
        let index = usize::from(self.tail & (RING_ENTRIES - 1));
        // SAFETY: the index is inside the ring's memory; the kernel reads this entry only once the tail has passed it.
        let entry = unsafe { &mut *self.memory.as_mut_ptr().cast::<BufRingEntry>().add(index) };
        entry.set_addr(buffer.as_mut_ptr() as u64);
        entry.set_len(buffer.len() as u32);
        entry.set_bid(id);
        self.buffers[usize::from(id)] = Some(buffer);
        self.tail = self.tail.wrapping_add(1);
    }

    fn publish(&mut self) {
        // SAFETY: the tail lies in the first entry's spare field, aligned for a u16; the kernel only reads it.
        let tail = unsafe { AtomicU16::from_ptr(BufRingEntry::tail(self.memory.as_ptr().cast()).cast_mut()) };
        tail.store(self.tail, Ordering::Release);
    }

    /// The buffer that the kernel picked and has filled with `len` bytes. Without bytes it goes back into the ring.
    pub(super) fn take(&mut self, id: u16, len: usize) -> Option<IoBuf> {
        let mut buffer = self.buffers[usize::from(id)].take().expect("the kernel picks a buffer once");
        if len == 0 {
            self.offer(id, buffer);
            self.publish();
            return None;
        }
        buffer.truncate(len);
        buffer.charge(self.budget);
        self.missing.push(id);
        self.demand.taken += 1;
        Some(buffer)
    }

    /// A buffer to receive into without the ring, counted like one of the ring's; `None` at the limit.
    pub(super) fn take_apart(&self) -> Option<IoBuf> {
        if !self.budget.has_room(HELD_MAX - u32::from(self.in_ring())) {
            return None;
        }
        let mut buffer = IoBuf::new(RECEIVE_BUFFER_BYTES);
        buffer.charge(self.budget);
        Some(buffer)
    }

    /// Whether there is a buffer to receive into; if not, `waker` is told when one comes.
    pub(super) fn ready_or_wait(&mut self, waker: &Waker) -> bool {
        self.refill();
        let ready = self.in_ring() > 0;
        if !ready {
            self.waiting.push(waker.clone());
        }
        ready
    }
}

/// How many buffers a turn needs.
struct Demand {
    /// Buffers to have in the ring.
    offered: u16,
    /// Taken in this turn.
    taken: u16,
    /// Most taken in one turn since the last look.
    peak: u16,
    /// Turns since the last look.
    turns: u32,
}

impl Demand {
    fn start_turn(&mut self) {
        self.peak = self.peak.max(std::mem::take(&mut self.taken));
        self.turns += 1;
        if self.turns == TURNS_PER_LOOK {
            let needed = (2 * std::mem::take(&mut self.peak)).next_power_of_two();
            self.offered = self.offered.min(needed.clamp(OFFERED_MIN, RING_ENTRIES));
            self.turns = 0;
        }
    }

    fn found_empty(&mut self) {
        self.offered = RING_ENTRIES;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_are_offered_when_needed_and_fewer_when_not() {
        let mut demand = Demand { offered: OFFERED_MIN, taken: 0, peak: 0, turns: 0 };
        demand.found_empty();
        assert_eq!(demand.offered, RING_ENTRIES);
        for turn in 0..2 * TURNS_PER_LOOK {
            demand.taken = if turn < TURNS_PER_LOOK { 7 } else { 1 };
            demand.start_turn();
            let expected = match turn + 1 {
                ..TURNS_PER_LOOK => RING_ENTRIES,
                TURNS_PER_LOOK.. if turn + 1 < 2 * TURNS_PER_LOOK => 16,
                _ => OFFERED_MIN,
            };
            assert_eq!(demand.offered, expected, "turn {turn}");
        }
    }
}
