//! Plain calls between nodes, for whoever stands above: a question, and one answer on the same connection.
//!
//! Calls of one connection are handed over in the order in which they were made, each before the next is looked at; an answer
//! comes behind all that its node had called on the connection before. A call whose connection ends has no answer: whether it
//! was done nobody knows, unless the connection was never made. Nothing is sent again.

use super::core::CoreGroups;
use super::link::{Kept, Link};
use crate::wire::{CallMessage, Envelope, MAX_CALL_BYTES, MAX_CALL_HEAD_BYTES, Parcel, RequestId, Service};
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use runtime::channel::WaitList;
use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::Duration;
use types::NodeId;

/// Calls of one connection, in one direction, that have no answer yet, and the bytes that they carry: who asks for more waits.
pub const CALLS_MAX: usize = 1024;
/// See [`CALLS_MAX`].
pub const CALL_BYTES_MAX: usize = 8 << 20;
/// What finds no room on its connection is offered again after this.
const ROOM_WAIT: Duration = Duration::from_millis(5);

/// What answers the calls of a service. It is called in the order of the calls; what it returns is run to its end, whatever
/// becomes of the connection.
pub type Handler = Rc<dyn Fn(&Peer, Parcel) -> Pin<Box<dyn Future<Output = Parcel>>>>;

/// Why a call has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// Nobody knows where the node is reached: it was not done.
    #[error("node {0} is not known")]
    Unknown(NodeId),
    /// There is no connection: it has not left, and was not done.
    #[error("node {0} cannot be reached")]
    Unreached(NodeId),
    /// The connection ended: it may be done all the same.
    #[error("the connection to node {0} ended")]
    Ended(NodeId),
    /// It was not done.
    #[error("node {node} refuses: {reason}")]
    Refused {
        /// Who.
        node: NodeId,
        /// Why.
        reason: String,
    },
}

/// Calls in one direction of a connection: how many, of how many bytes.
#[derive(Debug, Default)]
pub(super) struct Outstanding(Cell<(usize, usize)>);

impl Outstanding {
    pub(super) fn is_any(&self) -> bool {
        self.0.get().0 > 0
    }

    fn has_room(&self, more: usize) -> bool {
        let (calls, bytes) = self.0.get();
        calls < CALLS_MAX && (calls == 0 || bytes + more <= CALL_BYTES_MAX)
    }

    fn begin(&self, bytes: usize) {
        let (calls, before) = self.0.get();
        self.0.set((calls + 1, before + bytes));
    }

    fn end(&self, bytes: usize) {
        let (calls, before) = self.0.get();
        self.0.set((calls - 1, before - bytes));
    }
}

/// One that waits, or that was answered and not looked at.
struct Slot {
    link: Rc<Link>,
    /// What it carries; nothing any more, once it was answered.
    bytes: Option<usize>,
    answer: Option<Result<Parcel, CallError>>,
    waker: Option<Waker>,
    /// Nobody waits for its answer.
    is_dropped: bool,
}

impl Slot {
    /// Returns whether nobody waits for it.
    fn end(&mut self, answer: Result<Parcel, CallError>) -> bool {
        if let Some(bytes) = self.bytes.take() {
            self.link.calls_out.end(bytes);
            self.answer = Some(answer);
            if let Some(waker) = self.waker.take() {
                waker.wake();
            }
        }
        self.is_dropped
    }
}

/// The calls of one core.
pub(super) struct PlainCalls {
    handlers: RefCell<Vec<(Service, Handler)>>,
    slots: RefCell<HashMap<u64, Slot, FixedState>>,
    last: Cell<u64>,
    /// Room may have come on a connection.
    room: WaitList,
}

impl Default for PlainCalls {
    fn default() -> Self {
        Self {
            handlers: RefCell::default(),
            slots: RefCell::new(HashMap::with_hasher(FixedState::default())),
            last: Cell::new(0),
            room: WaitList::default(),
        }
    }
}

impl PlainCalls {
    /// Something of it has come over a connection.
    pub(super) fn heard(core: &Rc<CoreGroups>, link: &Rc<Link>, request: RequestId, message: CallMessage) {
        match message {
            CallMessage::Call(service, parcel) => serve(core, link, request, service, parcel),
            CallMessage::Reply(reply) => {
                let calls = &core.plain_calls;
                let mut slots = calls.slots.borrow_mut();
                if let Some(slot) = slots.get_mut(&request.0).filter(|slot| Rc::ptr_eq(&slot.link, link)) {
                    let reply = reply.map_err(|reason| CallError::Refused { node: link.node, reason });
                    if slot.end(reply) {
                        slots.remove(&request.0);
                    }
                }
                drop(slots);
                calls.room.wake_all();
            }
        }
    }

    /// Nothing more comes over a connection.
    pub(super) fn lost(&self, link: &Rc<Link>) {
        let why = if link.is_made() { CallError::Ended } else { CallError::Unreached };
        let mut slots = self.slots.borrow_mut();
        let mut over: Vec<_> = slots.iter_mut().filter(|(_, slot)| Rc::ptr_eq(&slot.link, link)).collect();
        // The map's order is nobody's.
        over.sort_unstable_by_key(|(number, _)| **number);
        for (_, slot) in over {
            slot.end(Err(why(link.node)));
        }
        slots.retain(|_, slot| !slot.is_dropped || slot.bytes.is_some());
        drop(slots);
        self.room.wake_all();
    }
}

/// A call has come.
fn serve(core: &Rc<CoreGroups>, link: &Rc<Link>, request: RequestId, service: Service, parcel: Parcel) {
    let handler = core.plain_calls.handlers.borrow().iter().find(|(of, _)| *of == service).map(|(_, it)| it.clone());
    let bytes = parcel.bytes.len();
    let refused = match &handler {
        None => Some(format!("this node answers no calls of service {}", service.0)),
        // Who keeps to the bounds never sees this.
        Some(_) if !link.calls_in.has_room(bytes) => Some("it has too many calls of this connection".to_owned()),
        Some(_) => None,
    };
    let link = link.clone();
    let handler = match (refused, handler) {
        (None, Some(handler)) => handler,
        (reason, _) => {
            let reason = CallMessage::Reply(Err(reason.unwrap_or_default()));
            runtime::spawn(async move { respond(&link, request, &reason).await });
            return;
        }
    };
    link.calls_in.begin(bytes);
    // At once: so calls are begun in their order.
    let answer = handler(&Peer { calls_of: core.clone(), link: link.clone() }, parcel);
    runtime::spawn(async move {
        let answer = answer.await;
        assert!(may_be_sent(&answer), "an answer that is too long");
        respond(&link, request, &CallMessage::Reply(Ok(answer))).await;
        link.calls_in.end(bytes);
    });
}

fn may_be_sent(parcel: &Parcel) -> bool {
    parcel.head.len() <= MAX_CALL_HEAD_BYTES && parcel.bytes.len() <= MAX_CALL_BYTES
}

/// No answer is lost as long as the connection lives.
async fn respond(link: &Rc<Link>, request: RequestId, message: &CallMessage) {
    let envelope = Envelope { request, ..Envelope::default() };
    while !link.push_call(&envelope, message) {
        if link.is_closed() {
            return;
        }
        runtime::sleep(ROOM_WAIT).await;
    }
}

impl CoreGroups {
    /// Calls of a service that come to this core are answered by `handler`, in the place of whoever did before.
    pub fn answer_calls(&self, service: Service, handler: Handler) {
        let mut handlers = self.plain_calls.handlers.borrow_mut();
        handlers.retain(|(known, _)| *known != service);
        handlers.push((service, handler));
    }

    /// The node that it is of.
    pub fn node(&self) -> NodeId {
        self.shared.node
    }

    /// The connection from this core to a core of another node, made if there is none; nobody if its address is not known.
    pub fn peer(self: &Rc<Self>, node: NodeId, core: u16) -> Option<Peer> {
        let link = self.link(node, core)?;
        Some(Peer { calls_of: self.clone(), link })
    }

    /// Calls the first core of another node.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn call(self: &Rc<Self>, node: NodeId, service: Service, parcel: Parcel) -> Result<Parcel, CallError> {
        let peer = self.peer(node, 0).ok_or(CallError::Unknown(node))?;
        peer.call(service, parcel).await
    }
}

/// A connection to a core of another node, for calls. It does not [keep](Self::keep) the connection.
#[derive(Clone)]
pub struct Peer {
    calls_of: Rc<CoreGroups>,
    link: Rc<Link>,
}

impl PartialEq for Peer {
    /// Whether it is the same connection.
    fn eq(&self, other: &Self) -> bool {
        Rc::ptr_eq(&self.link, &other.link)
    }
}

impl Peer {
    /// Whose it is.
    pub fn node(&self) -> NodeId {
        self.link.node
    }

    /// Which core of that node's.
    pub fn core(&self) -> u16 {
        self.link.core
    }

    /// Whether the connection has ended.
    pub fn is_over(&self) -> bool {
        self.link.is_closed()
    }

    /// Keeps the connection for what ends with it.
    pub fn keep(&self) -> Kept {
        self.link.keep()
    }

    /// Resolves when it has.
    pub async fn over(&self) {
        self.link.over().await;
    }

    /// Makes a call: it leaves behind all calls and answers that this core gave to the connection before. `None`: there is no
    /// room for it, or the connection has ended.
    ///
    /// # Panics
    /// If the parcel is longer than one may be.
    pub fn try_call(&self, service: Service, parcel: &Parcel) -> Option<Called> {
        assert!(may_be_sent(parcel), "a call that is too long");
        let calls = &self.calls_of.plain_calls;
        let bytes = parcel.bytes.len();
        if !self.link.calls_out.has_room(bytes) || self.link.is_closed() {
            return None;
        }
        calls.last.set(calls.last.get() + 1);
        let number = calls.last.get();
        let envelope = Envelope { request: RequestId(number), ..Envelope::default() };
        if !self.link.push_call(&envelope, &CallMessage::Call(service, parcel.clone())) {
            return None;
        }
        self.link.calls_out.begin(bytes);
        let link = self.link.clone();
        let slot = Slot { link, bytes: Some(bytes), answer: None, waker: None, is_dropped: false };
        calls.slots.borrow_mut().insert(number, slot);
        Some(Called { peer: self.clone(), number })
    }

    /// Makes a call when there is room for it, and waits for its answer.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn call(&self, service: Service, parcel: Parcel) -> Result<Parcel, CallError> {
        loop {
            if let Some(called) = self.try_call(service, &parcel) {
                return called.answer().await;
            }
            if self.is_over() {
                return Err(CallError::Unreached(self.node()));
            }
            self.room().await;
        }
    }

    /// Resolves after a while, or when a call on this core has ended: there may be room.
    pub async fn room(&self) {
        let calls = &self.calls_of.plain_calls;
        let mut seen = false;
        let once = calls.room.until(|| std::mem::replace(&mut seen, true).then_some(()));
        let _ = runtime::timeout(ROOM_WAIT, once).await;
    }
}

/// A call that was made. Dropped, its answer is for nobody.
pub struct Called {
    peer: Peer,
    number: u64,
}

impl Called {
    /// What it is answered.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn answer(self) -> Result<Parcel, CallError> {
        poll_fn(|cx| {
            let mut slots = self.peer.calls_of.plain_calls.slots.borrow_mut();
            let slot = slots.get_mut(&self.number).expect("it is there as long as the call");
            match slot.answer.take() {
                Some(answer) => Poll::Ready(answer),
                None => {
                    slot.waker = Some(cx.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await
    }
}

impl Drop for Called {
    fn drop(&mut self) {
        let mut slots = self.peer.calls_of.plain_calls.slots.borrow_mut();
        match slots.get_mut(&self.number) {
            // It counts until it is answered.
            Some(slot) if slot.bytes.is_some() => slot.is_dropped = true,
            _ => drop(slots.remove(&self.number)),
        }
    }
}
