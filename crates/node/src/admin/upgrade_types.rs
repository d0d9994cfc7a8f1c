//! What the admin API says and takes about upgrades.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What the nodes run, and how far an upgrade is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Upgrade {
    /// Formats that the cluster writes: releases that do not know them take no part.
    pub cluster_version: u32,
    /// The release with which it came to that, if it did not begin with it.
    pub finished_with: Option<String>,
    /// What it would be after `cairn upgrade finish`: the highest that all nodes speak which run.
    pub next_version: u32,
    /// Why that cannot be now; empty: nothing is in the way.
    pub hindrances: Vec<String>,
    /// All nodes.
    pub nodes: Vec<NodeRuns>,
    /// Whether anything was changed by this request.
    pub changed: bool,
}

/// What a node runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeRuns {
    /// Its name.
    pub name: String,
    /// Whether it runs; of one that does not, the rest is not known.
    pub runs: bool,
    /// Its release; empty: not known.
    pub release: String,
    /// The oldest version of the node protocol that it speaks; 0: not known.
    pub protocol_oldest: u16,
    /// The newest one.
    pub protocol_newest: u16,
    /// Its features of that protocol.
    pub features: Vec<String>,
    /// The lowest cluster version that it speaks.
    pub cluster_version_lowest: u32,
    /// The highest one.
    pub cluster_version_highest: u32,
}

/// An upgrade is to be finished.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FinishUpgrade {
    /// To this cluster version, as was foretold.
    pub to: u32,
}
