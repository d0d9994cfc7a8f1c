//! Another device for a pool, at a start and while the node serves: new groups on it, and a new slot table for the
//! volumes that are made from now on.

use super::core::{self, Barrier, Deal, IfDeviceFails, Known};
use super::devices::{OpenDevice, Opener};
use super::{Assembly, Blank, StartError, those_alone_have_begun};
use crate::spec::TableLayout;
use cluster::placement::duty::Request;
use cluster::{
    DEFAULT_POOL, DeviceRecord, GroupRecord, MapStore, NewPool, PoolRecord, VolumeRecord, add_groups, deal_again,
    ensure_pool, get, keys, list,
};
use runtime::channel::cross;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use types::{GroupId, StoreId};

/// Makes the pool if there is none, and groups and a table for devices that have come since.
pub(super) async fn ensure_groups(map: &dyn MapStore, devices: &[OpenDevice]) -> Result<PoolRecord, StartError> {
    let pool = get::<PoolRecord>(map, &keys::pool(DEFAULT_POOL)).await?;
    if let Some(pool) = pool.filter(|pool| pool.record.replicas > 1 || devices.is_empty()) {
        // Where its groups lie was said for all nodes together.
        return Ok(pool.record);
    }
    if devices.is_empty() {
        return Err(StartError::NoDevice);
    }
    let stores: Vec<StoreId> = devices.iter().map(|device| device.store.store_id()).collect();
    let pool =
        NewPool { name: DEFAULT_POOL.to_owned(), replicas: 1, min_in_sync: 1, rules: None, stores: stores.clone() };
    ensure_pool(map, &pool).await?;
    for store in stores {
        add_groups(map, DEFAULT_POOL, store).await?;
    }
    Ok(deal_again(map, DEFAULT_POOL, |store| room_of(devices, store)).await?)
}

/// What is left on the device, in bytes: it gets as large a share of new volumes. Nothing where it is not here.
fn room_of(devices: &[OpenDevice], store: StoreId) -> u64 {
    let device = devices.iter().find(|device| device.store.store_id() == store);
    device.map_or(0, |device| {
        let usage = device.store.usage();
        usage.new_blocks_until_bytes.saturating_sub(usage.live_bytes)
    })
}

/// The pools' tables and those that volumes were made with.
pub(super) async fn tables_in_use(map: &dyn MapStore) -> Result<BTreeSet<u32>, StartError> {
    let pools = list::<PoolRecord>(map, keys::POOLS).await?;
    let volumes = list::<VolumeRecord>(map, keys::VOLUMES).await?;
    let of_pools = pools.into_iter().map(|pool| pool.record.table);
    Ok(of_pools.chain(volumes.into_iter().map(|volume| volume.record.table)).collect())
}

async fn groups_of_all(map: &dyn MapStore) -> Result<impl Iterator<Item = GroupRecord>, StartError> {
    Ok(list::<GroupRecord>(map, keys::GROUPS).await?.into_iter().map(|group| group.record))
}

impl Assembly {
    /// Whether [`add_device`](Self::add_device) would take the device, and as what: nothing is changed.
    ///
    /// # Errors
    /// A device that is not formatted, another cluster's, served already, or that volumes have been on already.
    pub async fn check_device(&self, path: &Path) -> Result<DeviceRecord, StartError> {
        let map = &self.0.map;
        let device = Opener::new(map, self.0.cluster, self.0.id, Blank::Refuse).await?.look(path).await?;
        let store = device.store;
        if self.0.devices.borrow().iter().any(|there| there.store.store_id() == store) {
            return Err(StartError::AlreadyServed { path: path.to_owned(), store });
        }
        let of_store: Vec<GroupId> =
            groups_of_all(&**map).await?.filter(|g| g.primary == store).map(|g| g.id).collect();
        let is_dealt = |table: &Arc<TableLayout>| table.table.groups().iter().any(|group| of_store.contains(group));
        if self.0.tables.borrow().iter().any(is_dealt) {
            return Err(StartError::NeedsStart { path: path.to_owned(), store });
        }
        Ok(device)
    }

    /// Takes another device into the node while it serves. When this returns, new volumes of a pool of one copy use it, and
    /// those that are there stay where they are; of a pool of several copies who controls gives it its share.
    ///
    /// # Errors
    /// As [`check_device`](Self::check_device), or a device that fails. The node serves on as before; what had been
    /// begun is completed by the next try, or the next start with the device.
    pub async fn add_device(&self, path: &Path) -> Result<(), StartError> {
        let _alone = self.0.growing.lock().await;
        self.check_device(path).await?;
        let map = &self.0.map;
        let mut opener = Opener::new(map, self.0.cluster, self.0.id, Blank::Refuse).await?;
        opener.by_order = true;
        let device = opener.open(path).await?;
        let store = device.store.store_id();
        // What lies where in a pool of several copies was said for all nodes together: who controls gives it its share.
        let pool = get::<PoolRecord>(&**map, &keys::pool(DEFAULT_POOL)).await?;
        let is_alone = pool.is_none_or(|pool| pool.record.replicas == 1);
        if is_alone {
            add_groups(&**map, DEFAULT_POOL, store).await?;
        }
        let all = Known::of(&**map, self.0.id).await?;
        self.0.devices.borrow_mut().push(device);
        if let Err(error) = self.start_last_device(&all).await {
            // Some cores may have opened their shards of it: the next try opens all of them anew.
            self.0.groups.remove(store);
            self.on_all_cores(move |head| Box::pin(async move { core::abandon(&head, store).await })).await;
            self.0.devices.borrow_mut().pop();
            return Err(error);
        }
        if is_alone {
            let pool = deal_again(&**map, DEFAULT_POOL, |store| room_of(&self.0.devices.borrow(), store)).await?;
            self.table(pool.table).await?;
            return Ok(());
        }
        let asked = Request::Add { store, class: String::new(), weight: None };
        if let Err(error) = self.decide(&asked).await {
            // It is the cluster's by now, and serves: what is missing is its share.
            log::warn!("device {store} gets nothing yet ({error}): `cairn device undrain {store}` gives it its share");
        }
        Ok(())
    }

    /// Opens the shards of the device that came last, each on its core, and has its groups take part.
    async fn start_last_device(&self, all: &Known) -> Result<(), StartError> {
        let cores = self.0.cores.len();
        let plans: Vec<_> = {
            let devices = self.0.devices.borrow();
            let deal = Deal::new(&devices, cores);
            (0..cores as u16)
                .map(|core| deal.plan(core, (devices.len() - 1, IfDeviceFails::Refuse), all, &[]))
                .collect()
        };
        let (started, mut all_started) = cross(cores);
        for (core, (plan, barrier)) in plans.into_iter().zip(Barrier::between(cores)).enumerate() {
            let started = started.clone();
            self.0.head.spawn_on(core as u16, move |head| {
                Box::pin(async move {
                    let outcome = core::start(&head, plan, barrier).await;
                    let _ = started.send(outcome).await;
                })
            });
        }
        let mut result = Ok(());
        for _ in 0..cores {
            match all_started.recv().await.unwrap_or(Err(StartError::CoreEnded)) {
                Ok(reasons) => reasons.iter().for_each(|reason| log::warn!("{}", reason.text)),
                Err(error) => result = Err(error),
            }
        }
        result?;
        let (store, first_core) = {
            let devices = self.0.devices.borrow();
            let store = devices.last().expect("it was just added").store.clone();
            let first_core = Deal::new(&devices, cores).first_core_of(store.store_id());
            (store, first_core)
        };
        self.0.groups.add(store, first_core).await?;
        those_alone_have_begun(&self.0.groups, cores).await;
        // It may have failed while its groups began.
        let devices = self.0.devices.borrow();
        let failed = devices.last().and_then(|device| Some((device.path.clone(), device.store.failed()?)));
        match failed {
            Some((path, error)) => Err(StartError::Shard { path, shard: 0, message: error.to_string() }),
            None => Ok(()),
        }
    }
}
