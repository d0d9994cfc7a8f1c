//! The map as whoever controls follows it: records, and the revision that last changed each.

use crate::map::{Event, Listing, Revision};
use crate::placement::duty::View;
use crate::records::{
    ControlRecord, DeviceDuty, DevicePlaceRecord, DeviceRecord, DutiesRecord, GroupRecord, NodeDuty, NodePlaceRecord,
    NodeRecord, NodeSetRecord, PoolRecord, PoolRulesRecord, Record, SessionRecord, StoreUsageRecord, WantedRecord,
    keys,
};
use crate::typed::decode;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use types::{GroupId, Mutant, NodeId, StoreId, mutant};

/// What the map says of nodes, devices, pools and groups.
#[derive(Clone, Debug, Default)]
pub struct Followed {
    view: View,
    /// Who controls.
    pub control: Option<ControlRecord>,
    /// Orders so far.
    pub duties: DutiesRecord,
    /// Stores whose node was heard of lately.
    pub sessions: BTreeMap<StoreId, SessionRecord>,
    /// How full devices are, as far as their nodes have said.
    pub usage: BTreeMap<StoreId, StoreUsageRecord>,
    revisions: HashMap<String, Revision>,
    /// Records that cannot be read, and why: nothing is decided by the others meanwhile.
    unreadable: BTreeMap<String, String>,
}

/// What an event is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// Something by which is decided who is to hold what.
    Duties,
    /// Who is there, or how full something is.
    Standing,
    /// Nothing that is followed.
    Nothing,
}

impl Followed {
    /// All that a listing says.
    pub fn of(listing: &Listing) -> Self {
        let mut this = Self::default();
        for item in &listing.items {
            this.hear(&item.key, Some(&item.value), item.modified);
        }
        this
    }

    /// What a watch says. One that was known already changes nothing.
    pub fn hear_event(&mut self, event: &Event) -> Heard {
        self.hear(&event.key, event.value.as_deref(), event.revision)
    }

    /// A record is this, since then, or is gone.
    pub fn hear(&mut self, key: &str, value: Option<&[u8]>, at: Revision) -> Heard {
        let Some(kind) = Kind::of(key) else { return Heard::Nothing };
        if self.revision(key) > at {
            return Heard::Nothing;
        }
        self.unreadable.remove(key);
        match value {
            Some(_) => drop(self.revisions.insert(key.to_owned(), at)),
            None => drop(self.revisions.remove(key)),
        }
        if let Err(why) = self.take(kind, key, value) {
            self.unreadable.insert(key.to_owned(), why);
        }
        match kind {
            Kind::Session | Kind::Usage | Kind::Control | Kind::Duties => Heard::Standing,
            _ => Heard::Duties,
        }
    }

    fn take(&mut self, kind: Kind, key: &str, value: Option<&[u8]>) -> Result<(), String> {
        fn read<T: Record>(key: &str, value: Option<&[u8]>) -> Result<Option<T>, String> {
            value.map(|value| decode(key, value)).transpose().map_err(|error| error.to_string())
        }
        fn set<K: Ord, T>(of: &mut BTreeMap<K, T>, id: K, record: Option<T>) {
            match record {
                Some(record) => drop(of.insert(id, record)),
                None => drop(of.remove(&id)),
            }
        }
        let number = || u32::from_str_radix(kind.rest(key), 16).map_err(|error| error.to_string());
        let store = || u128::from_str_radix(kind.rest(key), 16).map(StoreId).map_err(|error| error.to_string());
        let name = || kind.rest(key).to_owned();
        let view = &mut self.view;
        match kind {
            Kind::Node => set(&mut view.nodes, NodeId(number()?), read::<NodeRecord>(key, value)?),
            Kind::NodePlace => set(&mut view.node_places, NodeId(number()?), read::<NodePlaceRecord>(key, value)?),
            Kind::Device => set(&mut view.devices, store()?, read::<DeviceRecord>(key, value)?),
            Kind::DevicePlace => set(&mut view.device_places, store()?, read::<DevicePlaceRecord>(key, value)?),
            Kind::Pool => set(&mut view.pools, name(), read::<PoolRecord>(key, value)?),
            Kind::PoolRules => set(&mut view.rules, name(), read::<PoolRulesRecord>(key, value)?),
            Kind::NodeSet => set(&mut view.sets, number()?, read::<NodeSetRecord>(key, value)?),
            Kind::Group => set(&mut view.groups, GroupId(number()?), read::<GroupRecord>(key, value)?),
            Kind::Wanted => set(&mut view.wanted, GroupId(number()?), read::<WantedRecord>(key, value)?),
            Kind::Session => set(&mut self.sessions, store()?, read::<SessionRecord>(key, value)?),
            Kind::Usage => {
                let usage = read::<StoreUsageRecord>(key, value)?;
                set(&mut self.view.free, store()?, usage.as_ref().map(StoreUsageRecord::free_bytes));
                set(&mut self.usage, store()?, usage);
            }
            Kind::Control => self.control = read(key, value)?,
            Kind::Duties => self.duties = read(key, value)?.unwrap_or_default(),
        }
        Ok(())
    }

    /// The revision that last changed a record; 0: it is not there.
    pub fn revision(&self, key: &str) -> Revision {
        self.revisions.get(key).copied().unwrap_or_default()
    }

    /// Whether a record is understood, or is not there.
    pub fn is_readable(&self, key: &str) -> bool {
        !self.unreadable.contains_key(key) || mutant(Mutant::UnreadableOverwritten)
    }

    /// What is decided by. What a group holds is what was counted on one of its members; where nobody has, what devices hold is
    /// taken to be spread evenly over their groups.
    ///
    /// # Errors
    /// If a record cannot be read: without it something may look empty that is not.
    pub fn view(&mut self) -> Result<&View, String> {
        if let Some((key, why)) = self.unreadable.first_key_value() {
            return Err(format!("the map's record {key} cannot be read: {why}"));
        }
        let mut counts: BTreeMap<StoreId, u64> = BTreeMap::new();
        for group in self.view.groups.values() {
            group.members.iter().for_each(|store| *counts.entry(*store).or_default() += 1);
        }
        let counted = |store: &StoreId, group: GroupId| {
            let of_store = self.usage.get(store).and_then(|usage| usage.bytes_of(group));
            of_store.filter(|_| !mutant(Mutant::GroupsTakenForEven))
        };
        let even_share = |store: &StoreId| {
            let live = self.usage.get(store).map_or(0, |usage| usage.live_bytes);
            live / counts.get(store).copied().unwrap_or(1).max(1)
        };
        let held = |group: &GroupRecord| {
            let counted = group.in_sync.iter().filter_map(|store| counted(store, group.id)).max();
            counted.or_else(|| group.in_sync.iter().map(even_share).max()).unwrap_or(0)
        };
        self.view.held = self.view.groups.values().map(|group| (group.id, held(group))).collect();
        Ok(&self.view)
    }

    /// The records alone.
    pub fn records(&self) -> &View {
        &self.view
    }

    /// Nodes that have a session.
    pub fn alive(&self) -> BTreeSet<NodeId> {
        self.sessions.values().map(|session| session.node).collect()
    }

    /// What groups are put on the device by: its record and what is said of it, as of when. Who takes a device out of the map
    /// says first that it is to leave, and then looks for groups once more.
    pub fn said_of(&self, store: StoreId) -> [(String, Revision); 2] {
        [keys::device(store), keys::device_place(store)].map(|key| {
            let modified = self.revision(&key);
            (key, modified)
        })
    }

    /// Whether the device is to leave, by itself or with its node.
    pub fn is_leaving(&self, store: StoreId) -> bool {
        let place = self.view.device_places.get(&store).map(|place| place.duty).unwrap_or_default();
        let node = self.view.devices.get(&store).and_then(|device| self.view.node_places.get(&device.node));
        place != DeviceDuty::In || node.is_some_and(|node| node.duty == NodeDuty::Draining)
    }
}

#[derive(Clone, Copy)]
enum Kind {
    Node,
    NodePlace,
    Device,
    DevicePlace,
    Pool,
    PoolRules,
    NodeSet,
    Group,
    Wanted,
    Session,
    Usage,
    Control,
    Duties,
}

impl Kind {
    const ALL: [(Self, &str); 13] = [
        (Self::Group, keys::GROUPS),
        (Self::Wanted, keys::WANTED),
        (Self::Session, keys::SESSIONS),
        (Self::Usage, keys::STORE_USAGE),
        (Self::Node, keys::NODES),
        (Self::NodePlace, keys::NODE_PLACES),
        (Self::Device, keys::DEVICES),
        (Self::DevicePlace, keys::DEVICE_PLACES),
        (Self::Pool, keys::POOLS),
        (Self::PoolRules, keys::POOL_RULES),
        (Self::NodeSet, keys::NODE_SETS),
        (Self::Control, keys::CONTROL),
        (Self::Duties, keys::DUTIES),
    ];

    fn of(key: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, prefix)| key.starts_with(prefix)).map(|(kind, _)| *kind)
    }

    fn rest(self, key: &str) -> &str {
        key.split_once('/').map_or("", |(_, rest)| rest)
    }
}
