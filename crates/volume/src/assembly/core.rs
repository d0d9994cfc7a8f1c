//! One core's share of the node: its shards, their groups, its tables.

use super::devices::OpenDevice;
use super::error::StartError;
use super::watch::remedy;
use crate::head::Head;
use crate::spec::{LocalTable, TableLayout};
use cluster::{GroupRecord, SlotTable};
use replication::GroupShard;
use runtime::Device;
use runtime::channel::{CrossReceiver, CrossSender, cross};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use store::{Recovered, Shard, Store, Trouble};
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

    pub(super) fn core_of(&self, group: &GroupRecord) -> u16 {
        let is_home = |device: &OpenDevice, index| {
            device.store.store_id() == group.primary && device.store.shard_of(group.id) == index
        };
        self.shards().find(|&(_, device, index)| is_home(device, index)).map_or(0, |(core, ..)| core)
    }

    /// The table, with the core of each of its groups.
    pub(super) fn layout(&self, id: u32, table: SlotTable, groups: &[GroupRecord]) -> TableLayout {
        let of_group: BTreeMap<_, &GroupRecord> = groups.iter().map(|group| (group.id, group)).collect();
        let home = |id| of_group.get(id).map_or(0, |group| self.core_of(group));
        TableLayout { id, cores: table.groups().iter().map(home).collect(), table }
    }

    /// What a core is to start of the devices from the `first`th on.
    pub(super) fn plan(
        &self,
        core: u16,
        first: usize,
        groups: &[GroupRecord],
        tables: &[Arc<TableLayout>],
    ) -> CorePlan {
        let stores: Vec<StoreId> = self.devices[first..].iter().map(|device| device.store.store_id()).collect();
        let plan = |(_, device, index): (u16, &OpenDevice, ShardIndex)| {
            let store = device.store.clone();
            let lives_here =
                |group: &&GroupRecord| group.primary == store.store_id() && store.shard_of(group.id) == index;
            let groups = groups.iter().filter(lives_here).cloned().collect();
            ShardPlan { path: device.path.clone(), index, groups, store }
        };
        let is_due = |&(its, device, _): &(u16, &OpenDevice, ShardIndex)| {
            its == core && stores.contains(&device.store.store_id())
        };
        let shards = self.shards().filter(is_due).map(plan).collect();
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
        match recover(&shard).await? {
            Some(read) => recovered.push((shard, read)),
            None => head.note_stopped(shard.groups.len()),
        }
    }
    all_read.wait().await;
    let mut shards = Vec::with_capacity(recovered.len());
    let mut reasons = Vec::new();
    for (shard, read) in recovered {
        let groups = shard.groups.len();
        match begin(shard, read).await? {
            Some((open, wrong)) => {
                reasons.extend(wrong);
                shards.push(open);
            }
            None => head.note_stopped(groups),
        }
    }
    for shard in &shards {
        runtime::spawn(tell_troubles(Rc::downgrade(head), shard.groups.clone(), shard.path.clone()));
    }
    head.add_shards(shards);
    plan.tables.into_iter().for_each(|layout| add_table(head, layout));
    Ok(reasons)
}

/// The core knows the table from now on, with its own groups in it.
pub(super) fn add_table(head: &Head, layout: Arc<TableLayout>) {
    let shards = head.shards();
    let group = |id: &GroupId| shards.iter().find_map(|shard| shard.groups.group(*id));
    let groups = layout.table.groups().iter().map(group).collect();
    head.add_table(Rc::new(LocalTable { layout, groups }));
}

impl ShardPlan {
    fn failed(&self, error: &dyn std::error::Error) -> StartError {
        StartError::Shard { path: self.path.clone(), shard: self.index.0, message: error.to_string() }
    }
}

/// `None`: an assertion stopped the store. That is the store's matter, which says so, and not the node's.
async fn recover(plan: &ShardPlan) -> Result<Option<Recovered>, StartError> {
    let device = Device::open(&plan.path).await.map_err(|error| plan.failed(&error))?;
    match Shard::recover(&plan.store, device, plan.index).await {
        Ok(recovered) => Ok(Some(recovered)),
        Err(error) if error.is_stop() => Ok(None),
        Err(error) => Err(plan.failed(&error)),
    }
}

/// `None`: as above.
async fn begin(plan: ShardPlan, recovered: Recovered) -> Result<Option<(OpenShard, Vec<String>)>, StartError> {
    let (shard, recovery) = match recovered.begin().await {
        Ok(begun) => begun,
        Err(error) if error.is_stop() => return Ok(None),
        Err(error) => return Err(plan.failed(&error)),
    };
    let ShardPlan { store, path, groups, .. } = plan;
    let (shard, refused) = GroupShard::start(shard, store.store_id(), recovery.clone(), groups).await;
    let found = recovery.damage.iter().chain(&recovery.harmless);
    let damage: Vec<String> = found.map(|damage| format!("{}: {damage}", path.display())).collect();
    // A store that failed meanwhile says so itself, once for all of its groups.
    let refused = refused.iter().filter(|_| store.failed().is_none()).map(ToString::to_string);
    let reasons = damage.into_iter().chain(refused).collect();
    let open = OpenShard { store: store.store_id(), path, groups: shard, damage: recovery.damage.len() as u64 };
    Ok(Some((open, reasons)))
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
