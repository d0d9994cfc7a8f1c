//! Node sets, kept up: a node that is gone is replaced for all groups of a set at once, so that they still go the same
//! way when their home is lost.

use super::shares::Shares;
use super::world::World;
use super::{Group, NodeSet};
use std::collections::BTreeMap;

/// How much of each node is spoken for.
pub(super) struct Bound<'a> {
    world: &'a World,
    /// Share of each node.
    pub(super) due: Vec<f64>,
    /// Of that, what groups of node sets hold.
    pub(super) bound: Vec<f64>,
}

impl<'a> Bound<'a> {
    pub(super) fn new(world: &'a World, shares: &Shares) -> Self {
        let due = (0..world.nodes.len()).map(|node| shares.of_node(world, node)).collect();
        Self { world, due, bound: vec![0.0; world.nodes.len()] }
    }

    pub(super) fn take(&mut self, nodes: &[usize], groups: f64) {
        nodes.iter().for_each(|&node| self.bound[node] += groups);
    }

    /// Memberships that no node set has yet.
    pub(super) fn room(&self, node: usize) -> f64 {
        self.due[node] - self.bound[node]
    }

    /// The node with the most room that may stand beside `others`.
    fn roomiest(&self, others: &[usize], not: Option<usize>) -> Option<usize> {
        let fits = |node: &usize| Some(*node) != not && self.world.may_share_group(&[others, &[*node]].concat());
        let nodes = (0..self.world.nodes.len()).filter(fits);
        // Two members on one node, where that is allowed at all, only if there is no other.
        nodes.max_by(|&a, &b| {
            let is_other = |node: usize| !others.contains(&node);
            is_other(a).cmp(&is_other(b)).then(self.room(a).total_cmp(&self.room(b))).then(b.cmp(&a))
        })
    }
}

/// The sets as they are to be.
pub(super) fn mend(world: &World, shares: &Shares, sets: &[NodeSet], groups: &[Group]) -> Vec<NodeSet> {
    let mut size: BTreeMap<u32, f64> = BTreeMap::new();
    groups.iter().filter_map(|group| group.table).for_each(|table| *size.entry(table).or_default() += 1.0);
    let size_of = |set: &NodeSet| size.get(&set.table).copied().unwrap_or_default();
    let mut bound = Bound::new(world, shares);
    let mut nodes: Vec<Vec<Option<usize>>> = sets.iter().map(|set| standing(world, set)).collect();
    for (set, nodes) in sets.iter().zip(&nodes) {
        bound.take(&nodes.iter().flatten().copied().collect::<Vec<_>>(), size_of(set));
    }
    for (set, nodes) in sets.iter().zip(&mut nodes) {
        complete(&mut bound, nodes, size_of(set));
    }
    let mut whole: Vec<Vec<usize>> = nodes.into_iter().map(|nodes| nodes.into_iter().flatten().collect()).collect();
    let free_groups = groups.iter().filter(|group| group.table.is_none()).count() as f64;
    relieve(&mut bound, &mut whole, &sets.iter().map(size_of).collect::<Vec<_>>(), free_groups);
    let mended = |(set, nodes): (&NodeSet, Vec<usize>)| {
        let nodes: Vec<_> = nodes.into_iter().map(|node| world.nodes[node]).collect();
        let lead = if nodes.contains(&set.lead) { set.lead } else { nodes[0] };
        NodeSet { table: set.table, nodes, lead }
    };
    sets.iter().zip(whole).map(mended).collect()
}

/// Targets that sets can keep to: a node whose sets alone are more than its share holds them, evenly on its devices,
/// and others go without as much.
pub(super) fn targets(world: &World, sets: &[NodeSet], groups: &[Group], mut targets: Vec<u32>) -> Vec<u32> {
    let mut size: BTreeMap<u32, i64> = BTreeMap::new();
    groups.iter().filter_map(|group| group.table).for_each(|table| *size.entry(table).or_default() += 1);
    // What each node has beyond its sets.
    let mut room: Vec<i64> =
        world.of_node.iter().map(|list| list.iter().map(|&d| i64::from(targets[d as usize])).sum()).collect();
    for set in sets {
        for node in set.nodes.iter().filter_map(|node| world.node_index(*node)) {
            room[node] -= size.get(&set.table).copied().unwrap_or_default();
        }
    }
    let relative = |device: u16, targets: &[u32]| {
        u64::from(targets[device as usize]) * (1 << 24) / world.weight[device as usize].max(1)
    };
    while let Some(short) = (0..room.len()).find(|&node| room[node] < 0) {
        let Some(rich) = (0..room.len()).filter(|&node| room[node] > 0).max_by_key(|&node| (room[node], node)) else {
            break;
        };
        let up = world.of_node[short].iter().copied().min_by_key(|&device| (relative(device, &targets), device));
        let down = world.of_node[rich].iter().copied().filter(|&device| targets[device as usize] > 0);
        let down = down.max_by_key(|&device| (relative(device, &targets), device));
        let (Some(up), Some(down)) = (up, down) else { break };
        targets[up as usize] += 1;
        targets[down as usize] -= 1;
        room[short] += 1;
        room[rich] -= 1;
    }
    targets
}

/// The set's nodes that can stay, each in its place, or the one that steps in for it. The home is the first that is
/// there.
fn standing(world: &World, set: &NodeSet) -> Vec<Option<usize>> {
    let mut there: Vec<Option<usize>> = Vec::new();
    for node in &set.nodes {
        let found = world.node_index(*node).or(world.node_instead.get(node).copied());
        let beside: Vec<usize> = there.iter().flatten().copied().chain(found).collect();
        there.push(found.filter(|_| world.may_share_group(&beside)));
    }
    let home = there.iter().position(Option::is_some).unwrap_or(0);
    there.rotate_left(home);
    // Where there are fewer copies than there were, the last ones go.
    while there.len() > world.copies {
        let gap = there.iter().rposition(Option::is_none).unwrap_or(there.len() - 1);
        there.remove(gap);
    }
    there.resize(world.copies, None);
    there
}

fn complete(bound: &mut Bound, nodes: &mut [Option<usize>], groups: f64) {
    for place in 0..nodes.len() {
        if nodes[place].is_none() {
            let others: Vec<usize> = nodes.iter().flatten().copied().collect();
            nodes[place] = bound.roomiest(&others, None);
            bound.take(&nodes[place].into_iter().collect::<Vec<_>>(), groups);
        }
    }
}

/// Moves sets off nodes that cannot hold so many, and to nodes that groups of no set cannot fill, as long as that
/// brings both nearer to their shares; their homes stay where volumes expect them.
fn relieve(bound: &mut Bound, sets: &mut [Vec<usize>], sizes: &[f64], free_groups: f64) {
    // Each step leaves less to be done; that many are enough to move every set twice.
    for _ in 0..2 * sets.len() {
        let Some((set, from, to)) = push(bound, sets, sizes).or_else(|| pull(bound, sets, sizes, free_groups)) else {
            return;
        };
        let place = sets[set].iter().rposition(|&other| other == from).expect("it is there");
        sets[set][place] = to;
        bound.bound[from] -= sizes[set];
        bound.bound[to] += sizes[set];
    }
}

/// From the node that has most too much: the set whose size is nearest to that.
fn push(bound: &Bound, sets: &[Vec<usize>], sizes: &[f64]) -> Option<(usize, usize, usize)> {
    let mut nodes: Vec<usize> = (0..bound.due.len()).filter(|&node| bound.room(node) < 0.0).collect();
    nodes.sort_by(|&a, &b| bound.room(a).total_cmp(&bound.room(b)).then(a.cmp(&b)));
    nodes.into_iter().find_map(|from| {
        let over = -bound.room(from);
        by_size(sets, sizes, from, over).into_iter().find_map(|set| {
            let others: Vec<usize> = sets[set].iter().copied().filter(|&other| other != from).collect();
            let to = bound.roomiest(&others, Some(from)).filter(|to| !others.contains(to))?;
            (sizes[set] < 2.0 * bound.room(to)).then_some((set, from, to))
        })
    })
}

/// To the node that lacks most, beyond one member of each group of no set: from whoever has least room.
fn pull(bound: &Bound, sets: &[Vec<usize>], sizes: &[f64], free_groups: f64) -> Option<(usize, usize, usize)> {
    let lack = |node: usize| bound.room(node) - free_groups;
    let mut nodes: Vec<usize> = (0..bound.due.len()).filter(|&node| lack(node) > 0.0).collect();
    nodes.sort_by(|&a, &b| lack(b).total_cmp(&lack(a)).then(a.cmp(&b)));
    nodes.into_iter().find_map(|to| {
        let mut givers: Vec<usize> = (0..bound.due.len()).filter(|&node| node != to).collect();
        givers.sort_by(|&a, &b| bound.room(a).total_cmp(&bound.room(b)).then(a.cmp(&b)));
        givers.into_iter().find_map(|from| {
            let fits = |set: &usize| {
                let others: Vec<usize> = sets[*set].iter().copied().filter(|&other| other != from).collect();
                !others.contains(&to) && bound.world.may_share_group(&[&others[..], &[to]].concat())
            };
            let set = by_size(sets, sizes, from, lack(to)).into_iter().find(fits)?;
            (lack(from) + sizes[set] <= 0.0).then_some((set, from, to))
        })
    })
}

/// The sets that the node is a guest of and that are smaller than twice `size`, the nearest to it first.
fn by_size(sets: &[Vec<usize>], sizes: &[f64], node: usize, size: f64) -> Vec<usize> {
    let is_guest = |set: &usize| sets[*set].iter().skip(1).any(|&other| other == node);
    let helps = |set: &usize| sizes[*set] > 0.0 && sizes[*set] < 2.0 * size;
    let mut found: Vec<usize> = (0..sets.len()).filter(is_guest).filter(helps).collect();
    found.sort_by(|&a, &b| (sizes[a] - size).abs().total_cmp(&(sizes[b] - size).abs()).then(a.cmp(&b)));
    found
}
