//! The table for a volume whose primaries are to be on one node: one that is there, or a new node set with groups of its own.

use super::sets::Bound;
use super::shares;
use super::world::World;
use super::{Device, Group, NodeSet, PlacementError, Rules};
use std::collections::BTreeMap;
use types::{GroupId, NodeId, StoreId};

/// Node sets per home: enough that what a home holds is copied from and to many nodes, few enough that each has groups on
/// all devices of it.
pub const SETS_PER_HOME_MAX: usize = 8;
/// Another set is made when it would have this much more room than the best there is: 1/8 of it.
const WORTH_A_SET: u64 = 8;

/// Where a volume goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Choice {
    /// This table has the most room.
    Table(u32),
    /// A new one on these nodes, the home first, over these groups. They are moved there like any others.
    NewSet {
        /// The home, and who takes over from whom.
        nodes: Vec<NodeId>,
        /// Its groups: what they hold is moved along.
        groups: Vec<GroupId>,
    },
}

/// Why a home cannot have it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoHome {
    /// Nothing can be placed at all.
    #[error(transparent)]
    Placement(#[from] PlacementError),
    /// The node has no device of the pool.
    #[error("node {0} has no device that holds anything of this pool")]
    NoDevice(NodeId),
    /// All groups belong to other tables.
    #[error("all groups that node {0} could lead belong to tables already: split groups, or let the volume spread")]
    NoGroup(NodeId),
}

/// What is needed to choose.
pub struct Pool<'a> {
    /// All devices.
    pub devices: &'a [Device],
    /// What the pool demands.
    pub rules: &'a Rules,
    /// Its node sets.
    pub sets: &'a [NodeSet],
    /// Its groups.
    pub groups: &'a [Group],
    /// Bytes that are free on each device.
    pub free: &'a BTreeMap<StoreId, u64>,
    /// Bytes that each group holds: where they are few, moving it costs little.
    pub held: &'a BTreeMap<GroupId, u64>,
}

/// The node with the most room for a volume that may be anywhere.
///
/// # Errors
/// If nothing can be placed.
pub fn roomiest_home(pool: &Pool) -> Result<NodeId, NoHome> {
    let world = World::new(pool.devices, pool.rules)?;
    let homes = (0..world.nodes.len()).max_by_key(|&node| (node_room(pool, &world, node), usize::MAX - node));
    Ok(world.nodes[homes.expect("a device has a node")])
}

/// The table for a new volume at `home`: that with the most room, a new one where that has clearly more. The room of a set is
/// that of its fullest node.
///
/// # Errors
/// If the node can be no home.
pub fn table_for(pool: &Pool, home: NodeId) -> Result<Choice, NoHome> {
    let world = World::new(pool.devices, pool.rules)?;
    let home_at = world.node_index(home).ok_or(NoHome::NoDevice(home))?;
    let of_home: Vec<&NodeSet> = pool.sets.iter().filter(|set| set.nodes.first() == Some(&home)).collect();
    let room_of = |nodes: &[usize]| nodes.iter().map(|&node| node_room(pool, &world, node)).min().unwrap_or(0);
    let numbers = |set: &NodeSet| set.nodes.iter().map(|node| world.node_index(*node)).collect::<Option<Vec<_>>>();
    let best = of_home.iter().filter_map(|set| Some((room_of(&numbers(set)?), std::cmp::Reverse(set.table)))).max();
    if of_home.len() < SETS_PER_HOME_MAX {
        let new = new_set(pool, &world, home_at, &of_home);
        match (new, best) {
            (Some((nodes, groups)), _)
                if best.is_none_or(|(room, _)| room_of(&nodes) > room.saturating_add(room / WORTH_A_SET)) =>
            {
                let nodes = nodes.into_iter().map(|node| world.nodes[node]).collect();
                return Ok(Choice::NewSet { nodes, groups });
            }
            (None, None) => return Err(NoHome::NoGroup(home)),
            _ => {}
        }
    }
    best.map(|(_, table)| Choice::Table(table.0)).ok_or(NoHome::NoGroup(home))
}

fn node_room(pool: &Pool, world: &World, node: usize) -> u64 {
    let free = |device: &u16| pool.free.get(&world.stores[*device as usize]).copied().unwrap_or(0);
    world.of_node[node].iter().map(free).sum()
}

/// Nodes and groups of another set at `home`, if there are any.
fn new_set(pool: &Pool, world: &World, home: usize, of_home: &[&NodeSet]) -> Option<(Vec<usize>, Vec<GroupId>)> {
    let shares = shares::shares(world, pool.groups.len());
    let mut bound = Bound::new(world, &shares);
    for set in pool.sets {
        let nodes: Vec<usize> = set.nodes.iter().filter_map(|node| world.node_index(*node)).collect();
        let groups = pool.groups.iter().filter(|group| group.table == Some(set.table)).count();
        bound.take(&nodes, groups as f64);
    }
    let wanted = (bound.due[home] / world.copies as f64 / SETS_PER_HOME_MAX as f64).round().max(1.0);
    let mut nodes = vec![home];
    while nodes.len() < world.copies {
        nodes.push(companion(pool, world, &bound, &nodes, of_home, wanted)?);
    }
    let room = nodes.iter().map(|&node| bound.room(node)).fold(f64::INFINITY, f64::min);
    let size = wanted.min(room).max(1.0) as usize;
    let groups = claim(pool, world, &nodes, size);
    (!groups.is_empty()).then_some((nodes, groups))
}

/// The next node of a set: one with room for its groups, in the fewest sets of this home, in this place in the fewest; then
/// the one with the most room.
fn companion(
    pool: &Pool,
    world: &World,
    bound: &Bound,
    nodes: &[usize],
    of_home: &[&NodeSet],
    wanted: f64,
) -> Option<usize> {
    let fits = |node: &usize| world.may_share_group(&[nodes, &[*node]].concat());
    let candidates = (0..world.nodes.len()).filter(fits);
    candidates.min_by(|&a, &b| {
        let rank = |node: usize| {
            let id = world.nodes[node];
            let in_place = of_home.iter().filter(|set| set.nodes.get(nodes.len()) == Some(&id)).count();
            let in_any = of_home.iter().filter(|set| set.nodes.contains(&id)).count();
            (nodes.contains(&node), bound.room(node) < wanted, in_place, in_any)
        };
        let free = |node: usize| node_room(pool, world, node);
        let relative = |node: usize| bound.room(node) / bound.due[node].max(1.0);
        rank(a).cmp(&rank(b)).then(free(b).cmp(&free(a))).then(relative(b).total_cmp(&relative(a))).then(a.cmp(&b))
    })
}

/// Groups of no table for a set: those that cost the fewest bytes to move, then the fewest members, then those that the home
/// leads already.
fn claim(pool: &Pool, world: &World, nodes: &[usize], size: usize) -> Vec<GroupId> {
    let node_of = |store: &StoreId| world.device(*store).map(|device| world.node[device as usize] as usize);
    let cost = |group: &Group| {
        let mut left = nodes.to_vec();
        for store in &group.members {
            if let Some(at) = node_of(store).and_then(|node| left.iter().position(|&other| other == node)) {
                left.swap_remove(at);
            }
        }
        let held = pool.held.get(&group.id).copied().unwrap_or(0);
        let is_led_elsewhere = group.members.first().and_then(node_of) != Some(nodes[0]);
        (held * left.len() as u64, left.len(), is_led_elsewhere, group.id)
    };
    let mut free: Vec<&Group> = pool.groups.iter().filter(|group| group.table.is_none()).collect();
    free.sort_by_key(|group| cost(group));
    free.truncate(size);
    free.iter().map(|group| group.id).collect()
}
