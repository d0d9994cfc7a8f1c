//! # node: the daemon that wires all floors below
//!
//! ```text
//!   main thread: tokio                                     cores: one reactor each
//!  ┌──────────────────────────────────────┐   messages    ┌───────────────────────────────────────────┐
//!  │ signals · admin API (axum)           │ ────────────► │ core 0: control task ──► Assembly         │
//!  │ ControlHandle                        │ ◄──────────── │ each core: doors (nvme, nbd) ──► Directory │
//!  └──────────────────────────────────────┘   oneshots    └───────────────────────────────────────────┘
//! ```

pub mod admin;
pub mod config;
pub mod control;
pub mod demo_directory;
mod doors;
pub mod files;
mod local_node;
pub mod log;
pub mod service;
pub mod size;
#[cfg(test)]
mod testing;
pub mod volume_spec;

pub use doors::ListenError;
pub use local_node::StartError;
