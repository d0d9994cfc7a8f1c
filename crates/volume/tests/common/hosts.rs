//! NVMe hosts that come to nodes and leave them.

use super::nodes::{CHUNKS, Cluster, NODES, check, made, of};
use super::payload;
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;
use types::{CHUNK_BYTES, NodeId};
use volume::{HostHere, IoError, Standing};

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

/// H16: what a head says to other nodes is lost, and it hears them. One of those takes the volume, and what waits at the old
/// head for groups that never heard of it is answered: its host is to ask the new one.
pub fn what_waits_at_a_head_that_is_not_heard_is_answered(seed: u64) {
    /// Until another takes the volume, at most, and until those that wait are looked at; less than a command waits for a group.
    const SOON: Duration = Duration::from_secs(6);
    let cluster = cluster(seed);
    let _paths = [comes(&cluster, 0, "host"), comes(&cluster, 1, "host")];
    assert_eq!(head(&cluster), 0, "it stays where its host is");
    for other in [1, 2] {
        cluster.world.cut(&cluster.nodes[0], &cluster.nodes[other]);
    }
    let volume = of(cluster.assemblies.borrow()[0].as_ref().expect("it is up"));
    let answers = Rc::new(RefCell::new(Vec::new()));
    for chunk in 0..CHUNKS {
        let (volume, answers) = (volume.clone(), answers.clone());
        cluster.nodes[0].spawn(0, async move {
            let written = volume.write(chunk * CHUNK_BYTES, payload(&[2; 4096])).await;
            answers.borrow_mut().push(written);
        });
    }
    cluster.pass(SOON);
    assert_eq!(head(&cluster), 1, "nobody hears of the old one");
    let answers = answers.take();
    assert_eq!(answers.len(), CHUNKS as usize, "the others wait: {answers:?}");
    assert!(answers.iter().all(|one| matches!(one, Err(IoError::Elsewhere(_)))), "{answers:?}");
    let began = cluster.world.now();
    cluster.at(1, |assembly| async move {
        let volume = of(&assembly);
        for chunk in 0..CHUNKS {
            volume.write(chunk * CHUNK_BYTES, payload(&[3; 4096])).await.expect("it is served there");
        }
        check(&volume, 3).await;
    });
    let took = cluster.world.now() - began;
    assert!(took < SOON, "another serves it after {took:?}");
}

/// H16: two nodes do not hear each other, and a third hears both. A head that does not reach who leads a group of its volume loses it to
/// the third, and does not get it back before it hears all.
pub fn a_head_that_does_not_reach_a_group_leaves_the_volume_to_who_does(seed: u64) {
    /// Until hosts are told to wait, until another knows of that, and its turn has come.
    const SOON: Duration = Duration::from_secs(16);
    let cluster = cluster(seed);
    let _path = comes(&cluster, 0, "host");
    assert_eq!(head(&cluster), 0, "it stays where its host is");
    cluster.world.cut(&cluster.nodes[0], &cluster.nodes[1]);
    cluster.world.cut(&cluster.nodes[1], &cluster.nodes[0]);
    let volume = of(cluster.assemblies.borrow()[0].as_ref().expect("it is up"));
    let answers = Rc::new(RefCell::new(Vec::new()));
    for chunk in 0..CHUNKS {
        let (volume, answers) = (volume.clone(), answers.clone());
        cluster.nodes[0].spawn(0, async move {
            let written = volume.write(chunk * CHUNK_BYTES, payload(&[2; 4096])).await;
            answers.borrow_mut().push(written.is_ok());
        });
    }
    cluster.pass(SOON);
    assert_eq!(head(&cluster), 2, "it hears both");
    let written = |value: u8| {
        cluster.at(2, move |assembly| async move {
            let volume = of(&assembly);
            for chunk in 0..CHUNKS {
                volume.write(chunk * CHUNK_BYTES, payload(&[value; 4096])).await.expect("it is served there");
            }
            check(&volume, value).await;
        });
    };
    written(3);
    let answers = answers.take();
    assert_eq!(answers.len(), CHUNKS as usize, "the others wait: {answers:?}");
    assert!(
        answers.iter().any(|done| *done) && answers.iter().any(|done| !*done),
        "groups are led by all: {answers:?}"
    );
    cluster.pass(Duration::from_secs(70));
    assert_eq!(head(&cluster), 2, "the first has a host of it and does not hear all");
    written(4);
    cluster.world.heal(&cluster.nodes[0], &cluster.nodes[1]);
    cluster.world.heal(&cluster.nodes[1], &cluster.nodes[0]);
    cluster.pass(Duration::from_secs(10));
    assert_eq!(head(&cluster), 0, "it goes where its host is");
    check_at(&cluster, 0, 4);
}
