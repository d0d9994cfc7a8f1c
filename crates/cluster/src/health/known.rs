//! What a listing of the map says, as far as somebody's health follows from it.

use crate::catalog::Upgrade;
use crate::control::{ClusterStanding, Followed};
use crate::map::Listing;
use crate::placement::duty::View;
use crate::records::{
    ClientsRecord, ControlRecord, GroupRecord, Record, SlotTablePiece, StoreUsageRecord, VolumeRecord, VolumeState,
    keys,
};
use crate::typed::decode;
use std::collections::{BTreeMap, BTreeSet};
use types::{GroupId, LayerId, NodeId, StoreId, VolumeId};

/// What the map says.
#[derive(Clone, Debug, Default)]
pub struct Known {
    /// How nodes, devices and groups stand.
    pub standing: ClusterStanding,
    pub(super) view: View,
    pub(super) control: Option<ControlRecord>,
    /// Stores whose node has a session.
    pub(super) there: BTreeSet<StoreId>,
    /// Nodes that have a session, be it for a device that has left the map.
    pub(super) alive: BTreeSet<NodeId>,
    pub(super) usage: BTreeMap<StoreId, StoreUsageRecord>,
    pub(super) volumes: BTreeMap<VolumeId, VolumeRecord>,
    pub(super) layers: BTreeSet<LayerId>,
    pub(super) clients: BTreeMap<NodeId, ClientsRecord>,
    /// Groups of each slot table.
    tables: BTreeMap<u32, BTreeSet<GroupId>>,
    /// What nodes run, if all of that can be read.
    pub(super) upgrade: Option<Upgrade>,
    unreadable: Option<String>,
}

impl Known {
    /// All that a listing says. `own`: stores that whoever asks serves itself, so that they are there even if their session is
    /// a moment late.
    pub fn of(listing: &Listing, own: impl IntoIterator<Item = StoreId>) -> Self {
        let mut followed = Followed::of(listing);
        let standing = followed.standing();
        let view = match followed.view() {
            Ok(view) => view.clone(),
            Err(_) => followed.records().clone(),
        };
        let mut this = Self {
            unreadable: standing.unreadable.clone(),
            standing,
            view,
            control: followed.control.clone(),
            there: followed.sessions.keys().copied().chain(own).collect(),
            alive: followed.alive(),
            usage: followed.usage.clone(),
            upgrade: Upgrade::of(listing).ok(),
            ..Self::default()
        };
        for item in &listing.items {
            this.hear(&item.key, &item.value);
        }
        this
    }

    fn hear(&mut self, key: &str, value: &[u8]) {
        if key.starts_with(keys::VOLUMES) {
            let volume: Option<VolumeRecord> = self.read(key, value);
            // What a volume is copied to is nobody's yet.
            let volume = volume.filter(|volume| volume.draft_of.is_none());
            self.volumes.extend(volume.map(|volume| (volume.id, volume)));
        } else if let Some(layer) = key.strip_prefix(keys::LAYERS) {
            self.layers.extend(u64::from_str_radix(layer, 16).ok().map(LayerId));
        } else if key.starts_with(keys::CLIENTS) {
            let clients: Option<ClientsRecord> = self.read(key, value);
            self.clients.extend(clients.map(|clients| (clients.node, clients)));
        } else if key.starts_with(keys::TABLES) {
            let piece: Option<SlotTablePiece> = self.read(key, value);
            if let Some(piece) = piece {
                let groups = self.tables.entry(piece.table).or_default();
                groups.extend(piece.runs.iter().map(|(_, _, group)| GroupId(*group)));
            }
        }
    }

    fn read<T: Record>(&mut self, key: &str, value: &[u8]) -> Option<T> {
        match decode(key, value) {
            Ok(record) => Some(record),
            Err(error) => {
                self.unreadable.get_or_insert_with(|| error.to_string());
                None
            }
        }
    }

    /// What of it could not be read.
    pub(super) fn unreadable(&self) -> Option<&str> {
        self.unreadable.as_deref()
    }

    /// Whether a volume may have something in one of these groups. Of one whose table is not known, yes.
    pub(super) fn lies_in(&self, volume: &VolumeRecord, groups: &BTreeSet<GroupId>) -> bool {
        !groups.is_empty() && self.tables.get(&volume.table).is_none_or(|of| !of.is_disjoint(groups))
    }

    /// Names of the volumes that hosts use and that lie in these groups.
    pub(super) fn volumes_in(&self, groups: &BTreeSet<GroupId>) -> Vec<String> {
        let mut touched: BTreeMap<u32, bool> = BTreeMap::new();
        let mut names: Vec<String> = self
            .volumes
            .values()
            .filter(|volume| volume.state == VolumeState::Online)
            .filter(|volume| *touched.entry(volume.table).or_insert_with(|| self.lies_in(volume, groups)))
            .map(|volume| volume.name.clone())
            .collect();
        names.sort_unstable();
        names
    }

    /// Copies that the group is to have, and those that it needs to serve.
    pub(super) fn copies_of(&self, group: &GroupRecord) -> (usize, usize) {
        let replicas = self.view.pools.get(&group.pool).map_or(1, |pool| pool.replicas as usize);
        (replicas, (group.min_in_sync as usize).max(1))
    }

    /// Members in sync whose node is there.
    pub(super) fn serving(&self, group: &GroupRecord) -> usize {
        group.in_sync.iter().filter(|store| self.there.contains(store)).count()
    }

    /// Whether it has as many copies in sync as it is to have, and whoever holds them is there.
    pub(super) fn is_whole(&self, group: &GroupRecord) -> bool {
        self.serving(group) >= self.copies_of(group).0
    }

    /// Whether too few are there for it to serve.
    pub(super) fn is_stopped(&self, group: &GroupRecord) -> bool {
        self.serving(group) < self.copies_of(group).1
    }

    /// Groups, those of them that are not whole, and those that have too few copies to serve.
    pub fn groups(&self) -> (usize, usize, usize) {
        let count = |is_so: fn(&Self, &GroupRecord) -> bool| {
            self.view.groups.values().filter(|group| is_so(self, group)).count()
        };
        (self.view.groups.len(), count(|this, group| !this.is_whole(group)), count(Self::is_stopped))
    }

    /// Nodes that are away or have to catch up, of groups that are not whole.
    pub fn late(&self) -> BTreeSet<NodeId> {
        let lacking = self.view.groups.values().filter(|group| !self.is_whole(group));
        let serves = |group: &GroupRecord, store: &StoreId| group.in_sync.contains(store) && self.there.contains(store);
        let late = lacking.flat_map(|group| group.members.iter().filter(|store| !serves(group, store)));
        late.filter_map(|store| self.view.devices.get(store).map(|device| device.node)).collect()
    }

    /// Groups that are not whole and have a member on one of these.
    pub(super) fn lacking_on(&self, stores: &[StoreId]) -> Vec<&GroupRecord> {
        let is_on = |group: &&GroupRecord| group.members.iter().any(|store| stores.contains(store));
        self.view.groups.values().filter(is_on).filter(|group| !self.is_whole(group)).collect()
    }
}
