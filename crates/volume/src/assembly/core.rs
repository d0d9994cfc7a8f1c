//! One core's share of the node: its shards, their groups, its tables.

use super::Reason;
use super::devices::OpenDevice;
use super::error::StartError;
use super::watch::remedy;
use crate::head::Head;
use crate::spec::{LocalTable, TableLayout};
use cluster::{CatalogError, DeviceRecord, DeviceState, GroupRecord, MapStore, SlotTable, keys, list};
use replication::GroupShard;
use runtime::Device;
use runtime::channel::{CrossReceiver, CrossSender, cross};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use store::{OpenError, Recovered, Shard, Store, Trouble};
use types::{GroupId, NodeId, ShardIndex, StoreId};

/// Which core each shard of each device is on: dealt round, so that one fast device is not bound to one core.
pub(super) struct Deal<'a> {
    devices: &'a [OpenDevice],
    cores: usize,
}

/// What becomes of a start with a device that fails when a shard of it is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IfDeviceFails {
    /// It goes on: others have copies of what is there, and the device is told as failed.
    ServeWithout,
    /// It fails.
    Refuse,
}

/// A shard to open.
struct ShardPlan {
    store: Arc<Store>,
    path: PathBuf,
    index: ShardIndex,
    /// Groups whose one member is in it: without it nobody serves them.
    alone: Vec<GroupId>,
    if_device_fails: IfDeviceFails,
}

/// What a core is to start.
pub(super) struct CorePlan {
    shards: Vec<ShardPlan>,
    tables: Vec<Arc<TableLayout>>,
}

/// A shard that serves, as the core keeps it.
pub(crate) struct OpenShard {
    pub(crate) store: StoreId,
    pub(crate) path: PathBuf,
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

    /// The core of a device's first shard; those behind it follow, one core each.
    pub(super) fn first_core_of(&self, store: StoreId) -> u16 {
        self.shards().find(|(_, device, _)| device.store.store_id() == store).map_or(0, |(core, ..)| core)
    }

    /// The core that a group's chunks belong to: that of its member here, if it has one.
    fn core_of(&self, group: &GroupRecord) -> u16 {
        let is_home = |device: &OpenDevice, index| {
            group.members.contains(&device.store.store_id()) && device.store.shard_of(group.id) == index
        };
        let of_member = self.shards().find(|&(_, device, index)| is_home(device, index)).map(|(core, ..)| core);
        of_member.unwrap_or((group.id.0 as usize % self.cores) as u16)
    }

    /// The table, with the core of each of its groups. `all`: all groups and devices that the map knows.
    pub(super) fn layout(&self, id: u32, table: SlotTable, all: &Known) -> TableLayout {
        let of_group: BTreeMap<_, &GroupRecord> = all.groups.iter().map(|group| (group.id, group)).collect();
        let core = |id| of_group.get(id).map_or(0, |group| self.core_of(group));
        let is_missing = |id: &&GroupId| of_group.get(id).is_none_or(|group| self.is_missing(group, all));
        let members = table.groups().iter().filter_map(|id| of_group.get(id)).flat_map(|group| &group.members);
        let stores: BTreeSet<StoreId> = members.copied().collect();
        let nodes: BTreeSet<NodeId> = stores.into_iter().filter_map(|store| all.node_of(store)).collect();
        TableLayout {
            id,
            only_node: nodes.first().copied().filter(|_| nodes.len() == 1),
            cores: table.groups().iter().map(core).collect(),
            missing: table.groups().iter().filter(is_missing).copied().collect(),
            table,
        }
    }

    /// Whether all members of a group are on devices of this node that are not here: nobody serves it.
    pub(super) fn is_missing(&self, group: &GroupRecord, all: &Known) -> bool {
        let is_here = |store: &StoreId| self.devices.iter().any(|device| device.store.store_id() == *store);
        let is_ours = |store: &StoreId| all.devices.iter().any(|d| d.store == *store && d.node == all.node);
        group.members.iter().all(|store| is_ours(store) && !is_here(store))
    }

    /// What a core is to start of the devices from the `first`th on.
    pub(super) fn plan(
        &self,
        core: u16,
        (first, if_device_fails): (usize, IfDeviceFails),
        all: &Known,
        tables: &[Arc<TableLayout>],
    ) -> CorePlan {
        let stores: Vec<StoreId> = self.devices[first..].iter().map(|device| device.store.store_id()).collect();
        let plan = |(_, device, index): (u16, &OpenDevice, ShardIndex)| {
            let store = device.store.clone();
            let is_only_here =
                |group: &&GroupRecord| group.members == [store.store_id()] && store.shard_of(group.id) == index;
            let alone = all.groups.iter().filter(is_only_here).map(|group| group.id).collect();
            ShardPlan { path: device.path.clone(), index, alone, store, if_device_fails }
        };
        let is_due = |&(its, device, _): &(u16, &OpenDevice, ShardIndex)| {
            its == core && stores.contains(&device.store.store_id())
        };
        let shards = self.shards().filter(is_due).map(plan).collect();
        CorePlan { shards, tables: tables.to_vec() }
    }
}

/// What the map says of groups and devices.
pub(super) struct Known {
    pub(super) node: NodeId,
    pub(super) groups: Vec<GroupRecord>,
    devices: Vec<DeviceRecord>,
}

impl Known {
    pub(super) async fn of(map: &dyn MapStore, node: NodeId) -> Result<Self, CatalogError> {
        let groups = list::<GroupRecord>(map, keys::GROUPS).await?.into_iter().map(|found| found.record).collect();
        let devices = list::<DeviceRecord>(map, keys::DEVICES).await?.into_iter().map(|found| found.record).collect();
        Ok(Self { node, groups, devices })
    }

    /// What a start does with a device that fails: a node that is alone would have no other copy of what is there.
    pub(super) fn if_device_fails(&self) -> IfDeviceFails {
        let is_elsewhere = |device: &DeviceRecord| device.node != self.node && device.state == DeviceState::Active;
        if self.devices.iter().any(is_elsewhere) { IfDeviceFails::ServeWithout } else { IfDeviceFails::Refuse }
    }

    fn node_of(&self, store: StoreId) -> Option<NodeId> {
        self.devices.iter().find(|device| device.store == store).map(|device| device.node)
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

/// Opens the core's shards. Returns the damage that was found. No core writes before all have read: until then nobody knows
/// which segments are free. Their groups follow.
pub(super) async fn start(head: &Rc<Head>, plan: CorePlan, all_read: Barrier) -> Result<Vec<Reason>, StartError> {
    let mut recovered = Vec::with_capacity(plan.shards.len());
    for shard in plan.shards {
        match recover(&shard).await? {
            Some(read) => recovered.push((shard, read)),
            None => note_stopped(head, &shard.store, &shard.alone),
        }
    }
    all_read.wait().await;
    let mut shards = Vec::with_capacity(recovered.len());
    let mut reasons = Vec::new();
    for (shard, read) in recovered {
        let (store, alone) = (shard.store.clone(), shard.alone.clone());
        match begin(head, shard, read).await? {
            Some((open, wrong)) => {
                reasons.extend(wrong);
                shards.push(open);
            }
            None => note_stopped(head, &store, &alone),
        }
    }
    for shard in &shards {
        runtime::spawn(tell_troubles(Rc::downgrade(head), shard.groups.clone(), shard.path.clone()));
    }
    head.add_shards(shards);
    plan.tables.into_iter().for_each(|layout| add_table(head, layout));
    Ok(reasons)
}

/// The store of these groups is not used: it says so itself.
fn note_stopped(head: &Head, store: &Store, groups: &[GroupId]) {
    let why = store.failed().map_or_else(String::new, |error| error.to_string());
    head.note_stopped(groups.len());
    groups.iter().for_each(|group| head.groups.give_up(*group, &why));
}

/// The core knows the table from now on, with the groups in it whose chunks are its.
pub(super) fn add_table(head: &Head, layout: Arc<TableLayout>) {
    let away = "it is on a device that this node was not started with";
    layout.missing.iter().for_each(|group| head.groups.give_up(*group, away));
    let group = |(id, core): (&GroupId, &u16)| (*core == head.index).then(|| head.groups.access(*id));
    let groups = layout.table.groups().iter().zip(&layout.cores).map(group).collect();
    head.add_table(Rc::new(LocalTable { layout, groups }));
}

impl ShardPlan {
    fn failed(&self, error: &dyn std::error::Error) -> StartError {
        StartError::Shard { path: self.path.clone(), shard: self.index.0, message: error.to_string() }
    }

    /// Whether the node starts all the same: the store says that it has stopped or failed, and no shard of it is used. Of what
    /// lies there this node has no copy then, as if the device were away.
    fn is_done_without(&self, error: &OpenError) -> bool {
        error.is_stop() || error.is_of_device() && self.if_device_fails == IfDeviceFails::ServeWithout
    }
}

/// `None`: an assertion stopped the store, or its device fails. That is the store's matter, which says so, and not the node's.
async fn recover(plan: &ShardPlan) -> Result<Option<Recovered>, StartError> {
    let device = Device::open(&plan.path).await.map_err(|error| plan.failed(&error))?;
    match Shard::recover(&plan.store, device, plan.index).await {
        Ok(recovered) => Ok(Some(recovered)),
        Err(error) if plan.is_done_without(&error) => Ok(None),
        Err(error) => Err(plan.failed(&error)),
    }
}

/// `None`: as above.
async fn begin(
    head: &Head,
    plan: ShardPlan,
    recovered: Recovered,
) -> Result<Option<(OpenShard, Vec<Reason>)>, StartError> {
    let (shard, recovery) = match recovered.begin().await {
        Ok(begun) => begun,
        Err(error) if plan.is_done_without(&error) => return Ok(None),
        Err(error) => return Err(plan.failed(&error)),
    };
    let ShardPlan { store, path, .. } = plan;
    let id = store.store_id();
    let damage = recovery.damage.iter().map(|damage| (Some(id), damage));
    let found = damage.chain(recovery.harmless.iter().map(|damage| (None, damage)));
    let reason = |(lost_by, damage)| Reason { lost_by, text: format!("{}: {damage}", path.display()) };
    let reasons: Vec<Reason> = found.map(reason).collect();
    let (store, damage) = (store.store_id(), recovery.damage.len() as u64);
    let groups = head.groups.add_shard(shard, store, recovery);
    Ok(Some((OpenShard { store, path, groups, damage }, reasons)))
}

/// Logs what the shard meets, as long as it lives.
async fn tell_troubles(head: Weak<Head>, groups: Rc<GroupShard>, path: PathBuf) {
    while let Some(trouble) = groups.store().trouble().await {
        let Some(head) = head.upgrade() else { return };
        match trouble {
            Trouble::Damage(error) => log::error!("{}", head.describe_damage(&path, &error)),
            Trouble::Slow { .. } => log::warn!("{} is {trouble}", path.display()),
            Trouble::Full { .. } => log::error!("{} is {trouble}{}", path.display(), remedy(&head.in_trash.borrow())),
        }
    }
}

/// Closes the core's shards of a store and forgets them: the node does not take it after all.
pub(super) async fn abandon(head: &Head, store: StoreId) {
    head.groups.remove_shards(store);
    for shard in head.take_shards(store) {
        shard.groups.store().close().await;
    }
}

/// Closes the core's shards: what is queued becomes durable first.
pub(super) async fn close(head: &Head) {
    for shard in head.shards() {
        shard.groups.store().close().await;
    }
}
