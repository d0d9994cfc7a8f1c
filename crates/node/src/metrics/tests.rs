use super::*;
use crate::admin::types::Health;
use crate::testing::pool;
use std::path::PathBuf;
use types::{ClusterId, LayerId, StoreId};
use volume::{DeviceStatus, Encryption, HostAccess, PeerTraffic};

fn scrape() -> Scrape {
    let device = DeviceStatus {
        store: StoreId(0xab),
        path: PathBuf::from("/dev/a \"b\"\\c"),
        size_bytes: 1000,
        segments_cleaned: 3,
        throttling: true,
        ..DeviceStatus::default()
    };
    let its = PeerTraffic { connections: 3, core_pairs: 2, beats_sent: 9, beats_answered: 8 };
    let peers = BTreeMap::from([((types::NodeId(1), types::NodeId(2)), its)]);
    let node = NodeStatus { devices: vec![device], groups_total: 2, groups_serving: 1, peers, ..NodeStatus::default() };
    let info = VolumeInfo {
        id: VolumeId(1),
        name: "v".into(),
        size_bytes: 1 << 20,
        block_size_bytes: 512,
        nsid: 1,
        nguid: [1; 16],
        layers: vec![LayerId(1)],
        pool: "default".into(),
        compression: ::cluster::Compression::Off,
        encryption: Encryption::Locked,
        hosts: HostAccess::Unset,
        limits: ::cluster::Limits::default(),
        head: types::NodeId(1),
        home: types::NodeId(1),
        placed: volume::Placed::Spread,
        is_draft: false,
    };
    let cluster = crate::control::ClusterStatus { cluster: ClusterId(5), node: node.clone() };
    let status = crate::admin::status_of(&cluster, std::slice::from_ref(&info), &[pool("default")], None);
    assert_eq!(status.health, Health::Unavailable);
    let usage = BTreeMap::from([(VolumeId(1), VolumeUsage { unique_bytes: 4096, ..VolumeUsage::default() })]);
    let traffic = Traffic { nvme_controllers: 2, nbd_connections: 7, ..Traffic::default() };
    Scrape { status, node, volumes: vec![info], usage, traffic }
}

#[test]
fn what_the_node_says_is_told_under_its_names() {
    let text = text(&scrape());
    let has = |line: &str| assert!(text.lines().any(|told| told == line), "no line {line} in\n{text}");
    has("# TYPE cairn_device_written_bytes_total counter");
    has(r#"cairn_device_size_bytes{device="/dev/a \"b\"\\c",store="000000000000000000000000000000ab"} 1000"#);
    has(r#"cairn_health{state="unavailable"} 1"#);
    has(r#"cairn_health{state="healthy"} 0"#);
    has("cairn_groups_serving 1");
    has(r#"cairn_peer_connections{node="node-1",peer="node-2"} 3"#);
    has(r#"cairn_peer_core_pairs{node="node-1",peer="node-2"} 2"#);
    has(r#"cairn_peer_beats_total{node="node-1",peer="node-2",what="answered"} 8"#);
    has(r#"cairn_volume_unique_bytes{volume="v"} 4096"#);
    has(r#"cairn_volume_locked{volume="v"} 1"#);
    has(r#"cairn_volume_operations_total{volume="v",operation="write"} 0"#);
    has("cairn_nvme_controllers 2");
    has("cairn_nbd_connections 7");
    has(r#"cairn_io_stage_seconds_bucket{door="nvme",operation="write",stage="device",le="0.000001024"} 0"#);
    has(r#"cairn_io_stage_seconds_bucket{door="nbd",operation="other",stage="send",le="+Inf"} 0"#);
    assert!(text.contains("\nprocess_resident_memory_bytes "), "this process says how large it is");
}

#[test]
fn every_family_has_a_help_and_ends_as_its_type_says() {
    let text = text(&scrape());
    let families = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    for (name, kind) in families {
        assert!(text.contains(&format!("# HELP {name} ")), "{name} has no help");
        assert_eq!(kind == "counter", name.ends_with("_total"), "{name} is a {kind}");
    }
}
