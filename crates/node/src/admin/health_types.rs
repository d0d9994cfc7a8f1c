//! What the admin API says of what is wrong, at risk, and being done.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// How bad something is, from good to bad.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// As it is meant to be; somebody may want to know.
    Ok,
    /// Everything is served, with less in reserve than there should be.
    Degraded,
    /// One more loss stops or loses something, or what is left is nearly used up.
    AtRisk,
    /// Something is not served.
    Stopped,
}

/// One thing that somebody should know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// What is the matter.
    #[schema(example = "node-2 has not been heard of for 40 s: 100 placement groups have 2 of 3 copies")]
    pub cause: String,
    /// What one more loss would do because of it, or what is out of service, the worst first; of what is not `ok` never empty: where
    /// nothing is at risk, that is said.
    #[serde(default)]
    pub at_risk: Vec<AtRisk>,
    /// What is being done about it, or that nothing is and why; of what is not `ok` never missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub doing: Option<Doing>,
    /// What to do, or that nothing is to be done; it leads up to the command.
    #[schema(example = "start it again; if it is lost for good:")]
    pub advice: String,
    /// The command to run, if only to see how it goes on; empty only of what is `ok`.
    #[schema(example = "cairn node rm node-2 --lost")]
    pub command: String,
}

/// What one more loss would do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AtRisk {
    /// In one sentence.
    #[schema(example = "one more loss of node-1 or node-3 stops 2 volumes (a, b)")]
    pub text: String,
    /// Whether data would be lost, and not only served no more.
    pub loses_data: bool,
    /// The loss of any of these nodes or devices.
    pub of: Vec<String>,
    /// Placement groups that it is about.
    pub groups: usize,
    /// Volumes that lie in them.
    pub volumes: Vec<String>,
}

/// Something that is being done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Doing {
    /// `drain`, `lost`, `maintenance`, `copy` (all that is copied, for whatever reason), `wait` (nothing can be done yet).
    #[schema(example = "drain")]
    pub kind: String,
    /// The device or node it is about; empty: several.
    pub subject: String,
    /// What, in words.
    pub text: String,
    /// Placement groups that are left to do.
    pub groups_left: usize,
    /// About how many bytes that is.
    pub bytes_left: u64,
    /// How many bytes are copied in a second, as it was seen in two looks; none: that is not known yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_per_second: Option<u64>,
    /// When it ends, in words.
    #[schema(example = "in about 40 s")]
    pub ends: String,
    /// When it is about to end, RFC 3339; none: that cannot be told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ends_at: Option<String>,
    /// What to run next, or instead; empty: nothing.
    pub command: String,
}
