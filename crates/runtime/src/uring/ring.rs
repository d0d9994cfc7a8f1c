//! The kernel by io_uring: one system call submits all, reaps all, sleeps.

use super::mailbox::Mailbox;
use super::reactor::Wait;
use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{EnterFlags, IoUring, Submitter, opcode, squeue};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;

/// Entries of the submission queue: more than one turn makes as a rule; one that makes more submits in between.
const SUBMISSIONS: u32 = 1024;
/// Entries of the completion queue: one for each operation of 4,096 commands and then some. The kernel keeps what
/// does not fit.
const COMPLETIONS: u32 = 16_384;

/// Completions of these numbers are of no operation.
const BELL: u64 = u64::MAX;
const CANCEL: u64 = u64::MAX - 1;

/// The ring of one core.
pub(super) struct Ring {
    ring: RefCell<IoUring>,
    /// Entries that found the submission queue full; they go first.
    backlog: RefCell<VecDeque<squeue::Entry>>,
    mailbox: &'static Mailbox,
    /// Whether a read of the bell is with the kernel.
    bell_armed: Cell<bool>,
    enter_flags: EnterFlags,
}

/// How an operation ended, as the ring says it.
pub(super) struct Reaped {
    pub(super) index: u32,
    pub(super) result: i32,
    pub(super) flags: u32,
}

impl Ring {
    /// Makes a ring for the calling thread, which is the only one that may use it. `register` registers what it is to have.
    ///
    /// # Errors
    /// Where io_uring is off or too old; the message says what to do.
    pub(super) fn new<T>(
        mailbox: &'static Mailbox,
        register: impl FnOnce(&Submitter<'_>) -> io::Result<T>,
    ) -> io::Result<(Self, T)> {
        let ring = make_ring()?;
        let registered = register(&ring.submitter())
            .map_err(|error| explain(error, "has no provided buffer rings: Linux 5.19 or newer is needed"))?;
        let mut enter_flags = EnterFlags::GETEVENTS | EnterFlags::EXT_ARG;
        if ring.params().is_feature_no_iowait() {
            enter_flags |= EnterFlags::NO_IOWAIT; // waiting for a client is not waiting for a disk
        }
        let this = Self {
            ring: RefCell::new(ring),
            backlog: RefCell::default(),
            mailbox,
            bell_armed: Cell::new(false),
            enter_flags,
        };
        Ok((this, registered))
    }

    /// Gives the kernel an operation with the next enter.
    ///
    /// # Safety
    /// What the entry points to lives until its completion has come.
    pub(super) unsafe fn start(&self, entry: squeue::Entry, index: u32) {
        self.push(entry.user_data(u64::from(index)));
    }

    /// Asks the kernel to give an operation up; its completion comes in any case.
    ///
    /// Entries are consumed in order, so this one never hits a later operation in the same slot.
    pub(super) fn cancel(&self, index: u32) {
        self.push(opcode::AsyncCancel::new(u64::from(index)).build().user_data(CANCEL));
    }

    fn push(&self, entry: squeue::Entry) {
        let mut ring = self.ring.borrow_mut();
        let mut backlog = self.backlog.borrow_mut();
        if backlog.is_empty() {
            // SAFETY: `start` vouches for what the entry points to; cancels and the bell point to nothing that ends.
            if unsafe { ring.submission().push(&entry) }.is_ok() {
                return;
            }
            // Full. What the kernel refuses now stays queued, so the result is of no interest here.
            let _ = ring.submit();
            // SAFETY: as above.
            if unsafe { ring.submission().push(&entry) }.is_ok() {
                return;
            }
        }
        backlog.push_back(entry);
    }

    /// Whether an enter would have anything to submit or to reap.
    pub(super) fn needs_enter(&self) -> bool {
        let mut ring = self.ring.borrow_mut();
        let submission = ring.submission();
        if !submission.is_empty() || submission.taskrun() || submission.cq_overflow() {
            return true;
        }
        drop(submission);
        !ring.completion().is_empty()
    }

    /// Submits all, and sleeps as `wait` says.
    pub(super) fn enter(&self, wait: Wait) {
        self.arm_bell();
        self.move_backlog();
        let (want, timeout) = match wait {
            Wait::No => (0, None),
            Wait::Forever => (1, None),
            Wait::For(time) => (1, Some(Timespec::from(time))),
        };
        let mut arguments = SubmitArgs::new();
        if let Some(timeout) = &timeout {
            arguments = arguments.timespec(timeout);
        }
        let result = {
            let mut ring = self.ring.borrow_mut();
            let queued = ring.submission().len() as u32;
            // SAFETY: the flags say that the argument is an extended one, and it lives through the call.
            unsafe { ring.submitter().enter(queued, want, self.enter_flags.bits(), Some(&arguments)) }
        };
        if let Err(error) = result {
            match error.raw_os_error() {
                // A signal; the time has passed; completions to be reaped first; no memory just now: go on, try again.
                Some(libc::EINTR | libc::ETIME | libc::EBUSY | libc::EAGAIN) => {}
                _ => panic!("io_uring_enter: {error}"),
            }
        }
    }

    /// The next operation that has ended.
    pub(super) fn reap(&self) -> Option<Reaped> {
        loop {
            let entry = self.ring.borrow_mut().completion().next()?;
            match entry.user_data() {
                BELL => self.bell_armed.set(false),
                CANCEL => {}
                index => return Some(Reaped { index: index as u32, result: entry.result(), flags: entry.flags() }),
            }
        }
    }

    /// The read of the bell ends, too.
    pub(super) fn let_go_of_bell(&self) {
        if self.bell_armed.get() {
            self.push(opcode::AsyncCancel::new(BELL).build().user_data(CANCEL));
        }
    }

    fn arm_bell(&self) {
        if self.bell_armed.replace(true) {
            return;
        }
        let entry = opcode::Read::new(Fd(self.mailbox.bell()), self.mailbox.bell_count(), 8).build();
        self.push(entry.user_data(BELL));
    }

    fn move_backlog(&self) {
        let mut ring = self.ring.borrow_mut();
        let mut backlog = self.backlog.borrow_mut();
        let mut submission = ring.submission();
        while let Some(entry) = backlog.front() {
            // SAFETY: as in `push`.
            if unsafe { submission.push(entry) }.is_err() {
                break;
            }
            backlog.pop_front();
        }
    }
}

/// A ring with the best set of features that the kernel has.
fn make_ring() -> io::Result<IoUring> {
    let base = || {
        let mut builder = IoUring::builder();
        builder.setup_clamp().setup_cqsize(COMPLETIONS).setup_submit_all();
        builder
    };
    // Linux 6.1: completions are processed when this thread asks, and it can see that there are some.
    let mut best = base();
    best.setup_single_issuer().setup_defer_taskrun().setup_taskrun_flag();
    let mut fair = base();
    fair.setup_coop_taskrun().setup_taskrun_flag();
    best.build(SUBMISSIONS)
        .or_else(|error| match error.raw_os_error() {
            Some(libc::EINVAL) => fair.build(SUBMISSIONS),
            _ => Err(error),
        })
        .map_err(|error| {
            let advice = match error.raw_os_error() {
                Some(libc::ENOSYS) => "is not in this kernel: Linux 5.19 or newer with CONFIG_IO_URING is needed",
                Some(libc::EPERM | libc::EACCES) => {
                    "is switched off: set the sysctl kernel.io_uring_disabled to 0 \
                     (in a container also allow io_uring_setup in its seccomp profile)"
                }
                Some(libc::ENOMEM) => "may not lock enough memory: raise the limit (ulimit -l)",
                _ => "can not be set up: Linux 5.19 or newer is needed",
            };
            explain(error, advice)
        })
}

fn explain(error: io::Error, advice: &str) -> io::Error {
    io::Error::new(error.kind(), format!("io_uring {advice} ({error})"))
}
