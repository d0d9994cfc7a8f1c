//! What the admin API says and takes about placement groups that need a decision.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A placement group that nobody serves, or one that was asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Group {
    /// Its number.
    pub group: u32,
    /// Its pool.
    pub pool: String,
    /// Reign of its primary, as the map says.
    pub epoch: u32,
    /// Whether one of its copies serves.
    pub serves: bool,
    /// Nobody who may lead it is there, or can: an operator decides whose copy counts.
    pub needs_decision: bool,
    /// Its copies.
    pub copies: Vec<GroupCopy>,
}

/// A copy of a placement group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GroupCopy {
    /// Of this group.
    pub group: u32,
    /// The store that has it, 32 hexadecimal digits.
    pub store_id: String,
    /// Its node.
    pub node: String,
    /// Where on its node.
    pub path: String,
    /// Whether it holds all that is committed, as the map says.
    pub in_sync: bool,
    /// What its node says of it; nothing, if that does not answer or does not serve the store.
    pub here: Option<CopyHere>,
}

/// What a node says of its copy of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CopyHere {
    /// The newest epoch that it knows.
    pub epoch: u32,
    /// Whether it serves the group.
    pub serves: bool,
    /// Whether it lacks nothing before its last entry.
    pub whole: bool,
    /// Chunks that were found damaged in it.
    pub damaged_chunks: usize,
    /// The last entry that is committed in it.
    pub committed: u64,
    /// The last entry that is in it.
    pub last: u64,
    /// Why it takes no part, if it does not.
    pub stopped: Option<String>,
    /// An entry that nobody can apply, and that stops whoever tries to.
    pub poison: Option<u64>,
}

/// Whose copies are to count, of which groups.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ForceGroups {
    /// A node by its name, a store by its id or the beginning of that, or a device by its path.
    pub copy: String,
    /// The groups; all that need a decision and have a copy there, if none are named.
    #[serde(default)]
    pub groups: Vec<u32>,
    /// Only say what would be lost.
    #[serde(default)]
    pub dry_run: bool,
}

/// What was said to count, or would be.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Forced {
    /// Whether it was only foretold.
    pub dry_run: bool,
    /// The groups, those that were not named up to a number: ask again for more.
    pub groups: Vec<ForcedGroup>,
    /// Nodes with copies that have stopped: they hear of it when they start anew.
    pub restart: Vec<String>,
}

/// A group, the copy that counts, and what is lost with the others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ForcedGroup {
    /// The group.
    pub group: u32,
    /// The store whose copy counts.
    pub store_id: String,
    /// Its node.
    pub node: String,
    /// What may be lost, in words.
    pub at_risk: Vec<String>,
}
