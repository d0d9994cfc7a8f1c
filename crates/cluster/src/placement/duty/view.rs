//! The map's records as placement reads them.

use super::super::{Device, Duty, Group, NodeSet, Rules};
use crate::records::{
    DeviceDuty, DevicePlaceRecord, DeviceRecord, DeviceState, FailureDomain, GroupRecord, NodeDuty, NodePlaceRecord,
    NodeRecord, NodeSetRecord, PoolRecord, PoolRulesRecord, WantedRecord,
};
use std::collections::{BTreeMap, BTreeSet};
use types::{GroupId, NodeId, StoreId};

/// What the map says, and what the nodes say of the space that is taken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// Nodes.
    pub nodes: BTreeMap<NodeId, NodeRecord>,
    /// Where they stand; none for a node of which nobody has said anything.
    pub node_places: BTreeMap<NodeId, NodePlaceRecord>,
    /// Devices.
    pub devices: BTreeMap<StoreId, DeviceRecord>,
    /// What they are to hold.
    pub device_places: BTreeMap<StoreId, DevicePlaceRecord>,
    /// Pools.
    pub pools: BTreeMap<String, PoolRecord>,
    /// Their rules.
    pub rules: BTreeMap<String, PoolRulesRecord>,
    /// Node sets, by table.
    pub sets: BTreeMap<u32, NodeSetRecord>,
    /// Groups.
    pub groups: BTreeMap<GroupId, GroupRecord>,
    /// Groups that are to lie elsewhere.
    pub wanted: BTreeMap<GroupId, WantedRecord>,
    /// Bytes that each group holds, on each of its members.
    pub held: BTreeMap<GroupId, u64>,
    /// Bytes that each device can still take.
    pub free: BTreeMap<StoreId, u64>,
}

/// All that [`place`](super::super::place) asks for, of one pool.
#[derive(Clone, Debug)]
pub struct PoolInput {
    /// All devices.
    pub devices: Vec<Device>,
    /// Its rules.
    pub rules: Rules,
    /// Its node sets.
    pub sets: Vec<NodeSet>,
    /// Its groups, as they are to lie.
    pub groups: Vec<Group>,
}

impl Rules {
    /// What these records demand.
    pub fn of(pool: &PoolRecord, rules: &PoolRulesRecord) -> Self {
        Self {
            replicas: pool.replicas as usize,
            min_in_sync: pool.min_in_sync as usize,
            failure_domain: rules.failure_domain,
            class: rules.class.clone(),
            may_degrade: rules.may_degrade,
        }
    }
}

impl View {
    pub(crate) fn node_place(&self, node: NodeId) -> NodePlaceRecord {
        self.node_places.get(&node).cloned().unwrap_or_else(|| NodePlaceRecord::unset(node))
    }

    pub(crate) fn device_place(&self, store: StoreId) -> DevicePlaceRecord {
        self.device_places.get(&store).cloned().unwrap_or_else(|| DevicePlaceRecord::unset(store))
    }

    /// The devices of a node.
    pub(crate) fn devices_of(&self, node: NodeId) -> Vec<StoreId> {
        self.devices.values().filter(|device| device.node == node).map(|device| device.store).collect()
    }

    /// The devices of nodes in maintenance, all of which may be away at once.
    pub(super) fn may_be_away(&self) -> Vec<StoreId> {
        let rests = |at: NodeId| matches!(self.node_place(at).duty, NodeDuty::Maintenance { .. });
        let away = self.devices.values().filter(|device| rests(device.node));
        away.map(|device| device.store).collect()
    }

    /// Groups that the device is a member of, or is to be.
    pub(super) fn groups_on(&self, store: StoreId) -> Vec<GroupId> {
        let is_wanted = |group: &GroupRecord| self.wanted.get(&group.id).is_some_and(|w| w.members.contains(&store));
        let on = self.groups.values().filter(|group| group.members.contains(&store) || is_wanted(group));
        on.map(|group| group.id).collect()
    }

    /// All devices, as placement sees them. One of which nobody has said anything holds what it holds already: a device
    /// that came to the map gets nothing until it is added.
    pub(super) fn placed_devices(&self) -> Vec<Device> {
        let members: BTreeSet<StoreId> = self.groups.values().flat_map(|group| group.members.iter().copied()).collect();
        self.devices_with(|store| self.device_places.contains_key(&store) || members.contains(&store))
    }

    /// The same, where it is known otherwise which of them hold anything.
    pub fn devices_with(&self, is_added: impl Fn(StoreId) -> bool) -> Vec<Device> {
        let places: BTreeMap<NodeId, NodePlaceRecord> =
            self.nodes.keys().map(|node| (*node, self.node_place(*node))).collect();
        let placed = |record: &DeviceRecord| {
            let unset = NodePlaceRecord::unset(record.node);
            let node = places.get(&record.node).unwrap_or(&unset);
            let place = self.device_place(record.store);
            let duty = match (place.duty, node.duty) {
                (DeviceDuty::Out, _) => Duty::Out,
                (DeviceDuty::Draining { into }, _) => Duty::Draining { into },
                (DeviceDuty::In, NodeDuty::Draining) => Duty::Draining { into: None },
                (DeviceDuty::In, _) if is_added(record.store) && record.state == DeviceState::Active => Duty::In,
                (DeviceDuty::In, _) => Duty::Out,
            };
            Device {
                store: record.store,
                node: record.node,
                rack: node.rack.clone(),
                zone: node.zone.clone(),
                class: place.class,
                weight: place.weight.unwrap_or(record.size_bytes),
                duty,
                may_lead: node.duty == NodeDuty::In,
            }
        };
        self.devices.values().map(placed).collect()
    }

    /// Members of a group as they are to be by what was last decided.
    fn decided(&self, group: &GroupRecord) -> Vec<StoreId> {
        self.wanted.get(&group.id).map_or(&group.members, |wanted| &wanted.members).clone()
    }

    /// The pool's rules. Where nobody has said any, copies lie on different nodes if there are enough.
    pub fn rules_of(&self, pool: &PoolRecord) -> PoolRulesRecord {
        self.rules.get(&pool.name).cloned().unwrap_or_else(|| self.rules_unset(pool))
    }

    /// The rules of a pool of which nobody has said any.
    pub fn rules_unset(&self, pool: &PoolRecord) -> PoolRulesRecord {
        let nodes: BTreeSet<NodeId> = self.devices.values().map(|device| device.node).collect();
        let is_spread = pool.replicas > 1 && nodes.len() >= pool.replicas as usize;
        let failure_domain = if is_spread { FailureDomain::Node } else { FailureDomain::Device };
        PoolRulesRecord { failure_domain, ..PoolRulesRecord::unset(&pool.name) }
    }

    /// All that [`place`](super::super::place) asks for, of one pool.
    pub fn input(&self, pool: &PoolRecord) -> PoolInput {
        let rules = self.rules_of(pool);
        let sets: Vec<&NodeSetRecord> = self.sets.values().filter(|set| set.pool == pool.name).collect();
        let table_of: BTreeMap<GroupId, u32> =
            sets.iter().flat_map(|set| set.groups.iter().map(|group| (*group, set.table))).collect();
        let groups = self.groups.values().filter(|group| group.pool == pool.name);
        PoolInput {
            devices: self.placed_devices(),
            rules: Rules::of(pool, &rules),
            sets: sets
                .iter()
                .map(|set| NodeSet { table: set.table, nodes: set.nodes.clone(), lead: set.lead })
                .collect(),
            groups: groups
                .map(|group| Group {
                    id: group.id,
                    members: self.decided(group),
                    table: table_of.get(&group.id).copied(),
                })
                .collect(),
        }
    }
}
