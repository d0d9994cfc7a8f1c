//! `cairn map`: the cluster's map as a file, and made anew where it was lost.

use crate::Failure;
use crate::output::{Format, show};
use clap::Subcommand;

use node::config::NodeConfig;
use node::map_file::{self, GatheredTold, Losses, RebuiltTold, Told};
use serde::Serialize;
use std::path::{Path, PathBuf};
use types::StoreId;

pub(crate) const HELP: &str = "\
Examples, to give a cluster another etcd; all nodes are stopped first:
  cairn map export --config /etc/cairn/node.toml cairn-map.json      from the etcd that the node's file names
  cairn map import --config /etc/cairn/node.toml cairn-map.json      into the other one, when the file names that

The file has names, places and numbers, no data; the key by which nodes know each other is in it: keep it as you keep
etcd. Exported when no node runs it is the whole map. An older one is not: groups whose devices know better than it
refuse it and stop, which `cairn status` tells, until a newer one is imported. It is a help then to see what there was.
No number is given twice: ids and epochs go on far behind those of the file. Back up etcd as its own documentation says.

Where etcd was lost, or restored from an old backup, the map is made anew. All nodes are stopped; on each:
  cairn map gather --config /etc/cairn/node.toml node-1.json         its copy of the map, and what its devices know
and on one of them, when the node's file names an etcd that has nothing:
  cairn map rebuild --config /etc/cairn/node.toml node-1.json node-2.json node-3.json
Who is in sync is what the newest of all devices says. It is refused as long as a store was not looked at that may know
better, and as long as a device holds data of a volume or snapshot, or knows placement groups, that no copy of the map
names.";

#[derive(Debug, Subcommand)]
pub(crate) enum MapCommand {
    /// Write the cluster's map to a file
    Export {
        /// The node's file: it says where the map is
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
        /// Replaced if it is there
        file: PathBuf,
    },
    /// Put a map that was exported into an etcd that has none; all nodes are to be stopped
    Import {
        /// The node's file: it says where the map is
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
        /// What was exported
        file: PathBuf,
    },
    /// Write what this node and its devices know of the map to a file; the node is to be stopped, etcd is not asked
    Gather {
        /// The node's file: it says where the devices are
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
        /// Replaced if it is there
        file: PathBuf,
    },
    /// Make the map anew of what was gathered of all nodes, in an etcd that has none; all nodes are to be stopped
    Rebuild {
        /// The node's file: it says where the map is to be
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
        /// A store that is gone for good; what it alone had is lost
        #[arg(long, value_name = "STORE", value_parser = store_of)]
        lost: Vec<StoreId>,
        /// Makes the map although devices hold data that no copy names: that data is lost
        #[arg(long)]
        without_unnamed: bool,
        /// What was gathered, of each node
        #[arg(required = true)]
        files: Vec<PathBuf>,
    },
}

fn store_of(text: &str) -> Result<StoreId, String> {
    let is_it = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let id = u128::from_str_radix(text, 16).ok().filter(|_| is_it);
    id.map(StoreId).ok_or_else(|| "a store has 32 hex digits, as `cairn device ls` shows them".to_owned())
}

#[derive(Debug, Serialize)]
struct GatherReport {
    revision: Option<u64>,
    devices: Vec<DeviceReport>,
}

#[derive(Debug, Serialize)]
struct DeviceReport {
    path: String,
    store: String,
    groups: usize,
    damaged: bool,
}

#[derive(Debug, Serialize)]
struct RebuildReport {
    cluster: String,
    revision: u64,
    keys: usize,
    newer: usize,
    unknown: Vec<u32>,
    unnamed: Vec<u64>,
}

fn gather(config: &NodeConfig, file: &Path, format: Format) -> Result<(), Failure> {
    let GatheredTold { revision, devices } = map_file::gather(config, file).map_err(Failure::of)?;
    let device = |(path, store, groups, damaged): (String, StoreId, usize, bool)| DeviceReport {
        path,
        store: store.to_string(),
        groups,
        damaged,
    };
    let report = GatherReport { revision, devices: devices.into_iter().map(device).collect() };
    show(format, &report, |report| {
        let mut text = match report.revision {
            Some(revision) => format!("the node's copy of the map is as of revision {revision}\n"),
            None => "the node has no copy of the map: another node's is needed\n".to_owned(),
        };
        for device in &report.devices {
            let state = if device.damaged { "; it is damaged, and may have known more" } else { "" };
            text += &format!("{} knows {} groups (store {}){state}\n", device.path, device.groups, device.store);
        }
        text + &format!("all of it is in {}\n", file.display())
    })
}

fn rebuild(config: &NodeConfig, files: &[PathBuf], losses: &Losses, format: Format) -> Result<(), Failure> {
    let RebuiltTold { map, newer, unknown, unnamed } = map_file::rebuild(config, files, losses).map_err(Failure::of)?;
    let Told { cluster, revision, keys, .. } = map;
    let unknown = unknown.iter().map(|group| group.0).collect();
    let unnamed = unnamed.iter().map(|layer| layer.0).collect();
    let report = RebuildReport { cluster: cluster.to_string(), revision, keys, newer, unknown, unnamed };
    show(format, &report, |report| {
        let RebuildReport { cluster, revision, keys, newer, unknown, unnamed } = report;
        let mut text = format!(
            "the map of cluster {cluster} is made anew: {keys} keys as of revision {revision}, and newer records of {newer} groups from devices\nstart the nodes\n"
        );
        if !unknown.is_empty() {
            text +=
                &format!("{} groups that devices know are in no copy of the map: they are given up\n", unknown.len());
        }
        if !unnamed.is_empty() {
            text += &format!(
                "{} layers that devices hold data of are in no copy of the map: it is given up\n",
                unnamed.len()
            );
        }
        text
    })
}

#[derive(Debug, Serialize)]
struct Report {
    cluster: String,
    revision: u64,
    keys: usize,
    taken_at_ns: u64,
}

pub(crate) fn run(command: MapCommand, format: Format) -> Result<(), Failure> {
    let read = |config: PathBuf| NodeConfig::read(&config).map_err(Failure::of);
    let (file, what, done) = match command {
        MapCommand::Gather { config, file } => return gather(&read(config)?, &file, format),
        MapCommand::Rebuild { config, lost, without_unnamed, files } => {
            let losses = Losses { stores: lost, unnamed: without_unnamed };
            return rebuild(&read(config)?, &files, &losses, format);
        }
        MapCommand::Export { config, file } => {
            let done = map_file::export(&read(config)?, &file);
            (file, "written to", done)
        }
        MapCommand::Import { config, file } => {
            let done = map_file::import(&read(config)?, &file);
            (file, "read from", done)
        }
    };
    let Told { cluster, revision, keys, taken_at_ns } = done.map_err(Failure::of)?;
    let report = Report { cluster: cluster.to_string(), revision, keys, taken_at_ns };
    show(format, &report, |report| {
        format!(
            "the map of cluster {} as of revision {}, {} keys, is {what} {}\n",
            report.cluster,
            report.revision,
            report.keys,
            file.display()
        )
    })
}
