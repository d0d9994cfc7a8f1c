//! Why a request is refused: what it would take away.

use super::{View, others_in_sync};
use crate::placement::PlacementError;
use crate::records::DeviceDuty;
use types::{GroupId, NodeId, StoreId};

/// Groups that are named in full; of more, how many there are.
const NAMED_MAX: usize = 8;

/// Why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Not in the map.
    #[error("there is no node {0}")]
    NoNode(NodeId),
    /// Not in the map.
    #[error("there is no device {0}")]
    NoDevice(StoreId),
    /// It holds no store.
    #[error("device {0} is not formatted yet: start its node with it")]
    NotFormatted(StoreId),
    /// What is on these devices is nowhere else.
    #[error(
        "{} no other member in sync: wait until they have, or copy what is there first (drain)",
        list(.groups, "has", "have")
    )]
    LastCopy {
        /// The groups.
        groups: Vec<GroupId>,
    },
    /// Nothing could be committed without them.
    #[error(
        "{} fewer members in sync than the pool demands: wait until more are",
        list(.groups, "would have", "would have")
    )]
    BelowPolicy {
        /// The groups.
        groups: Vec<GroupId>,
    },
    /// The pool's rules cannot be kept without it.
    #[error(transparent)]
    Placement(#[from] PlacementError),
    /// A device would be too full.
    #[error("device {store} would get {needed_bytes} bytes more and has {free_bytes} free: add devices first")]
    NoRoom {
        /// The device.
        store: StoreId,
        /// What would come, less what would go.
        needed_bytes: u64,
        /// What it can take.
        free_bytes: u64,
    },
    /// It is not empty.
    #[error("device {store} is still a member of {}: drain it, and wait until it is empty", list(.groups, "", ""))]
    Holds {
        /// The device.
        store: StoreId,
        /// The groups.
        groups: Vec<GroupId>,
    },
    /// Volumes are led from there.
    #[error("node {node} is still in the node set of table {table}: drain it first")]
    InSet {
        /// The node.
        node: NodeId,
        /// The table.
        table: u32,
    },
    /// A device cannot replace itself.
    #[error("device {0} cannot take its own place")]
    ItsOwn(StoreId),
    /// It is to leave.
    #[error("device {0} is to leave itself: take it back first")]
    Leaves(StoreId),
    /// It is being emptied.
    #[error("node {0} is being drained, which maintenance would end: take it back first (undrain)")]
    Drains(NodeId),
    /// Pools would miss it.
    #[error("device {new} is of class '{is_class}', and {old} of '{class}'")]
    OtherClass {
        /// Who goes.
        old: StoreId,
        /// Its class.
        class: String,
        /// Who comes.
        new: StoreId,
        /// Its class.
        is_class: String,
    },
}

fn list(groups: &[GroupId], one: &str, many: &str) -> String {
    let named: Vec<String> = groups.iter().take(NAMED_MAX).map(|group| group.0.to_string()).collect();
    let (word, verb) = if groups.len() == 1 { ("the group", one) } else { ("the groups", many) };
    let more = groups.len() - named.len();
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{word} {}{more} {verb}", named.join(", ")).trim_end().to_owned()
}

/// Each group has a member in sync elsewhere, on a device that has not been given up.
pub(super) fn check_last_copies(view: &View, stores: &[StoreId]) -> Result<(), Refusal> {
    let given_up = view.device_places.values().filter(|place| place.duty == DeviceDuty::Out).map(|place| place.store);
    let without: Vec<StoreId> = stores.iter().copied().chain(given_up).collect();
    let is_lost = |group: &&crate::GroupRecord| {
        group.in_sync.iter().any(|store| stores.contains(store)) && others_in_sync(group, &without) == 0
    };
    let groups: Vec<GroupId> = view.groups.values().filter(is_lost).map(|group| group.id).collect();
    if groups.is_empty() { Ok(()) } else { Err(Refusal::LastCopy { groups }) }
}

/// Each group that is served now is served without them, and whoever else may be away.
pub(super) fn check_policy_without(view: &View, stores: &[StoreId], away: &[StoreId]) -> Result<(), Refusal> {
    let without = [stores, away].concat();
    let is_short = |group: &&crate::GroupRecord| {
        group.in_sync.iter().any(|store| stores.contains(store))
            && others_in_sync(group, &without) < group.min_in_sync as usize
    };
    let groups: Vec<GroupId> = view.groups.values().filter(is_short).map(|group| group.id).collect();
    if groups.is_empty() { Ok(()) } else { Err(Refusal::BelowPolicy { groups }) }
}
