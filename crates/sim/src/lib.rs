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
//! **Promises.** The same seed is the same run, on any machine. A verdict names the operations that cannot be explained
//! and the one command that shows them again.
//!
//! **Never.** Nothing here is part of what ships, and nothing that ships depends on it. No checker asks the store what
//! it thinks: only what clients were told counts.
//!
//! Main types: [`workload::Workload`], [`history`], [`runner::Plan`].

pub mod minimise;
pub mod mutants;
pub mod runner;
pub mod workload;
