//! How long the queues of a core, a shard and a group are: for who judges whether they stay bounded.

use crate::group::Group;
use crate::node::CoreGroups;
use crate::shard::GroupShard;
pub use crate::window::{PREPARED_BYTES_MAX, PREPARED_ENTRIES_MAX};

/// Of a core.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CoreLengths {
    /// Connections to cores of other nodes.
    pub links: usize,
    /// Bytes that wait on the one on which most do.
    pub link_bytes: usize,
    /// Groups that had no room on a connection.
    pub waiting: usize,
    /// What other cores are to do, and their lines have no room for.
    pub behind: usize,
    /// What heads here have asked of groups led elsewhere.
    pub calls: usize,
    /// What heads elsewhere have asked of groups led here.
    pub serving: usize,
}

/// Of a shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShardLengths {
    /// Entries that the store has queued.
    pub queued: usize,
    /// Entries that have their place, and that the store has not taken.
    pub intake: usize,
}

/// Of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupLengths {
    /// Entries that its primary keeps for others.
    pub kept_entries: usize,
    /// Their bytes.
    pub kept_bytes: usize,
    /// Entries with a place that are not committed, at its primary.
    pub prepared: usize,
    /// Members that are being made whole.
    pub fillings: usize,
    /// Messages of catch-up that have come and were not looked at.
    pub said: usize,
}

impl CoreGroups {
    /// How long its queues are.
    pub fn lengths(&self) -> CoreLengths {
        let (links, link_bytes) = self.link_lengths();
        CoreLengths {
            links,
            link_bytes,
            waiting: self.waiting_count(),
            behind: self.behind_count(),
            calls: self.calls().count(),
            serving: self.serving_count(),
        }
    }
}

impl GroupShard {
    /// How long its queues are.
    pub fn lengths(&self) -> ShardLengths {
        let (queued, intake) = self.queue_lengths();
        ShardLengths { queued, intake }
    }
}

impl Group {
    /// How long its queues are here.
    pub fn lengths(&self) -> GroupLengths {
        let (kept_entries, kept_bytes) = self.kept();
        let (fillings, said) = self.fill_lengths();
        GroupLengths { kept_entries, kept_bytes, prepared: self.prepared_count(), fillings, said }
    }
}
