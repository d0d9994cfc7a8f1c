//! Waiting for each other: inside a core without any lock, between cores by bounded queues.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Poll, Waker};

/// The other side of a channel is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the other side of the channel is gone")]
pub struct Closed;

/// The channel is full: try again, or wait with `send`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full<T>(pub T);

/// Tasks of one core that wait for something to change. It keeps its room: no allocation once warm.
#[derive(Default)]
pub struct WaitList {
    waiting: RefCell<Vec<Waker>>,
    /// How often they were woken.
    woken: Cell<u64>,
}

impl WaitList {
    /// Wakes all that wait now.
    pub fn wake_all(&self) {
        self.woken.set(self.woken.get() + 1);
        let mut waiting = self.waiting.take();
        for waker in waiting.drain(..) {
            waker.wake();
        }
        let mut list = self.waiting.borrow_mut();
        if list.is_empty() {
            *list = waiting;
        }
    }

    /// How many wait.
    pub fn count(&self) -> usize {
        self.waiting.borrow().len()
    }

    /// Resolves when `ready` returns something; asked at once and after each [`wake_all`](Self::wake_all).
    pub async fn until<T>(&self, mut ready: impl FnMut() -> Option<T>) -> T {
        let mut place = Waiting { list: self, entered: None };
        poll_fn(|cx| match ready() {
            Some(value) => Poll::Ready(value),
            None => {
                place.enter(cx.waker());
                Poll::Pending
            }
        })
        .await
    }
}

/// Somebody in a list; out of it when dropped.
struct Waiting<'a> {
    list: &'a WaitList,
    /// How often the list had been woken, and who is.
    entered: Option<(u64, Waker)>,
}

impl Waiting<'_> {
    /// Whether it is in the list still.
    fn is_in(&self) -> bool {
        self.entered.as_ref().is_some_and(|(woken, _)| *woken == self.list.woken.get())
    }

    fn enter(&mut self, waker: &Waker) {
        if self.is_in() {
            if self.entered.as_ref().is_some_and(|(_, known)| known.will_wake(waker)) {
                return;
            }
            self.leave();
        }
        self.list.waiting.borrow_mut().push(waker.clone());
        self.entered = Some((self.list.woken.get(), waker.clone()));
    }

    fn leave(&mut self) {
        if let Some((woken, waker)) = self.entered.take()
            && woken == self.list.woken.get()
        {
            let mut waiting = self.list.waiting.borrow_mut();
            // The same task may be there twice, for two reasons: either will do.
            if let Some(at) = waiting.iter().rposition(|other| other.will_wake(&waker)) {
                waiting.remove(at);
            }
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.leave();
    }
}

/// One value, once, within a core.
pub fn oneshot<T>() -> (OneshotSender<T>, OneshotReceiver<T>) {
    let shared = Rc::new(Oneshot { value: RefCell::new(None), waker: RefCell::new(None), closed: Cell::new(false) });
    (OneshotSender(shared.clone()), OneshotReceiver(shared))
}

struct Oneshot<T> {
    value: RefCell<Option<T>>,
    waker: RefCell<Option<Waker>>,
    closed: Cell<bool>,
}

/// Gives the value.
pub struct OneshotSender<T>(Rc<Oneshot<T>>);
/// Waits for the value.
pub struct OneshotReceiver<T>(Rc<Oneshot<T>>);

impl<T> OneshotSender<T> {
    /// Gives the value; it is dropped if nobody waits any more.
    pub fn send(self, value: T) {
        *self.0.value.borrow_mut() = Some(value);
    }
}

impl<T> Drop for OneshotSender<T> {
    fn drop(&mut self) {
        self.0.closed.set(true);
        if let Some(waker) = self.0.waker.take() {
            waker.wake();
        }
    }
}

impl<T> OneshotReceiver<T> {
    /// The value, or [`Closed`] if the sender went without giving one.
    pub fn recv(self) -> impl Future<Output = Result<T, Closed>> {
        poll_fn(move |cx| {
            if let Some(value) = self.0.value.take() {
                return Poll::Ready(Ok(value));
            }
            if self.0.closed.get() {
                return Poll::Ready(Err(Closed));
            }
            *self.0.waker.borrow_mut() = Some(cx.waker().clone());
            Poll::Pending
        })
    }
}

/// A bounded queue within a core: many senders, one receiver.
///
/// # Panics
/// If `capacity` is zero.
pub fn bounded<T>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    assert!(capacity > 0);
    let queue = Rc::new(Queue {
        items: RefCell::new(VecDeque::with_capacity(capacity)),
        capacity,
        senders: Cell::new(1),
        receiver_gone: Cell::new(false),
        room: WaitList::default(),
        arrived: WaitList::default(),
    });
    (Sender(queue.clone()), Receiver(queue))
}

struct Queue<T> {
    items: RefCell<VecDeque<T>>,
    capacity: usize,
    senders: Cell<usize>,
    receiver_gone: Cell<bool>,
    room: WaitList,
    arrived: WaitList,
}

/// Sends within a core.
pub struct Sender<T>(Rc<Queue<T>>);
/// Receives within a core.
pub struct Receiver<T>(Rc<Queue<T>>);

impl<T> Sender<T> {
    /// Queues `value` if there is room.
    pub fn try_send(&self, value: T) -> Result<(), Full<T>> {
        if self.0.receiver_gone.get() || self.0.items.borrow().len() >= self.0.capacity {
            return Err(Full(value));
        }
        self.0.items.borrow_mut().push_back(value);
        self.0.arrived.wake_all();
        Ok(())
    }

    /// Queues `value`, waiting for room.
    pub async fn send(&self, value: T) -> Result<(), Closed> {
        let mut value = Some(value);
        self.0
            .room
            .until(|| {
                if self.0.receiver_gone.get() {
                    return Some(Err(Closed));
                }
                match self.try_send(value.take()?) {
                    Ok(()) => Some(Ok(())),
                    Err(Full(back)) => {
                        value = Some(back);
                        None
                    }
                }
            })
            .await
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        self.0.senders.set(self.0.senders.get() + 1);
        Self(self.0.clone())
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.0.senders.set(self.0.senders.get() - 1);
        self.0.arrived.wake_all();
    }
}

impl<T> Receiver<T> {
    /// The next value, or [`Closed`] when all senders are gone and the queue is empty.
    pub async fn recv(&mut self) -> Result<T, Closed> {
        let queue = self.0.clone();
        let value = queue
            .arrived
            .until(|| match queue.items.borrow_mut().pop_front() {
                Some(value) => Some(Ok(value)),
                None if queue.senders.get() == 0 => Some(Err(Closed)),
                None => None,
            })
            .await;
        queue.room.wake_all();
        value
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        self.0.receiver_gone.set(true);
        self.0.items.borrow_mut().clear();
        self.0.room.wake_all();
    }
}

/// A bounded queue between cores (or from a thread that is no core): many senders, one receiver.
///
/// # Panics
/// If `capacity` is zero.
pub fn cross<T: Send>(capacity: usize) -> (CrossSender<T>, CrossReceiver<T>) {
    assert!(capacity > 0);
    let queue = Arc::new(CrossQueue {
        state: Mutex::new(CrossState {
            items: VecDeque::with_capacity(capacity),
            senders: 1,
            receiver_gone: false,
            receiver: None,
            waiting: Vec::new(),
        }),
        capacity,
    });
    (CrossSender(queue.clone()), CrossReceiver(queue))
}

struct CrossQueue<T> {
    state: Mutex<CrossState<T>>,
    capacity: usize,
}

impl<T> CrossQueue<T> {
    fn lock(&self) -> MutexGuard<'_, CrossState<T>> {
        self.state.lock().unwrap_or_else(|poison| poison.into_inner())
    }
}

struct CrossState<T> {
    items: VecDeque<T>,
    senders: usize,
    receiver_gone: bool,
    receiver: Option<Waker>,
    waiting: Vec<Waker>,
}

/// Sends to another core.
pub struct CrossSender<T>(Arc<CrossQueue<T>>);
/// Receives from other cores.
pub struct CrossReceiver<T>(Arc<CrossQueue<T>>);

impl<T: Send> CrossSender<T> {
    /// Queues `value` if there is room. Works on any thread.
    pub fn try_send(&self, value: T) -> Result<(), Full<T>> {
        let receiver = {
            let mut state = self.0.lock();
            if state.receiver_gone || state.items.len() >= self.0.capacity {
                return Err(Full(value));
            }
            state.items.push_back(value);
            state.receiver.take()
        };
        if let Some(waker) = receiver {
            waker.wake();
        }
        Ok(())
    }

    /// Queues `value`, waiting for room.
    pub async fn send(&self, value: T) -> Result<(), Closed> {
        let mut value = Some(value);
        poll_fn(|cx| {
            let Some(item) = value.take() else { return Poll::Ready(Ok(())) };
            match self.try_send(item) {
                Ok(()) => Poll::Ready(Ok(())),
                Err(Full(back)) => {
                    let mut state = self.0.lock();
                    if state.receiver_gone {
                        return Poll::Ready(Err(Closed));
                    }
                    value = Some(back);
                    if state.items.len() < self.0.capacity {
                        cx.waker().wake_by_ref(); // room came between the two looks
                    } else {
                        state.waiting.push(cx.waker().clone());
                    }
                    Poll::Pending
                }
            }
        })
        .await
    }
}

impl<T> Clone for CrossSender<T> {
    fn clone(&self) -> Self {
        self.0.lock().senders += 1;
        Self(self.0.clone())
    }
}

impl<T> Drop for CrossSender<T> {
    fn drop(&mut self) {
        let receiver = {
            let mut state = self.0.lock();
            state.senders -= 1;
            if state.senders == 0 { state.receiver.take() } else { None }
        };
        if let Some(waker) = receiver {
            waker.wake();
        }
    }
}

impl<T: Send> CrossReceiver<T> {
    /// The next value, or [`Closed`] when all senders are gone and the queue is empty.
    pub async fn recv(&mut self) -> Result<T, Closed> {
        poll_fn(|cx| {
            let (value, waiting) = {
                let mut state = self.0.lock();
                match state.items.pop_front() {
                    Some(value) => (value, std::mem::take(&mut state.waiting)),
                    None if state.senders == 0 => return Poll::Ready(Err(Closed)),
                    None => {
                        state.receiver = Some(cx.waker().clone());
                        return Poll::Pending;
                    }
                }
            };
            waiting.into_iter().for_each(Waker::wake);
            Poll::Ready(Ok(value))
        })
        .await
    }
}

impl<T> Drop for CrossReceiver<T> {
    fn drop(&mut self) {
        let (items, waiting) = {
            let mut state = self.0.lock();
            state.receiver_gone = true;
            (std::mem::take(&mut state.items), std::mem::take(&mut state.waiting))
        };
        drop(items);
        waiting.into_iter().for_each(Waker::wake);
    }
}
