//! The core that is the head: orders of the program, and what goes through its lanes. It runs on whichever thread of the program waits for
//! it, or its own ([`Lent`]).

use crate::ClientError;
use crate::lane::{Completion, Lane, Operation, Request};
use cluster::MapStore;
use runtime::channel::{CrossReceiver, CrossSender, cross};
use runtime::uring::Lent;
use runtime::{IoBuf, turn_end};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll};
use std::time::Duration;
use volume::{
    Assembly, Attached, ClientOptions, Cost, Held, IoError, MAX_TRANSFER_BYTES, OpenVolume, Payload, ReadData,
    VolumeError,
};

/// Orders that wait: each thread of the program gives one at a time.
const ORDERS: usize = 1024;

/// Where an answer goes.
pub(crate) type Reply<T> = mpsc::Sender<T>;

/// What the program wants, beside I/O.
pub(crate) enum Order {
    Open(String, Reply<Result<Opened, VolumeError>>),
    Close(u64, Reply<Result<(), VolumeError>>),
    Begin(u64, Arc<Lane>, Reply<Result<(), ClientError>>),
    /// Answered when no buffer of the lane's program is touched any more.
    End(Arc<Lane>, Reply<()>),
    Stop(Reply<()>),
}

/// What was opened.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) number: u64,
    pub(crate) size_bytes: u64,
    pub(crate) block_size_bytes: u32,
}

/// See the module.
pub(crate) struct Reactor {
    pub(crate) name: String,
    orders: CrossSender<Order>,
    pub(crate) core: Lent,
}

impl Reactor {
    /// Starts the core, and a client on it.
    pub(crate) fn start(map: Arc<dyn MapStore>, busy_poll: Duration) -> Result<Self, ClientError> {
        let core = Lent::start(busy_poll)?;
        let (orders, receiver) = cross(ORDERS);
        let (tell, told) = mpsc::channel();
        let handles = vec![core.handle()];
        core.handle().spawn_on(move || async move {
            match Assembly::start_client(ClientOptions { cores: handles, map }).await {
                Ok(assembly) => {
                    let _ = tell.send(Ok(assembly.node_id()));
                    Running { assembly, open: RefCell::default(), last: Cell::new(0) }.obey(receiver).await;
                }
                Err(error) => drop(tell.send(Err(error))),
            }
        });
        let node = told.recv().map_err(|_| ClientError::Ended)?;
        let node = node.map_err(|error| ClientError::Start(Box::new(error)))?;
        let name = format!("client-{}", node.client_number().unwrap_or_default());
        Ok(Self { name, orders, core })
    }

    /// Gives an order, and waits for the answer.
    pub(crate) fn ask<T>(&self, order: impl FnOnce(Reply<T>) -> Order) -> Result<T, ClientError> {
        let (reply, answer) = mpsc::channel();
        self.orders.try_send(order(reply)).map_err(|_| ClientError::Ended)?;
        self.core.see_to_it();
        answer.recv().map_err(|_| ClientError::Ended)
    }
}

impl Drop for Reactor {
    fn drop(&mut self) {
        let _ = self.ask(Order::Stop);
    }
}

/// The client, on its thread.
struct Running {
    assembly: Assembly,
    open: RefCell<BTreeMap<u64, OpenVolume>>,
    last: Cell<u64>,
}

impl Running {
    async fn obey(self, mut orders: CrossReceiver<Order>) {
        let this = Rc::new(self);
        while let Ok(order) = orders.recv().await {
            // Whoever asked may not listen any more.
            match order {
                Order::Open(name, reply) => {
                    let this = this.clone();
                    runtime::spawn(async move { drop(reply.send(this.open(&name).await)) });
                }
                Order::Close(number, reply) => {
                    let this = this.clone();
                    runtime::spawn(async move { drop(reply.send(this.close(number).await)) });
                }
                Order::Begin(number, lane, reply) => {
                    let _ = reply.send(this.begin(number, lane));
                }
                Order::End(lane, reply) => {
                    lane.end();
                    let _ = reply.send(());
                }
                Order::Stop(reply) => {
                    this.assembly.stop().await;
                    let _ = reply.send(());
                    return;
                }
            }
        }
    }

    async fn open(&self, name: &str) -> Result<Opened, VolumeError> {
        let open = self.assembly.open_volume(name).await?;
        let info = open.volume.info();
        self.last.set(self.last.get() + 1);
        let number = self.last.get();
        self.open.borrow_mut().insert(number, open);
        Ok(Opened { number, size_bytes: info.size_bytes, block_size_bytes: info.block_size_bytes })
    }

    async fn close(&self, number: u64) -> Result<(), VolumeError> {
        let open = self.open.borrow_mut().remove(&number);
        match open {
            Some(open) => self.assembly.close_volume(open).await,
            None => Ok(()),
        }
    }

    fn begin(&self, number: u64, lane: Arc<Lane>) -> Result<(), ClientError> {
        let volume = self.open.borrow().get(&number).ok_or(ClientError::Ended)?.volume.clone();
        let serves = Rc::new(Serves { lane, volume, is_to_tell: Cell::new(false) });
        runtime::spawn(pump(serves));
        Ok(())
    }
}

/// A lane, and the volume that it leads to.
struct Serves {
    lane: Arc<Lane>,
    volume: Attached,
    /// Something was completed in this turn.
    is_to_tell: Cell<bool>,
}

/// Takes what comes, until the program has gone.
async fn pump(serves: Rc<Serves>) {
    poll_fn(|cx| {
        if serves.lane.is_over() {
            // Whatever is left has no buffer any more.
            return Poll::Ready(());
        }
        // SAFETY: a lane has one pump, and the core is one thread's at a time.
        while let Some(request) = unsafe { serves.lane.next(cx.waker()) } {
            serves.clone().begin(request);
        }
        Poll::Pending
    })
    .await;
}

pin_project_lite::pin_project! {
    /// A request that is one command of the volume, done where it was begun: a command is large, and an `async` block would move
    /// it from one place of its task to the next.
    struct OneCommand<F> {
        #[pin]
        command: F,
        serves: Rc<Serves>,
        request: Request,
    }
}

impl<F: Future<Output = Result<Option<ReadData>, IoError>>> Future for OneCommand<F> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.project();
        let Poll::Ready(done) = this.command.poll(cx) else { return Poll::Pending };
        let (serves, request) = (this.serves.clone(), *this.request);
        match done {
            // Nothing was let in.
            Err(IoError::Changing(_) | IoError::Stopped(_)) => serves.begin_patiently(request, None),
            Err(error) => serves.complete(request, -errno_of(&error)),
            Ok(data) => {
                if let Some(data) = data.filter(|_| !serves.lane.is_over()) {
                    // SAFETY: the program is there.
                    unsafe { give(&data, request.buffer, request.len_bytes) };
                }
                serves.complete(request, 0);
            }
        }
        Poll::Ready(())
    }
}

pin_project_lite::pin_project! {
    /// A write as a command that brings nothing.
    struct Written<F> {
        #[pin]
        command: F,
    }
}

impl<F: Future<Output = Result<(), IoError>>> Future for Written<F> {
    type Output = Result<Option<ReadData>, IoError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.project().command.poll(cx).map_ok(|()| None)
    }
}

pin_project_lite::pin_project! {
    /// A read as a command that brings something.
    struct Brought<F> {
        #[pin]
        command: F,
    }
}

impl<F: Future<Output = Result<ReadData, IoError>>> Future for Brought<F> {
    type Output = Result<Option<ReadData>, IoError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.project().command.poll(cx).map_ok(Some)
    }
}

/// Copies what was read to where the program wants it.
///
/// # Safety
/// There are `len_bytes` bytes of the program's at `to`.
unsafe fn give(data: &ReadData, to: *mut u8, len_bytes: u64) {
    assert_eq!(data.bytes.len() as u64, len_bytes, "a read brings what was asked for");
    // SAFETY: as asked of the caller.
    unsafe { std::ptr::copy_nonoverlapping(data.bytes.as_ptr(), to, len_bytes as usize) };
}

impl Serves {
    /// Calls what is asked for, here and now, so that requests keep their order; a volume's limit may hold it.
    fn begin(self: Rc<Self>, request: Request) {
        let Request { operation, offset_bytes, len_bytes, .. } = request;
        let is_moved = matches!(operation, Operation::Read | Operation::Write);
        let cost = Cost::of(if is_moved { len_bytes } else { 0 });
        let over = || {
            let lane = self.lane.clone();
            move || lane.is_over()
        };
        let held = if operation == Operation::Flush { None } else { self.volume.hold(cost, over) };
        let is_one = is_moved && (1..=u64::from(MAX_TRANSFER_BYTES)).contains(&len_bytes) && held.is_none();
        let Some(volume) = self.volume.here().filter(|_| is_one) else { return self.begin_patiently(request, held) };
        if operation == Operation::Read {
            let command = Brought { command: volume.read(offset_bytes, len_bytes as u32) };
            runtime::spawn(OneCommand { command, serves: self, request });
        } else {
            // SAFETY: the program is there, and its buffer is as long as the request says.
            let bytes = unsafe { std::slice::from_raw_parts(request.buffer, len_bytes as usize) };
            let bytes = IoBuf::copy_of(bytes).freeze();
            let command = Written { command: volume.write(offset_bytes, Payload { bytes }) };
            runtime::spawn(OneCommand { command, serves: self, request });
        }
    }

    /// What is rare, long, or has to wait.
    fn begin_patiently(self: Rc<Self>, request: Request, held: Option<Held>) {
        runtime::spawn(async move {
            if let Some(held) = held {
                held.await;
            }
            let result = if self.lane.is_over() { -libc::ESTALE } else { self.execute(&request).await };
            self.complete(request, result);
        });
    }

    /// What is completed in one turn is told together.
    fn complete(self: Rc<Self>, Request { tag, .. }: Request, result: i32) {
        // SAFETY: the core is one thread's at a time.
        unsafe { self.lane.complete(Completion { tag, result }) };
        if !self.is_to_tell.replace(true) {
            runtime::spawn(async move {
                turn_end().await;
                self.is_to_tell.set(false);
                self.lane.tell();
            });
        }
    }

    async fn execute(&self, request: &Request) -> i32 {
        let Request { operation, offset_bytes, len_bytes, .. } = *request;
        let done = match operation {
            Operation::Read => self.read(request).await,
            Operation::Write => self.write(request).await,
            Operation::Flush => self.volume.flush().await,
            Operation::Discard => self.volume.discard(offset_bytes, len_bytes).await,
            Operation::WriteZeroes => self.volume.write_zeroes(offset_bytes, len_bytes).await,
        };
        match done {
            Ok(()) => 0,
            Err(error) => -errno_of(&error),
        }
    }

    /// In pieces that are commands each.
    async fn read(&self, request: &Request) -> Result<(), IoError> {
        let (mut at, mut left, mut to) = (request.offset_bytes, request.len_bytes, request.buffer);
        while left > 0 {
            let len = left.min(MAX_TRANSFER_BYTES.into());
            let data = self.volume.read(at, len as u32).await?;
            if self.lane.is_over() {
                return Err(IoError::Abandoned);
            }
            // SAFETY: the program is there, and its buffer is as long as the request says.
            unsafe {
                give(&data, to, len);
                to = to.add(len as usize);
            }
            (at, left) = (at + len, left - len);
        }
        Ok(())
    }

    async fn write(&self, request: &Request) -> Result<(), IoError> {
        let (mut at, mut left, mut from) = (request.offset_bytes, request.len_bytes, request.buffer);
        while left > 0 {
            let len = left.min(MAX_TRANSFER_BYTES.into());
            if self.lane.is_over() {
                return Err(IoError::Abandoned);
            }
            // SAFETY: the program is there, and its buffer is as long as the request says.
            let bytes = unsafe { std::slice::from_raw_parts(from, len as usize) };
            let bytes = IoBuf::copy_of(bytes).freeze();
            self.volume.write(at, Payload { bytes }).await?;
            // SAFETY: within the buffer, or at its end.
            from = unsafe { from.add(len as usize) };
            (at, left) = (at + len, left - len);
        }
        Ok(())
    }
}

fn errno_of(error: &IoError) -> i32 {
    match error {
        IoError::OutOfRange { .. } => libc::EINVAL,
        IoError::NoSpace(_) => libc::ENOSPC,
        IoError::ReadOnly => libc::EROFS,
        IoError::Elsewhere(_) | IoError::Changing(_) | IoError::Abandoned => libc::ESTALE,
        IoError::Gone(_) => libc::ENODEV,
        IoError::Damaged(_) | IoError::CompareFailed(_) | IoError::Stopped(_) | IoError::Unavailable(_) => libc::EIO,
    }
}
