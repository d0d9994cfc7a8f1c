//! Nodes and devices that come, rest and go: foretold, begun, and how far that is.

use super::duty_types::{AtRisk, DeviceBytes, Doing, Duty, DutyAction, DutyOrder, Foretold};
use super::error::ApiError;
use super::server::Shared;
use super::types::{Device, ErrorBody, Health, Node, NodeState, Status};
use crate::control::ControlError;
use crate::log::utc_of_ns;
use axum::Json;
use axum::extract::State;
use axum::extract::rejection::JsonRejection;
use cluster::control::{ClusterStanding, Decided, DeviceStanding};
use cluster::placement::duty::{Request, Subject};
use cluster::{DeviceDuty, NodeDuty};
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use types::{NodeId, StoreId};
use volume::Standings;

/// What a device is taken to be filled with in a second, where nobody has measured it: what is copied makes room for clients.
const ASSUMED_BYTES_PER_SECOND: u64 = 100 << 20;
/// A group takes this long besides its bytes: it joins, is compared, leads and leaves. Eight at a time for each device.
const GROUP_SECONDS: f64 = 0.4;
/// How long maintenance lasts if nobody says.
const MAINTENANCE_MINUTES: u64 = 30;
/// Beginnings of ids that are shorter may be anything.
const ID_DIGITS_MIN: usize = 4;

pub(super) fn node_name(node: NodeId) -> String {
    format!("node-{node}")
}

/// Says what is to become of a node or a device; or only what that would move.
#[utoipa::path(post, path = "/v1/duties", request_body = DutyOrder, responses(
    (status = 200, body = Foretold), (status = 400, body = ErrorBody), (status = 422, body = ErrorBody),
    (status = 503, body = ErrorBody)))]
pub(super) async fn order_duty(
    State(admin): Shared,
    body: Result<Json<DutyOrder>, JsonRejection>,
) -> Result<Json<Foretold>, ApiError> {
    let Json(order) = body?;
    let standings = admin.control.standing().await?;
    let request = request_of(&order, &standings.cluster)?;
    let decided = admin.control.decide(request, order.dry_run).await?;
    if !order.dry_run {
        log::info!("{}: {:?} is begun", order.subject, order.action);
    }
    Ok(Json(foretold(&decided, !order.dry_run)))
}

fn request_of(order: &DutyOrder, cluster: &ClusterStanding) -> Result<Request, ApiError> {
    let subject = subject_of(&order.subject, cluster)?;
    let bad = |what: &str, hint| Err(ApiError::bad_request(what.to_owned(), hint));
    Ok(match (order.action, subject) {
        (DutyAction::Drain, subject) => Request::Drain(subject),
        (DutyAction::Undrain, subject) => Request::TakeBack(subject),
        (DutyAction::Lost, subject) => Request::GiveUp(subject),
        (DutyAction::Remove, subject) => Request::Remove(subject),
        (DutyAction::Maintenance, Subject::Node(node)) => {
            let lasts = Duration::from_secs(60 * order.minutes.unwrap_or(MAINTENANCE_MINUTES));
            Request::Maintain { node, until_ns: (now_ns() + lasts.as_nanos()) as u64 }
        }
        (DutyAction::Maintenance, Subject::Device(_)) => {
            return bad("a device has no maintenance", "name its node, or drain the device");
        }
        (DutyAction::Replace, Subject::Node(_)) => return bad("a node is not replaced as a whole", "name its devices"),
        (DutyAction::Replace, Subject::Device(old)) => {
            match order.with.as_deref().map(|new| subject_of(new, cluster)) {
                Some(Ok(Subject::Device(new))) => Request::Replace { old, new },
                Some(Err(error)) => return Err(error),
                _ => {
                    return bad(
                        "it is not said which device comes",
                        "name the device that takes its place in \"with\"",
                    );
                }
            }
        }
    })
}

/// A node by its name, a device by its store's id, the beginning of that, or its path.
fn subject_of(name: &str, cluster: &ClusterStanding) -> Result<Subject, ApiError> {
    if let Some(node) = cluster.nodes.iter().find(|node| node_name(node.node) == name) {
        return Ok(Subject::Node(node.node));
    }
    let is_it = |device: &&DeviceStanding| {
        device.path == name || (name.len() >= ID_DIGITS_MIN && device.store.to_string().starts_with(name))
    };
    let found: Vec<&DeviceStanding> = cluster.devices.iter().filter(is_it).collect();
    match found[..] {
        [device] => Ok(Subject::Device(device.store)),
        [] => Err(ControlError::Refused(format!(
            "there is no node and no device '{name}': `cairn node ls` and `cairn device ls` show those there are"
        ))
        .into()),
        _ => {
            Err(ControlError::Refused(format!("'{name}' may be {} devices: write more of the id", found.len())).into())
        }
    }
}

fn foretold(decided: &Decided, begun: bool) -> Foretold {
    let Decided { forecast, before } = decided;
    let told = |of: &BTreeMap<StoreId, u64>| {
        let one = |(store, bytes): (&StoreId, &u64)| {
            let device = before.devices.get(store);
            DeviceBytes {
                store_id: store.to_string(),
                node: device.map_or_else(String::new, |device| node_name(device.node)),
                path: device.map_or_else(String::new, |device| device.path.clone()),
                bytes: *bytes,
            }
        };
        of.iter().map(one).collect()
    };
    let receiving = forecast.comes.len();
    Foretold {
        begun,
        groups: forecast.groups(),
        bytes: forecast.bytes(),
        seconds: seconds_for(forecast.groups(), forecast.bytes(), receiving, None).ceil() as u64,
        bytes_per_second: ASSUMED_BYTES_PER_SECOND,
        led_elsewhere: forecast.led_elsewhere.len(),
        homes: forecast.homes.len(),
        gets: told(&forecast.comes),
        gives: told(&forecast.goes),
    }
}

/// How long so many groups of so many bytes take. `rate`: groups in a second, if that was seen.
fn seconds_for(groups: usize, bytes: u64, receiving: usize, rate: Option<f64>) -> f64 {
    match rate {
        Some(rate) => groups as f64 / rate,
        None => {
            let receiving = receiving.max(1) as f64;
            (bytes as f64 / ASSUMED_BYTES_PER_SECOND as f64 + groups as f64 * GROUP_SECONDS) / receiving
        }
    }
}

fn now_ns() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos()
}

// ---- status ------------------------------------------------------------------------------------------------------------

/// What nodes are to do, and those that are not of this process.
pub(super) fn tell_nodes(nodes: &mut Vec<Node>, cluster: &ClusterStanding) {
    for standing in &cluster.nodes {
        let name = node_name(standing.node);
        let on: Vec<&DeviceStanding> = cluster.devices.iter().filter(|device| device.node == standing.node).collect();
        if !nodes.iter().any(|node| node.name == name) {
            nodes.push(Node {
                name: name.clone(),
                pid: 0,
                state: if standing.is_there { NodeState::Up } else { NodeState::Down },
                nvme_address: String::new(),
                nbd_address: String::new(),
                duty: Duty::In,
                groups: 0,
                groups_leaving: 0,
            });
        }
        let Some(node) = nodes.iter_mut().find(|node| node.name == name) else { continue };
        node.duty = match standing.duty {
            NodeDuty::In => Duty::In,
            NodeDuty::Maintenance { .. } => Duty::Maintenance,
            NodeDuty::Draining => Duty::Draining,
        };
        node.groups = on.iter().map(|device| device.groups).sum();
        node.groups_leaving = on.iter().map(|device| device.leaves).sum();
    }
}

/// What devices are to do.
pub(super) fn tell_devices(devices: &mut [Device], cluster: &ClusterStanding) {
    for device in devices {
        let Some(standing) = cluster.devices.iter().find(|standing| standing.store.to_string() == device.store_id)
        else {
            continue;
        };
        device.node = node_name(standing.node);
        device.duty = match standing.duty {
            DeviceDuty::In => Duty::In,
            DeviceDuty::Draining { .. } => Duty::Draining,
            DeviceDuty::Out => Duty::Lost,
        };
        (device.groups, device.groups_leaving) = (standing.groups, standing.leaves);
        (device.groups_coming, device.bytes_leaving) = (standing.comes, standing.leaves_bytes);
    }
}

/// What the map knows of the whole cluster: what is at risk, what is being done about it, and when that ends.
/// `here`: nodes of this process, which answers.
pub(super) fn explain(status: &mut Status, standings: &Standings, here: &[NodeId], now_ns: u64) {
    let cluster = &standings.cluster;
    let mut degraded = Vec::new();
    if let Some(why) = &cluster.unreadable {
        degraded.push(format!("nothing is moved: {why}: start a newer program"));
    }
    for node in cluster.nodes.iter().filter(|node| !node.is_there && !here.contains(&node.node)) {
        let name = node_name(node.node);
        let rests = matches!(node.duty, NodeDuty::Maintenance { .. });
        if !rests {
            degraded.push(format!(
                "{name} was not heard of for some seconds: start it; if it is lost: `cairn node rm {name} --lost`"
            ));
        }
    }
    for ((in_sync, replicas), groups) in &cluster.not_whole {
        degraded.push(format!("{groups} placement groups have {in_sync} of {replicas} copies in sync"));
    }
    status.at_risk = standings
        .risks
        .iter()
        .map(|(risk, volumes)| AtRisk {
            loses_data: risk.loses_data,
            nodes: risk.nodes.iter().copied().map(node_name).collect(),
            groups: risk.groups.len(),
            volumes: volumes.clone(),
        })
        .collect();
    degraded.extend(status.at_risk.iter().filter(|risk| !risk.volumes.is_empty()).map(risk_text));
    if !degraded.is_empty() {
        status.health = status.health.max(Health::Degraded);
        status.reasons.extend(degraded);
    }
    status.doing = doing(standings, now_ns);
}

/// "one more loss of node-2 or node-3 stops 3 volumes"
pub(super) fn risk_text(risk: &AtRisk) -> String {
    let does = if risk.loses_data { "loses data of" } else { "stops" };
    let volumes = match &risk.volumes[..] {
        [volume] => format!("volume {volume}"),
        all => format!("{} volumes", all.len()),
    };
    format!("one more loss of {} {does} {volumes}", risk.nodes.join(" or "))
}

fn doing(standings: &Standings, now_ns: u64) -> Vec<Doing> {
    let cluster = &standings.cluster;
    let receiving = cluster.devices.iter().filter(|device| device.comes > 0).count();
    let one = |kind: &str, subject: String, groups: usize, bytes: u64, command: String| {
        // All that is copied shares the same rate.
        let (groups_rate, bytes_rate) = standings.rate.unzip();
        let seconds = seconds_for(cluster.copies.max(groups), cluster.copy_bytes.max(bytes), receiving, groups_rate);
        let is_open = groups > 0;
        Doing {
            kind: kind.to_owned(),
            subject,
            groups_left: groups,
            bytes_left: bytes,
            bytes_per_second: bytes_rate.unwrap_or(ASSUMED_BYTES_PER_SECOND * receiving.max(1) as u64),
            is_measured: bytes_rate.is_some(),
            ends_at: is_open.then(|| utc_of_ns(now_ns + (seconds * 1e9) as u64)),
            command,
        }
    };
    let mut all = Vec::new();
    for device in &cluster.devices {
        let kind = match device.duty {
            DeviceDuty::In => continue,
            DeviceDuty::Draining { .. } => "drain",
            DeviceDuty::Out => "lost",
        };
        let command = if device.groups == 0 { format!("cairn device rm {}", device.store) } else { String::new() };
        all.push(one(kind, device.path.clone(), device.leaves, device.leaves_bytes, command));
    }
    for node in &cluster.nodes {
        let name = node_name(node.node);
        let on: Vec<&DeviceStanding> = cluster.devices.iter().filter(|device| device.node == node.node).collect();
        match node.duty {
            NodeDuty::In => {}
            NodeDuty::Draining => {
                let (groups, bytes) = (on.iter().map(|d| d.leaves).sum(), on.iter().map(|d| d.leaves_bytes).sum());
                let is_empty = on.iter().all(|device| device.groups == 0);
                let command = if is_empty { format!("cairn node rm {name}") } else { String::new() };
                all.push(one("drain", name, groups, bytes, command));
            }
            NodeDuty::Maintenance { until_ns } => {
                let leads = on.iter().map(|device| device.leads).sum();
                let command = format!("cairn node undrain {name}");
                let rests = one("maintenance", name, leads, 0, command);
                all.push(Doing { ends_at: Some(utc_of_ns(until_ns)), ..rests });
            }
        }
    }
    if cluster.copies > 0 {
        all.push(one("copy", String::new(), cluster.copies, cluster.copy_bytes, String::new()));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(store: u128, node: u32, duty: DeviceDuty) -> DeviceStanding {
        DeviceStanding {
            store: StoreId(store << 96),
            node: NodeId(node),
            path: format!("/dev/{store}"),
            duty,
            is_there: true,
            groups: 4,
            leads: 2,
            leaves: if duty == DeviceDuty::In { 0 } else { 4 },
            comes: 0,
            leaves_bytes: 400 << 20,
            comes_bytes: 0,
        }
    }

    #[test]
    fn devices_are_named_by_what_is_unmistakable() {
        let devices = vec![device(0xabcd_0001, 1, DeviceDuty::In), device(0xabcd_0002, 2, DeviceDuty::In)];
        let cluster = ClusterStanding { devices, ..ClusterStanding::default() };
        assert_eq!(subject_of("abcd0001", &cluster), Ok(Subject::Device(StoreId(0xabcd_0001 << 96))));
        assert_eq!(subject_of("/dev/2882338818", &cluster), Ok(Subject::Device(StoreId(0xabcd_0002 << 96))));
        for name in ["abcd", "abc", "", "node-1", "/dev"] {
            assert!(subject_of(name, &cluster).is_err(), "{name}");
        }
    }

    #[test]
    fn what_is_being_done_has_an_end_and_then_a_command() {
        let mut emptied = device(2, 2, DeviceDuty::Draining { into: None });
        let devices = vec![device(1, 1, DeviceDuty::In), emptied.clone()];
        let cluster = ClusterStanding { devices, copies: 4, copy_bytes: 400 << 20, ..ClusterStanding::default() };
        let standings = Standings { cluster, rate: Some((2.0, 200 << 20)), ..Standings::default() };
        let told = doing(&standings, 0);
        assert_eq!((told.len(), &told[0].kind[..], told[0].groups_left), (2, "drain", 4));
        assert_eq!(told[0].ends_at.as_deref(), Some("1970-01-01T00:00:02.000Z"));
        assert!(told[0].is_measured && told[0].command.is_empty());
        (emptied.groups, emptied.leaves, emptied.leaves_bytes) = (0, 0, 0);
        let cluster = ClusterStanding { devices: vec![emptied], ..ClusterStanding::default() };
        let told = doing(&Standings { cluster, ..Standings::default() }, 0);
        assert_eq!((told.len(), told[0].ends_at.clone()), (1, None));
        assert!(told[0].command.starts_with("cairn device rm "), "{told:?}");
    }

    #[test]
    fn a_risk_is_one_sentence() {
        let nodes = vec!["node-2".to_owned(), "node-3".to_owned()];
        let mut risk =
            AtRisk { loses_data: false, nodes, groups: 5, volumes: vec!["a".into(), "b".into(), "c".into()] };
        assert_eq!(risk_text(&risk), "one more loss of node-2 or node-3 stops 3 volumes");
        (risk.loses_data, risk.volumes) = (true, vec!["a".into()]);
        assert_eq!(risk_text(&risk), "one more loss of node-2 or node-3 loses data of volume a");
    }
}
