//! A node's share of replication: its stores' members, connections to other nodes, beats, the map.
//!
//! ```text
//!   first core   MapSide: session, watch, looks, changes of records      beats: one per pair of nodes
//!                     ╲                                                     ╱
//!   each core     CoreGroups: shards and their groups ◄─ policy: timers ─► View: who was heard of
//!                     │
//!                  links: one connection per pair of cores that talk ◄────► cores of other nodes
//! ```
//!
//! **Promises.** A core that hangs is not spoken for: a beat and its answer name the cores that move (R19). Nothing waits
//! for a connection: what has no room is sent again. No timer per group, none per request.
//!
//! **Never.** No decision about a group: that is the protocol's.
//!
//! Main types: [`Node`], [`CoreGroups`], [`Timing`].

mod beats;
mod calls;
mod connection;
mod core;
mod cut_off;
mod heads;
mod hello;
mod link;
mod links;
mod map_side;
mod orders;
mod policy;
mod timing;
mod view;

pub use self::calls::{CALL_BYTES_MAX, CALLS_MAX, CallError, Called, Handler, Peer};
pub use self::core::CoreGroups;
pub use self::link::Kept;
pub use crate::wire::{MAX_CALL_BYTES, MAX_CALL_HEAD_BYTES, Parcel, Service};
pub(crate) use link::{Line, Link};
pub(crate) use policy::Timers;
pub use timing::Timing;

use crate::fill::Owner;
use crate::wire::{ClusterKey, Protocol};
use cluster::{CatalogError, LeaseId, MapStore};
use hello::accept;
use map_side::MapSide;
use runtime::channel::{CrossReceiver, CrossSender, cross};
use runtime::{CoreHandle, TcpListener};
use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use store::Store;
use types::{ClusterId, Incarnation, NodeId, StoreId};

/// What a core is asked to do for another.
pub(crate) type Work = Box<dyn FnOnce(Rc<CoreGroups>) -> Pin<Box<dyn Future<Output = ()>>> + Send>;

/// What cores ask of each other waits in a line of so many.
const LINE_LENGTH: usize = 4096;
/// Entries that are read from the store for one message.
pub(crate) const READ_BYTES_MAX: usize = 512 << 10;
/// A map that does not answer is asked again after this.
const MAP_WAIT: Duration = Duration::from_secs(1);

/// What all cores of a node share.
pub(crate) struct Shared {
    pub(crate) cluster: ClusterId,
    pub(crate) key: ClusterKey,
    pub(crate) node: NodeId,
    pub(crate) incarnation: Incarnation,
    pub(crate) protocol: Protocol,
    pub(crate) spoken: Spoken,
    pub(crate) timing: Timing,
    pub(crate) lines: Vec<CrossSender<Work>>,
    pub(crate) owner: Owner,
    /// A store holds layers of a family that nobody here knows: the map is to be asked which there are.
    pub(crate) wants_families: AtomicBool,
    /// Per core: goes up as long as it moves.
    pub(crate) turned: Vec<AtomicU64>,
    /// Connections by node, core here and core there: changed when one begins or ends.
    connections: Mutex<BTreeMap<(NodeId, u16, u16), u32>>,
}

impl Shared {
    /// A connection between these cores begins to be served, or is served no more.
    pub(crate) fn count_connection(&self, cores: (NodeId, u16, u16), is_begun: bool) {
        let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        let count = connections.entry(cores).or_default();
        *count = if is_begun { *count + 1 } else { count.checked_sub(1).expect("it had begun") };
        if *count == 0 {
            connections.remove(&cores);
        }
    }
}

/// How much goes on between this node and another, see [`Node::traffic`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeerTraffic {
    /// Connections between cores of both; of this node with itself both ends count.
    pub connections: u32,
    /// Pairs of cores between which there are any.
    pub core_pairs: u32,
    /// Beats sent to it since the start.
    pub beats_sent: u64,
    /// Of these, those that it has answered.
    pub beats_answered: u64,
}

/// What was said and heard of what only a [rehearsed](Protocol::rehearsal) release has, and what should not have come.
#[derive(Default)]
pub(crate) struct Spoken {
    pub(crate) sent: AtomicU64,
    pub(crate) received: AtomicU64,
    pub(crate) fields_sent: AtomicU64,
    pub(crate) fields_received: AtomicU64,
    pub(crate) refused: AtomicU64,
}

/// See [`Node::spoken`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpokenCounts {
    /// Frames that only a rehearsed release has, sent.
    pub sent: u64,
    /// Such frames received.
    pub received: u64,
    /// Beats received with the field that such a release appends, from nodes that have it, too.
    pub fields_received: u64,
    /// Connections that were closed because of what no node sends.
    pub refused: u64,
}

/// What a node is started with.
pub struct NodeConfig {
    /// The cluster.
    pub cluster: ClusterId,
    /// What its nodes know each other by.
    pub key: ClusterKey,
    /// Which node of it this is.
    pub node: NodeId,
    /// What it speaks.
    pub protocol: Protocol,
    /// Where other nodes reach it; they find it in the map. `None`: it connects to them, and they never to it.
    pub address: Option<SocketAddr>,
    /// Its cores; the caller runs on the first one.
    pub cores: Vec<CoreHandle>,
    /// The cluster's map.
    pub map: Arc<dyn MapStore>,
    /// How long things last: the same on all nodes.
    pub timing: Timing,
    /// Which group holds a chunk of a family: what is compared when a member catches up.
    pub owner: Owner,
}

/// A node's share of replication. Lives on the first core.
pub struct Node {
    first: Rc<CoreGroups>,
    side: Rc<MapSide>,
    address: Option<SocketAddr>,
}

impl Node {
    /// Starts it on all cores, without stores.
    ///
    /// # Errors
    /// An address that cannot be listened on.
    ///
    /// # Panics
    /// Without a core.
    pub async fn start(config: NodeConfig) -> io::Result<Self> {
        let NodeConfig { cluster, key, node, protocol, address, cores, map, timing, owner } = config;
        assert!(!cores.is_empty(), "a node has a core");
        let listener = address.map(TcpListener::bind).transpose()?;
        let address = listener.as_ref().map(TcpListener::local_address);
        let (lines, receivers): (Vec<_>, Vec<_>) = cores.iter().map(|_| cross::<Work>(LINE_LENGTH)).unzip();
        let shared = Arc::new(Shared {
            cluster,
            key,
            node,
            incarnation: Incarnation(runtime::wall_clock_ns()),
            protocol,
            spoken: Spoken::default(),
            timing,
            lines,
            owner,
            wants_families: AtomicBool::new(false),
            turned: cores.iter().map(|_| AtomicU64::new(0)).collect(),
            connections: Mutex::default(),
        });
        let mut first = None;
        for (index, receiver) in receivers.into_iter().enumerate() {
            let shared = shared.clone();
            if index == 0 {
                let core = CoreGroups::new(shared, 0);
                first = Some(core.clone());
                runtime::spawn(run_core(core, receiver));
            } else {
                cores[index].spawn_on(move || async move {
                    run_core(CoreGroups::new(shared, index as u16), receiver).await;
                });
            }
        }
        let first = first.expect("a node has a core");
        let side = Rc::new(MapSide::new(map, cores.len() as u16));
        let _ = first.map_side.set(side.clone());
        if let Some(listener) = listener {
            first.keep_on(accept(first.clone(), listener));
        }
        Ok(Self { first, side, address })
    }

    /// Where other nodes reach it, with the port that was taken; nowhere, if it does not listen.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// What its cluster's nodes know each other by.
    pub fn key(&self) -> ClusterKey {
        self.first.shared.key
    }

    /// Where nodes are reached, by number; this one too.
    pub fn addresses(&self) -> Vec<(NodeId, SocketAddr)> {
        let known = self.first.addresses.borrow();
        let mut all: Vec<_> = known.iter().map(|(node, address)| (*node, *address)).collect();
        all.sort_unstable();
        all
    }

    /// Nodes with which there is no connection because they speak no version of the protocol that this one does, each with what
    /// to do.
    pub fn apart(&self) -> Vec<(NodeId, String)> {
        self.first.apart.borrow().iter().map(|(node, why)| (*node, why.clone())).collect()
    }

    /// What was said and heard of a later release than this one, since the start.
    pub fn spoken(&self) -> SpokenCounts {
        let spoken = &self.first.shared.spoken;
        SpokenCounts {
            sent: spoken.sent.load(Relaxed),
            received: spoken.received.load(Relaxed),
            fields_received: spoken.fields_received.load(Relaxed),
            refused: spoken.refused.load(Relaxed),
        }
    }

    /// Connections with each node, this one too, and beats.
    pub fn traffic(&self) -> BTreeMap<NodeId, PeerTraffic> {
        let mut all: BTreeMap<NodeId, PeerTraffic> = BTreeMap::new();
        let connections = self.first.shared.connections.lock().unwrap_or_else(PoisonError::into_inner);
        for ((node, ..), count) in &*connections {
            let its = all.entry(*node).or_default();
            (its.connections, its.core_pairs) = (its.connections + count, its.core_pairs + 1);
        }
        for (node, (sent, answered)) in &*self.first.beats.borrow() {
            let its = all.entry(*node).or_default();
            (its.beats_sent, its.beats_answered) = (*sent, *answered);
        }
        all
    }

    /// The lease of the node's session in the map: what is put under it goes with the session. It may have just ended.
    pub fn session_lease(&self) -> Option<LeaseId> {
        self.side.lease()
    }

    /// How long another node has answered no beat: a hint that it may be gone, and no more than that.
    pub fn silence_of(&self, node: NodeId) -> Duration {
        self.first.silence_of(node)
    }

    /// Whether another node leads any group, as far as is known.
    pub fn leads_any(&self, node: NodeId) -> bool {
        self.first.leads_any(node)
    }

    /// The first core's share.
    pub fn first_core(&self) -> &Rc<CoreGroups> {
        &self.first
    }

    /// Has a core do something, with its share of the node; returns its answer.
    ///
    /// # Panics
    /// If the core has ended.
    pub async fn on_core<T: Send + 'static>(
        &self,
        core: usize,
        work: impl FnOnce(Rc<CoreGroups>) -> Pin<Box<dyn Future<Output = T>>> + Send + 'static,
    ) -> T {
        let (told, mut answer) = cross(1);
        self.first.on(core as u16, move |core| {
            let work = work(core);
            Box::pin(async move { drop(told.try_send(work.await)) })
        });
        answer.recv().await.expect("the core lives as long as the node")
    }

    /// All shards of these stores are there; shard i of each is on core (its first + i) mod cores. The map is looked at,
    /// again and again until it answers, and the groups that have a member here take part from now on.
    ///
    /// # Errors
    /// A map that holds what cannot be read.
    pub async fn begin(&self, stores: Vec<(Arc<Store>, u16)>) -> Result<(), CatalogError> {
        self.side.add_stores(stores);
        while let Err(error) = self.side.look_at_all(&self.first).await {
            match error {
                CatalogError::Map(error) => log::warn!("groups are not served before the map says who leads: {error}"),
                error => return Err(error),
            }
            runtime::sleep(MAP_WAIT).await;
        }
        self.first.keep_on(self.side.clone().follow(self.first.clone()));
        self.first.keep_on(self.side.clone().keep_session(self.first.clone()));
        self.first.keep_on(beats::run(self.first.clone()));
        Ok(())
    }

    /// All shards of another store are there too: the groups that have a member in it take part from now on.
    ///
    /// # Errors
    /// The map's.
    pub async fn add(&self, store: Arc<Store>, first_core: u16) -> Result<(), CatalogError> {
        let id = store.store_id();
        self.side.add_stores(vec![(store, first_core)]);
        let added = async {
            self.side.say_stores_again(self.first.shared.node).await?;
            self.side.look_at_all(&self.first).await
        };
        let added = added.await;
        if added.is_err() {
            self.remove(id);
        }
        added
    }

    /// The store is not there any more.
    pub fn remove(&self, store: StoreId) {
        self.side.remove_store(store);
        let side = self.side.clone();
        runtime::spawn(async move { side.let_go(store).await });
    }

    /// Ends: other nodes take over what it led as soon as they see it.
    pub async fn stop(&self) {
        self.side.end_session().await;
        for core in (0..self.first.shared.lines.len()).rev() {
            self.on_core(core, |core| {
                core.end();
                Box::pin(std::future::ready(()))
            })
            .await;
        }
    }
}

/// Does what other cores ask, for ever; and looks after the groups of this one.
async fn run_core(core: Rc<CoreGroups>, mut line: CrossReceiver<Work>) {
    core.keep_on(policy::run(core.clone()));
    while !core.has_ended()
        && let Ok(work) = line.recv().await
    {
        let mut work = work(core.clone());
        let done = std::future::poll_fn(|cx| std::task::Poll::Ready(work.as_mut().poll(cx).is_ready())).await;
        if !done {
            runtime::spawn(work);
        }
    }
}
