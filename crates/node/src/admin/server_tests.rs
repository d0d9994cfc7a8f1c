//! The API as a client meets it: over a socket, against a control core that keeps its volumes in a list.

#[path = "key_tests.rs"]
mod key_tests;
#[path = "passing_tests.rs"]
mod passing_tests;

use super::*;
use crate::admin::Addresses;
use crate::control::{self, ClusterStatus, ControlError, Request};
use crate::snapshots::SnapshotRequest;
use crate::traffic::Traffic;
use crate::volume_spec::SnapshotName;
use cluster::SnapshotRecord;
use key_tests::Keys;
use runtime::channel::CrossReceiver;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::path::Path as FilePath;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use types::{ClusterId, LayerId, VolumeId};
use volume::{DeviceStatus, HostAccess, HostChange, NewVolume, NodeStatus, Relocation, TrashedVolume, VolumeInfo};

fn info(id: u64, new: &NewVolume) -> VolumeInfo {
    VolumeInfo {
        id: VolumeId(id),
        name: new.name.clone(),
        size_bytes: new.size_bytes,
        block_size_bytes: new.block_size_bytes,
        nsid: id as u32,
        nguid: [7; 16],
        layers: vec![LayerId(3), LayerId(1)],
        pool: "default".into(),
        compression: cluster::Compression::Off,
        encryption: volume::Encryption::Off,
        hosts: new.hosts.clone(),
        limits: new.limits,
        head: types::NodeId(1),
        home: types::NodeId(1),
        placed: volume::Placed::Spread,
        is_draft: false,
    }
}

/// The rules are the map's (`cluster`): here only that what is asked arrives.
fn change_hosts(
    volumes: &mut [VolumeInfo],
    name: &VolumeName,
    change: &HostChange,
) -> Result<VolumeInfo, ControlError> {
    let found = volumes.iter_mut().find(|volume| volume.name == name.as_str());
    let found = found.ok_or_else(|| ControlError::NotFound(name.to_string()))?;
    found.hosts = match change {
        HostChange::AllowAny => HostAccess::Any,
        HostChange::DenyAny => HostAccess::Listed(Vec::new()),
        HostChange::Allow(nqn) if nqn.starts_with("nqn.") => HostAccess::Listed(vec![nqn.clone()]),
        HostChange::Allow(nqn) => return Err(ControlError::BadHost(format!("{nqn} is no host"))),
        HostChange::Deny(_) => return Err(ControlError::Hosts("it is open to all".to_owned())),
    };
    Ok(found.clone())
}

#[test]
fn copies_are_compared_once_at_a_time_and_told() {
    with_server(|server| async move {
        let (status, told) = ask(server, "GET", "/v1/check", None).await;
        assert_eq!((status, &told["error"]["code"]), (404, &json!("no_check")));
        let (status, told) = ask(server, "POST", "/v1/check", Some(json!({"pool": "fast"}))).await;
        assert_eq!((status, &told["pool"], &told["over"]), (202, &json!("fast"), &json!(false)));
        let (status, told) = ask(server, "POST", "/v1/check", Some(json!({}))).await;
        assert_eq!((status, &told["error"]["code"]), (409, &json!("check_under_way")));
        let (status, told) = ask(server, "GET", "/v1/check", None).await;
        assert_eq!((status, &told["agree"], &told["findings"]), (200, &json!(false), &json!([])));
    });
}

#[test]
fn the_hosts_of_a_volume_are_told_and_changed() {
    with_server(|server| async move {
        let make = json!({"name": "a", "size_bytes": 1 << 20, "any_host": true});
        let (status, made) = ask(server, "POST", "/v1/volumes", Some(make)).await;
        assert_eq!((status, &made["any_host"], &made["hosts"]), (201, &json!(true), &json!([])));
        let nqn = "nqn.2026-01.io.example:a/b";
        let (status, told) = ask(server, "POST", "/v1/volumes/a/hosts", Some(json!({"host": nqn}))).await;
        assert_eq!((status, told), (200, json!({"volume": "a", "any_host": false, "hosts": [nqn]})));
        let (status, told) = ask(server, "GET", "/v1/volumes/a/hosts", None).await;
        assert_eq!((status, &told["hosts"]), (200, &json!([nqn])));
        let (status, told) = ask(server, "DELETE", "/v1/volumes/a/hosts/nqn.2026-01.io.example:a%2Fb", None).await;
        assert_eq!((status, &told["error"]["code"]), (409, &json!("hosts")));
        let (status, told) = ask(server, "POST", "/v1/volumes/a/hosts", Some(json!({"host": "x"}))).await;
        assert_eq!((status, &told["error"]["code"]), (400, &json!("bad_host")));
        let (status, told) = ask(server, "DELETE", "/v1/volumes/a/hosts/any", None).await;
        assert_eq!((status, &told["any_host"], &told["hosts"]), (200, &json!(false), &json!([])));
        let (status, told) = ask(server, "DELETE", "/v1/volumes/none/hosts/any", None).await;
        assert_eq!((status, &told["error"]["code"]), (404, &json!("volume_not_found")));
    });
}

async fn control_core(mut requests: CrossReceiver<Request>) {
    let mut volumes: Vec<VolumeInfo> = Vec::new();
    let mut trash: Vec<TrashedVolume> = Vec::new();
    let mut snapshots = Snapshots::default();
    let mut keys = Keys::new();
    let mut devices: Vec<DeviceStatus> = Vec::new();
    let mut checks: Option<volume::Check> = None;
    while let Ok(request) = requests.recv().await {
        match request {
            // Only who shares a map with others asks that.
            Request::AskAbove(..)
            | Request::Peers(_)
            | Request::HeadOf(..)
            | Request::TrashElsewhere(_)
            | Request::CatchUp(_)
            | Request::GroupCopies(..)
            | Request::ForceGroup(..)
            | Request::Testament(_) => unreachable!("there is one process"),
            Request::ListVolumes(reply) => drop(reply.send(volumes.clone())),
            Request::CreateVolume(new, _, reply) => {
                let there = volumes.iter().find(|volume| volume.name == new.name);
                let answer = match there {
                    Some(there) => Err(ControlError::Exists {
                        name: there.name.clone(),
                        size_bytes: there.size_bytes,
                        block_size_bytes: there.block_size_bytes,
                    }),
                    None => Ok(info(volumes.len() as u64 + 1, &new)),
                };
                volumes.extend(answer.clone());
                let _ = reply.send(answer);
            }
            Request::DeleteVolume(name, reply) => {
                let count = volumes.len();
                volumes.retain(|volume| volume.name != name.as_str());
                let found = volumes.len() < count;
                let _ = reply.send(if found { Ok(()) } else { Err(ControlError::NotFound(name.to_string())) });
            }
            Request::TrashVolume(name, reply) => {
                let place = volumes.iter().position(|volume| volume.name == name.as_str());
                let trashed = place.map(|place| TrashedVolume {
                    info: volumes.remove(place),
                    deleted_at_ns: 1_000_000_000,
                    keep_until_ns: 86_401_000_000_000,
                });
                trash.extend(trashed.clone());
                let _ = reply.send(trashed.ok_or(ControlError::NotFound(name.to_string())));
            }
            Request::ListTrash(reply) => drop(reply.send(trash.clone())),
            Request::RestoreVolume(id, name, reply) => {
                let place = trash.iter().position(|volume| volume.info.id == id);
                let restored = place.map(|place| {
                    let info = trash.remove(place).info;
                    VolumeInfo { name: name.map_or(info.name.clone(), |name| name.to_string()), ..info }
                });
                volumes.extend(restored.clone());
                let _ = reply.send(restored.ok_or(ControlError::NotInTrash(id)));
            }
            Request::EmptyTrash(id, reply) => {
                let count = trash.len();
                trash.retain(|volume| volume.info.id != id);
                let found = trash.len() < count;
                let _ = reply.send(if found { Ok(()) } else { Err(ControlError::NotInTrash(id)) });
            }
            Request::Pools(request) => keys.answer_of_pools(request),
            Request::ChangeHosts(name, change, reply) => drop(reply.send(change_hosts(&mut volumes, &name, &change))),
            Request::MoveVolume(name, to, reply) => {
                let volume = volumes.iter_mut().find(|volume| volume.name == name.as_str());
                let moved = volume.map(|volume| {
                    volume.head = to;
                    volume.clone()
                });
                let _ = reply.send(moved.ok_or(ControlError::NotFound(name.to_string())));
            }
            Request::FinishUpgrade(_, reply) => {
                let _ = reply.send(Err(ControlError::Refused("nobody speaks it".to_owned())));
            }
            Request::Relocate(name, wanted, reply) => {
                let to = format!("{:?} in {}", wanted.placement, wanted.pool.unwrap_or_default());
                let begun = Relocation { to, copied_bytes: 0, total_bytes: 7, began_at_ns: 1 };
                let is_there = volumes.iter().any(|volume| volume.name == name.as_str());
                let _ = reply.send(is_there.then_some(begun).ok_or(ControlError::NotFound(name.to_string())));
            }
            Request::GiveRelocationUp(name, reply) => {
                let _ = reply.send(Err(ControlError::Unavailable(format!("{name} does not move"))));
            }
            Request::Relocation(_, reply) => drop(reply.send(Ok(Err("no room".to_owned())))),
            Request::Snapshots(request) => snapshots.answer(request, &mut volumes),
            Request::Keys(request) => keys.answer(request, &mut volumes),
            Request::CheckDevice(path, reply) => {
                let is_blank = path.ends_with("blank");
                let refused = || ControlError::Refused("blank".to_owned());
                let _ =
                    reply.send(if is_blank { Err(refused()) } else { Ok(Some(cluster::control::Decided::default())) });
            }
            Request::AddDevice(path, reply) => {
                devices.push(DeviceStatus { path, ..DeviceStatus::default() });
                let _ = reply.send(Ok(()));
            }
            Request::Stop(reply) => {
                let _ = reply.send(());
            }
            Request::Duty(_, _, reply) => drop(reply.send(Ok(cluster::control::Decided::default()))),
            Request::BeginCheck(pool, reply) => {
                let _ = reply.send(Ok(checks.replace(volume::Check { pool, ..volume::Check::default() }).is_none()));
            }
            Request::LastCheck(reply) => drop(reply.send(checks.clone())),
            Request::Standing(reply) => drop(reply.send(Ok(volume::Standings::default()))),
            Request::Traffic(reply) => drop(reply.send(Traffic::default())),
            Request::Status(reply) => {
                let _ = reply.send(ClusterStatus {
                    cluster: ClusterId(5),
                    node: NodeStatus { devices: devices.clone(), ..NodeStatus::default() },
                });
            }
        }
    }
}

/// Runs `client` against a server of its own.
fn with_server<F: Future<Output = ()>>(client: impl FnOnce(SocketAddr) -> F) {
    with_server_of(FilePath::new("node.toml"), client);
}

/// The same, of a node that this file describes.
fn with_server_of<F: Future<Output = ()>>(config_path: &FilePath, client: impl FnOnce(SocketAddr) -> F) {
    with_core((false, control_core), config_path, client);
}

/// The same, with this control core, and whether other processes share its map.
fn with_core<C: Future<Output = ()> + Send + 'static, F: Future<Output = ()>>(
    (is_shared, core): (bool, impl FnOnce(CrossReceiver<Request>) -> C),
    config_path: &FilePath,
    client: impl FnOnce(SocketAddr) -> F,
) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (control, requests) = control::channel();
        let addresses = Addresses {
            nqn: "nqn.test".into(),
            nodes: vec![crate::admin::NodeAddresses {
                node: types::NodeId(1),
                nvme: "127.0.0.1:4420".parse().unwrap(),
                nbd: "127.0.0.1:10809".parse().unwrap(),
                pid: 1,
            }],
            admin: address,
            any_host: false,
        };
        tokio::spawn(core(requests));
        tokio::spawn(
            Admin {
                control,
                addresses: AddressBook::new(addresses),
                is_shared,
                config_path: config_path.to_owned(),
                config_paths: [(types::NodeId(1), config_path.to_owned())].into(),
                looked: Looked::default(),
                follower: crate::events::follower::Follower::default(),
                events: Arc::new(crate::events::Events::in_memory("node-1")),
            }
            .serve(listener, tokio::sync::mpsc::channel(1).1, std::future::pending()),
        );
        client(address).await;
    });
}

/// Status and body of one request, sent as it stands.
async fn raw(address: SocketAddr, head: &str, body: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let length = body.len();
    let request = format!("{head}\r\nhost: x\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
    (status, answer.split_once("\r\n\r\n").unwrap().1.to_owned())
}

async fn ask(address: SocketAddr, method: &str, path: &str, body: Option<Value>) -> (u16, Value) {
    let head = format!("{method} {path} HTTP/1.1\r\ncontent-type: application/json");
    let body = body.map(|body| body.to_string()).unwrap_or_default();
    let (status, body) = raw(address, &head, &body).await;
    (status, if body.is_empty() { Value::Null } else { serde_json::from_str(&body).unwrap() })
}

#[test]
fn a_device_is_named_in_the_nodes_file_before_it_is_added() {
    let directory = crate::testing::TempDir::new();
    let file = directory.path().join("node.toml");
    std::fs::write(&file, "[[device]]\npath = \"/a\"\n").unwrap();
    let read = || std::fs::read_to_string(&file).unwrap();
    let before = read();
    with_server_of(&file, |at| async move {
        for (path, status) in [("b", 422), ("/dev/blank", 422)] {
            let (found, answer) = ask(at, "POST", "/v1/devices", Some(json!({"path": path}))).await;
            assert_eq!(found, status, "{path}: {answer}");
        }
        let asked = json!({"path": "/dev/b", "dry_run": true});
        let (status, answer) = ask(at, "POST", "/v1/devices", Some(asked)).await;
        assert_eq!((status, &answer["path"], &answer["share"]["begun"]), (200, &Value::Null, &json!(false)));
        assert_eq!(read(), before, "nothing is named that is refused, or only asked about");
        let (status, device) = ask(at, "POST", "/v1/devices", Some(json!({"path": "/dev/b"}))).await;
        assert_eq!((status, &device["path"], &device["share"]["begun"]), (201, &json!("/dev/b"), &json!(true)));
        assert!(read().starts_with(&before) && read().contains("path = \"/dev/b\""), "{}", read());
        let (status, devices) = ask(at, "GET", "/v1/devices", None).await;
        assert_eq!((status, devices.as_array().map(Vec::len)), (200, Some(1)));
    });
}

#[test]
fn a_volume_is_made_seen_and_deleted() {
    with_server(|at| async move {
        assert_eq!(ask(at, "GET", "/v1/volumes", None).await, (200, json!([])));
        let asked = json!({"name": "data", "size_bytes": 1 << 30});
        let (status, made) = ask(at, "POST", "/v1/volumes", Some(asked)).await;
        let nguid = "07".repeat(16);
        let expected = json!({
            "name": "data", "size_bytes": 1 << 30, "block_size_bytes": 512, "nqn": "nqn.test", "nsid": 1,
            "nguid": nguid, "nvme_addresses": ["127.0.0.1:4420"], "nbd_uri": "nbd://127.0.0.1:10809/data",
            "nbd_uris": ["nbd://127.0.0.1:10809/data"], "layers": [3, 1],
            "limits": {"iops": null, "bytes_per_second": null, "burst_ms": null},
            "pool": "default", "placement": "spread", "head": "node-1", "home": "node-1", "compression": "off",
            "encrypted": false, "locked": false, "any_host": false, "hosts": [],
        });
        assert_eq!((status, &made), (201, &expected));
        assert_eq!(ask(at, "GET", "/v1/volumes", None).await, (200, json!([expected])));
        assert_eq!(ask(at, "GET", "/v1/volumes/data", None).await, (200, expected));
        assert_eq!(ask(at, "DELETE", "/v1/volumes/data?now=true", None).await, (204, Value::Null));
        assert_eq!(ask(at, "GET", "/v1/volumes/data", None).await.0, 404);
        assert_eq!(ask(at, "GET", "/v1/trash", None).await, (200, json!([])));
    });
}

#[test]
fn a_deleted_volume_lies_in_the_trash_and_comes_back_under_another_name() {
    with_server(|at| async move {
        let asked = json!({"name": "data", "size_bytes": 1 << 30});
        ask(at, "POST", "/v1/volumes", Some(asked)).await;
        let expected = json!({
            "id": 1, "name": "data", "size_bytes": 1 << 30,
            "deleted_at": "1970-01-01T00:00:01.000Z", "kept_until": "1970-01-02T00:00:01.000Z",
        });
        assert_eq!(ask(at, "DELETE", "/v1/volumes/data", None).await, (200, expected.clone()));
        assert_eq!(ask(at, "GET", "/v1/volumes", None).await, (200, json!([])));
        assert_eq!(ask(at, "GET", "/v1/trash", None).await, (200, json!([expected])));
        let (status, restored) = ask(at, "POST", "/v1/trash/1/restore", Some(json!({"name": "again"}))).await;
        assert_eq!((status, &restored["name"], &restored["nsid"]), (200, &json!("again"), &json!(1)));
        assert_eq!(ask(at, "GET", "/v1/trash", None).await, (200, json!([])));
        ask(at, "DELETE", "/v1/volumes/again", None).await;
        assert_eq!(ask(at, "DELETE", "/v1/trash/1", None).await, (204, Value::Null));
        assert_eq!(ask(at, "GET", "/v1/trash", None).await, (200, json!([])));
    });
}

#[test]
fn a_volume_is_told_to_lie_elsewhere_and_says_how_far_that_is() {
    with_server(|at| async move {
        let path = "/v1/volumes/data/relocation";
        let asked = json!({"placement": "gathered", "node": "node-2", "pool": "fast"});
        assert_eq!(ask(at, "POST", path, Some(asked.clone())).await.0, 404);
        ask(at, "POST", "/v1/volumes", Some(json!({"name": "data", "size_bytes": 1 << 30}))).await;
        let begun = json!({"state": "moving", "to": "Some(Gathered) in fast", "copied_bytes": 0, "total_bytes": 7});
        assert_eq!(ask(at, "POST", path, Some(asked)).await, (202, begun));
        assert_eq!(ask(at, "POST", path, Some(json!({"node": "node-2"}))).await.0, 422, "how is to be said");
        let (status, failed) = ask(at, "GET", path, None).await;
        assert_eq!((status, &failed["state"], &failed["why"]), (200, &json!("failed"), &json!("no room")));
        assert_eq!(ask(at, "DELETE", path, None).await.0, 503);
    });
}

#[test]
fn what_was_done_is_told_as_events_the_newest_last() {
    with_server(|at| async move {
        assert_eq!(ask(at, "GET", "/v1/events", None).await, (200, json!({"events": [], "missing": []})));
        let asked = json!({"name": "data", "size_bytes": 1 << 30});
        assert_eq!(ask(at, "POST", "/v1/volumes", Some(asked.clone())).await.0, 201);
        assert_eq!(ask(at, "POST", "/v1/volumes", Some(asked)).await.0, 409, "what is refused is no event");
        ask(at, "POST", "/v1/volumes/data/hosts", Some(json!({"host": "nqn.x"}))).await;
        ask(at, "POST", "/v1/volumes/data/hosts", Some(json!({"host": "x"}))).await;
        ask(at, "POST", "/v1/volumes/data/snapshots", Some(json!({"name": "monday"}))).await;
        ask(at, "PATCH", "/v1/volumes/data", Some(json!({"size_bytes": 2u64 << 30}))).await;
        ask(at, "DELETE", "/v1/volumes/data", None).await;
        let (status, told) = ask(at, "GET", "/v1/events", None).await;
        let events = told["events"].as_array().unwrap();
        let kinds: Vec<&str> = events.iter().map(|event| event["kind"].as_str().unwrap()).collect();
        let expected = ["volume-created", "host-allowed", "snapshot-created", "volume-resized", "volume-trashed"];
        assert_eq!((status, &kinds[..]), (200, &expected[..]), "{told}");
        assert_eq!((&events[1]["subjects"], &events[1]["node"]), (&json!(["data", "nqn.x"]), &json!("node-1")));
        let (_, last) = ask(at, "GET", "/v1/events?last=2", None).await;
        assert_eq!(last["events"].as_array().unwrap()[..], events[3..]);
        let since = format!("/v1/events?since={}", events[4]["time"].as_str().unwrap());
        let (_, newest) = ask(at, "GET", &since, None).await;
        assert!(newest["events"].as_array().unwrap().contains(&events[4]), "{newest}");
        for wrong in ["since=now", "last=0", "color=red"] {
            assert_eq!(ask(at, "GET", &format!("/v1/events?{wrong}"), None).await.0, 400, "{wrong}");
        }
    });
}

#[test]
fn a_node_tells_its_facts_and_another_nodes_are_refused_with_the_reason() {
    let directory = crate::testing::TempDir::new();
    let file = directory.path().join("node.toml");
    std::fs::write(&file, "# MARKED\n[[device]]\npath = \"/a\"\n").unwrap();
    with_server_of(&file, |at| async move {
        let (status, config) = raw_get(at, "/v1/nodes/node-1/debug/config").await;
        assert!(status == 200 && config.contains("path = \"/a\"") && !config.contains("MARKED"), "{config}");
        let (status, machine) = ask(at, "GET", "/v1/nodes/node-1/debug/machine", None).await;
        assert_eq!((status, &machine["kernel"]["name"]), (200, &json!("Linux")));
        assert!(raw_get(at, "/v1/nodes/node-1/debug/metrics").await.1.contains("cairn_health"));
        assert_eq!(raw_get(at, "/v1/nodes/node-1/debug/secrets").await.0, 400);
        let (status, refused) = ask(at, "GET", "/v1/nodes/node-2/debug/config", None).await;
        assert_eq!((status, &refused["error"]["code"]), (503, &json!("unavailable")));
        assert_eq!(ask(at, "GET", "/v1/map", None).await.1["entries"], json!({}));
    });
}

async fn raw_get(at: SocketAddr, path: &str) -> (u16, String) {
    raw(at, &format!("GET {path} HTTP/1.1"), "").await
}

#[test]
fn every_error_has_the_one_shape() {
    let volume =
        |name: &str, size: u64, block: u32| json!({"name": name, "size_bytes": size, "block_size_bytes": block});
    with_server(|at| async move {
        ask(at, "POST", "/v1/volumes", Some(volume("data", 1 << 20, 512))).await;
        for (method, path, body, status, code) in [
            ("POST", "/v1/volumes", Some(volume("data", 1 << 20, 512)), 409, "volume_exists"),
            ("POST", "/v1/volumes", Some(volume("Data", 1 << 20, 512)), 400, "bad_request"),
            ("POST", "/v1/volumes", Some(volume("v", 1, 512)), 400, "bad_request"),
            ("POST", "/v1/volumes", Some(volume("v", 1 << 20, 1024)), 400, "bad_request"),
            ("POST", "/v1/volumes", Some(json!({"name": "v"})), 422, "bad_request"),
            ("POST", "/v1/volumes", Some(json!({"name": "v", "size_bytes": 1 << 20, "color": 1})), 422, "bad_request"),
            ("POST", "/v1/volumes", None, 400, "bad_request"),
            ("GET", "/v1/volumes/none", None, 404, "volume_not_found"),
            ("DELETE", "/v1/volumes/none", None, 404, "volume_not_found"),
            ("DELETE", "/v1/volumes/data?now=yes", None, 400, "bad_request"),
            ("POST", "/v1/trash/7/restore", Some(json!({})), 404, "not_in_trash"),
            ("POST", "/v1/trash/7/restore", Some(json!({"name": "No"})), 400, "bad_request"),
            ("DELETE", "/v1/trash/7", None, 404, "not_in_trash"),
            ("DELETE", "/v1/trash/data", None, 400, "bad_request"),
            ("GET", "/v1/volumes/%ff", None, 400, "bad_request"),
            ("GET", "/v1/volumes/..%2f..%2fetc", None, 400, "bad_request"),
            ("GET", "/v2/volumes", None, 404, "not_found"),
            ("PUT", "/v1/volumes", None, 405, "method_not_allowed"),
        ] {
            let (got, answer) = ask(at, method, path, body).await;
            assert_eq!((got, answer["error"]["code"].as_str()), (status, Some(code)), "{method} {path} {answer}");
            for field in ["message", "hint"] {
                let text = answer["error"][field].as_str().unwrap();
                assert!(!text.is_empty() && !text.contains('\n'), "{method} {path} {field}: {text:?}");
            }
        }
    });
}

#[test]
fn a_body_that_is_no_json_or_too_large_is_refused() {
    with_server(|at| async move {
        let head = "POST /v1/volumes HTTP/1.1\r\ncontent-type: application/json";
        assert_eq!(raw(at, head, "{\"name\":").await.0, 400);
        assert_eq!(raw(at, head, &" ".repeat(BODY_MAX_BYTES + 1)).await.0, 413);
        assert_eq!(raw(at, "POST /v1/volumes HTTP/1.1\r\ncontent-type: text/plain", "{}").await.0, 415);
    });
}

#[test]
fn status_and_health_answer_and_the_document_names_every_path() {
    with_server(|at| async move {
        let (code, status) = ask(at, "GET", "/v1/status", None).await;
        assert_eq!((code, status["health"].as_str(), &status["reasons"]), (200, Some("healthy"), &json!([])));
        assert_eq!(raw(at, "GET /healthz HTTP/1.1", "").await, (200, "ok\n".to_owned()));
        let (_, document) = ask(at, "GET", "/v1/openapi.json", None).await;
        let paths = document["paths"].as_object().unwrap();
        assert_eq!(paths.len(), ADMIN_PATHS.len());
        assert!(ADMIN_PATHS.iter().all(|path| paths.contains_key(*path)));
    });
}

/// The paths that the router is told, as they stand in its source: it cannot be asked.
fn routes() -> Vec<&'static str> {
    let after = include_str!("server.rs").split(".route(").skip(1);
    after.filter_map(|rest| rest.trim_start().strip_prefix('"')?.split('"').next()).collect()
}

/// Everything that a document refers to.
fn references<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
    match value {
        Value::Object(fields) => {
            found.extend(fields.get("$ref").and_then(Value::as_str));
            fields.values().for_each(|field| references(field, found));
        }
        Value::Array(items) => items.iter().for_each(|item| references(item, found)),
        _ => {}
    }
}

#[test]
fn the_document_has_every_route_with_its_methods_and_every_schema() {
    with_server(|at| async move {
        let (_, document) = ask(at, "GET", "/v1/openapi.json", None).await;
        let paths = document["paths"].as_object().expect("paths");
        let routes: Vec<_> = routes().into_iter().filter(|path| *path != "/v1/openapi.json").collect();
        assert!(routes.contains(&"/v1/volumes/{name}") && routes.len() == paths.len(), "{routes:?} and {paths:?}");
        for path in routes {
            let documented = paths.get(path).unwrap_or_else(|| panic!("{path} is not in the document"));
            let real = path.replace("{id}", "1").replace(['{', '}'], "");
            for method in ["GET", "POST", "PUT", "PATCH", "DELETE"] {
                let (status, _) = raw(at, &format!("{method} {real} HTTP/1.1"), "").await;
                let is_documented = documented.get(method.to_lowercase()).is_some();
                assert_eq!(status != 405, is_documented, "{method} {path}: {status}");
            }
            for (method, operation) in documented.as_object().expect("methods") {
                let names = path.split('{').skip(1).filter_map(|rest| rest.split('}').next());
                for name in names {
                    let told =
                        operation["parameters"].as_array().is_some_and(|all| all.iter().any(|p| p["name"] == name));
                    assert!(told, "{method} {path} does not say what {name} is");
                }
            }
        }
        let mut found = Vec::new();
        references(&document, &mut found);
        assert!(found.contains(&"#/components/schemas/ChangeLimits"), "{found:?}");
        for reference in found {
            let pointer = reference.strip_prefix('#').expect("within the document");
            assert!(document.pointer(pointer).is_some(), "{reference} leads nowhere");
        }
    });
}

/// Snapshots as a control core without volumes of its own would have them.
#[derive(Default)]
struct Snapshots(Vec<(String, SnapshotRecord)>);

impl Snapshots {
    fn answer(&mut self, request: SnapshotRequest, volumes: &mut Vec<VolumeInfo>) {
        let place = |volume: &VolumeName, name: &SnapshotName| {
            let is_it =
                |(of, snapshot): &(String, SnapshotRecord)| of == volume.as_str() && snapshot.name == name.as_str();
            self.0.iter().position(is_it).ok_or_else(|| ControlError::NoSnapshot(name.to_string()))
        };
        match request {
            SnapshotRequest::List(volume, reply) => {
                let of_volume = self.0.iter().filter(|(of, _)| of == volume.as_str());
                let _ = reply.send(Ok(of_volume.map(|(_, snapshot)| snapshot.clone()).collect()));
            }
            SnapshotRequest::Create(volume, name, reply) => {
                let answer = match place(&volume, &name) {
                    Ok(_) => Err(ControlError::SnapshotExists(name.to_string())),
                    Err(_) => Ok(SnapshotRecord {
                        volume: VolumeId(1),
                        name: name.to_string(),
                        layer: LayerId(1),
                        family: types::FamilyId(1),
                        size_bytes: 4096,
                        created_at_ns: 1_000_000,
                    }),
                };
                self.0.extend(answer.clone().map(|made| (volume.to_string(), made)));
                let _ = reply.send(answer);
            }
            SnapshotRequest::CreateAll(paths, reply) => {
                let made = paths.iter().map(|path| {
                    let record = SnapshotRecord {
                        volume: VolumeId(1),
                        name: path.snapshot.to_string(),
                        layer: LayerId(1),
                        family: types::FamilyId(1),
                        size_bytes: 4096,
                        created_at_ns: 2_000_000,
                    };
                    (path.volume.to_string(), record)
                });
                let made: Vec<_> = made.collect();
                self.0.extend(made.iter().cloned());
                let _ = reply.send(Ok(made.into_iter().map(|(_, record)| record).collect()));
            }
            SnapshotRequest::Delete(volume, name, reply) => {
                let found = place(&volume, &name);
                let _ = reply.send(found.map(|place| drop(self.0.remove(place))));
            }
            SnapshotRequest::RollBack(volume, name, reply) => drop(reply.send(place(&volume, &name).map(drop))),
            SnapshotRequest::Clone(volume, name, new, reply) => {
                let of = volumes.iter().find(|info| info.name == volume.as_str()).cloned();
                let made = of.map(|info| VolumeInfo { name: new.to_string(), ..info });
                volumes.extend(made.clone());
                let _ = reply.send(place(&volume, &name).and(made.ok_or(ControlError::NotFound(volume.to_string()))));
            }
            SnapshotRequest::Changes(volume, from, to, reply) => {
                let length_bytes = if to.is_some() { 4096 } else { 8192 };
                let ranges = vec![volume::ByteRange { offset_bytes: 4096, length_bytes }];
                let _ = reply.send(place(&volume, &from).map(|_| ranges));
            }
            SnapshotRequest::Change(volume, change, reply) => {
                let found = volumes.iter_mut().find(|info| info.name == volume.as_str());
                let changed = found.map(|info| {
                    info.size_bytes = change.size_bytes.unwrap_or(info.size_bytes);
                    info.limits = info.limits.changed(&change.limits).expect("allowed");
                    info.name = change.name.unwrap_or(info.name.clone());
                    info.clone()
                });
                let _ = reply.send(changed.ok_or(ControlError::NotFound(volume.to_string())));
            }
            SnapshotRequest::Usage(reply) => drop(reply.send(Ok(Default::default()))),
        }
    }
}

#[test]
fn a_volume_is_changed_in_what_is_named_and_in_nothing_else() {
    with_server(|at| async move {
        let limits = json!({"iops": 100});
        let make = json!({"name": "data", "size_bytes": 1 << 30, "limits": limits});
        let (status, made) = ask(at, "POST", "/v1/volumes", Some(make)).await;
        let told = json!({"iops": 100, "bytes_per_second": null, "burst_ms": 100});
        assert_eq!((status, &made["limits"]), (201, &told));
        let change = json!({"limits": {"bytes_per_second": 1 << 20, "burst_ms": 5000}});
        let (status, changed) = ask(at, "PATCH", "/v1/volumes/data", Some(change)).await;
        let told = json!({"iops": 100, "bytes_per_second": 1 << 20, "burst_ms": 5000});
        assert_eq!((status, &changed["limits"]), (200, &told));
        let change = json!({"name": "other", "limits": {"iops": null, "burst_ms": null}});
        let (status, changed) = ask(at, "PATCH", "/v1/volumes/data", Some(change)).await;
        let told = json!({"iops": null, "bytes_per_second": 1 << 20, "burst_ms": 100});
        assert_eq!((status, &changed["name"], &changed["limits"]), (200, &json!("other"), &told));
        assert_eq!(changed["size_bytes"], json!(1 << 30));
        for nonsense in [json!({}), json!({"limits": {}}), json!({"name": "No"}), json!({"limits": {"iops": -1}})] {
            let (status, refused) = ask(at, "PATCH", "/v1/volumes/other", Some(nonsense.clone())).await;
            assert!([400, 422].contains(&status), "{nonsense}: {status} {refused}");
        }
    });
}

#[test]
fn snapshots_of_several_volumes_are_one_request() {
    with_server(|at| async move {
        let of = |volume: &str| json!({"volume": volume, "name": "monday"});
        let asked = json!({"snapshots": [of("b"), of("a")]});
        let (status, made) = ask(at, "POST", "/v1/snapshots", Some(asked)).await;
        let expected = |volume: &str| json!({"volume": volume, "name": "monday", "size_bytes": 4096, "created_at": "1970-01-01T00:00:00.002Z"});
        assert_eq!((status, made), (201, json!([expected("b"), expected("a")])));
        let (status, nothing) = ask(at, "POST", "/v1/snapshots", Some(json!({"snapshots": []}))).await;
        assert_eq!((status, &nothing["error"]["code"]), (400, &json!("bad_request")));
        let bad = json!({"snapshots": [{"volume": "a", "name": "Monday!"}]});
        assert_eq!(ask(at, "POST", "/v1/snapshots", Some(bad)).await.0, 400);
    });
}

#[test]
fn snapshots_are_taken_listed_cloned_rolled_back_and_deleted() {
    with_server(|at| async move {
        ask(at, "POST", "/v1/volumes", Some(json!({"name": "data", "size_bytes": 1 << 30}))).await;
        let snapshots = "/v1/volumes/data/snapshots";
        let expected = json!({
            "volume": "data", "name": "monday", "size_bytes": 4096, "created_at": "1970-01-01T00:00:00.001Z",
        });
        let named = Some(json!({"name": "monday"}));
        assert_eq!(ask(at, "POST", snapshots, named.clone()).await, (201, expected.clone()));
        let (status, again) = ask(at, "POST", snapshots, named).await;
        assert_eq!((status, &again["error"]["code"]), (409, &json!("snapshot_exists")));
        assert_eq!(ask(at, "GET", snapshots, None).await, (200, json!([expected])));
        let one = "/v1/volumes/data/snapshots/monday";
        let (status, cloned) = ask(at, "POST", &format!("{one}/clone"), Some(json!({"name": "copy"}))).await;
        assert_eq!((status, &cloned["name"]), (201, &json!("copy")));
        assert_eq!(ask(at, "POST", &format!("{one}/rollback"), None).await, (204, Value::Null));
        let all = json!([{"offset_bytes": 4096, "length_bytes": 8192}]);
        assert_eq!(ask(at, "GET", &format!("{one}/changes"), None).await, (200, all));
        let until = json!([{"offset_bytes": 4096, "length_bytes": 4096}]);
        assert_eq!(ask(at, "GET", &format!("{one}/changes?to=tuesday"), None).await, (200, until));
        assert_eq!(ask(at, "GET", &format!("{one}/changes?until=x"), None).await.0, 400);
        let (status, larger) = ask(at, "PATCH", "/v1/volumes/data", Some(json!({"size_bytes": 2u64 << 30}))).await;
        assert_eq!((status, &larger["size_bytes"]), (200, &json!(2u64 << 30)));
        assert_eq!(ask(at, "PATCH", "/v1/volumes/data", Some(json!({"size_bytes": 5}))).await.0, 400);
        assert_eq!(ask(at, "DELETE", one, None).await, (204, Value::Null));
        let (status, gone) = ask(at, "DELETE", one, None).await;
        assert_eq!((status, &gone["error"]["code"]), (404, &json!("snapshot_not_found")));
    });
}
