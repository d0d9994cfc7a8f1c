//! Placement groups that lack a copy, or cannot serve, where nobody who is away explains it; and copies that are made.

use super::work::Left;
use super::{Finding, Known, Looks, Loss, Severity, WATCH, Work, WorkKind, losses, node_name, nodes, words};
use crate::records::{DeviceDuty, GroupRecord};
use std::collections::{BTreeMap, BTreeSet};
use types::{NodeId, StoreId};

pub(super) fn find(known: &Known, looks: &Looks, found: &mut Vec<Finding>) {
    let mut catching_up: BTreeMap<&str, Vec<&GroupRecord>> = BTreeMap::new();
    let mut small: BTreeMap<&str, Vec<&GroupRecord>> = BTreeMap::new();
    for group in known.view.groups.values().filter(|group| !known.is_whole(group)) {
        if group.members.iter().any(|store| is_explained(known, *store)) {
            continue;
        }
        let (replicas, _) = known.copies_of(group);
        let has_room = group.members.len() < replicas && !known.view.wanted.contains_key(&group.id);
        let of = if has_room { &mut small } else { &mut catching_up };
        of.entry(&group.pool).or_default().push(group);
    }
    let is_copying = found.iter().any(|finding| {
        let work = finding.doing.as_ref();
        work.is_some_and(|work| work.groups_left > 0 && matches!(work.kind, WorkKind::Drain | WorkKind::Lost))
    });
    let everything =
        Left { groups: known.standing.copies, bytes: known.standing.copy_bytes, all: known.standing.copies };
    for (pool, groups) in &catching_up {
        found.push(behind(known, looks, pool, groups, everything));
    }
    for (pool, groups) in &small {
        let replicas = groups.first().map_or(0, |group| known.copies_of(group).0);
        let lacks = nodes::copies_missing(known, groups, groups.len());
        let cause = format!("pool {pool}: {lacks}, and there is nowhere to put {replicas}");
        let finding = worse_if_stopped(known, Finding::new(Severity::Degraded, cause), groups);
        let finding = risking(known, finding, groups);
        let finding = finding.waits("", "nothing: no device may hold another copy", "a node or a device is added");
        found.push(finding.advise("add a node or a device:", "cairn device add PATH"));
    }
    // Those that wait for somebody who is away are no work of now.
    if known.standing.copies > 0 && catching_up.is_empty() && !is_copying {
        let what = "copies are made, so that each device holds its share";
        let work = Work::copies(WorkKind::Copy, "", what, everything, looks);
        found.push(Finding::new(Severity::Ok, "placement groups move to other devices").doing(work));
    }
}

/// Whether something else says why it is not in sync: it is away, or was given up.
fn is_explained(known: &Known, store: StoreId) -> bool {
    !known.there.contains(&store) || known.view.device_place(store).duty == DeviceDuty::Out
}

/// All of their members are there, and some have not caught up yet.
fn behind(known: &Known, looks: &Looks, pool: &str, groups: &[&GroupRecord], left: Left) -> Finding {
    let late: BTreeSet<NodeId> = groups
        .iter()
        .flat_map(|group| group.members.iter().filter(|store| !group.in_sync.contains(store)))
        .filter_map(|store| known.view.devices.get(store).map(|device| device.node))
        .collect();
    let late: Vec<String> = late.into_iter().map(node_name).collect();
    let lacks = nodes::copies_missing(known, groups, groups.len());
    let who = match &late[..] {
        [] => String::new(),
        [one] => format!(" until {one} has caught up"),
        all => format!(" until {} have caught up", words_and(all)),
    };
    let finding = Finding::new(Severity::Degraded, format!("pool {pool}: {lacks}{who}"));
    let finding = worse_if_stopped(known, finding, groups);
    let what = "what they lack is copied";
    let work = Work::copies(WorkKind::Copy, "", what, left, looks);
    let finding = risking(known, finding, groups).doing(work);
    finding.advise("nothing to do: they catch up by themselves; how far they are:", WATCH)
}

fn words_and(names: &[String]) -> String {
    match names {
        [.., last] if names.len() <= 3 => format!("{} and {last}", names[..names.len() - 1].join(", ")),
        _ => words::named(names),
    }
}

/// With what one more loss of these groups would do, and what of them is out of service.
fn risking(known: &Known, finding: Finding, groups: &[&GroupRecord]) -> Finding {
    let stopped: Vec<&GroupRecord> = groups.iter().copied().filter(|group| known.is_stopped(group)).collect();
    finding.risking(losses::of_groups(known, groups)).with(Loss::stopped(known, &stopped)).or_no_risk()
}

fn worse_if_stopped(known: &Known, finding: Finding, groups: &[&GroupRecord]) -> Finding {
    let stopped: Vec<&GroupRecord> = groups.iter().copied().filter(|group| known.is_stopped(group)).collect();
    if stopped.is_empty() {
        return finding;
    }
    let cause = format!("{}; {}", finding.cause, nodes::stopped_text(known, &stopped));
    Finding { severity: Severity::Stopped, cause, ..finding }
}
