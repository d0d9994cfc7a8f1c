//! What the admin API says of what happened.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// How bad an event is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum EventSeverity {
    /// Somebody may want to know.
    Info,
    /// Everything is served, with less in reserve than there should be.
    Warning,
    /// Something is not served, or damaged.
    Error,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Event {
    /// When it was seen, RFC 3339 in UTC.
    #[schema(example = "2026-05-04T12:00:00.000Z")]
    pub time: String,
    /// How bad it is.
    pub severity: EventSeverity,
    /// The node that saw it first, or did it.
    #[schema(example = "node-1")]
    pub node: String,
    /// What it is, in a word that does not change.
    #[schema(example = "node-away")]
    pub kind: String,
    /// What it is, in words.
    #[schema(example = "node-2 is away: nothing was heard of it for 10 s")]
    pub text: String,
    /// What it is about: nodes, stores, volumes, snapshots, pools, by name or id.
    #[schema(example = json!(["node-2"]))]
    pub subjects: Vec<String>,
    /// All nodes that saw it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(example = json!(["node-1", "node-3"]))]
    pub seen_by: Vec<String>,
}

/// What happened, as far as the nodes that answer remember.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Events {
    /// The newest last.
    pub events: Vec<Event>,
    /// Nodes that do not answer: what they alone saw is missing.
    pub missing: Vec<String>,
}
