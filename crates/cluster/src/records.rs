//! What the map says: one JSON value per key, each with the version of its schema.
//!
//! | key                          | record            |
//! |------------------------------|-------------------|
//! | `cluster`                    | [`ClusterRecord`] |
//! | `nodes/N`                    | [`NodeRecord`]    |
//! | `devices/STORE`              | [`DeviceRecord`]  |
//! | `pools/NAME`                 | [`PoolRecord`]    |
//! | `tables/T/P`                 | [`SlotTablePiece`] number P of table T |
//! | `groups/G`                   | [`GroupRecord`]   |
//! | `volumes/V`                  | [`VolumeRecord`]  |
//! | `layers/L`                   | [`LayerRecord`]   |
//! | `snapshots/V/NAME`           | [`SnapshotRecord`] of volume V |
//! | `volume-names/NAME`          | [`Reference`]: the name is taken |
//! | `nsids/SUBSYSTEM/N`          | [`Reference`]: the namespace id is taken |
//! | `allocators/KIND`            | [`Allocator`]: ids below it are used up |
//!
//! Numbers in keys are hexadecimal of full width, so that keys sort as their numbers do.

use serde::{Deserialize, Serialize};
use types::{ClusterId, Epoch, FamilyId, GroupId, KeyId, LayerId, NodeId, Slot, StoreId, VolumeEpoch, VolumeId};

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
    pub cluster_version: u32,
    /// Wall time, only told.
    pub created_at_ns: u64,
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
    /// The table its slots are in.
    pub table: u32,
    /// Its pool.
    pub pool: String,
    /// Reign of its primary.
    #[serde(with = "number")]
    pub epoch: Epoch,
    /// Who leads it.
    #[serde(with = "hex")]
    pub primary: StoreId,
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
    /// Oldest first; the last one is written to.
    #[serde(with = "number_list")]
    pub layers: Vec<LayerId>,
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
}

impl VolumeRecord {
    /// The 16 bytes of its NGUID.
    pub fn nguid_bytes(&self) -> [u8; 16] {
        u128::from_str_radix(&self.nguid, 16).unwrap_or_default().to_be_bytes()
    }
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
    use types::{GroupId, LayerId, NodeId, StoreId, VolumeId};

    /// The cluster's record.
    pub const CLUSTER: &str = "cluster";
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
    /// A pool.
    pub fn pool(name: &str) -> String {
        format!("pools/{name}")
    }
    /// All pieces of a table.
    pub fn table(table: u32) -> String {
        format!("tables/{table:08x}/")
    }
    /// A group.
    pub fn group(id: GroupId) -> String {
        format!("{GROUPS}{:08x}", id.0)
    }
    /// A volume.
    pub fn volume(id: VolumeId) -> String {
        format!("{VOLUMES}{:016x}", id.0)
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
    /// An allocator.
    pub fn allocator(kind: &str) -> String {
        format!("allocators/{kind}")
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
    NodeRecord: self => keys::node(self.id),
    DeviceRecord: self => keys::device(self.store),
    PoolRecord: self => keys::pool(&self.name),
    SlotTablePiece: self => format!("{}{:04x}", keys::table(self.table), self.piece),
    GroupRecord: self => keys::group(self.id),
    // 2: a volume may be in the trash.
    VolumeRecord [schema 2]: self => keys::volume(self.id),
    LayerRecord: self => keys::layer(self.id),
    SnapshotRecord: self => keys::snapshot(self.volume, &self.name),
    Reference: self => self.taken.clone(),
    Allocator: self => keys::allocator(&self.kind),
}

/// How ids look in JSON: small ones as numbers, 128-bit ones as 32 hexadecimal digits.
mod ids {
    use types::{ClusterId, Epoch, FamilyId, GroupId, KeyId, LayerId, NodeId, StoreId, VolumeEpoch, VolumeId};

    pub(super) trait NumberId: Sized + Copy {
        fn to_number(self) -> u64;
        fn from_number(number: u64) -> Option<Self>;
    }
    pub(super) trait HexId: Sized + Copy {
        fn to_wide(self) -> u128;
        fn from_wide(wide: u128) -> Self;
    }
    macro_rules! ids {
        ($trait:ident, $to:ident, $from:ident: $($id:ident),*) => {
            $(impl $trait for $id {
                ids!(@ $trait $id);
            })*
        };
        (@ NumberId $id:ident) => {
            fn to_number(self) -> u64 {
                u64::from(self.0)
            }
            fn from_number(number: u64) -> Option<Self> {
                number.try_into().ok().map($id)
            }
        };
        (@ HexId $id:ident) => {
            fn to_wide(self) -> u128 {
                self.0
            }
            fn from_wide(wide: u128) -> Self {
                $id(wide)
            }
        };
    }
    ids!(NumberId, to_number, from_number: Epoch, FamilyId, GroupId, KeyId, LayerId, NodeId, VolumeEpoch, VolumeId);
    ids!(HexId, to_wide, from_wide: ClusterId, StoreId);
}

mod number {
    use super::ids::NumberId;
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<T: NumberId, S: Serializer>(id: &T, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(id.to_number())
    }
    pub(super) fn deserialize<'de, T: NumberId, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
        let number = u64::deserialize(deserializer)?;
        T::from_number(number).ok_or_else(|| D::Error::custom(format!("the id {number} is too large")))
    }
}

mod number_list {
    use super::ids::NumberId;
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<T: NumberId, S: Serializer>(list: &[T], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(list.iter().map(|id| id.to_number()))
    }
    pub(super) fn deserialize<'de, T: NumberId, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<T>, D::Error> {
        let numbers = Vec::<u64>::deserialize(deserializer)?;
        let ids = numbers.into_iter().map(T::from_number).collect::<Option<_>>();
        ids.ok_or_else(|| D::Error::custom("an id is too large"))
    }
}

mod hex {
    use super::ids::HexId;
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<T: HexId, S: Serializer>(id: &T, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{:032x}", id.to_wide()))
    }
    pub(super) fn deserialize<'de, T: HexId, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
        let text = String::deserialize(deserializer)?;
        u128::from_str_radix(&text, 16).map(T::from_wide).map_err(D::Error::custom)
    }
}

mod hex_list {
    use super::ids::HexId;
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<T: HexId, S: Serializer>(list: &[T], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(list.iter().map(|id| format!("{:032x}", id.to_wide())))
    }
    pub(super) fn deserialize<'de, T: HexId, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<T>, D::Error> {
        let texts = Vec::<String>::deserialize(deserializer)?;
        let parse = |text: &String| u128::from_str_radix(text, 16).map(T::from_wide).map_err(D::Error::custom);
        texts.iter().map(parse).collect()
    }
}
