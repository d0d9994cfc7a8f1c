//! A volume gets the table that it is to have; no group is in two node sets, whoever makes them when.

use crate::ALONE;
use crate::map::{LocalFuture, Then, Until, pool, with_nodes};
use cluster::{
    CatalogError, DEFAULT_POOL, FailureDomain, GroupBytes, Limits, MapStore, NewPool, NewVolume, NodeSetRecord,
    PlaceError, PoolRecord, PoolRulesRecord, Record, SimMap, StoreUsageRecord, Transaction, VolumePlace,
    VolumePlacement, VolumeRecord, WantedPlace, create_placed_volume, create_pool, encode, ensure_pool, get, home_for,
    keys, lies_there, list, load_table, place_volume,
};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use types::{NodeId, StoreId};

const MOMENTS: usize = 30;

fn alive() -> BTreeSet<NodeId> {
    (1..=9).map(NodeId).collect()
}

fn at(node: u32) -> WantedPlace {
    WantedPlace { home: Some(NodeId(node)), ..WantedPlace::default() }
}

/// Makes a volume as whoever is asked for one does.
async fn make(map: &dyn MapStore, name: &str, wanted: &WantedPlace) -> Result<VolumeRecord, CatalogError> {
    let home = home_for(map, wanted, &alive()).await?;
    let place = place_volume(map, wanted, home).await?;
    let new = NewVolume {
        name: name.to_owned(),
        size_bytes: 1 << 20,
        block_size_bytes: 512,
        limits: Limits::default(),
        hosts: Default::default(),
    };
    create_placed_volume(map, &new, &place, home, None).await
}

/// What holds of all tables. Returns the node sets.
async fn check_tables(map: &dyn MapStore) -> Vec<NodeSetRecord> {
    let sets = list::<NodeSetRecord>(map, keys::NODE_SETS).await.expect("readable");
    let sets: Vec<NodeSetRecord> = sets.into_iter().map(|found| found.record).collect();
    let mut taken = BTreeSet::new();
    for set in &sets {
        let pool = get::<PoolRecord>(map, &keys::pool(&set.pool)).await.expect("readable").expect("its pool").record;
        let of_pool = load_table(map, pool.table).await.expect("whole");
        let table = load_table(map, set.table).await.expect("a node set has a whole table");
        assert_eq!(table.groups(), set.groups, "table {}", set.table);
        assert_eq!(set.nodes.len() as u32, pool.replicas, "{set:?}");
        for group in &set.groups {
            assert!(of_pool.groups().contains(group), "group {group} is not in the pool's own table");
            assert!(taken.insert(*group), "group {group} is in two node sets");
        }
    }
    let pools = list::<PoolRecord>(map, keys::POOLS).await.expect("readable");
    for volume in list::<VolumeRecord>(map, keys::VOLUMES).await.expect("readable") {
        let VolumeRecord { name, table, home, .. } = volume.record;
        match sets.iter().find(|set| set.table == table) {
            Some(set) => assert_eq!(set.nodes[0], home, "volume {name} is led from elsewhere"),
            None => assert!(pools.iter().any(|pool| pool.record.table == table), "volume {name}: table {table}"),
        }
    }
    sets
}

#[test]
fn volumes_are_gathered_at_homes_in_turn() {
    with_nodes((3, 1), |map| async move {
        ensure_pool(&*map, &pool(DEFAULT_POOL, 3, None)).await.expect("made");
        let mut homes = Vec::new();
        for index in 0..12 {
            homes.push(make(&*map, &format!("v{index}"), &WantedPlace::default()).await.expect("made").home.0);
        }
        assert_eq!(homes, [1, 2, 3].repeat(4));
        let sets = check_tables(&*map).await;
        assert_eq!(
            sets.iter().map(|set| set.groups.len()).collect::<BTreeSet<_>>(),
            [4].into(),
            "an eighth of 33 each"
        );
        for node in 1..=3 {
            let of_home = sets.iter().filter(|set| set.nodes[0] == NodeId(node)).count();
            assert!((1..=8).contains(&of_home), "{of_home} node sets at home {node}");
        }
        let local = WantedPlace { placement: Some(VolumePlacement::Local), ..at(2) };
        assert_eq!(make(&*map, "local", &local).await.expect("made").home, NodeId(2));
        let spread = WantedPlace { placement: Some(VolumePlacement::Spread), ..WantedPlace::default() };
        let spread = make(&*map, "spread", &spread).await.expect("made");
        let pool = get::<PoolRecord>(&*map, &keys::pool(DEFAULT_POOL)).await.expect("readable").expect("there").record;
        assert_eq!(spread.table, pool.table);
        check_tables(&*map).await;
    });
}

/// A home has several tables, and a new volume gets the one with the most room: what is in another of them lies there all the same.
#[test]
fn a_volume_lies_at_its_home_in_whichever_table() {
    with_nodes((3, 1), |map| async move {
        ensure_pool(&*map, &pool(DEFAULT_POOL, 3, None)).await.expect("made");
        let volume = make(&*map, "v", &at(1)).await.expect("made");
        let set = get::<NodeSetRecord>(&*map, &keys::node_set(volume.table))
            .await
            .expect("readable")
            .expect("its set")
            .record;
        for node in 1..=3 {
            let usage = StoreUsageRecord {
                store: StoreId(node * 100 + 1),
                live_bytes: 400 << 30,
                usable_bytes: 1 << 40,
                trouble: None,
                of_groups: Some(set.groups.iter().map(|group| GroupBytes(*group, 100 << 30)).collect()),
            };
            map.transact(Transaction::new().put(usage.key(), encode(&usage))).await.expect("it answers");
        }
        let next = place_volume(&*map, &at(1), NodeId(1)).await.expect("there is room");
        assert_ne!(next.table, Some(volume.table), "another table has more room");
        let spread = WantedPlace { placement: Some(VolumePlacement::Spread), ..WantedPlace::default() };
        for (wanted, home, is_so) in [(at(1), 1, true), (at(2), 2, false), (spread, 1, false)] {
            let lies = lies_there(&*map, volume.table, &wanted, NodeId(home)).await.expect("readable");
            assert_eq!(lies, is_so, "{wanted:?}");
        }
    });
}

/// However many volumes are made, there are no more node sets than homes may have, and no group is left out for want of them.
#[test]
fn many_volumes_share_tables() {
    with_nodes((4, 2), |map| async move {
        ensure_pool(&*map, &pool(DEFAULT_POOL, 2, None)).await.expect("made");
        for index in 0..80 {
            make(&*map, &format!("v{index}"), &at(index % 4 + 1)).await.expect("made");
        }
        let sets = check_tables(&*map).await;
        assert!(sets.len() <= 4 * 8, "{} node sets", sets.len());
    });
}

#[test]
fn on_one_node_everything_is_gathered_as_it_was() {
    with_nodes((1, 3), |map| async move {
        let made = ensure_pool(&*map, &pool(DEFAULT_POOL, 1, None)).await.expect("made");
        for placement in [VolumePlacement::Gathered, VolumePlacement::Local, VolumePlacement::Spread] {
            let wanted = WantedPlace { placement: Some(placement), ..at(1) };
            let place = place_volume(&*map, &wanted, NodeId(1)).await.expect("it has room");
            assert_eq!(place, VolumePlace { pool: made.name.clone(), table: None, home: NodeId(1) });
        }
        assert!(check_tables(&*map).await.is_empty());
    });
}

#[test]
fn the_pool_is_the_one_that_is_meant() {
    with_nodes((3, 1), |map| async move {
        ensure_pool(&*map, &pool(DEFAULT_POOL, 1, None)).await.expect("made");
        let replicas = |replicas| WantedPlace { replicas: Some(replicas), ..WantedPlace::default() };
        let named =
            |pool: &str, replicas| WantedPlace { pool: Some(pool.to_owned()), replicas, ..WantedPlace::default() };
        let refused = async |wanted| make(&*map, "v", &wanted).await.expect_err("refused").to_string();
        let none = refused(replicas(3)).await;
        assert!(none.contains("(default keeps 1): `cairn pool create NAME --replicas 3` makes one"), "{none}");
        create_pool(&*map, &pool("fast", 3, None)).await.expect("made");
        assert_eq!(make(&*map, "a", &replicas(3)).await.expect("the only one").pool, "fast");
        assert_eq!(make(&*map, "b", &replicas(1)).await.expect("the default").pool, DEFAULT_POOL);
        assert_eq!(make(&*map, "c", &WantedPlace::default()).await.expect("the default").pool, DEFAULT_POOL);
        let other = refused(named("fast", Some(1))).await;
        assert!(other.contains("keeps 3 copies of a block, and not 1") && other.contains("--pool default"), "{other}");
        create_pool(&*map, &pool("slow", 3, None)).await.expect("made");
        assert!(refused(replicas(3)).await.contains("fast, slow could be meant"));
        assert_eq!(make(&*map, "d", &named("slow", Some(3))).await.expect("named").pool, "slow");
        assert_eq!(refused(named("none", None)).await, "there is no pool named none");
        check_tables(&*map).await;
    });
}

#[test]
fn a_home_is_a_node_of_the_pool_that_is_up() {
    with_nodes((3, 1), |map| async move {
        let stores = vec![StoreId(101), StoreId(201)];
        ensure_pool(&*map, &NewPool { stores, ..pool(DEFAULT_POOL, 2, None) }).await.expect("made");
        let elsewhere = make(&*map, "v", &at(3)).await.expect_err("it has none").to_string();
        assert!(
            elsewhere.starts_with("node-3 has no device of the pool default: its devices are on node-1, node-2"),
            "{elsewhere}"
        );
        let down = home_for(&*map, &at(2), &[NodeId(1)].into()).await;
        assert_eq!(down, Err(CatalogError::Place(PlaceError::NotThere(NodeId(2)))));
        assert_eq!(home_for(&*map, &WantedPlace::default(), &[NodeId(2)].into()).await, Ok(NodeId(2)));
        assert_eq!(
            home_for(&*map, &WantedPlace::default(), &BTreeSet::new()).await,
            Ok(NodeId(1)),
            "nobody is known yet"
        );
    });
}

/// The pool says where volumes are that were not told otherwise.
#[test]
fn what_the_pool_says_holds_where_nothing_else_was_said() {
    with_nodes((3, 1), |map| async move {
        let rules = PoolRulesRecord {
            failure_domain: FailureDomain::Node,
            placement: VolumePlacement::Spread,
            ..PoolRulesRecord::unset(DEFAULT_POOL)
        };
        let made = ensure_pool(&*map, &pool(DEFAULT_POOL, 2, Some(rules))).await.expect("made");
        assert_eq!(make(&*map, "v", &WantedPlace::default()).await.expect("made").table, made.table);
        assert!(check_tables(&*map).await.is_empty());
    });
}

/// Somebody else makes volumes at any moment in between.
fn no_group_is_claimed_twice() {
    fn others(map: Arc<SimMap>) -> LocalFuture {
        Box::pin(async move {
            for node in 1..=3 {
                make(&*map, &format!("other{node}"), &at(node)).await.expect("made");
            }
        })
    }
    for moment in 1..MOMENTS {
        with_nodes((3, 1), move |map| async move {
            ensure_pool(&*map, &pool(DEFAULT_POOL, 3, None)).await.expect("made");
            let until = Until { map: map.clone(), left: AtomicUsize::new(moment), then: Then::Meanwhile(others) };
            make(&until, "v", &at(1)).await.expect("made");
            check_tables(&*map).await;
        });
    }
}

/// Nothing takes node sets away today. Whoever comes to do so finds that no volume is made in what it took.
fn a_volume_lies_in_a_table_that_is_there() {
    with_nodes((3, 1), |map| async move {
        ensure_pool(&*map, &pool(DEFAULT_POOL, 3, None)).await.expect("made");
        let place = place_volume(&*map, &at(1), NodeId(1)).await.expect("there is room");
        let table = place.table.expect("gathered");
        map.transact(Transaction::new().delete(keys::node_set(table))).await.expect("it answers");
        let new = NewVolume {
            name: "v".to_owned(),
            size_bytes: 1 << 20,
            block_size_bytes: 512,
            limits: Limits::default(),
            hosts: Default::default(),
        };
        let made = create_placed_volume(&*map, &new, &place, NodeId(1), None).await;
        assert!(matches!(made, Err(CatalogError::BadRecord { .. })), "made in a table that is gone: {made:?}");
        check_tables(&*map).await;
    });
}

#[test]
fn a_group_is_in_one_node_set() {
    let _alone = ALONE.lock();
    no_group_is_claimed_twice();
    #[cfg(feature = "mutants")]
    assert!(types::Mutant::SetsShareGroups.is_caught("no_group_is_claimed_twice", 0..1, |_| {
        no_group_is_claimed_twice();
    }));
}

#[test]
fn a_volume_is_made_in_a_node_set_that_is_there() {
    let _alone = ALONE.lock();
    a_volume_lies_in_a_table_that_is_there();
    #[cfg(feature = "mutants")]
    assert!(types::Mutant::TableWithoutSet.is_caught("a_volume_lies_in_a_table_that_is_there", 0..1, |_| {
        a_volume_lies_in_a_table_that_is_there();
    }));
}
