//! One core's share of the node: its shards, their groups, its tables.

use super::devices::OpenDevice;
use super::error::StartError;
use crate::head::Head;
use crate::spec::{LocalTable, TableLayout};
use cluster::GroupRecord;
use replication::GroupShard;
use runtime::Device;
use runtime::channel::{CrossReceiver, CrossSender, cross};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use store::{Recovered, Shard, Store};
use types::{GroupId, ShardIndex, StoreId};

/// Which core each shard of each device is on: dealt round, so that one fast device is not bound to one core.
pub(super) struct Deal<'a> {
    devices: &'a [OpenDevice],
    cores: usize,
}

/// A shard to open.
struct ShardPlan {
    store: Arc<Store>,
    path: PathBuf,
    index: ShardIndex,
    groups: Vec<GroupRecord>,
}

/// What a core is to start.
pub(super) struct CorePlan {
    shards: Vec<ShardPlan>,
    tables: Vec<Arc<TableLayout>>,
}

/// A shard that serves, as the core keeps it.
pub(crate) struct OpenShard {
    pub(crate) store: StoreId,
    pub(crate) groups: Rc<GroupShard>,
    /// What was damaged when it was opened.
    pub(crate) damage: u64,
}

impl<'a> Deal<'a> {
    pub(super) fn new(devices: &'a [OpenDevice], cores: usize) -> Self {
        Self { devices, cores }
    }

    /// All shards, in the order in which they are dealt.
    fn shards(&self) -> impl Iterator<Item = (u16, &'a OpenDevice, ShardIndex)> {
        let all = |device: &'a OpenDevice| (0..device.store.shard_count()).map(move |i| (device, ShardIndex(i)));
        let cores = self.cores;
        let dealt = self.devices.iter().flat_map(all).enumerate();
        dealt.map(move |(number, (device, index))| ((number % cores) as u16, device, index))
    }

    pub(super) fn core_of(&self, group: &GroupRecord) -> u16 {
        let is_home = |device: &OpenDevice, index| {
            device.store.store_id() == group.primary && device.store.shard_of(group.id) == index
        };
        self.shards().find(|&(_, device, index)| is_home(device, index)).map_or(0, |(core, ..)| core)
    }

    pub(super) fn plan(&self, core: u16, groups: &[GroupRecord], tables: &[Arc<TableLayout>]) -> CorePlan {
        let plan = |(_, device, index): (u16, &OpenDevice, ShardIndex)| {
            let store = device.store.clone();
            let lives_here =
                |group: &&GroupRecord| group.primary == store.store_id() && store.shard_of(group.id) == index;
            let groups = groups.iter().filter(lives_here).cloned().collect();
            ShardPlan { path: device.path.clone(), index, groups, store }
        };
        let shards = self.shards().filter(|&(its, ..)| its == core).map(plan).collect();
        CorePlan { shards, tables: tables.to_vec() }
    }
}

/// Where the cores wait for each other.
pub(super) struct Barrier {
    /// To each core; nothing is ever sent, all are dropped here when this core has come.
    others: Vec<CrossSender<()>>,
    /// Closed when all have come, or ended.
    all_here: CrossReceiver<()>,
}

impl Barrier {
    /// One for each of `cores` cores.
    pub(super) fn between(cores: usize) -> Vec<Self> {
        let (others, receivers): (Vec<_>, Vec<_>) = (0..cores).map(|_| cross(1)).unzip();
        receivers.into_iter().map(|all_here| Self { others: others.clone(), all_here }).collect()
    }

    async fn wait(self) {
        let Self { others, mut all_here } = self;
        drop(others);
        while all_here.recv().await.is_ok() {}
    }
}

/// Opens the core's shards and starts their groups. Returns what is wrong with those that did not start, and the
/// damage that was found. No core writes before all have read: until then nobody knows which segments are free.
pub(super) async fn start(head: &Rc<Head>, plan: CorePlan, all_read: Barrier) -> Result<Vec<String>, StartError> {
    let mut recovered = Vec::with_capacity(plan.shards.len());
    for shard in plan.shards {
        let read = recover(&shard).await?;
        recovered.push((shard, read));
    }
    all_read.wait().await;
    let mut shards = Vec::with_capacity(recovered.len());
    let mut reasons = Vec::new();
    for (shard, read) in recovered {
        let (open, wrong) = begin(shard, read).await?;
        reasons.extend(wrong);
        shards.push(open);
    }
    let group = |id: &GroupId| shards.iter().find_map(|shard: &OpenShard| shard.groups.group(*id));
    let local = |layout: Arc<TableLayout>| {
        let groups = layout.table.groups().iter().map(group).collect();
        Rc::new(LocalTable { layout, groups })
    };
    head.set_tables(plan.tables.into_iter().map(local).collect());
    head.set_shards(shards);
    Ok(reasons)
}

impl ShardPlan {
    fn failed(&self, error: &dyn std::error::Error) -> StartError {
        StartError::Shard { path: self.path.clone(), shard: self.index.0, message: error.to_string() }
    }
}

async fn recover(plan: &ShardPlan) -> Result<Recovered, StartError> {
    let device = Device::open(&plan.path).await.map_err(|error| plan.failed(&error))?;
    Shard::recover(&plan.store, device, plan.index).await.map_err(|error| plan.failed(&error))
}

async fn begin(plan: ShardPlan, recovered: Recovered) -> Result<(OpenShard, Vec<String>), StartError> {
    let (shard, recovery) = recovered.begin().await.map_err(|error| plan.failed(&error))?;
    let ShardPlan { store, path, groups, .. } = plan;
    let (shard, refused) = GroupShard::start(shard, store.store_id(), &recovery, groups).await;
    let found = recovery.damage.iter().chain(&recovery.harmless);
    let damage = found.map(|damage| format!("{}: {damage}", path.display()));
    let reasons = damage.chain(refused.iter().map(ToString::to_string)).collect();
    let open = OpenShard { store: store.store_id(), groups: shard, damage: recovery.damage.len() as u64 };
    Ok((open, reasons))
}

/// Closes the core's shards: what is queued becomes durable first.
pub(super) async fn close(head: &Head) {
    for shard in head.shards() {
        shard.groups.store().close().await;
    }
}
