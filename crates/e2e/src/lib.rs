//! # e2e: real clients against the real binary
//!
//! What stands here is for the tests in `tests/`: they start `cairn demo` as a user would, hurt it, and check what is
//! read against what was written.
//!
//! ```text
//!   load ──requests──▶ disk (NBD client | NVMe/TCP host) ──TCP──▶ cairn demo (a process: kill, pause, restart)
//!    │                                                              │
//!    └──begin / completed / lost──▶ journal ◀── check ── reads ─────┘
//! ```
//!
//! - [`pattern`]: contents that say what they are: volume, sector, version, and a checksum over it.
//! - [`journal`]: per sector, which contents a read may return, given what is known of each write's outcome.
//! - [`load`]: random reads, writes, flushes, trims and write-zeroes at a depth, all verified.
//! - [`demo`]: a `cairn demo` process in a directory of its own.
//! - [`relay`]: an NBD relay between a foreign client (fio) and the target that writes down what was acknowledged.
//! - [`power`]: from a record of device writes to the images that a power loss could have left.
//! - [`node`]: the same data path inside the test's process, for what can only be counted there.
//! - [`waves`]: requests for counting what they cost.
//! - [`raw`]: an NBD connection that misbehaves as told; [`admin`]: the requests of the API that tests make.
//!
//! The binary `verified-load` is such a load as a process of its own, for scripts (`e2e/together.sh`).
//!
//! **Promises.** What was acknowledged and cannot be read back fails the test and is named: volume, sector, version.
//! Every wait has a deadline; ports and directories are the test's own.
//!
//! **Never.** Nothing of the target's insides is believed: contents are judged by what a client was told.

pub mod admin;
pub mod demo;
pub mod directory;
pub mod disk;
pub mod journal;
pub mod load;
pub mod node;
pub mod pattern;
pub mod power;
pub mod random;
pub mod raw;
pub mod relay;
pub mod waves;
