//! How the cluster is: what `cluster::health` finds, with what the nodes of this process know of themselves, as the API says it.

use super::health_types::{AtRisk, Doing, Finding, Severity};
use super::server::Admin;
use super::types::Health;
use crate::control::ControlError;
use crate::log::utc_of_ns;
use cluster::health::{self, DeviceLook, Harm, Known, Looks, Loss, Seen, Work, WorkKind};
use cluster::{DeviceTrouble, Members};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};
use types::StoreId;
use volume::{DeviceStatus, NodeStatus};

/// What was left to copy when somebody asked before.
pub struct Looked {
    since: Instant,
    seen: Mutex<Seen>,
}

impl Default for Looked {
    fn default() -> Self {
        Self { since: Instant::now(), seen: Mutex::default() }
    }
}

/// What is known of the cluster.
pub(super) struct Look {
    pub(super) known: Known,
    looks: Looks,
    /// Members of the store that holds the map.
    pub(super) map_members: Members,
}

impl Look {
    /// Asks the map. `own`: the nodes of this process, if they were asked.
    ///
    /// # Errors
    /// Of the node that asks the map.
    pub(super) async fn take(admin: &Admin, own: Option<&NodeStatus>) -> Result<Self, ControlError> {
        let standings = admin.control.standing().await?;
        let devices = devices_of(own);
        let known = Known::of(&standings.listing, devices.keys().copied());
        let (copies, bytes) = (known.standing.copies, known.standing.copy_bytes);
        let at = admin.looked.since.elapsed();
        let rate = admin.looked.seen.lock().unwrap_or_else(PoisonError::into_inner).note(at, copies, bytes);
        let looks = Looks { now_ns: now_ns(), away_since: standings.away_since, rate, devices };
        Ok(Self { known, looks, map_members: standings.map_members })
    }

    /// What is found of the map as it was heard of last, while it does not answer: nothing of what was being done goes on.
    pub(super) fn remembered(admin: &Admin, own: &NodeStatus) -> Option<Vec<health::Finding>> {
        let devices = devices_of(Some(own));
        let known = Known::of(&admin.follower.last()?, devices.keys().copied());
        let found = health::findings(&known, &Looks { now_ns: now_ns(), devices, ..Looks::default() });
        let waits = |work: Work| {
            let end = health::End::When("the cluster map answers".to_owned());
            let text = "nothing while the cluster map does not answer";
            Work { kind: WorkKind::Wait, text: text.to_owned(), rate: None, end, ..work }
        };
        let as_it_was = |one: health::Finding| {
            let cause = format!("{} (as the map said last)", one.cause);
            health::Finding { cause, doing: one.doing.map(waits), ..one }
        };
        Some(found.into_iter().map(as_it_was).collect())
    }

    /// What damage on a device of this process means for volumes.
    pub(super) fn damage(&self) -> BTreeMap<StoreId, health::Loss> {
        let of = |store: &StoreId| Some((*store, health::of_damage(&self.known, *store)?));
        self.looks.devices.keys().filter_map(of).collect()
    }

    /// All that is found, the most urgent first.
    pub(super) fn findings(&self) -> Vec<health::Finding> {
        health::findings(&self.known, &self.looks)
    }
}

fn devices_of(own: Option<&NodeStatus>) -> BTreeMap<StoreId, DeviceLook> {
    let devices = own.into_iter().flat_map(|node| &node.devices);
    devices.map(|device| (device.store, look_of(device, own))).collect()
}

/// How one of this process's devices is.
pub(super) fn look_of(device: &DeviceStatus, own: Option<&NodeStatus>) -> DeviceLook {
    let failed = device.failed.clone().map(DeviceTrouble::Failed);
    DeviceLook {
        trouble: failed.or_else(|| device.slow.clone().map(DeviceTrouble::Slow)),
        remedy: own.and_then(|node| remedy_of(device, node)).unwrap_or_default(),
        used_percent: device.used_percent(),
        is_throttling: device.throttling,
    }
}

/// What the node says is to be done about a device that has failed.
fn remedy_of(device: &DeviceStatus, node: &NodeStatus) -> Option<String> {
    let said = format!("{}: {}: ", device.path.display(), device.failed.as_ref()?);
    node.reasons.iter().find_map(|reason| reason.strip_prefix(&said).map(str::to_owned))
}

/// Whether that is said of a device that has failed: it is told with the device. What is damaged there is not mended before the
/// device is used again.
pub(crate) fn is_of_failed(reason: &str, node: &NodeStatus) -> bool {
    let is_its = |device: &&DeviceStatus| reason.starts_with(&format!("{}: ", device.path.display()));
    // Another may be in its place by now.
    let mut its = node.devices.iter().filter(is_its).peekable();
    its.peek().is_some() && its.all(|device| device.failed.is_some())
}

/// Wall time, ns since 1970.
pub(crate) fn now_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64
}

// ---- as the API says it ------------------------------------------------------------------------------------------------

pub(super) fn health_of(severity: health::Severity) -> Health {
    match severity {
        health::Severity::Ok => Health::Healthy,
        health::Severity::Degraded | health::Severity::AtRisk => Health::Degraded,
        health::Severity::Stopped => Health::Unavailable,
    }
}

/// In one line: what is the matter, and what to do.
pub(super) fn reason(finding: &health::Finding) -> String {
    match finding.remedy() {
        remedy if remedy.is_empty() => finding.cause.clone(),
        remedy => format!("{}: {remedy}", finding.cause),
    }
}

pub(super) fn finding(found: &health::Finding, now_ns: u64) -> Finding {
    let severity = match found.severity {
        health::Severity::Ok => Severity::Ok,
        health::Severity::Degraded => Severity::Degraded,
        health::Severity::AtRisk => Severity::AtRisk,
        health::Severity::Stopped => Severity::Stopped,
    };
    Finding {
        severity,
        cause: found.cause.clone(),
        at_risk: found.at_risk.iter().map(at_risk).collect(),
        doing: found.doing.as_ref().map(|work| doing(work, &found.command, now_ns)),
        advice: found.advice.clone(),
        command: found.command.clone(),
    }
}

pub(super) fn at_risk(loss: &Loss) -> AtRisk {
    AtRisk {
        text: loss.text(),
        loses_data: loss.harm == Harm::LosesData,
        of: loss.of.clone(),
        groups: loss.groups,
        volumes: loss.volumes.clone(),
    }
}

fn doing(work: &Work, command: &str, now_ns: u64) -> Doing {
    let ends_at = match work.end {
        health::End::AtNs(at) => Some(utc_of_ns(at)),
        health::End::When(_) => None,
    };
    Doing {
        kind: work.kind.name().to_owned(),
        subject: work.subject.clone(),
        text: work.text.clone(),
        groups_left: work.groups_left,
        bytes_left: work.bytes_left,
        bytes_per_second: work.rate.map(|rate| rate.bytes),
        ends: work.end.text(now_ns),
        ends_at,
        command: command.to_owned(),
    }
}
