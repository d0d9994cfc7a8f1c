//! How nodes, devices and groups stand, by what the map says: for whoever asks, wherever.

use super::Followed;
use crate::placement::duty::View;
use crate::records::{DeviceDuty, GroupRecord, NodeDuty};
use std::collections::BTreeMap;
use types::{GroupId, NodeId, StoreId};

/// A device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceStanding {
    /// Its store.
    pub store: StoreId,
    /// Its node.
    pub node: NodeId,
    /// Where on its node.
    pub path: String,
    /// What it is to do.
    pub duty: DeviceDuty,
    /// Whether its node was heard of lately, and serves it.
    pub is_there: bool,
    /// Groups that have a member on it.
    pub groups: usize,
    /// Those of them that it leads.
    pub leads: usize,
    /// Those of them that are to leave it, or are to leave it as soon as something can be begun.
    pub leaves: usize,
    /// Groups that are being brought to it.
    pub comes: usize,
    /// About how many bytes are still to be copied from it, and to it.
    pub leaves_bytes: u64,
    /// See above.
    pub comes_bytes: u64,
}

/// A node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeStanding {
    /// Which.
    pub node: NodeId,
    /// What it is to do.
    pub duty: NodeDuty,
    /// Whether it was heard of lately.
    pub is_there: bool,
    /// Its devices.
    pub devices: Vec<StoreId>,
}

/// How all of them stand.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterStanding {
    /// The devices.
    pub devices: Vec<DeviceStanding>,
    /// The nodes.
    pub nodes: Vec<NodeStanding>,
    /// Groups with so many members in sync, of those that have fewer than their pool asks for.
    pub not_whole: BTreeMap<(usize, usize), usize>,
    /// Groups that have too few members in sync to serve writes.
    pub stopped: Vec<GroupId>,
    /// Members that catch up, or are to be brought somewhere.
    pub copies: usize,
    /// About how many bytes that is.
    pub copy_bytes: u64,
    /// Orders that stand.
    pub orders: usize,
    /// What keeps anything from being decided.
    pub unreadable: Option<String>,
}

impl Followed {
    /// How all of them stand.
    pub fn standing(&mut self) -> ClusterStanding {
        let (view, unreadable) = match self.view() {
            Ok(view) => (view.clone(), None),
            Err(why) => (self.records().clone(), Some(why)),
        };
        let mut standing = ClusterStanding { unreadable, orders: view.wanted.len(), ..ClusterStanding::default() };
        standing.devices = self.devices(&view);
        let alive = self.alive();
        let duty = |node: NodeId| view.node_places.get(&node).map(|place| place.duty).unwrap_or_default();
        let node = |node: &NodeId| NodeStanding {
            node: *node,
            duty: duty(*node),
            is_there: alive.contains(node),
            devices: view.devices.values().filter(|device| device.node == *node).map(|device| device.store).collect(),
        };
        standing.nodes = view.nodes.keys().map(node).collect();
        for group in view.groups.values() {
            self.note_group(&view, group, &mut standing);
        }
        standing
    }

    fn note_group(&self, view: &View, group: &GroupRecord, standing: &mut ClusterStanding) {
        let replicas = view.pools.get(&group.pool).map_or(1, |pool| pool.replicas as usize);
        let in_sync = group.in_sync.len();
        if in_sync < replicas {
            *standing.not_whole.entry((in_sync, replicas)).or_default() += 1;
        }
        if in_sync < (group.min_in_sync as usize).max(1) {
            standing.stopped.push(group.id);
        }
        let held = view.held.get(&group.id).copied().unwrap_or(0);
        let wanted = view.wanted.get(&group.id).map_or(&group.members, |wanted| &wanted.members);
        let catches_up = |store: &&StoreId| !group.in_sync.contains(store) && self.sessions.contains_key(store);
        let ordered = wanted.iter().filter(catches_up).count();
        // What nobody has been told to take yet.
        let is_due = |store: &&StoreId| wanted.contains(store) && self.is_leaving(**store);
        let due = group.members.iter().filter(is_due).count();
        standing.copies += ordered + due;
        standing.copy_bytes += held * (ordered + due) as u64;
    }

    fn devices(&self, view: &View) -> Vec<DeviceStanding> {
        let mut of: BTreeMap<StoreId, DeviceStanding> = BTreeMap::new();
        for device in view.devices.values() {
            let duty = match view.device_places.get(&device.store).map(|place| place.duty).unwrap_or_default() {
                DeviceDuty::In if self.is_leaving(device.store) => DeviceDuty::Draining { into: None },
                duty => duty,
            };
            let standing = DeviceStanding {
                store: device.store,
                node: device.node,
                path: device.path.clone(),
                duty,
                is_there: self.sessions.contains_key(&device.store),
                groups: 0,
                leads: 0,
                leaves: 0,
                comes: 0,
                leaves_bytes: 0,
                comes_bytes: 0,
            };
            of.insert(device.store, standing);
        }
        for group in view.groups.values() {
            let held = view.held.get(&group.id).copied().unwrap_or(0);
            let wanted = view.wanted.get(&group.id).map(|wanted| &wanted.members);
            for store in &group.members {
                let Some(device) = of.get_mut(store) else { continue };
                device.groups += 1;
                device.leads += usize::from(group.primary == *store);
                let leaves = wanted.is_some_and(|wanted| !wanted.contains(store)) || device.duty != DeviceDuty::In;
                device.leaves += usize::from(leaves);
                device.leaves_bytes += if leaves { held } else { 0 };
            }
            for store in wanted.into_iter().flatten().filter(|store| !group.in_sync.contains(store)) {
                let Some(device) = of.get_mut(store) else { continue };
                device.comes += 1;
                device.comes_bytes += held;
            }
        }
        of.into_values().collect()
    }
}
