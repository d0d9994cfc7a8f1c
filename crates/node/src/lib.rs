//! # node: the daemon that wires all floors below
//!
//! One process, one node: its configuration, the directory of the demo, the cores, the two front doors, the admin API,
//! signals. Everything that a person or a script says comes in here; no byte of data does.
//!
//! ```text
//!   main thread: tokio                                     cores: one reactor each
//!  ┌──────────────────────────────────────┐   messages    ┌───────────────────────────────────────────┐
//!  │ signals · admin API (axum)           │ ────────────► │ core 0: control task ──► Assembly         │
//!  │ ControlHandle                        │ ◄──────────── │ each core: doors (nvme, nbd) ──► Directory │
//!  └──────────────────────────────────────┘   oneshots    └───────────────────────────────────────────┘
//! ```
//!
//! **Promises.** Nobody is let in before the volumes that were asked for are there, and `ready` is said after that.
//! A first start that fails has made nothing that a later one must keep; what was once served is never made again when
//! it is missing. One directory is served by one process. An error is one line: what is wrong and what to do. A stop
//! ends within two seconds and loses nothing that was acknowledged; the admin thread never waits longer than
//! [`control::ANSWER_TIMEOUT`] for a core.
//!
//! **Never.** Nothing here is on the path of a read or a write. No decision about groups or volumes: those are
//! transactions of `cluster`, carried out by `volume::Assembly`.
//!
//! Main types: [`demo_directory::DemoDirectory`] and [`config::NodeConfig`] (what to serve), [`service::run`] (start,
//! serve, stop), [`control::ControlHandle`] (the way to core 0), [`admin::Admin`] with [`admin::types`] (the API; the
//! command line uses the same types).

pub mod admin;
mod child;
pub mod config;
pub mod control;
mod debug;
pub mod demo_directory;
mod demo_processes;
mod doors;
pub mod events;
pub mod files;
pub mod fleet;
mod hosts;
pub mod joining;
pub mod keys;
mod local_node;
pub mod log;
mod map_copy;
pub mod map_file;
mod metrics;
pub mod node_name;
pub mod pools;
pub mod rates;
pub mod release;
pub mod secret;
pub mod service;
pub mod size;
pub mod snapshots;
pub mod supervisor;
pub mod testament;
#[cfg(test)]
mod testing;
pub mod traffic;
pub mod volume_spec;

pub use cluster::{Compression, FailureDomain};
pub use doors::ListenError;
pub use local_node::{StartError, open_shared_map};
