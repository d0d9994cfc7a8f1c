//! Where the time of I/O went, gathered from all cores.

use super::Assembly;
use crate::latency::{Latencies, VolumeLatency};
use std::collections::BTreeMap;
use types::VolumeId;

impl Assembly {
    /// Where the time of all commands of this node went.
    pub async fn latencies(&self) -> Latencies {
        let of_cores = self.on_each_core(|head| Box::pin(async move { head.latencies.borrow().clone() })).await;
        of_cores.iter().fold(Latencies::default(), |mut all, of_core| {
            all.merge(of_core);
            all
        })
    }

    /// Where the time of each volume's commands went; of the volumes that are served.
    pub async fn volume_latencies(&self) -> BTreeMap<VolumeId, VolumeLatency> {
        let of_cores = self
            .on_each_core(|head| {
                Box::pin(async move {
                    let served = head.directory.list().into_iter();
                    served.map(|volume| (volume.id(), volume.state.recorder.told())).collect::<Vec<_>>()
                })
            })
            .await;
        let mut all: BTreeMap<VolumeId, VolumeLatency> = BTreeMap::new();
        for (volume, of_core) in of_cores.into_iter().flatten() {
            all.entry(volume).or_default().merge(of_core);
        }
        all
    }
}
