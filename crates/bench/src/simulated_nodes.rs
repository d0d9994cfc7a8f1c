//! Nodes that are there and have no store: they speak the nodes' protocol with each other and with real ones, by the code that ships,
//! and answer beats. So real nodes have as many peers as in a large cluster.

use cluster::{
    ClusterKeyRecord, ClusterRecord, EtcdMap, Event, KeyValue, LeaseId, Listing, MapFuture, MapStore, Outcome,
    Revision, Transaction, Watch, get, keys,
};
use replication::node::{Node, NodeConfig, Timing};
use replication::wire::{ClusterKey, Protocol};
use runtime::channel::cross;
use runtime::uring::{Cores, Options};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use types::NodeId;

/// They run until this is dropped.
pub struct SimulatedNodes {
    _cores: Cores,
    /// Where each of them is reached.
    pub addresses: Vec<(NodeId, SocketAddr)>,
}

/// What simulated nodes have to know of the map: where real nodes are. Fifty copies of all groups, and beats between all of them, would
/// be the test's cost, and no node's.
struct OnlyNodes {
    map: Arc<EtcdMap>,
    /// Nodes from this number on are simulated.
    first: NodeId,
}

/// Nothing begins with this.
const NOTHING: &str = "nothing/";

fn is_real(key: &str, first: NodeId) -> bool {
    let number = key.strip_prefix(keys::NODES).and_then(|number| u32::from_str_radix(number, 16).ok());
    number.is_none_or(|number| NodeId(number) < first)
}

struct OnlyRealNodes(Box<dyn Watch>, NodeId);

impl Watch for OnlyRealNodes {
    fn next(&mut self) -> MapFuture<'_, Vec<Event>> {
        Box::pin(async move {
            let mut events = self.0.next().await?;
            events.retain(|event| is_real(&event.key, self.1));
            Ok(events)
        })
    }
}

impl MapStore for OnlyNodes {
    fn get(&self, key: &str) -> MapFuture<'_, Option<KeyValue>> {
        self.map.get(key)
    }
    fn list(&self, prefix: &str) -> MapFuture<'_, Listing> {
        let listed = self.map.list(match prefix {
            "" => keys::NODES,
            keys::GROUPS => NOTHING,
            other => other,
        });
        Box::pin(async move {
            let mut listing = listed.await?;
            listing.items.retain(|item| is_real(&item.key, self.first));
            Ok(listing)
        })
    }
    fn transact(&self, transaction: Transaction) -> MapFuture<'_, Outcome> {
        self.map.transact(transaction)
    }
    fn watch(&self, prefix: &str, from: Revision) -> Box<dyn Watch> {
        let watch = self.map.watch(if prefix.is_empty() { keys::NODES } else { prefix }, from);
        Box::new(OnlyRealNodes(watch, self.first))
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

impl SimulatedNodes {
    /// Starts them on a core of their own, each on a free port of 127.0.0.1.
    ///
    /// # Errors
    /// A map that has no cluster, a port that cannot be had, no io_uring.
    pub async fn start(map: &Arc<EtcdMap>, (first, count): (NodeId, u32)) -> io::Result<Self> {
        let cluster = get::<ClusterRecord>(&**map, keys::CLUSTER).await.map_err(io::Error::other)?;
        let key = get::<ClusterKeyRecord>(&**map, keys::CLUSTER_KEY).await.map_err(io::Error::other)?;
        let (Some(cluster), Some(key)) = (cluster, key) else {
            return Err(io::Error::other("this etcd has no cluster: `cairn init` makes one"));
        };
        let key = key.record.key.try_into().map_err(|_| io::Error::other("a cluster's key has 32 bytes"))?;
        let cores = Cores::start(1, &Options::default())?;
        let (core, cluster, map) = (cores.handles()[0].clone(), cluster.record.id, map.clone());
        let (told, mut addresses) = cross(1);
        cores.handles()[0].spawn_on(move || async move {
            let only_nodes: Arc<dyn MapStore> = Arc::new(OnlyNodes { map, first });
            let (mut started, mut addresses) = (Vec::new(), Vec::new());
            for id in (first.0..first.0 + count).map(NodeId) {
                let config = NodeConfig {
                    cluster,
                    key: ClusterKey(key),
                    node: id,
                    protocol: Protocol::of_this_build(),
                    address: Some(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))),
                    cores: vec![core.clone()],
                    map: only_nodes.clone(),
                    timing: Timing::default(),
                    owner: Arc::new(|_, _| None),
                };
                match Node::start(config).await {
                    Ok(node) => {
                        addresses.extend(node.address().map(|address| (id, address)));
                        started.push(node);
                    }
                    Err(error) => {
                        let _ = told.send(Err(error)).await;
                        return;
                    }
                }
            }
            for node in &started {
                if let Err(error) = node.begin(Vec::new()).await {
                    let _ = told.send(Err(io::Error::other(error))).await;
                    return;
                }
            }
            let _ = told.send(Ok(addresses)).await;
            std::future::pending::<()>().await;
        });
        let addresses = addresses.recv().await.map_err(io::Error::other)??;
        Ok(Self { _cores: cores, addresses })
    }
}
