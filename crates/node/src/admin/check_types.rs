//! What the admin API says and takes about the comparison of copies.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What is to be compared.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BeginCheck {
    /// One pool; all, if none is named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
}

/// How far the comparison of copies is that was begun last, and what it has found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CheckReport {
    /// Of this pool; of all, if there is none.
    pub pool: Option<String>,
    /// It has come to its end.
    pub over: bool,
    /// It has come to its end, looked at every copy of everything, and all agree.
    pub agree: bool,
    /// Placement groups in all.
    pub groups: usize,
    /// Those that were looked at.
    pub groups_done: usize,
    /// Their copies.
    pub copies: usize,
    /// Chunks that were compared; in each layer by itself.
    pub chunks: u64,
    /// Bytes that were read from devices, of all copies.
    pub bytes_read: u64,
    /// What was found, the first of it.
    pub findings: Vec<CheckFinding>,
    /// How much more was found.
    pub more_findings: u64,
    /// Why it did not look at everything.
    pub failed: Option<String>,
}

/// Copies that differ, one that cannot be read, or one that was not compared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CheckFinding {
    /// `differs`, `unreadable`, `changing`, or `not-compared`.
    #[schema(example = "differs")]
    pub kind: String,
    /// The placement group.
    pub group: u32,
    /// Volumes that are read there.
    pub volumes: Vec<String>,
    /// The layer, if it is not about a whole copy.
    pub layer: Option<u64>,
    /// Where in the volume, in bytes: 1 MiB begins there.
    pub offset_bytes: Option<u64>,
    /// The store whose copy it is, if it is one.
    pub store: Option<String>,
    /// On which node that is, if it is known.
    #[serde(default)]
    pub node: Option<String>,
    /// Of those that differ: what each has.
    pub copies: Vec<CopyState>,
    /// In words.
    pub message: String,
}

/// What a copy has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CopyState {
    /// Its store.
    pub store: String,
    /// On which node, if that is known.
    #[serde(default)]
    pub node: Option<String>,
    /// The last entry of the group's log in it.
    pub last_entry: u64,
    /// Of its contents.
    pub digest: String,
}
