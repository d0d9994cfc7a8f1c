//! Where clients reach the nodes: those of this process, and those that the map names, as it said last.

use super::types::{Node, Volume};
use super::view::{Addresses, NodeAddresses};
use std::sync::{PoisonError, RwLock};
use volume::{PeerNode, VolumeInfo, VolumeUsage};

/// See the module.
pub struct AddressBook {
    /// Those of this process.
    pub(super) here: Addresses,
    elsewhere: RwLock<Vec<NodeAddresses>>,
}

impl AddressBook {
    /// So far only those of this process are known.
    pub fn new(here: Addresses) -> Self {
        Self { here, elsewhere: RwLock::default() }
    }

    /// These are the others.
    pub(super) fn learn(&self, peers: &[PeerNode]) {
        let of_peer = |peer: &PeerNode| {
            let doors = peer.doors.as_ref()?;
            Some(NodeAddresses {
                node: peer.node,
                nvme: doors.nvme.parse().ok()?,
                nbd: doors.nbd.parse().ok()?,
                pid: doors.pid,
            })
        };
        let known = peers.iter().filter_map(of_peer).collect();
        *self.elsewhere.write().unwrap_or_else(PoisonError::into_inner) = known;
    }

    /// All of them, by number.
    fn all(&self) -> Addresses {
        let mut all = self.here.clone();
        all.nodes.extend(self.elsewhere.read().unwrap_or_else(PoisonError::into_inner).iter().cloned());
        all.nodes.sort_by_key(|node| node.node);
        all
    }

    /// The nodes, as they are named and reached.
    pub(super) fn nodes(&self) -> Vec<Node> {
        self.all().nodes()
    }

    /// The volume with the ways to it.
    pub(super) fn volume(&self, info: &VolumeInfo, usage: Option<&VolumeUsage>) -> Volume {
        self.all().volume(info, usage)
    }
}
