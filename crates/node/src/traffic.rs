//! What clients do, as the cores tell it: asked by the admin API, answered by the control core.

use crate::control::Reply;
use crate::doors::Clients;
use std::collections::BTreeMap;
use types::VolumeId;
use volume::Assembly;
use volume::latency::{Latencies, VolumeLatency};

/// What clients do.
#[derive(Clone, Debug, Default)]
pub struct Traffic {
    /// Where the time of all commands went.
    pub latencies: Latencies,
    /// The same by volume, of those that are served, with the slowest commands.
    pub volumes: BTreeMap<VolumeId, VolumeLatency>,
    /// Controllers that NVMe hosts have connected.
    pub nvme_controllers: usize,
    /// Connections of NBD clients.
    pub nbd_connections: usize,
}

impl Traffic {
    /// That of another node, too.
    pub(crate) fn add(&mut self, other: Self) {
        self.latencies.merge(&other.latencies);
        for (volume, latency) in other.volumes {
            self.volumes.entry(volume).or_default().merge(latency);
        }
        self.nvme_controllers += other.nvme_controllers;
        self.nbd_connections += other.nbd_connections;
    }
}

/// Asks all cores. Nobody may be waiting for the answer any more.
pub(crate) async fn answer(assembly: Assembly, clients: Clients, reply: Reply<Traffic>) {
    let latencies = assembly.latencies().await;
    let volumes = assembly.volume_latencies().await;
    let Clients { nvme_controllers, nbd_connections } = clients;
    let _ = reply.send(Traffic { latencies, volumes, nvme_controllers, nbd_connections });
}
