//! How nodes, devices and groups stand, by what the map says: for whoever asks, wherever.

use super::Followed;
use crate::placement::duty::View;
use crate::records::{DeviceDuty, GroupRecord, NodeDuty};
use std::collections::{BTreeMap, BTreeSet};
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

/// What one more loss would do.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Risk {
    /// Whether data would be lost, and not only served no more.
    pub loses_data: bool,
    /// Of any of these nodes.
    pub nodes: Vec<NodeId>,
    /// The groups it is about.
    pub groups: Vec<GroupId>,
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
    /// What one more loss would do, the worst first.
    pub risks: Vec<Risk>,
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
        standing.risks = risks(&view);
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

/// What the loss of any node would do, of those groups that are not as they should be. Groups that are whole bear the loss that
/// their pool was made to bear.
fn risks(view: &View) -> Vec<Risk> {
    let mut by_nodes: BTreeMap<(bool, Vec<NodeId>), Vec<GroupId>> = BTreeMap::new();
    for group in view.groups.values() {
        let replicas = view.pools.get(&group.pool).map_or(1, |pool| pool.replicas as usize);
        let (in_sync, needed) = (group.in_sync.len(), (group.min_in_sync as usize).max(1));
        if in_sync >= replicas || in_sync > needed {
            continue;
        }
        let node = |store: &StoreId| view.devices.get(store).map(|device| device.node);
        // Who held everything when too few were left holds it still.
        let holders = group.in_sync.iter().chain(&group.eligible);
        let nodes: BTreeSet<NodeId> = group.in_sync.iter().filter_map(node).collect();
        let loses_data = holders.count() <= 1;
        by_nodes.entry((loses_data, nodes.into_iter().collect())).or_default().push(group.id);
    }
    let risk = |((loses_data, nodes), groups)| Risk { loses_data, nodes, groups };
    let mut risks: Vec<Risk> = by_nodes.into_iter().map(risk).collect();
    risks.sort_by(|one, other| other.cmp(one));
    risks
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::{Compression, DeviceRecord, DeviceState, Policy, PoolRecord};
    use types::Epoch;

    fn view(in_sync: &[&[u128]]) -> View {
        let mut view = View::default();
        let pool = PoolRecord {
            name: "p".to_owned(),
            policy: Policy::Replicated,
            replicas: 3,
            min_in_sync: 2,
            table: 1,
            write_cache: false,
            compression: Compression::Off,
        };
        view.pools.insert("p".to_owned(), pool);
        for id in 1..=3u32 {
            let (store, node) = (StoreId(id.into()), NodeId(id));
            let record = DeviceRecord { store, node, path: String::new(), size_bytes: 9, state: DeviceState::Active };
            view.devices.insert(store, record);
        }
        for (at, in_sync) in in_sync.iter().enumerate() {
            let members = vec![StoreId(1), StoreId(2), StoreId(3)];
            let id = GroupId(at as u32 + 1);
            let record = GroupRecord::begun_with(id, (1, "p".to_owned()), members, 2);
            let in_sync = in_sync.iter().map(|store| StoreId(*store)).collect();
            view.groups.insert(id, GroupRecord { in_sync, epoch: Epoch(3), ..record });
        }
        view
    }

    #[test]
    fn what_one_more_loss_would_do_is_told_of_groups_that_are_not_whole() {
        let told = risks(&view(&[&[1, 2, 3], &[1, 2], &[2, 3], &[1, 2], &[3]]));
        let risk = |loses_data, nodes: &[u32], groups: &[u32]| Risk {
            loses_data,
            nodes: nodes.iter().map(|node| NodeId(*node)).collect(),
            groups: groups.iter().map(|group| GroupId(*group)).collect(),
        };
        assert_eq!(told, [risk(true, &[3], &[5]), risk(false, &[2, 3], &[3]), risk(false, &[1, 2], &[2, 4])]);
    }
}
