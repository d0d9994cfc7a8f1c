//! What goes on between nodes: connections and beats, counted.

mod common;

use common::{Cluster, SOON, holds};
use replication::node::{PeerTraffic, Timing};
use std::collections::BTreeMap;
use std::time::Duration;
use types::{Mutant, NodeId};

/// A connection beside the one that is used is closed within this.
const CLOSED_WITHIN: Duration = Duration::from_secs(15);

fn traffic(cluster: &Cluster) -> Vec<BTreeMap<NodeId, PeerTraffic>> {
    (0..cluster.nodes.len()).map(|index| cluster.of_node(index, replication::node::Node::traffic)).collect()
}

/// Of each node with each other one.
fn pairs(traffic: &[BTreeMap<NodeId, PeerTraffic>]) -> Vec<(usize, NodeId, PeerTraffic)> {
    let all = traffic.iter().enumerate().flat_map(|(index, of)| of.iter().map(move |(node, its)| (index, *node, *its)));
    all.filter(|(index, node, _)| node.0 as usize != index + 1).collect()
}

/// One connection per pair of cores that talk, whoever of both came first, and whether or not they began at once.
#[test]
fn two_cores_talk_over_one_connection() {
    holds(those_that_begin_at_once_go_on_over_one, &[Mutant::EachSaysItOverItsOwn]);
}

fn those_that_begin_at_once_go_on_over_one() {
    for seed in 0..40 {
        let cluster = Cluster::new(seed, 3, 2);
        for index in 0..3 {
            cluster.start(index);
            cluster.world.run_for(Duration::from_millis(seed * 40));
        }
        cluster.wait_for_all(SOON);
        let write = |chunk: u32| {
            let primary = cluster.wait_for_primary(&[0, 1, 2], SOON);
            cluster.write(primary, chunk, chunk as u8).expect("it is up").expect("it is written");
        };
        (0..20).for_each(write);
        // One of them is away and comes back, and two at once.
        for round in 0..8u64 {
            let (one, other) = ((seed + round) as usize % 3, (seed + round + 1) as usize % 3);
            cluster.crash(one);
            if round % 2 == 1 {
                cluster.crash(other);
            }
            cluster.world.run_for(Duration::from_millis(1000 + 37 * (seed + 12 * round)));
            cluster.start(one);
            if round % 2 == 1 {
                cluster.start(other);
            }
            cluster.world.run_for(Duration::from_secs(4));
        }
        cluster.wait_for_all(SOON);
        for _ in 0..CLOSED_WITHIN.as_secs() {
            cluster.world.run_for(Duration::from_secs(1));
            write(20);
        }
        for chunk in 0..20 {
            write(chunk);
            let told = traffic(&cluster);
            assert_eq!(pairs(&told).len(), 6, "seed {seed}: {told:#?}");
            for (index, node, its) in pairs(&told) {
                // Nodes of two cores: the first ones beat, and those of the group's members.
                let is_one_each = its.connections == its.core_pairs && (1..=4).contains(&its.core_pairs);
                assert!(is_one_each, "seed {seed}, node-{} with {node}: {its:?}", index + 1);
            }
        }
    }
}

/// One beat per pair of nodes in each direction, however many cores and groups they have, and however much is written.
#[test]
fn two_nodes_beat_once_in_a_quarter_of_a_second() {
    const SECONDS: u64 = 20;
    let cluster = Cluster::new(1, 3, 2);
    cluster.add_other_group(2);
    (0..3).for_each(|index| cluster.start(index));
    cluster.wait_for_primary(&[0], SOON);
    cluster.world.run_for(Duration::from_secs(1));
    let before = traffic(&cluster);
    let begun = cluster.world.now();
    for chunk in 0..SECONDS as u32 * 2 {
        cluster.write(cluster.wait_for_primary(&[0, 1, 2], SOON), chunk, 1).expect("it is up").expect("it is written");
        cluster.world.run_for(Duration::from_millis(500));
    }
    let beats = (cluster.world.now() - begun).as_nanos() / Timing::default().beat.as_nanos();
    let after = traffic(&cluster);
    for (index, node, its) in pairs(&after) {
        let was = before[index][&node];
        for count in [its.beats_sent - was.beats_sent, its.beats_answered - was.beats_answered] {
            assert!(u128::from(count).abs_diff(beats) <= 2, "node-{} to {node}: {count}, not {beats}", index + 1);
        }
    }
}
