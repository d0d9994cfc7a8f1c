//! Node sets, kept up: a node that is gone is replaced for all groups of a set at once, so that they still go the same way
//! when their home is lost.

use super::shares::Shares;
use super::world::World;
use super::{Group, NodeSet};
use std::collections::BTreeMap;

/// A node holds at most this much more than its share before a set is moved off it: 1/20, and not less than one group.
const LEEWAY: f64 = 0.05;

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

    fn excess(&self, node: usize) -> f64 {
        self.bound[node] - self.due[node] - (self.due[node] * LEEWAY).max(1.0)
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
    relieve(&mut bound, &mut whole, &sets.iter().map(size_of).collect::<Vec<_>>());
    let mended = |(set, nodes): (&NodeSet, Vec<usize>)| {
        let nodes: Vec<_> = nodes.into_iter().map(|node| world.nodes[node]).collect();
        let lead = if nodes.contains(&set.lead) { set.lead } else { nodes[0] };
        NodeSet { table: set.table, nodes, lead }
    };
    sets.iter().zip(whole).map(mended).collect()
}

/// The set's nodes that can stay, each in its place, or the one that steps in for it. The home is the first that is there.
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

/// Moves sets off nodes that cannot hold so many; their homes stay where volumes expect them.
fn relieve(bound: &mut Bound, sets: &mut [Vec<usize>], sizes: &[f64]) {
    for node in 0..bound.due.len() {
        while bound.excess(node) > 0.0 {
            let mut candidates: Vec<usize> =
                (0..sets.len()).filter(|&set| sets[set].iter().skip(1).any(|&other| other == node)).collect();
            // The smallest that is enough; if none is, the largest.
            let over = bound.excess(node);
            candidates.sort_by(|&a, &b| {
                let is_short = |set: usize| sizes[set] < over;
                let size = if is_short(a) { sizes[b].total_cmp(&sizes[a]) } else { sizes[a].total_cmp(&sizes[b]) };
                is_short(a).cmp(&is_short(b)).then(size).then(a.cmp(&b))
            });
            let moved = candidates.into_iter().any(|set| {
                let others: Vec<usize> = sets[set].iter().copied().filter(|&other| other != node).collect();
                let to = bound.roomiest(&others, Some(node)).filter(|to| !others.contains(to));
                let Some(to) = to.filter(|&to| sizes[set] > 0.0 && bound.room(to) >= sizes[set]) else { return false };
                let place = sets[set].iter().rposition(|&other| other == node).expect("it is there");
                sets[set][place] = to;
                bound.bound[node] -= sizes[set];
                bound.bound[to] += sizes[set];
                true
            });
            if !moved {
                break;
            }
        }
    }
}
