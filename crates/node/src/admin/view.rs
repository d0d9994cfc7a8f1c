//! What is inside, as the API shows it.

use super::duty_types::Duty;
use super::types::{Capacity, Device, Health, Limits, Node, NodeState, Pool, Status, TrashedVolume, Usage, Volume};
use crate::control::ClusterStatus;
use crate::log::utc_of_ns;
use cluster::PoolRecord;
use std::iter;
use std::net::SocketAddr;
use types::NodeId;
use volume::{DeviceStatus, Encryption, Fill, NodeStatus, VolumeInfo, VolumeUsage};

/// Where a client reaches a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeAddresses {
    /// The node.
    pub node: NodeId,
    /// The NVMe/TCP target.
    pub nvme: SocketAddr,
    /// The NBD server.
    pub nbd: SocketAddr,
    /// Its process.
    pub pid: u32,
}

/// Where a client reaches the nodes of this process, and the subsystem that their volumes are in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// NVMe qualified name of the subsystem.
    pub nqn: String,
    /// The nodes, by number; there is one.
    pub nodes: Vec<NodeAddresses>,
    /// The admin API.
    pub admin: SocketAddr,
    /// Whether every NVMe host may use a volume of which nobody has said which may.
    pub any_host: bool,
}

/// Damaged places of a device that stand among the reasons; `damaged` of the device lists more.
const DAMAGED_NAMED_MAX: usize = 3;

impl Addresses {
    /// The nodes, as they are named and reached.
    pub(super) fn nodes(&self) -> Vec<Node> {
        let node = |node: &NodeAddresses| Node {
            name: format!("node-{}", node.node),
            pid: node.pid,
            state: NodeState::Up,
            nvme_address: node.nvme.to_string(),
            nbd_address: node.nbd.to_string(),
            duty: Duty::In,
            groups: 0,
            groups_leaving: 0,
        };
        self.nodes.iter().map(node).collect()
    }

    /// The volume with the ways to it.
    pub(super) fn volume(&self, info: &VolumeInfo, usage: Option<&VolumeUsage>) -> Volume {
        let head = self.nodes.iter().find(|node| node.node == info.head).unwrap_or(&self.nodes[0]);
        let from_head = iter::once(head).chain(self.nodes.iter().filter(|node| node.node != head.node));
        let nbd_uri = format!("nbd://{}/{}", head.nbd, info.name);
        Volume {
            name: info.name.clone(),
            size_bytes: info.size_bytes,
            block_size_bytes: info.block_size_bytes,
            nqn: self.nqn.clone(),
            nsid: info.nsid,
            nguid: info.nguid.iter().map(|byte| format!("{byte:02x}")).collect(),
            nvme_addresses: from_head.map(|node| node.nvme.to_string()).collect(),
            nbd_uris: vec![nbd_uri.clone()],
            nbd_uri,
            limits: Limits::of(info.limits),
            layers: info.layers.iter().map(|layer| layer.0).collect(),
            pool: info.pool.to_string(),
            compression: info.compression.into(),
            encrypted: info.encryption != Encryption::Off,
            locked: info.encryption == Encryption::Locked,
            any_host: info.hosts.is_open(self.any_host),
            hosts: info.hosts.listed().to_vec(),
            usage: usage.map(|usage| Usage {
                logical_bytes: usage.logical_bytes,
                unique_bytes: usage.unique_bytes,
                shared_bytes: usage.shared_bytes,
                stored_bytes: usage.stored_bytes,
            }),
        }
    }
}

/// A pool of which these are the volumes, among others.
pub(super) fn pool(pool: &PoolRecord, volumes: &[VolumeInfo]) -> Pool {
    Pool {
        name: pool.name.clone(),
        replicas: pool.replicas,
        min_in_sync: pool.min_in_sync,
        compression: pool.compression.into(),
        volumes: volumes.iter().filter(|volume| *volume.pool == *pool.name).count(),
    }
}

/// A volume in the trash.
pub(super) fn trashed(volume: &volume::TrashedVolume) -> TrashedVolume {
    TrashedVolume {
        id: volume.info.id.0,
        name: volume.info.name.clone(),
        size_bytes: volume.info.size_bytes,
        deleted_at: utc_of_ns(volume.deleted_at_ns),
        kept_until: utc_of_ns(volume.keep_until_ns),
    }
}

/// The cluster at one glance. What the floors below say comes first.
pub(crate) fn status(status: &ClusterStatus, volumes: &[VolumeInfo], pools: &[PoolRecord]) -> Status {
    let node = &status.node;
    let mut reasons = node.reasons.clone();
    let mut health = if reasons.is_empty() { Health::Healthy } else { Health::Degraded };
    for device in &node.devices {
        let path = device.path.display();
        if let Some(reason) = fill_reason(device, node) {
            health = health.max(Health::Degraded);
            reasons.push(reason);
        }
        if let Some(slow) = &device.slow {
            health = health.max(Health::Degraded);
            reasons.push(format!("{path} is slow ({slow}): look at the device and what else uses it"));
        }
        if device.failed.is_some() {
            health = health.max(Health::Unavailable);
        }
        if device.damage > 0 {
            health = health.max(Health::Damaged);
            reasons.push(format!("{path}: {} places are damaged and there is no other copy", device.damage));
            reasons.extend(device.damaged.iter().take(DAMAGED_NAMED_MAX).cloned());
        }
    }
    if node.groups_serving < node.groups_total {
        health = health.max(Health::Unavailable);
        let silent = node.groups_total - node.groups_serving;
        reasons.push(format!("{silent} of {} placement groups do not serve", node.groups_total));
    }
    Status {
        health,
        reasons,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        cluster_id: status.cluster.to_string(),
        volumes: volumes.len(),
        volumes_locked: volumes
            .iter()
            .filter(|volume| volume.encryption == Encryption::Locked)
            .map(|volume| volume.name.clone())
            .collect(),
        pools: pools.iter().map(|record| pool(record, volumes)).collect(),
        volumes_deleting: node.deleting_volumes,
        trash: node.trash.iter().map(trashed).collect(),
        capacity: capacity(node),
        groups: node.groups_total,
        groups_serving: node.groups_serving,
        devices: node.devices.iter().map(device).collect(),
        at_risk: Vec::new(),
        doing: Vec::new(),
    }
}

/// What a device's fill means, and what to do about it.
fn fill_reason(device: &DeviceStatus, node: &NodeStatus) -> Option<String> {
    let refused = match device.fill() {
        Fill::Room => return None,
        Fill::Warning => "",
        Fill::Full => ", new blocks are refused",
    };
    let throttled = if device.throttling { ", writes wait for space to be cleaned" } else { "" };
    let (path, percent) = (device.path.display(), device.used_percent());
    let remedy = match &node.trash[..] {
        [] => "delete volumes (`cairn volume delete NAME --now`) or discard what is not needed".to_owned(),
        [volume] => format!("empty the trash (`cairn trash empty`), {} lies in it", volume.info.name),
        all => format!("empty the trash (`cairn trash empty`), {} volumes lie in it", all.len()),
    };
    Some(format!("{path} is {percent} % full{refused}{throttled}: {remedy}"))
}

fn capacity(node: &NodeStatus) -> Capacity {
    let sum = |of: fn(&DeviceStatus) -> u64| node.devices.iter().map(of).sum::<u64>();
    let usable_bytes = sum(|device| device.capacity_bytes);
    Capacity {
        raw_bytes: sum(|device| device.size_bytes),
        usable_bytes,
        used_bytes: sum(|device| device.live_bytes),
        provisioned_bytes: node.provisioned_bytes,
        overcommit_percent: node.provisioned_bytes.saturating_mul(100).checked_div(usable_bytes).unwrap_or(0),
        trash_bytes: node.trash.iter().map(|volume| volume.info.size_bytes).sum(),
    }
}

pub(super) fn device(device: &DeviceStatus) -> Device {
    Device {
        store_id: device.store.to_string(),
        path: device.path.display().to_string(),
        size_bytes: device.size_bytes,
        capacity_bytes: device.capacity_bytes,
        used_bytes: device.used_bytes,
        live_bytes: device.live_bytes,
        failed: device.failed.clone(),
        slow: device.slow.clone(),
        throttling: device.throttling,
        throttled: device.throttled,
        damage: device.damage,
        damaged: device.damaged.clone(),
        appends: device.appends,
        entries: device.entries,
        device_bytes_written: device.device_bytes_written,
        device_bytes_read: device.device_bytes_read,
        node: String::new(),
        duty: Duty::In,
        groups: 0,
        groups_leaving: 0,
        groups_coming: 0,
        bytes_leaving: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::{ClusterId, StoreId};

    fn healthy() -> ClusterStatus {
        let device = DeviceStatus {
            store: StoreId(1),
            path: "/d/device-1.img".into(),
            size_bytes: 1000,
            used_bytes: 900,
            live_bytes: 749,
            capacity_bytes: 1000,
            ..DeviceStatus::default()
        };
        let node =
            NodeStatus { devices: vec![device], groups_total: 100, groups_serving: 100, ..NodeStatus::default() };
        ClusterStatus { cluster: ClusterId(2), node }
    }

    #[test]
    fn the_worst_thing_is_the_health_and_each_has_a_reason() {
        assert_eq!(status(&healthy(), &[], &[]).health, Health::Healthy);
        assert!(status(&healthy(), &[], &[]).reasons.is_empty());

        let mut sick = healthy();
        sick.node.devices[0].live_bytes = 750;
        assert_eq!(status(&sick, &[], &[]).health, Health::Degraded);
        assert!(!status(&sick, &[], &[]).reasons[0].contains("refused"));
        sick.node.devices[0].live_bytes = 900;
        assert_eq!(status(&sick, &[], &[]).health, Health::Degraded);
        assert!(status(&sick, &[], &[]).reasons[0].contains("90 % full, new blocks are refused: "));
        sick.node.devices[0].throttling = true;
        assert!(status(&sick, &[], &[]).reasons[0].contains("refused, writes wait for space to be cleaned: "));
        sick.node.groups_serving = 99;
        assert_eq!(status(&sick, &[], &[]).health, Health::Unavailable);
        sick.node.devices[0].damage = 1;
        assert_eq!(status(&sick, &[], &[]).health, Health::Damaged);
        assert_eq!(status(&sick, &[], &[]).reasons.len(), 3);
    }

    fn info() -> VolumeInfo {
        VolumeInfo {
            id: types::VolumeId(1),
            name: "v".into(),
            size_bytes: 1 << 20,
            block_size_bytes: 512,
            nsid: 1,
            nguid: [0xab; 16],
            layers: vec![types::LayerId(1)],
            pool: "default".into(),
            compression: cluster::Compression::Lz4,
            encryption: Encryption::Locked,
            hosts: volume::HostAccess::Unset,
            limits: volume::Limits::default(),
            head: types::NodeId(1),
        }
    }

    #[test]
    fn what_volumes_promise_is_told_beside_what_there_is() {
        let mut told = healthy();
        told.node.provisioned_bytes = 2500;
        let expected = Capacity {
            raw_bytes: 1000,
            usable_bytes: 1000,
            used_bytes: 749,
            provisioned_bytes: 2500,
            overcommit_percent: 250,
            trash_bytes: 0,
        };
        assert_eq!(status(&told, &[], &[]).capacity, expected);
        assert_eq!(status(&told, &[], &[]).health, Health::Healthy, "a promise is no fault");
        let trashed = volume::TrashedVolume { info: info(), deleted_at_ns: 0, keep_until_ns: 0 };
        told.node.trash = vec![trashed];
        told.node.devices[0].live_bytes = 950;
        let full = status(&told, &[], &[]);
        assert_eq!((full.capacity.trash_bytes, full.trash.len()), (1 << 20, 1));
        assert!(full.reasons[0].contains("v lies in it"), "{:?}", full.reasons);
    }

    #[test]
    fn an_address_of_version_6_stands_in_brackets() {
        let addresses = Addresses {
            nqn: "nqn".into(),
            nodes: vec![NodeAddresses {
                node: NodeId(1),
                nvme: "[::1]:4420".parse().unwrap(),
                nbd: "[::1]:10809".parse().unwrap(),
                pid: 1,
            }],
            admin: "[::1]:8420".parse().unwrap(),
            any_host: false,
        };
        let volume = addresses.volume(&info(), None);
        assert_eq!(volume.nbd_uri, "nbd://[::1]:10809/v");
        assert_eq!(volume.nvme_addresses, ["[::1]:4420"]);
        assert_eq!(volume.nguid, "ab".repeat(16));
        assert!(!volume.any_host && Addresses { any_host: true, ..addresses }.volume(&info(), None).any_host);
    }

    #[test]
    fn the_head_is_named_first() {
        let node = |number: u32| NodeAddresses {
            node: NodeId(number),
            nvme: SocketAddr::from(([10, 0, 0, number as u8], 4420)),
            nbd: SocketAddr::from(([10, 0, 0, number as u8], 10809)),
            pid: 1,
        };
        let addresses = Addresses {
            nqn: "nqn".into(),
            nodes: [1, 2, 3].map(node).to_vec(),
            admin: "127.0.0.1:8420".parse().unwrap(),
            any_host: false,
        };
        let volume = addresses.volume(&volume::VolumeInfo { head: NodeId(2), ..info() }, None);
        assert_eq!(volume.nvme_addresses, ["10.0.0.2:4420", "10.0.0.1:4420", "10.0.0.3:4420"]);
        assert_eq!(volume.nbd_uri, "nbd://10.0.0.2:10809/v");
    }

    #[test]
    fn locked_volumes_and_pools_are_told() {
        let (volumes, pools) = ([info()], [crate::testing::pool("default"), crate::testing::pool("other")]);
        let told = status(&healthy(), &volumes, &pools);
        assert_eq!((told.volumes_locked, told.health), (vec!["v".to_owned()], Health::Healthy));
        assert_eq!(told.pools.iter().map(|pool| pool.volumes).collect::<Vec<_>>(), [1, 0]);
    }
}
