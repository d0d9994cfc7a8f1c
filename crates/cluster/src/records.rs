//! What the map says: one JSON value per key, each with the version of its schema.
//!
//! | key                          | record            |
//! |------------------------------|-------------------|
//! | `cluster`                    | [`ClusterRecord`] |
//! | `cluster-key`                | [`ClusterKeyRecord`]: what its nodes know each other by |
//! | `nodes/N`                    | [`NodeRecord`]    |
//! | `devices/STORE`              | [`DeviceRecord`]  |
//! | `pools/NAME`                 | [`PoolRecord`]    |
//! | `tables/T/P`                 | [`SlotTablePiece`] number P of table T |
//! | `groups/G`                   | [`GroupRecord`]   |
//! | `sessions/S`                 | [`SessionRecord`] of store S, under its node's lease: gone when the node may be |
//! | `clients/N`                  | [`ClientsRecord`] of node N, under its lease |
//! | `doors/N`                    | [`DoorsRecord`] of node N, under its lease |
//! | `foundings/NAME`             | [`FoundingRecord`]: what the pool was begun with |
//! | `volumes/V`                  | [`VolumeRecord`]  |
//! | `families/F`                 | [`FamilyRecord`]  |
//! | `layers/L`                   | [`LayerRecord`]   |
//! | `snapshots/V/NAME`           | [`SnapshotRecord`] of volume V |
//! | `data-keys/K`                | [`KeyRecord`]     |
//! | `volume-names/NAME`          | [`Reference`]: the name is taken |
//! | `nsids/SUBSYSTEM/N`          | [`Reference`]: the namespace id is taken |
//! | `allocators/KIND`            | [`Allocator`]: ids below it are used up |
//! | `node-places/N`              | [`NodePlaceRecord`]: where node N stands, and whether it is to be emptied |
//! | `device-places/STORE`        | [`DevicePlaceRecord`]: what the device is to hold |
//! | `pool-rules/NAME`            | [`PoolRulesRecord`]: where the pool's copies may lie |
//! | `pool-drafts/NAME`           | [`PoolDraftRecord`]: the pool is being made |
//! | `node-sets/T`                | [`NodeSetRecord`] of table T: whose groups lie on these nodes and no others |
//! | `wanted/G`                   | [`WantedRecord`]: who is to hold group G; its primary sees to it |
//! | `splits/G`                   | [`SplitRecord`]: group G began as half of another |
//! | `control`                    | [`ControlRecord`]: the node that sees to it that all this is done |
//! | `duties`                     | [`DutiesRecord`]: changes with each order about nodes and devices |
//! | `store-usage/STORE`          | [`StoreUsageRecord`]: how full the device is, and with what |
//!
//! Numbers in keys are hexadecimal of full width, so that keys sort as their numbers do.

mod clients;
mod doors;
mod id_format;
mod key;
mod limits;
mod members;
mod place;
mod release;

pub use clients::ClientsRecord;
pub use doors::{DoorsRecord, FoundingRecord};
pub use key::{Cipher, KeyRecord, KeyWrap, ScryptCost, SecretKind};
pub use limits::{LimitChange, Limits};
pub use members::MembersError;
pub use place::{
    ControlRecord, DeviceDuty, DevicePlaceRecord, DeviceTrouble, DutiesRecord, FailureDomain, GroupBytes, NodeDuty,
    NodePlaceRecord, NodeSetRecord, PoolDraftRecord, PoolRulesRecord, SplitRecord, StoreUsageRecord,
    UnknownFailureDomain, VolumePlacement, WantedRecord,
};

pub use release::{FinishedUpgrade, NodeRelease, Versions};

use id_format::{bytes, hex_list, number_list, optional_number};
pub(crate) use id_format::{hex, number};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use types::{
    ClusterId, Epoch, FamilyId, GroupId, Incarnation, KeyId, LayerId, NodeId, Slot, StoreId, VolumeEpoch, VolumeId,
};

/// A record of the map: what it is called and which schema this program writes.
pub trait Record: Serialize + for<'de> Deserialize<'de> {
    /// Version of the schema; a record of a later one is refused, not guessed at.
    const SCHEMA: u32 = 1;
    /// Its key.
    fn key(&self) -> String;
}

/// The cluster itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterRecord {
    /// Its id, for ever; in the superblock of every device.
    #[serde(with = "hex")]
    pub id: ClusterId,
    /// Formats that all nodes know: gates new ones until an upgrade is finished.
    #[serde(default = "ClusterRecord::first_version")]
    pub cluster_version: u32,
    /// How it came to that version, if it did not begin with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished: Option<FinishedUpgrade>,
    /// Wall time, only told.
    pub created_at_ns: u64,
    /// Copies that its first pool is to keep; `None`: as the file of the node says that makes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<u32>,
}

impl ClusterRecord {
    /// What a cluster is at that does not say it.
    fn first_version() -> u32 {
        Versions::default().lowest
    }
}

/// What all nodes of the cluster know, and nobody else: they show each other that they do when they connect. Whoever reads the map
/// can speak as a node; whoever writes it needs not even that.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterKeyRecord {
    /// 32 bytes.
    #[serde(with = "bytes")]
    pub key: Vec<u8>,
}

impl fmt::Debug for ClusterKeyRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClusterKeyRecord(…)")
    }
}

/// A machine of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeRecord {
    /// Its id.
    #[serde(with = "number")]
    pub id: NodeId,
    /// Where its peers reach it.
    pub address: String,
}

/// Whether a device may be formatted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DeviceState {
    /// In the map, perhaps not formatted yet: holds nothing.
    New,
    /// Formatted: never formatted again.
    Active,
}

/// A device with a store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceRecord {
    /// The store's id, in its superblock.
    #[serde(with = "hex")]
    pub store: StoreId,
    /// The node it is in.
    #[serde(with = "number")]
    pub node: NodeId,
    /// Where on that node.
    pub path: String,
    /// Its size.
    pub size_bytes: u64,
    /// Whether it may be formatted.
    pub state: DeviceState,
}

/// How a pool protects what it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// Whole copies.
    Replicated,
}

/// How blocks are compressed before they are encrypted and replicated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Compression {
    /// Not at all.
    #[default]
    Off,
    /// LZ4: cheap.
    Lz4,
    /// Zstandard: smaller, and dearer.
    Zstd,
}

impl Compression {
    /// All there are, with their names.
    pub const ALL: [(Self, &str); 3] = [(Self::Lz4, "lz4"), (Self::Zstd, "zstd"), (Self::Off, "off")];
}

impl FromStr for Compression {
    type Err = UnknownCompression;

    fn from_str(text: &str) -> Result<Self, UnknownCompression> {
        let found = Self::ALL.iter().find(|(_, name)| *name == text);
        found.map(|(compression, _)| *compression).ok_or_else(|| UnknownCompression(text.to_owned()))
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Self::ALL.iter().find(|(compression, _)| compression == self).map_or("", |(_, name)| name);
        f.pad(name)
    }
}

/// No such compression.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a compression: choose lz4, zstd or off")]
pub struct UnknownCompression(pub String);

/// Devices that share a policy, and the slot table over their groups.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolRecord {
    /// Its name.
    pub name: String,
    /// How it protects.
    pub policy: Policy,
    /// Members of each group.
    pub replicas: u32,
    /// Members that must have a write before it is committed.
    pub min_in_sync: u32,
    /// Its `spread` table.
    pub table: u32,
    /// Whether a write may be acknowledged before it is durable. Never, unless the pool says so.
    pub write_cache: bool,
    /// How what is written from now on is compressed.
    #[serde(default)]
    pub compression: Compression,
}

/// A piece of a slot table, small enough for one value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlotTablePiece {
    /// The table.
    pub table: u32,
    /// Number of the piece.
    pub piece: u32,
    /// Number of pieces.
    pub pieces: u32,
    /// (first slot, last slot, group), in order.
    pub runs: Vec<(u16, u16, u32)>,
}

impl SlotTablePiece {
    /// Runs per piece: at most 20 bytes of JSON each, so a piece stays below 256 KiB.
    pub const RUNS_MAX: usize = 8192;

    /// The piece's runs.
    pub fn slot_runs(&self) -> impl Iterator<Item = crate::SlotRun> {
        let run = |&(first, last, group): &(u16, u16, u32)| crate::SlotRun {
            first: Slot(first),
            last: Slot(last),
            group: GroupId(group),
        };
        self.runs.iter().map(run)
    }
}

/// Whether a group may serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GroupState {
    /// Its primary serves.
    Active,
}

/// A placement group: who holds it, who leads it, who is in sync. Changed only by compare-and-swap with epoch + 1.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupRecord {
    /// Its id.
    #[serde(with = "number")]
    pub id: GroupId,
    /// The table it was made for. Later ones of its pool may give it slots as well.
    pub table: u32,
    /// Its pool.
    pub pool: String,
    /// Reign of its primary.
    #[serde(with = "number")]
    pub epoch: Epoch,
    /// Who leads it.
    #[serde(with = "hex")]
    pub primary: StoreId,
    /// Which of the primary's lives leads: a later one needs an epoch of its own.
    #[serde(default, with = "number")]
    pub life: Incarnation,
    /// Members that hold every committed entry and count for new ones.
    #[serde(with = "hex_list")]
    pub in_sync: Vec<StoreId>,
    /// Former in-sync members that may lead once all of `in_sync` is lost.
    #[serde(with = "hex_list")]
    pub eligible: Vec<StoreId>,
    /// Members that are catching up and count for nothing yet.
    #[serde(with = "hex_list")]
    pub joining: Vec<StoreId>,
    /// All members.
    #[serde(with = "hex_list")]
    pub members: Vec<StoreId>,
    /// Of the pool, so that a member that holds this record alone knows it.
    pub min_in_sync: u32,
    /// Whether it may serve.
    pub state: GroupState,
    /// The last time that an operator said whose copy counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forced: Option<Forced>,
}

/// An operator's word on whose copy of a group counts (R24 of docs/replication.md): what another member has of earlier epochs, and
/// that one has not, is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Forced {
    /// The first epoch in which that is so.
    #[serde(with = "number")]
    pub epoch: Epoch,
    /// Whose copy counts.
    #[serde(with = "hex")]
    pub store: StoreId,
}

/// A store is served by a node that was heard of lately. Lives under that node's lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionRecord {
    /// The store.
    #[serde(with = "hex")]
    pub store: StoreId,
    /// Which of its lives.
    #[serde(with = "number")]
    pub life: Incarnation,
    /// The node.
    #[serde(with = "number")]
    pub node: NodeId,
}

/// Life of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum VolumeState {
    /// Serves.
    Online,
    /// Gone for hosts, and kept for a term: it can be restored. Its name is free, its namespace id is not.
    Trashed(TrashTerm),
    /// Gone for hosts; its space is being given back.
    Deleting,
}

/// How long a deleted volume is kept. Wall time: a term outlives the process that began it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrashTerm {
    /// When it was deleted, ns since 1970.
    pub deleted_at_ns: u64,
    /// When the term is over, ns since 1970.
    pub keep_until_ns: u64,
}

/// Which NVMe hosts may use a volume. NBD clients have no name that could be asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HostAccess {
    /// Nobody has said: every host or none, as the node is configured that serves it.
    #[default]
    Unset,
    /// Every host.
    Any,
    /// The hosts of these NQNs, in order.
    Listed(Vec<String>),
}

impl HostAccess {
    /// Hosts of one volume: as many as share one at most, and its record stays small.
    pub const LISTED_MAX: usize = 64;

    /// Whether every host may use it, where the node lets every host use what nobody has said anything of.
    pub fn is_open(&self, open_by_default: bool) -> bool {
        match self {
            Self::Unset => open_by_default,
            Self::Any => true,
            Self::Listed(_) => false,
        }
    }

    /// Whether this host may use it.
    pub fn allows(&self, host_nqn: &str, open_by_default: bool) -> bool {
        self.is_open(open_by_default) || self.listed().iter().any(|nqn| nqn == host_nqn)
    }

    /// The hosts that are named.
    pub fn listed(&self) -> &[String] {
        match self {
            Self::Listed(nqns) => nqns,
            Self::Unset | Self::Any => &[],
        }
    }

    fn is_unset(&self) -> bool {
        *self == Self::Unset
    }
}

/// A volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeRecord {
    /// Its id, for ever.
    #[serde(with = "number")]
    pub id: VolumeId,
    /// Its name, today.
    pub name: String,
    /// Its pool.
    pub pool: String,
    /// Its slot table.
    pub table: u32,
    /// Its size.
    pub size_bytes: u64,
    /// Logical block: 512 or 4,096.
    pub block_size_bytes: u32,
    /// The NVMe subsystem it is a namespace of.
    pub subsystem: String,
    /// Its namespace id there.
    pub nsid: u32,
    /// Its globally unique id, the same on all paths.
    pub nguid: String,
    /// Its family.
    #[serde(with = "number")]
    pub family: FamilyId,
    /// What maps the family's chunks to slots.
    pub family_seed: u64,
    /// The family's data key; `None`: it is not encrypted.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "optional_number")]
    pub key: Option<KeyId>,
    /// The NVMe hosts that may use it.
    #[serde(default, skip_serializing_if = "HostAccess::is_unset")]
    pub hosts: HostAccess,
    /// What it may do in a second.
    #[serde(default, skip_serializing_if = "Limits::is_unset")]
    pub limits: Limits,
    /// Oldest first; the last one is written to.
    #[serde(with = "number_list")]
    pub layers: Vec<LayerId>,
    /// What it wrote to, or read a snapshot through, before: commands may still, or an earlier head that does not know
    /// better. None of these ends.
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "number_list")]
    pub leaving: Vec<LayerId>,
    /// The node that sends its reads and writes to groups; 0: none yet.
    #[serde(with = "number")]
    pub head: NodeId,
    /// Reign of the head.
    #[serde(with = "number")]
    pub volume_epoch: VolumeEpoch,
    /// Wall time, only told.
    pub created_at_ns: u64,
    /// Who owns it.
    pub project: String,
    /// Where in its life it is.
    pub state: VolumeState,
    /// The node that is to serve it, whoever does meanwhile; 0: nobody has said.
    #[serde(default, skip_serializing_if = "is_nobody", with = "number")]
    pub home: NodeId,
    /// The volume that is being copied into this one, to lie where it lies: no client sees it.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "optional_number")]
    pub draft_of: Option<VolumeId>,
}

fn is_nobody(node: &NodeId) -> bool {
    *node == NodeId(0)
}

impl VolumeRecord {
    /// The 16 bytes of its NGUID.
    pub fn nguid_bytes(&self) -> [u8; 16] {
        u128::from_str_radix(&self.nguid, 16).unwrap_or_default().to_be_bytes()
    }

    /// Its commands go on without this layer; some may act on it still.
    pub(crate) fn leaves(&mut self, layer: LayerId) {
        if !self.leaving.contains(&layer) {
            self.leaving.push(layer);
        }
    }
}

/// Volumes that share layers, and who ends those of them that nobody wants. Changed only by compare-and-swap with
/// epoch + 1.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FamilyRecord {
    /// Its id.
    #[serde(with = "number")]
    pub id: FamilyId,
    /// The node that ends its layers: one at a time, whoever the heads of its volumes are.
    #[serde(with = "number")]
    pub keeper: NodeId,
    /// Reign of the keeper.
    #[serde(with = "number")]
    pub epoch: VolumeEpoch,
}

/// A layer: the blocks written between two snapshots. Its id is never used again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayerRecord {
    /// Its id.
    #[serde(with = "number")]
    pub id: LayerId,
    /// The layer that reads fall through to; 0: none.
    #[serde(with = "number")]
    pub parent: LayerId,
    /// Its family.
    #[serde(with = "number")]
    pub family: FamilyId,
    /// The key its blocks are encrypted with; 0: none.
    #[serde(with = "number")]
    pub key_id: KeyId,
    /// Wall time, only told.
    pub created_at_ns: u64,
}

/// A snapshot: a name for what a volume held at one instant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotRecord {
    /// The volume it was taken of.
    #[serde(with = "number")]
    pub volume: VolumeId,
    /// Its name, unique within the volume.
    pub name: String,
    /// The layer that was the volume's top: reading through it and its parents gives the snapshot.
    #[serde(with = "number")]
    pub layer: LayerId,
    /// The volume's family.
    #[serde(with = "number")]
    pub family: FamilyId,
    /// Size of the volume at that instant.
    pub size_bytes: u64,
    /// Wall time, only told.
    pub created_at_ns: u64,
}

/// A name or number that is taken, and by which volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reference {
    /// The key that is taken.
    #[serde(skip)]
    pub taken: String,
    /// By this volume.
    #[serde(with = "number")]
    pub volume: VolumeId,
}

/// Hands out ids; never one twice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Allocator {
    /// What the ids are of.
    pub kind: String,
    /// The next id.
    pub next: u64,
}

/// Keys of the records, and the prefixes to list them by.
pub mod keys {
    use types::{FamilyId, GroupId, KeyId, LayerId, NodeId, StoreId, VolumeId};

    /// The cluster's record.
    pub const CLUSTER: &str = "cluster";
    /// The key of the cluster's nodes.
    pub const CLUSTER_KEY: &str = "cluster-key";
    /// All nodes.
    pub const NODES: &str = "nodes/";
    /// All devices.
    pub const DEVICES: &str = "devices/";
    /// All groups.
    pub const GROUPS: &str = "groups/";
    /// All volumes.
    pub const VOLUMES: &str = "volumes/";

    /// A node.
    pub fn node(id: NodeId) -> String {
        format!("{NODES}{:08x}", id.0)
    }
    /// A device.
    pub fn device(id: StoreId) -> String {
        format!("{DEVICES}{id}")
    }
    /// All pools.
    pub const POOLS: &str = "pools/";

    /// A pool.
    pub fn pool(name: &str) -> String {
        format!("{POOLS}{name}")
    }
    /// All pieces of all tables.
    pub const TABLES: &str = "tables/";

    /// All pieces of a table.
    pub fn table(table: u32) -> String {
        format!("{TABLES}{table:08x}/")
    }
    /// Whether the key lives under the lease of a node that runs: whoever lives says it again.
    pub fn is_of_a_life(key: &str) -> bool {
        [SESSIONS, CLIENTS, DOORS].iter().any(|prefix| key.starts_with(prefix))
    }
    /// Whether the key is about names, layers and places, which are nowhere but in the map and in the copies that nodes keep of it. Who
    /// leads a group its members know; who controls, keeps or is the head of something gets a number far ahead in a map that is made
    /// anew.
    pub fn is_copied(key: &str) -> bool {
        let known_elsewhere = [GROUPS, WANTED, FAMILIES, STORE_USAGE, ALLOCATORS];
        let is_elsewhere = known_elsewhere.iter().any(|prefix| key.starts_with(prefix));
        !is_of_a_life(key) && !is_elsewhere && key != CONTROL && key != DUTIES
    }
    /// Sessions of all stores.
    pub const SESSIONS: &str = "sessions/";
    /// The session of a store.
    pub fn session(id: StoreId) -> String {
        format!("{SESSIONS}{id}")
    }
    /// Clients of all nodes.
    pub const CLIENTS: &str = "clients/";
    /// The clients of a node.
    pub fn clients(id: NodeId) -> String {
        format!("{CLIENTS}{:08x}", id.0)
    }
    /// Where clients reach all nodes.
    pub const DOORS: &str = "doors/";
    /// Where clients reach a node.
    pub fn doors(id: NodeId) -> String {
        format!("{DOORS}{:08x}", id.0)
    }
    /// What a pool was begun with.
    pub fn founding(name: &str) -> String {
        format!("foundings/{name}")
    }
    /// A group.
    pub fn group(id: GroupId) -> String {
        format!("{GROUPS}{:08x}", id.0)
    }
    /// A volume.
    pub fn volume(id: VolumeId) -> String {
        format!("{VOLUMES}{:016x}", id.0)
    }
    /// All data keys.
    pub const DATA_KEYS: &str = "data-keys/";
    /// A data key.
    pub fn data_key(id: KeyId) -> String {
        format!("{DATA_KEYS}{:08x}", id.0)
    }
    /// All families.
    pub const FAMILIES: &str = "families/";
    /// A family.
    pub fn family(id: FamilyId) -> String {
        format!("{FAMILIES}{:016x}", id.0)
    }
    /// All layers.
    pub const LAYERS: &str = "layers/";
    /// All snapshots.
    pub const SNAPSHOTS: &str = "snapshots/";

    /// The snapshots of a volume.
    pub fn snapshots_of(volume: VolumeId) -> String {
        format!("{SNAPSHOTS}{:016x}/", volume.0)
    }
    /// A snapshot.
    pub fn snapshot(volume: VolumeId, name: &str) -> String {
        format!("{}{name}", snapshots_of(volume))
    }
    /// A layer.
    pub fn layer(id: LayerId) -> String {
        format!("{LAYERS}{:016x}", id.0)
    }
    /// A name of a volume.
    pub fn volume_name(name: &str) -> String {
        format!("volume-names/{name}")
    }
    /// All namespace ids of a subsystem.
    pub fn nsids(subsystem: &str) -> String {
        format!("nsids/{subsystem}/")
    }
    /// A namespace id of a subsystem.
    pub fn nsid(subsystem: &str, nsid: u32) -> String {
        format!("{}{nsid:08x}", nsids(subsystem))
    }
    /// Places of all nodes.
    pub const NODE_PLACES: &str = "node-places/";
    /// The place of a node.
    pub fn node_place(id: NodeId) -> String {
        format!("{NODE_PLACES}{:08x}", id.0)
    }
    /// Places of all devices.
    pub const DEVICE_PLACES: &str = "device-places/";
    /// The place of a device.
    pub fn device_place(id: StoreId) -> String {
        format!("{DEVICE_PLACES}{id}")
    }
    /// Rules of all pools.
    pub const POOL_RULES: &str = "pool-rules/";
    /// The rules of a pool.
    pub fn pool_rules(name: &str) -> String {
        format!("{POOL_RULES}{name}")
    }
    /// A pool that is being made.
    pub fn pool_draft(name: &str) -> String {
        format!("pool-drafts/{name}")
    }
    /// Node sets of all tables.
    pub const NODE_SETS: &str = "node-sets/";
    /// The node set of a table.
    pub fn node_set(table: u32) -> String {
        format!("{NODE_SETS}{table:08x}")
    }
    /// Groups that are to lie elsewhere.
    pub const WANTED: &str = "wanted/";
    /// Where a group is to lie.
    pub fn wanted(id: GroupId) -> String {
        format!("{WANTED}{:08x}", id.0)
    }
    /// Groups that began as half of another.
    pub const SPLITS: &str = "splits/";
    /// How a group began.
    pub fn split(id: GroupId) -> String {
        format!("{SPLITS}{:08x}", id.0)
    }
    /// Who controls.
    pub const CONTROL: &str = "control";
    /// What is changed with each order about nodes and devices.
    pub const DUTIES: &str = "duties";
    /// How full all devices are.
    pub const STORE_USAGE: &str = "store-usage/";
    /// How full a device is.
    pub fn store_usage(id: StoreId) -> String {
        format!("{STORE_USAGE}{id}")
    }
    /// All allocators.
    pub const ALLOCATORS: &str = "allocators/";
    /// An allocator.
    pub fn allocator(kind: &str) -> String {
        format!("{ALLOCATORS}{kind}")
    }
}

macro_rules! record {
    ($($record:ty $([schema $schema:literal])?: $self:ident => $key:expr),* $(,)?) => {
        $(impl Record for $record {
            $(const SCHEMA: u32 = $schema;)?
            fn key(&$self) -> String {
                $key
            }
        })*
    };
}

record! {
    ClusterRecord: self => keys::CLUSTER.to_owned(),
    ClusterKeyRecord: self => keys::CLUSTER_KEY.to_owned(),
    NodeRecord: self => keys::node(self.id),
    DeviceRecord: self => keys::device(self.store),
    // 2: what is written may be compressed.
    PoolRecord [schema 2]: self => keys::pool(&self.name),
    SlotTablePiece: self => format!("{}{:04x}", keys::table(self.table), self.piece),
    // 2: it names the life that leads.
    GroupRecord [schema 2]: self => keys::group(self.id),
    SessionRecord: self => keys::session(self.store),
    ClientsRecord: self => self.path(),
    DoorsRecord: self => self.path(),
    FoundingRecord: self => keys::founding(&self.name),
    // 2: a volume may be in the trash. 3: it may be encrypted. 4: it may be for some hosts only. 5: what it does
    // in a second may be limited. 6: layers may be leaving. 7: it may have a home.
    VolumeRecord [schema 8]: self => keys::volume(self.id),
    FamilyRecord: self => keys::family(self.id),
    LayerRecord: self => keys::layer(self.id),
    SnapshotRecord: self => keys::snapshot(self.volume, &self.name),
    Reference: self => self.taken.clone(),
    Allocator: self => keys::allocator(&self.kind),
    NodePlaceRecord: self => keys::node_place(self.node),
    DevicePlaceRecord: self => keys::device_place(self.store),
    PoolRulesRecord: self => keys::pool_rules(&self.pool),
    PoolDraftRecord: self => keys::pool_draft(&self.pool.name),
    NodeSetRecord: self => keys::node_set(self.table),
    WantedRecord: self => keys::wanted(self.group),
    SplitRecord: self => keys::split(self.child),
    ControlRecord: self => keys::CONTROL.to_owned(),
    DutiesRecord: self => keys::DUTIES.to_owned(),
    StoreUsageRecord: self => keys::store_usage(self.store),
}
