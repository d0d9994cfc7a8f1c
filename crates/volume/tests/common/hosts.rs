//! NVMe hosts that come to nodes and leave them.

use super::nodes::{Cluster, NODES, check, made, of};
use std::time::Duration;
use types::NodeId;
use volume::{HostHere, Standing};

/// A cluster whose node 0 has made the volume.
pub fn cluster(seed: u64) -> Cluster {
    let cluster = Cluster::new(seed, 1 + (seed % 2) as usize);
    cluster.at(0, made);
    cluster.pass(Duration::from_secs(1));
    cluster
}

/// A host gets a controller at a node, and is told of its namespaces.
pub fn comes(cluster: &Cluster, index: usize, host: &'static str) -> HostHere {
    cluster.at(index, move |assembly| async move {
        let here = assembly.directory().host_came(host, true);
        assembly.directory().until_reached(host).await;
        here
    })
}

pub fn leaves(cluster: &Cluster, index: usize, here: HostHere) {
    cluster.at(index, move |_| async move { drop(here) });
}

/// The only node that serves the volume.
pub fn head(cluster: &Cluster) -> usize {
    let standings = cluster.standings("v");
    let heads: Vec<_> = (0..NODES).filter(|index| standings[*index] == Some(Standing::Here)).collect();
    let [head] = heads[..] else { panic!("one node is the head: {standings:?}") };
    head
}

pub fn check_at(cluster: &Cluster, index: usize, value: u8) {
    cluster.at(index, move |assembly| async move {
        assert_eq!(of(&assembly).info().head, NodeId(index as u32 + 1));
        check(&of(&assembly), value).await;
    });
}

/// H14: where no controller of a host is any more, no volume stays for it.
pub fn a_host_that_has_left_keeps_nothing(seed: u64) {
    let cluster = cluster(seed);
    let first = comes(&cluster, 0, "first");
    leaves(&cluster, 0, first);
    cluster.pass(Duration::from_secs(2));
    let _second = comes(&cluster, 1, "second");
    assert_eq!(head(&cluster), 1, "a host has no path to its volume");
    check_at(&cluster, 1, 1);
}
