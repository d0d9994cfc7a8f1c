//! Nodes and devices that come, rest and go: foretold, begun, and how far that is.

use super::duty_types::{DeviceBytes, Duty, DutyAction, DutyOrder, Foretold};
use super::error::ApiError;
use super::health::{Look, now_ns};
use super::server::Shared;
use super::types::{Device, ErrorBody, Node, NodeState};
use crate::control::ControlError;
use crate::events::kind;
use axum::Json;
use axum::extract::State;
use axum::extract::rejection::JsonRejection;
use cluster::control::{ClusterStanding, Decided, DeviceStanding};
use cluster::placement::duty::{Forecast, Request, Subject};
use cluster::{DeviceDuty, NodeDuty};
use std::collections::BTreeMap;
use std::time::Duration;
use types::{NodeId, StoreId};

/// What a device is taken to be filled with in a second, where nobody has measured it: what is copied makes room for clients.
const ASSUMED_BYTES_PER_SECOND: u64 = 100 << 20;
/// A group takes this long besides its bytes: it joins, is compared, leads and leaves. Eight at a time for each device.
const GROUP_SECONDS: f64 = 0.15;
/// How long maintenance lasts if nobody says.
const MAINTENANCE_MINUTES: u64 = 30;
/// The longest, a week: meanwhile nothing is copied elsewhere.
const MAINTENANCE_MINUTES_MAX: u64 = 7 * 24 * 60;
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
    let look = Look::take(&admin, None).await?;
    let request = request_of(&order, &look.known.standing)?;
    if admin.is_shared {
        refuse_running(&request, &look.known.standing)?;
    }
    let removed = match &request {
        Request::Remove(Subject::Device(store)) if !order.dry_run => {
            look.known.standing.devices.iter().find(|device| device.store == *store).cloned()
        }
        _ => None,
    };
    let decided = admin.control.decide(request, order.dry_run).await?;
    if let Some(device) = removed {
        super::devices::forget(&admin, device.node, &device.path).await;
    }
    if !order.dry_run {
        let action = format!("{:?}", order.action).to_lowercase();
        let with = order.with.as_ref().map_or_else(String::new, |with| format!(" with {with}"));
        let text = format!("{}: {action}{with} is begun", order.subject);
        admin.events.done(kind::DUTY_ORDERED, &[&order.subject, &action], text);
    }
    Ok(Json(foretold(&decided, !order.dry_run)))
}

/// A process of its own that runs would go on to serve, and to speak for what the map does not know any more.
fn refuse_running(request: &Request, cluster: &ClusterStanding) -> Result<(), ApiError> {
    let Request::Remove(Subject::Node(node)) = request else { return Ok(()) };
    let standing = cluster.nodes.iter().find(|standing| standing.node == *node);
    match standing.filter(|standing| standing.is_there) {
        // What it holds is told first: it must not be stopped for that.
        Some(standing) if cluster.devices.iter().all(|on| !standing.devices.contains(&on.store) || on.groups == 0) => {
            let name = node_name(*node);
            Err(ControlError::Refused(format!(
                "{name} holds nothing any more and still runs: stop it there (systemctl stop cairn, or Ctrl-C), and say this again \
                 some seconds later"
            ))
            .into())
        }
        _ => Ok(()),
    }
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
            let minutes = order.minutes.unwrap_or(MAINTENANCE_MINUTES);
            if !(1..=MAINTENANCE_MINUTES_MAX).contains(&minutes) {
                let hint = "drain the node if it is away for longer, or take it back with undrain";
                return bad(&format!("maintenance lasts 1 to {MAINTENANCE_MINUTES_MAX} minutes, not {minutes}"), hint);
            }
            let lasts = Duration::from_secs(60 * minutes);
            Request::Maintain { node, until_ns: now_ns() + lasts.as_nanos() as u64 }
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

/// What was decided, or would be, as it is told.
pub(super) fn foretold(decided: &Decided, begun: bool) -> Foretold {
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
    let (groups, bytes, seconds) = cost_of(forecast);
    Foretold {
        begun,
        groups,
        bytes,
        seconds,
        bytes_per_second: ASSUMED_BYTES_PER_SECOND,
        led_elsewhere: forecast.led_elsewhere.len(),
        homes: forecast.homes.len(),
        gets: told(&forecast.comes),
        gives: told(&forecast.goes),
    }
}

/// Groups that a forecast moves, about how many bytes, and about how long that takes in seconds.
pub fn cost_of(forecast: &Forecast) -> (usize, u64, u64) {
    let (groups, bytes) = (forecast.groups(), forecast.bytes());
    (groups, bytes, seconds_for(groups, bytes, forecast.comes.len()).ceil() as u64)
}

/// How long so many groups of so many bytes take, if nobody has seen how fast it goes.
fn seconds_for(groups: usize, bytes: u64, receiving: usize) -> f64 {
    let receiving = receiving.max(1) as f64;
    (bytes as f64 / ASSUMED_BYTES_PER_SECOND as f64 + groups as f64 * GROUP_SECONDS) / receiving
}

// ---- status ------------------------------------------------------------------------------------------------------------

/// How nodes are and what they are to do, as the map says; those that are not of this process, too.
pub(super) fn tell_nodes(nodes: &mut Vec<Node>, cluster: &ClusterStanding) {
    for standing in &cluster.nodes {
        let name = node_name(standing.node);
        let on: Vec<&DeviceStanding> = cluster.devices.iter().filter(|device| device.node == standing.node).collect();
        if !nodes.iter().any(|node| node.name == name) {
            nodes.push(Node {
                name: name.clone(),
                pid: 0,
                state: NodeState::Away,
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
        // The map keeps what was given up by device.
        if node.duty == Duty::In && !on.is_empty() && on.iter().all(|device| device.duty == DeviceDuty::Out) {
            node.duty = Duty::Lost;
        }
        node.groups = on.iter().map(|device| device.groups).sum();
        node.groups_leaving = on.iter().map(|device| device.leaves).sum();
        // One of this process that has no session (yet) answers all the same.
        let is_there = standing.is_there || node.pid != 0;
        node.state = match (is_there, standing.duty) {
            (false, _) => NodeState::Away,
            (true, NodeDuty::In) => NodeState::Up,
            (true, NodeDuty::Maintenance { .. }) => NodeState::Maintenance,
            (true, NodeDuty::Draining) if node.groups == 0 => NodeState::Drained,
            (true, NodeDuty::Draining) => NodeState::Draining,
        };
    }
    nodes.sort_by_key(|node| node.name.strip_prefix("node-").and_then(|number| number.parse::<u32>().ok()));
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
    fn maintenance_lasts_a_week_at_most() {
        let node =
            cluster::control::NodeStanding { node: NodeId(1), duty: NodeDuty::In, is_there: true, devices: Vec::new() };
        let cluster = ClusterStanding { nodes: vec![node], ..ClusterStanding::default() };
        let asked = |minutes| {
            let order = DutyOrder {
                subject: "node-1".to_owned(),
                action: DutyAction::Maintenance,
                with: None,
                minutes,
                dry_run: true,
            };
            request_of(&order, &cluster)
        };
        for minutes in [None, Some(1), Some(10_080)] {
            assert!(asked(minutes).is_ok(), "{minutes:?}");
        }
        for minutes in [0, 10_081, u64::MAX] {
            assert!(asked(Some(minutes)).is_err(), "{minutes}");
        }
    }

    #[test]
    fn a_node_that_runs_is_not_taken_out() {
        let standing = |is_there| cluster::control::NodeStanding {
            node: NodeId(1),
            duty: NodeDuty::Draining,
            is_there,
            devices: vec![StoreId(1 << 96)],
        };
        let of = |is_there, groups| ClusterStanding {
            nodes: vec![standing(is_there)],
            devices: vec![DeviceStanding { groups, ..device(1, 1, DeviceDuty::In) }],
            ..ClusterStanding::default()
        };
        let remove = Request::Remove(Subject::Node(NodeId(1)));
        assert!(refuse_running(&remove, &of(true, 0)).is_err());
        assert!(refuse_running(&remove, &of(false, 0)).is_ok(), "it was stopped");
        assert!(refuse_running(&remove, &of(true, 4)).is_ok(), "that something is on it is told in its place");
        assert!(refuse_running(&Request::Drain(Subject::Node(NodeId(1))), &of(true, 0)).is_ok());
    }

    #[test]
    fn nodes_are_told_as_they_are_in_one_word() {
        let node = |node: u32, duty, is_there| cluster::control::NodeStanding {
            node: NodeId(node),
            duty,
            is_there,
            devices: vec![StoreId(u128::from(node) << 96)],
        };
        let resting = NodeDuty::Maintenance { until_ns: 5 };
        let cluster = ClusterStanding {
            devices: vec![device(3, 3, DeviceDuty::In), device(10, 10, DeviceDuty::Out), device(4, 5, DeviceDuty::Out)],
            nodes: vec![
                node(1, NodeDuty::In, true),
                node(2, resting, true),
                node(3, NodeDuty::Draining, true),
                node(4, NodeDuty::Draining, true),
                node(5, resting, false),
                node(10, NodeDuty::In, false),
            ],
            ..ClusterStanding::default()
        };
        let mut nodes = Vec::new();
        tell_nodes(&mut nodes, &cluster);
        let told = serde_json::to_value(&nodes).expect("JSON");
        let states: Vec<&str> = told.as_array().expect("a list").iter().filter_map(|n| n["state"].as_str()).collect();
        assert_eq!(states, ["up", "maintenance", "draining", "drained", "away", "away"]);
        let duties: Vec<Duty> = nodes.iter().map(|node| node.duty).collect();
        let (resting, draining) = (Duty::Maintenance, Duty::Draining);
        assert_eq!(
            duties,
            [Duty::In, resting, draining, draining, resting, Duty::Lost],
            "who was given up is said to be"
        );
        assert_eq!((nodes[5].name.as_str(), nodes[2].groups), ("node-10", 4));
    }
}
