//! Which layers end, while heads change the map between any two looks of the keeper.

use cluster::{
    DEFAULT_POOL, DeviceRecord, DeviceState, KeyValue, LeaseId, Limits, Listing, MapFuture, MapStore, NewPool,
    NewVolume, NextEnding, Outcome, Reign, Revision, SimMap, Transaction, VolumeRecord, Watch, clone_volume,
    create_volume, delete_snapshot, ensure, ensure_pool, finish_ending, have_left, keys, list, name_snapshot,
    next_ending, push_layer, roll_back, take_top,
};
use runtime::sim::{NodeOptions, World};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use types::{LayerId, NodeId, StoreId, VolumeEpoch, VolumeId};

/// The head that volumes are made with, and the keeper of their families, in their first reign.
const FIRST: Reign = Reign { node: NodeId(1), epoch: VolumeEpoch(1) };

type LocalFuture = Pin<Box<dyn Future<Output = ()>>>;

/// A map on which somebody else does something before one of the requests of who has this.
struct Between {
    map: Arc<SimMap>,
    /// Requests until then.
    left: AtomicUsize,
    meanwhile: fn(Arc<SimMap>, VolumeId) -> LocalFuture,
    volume: VolumeId,
}

impl Between {
    async fn pass(&self) {
        if self.left.fetch_sub(1, Ordering::Relaxed) == 1 {
            (self.meanwhile)(self.map.clone(), self.volume).await;
        }
    }
}

impl MapStore for Between {
    fn get(&self, key: &str) -> MapFuture<'_, Option<KeyValue>> {
        let key = key.to_owned();
        Box::pin(async move {
            self.pass().await;
            self.map.get(&key).await
        })
    }
    fn list(&self, prefix: &str) -> MapFuture<'_, Listing> {
        let prefix = prefix.to_owned();
        Box::pin(async move {
            self.pass().await;
            self.map.list(&prefix).await
        })
    }
    fn transact(&self, transaction: Transaction) -> MapFuture<'_, Outcome> {
        Box::pin(async move {
            self.pass().await;
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

/// More requests than any decision here makes.
const MOMENTS: usize = 40;

/// Runs `work` on a map with a volume, once for each moment at which `meanwhile` may come.
fn at_every_moment<F: Future<Output = ()> + 'static>(
    prepare: fn(Arc<SimMap>, VolumeId) -> LocalFuture,
    meanwhile: fn(Arc<SimMap>, VolumeId) -> LocalFuture,
    work: impl Fn(Arc<Between>) -> F,
) {
    for moment in 1..MOMENTS {
        let world = World::new(moment as u64);
        let node = world.add_node(1, NodeOptions::default());
        let map = SimMap::new();
        let made = map.clone();
        let volume = world.run_on(&node, 0, async move {
            let name = DEFAULT_POOL.to_owned();
            let (store, path, state) = (StoreId(1), String::new(), DeviceState::Active);
            let device = DeviceRecord { store, node: NodeId(1), path, size_bytes: 1 << 30, state };
            ensure(&*made, device).await.expect("made");
            let pool = NewPool { name, replicas: 1, min_in_sync: 1, rules: None, stores: vec![store] };
            ensure_pool(&*made, &pool).await.expect("made");
            let new = NewVolume {
                name: "v".into(),
                size_bytes: 1 << 20,
                block_size_bytes: 512,
                limits: Limits::default(),
                hosts: Default::default(),
            };
            let volume = create_volume(&*made, &new, DEFAULT_POOL, NodeId(1)).await.expect("made").id;
            prepare(made.clone(), volume).await;
            volume
        });
        let volume = volume.expect("the world goes on");
        let between = Arc::new(Between { map, left: AtomicUsize::new(moment), meanwhile, volume });
        world.run_on(&node, 0, work(between)).expect("the world goes on");
    }
}

async fn volume(map: &dyn MapStore, id: VolumeId) -> VolumeRecord {
    cluster::get::<VolumeRecord>(map, &keys::volume(id)).await.expect("readable").expect("there").record
}

/// A head that takes a snapshot, and has left the old top at once.
async fn snapshot(map: &dyn MapStore, id: VolumeId, name: Option<&str>) {
    let old_top = *volume(map, id).await.layers.last().expect("a layer");
    let new = push_layer(map, id, FIRST).await.expect("pushed");
    take_top(map, &new).await.expect("taken");
    if let Some(name) = name {
        name_snapshot(map, id, name, old_top, FIRST).await.expect("named");
    }
    have_left(map, id, &[old_top], FIRST).await.expect("left");
}

fn nothing(_: Arc<SimMap>, _: VolumeId) -> LocalFuture {
    Box::pin(async {})
}

fn taking_a_snapshot(map: Arc<SimMap>, id: VolumeId) -> LocalFuture {
    Box::pin(async move { snapshot(&*map, id, Some("s")).await })
}

fn failing_to_take_one(map: Arc<SimMap>, id: VolumeId) -> LocalFuture {
    Box::pin(async move { snapshot(&*map, id, None).await })
}

/// Layers 1, 2 and 3; a snapshot names 2, and 1 is nobody's.
fn with_a_chain(map: Arc<SimMap>, id: VolumeId) -> LocalFuture {
    Box::pin(async move {
        snapshot(&*map, id, None).await;
        snapshot(&*map, id, Some("s")).await;
    })
}

/// The keeper ends what it finds.
fn ending(map: Arc<SimMap>, id: VolumeId) -> LocalFuture {
    Box::pin(async move {
        let family = volume(&*map, id).await.family;
        while let NextEnding::Layer(ending) = next_ending(&*map, family, FIRST).await.expect("readable") {
            finish_ending(&*map, &ending, FIRST).await.expect("ended");
        }
    })
}

/// Nothing ends that something is read through: whatever the keeper is told to end is nobody's afterwards, and what it is
/// merged into is its only child.
fn what_ends_is_nobodys() {
    for meanwhile in [taking_a_snapshot, failing_to_take_one] {
        at_every_moment(nothing, meanwhile, |map| async move {
            let family = volume(&*map.map, map.volume).await.family;
            let ending = match next_ending(&*map, family, FIRST).await.expect("readable") {
                NextEnding::Layer(ending) => ending,
                NextEnding::Nothing { .. } => return,
                NextEnding::Elsewhere => panic!("it is the keeper"),
            };
            let of = volume(&*map.map, map.volume).await;
            assert_ne!(Some(&ending.layer), of.layers.last(), "it is written to");
            let named = cluster::snapshots(&*map.map, map.volume).await.expect("readable");
            assert!(named.iter().all(|snapshot| snapshot.layer != ending.layer), "a snapshot names it");
            let place = of.layers.iter().position(|layer| *layer == ending.layer).expect("it is of the volume");
            assert_eq!(ending.into, of.layers.get(place + 1).copied(), "the volume is read through it");
        });
    }
}

async fn check_layers(map: &dyn MapStore) {
    let layers = list::<cluster::LayerRecord>(map, keys::LAYERS).await.expect("readable");
    let is_there = |id: &LayerId| layers.iter().any(|layer| layer.record.id == *id);
    for volume in list::<VolumeRecord>(map, keys::VOLUMES).await.expect("readable") {
        assert!(volume.record.layers.iter().all(is_there), "{:?} of {layers:?}", volume.record);
    }
}

/// Layers 1 to 3 as of `with_a_chain`; then the volume goes on from the snapshot: 3 is of no volume any more.
fn on_a_branch(map: Arc<SimMap>, id: VolumeId) -> LocalFuture {
    Box::pin(async move {
        with_a_chain(map.clone(), id).await;
        rolling_back(map, id).await;
    })
}

fn cloning(map: Arc<SimMap>, id: VolumeId) -> LocalFuture {
    Box::pin(async move {
        clone_volume(&*map, id, "s", "c", NodeId(1)).await.expect("cloned");
    })
}

fn rolling_back(map: Arc<SimMap>, id: VolumeId) -> LocalFuture {
    Box::pin(async move {
        let new = roll_back(&*map, id, "s", FIRST).await.expect("made");
        take_top(&*map, &new).await.expect("taken");
    })
}

/// Whatever is cloned or rolled back to while a layer ends, at any moment of its end: nothing names it then.
fn what_ends_is_named_by_nobody() {
    for (prepare, meanwhile) in [
        (with_a_chain as fn(Arc<SimMap>, VolumeId) -> LocalFuture, cloning as fn(Arc<SimMap>, VolumeId) -> LocalFuture),
        (on_a_branch, rolling_back),
    ] {
        at_every_moment(prepare, meanwhile, |map| async move {
            let family = volume(&*map.map, map.volume).await.family;
            while let NextEnding::Layer(ending) = next_ending(&*map.map, family, FIRST).await.expect("readable") {
                finish_ending(&*map, &ending, FIRST).await.expect("ended");
            }
            check_layers(&*map.map).await;
        });
    }
}

/// Whatever ends meanwhile, a new volume or top names only layers that are there.
fn what_is_named_is_there() {
    at_every_moment(with_a_chain, ending, |map| async move {
        clone_volume(&*map, map.volume, "s", "c", NodeId(1)).await.expect("cloned");
        check_layers(&*map.map).await;
    });
    at_every_moment(with_a_chain, ending, |map| async move {
        // Another branch: what ends of it is in no list of the volume.
        let first = roll_back(&*map.map, map.volume, "s", FIRST).await.expect("made");
        take_top(&*map.map, &first).await.expect("taken");
        loop {
            let new = roll_back(&*map, map.volume, "s", FIRST).await.expect("made");
            match take_top(&*map, &new).await {
                Ok(()) => break,
                Err(error) => assert_eq!(error, cluster::CatalogError::Contended),
            }
        }
        check_layers(&*map.map).await;
        delete_snapshot(&*map.map, map.volume, "s", FIRST).await.expect("deleted");
    });
}

/// A bug is on for the whole process.
static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());

#[test]
fn no_layer_ends_that_something_is_read_through() {
    let _alone = ALONE.lock();
    what_ends_is_nobodys();
    #[cfg(feature = "mutants")]
    assert!(types::Mutant::EndingsReadApart.is_caught("what_ends_is_nobodys", 0..1, |_| what_ends_is_nobodys()));
}

#[test]
fn no_layer_is_named_that_has_ended() {
    let _alone = ALONE.lock();
    what_is_named_is_there();
    #[cfg(feature = "mutants")]
    assert!(types::Mutant::EndedChainTaken.is_caught("what_is_named_is_there", 0..1, |_| what_is_named_is_there()));
}

#[test]
fn no_layer_that_ends_is_named_meanwhile() {
    let _alone = ALONE.lock();
    what_ends_is_named_by_nobody();
    #[cfg(feature = "mutants")]
    for mutant in [types::Mutant::ChainTakenUnsaid, types::Mutant::EndedChainTaken] {
        assert!(mutant.is_caught("what_ends_is_named_by_nobody", 0..1, |_| what_ends_is_named_by_nobody()));
    }
}
