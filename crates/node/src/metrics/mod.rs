//! What Prometheus scrapes: one look at the node, as families of metrics.
//!
//! Nothing is counted for it: the cores keep their own figures, and a scrape asks them. Names follow the Prometheus
//! conventions (base units, `_total` for counters); what to watch and when to be woken: `docs/metrics.md`.

mod cluster;
mod family;
mod io;
mod process;

use crate::admin::types::Status;
use crate::traffic::Traffic;
use family::Families;
use std::collections::BTreeMap;
use types::VolumeId;
use volume::{NodeStatus, VolumeInfo, VolumeUsage};

/// Content type of [`text`].
pub(crate) const CONTENT_TYPE: &str = prometheus::TEXT_FORMAT;

/// One look at the node.
pub(crate) struct Scrape {
    /// How it is, as `cairn status` tells it.
    pub(crate) status: Status,
    /// The same with its figures.
    pub(crate) node: NodeStatus,
    /// Its volumes.
    pub(crate) volumes: Vec<VolumeInfo>,
    /// What they take.
    pub(crate) usage: BTreeMap<VolumeId, VolumeUsage>,
    /// What clients do.
    pub(crate) traffic: Traffic,
}

/// The metrics in Prometheus' text format.
pub(crate) fn text(scrape: &Scrape) -> String {
    let mut families = Families::default();
    cluster::tell(scrape, &mut families);
    io::tell(scrape, &mut families);
    process::tell(&mut families);
    families.text()
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
