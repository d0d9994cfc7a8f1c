//! Receive buffers that the kernel picks when bytes arrive.
//!
//! Two rings of buffers are shared by all connections of a core: a receive names no buffer, so a connection that
//! waits holds none. A buffer taken by the kernel leaves with the completion and a fresh one takes its place. What has
//! left is counted until its last handle is dropped, wherever that is; at the limit receives wait, which is how a core stops
//! reading when it can not keep up. A connection by which others say what is done goes on: what the core holds is held until it hears
//! that. Who keeps bytes for longer keeps copies from a quarter of the limit on ([`SharedBuf::keep`](crate::SharedBuf::keep)).
//!
//! | ring | buffers | for |
//! |---|---|---|
//! | small | many of 16 KiB | a connection that was sent little last: one of many, each with a few requests |
//! | large | few of 128 KiB | one that was sent more |
//!
//! Where one ring has none left, the other does.
//!
//! A turn finds as many small receives as there are connections, and each of them takes a buffer: with 32 for all of 256
//! connections, seven receives of eight came back without one, to be asked for again.

use super::mailbox::Mailbox;
use crate::buf::{Budget, IoBuf};
use io_uring::Submitter;
use io_uring::types::BufRingEntry;
use std::io;
use std::sync::atomic::{AtomicU16, Ordering};
use std::task::Waker;

/// Size of a large receive buffer: what a socket gives at once on a fast network, and a 128 KiB command with its payload.
pub(super) const RECEIVE_BUFFER_BYTES: usize = 128 << 10;
/// Size of a small one: three 4 KiB writes with their headers.
const SMALL_BUFFER_BYTES: usize = 16 << 10;
/// Who was sent no more than this (two of them) will do with a small one next time.
const LITTLE_BYTES: usize = SMALL_BUFFER_BYTES / 2 + (1 << 10);
/// Buffers offered as long as turns need no more. They are used in turn, so fewer stay in the core's cache: with 4
/// instead of 32 a 4 KiB write at depth 128 costs 740 ns instead of 890 (examples/ping_pong.rs, turned around).
const OFFERED_MIN: u16 = 4;
/// Turns after which more offered than needed are taken for too many.
const TURNS_PER_LOOK: u32 = 1024;
/// The part of what tasks may hold that is left to those who keep it for long.
pub(super) const KEPT_PART: u32 = 4;
/// Set in the ids of small buffers: a completion says which buffer it took, not of which ring.
const SMALL_ID: u16 = 1 << 15;

/// Which buffers a receive takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Size {
    #[default]
    Small,
    Large,
}

impl Size {
    /// What a connection wants that was just sent so many bytes.
    pub(super) fn after(received_bytes: usize) -> Self {
        if received_bytes <= LITTLE_BYTES { Self::Small } else { Self::Large }
    }

    pub(super) fn bytes(self) -> usize {
        match self {
            Self::Small => SMALL_BUFFER_BYTES,
            Self::Large => RECEIVE_BUFFER_BYTES,
        }
    }

    /// Its buffer group.
    pub(super) fn group(self) -> u16 {
        match self {
            Self::Small => 1,
            Self::Large => 0,
        }
    }

    /// Most buffers the kernel may pick from within one turn, before the ring is refilled.
    fn entries(self) -> u16 {
        match self {
            Self::Small => 512,
            Self::Large => 32,
        }
    }

    /// Buffers that a core's tasks may hold, and a few more: receives that have begun end. Of large ones 64 MiB, as much as a door lets be
    /// in flight per core, and half of that of small ones.
    pub(super) fn held_max(self) -> u32 {
        match self {
            Self::Small => ((32 << 20) / SMALL_BUFFER_BYTES) as u32,
            Self::Large => ((64 << 20) / RECEIVE_BUFFER_BYTES) as u32,
        }
    }

    fn id_bits(self) -> u16 {
        match self {
            Self::Small => SMALL_ID,
            Self::Large => 0,
        }
    }
}

/// Both rings of a core.
pub(super) struct ReceiveRings {
    small: ReceiveRing,
    large: ReceiveRing,
    /// Who found no buffer in either.
    waiting: Vec<Waker>,
}

impl ReceiveRings {
    /// Nothing is offered to the kernel: whoever receives takes a buffer.
    pub(super) fn without_kernel(mailbox: &'static Mailbox) -> Self {
        let [small, large] = mailbox.receive_budgets();
        Self {
            small: ReceiveRing::without_kernel(Size::Small, small),
            large: ReceiveRing::without_kernel(Size::Large, large),
            waiting: Vec::new(),
        }
    }

    /// Registers them with the kernel and fills them.
    pub(super) fn register(submitter: &Submitter<'_>, mailbox: &'static Mailbox) -> io::Result<Self> {
        let [small, large] = mailbox.receive_budgets();
        Ok(Self {
            small: ReceiveRing::register(submitter, Size::Small, small)?,
            large: ReceiveRing::register(submitter, Size::Large, large)?,
            waiting: Vec::new(),
        })
    }

    fn ring(&mut self, size: Size) -> &mut ReceiveRing {
        match size {
            Size::Small => &mut self.small,
            Size::Large => &mut self.large,
        }
    }

    /// At the start of a turn: puts fresh buffers where some are missing.
    pub(super) fn start_turn(&mut self) {
        self.small.demand.start_turn(Size::Small.entries());
        self.large.demand.start_turn(Size::Large.entries());
        self.refill();
        if !self.waiting.is_empty() && (self.small.has_room() || self.large.has_room()) {
            self.waiting.drain(..).for_each(Waker::wake);
        }
    }

    /// Offers as many buffers as turns need.
    fn refill(&mut self) {
        self.small.refill();
        self.large.refill();
    }

    /// A receive found no buffer: offer more. Most often others took all within one turn, and there are some by now.
    pub(super) fn found_empty(&mut self, size: Size) {
        self.ring(size).demand.found_empty(size.entries());
        self.refill();
    }

    /// The buffer that the kernel picked and has filled with `len` bytes. Without bytes it goes back into the ring.
    pub(super) fn take(&mut self, id: u16, len: usize) -> Option<IoBuf> {
        let size = if id & SMALL_ID != 0 { Size::Small } else { Size::Large };
        self.ring(size).take(id & !SMALL_ID, len)
    }

    /// A buffer to receive into where there is no ring, counted like one of a ring's.
    pub(super) fn take_of(&self, size: Size) -> IoBuf {
        match size {
            Size::Small => self.small.take_apart(),
            Size::Large => self.large.take_apart(),
        }
    }

    /// A large buffer to receive into without the ring, counted like one of the ring's; `None` at the limit, for who waits there.
    pub(super) fn take_apart(&self, goes_on: bool) -> Option<IoBuf> {
        (goes_on || self.large.has_room()).then(|| self.large.take_apart())
    }

    /// Which buffers there are to receive into: those wanted, or the others. At the limits `waker` is told when one comes back, of who
    /// waits there.
    pub(super) fn ready_or_wait(&mut self, wanted: Size, goes_on: bool, waker: &Waker) -> Option<Size> {
        self.refill();
        let is_ready = |ring: &ReceiveRing| (ring.in_ring() > 0 || !ring.is_offered()) && (goes_on || ring.has_room());
        let ready = [wanted, Size::Large, Size::Small].into_iter().find(|size| is_ready(self.ring(*size)));
        if ready.is_none() {
            self.waiting.push(waker.clone());
        }
        ready
    }
}

struct ReceiveRing {
    size: Size,
    /// The entries, as shared with the kernel. Page-aligned, as it asks.
    memory: IoBuf,
    tail: u16,
    /// The buffers behind the entries, by buffer id.
    buffers: Box<[Option<IoBuf>]>,
    /// Ids that wait for a buffer.
    missing: Vec<u16>,
    demand: Demand,
    budget: &'static Budget,
}

impl ReceiveRing {
    fn register(submitter: &Submitter<'_>, size: Size, budget: &'static Budget) -> io::Result<Self> {
        let entries = size.entries();
        let memory = IoBuf::zeroed(usize::from(entries) * size_of::<BufRingEntry>());
        // SAFETY: the memory is page-aligned and large enough, and lives until the ring is closed (see `Reactor`).
        unsafe {
            submitter.register_buf_ring_with_flags(memory.as_ptr() as u64, entries, size.group(), 0)?;
        }
        let mut ring = Self {
            size,
            memory,
            tail: 0,
            buffers: (0..entries).map(|_| None).collect(),
            missing: (0..entries).rev().collect(),
            demand: Demand::default(),
            budget,
        };
        ring.refill();
        Ok(ring)
    }

    fn without_kernel(size: Size, budget: &'static Budget) -> Self {
        let demand = Demand { offered: 0, ..Demand::default() };
        let (memory, buffers) = (IoBuf::new(0), Box::default());
        Self { size, memory, tail: 0, buffers, missing: Vec::new(), demand, budget }
    }

    fn is_offered(&self) -> bool {
        !self.buffers.is_empty()
    }

    fn refill(&mut self) {
        let before = self.tail;
        while self.in_ring() < self.demand.offered {
            let id = self.missing.pop().expect("no more are offered than there are entries");
            self.offer(id, IoBuf::new(self.size.bytes()));
        }
        if self.tail != before {
            self.publish();
        }
    }

    fn in_ring(&self) -> u16 {
        (self.buffers.len() - self.missing.len()) as u16
    }

    /// Whether tasks may hold one more.
    fn has_room(&self) -> bool {
        self.budget.has_room(self.size.held_max())
    }

    fn offer(&mut self, id: u16, mut buffer: IoBuf) {
        let index = usize::from(self.tail & (self.size.entries() - 1));
        // SAFETY: the index is inside the ring's memory; the kernel reads this entry only once the tail has passed it.
        let entry = unsafe { &mut *self.memory.as_mut_ptr().cast::<BufRingEntry>().add(index) };
        entry.set_addr(buffer.as_mut_ptr() as u64);
        entry.set_len(buffer.len() as u32);
        entry.set_bid(id | self.size.id_bits());
        self.buffers[usize::from(id)] = Some(buffer);
        self.tail = self.tail.wrapping_add(1);
    }

    fn publish(&mut self) {
        // SAFETY: the tail lies in the first entry's spare field, aligned for a u16; the kernel only reads it.
        let tail = unsafe { AtomicU16::from_ptr(BufRingEntry::tail(self.memory.as_ptr().cast()).cast_mut()) };
        tail.store(self.tail, Ordering::Release);
    }

    fn take(&mut self, id: u16, len: usize) -> Option<IoBuf> {
        let mut buffer = self.buffers[usize::from(id)].take().expect("the kernel picks a buffer once");
        if len == 0 {
            self.offer(id, buffer);
            self.publish();
            return None;
        }
        assert!(len <= buffer.len(), "a receive fills at most its buffer");
        buffer.truncate(len);
        buffer.charge(self.budget);
        self.missing.push(id);
        self.demand.taken += 1;
        Some(buffer)
    }

    fn take_apart(&self) -> IoBuf {
        let mut buffer = IoBuf::new(self.size.bytes());
        buffer.charge(self.budget);
        buffer
    }
}

/// How many buffers a turn needs.
struct Demand {
    /// Buffers to have in the ring.
    offered: u16,
    /// Whether more have been offered in this turn.
    raised: bool,
    /// Taken in this turn.
    taken: u16,
    /// Most taken in one turn since the last look.
    peak: u16,
    /// Turns since the last look.
    turns: u32,
}

impl Default for Demand {
    fn default() -> Self {
        Self { offered: OFFERED_MIN, raised: false, taken: 0, peak: 0, turns: 0 }
    }
}

impl Demand {
    fn start_turn(&mut self, entries: u16) {
        self.raised = false;
        self.peak = self.peak.max(std::mem::take(&mut self.taken));
        self.turns += 1;
        if self.turns == TURNS_PER_LOOK {
            let needed = (2 * std::mem::take(&mut self.peak)).next_power_of_two();
            self.offered = self.offered.min(needed.clamp(OFFERED_MIN, entries));
            self.turns = 0;
        }
    }

    /// Twice as many, however many receives of a turn found none.
    fn found_empty(&mut self, entries: u16) {
        if !std::mem::replace(&mut self.raised, true) {
            self.offered = entries.min(2 * self.offered);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_are_offered_when_needed_and_fewer_when_not() {
        const ENTRIES: u16 = 32;
        let mut demand = Demand::default();
        for expected in [8, 16, 32, 32] {
            demand.found_empty(ENTRIES);
            demand.found_empty(ENTRIES);
            assert_eq!(demand.offered, expected, "once in a turn");
            demand.start_turn(ENTRIES);
        }
        demand.turns = 0;
        for turn in 0..2 * TURNS_PER_LOOK {
            demand.taken = if turn < TURNS_PER_LOOK { 7 } else { 1 };
            demand.start_turn(ENTRIES);
            let expected = match turn + 1 {
                ..TURNS_PER_LOOK => ENTRIES,
                TURNS_PER_LOOK.. if turn + 1 < 2 * TURNS_PER_LOOK => 16,
                _ => OFFERED_MIN,
            };
            assert_eq!(demand.offered, expected, "turn {turn}");
        }
    }

    #[test]
    fn the_next_buffer_is_of_the_size_that_the_last_receive_would_have_done_with() {
        let two_writes = 2 * (72 + 4096);
        assert_eq!([0, two_writes].map(Size::after), [Size::Small; 2]);
        assert_eq!([SMALL_BUFFER_BYTES, RECEIVE_BUFFER_BYTES].map(Size::after), [Size::Large; 2]);
    }
}
