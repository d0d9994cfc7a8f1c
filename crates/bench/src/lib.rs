//! # bench: load generators and measurements
//!
//! Closed loops (and an open one for what a device does in a long [`life`]) over the floors themselves (the store alone) and
//! over the protocols (NVMe/TCP, NBD), and the accounting that goes with them: CPU per operation of the whole machine and
//! per process. Workers, what they draw, latencies and the way to a target are those of `cairn bench`: [`measure::generator`].
//!
//! ```text
//!   cairn-bench COMMAND ─► load: `depth` operations under way ─► store_load | protocols: measure's jobs and links ─► target
//!                           │                                        └ ping_pong: a socket and nothing else
//!                           └─► measure's histogram, and cpu: /proc before and after ─► one line of JSON
//! ```
//!
//! **Promises.** A generator verifies nothing and counts honestly: operations that ended within the measured time, CPU
//! of client, kernel and target together and apart. An error ends the measurement; it is never a slow success.
//!
//! **Never.** No threshold: a figure that must not change is asserted by the tests that count (`tests/cost.rs` of the
//! crates); a figure that depends on the machine stands in `docs/performance.md` with what it was measured on.
//!
//! Main types: [`load::LoadOptions`] and [`load::LoadResult`], [`cpu::CpuMeter`], [`store_load::StoreLoad`].

pub mod cpu;
pub mod large_map;
pub mod life;
pub mod load;
pub mod ping_pong;
pub mod protocols;
pub mod simulated_nodes;
pub mod store_load;
pub mod zipf;
