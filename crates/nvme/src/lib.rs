//! # nvme: NVMe over TCP
//!
//! A front door: speaks a block protocol, knows volumes and nothing of the cluster behind them.
//!
//! ```text
//!   wire     every structure on the wire: layout, encode, decode; a byte stream cut into PDUs, PDUs made into sends
//!     │
//!   machine  the controller as a protocol machine: bytes in, commands out; no I/O, no clock
//!     │         ╲
//!   serve        host   an initiator for tests, the simulator and the benchmark
//!     connections on the runtime's cores, commands on volumes
//! ```
//!
//! **Promises.** A write is answered when it is durable (VWC = 0). A command is executed only if its connection was
//! alive when it was admitted. A header that breaks a rule ends its connection with a reason; a payload that fails its
//! digest ends its command alone, to be retried. Commands and payload are bounded per core. After warm-up a read or
//! write takes no memory from the system.
//!
//! **Never.** No retry, no path selection, no cache. What a host may do is decided here; what a volume may do is not.
//!
//! Main types: [`serve::Target`] (for the daemon), [`machine::Connection`] (the machine), [`host`] (the other end).

pub mod host;
pub mod limits;
pub mod machine;
pub mod serve;
pub mod wire;
