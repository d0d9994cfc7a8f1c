//! Nodes: those that are away, rest, or are emptied; and whoever controls.

use super::work::Left;
use super::{End, Finding, Harm, Known, Looks, Loss, Severity, WATCH, Work, WorkKind, ago, losses, node_name, words};
use crate::control::{DeviceStanding, GIVE_UP_AFTER, NodeStanding};
use crate::placement::duty::{Request, Subject, foretell, hindrance};
use crate::records::{DeviceDuty, DeviceState, GroupRecord, NodeDuty};
use std::collections::BTreeSet;
use types::{GroupId, NodeId, StoreId};

/// What helps first where something is away.
pub(super) const START: &str = "start it again";
/// Starts a node.
const RUN: &str = "cairn node run --config /etc/cairn/node.toml";
/// Shows devices, and what is on them.
pub(super) const LISTED: &str = "cairn device ls";

pub(super) fn find(known: &Known, looks: &Looks, found: &mut Vec<Finding>) {
    if let Some(control) = &known.control
        && !is_there(known, control.node)
        && known.standing.nodes.iter().any(|node| is_there(known, node.node))
    {
        let cause = format!("nobody carries out orders: {} did, and is away", node_name(control.node));
        let finding = Finding::new(Severity::Degraded, cause).with(Loss::plain(Harm::Told(losses::UNMENDED)));
        let text = "another node takes over within some seconds";
        let finding = finding.waits("", text, "another node has taken over");
        found.push(finding.advise("nothing to do: it is taken over by itself; see it:", WATCH));
    }
    for node in &known.standing.nodes {
        let (name, on) = (node_name(node.node), devices_of(known, node.node));
        if node.devices.is_empty() {
            continue;
        }
        let was_here = |store: &StoreId| known.view.devices.get(store).is_none_or(|d| d.state != DeviceState::New);
        if !is_there(known, node.node) && !node.devices.iter().any(was_here) {
            let finding = Finding::new(Severity::Ok, format!("{name} has joined and was not started yet"));
            found.push(finding.advise("on that machine:", RUN));
            continue;
        }
        if !is_there(known, node.node) && on.iter().any(|device| device.duty != DeviceDuty::Out || device.groups > 0) {
            found.push(away(known, looks, node));
        }
        match node.duty {
            NodeDuty::In => {}
            NodeDuty::Maintenance { until_ns } if is_there(known, node.node) => {
                let leads: usize = on.iter().map(|device| device.leads).sum();
                let text = match leads {
                    0 => "it leads nothing".to_owned(),
                    _ => format!("{} are still led from there", words::groups(leads)),
                };
                let work = Work::plain(WorkKind::Maintenance, &name, text, End::AtNs(until_ns));
                let finding = Finding::new(Severity::Ok, format!("{name} is in maintenance: it may be away"));
                let command = format!("cairn node undrain {name}");
                found.push(
                    finding.doing(Work { groups_left: leads, ..work }).advise("when it is to work again:", command),
                );
            }
            // Told where it is away.
            NodeDuty::Maintenance { .. } => {}
            NodeDuty::Draining => found.push(drained(known, looks, Subject::Node(node.node), &on)),
        }
    }
}

/// Whether it has a session. Of one without devices in the map that cannot be told: it is taken to be there.
pub(super) fn is_there(known: &Known, node: NodeId) -> bool {
    let devices = known.view.devices_of(node);
    devices.is_empty() || known.alive.contains(&node) || devices.iter().any(|store| known.there.contains(store))
}

pub(super) fn devices_of(known: &Known, node: NodeId) -> Vec<&DeviceStanding> {
    known.standing.devices.iter().filter(|device| device.node == node).collect()
}

fn away(known: &Known, looks: &Looks, node: &NodeStanding) -> Finding {
    let name = node_name(node.node);
    let since = node.devices.iter().filter_map(|store| looks.away_since.get(store)).min().copied();
    if let NodeDuty::Maintenance { until_ns } = node.duty {
        let work = Work::plain(WorkKind::Maintenance, &name, "nothing is copied meanwhile", End::AtNs(until_ns));
        let finding = missing(known, &format!("{name} is away for maintenance"), &node.devices);
        return finding.doing(work).advise("when it is back:", format!("cairn node undrain {name}"));
    }
    let heard = match since {
        Some(since) => format!("{name} has not been heard of for {}", ago(since, looks.now_ns)),
        None => format!("{name} is not heard of"),
    };
    missing_until(known, looks, (&heard, &name), &node.devices, (Subject::Node(node.node), since))
}

/// Something is away: what that does, and what becomes of it.
pub(super) fn missing_until(
    known: &Known,
    looks: &Looks,
    (cause, name): (&str, &str),
    stores: &[StoreId],
    (subject, since): (Subject, Option<u64>),
) -> Finding {
    let finding = missing(known, cause, stores);
    let removed = match subject {
        Subject::Node(_) => format!("cairn node rm {name} --lost"),
        Subject::Device(store) => format!("cairn device rm {store} --lost"),
    };
    let is_out = |store: &StoreId| known.view.device_place(*store).duty == DeviceDuty::Out;
    if stores.iter().all(is_out) {
        // What is copied is told with the device.
        let finding = finding.waits(name, "what was on it is copied from others", "others have all of it");
        return finding
            .advise("nothing to do: it is given up, and stays out when it comes back; how it stands:", LISTED);
    }
    match foretell(&known.view, &Request::GiveUp(subject)) {
        Ok(_) => {
            let limit_ns = GIVE_UP_AFTER.as_nanos() as u64;
            let minutes = GIVE_UP_AFTER.as_secs() / 60;
            let text = match since.map(|since| (since + limit_ns).saturating_sub(looks.now_ns)) {
                Some(left) if left > 0 => {
                    format!("nothing is copied yet: in {} it is given up, and copied from others", ago(0, left))
                }
                _ => {
                    format!("nothing is copied yet: what is away for {minutes} min is given up, and copied from others")
                }
            };
            let finding = finding.waits(name, text, format!("{name} is back, or given up"));
            finding.advise(format!("{START}; if it is lost for good:"), removed)
        }
        Err(refusal) => {
            let text = format!("nothing can be copied elsewhere: {refusal}");
            let finding = finding.waits(name, text, format!("{name} is back"));
            match subject {
                Subject::Node(_) => finding.advise(format!("{START}, on that machine:"), RUN),
                Subject::Device(store) => super::devices::replaceable(known, finding, START, store),
            }
        }
    }
}

/// What it does that these are not there.
pub(super) fn missing(known: &Known, cause: &str, stores: &[StoreId]) -> Finding {
    let lacking = known.lacking_on(stores);
    let stopped: Vec<&GroupRecord> = lacking.iter().copied().filter(|group| known.is_stopped(group)).collect();
    let cause = match lacking.len() {
        0 => cause.to_owned(),
        count => format!("{cause}: {}", copies_missing(known, &lacking, count)),
    };
    let severity = if stopped.is_empty() { Severity::Degraded } else { Severity::Stopped };
    let cause = if stopped.is_empty() { cause } else { format!("{cause}; {}", stopped_text(known, &stopped)) };
    let finding = Finding::new(severity, cause).risking(losses::of_groups(known, &lacking));
    finding.with(Loss::stopped(known, &stopped)).or_no_risk()
}

/// "97 placement groups have 2 of 3 copies"
pub(super) fn copies_missing(known: &Known, lacking: &[&GroupRecord], count: usize) -> String {
    let of: BTreeSet<(usize, usize)> =
        lacking.iter().map(|group| (known.serving(group), known.copies_of(group).0)).collect();
    let have = if count == 1 { "has" } else { "have" };
    match of.first() {
        Some((serving, replicas)) if of.len() == 1 => {
            format!("{} {have} {serving} of {replicas} copies", words::groups(count))
        }
        _ => format!("{} {have} fewer copies than they should", words::groups(count)),
    }
}

/// "4 of them have too few to serve: volume a"
pub(super) fn stopped_text(known: &Known, stopped: &[&GroupRecord]) -> String {
    let ids: BTreeSet<GroupId> = stopped.iter().map(|group| group.id).collect();
    let volumes = known.volumes_in(&ids);
    let what = if volumes.is_empty() { "no volume lies there".to_owned() } else { words::volumes(&volumes) };
    format!("{} of them {} too few to serve ({what})", ids.len(), if ids.len() == 1 { "has" } else { "have" })
}

/// What is on it is copied elsewhere, because somebody said so.
pub(super) fn drained(known: &Known, looks: &Looks, subject: Subject, on: &[&DeviceStanding]) -> Finding {
    let (name, id, what) = match subject {
        Subject::Node(node) => (node_name(node), node_name(node), "node"),
        Subject::Device(store) => (super::devices::name(known, store), store.to_string(), "device"),
    };
    let told = match subject {
        Subject::Node(_) => name.clone(),
        Subject::Device(_) => on.iter().map(|device| device.path.clone()).collect(),
    };
    let (groups, bytes) = (on.iter().map(|d| d.leaves).sum(), on.iter().map(|d| d.leaves_bytes).sum());
    if on.iter().all(|device| device.groups == 0) {
        let end = End::When("it is removed, or taken back".to_owned());
        let work = Work::plain(WorkKind::Drain, &told, "nothing is on it any more", end);
        let finding = Finding::new(Severity::Ok, format!("{name} is drained")).doing(work);
        return finding.advise("it may leave:", format!("cairn {what} rm {id}"));
    }
    let left = Left { groups, bytes, all: known.standing.copies };
    let work = Work::copies(WorkKind::Drain, &told, "what is on it is copied elsewhere", left, looks);
    let advice = "to leave it as it is:";
    let undrain = format!("cairn {what} undrain {id}");
    match hindrance(&known.view) {
        None => Finding::new(Severity::Ok, format!("{name} is being drained")).doing(work).advise(advice, undrain),
        Some(why) => {
            let text = format!("nothing: {why}");
            let finding = Finding::new(Severity::Degraded, format!("{name} is to be drained, and cannot be"));
            let end = End::When("nothing is in the way any more, and all of it is copied".to_owned());
            finding.or_no_risk().doing(Work { text, end, ..work }).advise(advice, undrain)
        }
    }
}
