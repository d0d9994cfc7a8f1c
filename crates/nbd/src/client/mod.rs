//! A pipelining NBD client, for tests and benchmarks.
//!
//! Any number of requests may be in flight; requests of one turn leave in one send. When the connection is lost every
//! request in flight ends with [`ClientError::Lost`]: its outcome is unknown. It does not connect again by itself.

mod incoming;
mod negotiation;

use crate::outbox::Outbox;
use crate::wire::transmission::{Request, StatusPayload, command, command_flag};
use incoming::receive_replies;
pub use negotiation::{ExportInfo, list};
use runtime::channel::WaitList;
use runtime::{IoBuf, SharedBuf, TaskHandle, TcpStream};
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::{Poll, Waker};

/// Longest read or write of one call: what one buffer holds.
pub const TRANSFER_BYTES_MAX: usize = runtime::buf::LARGEST;
/// Parts of one send: what the runtime gathers in one call.
const SEND_PARTS_MAX: usize = 256;

/// Why a request or a connection failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClientError {
    /// The connection was lost, or ended from here; what was in flight may or may not have been done.
    #[error("connection lost: {0}")]
    Lost(String),
    /// The server answered with an error: the request was not done.
    #[error("the server refused the request with error {number}: {message}")]
    Refused {
        /// NBD error number.
        number: u32,
        /// What the server says, if anything.
        message: String,
    },
    /// The server refused an option of the negotiation.
    #[error("the server refused option {option} with {reply:#x}: {message}")]
    Option {
        /// The option.
        option: u32,
        /// The reply.
        reply: u32,
        /// What the server says, if anything.
        message: String,
    },
    /// The server broke the protocol.
    #[error("the server broke the protocol: {0}")]
    Protocol(String),
}

impl From<std::io::Error> for ClientError {
    fn from(error: std::io::Error) -> Self {
        Self::Lost(error.to_string())
    }
}

impl From<crate::wire::BadMagic> for ClientError {
    fn from(error: crate::wire::BadMagic) -> Self {
        Self::Protocol(error.to_string())
    }
}

/// One request in flight.
#[derive(Default)]
struct Slot {
    /// Cookie of the request; the low half is the slot's number.
    cookie: u64,
    offset_bytes: u64,
    len_bytes: u32,
    /// Where a read's data goes.
    buf: Option<IoBuf>,
    /// What a status request is answered, if it is one.
    status: Option<Vec<StatusPayload>>,
    error: Option<ClientError>,
    done: bool,
    waker: Option<Waker>,
}

/// See the [module](self). Clones share the connection; dropping the last closes it.
#[derive(Clone)]
pub struct Client(Rc<Owner>);

/// Ends the connection with the last client.
struct Owner {
    shared: Rc<Shared>,
    tasks: [TaskHandle; 2],
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.shared.lose(ClientError::Lost("closed here".into()));
        self.tasks.iter().for_each(|task| task.cancel());
    }
}

struct Shared {
    stream: TcpStream,
    info: ExportInfo,
    outbox: RefCell<Outbox>,
    output: WaitList,
    slots: RefCell<Vec<Slot>>,
    free: RefCell<Vec<u32>>,
    uses: Cell<u32>,
    lost: RefCell<Option<ClientError>>,
}

impl Client {
    /// Connects and opens the export `name`; with structured replies if asked for.
    pub async fn connect(address: SocketAddr, name: &str, structured: bool) -> Result<Self, ClientError> {
        Self::connect_with(address, name, structured, &[]).await
    }

    /// The same; [`block_status`](Self::block_status) tells of these metadata contexts, as far as the server has them.
    /// They need structured replies.
    pub async fn connect_with(
        address: SocketAddr,
        name: &str,
        structured: bool,
        contexts: &[&str],
    ) -> Result<Self, ClientError> {
        let stream = TcpStream::connect(address).await?;
        let (info, reader) = negotiation::open(&stream, name, structured, contexts).await?;
        let shared = Rc::new(Shared {
            stream,
            info,
            outbox: RefCell::default(),
            output: WaitList::default(),
            slots: RefCell::default(),
            free: RefCell::default(),
            uses: Cell::new(0),
            lost: RefCell::new(None),
        });
        let (receiving, sending) = (shared.clone(), shared.clone());
        let receiver = runtime::spawn(async move {
            if let Err(error) = receive_replies(&receiving, reader).await {
                receiving.lose(error);
            }
        });
        let sender = runtime::spawn(async move { sending.send().await });
        Ok(Self(Rc::new(Owner { shared, tasks: [receiver, sender] })))
    }

    /// What the server said of the export.
    pub fn info(&self) -> &ExportInfo {
        &self.0.shared.info
    }

    /// Reads at most [`TRANSFER_BYTES_MAX`]. The request is queued by the call.
    pub fn read(
        &self,
        offset_bytes: u64,
        len_bytes: u32,
    ) -> impl Future<Output = Result<SharedBuf, ClientError>> + use<> {
        let buf = IoBuf::new(len_bytes as usize);
        let request = self.0.shared.start(command::READ, 0, offset_bytes, len_bytes, None, Some(buf));
        async move { Ok(request.await?.buf.map_or_else(|| IoBuf::new(0).freeze(), IoBuf::freeze)) }
    }

    /// What the contexts of [`ExportInfo::contexts`] say of the range, or its beginning; of one extent each, if only
    /// `one` is asked for.
    pub fn block_status(
        &self,
        offset_bytes: u64,
        len_bytes: u32,
        one: bool,
    ) -> impl Future<Output = Result<Vec<StatusPayload>, ClientError>> + use<> {
        let flags = if one { command_flag::REQ_ONE } else { 0 };
        let request = self.0.shared.start(command::BLOCK_STATUS, flags, offset_bytes, len_bytes, None, None);
        async move { Ok(request.await?.status.unwrap_or_default()) }
    }

    /// Writes `bytes`. The request is queued by the call.
    pub fn write(
        &self,
        offset_bytes: u64,
        bytes: SharedBuf,
        fua: bool,
    ) -> impl Future<Output = Result<(), ClientError>> + use<> {
        let flags = if fua { command_flag::FUA } else { 0 };
        let len_bytes = bytes.len() as u32;
        let request = self.0.shared.start(command::WRITE, flags, offset_bytes, len_bytes, Some(bytes), None);
        async move { request.await.map(drop) }
    }

    /// Makes completed writes durable.
    pub fn flush(&self) -> impl Future<Output = Result<(), ClientError>> + use<> {
        let request = self.0.shared.start(command::FLUSH, 0, 0, 0, None, None);
        async move { request.await.map(drop) }
    }

    /// Discards the range.
    pub fn trim(&self, offset_bytes: u64, len_bytes: u32) -> impl Future<Output = Result<(), ClientError>> + use<> {
        let request = self.0.shared.start(command::TRIM, 0, offset_bytes, len_bytes, None, None);
        async move { request.await.map(drop) }
    }

    /// Makes the range read as zeroes; `keep_space`: without making a hole of it.
    pub fn write_zeroes(
        &self,
        offset_bytes: u64,
        len_bytes: u32,
        keep_space: bool,
    ) -> impl Future<Output = Result<(), ClientError>> + use<> {
        let flags = if keep_space { command_flag::NO_HOLE } else { 0 };
        let request = self.0.shared.start(command::WRITE_ZEROES, flags, offset_bytes, len_bytes, None, None);
        async move { request.await.map(drop) }
    }

    /// Closes the connection at once, as a host that has lost its patience does: what is in flight ends as lost.
    pub fn abort(&self) {
        self.0.shared.lose(ClientError::Lost("aborted here".into()));
    }
}

impl Shared {
    fn push(&self, command: u16, flags: u16, cookie: u64, offset_bytes: u64, len_bytes: u32, data: Option<SharedBuf>) {
        let mut outbox = self.outbox.borrow_mut();
        outbox.push_bytes(&Request { flags, command, cookie, offset_bytes, len_bytes }.encode());
        if let Some(data) = data {
            outbox.push_data(data);
        }
        self.output.wake_all();
    }

    /// Queues a request and returns what waits for its end.
    fn start(
        self: &Rc<Self>,
        command: u16,
        flags: u16,
        offset_bytes: u64,
        len_bytes: u32,
        data: Option<SharedBuf>,
        buf: Option<IoBuf>,
    ) -> impl Future<Output = Result<Slot, ClientError>> + use<> {
        let mut slots = self.slots.borrow_mut();
        let index = self.free.borrow_mut().pop().unwrap_or_else(|| {
            slots.push(Slot::default());
            (slots.len() - 1) as u32
        });
        self.uses.set(self.uses.get().wrapping_add(1));
        let cookie = u64::from(self.uses.get()) << 32 | u64::from(index);
        let lost = self.lost.borrow().clone();
        let done = lost.is_some();
        let status = (command == command::BLOCK_STATUS).then(Vec::new);
        slots[index as usize] = Slot { cookie, offset_bytes, len_bytes, buf, status, error: lost, done, waker: None };
        drop(slots);
        if !done {
            self.push(command, flags, cookie, offset_bytes, len_bytes, data);
        }
        let shared = self.clone();
        poll_fn(move |cx| {
            let slot = &mut shared.slots.borrow_mut()[index as usize];
            if !slot.done {
                slot.waker = Some(cx.waker().clone());
                return Poll::Pending;
            }
            let mut slot = std::mem::take(slot);
            shared.free.borrow_mut().push(index);
            Poll::Ready(slot.error.take().map_or(Ok(slot), Err))
        })
    }

    /// The slot of the request in flight that has this cookie.
    fn index_of(&self, cookie: u64) -> Result<usize, ClientError> {
        let index = (cookie & u64::from(u32::MAX)) as usize;
        match self.slots.borrow().get(index) {
            Some(slot) if slot.cookie == cookie && !slot.done => Ok(index),
            _ => Err(ClientError::Protocol(format!("a reply to no request: cookie {cookie:#x}"))),
        }
    }

    fn finish(&self, index: usize) {
        let waker = {
            let slot = &mut self.slots.borrow_mut()[index];
            slot.done = true;
            slot.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// The connection is gone: everything in flight ends with `error`.
    fn lose(&self, error: ClientError) {
        self.stream.shutdown();
        self.lost.borrow_mut().get_or_insert(error.clone());
        let count = self.slots.borrow().len();
        for index in 0..count {
            {
                let slot = &mut self.slots.borrow_mut()[index];
                // Free places have cookie 0: the first request's is above it.
                if slot.done || slot.cookie == 0 {
                    continue;
                }
                slot.error = Some(error.clone());
            }
            self.finish(index);
        }
        self.output.wake_all();
    }

    async fn send(&self) {
        let mut parts = Vec::with_capacity(SEND_PARTS_MAX);
        loop {
            self.output.until(|| (!self.outbox.borrow().is_empty()).then_some(())).await;
            runtime::turn_end().await;
            while !self.outbox.borrow().is_empty() {
                self.outbox.borrow_mut().take(&mut parts, SEND_PARTS_MAX);
                if let Err(error) = self.stream.send(&mut parts).await {
                    return self.lose(error.into());
                }
            }
        }
    }
}
