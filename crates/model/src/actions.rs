//! What may happen next.

use crate::group::Flight;
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
    /// The map takes a request, if this store's session is over; its answer arrives, or not.
    MapTakes(usize, Membership, Option<StoreId>, bool),
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
}
