//! Volumes: those that nobody can serve, that are locked, or that are served away from home.

use super::{End, Finding, Harm, Known, Loss, Severity, WATCH, Work, WorkKind, node_name, nodes, words};
use crate::records::{VolumeRecord, VolumeState};
use std::collections::BTreeMap;
use types::NodeId;

pub(super) fn find(known: &Known, found: &mut Vec<Finding>) {
    let online = || known.volumes.values().filter(|volume| volume.state == VolumeState::Online);
    for volume in online() {
        let gone = volume.layers.iter().find(|layer| !known.layers.contains(layer));
        if let Some(layer) = gone {
            let cause = format!("volume {}: its layer {layer} is not in the map, so nobody can serve it", volume.name);
            let finding = Finding::new(Severity::Stopped, cause).with(out_of_service(vec![volume.name.clone()]));
            let finding = finding.waits("", "nothing: no map that lacks it is believed", "a map has it");
            let advice = "delete nothing, and put a map back that has it: the blocks are on the devices; how:";
            found.push(finding.advise(advice, "cairn map --help"));
        }
    }
    let headless = by_node(online().filter(|volume| is_headless(known, volume)), |volume| volume.head);
    for (head, names) in headless {
        let (head, is) = (node_name(head), if names.len() == 1 { "has" } else { "have" });
        let cause = format!("{} {is} nobody who serves: {head} did, and is away", words::volumes(&names));
        let text = "another node that has its key, if it is encrypted, takes over within some seconds";
        let finding = Finding::new(Severity::Stopped, cause).with(out_of_service(names));
        let advice = format!("nothing to do unless it stays so; then start {head} again, or see who has the key:");
        found.push(finding.waits("", text, "a node has taken over").advise(advice, WATCH));
    }
    for volume in online().filter(|volume| is_locked(known, volume)) {
        let finding = Finding::new(Severity::Ok, format!("volume {} is locked: nobody can use it", volume.name));
        found.push(finding.advise("", format!("cairn volume unlock {}", volume.name)));
    }
    let strays =
        online().filter(|volume| volume.home != NodeId(0) && volume.head != volume.home && !volume.head.is_client());
    for volume in strays.filter(|volume| !is_headless(known, volume)) {
        found.push(stray(known, volume));
    }
}

fn out_of_service(volumes: Vec<String>) -> Loss {
    Loss { volumes, ..Loss::plain(Harm::AreStopped) }
}

fn by_node<'a>(
    volumes: impl Iterator<Item = &'a VolumeRecord>,
    node: impl Fn(&VolumeRecord) -> NodeId,
) -> BTreeMap<NodeId, Vec<String>> {
    let mut all: BTreeMap<NodeId, Vec<String>> = BTreeMap::new();
    for volume in volumes {
        all.entry(node(volume)).or_default().push(volume.name.clone());
    }
    all
}

fn is_headless(known: &Known, volume: &VolumeRecord) -> bool {
    match volume.head {
        NodeId(0) => false,
        client if client.is_client() => !known.clients.contains_key(&client),
        head => !nodes::is_there(known, head),
    }
}

/// Whether no node has its key.
fn is_locked(known: &Known, volume: &VolumeRecord) -> bool {
    volume.key.is_some() && !known.clients.values().any(|clients| clients.can_serve(volume))
}

/// It is served, and not where it is to be.
fn stray(known: &Known, volume: &VolumeRecord) -> Finding {
    let (name, head, home) = (&volume.name, node_name(volume.head), node_name(volume.home));
    let cause = format!("volume {name} is served by {head} and not by its home {home}: each command may cost a hop");
    let finding = Finding::new(Severity::Ok, cause);
    if !nodes::is_there(known, volume.home) {
        let end = End::When(format!("{home} is back"));
        return finding.doing(Work::plain(WorkKind::Wait, &home, format!("it stays there while {home} is away"), end));
    }
    let end = End::When(format!("a host of it has been at {home} for 5 s"));
    let work = Work::plain(WorkKind::Wait, &home, "it follows its hosts", end);
    finding.doing(work).advise("to have it there now:", format!("cairn volume move {name} {home}"))
}
