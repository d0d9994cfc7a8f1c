//! `cairn map export` and `cairn map import`.

use crate::Failure;
use crate::output::{Format, show};
use clap::Subcommand;
use node::config::NodeConfig;
use node::map_file::{self, Told};
use serde::Serialize;
use std::path::PathBuf;

pub(crate) const HELP: &str = "\
Examples, to give a cluster another etcd; all nodes are stopped first:
  cairn map export --config /etc/cairn/node.toml cairn-map.json      from the etcd that the node's file names
  cairn map import --config /etc/cairn/node.toml cairn-map.json      into the other one, when the file names that

The file has names, places and numbers, no data; the key by which nodes know each other is in it: keep it as you keep
etcd. Exported when no node runs it is the whole map. An older one is not: groups whose devices know better than it
refuse it and stop, which `cairn status` tells, until a newer one is imported. It is a help then to see what there was.
No number is given twice: ids and epochs go on far behind those of the file. Back up etcd as its own documentation says.";

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
