//! Clusters of so many nodes, and a map that somebody else uses meanwhile, or that does not answer any more.

use cluster::{
    DeviceRecord, DeviceState, KeyValue, LeaseId, Listing, MapError, MapFuture, MapStore, NewPool, NodeRecord, Outcome,
    PoolRulesRecord, Record, Revision, SimMap, Transaction, Watch, encode,
};
use runtime::sim::{NodeOptions, World};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use types::{NodeId, StoreId};

pub type LocalFuture = Pin<Box<dyn Future<Output = ()>>>;

pub async fn put(map: &SimMap, record: &impl Record) {
    map.transact(Transaction::new().put(record.key(), encode(record))).await.expect("it answers");
}

/// Runs `work` on the map of a cluster of so many nodes with so many devices each.
pub fn with_nodes<T: 'static, F: Future<Output = T> + 'static>(
    (nodes, devices): (u32, u32),
    work: impl FnOnce(Arc<SimMap>) -> F + 'static,
) -> T {
    let world = World::new(1);
    let node = world.add_node(1, NodeOptions::default());
    let prepared = async move {
        let map = SimMap::new();
        for node in 1..=nodes {
            put(&map, &NodeRecord { id: NodeId(node), address: format!("10.0.0.{node}:1") }).await;
            for device in 1..=devices {
                let store = StoreId(u128::from(node * 100 + device));
                let (node, path, state) = (NodeId(node), format!("/dev/{device}"), DeviceState::Active);
                put(&map, &DeviceRecord { store, node, path, size_bytes: 1 << 40, state }).await;
            }
        }
        work(map).await
    };
    world.run_on(&node, 0, prepared).expect("the world goes on")
}

pub fn pool(name: &str, replicas: u32, rules: Option<PoolRulesRecord>) -> NewPool {
    let min_in_sync = cluster::default_min_in_sync(replicas);
    NewPool { name: name.to_owned(), replicas, min_in_sync, rules, stores: Vec::new() }
}

/// What becomes of the requests behind the first so many.
#[derive(Clone, Copy)]
pub enum Then {
    /// Somebody else does something before the next one.
    Meanwhile(fn(Arc<SimMap>) -> LocalFuture),
    /// No answer comes any more, as far as who asks can tell: it has crashed.
    Nothing,
}

/// A map of which that becomes.
pub struct Until {
    pub map: Arc<SimMap>,
    pub left: AtomicUsize,
    pub then: Then,
}

impl Until {
    async fn pass(&self) -> Result<(), MapError> {
        let left = self.left.load(Ordering::Relaxed);
        self.left.store(left.saturating_sub(1), Ordering::Relaxed);
        match self.then {
            Then::Meanwhile(does) if left == 1 => does(self.map.clone()).await,
            Then::Nothing if left == 0 => return Err(MapError::Refused("it has crashed".to_owned())),
            Then::Meanwhile(_) | Then::Nothing => {}
        }
        Ok(())
    }
}

impl MapStore for Until {
    fn get(&self, key: &str) -> MapFuture<'_, Option<KeyValue>> {
        let key = key.to_owned();
        Box::pin(async move {
            self.pass().await?;
            self.map.get(&key).await
        })
    }
    fn list(&self, prefix: &str) -> MapFuture<'_, Listing> {
        let prefix = prefix.to_owned();
        Box::pin(async move {
            self.pass().await?;
            self.map.list(&prefix).await
        })
    }
    fn transact(&self, transaction: Transaction) -> MapFuture<'_, Outcome> {
        Box::pin(async move {
            self.pass().await?;
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
