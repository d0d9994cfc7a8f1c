//! A head goes to another node by order: while hosts write, and when it is gone.

use crate::common::moving::Host;
use crate::common::nodes::{Cluster, NODES, check, fill, made, node_id, of};
use crate::common::{new_volume, payload};
use cluster::{VolumeRecord, get, keys};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use types::NodeId;
use volume::{Assembly, Standing, VolumeError};

fn record(cluster: &Cluster, at: usize) -> VolumeRecord {
    let map = cluster.map();
    cluster.at(at, |assembly| async move {
        let key = keys::volume(of(&assembly).id());
        get::<VolumeRecord>(&*map, &key).await.expect("readable").expect("it is there").record
    })
}

async fn ordered(assembly: Assembly, to: usize) -> Result<NodeId, VolumeError> {
    assembly.move_volume("v", node_id(to)).await.map(|info| info.head)
}

#[test]
fn a_volume_goes_where_it_is_ordered_while_hosts_write() {
    for (seed, cores) in [(1, 1), (2, 2), (3, 1)] {
        let cluster = Cluster::new(seed, cores);
        cluster.at(0, made);
        cluster.pass(Duration::from_secs(1));
        let host = Host::begin(&cluster);
        for (from, to) in [(0, 1), (1, 2), (2, 0), (0, 0)] {
            let before = host.acknowledged();
            cluster.pass(Duration::from_millis(300));
            assert!(host.acknowledged() > before, "it is written");
            let head = cluster.at(from, |assembly| ordered(assembly, to)).expect("moved");
            assert_eq!(head, node_id(to));
            let found = record(&cluster, to);
            assert_eq!((found.head, found.home), (node_id(to), node_id(to)));
            cluster.pass(Duration::from_millis(100));
            let mut standings = vec![Some(Standing::Elsewhere); NODES];
            standings[to] = Some(Standing::Here);
            assert_eq!(cluster.standings("v"), standings);
        }
        cluster.pass(Duration::from_millis(300));
        assert!(host.end(&cluster, 0) > 0, "something was under way when it moved");
    }
}

#[test]
fn who_is_not_the_head_names_it_and_who_is_not_up_gets_nothing() {
    let cluster = Cluster::new(1, 1);
    cluster.at(0, made);
    cluster.pass(Duration::from_secs(1));
    let refused = cluster.at(1, |assembly| ordered(assembly, 2));
    assert!(matches!(refused, Err(VolumeError::Elsewhere { head: NodeId(1), .. })), "{refused:?}");
    let refused = cluster.at(0, |assembly| ordered(assembly, 8));
    assert!(matches!(refused, Err(VolumeError::NoWayThere { to: NodeId(9), .. })), "{refused:?}");
    cluster.at(0, |assembly| async move { check(&of(&assembly), 1).await });
}

#[test]
fn a_volume_of_a_dead_head_goes_where_it_is_ordered() {
    let cluster = Cluster::new(2, 1);
    cluster.at(0, made);
    cluster.pass(Duration::from_secs(1));
    cluster.crash(0);
    // Its session has just ended: nobody has taken its turn.
    let mut waited = 0;
    let moved = loop {
        match cluster.at(2, |assembly| ordered(assembly, 2)) {
            Err(VolumeError::Elsewhere { head: NodeId(1), .. }) => cluster.pass(Duration::from_millis(100)),
            moved => break moved,
        }
        waited += 1;
        assert!(waited < 200, "the session ends");
    };
    // Or another has, in that moment: it is the head then, and can be asked.
    match moved {
        Ok(head) => assert_eq!(head, node_id(2)),
        Err(VolumeError::Elsewhere { head, .. }) => assert_eq!(head, node_id(1)),
        Err(error) => panic!("{error}"),
    }
    let head = record(&cluster, 1).head.0 as usize - 1;
    cluster.at(head, |assembly| async move {
        check(&of(&assembly), 1).await;
        fill(&of(&assembly), 2).await.expect("written");
        check(&of(&assembly), 2).await;
    });
}

/// Whom a volume is given to and who dies before it hears of it: the usual rules find a head.
#[test]
fn a_volume_that_goes_to_a_node_which_dies_finds_a_head() {
    let cluster = Cluster::new(3, 1);
    cluster.at(0, made);
    cluster.pass(Duration::from_secs(1));
    cluster.nodes[1].pause();
    let given = cluster.at(0, |assembly| ordered(assembly, 1));
    assert!(matches!(given, Err(VolumeError::NoWayThere { .. })), "{given:?}");
    assert_eq!(record(&cluster, 0).head, node_id(1));
    cluster.crash(1);
    cluster.pass(Duration::from_secs(15));
    let head = record(&cluster, 0).head.0 as usize - 1;
    assert_ne!(head, 1);
    cluster.at(head, |assembly| async move { check(&of(&assembly), 1).await });
}

/// Without the map nothing moves, and everything is served as before.
#[test]
fn a_move_that_the_map_does_not_answer_changes_nothing() {
    let cluster = Cluster::new(4, 1);
    cluster.at(0, made);
    cluster.pass(Duration::from_secs(1));
    cluster.map.set_faults(cluster::MapFaults { requests_lost: 1024, ..cluster::MapFaults::NONE });
    let host = Host::begin(&cluster);
    let stays = cluster.at(0, |assembly| ordered(assembly, 1));
    assert!(stays.is_err(), "{stays:?}");
    assert_eq!(cluster.standings("v")[0], Some(Standing::Here));
    let before = host.acknowledged();
    cluster.pass(Duration::from_millis(300));
    assert!(host.acknowledged() > before, "it is written");
    cluster.map.set_faults(cluster::MapFaults::NONE);
    cluster.pass(Duration::from_secs(12));
    let head = record(&cluster, 0).head.0 as usize - 1;
    host.end(&cluster, head);
}

/// Another change may have to wait until the map answers: a volume that was to move, and whose commands do not end, does not
/// wait with it.
#[test]
fn a_move_ends_though_another_change_waits_for_the_map() {
    let mut waited = 0;
    for cut in (0..30).map(|step| Duration::from_millis(10 * step)) {
        let cluster = Cluster::new(5, 1);
        cluster.at(0, |assembly| async move {
            made(assembly.clone()).await;
            assembly.create_volume(new_volume("w", 8 << 20)).await.expect("made");
            assembly.create_snapshot("w", "first").await.expect("taken");
        });
        cluster.pass(Duration::from_secs(1));
        let slow = cluster::MapFaults { latency_max: Duration::from_millis(20), ..cluster::MapFaults::NONE };
        cluster.map.set_faults(slow);
        let is_over = Arc::new(AtomicBool::new(false));
        let over = is_over.clone();
        // Nobody acknowledges what is written from here on.
        [1, 2].iter().for_each(|index| cluster.nodes[*index].pause());
        cluster.at(0, |assembly| async move {
            let mover = assembly.clone();
            runtime::spawn(async move {
                let _ = of(&assembly).write(0, payload(&[1; 4096])).await;
            });
            runtime::spawn(async move {
                let _ = ordered(mover, 1).await;
            });
        });
        cluster.pass(Duration::from_millis(200));
        assert_eq!(cluster.standing(0, "v"), Some(Standing::Changing), "it is on its way");
        cluster.at(0, |assembly| async move {
            runtime::spawn(async move {
                let _ = assembly.create_snapshot("w", "second").await;
                over.store(true, Ordering::Relaxed);
            });
        });
        cluster.pass(cut);
        cluster.map.set_faults(cluster::MapFaults { requests_lost: 1024, ..slow });
        cluster.pass(Duration::from_secs(4));
        let standing = cluster.standing(0, "v");
        waited += usize::from(!is_over.load(Ordering::Relaxed));
        assert_eq!(standing, Some(Standing::Here), "cut after {cut:?}");
        cluster.map.set_faults(cluster::MapFaults::NONE);
        [1, 2].iter().for_each(|index| cluster.nodes[*index].resume());
        cluster.pass(Duration::from_secs(12));
        let head = record(&cluster, 0).head.0 as usize - 1;
        cluster.at(head, |assembly| async move { check(&of(&assembly), 1).await });
    }
    assert!(waited > 0, "some change waits for the map");
}

/// How a pool compresses is heard of by all heads, whichever node was told.
#[test]
fn a_pool_compresses_for_every_head_whoever_was_told() {
    let cluster = Cluster::new(4, 1);
    cluster.at(0, made);
    cluster.pass(Duration::from_secs(1));
    let compression = |at: usize| cluster.at(at, |assembly| async move { of(&assembly).info().compression });
    assert_eq!(compression(0), cluster::Compression::Off);
    cluster.at(1, |assembly| async move {
        assembly.set_compression("default", cluster::Compression::Lz4).await.expect("set");
    });
    cluster.pass(Duration::from_secs(1));
    assert_eq!([0, 1, 2].map(compression), [cluster::Compression::Lz4; 3]);
}
