//! What may happen next.

use crate::group::Flight;
use crate::heads::{HEAD_KINDS, HeadStep};
use replication::protocol::Membership;
use std::sync::Arc;
use types::StoreId;

/// One step.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// A client's write reaches a member that gives out places.
    Write(usize),
    /// All that a store has appended is durable.
    Durable(usize),
    /// A write is done whose entries were cut meanwhile.
    Late(usize),
    /// A message arrives.
    Deliver(Arc<Flight>),
    /// A member that leads beats; another answers.
    Beat(usize, usize),
    /// The clock goes on.
    Tick,
    /// A member wants to lead, and asks the map if what it granted is over.
    Campaign(usize),
    /// It asks the map, now that this is over.
    Propose(usize),
    /// A new primary has waited long enough for histories.
    AskOver(usize),
    /// A primary wants a member out.
    Remove(usize, usize),
    /// A primary wants a member in.
    Add(usize, usize),
    /// A primary tells what is committed.
    TellCommit(usize, usize),
    /// A primary sends again what a member has not acknowledged.
    Resend(usize, usize),
    /// The map takes a request, if this store's session is over; its answer arrives, or not.
    MapTakes(usize, Arc<Membership>, Option<StoreId>, bool),
    /// Who asked it has waited long enough.
    Unanswered(usize),
    /// A watch tells a member the map's record.
    Learn(usize),
    /// A node's session in the map is renewed.
    Renew(usize),
    /// A process ends; or its store loses the durable entries behind this number, too (a device that lied).
    Crash(usize, Option<usize>),
    /// A store starts.
    Start(usize),
    /// All that is under way from one member to another arrives, once.
    Flow(usize, usize),
    /// Of hosts and heads.
    Head(HeadStep),
}

/// Kinds of steps of the group.
pub const GROUP_KINDS: usize = 15;
/// Kinds of steps.
pub const KINDS: usize = GROUP_KINDS + HEAD_KINDS;

impl Action {
    /// Its kind, below [`KINDS`], and the member at which it happens.
    pub fn kind(&self) -> (usize, usize) {
        match self {
            Self::Deliver(flight) => (0, flight.to()),
            Self::Flow(_, to) => (0, *to),
            Self::Write(at) => (1, *at),
            Self::Durable(at) | Self::Late(at) => (2, *at),
            Self::Beat(at, _) => (3, *at),
            Self::Tick => (4, 0),
            Self::Campaign(at) => (5, *at),
            Self::Propose(at) => (6, *at),
            Self::AskOver(at) => (7, *at),
            Self::Remove(at, _) => (8, *at),
            Self::Add(at, _) => (9, *at),
            Self::TellCommit(at, _) | Self::Resend(at, _) => (10, *at),
            Self::MapTakes(at, ..) => (11, *at),
            Self::Unanswered(at) | Self::Learn(at) => (12, *at),
            Self::Renew(at) => (13, *at),
            Self::Crash(at, _) | Self::Start(at) => (14, *at),
            Self::Head(step) => {
                let (kind, at) = step.kind();
                (GROUP_KINDS + kind, at)
            }
        }
    }
}
