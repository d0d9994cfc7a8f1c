//! Machines become nodes of a cluster: each gets a number of its own, whoever comes at once, and what was cut off goes on.

use cluster::{
    ClusterKeyRecord, ClusterRecord, DeviceRecord, DeviceState, GroupRecord, JoinError, KeyValue, LeaseId, Listing,
    MapFuture, MapStore, NODES_MAX, NewDevice, NewPool, Newcomer, NodeRecord, Outcome, PoolRecord, Record, Revision,
    SimMap, StoreUsageRecord, Transaction, Watch, begin_cluster, encode, ensure_pool, foretell_join, get, join_cluster,
    keys, list,
};
use runtime::sim::{NodeOptions, World};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use types::{ClusterId, GroupId, NodeId, StoreId};

/// A bug is on for the whole process.
static ALONE: Mutex<()> = Mutex::new(());
const CLUSTER: ClusterId = ClusterId(7);

fn in_a_world<F: Future<Output = ()> + 'static>(work: impl FnOnce(Arc<SimMap>) -> F + 'static) {
    let world = World::new(1);
    let node = world.add_node(1, NodeOptions::default());
    world.run_on(&node, 0, async move { work(SimMap::new()).await }).expect("the world goes on");
}

fn machine(number: u32) -> Newcomer {
    Newcomer {
        address: format!("[fd00::{number}]:8430").parse().expect("an address"),
        devices: vec![NewDevice { store: store(number), path: "/dev/nvme1n1".to_owned(), size_bytes: 1 << 40 }],
        is_spare: false,
    }
}

fn store(number: u32) -> StoreId {
    StoreId(u128::from(number) << 64)
}

fn draft(id: ClusterId) -> (ClusterRecord, ClusterKeyRecord) {
    let cluster = ClusterRecord { id, cluster_version: 1, finished: None, created_at_ns: 5, replicas: Some(2) };
    (cluster, ClusterKeyRecord { key: vec![3; 32] })
}

async fn begun(map: &dyn MapStore) {
    let joined = begin_cluster(map, draft(CLUSTER), &machine(1)).await.expect("it begins");
    assert_eq!((joined.node, joined.cluster.replicas), (NodeId(1), Some(2)));
}

/// The map, to which another comes between what is read and what is written.
struct Rival {
    map: Arc<SimMap>,
    comes: Mutex<Option<Comes>>,
}

/// What the other does.
enum Comes {
    Joins(Newcomer),
    MakesPool(NewPool),
}

impl MapStore for Rival {
    fn get(&self, key: &str) -> MapFuture<'_, Option<KeyValue>> {
        self.map.get(key)
    }
    fn list(&self, prefix: &str) -> MapFuture<'_, Listing> {
        self.map.list(prefix)
    }
    fn transact(&self, transaction: Transaction) -> MapFuture<'_, Outcome> {
        Box::pin(async move {
            let comes = self.comes.lock().expect("no panic").take();
            match comes {
                Some(Comes::Joins(newcomer)) => {
                    let joined = join_cluster(&*self.map, None, &newcomer).await.expect("it is first");
                    assert_eq!(joined.node, NodeId(2));
                }
                Some(Comes::MakesPool(new)) => drop(ensure_pool(&*self.map, &new).await.expect("it is first")),
                None => {}
            }
            self.map.transact(transaction).await
        })
    }
    fn watch(&self, prefix: &str, from: Revision) -> Box<dyn Watch> {
        self.map.watch(prefix, from)
    }
    fn compact(&self, through: Revision) -> MapFuture<'_, ()> {
        self.map.compact(through)
    }
    fn grant(&self, time_to_live: Duration) -> MapFuture<'_, LeaseId> {
        self.map.grant(time_to_live)
    }
    fn keep_alive(&self, lease: LeaseId) -> MapFuture<'_, ()> {
        self.map.keep_alive(lease)
    }
    fn revoke(&self, lease: LeaseId) -> MapFuture<'_, ()> {
        self.map.revoke(lease)
    }
}

fn two_at_once_are_two() {
    in_a_world(async |map| {
        begun(&*map).await;
        let rival = Rival { map: map.clone(), comes: Mutex::new(Some(Comes::Joins(machine(8)))) };
        let joined = join_cluster(&rival, Some(CLUSTER), &machine(9)).await.expect("there is room");
        assert_eq!(joined.node, NodeId(3), "the other was faster");
        let nodes = list::<NodeRecord>(&*map, keys::NODES).await.expect("it answers");
        let told: Vec<_> = nodes.iter().map(|node| (node.record.id.0, node.record.address.as_str())).collect();
        assert_eq!(told, [(1, "[fd00::1]:8430"), (2, "[fd00::8]:8430"), (3, "[fd00::9]:8430")]);
        for (number, of) in [(8, 2), (9, 3)] {
            let device = get::<DeviceRecord>(&*map, &keys::device(store(number))).await.expect("it answers");
            let device = device.expect("it is said").record;
            assert_eq!((device.node, device.state), (NodeId(of), DeviceState::New));
        }
    });
}

#[test]
fn of_two_that_join_at_once_each_has_a_number_of_its_own() {
    let _alone = ALONE.lock();
    two_at_once_are_two();
    #[cfg(feature = "mutants")]
    assert!(types::Mutant::JoinsWithoutLooking.is_caught("two_at_once_are_two", 0..1, |_| two_at_once_are_two()));
}

#[test]
fn what_was_done_already_is_found_and_not_done_twice() {
    let _alone = ALONE.lock();
    in_a_world(async |map| {
        begun(&*map).await;
        let again = begin_cluster(&*map, draft(ClusterId(8)), &machine(1)).await.expect("it is the same machine");
        assert_eq!((again.node, again.cluster.id), (NodeId(1), CLUSTER));
        for _ in 0..2 {
            let joined = join_cluster(&*map, None, &machine(5)).await.expect("there is room");
            assert_eq!(joined.node, NodeId(2));
        }
        assert_eq!(list::<NodeRecord>(&*map, keys::NODES).await.expect("it answers").len(), 2);
        // Once a node has opened the device it is that node's, whoever asks.
        cluster::activate_device(&*map, store(5)).await.expect("it answers");
        let again = join_cluster(&*map, None, &machine(5)).await;
        assert!(matches!(again, Err(JoinError::DeviceTaken { node: NodeId(2), .. })), "{again:?}");
    });
}

#[test]
fn what_cannot_be_is_refused_and_changes_nothing() {
    let _alone = ALONE.lock();
    in_a_world(async |map| {
        let none = join_cluster(&*map, None, &machine(1)).await;
        assert_eq!(none, Err(JoinError::NoCluster));
        begun(&*map).await;
        let before = map.list("").await.expect("it answers");
        let begun_again = begin_cluster(&*map, draft(ClusterId(8)), &machine(2)).await;
        assert_eq!(begun_again, Err(JoinError::Begun(CLUSTER)));
        let other = join_cluster(&*map, Some(ClusterId(8)), &machine(2)).await;
        assert_eq!(other, Err(JoinError::OtherCluster { found: CLUSTER, wanted: ClusterId(8) }));
        let there = Newcomer { address: machine(1).address, ..machine(2) };
        let taken = join_cluster(&*map, None, &there).await;
        assert!(matches!(taken, Err(JoinError::AddressTaken { node: NodeId(1), .. })), "{taken:?}");
        assert_eq!(map.list("").await.expect("it answers").items, before.items);
        let foreign = SimMap::new();
        foreign.transact(Transaction::new().put("registry/pods", b"x".to_vec())).await.expect("it answers");
        let foreign = begin_cluster(&*foreign, draft(CLUSTER), &machine(1)).await;
        assert_eq!(foreign, Err(JoinError::Foreign("registry/pods".to_owned())));
    });
}

#[test]
fn numbers_are_used_again_only_when_there_are_no_others() {
    let _alone = ALONE.lock();
    in_a_world(async |map| {
        begun(&*map).await;
        for number in 2..=NODES_MAX {
            let joined = join_cluster(&*map, None, &machine(number)).await.expect("there is room");
            assert_eq!(joined.node, NodeId(number));
            if number == 4 {
                // Out of the map as `cairn node rm` takes it: its number is not the next one's.
                let gone = [keys::node(NodeId(4)), keys::device(store(4)), keys::device_place(store(4))];
                let transaction = gone.into_iter().fold(Transaction::new(), Transaction::delete);
                map.transact(transaction).await.expect("it answers");
            }
        }
        let last = join_cluster(&*map, None, &machine(100)).await.expect("one was taken out");
        assert_eq!(last.node, NodeId(4));
        assert_eq!(join_cluster(&*map, None, &machine(101)).await, Err(JoinError::Full));
    });
}

#[test]
fn of_two_nodes_that_make_the_first_pool_at_once_neither_fails() {
    let _alone = ALONE.lock();
    in_a_world(async |map| {
        begun(&*map).await;
        join_cluster(&*map, None, &machine(2)).await.expect("there is room");
        for number in [1, 2] {
            cluster::activate_device(&*map, store(number)).await.expect("it answers");
        }
        let stores = vec![store(1), store(2)];
        let new = NewPool { name: "default".to_owned(), replicas: 2, min_in_sync: 1, rules: None, stores };
        let rival = Rival { map: map.clone(), comes: Mutex::new(Some(Comes::MakesPool(new.clone()))) };
        let made = ensure_pool(&rival, &new).await.expect("it is there");
        assert_eq!(ensure_pool(&*map, &new).await, Ok(made), "it is one");
    });
}

#[test]
fn a_newcomer_is_told_its_share_before() {
    let _alone = ALONE.lock();
    in_a_world(async |map| {
        begun(&*map).await;
        join_cluster(&*map, None, &machine(2)).await.expect("there is room");
        put(
            &map,
            &PoolRecord {
                name: "default".to_owned(),
                policy: cluster::Policy::Replicated,
                replicas: 2,
                min_in_sync: 1,
                table: 1,
                write_cache: false,
                compression: cluster::Compression::Off,
            },
        )
        .await;
        for number in [1, 2] {
            cluster::activate_device(&*map, store(number)).await.expect("it answers");
            let usage = StoreUsageRecord {
                store: store(number),
                live_bytes: 60 << 30,
                usable_bytes: 1 << 40,
                trouble: None,
                of_groups: None,
            };
            put(&map, &usage).await;
        }
        for id in 1..=60u32 {
            let members = vec![store(1 + id % 2), store(2 - id % 2)];
            put(&map, &GroupRecord::begun_with(GroupId(id), (1, "default".to_owned()), members, 1)).await;
        }
        let foretold = foretell_join(&*map, None, &machine(3)).await.expect("it can join").forecast;
        assert!(list::<NodeRecord>(&*map, keys::NODES).await.expect("it answers").len() == 2, "nothing is done");
        assert_eq!((foretold.groups(), foretold.bytes()), (40, 40 << 30), "a third of all copies");
        let joined = join_cluster(&*map, None, &machine(3)).await.expect("there is room");
        assert_eq!(joined.forecast, foretold);
        let spare = Newcomer { is_spare: true, ..machine(4) };
        let joined = join_cluster(&*map, None, &spare).await.expect("there is room");
        assert_eq!((joined.node, joined.forecast.groups()), (NodeId(4), 0));
        let place = get::<cluster::DevicePlaceRecord>(&*map, &keys::device_place(store(4))).await.expect("it answers");
        assert_eq!(place, None, "it gets nothing until it takes another's place");
    });
}

async fn put(map: &SimMap, record: &impl Record) {
    map.transact(Transaction::new().put(record.key(), encode(record))).await.expect("it answers");
}
