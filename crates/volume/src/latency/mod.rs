//! Where the time of I/O goes: measured for each command, always.
//!
//! ```text
//!   header      called     its turn      device      durable,       answer with
//!   received      │          │           asked       or read        the kernel
//!      │ receive  │  admit   │   queue     │   device   │    send      │
//!      ├──────────┼──────────┼─────────────┼────────────┼──────────────┤
//! ```
//!
//! | stage | ends when | what takes long in it |
//! |---|---|---|
//! | receive | the volume is asked | data on its way from the host, a limit of the volume, a core that has taken on all it may |
//! | admit | it is the command's turn | overlapping commands, a snapshot being taken, another core |
//! | queue | the device is asked | the record before it, space that is being cleaned, a part of a block that is read first |
//! | device | it is durable, or read and verified | the device |
//! | send | the kernel has the answer | a host that does not read, a core with much to do |
//!
//! A core keeps, of all its volumes, a [`Histogram`] per door, class of operation and stage, and of each volume sums and
//! the slowest commands of the last minutes (its flight recorder). All of it belongs to the core: nothing is shared,
//! nothing is locked, and the clock is read three times per command. Who wants to know asks each core.

mod flight;
mod histogram;
mod moments;
mod recorder;
mod unsent;

pub use flight::{Answered, Class, Door, Flight, Operation, SlowIo, Stage, StageTimes};
pub use histogram::{BUCKETS, Histogram, bucket_bound};
pub use moments::Timed;
pub(crate) use moments::{Moments, note};
pub(crate) use recorder::Recorder;
pub use recorder::{ClassTotals, Latencies, VolumeLatency};
pub use unsent::Unsent;
