//! A map that was exported and put into another store is the same map, in which no number is given twice.

use cluster::{
    Archive, Change, ClusterRecord, DEFAULT_POOL, FamilyRecord, HostAccess, ImportError, Limits, MapFaults, MapStore,
    Record, Revision, SimMap, Transaction, VolumeRecord, VolumeState, encode, get, keys,
};
use runtime::sim::{NodeOptions, World};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use types::{ClusterId, FamilyId, LayerId, NodeId, VolumeEpoch, VolumeId};

const LEASED: &str = "sessions/of-somebody";

fn in_a_world<F: Future<Output = ()> + 'static>(seed: u64, work: impl FnOnce() -> F + 'static) {
    let world = World::new(seed);
    let node = world.add_node(1, NodeOptions::default());
    world.run_on(&node, 0, async move { work().await }).expect("the world goes on");
}

fn cluster() -> ClusterRecord {
    ClusterRecord { id: ClusterId(7), cluster_version: 1, finished: None, replicas: Some(3), created_at_ns: 1 }
}

fn volume(id: u64) -> VolumeRecord {
    VolumeRecord {
        id: VolumeId(id),
        name: format!("v{id}"),
        pool: DEFAULT_POOL.to_owned(),
        table: 1,
        size_bytes: 1 << 30,
        block_size_bytes: 512,
        subsystem: "nqn".to_owned(),
        nsid: id as u32,
        nguid: format!("{id:032x}"),
        family: FamilyId(id),
        family_seed: u64::MAX - id,
        key: None,
        hosts: HostAccess::default(),
        limits: Limits::default(),
        layers: vec![LayerId(3 * id)],
        leaving: Vec::new(),
        head: NodeId(2),
        volume_epoch: VolumeEpoch(9),
        created_at_ns: 1,
        project: String::new(),
        state: VolumeState::Online,
        home: NodeId(1),
        draft_of: None,
    }
}

async fn made() -> Arc<SimMap> {
    let map = SimMap::new();
    let put = async |record: &dyn Fn() -> (String, Vec<u8>)| {
        let (key, value) = record();
        map.transact(Transaction::new().put(key, value)).await.expect("it answers");
    };
    put(&|| (keys::CLUSTER.to_owned(), encode(&cluster()))).await;
    for id in 1..=300 {
        put(&|| (volume(id).key(), encode(&volume(id)))).await;
    }
    let family = FamilyRecord { id: FamilyId(1), keeper: NodeId(3), epoch: VolumeEpoch(4) };
    put(&|| (family.key(), encode(&family))).await;
    put(&|| (keys::allocator("volume"), br#"{"schema":1,"kind":"volume","next":301}"#.to_vec())).await;
    let lease = map.grant(Duration::from_secs(10)).await.expect("granted");
    let changes = vec![Change::Put { key: LEASED.to_owned(), value: b"{}".to_vec(), lease: Some(lease) }];
    map.transact(Transaction { compares: Vec::new(), changes }).await.expect("it answers");
    map
}

async fn held(map: &SimMap) -> BTreeMap<String, Vec<u8>> {
    let listing = map.list("").await.expect("it answers");
    listing.items.iter().map(|item| (item.key.clone(), item.value.clone())).collect()
}

#[test]
fn what_was_exported_is_put_into_another_store() {
    in_a_world(1, async || {
        let map = made().await;
        let archive = Archive::export(&*map, 5).await.expect("exported");
        // As it is in a file.
        let text = serde_json::to_string(&archive).expect("plain data");
        let archive: Archive = serde_json::from_str(&text).expect("as it was written");
        let other = SimMap::new();
        assert_eq!(archive.import(&*other).await.expect("imported"), archive.entries.len());
        let (was, is) = (held(&map).await, held(&other).await);
        assert!(was.contains_key(LEASED) && !is.contains_key(LEASED), "who lives says so again");
        assert_eq!(was.len(), is.len() + 1);
        let found =
            get::<VolumeRecord>(&*other, &keys::volume(VolumeId(7))).await.expect("readable").expect("there").record;
        assert!(
            found.volume_epoch.0 > 1000,
            "an epoch that was given since is not given again: {:?}",
            found.volume_epoch
        );
        assert_eq!(VolumeRecord { volume_epoch: VolumeEpoch(9), ..found }, volume(7), "all else is as it was");
        let family = get::<FamilyRecord>(&*other, &keys::family(FamilyId(1))).await.expect("readable").expect("there");
        assert!(family.record.epoch.0 > 1000);
        let next: serde_json::Value = serde_json::from_slice(&is[&keys::allocator("volume")]).expect("a record");
        assert!(next["next"].as_u64() > Some(1301), "nor is an id: {next}");
    });
}

#[test]
fn a_map_with_a_cluster_takes_none() {
    in_a_world(1, async || {
        let map = made().await;
        let before = held(&map).await;
        let archive = Archive::export(&*map, 5).await.expect("exported");
        assert_eq!(archive.import(&*map).await, Err(ImportError::NotEmpty(ClusterId(7))));
        assert_eq!(held(&map).await, before);
        let other = Archive { format: 2, ..archive.clone() };
        assert!(matches!(other.import(&*SimMap::new()).await, Err(ImportError::Format(_))));
        let mut without = archive;
        without.entries.remove(keys::CLUSTER);
        assert!(matches!(without.import(&*SimMap::new()).await, Err(ImportError::Format(_))));
    });
}

#[test]
fn what_was_cut_off_goes_on_and_the_cluster_comes_last() {
    for seed in 1..20 {
        in_a_world(seed, async || {
            let archive = Archive::export(&*made().await, 5).await.expect("exported");
            let map = SimMap::new();
            map.set_faults(MapFaults { requests_lost: 100, answers_lost: 100, ..MapFaults::default() });
            let mut tries = 0;
            while archive.import(&*map).await.is_err() {
                assert_eq!(map.get(keys::CLUSTER).await.ok().flatten(), None, "a cluster without its map");
                tries += 1;
                assert!(tries < 100, "it never goes on");
            }
            map.set_faults(MapFaults::default());
            let whole = SimMap::new();
            archive.import(&*whole).await.expect("imported");
            assert_eq!(held(&map).await, held(&whole).await, "after {tries} tries");
            assert!(map.list("").await.expect("it answers").revision > Revision(0));
        });
    }
}
