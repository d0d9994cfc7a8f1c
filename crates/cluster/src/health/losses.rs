//! What one more loss would do.
//!
//! Of groups that are whole nothing is said: they bear what their pool was made to bear. Of each other group, every member that
//! still holds all of it is taken away in thought, with its whole node (or alone, where the pool's copies are kept apart by device
//! only): either nobody holds the group then, and its data is lost, or too few are left to serve it, and it stops.

use super::{Known, node_name, words};
use crate::records::{FailureDomain, GroupRecord, VolumeState};
use std::collections::{BTreeMap, BTreeSet};
use types::{GroupId, NodeId, StoreId};

/// What the loss of any of these would do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// Whether data would be lost, and not only served no more.
    pub loses_data: bool,
    /// Of any of these: nodes, or devices.
    pub of: Vec<String>,
    /// Placement groups that it is about.
    pub groups: usize,
    /// Volumes that lie in them, by name.
    pub volumes: Vec<String>,
}

impl Loss {
    /// "one more loss of node-1 or node-3 stops 3 volumes (a, b, c)"
    pub fn text(&self) -> String {
        let does = if self.loses_data { "loses data of" } else { "stops" };
        format!("one more loss of {} {does} {}", self.of.join(" or "), words::volumes(&self.volumes))
    }
}

/// What may be lost at once.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Unit {
    Node(NodeId),
    Device(StoreId),
}

/// What the loss of one unit does.
#[derive(Default)]
struct Effect {
    loses: BTreeSet<GroupId>,
    stops: BTreeSet<GroupId>,
}

/// What one more loss would do to these groups, the worst first.
pub(super) fn of_groups(known: &Known, groups: &[&GroupRecord]) -> Vec<Loss> {
    let mut effects: BTreeMap<Unit, Effect> = BTreeMap::new();
    for group in groups.iter().filter(|group| !known.is_whole(group)) {
        note(known, group, &mut effects);
    }
    let mut alike: BTreeMap<(bool, Vec<String>), (Vec<Unit>, usize)> = BTreeMap::new();
    for (unit, effect) in effects {
        let mut lost = known.volumes_in(&effect.loses);
        // What lies in the trash can be lost, and not be stopped.
        lost.extend(trashed_in(known, &effect.loses));
        for (loses_data, groups, volumes) in
            [(true, effect.loses.len(), lost), (false, effect.stops.len(), known.volumes_in(&effect.stops))]
        {
            if !volumes.is_empty() {
                let (units, most) = alike.entry((loses_data, volumes)).or_default();
                units.push(unit);
                *most = groups.max(*most);
            }
        }
    }
    let named = |((loses_data, volumes), (units, groups)): (_, (Vec<Unit>, _))| {
        let of = units.into_iter().map(|unit| name(known, unit)).collect();
        Loss { loses_data, of, groups, volumes }
    };
    let mut losses: Vec<Loss> = alike.into_iter().map(named).collect();
    losses.sort_by_key(|loss| std::cmp::Reverse((loss.loses_data, loss.volumes.len())));
    losses
}

fn note(known: &Known, group: &GroupRecord, effects: &mut BTreeMap<Unit, Effect>) {
    let unit = |store: &StoreId| unit_of(known, group, *store);
    // Who held everything when too few were left holds it still.
    let holders: Vec<&StoreId> = group.in_sync.iter().chain(&group.eligible).collect();
    let units: BTreeSet<Unit> = holders.iter().map(|store| unit(store)).collect();
    let (_, needed) = known.copies_of(group);
    for lost in &units {
        let left = |store: &&&StoreId| unit(store) != *lost;
        let effect = effects.entry(*lost).or_default();
        let serve_then =
            group.in_sync.iter().filter(|store| unit(store) != *lost && known.there.contains(store)).count();
        if holders.iter().filter(left).count() == 0 {
            effect.loses.insert(group.id);
        } else if serve_then < needed && !known.is_stopped(group) {
            effect.stops.insert(group.id);
        }
    }
}

fn unit_of(known: &Known, group: &GroupRecord, store: StoreId) -> Unit {
    let Some(device) = known.view.devices.get(&store) else { return Unit::Device(store) };
    let domain = known.view.pools.get(&group.pool).map(|pool| known.view.rules_of(pool).failure_domain);
    match domain {
        Some(FailureDomain::Device) => Unit::Device(store),
        _ => Unit::Node(device.node),
    }
}

fn name(known: &Known, unit: Unit) -> String {
    match unit {
        Unit::Node(node) => node_name(node),
        Unit::Device(store) => super::devices::name(known, store),
    }
}

fn trashed_in(known: &Known, groups: &BTreeSet<GroupId>) -> Vec<String> {
    let trashed = known.volumes.values().filter(|volume| matches!(volume.state, VolumeState::Trashed(_)));
    let lost = trashed.filter(|volume| known.lies_in(volume, groups));
    lost.map(|volume| format!("{} in the trash", volume.name)).collect()
}
