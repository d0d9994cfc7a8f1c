//! Connections.

use super::call::Call;
use super::gather::Gather;
use super::operation::{Completion, Nature, Operation, Owner, Resources};
use super::reactor::Reactor;
use super::receive::Size;
use crate::buf::{IoBuf, SharedBuf};
use crate::task::yield_now;
use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;

/// Full receive buffers that one connection is given before others have their turn: 1 MiB, what one record takes.
const RECEIVES_IN_A_ROW_MAX: usize = 8;

/// Sends before the other tasks have their turn: one who only sends, to a peer that keeps up, would never wait.
const SENDS_AT_ONCE_MAX: u32 = 32;

/// Seconds of silence after which the kernel asks whether the other end is there, seconds between questions, and how
/// many go unanswered before the connection has failed: two minutes, after which a host that lost its power holds
/// nothing here any more.
const KEEP_ALIVE: [(libc::c_int, libc::c_int); 3] =
    [(libc::TCP_KEEPIDLE, 60), (libc::TCP_KEEPINTVL, 10), (libc::TCP_KEEPCNT, 6)];

/// A connection of the current core.
#[derive(Clone)]
pub struct UringStream(Rc<Inner>);

struct Inner {
    reactor: Reactor,
    socket: Rc<OwnedFd>,
    peer: SocketAddr,
    local: SocketAddr,
    /// The receive that is with the kernel. It outlives the future that asked for it, so that a receive given up
    /// (by a timeout, say) loses no bytes: the next one takes them.
    receiving: RefCell<Option<Operation>>,
    /// Which buffers it takes, or the next one is to take.
    receive_size: Cell<Size>,
    /// It receives whatever the core's tasks hold.
    goes_on: Cell<bool>,
    /// Bytes received and not yet handed out.
    left_over: RefCell<Option<SharedBuf>>,
    /// Full buffers received one after the other without a look at anything else.
    in_a_row: Cell<usize>,
    /// Sends begun since a task was made to wait.
    sends_at_once: Cell<u32>,
    receive_busy: Cell<bool>,
    send_busy: Cell<bool>,
}

impl UringStream {
    /// Takes a connected socket to the current core.
    pub(super) fn new(socket: OwnedFd) -> io::Result<Self> {
        let stream = TcpStream::from(socket);
        stream.set_nodelay(true)?;
        keep_alive(&stream)?;
        let (peer, local) = (stream.peer_addr()?, stream.local_addr()?);
        Ok(Self::with(UringDetached { socket: OwnedFd::from(stream), peer, local, left_over: None }))
    }

    fn with(detached: UringDetached) -> Self {
        Self(Rc::new(Inner {
            reactor: Reactor::current(),
            socket: Rc::new(detached.socket),
            peer: detached.peer,
            local: detached.local,
            receiving: RefCell::default(),
            receive_size: Cell::default(),
            goes_on: Cell::default(),
            left_over: RefCell::new(detached.left_over),
            in_a_row: Cell::new(0),
            sends_at_once: Cell::new(0),
            receive_busy: Cell::new(false),
            send_busy: Cell::new(false),
        }))
    }

    pub(crate) async fn connect(address: SocketAddr) -> io::Result<Self> {
        let family = if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
        // SAFETY: no pointers; the descriptor is checked and owned from here on.
        let socket = unsafe {
            let fd = libc::socket(family, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0);
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            Rc::new(OwnedFd::from_raw_fd(fd))
        };
        let (storage, len) = encode_address(address);
        let pointer: *const libc::sockaddr = std::ptr::from_ref(&*storage).cast();
        let call = Call::Connect { socket: socket.as_raw_fd(), address: pointer, len };
        let owner = Owner::Socket(socket.clone());
        // SAFETY: the address is in a box that the operation owns.
        let operation = unsafe { Reactor::current().start(call, owner, Nature::Open, Resources::Address(storage)) };
        operation.await.value()?;
        let socket = Rc::into_inner(socket).expect("the operation has let go of it");
        Self::new(socket)
    }

    pub(crate) fn peer_address(&self) -> SocketAddr {
        self.0.peer
    }

    pub(crate) fn local_address(&self) -> SocketAddr {
        self.0.local
    }

    fn fd(&self) -> RawFd {
        self.0.socket.as_raw_fd()
    }

    /// # Safety
    /// As [`Reactor::start`], for this connection's descriptor.
    unsafe fn start(&self, call: Call, resources: Resources) -> Operation {
        let owner = Owner::Socket(self.0.socket.clone());
        // SAFETY: vouched for by the caller.
        unsafe { self.0.reactor.start(call, owner, Nature::Open, resources) }
    }

    pub(crate) fn receive_whatever_is_held(&self) {
        self.0.goes_on.set(true);
    }

    pub(crate) async fn recv(&self) -> io::Result<SharedBuf> {
        let _alone = Alone::enter(&self.0.receive_busy, "two receives at once on one connection");
        self.receive_some().await
    }

    /// What was left over, or what the pending receive brings, or what a new one does.
    async fn receive_some(&self) -> io::Result<SharedBuf> {
        loop {
            if let Some(bytes) = self.0.left_over.take() {
                return Ok(bytes);
            }
            if self.0.receiving.borrow().is_none() {
                if let Some(result) = self.receive_now() {
                    return result;
                }
                self.start_receive().await;
            }
            let completion = self.pending_receive().await;
            match completion.value() {
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {
                    self.0.reactor.found_no_buffer(self.0.receive_size.get());
                }
                Err(error) if is_passing(&error) => {}
                Err(error) => return Err(error),
                Ok(_) => match completion.resources {
                    Resources::Buffer(buf) => {
                        let size = self.0.receive_size.replace(Size::after(buf.len()));
                        let was_filled = buf.len() == size.bytes();
                        self.0.in_a_row.set(usize::from(was_filled));
                        if was_filled && size == Size::Small {
                            // More is there, and perhaps behind a full window the end: read on, so that whoever asks
                            // before he uses these bytes is told of it, as behind a large buffer.
                            *self.0.left_over.borrow_mut() = self.receive_now().and_then(Result::ok);
                        }
                        return Ok(buf.freeze());
                    }
                    _ => return Ok(IoBuf::new(0).freeze()), // the end of the stream
                },
            }
        }
    }

    /// After a full buffer: what else lies in the socket, at once, so that the whole of a burst is worked on in one
    /// turn and appended together. `None` if nothing does, or the others are to have their turn first.
    fn receive_now(&self) -> Option<io::Result<SharedBuf>> {
        let in_a_row = self.0.in_a_row.take();
        if !(1..RECEIVES_IN_A_ROW_MAX).contains(&in_a_row) {
            return None;
        }
        let mut buf = self.0.reactor.receive_rings().take_apart(self.0.goes_on.get())?;
        self.0.reactor.count(|counters| counters.inline_operations += 1);
        // SAFETY: pointer and length are of `buf`.
        let count = unsafe { libc::recv(self.fd(), buf.as_mut_ptr().cast(), buf.len(), libc::MSG_DONTWAIT) };
        let Ok(count) = usize::try_from(count) else {
            let error = io::Error::last_os_error();
            return if is_passing(&error) { None } else { Some(Err(error)) };
        };
        if count == buf.len() {
            self.0.in_a_row.set(in_a_row + 1);
        }
        buf.truncate(count);
        Some(Ok(buf.freeze()))
    }

    async fn start_receive(&self) {
        let wanted = self.0.receive_size.get();
        let goes_on = self.0.goes_on.get();
        let size = poll_fn(|cx| match self.0.reactor.receive_rings().ready_or_wait(wanted, goes_on, cx.waker()) {
            Some(size) => Poll::Ready(size),
            None => Poll::Pending,
        })
        .await;
        self.0.receive_size.set(size);
        let call = Call::Receive { socket: self.fd(), size };
        // SAFETY: the call points to nothing: the kernel picks a buffer of the ring's.
        let operation = unsafe { self.start(call, Resources::Receive) };
        *self.0.receiving.borrow_mut() = Some(operation);
    }

    async fn pending_receive(&self) -> Completion {
        poll_fn(|cx| {
            let mut receiving = self.0.receiving.borrow_mut();
            let operation = receiving.as_mut().expect("a receive is pending");
            let result = Pin::new(operation).poll(cx);
            if result.is_ready() {
                *receiving = None;
            }
            result
        })
        .await
    }

    pub(crate) async fn recv_exact(&self, mut buf: IoBuf) -> (io::Result<()>, IoBuf) {
        let _alone = Alone::enter(&self.0.receive_busy, "two receives at once on one connection");
        let mut done = 0;
        while done < buf.len() {
            if self.0.left_over.borrow().is_some() || self.0.receiving.borrow().is_some() {
                let bytes = match self.receive_some().await {
                    Ok(bytes) if bytes.is_empty() => return (Err(io::ErrorKind::UnexpectedEof.into()), buf),
                    Ok(bytes) => bytes,
                    Err(error) => return (Err(error), buf),
                };
                let count = bytes.len().min(buf.len() - done);
                buf[done..done + count].copy_from_slice(&bytes[..count]);
                if count < bytes.len() {
                    *self.0.left_over.borrow_mut() = Some(bytes.slice(count..bytes.len()));
                }
                done += count;
                continue;
            }
            let left = &mut buf[done..];
            let call = Call::ReceiveInto { socket: self.fd(), to: left.as_mut_ptr(), len: left.len() as u32 };
            // SAFETY: the call points into the buffer that the operation owns.
            let completion = unsafe { self.start(call, Resources::Buffer(buf)) }.await;
            let value = completion.value();
            let Resources::Buffer(back) = completion.resources else { unreachable!("as it was given") };
            buf = back;
            match value {
                Ok(0) => return (Err(io::ErrorKind::UnexpectedEof.into()), buf),
                Ok(count) => done += count,
                Err(error) if is_passing(&error) => {}
                Err(error) => return (Err(error), buf),
            }
        }
        (Ok(()), buf)
    }

    pub(crate) async fn send(&self, parts: &mut Vec<SharedBuf>) -> io::Result<()> {
        let _alone = Alone::enter(&self.0.send_busy, "two sends at once on one connection");
        if self.0.sends_at_once.replace(self.0.sends_at_once.get() + 1) == SENDS_AT_ONCE_MAX {
            self.0.sends_at_once.set(0);
            yield_now().await;
        }
        let mut gather = self.0.reactor.take_gather();
        gather.load(parts);
        let mut result = self.send_now(&mut gather);
        while result.is_ok() && gather.left_bytes() > 0 {
            let call = Call::Send { socket: self.fd(), header: gather.header() };
            // SAFETY: the call points to parts, vectors and a header that the operation owns, in a box that does
            // not move.
            let completion = unsafe { self.start(call, Resources::Gather(gather)) }.await;
            let value = completion.value();
            let Resources::Gather(back) = completion.resources else { unreachable!("as it was given") };
            gather = back;
            match value {
                Ok(count) => gather.advance(count),
                Err(error) if is_passing(&error) => {}
                Err(error) => result = Err(error),
            }
        }
        gather.unload(parts);
        self.0.reactor.give_gather(gather);
        result
    }

    /// Sends what the socket has room for, which is nearly always all. Through the ring it would be the same work in
    /// the next enter, and its completion would end that enter, so that a core that has nothing else to do enters
    /// twice.
    fn send_now(&self, gather: &mut Gather) -> io::Result<()> {
        if gather.left_bytes() == 0 {
            return Ok(());
        }
        self.0.reactor.count(|counters| counters.inline_operations += 1);
        // SAFETY: the header names vectors and parts that the gather owns.
        let count = unsafe { libc::sendmsg(self.fd(), gather.header(), libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT) };
        match usize::try_from(count) {
            Ok(count) => gather.advance(count),
            Err(_) => {
                let error = io::Error::last_os_error();
                if !is_passing(&error) {
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    pub(crate) fn has_ended(&self) -> bool {
        let mut poll = libc::pollfd { fd: self.0.socket.as_raw_fd(), events: libc::POLLRDHUP, revents: 0 };
        // SAFETY: one pollfd of ours. POLLERR and POLLHUP are always reported: a reset and a failed connection show
        // there, whether or not their error was fetched before.
        let count = unsafe { libc::poll(&mut poll, 1, 0) };
        count > 0 && poll.revents & (libc::POLLRDHUP | libc::POLLERR | libc::POLLHUP) != 0
    }

    pub(crate) fn shutdown(&self) {
        // SAFETY: no pointers. It fails only if the connection has ended already, which is what is wanted.
        let _ = unsafe { libc::shutdown(self.0.socket.as_raw_fd(), libc::SHUT_RDWR) };
    }

    pub(crate) fn detach(self) -> UringDetached {
        let inner = Rc::into_inner(self.0).expect("a connection with clones can not be detached");
        assert!(inner.receiving.borrow().is_none(), "a receive is under way: the connection can not be detached");
        let socket = Rc::into_inner(inner.socket).expect("an operation is under way: it can not be detached");
        UringDetached { socket, peer: inner.peer, local: inner.local, left_over: inner.left_over.into_inner() }
    }
}

impl std::fmt::Debug for UringStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "UringStream({} to {})", self.0.local, self.0.peer)
    }
}

/// A connection between two cores.
#[derive(Debug)]
pub struct UringDetached {
    socket: OwnedFd,
    peer: SocketAddr,
    local: SocketAddr,
    left_over: Option<SharedBuf>,
}

impl UringDetached {
    pub(crate) fn attach(self) -> UringStream {
        UringStream::with(self)
    }
}

/// One at a time: says so loudly instead of mixing the bytes of two.
struct Alone<'a>(&'a Cell<bool>);

impl<'a> Alone<'a> {
    fn enter(busy: &'a Cell<bool>, complaint: &str) -> Self {
        assert!(!busy.replace(true), "{complaint}");
        Self(busy)
    }
}

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

/// Errors that say nothing of the connection: a signal, or no receive buffer at that instant.
fn is_passing(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::ENOBUFS))
}

/// The address as the kernel reads it.
fn encode_address(address: SocketAddr) -> (Box<libc::sockaddr_storage>, libc::socklen_t) {
    // SAFETY: zero bytes are a valid storage.
    let mut storage: Box<libc::sockaddr_storage> = Box::new(unsafe { std::mem::zeroed() });
    let pointer = std::ptr::from_mut(&mut *storage);
    let len = match address {
        SocketAddr::V4(v4) => {
            // SAFETY: the storage is large and aligned enough for every address.
            let to = unsafe { &mut *pointer.cast::<libc::sockaddr_in>() };
            to.sin_family = libc::AF_INET as libc::sa_family_t;
            to.sin_port = v4.port().to_be();
            to.sin_addr.s_addr = u32::from_ne_bytes(v4.ip().octets());
            size_of::<libc::sockaddr_in>()
        }
        SocketAddr::V6(v6) => {
            // SAFETY: as above.
            let to = unsafe { &mut *pointer.cast::<libc::sockaddr_in6>() };
            to.sin6_family = libc::AF_INET6 as libc::sa_family_t;
            to.sin6_port = v6.port().to_be();
            to.sin6_addr.s6_addr = v6.ip().octets();
            to.sin6_flowinfo = v6.flowinfo();
            to.sin6_scope_id = v6.scope_id();
            size_of::<libc::sockaddr_in6>()
        }
    };
    (storage, len as libc::socklen_t)
}

/// Has the kernel end the connection when its other end is gone without a word (tcp(7)).
fn keep_alive(stream: &TcpStream) -> io::Result<()> {
    let mut options = vec![(libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1)];
    options.extend(KEEP_ALIVE.map(|(name, value)| (libc::IPPROTO_TCP, name, value)));
    for (level, name, value) in options {
        let (pointer, len) = (std::ptr::from_ref(&value), size_of_val(&value) as libc::socklen_t);
        // SAFETY: pointer and length are of `value`, which lives through the call.
        if unsafe { libc::setsockopt(stream.as_raw_fd(), level, name, pointer.cast(), len) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_asked_whether_it_lives() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        let stream = TcpStream::connect(listener.local_addr().expect("bound")).expect("connected");
        let read = |level, name| {
            let (mut value, mut len) = (0_i32, size_of::<i32>() as libc::socklen_t);
            let pointer = std::ptr::from_mut(&mut value).cast();
            // SAFETY: pointers and length are of the two locals.
            let result = unsafe { libc::getsockopt(stream.as_raw_fd(), level, name, pointer, &raw mut len) };
            assert_eq!(result, 0, "{}", io::Error::last_os_error());
            value
        };
        assert_eq!(read(libc::SOL_SOCKET, libc::SO_KEEPALIVE), 0, "nobody else sets it");
        keep_alive(&stream).expect("the options are known");
        assert_eq!(read(libc::SOL_SOCKET, libc::SO_KEEPALIVE), 1);
        for (name, value) in KEEP_ALIVE {
            assert_eq!(read(libc::IPPROTO_TCP, name), value);
        }
    }
}
