//! Node sets: tables for volumes that are led from one node.

use crate::clusters::{Pool, Random, device, timed};
use crate::laws;
use cluster::FailureDomain;
use cluster::placement::choose::{Choice, Pool as Choosing, SETS_PER_HOME_MAX, roomiest_home, table_for};
use cluster::placement::{Duty, NodeSet, Placement, place};
use std::collections::{BTreeMap, BTreeSet};
use types::{GroupId, NodeId, StoreId};

/// A pool with tables, and room on its devices.
pub struct Tables {
    pub pool: Pool,
    pub sets: Vec<NodeSet>,
    free: BTreeMap<StoreId, u64>,
    held: BTreeMap<GroupId, u64>,
}

impl Tables {
    fn new(pool: Pool) -> Self {
        let free = pool.devices.iter().map(|device| (device.store, device.weight * 1000)).collect();
        Self { pool: pool.placed(), sets: Vec::new(), free, held: BTreeMap::new() }
    }

    fn place(&self) -> Placement {
        place(&self.pool.devices, &self.pool.rules, &self.sets, &self.pool.groups).expect("its rules can be kept")
    }

    /// Places all anew and keeps that; returns what was copied.
    fn settle(&mut self) -> Placement {
        let placement = self.place();
        self.pool.groups.clone_from(&placement.groups);
        self.sets.clone_from(&placement.sets);
        placement
    }

    fn choose(&self, home: NodeId) -> Choice {
        let Pool { devices, rules, groups } = &self.pool;
        let choosing = Choosing { devices, rules, sets: &self.sets, groups, free: &self.free, held: &self.held };
        table_for(&choosing, home).expect("a table")
    }

    /// A volume of some bytes at `home`: its table, made if there is none that is as good.
    fn add_volume(&mut self, home: NodeId, bytes: u64) -> u32 {
        let table = match self.choose(home) {
            Choice::Table(table) => table,
            Choice::NewSet { nodes, groups } => {
                let table = self.sets.len() as u32 + 100;
                self.sets.push(NodeSet { table, lead: nodes[0], nodes });
                for group in &mut self.pool.groups {
                    if groups.contains(&group.id) {
                        assert_eq!(group.table, None, "a group is in one set");
                        group.table = Some(table);
                    }
                }
                self.settle();
                table
            }
        };
        let groups: Vec<_> = self.pool.groups.iter().filter(|group| group.table == Some(table)).collect();
        for group in &groups {
            let part = bytes / groups.len() as u64;
            *self.held.entry(group.id).or_default() += part;
            for store in &group.members {
                let free = self.free.entry(*store).or_default();
                *free = free.saturating_sub(part);
            }
        }
        table
    }

    /// Every home has as many sets as it may have.
    pub fn full(pool: Pool) -> Self {
        let mut this = Self::new(pool);
        let nodes: BTreeSet<NodeId> = this.pool.devices.iter().map(|device| device.node).collect();
        for _ in 0..SETS_PER_HOME_MAX {
            for node in &nodes {
                this.add_volume(*node, 60_000);
            }
        }
        this
    }

    /// The groups of each set lie on its nodes, one member on each, and are led in the set's order.
    fn check_sets(&self, placement: &Placement) {
        let node_of: BTreeMap<StoreId, NodeId> =
            self.pool.devices.iter().map(|device| (device.store, device.node)).collect();
        for set in &placement.sets {
            let groups = placement.groups.iter().filter(|group| group.table == Some(set.table));
            for group in groups {
                let nodes: Vec<NodeId> = group.members.iter().map(|store| node_of[store]).collect();
                assert_eq!(nodes, set.nodes, "group {} of table {}", group.id, set.table);
            }
        }
    }

    fn sets_at(&self, home: NodeId) -> usize {
        self.sets.iter().filter(|set| set.nodes[0] == home).count()
    }
}

#[test]
fn tables_are_made_when_first_needed_and_no_more_than_eight_per_home() {
    let mut tables = Tables::new(Pool::even(12, 3, 3, FailureDomain::Node));
    assert!(tables.sets.is_empty());
    let home = NodeId(4);
    for volume in 0..40 {
        tables.add_volume(home, 30_000);
        assert!(tables.sets_at(home) <= SETS_PER_HOME_MAX, "after {volume} volumes");
    }
    assert!(tables.sets_at(home) >= 4, "{} sets", tables.sets_at(home));
    let placement = tables.place();
    assert_eq!(placement.copies_to_make(), 0);
    tables.check_sets(&placement);
    laws::rules_are_kept(&tables.pool, &placement);
    laws::is_balanced(&tables.pool, &placement);
    let nexts: BTreeSet<NodeId> = tables.sets.iter().map(|set| set.nodes[1]).collect();
    assert_eq!(nexts.len(), tables.sets.len(), "who takes over is another node in each set, as long as there are any");
}

#[test]
fn a_volume_gets_the_table_with_the_most_room() {
    let mut tables = Tables::new(Pool::even(12, 2, 3, FailureDomain::Node));
    let home = NodeId(1);
    let first = tables.add_volume(home, 1000);
    for store in tables.pool.devices.iter().filter(|device| device.node == tables.sets[0].nodes[1]) {
        tables.free.insert(store.store, 5_000);
    }
    let second = tables.add_volume(home, 1000);
    assert_ne!(first, second, "its fullest node is nearly full");
    assert_eq!(tables.add_volume(home, 1000), second, "another set would have no more room");
    let Pool { devices, rules, groups } = &tables.pool;
    let choosing = Choosing { devices, rules, sets: &tables.sets, groups, free: &tables.free, held: &tables.held };
    let roomiest = roomiest_home(&choosing).expect("a home");
    assert!(roomiest != home && !tables.sets[0].nodes.contains(&roomiest));
}

/// In a pool that is full of tables every device still holds its share, and no device holds a second set of groups for
/// them.
#[test]
fn pools_full_of_tables_are_even() {
    for (nodes, per_node, replicas) in [(4, 1, 3), (6, 4, 3), (12, 3, 3), (25, 1, 2), (20, 2, 2), (9, 6, 4)] {
        let tables = Tables::full(Pool::even(nodes, per_node, replicas, FailureDomain::Node));
        let placement = tables.place();
        println!("{nodes} nodes of {per_node}, {replicas} copies: {} sets", tables.sets.len());
        laws::rules_are_kept(&tables.pool, &placement);
        laws::is_balanced(&tables.pool, &placement);
        tables.check_sets(&placement);
        let bound = placement.groups.iter().filter(|group| group.table.is_some()).count();
        assert!(bound * 10 >= placement.groups.len() * 8, "{bound} of {} are in a set", placement.groups.len());
        is_led_evenly(&tables.pool, &placement);
    }
}

/// Homes lead their part to 5 % or a group; among the devices of a home it is to 15 % or two, as members of a set move
/// for other reasons, and no copy is made for that alone.
fn is_led_evenly(pool: &Pool, placement: &Placement) {
    let mut nodes: BTreeMap<NodeId, (f64, f64)> = BTreeMap::new();
    for share in &placement.shares {
        let part = f64::from(share.held) / placement.copies as f64;
        let led = f64::from(share.led);
        assert!((led - part).abs() <= (part * 0.15).max(2.0), "{share:?}");
        let device = pool.devices.iter().find(|device| device.store == share.store).expect("a device");
        let node = nodes.entry(device.node).or_default();
        *node = (node.0 + part, node.1 + led);
    }
    for (node, (part, led)) in nodes {
        assert!((led - part).abs() <= (part * 0.05).max(1.0), "node {node} leads {led} of {part}");
    }
}

/// When a node is lost, each set gets one node for it, all of its groups the same.
#[test]
fn a_set_that_loses_a_node_gets_another_for_all_of_its_groups() {
    for lost in 1..=6 {
        let mut tables = Tables::full(Pool::even(12, 3, 3, FailureDomain::Node));
        let before = tables.place();
        let gone = NodeId(lost);
        tables.pool.devices.iter_mut().filter(|device| device.node == gone).for_each(|device| device.duty = Duty::Out);
        let placement = tables.settle();
        tables.check_sets(&placement);
        laws::rules_are_kept(&tables.pool, &placement);
        laws::is_balanced(&tables.pool, &placement);
        for (was, is) in before.sets.iter().zip(&placement.sets) {
            let kept: Vec<NodeId> = was.nodes.iter().copied().filter(|node| *node != gone).collect();
            assert!(kept.iter().all(|node| is.nodes.contains(node)), "{was:?} became {is:?}");
            if was.nodes[0] == gone {
                assert_eq!(is.nodes[0], was.nodes[1], "the home is where all of it is already");
            }
        }
        let fewest = laws::fewest_copies(&tables.pool, &before.groups, 3);
        println!("node {lost}: {} copies, {fewest} at least", placement.copies_to_make());
        assert!(placement.copies_to_make() as f64 <= fewest * 1.1, "{} of {fewest}", placement.copies_to_make());
    }
}

#[test]
fn a_node_that_comes_to_a_pool_full_of_tables_gets_its_share_and_homes_stay() {
    let mut tables = Tables::full(Pool::even(12, 3, 3, FailureDomain::Node));
    let before = tables.place();
    tables.pool.devices.extend((0..3).map(|at| device(900 + at, 99, 1000)));
    let placement = tables.settle();
    tables.check_sets(&placement);
    laws::rules_are_kept(&tables.pool, &placement);
    let homes = |sets: &[NodeSet]| sets.iter().map(|set| set.nodes[0]).collect::<Vec<_>>();
    assert_eq!(homes(&placement.sets), homes(&before.sets));
    laws::is_balanced(&tables.pool, &placement);
    let fewest = laws::fewest_copies(&tables.pool, &before.groups, 3);
    // Sets move whole: what is too much then comes back as groups of no set, within the tenth.
    println!("{} copies, {fewest} at least", placement.copies_to_make());
    assert!(placement.copies_to_make() as f64 <= fewest * 1.1, "{} of {fewest}", placement.copies_to_make());
}

/// Tables come and nodes come and go, in any order.
#[test]
fn sets_hold_through_any_changes() {
    for seed in 0..40 {
        let mut random = Random(seed);
        let mut tables = Tables::new(Pool::even(10, 2, 3, FailureDomain::Node));
        for step in 0..30 {
            let at = random.below(tables.pool.devices.len() as u64) as usize;
            let node = tables.pool.devices[at].node;
            let alive: BTreeSet<NodeId> =
                tables.pool.devices.iter().filter(|device| device.duty == Duty::In).map(|device| device.node).collect();
            match random.below(4) {
                0 if alive.len() > 6 => {
                    let lost = tables.pool.devices.iter_mut().filter(|device| device.node == node);
                    lost.for_each(|device| device.duty = Duty::Out);
                }
                1 => {
                    let new = (0..2).map(|at| device(5000 + step * 2 + at, 500 + step as u32, 1000));
                    tables.pool.devices.extend(new.clone());
                    tables.free.extend(new.map(|device| (device.store, 1_000_000)));
                }
                _ if alive.contains(&node) && tables.sets_at(node) < SETS_PER_HOME_MAX => {
                    tables.add_volume(node, 10_000);
                }
                _ => {}
            }
            let before = tables.pool.groups.clone();
            let placement = tables.settle();
            let (copies, fewest) = (placement.copies_to_make(), laws::fewest_copies(&tables.pool, &before, 3));
            assert!(copies as f64 <= fewest * 1.1, "seed {seed}, step {step}: {copies} of {fewest}");
            tables.check_sets(&placement);
            laws::rules_are_kept(&tables.pool, &placement);
            laws::is_balanced(&tables.pool, &placement);
            assert_eq!(tables.place().copies_to_make(), 0, "seed {seed}, step {step}");
        }
    }
}

#[test]
fn on_a_single_node_a_set_is_its_devices() {
    let mut tables = Tables::new(Pool::even(1, 4, 2, FailureDomain::Device));
    let table = tables.add_volume(NodeId(1), 1000);
    assert_eq!(tables.sets[0].nodes, vec![NodeId(1), NodeId(1)]);
    assert_eq!(tables.add_volume(NodeId(1), 1000), table);
    let placement = tables.place();
    laws::rules_are_kept(&tables.pool, &placement);
    laws::is_balanced(&tables.pool, &placement);
}

/// The largest there is, with as many tables as there may be: 8,000, and 32,000 of 33,334 groups in them.
#[test]
fn a_thousand_homes_with_eight_sets_each_are_placed() {
    let nodes = 1000;
    let mut pool = Pool::even(nodes, 1, 3, FailureDomain::Node);
    let node = |at: u32| NodeId(at % nodes + 1);
    let set = |at: u32| {
        let (home, turn) = (at / 8, at % 8);
        let nodes = vec![node(home), node(home + 1 + turn * 61), node(home + 500 + turn * 59)];
        NodeSet { table: 100 + at, lead: nodes[0], nodes }
    };
    let sets: Vec<NodeSet> = (0..nodes * 8).map(set).collect();
    for (at, group) in pool.groups.iter_mut().take(32_000).enumerate() {
        group.table = Some(100 + at as u32 / 4);
    }
    let mut tables = Tables { pool, sets, free: BTreeMap::new(), held: BTreeMap::new() };
    let check = |tables: &mut Tables, what: &str| {
        let before = tables.pool.groups.clone();
        let (placement, took) = timed(|| tables.settle());
        let fewest = laws::fewest_copies(&tables.pool, &before, 3);
        let copies = placement.copies_to_make();
        println!("{what}: {took:?}, {copies} copies, {fewest} at least");
        tables.check_sets(&placement);
        laws::rules_are_kept(&tables.pool, &placement);
        laws::is_balanced(&tables.pool, &placement);
        assert!(copies as f64 <= fewest * 1.1, "{copies} of {fewest}");
    };
    check(&mut tables, "new");
    tables.pool.devices[400].duty = Duty::Out;
    check(&mut tables, "a node less");
    tables.pool.devices.push(device(5000, 5000, 1000));
    check(&mut tables, "a node more");
}
