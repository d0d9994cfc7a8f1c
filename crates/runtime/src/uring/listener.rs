//! Listening sockets.

use super::call::Call;
use super::operation::{Nature, Operation, Owner, Resources};
use super::reactor::Reactor;
use super::stream::UringStream;
use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::pin::Pin;
use std::rc::Rc;

/// Connections that may wait to be accepted: all queues of a few hosts that reconnect at once. The kernel takes its
/// own limit (net.core.somaxconn) where that is lower.
const BACKLOG: i32 = 4096;

/// A listening socket of the current core.
pub struct UringListener {
    reactor: Reactor,
    socket: Rc<OwnedFd>,
    local: SocketAddr,
    /// The accept that is with the kernel. It outlives the future that asked for it, so that a connection is never
    /// accepted for nobody.
    accepting: RefCell<Option<Operation>>,
}

impl UringListener {
    pub(crate) fn bind(address: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?; // sets SO_REUSEADDR
        // SAFETY: no pointers. Listening again on a listening socket changes its backlog.
        if unsafe { libc::listen(listener.as_raw_fd(), BACKLOG) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let local = listener.local_addr()?;
        let socket = Rc::new(OwnedFd::from(listener));
        Ok(Self { reactor: Reactor::current(), socket, local, accepting: RefCell::default() })
    }

    pub(crate) fn local_address(&self) -> SocketAddr {
        self.local
    }

    pub(crate) async fn accept(&self) -> io::Result<UringStream> {
        let completion = poll_fn(|cx| {
            let mut accepting = self.accepting.borrow_mut();
            let operation = accepting.get_or_insert_with(|| self.start());
            let result = Pin::new(operation).poll(cx);
            if result.is_ready() {
                *accepting = None;
            }
            result
        })
        .await;
        let descriptor = completion.value()?;
        // SAFETY: the kernel has just made this descriptor for us and nobody else knows it.
        let socket = unsafe { OwnedFd::from_raw_fd(descriptor as i32) };
        UringStream::new(socket)
    }

    fn start(&self) -> Operation {
        let call = Call::Accept { listener: self.socket.as_raw_fd() };
        let owner = Owner::Socket(self.socket.clone());
        // SAFETY: the call points to nothing.
        unsafe { self.reactor.start(call, owner, Nature::Open, Resources::Accept) }
    }
}

impl std::fmt::Debug for UringListener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "UringListener({})", self.local)
    }
}
