//! What the admin API says and takes of nodes and devices that come, rest and go.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What a node or a device is to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DutyOrder {
    /// The node (`node-2`), or the device: its store's id, the beginning of it, or its path.
    #[schema(example = "node-2")]
    pub subject: String,
    /// What.
    pub action: DutyAction,
    /// Of `replace`: the device that comes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub with: Option<String>,
    /// Of `maintenance`: for how many minutes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub minutes: Option<u64>,
    /// Only say what it would do.
    #[serde(default)]
    pub dry_run: bool,
}

/// What is to become of a node or a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DutyAction {
    /// What is on it is copied elsewhere.
    Drain,
    /// A node: it leads nothing and may be away; nothing is copied meanwhile.
    Maintenance,
    /// It does its part again.
    Undrain,
    /// Another device takes its place.
    Replace,
    /// It is lost: what was on it is copied from others.
    Lost,
    /// It leaves the cluster.
    Remove,
}

/// What a node or a device is to do at present.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Duty {
    /// Its part.
    #[default]
    In,
    /// A node: it may be away for a while, and leads nothing.
    Maintenance,
    /// Hold nothing: what is on it is copied elsewhere.
    Draining,
    /// It was given up: what was on it is copied from others.
    Lost,
}

/// What an order moves.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Foretold {
    /// Whether it was begun; not, if it was only asked what it would do.
    pub begun: bool,
    /// Placement groups that get a member.
    pub groups: usize,
    /// About how many bytes are copied.
    pub bytes: u64,
    /// About how long that takes, in seconds, at `bytes_per_second` to each device.
    pub seconds: u64,
    /// Assumed.
    pub bytes_per_second: u64,
    /// Placement groups that are led from elsewhere.
    pub led_elsewhere: usize,
    /// Tables whose volumes get another home.
    pub homes: usize,
    /// Who gets what.
    pub gets: Vec<DeviceBytes>,
    /// Who is rid of what.
    pub gives: Vec<DeviceBytes>,
}

/// Bytes to or from a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DeviceBytes {
    /// Its store.
    pub store_id: String,
    /// Its node.
    pub node: String,
    /// Where it is.
    pub path: String,
    /// About how many.
    pub bytes: u64,
}
