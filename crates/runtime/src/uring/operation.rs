//! Operations under way: who waits for them, and what the kernel may still touch.
//!
//! The slot owns everything that the kernel was given a pointer to until the completion has come, also when nobody
//! waits for it any more. Slots are recycled: starting an operation does not allocate once warm.

use super::device;
use super::gather::Gather;
use super::reactor::Reactor;
use crate::buf::IoBuf;
use std::future::Future;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// What an operation keeps alive, or brings back.
pub(super) enum Resources {
    None,
    /// Filled by the kernel.
    Buffer(IoBuf),
    /// Sent or written by the kernel.
    Gather(Box<Gather>),
    /// Where to connect to.
    Address(#[expect(dead_code, reason = "held for the kernel")] Box<libc::sockaddr_storage>),
    /// A receive: the buffer is the kernel's choice, and comes with the completion.
    Receive,
    /// An accept: the result is a descriptor, to be closed if nobody takes it.
    Accept,
}

/// How an operation ended.
pub(super) struct Completion {
    /// Bytes, a descriptor, or a negated error number.
    pub(super) result: i32,
    pub(super) resources: Resources,
}

impl Completion {
    /// The result as the rest of the world writes it.
    pub(super) fn value(&self) -> io::Result<usize> {
        usize::try_from(self.result).map_err(|_| io::Error::from_raw_os_error(-self.result))
    }
}

/// What is known of an operation's nature when it is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Nature {
    /// Ends by itself soon: a device's.
    Prompt,
    /// Ends when somebody else does something: a network's. Cancelled when nobody waits.
    Open,
}

/// Keeps the descriptor that an operation names: the ring looks it up only when the entry is submitted, and by then
/// a closed one could be somebody else's.
pub(super) enum Owner {
    Device(#[expect(dead_code, reason = "held for the kernel")] Rc<device::Inner>),
    Socket(Rc<OwnedFd>),
}

impl Owner {
    pub(super) fn socket(&self) -> Option<Rc<OwnedFd>> {
        match self {
            Self::Socket(socket) => Some(socket.clone()),
            Self::Device(_) => None,
        }
    }
}

enum State {
    Free,
    UnderWay { waker: Option<Waker>, resources: Resources },
    Abandoned { resources: Resources },
    Done(Completion),
}

struct Slot {
    state: State,
    nature: Nature,
    /// Until the completion has come.
    owner: Option<Owner>,
}

/// The operations of one reactor.
#[derive(Default)]
pub(super) struct Operations {
    slots: Vec<Slot>,
    free: Vec<u32>,
    under_way: usize,
}

impl Operations {
    pub(super) fn start(&mut self, owner: Owner, nature: Nature, resources: Resources) -> u32 {
        self.under_way += 1;
        let slot = Slot { state: State::UnderWay { waker: None, resources }, nature, owner: Some(owner) };
        match self.free.pop() {
            Some(index) => {
                self.slots[index as usize] = slot;
                index
            }
            None => {
                self.slots.push(slot);
                (self.slots.len() - 1) as u32
            }
        }
    }

    /// Operations whose completion has not come.
    pub(super) fn under_way(&self) -> usize {
        self.under_way
    }

    /// The completion has come. `received` is the buffer the kernel picked for a receive.
    /// Returns who waits for it; what nobody waits for is dropped by the caller.
    pub(super) fn complete(&mut self, index: u32, result: i32, received: Option<IoBuf>) -> Completed {
        let slot = &mut self.slots[index as usize];
        self.under_way -= 1;
        slot.owner = None;
        match std::mem::replace(&mut slot.state, State::Free) {
            State::UnderWay { waker, resources } => {
                let resources = received.map_or(resources, Resources::Buffer);
                slot.state = State::Done(Completion { result, resources });
                Completed::Wake(waker)
            }
            State::Abandoned { resources } => {
                self.free.push(index);
                Completed::Dropped(Completion { result, resources })
            }
            State::Free | State::Done(_) => unreachable!("one completion for each operation"),
        }
    }

    fn poll(&mut self, index: u32, cx: &Context<'_>) -> Poll<Completion> {
        let slot = &mut self.slots[index as usize];
        if let State::UnderWay { waker, .. } = &mut slot.state {
            *waker = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let State::Done(completion) = std::mem::replace(&mut slot.state, State::Free) else {
            unreachable!("an operation that is held is under way or done")
        };
        self.free.push(index);
        Poll::Ready(completion)
    }

    /// Nobody waits any more. Returns whether the kernel should be asked to cancel, or what was done already.
    fn abandon(&mut self, index: u32) -> Abandoned {
        let slot = &mut self.slots[index as usize];
        match std::mem::replace(&mut slot.state, State::Free) {
            State::UnderWay { resources, .. } => {
                slot.state = State::Abandoned { resources };
                if slot.nature == Nature::Open { Abandoned::Cancel } else { Abandoned::Leave }
            }
            State::Done(completion) => {
                self.free.push(index);
                Abandoned::Done(completion)
            }
            State::Free | State::Abandoned { .. } => unreachable!("an operation is abandoned once"),
        }
    }
}

/// Who is to know of a completion.
pub(super) enum Completed {
    Wake(Option<Waker>),
    Dropped(Completion),
}

enum Abandoned {
    Cancel,
    Leave,
    Done(Completion),
}

/// Throws away what an operation brought that nobody wanted.
pub(super) fn dispose(completion: Completion) {
    if matches!(completion.resources, Resources::Accept) && completion.result >= 0 {
        // SAFETY: the kernel has just made this descriptor for us and nobody else knows it.
        drop(unsafe { OwnedFd::from_raw_fd(completion.result) });
    }
}

/// An operation under way. Dropping it leaves buffers with the kernel until the completion comes.
pub(super) struct Operation {
    reactor: Reactor,
    index: u32,
    taken: bool,
}

impl Operation {
    pub(super) fn new(reactor: Reactor, index: u32) -> Self {
        Self { reactor, index, taken: false }
    }
}

impl Future for Operation {
    type Output = Completion;
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Completion> {
        assert!(!self.taken, "polled after its end");
        let result = self.reactor.operations().poll(self.index, cx);
        self.taken = result.is_ready();
        result
    }
}

impl Drop for Operation {
    fn drop(&mut self) {
        if self.taken {
            return;
        }
        let abandoned = self.reactor.operations().abandon(self.index);
        match abandoned {
            Abandoned::Cancel => self.reactor.cancel(self.index),
            Abandoned::Leave => {}
            Abandoned::Done(completion) => dispose(completion),
        }
    }
}
