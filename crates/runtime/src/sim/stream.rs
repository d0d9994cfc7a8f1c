//! Listeners and connections, as the surface wraps them.

use super::core::SimCore;
use super::network::{ConnectionId, OpenError, Received, Sent, Side};
use super::world::Shared;
use crate::buf::{IoBuf, SharedBuf};
use crate::core::{self, Backend};
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::Poll;

/// Most bytes that one receive gives, as with the kernel's backend.
const RECEIVE_BYTES: usize = 128 << 10;

/// A simulated listening socket.
pub struct SimListener {
    shared: Rc<Shared>,
    node: u32,
    address: SocketAddr,
}

impl std::fmt::Debug for SimListener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SimListener({})", self.address)
    }
}

impl SimListener {
    pub(crate) fn bind(core: &SimCore, address: SocketAddr) -> io::Result<Self> {
        let address = core.shared.listen(core.node, address)?;
        Ok(Self { shared: core.shared.clone(), node: core.node, address })
    }

    pub(crate) fn local_address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) async fn accept(&self) -> io::Result<SimStream> {
        poll_fn(|cx| match self.shared.accept(self.node, self.address.port(), cx.waker()) {
            Some(id) => Poll::Ready(Ok(SimStream::new(self.shared.clone(), id, 1))),
            None => Poll::Pending,
        })
        .await
    }
}

impl Drop for SimListener {
    fn drop(&mut self) {
        self.shared.stop_listening(self.node, self.address.port());
    }
}

/// One end of a simulated connection.
#[derive(Clone)]
pub struct SimStream(Rc<Held>);

/// Closes the end when the last clone goes.
struct Held {
    shared: Rc<Shared>,
    id: ConnectionId,
    side: Side,
    address: SocketAddr,
    peer: SocketAddr,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.shared.close(self.id, self.side);
    }
}

impl std::fmt::Debug for SimStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SimStream({} to {})", self.0.address, self.0.peer)
    }
}

fn reset() -> io::Error {
    io::Error::from_raw_os_error(libc::ECONNRESET)
}

impl SimStream {
    fn new(shared: Rc<Shared>, id: ConnectionId, side: Side) -> Self {
        let (address, peer) = {
            let mut network = shared.network.borrow_mut();
            (network.end(id, side).address, network.end(id, 1 - side).address)
        };
        Self(Rc::new(Held { shared, id, side, address, peer }))
    }

    pub(crate) async fn connect(core: &SimCore, address: SocketAddr) -> io::Result<Self> {
        let shared = core.shared.clone();
        let id = shared.open(core.node, address).ok_or_else(|| io::Error::from_raw_os_error(libc::EHOSTUNREACH))?;
        let stream = Self::new(shared.clone(), id, 0);
        match poll_fn(|cx| shared.opening(id, cx.waker()).map_or(Poll::Pending, Poll::Ready)).await {
            Ok(()) => Ok(stream),
            Err(OpenError::Refused) => Err(io::Error::from_raw_os_error(libc::ECONNREFUSED)),
            Err(OpenError::TimedOut) => Err(io::Error::from_raw_os_error(libc::ETIMEDOUT)),
        }
    }

    pub(crate) fn peer_address(&self) -> SocketAddr {
        self.0.peer
    }

    pub(crate) fn local_address(&self) -> SocketAddr {
        self.0.address
    }

    async fn receive(&self, most: usize) -> io::Result<Option<SharedBuf>> {
        let held = &*self.0;
        poll_fn(|cx| match held.shared.receive(held.id, held.side, most, cx.waker()) {
            Received::Bytes(bytes) => Poll::Ready(Ok(Some(bytes))),
            Received::End => Poll::Ready(Ok(None)),
            Received::Failed => Poll::Ready(Err(reset())),
            Received::Nothing => Poll::Pending,
        })
        .await
    }

    pub(crate) async fn recv(&self) -> io::Result<SharedBuf> {
        Ok(self.receive(RECEIVE_BYTES).await?.unwrap_or_else(|| IoBuf::new(0).freeze()))
    }

    pub(crate) async fn recv_exact(&self, mut buf: IoBuf) -> (io::Result<()>, IoBuf) {
        let mut filled = 0;
        while filled < buf.len() {
            match self.receive(buf.len() - filled).await {
                Ok(Some(bytes)) => {
                    buf[filled..filled + bytes.len()].copy_from_slice(&bytes);
                    filled += bytes.len();
                }
                Ok(None) => return (Err(io::ErrorKind::UnexpectedEof.into()), buf),
                Err(error) => return (Err(error), buf),
            }
        }
        (Ok(()), buf)
    }

    pub(crate) async fn send(&self, parts: &mut Vec<SharedBuf>) -> io::Result<()> {
        let held = &*self.0;
        let (mut part, mut sent) = (0, 0);
        let result = poll_fn(|cx| {
            while part < parts.len() {
                if sent == parts[part].len() {
                    (part, sent) = (part + 1, 0);
                    continue;
                }
                match held.shared.send_some(held.id, held.side, &parts[part][sent..], cx.waker()) {
                    Sent::Bytes(count) => sent += count,
                    Sent::NoRoom => return Poll::Pending,
                    Sent::Failed => return Poll::Ready(Err(reset())),
                    Sent::Shut => return Poll::Ready(Err(io::Error::from_raw_os_error(libc::EPIPE))),
                }
            }
            Poll::Ready(Ok(()))
        })
        .await;
        parts.clear();
        result
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.0.shared.has_ended(self.0.id, self.0.side)
    }

    pub(crate) fn shutdown(&self) {
        self.0.shared.shut(self.0.id, self.0.side);
    }

    pub(crate) fn detach(self) -> SimDetached {
        assert_eq!(Rc::strong_count(&self.0), 1, "a clone of the connection lives");
        let (id, side) = (self.0.id, self.0.side);
        self.0.shared.network.borrow_mut().end(id, side).detached = true;
        SimDetached { id, side, attached: false }
    }
}

/// An end between two cores: numbers only, since it travels in channels that real threads also use.
#[derive(Debug)]
pub struct SimDetached {
    id: ConnectionId,
    side: Side,
    attached: bool,
}

fn with_shared(f: impl FnOnce(&Rc<Shared>)) {
    core::with_current_if_any(|core| {
        if let Backend::Sim(sim) = &core.backend {
            f(&sim.shared);
        }
    });
}

impl SimDetached {
    pub(crate) fn attach(mut self) -> SimStream {
        self.attached = true;
        let mut stream = None;
        with_shared(|shared| {
            shared.network.borrow_mut().end(self.id, self.side).detached = false;
            stream = Some(SimStream::new(shared.clone(), self.id, self.side));
        });
        stream.expect("attach within a task of a simulated core")
    }
}

impl Drop for SimDetached {
    fn drop(&mut self) {
        if !self.attached {
            with_shared(|shared| {
                if let Some(end) = shared.network.borrow_mut().get_end(self.id, self.side) {
                    end.detached = false;
                }
                shared.close(self.id, self.side);
            });
        }
    }
}
