//! What the cores of a node say to each other.

use crate::admission::{Access, TicketId};
use crate::api::IoError;
use crate::head::Head;
use crate::latency::Moments;
use crate::part::{Done, Part};
use crate::spec::VolumeSpec;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use types::{BlockRange, ChunkId, VolumeId};

/// A future of the core it runs on.
pub(crate) type LocalFuture = Pin<Box<dyn Future<Output = ()>>>;

/// Names a call of the asking core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CallId {
    pub(crate) slot: u32,
    pub(crate) generation: u32,
}

/// From core to core, in order.
pub(crate) enum Message {
    /// Do this and answer.
    Request { from: u16, call: CallId, request: Request },
    /// The answer.
    Reply { from: u16, call: CallId, reply: Reply },
    /// Give up a ticket that was granted.
    Release(TicketId),
    /// Start this task; not on the path of a command.
    Task(Box<dyn FnOnce(Rc<Head>) -> LocalFuture + Send>),
}

/// What a core asks another one for.
pub(crate) enum Request {
    /// A place in a chunk's order; answered when it is its turn.
    Admit { volume: VolumeId, chunk: ChunkId, range: BlockRange, access: Access },
    /// A part, under a ticket that was granted.
    Run { spec: Arc<VolumeSpec>, place: usize, ticket: TicketId, part: Part },
    /// A part that changes nothing, while the asking core holds a ticket that was granted.
    Look { spec: Arc<VolumeSpec>, place: usize, part: Part },
    /// A place in the order and the part at once.
    AdmitAndRun { spec: Arc<VolumeSpec>, place: usize, access: Access, part: Part },
    /// That the group knows of the head, before a write is asked of it.
    Raise { spec: Arc<VolumeSpec>, place: usize, waits: bool },
}

/// What it is answered.
pub(crate) enum Reply {
    Granted(TicketId),
    Done(Outcome),
}

/// What a part came to, and how it got on.
pub(crate) struct Outcome {
    pub(crate) result: Result<Done, IoError>,
    pub(crate) moments: Moments,
}

impl Reply {
    /// # Panics
    /// If a part was asked for.
    pub(crate) fn granted(self) -> TicketId {
        match self {
            Self::Granted(ticket) => ticket,
            Self::Done(_) => unreachable!("a ticket was asked for"),
        }
    }

    /// # Panics
    /// If a ticket was asked for.
    pub(crate) fn done(self) -> Outcome {
        match self {
            Self::Done(outcome) => outcome,
            Self::Granted(_) => unreachable!("a part was asked for"),
        }
    }
}
