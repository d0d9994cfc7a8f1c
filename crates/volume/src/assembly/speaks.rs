//! What the program of a node speaks: with other nodes, and with a cluster whose formats it reads and writes.

use super::Assembly;
use cluster::{MapStore, NodeRelease, Versions};
use replication::wire::{Features, Protocol};
use std::sync::Arc;

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Speaks {
    /// With other nodes.
    pub protocol: Protocol,
    /// Cluster versions.
    pub cluster_versions: Versions,
}

impl Speaks {
    /// What this build speaks.
    pub fn of_this_build() -> Self {
        Self { protocol: Protocol::of_this_build(), cluster_versions: Versions::OF_THIS_BUILD }
    }

    /// What a release after this build might speak, for tests.
    pub fn rehearsal() -> Self {
        Self { protocol: Protocol::rehearsal(), cluster_versions: Versions::rehearsal() }
    }

    /// Whether it is that.
    pub fn is_rehearsal(&self) -> bool {
        self.protocol.features.has(Features::REHEARSAL)
    }

    /// As the map is told.
    pub fn release(&self) -> NodeRelease {
        NodeRelease {
            name: self.protocol.release.to_string(),
            cluster_versions: self.cluster_versions,
            protocol_oldest: self.protocol.oldest,
            protocol_newest: self.protocol.newest,
            features: self.protocol.features.names(),
        }
    }
}

impl Assembly {
    /// The cluster's map.
    pub fn map(&self) -> Arc<dyn MapStore> {
        self.0.map.clone()
    }

    /// Nodes that speak no version of the protocol that this one does: what to do about each.
    pub(super) fn who_is_apart(&self) -> impl Iterator<Item = String> {
        self.0.groups.apart().into_iter().map(|(node, why)| format!("no connection with node-{node}: {why}"))
    }
}
