//! An NVMe/TCP host (initiator) for tests, the simulator and the benchmark, on the same wire code as the target.
//!
//! ```text
//!   discover(address)            ──► what a discovery controller lists
//!   Controller::connect(options) ──► admin queue, I/O queues, keep alive; all on the current core
//!     .namespace(nsid)           ──► Namespace: read, write, flush, compare, write zeroes, deallocate
//!     .queue(n).submit(…)        ──► any command
//!   multipath::Multipath         ──► several controllers of one subsystem, as Linux uses them
//! ```
//!
//! Commands of one turn leave in one send; a read's data is a slice of what was received where that is possible. A
//! command takes no memory from the system once the queue is warm. A broken connection ends every command on it with
//! an error: nothing is sent again by itself, since only the caller knows whether that is safe (a [`multipath`] host
//! sends again).

mod controller;
mod discovery;
pub mod multipath;
mod namespace;
mod queue;

pub use controller::{Controller, HostIdentity, Options};
pub use discovery::discover;
pub use namespace::Namespace;
pub use queue::{Completion, Queue};

use crate::wire::Status;

/// Why a command or connection failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostError {
    /// The socket failed or ended; commands under way may or may not have been executed.
    #[error("connection lost: {0}")]
    Connection(String),
    /// The controller ended the connection with a TermReq.
    #[error("the controller ended the connection: fatal error status {status}, information {information}")]
    Terminated {
        /// FES.
        status: u16,
        /// FEI.
        information: u32,
    },
    /// The controller broke the protocol.
    #[error("the controller broke the protocol: {0}")]
    Protocol(String),
    /// The command ended with this status.
    #[error("the command failed: {0}")]
    Status(Status),
    /// The controller did not get ready in time.
    #[error("the controller did not get ready in {0} s")]
    NotReady(u64),
    /// No path to the namespace was there for so long.
    #[error("there was no path for {0:?}")]
    NoPath(std::time::Duration),
    /// Asked for what the controller or namespace does not have.
    #[error("{0}")]
    Unsupported(String),
}

impl HostError {
    /// The status, if the command reached the controller and came back.
    pub fn status(&self) -> Option<Status> {
        match self {
            Self::Status(status) => Some(*status),
            _ => None,
        }
    }
}
