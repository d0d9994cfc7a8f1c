//! The simulated backend: whole clusters in one thread, in virtual time, with faults, from a seed.
//!
//! ```text
//!   World ── time, events, whose turn it is, trace hash
//!    ├── SimNode ── cores (executor + timers each), clocks; crash, kill, restart, pause
//!    │      └── SimDisk ── sparse contents, unsynced writes, faults
//!    └── network ── links (delay, cut), connections (in order, bounded, reset, half-open)
//! ```
//!
//! **Time.** A turn of a core takes a microsecond or so of virtual time and sees one instant; operations take what
//! their disk or link draws. Time jumps to the next event when nothing can run.
//! **Chance.** Every choice is drawn from generators made from the seed, one per purpose and place.
//! **Crash.** Everything of a node that was in memory is gone; its disks keep what was durable, and of the rest any
//! subset of 512-byte sectors.
//!
//! A run is driven from outside: `World::run_until`, `run_for` and `run_on` go on, and between them the driver breaks
//! what it likes.

mod clock;
mod contents;
mod core;
mod device;
mod disk;
mod network;
mod node;
mod random;
mod stream;
#[cfg(test)]
mod tests;
mod trace;
mod world;

pub use self::core::{SimCore, SimCoreHandle};
pub use device::SimDevice;
pub use disk::{DiskFaults, DiskOptions, Latency};
pub use network::LinkOptions;
pub use node::{DiskImage, NodeOptions, SimDisk, SimNode};
pub use random::{PerMillion, Random};
pub use stream::{SimDetached, SimListener, SimStream};
pub use trace::{EventKind, TraceEvent, TraceSink};
pub use world::{Stopped, World};
