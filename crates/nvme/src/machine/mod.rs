//! The target as a protocol machine: bytes in, commands out; results in, bytes out. It does no I/O, knows no clock and
//! no socket, and runs the same under a fuzzer, over bytes in memory, and behind `serve`.
//!
//! ```text
//!            bytes                          Event::Connect   ──► Registry::admit ──► accept / refuse
//!   socket ────────► Connection ──────────► Event::Admin     ──► execute_admin(view) ──► Change: end queues, abort
//!          ◄────────  (one queue)           Event::WantsData ──► grant, when there is room
//!            parts                          Event::Io        ──► a volume ──► complete, complete_read, complete_fused
//! ```
//!
//! A [`Connection`] is one queue. The admin queue owns its [`Controller`]; what the I/O queues on other cores must know
//! of it is a [`ControllerHandle`], kept in the [`Registry`].

mod abort;
mod admin;
mod connection;
mod controller;
mod features;
mod fused;
pub mod fuzz;
mod identify;
mod io;
mod judge;
mod logs;
mod namespaces;
mod registry;
mod slots;

pub use admin::AdminView;
pub use connection::{Aborting, AdminRequest, Change, ConnectRequest, Connection, Ending, Event, IoRequest};
pub use controller::{Controller, ControllerKind};
pub use io::{Operation, discard_ranges};
pub use namespaces::{NamespaceInfo, NamespaceTable};
pub use registry::{Admission, ControllerHandle, ControllerId, Endpoints, Refusal, Registry, Subsystem};
pub use slots::Tag;
