//! The ring of one core, and the one system call per turn that submits, reaps and sleeps.

use super::gather::Gather;
use super::mailbox::Mailbox;
use super::operation::{Completed, Nature, Operation, Operations, Owner, Resources, dispose};
use super::receive::{ReceiveRings, Size};
use super::record::Recorder;
use crate::core::{self, Backend};
use crate::time::Instant;
use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{EnterFlags, IoUring, cqueue, opcode, squeue};
use std::cell::{Cell, RefCell, RefMut};
use std::collections::VecDeque;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// Entries of the submission queue: more than one turn makes as a rule; one that makes more submits in between.
const SUBMISSIONS: u32 = 1024;
/// Entries of the completion queue: one for each operation of 4,096 commands and then some. The kernel keeps what
/// does not fit.
const COMPLETIONS: u32 = 16_384;
/// Longest time in one enter while the ring is being taken down.
const SHORT_SLEEP: Duration = Duration::from_millis(20);

/// Completions of these numbers are of no operation.
const BELL: u64 = u64::MAX;
const CANCEL: u64 = u64::MAX - 1;

/// What a reactor did since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Calls of io_uring_enter.
    pub enters: u64,
    /// Calls of io_uring_enter that could sleep.
    pub sleeps: u64,
    /// Operations given to the ring.
    pub submitted: u64,
    /// Operations done at once, each by a system call of its own: a device in memory, a send, the rest of a burst.
    pub inline_operations: u64,
    /// Receives that found no buffer and were asked for again.
    pub receives_without_buffer: u64,
}

/// What the current core's reactor did since it started.
///
/// # Panics
/// Outside a task of a uring core.
pub fn counters() -> Counters {
    Reactor::current().0.counters.get()
}

/// How long an enter may stay in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    /// Not at all.
    No,
    /// Until something completes.
    Forever,
    /// Until something completes or the time has passed.
    For(Duration),
}

/// A core's ring with all that belongs to it. Cheap to clone: one reactor, counted.
#[derive(Clone)]
pub(crate) struct Reactor(Rc<Inner>);

struct Inner {
    ring: RefCell<IoUring>,
    /// Entries that found the submission queue full; they go first.
    backlog: RefCell<VecDeque<squeue::Entry>>,
    operations: RefCell<Operations>,
    receive: RefCell<ReceiveRings>,
    #[expect(clippy::vec_box, reason = "the kernel holds pointers into them: they do not move")]
    gathers: RefCell<Vec<Box<Gather>>>,
    mailbox: &'static Mailbox,
    /// Whether a read of the bell is with the kernel.
    bell_armed: Cell<bool>,
    enter_flags: EnterFlags,
    recorder: Option<Arc<Recorder>>,
    counters: Cell<Counters>,
}

impl Reactor {
    /// Makes a ring for the calling thread, which is the only one that may use it.
    ///
    /// # Errors
    /// Where io_uring is off or too old; the message says what to do.
    pub(super) fn new(mailbox: &'static Mailbox, recorder: Option<Arc<Recorder>>) -> io::Result<Self> {
        let ring = make_ring()?;
        let receive = ReceiveRings::register(&ring.submitter(), mailbox)
            .map_err(|error| explain(error, "has no provided buffer rings: Linux 5.19 or newer is needed"))?;
        let mut enter_flags = EnterFlags::GETEVENTS | EnterFlags::EXT_ARG;
        if ring.params().is_feature_no_iowait() {
            enter_flags |= EnterFlags::NO_IOWAIT; // waiting for a client is not waiting for a disk
        }
        Ok(Self(Rc::new(Inner {
            ring: RefCell::new(ring),
            backlog: RefCell::default(),
            operations: RefCell::default(),
            receive: RefCell::new(receive),
            gathers: RefCell::default(),
            mailbox,
            bell_armed: Cell::new(false),
            enter_flags,
            recorder,
            counters: Cell::default(),
        })))
    }

    /// The reactor of the current core.
    ///
    /// # Panics
    /// Outside a task of a uring core.
    pub(crate) fn current() -> Self {
        core::with_current(|core| match &core.backend {
            Backend::Uring(reactor) => reactor.clone(),
            Backend::Sim(_) => panic!("a simulated core has no ring"),
        })
    }

    pub(crate) fn now(&self) -> Instant {
        Instant(super::boot_clock_ns())
    }

    pub(super) fn mailbox(&self) -> &'static Mailbox {
        self.0.mailbox
    }

    pub(super) fn operations(&self) -> RefMut<'_, Operations> {
        self.0.operations.borrow_mut()
    }

    pub(super) fn receive_rings(&self) -> RefMut<'_, ReceiveRings> {
        self.0.receive.borrow_mut()
    }

    pub(super) fn recorder(&self) -> Option<&Arc<Recorder>> {
        self.0.recorder.as_ref()
    }

    pub(super) fn take_gather(&self) -> Box<Gather> {
        self.0.gathers.borrow_mut().pop().unwrap_or_else(|| Box::new(Gather::new()))
    }

    pub(super) fn give_gather(&self, mut gather: Box<Gather>) {
        gather.clear();
        self.0.gathers.borrow_mut().push(gather);
    }

    /// A receive found no buffer of this size.
    pub(super) fn found_no_buffer(&self, size: Size) {
        self.receive_rings().found_empty(size);
        self.count(|counters| counters.receives_without_buffer += 1);
    }

    pub(super) fn count(&self, change: impl FnOnce(&mut Counters)) {
        let mut counters = self.0.counters.get();
        change(&mut counters);
        self.0.counters.set(counters);
    }

    /// Starts an operation: it goes to the kernel with the next enter.
    ///
    /// # Safety
    /// All that `entry` points to is owned by `resources`, or outlives the ring; its descriptor is `owner`'s.
    pub(super) unsafe fn start(
        &self,
        entry: squeue::Entry,
        owner: Owner,
        nature: Nature,
        resources: Resources,
    ) -> Operation {
        let index = self.operations().start(owner, nature, resources);
        self.push(entry.user_data(u64::from(index)));
        self.count(|counters| counters.submitted += 1);
        Operation::new(self.clone(), index)
    }

    /// Asks the kernel to give an operation up; its completion comes in any case.
    ///
    /// Entries are consumed in order, so this one never hits a later operation in the same slot.
    pub(super) fn cancel(&self, index: u32) {
        self.push(opcode::AsyncCancel::new(u64::from(index)).build().user_data(CANCEL));
    }

    fn push(&self, entry: squeue::Entry) {
        let mut ring = self.0.ring.borrow_mut();
        let mut backlog = self.0.backlog.borrow_mut();
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
        let mut ring = self.0.ring.borrow_mut();
        let submission = ring.submission();
        if !submission.is_empty() || submission.taskrun() || submission.cq_overflow() {
            return true;
        }
        drop(submission);
        !ring.completion().is_empty()
    }

    /// Whether the kernel has completions for us, seen without a system call.
    pub(super) fn has_completions(&self) -> bool {
        let mut ring = self.0.ring.borrow_mut();
        ring.submission().taskrun() || !ring.completion().is_empty()
    }

    /// Submits all, sleeps as `wait` says, reaps all. Returns how many operations ended.
    pub(super) fn enter(&self, wait: Wait) -> usize {
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
        self.count(|counters| {
            counters.enters += 1;
            counters.sleeps += u64::from(want);
        });
        let result = {
            let mut ring = self.0.ring.borrow_mut();
            let queued = ring.submission().len() as u32;
            // SAFETY: the flags say that the argument is an extended one, and it lives through the call.
            unsafe { ring.submitter().enter(queued, want, self.0.enter_flags.bits(), Some(&arguments)) }
        };
        if let Err(error) = result {
            match error.raw_os_error() {
                // A signal; the time has passed; completions to be reaped first; no memory just now: go on, try again.
                Some(libc::EINTR | libc::ETIME | libc::EBUSY | libc::EAGAIN) => {}
                _ => panic!("io_uring_enter: {error}"),
            }
        }
        self.reap()
    }

    fn arm_bell(&self) {
        if self.0.bell_armed.replace(true) {
            return;
        }
        let mailbox = self.0.mailbox;
        let entry = opcode::Read::new(Fd(mailbox.bell()), mailbox.bell_count(), 8).build();
        self.push(entry.user_data(BELL));
    }

    fn move_backlog(&self) {
        let mut ring = self.0.ring.borrow_mut();
        let mut backlog = self.0.backlog.borrow_mut();
        let mut submission = ring.submission();
        while let Some(entry) = backlog.front() {
            // SAFETY: as in `push`.
            if unsafe { submission.push(entry) }.is_err() {
                break;
            }
            backlog.pop_front();
        }
    }

    fn reap(&self) -> usize {
        let mut count = 0;
        loop {
            let Some(entry) = self.0.ring.borrow_mut().completion().next() else { return count };
            match entry.user_data() {
                BELL => self.0.bell_armed.set(false),
                CANCEL => {}
                index => {
                    count += 1;
                    self.complete(index as u32, entry.result(), entry.flags());
                }
            }
        }
    }

    fn complete(&self, index: u32, result: i32, flags: u32) {
        let received = cqueue::buffer_select(flags).and_then(|id| {
            let len = usize::try_from(result).unwrap_or(0);
            self.receive_rings().take(id, len)
        });
        let completed = self.operations().complete(index, result, received);
        match completed {
            Completed::Wake(Some(waker)) => waker.wake(),
            Completed::Wake(None) => {}
            Completed::Dropped(completion) => dispose(completion),
        }
    }

    /// Waits for what the kernel still holds, up to `patience`. Returns whether nothing is left.
    pub(super) fn drain(&self, patience: Duration) -> bool {
        let end = self.now() + patience;
        if self.0.bell_armed.get() {
            self.push(opcode::AsyncCancel::new(BELL).build().user_data(CANCEL));
        }
        while self.operations().under_way() > 0 {
            if self.now() >= end {
                return false;
            }
            self.enter(Wait::For(SHORT_SLEEP));
        }
        true
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let operations = self.operations.take();
        if operations.under_way() > 0 {
            // A device that hangs: the kernel may write into these buffers for as long as the machine runs.
            std::mem::forget(operations);
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
