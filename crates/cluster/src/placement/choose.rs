//! The table for a volume whose primaries are to be on one node: one that is there, or a new node set with groups of
//! its own.

use super::sets::Bound;
use super::shares;
use super::world::World;
use super::{Device, Group, NodeSet, PlacementError, Rules};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use types::{GroupId, NodeId, StoreId};

/// Node sets per home: enough that what a home holds is copied from and to many nodes, few enough that each has groups
/// on all devices of it.
pub const SETS_PER_HOME_MAX: usize = 8;
/// Another set is made when it would have this much more room than the best there is: 1/8 of it.
const WORTH_A_SET: i128 = 8;

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

/// Rooms of nodes that are this part of the most apart, or less, count as one.
const ROOM_STEPS: u128 = 8;

/// Nodes as homes for a new volume, the best first: those with about the most room, of these the one that is home to the fewest
/// volumes, then by room. `rooms`: the nodes, and what is free on each; `taken`: volumes that are at home there.
pub fn homes(rooms: &[(NodeId, u64)], taken: &BTreeMap<NodeId, usize>) -> Vec<NodeId> {
    let most = rooms.iter().map(|(_, room)| *room).max().unwrap_or(0).max(1);
    let step = |room: u64| (u128::from(room) * ROOM_STEPS).div_ceil(u128::from(most));
    let mut order = rooms.to_vec();
    order.sort_by_key(|&(node, room)| {
        (Reverse(step(room)), taken.get(&node).copied().unwrap_or(0), Reverse(room), node)
    });
    order.into_iter().map(|(node, _)| node).collect()
}

/// The table for a new volume at `home`: that with the most room, a new one where that has clearly more.
///
/// All groups are to hold alike, as devices hold equal numbers of them: so the room of a set is what its groups may
/// hold if all groups on its fullest node hold the same, less what they hold; and never more than is free on that node.
///
/// # Errors
/// If the node can be no home.
pub fn table_for(pool: &Pool, home: NodeId) -> Result<Choice, NoHome> {
    let world = World::new(pool.devices, pool.rules)?;
    let home_at = world.node_index(home).ok_or(NoHome::NoDevice(home))?;
    let space = Space::new(pool, &world);
    let of_home: Vec<&NodeSet> = pool.sets.iter().filter(|set| set.nodes.first() == Some(&home)).collect();
    let best = of_home.iter().filter_map(|set| {
        let nodes = set.nodes.iter().map(|node| world.node_index(*node)).collect::<Option<Vec<_>>>()?;
        let groups = pool.groups.iter().filter(|group| group.table == Some(set.table)).map(|group| group.id);
        Some((space.room(&nodes, &groups.collect::<Vec<_>>()), Reverse(set.table)))
    });
    let best = best.max();
    let can_be_more = of_home.len() < SETS_PER_HOME_MAX;
    let new = if can_be_more { new_set(pool, &world, &space, home_at, &of_home) } else { None };
    let is_worth_it = |room: i128| best.is_none_or(|(best, _)| room > best + best.max(0) / WORTH_A_SET);
    match new.filter(|(nodes, groups)| is_worth_it(space.room(nodes, groups))) {
        Some((nodes, groups)) => {
            Ok(Choice::NewSet { nodes: nodes.into_iter().map(|node| world.nodes[node]).collect(), groups })
        }
        None => best.map(|(_, table)| Choice::Table(table.0)).ok_or(NoHome::NoGroup(home)),
    }
}

/// Bytes on nodes and in groups.
struct Space<'a> {
    pool: &'a Pool<'a>,
    /// Free on each node.
    free: Vec<u64>,
    /// What each of a node's groups holds when the node is full and all hold the same.
    part: Vec<i128>,
}

impl<'a> Space<'a> {
    fn new(pool: &'a Pool<'a>, world: &World) -> Self {
        let shares = shares::shares(world, pool.groups.len());
        let free: Vec<u64> = (0..world.nodes.len()).map(|node| node_room(pool, world, node)).collect();
        let mut held = vec![0u64; free.len()];
        for group in pool.groups {
            let bytes = pool.held.get(&group.id).copied().unwrap_or(0);
            for device in group.members.iter().filter_map(|store| world.device(*store)) {
                held[world.node[device as usize] as usize] += bytes;
            }
        }
        let part = |node: usize| ((free[node] + held[node]) as f64 / shares.of_node(world, node).max(1.0)) as i128;
        Self { pool, part: (0..free.len()).map(part).collect(), free }
    }

    fn room(&self, nodes: &[usize], groups: &[GroupId]) -> i128 {
        let held: u64 = groups.iter().map(|group| self.pool.held.get(group).copied().unwrap_or(0)).sum();
        let part = nodes.iter().map(|&node| self.part[node]).min().unwrap_or(0);
        let free = nodes.iter().map(|&node| self.free[node]).min().unwrap_or(0);
        i128::from(free).min(part * groups.len() as i128 - i128::from(held))
    }
}

fn node_room(pool: &Pool, world: &World, node: usize) -> u64 {
    let free = |device: &u16| pool.free.get(&world.stores[*device as usize]).copied().unwrap_or(0);
    world.of_node[node].iter().map(free).sum()
}

/// Nodes and groups of another set at `home`, if there are any.
fn new_set(
    pool: &Pool,
    world: &World,
    space: &Space,
    home: usize,
    of_home: &[&NodeSet],
) -> Option<(Vec<usize>, Vec<GroupId>)> {
    let shares = shares::shares(world, pool.groups.len());
    let mut bound = Bound::new(world, &shares);
    for set in pool.sets {
        let nodes: Vec<usize> = set.nodes.iter().filter_map(|node| world.node_index(*node)).collect();
        let groups = pool.groups.iter().filter(|group| group.table == Some(set.table)).count();
        bound.take(&nodes, groups as f64);
    }
    let wanted = (bound.due[home] / world.copies as f64 / SETS_PER_HOME_MAX as f64).floor().max(1.0);
    let mut nodes = vec![home];
    while nodes.len() < world.copies {
        nodes.push(companion(space, world, &bound, &nodes, of_home, wanted)?);
    }
    let room = nodes.iter().map(|&node| bound.room(node)).fold(f64::INFINITY, f64::min);
    let size = wanted.min(room).max(1.0) as usize;
    let groups = claim(pool, world, &nodes, size);
    (!groups.is_empty()).then_some((nodes, groups))
}

/// The next node of a set: one with room for its groups, in the fewest sets of this home, in this place in the fewest;
/// then the one with the most room.
fn companion(
    space: &Space,
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
        let relative = |node: usize| bound.room(node) / bound.due[node].max(1.0);
        rank(a)
            .cmp(&rank(b))
            .then(space.part[b].cmp(&space.part[a]))
            .then(relative(b).total_cmp(&relative(a)))
            .then(a.cmp(&b))
    })
}

/// Groups of no table for a set: those that cost the fewest bytes to move, then those that the home leads already, in
/// turns by the device that would lead them, then those with the fewest members to move.
fn claim(pool: &Pool, world: &World, nodes: &[usize], size: usize) -> Vec<GroupId> {
    let mut free: Vec<Claimable> = pool
        .groups
        .iter()
        .filter(|group| group.table.is_none())
        .map(|group| Claimable::new(pool, world, nodes, group))
        .collect();
    let mut led: BTreeMap<Option<u16>, usize> = BTreeMap::new();
    for group in pool.groups.iter().filter(|group| group.table.is_some()) {
        *led.entry(member_on(world, group, nodes[0])).or_default() += 1;
    }
    let mut claimed = Vec::new();
    while claimed.len() < size && !free.is_empty() {
        let led_by = |device: &Option<u16>| device.map_or(0, |_| led.get(device).copied().unwrap_or(0));
        let rank =
            |group: &Claimable| (group.bytes, group.is_led_elsewhere, led_by(&group.leader), group.moves, group.id);
        let at = (0..free.len()).min_by_key(|&at| rank(&free[at])).expect("there are some");
        let group = free.swap_remove(at);
        *led.entry(group.leader).or_default() += 1;
        claimed.push(group.id);
    }
    claimed.sort_unstable();
    claimed
}

/// The group's member on a node.
fn member_on(world: &World, group: &Group, node: usize) -> Option<u16> {
    let mut members = group.members.iter().filter_map(|store| world.device(*store));
    members.find(|&device| world.node[device as usize] as usize == node)
}

/// A group that a set could have.
struct Claimable {
    id: GroupId,
    /// What would be copied.
    bytes: u64,
    moves: usize,
    is_led_elsewhere: bool,
    /// Its member at home.
    leader: Option<u16>,
}

impl Claimable {
    fn new(pool: &Pool, world: &World, nodes: &[usize], group: &Group) -> Self {
        let node_of = |store: &StoreId| world.device(*store).map(|device| world.node[device as usize] as usize);
        let mut left = nodes.to_vec();
        for node in group.members.iter().filter_map(node_of) {
            if let Some(at) = left.iter().position(|&other| other == node) {
                left.swap_remove(at);
            }
        }
        Self {
            id: group.id,
            bytes: pool.held.get(&group.id).copied().unwrap_or(0) * left.len() as u64,
            moves: left.len(),
            is_led_elsewhere: group.members.first().and_then(node_of) != Some(nodes[0]),
            leader: member_on(world, group, nodes[0]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volumes_are_dealt_to_nodes_with_about_the_same_room() {
        let rooms = [(NodeId(1), 90), (NodeId(2), 100), (NodeId(3), 95), (NodeId(4), 50)];
        let mut taken = BTreeMap::new();
        let mut dealt = Vec::new();
        for _ in 0..7 {
            let home = homes(&rooms, &taken)[0];
            *taken.entry(home).or_default() += 1;
            dealt.push(home.0);
        }
        assert_eq!(dealt, [2, 3, 1, 2, 3, 1, 2], "the roomiest first; who has half of that last");
        assert_eq!(homes(&[(NodeId(1), 0), (NodeId(2), 0)], &taken)[0], NodeId(1));
        assert!(homes(&[], &taken).is_empty());
    }
}
