//! Processes that this one starts, and that end with it, however it ends.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Starts a program. The kernel kills it when the thread that calls this ends: it must be one that lives as long as the process.
/// `inherited` stays open in it, under the same number.
pub(crate) fn spawn(command: &mut Command, inherited: Option<BorrowedFd<'_>>) -> io::Result<Child> {
    let parent = std::process::id();
    let inherited = inherited.map(|fd| fd.as_raw_fd());
    let prepare = move || {
        // SAFETY: plain system calls without pointers.
        let (is_bound, parent_now) = unsafe { (libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL), libc::getppid()) };
        if is_bound != 0 {
            return Err(io::Error::last_os_error());
        }
        // It may have ended before it was bound to.
        if u32::try_from(parent_now) != Ok(parent) {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
        // SAFETY: as above; the descriptor is open as long as the call to `spawn` lasts.
        if inherited.is_some_and(|fd| unsafe { libc::fcntl(fd, libc::F_SETFD, 0) } != 0) {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    };
    // SAFETY: between fork and exec it makes system calls only: no allocation, no lock.
    unsafe { command.pre_exec(prepare) };
    command.spawn()
}

/// Sends a signal to one whose end was not seen yet: until then its number is nobody else's.
pub(crate) fn send_signal(child: &Child, number: libc::c_int) {
    // SAFETY: a plain system call. It may have ended: then nobody hears it.
    unsafe { libc::kill(child.id() as libc::pid_t, number) };
}

/// Ends of children.
pub(crate) struct Ends(Signal);

impl Ends {
    /// To be made before the first child is.
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self(signal(SignalKind::child())?))
    }

    /// Resolves when the kernel says that it has ended: not when it is stopped, or silent.
    pub(crate) async fn of(&mut self, child: &mut Child) -> io::Result<ExitStatus> {
        loop {
            if let Some(status) = child.try_wait()? {
                return Ok(status);
            }
            self.0.recv().await;
        }
    }
}
