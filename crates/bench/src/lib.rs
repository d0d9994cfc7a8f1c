//! # bench: load generators and measurements
//!
//! Closed-loop generators (and an open loop for what a device does in a long [`life`]) over the floors themselves (the
//! store alone) and over the protocols (NVMe/TCP, NBD), and the accounting that goes with them: latency histograms, CPU
//! per operation of the whole machine and per process.
//!
//! ```text
//!   cairn-bench COMMAND ─► load: `depth` operations under way ─► store_load | NBD client | NVMe/TCP host ─► target
//!                           │                                        └ ping_pong: a socket and nothing else
//!                           └─► latency histogram, and cpu: /proc before and after ─► one line of JSON
//! ```
//!
//! **Promises.** A generator verifies nothing and counts honestly: operations that ended within the measured time, CPU
//! of client, kernel and target together and apart. An error ends the measurement; it is never a slow success.
//!
//! **Never.** No threshold: a figure that must not change is asserted by the tests that count (`tests/cost.rs` of the
//! crates); a figure that depends on the machine stands in `docs/performance.md` with what it was measured on.
//!
//! Main types: [`load::LoadOptions`] and [`load::LoadResult`], [`pattern::Pattern`], [`cpu::CpuMeter`], [`store_load::StoreLoad`].

pub mod cpu;
pub mod hosts;
pub mod large_map;
pub mod life;
pub mod load;
pub mod pattern;
pub mod ping_pong;
pub mod protocols;
pub mod simulated_nodes;
pub mod store_load;
pub mod zipf;
