//! The ghost write: what a host sent, gave up, and may have overtaken since.

use crate::node::{Cluster, pattern};
use nvme::host::{Controller, HostError, Namespace};
use std::time::Duration;

pub const BLOCK: u32 = 4096;

pub fn read(cluster: &Cluster, namespace: &Namespace) -> Vec<u8> {
    let namespace = namespace.clone();
    cluster.run(async move { namespace.read(0, BLOCK).await.expect("read").to_vec() })
}

/// A host writes `first`, then sends `ghost` to a target that stands still, gives up, and the target goes on.
pub fn ghost_write(cluster: &Cluster, stand_still: Duration) -> (Controller, Namespace, Vec<u8>) {
    let (controller, namespace) = cluster.connect(cluster.options(1));
    let first = pattern(BLOCK as usize, 1);
    {
        let (namespace, first) = (namespace.clone(), first.clone());
        cluster.run(async move { namespace.write(0, first).await.expect("written") });
    }
    cluster.storage.pause();
    let ghost = {
        let namespace = namespace.clone();
        cluster.start(async move { namespace.write(0, pattern(BLOCK as usize, 2)).await })
    };
    cluster.pass(stand_still);
    assert!(ghost.borrow().is_none(), "the target stands still");
    // The admin queue's end alone would end the controller: here only the socket itself can tell.
    controller.queues()[0].close();
    cluster.pass(Duration::from_millis(50));
    assert!(matches!(*ghost.borrow(), Some(Err(HostError::Connection(_)))), "the host gave up");
    cluster.storage.resume();
    cluster.pass(Duration::from_millis(500));
    drop(controller);
    let (controller, namespace) = cluster.connect(cluster.options(1));
    (controller, namespace, first.to_vec())
}
