//! Three nodes, three copies: a volume has one head, and another node takes it over when that one is gone.

use crate::common::nodes::{
    self, CHUNKS, Cluster, NODES, TAKEN_OVER, a_head_that_slept_decides_nothing,
    a_host_that_goes_back_keeps_what_it_wrote_there, a_snapshot_is_an_instant_for_a_head_that_slept, asleep, check,
    fill, made, node_id, of, served, who_slept_reads_no_snapshot_that_is_gone,
};
use crate::common::unknown::what_has_no_outcome_is_read_by_nobody;
use crate::common::{new_volume, payload};
use cluster::{Record, Transaction, VolumeRecord, encode, keys, list, settle};
use runtime::channel::cross;
use std::time::Duration;
use types::{CHUNK_BYTES, NodeId};
use volume::{IoError, Standing, VolumeError};

#[test]
fn nothing_is_done_for_a_host_that_was_denied() {
    (1..5).for_each(nodes::nothing_is_done_for_a_host_that_was_denied);
}

#[test]
fn what_two_volumes_are_built_on_stays() {
    (1..5).for_each(nodes::what_two_volumes_are_built_on_stays);
}

#[test]
fn a_volume_is_served_by_its_head_and_listed_by_all() {
    for cores in [1, 2] {
        let cluster = Cluster::new(1, cores);
        cluster.at(1, made);
        cluster.pass(Duration::from_secs(1));
        let elsewhere = Some(Standing::Elsewhere);
        assert_eq!(cluster.standings("v"), [elsewhere, Some(Standing::Here), elsewhere]);
        cluster.at(0, |assembly| async move {
            let refused = of(&assembly).read(0, 4096).await.map(drop);
            assert!(matches!(refused, Err(IoError::Elsewhere(_))), "{refused:?}");
            let refused = assembly.create_snapshot("v", "s").await.map(drop);
            assert!(matches!(refused, Err(VolumeError::Elsewhere { head: NodeId(2), .. })), "{refused:?}");
            assert!(matches!(assembly.create_volume(new_volume("v", 1 << 20)).await, Err(VolumeError::Exists(_))));
        });
        cluster.at(1, |assembly| async move {
            check(&of(&assembly), 1).await;
            assembly.create_snapshot("v", "s").await.expect("taken");
            fill(&of(&assembly), 2).await.expect("written");
            assembly.clone_volume("v", "s", "c").await.expect("cloned");
            check(&served(&assembly, "c").expect("served"), 1).await;
            check(&of(&assembly), 2).await;
            assembly.delete_volume("c").await.expect("deleted");
        });
        cluster.pass(Duration::from_secs(1));
        assert_eq!(cluster.standings("c"), [None; NODES], "what was deleted is listed nowhere");
    }
}

/// What no client of a node can ask for is not kept on its cores; it is known, and served as soon as it is the node's.
#[test]
fn a_volume_of_another_subsystem_is_listed_by_its_head_alone() {
    let cluster = Cluster::new(1, 1);
    cluster.at(1, made);
    cluster.at(1, |assembly| async move { fill(&of(&assembly), 1).await.expect("written") });
    let map = cluster.map();
    cluster.run(0, async move {
        let found = list::<VolumeRecord>(&*map, keys::VOLUMES).await.expect("readable").remove(0);
        let far = VolumeRecord { subsystem: "far".to_owned(), ..found.record };
        let put = Transaction::new().expect(far.key(), found.modified).put(far.key(), encode(&far));
        settle(&*map, put).await.expect("the map is there");
    });
    cluster.pass(Duration::from_secs(1));
    assert_eq!(cluster.standings("v"), [None, Some(Standing::Here), None]);
    let id = cluster.at(1, |assembly| async move { of(&assembly).id() });
    for index in [0, 2] {
        let (listed, head) =
            cluster.at(index, move |assembly| async move { (assembly.volumes(), assembly.head_of(id)) });
        assert_eq!((listed, head), (vec![], Some(NodeId(2))), "it is known and not listed");
    }
    // A node that starts does not list it either, and those that go on take it over from one that is gone.
    cluster.crash(2);
    cluster.start(2);
    cluster.crash(1);
    cluster.pass(TAKEN_OVER);
    let here: Vec<usize> = (0..NODES).filter(|&index| cluster.standing(index, "v") == Some(Standing::Here)).collect();
    let &[head] = &here[..] else { panic!("nodes {here:?} serve it") };
    cluster.at(head, |assembly| async move { check(&of(&assembly), 1).await });
    let away = 2 - head;
    assert_eq!(cluster.standing(away, "v"), None);
}

#[test]
fn another_node_takes_over_what_a_dead_one_served() {
    for (seed, dies) in [(1, 0), (2, 1), (3, 2)] {
        let cluster = Cluster::new(seed, 1);
        cluster.at(dies, made);
        cluster.at(dies, |assembly| async move {
            assembly.create_snapshot("v", "s").await.expect("taken");
            fill(&of(&assembly), 2).await.expect("written");
        });
        cluster.crash(dies);
        cluster.pass(TAKEN_OVER);
        let standings = cluster.standings("v");
        let heads: Vec<_> = (0..NODES).filter(|index| standings[*index] == Some(Standing::Here)).collect();
        let [head] = heads[..] else { panic!("one node is the head: {standings:?}") };
        assert_ne!(head, dies);
        cluster.at(head, |assembly| async move {
            check(&of(&assembly), 2).await;
            check(&of(&assembly).snapshot("s").expect("it is there"), 1).await;
            fill(&of(&assembly), 3).await.expect("written");
            assembly.roll_back("v", "s").await.expect("rolled back");
            check(&of(&assembly), 1).await;
        });
        cluster.start(dies);
        cluster.pass(Duration::from_secs(3));
        assert_eq!(cluster.standings("v")[dies], Some(Standing::Elsewhere), "the head stays where it is");
        cluster.at(head, |assembly| async move { check(&of(&assembly), 1).await });
        let map = cluster.map();
        cluster.run(head, async move {
            let volumes = list::<VolumeRecord>(&*map, keys::VOLUMES).await.expect("readable");
            assert_eq!(volumes[0].record.head, node_id(head));
        });
    }
}

/// What a node goes on sending after others took it for dead changes nothing that the new head serves.
#[test]
fn a_head_that_slept_is_refused_and_serves_nothing_more() {
    for seed in 0..4 {
        let (cluster, head) = asleep(seed, |_| async {});
        cluster.at(head, |assembly| async move { fill(&of(&assembly), 2).await.expect("written") });
        cluster.nodes[0].resume();
        cluster.at(0, |assembly| async move {
            // As a host does whose commands lay in the sleeper's buffers: all at once, before it can have heard.
            let volume = of(&assembly);
            let (told, mut answers) = cross(8 * CHUNKS as usize);
            for (chunk, moment) in (0..CHUNKS).flat_map(|chunk| (0..4).map(move |moment| (chunk, moment))) {
                let (volume, told) = (volume.clone(), told.clone());
                runtime::spawn(async move {
                    // Behind others of the same block, before and while the map is heard.
                    runtime::sleep(Duration::from_micros(moment * chunk * 20)).await;
                    let read = volume.read(chunk * CHUNK_BYTES, 4096).await.map(|read| read.bytes[0]);
                    let written = volume.write(chunk * CHUNK_BYTES, payload(&[9; 4096])).await.map(|()| 9);
                    let _ = told.send([read, written]).await;
                });
            }
            drop(told);
            while let Ok(answer) = answers.recv().await {
                let is_refused = answer.iter().all(|answer| matches!(answer, Err(IoError::Elsewhere(_))));
                assert!(is_refused, "a head that is none serves: {answer:?}");
            }
            assert_eq!(volume.standing(), Standing::Elsewhere);
        });
        cluster.at(head, |assembly| async move { check(&of(&assembly), 2).await });
    }
}

#[test]
fn what_a_head_decides_is_decided_in_its_reign() {
    (0..3).for_each(a_head_that_slept_decides_nothing);
}

#[test]
fn a_snapshot_is_an_instant_for_all_heads() {
    (0..3).for_each(a_snapshot_is_an_instant_for_a_head_that_slept);
}

#[test]
fn what_a_host_sent_to_another_head_is_not_done_later() {
    let kept: usize = (1..7).map(a_host_that_goes_back_keeps_what_it_wrote_there).sum();
    assert!(kept > 0, "no older head was asked in time");
}

#[test]
fn what_has_no_outcome_stands_in_the_way() {
    (1..5).for_each(what_has_no_outcome_is_read_by_nobody);
}

#[test]
fn a_layer_ends_when_no_older_head_reads_through_it() {
    (0..3).for_each(who_slept_reads_no_snapshot_that_is_gone);
}

/// Clones have heads of their own; what they share ends under one hand, and their heads hear of it.
#[test]
fn volumes_of_a_family_are_served_by_several_nodes() {
    let cluster = Cluster::new(5, 1);
    cluster.at(0, made);
    cluster.at(0, |assembly| async move {
        assembly.create_snapshot("v", "s").await.expect("taken");
        fill(&of(&assembly), 2).await.expect("written");
        assembly.clone_volume("v", "s", "c").await.expect("cloned");
        fill(&served(&assembly, "c").expect("served"), 3).await.expect("written");
    });
    // Another node becomes the head of the clone alone.
    let map = cluster.map();
    cluster.run(1, async move {
        let taken = cluster::take_heads(&*map, node_id(1), |volume| volume.name == "c").await.expect("taken");
        assert_eq!(taken.len(), 1);
    });
    cluster.pass(Duration::from_secs(1));
    assert_eq!(cluster.standings("v")[..2], [Some(Standing::Here), Some(Standing::Elsewhere)]);
    assert_eq!(cluster.standings("c")[..2], [Some(Standing::Elsewhere), Some(Standing::Here)]);
    cluster.at(1, |assembly| async move {
        let clone = served(&assembly, "c").expect("served");
        check(&clone, 3).await;
        assembly.create_snapshot("c", "mine").await.expect("taken");
        fill(&clone, 4).await.expect("written");
        assembly.roll_back("c", "mine").await.expect("rolled back");
        check(&clone, 3).await;
        assembly.delete_snapshot("c", "mine").await.expect("deleted");
    });
    cluster.at(0, |assembly| async move {
        assembly.delete_snapshot("v", "s").await.expect("deleted");
        assembly.delete_volume("v").await.expect("deleted");
    });
    cluster.pass(Duration::from_secs(5));
    let map = cluster.map();
    cluster.run(1, async move {
        let layers = list::<cluster::LayerRecord>(&*map, keys::LAYERS).await.expect("readable");
        assert_eq!(layers.len(), 1, "all but the clone's top has ended: {layers:?}");
        assert_eq!(list::<VolumeRecord>(&*map, keys::VOLUMES).await.expect("readable").len(), 1);
    });
    cluster.at(1, |assembly| async move {
        let clone = served(&assembly, "c").expect("served");
        assert_eq!(clone.info().layers.len(), 1, "its head has heard of it");
        check(&clone, 3).await;
        assembly.delete_volume("c").await.expect("deleted");
    });
    cluster.pass(Duration::from_secs(3));
    let map = cluster.map();
    cluster.run(1, async move {
        for prefix in [keys::LAYERS, keys::VOLUMES, keys::FAMILIES] {
            assert_eq!(map.list(prefix).await.expect("readable").items.len(), 0, "{prefix}");
        }
    });
}

/// What changed is asked of every group, wherever it is led, and whether or not this node has a copy.
#[test]
fn what_changed_is_known_of_groups_that_lie_on_other_nodes() {
    for replicas in [2, 3] {
        let cluster = Cluster::with_copies(1, 1, replicas);
        cluster.at(0, made);
        cluster.at(0, |assembly| async move {
            assembly.create_snapshot("v", "s").await.expect("taken");
            fill(&of(&assembly), 2).await.expect("written");
            assembly.create_snapshot("v", "t").await.expect("taken");
            let volume = of(&assembly);
            volume.write(3 * CHUNK_BYTES + 8192, payload(&[3; 4096])).await.expect("written");
            let every_chunk: Vec<_> = (0..CHUNKS).map(|chunk| (chunk * CHUNK_BYTES, 4096)).collect();
            let mut since_s = every_chunk.clone();
            since_s.insert(4, (3 * CHUNK_BYTES + 8192, 4096));
            for (from, to, expected) in
                [("s", Some("t"), every_chunk), ("s", None, since_s), ("t", None, vec![(3 * CHUNK_BYTES + 8192, 4096)])]
            {
                let changed = assembly.changed_blocks("v", from, to).await.expect("told");
                let changed: Vec<_> = changed.iter().map(|range| (range.offset_bytes, range.length_bytes)).collect();
                assert_eq!(changed, expected, "{replicas} copies, from {from} to {to:?}");
            }
        });
    }
}

#[test]
fn a_node_that_lives_says_its_sessions_again() {
    (1..3).for_each(crate::common::nodes::a_session_that_is_gone_is_said_again);
}
