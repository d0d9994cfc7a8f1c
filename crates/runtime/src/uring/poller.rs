//! The kernel by epoll: for a core that goes from thread to thread, which a ring of io_uring can not do: what one thread has asked of
//! it ends by that thread's work, and with that thread.
//!
//! ```text
//!   start ──► a source's read or write waits ──► enter: what epoll says is ready is done, by a system call each
//! ```
//!
//! A source is told of once, when it becomes ready (edge-triggered): it stays so until a call finds nothing, or less than there was room
//! for.

use super::call::Call;
use super::mailbox::Mailbox;
use super::reactor::Wait;
use super::receive::ReceiveRings;
use crate::buf::IoBuf;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::rc::{Rc, Weak};
use std::time::Duration;

/// Events of one call.
const EVENTS_MAX: usize = 256;
const READS: u32 = (libc::EPOLLIN | libc::EPOLLRDHUP | libc::EPOLLHUP | libc::EPOLLERR) as u32;
const WRITES: u32 = (libc::EPOLLOUT | libc::EPOLLHUP | libc::EPOLLERR) as u32;
/// The other end sends no more: a short read is not the last that brings something.
const ENDS: u32 = (libc::EPOLLRDHUP | libc::EPOLLHUP | libc::EPOLLERR) as u32;

/// How an operation ended.
pub(super) struct Ended {
    pub(super) index: u32,
    pub(super) result: i32,
    pub(super) received: Option<IoBuf>,
}

struct Pending {
    index: u32,
    call: Call,
}

/// A socket.
struct Source {
    socket: Weak<OwnedFd>,
    readable: bool,
    writable: bool,
    ends: bool,
    read: Option<Pending>,
    write: Option<Pending>,
}

impl Source {
    fn is_due(&self) -> bool {
        self.readable && self.read.is_some() || self.writable && self.write.is_some()
    }
}

/// See the module.
pub(super) struct Poller {
    epoll: OwnedFd,
    /// By descriptor.
    sources: BTreeMap<RawFd, Source>,
    /// Sources that were due when something was asked of them.
    due: Vec<RawFd>,
    /// What ended as it began; and the list's room while nothing did.
    ended: Vec<Ended>,
    events: Vec<libc::epoll_event>,
}

impl Poller {
    pub(super) fn new(mailbox: &'static Mailbox) -> io::Result<Self> {
        // SAFETY: no pointers; the descriptor is checked and owned from here on.
        let epoll = unsafe {
            let fd = libc::epoll_create1(libc::EPOLL_CLOEXEC);
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            OwnedFd::from_raw_fd(fd)
        };
        let events = vec![libc::epoll_event { events: 0, u64: 0 }; EVENTS_MAX];
        let mut this = Self { epoll, sources: BTreeMap::new(), due: Vec::new(), ended: Vec::new(), events };
        // Each time it rings is told, and nobody reads how often it has.
        this.register(mailbox.bell(), (libc::EPOLLIN | libc::EPOLLET) as u32)?;
        match this.ask(Wait::No) {
            Ok(_) => Ok(this),
            Err(error) => {
                let what = format!("epoll_pwait2 does not work: Linux 5.11 or newer is needed ({error})");
                Err(io::Error::new(error.kind(), what))
            }
        }
    }

    fn register(&self, fd: RawFd, events: u32) -> io::Result<()> {
        let mut event = libc::epoll_event { events, u64: fd as u64 };
        let control = |operation, event: &mut libc::epoll_event| {
            // SAFETY: the event lives through the call.
            match unsafe { libc::epoll_ctl(self.epoll.as_raw_fd(), operation, fd, event) } {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            }
        };
        match control(libc::EPOLL_CTL_ADD, &mut event) {
            // The socket has another owner than before; this tells anew what it is ready for.
            Err(error) if error.raw_os_error() == Some(libc::EEXIST) => control(libc::EPOLL_CTL_MOD, &mut event),
            other => other,
        }
    }

    /// Begins an operation of a socket; it has ended when an [`enter`](Self::enter) says so.
    pub(super) fn start(&mut self, call: Call, index: u32, socket: &Rc<OwnedFd>) {
        let fd = socket.as_raw_fd();
        let begun = match call {
            Call::Connect { address, len, .. } => connect(fd, address, len),
            Call::Accept { .. } => set_blocking(fd, false).map(|()| true),
            _ => Ok(true),
        };
        match begun.and_then(|goes_on| self.know(socket).map(|()| goes_on)) {
            Ok(true) => {}
            Ok(false) => return self.ended.push(Ended { index, result: 0, received: None }),
            Err(error) => {
                let result = -error.raw_os_error().unwrap_or(libc::EIO);
                return self.ended.push(Ended { index, result, received: None });
            }
        }
        let source = self.sources.get_mut(&fd).expect("it is known");
        let is_read = matches!(call, Call::Receive { .. } | Call::ReceiveInto { .. } | Call::Accept { .. });
        let place = if is_read { &mut source.read } else { &mut source.write };
        assert!(place.is_none(), "one read and one write of a socket at a time");
        *place = Some(Pending { index, call });
        if source.is_due() {
            self.due.push(fd);
        }
    }

    /// A descriptor's number is used again: the socket is who is known by it, or is registered.
    fn know(&mut self, socket: &Rc<OwnedFd>) -> io::Result<()> {
        let fd = socket.as_raw_fd();
        let is_known = |source: &Source| std::ptr::eq(source.socket.as_ptr(), Rc::as_ptr(socket));
        if self.sources.get(&fd).is_some_and(is_known) {
            return Ok(());
        }
        self.register(fd, READS | WRITES | libc::EPOLLET as u32)?;
        self.sources.retain(|_, source| source.socket.strong_count() > 0);
        let socket = Rc::downgrade(socket);
        let source = Source { socket, readable: false, writable: false, ends: false, read: None, write: None };
        self.sources.insert(fd, source);
        Ok(())
    }

    /// Nobody waits for it any more, and it is not begun again.
    pub(super) fn cancel(&mut self, index: u32) {
        self.ended.retain(|ended| ended.index != index);
        for source in self.sources.values_mut() {
            for place in [&mut source.read, &mut source.write] {
                if place.as_ref().is_some_and(|pending| pending.index == index) {
                    *place = None;
                    return;
                }
            }
        }
    }

    /// Sleeps as `wait` says unless something is due, and does what is ready. Returns what has ended; the list comes
    /// [back](Self::give_back).
    pub(super) fn enter(&mut self, wait: Wait, receive: &RefCell<ReceiveRings>) -> Vec<Ended> {
        let wait = if self.is_due() { Wait::No } else { wait };
        let count = self.wait(wait);
        let mut due = std::mem::take(&mut self.due);
        for event in &self.events[..count] {
            let (fd, events) = (event.u64 as RawFd, event.events);
            if let Some(source) = self.sources.get_mut(&fd) {
                source.readable |= events & READS != 0;
                source.writable |= events & WRITES != 0;
                source.ends |= events & ENDS != 0;
                due.push(fd);
            }
        }
        let mut ended = std::mem::take(&mut self.ended);
        for fd in due.drain(..) {
            let Some(source) = self.sources.get_mut(&fd) else { continue };
            ended.extend(source.read(receive));
            ended.extend(source.write());
        }
        self.due = due;
        ended
    }

    /// Whether an enter would find something without an event.
    fn is_due(&self) -> bool {
        !self.due.is_empty() || !self.ended.is_empty()
    }

    /// The same of what somebody else waits for: something to be sent, or that has ended.
    pub(super) fn has_to_act(&self) -> bool {
        let sends = |fd| self.sources.get(fd).is_some_and(|source| source.writable && source.write.is_some());
        !self.ended.is_empty() || self.due.iter().any(sends)
    }

    /// The list of an enter, empty again.
    pub(super) fn give_back(&mut self, list: Vec<Ended>) {
        if self.ended.is_empty() {
            self.ended = list;
        }
    }

    fn wait(&mut self, wait: Wait) -> usize {
        match self.ask(wait) {
            Ok(count) => count,
            Err(error) if error.raw_os_error() == Some(libc::EINTR) => 0,
            Err(error) => panic!("epoll_pwait2: {error}"),
        }
    }

    fn ask(&mut self, wait: Wait) -> io::Result<usize> {
        let time = match wait {
            Wait::No => Some(Duration::ZERO),
            Wait::Forever => None,
            Wait::For(time) => Some(time),
        };
        let time = time.map(|time| libc::timespec {
            tv_sec: time.as_secs().min(i64::MAX as u64) as libc::time_t,
            tv_nsec: time.subsec_nanos().into(),
        });
        let time = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        let (epoll, events) = (self.epoll.as_raw_fd(), self.events.as_mut_ptr());
        let no_signals = std::ptr::null::<libc::sigset_t>();
        // Not the C library's: there a thread that is to be cancelled ends here, with the core in its hands.
        // SAFETY: there is room for so many events, and the time lives through the call.
        let count = unsafe { libc::syscall(libc::SYS_epoll_pwait2, epoll, events, EVENTS_MAX, time, no_signals, 0) };
        usize::try_from(count).map_err(|_| io::Error::last_os_error())
    }
}

impl Source {
    /// Does what it can of the read that waits; what has ended by it.
    fn read(&mut self, receive: &RefCell<ReceiveRings>) -> Option<Ended> {
        if !self.readable {
            return None;
        }
        let Pending { index, call } = self.read.as_ref()?;
        let index = *index;
        let mut buffer = None;
        let (count, room) = match *call {
            Call::Receive { socket, size } => {
                let buffer = buffer.insert(receive.borrow().take_of(size));
                // SAFETY: pointer and length are of `buffer`.
                let count = unsafe { libc::recv(socket, buffer.as_mut_ptr().cast(), buffer.len(), libc::MSG_DONTWAIT) };
                (count, buffer.len())
            }
            // SAFETY: whoever began it vouches for the memory.
            Call::ReceiveInto { socket, to, len } => {
                (unsafe { libc::recv(socket, to.cast(), len as usize, libc::MSG_DONTWAIT) }, len as usize)
            }
            Call::Accept { listener } => {
                let (address, len) = (std::ptr::null_mut(), std::ptr::null_mut());
                // SAFETY: no pointers.
                let accepted = unsafe { libc::accept4(listener, address, len, libc::SOCK_CLOEXEC) };
                (accepted as isize, 0)
            }
            Call::Connect { .. } | Call::Send { .. } | Call::Device(_) => unreachable!("that is no read"),
        };
        let result = result_of(count);
        if result == -libc::EAGAIN {
            self.readable = false;
            return None;
        }
        self.readable = result < 0 || result as usize >= room || self.ends;
        self.read = None;
        let received = buffer.filter(|_| result > 0).map(|mut buffer| {
            buffer.truncate(result as usize);
            buffer
        });
        Some(Ended { index, result, received })
    }

    fn write(&mut self) -> Option<Ended> {
        if !self.writable {
            return None;
        }
        let Pending { index, call } = self.write.as_ref()?;
        let index = *index;
        let result = match *call {
            Call::Connect { socket, .. } => connected(socket),
            Call::Send { socket, header } => {
                // SAFETY: whoever began it vouches for the header and what it names.
                result_of(unsafe { libc::sendmsg(socket, header, libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT) })
            }
            _ => unreachable!("that is no write"),
        };
        if result == -libc::EAGAIN {
            self.writable = false;
            return None;
        }
        self.write = None;
        Some(Ended { index, result, received: None })
    }
}

/// What a system call gave, or its error number, negated.
fn result_of(count: isize) -> i32 {
    if count >= 0 { count as i32 } else { -io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO) }
}

/// Whether calls of the descriptor block that do not say so themselves.
fn set_blocking(fd: RawFd, blocks: bool) -> io::Result<()> {
    // SAFETY: no pointers.
    let is_set = unsafe {
        let flags = libc::fcntl(fd, libc::F_GETFL);
        let wanted = if blocks { flags & !libc::O_NONBLOCK } else { flags | libc::O_NONBLOCK };
        flags >= 0 && libc::fcntl(fd, libc::F_SETFL, wanted) == 0
    };
    if is_set { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Begins to connect. `false`: it is connected.
fn connect(fd: RawFd, address: *const libc::sockaddr, len: libc::socklen_t) -> io::Result<bool> {
    set_blocking(fd, false)?;
    // SAFETY: whoever began it vouches for the address.
    if unsafe { libc::connect(fd, address, len) } == 0 {
        return set_blocking(fd, true).map(|()| false);
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EINPROGRESS | libc::EINTR) => Ok(true),
        _ => Err(error),
    }
}

/// What became of a connect; `EAGAIN`: nothing yet.
fn connected(fd: RawFd) -> i32 {
    let mut error: libc::c_int = 0;
    let mut len = size_of_val(&error) as libc::socklen_t;
    // SAFETY: pointers and length are of the two locals.
    let asked =
        unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_ERROR, (&raw mut error).cast(), &raw mut len) };
    if asked != 0 {
        return result_of(-1);
    }
    if error != 0 {
        return -error;
    }
    // An event may be of another socket that had this number, and that a process between fork and exec held.
    // SAFETY: a sockaddr_storage of zero bytes is one; pointers and length are of the locals.
    let has_peer = unsafe {
        let mut peer: libc::sockaddr_storage = std::mem::zeroed();
        let mut len = size_of_val(&peer) as libc::socklen_t;
        libc::getpeername(fd, (&raw mut peer).cast(), &raw mut len)
    };
    match (result_of(has_peer as isize), set_blocking(fd, true)) {
        (0, Ok(())) => 0,
        (0, Err(error)) => -error.raw_os_error().unwrap_or(libc::EIO),
        (error, _) if error == -libc::ENOTCONN => -libc::EAGAIN,
        (error, _) => error,
    }
}
