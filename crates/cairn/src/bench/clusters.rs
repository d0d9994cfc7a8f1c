//! `cairn bench network`, `scale`, and `depth`, `volumes`, `stress` with `--dir`: profiles of fio against clusters of their own.

use super::lab::{Lab, NODE_CORES, Shape, volume_of};
use super::network::{BRIDGE, PORTS};
use super::own::OwnArguments;
use crate::Failure;
use crate::bench_target::{self, Wish};
use crate::client::Client;
use clap::Args;
use measure::device::device_of;
use measure::fio::Fio;
use measure::machine::NetworkCounter;
use measure::record::{Layer, Record};
use measure::run::{self, Contestant, Plan};
use measure::setting::Setting;
use measure::target::Door;
use node::admin::pool_types::Placement;
use node::admin::types::CreateVolume;
use std::path::Path;
use std::rc::Rc;

/// Room for what is overwritten until it is cleaned away.
const DEVICE_SPANS: u64 = 3;
const DEVICE_BYTES_MIN: u64 = 512 << 20;
const SCALES: [usize; 3] = [3, 4, 5];
/// Of `volumes`, as it was published: clients, which are nodes here, and how many volumes each has.
const CLIENTS: usize = 3;
const VOLUMES_EACH: usize = 5;
/// The client is thought to be on its machine.
const ASKED: usize = 1;

#[derive(Debug, Args)]
pub(crate) struct NetworkArguments {
    #[command(flatten)]
    pub(crate) own: OwnArguments,
    /// Million bits a second of each node's link, each way
    #[arg(long, default_value_t = 1000, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub(crate) mbit: u64,
}

/// What a volume of a cluster of its own is, for a measurement.
pub(super) fn contestant(lab: &Lab, client: &Rc<Client>, wanted: &CreateVolume) -> Result<Contestant, Failure> {
    lab.volume(wanted)?;
    let wish = Wish::of_own(wanted.size_bytes, bench_target::DEFAULT_ENGINE);
    let (mut contestant, _) = bench_target::cairn(&wanted.name, None, None, client, &wish)?;
    contestant.name.clone_from(&wanted.name);
    contestant.watch.processes = lab.processes();
    // From another network the nodes look like other machines.
    set_media(&mut contestant.setting, lab.device(1));
    contestant.setting.set("node-cores", format!("{NODE_CORES} each"));
    if lab.network().is_some() {
        contestant.setting.set("locality", "same-machine, a network for each node");
        contestant.watch.network = NetworkCounter::Bridge { bridge: BRIDGE.to_owned(), ports: PORTS.to_owned() };
    }
    Ok(contestant)
}

/// What these bytes lie on, where this machine can tell.
pub(super) fn set_media(setting: &mut Setting, path: &Path) {
    if let Some(media) = device_of(path).media() {
        setting.set("media", media);
    }
}

fn spread(name: &str, span_bytes: u64) -> CreateVolume {
    CreateVolume { placement: Some(Placement::Spread), ..volume_of(name, span_bytes, Some("default"), None) }
}

fn gathered(name: &str, span_bytes: u64, node: usize) -> CreateVolume {
    volume_of(name, span_bytes, Some("default"), Some(&format!("node-{node}")))
}

fn shape(nodes: usize, plan: &Plan, volumes: u64) -> Shape {
    let device_bytes = (DEVICE_SPANS * volumes * plan.span_bytes).max(DEVICE_BYTES_MIN).next_multiple_of(1 << 20);
    Shape { nodes, replicas: 3, device_bytes, is_allocated: false }
}

/// Links as slow as a cheap network's.
pub(super) fn network(
    arguments: &NetworkArguments,
    plan: &Plan,
    fio: &Fio,
    told: &mut dyn FnMut(&str),
) -> Result<Record, Failure> {
    told("starting a cluster of three nodes, each in a network of its own");
    let shape = shape(3, plan, 2);
    let lab = Lab::new(&arguments.own.place(), shape, true)?;
    let bits_per_second = arguments.mbit * 1_000_000;
    let network = lab.network().expect("each node has its own");
    (1..=shape.nodes).try_for_each(|node| network.shape(node, bits_per_second))?;
    let client = Rc::new(lab.client(ASKED));
    let mut all = Vec::new();
    for wanted in [gathered("gathered", plan.span_bytes, ASKED), spread("spread", plan.span_bytes)] {
        let mut contestant = contestant(&lab, &client, &wanted)?;
        let link = format!("same-machine, a network for each node, links of {} Mbit/s each way", arguments.mbit);
        contestant.setting.set("locality", link);
        contestant.link_bits_per_second = Some(bits_per_second);
        all.push(contestant);
    }
    beside_the_first(&mut all);
    run::run(plan, fio, all, told).map_err(Failure::of)
}

/// They differ in what is to be seen, and are set in relation to the first alone.
fn beside_the_first(contestants: &mut [Contestant]) {
    let first = contestants.first().map(|first| first.name.clone());
    for (at, contestant) in contestants.iter_mut().enumerate() {
        let over = first.clone().filter(|_| at > 0);
        contestant.layer = Some(Layer { name: contestant.name.clone(), over });
    }
}

/// A volume at one node and one over all: what the field calls plain and striped.
pub(super) fn depth(place: &Path, plan: &Plan, fio: &Fio, told: &mut dyn FnMut(&str)) -> Result<Record, Failure> {
    told("starting a cluster of three nodes");
    let lab = Lab::new(place, shape(3, plan, 2), false)?;
    let client = Rc::new(lab.client(ASKED));
    let both = [gathered("plain", plan.span_bytes, ASKED), spread("striped", plan.span_bytes)];
    let mut all: Vec<Contestant> =
        both.iter().map(|wanted| contestant(&lab, &client, wanted)).collect::<Result<_, _>>()?;
    beside_the_first(&mut all);
    run::run(plan, fio, all, told).map_err(Failure::of)
}

/// Volumes of several clients, all of them at once: those of a client lie at one node.
pub(super) fn volumes(place: &Path, plan: &Plan, fio: &Fio, told: &mut dyn FnMut(&str)) -> Result<Record, Failure> {
    told("starting a cluster of three nodes");
    let lab = Lab::new(place, shape(CLIENTS, plan, (CLIENTS * VOLUMES_EACH) as u64), false)?;
    let client = Rc::new(lab.client(ASKED));
    let mut all = Vec::new();
    for (node, number) in (1..=CLIENTS).flat_map(|node| (1..=VOLUMES_EACH).map(move |number| (node, number))) {
        let wanted = gathered(&format!("client-{node}-{number}"), plan.span_bytes, node);
        all.push(contestant(&lab, &client, &wanted)?);
    }
    let mut together = bench_target::joined(all)?;
    together.name = format!("{CLIENTS} clients x {VOLUMES_EACH} volumes");
    together.about.insert("head".to_owned(), format!("of {VOLUMES_EACH} volumes each node"));
    run::run(plan, fio, vec![together], told).map_err(Failure::of)
}

/// Three, four and five nodes, one cluster after the other: all of them share the cores of this machine.
pub(super) fn scale(place: &Path, plan: &Plan, fio: &Fio, told: &mut dyn FnMut(&str)) -> Result<Record, Failure> {
    let name = |nodes: usize| format!("{nodes} nodes");
    let mut records = Vec::new();
    for (at, nodes) in SCALES.into_iter().enumerate() {
        told(&format!("starting a cluster of {nodes} nodes"));
        let lab = Lab::new(place, shape(nodes, plan, 1), false)?;
        let mut contestant = contestant(&lab, &Rc::new(lab.client(ASKED)), &spread("spread", plan.span_bytes))?;
        contestant.name = name(nodes);
        let over = at.checked_sub(1).map(|before| name(SCALES[before]));
        contestant.layer = Some(Layer { name: name(nodes), over });
        contestant
            .about
            .insert("machines".to_owned(), "one: all nodes, etcd and the clients share its cores".to_owned());
        records.push(run::run(plan, fio, vec![contestant], told).map_err(Failure::of)?);
    }
    Ok(merged(records))
}

/// Where a volume lies, and a client beside the first node; one cluster after the other, each from its beginning.
pub(super) fn stress(place: &Path, plan: &Plan, fio: &Fio, told: &mut dyn FnMut(&str)) -> Result<Record, Failure> {
    let span = plan.span_bytes;
    let mut records = Vec::new();
    for wanted in [gathered("gathered", span, ASKED + 1), spread("spread", span), gathered("local", span, ASKED)] {
        told(&format!("starting a cluster of three nodes for {}", wanted.name));
        let lab = Lab::new(place, shape(3, plan, 1), false)?;
        let mut contestant = contestant(&lab, &Rc::new(lab.client(ASKED)), &wanted)?;
        contestant.doors = vec![Door::Nbd { uri: lab.nbd_uri(ASKED, &wanted.name) }];
        contestant.about.insert("asked at".to_owned(), format!("node-{ASKED}"));
        if wanted.name == "gathered" {
            contestant.setting.set("locality", "same-machine, by a node that does not lead it");
        }
        let over = records.first().map(|_| "gathered".to_owned());
        contestant.layer = Some(Layer { name: wanted.name.clone(), over });
        records.push(run::run(plan, fio, vec![contestant], told).map_err(Failure::of)?);
    }
    Ok(merged(records))
}

/// Records of one profile as one.
fn merged(records: Vec<Record>) -> Record {
    let mut all = records.into_iter();
    let mut first = all.next().expect("something was measured");
    first.targets.extend(all.flat_map(|record| record.targets));
    first
}
