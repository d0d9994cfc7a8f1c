//! A storage node of the cluster: what ships, on simulated cores, and what a test sees of it.
//!
//! The machine outlives its processes. A process opens the stores of its node, gives their shards to the node of
//! `replication`, and begins; a store that does not open is left out, and the reason is kept.

use super::layout::{CLUSTER, DISK_BYTES, Layout, node_id};
use super::profile::Profile;
use super::story::tell;
use super::witness::Witness;
use cluster::{CatalogError, SimMap};
use replication::GroupShard;
use replication::node::{CoreGroups, Node, NodeConfig, SpokenCounts};
use replication::wire::Protocol;
use runtime::sim::{DiskOptions, SimDisk, SimNode};
use runtime::{Device, timeout};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use store::{FormatOptions, OpenError, Recovered, Shard, Store, StoreError};
use types::{GroupId, NodeId, ShardIndex};

/// A device that does not answer for so long while it is opened is left out.
const OPENING_LIMIT: Duration = Duration::from_secs(40);

/// A node and whatever process runs on it.
pub struct Machine {
    pub index: usize,
    pub node: SimNode,
    /// By the index of the store; disks of others are not here.
    disks: RefCell<BTreeMap<usize, SimDisk>>,
    /// Those of them that are no stores yet.
    blank: RefCell<BTreeSet<usize>>,
    /// Shards that stores are made with.
    shards: u8,
    /// How often disks lied that are here no more.
    past_lies: Cell<u64>,
    layout: Rc<Layout>,
    map: Arc<SimMap>,
    cleans: bool,
    witness: Rc<Witness>,
    process: RefCell<Option<Rc<Process>>>,
    /// Something was told to be durable that a flush may have lost: only the loss of power makes its caches honest.
    pub needs_power_cycle: Cell<bool>,
    /// It is gone for good.
    pub is_lost: Cell<bool>,
    /// Processes so far.
    pub starts: Cell<u32>,
    mixes_releases: bool,
    /// What processes that have ended have heard of a later release.
    past_spoken: Cell<SpokenCounts>,
}

/// One process, filled in as it comes up.
#[derive(Default)]
pub struct Process {
    pub node: RefCell<Option<Rc<Node>>>,
    /// By core.
    pub cores: RefCell<BTreeMap<usize, Rc<CoreGroups>>>,
    /// What was opened, by the index of the store.
    pub stores: RefCell<BTreeMap<usize, Arc<Store>>>,
    /// Read, and not begun.
    recovered: RefCell<BTreeMap<(usize, ShardIndex), Recovered>>,
    pub refused: RefCell<Vec<Refusal>>,
    /// What was damaged in shards that were opened all the same.
    pub damage: RefCell<Vec<String>>,
    /// Is shown what its stores take.
    witness: Rc<Witness>,
    /// All that opened takes part in its groups.
    pub begun: Cell<bool>,
}

/// Why a store, or all of the process, does not serve.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Refusal {
    #[error("something durable is damaged or missing: {0}")]
    Damage(String),
    #[error("the device does not answer, or fails: {0}")]
    Device(String),
    #[error("the map does not answer: {0}")]
    Map(String),
    #[error("{0}")]
    Other(String),
}

thread_local! {
    /// The processes of this thread's world, for what is carried to another core: only what may be sent gets there.
    static PROCESSES: RefCell<BTreeMap<NodeId, Rc<Process>>> = const { RefCell::new(BTreeMap::new()) };
}

fn process_of(node: NodeId) -> Option<Rc<Process>> {
    PROCESSES.with_borrow(|processes| processes.get(&node).cloned())
}

impl Machine {
    pub fn new(
        index: usize,
        node: SimNode,
        disks: BTreeMap<usize, SimDisk>,
        layout: &Rc<Layout>,
        map: &SimMap,
        profile: &Profile,
        witness: &Rc<Witness>,
    ) -> Rc<Self> {
        let (layout, map) = (layout.clone(), map.handle_for(node_id(index)));
        let (process, needs_power_cycle, starts, past_lies) = Default::default();
        Rc::new(Self {
            index,
            node,
            blank: RefCell::new(disks.keys().copied().collect()),
            disks: RefCell::new(disks),
            shards: profile.shards,
            past_lies,
            layout,
            map,
            cleans: profile.cleans,
            witness: witness.clone(),
            process,
            needs_power_cycle,
            is_lost: Cell::new(index >= profile.nodes),
            starts,
            mixes_releases: profile.mixes_releases,
            past_spoken: Cell::default(),
        })
    }

    /// A disk of the node.
    pub fn disk(&self, store: usize) -> Option<SimDisk> {
        self.disks.borrow().get(&store).cloned()
    }

    /// The stores whose disks are here.
    pub fn stores(&self) -> Vec<usize> {
        self.disks.borrow().keys().copied().collect()
    }

    /// In the place of a disk there is a blank one. The node is down.
    pub fn replace_disk(&self, store: usize, spare: usize, options: DiskOptions) {
        let disk = self.node.add_disk(&self.layout.stores[spare].path, DISK_BYTES, options);
        let mut disks = self.disks.borrow_mut();
        if let Some(before) = disks.remove(&store) {
            self.past_lies.set(self.past_lies.get() + before.lies());
        }
        disks.insert(spare, disk);
        self.blank.borrow_mut().insert(spare);
    }

    /// Makes the node's blank devices stores.
    pub async fn format(self: Rc<Self>) -> Result<(), String> {
        let blank: Vec<usize> = self.blank.borrow().iter().copied().collect();
        for store in blank {
            let plan = &self.layout.stores[store];
            let device = Device::open(Path::new(&plan.path)).await.map_err(|error| error.to_string())?;
            let options = FormatOptions {
                segment_size_bytes: None,
                shard_count: Some(self.shards),
                ..FormatOptions::with_random_key(CLUSTER, plan.id)
            };
            match store::format(&device, &options).await {
                // The power went when it was done already.
                Ok(()) | Err(StoreError::Occupied { cluster: CLUSTER, .. }) => {}
                Err(error) => return Err(error.to_string()),
            }
            self.blank.borrow_mut().remove(&store);
        }
        Ok(())
    }

    /// The process that runs.
    pub fn process(&self) -> Option<Rc<Process>> {
        self.process.borrow().clone()
    }

    /// Whether all that can serve does, as far as the process knows.
    pub fn has_begun(&self) -> bool {
        self.process().is_some_and(|process| process.begun.get())
    }

    /// Starts a process, and the node if it is down.
    pub fn start(self: &Rc<Self>) {
        if !self.node.is_up() {
            self.node.start();
        }
        let process = Rc::new(Process { witness: self.witness.clone(), ..Process::default() });
        self.starts.set(self.starts.get() + 1);
        tell(format_args!("node {}: process {} starts", self.index, self.starts.get()));
        *self.process.borrow_mut() = Some(process.clone());
        PROCESSES.with_borrow_mut(|processes| processes.insert(node_id(self.index), process.clone()));
        let machine = self.clone();
        self.node.spawn(0, async move {
            if let Err(refusal) = machine.serve(&process).await {
                tell(format_args!("node {}: {refusal}", machine.index));
                process.refused.borrow_mut().push(refusal);
            }
        });
    }

    /// Ends the process: the power goes, or it is killed.
    pub fn stop(&self, power_lost: bool) {
        // What it held goes with its tasks, while its cores still live.
        self.forget();
        tell(format_args!("node {}: process {} ends", self.index, self.starts.get()));
        match power_lost || self.needs_power_cycle.get() {
            true => {
                self.node.crash();
                self.needs_power_cycle.set(false);
            }
            false => self.node.kill(),
        }
    }

    /// Lets go of the process: its tasks hold what they need.
    pub fn forget(&self) {
        self.past_spoken.set(self.spoken());
        *self.process.borrow_mut() = None;
        PROCESSES.with_borrow_mut(|processes| processes.remove(&node_id(self.index)));
    }

    /// What all of its processes have said and heard of a later release.
    pub fn spoken(&self) -> SpokenCounts {
        let past = self.past_spoken.get();
        let now = self.process().and_then(|process| process.node.borrow().as_ref().map(|node| node.spoken()));
        let now = now.unwrap_or_default();
        SpokenCounts {
            sent: past.sent + now.sent,
            received: past.received + now.received,
            fields_received: past.fields_received + now.fields_received,
            refused: past.refused + now.refused,
        }
    }

    /// What its process speaks: of two that follow each other, one is of a later release, where they are of two.
    fn speaks(&self) -> Protocol {
        match self.mixes_releases && (self.index as u32 + self.starts.get()).is_multiple_of(2) {
            true => Protocol::rehearsal(),
            false => Protocol::of_this_build(),
        }
    }

    /// Why something of the process does not serve.
    pub fn refusals(&self) -> Vec<Refusal> {
        self.process().map_or_else(Vec::new, |process| process.refused.borrow().clone())
    }

    /// How often its disks have lied.
    pub fn lies(&self) -> u64 {
        self.past_lies.get() + self.disks.borrow().values().map(SimDisk::lies).sum::<u64>()
    }

    /// What the process found damaged.
    pub fn damage(&self) -> Vec<String> {
        self.process().map_or_else(Vec::new, |process| process.damage.borrow().clone())
    }

    /// Whether nobody can ask of this store that it comes back: its node is gone for good, or its disk has lied so that
    /// the store as a whole cannot be opened.
    pub fn is_written_off(&self, store: usize) -> bool {
        let Some(disk) = self.disk(store) else { return true };
        let is_open = self.process().is_none_or(|process| process.stores.borrow().contains_key(&store));
        self.is_lost.get() || disk.lies() > 0 && !is_open
    }

    /// Of its stores, those that have failed, or did not open, and why.
    pub fn failed_stores(&self) -> Vec<String> {
        let Some(process) = self.process() else { return Vec::new() };
        let (stores, refused) = (process.stores.borrow(), process.refused.borrow());
        let failed = stores.values().filter_map(|store| Some(store.failed()?.to_string()));
        failed.chain(refused.iter().map(ToString::to_string)).collect()
    }

    async fn serve(self: &Rc<Self>, process: &Rc<Process>) -> Result<(), Refusal> {
        self.clone().format().await.map_err(Refusal::Device)?;
        let config = NodeConfig {
            cluster: CLUSTER,
            key: replication::wire::ClusterKey([1; 32]),
            node: node_id(self.index),
            protocol: self.speaks(),
            address: Some(self.layout.addresses[self.index]),
            cores: self.node.cores(),
            map: self.map.clone(),
            timing: self.layout.timing,
            owner: self.layout.owner(),
        };
        let node = Node::start(config).await.map_err(|error| Refusal::Other(error.to_string()))?;
        let node = Rc::new(node);
        *process.node.borrow_mut() = Some(node.clone());
        for store in self.stores() {
            match within_limit(self.open(store)).await {
                Ok(opened) => drop(process.stores.borrow_mut().insert(store, opened)),
                Err(refusal) => process.refused.borrow_mut().push(refusal),
            }
        }
        // All shards of a device are read before the first one begins.
        let cores = self.node.cores().len();
        for core in 0..cores {
            let (layout, id) = (self.layout.as_ref().clone(), node_id(self.index));
            node.on_core(core, move |groups: Rc<CoreGroups>| Box::pin(recover_all(id, layout, core, cores, groups)))
                .await;
        }
        for core in 0..cores {
            let (layout, id) = (self.layout.as_ref().clone(), node_id(self.index));
            node.on_core(core, move |groups: Rc<CoreGroups>| Box::pin(begin_all(id, layout, core, cores, groups)))
                .await;
        }
        let stores = process.stores.borrow().clone();
        let whole = |(store, opened): (usize, Arc<Store>)| (opened, self.layout.stores[store].first_core as u16);
        let stores = stores.into_iter().map(whole).collect();
        node.begin(stores).await.map_err(|error| match error {
            CatalogError::Map(error) => Refusal::Map(error.to_string()),
            error => Refusal::Other(error.to_string()),
        })?;
        process.begun.set(true);
        Ok(())
    }

    async fn open(&self, store: usize) -> Result<Arc<Store>, Refusal> {
        let device = open_device(&self.layout.stores[store].path).await?;
        let store = Store::open(&device).await.map_err(|error| refusal_of(&error))?;
        if let Some(damage) = store.damage().first() {
            return Err(Refusal::Damage(damage.to_string()));
        }
        if self.cleans {
            store.clean_below(u32::MAX);
        }
        Ok(store)
    }
}

impl Process {
    /// The core on which a store's groups of this number live.
    pub fn core_of(&self, layout: &Layout, store: usize, group: GroupId) -> Option<usize> {
        let index = self.stores.borrow().get(&store)?.shard_of(group);
        let cores = self.cores.borrow().len().max(1);
        Some((layout.stores[store].first_core + usize::from(index.0)) % cores)
    }

    /// All shards on all cores.
    pub fn all_shards(&self) -> Vec<Rc<GroupShard>> {
        self.cores.borrow().values().flat_map(|core| core.shards()).collect()
    }

    /// Leaves a store out: what was read of it is forgotten.
    fn refuse(&self, store: usize, refusal: Refusal) {
        self.stores.borrow_mut().remove(&store);
        self.recovered.borrow_mut().retain(|(other, _), _| *other != store);
        tell(format_args!("store {store}: {refusal}"));
        self.refused.borrow_mut().push(refusal);
    }

    /// The shards of a core: store and number.
    fn shards_of(&self, layout: &Layout, core: usize, cores: usize) -> Vec<(usize, Arc<Store>, ShardIndex)> {
        let stores = self.stores.borrow();
        let all = stores.iter().flat_map(|(index, store)| {
            (0..store.shard_count()).map(move |shard| (*index, store.clone(), ShardIndex(shard)))
        });
        let is_here = |(store, _, shard): &(usize, Arc<Store>, ShardIndex)| {
            (layout.stores[*store].first_core + usize::from(shard.0)) % cores == core
        };
        all.filter(is_here).collect()
    }
}

async fn recover_all(node: NodeId, layout: Layout, core: usize, cores: usize, groups: Rc<CoreGroups>) {
    let Some(process) = process_of(node) else { return };
    process.cores.borrow_mut().insert(core, groups);
    for (index, store, shard) in process.shards_of(&layout, core, cores) {
        let read = within_limit(async {
            let device = open_device(&layout.stores[index].path).await?;
            Shard::recover(&store, device, shard).await.map_err(|error| refusal_of(&error))
        });
        match read.await {
            Ok(recovered) => drop(process.recovered.borrow_mut().insert((index, shard), recovered)),
            Err(refusal) => process.refuse(index, refusal),
        }
    }
}

async fn begin_all(node: NodeId, layout: Layout, core: usize, cores: usize, groups: Rc<CoreGroups>) {
    let Some(process) = process_of(node) else { return };
    for (index, _, shard) in process.shards_of(&layout, core, cores) {
        let Some(recovered) = process.recovered.borrow_mut().remove(&(index, shard)) else { continue };
        let begun = within_limit(async { recovered.begin().await.map_err(|error| refusal_of(&error)) });
        match begun.await {
            Ok((begun, recovery)) => {
                if let Some(damage) = recovery.damage.first() {
                    process.damage.borrow_mut().push(format!("store {index}: {damage}"));
                }
                let shard = groups.add_shard(begun, layout.stores[index].id, recovery);
                process.witness.watch(&shard, index);
            }
            Err(refusal) => process.refuse(index, refusal),
        }
    }
}

async fn within_limit<T>(opening: impl Future<Output = Result<T, Refusal>>) -> Result<T, Refusal> {
    let late = || Refusal::Device(format!("the device did not answer within {OPENING_LIMIT:?}"));
    timeout(OPENING_LIMIT, opening).await.unwrap_or_else(|_| Err(late()))
}

async fn open_device(path: &str) -> Result<Device, Refusal> {
    Device::open(Path::new(path)).await.map_err(|error| Refusal::Other(error.to_string()))
}

fn refusal_of(error: &OpenError) -> Refusal {
    match error {
        OpenError::Io { .. } | OpenError::NoSegment { .. } | OpenError::Append(_) => Refusal::Device(error.to_string()),
        OpenError::Superblock(_) => Refusal::Damage(error.to_string()),
        _ => Refusal::Other(error.to_string()),
    }
}
