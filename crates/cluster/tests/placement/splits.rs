//! Every group in two: no data moves, and what held before holds after.

use crate::clusters::{Pool, Random, device};
use crate::sets::Tables;
use crate::{laws, minimum};
use cluster::placement::splits::{split, splits_due};
use cluster::placement::{Group, NodeSet, Placement, groups_for, place};
use cluster::{FailureDomain, GroupRecord, GroupState, NodeSetRecord, SlotTable};
use std::collections::BTreeMap;
use types::{Epoch, GroupId, Incarnation, Seq, Slot};

const SPREAD: u32 = 1;

/// A placed pool, its tables, and its groups as the map has them.
struct Splitting {
    pool: Pool,
    sets: Vec<NodeSet>,
    tables: BTreeMap<u32, SlotTable>,
    records: BTreeMap<GroupId, GroupRecord>,
}

impl Splitting {
    /// Each table has some of the slots for each of its groups, the `spread` table for all.
    fn new(pool: Pool, sets: Vec<NodeSet>) -> Self {
        let ids = |table: Option<u32>| -> Vec<GroupId> {
            let groups = pool.groups.iter().filter(|group| table.is_none() || group.table == table);
            groups.map(|group| group.id).collect()
        };
        let deal = |ids: Vec<GroupId>| SlotTable::from_runs(&SlotTable::deal(&ids)).expect("whole");
        let of_sets = sets.iter().map(|set| (set.table, deal(ids(Some(set.table)))));
        let tables = of_sets.chain([(SPREAD, deal(ids(None)))]).collect();
        let records = pool.groups.iter().map(|group| (group.id, record(group, pool.rules.min_in_sync))).collect();
        Self { pool, sets, tables, records }
    }

    fn set_of(&self, group: &Group) -> Option<NodeSetRecord> {
        let set = self.sets.iter().find(|set| Some(set.table) == group.table)?;
        let groups = self.pool.groups.iter().filter(|other| other.table == group.table).map(|other| other.id);
        let NodeSet { table, nodes, lead } = set.clone();
        Some(NodeSetRecord { table, pool: "fast".to_owned(), nodes, lead, groups: groups.collect() })
    }

    /// Splits every group there is, one after the other, each beginning where it is; says who became whose child.
    fn split_all(&mut self) -> BTreeMap<GroupId, GroupId> {
        let mut parents = BTreeMap::new();
        let first = self.pool.groups.iter().map(|group| group.id.0).max().unwrap_or(0) + 1;
        for (at, group) in self.pool.groups.clone().into_iter().enumerate() {
            let (child, above) = (GroupId(first + at as u32), Seq(1000 + at as u64));
            let (parent, set) = (self.records[&group.id].clone(), self.set_of(&group));
            let theirs: Vec<(u32, SlotTable)> = self.tables.iter().map(|(id, table)| (*id, table.clone())).collect();
            let split = split(&parent, child, above, &theirs, set.as_ref()).expect("it can be halved");
            assert_eq!((split.record.child, split.record.parent, split.record.above), (child, group.id, above));
            let wanted = GroupRecord { id: child, epoch: split.child.epoch, life: Incarnation(0), ..parent.clone() };
            assert_eq!(split.child, wanted, "it lies where its parent lies, and nobody has led it");
            assert!(split.child.epoch > parent.epoch);
            for after in split.tables {
                self.tables.insert(after.table, SlotTable::from_runs(&after.runs).expect("whole"));
            }
            let table = split.set.map(|after| {
                let before = set.expect("it has a set");
                assert_eq!(after, NodeSetRecord { groups: [&before.groups[..], &[child]].concat(), ..before });
                after.table
            });
            assert_eq!(table, group.table, "a child is in its parent's set, if that is in any");
            self.pool.groups.push(Group { id: child, members: split.child.members.clone(), table });
            self.records.insert(child, split.child);
            parents.insert(child, group.id);
        }
        parents
    }

    fn place(&self) -> Placement {
        place(&self.pool.devices, &self.pool.rules, &self.sets, &self.pool.groups).expect("its rules can be kept")
    }
}

fn record(group: &Group, min_in_sync: usize) -> GroupRecord {
    GroupRecord {
        id: group.id,
        table: group.table.unwrap_or(SPREAD),
        pool: "fast".to_owned(),
        epoch: Epoch(3 + group.id.0 % 5),
        primary: group.members[0],
        life: Incarnation(4),
        in_sync: group.members.clone(),
        eligible: Vec::new(),
        joining: Vec::new(),
        members: group.members.clone(),
        min_in_sync: min_in_sync as u32,
        state: GroupState::Active,
        forced: None,
    }
}

/// In each table each slot is where it was, or at the child of who had it; each has half of what the parent had.
fn slots_are_halved(before: &BTreeMap<u32, SlotTable>, after: &Splitting, parents: &BTreeMap<GroupId, GroupId>) {
    assert_eq!(before.len(), after.tables.len());
    for (id, was) in before {
        let is = &after.tables[id];
        let mut slots: BTreeMap<GroupId, u32> = BTreeMap::new();
        for slot in (0..=u16::MAX).map(Slot) {
            let (was, is) = (was.group_of(slot), is.group_of(slot));
            assert!(is == was || parents.get(&is) == Some(&was), "slot {slot} of table {id} goes from {was} to {is}");
            *slots.entry(is).or_default() += 1;
        }
        assert_eq!(slots.len(), was.groups().len() * 2, "every group of table {id} has a child in it");
        for (child, parent) in parents.iter().filter(|(child, _)| slots.contains_key(child)) {
            let (given, kept) = (slots[child], slots[parent]);
            assert!(kept - given <= 1, "{parent} keeps {kept} slots of table {id}, and gives {given}");
        }
    }
}

#[test]
fn a_pool_of_any_shape_whose_groups_are_all_halved_moves_nothing() {
    for seed in 0..40 {
        let pool = Pool::drawn(&mut Random(seed), 6).placed();
        println!("seed {seed}: {} devices, {} groups, {:?}", pool.devices.len(), pool.groups.len(), pool.rules);
        if pool.groups.len() > 1200 {
            continue;
        }
        let before = pool.place();
        let mut splitting = Splitting::new(pool, Vec::new());
        let tables = splitting.tables.clone();
        let parents = splitting.split_all();
        slots_are_halved(&tables, &splitting, &parents);
        let after = splitting.place();
        laws::but_partners(&splitting.pool, &after);
        // What was a group too many is two then: more than one, where a twentieth of the share is less than that.
        if before.shares.iter().all(|share| share.due >= 20.0) {
            assert_eq!(after.moves, Vec::new());
            let partners =
                |placement: &Placement| -> Vec<u32> { placement.shares.iter().map(|share| share.partners).collect() };
            assert_eq!(partners(&after), partners(&before));
        }
        let fewest = minimum::fewest_copies(&splitting.pool, &splitting.pool.groups, after.copies);
        assert!(after.copies_to_make() * 10 <= fewest * 11, "{} copies, {fewest} at least", after.copies_to_make());
    }
}

#[test]
fn a_pool_of_node_sets_whose_groups_are_all_halved_moves_nothing() {
    let Tables { pool, sets, .. } = Tables::full(Pool::even(6, 2, 3, FailureDomain::Node));
    let mut splitting = Splitting::new(pool, sets);
    let tables = splitting.tables.clone();
    assert!(tables.len() > 20, "{} tables", tables.len());
    let parents = splitting.split_all();
    slots_are_halved(&tables, &splitting, &parents);
    let after = splitting.place();
    assert_eq!((&after.moves, &after.sets), (&Vec::new(), &splitting.sets));
    laws::rules_are_kept(&splitting.pool, &after);
    laws::is_balanced(&splitting.pool, &after);
}

#[test]
fn a_pool_that_doubles_gets_as_many_groups_as_a_new_one_and_then_its_devices_their_share() {
    for (nodes, replicas) in [(4, 2), (5, 3), (9, 3)] {
        let mut pool = Pool::even(nodes, 2, replicas, FailureDomain::Node).placed();
        pool.devices.extend((0..2 * nodes).map(|at| device(u128::from(500 + at), 100 + at / 2, 1000)));
        let (devices, groups) = (pool.devices.len() as u32, pool.groups.len() as u32);
        assert_eq!(splits_due(groups, devices, replicas as u32), 1);
        let mut splitting = Splitting::new(pool, Vec::new());
        splitting.split_all();
        assert_eq!(splits_due(2 * groups, devices, replicas as u32), 0);
        let after = splitting.place();
        laws::all(&splitting.pool, &after);
        let fewest = minimum::fewest_copies(&splitting.pool, &splitting.pool.groups, after.copies);
        assert!(after.copies_to_make() * 10 <= fewest * 11, "{} copies, {fewest} at least", after.copies_to_make());
    }
}

/// As often as that gives no more groups than a new pool of that size has: but for what was rounded up before.
#[test]
fn groups_are_halved_as_often_as_a_new_pool_would_have_more() {
    let mut random = Random(1);
    for _ in 0..2000 {
        let replicas = random.between(1, 5) as u32;
        let (groups, devices) = (random.between(1, 40_000) as u32, random.between(1, 1000) as u32);
        let (due, rule) = (splits_due(groups, devices, replicas), groups_for(devices, replicas));
        let is_right = |times: u32| groups << times < rule + (1 << times);
        assert!(due == 0 || is_right(due), "{groups} groups are halved {due} times for {devices} devices");
        assert!(!is_right(due + 1), "{groups} groups are halved {due} times only for {devices} devices");
    }
}
