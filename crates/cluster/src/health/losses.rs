//! What one more loss would do, and devices that are full.
//!
//! Of groups that are whole nothing is said: they bear what their pool was made to bear. Of each other group, every member that
//! still holds all of it is taken away in thought, with its whole node (or alone, where the pool's copies are kept apart by device
//! only): either nobody holds the group then, and its data is lost, or too few are left to serve it, and it stops.
//!
//! Devices that fill up keep copies from being made: of nodes that are lost no copy could be made good. That is no fault of a
//! cluster in which nothing is nearly full, be there too few nodes for another copy or not.

use super::{Known, node_name, nodes, words};
use crate::placement::duty::{Refusal, Request, Subject, foretell};
use crate::records::{FailureDomain, GroupRecord, NodeDuty, VolumeState};
use std::collections::{BTreeMap, BTreeSet};
use types::{GroupId, NodeId, StoreId};

/// What happens to volumes, from bad to not so bad.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Harm {
    /// Nobody holds a part of their data any more.
    LosesData,
    /// A part of them is served no more.
    Stops,
    /// Where they hold nothing yet they take no writes, as it is.
    RefusesNew,
    /// The same, as soon as a device is full.
    WillRefuseNew,
    /// Their writes wait for a device that is slow.
    Waits,
    /// What is damaged on a device has a copy less.
    LacksCopy,
    /// They have a copy less, and no device has room for another one.
    StaysShort,
    /// They are out of service as it is.
    AreStopped,
    /// What these words say.
    Told(&'static str),
    /// Nothing.
    Nothing,
}

/// At risk while nobody may move or give up anything.
pub(super) const UNMENDED: &str =
    "one more loss is not made good meanwhile: nobody is given up, and nothing is copied elsewhere";
/// At risk on a device of which only its node is asked.
pub(super) const UNPLACED: &str = "volumes that lie there: the cluster map, which names them, does not answer";

/// What the loss of any of these would do, or what a full device does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// What happens.
    pub harm: Harm,
    /// With one more loss of any of these: nodes, or devices. None: without any.
    pub of: Vec<String>,
    /// Placement groups that it is about.
    pub groups: usize,
    /// Volumes that lie in them, by name.
    pub volumes: Vec<String>,
}

impl Loss {
    /// Of no volumes that are named.
    pub fn plain(harm: Harm) -> Self {
        Self { harm, of: Vec::new(), groups: 0, volumes: Vec::new() }
    }

    /// Volumes that these groups put out of service.
    pub(super) fn stopped(known: &Known, groups: &[&GroupRecord]) -> Option<Self> {
        let ids: BTreeSet<GroupId> = groups.iter().map(|group| group.id).collect();
        let volumes = known.volumes_in(&ids);
        (!volumes.is_empty()).then(|| Self { harm: Harm::AreStopped, of: Vec::new(), groups: ids.len(), volumes })
    }

    /// "one more loss of node-1 or node-3 stops 3 volumes (a, b, c)"
    pub fn text(&self) -> String {
        let (of, volumes) = (self.of.join(" or "), words::volumes(&self.volumes));
        match self.harm {
            Harm::LosesData => format!("one more loss of {of} loses data of {volumes}"),
            Harm::Stops => format!("one more loss of {of} stops {volumes}"),
            Harm::RefusesNew => {
                format!("new blocks of {volumes} are refused; what is written already can be written over")
            }
            Harm::WillRefuseNew => format!("when it is full, new blocks of {volumes} are refused"),
            Harm::Waits => format!("writes of {volumes} wait for it while it is slow"),
            Harm::LacksCopy => format!("what is damaged there, of {volumes}, has a copy less"),
            Harm::AreStopped => format!("out of service: {volumes}"),
            Harm::Told(words) => words.to_owned(),
            Harm::Nothing => "no volume: because of this, one more loss stops nothing and loses nothing".to_owned(),
            Harm::StaysShort => {
                format!("one more loss of {of} leaves {volumes} a copy short: no device has room for what was there")
            }
        }
    }

    /// By what the worst comes first.
    pub(super) fn urgency(&self) -> (Harm, std::cmp::Reverse<usize>) {
        (self.harm, std::cmp::Reverse(self.volumes.len()))
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
    let mut alike: BTreeMap<(Harm, Vec<String>), (Vec<Unit>, usize)> = BTreeMap::new();
    for (unit, effect) in effects {
        let mut lost = known.volumes_in(&effect.loses);
        // What lies in the trash can be lost, and not be stopped.
        lost.extend(trashed_in(known, &effect.loses));
        for (harm, groups, volumes) in [
            (Harm::LosesData, effect.loses.len(), lost),
            (Harm::Stops, effect.stops.len(), known.volumes_in(&effect.stops)),
        ] {
            if !volumes.is_empty() {
                let (units, most) = alike.entry((harm, volumes)).or_default();
                units.push(unit);
                *most = groups.max(*most);
            }
        }
    }
    let named = |((harm, volumes), (units, groups)): (_, (Vec<Unit>, _))| {
        let of = units.into_iter().map(|unit| name(known, unit)).collect();
        Loss { harm, of, groups, volumes }
    };
    let mut losses: Vec<Loss> = alike.into_iter().map(named).collect();
    losses.sort_by_key(Loss::urgency);
    losses
}

/// What becomes of a device by itself does this to volumes that lie there.
pub(super) fn on(known: &Known, store: StoreId, harm: Harm) -> Option<Loss> {
    in_those(known, |group| group.members.contains(&store), harm)
}

fn in_those(known: &Known, are: impl Fn(&&GroupRecord) -> bool, harm: Harm) -> Option<Loss> {
    let groups: BTreeSet<GroupId> = known.view.groups.values().filter(are).map(|group| group.id).collect();
    let volumes = known.volumes_in(&groups);
    (!volumes.is_empty()).then(|| Loss { harm, of: Vec::new(), groups: groups.len(), volumes })
}

/// What damage on a device means for volumes of which there are other copies.
pub fn of_damage(known: &Known, store: StoreId) -> Option<Loss> {
    in_those(known, |group| group.members.contains(&store) && group.members.len() > 1, Harm::LacksCopy)
}

/// Nodes of whose loss is thought: those that hold most.
const THOUGHT_OF_MAX: usize = 8;

/// Nodes that are there and do their part, of which no copy could be made anew: no device has room.
pub(super) fn without_room(known: &Known) -> Option<Loss> {
    let held = |node: &NodeId| -> u64 {
        let of = |store: &StoreId| known.usage.get(store).map_or(0, |usage| usage.live_bytes);
        known.view.devices_of(*node).iter().map(of).sum()
    };
    let is_in = |node: &&NodeId| nodes::is_there(known, **node) && known.view.node_place(**node).duty == NodeDuty::In;
    let mut all: Vec<NodeId> = known.view.nodes.keys().filter(is_in).copied().collect();
    all.sort_by_key(|node| std::cmp::Reverse(held(node)));
    all.truncate(THOUGHT_OF_MAX);
    let has_no_room = |node: &NodeId| {
        matches!(foretell(&known.view, &Request::GiveUp(Subject::Node(*node))), Err(Refusal::NoRoom { .. }))
    };
    all.retain(has_no_room);
    all.sort_unstable();
    let stores: BTreeSet<StoreId> = all.iter().flat_map(|node| known.view.devices_of(*node)).collect();
    let on = known.view.groups.values().filter(|group| group.members.iter().any(|store| stores.contains(store)));
    let groups: BTreeSet<GroupId> = on.map(|group| group.id).collect();
    let volumes = known.volumes_in(&groups);
    let of = all.into_iter().map(node_name).collect();
    (!volumes.is_empty()).then_some(Loss { harm: Harm::StaysShort, of, groups: groups.len(), volumes })
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
