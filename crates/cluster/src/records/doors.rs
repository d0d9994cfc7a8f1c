//! Where a node serves clients, and what a cluster's first pool is made of.

use super::id_format::{hex_list, number};
use super::{NodeRelease, keys};
use serde::{Deserialize, Serialize};
use types::{NodeId, StoreId};

/// Where clients reach a node, and what its program speaks. Lives under the node's lease: one that says nothing serves nobody.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DoorsRecord {
    /// The node.
    #[serde(with = "number")]
    pub node: NodeId,
    /// The NVMe/TCP target.
    pub nvme: String,
    /// The NBD server.
    pub nbd: String,
    /// The admin API.
    pub admin: String,
    /// Its process, on its machine.
    pub pid: u32,
    /// What it speaks.
    #[serde(default)]
    pub release: NodeRelease,
}

impl DoorsRecord {
    /// Where it is.
    pub(super) fn path(&self) -> String {
        keys::doors(self.node)
    }
}

/// What a pool is to be made of, said once: whoever makes it, or completes it, makes the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundingRecord {
    /// The pool's name.
    pub name: String,
    /// Members of each group.
    pub replicas: u32,
    /// Members that must have a write before it is committed.
    pub min_in_sync: u32,
    /// Its devices.
    #[serde(with = "hex_list")]
    pub stores: Vec<StoreId>,
}
