//! What to change in the map next: orders to groups' primaries, so many at a time.

use super::super::{Placement, Step, carry_out};
use super::{RecordChange, View, placed};
use crate::records::{GroupRecord, NodeSetRecord, PoolRecord, WantedRecord};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use types::{GroupId, StoreId};

/// Groups that one device is filled with at once: what it does at a time is paced elsewhere; this bounds how many
/// groups have a member more than they need, and how much is begun when something else becomes urgent.
pub const RECEIVING_MAX: usize = 8;

/// The next changes: none when all is as it should be, or everything that may begin has begun. Groups with the fewest
/// members in sync come first. Pools whose rules cannot be kept stay as they are; `foretell` and status say so.
pub fn next_changes(view: &View) -> Vec<RecordChange> {
    let mut changes = Vec::new();
    let mut receiving = receiving(view);
    for pool in view.pools.values() {
        if let Ok(placement) = placed(view, pool) {
            changes.extend(moved_sets(view, &placement));
            changes.extend(orders(view, pool, &placement, &mut receiving));
        }
    }
    changes
}

/// Why nothing moves in a pool, if that is so: its rules cannot be kept with the devices there are.
pub fn hindrance(view: &View) -> Option<String> {
    let why = |pool: &PoolRecord| placed(view, pool).err().map(|error| format!("pool {}: {error}", pool.name));
    view.pools.values().find_map(why)
}

/// Copies under way to each device.
fn receiving(view: &View) -> BTreeMap<StoreId, usize> {
    let mut receiving = BTreeMap::new();
    for wanted in view.wanted.values() {
        let in_sync = view.groups.get(&wanted.group).map_or(&[][..], |group| &group.in_sync);
        for store in wanted.members.iter().filter(|store| !in_sync.contains(store)) {
            *receiving.entry(*store).or_default() += 1;
        }
    }
    receiving
}

fn moved_sets(view: &View, placement: &Placement) -> Vec<RecordChange> {
    let changed = placement.sets.iter().filter_map(|set| {
        let record = view.sets.get(&set.table)?;
        let is_same = record.nodes == set.nodes && record.lead == set.lead;
        let next = NodeSetRecord { nodes: set.nodes.clone(), lead: set.lead, ..record.clone() };
        (!is_same).then_some(RecordChange::NodeSet(next))
    });
    changed.collect()
}

fn orders(
    view: &View,
    pool: &PoolRecord,
    placement: &Placement,
    receiving: &mut BTreeMap<StoreId, usize>,
) -> Vec<RecordChange> {
    let mut groups: Vec<(&GroupRecord, &Vec<StoreId>)> =
        placement.groups.iter().filter_map(|group| Some((view.groups.get(&group.id)?, &group.members))).collect();
    groups.sort_by_key(|(record, _)| (record.in_sync.len(), record.id));
    let of_sets: BTreeSet<GroupId> =
        placement.groups.iter().filter(|group| group.table.is_some()).map(|group| group.id).collect();
    let mut changes = Vec::new();
    for (record, members) in groups {
        // What is gathered is led from one node: an order brings it there also where nothing else is to change.
        let is_elsewhere = of_sets.contains(&record.id) && is_led_elsewhere(record, members);
        debug_assert_eq!(record.pool, pool.name);
        let order = WantedRecord { group: record.id, members: members.clone() };
        let is_done = carry_out(record, Some(&order), Duration::ZERO) == Step::Done;
        match view.wanted.get(&record.id) {
            Some(wanted) if *wanted == order && is_done => changes.push(RecordChange::WantedGone(record.id)),
            Some(wanted) if *wanted == order => {}
            None if is_done || (record.members == *members && !is_elsewhere) => {}
            there => {
                let decided = there.map_or(&record.members, |wanted| &wanted.members);
                let comes: Vec<StoreId> = members.iter().filter(|store| !decided.contains(store)).copied().collect();
                let is_full = |store: &StoreId| receiving.get(store).is_some_and(|&count| count >= RECEIVING_MAX);
                if comes.iter().any(is_full) {
                    continue;
                }
                comes.iter().for_each(|store| *receiving.entry(*store).or_default() += 1);
                changes.push(RecordChange::Wanted(order));
            }
        }
    }
    changes
}

/// Whether somebody leads the group who is to only if the first cannot, and the first can.
fn is_led_elsewhere(record: &GroupRecord, members: &[StoreId]) -> bool {
    members.first().is_some_and(|first| record.primary != *first && record.in_sync.contains(first))
}
