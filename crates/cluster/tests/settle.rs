//! Transactions whose answer was lost, on a map that may do them long after.

use cluster::{
    CatalogError, DEFAULT_POOL, DeviceRecord, DeviceState, KeyValue, LeaseId, Limits, Listing, MapError, MapFaults,
    MapFuture, MapStore, NewPool, NewVolume, Outcome, REQUEST_DEADLINE, Reign, Revision, SimMap, Transaction,
    VolumeChange, VolumeRecord, Watch, change_volume, create_volume, ensure, ensure_pool, keys, settle,
};
use runtime::sim::{NodeOptions, SimNode, World};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use types::{NodeId, StoreId, VolumeEpoch, VolumeId};

/// The head that volumes are made with, in its first reign.
const FIRST: Reign = Reign { node: NodeId(1), epoch: VolumeEpoch(1) };
const LATE_MAX: Duration = Duration::from_secs(100);
/// Every request is late.
const LATE: MapFaults = MapFaults { requests_late: 1024, late_max: LATE_MAX, ..MapFaults::NONE };

fn run<T: 'static>(seed: u64, work: impl Future<Output = T> + 'static) -> T {
    let world = World::new(seed);
    let node: SimNode = world.add_node(1, NodeOptions::default());
    world.run_on(&node, 0, work).expect("the world goes on")
}

type LocalFuture = Pin<Box<dyn Future<Output = ()>>>;

/// A map whose first transaction is late; before its sender hears that this is unknown, somebody else does something.
struct Interrupted {
    map: Arc<SimMap>,
    is_first: AtomicBool,
    meanwhile: fn(Arc<SimMap>) -> LocalFuture,
}

impl MapStore for Interrupted {
    fn get(&self, key: &str) -> MapFuture<'_, Option<KeyValue>> {
        self.map.get(key)
    }
    fn list(&self, prefix: &str) -> MapFuture<'_, Listing> {
        self.map.list(prefix)
    }
    fn transact(&self, transaction: Transaction) -> MapFuture<'_, Outcome> {
        Box::pin(async move {
            if !self.is_first.swap(false, Ordering::Relaxed) {
                return self.map.transact(transaction).await;
            }
            self.map.set_faults(LATE);
            let answer = self.map.transact(transaction).await;
            self.map.set_faults(MapFaults::NONE);
            (self.meanwhile)(self.map.clone()).await;
            answer
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

async fn create(map: &dyn MapStore, name: &str) -> VolumeRecord {
    let name = name.to_owned();
    let new = NewVolume {
        name,
        size_bytes: 1 << 20,
        block_size_bytes: 512,
        limits: Limits::default(),
        hosts: Default::default(),
    };
    create_volume(map, &new, DEFAULT_POOL, NodeId(1)).await.expect("made")
}

/// A map with a pool and a volume "a", and the volume's id.
async fn with_a_volume() -> (Arc<SimMap>, VolumeId) {
    let map = SimMap::new();
    let name = DEFAULT_POOL.to_owned();
    let state = DeviceState::Active;
    let device = DeviceRecord { store: StoreId(1), node: NodeId(1), path: String::new(), size_bytes: 1 << 30, state };
    ensure(&*map, device).await.expect("made");
    let pool = NewPool { name, replicas: 1, min_in_sync: 1, rules: None, stores: vec![StoreId(1)] };
    ensure_pool(&*map, &pool).await.expect("made");
    let id = create(&*map, "a").await.id;
    (map, id)
}

async fn name_of(map: &SimMap, id: VolumeId) -> String {
    cluster::get::<VolumeRecord>(map, &keys::volume(id)).await.expect("an answer").expect("there").record.name
}

/// A rename is late. Meanwhile the name is taken, so the caller is told that it cannot be had; then the name is free
/// again, and the late request arrives: everything that it compares is as it was. Who believed what a look said of it
/// has told "failed" of something that is done now.
#[test]
fn what_was_told_as_failed_does_not_happen_later() {
    for seed in 0..10 {
        run(seed, async move {
            let (map, id) = with_a_volume().await;
            let interrupted = Interrupted {
                map: map.clone(),
                is_first: AtomicBool::new(true),
                meanwhile: |map| Box::pin(async move { drop(create(&*map, "b").await) }),
            };
            let told = change_volume(&interrupted, id, &VolumeChange::name("b"), FIRST).await;
            assert_eq!(told, Err(CatalogError::Exists("b".to_owned())));
            let all = cluster::list::<VolumeRecord>(&*map, keys::VOLUMES).await.expect("volumes");
            let other = all.into_iter().map(|found| found.record).find(|volume| volume.id != id).expect("b");
            change_volume(&*map, other.id, &VolumeChange::name("c"), FIRST).await.expect("the name is free again");
            assert_eq!(map.counts().requests_late, 0, "it is on its way still");
            runtime::sleep(LATE_MAX).await;
            assert_eq!(name_of(&map, id).await, "a");
            assert_eq!(map.counts().requests_late, 1, "it has arrived");
        });
    }
}

/// A look finds nothing of a swap that is on its way. Sending it again does it, once.
#[test]
fn a_swap_that_is_late_is_done_once() {
    for seed in 0..10 {
        run(seed, async move {
            let map = SimMap::new();
            let Ok(Outcome::Committed(first)) = map.transact(Transaction::new().put("a", vec![1])).await else {
                panic!("put")
            };
            map.set_faults(LATE);
            let swap = Transaction::new().expect("a", first).put("a", vec![2]);
            assert_eq!(map.transact(swap.clone()).await, Err(MapError::Unknown));
            map.set_faults(MapFaults::NONE);
            assert_eq!(map.get("a").await.expect("an answer").expect("there").modified, first, "not done, says a look");
            let settled = settle(&*map, swap).await;
            assert_eq!(settled, Ok(Outcome::Committed(Revision(first.0 + 1))));
            runtime::sleep(LATE_MAX).await;
            assert_eq!(map.list("").await.expect("an answer").revision, Revision(first.0 + 1), "once");
            assert_eq!(map.counts().requests_late, 1, "it has arrived");
        });
    }
}

/// Three writers of one counter on a map that does everything wrong that a network can: each increment is done once.
#[test]
fn what_is_settled_is_done_once_or_never() {
    for seed in 0..10 {
        let map = SimMap::new();
        let counts = map.clone();
        run(seed, async move {
            map.set_faults(MapFaults {
                latency_max: Duration::from_millis(200),
                requests_lost: 100,
                answers_lost: 100,
                requests_late: 200,
                late_max: Duration::from_secs(3),
                leader_changes: 20,
                ..MapFaults::NONE
            });
            let done = Rc::new(std::cell::Cell::new(0));
            for writer in 0..3 {
                let (map, done) = (map.clone(), done.clone());
                runtime::spawn(async move {
                    for round in 0..20 {
                        increment(&map, &format!("marks/{writer}/{round}")).await;
                    }
                    done.set(done.get() + 1);
                });
            }
            while done.get() < 3 {
                runtime::sleep(Duration::from_millis(100)).await;
            }
            map.set_faults(MapFaults::NONE);
            runtime::sleep(Duration::from_secs(3)).await;
            assert_eq!(counter(&map).await.0, 60, "seed {seed}");
            assert_eq!(map.list("marks/").await.expect("an answer").items.len(), 60);
        });
        assert!(counts.counts().requests_late > 0);
    }
}

async fn counter(map: &SimMap) -> (u8, Revision) {
    patient(async || map.get("counter").await).await.map_or((0, Revision(0)), |found| (found.value[0], found.modified))
}

async fn increment(map: &SimMap, mark: &str) {
    loop {
        // What is settled is known by its mark: a look is believed.
        if patient(async || map.get(mark).await).await.is_some() {
            return;
        }
        let (value, modified) = counter(map).await;
        let transaction = Transaction::new().expect("counter", modified).put("counter", vec![value + 1]);
        let transaction = transaction.expect_absent(mark).put(mark, vec![]);
        settle(map, transaction).await.expect("settled");
    }
}

async fn patient<T>(ask: impl AsyncFn() -> Result<T, MapError>) -> T {
    loop {
        match ask().await {
            Err(MapError::Unknown) => {}
            answer => return answer.expect("an answer"),
        }
    }
}

#[test]
fn an_outcome_that_cannot_be_learned_is_told_as_unknown_after_a_while() {
    run(1, async {
        let map = SimMap::new();
        map.set_unreachable(true);
        let since = runtime::now();
        let settled = settle(&*map, Transaction::new().expect_absent("a").put("a", vec![])).await;
        assert_eq!(settled, Err(MapError::Unknown));
        let waited = runtime::now().since(since);
        assert!(waited >= REQUEST_DEADLINE * 4 && waited <= REQUEST_DEADLINE * 6, "{waited:?}");
    });
}

#[test]
#[should_panic(expected = "done twice")]
fn what_could_be_done_twice_is_not_sent() {
    run(1, async {
        let map = SimMap::new();
        let _ = settle(&*map, Transaction::new().expect_absent("a").put("b", vec![])).await;
    });
}
