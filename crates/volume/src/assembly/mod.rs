//! The data path of one node, from devices to the directory of each core.
//!
//! ```text
//!   start   map: cluster, node, devices, pool     (made once, found again)
//!           device ─► store ─► shards, dealt to cores
//!           replication::node::Node: the groups that have a member here take part, each on its shard's core
//!           map: volume epoch + 1, this node is the head ─► every core's directory
//!   later   volumes made, deleted, kept in the trash and restored; the space of deleted ones given back, also after a
//!           crash
//! ```
//!
//! The assembly lives on the first core, which runs shards like any other. What it decides is in `cluster`.

mod agreeing;
mod at_once;
mod changing;
mod check;
mod client;
mod clients;
mod control;
mod copier;
mod copies;
mod core;
mod devices;
mod encryption;
mod error;
mod growth;
mod heads;
mod hosts;
mod instant;
mod latency;
mod layers;
mod making;
mod moves;
mod owners;
mod peers;
mod raise;
mod relocate;
mod snapshots;
mod speaks;
mod standing;
mod status;
mod tables;
mod trash;
mod usage;
mod watch;

pub(crate) use core::OpenShard;

pub use check::{Check, CheckFault, CheckFinding};
pub use client::{ClientOptions, OpenVolume};
pub use cluster::NewVolume;
pub use copies::GroupCopy;
pub use error::{StartError, VolumeError};
pub use making::PoolInfo;
pub use peers::{Message, PeerNode, Testament};
pub use relocate::Relocation;
pub use speaks::Speaks;
pub use standing::Standings;
pub use status::{DeviceStatus, Fill, NodeStatus, REFUSED_PERCENT, WARNING_PERCENT};
pub use trash::TrashedVolume;
pub use usage::{ByteRange, VolumeUsage};

use crate::api::{Encryption, Standing, VolumeInfo};
use crate::coding::{Coding, DataKey, VolumeKey};
use crate::directory::Directory;
use crate::head::{Head, Lines, VolumeState};
use crate::limit::Limiter;
use crate::message::LocalFuture;
use crate::spec::{TableLayout, VolumeSpec};
use cluster::{
    CatalogError, ClusterKeyRecord, ClusterRecord, LayerRecord, MapStore, PoolRecord, Versions, VolumeRecord,
    begin_delete, ensure, keys, list, load_table, say_address,
};
use devices::{OpenDevice, Opener, Unusable};
use owners::Owners;
use replication::node::{NodeConfig, Timing};
use replication::wire::{ClusterKey, Protocol};
use runtime::channel::{WaitList, cross};
use runtime::{CoreHandle, TaskHandle};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use trash::Trash;
use types::{ClusterId, FamilyId, KeyId, NodeId, StoreId, VolumeId};

/// At a clean stop, commands in flight get so long to end.
const STOP_WAIT: Duration = Duration::from_secs(1);

/// What becomes of a blank device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blank {
    /// It is formatted, unless the map knows of data on it.
    Format,
    /// The node does not start: whoever says that nothing is on it formats it.
    Refuse,
}

/// What a node is started with.
pub struct NodeOptions {
    /// Which node of the cluster this is.
    pub node: NodeId,
    /// Where its peers reach it; port 0: any that is free.
    pub address: SocketAddr,
    /// Its cores; the caller runs on the first one.
    pub cores: Vec<CoreHandle>,
    /// Its devices: block devices, or files that have their size.
    pub devices: Vec<PathBuf>,
    /// What becomes of a blank one.
    pub blank: Blank,
    /// The cluster's map.
    pub map: Arc<dyn MapStore>,
}

/// A node's data path. Clones share it; it lives on the first core.
#[derive(Clone)]
pub struct Assembly(Rc<Node>);

struct Node {
    id: NodeId,
    cluster: ClusterId,
    map: Arc<dyn MapStore>,
    head: Rc<Head>,
    groups: Rc<replication::node::Node>,
    /// Which group holds what.
    owners: Arc<Owners>,
    cores: Vec<CoreHandle>,
    /// In the order in which they came: their shards are dealt to the cores in that order.
    devices: RefCell<Vec<OpenDevice>>,
    /// As long as the map has them.
    unusable: RefCell<Vec<Unusable>>,
    tables: RefCell<Vec<Arc<TableLayout>>>,
    /// Volumes that are served, by name.
    volumes: RefCell<BTreeMap<String, VolumeInfo>>,
    /// Deleted volumes that are kept for a term.
    trash: Trash,
    /// Volumes whose space is being given back.
    deleting: RefCell<Vec<VolumeId>>,
    /// Families whose layers end, and volumes that leave layers.
    families: layers::Tended<FamilyId>,
    leaving: layers::Tended<VolumeId>,
    /// Snapshots of several volumes that are being taken.
    parties: RefCell<instant::Parties>,
    /// How often volumes were rolled back here.
    rollbacks: RefCell<BTreeMap<VolumeId, u64>>,
    /// Who is the head of what.
    heads: heads::Heads,
    controls: control::Controls,
    /// Volumes that move to other groups.
    movings: relocate::Movings,
    /// Of a client: the volumes that it was asked to open. It has nothing to do with others.
    asked_for: RefCell<BTreeSet<VolumeId>>,
    /// What goes on as long as the node does.
    tasks: RefCell<Vec<TaskHandle>>,
    /// Data keys of the volumes that are not locked.
    keys: RefCell<BTreeMap<KeyId, Arc<DataKey>>>,
    /// One layer ends at a time.
    ending: Lock,
    /// Groups of the cluster on devices that this node was not started with: nobody serves them.
    groups_missing: usize,
    /// What was found wrong at the start.
    reasons: Vec<Reason>,
    /// Whether all copies agree, as far as that was looked at.
    check: RefCell<Option<Rc<RefCell<Check>>>>,
    /// One change of a volume at a time.
    changing: changing::Changing,
    /// One key is given or taken away at a time.
    keying: Lock,
    /// One device is added at a time.
    growing: Lock,
    /// One table is read at a time.
    reading_table: Lock,
}

impl Assembly {
    /// Makes a node's devices the cluster's, and serves nothing: so that a pool can be made of those of several nodes before
    /// they start. Returns their stores; nothing changes where it was done before.
    ///
    /// # Errors
    /// As of [`start`](Self::start).
    pub async fn register(
        map: &Arc<dyn MapStore>,
        node: NodeId,
        devices: &[PathBuf],
    ) -> Result<Vec<StoreId>, StartError> {
        Self::register_with(map, node, devices, (Blank::Format, Speaks::of_this_build())).await
    }

    /// The same, with a say about blank devices, and what the program speaks.
    ///
    /// # Errors
    /// As of [`start`](Self::start).
    pub async fn register_with(
        map: &Arc<dyn MapStore>,
        node: NodeId,
        devices: &[PathBuf],
        (blank, speaks): (Blank, Speaks),
    ) -> Result<Vec<StoreId>, StartError> {
        let cluster = ensure(&**map, new_cluster()).await?.record;
        cluster.admits(speaks.cluster_versions)?;
        let opener = Opener::new(map, cluster.id, node, blank).await?;
        let mut stores = Vec::with_capacity(devices.len());
        for path in devices {
            stores.push(opener.open(path).await?.store.store_id());
        }
        Ok(stores)
    }

    /// Starts the node: makes what a new cluster needs, opens what is there, and serves when it returns.
    ///
    /// # Errors
    /// A device, store or map that cannot be opened, or does not belong together. A group that cannot start does not
    /// fail the node: [`status`](Self::status) says so.
    pub async fn start(options: NodeOptions) -> Result<Self, StartError> {
        Self::start_speaking(options, Speaks::of_this_build()).await
    }

    /// The same, with what the program speaks.
    ///
    /// # Errors
    /// As of [`start`](Self::start).
    pub async fn start_speaking(options: NodeOptions, speaks: Speaks) -> Result<Self, StartError> {
        let NodeOptions { node, address, cores, devices: paths, blank, map } = options;
        assert!(!cores.is_empty(), "a node has a core");
        let cluster = ensure(&*map, new_cluster()).await?.record;
        cluster.admits(speaks.cluster_versions)?;
        let opener = Opener::new(&map, cluster.id, node, blank).await?;
        let (mut devices, mut unusable) = (Vec::with_capacity(paths.len()), Vec::new());
        for path in &paths {
            // Two logs on one device would overwrite each other.
            let is_open = |store: &StoreId| devices.iter().any(|there: &OpenDevice| there.store.store_id() == *store);
            if !devices.is_empty()
                && let Some(store) = Opener::store_on(path).await.filter(is_open)
            {
                return Err(StartError::AlreadyServed { path: path.clone(), store });
            }
            match opener.open(path).await {
                Ok(device) => devices.push(device),
                Err(error @ StartError::UnknownStore { .. }) if opener.knows_others(&paths, path) => {
                    log::warn!("{error}: the node serves without it");
                }
                Err(error) => match opener.unusable(path, &error) {
                    // Alone it would have no other copy of what is there.
                    Some(there) if opener.has_other_nodes() => {
                        log::error!("{error}: the node serves without it");
                        unusable.push(there);
                    }
                    _ => return Err(error),
                },
            }
        }
        growth::ensure_groups(&*map, &devices).await?;
        let owners = Arc::new(Owners::default());
        let key = cluster_key(&*map).await?;
        let who = (cluster.id, key, node, Some(address));
        let groups = Rc::new(start_groups(&map, who, (&cores, &owners), speaks.protocol).await?);
        if let Some(address) = groups.address() {
            say_address(&*map, node, address).await?;
        }
        let started = Self::start_on(&groups, map, cores, (devices, unusable), (cluster.id, node, owners)).await;
        if started.is_err() {
            groups.stop().await;
        }
        started
    }

    /// The rest of a start.
    async fn start_on(
        groups: &Rc<replication::node::Node>,
        map: Arc<dyn MapStore>,
        cores: Vec<CoreHandle>,
        (devices, unusable): (Vec<OpenDevice>, Vec<Unusable>),
        (cluster, node, owners): (ClusterId, NodeId, Arc<Owners>),
    ) -> Result<Self, StartError> {
        let started = start_cores(&map, groups, &cores, &devices, node).await?;
        let StartedCores { head, tables, groups_missing, reasons } = started;
        for volume in list::<VolumeRecord>(&*map, keys::VOLUMES).await? {
            // Others are learned when they are seen.
            if let Some(table) = tables.iter().find(|table| table.id == volume.record.table) {
                owners.learn(&volume.record, table);
            }
        }
        begin_groups(groups, &devices, cores.len()).await?;
        let this = Self(Rc::new(Node {
            id: node,
            cluster,
            map,
            head,
            groups: groups.clone(),
            owners,
            cores,
            devices: RefCell::new(devices),
            unusable: RefCell::new(unusable),
            tables: RefCell::new(tables),
            volumes: RefCell::default(),
            trash: Trash::default(),
            deleting: RefCell::default(),
            families: RefCell::default(),
            leaving: RefCell::default(),
            parties: RefCell::default(),
            rollbacks: RefCell::default(),
            heads: heads::Heads::default(),
            controls: control::Controls::default(),
            movings: relocate::Movings::default(),
            asked_for: RefCell::default(),
            tasks: RefCell::default(),
            keys: RefCell::default(),
            ending: Lock::default(),
            groups_missing,
            reasons,
            check: RefCell::default(),
            changing: changing::Changing::default(),
            keying: Lock::default(),
            growing: Lock::default(),
            reading_table: Lock::default(),
        }));
        this.agree_on_copies();
        this.begin_heads().await?;
        this.answer_instants();
        this.answer_checks();
        if !node.is_client() {
            this.begin_control();
        }
        this.tell_trash().await;
        this.tell_locked().await;
        this.watch_devices();
        Ok(this)
    }

    /// The cluster.
    pub fn cluster_id(&self) -> ClusterId {
        self.0.cluster
    }

    /// The volumes as the first core serves them.
    pub fn directory(&self) -> Directory {
        self.0.head.directory.clone()
    }

    /// Starts a task on a core, with that core's directory.
    pub fn spawn_on<F: Future<Output = ()> + 'static>(
        &self,
        core: usize,
        make: impl FnOnce(Directory) -> F + Send + 'static,
    ) {
        let make = move |head: Rc<Head>| Box::pin(make(head.directory.clone())) as LocalFuture;
        self.0.head.spawn_on(core as u16, make);
    }

    /// The volumes that clients of this node can ask for, by name.
    pub fn volumes(&self) -> Vec<VolumeInfo> {
        let volumes = self.0.volumes.borrow();
        volumes.values().filter(|info| !info.is_draft).map(|info| self.as_it_is_led(info.clone())).collect()
    }

    /// Deletes a volume for good. When this returns no core serves it and no command of it runs; its space comes back
    /// in the background, also after a restart. [`trash_volume`](Self::trash_volume) is the way that leads back.
    pub async fn delete_volume(&self, name: &str) -> Result<(), VolumeError> {
        let (info, by, _alone) = self.alone_with(name).await?;
        self.moves_not(&info)?;
        let volume = begin_delete(&*self.0.map, name, by).await?;
        self.take_away(volume.id).await;
        self.erase_in_background(&volume);
        Ok(())
    }

    /// Serves the volume no more, on any core; returns when no command of it runs.
    async fn take_away(&self, id: VolumeId) {
        // It may have had another name.
        self.0.volumes.borrow_mut().retain(|_, info| info.id != id);
        self.on_all_cores(move |head| Box::pin(async move { VolumeState::remove(&head, id).await })).await;
        self.on_all_cores(move |head| Box::pin(async move { drop(VolumeState::forget(&head, id)) })).await;
        self.tell_locked().await;
    }

    /// Ends cleanly: nothing new is let in, what runs gets a second to end, and the shards are closed.
    pub async fn stop(&self) {
        self.0.tasks.take().into_iter().for_each(TaskHandle::cancel);
        self.0.head.directory.clients().are_fetched_for(None);
        self.0.head.directory.clients().are_given_by(None);
        let volumes: Vec<VolumeId> = self.0.volumes.borrow().values().map(|volume| volume.id).collect();
        for id in volumes {
            let gone = self.on_all_cores(move |head| Box::pin(async move { VolumeState::stop(&head, id).await }));
            let _ = runtime::timeout(STOP_WAIT, gone).await;
        }
        let closed = self.on_all_cores(|head| Box::pin(async move { core::close(&head).await }));
        let _ = runtime::timeout(STOP_WAIT, closed).await;
        let _ = runtime::timeout(STOP_WAIT, self.0.groups.stop()).await;
    }

    /// Serves the volume on every core, unless it is locked, in the epoch that this node has taken.
    async fn add(&self, volume: &VolumeRecord) -> Result<(), VolumeError> {
        self.0.heads.have_taken(volume);
        self.list(volume, Standing::Here).await
    }

    /// Every core knows the volume, unless it is locked.
    async fn list(&self, volume: &VolumeRecord, standing: Standing) -> Result<(), VolumeError> {
        let spec = self.spec(volume).await?;
        let info = spec.info.clone();
        if info.encryption == Encryption::Locked {
            self.0.volumes.borrow_mut().insert(info.name.clone(), info);
            return Ok(());
        }
        self.on_all_cores(move |head| {
            let spec = spec.clone();
            Box::pin(async move { VolumeState::add(&head, spec, standing) })
        })
        .await;
        self.0.volumes.borrow_mut().insert(info.name.clone(), info);
        self.tell_snapshots(volume.id, None).await
    }

    /// How often the volume was rolled back since this node knows it.
    fn rollbacks(&self, id: VolumeId) -> u64 {
        self.0.rollbacks.borrow().get(&id).copied().unwrap_or_default()
    }

    async fn spec(&self, volume: &VolumeRecord) -> Result<Arc<VolumeSpec>, VolumeError> {
        self.spec_after(volume, self.rollbacks(volume.id)).await
    }

    /// What the volume is after so many rollbacks.
    async fn spec_after(&self, volume: &VolumeRecord, rollbacks: u64) -> Result<Arc<VolumeSpec>, VolumeError> {
        let table = self.learn(volume).await?;
        let placed = self.placed(volume.table);
        let mut layers = Vec::with_capacity(volume.layers.len());
        for &id in &volume.layers {
            let found = cluster::get::<LayerRecord>(&*self.0.map, &keys::layer(id)).await?;
            let found = found.ok_or(VolumeError::NoLayer { volume: volume.name.clone(), layer: id })?;
            if found.record.key_id != volume.key.unwrap_or_default() {
                return Err(VolumeError::OtherKey { volume: volume.name.clone(), layer: id });
            }
            layers.push(layer_record(&found.record));
        }
        let coding = self.coding(volume).await?;
        Ok(Arc::new(
            VolumeSpec::new(volume, table, layers, coding, self.limiter(volume)).placed(placed).after(rollbacks),
        ))
    }

    /// What keeps the volume's limits: what did so far, unless they are others now.
    fn limiter(&self, volume: &VolumeRecord) -> Option<Arc<Limiter>> {
        let served = self.0.head.directory.by_id(volume.id);
        let so_far = served.and_then(|volume| volume.state.gate.limiter());
        let is_same = |limiter: &Arc<Limiter>| limiter.limits() == volume.limits;
        so_far.filter(is_same).or_else(|| Limiter::new(volume.limits, runtime::now()).map(Arc::new))
    }

    /// How the volume's blocks are stored from now on.
    async fn coding(&self, volume: &VolumeRecord) -> Result<Coding, VolumeError> {
        let pool = cluster::get::<PoolRecord>(&*self.0.map, &keys::pool(&volume.pool)).await?;
        let pool = pool.ok_or_else(|| CatalogError::NoPool(volume.pool.clone()))?.record;
        let keys = self.0.keys.borrow();
        let key = volume.key.and_then(|id| keys.get(&id).cloned().map(|data| VolumeKey { id, data }));
        Ok(Coding { compression: pool.compression, key })
    }

    /// Asks every core, with its head; the answers come in no order.
    async fn on_each_core<T: Send + 'static>(
        &self,
        make: impl Fn(Rc<Head>) -> Pin<Box<dyn Future<Output = T>>> + Send + Clone + 'static,
    ) -> Vec<T> {
        let (told, mut all_told) = cross(self.0.cores.len());
        for core in 0..self.0.cores.len() as u16 {
            let (make, told) = (make.clone(), told.clone());
            self.0.head.spawn_on(core, move |head| {
                Box::pin(async move {
                    let answer = make(head).await;
                    let _ = told.send(answer).await;
                })
            });
        }
        let mut answers = Vec::with_capacity(self.0.cores.len());
        for _ in &self.0.cores {
            answers.extend(all_told.recv().await.ok());
        }
        answers
    }

    /// Runs a task on every core, with its head, and waits for all of them.
    async fn on_all_cores(&self, make: impl Fn(Rc<Head>) -> LocalFuture + Send + Clone + 'static) {
        self.on_each_core(make).await;
    }
}

/// One at a time, within a core.
#[derive(Default)]
struct Lock {
    taken: Cell<bool>,
    freed: WaitList,
}

impl Lock {
    async fn lock(&self) -> Locked<'_> {
        self.freed.until(|| (!self.taken.replace(true)).then(|| Locked(self))).await
    }
}

struct Locked<'a>(&'a Lock);

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        self.0.taken.set(false);
        self.0.freed.wake_all();
    }
}

fn new_cluster() -> ClusterRecord {
    let id = ClusterId(devices::random_u128());
    let cluster_version = Versions::OF_THIS_BUILD.highest;
    ClusterRecord { id, cluster_version, finished: None, created_at_ns: runtime::wall_clock_ns(), replicas: None }
}

fn new_cluster_key() -> ClusterKeyRecord {
    ClusterKeyRecord { key: (0..4).flat_map(|_| runtime::random_u64().to_le_bytes()).collect() }
}

/// A cluster to be, whose first pool keeps so many copies, and what its nodes are to know each other by.
pub fn draft_cluster(replicas: u32) -> (ClusterRecord, ClusterKeyRecord) {
    (ClusterRecord { replicas: Some(replicas), ..new_cluster() }, new_cluster_key())
}

fn layer_record(record: &LayerRecord) -> store::format::LayerRecord {
    store::format::LayerRecord {
        layer: record.id,
        parent: record.parent,
        family: record.family,
        created_at_ns: record.created_at_ns,
        retain_until_ns: 0,
        key: record.key_id,
    }
}

/// The cores at work.
struct StartedCores {
    /// The head on the first core.
    head: Rc<Head>,
    tables: Vec<Arc<TableLayout>>,
    groups_missing: usize,
    /// What could not be started, and damage that was found.
    reasons: Vec<Reason>,
}

/// Something that was wrong when the node started.
pub(crate) struct Reason {
    /// The store that lacks something because of it, until all of that has come from other copies.
    lost_by: Option<StoreId>,
    text: String,
}

/// What the cluster's nodes know each other by: made by the first that asks.
async fn cluster_key(map: &dyn MapStore) -> Result<ClusterKey, StartError> {
    key_in(ensure(map, new_cluster_key()).await?.record)
}

fn key_in(record: ClusterKeyRecord) -> Result<ClusterKey, StartError> {
    let key = record.key.try_into().map_err(|_| CatalogError::BadRecord {
        key: keys::CLUSTER_KEY.to_owned(),
        why: "a cluster's key has 32 bytes".to_owned(),
    })?;
    Ok(ClusterKey(key))
}

/// The node's share of replication, on all cores and without stores.
async fn start_groups(
    map: &Arc<dyn MapStore>,
    (cluster, key, node, address): (ClusterId, ClusterKey, NodeId, Option<SocketAddr>),
    (cores, owners): (&[CoreHandle], &Arc<Owners>),
    protocol: Protocol,
) -> Result<replication::node::Node, StartError> {
    let owners = owners.clone();
    let config = NodeConfig {
        cluster,
        key,
        node,
        protocol,
        address,
        cores: cores.to_vec(),
        map: map.clone(),
        timing: Timing::default(),
        owner: Arc::new(move |family, chunk| owners.of(family, chunk)),
    };
    let failed = |error: std::io::Error| match address {
        Some(address) => StartError::Address { address, message: error.to_string() },
        None => StartError::CoreEnded,
    };
    replication::node::Node::start(config).await.map_err(failed)
}

/// The groups that have a member here take part. When this returns, those that have no other serve, or never will.
async fn begin_groups(
    groups: &replication::node::Node,
    devices: &[OpenDevice],
    cores: usize,
) -> Result<(), StartError> {
    let deal = core::Deal::new(devices, cores);
    let with_core = |device: &OpenDevice| (device.store.clone(), deal.first_core_of(device.store.store_id()));
    groups.begin(devices.iter().map(with_core).collect()).await?;
    those_alone_have_begun(groups, cores).await;
    Ok(())
}

async fn those_alone_have_begun(groups: &replication::node::Node, cores: usize) {
    for core in 0..cores {
        groups.on_core(core, |core| Box::pin(async move { core.those_alone_have_begun().await })).await;
    }
}

/// Deals shards to cores and opens them.
async fn start_cores(
    map: &Arc<dyn MapStore>,
    groups: &replication::node::Node,
    cores: &[CoreHandle],
    devices: &[OpenDevice],
    node: NodeId,
) -> Result<StartedCores, StartError> {
    let all = core::Known::of(&**map, node).await?;
    let deal = core::Deal::new(devices, cores.len());
    let mut tables = Vec::new();
    for id in growth::tables_in_use(&**map).await? {
        tables.push(Arc::new(deal.layout(id, load_table(&**map, id).await?, &all)));
    }

    let (started, mut all_started) = cross(cores.len());
    let mut first = None;
    let barriers = core::Barrier::between(cores.len());
    for (index, (lines, barrier)) in Lines::between(cores.len()).into_iter().zip(barriers).enumerate().rev() {
        let plan = deal.plan(index as u16, (0, all.if_device_fails()), &all, &tables);
        let started = started.clone();
        let start = move |head: Rc<Head>| async move {
            let outcome = core::start(&head, plan, barrier).await;
            let _ = started.send(outcome).await;
        };
        if index == 0 {
            let head = Head::start(lines, groups.first_core().clone());
            first = Some(head.clone());
            start(head).await;
        } else {
            groups
                .on_core(index, move |core| {
                    runtime::spawn(start(Head::start(lines, core)));
                    Box::pin(std::future::ready(()))
                })
                .await;
        }
    }
    drop(started);
    let head = first.expect("a node has a core");
    let mut reasons = Vec::new();
    for _ in cores {
        let outcome = all_started.recv().await.map_err(|_| StartError::CoreEnded)?;
        reasons.extend(outcome?);
    }
    let of_device = |device: &OpenDevice| {
        let lost_by = Some(device.store.store_id());
        device.damage().map(|text| Reason { lost_by, text }).collect::<Vec<_>>()
    };
    reasons.extend(devices.iter().flat_map(of_device));
    let groups_missing = all.groups.iter().filter(|group| deal.is_missing(group, &all)).count();
    if groups_missing > 0 {
        let text =
            format!("{groups_missing} groups are on devices that this node was not started with: start it with them");
        reasons.push(Reason { lost_by: None, text });
    }
    Ok(StartedCores { head, tables, groups_missing, reasons })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    #[test]
    fn who_waits_for_a_lock_does_not_give_it_back() {
        let lock = Lock::default();
        let mut context = Context::from_waker(Waker::noop());
        let mut first = pin!(lock.lock());
        let Poll::Ready(held) = first.as_mut().poll(&mut context) else { panic!("it is free") };
        let (mut second, mut third) = (pin!(lock.lock()), pin!(lock.lock()));
        assert!(second.as_mut().poll(&mut context).is_pending(), "it is taken");
        assert!(third.as_mut().poll(&mut context).is_pending(), "it is taken still");
        drop(held);
        assert!(second.as_mut().poll(&mut context).is_ready());
    }
}
