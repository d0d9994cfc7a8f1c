//! A node that was away for a short while is sent what was written meanwhile, and little more: counted at its own network.

use crate::cluster::{Cluster, GATHERED};
use crate::load;
use std::collections::BTreeSet;

/// The node that is away. It neither leads nor has the head.
const NODE: usize = 3;
const BLOCK_BYTES: u64 = 4096;
/// What the volume holds when the node goes, in blocks.
const HELD: u64 = 16 << 10;
/// Writes meanwhile, each of a block that is drawn: more than a group keeps as entries for who is away (4,096 of each of 100).
const WRITES: usize = 6 << 10;
/// What comes may be so many hundredths of what was written meanwhile.
const MOST_PERCENT: u64 = 120;

/// Of a volume that is all written, blocks all over it are written anew while a node is away. What its network has received from its
/// new start until it is whole, beats, the map and questions of status included, is at most a fifth more than those blocks.
pub fn short() {
    let mut cluster = Cluster::in_networks(GATHERED, &[]);
    let (address, volume) = cluster.target(Some(1)).nbd.expect("it was asked for");
    assert!(load::fill(address, &volume, HELD * BLOCK_BYTES), "it has room");
    cluster.network().kill_node(NODE);
    cluster.until("two go on without it", None, |cluster| {
        cluster.findings().iter().any(|one| one["cause"].as_str().is_some_and(|cause| cause.contains("2 of 3 copies")))
    });
    let mut random = e2e::random::Random::new(5);
    let drawn: Vec<u64> = (0..WRITES).map(|_| random.below(HELD)).collect();
    let blocks = drawn.iter().collect::<BTreeSet<_>>().len() as u64;
    load::write_blocks(address, &volume, drawn);
    let before = cluster.network().received_bytes(NODE);
    cluster.network().start_node(NODE);
    cluster.until("it is whole again", None, Cluster::is_whole);
    let received = cluster.network().received_bytes(NODE) - before;
    let (written, percent) = (blocks * BLOCK_BYTES, received * 100 / (blocks * BLOCK_BYTES));
    println!("      {blocks} blocks were written, {written} bytes: {received} bytes have come to it, {percent} %");
    assert!(percent >= 100, "all that it lacked has come");
    assert!(percent <= MOST_PERCENT, "{received} bytes for {written}");
    println!("      {}", cluster.agrees());
    cluster.explained_and_stopped();
}
