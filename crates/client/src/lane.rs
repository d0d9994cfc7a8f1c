//! What one thread of a program and the reactor say to each other: requests one way, what became of them the other.
//!
//! ```text
//!   program                                                     reactor
//!   submit: requests ──────────────────────────────────────────► pump: takes all there are, a task for each
//!           wakes it only if it rests                              │
//!   poll:   completions ◄──────────────────────────────────────────┘ at the end of its turn: wakes the program only if it waits
//! ```
//!
//! No lock and no allocation per request. A system call is made only for a side that sleeps.

use crate::ring::Ring;
use runtime::futex;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};
use std::task::Waker;
use std::time::Duration;

/// What is asked of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Reads into the buffer.
    Read,
    /// Writes the buffer; durable when it is completed.
    Write,
    /// All writes that were completed before are durable: they were when they were completed.
    Flush,
    /// The range holds nothing of value any more; its whole blocks read as zeroes.
    Discard,
    /// The range reads as zeroes.
    WriteZeroes,
}

/// A request of a program.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// What.
    pub operation: Operation,
    /// Byte offset in the volume.
    pub offset_bytes: u64,
    /// Length in bytes.
    pub len_bytes: u64,
    /// Of a read or write: `len_bytes` bytes of memory that stay valid until it is completed.
    pub buffer: *mut u8,
    /// Comes back with the completion.
    pub tag: u64,
}

// SAFETY: the pointer is only carried; whoever submits vouches for what it points to.
unsafe impl Send for Request {}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// Of the request.
    pub tag: u64,
    /// 0, or a negative `errno`.
    pub result: i32,
}

/// The program waits for nothing, on the word itself, or by its descriptor.
const NOT: u32 = 0;
const ON_WORD: u32 = 1;
const BY_DESCRIPTOR: u32 = 2;

/// See the module.
pub(crate) struct Lane {
    requests: Ring<Request>,
    completions: Ring<Completion>,
    /// The pump has found nothing and wants to be woken.
    rests: AtomicBool,
    pump: OnceLock<Waker>,
    /// How the program waits.
    waits: AtomicU32,
    bell: OwnedFd,
    /// The program has gone, and with it its buffers. Written by the reactor alone, once it touches none of them any more.
    is_over: AtomicBool,
}

impl Lane {
    /// For `depth` requests at a time.
    pub(crate) fn new(depth: u32) -> io::Result<Self> {
        // SAFETY: no pointers.
        let bell = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if bell < 0 {
            return Err(io::Error::last_os_error());
        }
        let capacity = depth.next_power_of_two();
        Ok(Self {
            requests: Ring::new(capacity),
            completions: Ring::new(capacity),
            rests: AtomicBool::new(false),
            pump: OnceLock::new(),
            waits: AtomicU32::new(NOT),
            // SAFETY: it was just made, and is nobody else's.
            bell: unsafe { OwnedFd::from_raw_fd(bell) },
            is_over: AtomicBool::new(false),
        })
    }

    // ---- the program's side ----------------------------------------------------------------------------------------

    /// Hands a request over; [`kick`](Self::kick) has it looked at.
    ///
    /// # Safety
    /// One thread at a time is the program.
    pub(crate) unsafe fn submit(&self, request: Request) -> bool {
        // SAFETY: as asked of the caller.
        unsafe { self.requests.put(request) }
    }

    /// What was submitted is looked at soon.
    pub(crate) fn kick(&self) {
        fence(Ordering::SeqCst);
        // Mostly it does not rest, and the line stays where it is.
        if self.rests.load(Ordering::Relaxed)
            && self.rests.swap(false, Ordering::SeqCst)
            && let Some(pump) = self.pump.get()
        {
            pump.wake_by_ref();
        }
    }

    /// Takes a completion, if there is one.
    ///
    /// # Safety
    /// One thread at a time is the program.
    pub(crate) unsafe fn poll(&self) -> Option<Completion> {
        // SAFETY: as asked of the caller.
        unsafe { self.completions.take() }
    }

    /// Whether there is a completion.
    pub(crate) fn has_completion(&self) -> bool {
        !self.completions.is_empty()
    }

    /// Sleeps until there is a completion, or the time has passed.
    pub(crate) fn sleep(&self, timeout: Option<Duration>) {
        self.waits.store(ON_WORD, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        if self.completions.is_empty() {
            futex::sleep_on(&self.waits, ON_WORD, timeout);
        }
        self.waits.store(NOT, Ordering::SeqCst);
    }

    /// Has the descriptor become readable with the next completion; `false`: there is one already.
    pub(crate) fn arm(&self) -> bool {
        let mut count = [0u8; 8];
        // SAFETY: pointer and length are of `count`. It may have nothing: then it is as it is to be.
        unsafe { libc::read(self.bell.as_raw_fd(), count.as_mut_ptr().cast(), count.len()) };
        self.waits.store(BY_DESCRIPTOR, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        if self.completions.is_empty() {
            return true;
        }
        self.waits.store(NOT, Ordering::SeqCst);
        false
    }

    pub(crate) fn descriptor(&self) -> i32 {
        self.bell.as_raw_fd()
    }

    // ---- the reactor's side ----------------------------------------------------------------------------------------

    /// Takes the next request; `None`: there is none, and the next kick wakes.
    ///
    /// # Safety
    /// Whoever has the core alone calls it.
    pub(crate) unsafe fn next(&self, pump: &Waker) -> Option<Request> {
        // SAFETY: as asked of the caller.
        if let Some(request) = unsafe { self.requests.take() } {
            return Some(request);
        }
        // A task's waker is a number that stays the same.
        self.pump.get_or_init(|| pump.clone());
        self.rests.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        // SAFETY: as asked of the caller.
        let request = unsafe { self.requests.take() }?;
        self.rests.store(false, Ordering::SeqCst);
        Some(request)
    }

    /// Hands a completion over; [`tell`](Self::tell) wakes a program that waits.
    ///
    /// # Safety
    /// Whoever has the core alone calls it.
    pub(crate) unsafe fn complete(&self, completion: Completion) {
        // SAFETY: as asked of the caller.
        let has_room = unsafe { self.completions.put(completion) };
        assert!(has_room, "no more requests are taken than completions have room");
    }

    /// Wakes the program, if it waits.
    pub(crate) fn tell(&self) {
        fence(Ordering::SeqCst);
        if self.waits.load(Ordering::Relaxed) == NOT {
            return;
        }
        match self.waits.swap(NOT, Ordering::SeqCst) {
            ON_WORD => futex::wake(&self.waits, 1),
            BY_DESCRIPTOR => {
                let one = 1u64.to_ne_bytes();
                // SAFETY: pointer and length are of `one`. A full counter is readable already.
                unsafe { libc::write(self.bell.as_raw_fd(), one.as_ptr().cast(), one.len()) };
            }
            _ => {}
        }
    }

    /// No buffer of the program is touched from now on.
    pub(crate) fn end(&self) {
        self.is_over.store(true, Ordering::SeqCst);
        if let Some(pump) = self.pump.get() {
            pump.wake_by_ref();
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }
}
