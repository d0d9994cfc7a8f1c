//! Devices: those that are away, failed, slow, full, emptied or given up.

use super::losses::Harm;
use super::work::Left;
use super::{End, Finding, Known, Looks, Loss, Severity, Work, WorkKind, ago, losses, named, node_name, nodes, words};
use crate::placement::duty::{Request, Subject, foretell};
use crate::records::{DeviceDuty, DeviceState, DeviceTrouble, StoreUsageRecord, VolumeState};
use types::StoreId;

/// Part of a device's usable space from which on a warning is due, while there is time left to act.
pub const WARNING_PERCENT: u64 = 75;
/// Part of it from which on the store refuses new blocks.
pub const REFUSED_PERCENT: u64 = 90;

/// How a device is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceLook {
    /// What is wrong with it.
    pub trouble: Option<DeviceTrouble>,
    /// What its node says is to be done about that; empty: the usual.
    pub remedy: String,
    /// How much of what can be stored is stored.
    pub used_percent: u64,
    /// Whether writers wait for the cleaner.
    pub is_throttling: bool,
}

impl DeviceLook {
    /// As its node has said.
    fn said(usage: &StoreUsageRecord) -> Self {
        // New blocks are refused at the record's limit.
        let percent = usage.live_bytes.saturating_mul(REFUSED_PERCENT).checked_div(usage.usable_bytes);
        Self { trouble: usage.trouble.clone(), used_percent: percent.unwrap_or(0), ..Self::default() }
    }
}

/// What lies in the trash, by name.
pub type Trash = Vec<String>;

/// What is the matter with a device by itself, whoever else has copies of what is on it.
pub fn of_device(name: &str, look: &DeviceLook, trash: &Trash) -> Vec<Finding> {
    let found = troubled(name, look).into_iter().chain(full(name, look, trash));
    found.map(|finding| finding.with(Loss::plain(Harm::Told(losses::UNPLACED)))).collect()
}

fn troubled(name: &str, look: &DeviceLook) -> Option<Finding> {
    match look.trouble.as_ref()? {
        DeviceTrouble::Failed(why) => {
            let finding = Finding::new(Severity::Stopped, format!("{name} has failed: {why}"));
            let finding = finding.waits("", "nothing: nobody reads or writes there any more", RIGHT);
            Some(finding.advise(format!("{}; how it stands:", remedy(look)), nodes::LISTED))
        }
        DeviceTrouble::Slow(why) => {
            let finding = Finding::new(Severity::Degraded, format!("{name} is slow ({why})"));
            let finding = finding.waits("", "what is asked of it waits", ANSWERS);
            Some(finding.advise(format!("{LOOK}; how it stands:"), nodes::LISTED))
        }
    }
}

/// When a failed device, and a slow one, is one no more.
const RIGHT: &str = "it is put right and its node started again, or another device has taken its place";
const ANSWERS: &str = "it answers in time again, and has caught up";
const LOOK: &str = "look at the device and what else uses it";

/// What is to be done about a device that has failed.
fn remedy(look: &DeviceLook) -> &str {
    if look.remedy.is_empty() { "put the device right and start the node again" } else { &look.remedy }
}

fn full(name: &str, look: &DeviceLook, trash: &Trash) -> Option<Finding> {
    let (severity, refused) = match look.used_percent {
        ..WARNING_PERCENT => return None,
        WARNING_PERCENT..REFUSED_PERCENT => (Severity::Degraded, ""),
        REFUSED_PERCENT.. => (Severity::AtRisk, ", new blocks are refused"),
    };
    let throttled = if look.is_throttling { ", writes wait for space to be cleaned" } else { "" };
    let finding = Finding::new(severity, format!("{name} is {} % full{refused}{throttled}", look.used_percent));
    let text = "what is discarded or deleted there is cleaned, and its space used again";
    let finding = finding.waits("", text, format!("less than {WARNING_PERCENT} % of it is used"));
    Some(match &trash[..] {
        [] => finding
            .advise("discard what is not needed, add a device, or delete volumes:", "cairn volume delete NAME --now"),
        [volume] => finding.advise(format!("{volume} lies in the trash, and still takes space:"), "cairn trash empty"),
        all => {
            let (count, names) = (all.len(), named(all));
            finding.advise(
                format!("{count} volumes ({names}) lie in the trash, and still take space:"),
                "cairn trash empty",
            )
        }
    })
}

/// With the volumes that it refuses, or will; where there are none, a full device puts nothing at risk.
fn refusing(known: &Known, finding: Finding, store: StoreId) -> Finding {
    let is_full = finding.severity == Severity::AtRisk;
    let harm = if is_full { Harm::RefusesNew } else { Harm::WillRefuseNew };
    let at_risk: Vec<_> = losses::on(known, store, harm).into_iter().collect();
    let severity = if at_risk.is_empty() { Severity::Degraded } else { finding.severity };
    Finding { severity, at_risk, ..finding }
}

/// A device, as people name it.
pub(super) fn name(known: &Known, store: StoreId) -> String {
    match known.view.devices.get(&store) {
        Some(device) => format!("device {} of {}", device.path, node_name(device.node)),
        None => format!("device {store}"),
    }
}

pub(super) fn find(known: &Known, looks: &Looks, found: &mut Vec<Finding>) {
    let (trash, mut filling) = (trash(known), Vec::new());
    for device in &known.standing.devices {
        let record = known.view.devices.get(&device.store);
        if record.is_none_or(|record| record.state == DeviceState::New) {
            continue;
        }
        let name = name(known, device.store);
        let is_there = known.there.contains(&device.store);
        let said = || known.usage.get(&device.store).map(DeviceLook::said).unwrap_or_default();
        let look = looks.devices.get(&device.store).cloned().unwrap_or_else(said);
        let failed = match &look.trouble {
            Some(DeviceTrouble::Failed(why)) => Some(why.as_str()),
            _ => None,
        };
        // Of a node that is away as a whole it is told there; one that can use none of its devices looks as if it were.
        let is_told_here = failed.is_some() || nodes::is_there(known, device.node);
        if !is_there && is_told_here && (device.duty == DeviceDuty::In || device.groups > 0) {
            found.push(away(known, looks, (&name, device.store), failed));
        }
        if is_there {
            found.extend(troubled(&name, &look).map(|finding| match failed {
                Some(_) => copied_elsewhere(known, finding, (device.store, remedy(&look))),
                None => waited_for(known, finding, device.store),
            }));
            filling.extend(full(&name, &look, &trash).map(|finding| refusing(known, finding, device.store)));
        }
        // A node that is drained is told as a whole.
        match known.view.device_place(device.store).duty {
            DeviceDuty::In => {}
            DeviceDuty::Draining { .. } => {
                found.push(nodes::drained(known, looks, Subject::Device(device.store), &[device]));
            }
            DeviceDuty::Out => found.push(given_up(known, looks, (&name, device.store), device)),
        }
    }
    // The worst says it for all.
    filling.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    if let Some(worst) = filling.first_mut() {
        worst.at_risk.extend(losses::without_room(known));
    }
    found.extend(filling.into_iter().map(Finding::or_no_risk));
}

/// `failed`: why its node cannot use it.
fn away(known: &Known, looks: &Looks, (name, store): (&str, StoreId), failed: Option<&str>) -> Finding {
    let since = looks.away_since.get(&store).copied();
    if let Some(why) = failed {
        let heard = format!("{name} has failed: {why}");
        let finding = nodes::missing_until(known, looks, (&heard, name), &[store], (Subject::Device(store), since));
        let is_out = known.view.device_place(store).duty == DeviceDuty::Out;
        return if is_out { finding } else { replaceable(known, finding, nodes::START, store) };
    }
    let heard = match since {
        Some(since) => format!("{name} has been away for {}, and its node is there", ago(since, looks.now_ns)),
        None => format!("{name} is away, and its node is there"),
    };
    nodes::missing_until(known, looks, (&heard, name), &[store], (Subject::Device(store), since))
}

/// A device that has failed stops what has no other copy, and nothing else.
fn copied_elsewhere(known: &Known, finding: Finding, (store, remedy): (StoreId, &str)) -> Finding {
    let on: Vec<_> = known.view.groups.values().filter(|group| group.members.contains(&store)).collect();
    let serves_without = |group: &&&crate::GroupRecord| {
        let others = group.in_sync.iter().filter(|other| **other != store && known.there.contains(other)).count();
        others >= known.copies_of(group).1
    };
    let stopped: Vec<_> = on.iter().copied().filter(|group| !serves_without(&group)).collect();
    if stopped.is_empty() {
        let finding = Finding { severity: Severity::Degraded, ..finding };
        let finding = finding.risking(losses::of_groups(known, &known.lacking_on(&[store]))).or_no_risk();
        let text = "others serve what is on it; nothing is copied elsewhere yet";
        return replaceable(known, finding.waits("", text, RIGHT), remedy, store);
    }
    let cause = format!("{}; {}", finding.cause, nodes::stopped_text(known, &stopped));
    Finding { cause, ..finding }.with(Loss::stopped(known, &stopped)).or_no_risk()
}

/// What helps if a device that has failed cannot be put right: another one, or that others copy what was on it, if they can.
pub(super) fn replaceable(known: &Known, finding: Finding, advice: &str, store: StoreId) -> Finding {
    let another = "have another device take its place: `cairn device format PATH`, `cairn device add PATH`";
    let replace = format!("cairn device replace {store} PATH");
    match foretell(&known.view, &Request::GiveUp(Subject::Device(store))) {
        Ok(_) => finding.advise(
            format!("{advice}; or {another}, `{replace}`; if it is lost for good:"),
            format!("cairn device rm {store} --lost"),
        ),
        Err(_) => finding.advise(format!("{advice}; if it is lost for good, {another}, and:"), replace),
    }
}

/// A device that is slow is waited for, or done without where enough others have a copy; it catches up by itself.
fn waited_for(known: &Known, finding: Finding, store: StoreId) -> Finding {
    let lacking = known.lacking_on(&[store]);
    let text = match lacking.len() {
        0 => "writes wait for it; where enough others have a copy they go on without it if it stays slow".to_owned(),
        count => format!("{} go on without it", words::groups(count)),
    };
    let end = End::When(ANSWERS.to_owned());
    let work = Work { groups_left: lacking.len(), ..Work::plain(WorkKind::Wait, "", text, end) };
    let finding = match losses::of_groups(known, &lacking) {
        losses if losses.is_empty() => {
            Finding { at_risk: losses::on(known, store, Harm::Waits).into_iter().collect(), ..finding }
        }
        losses => finding.risking(losses),
    };
    let advice = format!("{LOOK}; if it stays slow, have another device take its place:");
    finding.or_no_risk().doing(work).advise(advice, format!("cairn device replace {store} PATH"))
}

/// It is lost, somebody said so or nobody heard of it for too long: what was on it is copied from others.
fn given_up(
    known: &Known,
    looks: &Looks,
    (name, store): (&str, StoreId),
    device: &crate::control::DeviceStanding,
) -> Finding {
    if device.groups == 0 {
        let end = End::When("it is removed, or taken back".to_owned());
        let work = Work::plain(WorkKind::Lost, &device.path, "nothing is on it any more", end);
        let finding = Finding::new(Severity::Ok, format!("{name} is given up")).doing(work);
        return finding.advise("it may leave:", format!("cairn device rm {store}"));
    }
    let left = Left { groups: device.leaves, bytes: device.leaves_bytes, all: known.standing.copies };
    let work = Work::copies(WorkKind::Lost, &device.path, "what was on it is copied from others", left, looks);
    let finding = nodes::missing(known, &format!("{name} is given up"), &[store]);
    finding.doing(work).advise("if it is there again after all:", format!("cairn device undrain {store}"))
}

fn trash(known: &Known) -> Trash {
    let trashed = known.volumes.values().filter(|volume| matches!(volume.state, VolumeState::Trashed(_)));
    trashed.map(|volume| volume.name.clone()).collect()
}
