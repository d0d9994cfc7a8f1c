//! A thread's way to a volume.

use crate::ClientError;
use crate::lane::{Completion, Lane, Operation, Request};
use crate::reactor::{Order, Reactor};
use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Most requests of one queue at a time.
pub const DEPTH_MAX: u32 = 4096;

/// What is submitted behind others goes together, which costs less: with the next wait or poll, or when the core is left alone for a
/// millisecond. Reads go as soon as they are such a part of all, or nodes would have nothing to do while this side works; with writes
/// among them, as soon as there are so many: what comes at once shares a record and a message to each member.
const READS_PART: u32 = 8;
const WRITES: u32 = 16;

/// A thread's way to a volume; it may go from thread to thread, and is used by one at a time.
///
/// What is submitted is completed once, in any order. Dropped, it touches no buffer any more; what becomes of what was submitted
/// nobody hears.
pub struct Queue {
    reactor: Arc<Reactor>,
    lane: Arc<Lane>,
    depth: u32,
    /// Submitted and not polled.
    under_way: u32,
    /// Submitted since a turn was taken here; and whether there are writes among them.
    new: Cell<(u32, bool)>,
}

impl Queue {
    pub(crate) fn begin(reactor: Arc<Reactor>, volume: u64, depth: u32) -> Result<Self, ClientError> {
        let depth = depth.clamp(1, DEPTH_MAX);
        let lane = Arc::new(Lane::new(depth)?);
        let its = lane.clone();
        reactor.ask(|reply| Order::Begin(volume, its, reply))??;
        Ok(Self { reactor, lane, depth, under_way: 0, new: Cell::default() })
    }

    /// Requests that were submitted and not polled.
    pub fn under_way(&self) -> u32 {
        self.under_way
    }

    /// Submits a request; it is looked at after [`kick`](Self::kick). `false`: there is no room, poll first.
    ///
    /// # Safety
    /// The buffer of a read or write is `len_bytes` long and valid, for a read writable and nobody else's, until the request is
    /// completed or the queue dropped.
    pub unsafe fn submit(&mut self, request: Request) -> bool {
        let is_write = request.operation != Operation::Read;
        // SAFETY: `&mut self`: this thread alone is the program.
        if self.under_way == self.depth || !unsafe { self.lane.submit(request) } {
            return false;
        }
        self.under_way += 1;
        let (new, writes) = self.new.get();
        self.new.set((new + 1, writes || is_write));
        true
    }

    /// Has what was submitted looked at: here, if nobody else is at it, and at once, unless others are under way.
    pub fn kick(&self) {
        self.lane.kick();
        let is_enough = match self.new.get() {
            (new, false) => new * READS_PART >= self.under_way,
            (new, true) => new == self.under_way || new >= WRITES,
        };
        if is_enough {
            self.new.take();
            self.reactor.core.give_a_turn();
        }
    }

    /// A completion, if there is one, of what has come until now.
    pub fn poll(&mut self) -> Option<Completion> {
        self.take().or_else(|| {
            if self.under_way == 0 {
                return None;
            }
            self.new.take();
            self.reactor.core.lend(Some(Duration::ZERO), || self.lane.has_completion());
            self.take()
        })
    }

    /// A completion, if one lies there; for more of a kind after one was found.
    pub fn take(&mut self) -> Option<Completion> {
        // SAFETY: `&mut self`: this thread alone is the program.
        let completion = unsafe { self.lane.poll() }?;
        self.under_way -= 1;
        Some(completion)
    }

    /// Waits until there is a completion or nothing is under way, `timeout` at most, and meanwhile does the client's work. Returns the
    /// completion.
    pub fn wait(&mut self, timeout: Option<Duration>) -> Option<Completion> {
        let until = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        while self.under_way > 0 {
            if let Some(completion) = self.take() {
                return Some(completion);
            }
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                return self.poll();
            }
            self.new.take();
            let core = &self.reactor.core;
            if !core.lend(left, || self.lane.has_completion()) {
                core.as_other(|| self.lane.sleep(left));
            }
        }
        None
    }

    /// A descriptor that becomes readable when there is a completion, if it was [armed](Self::arm) before.
    pub fn descriptor(&self) -> i32 {
        self.lane.descriptor()
    }

    /// Has the descriptor become readable with the next completion. `false`: there is one already, poll.
    pub fn arm(&self) -> bool {
        let is_armed = self.lane.arm();
        self.reactor.core.leave_to_own();
        is_armed
    }

    /// Does one request and waits for it. The queue must have nothing else under way.
    ///
    /// # Errors
    /// What a completion says.
    ///
    /// # Panics
    /// If something is under way.
    unsafe fn alone(
        &mut self,
        operation: Operation,
        offset_bytes: u64,
        buffer: *mut u8,
        len_bytes: u64,
    ) -> Result<(), i32> {
        assert_eq!(self.under_way, 0, "one request at a time");
        // SAFETY: as asked of the caller.
        let submitted = unsafe { self.submit(Request { operation, offset_bytes, len_bytes, buffer, tag: 0 }) };
        assert!(submitted, "an empty queue has room");
        self.kick();
        match self.wait(None) {
            Some(Completion { result: 0, .. }) => Ok(()),
            Some(Completion { result, .. }) => Err(-result),
            None => Err(libc::EIO),
        }
    }

    /// Reads into `buffer`.
    ///
    /// # Errors
    /// An `errno`.
    ///
    /// # Panics
    /// If something else is under way; so do the other calls.
    pub fn read(&mut self, offset_bytes: u64, buffer: &mut [u8]) -> Result<(), i32> {
        // SAFETY: the buffer is borrowed for as long as this takes.
        unsafe { self.alone(Operation::Read, offset_bytes, buffer.as_mut_ptr(), buffer.len() as u64) }
    }

    /// Writes `bytes`: durable when it returns.
    ///
    /// # Errors
    /// An `errno`.
    pub fn write(&mut self, offset_bytes: u64, bytes: &[u8]) -> Result<(), i32> {
        // SAFETY: the bytes are borrowed for as long as this takes, and only read.
        unsafe { self.alone(Operation::Write, offset_bytes, bytes.as_ptr().cast_mut(), bytes.len() as u64) }
    }

    /// A flush, a discard, or zeroes.
    ///
    /// # Errors
    /// An `errno`.
    pub fn without_data(&mut self, operation: Operation, offset_bytes: u64, len_bytes: u64) -> Result<(), i32> {
        assert!(!matches!(operation, Operation::Read | Operation::Write), "they have data");
        // SAFETY: there is no buffer.
        unsafe { self.alone(operation, offset_bytes, std::ptr::null_mut(), len_bytes) }
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        let lane = self.lane.clone();
        // Answered when the reactor has let go of the buffers; one that has ended has.
        let _ = self.reactor.ask(|reply| Order::End(lane, reply));
    }
}
