//! TCP.

use crate::buf::{IoBuf, SharedBuf};
use crate::core::{self, Backend};
use crate::{sim, uring};
use std::io;
use std::net::SocketAddr;

fn current_sim() -> Option<sim::SimCore> {
    core::with_current(|core| match &core.backend {
        Backend::Uring(_) => None,
        Backend::Sim(sim) => Some(sim.clone()),
    })
}

/// A listening socket. Dropping it closes it.
#[derive(Debug)]
pub enum TcpListener {
    /// A real socket.
    Uring(uring::UringListener),
    /// A simulated one.
    Sim(sim::SimListener),
}

impl TcpListener {
    /// Listens; port 0 takes any free one.
    ///
    /// # Errors
    /// What the system says: address in use, not available, permission.
    pub fn bind(address: SocketAddr) -> io::Result<Self> {
        match current_sim() {
            None => uring::UringListener::bind(address).map(Self::Uring),
            Some(sim) => sim::SimListener::bind(&sim, address).map(Self::Sim),
        }
    }

    /// The address listened on, with the port that was taken.
    pub fn local_address(&self) -> SocketAddr {
        match self {
            Self::Uring(listener) => listener.local_address(),
            Self::Sim(listener) => listener.local_address(),
        }
    }

    /// The next connection.
    pub async fn accept(&self) -> io::Result<TcpStream> {
        match self {
            Self::Uring(listener) => listener.accept().await.map(TcpStream::Uring),
            Self::Sim(listener) => listener.accept().await.map(TcpStream::Sim),
        }
    }
}

/// A connection, TCP_NODELAY set. Belongs to the core it was made or attached on; clones share it (one reads while
/// another writes); dropping the last closes it.
#[derive(Clone, Debug)]
pub enum TcpStream {
    /// A real socket.
    Uring(uring::UringStream),
    /// A simulated one.
    Sim(sim::SimStream),
}

/// Most buffers that one [`TcpStream::send`] gathers.
pub const MAX_SEND_PARTS: usize = 512;

impl TcpStream {
    /// Connects.
    pub async fn connect(address: SocketAddr) -> io::Result<Self> {
        match current_sim() {
            None => uring::UringStream::connect(address).await.map(Self::Uring),
            Some(sim) => sim::SimStream::connect(&sim, address).await.map(Self::Sim),
        }
    }

    /// The other end.
    pub fn peer_address(&self) -> SocketAddr {
        match self {
            Self::Uring(stream) => stream.peer_address(),
            Self::Sim(stream) => stream.peer_address(),
        }
    }

    /// This end.
    pub fn local_address(&self) -> SocketAddr {
        match self {
            Self::Uring(stream) => stream.local_address(),
            Self::Sim(stream) => stream.local_address(),
        }
    }

    /// From now on bytes are received however many received ones the core holds: for a connection by which it hears what lets it go of them.
    pub fn receive_whatever_is_held(&self) {
        match self {
            Self::Uring(stream) => stream.receive_whatever_is_held(),
            // There is no limit there.
            Self::Sim(_) => {}
        }
    }

    /// What has arrived, at least one byte and at most one receive buffer (128 KiB) full; empty at the end of the
    /// stream. Waiting holds no memory: a thousand idle connections cost a thousand small structures.
    /// One receive at a time per connection. Dropping the future loses nothing: the next receive takes what came.
    pub async fn recv(&self) -> io::Result<SharedBuf> {
        match self {
            Self::Uring(stream) => stream.recv().await,
            Self::Sim(stream) => stream.recv().await,
        }
    }

    /// Fills `buf` completely, straight from the socket: for payload that belongs in an aligned buffer.
    ///
    /// Dropping the future loses what had come: the connection is good for nothing but its end.
    ///
    /// # Errors
    /// `UnexpectedEof` if the stream ends before.
    pub async fn recv_exact(&self, buf: IoBuf) -> (io::Result<()>, IoBuf) {
        match self {
            Self::Uring(stream) => stream.recv_exact(buf).await,
            Self::Sim(stream) => stream.recv_exact(buf).await,
        }
    }

    /// Sends all of `parts`, in order, with as few calls as possible. The list comes back empty with its room.
    /// One send at a time per connection. Dropping the future leaves it unknown how much has gone.
    ///
    /// # Panics
    /// Above [`MAX_SEND_PARTS`] parts.
    pub async fn send(&self, parts: &mut Vec<SharedBuf>) -> io::Result<()> {
        assert!(parts.len() <= MAX_SEND_PARTS);
        match self {
            Self::Uring(stream) => stream.send(parts).await,
            Self::Sim(stream) => stream.send(parts).await,
        }
    }

    /// Whether the other end has closed or the connection has failed, asked of the kernel now and without reading:
    /// unread bytes do not hide the end.
    pub fn has_ended(&self) -> bool {
        match self {
            Self::Uring(stream) => stream.has_ended(),
            Self::Sim(stream) => stream.has_ended(),
        }
    }

    /// Ends both directions: pending receives and sends end, the peer sees the end.
    pub fn shutdown(&self) {
        match self {
            Self::Uring(stream) => stream.shutdown(),
            Self::Sim(stream) => stream.shutdown(),
        }
    }

    /// Takes the connection off this core, to be attached on another.
    ///
    /// # Panics
    /// If a clone of it lives or an operation is under way.
    pub fn detach(self) -> DetachedStream {
        match self {
            Self::Uring(stream) => DetachedStream::Uring(stream.detach()),
            Self::Sim(stream) => DetachedStream::Sim(stream.detach()),
        }
    }
}

/// A connection between two cores.
#[derive(Debug)]
pub enum DetachedStream {
    /// A real socket.
    Uring(uring::UringDetached),
    /// A simulated one.
    Sim(sim::SimDetached),
}

impl DetachedStream {
    /// Attaches the connection to the current core.
    pub fn attach(self) -> TcpStream {
        match self {
            Self::Uring(detached) => TcpStream::Uring(detached.attach()),
            Self::Sim(detached) => TcpStream::Sim(detached.attach()),
        }
    }
}
