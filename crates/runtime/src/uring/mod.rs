//! The kernel's backend: one ring and one reactor per core.
//!
//! ```text
//!  another core, a tokio thread          this core's thread
//!  ────────────────────────────          ─────────────────────────────────────────────────────────
//!   wake, spawn_on ──► Mailbox ────────►  turn:  messages → timers → ready tasks → end of the turn
//!   (eventfd only if it sleeps)                  → one io_uring_enter: submit all, reap all, sleep
//! ```
//!
//! - `reactor`: what is with the kernel, and the one system call of a turn. `turn`: the loop that makes it.
//! - `call`: what is asked of the kernel. `operation`: what is under way; owns the buffers until the kernel is done with them.
//! - `receive`: the buffers that the kernel picks from when bytes arrive, so that idle connections hold none.
//! - `ring`, `poller`: how the kernel is asked, by io_uring; by epoll of a core that is [lent](Lent) to the threads that wait for it. `fit`: which of those may have it.
//! - `busy_poll`: whether a core looks before it sleeps.
//! - `mailbox`: what others ask of a core. `cores`: threads, `block_on`. `device`, `stream`, `listener`: the surface.
//! - [`record`]: device writes and syncs as a file, for the power-loss proof.

mod busy_poll;
mod call;
mod cores;
mod device;
mod fit;
mod gather;
mod lent;
mod listener;
mod mailbox;
mod open;
mod operation;
mod poller;
mod reactor;
mod receive;
pub mod record;
mod ring;
mod stream;
mod turn;

pub use busy_poll::BUSY_POLL;
pub use cores::{Cores, Options, UringCoreHandle, block_on, block_on_with};
pub use device::UringDevice;
pub use lent::Lent;
pub use listener::UringListener;
pub(crate) use mailbox::wake_remote;
pub(crate) use reactor::Reactor;
pub use reactor::{Counters, counters};
pub use stream::{UringDetached, UringStream};

/// A random number from the operating system.
pub(crate) fn random_u64() -> u64 {
    let mut bytes = [0u8; 8];
    // SAFETY: the pointer and length are of `bytes`.
    let got = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    assert_eq!(got, bytes.len() as isize, "getrandom gives eight bytes once the system has booted");
    u64::from_ne_bytes(bytes)
}

/// Wall time in nanoseconds since 1970.
pub(crate) fn wall_clock_ns() -> u64 {
    clock_ns(libc::CLOCK_REALTIME)
}

/// Time since boot, with the time the machine was suspended: a lease must not outlive its term because the
/// machine slept through it, as it could on CLOCK_MONOTONIC.
fn boot_clock_ns() -> u64 {
    clock_ns(libc::CLOCK_BOOTTIME)
}

fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a timespec of ours.
    let result = unsafe { libc::clock_gettime(clock, &mut time) };
    assert_eq!(result, 0, "the clock exists on every Linux");
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
