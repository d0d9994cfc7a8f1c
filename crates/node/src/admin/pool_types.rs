//! What the admin API says and takes of pools, and of where volumes lie.

use super::types::Compression;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What no two copies of a block share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum FailureDomain {
    /// A device: two of one node may hold copies of one block.
    Device,
    /// A node, with all of its devices.
    Node,
    /// A rack; nodes that name none are together in one.
    Rack,
    /// A zone; nodes that name none are together in one.
    Zone,
}

/// Where a volume lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Placement {
    /// All of it is led from one node, its home: what that node serves takes no hop.
    Gathered,
    /// It is led from all devices of its pool.
    Spread,
}

/// A pool, and where what is in it may lie.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PoolDetails {
    /// Its name.
    #[schema(example = "default")]
    pub name: String,
    /// Copies of each block.
    #[schema(example = 3)]
    pub replicas: u32,
    /// Copies that must be durable before a write is acknowledged.
    #[schema(example = 2)]
    pub min_in_sync: u32,
    /// No two copies of a block share one.
    pub failure_domain: FailureDomain,
    /// Only devices of this class; empty: any.
    pub class: String,
    /// Of volumes that were not told otherwise.
    pub placement: Placement,
    /// How what is written from now on is compressed; what is stored stays as it is.
    pub compression: Compression,
    /// Placement groups.
    pub groups: usize,
    /// Devices that hold some of it.
    pub devices: usize,
    /// The nodes of these.
    #[schema(example = json!(["node-1", "node-2", "node-3"]))]
    pub nodes: Vec<String>,
    /// Volumes in it.
    pub volumes: usize,
}

/// A pool to be made, over the devices of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreatePool {
    /// `[a-z0-9][a-z0-9._-]{0,62}`
    #[schema(example = "fast")]
    pub name: String,
    /// Copies of each block, 1 to 5.
    #[schema(example = 3)]
    pub replicas: u32,
    /// Copies that must be durable before a write is acknowledged; without, most of them, and one of two.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_in_sync: Option<u32>,
    /// No two copies of a block share one; without, `node`, and `device` where there is one copy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_domain: Option<FailureDomain>,
    /// Only devices of this class; without, any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// Of volumes that are not told otherwise; without, `gathered`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placement: Option<Placement>,
}

/// What is to change of a pool; what is not said stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ChangePool {
    /// How what is written from now on is compressed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compression: Option<Compression>,
    /// Of volumes that are made from now on and are not told otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placement: Option<Placement>,
    /// No two copies of a block share one from now on: copies are moved, while they are in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_domain: Option<FailureDomain>,
    /// Only devices of this class from now on (empty: any): copies are moved, while they are in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
}

impl From<FailureDomain> for cluster::FailureDomain {
    fn from(domain: FailureDomain) -> Self {
        match domain {
            FailureDomain::Device => Self::Device,
            FailureDomain::Node => Self::Node,
            FailureDomain::Rack => Self::Rack,
            FailureDomain::Zone => Self::Zone,
        }
    }
}

impl From<cluster::FailureDomain> for FailureDomain {
    fn from(domain: cluster::FailureDomain) -> Self {
        match domain {
            cluster::FailureDomain::Device => Self::Device,
            cluster::FailureDomain::Node => Self::Node,
            cluster::FailureDomain::Rack => Self::Rack,
            cluster::FailureDomain::Zone => Self::Zone,
        }
    }
}

impl From<Placement> for cluster::VolumePlacement {
    fn from(placement: Placement) -> Self {
        match placement {
            Placement::Gathered => Self::Gathered,
            Placement::Spread => Self::Spread,
        }
    }
}

impl From<cluster::VolumePlacement> for Placement {
    fn from(placement: cluster::VolumePlacement) -> Self {
        match placement {
            cluster::VolumePlacement::Gathered | cluster::VolumePlacement::Local => Self::Gathered,
            cluster::VolumePlacement::Spread => Self::Spread,
        }
    }
}
