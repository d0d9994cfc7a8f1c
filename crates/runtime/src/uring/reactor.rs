//! What one core has under way with the kernel, by a ring or by a poller, and the one place where it sleeps.

use super::call::Call;
use super::gather::Gather;
use super::mailbox::Mailbox;
use super::operation::{Completed, Nature, Operation, Operations, Owner, Resources, dispose};
use super::poller::Poller;
use super::receive::{ReceiveRings, Size};
use super::record::Recorder;
use super::ring::Ring;
use crate::buf::IoBuf;
use crate::core::{self, Backend};
use crate::time::Instant;
use io_uring::cqueue;
use std::cell::{Cell, RefCell, RefMut};
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// Longest time in one enter while the ring is being taken down.
const SHORT_SLEEP: Duration = Duration::from_millis(20);

/// What a reactor did since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Calls of io_uring_enter, or of epoll_pwait2.
    pub enters: u64,
    /// Those that could sleep.
    pub sleeps: u64,
    /// Operations given to the ring.
    pub submitted: u64,
    /// Operations done at once, each by a system call of its own: a device in memory, a send, the rest of a burst.
    pub inline_operations: u64,
    /// Receives that found no buffer and were asked for again.
    pub receives_without_buffer: u64,
    /// Syncs of devices that have ended well; a device without a volatile cache is asked for none.
    pub syncs: u64,
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

/// How a core asks the kernel.
#[expect(clippy::large_enum_variant, reason = "there is one for each core")]
enum Kernel {
    /// For this thread alone.
    Ring(Ring),
    /// From any thread, of one at a time.
    Poller(RefCell<Poller>),
}

/// What a core has with the kernel. Cheap to clone: one reactor, counted.
#[derive(Clone)]
pub(crate) struct Reactor(Rc<Inner>);

struct Inner {
    kernel: Kernel,
    operations: RefCell<Operations>,
    receive: RefCell<ReceiveRings>,
    #[expect(clippy::vec_box, reason = "the kernel holds pointers into them: they do not move")]
    gathers: RefCell<Vec<Box<Gather>>>,
    mailbox: &'static Mailbox,
    recorder: Option<Arc<Recorder>>,
    counters: Cell<Counters>,
}

impl Reactor {
    /// By a ring, for the calling thread, which is the only one that may use it.
    ///
    /// # Errors
    /// Where io_uring is off or too old; the message says what to do.
    pub(super) fn by_ring(mailbox: &'static Mailbox, recorder: Option<Arc<Recorder>>) -> io::Result<Self> {
        let (ring, receive) = Ring::new(mailbox, |submitter| ReceiveRings::register(submitter, mailbox))?;
        Ok(Self::with(Kernel::Ring(ring), receive, mailbox, recorder))
    }

    /// By a poller, for connections alone; it may go from thread to thread.
    ///
    /// # Errors
    /// Of the system, which has no descriptor left.
    pub(super) fn by_poller(mailbox: &'static Mailbox) -> io::Result<Self> {
        let poller = Kernel::Poller(RefCell::new(Poller::new(mailbox)?));
        Ok(Self::with(poller, ReceiveRings::without_kernel(mailbox), mailbox, None))
    }

    fn with(kernel: Kernel, receive: ReceiveRings, mailbox: &'static Mailbox, recorder: Option<Arc<Recorder>>) -> Self {
        Self(Rc::new(Inner {
            kernel,
            operations: RefCell::default(),
            receive: RefCell::new(receive),
            gathers: RefCell::default(),
            mailbox,
            recorder,
            counters: Cell::default(),
        }))
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

    /// Whether devices can be opened: a poller is for connections alone.
    pub(super) fn has_devices(&self) -> bool {
        matches!(self.0.kernel, Kernel::Ring(_))
    }

    /// Starts an operation: it goes to the kernel with the next enter.
    ///
    /// # Safety
    /// All that `call` points to is owned by `resources`, or outlives the reactor; its descriptor is `owner`'s.
    pub(super) unsafe fn start(&self, call: Call, owner: Owner, nature: Nature, resources: Resources) -> Operation {
        let index = match &self.0.kernel {
            Kernel::Ring(ring) => {
                let index = self.operations().start(owner, nature, resources);
                // SAFETY: vouched for by the caller; what it points to is owned until the completion has come.
                unsafe { ring.start(call.entry(), index) };
                index
            }
            Kernel::Poller(poller) => {
                let socket = owner.socket().expect("it opens no devices");
                let index = self.operations().start(owner, nature, resources);
                poller.borrow_mut().start(call, index, &socket);
                index
            }
        };
        self.count(|counters| counters.submitted += 1);
        Operation::new(self.clone(), index)
    }

    /// Asks the kernel to give an operation up; its completion comes in any case.
    ///
    /// Entries of a ring are consumed in order, so this one never hits a later operation in the same slot.
    pub(super) fn cancel(&self, index: u32) {
        match &self.0.kernel {
            Kernel::Ring(ring) => ring.cancel(index),
            Kernel::Poller(poller) => {
                poller.borrow_mut().cancel(index);
                self.finish(index, -libc::ECANCELED, None);
            }
        }
    }

    /// Whether an enter would have anything to submit or to reap.
    pub(super) fn needs_enter(&self) -> bool {
        match &self.0.kernel {
            Kernel::Ring(ring) => ring.needs_enter(),
            Kernel::Poller(_) => true, // nothing else tells
        }
    }

    /// Whether something is to be sent, or has ended, that no event will tell of any more.
    pub(super) fn has_to_act(&self) -> bool {
        match &self.0.kernel {
            Kernel::Ring(_) => false,
            Kernel::Poller(poller) => poller.borrow().has_to_act(),
        }
    }

    /// Submits all, sleeps as `wait` says, reaps all. Returns how many operations ended.
    pub(super) fn enter(&self, wait: Wait) -> usize {
        self.count(|counters| {
            counters.enters += 1;
            counters.sleeps += u64::from(wait != Wait::No);
        });
        match &self.0.kernel {
            Kernel::Ring(ring) => {
                ring.enter(wait);
                let mut count = 0;
                while let Some(reaped) = ring.reap() {
                    count += 1;
                    let received = cqueue::buffer_select(reaped.flags).and_then(|id| {
                        let len = usize::try_from(reaped.result).unwrap_or(0);
                        self.receive_rings().take(id, len)
                    });
                    self.finish(reaped.index, reaped.result, received);
                }
                count
            }
            Kernel::Poller(poller) => {
                let mut ended = poller.borrow_mut().enter(wait, &self.0.receive);
                let count = ended.len();
                for ended in ended.drain(..) {
                    self.finish(ended.index, ended.result, ended.received);
                }
                poller.borrow_mut().give_back(ended);
                count
            }
        }
    }

    fn finish(&self, index: u32, result: i32, received: Option<IoBuf>) {
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
        if let Kernel::Ring(ring) = &self.0.kernel {
            ring.let_go_of_bell();
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
