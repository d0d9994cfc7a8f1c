//! Pools.

use crate::help;
use clap::{Args, Subcommand};
use node::Compression;
use node::admin::pool_types::{FailureDomain, Placement};
use node::volume_spec::{VolumeName, shortened};

#[derive(Debug, Subcommand)]
pub(crate) enum PoolCommand {
    /// Make a pool over the devices of the cluster, while it is in use
    #[command(after_help = help::POOL_CREATE)]
    Create {
        /// 1 to 63 of a-z, 0-9, '.', '_', '-'
        #[arg(value_parser = pool_name)]
        name: String,
        /// Copies of each block, 1 to 5
        #[arg(long, value_name = "N")]
        replicas: u32,
        /// What no two copies share [default: node; device where there is one copy]
        #[arg(long, value_name = "device|node|rack|zone", value_parser = failure_domain)]
        failure_domain: Option<FailureDomain>,
        /// Only on devices of this class
        #[arg(long, value_name = "CLASS")]
        class: Option<String>,
        /// Of volumes that are not told otherwise: led from one node, or from all devices [default: gathered]
        #[arg(long, value_name = "gathered|spread", value_parser = placement)]
        placement: Option<Placement>,
        /// Copies that must be durable before a write is acknowledged [default: most of them, and 1 of 2]
        #[arg(long, value_name = "M")]
        min_in_sync: Option<u32>,
    },
    /// List the pools
    Ls,
    /// Show a pool
    Info {
        /// Its name
        #[arg(value_parser = pool_name)]
        name: String,
    },
    /// Change a pool
    #[command(after_help = help::POOL_SET)]
    Set {
        /// Its name
        #[arg(value_parser = pool_name)]
        name: String,
        #[command(flatten)]
        change: PoolChangeArguments,
    },
}

/// What is to change of a pool.
#[derive(Debug, Args)]
#[group(id = "change-pool", required = true, multiple = true)]
pub(crate) struct PoolChangeArguments {
    /// Compress what is written from now on; what is stored stays as it is
    #[arg(long, value_name = "lz4|zstd|off")]
    pub(crate) compression: Option<Compression>,
    /// Of volumes that are made from now on and are not told otherwise
    #[arg(long, value_name = "gathered|spread", value_parser = placement)]
    pub(crate) placement: Option<Placement>,
    /// What no two copies share: copies are moved, while they are in use
    #[arg(long, value_name = "device|node|rack|zone", value_parser = failure_domain)]
    pub(crate) failure_domain: Option<FailureDomain>,
    /// Only devices of this class ('': any): copies are moved, while they are in use
    #[arg(long, value_name = "CLASS")]
    pub(crate) class: Option<String>,
}

fn failure_domain(text: &str) -> Result<FailureDomain, String> {
    text.parse::<node::FailureDomain>().map(Into::into).map_err(|error| error.to_string())
}

fn placement(text: &str) -> Result<Placement, String> {
    match text {
        "gathered" => Ok(Placement::Gathered),
        "spread" => Ok(Placement::Spread),
        _ => Err(format!("'{}' is not a placement of a pool's volumes: write gathered or spread", shortened(text))),
    }
}

pub(super) fn pool_name(text: &str) -> Result<String, String> {
    let is_name = text.parse::<VolumeName>().is_ok();
    if is_name { Ok(text.to_owned()) } else { Err(format!("'{text}' is not a pool name: `cairn pool ls` shows them")) }
}
