//! A pool is there with all of its groups, or is not there.

use crate::ALONE;
use crate::map::{Then, Until, pool, put, with_nodes};
use cluster::control::decide;
use cluster::placement::duty::{Request, Subject};
use cluster::{
    CatalogError, DEFAULT_POOL, DeviceDuty, DevicePlaceRecord, DeviceRecord, FailureDomain, GroupRecord, MapStore,
    NodePlaceRecord, PoolDraftRecord, PoolError, PoolRecord, PoolRulesRecord, SimMap, add_groups, create_pool,
    deal_again, ensure_pool, get, keys, list, load_table,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use types::{NodeId, StoreId};

/// More requests than a pool of these takes.
const MOMENTS: usize = 60;

async fn all<T: cluster::Record>(map: &dyn MapStore, prefix: &str) -> Vec<T> {
    list::<T>(map, prefix).await.expect("readable").into_iter().map(|found| found.record).collect()
}

/// What holds of each pool that can be seen, whatever has happened.
async fn check_pools(map: &dyn MapStore) -> usize {
    let groups: Vec<GroupRecord> = all(map, keys::GROUPS).await;
    let pools: Vec<PoolRecord> = all(map, keys::POOLS).await;
    let mut taken = BTreeSet::new();
    for pool in &pools {
        let table = load_table(map, pool.table).await.expect("a pool that can be seen has a whole table");
        for id in table.groups() {
            let group = groups.iter().find(|group| group.id == *id);
            let group = group.unwrap_or_else(|| panic!("group {id} of pool {} is not there", pool.name));
            assert_eq!((&group.pool, group.min_in_sync), (&pool.name, pool.min_in_sync), "{group:?}");
            assert_eq!(group.members.len() as u32, pool.replicas, "{group:?}");
            let nodes: BTreeSet<u128> = group.members.iter().map(|store| store.0 / 100).collect();
            assert!(pool.replicas == 1 || nodes.len() == group.members.len(), "two copies on one node: {group:?}");
            assert!(taken.insert(*id), "group {id} is in two pools");
        }
        let of_pool = groups.iter().filter(|group| group.pool == pool.name).count();
        assert_eq!(of_pool, table.groups().len(), "pool {} has groups that nothing lies in", pool.name);
        let begun = get::<PoolDraftRecord>(map, &keys::pool_draft(&pool.name)).await.expect("readable");
        assert!(begun.is_none(), "the pool {} is begun and made", pool.name);
    }
    pools.len()
}

fn until(map: &Arc<SimMap>, left: usize, then: Then) -> Until {
    Until { map: map.clone(), left: AtomicUsize::new(left), then }
}

/// Wherever who makes it crashes: nobody sees half of it, and who tries again gets all of it.
fn a_pool_comes_whole_or_not_at_all() {
    for moment in 0..MOMENTS {
        with_nodes((3, 2), move |map| async move {
            ensure_pool(&*map, &pool(DEFAULT_POOL, 1, None)).await.expect("made");
            let new = pool("fast", 3, None);
            let cut_off = create_pool(&until(&map, moment, Then::Nothing), &new).await;
            let seen = check_pools(&*map).await;
            assert!(cut_off.is_err() || seen == 2, "who was told that it is there finds it");
            let again = create_pool(&*map, &new).await;
            match (seen, &again) {
                (2, Err(CatalogError::Pool(PoolError::Exists(_)))) => {}
                (1, Ok(made)) => assert_eq!((made.replicas, made.min_in_sync), (3, 2)),
                other => panic!("at {moment}: {other:?}"),
            }
            assert_eq!(check_pools(&*map).await, 2);
        });
    }
}

/// Two make the same pool, another gets groups, a device leaves, at any moment: nothing is in two pools.
fn numbers_are_nobody_elses() {
    fn others(map: Arc<SimMap>) -> crate::map::LocalFuture {
        Box::pin(async move {
            ensure_pool(&*map, &pool("other", 2, None)).await.expect("made");
            add_groups(&*map, DEFAULT_POOL, StoreId(102)).await.expect("made");
            deal_again(&*map, DEFAULT_POOL, |_| 1).await.expect("made");
            create_pool(&*map, &pool("fast", 2, None)).await.expect("made");
        })
    }
    for moment in 1..MOMENTS {
        with_nodes((3, 2), move |map| async move {
            let stores = vec![StoreId(101), StoreId(201), StoreId(301)];
            ensure_pool(&*map, &cluster::NewPool { stores, ..pool(DEFAULT_POOL, 1, None) }).await.expect("made");
            let new = pool("fast", 2, None);
            let made = create_pool(&until(&map, moment, Then::Meanwhile(others)), &new).await;
            assert!(matches!(made, Ok(_) | Err(CatalogError::Pool(PoolError::Exists(_)))), "at {moment}: {made:?}");
            let others_came = get::<PoolRecord>(&*map, &keys::pool("other")).await.expect("readable").is_some();
            assert_eq!(check_pools(&*map).await, if others_came { 3 } else { 2 });
        });
    }
}

/// A device that holds nothing is taken out of the map while it is dealt groups of a new pool, or as one that has come: at any
/// moment nothing is put where nothing can be.
fn what_leaves_is_dealt_nothing(is_new: bool) {
    const LEAVES: StoreId = StoreId(402);
    fn leaves(map: Arc<SimMap>) -> crate::map::LocalFuture {
        Box::pin(async move {
            // Refused once groups are there.
            let _ = decide(&*map, &Request::Remove(Subject::Device(LEAVES))).await;
        })
    }
    async fn check(map: &SimMap, moment: usize) -> bool {
        let is_gone = get::<DeviceRecord>(map, &keys::device(LEAVES)).await.expect("readable").is_none();
        let groups: Vec<GroupRecord> = all(map, keys::GROUPS).await;
        let on_it = groups.iter().filter(|group| group.members.contains(&LEAVES)).count();
        assert!(!is_gone || on_it == 0, "at {moment}: {on_it} groups name a device that has left");
        is_gone
    }
    let mut left = 0;
    for moment in 1..MOMENTS {
        left += usize::from(with_nodes((4, 2), move |map| async move {
            let stores = [101, 201, 301, 401].map(StoreId).to_vec();
            let alone = cluster::NewPool { stores: stores.clone(), ..pool(DEFAULT_POOL, 1, None) };
            ensure_pool(&*map, &alone).await.expect("made");
            let between = until(&map, moment, Then::Meanwhile(leaves));
            if is_new {
                let new = cluster::NewPool { stores: [stores, vec![LEAVES]].concat(), ..pool("fast", 3, None) };
                create_pool(&between, &new).await.expect("made");
                check_pools(&*map).await;
            } else {
                add_groups(&between, DEFAULT_POOL, LEAVES).await.expect("it gets its groups, or none");
            }
            check(&map, moment).await
        }));
    }
    assert!(left > 2, "it leaves while there is something to deal");
}

/// A device that leaves between two tries gets nothing of the second.
#[test]
fn who_goes_on_deals_to_what_there_is_by_then() {
    with_nodes((4, 1), |map| async move {
        ensure_pool(&*map, &pool(DEFAULT_POOL, 1, None)).await.expect("made");
        let new = pool("fast", 3, None);
        // The draft and the first 127 of 134 groups are there.
        create_pool(&until(&map, 9, Then::Nothing), &new).await.expect_err("cut off");
        let before: Vec<GroupRecord> = all(&*map, keys::GROUPS).await;
        let before: BTreeMap<_, _> = before.into_iter().map(|group| (group.id, group)).collect();
        put(&map, &DevicePlaceRecord { duty: DeviceDuty::Out, ..DevicePlaceRecord::unset(StoreId(401)) }).await;
        create_pool(&*map, &new).await.expect("finished");
        check_pools(&*map).await;
        let after: Vec<GroupRecord> = all(&*map, keys::GROUPS).await;
        assert!(after.len() > before.len() && before.len() > 400, "{} groups, then {}", before.len(), after.len());
        for group in after {
            match before.get(&group.id) {
                Some(was) => assert_eq!(&group, was, "what was there stays as it is"),
                None => assert!(!group.members.contains(&StoreId(401)), "{group:?}"),
            }
        }
    });
}

#[test]
fn what_cannot_be_kept_is_refused_before_anything_is_written() {
    with_nodes((2, 2), |map| async move {
        ensure_pool(&*map, &pool(DEFAULT_POOL, 1, None)).await.expect("made");
        let before = map.list("").await.expect("readable").revision;
        let rules = |failure_domain, class: &str| {
            Some(PoolRulesRecord { failure_domain, class: class.to_owned(), ..PoolRulesRecord::unset("fast") })
        };
        let refused = async |new| create_pool(&*map, &new).await.expect_err("refused").to_string();
        let few = refused(pool("fast", 3, rules(FailureDomain::Node, ""))).await;
        assert!(few.starts_with("3 copies need 3 nodes, and devices are in 2: "), "{few}");
        let racks = refused(pool("fast", 2, rules(FailureDomain::Rack, ""))).await;
        assert!(racks.contains("the 2 nodes that name no rack count as one"), "{racks}");
        let class = refused(pool("fast", 2, rules(FailureDomain::Node, "nvme"))).await;
        assert!(class.contains("of class nvme"), "{class}");
        assert!(refused(pool("fast", 6, None)).await.contains("choose 1 to 5"));
        assert!(refused(pool("Fast", 2, None)).await.contains("not allowed"));
        let waits = cluster::NewPool { min_in_sync: 3, ..pool("fast", 2, None) };
        assert!(refused(waits).await.contains("choose 1 to 2"));
        assert!(refused(pool(DEFAULT_POOL, 1, None)).await.contains("exists already"));
        assert_eq!(map.list("").await.expect("readable").revision, before, "something was written");
        create_pool(&*map, &pool("fast", 3, rules(FailureDomain::Device, ""))).await.expect("four devices are enough");
    });
}

#[test]
fn what_was_begun_otherwise_is_told() {
    with_nodes((3, 1), |map| async move {
        ensure_pool(&*map, &pool(DEFAULT_POOL, 1, None)).await.expect("made");
        create_pool(&until(&map, 8, Then::Nothing), &pool("fast", 3, None)).await.expect_err("cut off");
        let other = create_pool(&*map, &pool("fast", 2, None)).await.expect_err("it is another").to_string();
        assert!(other.contains("begun with 3 copies (min-in-sync 2"), "{other}");
        create_pool(&*map, &pool("fast", 3, None)).await.expect("finished");
    });
}

/// Racks, classes and shares are those of `placement::place`: its laws are held elsewhere.
#[test]
fn groups_are_dealt_by_the_pools_rules() {
    with_nodes((6, 2), |map| async move {
        ensure_pool(&*map, &pool(DEFAULT_POOL, 1, None)).await.expect("made");
        for node in 1..=6 {
            let rack = format!("r{}", node % 3);
            put(&map, &NodePlaceRecord { rack, ..NodePlaceRecord::unset(NodeId(node)) }).await;
            let store = StoreId(u128::from(node * 100 + 2));
            put(&map, &DevicePlaceRecord { class: "nvme".to_owned(), ..DevicePlaceRecord::unset(store) }).await;
        }
        let rules = PoolRulesRecord {
            failure_domain: FailureDomain::Rack,
            class: "nvme".to_owned(),
            ..PoolRulesRecord::unset("fast")
        };
        create_pool(&*map, &pool("fast", 3, Some(rules.clone()))).await.expect("three racks");
        let said: Vec<PoolRulesRecord> = all(&*map, keys::POOL_RULES).await;
        assert_eq!(said, [rules]);
        let groups: Vec<GroupRecord> = all(&*map, keys::GROUPS).await;
        let groups: Vec<_> = groups.into_iter().filter(|group| group.pool == "fast").collect();
        assert_eq!(groups.len(), 200, "100 memberships for each of six devices");
        for group in &groups {
            let racks: BTreeSet<u128> = group.members.iter().map(|store| store.0 / 100 % 3).collect();
            assert_eq!(racks.len(), 3, "{group:?}");
            assert!(group.members.iter().all(|store| store.0 % 100 == 2), "{group:?}");
        }
        for node in 1..=6u128 {
            let led = groups.iter().filter(|group| group.primary == StoreId(node * 100 + 2)).count();
            assert!((33..=34).contains(&led), "node {node} leads {led}");
        }
    });
}

#[test]
fn a_pool_is_made_at_once_or_not() {
    let _alone = ALONE.lock();
    a_pool_comes_whole_or_not_at_all();
    #[cfg(feature = "mutants")]
    assert!(types::Mutant::PoolBeforeGroups.is_caught("a_pool_comes_whole_or_not_at_all", 0..1, |_| {
        a_pool_comes_whole_or_not_at_all();
    }));
}

#[test]
fn no_group_is_on_a_device_that_has_left() {
    let _alone = ALONE.lock();
    for is_new in [true, false] {
        what_leaves_is_dealt_nothing(is_new);
        #[cfg(feature = "mutants")]
        assert!(types::Mutant::DealtUnseen.is_caught("what_leaves_is_dealt_nothing", 0..1, |_| {
            what_leaves_is_dealt_nothing(is_new);
        }));
    }
}

#[test]
fn no_group_is_in_two_pools() {
    let _alone = ALONE.lock();
    numbers_are_nobody_elses();
    #[cfg(feature = "mutants")]
    assert!(types::Mutant::NumbersUsedAgain.is_caught("numbers_are_nobody_elses", 0..1, |_| {
        numbers_are_nobody_elses();
    }));
}
