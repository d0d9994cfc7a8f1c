//! # runtime: the only floor that touches the kernel on the data path
//!
//! A small surface, two backends:
//!
//! ```text
//!   store, replication, volume, nvme, nbd … are written against this surface and nothing else
//!  ┌───────────────────────────────────────────────────────────────────────────────────────┐
//!  │ Device  TcpListener  TcpStream  now/sleep/timeout  spawn  turn_end  channels  IoBuf   │
//!  ├───────────────────────────────────────────┬───────────────────────────────────────────┤
//!  │ uring: one ring and one single-threaded   │ sim: many simulated cores in one thread,  │
//!  │ executor per core; the kernel             │ virtual time, faults, all from a seed     │
//!  └───────────────────────────────────────────┴───────────────────────────────────────────┘
//! ```
//!
//! **Promises.** One single-threaded reactor per core; tasks are `!Send`, never move, and share state with `Rc`
//! and `Cell`, so the data path takes no lock. After warm-up nothing here allocates: tasks, buffers and operations
//! come from pools. A buffer handed to an operation belongs to the operation until it ends, whoever drops the future.
//! Everything that happens in the sim backend follows from its seed.
//!
//! **Never.** No policy: no retry, no timeout of its own, no ordering between operations (a caller that needs
//! write A before write B awaits A). No hidden thread.
//!
//! Main types: [`Device`], [`TcpStream`], [`IoBuf`] and [`SharedBuf`], [`CoreHandle`]; [`uring::Cores`] and
//! [`sim::World`] start the two backends.
//!
//! Which backend serves a call is known from the core that the calling task runs on; the surface types are enums
//! over both, so nothing above is generic over a runtime.

pub mod buf;
pub mod channel;
mod core;
mod device;
pub mod futex;
mod net;
pub mod sim;
mod task;
mod time;
pub mod uring;

pub use buf::{IoBuf, SharedBuf};
pub use core::{CoreHandle, CoreKey, core_key, random_u64};
pub use device::{Device, DeviceInfo};
pub use net::{DetachedStream, MAX_SEND_PARTS, TcpListener, TcpStream};
pub use task::{TaskHandle, background_step, spawn, turn_end, wake_all_tasks, yield_now};
pub use time::{Elapsed, Instant, now, sleep, sleep_until, timeout, wall_clock_ns};
