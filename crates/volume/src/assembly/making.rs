//! Volumes are made where they are to lie; pools are made, and told where volumes are to lie.

use super::agreeing::SILENT;
use super::{Assembly, VolumeError};
use crate::api::VolumeInfo;
use crate::spec::volume_info;
use cluster::control::Followed;
use cluster::{
    CatalogError, KeyRecord, NewPool, NewVolume, PoolChange, PoolRecord, PoolRulesRecord, VolumePlace, VolumeRecord,
    WantedPlace, change_pool, create_placed_volume, create_pool, home_for, place_volume,
};
use std::collections::BTreeSet;
use types::{GroupId, NodeId};

/// A pool, as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolInfo {
    /// Its record.
    pub record: PoolRecord,
    /// Where its copies may lie, and its volumes.
    pub rules: PoolRulesRecord,
    /// Its groups.
    pub groups: usize,
    /// Devices that hold some of them.
    pub devices: usize,
    /// The nodes of these.
    pub nodes: Vec<NodeId>,
    /// Tables of volumes that are gathered.
    pub node_sets: usize,
}

impl Assembly {
    /// Makes a volume as its pool says, served by this node if it has a device of it; every core serves it when this returns.
    ///
    /// # Errors
    /// If its name is taken or not allowed, or there is no room for one more.
    pub async fn create_volume(&self, new: NewVolume) -> Result<VolumeInfo, VolumeError> {
        self.create_volume_at(new, &WantedPlace::default()).await
    }

    /// Makes a volume where it is wanted. It can be used when this returns, at the node that is its head.
    ///
    /// # Errors
    /// As [`create_volume`](Self::create_volume); and if it cannot lie there.
    pub async fn create_volume_at(&self, new: NewVolume, wanted: &WantedPlace) -> Result<VolumeInfo, VolumeError> {
        self.check_free(&new.name)?;
        let place = self.place_for(wanted).await?;
        let volume = {
            let _making = self.0.changing.making();
            let volume = create_placed_volume(&*self.0.map, &new, &place, place.home, None).await?;
            if volume.head == self.0.id {
                let _alone = self.0.changing.one(volume.id).await;
                self.add(&volume).await?;
                return self.served(&new.name);
            }
            volume
        };
        // Its home hears of it, and takes it.
        let taken = self.until_taken(&volume, place.home).await?;
        self.learn(&volume).await?;
        let placed = self.placed(volume.table);
        Ok(VolumeInfo { placed, ..volume_info(taken.as_ref().unwrap_or(&volume)) })
    }

    /// Makes a volume that is encrypted with a key that this node has: it serves it.
    pub(super) async fn create_with_key(
        &self,
        new: &NewVolume,
        wanted: &WantedPlace,
        key: &KeyRecord,
    ) -> Result<VolumeRecord, VolumeError> {
        let place = self.place_for(wanted).await?;
        Ok(create_placed_volume(&*self.0.map, new, &place, self.0.id, Some(key)).await?)
    }

    /// The node that a new volume is best made by, and served.
    ///
    /// # Errors
    /// If it cannot lie as wanted.
    pub async fn home_for(&self, wanted: &WantedPlace) -> Result<NodeId, VolumeError> {
        Ok(home_for(&*self.0.map, wanted, &self.could_serve(wanted)).await?)
    }

    /// This node, and those that have a session. One that is silent may be gone: it is where a volume is only if it is asked for.
    fn could_serve(&self, wanted: &WantedPlace) -> BTreeSet<NodeId> {
        let mut nodes = self.0.heads.alive();
        nodes.retain(|node| wanted.home.is_some() || self.0.groups.silence_of(*node) < SILENT);
        nodes.insert(self.0.id);
        nodes
    }

    pub(super) async fn place_for(&self, wanted: &WantedPlace) -> Result<VolumePlace, VolumeError> {
        let home = self.home_near(wanted).await?;
        Ok(place_volume(&*self.0.map, wanted, home).await?)
    }

    /// The home that is asked for; else this node, or one that has room.
    pub(super) async fn home_near(&self, wanted: &WantedPlace) -> Result<NodeId, VolumeError> {
        let here = WantedPlace { home: wanted.home.or(Some(self.0.id)), ..wanted.clone() };
        match home_for(&*self.0.map, &here, &self.could_serve(wanted)).await {
            // Nobody has asked for this node: one that has room will do.
            Err(CatalogError::Place(_)) if wanted.home.is_none() => self.home_for(wanted).await,
            other => Ok(other?),
        }
    }

    /// Messages to other nodes, and answers from them, that commands of volumes and copies of groups have taken since the
    /// start. Each is counted at one end.
    pub async fn messages(&self) -> u64 {
        let of_core = |head: std::rc::Rc<crate::head::Head>| {
            let messages = head.groups.messages_sent() + head.groups.messages_of_heads();
            Box::pin(std::future::ready(messages)) as std::pin::Pin<Box<dyn Future<Output = u64>>>
        };
        self.on_each_core(of_core).await.into_iter().sum()
    }

    // ---- pools -----------------------------------------------------------------------------------------------------

    /// Makes a pool over the cluster's devices. Their nodes hear of its groups, and take part in them.
    ///
    /// # Errors
    /// If it is there, or there are not the devices for it.
    pub async fn create_pool(&self, new: &NewPool) -> Result<PoolInfo, VolumeError> {
        let made = create_pool(&*self.0.map, new).await?;
        self.pool_info(&made.name).await
    }

    /// Changes where copies and volumes of a pool may lie. What lies otherwise is moved, while it is in use.
    ///
    /// # Errors
    /// If there is no such pool, or not the devices for it.
    pub async fn change_pool(&self, name: &str, change: &PoolChange) -> Result<PoolInfo, VolumeError> {
        change_pool(&*self.0.map, name, change).await?;
        self.pool_info(name).await
    }

    /// The pools with their rules, by name.
    ///
    /// # Errors
    /// The map's.
    pub async fn pool_infos(&self) -> Result<Vec<PoolInfo>, VolumeError> {
        let listing = self.0.map.list("").await.map_err(CatalogError::from)?;
        let known = Followed::of(&listing);
        let view = known.records();
        let info = |pool: &PoolRecord| {
            let groups = view.groups.values().filter(|group| group.pool == pool.name);
            let (mut ids, mut stores) = (BTreeSet::<GroupId>::new(), BTreeSet::new());
            for group in groups {
                ids.insert(group.id);
                stores.extend(group.members.iter().copied());
            }
            let node = |store| view.devices.get(store).map(|device| device.node);
            let nodes: BTreeSet<NodeId> = stores.iter().filter_map(node).collect();
            PoolInfo {
                record: pool.clone(),
                rules: view.rules_of(pool),
                groups: ids.len(),
                devices: stores.len(),
                nodes: nodes.into_iter().collect(),
                node_sets: view.sets.values().filter(|set| set.pool == pool.name).count(),
            }
        };
        Ok(view.pools.values().map(info).collect())
    }

    /// One pool, as it stands.
    ///
    /// # Errors
    /// There is none of that name; the map's.
    pub async fn pool_info(&self, name: &str) -> Result<PoolInfo, VolumeError> {
        let found = self.pool_infos().await?.into_iter().find(|info| info.record.name == name);
        found.ok_or_else(|| VolumeError::NoPool(name.to_owned()))
    }
}
