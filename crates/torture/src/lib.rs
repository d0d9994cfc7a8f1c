//! # torture: load whose history is judged, while what serves it is hurt
//!
//! ```text
//!   faults ── kill, heal ──▶ whatever serves the volume
//!                               ▲
//!     load: a host of all paths, NVMe/TCP: writes, parts of 4 KiB, zeroes, discards, flushes, reads
//!       │
//!    histories ── judge (`checker`) ── findings, a file
//! ```
//!
//! - [`load`]: what runs, and what is seen of it from outside; `clients` are its workers.
//! - [`layout`]: which bytes of the volume are used. `contents`: what blocks say of the write they are of, and what was there before.
//! - [`judge`]: the verdict, in a thread of its own. [`finding`]: what is wrong, in words. [`file`]: histories that are kept.
//! - [`faults`]: commands that hurt and heal, in turn.
//! - [`target`]: what is tortured, and what it says that it can.
//! - [`run`]: all of it, as `cairn torture` does it. `crates/faults` uses the load and the judge alone.
//!
//! **Promises.** What was acknowledged and is not read is found, as is a read that no order of operations explains, a part of a write
//! that has to be all or nothing, and a command that waits for too long. What was hurt is healed, whatever is found.
//!
//! **Never.** Nothing of the target's insides is believed: only what clients were told counts. Bytes that the layout does not name
//! are not written.

mod clients;
mod contents;
pub mod faults;
pub mod file;
pub mod finding;
pub mod judge;
pub mod layout;
pub mod load;
pub mod run;
pub mod target;
