//! What is inside, as the API shows it.

use super::duty_types::Duty;
use super::health::{at_risk as at_risk_of, finding, health_of, look_of, now_ns, reason};
use super::own;
use super::pool_types::Placement;
use super::pools::details;
use super::types::{Capacity, Device, Health, Limits, Node, NodeState, Status, TrashedVolume, Usage, Volume};
use crate::control::ClusterStatus;
use crate::log::utc_of_ns;
use crate::node_name::NodeName;
use cluster::health::{self, Harm};
use std::collections::BTreeMap;
use std::iter;
use std::net::SocketAddr;
use types::{NodeId, StoreId};
use volume::{DeviceStatus, Encryption, NodeStatus, Placed, PoolInfo, VolumeInfo, VolumeUsage};

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
            placement: match info.placed {
                Placed::Gathered { .. } => Placement::Gathered,
                Placed::Spread => Placement::Spread,
            },
            head: name(info.head),
            home: match info.placed {
                Placed::Gathered { home, .. } => name(home),
                Placed::Spread => name(info.home),
            },
            led_from: match info.placed {
                Placed::Gathered { lead, .. } => Some(name(lead)),
                Placed::Spread => None,
            },
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

fn name(node: NodeId) -> String {
    if node == NodeId(0) { String::new() } else { NodeName(node).to_string() }
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

/// What the map says.
#[derive(Default)]
pub(crate) struct Found {
    /// Of the whole cluster; nothing of a part of it.
    pub(crate) findings: Vec<health::Finding>,
    /// Orders that stand in it.
    pub(crate) orders: usize,
    /// What damage on a device of this process means for volumes.
    pub(crate) damage: BTreeMap<StoreId, health::Loss>,
}

/// The cluster at one glance. Without `found` each device is told by itself, as if nobody else had a copy.
pub(crate) fn status(
    status: &ClusterStatus,
    volumes: &[VolumeInfo],
    pools: &[PoolInfo],
    found: Option<Found>,
) -> Status {
    let node = &status.node;
    let found = found.unwrap_or_else(|| Found { findings: of_devices(node), ..Found::default() });
    let mut findings = own::findings(node, pools, &found);
    findings.extend(found.findings);
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    let worst = findings.first().map_or(Health::Healthy, |finding| health_of(finding.severity));
    // One that has failed is told as such, and is read when it is used again.
    let is_damaged = node.devices.iter().any(|device| device.damage > 0 && device.failed.is_none());
    let faults = findings.iter().filter(|finding| finding.severity != health::Severity::Ok);
    let reasons = faults.map(reason).collect();
    let now_ns = now_ns();
    let risks = findings.iter().flat_map(|finding| &finding.at_risk);
    let mut at_risk: Vec<_> = risks.filter(|loss| loss.harm != Harm::Nothing).map(at_risk_of).collect();
    let findings: Vec<_> = findings.iter().map(|found| finding(found, now_ns)).collect();
    at_risk.sort_by_key(|risk| std::cmp::Reverse((risk.loses_data, risk.volumes.len())));
    at_risk.dedup();
    Status {
        health: if is_damaged { Health::Damaged } else { worst },
        reasons,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        cluster_id: status.cluster.to_string(),
        volumes: volumes.len(),
        volumes_locked: volumes
            .iter()
            .filter(|volume| volume.encryption == Encryption::Locked)
            .map(|volume| volume.name.clone())
            .collect(),
        pools: pools.iter().map(|pool| details(pool, volumes)).collect(),
        volumes_deleting: node.deleting_volumes,
        trash: node.trash.iter().map(trashed).collect(),
        capacity: capacity(node),
        groups: node.groups_total,
        groups_serving: node.groups_serving,
        devices: node.devices.iter().map(device).collect(),
        at_risk,
        doing: findings.iter().filter_map(|finding| finding.doing.clone()).collect(),
        findings,
    }
}

/// How the devices of this process are, each by itself.
fn of_devices(node: &NodeStatus) -> Vec<health::Finding> {
    let trash = node.trash.iter().map(|volume| volume.info.name.clone()).collect();
    let of = |device: &DeviceStatus| {
        health::of_device(&device.path.display().to_string(), &look_of(device, Some(node)), &trash)
    };
    node.devices.iter().flat_map(of).collect()
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
    use types::ClusterId;

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
        assert_eq!(status(&healthy(), &[], &[], None).health, Health::Healthy);
        assert!(status(&healthy(), &[], &[], None).reasons.is_empty());

        let mut sick = healthy();
        sick.node.devices[0].live_bytes = 750;
        assert_eq!(status(&sick, &[], &[], None).health, Health::Degraded);
        assert!(!status(&sick, &[], &[], None).reasons[0].contains("refused"));
        sick.node.devices[0].live_bytes = 900;
        assert_eq!(status(&sick, &[], &[], None).health, Health::Degraded);
        assert!(status(&sick, &[], &[], None).reasons[0].contains("90 % full, new blocks are refused: "));
        sick.node.devices[0].throttling = true;
        assert!(status(&sick, &[], &[], None).reasons[0].contains("refused, writes wait for space to be cleaned: "));
        sick.node.groups_serving = 99;
        assert_eq!(status(&sick, &[], &[], None).health, Health::Unavailable);
        sick.node.devices[0].damage = 1;
        assert_eq!(status(&sick, &[], &[], None).health, Health::Damaged);
        assert_eq!(status(&sick, &[], &[], None).reasons.len(), 3);
    }

    #[test]
    fn damage_is_to_be_compared_and_on_a_full_device_to_be_replaced() {
        let mut sick = healthy();
        sick.node.devices[0].damage = 1;
        sick.node.devices[0].live_bytes = 899;
        let of_damage = |sick: &ClusterStatus| {
            let found = status(sick, &[], &[], None).findings;
            found.into_iter().find(|one| one.cause.contains("damaged")).expect("it is told").command
        };
        assert_eq!(of_damage(&sick), "cairn check");
        sick.node.devices[0].live_bytes = 900;
        assert_eq!(of_damage(&sick), format!("cairn device replace {} PATH", sick.node.devices[0].store));
        let loss =
            health::Loss { harm: health::Harm::LacksCopy, of: Vec::new(), groups: 1, volumes: vec!["v".to_owned()] };
        let damage = BTreeMap::from([(sick.node.devices[0].store, loss)]);
        sick.node.reasons =
            vec![format!("{}: shard 1: group 9 lacks committed entries", sick.node.devices[0].path.display())];
        let told = status(&sick, &[], &[], Some(Found { damage, ..Found::default() }));
        assert_eq!(
            told.findings.iter().filter(|one| one.at_risk.len() == 1).count(),
            2,
            "what lacks entries says it, too"
        );
        sick.node.reasons.clear();
        assert_eq!(told.at_risk[0].text, "what is damaged there, of volume v, has a copy less");
        sick.node.devices[0].damage = 0;
        assert!(status(&sick, &[], &[], None).findings.iter().all(|one| !one.command.contains("replace")));
    }

    #[test]
    fn groups_that_change_hands_by_order_are_not_told_as_stopped() {
        let mut moving = healthy();
        moving.node.groups_serving = 98;
        let told = |orders| status(&moving, &[], &[], Some(Found { orders, ..Found::default() }));
        assert_eq!((told(2).health, told(1).health), (Health::Degraded, Health::Unavailable));
        let said = "2 of 100 placement groups change hands, and serve again in a moment: ";
        assert!(told(2).reasons[0].starts_with(said) && told(2).findings.len() == 1, "{:?}", told(2).reasons);
    }

    #[test]
    fn what_a_node_knows_of_itself_says_what_is_done_until_when_and_what_to_run() {
        let mut sick = healthy();
        sick.node.groups_serving = 98;
        sick.node.reasons = vec!["volume v: group 7 serves nobody, and hosts are told to wait".to_owned()];
        for orders in [2, 1] {
            let findings = status(&sick, &[], &[], Some(Found { orders, ..Found::default() })).findings;
            assert_eq!(findings.len(), 2);
            assert!(findings.iter().all(|one| !one.advice.is_empty() && one.command == health::WATCH), "{findings:?}");
            let doing: Vec<_> = findings.iter().filter_map(|one| one.doing.as_ref()).collect();
            let groups_left: usize = doing.iter().map(|one| one.groups_left).sum();
            assert_eq!((doing.len(), groups_left), (2, 2), "{doing:?}");
            for one in doing {
                assert!(
                    !one.text.is_empty() && one.ends.starts_with("when ") && one.command == health::WATCH,
                    "{one:?}"
                );
            }
        }
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
            home: types::NodeId(1),
            placed: Placed::Gathered { home: types::NodeId(1), lead: types::NodeId(1) },
            is_draft: false,
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
        assert_eq!(status(&told, &[], &[], None).capacity, expected);
        assert_eq!(status(&told, &[], &[], None).health, Health::Healthy, "a promise is no fault");
        let trashed = volume::TrashedVolume { info: info(), deleted_at_ns: 0, keep_until_ns: 0 };
        told.node.trash = vec![trashed];
        told.node.devices[0].live_bytes = 950;
        let full = status(&told, &[], &[], None);
        assert_eq!((full.capacity.trash_bytes, full.trash.len()), (1 << 20, 1));
        assert!(full.reasons[0].contains("v lies in the trash"), "{:?}", full.reasons);
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
        let told = status(&healthy(), &volumes, &pools, None);
        assert_eq!((told.volumes_locked, told.health), (vec!["v".to_owned()], Health::Healthy));
        assert_eq!(told.pools.iter().map(|pool| pool.volumes).collect::<Vec<_>>(), [1, 0]);
    }
}
