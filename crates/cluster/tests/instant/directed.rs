//! A map with volumes, and what must not be named of an instant.
#![allow(dead_code)] // each test file uses its part

use cluster::{
    CatalogError, DEFAULT_POOL, DeviceRecord, DeviceState, Limits, MapStore, NewPool, NewVolume, NextEnding, Pushed,
    Reign, Served, SimMap, SnapshotRecord, VolumeRecord, Wanted, create_volume, ensure, ensure_pool, have_left, keys,
    list, name_snapshots, next_ending, push_tops, take_heads,
};
use runtime::sim::{NodeOptions, World};
use std::sync::Arc;
use types::{LayerId, NodeId, StoreId, VolumeEpoch};

/// The head that volumes are made with, in its first reign.
pub const FIRST: Reign = Reign { node: NodeId(1), epoch: VolumeEpoch(1) };

/// Runs `work` on a map that has volumes "v0", "v1", …
pub fn with_volumes<F: Future<Output = ()> + 'static>(seed: u64, count: usize, work: impl FnOnce(Arc<SimMap>) -> F) {
    let world = World::new(seed);
    let node = world.add_node(1, NodeOptions::default());
    let map = SimMap::new();
    let made = map.clone();
    let prepared = async move {
        let (store, path, state) = (StoreId(1), String::new(), DeviceState::Active);
        let device = DeviceRecord { store, node: FIRST.node, path, size_bytes: 1 << 30, state };
        ensure(&*made, device).await.expect("made");
        let name = DEFAULT_POOL.to_owned();
        let pool = NewPool { name, replicas: 1, min_in_sync: 1, rules: None, stores: vec![store] };
        ensure_pool(&*made, &pool).await.expect("made");
        for index in 0..count {
            let new = NewVolume {
                name: format!("v{index}"),
                size_bytes: 1 << 20,
                block_size_bytes: 512,
                limits: Limits::default(),
                hosts: Default::default(),
            };
            create_volume(&*made, &new, DEFAULT_POOL, FIRST.node).await.expect("made");
        }
    };
    world.run_on(&node, 0, prepared).expect("the world goes on");
    world.run_on(&node, 0, work(map)).expect("the world goes on");
}

pub async fn volumes(map: &dyn MapStore) -> Vec<VolumeRecord> {
    list::<VolumeRecord>(map, keys::VOLUMES).await.expect("readable").into_iter().map(|found| found.record).collect()
}

pub async fn served(map: &dyn MapStore) -> Vec<Served> {
    let top = |volume: &VolumeRecord| *volume.layers.last().expect("a layer");
    volumes(map).await.iter().map(|volume| Served { volume: volume.id, by: FIRST, top: top(volume) }).collect()
}

pub async fn snapshots(map: &dyn MapStore) -> Vec<(String, LayerId)> {
    let all = list::<SnapshotRecord>(map, keys::SNAPSHOTS).await.expect("readable");
    all.into_iter().map(|found| (found.record.name, found.record.layer)).collect()
}

pub fn named(pushed: &[Pushed]) -> Vec<(Pushed, String)> {
    pushed.iter().map(|pushed| (pushed.clone(), "x".to_owned())).collect()
}

pub fn wanted(count: usize) -> Vec<Wanted> {
    (0..count).map(|index| Wanted { volume: format!("v{index}"), name: "x".to_owned() }).collect()
}

/// Another head has opened one of the volumes: what the earlier one stopped is no instant of it.
pub fn a_replaced_head_lets_nothing_be_named(seed: u64) {
    with_volumes(seed, 2, |map| async move {
        let pushed = push_tops(&*map, &served(&*map).await).await.expect("pushed");
        take_heads(&*map, NodeId(2), |volume| volume.name == "v1").await.expect("taken");
        let refused = name_snapshots(&*map, &named(&pushed)).await;
        assert!(matches!(refused, Err(CatalogError::Deposed { head: NodeId(2), .. })), "{refused:?}");
        assert_eq!(snapshots(&*map).await, [], "all or none");
    });
}

/// A head that heard nothing has left its old top, which its keeper may be ending by now.
pub fn a_layer_that_was_left_is_not_named(seed: u64) {
    with_volumes(seed, 2, |map| async move {
        let pushed = push_tops(&*map, &served(&*map).await).await.expect("pushed");
        let left = &pushed[1];
        have_left(&*map, left.volume, &[left.old_top], FIRST).await.expect("left");
        let family = volumes(&*map).await[1].family;
        let next = next_ending(&*map, family, FIRST).await.expect("readable");
        assert!(matches!(next, NextEnding::Layer(layer) if layer.layer == left.old_top), "{next:?}");
        let refused = name_snapshots(&*map, &named(&pushed)).await;
        assert_eq!(refused, Err(CatalogError::WentOn(left.volume)));
        assert_eq!(snapshots(&*map).await, [], "all or none");
    });
}
