//! Where volumes lie, on three nodes: gathered at a home whose groups it leads, or spread; and pools that come while nodes run.

use crate::common::new_volume;
use crate::common::nodes::{CHUNKS, Cluster, NODES, TAKEN_OVER, check, fill, made, node_id, of, served};
use cluster::{
    GroupRecord, NewPool, NodeSetRecord, PoolRecord, VolumePlacement, VolumeRecord, WantedPlace, get, keys, list,
};
use std::collections::BTreeSet;
use std::time::Duration;
use types::{CHUNK_BYTES, NodeId, StoreId};
use volume::{Placed, Standing, VolumeError};

const SIZE: u64 = CHUNKS * CHUNK_BYTES;

fn cluster(seed: u64, cores: usize) -> Cluster {
    Cluster::placed(seed, cores, (NODES, 3), VolumePlacement::Gathered)
}

fn placed(placement: VolumePlacement, home: Option<usize>) -> WantedPlace {
    WantedPlace { placement: Some(placement), home: home.map(node_id), ..WantedPlace::default() }
}

/// Where the volume's groups are led, and how many there are.
fn led_from(cluster: &Cluster, name: &'static str) -> (BTreeSet<NodeId>, usize) {
    let map = cluster.map();
    cluster.run(0, async move {
        let volumes = list::<VolumeRecord>(&*map, keys::VOLUMES).await.expect("readable");
        let volume = volumes.into_iter().map(|found| found.record).find(|volume| volume.name == name).expect("there");
        let groups = cluster::load_table(&*map, volume.table).await.expect("whole").groups().to_vec();
        let mut nodes = BTreeSet::new();
        for id in &groups {
            let group = get::<GroupRecord>(&*map, &keys::group(*id)).await.expect("readable").expect("there").record;
            nodes.insert(node_of(&*map, group.primary).await);
        }
        (nodes, groups.len())
    })
}

async fn node_of(map: &dyn cluster::MapStore, store: StoreId) -> NodeId {
    get::<cluster::DeviceRecord>(map, &keys::device(store)).await.expect("readable").expect("there").record.node
}

fn placed_as_told(cluster: &Cluster, index: usize, name: &'static str) -> Placed {
    cluster.at(index, move |assembly| async move {
        assembly.volumes().into_iter().find(|info| info.name == name).expect("listed").placed
    })
}

#[test]
fn a_gathered_volume_is_led_from_its_home() {
    for cores in [1, 2] {
        let cluster = cluster(1, cores);
        for index in 0..NODES {
            cluster.at(index, move |assembly| async move {
                let name = ["a", "b", "c"][index];
                let info = assembly.create_volume(new_volume(name, SIZE)).await.expect("made");
                assert_eq!((info.head, info.home), (node_id(index), node_id(index)), "who is asked serves it");
                fill(&served(&assembly, name).expect("served"), 7).await.expect("written at once");
            });
        }
        // Who controls brings the leads home; nothing waits for it.
        cluster.pass(Duration::from_secs(8));
        for (index, name) in ["a", "b", "c"].into_iter().enumerate() {
            let home = node_id(index);
            assert_eq!(led_from(&cluster, name), ([home].into(), 4), "{name}, with {cores} cores");
            for other in 0..NODES {
                assert_eq!(placed_as_told(&cluster, other, name), Placed::Gathered { home, lead: home });
            }
            cluster.at(index, move |assembly| async move { check(&served(&assembly, name).expect("served"), 7).await });
        }
    }
}

#[test]
fn a_spread_volume_is_led_from_everywhere_and_a_local_one_where_it_was_wanted() {
    let cluster = cluster(2, 1);
    cluster.at(0, |assembly| async move {
        let spread = placed(VolumePlacement::Spread, None);
        let info = assembly.create_volume_at(new_volume("spread", SIZE), &spread).await.expect("made");
        assert_eq!(info.placed, Placed::Spread);
        // Asked of another node: its home hears of it and takes it.
        let local = placed(VolumePlacement::Local, Some(2));
        let info = assembly.create_volume_at(new_volume("local", SIZE), &local).await.expect("made");
        assert_eq!((info.head, info.home), (node_id(2), node_id(2)));
        assert_eq!(info.placed, Placed::Gathered { home: node_id(2), lead: node_id(2) });
    });
    cluster.pass(Duration::from_secs(8));
    let all = (0..NODES).map(node_id).collect();
    assert_eq!(led_from(&cluster, "spread"), (all, 100));
    assert_eq!(led_from(&cluster, "local"), ([node_id(2)].into(), 4));
    assert_eq!(
        cluster.standings("local"),
        [Some(Standing::Elsewhere), Some(Standing::Elsewhere), Some(Standing::Here)]
    );
    cluster.at(2, |assembly| async move {
        let volume = served(&assembly, "local").expect("served");
        fill(&volume, 3).await.expect("written");
        check(&volume, 3).await;
    });
}

#[test]
fn snapshots_and_clones_share_the_table_of_their_family() {
    let cluster = cluster(3, 1);
    cluster.at(1, made);
    cluster.at(1, |assembly| async move {
        assembly.create_snapshot("v", "s").await.expect("taken");
        fill(&of(&assembly), 2).await.expect("written");
        assembly.clone_volume("v", "s", "c").await.expect("cloned");
        check(&served(&assembly, "c").expect("served"), 1).await;
    });
    let map = cluster.map();
    cluster.run(0, async move {
        let volumes = list::<VolumeRecord>(&*map, keys::VOLUMES).await.expect("readable");
        let tables: BTreeSet<u32> = volumes.iter().map(|volume| volume.record.table).collect();
        assert_eq!((volumes.len(), tables.len()), (2, 1));
        let sets = list::<NodeSetRecord>(&*map, keys::NODE_SETS).await.expect("readable");
        assert!(tables.contains(&sets[0].record.table));
    });
}

/// When a home dies, head and groups go to the same next node of the set; when it is back for a minute, the groups go home.
#[test]
fn the_next_node_of_the_set_takes_over_head_and_groups() {
    let cluster = cluster(4, 1);
    cluster.at(0, made);
    cluster.pass(Duration::from_secs(8));
    let map = cluster.map();
    let set = cluster.run(0, async move { list::<NodeSetRecord>(&*map, keys::NODE_SETS).await.expect("readable") });
    let nodes = set[0].record.nodes.clone();
    assert_eq!(nodes[0], node_id(0));
    let next = nodes[1].0 as usize - 1;
    cluster.crash(0);
    cluster.pass(TAKEN_OVER + Duration::from_secs(6));
    let standing = cluster.at(next, |assembly| async move { of(&assembly).standing() });
    assert_eq!(standing, Standing::Here, "node {} takes over", nodes[1]);
    assert_eq!(led_from_at(&cluster, next, "v"), [nodes[1]].into());
    assert_eq!(placed_as_told(&cluster, next, "v"), Placed::Gathered { home: nodes[0], lead: nodes[1] });
    cluster.at(next, |assembly| async move { check(&of(&assembly), 1).await });
    cluster.start(0);
    cluster.pass(Duration::from_secs(80));
    assert_eq!(led_from_at(&cluster, next, "v"), [nodes[0]].into(), "home again");
    let standings = cluster.standings("v");
    let head = (0..NODES).find(|index| standings[*index] == Some(Standing::Here)).expect("one is the head");
    cluster.at(head, |assembly| async move { check(&of(&assembly), 1).await });
}

fn led_from_at(cluster: &Cluster, index: usize, name: &'static str) -> BTreeSet<NodeId> {
    let map = cluster.map();
    cluster.run(index, async move {
        let volumes = list::<VolumeRecord>(&*map, keys::VOLUMES).await.expect("readable");
        let volume = volumes.into_iter().map(|found| found.record).find(|volume| volume.name == name).expect("there");
        let mut nodes = BTreeSet::new();
        for id in cluster::load_table(&*map, volume.table).await.expect("whole").groups() {
            let group = get::<GroupRecord>(&*map, &keys::group(*id)).await.expect("readable").expect("there").record;
            nodes.insert(node_of(&*map, group.primary).await);
        }
        nodes
    })
}

/// Stores that run take part in groups that come, and cores learn of tables that come.
#[test]
fn a_pool_that_comes_while_nodes_run_is_used_at_once() {
    for (replicas, cores) in [(1, 2), (2, 1), (3, 2)] {
        let cluster = cluster(5, cores);
        cluster.at(1, move |assembly| async move {
            let min_in_sync = cluster::default_min_in_sync(replicas);
            let new = NewPool { name: "more".to_owned(), replicas, min_in_sync, rules: None, stores: Vec::new() };
            let made = assembly.create_pool(&new).await.expect("made");
            assert_eq!((made.groups, made.devices), (300usize.div_ceil(replicas as usize), NODES));
            assert!(matches!(assembly.create_pool(&new).await, Err(VolumeError::Place(_))), "it is there");
        });
        for (index, placement) in [(0, VolumePlacement::Gathered), (1, VolumePlacement::Spread)] {
            let name = ["g", "s"][index];
            cluster.at(index, move |assembly| async move {
                let wanted = WantedPlace { pool: Some("more".to_owned()), ..placed(placement, None) };
                let info = assembly.create_volume_at(new_volume(name, SIZE), &wanted).await.expect("made");
                assert_eq!(&*info.pool, "more");
                fill(&served(&assembly, name).expect("served"), 5).await.expect("written");
            });
        }
        cluster.pass(Duration::from_secs(8));
        assert_eq!(led_from(&cluster, "g").0, [node_id(0)].into(), "{replicas} copies");
        assert_eq!(led_from(&cluster, "s").0.len(), NODES, "{replicas} copies");
        // Whoever starts anew finds all of it.
        cluster.crash(1);
        cluster.start(1);
        cluster.pass(Duration::from_secs(4));
        cluster.at(1, |assembly| async move { check(&served(&assembly, "s").expect("served"), 5).await });
        cluster.at(0, |assembly| async move { check(&served(&assembly, "g").expect("served"), 5).await });
        let status = cluster.at(0, |assembly| async move { assembly.status().await });
        assert_eq!(status.groups_serving, status.groups_total, "{:?}", status.reasons);
    }
}

/// Who makes a volume and crashes leaves it whole, or nothing that anybody sees.
#[test]
fn a_volume_that_was_made_for_another_node_is_served_there_whoever_crashes() {
    for cut_after_ms in [0, 1, 2, 4, 8, 16, 32] {
        let cluster = cluster(6 + cut_after_ms, 1);
        cluster
            .map
            .set_faults(cluster::MapFaults { latency_max: Duration::from_millis(4), ..cluster::MapFaults::NONE });
        let local = placed(VolumePlacement::Local, Some(1));
        cluster.at(0, move |assembly| async move {
            runtime::spawn(async move { drop(assembly.create_volume_at(new_volume("v", SIZE), &local).await) });
            runtime::sleep(Duration::from_millis(cut_after_ms)).await;
        });
        cluster.crash(0);
        cluster.pass(TAKEN_OVER);
        let found = cluster.at(1, |assembly| async move { served(&assembly, "v") });
        if found.is_some() {
            cluster.at(1, |assembly| async move {
                assert_eq!(of(&assembly).standing(), Standing::Here);
                fill(&of(&assembly), 4).await.expect("written");
                check(&of(&assembly), 4).await;
            });
        } else {
            cluster.at(1, |assembly| async move {
                assembly.create_volume(new_volume("v", SIZE)).await.expect("its name is free");
            });
        }
        let map = cluster.map();
        cluster.run(1, async move {
            let pools = list::<PoolRecord>(&*map, keys::POOLS).await.expect("readable");
            assert_eq!(pools.len(), 1);
        });
    }
}
