//! Nodes and devices come, are emptied, rest, are replaced and go: what each would move, why it is refused, and what to
//! change in the map next.
//!
//! ```text
//!   add ──► in ──drain──► draining ──(nothing is on it)──► remove
//!           │  ◄─take back─┘   │
//!           ├──replace──► draining into another
//!           ├──lost──► out ──(nothing is on it)──► remove         what was on it is copied from others
//!           └──maintain──► maintenance ──take back──► in           (a node; nothing moves, others lead)
//! ```
//!
//! [`foretell`] looks at a request and at what would follow from it, and changes nothing. Its changes begin it; from
//! then on [`next_changes`] says what to change until nothing is left, whoever asks it, and after any crash: there is
//! no state but the map's.

mod change;
mod refusal;
mod steps;
mod view;

pub use change::RecordChange;
pub use refusal::Refusal;
pub use steps::{RECEIVING_MAX, hindrance, next_changes};
pub use view::{PoolInput, View};

use super::{Move, Placement, PlacementError, place};
use crate::records::{DeviceDuty, DevicePlaceRecord, DeviceState, GroupRecord, NodeDuty, NodePlaceRecord, PoolRecord};
use std::collections::{BTreeMap, BTreeSet};
use types::{GroupId, NodeId, StoreId};

/// A node with all of its devices, or one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// A node.
    Node(NodeId),
    /// A device.
    Device(StoreId),
}

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// The device gets its share from now on. A device that was to leave stays.
    Add {
        /// The device.
        store: StoreId,
        /// Its class; empty: none.
        class: String,
        /// Its weight; `None`: its size.
        weight: Option<u64>,
    },
    /// What is on it is copied elsewhere, then let go.
    Drain(Subject),
    /// What was to leave or rest does its part again.
    TakeBack(Subject),
    /// The node may be away until then.
    Maintain {
        /// The node.
        node: NodeId,
        /// Wall time, ns since 1970.
        until_ns: u64,
    },
    /// Another device takes its place, with all that it holds.
    Replace {
        /// The device that goes.
        old: StoreId,
        /// The one that comes.
        new: StoreId,
    },
    /// It is lost: what was on it is copied from others.
    GiveUp(Subject),
    /// It leaves the map.
    Remove(Subject),
}

/// What a request would do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Forecast {
    /// What begins it.
    pub changes: Vec<RecordChange>,
    /// Members that would come and go, of all pools.
    pub moves: Vec<Move>,
    /// Bytes that would be copied to each device.
    pub comes: BTreeMap<StoreId, u64>,
    /// Bytes that each device would be rid of.
    pub goes: BTreeMap<StoreId, u64>,
    /// Groups that would have another preferred primary.
    pub led_elsewhere: BTreeSet<GroupId>,
    /// Tables whose home would be another node: the volumes in them are led from there.
    pub homes: Vec<(u32, NodeId)>,
}

impl Forecast {
    /// Bytes that would be copied in all.
    pub fn bytes(&self) -> u64 {
        self.comes.values().sum()
    }

    /// Groups that would get a member.
    pub fn groups(&self) -> usize {
        self.moves.iter().filter(|step| step.to.is_some()).map(|step| step.group).collect::<BTreeSet<_>>().len()
    }
}

/// What the request would do, or why it cannot be.
///
/// # Errors
/// If it would take away a last copy, break a pool's policy, or find no room.
pub fn foretell(view: &View, request: &Request) -> Result<Forecast, Refusal> {
    let changes = begin(view, request)?;
    let mut then = view.clone();
    changes.iter().for_each(|change| change.apply(&mut then));
    let mut forecast = Forecast { changes, ..Forecast::default() };
    for pool in view.pools.values() {
        // A pool that nothing of this touches is not asked about: its own trouble is no reason against it.
        let (Ok(after), before) = (placed(&then, pool), placed(view, pool)) else {
            if placed(view, pool).is_ok() {
                return Err(placed(&then, pool).expect_err("it cannot be placed").into());
            }
            continue;
        };
        forecast.add(view, &after, before.ok().as_ref());
    }
    // What is taken back does not depend on room: it brings its own.
    if !matches!(request, Request::TakeBack(_)) {
        forecast.check_room(view)?;
    }
    Ok(forecast)
}

/// Who is to hold the groups of a pool. One that keeps one copy has groups made for each device that comes, and its tables
/// say how much each gets: nothing moves there but what must leave.
fn placed(view: &View, pool: &PoolRecord) -> Result<Placement, PlacementError> {
    let input = view.input(pool);
    let mut placement = place(&input.devices, &input.rules, &input.sets, &input.groups)?;
    if pool.replicas == 1 {
        let stays = |store: &StoreId| {
            input.devices.iter().any(|device| device.store == *store && device.duty == super::Duty::In)
        };
        for (group, was) in placement.groups.iter_mut().zip(&input.groups) {
            if !was.members.is_empty() && was.members.iter().all(stays) {
                group.members.clone_from(&was.members);
                placement.moves.retain(|step| step.group != was.id);
            }
        }
    }
    Ok(placement)
}

impl Forecast {
    /// What this pool's part is, less what would be done anyway.
    fn add(&mut self, view: &View, after: &Placement, before: Option<&Placement>) {
        let anyway: BTreeSet<(GroupId, Option<StoreId>)> =
            before.into_iter().flat_map(|placed| placed.moves.iter().map(|step| (step.group, step.to))).collect();
        for step in after.moves.iter().filter(|step| !anyway.contains(&(step.group, step.to))) {
            let bytes = view.held.get(&step.group).copied().unwrap_or(0);
            step.to.into_iter().for_each(|to| *self.comes.entry(to).or_default() += bytes);
            step.from.into_iter().for_each(|from| *self.goes.entry(from).or_default() += bytes);
            self.moves.push(*step);
        }
        for group in &after.groups {
            let led = view.groups.get(&group.id).and_then(|record| record.members.first().copied());
            if group.members.first().copied() != led {
                self.led_elsewhere.insert(group.id);
            }
        }
        for set in &after.sets {
            let home = view.sets.get(&set.table).and_then(|record| record.nodes.first());
            if home != set.nodes.first() {
                self.homes.extend(set.nodes.first().map(|home| (set.table, *home)));
            }
        }
    }

    fn check_room(&self, view: &View) -> Result<(), Refusal> {
        for (store, comes) in &self.comes {
            let goes = self.goes.get(store).copied().unwrap_or(0);
            let needed_bytes = comes.saturating_sub(goes);
            if let Some(&free_bytes) = view.free.get(store).filter(|&&free| free < needed_bytes) {
                return Err(Refusal::NoRoom { store: *store, needed_bytes, free_bytes });
            }
        }
        Ok(())
    }
}

/// The changes that begin a request.
fn begin(view: &View, request: &Request) -> Result<Vec<RecordChange>, Refusal> {
    match request {
        Request::Add { store, class, weight } => {
            formatted(view, *store)?;
            let place =
                DevicePlaceRecord { store: *store, class: class.clone(), weight: *weight, duty: DeviceDuty::In };
            Ok(vec![RecordChange::DevicePlace(place)])
        }
        Request::Drain(Subject::Device(store)) => device_duty(view, *store, DeviceDuty::Draining { into: None }),
        Request::Drain(Subject::Node(node)) => node_duty(view, *node, NodeDuty::Draining),
        Request::TakeBack(Subject::Device(store)) => device_duty(view, *store, DeviceDuty::In),
        Request::TakeBack(Subject::Node(node)) => node_duty(view, *node, NodeDuty::In),
        Request::Maintain { node, until_ns } => {
            let changes = node_duty(view, *node, NodeDuty::Maintenance { until_ns: *until_ns })?;
            if view.node_place(*node).duty == NodeDuty::Draining {
                return Err(Refusal::Drains(*node));
            }
            refusal::check_policy_without(view, &view.devices_of(*node), &view.may_be_away())?;
            Ok(changes)
        }
        Request::Replace { old, new } => replace(view, *old, *new),
        Request::GiveUp(subject) => {
            let stores = stores_of(view, *subject)?;
            refusal::check_last_copies(view, &stores)?;
            let out = |store: &StoreId| device_duty(view, *store, DeviceDuty::Out);
            Ok(stores.iter().map(out).collect::<Result<Vec<_>, _>>()?.concat())
        }
        Request::Remove(subject) => remove(view, *subject),
    }
}

fn formatted(view: &View, store: StoreId) -> Result<(), Refusal> {
    let device = view.devices.get(&store).ok_or(Refusal::NoDevice(store))?;
    if device.state == DeviceState::New { Err(Refusal::NotFormatted(store)) } else { Ok(()) }
}

fn device_duty(view: &View, store: StoreId, duty: DeviceDuty) -> Result<Vec<RecordChange>, Refusal> {
    view.devices.get(&store).ok_or(Refusal::NoDevice(store))?;
    let place = view.device_place(store);
    if place.duty == duty && view.device_places.contains_key(&store) {
        return Ok(Vec::new());
    }
    Ok(vec![RecordChange::DevicePlace(DevicePlaceRecord { duty, ..place })])
}

fn node_duty(view: &View, node: NodeId, duty: NodeDuty) -> Result<Vec<RecordChange>, Refusal> {
    view.nodes.get(&node).ok_or(Refusal::NoNode(node))?;
    let place = view.node_place(node);
    if place.duty == duty {
        return Ok(Vec::new());
    }
    Ok(vec![RecordChange::NodePlace(NodePlaceRecord { duty, ..place })])
}

fn replace(view: &View, old: StoreId, new: StoreId) -> Result<Vec<RecordChange>, Refusal> {
    formatted(view, new)?;
    if old == new {
        return Err(Refusal::ItsOwn(old));
    }
    let mut changes = device_duty(view, old, DeviceDuty::Draining { into: Some(new) })?;
    let class = view.device_place(old).class;
    let place = match view.device_places.get(&new) {
        Some(place) if place.duty != DeviceDuty::In => return Err(Refusal::Leaves(new)),
        Some(place) if place.class != class => {
            return Err(Refusal::OtherClass { old, class, new, is_class: place.class.clone() });
        }
        Some(_) => return Ok(changes),
        None => DevicePlaceRecord { class, ..DevicePlaceRecord::unset(new) },
    };
    changes.insert(0, RecordChange::DevicePlace(place));
    Ok(changes)
}

fn stores_of(view: &View, subject: Subject) -> Result<Vec<StoreId>, Refusal> {
    match subject {
        Subject::Device(store) => view.devices.get(&store).map(|_| vec![store]).ok_or(Refusal::NoDevice(store)),
        Subject::Node(node) => view.nodes.get(&node).map(|_| view.devices_of(node)).ok_or(Refusal::NoNode(node)),
    }
}

fn remove(view: &View, subject: Subject) -> Result<Vec<RecordChange>, Refusal> {
    let stores = stores_of(view, subject)?;
    refusal::check_last_copies(view, &stores)?;
    for store in &stores {
        let groups = view.groups_on(*store);
        if !groups.is_empty() {
            return Err(Refusal::Holds { store: *store, groups });
        }
    }
    let mut changes: Vec<RecordChange> = stores.into_iter().map(RecordChange::DeviceGone).collect();
    if let Subject::Node(node) = subject {
        if let Some(set) = view.sets.values().find(|set| set.nodes.contains(&node)) {
            return Err(Refusal::InSet { node, table: set.table });
        }
        changes.push(RecordChange::NodeGone(node));
    }
    Ok(changes)
}

/// Members in sync that are not on any of these devices.
fn others_in_sync(group: &GroupRecord, stores: &[StoreId]) -> usize {
    group.in_sync.iter().filter(|store| !stores.contains(store)).count()
}
