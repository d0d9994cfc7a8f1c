//! What the kernel is asked for, however it is asked.

use super::receive::Size;
use io_uring::types::Fd;
use io_uring::{opcode, squeue};
use std::os::fd::RawFd;

/// One operation. What it points to lives until it has ended.
pub(super) enum Call {
    /// Of a socket, to the address.
    Connect { socket: RawFd, address: *const libc::sockaddr, len: libc::socklen_t },
    /// The next connection of a listener.
    Accept { listener: RawFd },
    /// What comes next, into a buffer of this size.
    Receive { socket: RawFd, size: Size },
    /// So many bytes, or fewer.
    ReceiveInto { socket: RawFd, to: *mut u8, len: u32 },
    /// All parts, or some.
    Send { socket: RawFd, header: *const libc::msghdr },
    /// Of a device: by a ring alone.
    Device(squeue::Entry),
}

impl Call {
    /// As an entry of a ring.
    ///
    /// # Safety
    /// What it points to is there.
    pub(super) unsafe fn entry(self) -> squeue::Entry {
        let flags = libc::MSG_NOSIGNAL | libc::MSG_WAITALL;
        match self {
            Self::Connect { socket, address, len } => opcode::Connect::new(Fd(socket), address, len).build(),
            Self::Accept { listener } => {
                let (address, len) = (std::ptr::null_mut(), std::ptr::null_mut());
                opcode::Accept::new(Fd(listener), address, len).flags(libc::SOCK_CLOEXEC).build()
            }
            Self::Receive { socket, size } => opcode::Recv::new(Fd(socket), std::ptr::null_mut(), 0)
                .buf_group(size.group())
                .build()
                .flags(squeue::Flags::BUFFER_SELECT),
            Self::ReceiveInto { socket, to, len } => {
                opcode::Recv::new(Fd(socket), to, len).flags(libc::MSG_WAITALL).build()
            }
            Self::Send { socket, header } => {
                // SAFETY: vouched for by the caller; a header's vectors are where it says.
                let (vectors, count) = unsafe { ((*header).msg_iov, (*header).msg_iovlen) };
                if count == 1 {
                    // SAFETY: there is one.
                    let one = unsafe { *vectors };
                    opcode::Send::new(Fd(socket), one.iov_base.cast(), one.iov_len as u32).flags(flags).build()
                } else {
                    opcode::SendMsg::new(Fd(socket), header).flags(flags as u32).build()
                }
            }
            Self::Device(entry) => entry,
        }
    }
}
