//! What is inside, as the API shows it.

use super::types::{Device, Health, Status, Volume};
use crate::control::ClusterStatus;
use std::net::SocketAddr;
use volume::{DeviceStatus, VolumeInfo};

/// Where a client reaches this node, and the subsystem that its volumes are in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// NVMe qualified name of the subsystem.
    pub nqn: String,
    /// The NVMe/TCP target.
    pub nvme: SocketAddr,
    /// The NBD server.
    pub nbd: SocketAddr,
    /// The admin API.
    pub admin: SocketAddr,
}

/// Part of a device from which on a warning is due, while there is time left to act.
const FULL_WARNING_PERCENT: u64 = 75;

impl Addresses {
    /// The volume with the ways to it.
    pub(super) fn volume(&self, info: &VolumeInfo) -> Volume {
        let nbd_uri = format!("nbd://{}/{}", self.nbd, info.name);
        Volume {
            name: info.name.clone(),
            size_bytes: info.size_bytes,
            block_size_bytes: info.block_size_bytes,
            nqn: self.nqn.clone(),
            nsid: info.nsid,
            nguid: info.nguid.iter().map(|byte| format!("{byte:02x}")).collect(),
            nvme_addresses: vec![self.nvme.to_string()],
            nbd_uris: vec![nbd_uri.clone()],
            nbd_uri,
            layers: info.layers.iter().map(|layer| layer.0).collect(),
        }
    }
}

/// The cluster at one glance. What the floors below say comes first.
pub(super) fn status(status: &ClusterStatus, volumes: usize) -> Status {
    let node = &status.node;
    let mut reasons = node.reasons.clone();
    let mut health = if reasons.is_empty() { Health::Healthy } else { Health::Degraded };
    for device in &node.devices {
        let path = device.path.display();
        let percent = device.used_bytes.saturating_mul(100).checked_div(device.capacity_bytes).unwrap_or(0);
        if percent >= FULL_WARNING_PERCENT {
            health = health.max(Health::Degraded);
            reasons.push(format!("{path} is {percent} % full: delete volumes or discard what is not needed"));
        }
        if device.failed.is_some() {
            health = health.max(Health::Unavailable);
        }
        if device.damage > 0 {
            health = health.max(Health::Damaged);
            reasons.push(format!("{path}: {} places are damaged and there is no other copy", device.damage));
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
        volumes,
        volumes_deleting: node.deleting_volumes,
        groups: node.groups_total,
        groups_serving: node.groups_serving,
        devices: node.devices.iter().map(device).collect(),
    }
}

fn device(device: &DeviceStatus) -> Device {
    Device {
        store_id: device.store.to_string(),
        path: device.path.display().to_string(),
        size_bytes: device.size_bytes,
        capacity_bytes: device.capacity_bytes,
        used_bytes: device.used_bytes,
        live_bytes: device.live_bytes,
        failed: device.failed.clone(),
        damage: device.damage,
        appends: device.appends,
        entries: device.entries,
        device_bytes_written: device.device_bytes_written,
        device_bytes_read: device.device_bytes_read,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::{ClusterId, StoreId};
    use volume::NodeStatus;

    fn healthy() -> ClusterStatus {
        let device = DeviceStatus {
            store: StoreId(1),
            path: "/d/device-1.img".into(),
            size_bytes: 1000,
            used_bytes: 749,
            live_bytes: 700,
            capacity_bytes: 1000,
            failed: None,
            damage: 0,
            appends: 0,
            entries: 0,
            device_bytes_written: 0,
            device_bytes_read: 0,
        };
        let node =
            NodeStatus { devices: vec![device], groups_total: 100, groups_serving: 100, ..NodeStatus::default() };
        ClusterStatus { cluster: ClusterId(2), node }
    }

    #[test]
    fn the_worst_thing_is_the_health_and_each_has_a_reason() {
        assert_eq!(status(&healthy(), 0).health, Health::Healthy);
        assert!(status(&healthy(), 0).reasons.is_empty());

        let mut sick = healthy();
        sick.node.devices[0].used_bytes = 750;
        assert_eq!(status(&sick, 0).health, Health::Degraded);
        sick.node.groups_serving = 99;
        assert_eq!(status(&sick, 0).health, Health::Unavailable);
        sick.node.devices[0].damage = 1;
        assert_eq!(status(&sick, 0).health, Health::Damaged);
        assert_eq!(status(&sick, 0).reasons.len(), 3);
    }

    #[test]
    fn an_address_of_version_6_stands_in_brackets() {
        let addresses = Addresses {
            nqn: "nqn".into(),
            nvme: "[::1]:4420".parse().unwrap(),
            nbd: "[::1]:10809".parse().unwrap(),
            admin: "[::1]:8420".parse().unwrap(),
        };
        let info = VolumeInfo {
            id: types::VolumeId(1),
            name: "v".into(),
            size_bytes: 1 << 20,
            block_size_bytes: 512,
            nsid: 1,
            nguid: [0xab; 16],
            layers: vec![types::LayerId(1)],
        };
        let volume = addresses.volume(&info);
        assert_eq!(volume.nbd_uri, "nbd://[::1]:10809/v");
        assert_eq!(volume.nvme_addresses, ["[::1]:4420"]);
        assert_eq!(volume.nguid, "ab".repeat(16));
    }
}
