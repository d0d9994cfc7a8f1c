//! # sim: whole stores and clusters in one thread, judged
//!
//! ```text
//!   seed ── workload ── world (runtime::sim): nodes, disks, network, faults, crashes
//!                │
//!             history ── checkers ── verdict, or the one command that repeats the failure
//! ```
//!
//! A **workload** drives the shipped code in a simulated world from a seed and records what its clients saw in a
//! [`history`]. The [`checker`]s judge the history and know nothing of what was tested. The binary `cairn-sim` runs
//! workloads over seeds, repeats one seed with a readable trace, and runs the **mutants**: deliberate bugs, each of
//! which must be caught, since a checker that never caught anything proves nothing.
//!
//! Nothing here is part of what ships, and nothing that ships depends on it.

pub mod checker;
pub mod history;
pub mod mutants;
pub mod runner;
pub mod workload;
