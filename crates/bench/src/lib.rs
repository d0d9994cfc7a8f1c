//! # bench: load generators and measurements
//!
//! Closed-loop generators over the floors themselves (the store alone) and over the protocols (NVMe/TCP, NBD), and the
//! accounting that goes with them: latency histograms, CPU per operation of the whole machine and per process.

pub mod cpu;
pub mod load;
pub mod ping_pong;
pub mod store_load;
