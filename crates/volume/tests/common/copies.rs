//! Copies that do not agree, and who is asked whether they do.

use super::nodes::{CHUNKS, Cluster, NODES, made, of};
use super::{DISK, payload};
use std::path::Path;
use std::time::Duration;
use types::CHUNK_BYTES;
use volume::{Check, CheckFault};

/// Which chunk of the copies is another.
const CHUNK: u64 = 5;

/// Compares all copies, as a node says that is asked for it.
pub fn checked(cluster: &Cluster, index: usize) -> Check {
    assert!(cluster.at(index, |assembly| async move { assembly.begin_check(None) }), "none is under way");
    for _ in 0..2000 {
        cluster.pass(Duration::from_millis(50));
        let last = cluster.at(index, |assembly| async move { assembly.last_check() }).expect("it was begun");
        if last.is_over {
            return last;
        }
    }
    panic!("it does not end");
}

fn written(seed: u64, byte: u8) -> Cluster {
    let cluster = Cluster::new(seed, 2);
    cluster.at(0, made);
    cluster.at(0, move |assembly| async move {
        of(&assembly).write(CHUNK * CHUNK_BYTES, payload(&[byte; 4096])).await.expect("written");
        // What was written last of a group is made sure of anyway when a member comes back.
        for chunk in 0..2 * CHUNKS {
            let offset_bytes = (chunk % CHUNKS) * CHUNK_BYTES + 4096;
            of(&assembly).write(offset_bytes, payload(&[chunk as u8; 4096])).await.expect("written");
        }
    });
    cluster.pass(Duration::from_secs(1));
    cluster
}

/// A node comes back with the disk of another past, in which one block is another. Returns what a check says.
pub fn of_another_past(seed: u64) -> Check {
    let (cluster, other) = (written(seed, 0xd0), written(seed, 0xd1));
    let last = NODES - 1;
    cluster.crash(last);
    other.crash(last);
    let disk = |cluster: &Cluster| cluster.nodes[last].disk(Path::new(DISK)).expect("it has one");
    disk(&cluster).insert(&disk(&other).after_power_loss(1));
    cluster.start(last);
    let mut check = checked(&cluster, 0);
    // Until it counts for its groups again.
    while check.findings.iter().any(|found| matches!(found.fault, CheckFault::NotLookedAt(_))) {
        cluster.pass(Duration::from_millis(50));
        check = checked(&cluster, 0);
    }
    check
}

/// Copies that are not the same are told, each with where.
pub fn what_differs_is_told(seed: u64) {
    let check = of_another_past(seed);
    assert!(!check.all_agree(), "it says that all agree: {check:?}");
    let differs = |fault: &CheckFault| matches!(fault, CheckFault::Differs(copies) if copies.len() == NODES);
    let found: Vec<_> = check.findings.iter().filter(|found| differs(&found.fault)).collect();
    assert_eq!(found.len(), 1, "{check:?}");
    assert_eq!(found[0].leaf.map(|(_, chunk)| u64::from(chunk.0)), Some(CHUNK));
    assert_eq!(found[0].volumes, ["v"]);
    assert!(check.chunks >= CHUNKS, "{check:?}");
}
