//! Where copies lie: pure functions from what there is to who holds what. No I/O, no clock, no order that is not the
//! input's: the same input gives the same answer on every node.
//!
//! ```text
//!   devices, rules, node sets, groups as they lie
//!        │ shares     what each device is to hold: by weight, as far as failure domains allow
//!        │ sets       node sets: nodes that are gone are replaced, for all groups of the set at once
//!        │ members    keep what may stay; fill what is missing; move the fewest from those with too much
//!        │ partners   each device shares groups with many others
//!        ▼ leads      who leads each group: everybody as many as its share
//!   members of each group in order, the moves
//! ```
//!
//! Beside it: [`homes`] (who leads when a home is lost), [`splits`] (a group in two), [`choose`] (the table for a
//! volume), [`duty`] (add, drain, maintain, replace, remove: what that would move, why it is refused, what to change
//! next), and [`carry_out`] (what a group's primary does about it). docs/placement.md says why.

mod carry;
pub mod choose;
pub mod duty;
pub mod homes;
mod leads;
mod members;
mod partners;
mod sets;
mod shares;
pub mod splits;
mod tally;
mod world;

pub use carry::{MEMBERS_MAX, Step, carry_out};
pub use partners::PARTNERS_MIN;

use crate::records::FailureDomain;
use tally::Tally;
use types::{GroupId, NodeId, StoreId};
use world::World;

/// Groups per device, times the members of each: enough that shares are even and recovery is many-to-many, few enough
/// that a group's state is nothing.
pub const MEMBERSHIPS_PER_DEVICE: u32 = 100;

/// Whether a device is to hold anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Duty {
    /// Its share.
    In,
    /// Nothing. What is on it can be copied from it; `into`: to this device, all of it.
    Draining {
        /// Who takes its place.
        into: Option<StoreId>,
    },
    /// Nothing, and nothing can be copied from it.
    Out,
}

/// A device, as far as placement goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Its store.
    pub store: StoreId,
    /// Its node.
    pub node: NodeId,
    /// The node's rack; empty: unnamed.
    pub rack: String,
    /// The node's zone; empty: unnamed.
    pub zone: String,
    /// Its class; empty: unnamed.
    pub class: String,
    /// Its share is as large as this is among all.
    pub weight: u64,
    /// Whether it is to hold anything.
    pub duty: Duty,
    /// Whether it may lead groups: not while its node is in maintenance.
    pub may_lead: bool,
}

/// What a pool demands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Members of each group.
    pub replicas: usize,
    /// Members without which nothing is committed.
    pub min_in_sync: usize,
    /// No two members of a group share one.
    pub failure_domain: FailureDomain,
    /// Only devices of this class; empty: any.
    pub class: String,
    /// Whether groups may have fewer members, down to `min_in_sync`, where there are too few domains.
    pub may_degrade: bool,
}

/// A node set: the groups of this table have one member on each of these nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeSet {
    /// The table.
    pub table: u32,
    /// The home first, then who takes over from whom.
    pub nodes: Vec<NodeId>,
    /// Which of them leads all groups ([`homes::orders`]).
    pub lead: NodeId,
}

/// A group and who holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Its id.
    pub id: GroupId,
    /// Its members, the preferred primary first. Empty: it is new.
    pub members: Vec<StoreId>,
    /// The table whose node set it belongs to.
    pub table: Option<u32>,
}

/// A copy that is to be made, or a member that is only let go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// Of this group.
    pub group: GroupId,
    /// Who held it and will not; `None`: the group had too few members.
    pub from: Option<StoreId>,
    /// Who will hold it; `None`: the group had too many members.
    pub to: Option<StoreId>,
}

/// What a device should hold, and holds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share {
    /// The device.
    pub store: StoreId,
    /// Its share of all memberships by its weight, as far as failure domains allow.
    pub due: f64,
    /// Groups it is a member of.
    pub held: u32,
    /// Groups it is the preferred primary of.
    pub led: u32,
    /// Devices it shares a group with.
    pub partners: u32,
    /// Whether its failure domain is in every group, and would hold more by its weight.
    pub is_saturated: bool,
}

/// Who is to hold what.
#[derive(Clone, Debug, PartialEq)]
pub struct Placement {
    /// In the order of the input.
    pub groups: Vec<Group>,
    /// In the order of the input; the nodes of some may have been replaced.
    pub sets: Vec<NodeSet>,
    /// Members of each group: fewer than the replicas only where the rules allow it.
    pub copies: usize,
    /// What changes, in the order of the groups.
    pub moves: Vec<Move>,
    /// Of each device that may hold anything, in the order of their ids.
    pub shares: Vec<Share>,
}

impl Placement {
    /// Copies that have to be made.
    pub fn copies_to_make(&self) -> usize {
        self.moves.iter().filter(|step| step.to.is_some()).count()
    }
}

/// Why nothing can be placed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlacementError {
    /// No device may hold anything.
    #[error("no device can hold anything{}: add one", of_class(.class))]
    NoDevice {
        /// The class that was asked for; empty: any.
        class: String,
    },
    /// Members would share a failure domain.
    #[error(
        "{replicas} copies need {replicas} {domain}s, and devices{} are in {found}{}: add more, take fewer copies, or a \
         smaller failure domain", of_class(.class), of_unnamed(*.domain, *.unnamed)
    )]
    TooFewDomains {
        /// Members that each group is to have.
        replicas: usize,
        /// What they may not share.
        domain: FailureDomain,
        /// How many there are.
        found: usize,
        /// Nodes that name none.
        unnamed: usize,
        /// The class that was asked for; empty: any.
        class: String,
    },
}

fn of_class(class: &str) -> String {
    if class.is_empty() { String::new() } else { format!(" of class {class}") }
}

fn of_unnamed(domain: FailureDomain, unnamed: usize) -> String {
    if unnamed == 0 { String::new() } else { format!(" (the {unnamed} nodes that name no {domain} count as one)") }
}

/// Groups that a new pool over so many devices has.
pub fn groups_for(devices: u32, replicas: u32) -> u32 {
    (MEMBERSHIPS_PER_DEVICE * devices).div_ceil(replicas)
}

/// Who is to hold each group: everybody its share, with as few moves as that takes.
///
/// What it keeps to, first to last: failure domains and classes; node sets; every group whole; shares; moves; partners.
/// A node set that more groups lie in than one of its nodes' share is moved to another node, except from its home.
/// Nothing is copied to even out what is less than a twentieth of a share.
///
/// # Errors
/// If there are fewer failure domains than members, and the rules do not allow fewer members.
pub fn place(
    devices: &[Device],
    rules: &Rules,
    sets: &[NodeSet],
    groups: &[Group],
) -> Result<Placement, PlacementError> {
    let world = World::new(devices, rules)?;
    let shares = shares::shares(&world, groups.len());
    let sets = sets::mend(&world, &shares, sets, groups);
    let mut tally = Tally::new(&world, &sets, groups);
    tally.set_targets(sets::targets(&world, &sets, groups, shares::targets(&world, &shares, &tally.count)));
    members::fill(&mut tally);
    let limits = shares::limits(&shares, &tally.target);
    members::even_out(&mut tally, &limits);
    partners::spread(&mut tally);
    let order = leads::lead(&tally, groups);
    let placed: Vec<Group> = groups
        .iter()
        .zip(&order)
        .map(|(group, order)| Group {
            members: order.iter().map(|&d| world.stores[d as usize]).collect(),
            ..group.clone()
        })
        .collect();
    let moves = groups.iter().zip(&placed).flat_map(|(was, is)| moves_of(was, is)).collect();
    let shares = tally.told(&shares, &order);
    Ok(Placement { groups: placed, sets, copies: world.copies, moves, shares })
}

fn moves_of(was: &Group, is: &Group) -> Vec<Move> {
    let not_in = |other: &[StoreId], list: &[StoreId]| -> Vec<StoreId> {
        list.iter().filter(|store| !other.contains(store)).copied().collect()
    };
    let (gone, new) = (not_in(&is.members, &was.members), not_in(&was.members, &is.members));
    let steps = gone.len().max(new.len());
    (0..steps).map(|at| Move { group: is.id, from: gone.get(at).copied(), to: new.get(at).copied() }).collect()
}
