//! A store that serves: opened, its shards on their cores, its groups led by it, epoch by epoch.

use super::profile::Profile;
use crate::workload::Failure;
use cluster::GroupRecord;
use replication::GroupShard;
use runtime::Device;
use runtime::sim::SimNode;
use std::cell::{Cell, RefCell};
use std::path::Path;
use std::rc::Rc;
use store::{FormatOptions, Shard, Store};
use types::{ChunkId, ClusterId, Epoch, FamilyId, GroupId, KeyId, LayerId, Mutant, ShardIndex, StoreId, mutant};

pub const DISK: &str = "disk";
/// The smallest device there is.
pub const DISK_BYTES: u64 = 256 << 20;
pub const LAYER: LayerId = LayerId(1);
const STORE: StoreId = StoreId(0xc0de);

/// What the cluster map would hold: it outlives every crash.
#[derive(Default)]
pub struct Map {
    epoch: Cell<u32>,
}

impl Map {
    /// A start takes the next epoch, for all groups.
    fn next_epoch(&self) -> Epoch {
        if !(mutant(Mutant::OldEpochAfterRestart) && self.epoch.get() > 0) {
            self.epoch.set(self.epoch.get() + 1);
        }
        Epoch(self.epoch.get())
    }
}

/// One start of the store, filled in as it comes up.
#[derive(Default)]
pub struct Member {
    pub store: RefCell<Option<std::sync::Arc<Store>>>,
    pub shards: RefCell<Vec<Rc<GroupShard>>>,
    /// Why it does not serve, and will not.
    pub refused: RefCell<Option<Refusal>>,
}

/// Why a start of the store does not serve.
#[derive(Clone, Debug)]
pub enum Refusal {
    /// It says that something durable is damaged or missing.
    Damage(String),
    /// It says that the device does not answer.
    Device(String),
    /// Anything else.
    Other(String),
}

pub async fn format(profile: Profile) -> Result<(), Failure> {
    let device = Device::open(Path::new(DISK)).await.map_err(|error| Failure::new("format", error))?;
    let options = FormatOptions {
        cluster: ClusterId(7),
        store: STORE,
        hash_key: [42; 32],
        segment_size_bytes: None,
        shard_count: Some(profile.shards),
    };
    store::format(&device, &options).await.map_err(|error| Failure::new("format", error))
}

impl Member {
    /// Begins to open the store on core 0 of `node`. What becomes of it is seen in the answer.
    pub fn start(node: &SimNode, profile: Profile, map: &Rc<Map>) -> Rc<Self> {
        let this = Rc::new(Self::default());
        let (member, map, on) = (this.clone(), map.clone(), node.clone());
        node.spawn(0, async move {
            if let Err(refusal) = member.open_store(&on, profile, &map).await {
                member.refuse(refusal);
            }
        });
        this
    }

    pub fn is_open(&self, profile: &Profile) -> bool {
        self.shards.borrow().len() == usize::from(profile.shards)
    }

    fn refuse(&self, refusal: Refusal) {
        self.refused.borrow_mut().get_or_insert(refusal);
    }

    async fn open_store(self: &Rc<Self>, node: &SimNode, profile: Profile, map: &Rc<Map>) -> Result<(), Refusal> {
        let device = open_device().await?;
        let store = Store::open(&device).await.map_err(|error| refusal_of(&error))?;
        if let Some(damage) = store.damage().first() {
            return Err(Refusal::Damage(damage.to_string()));
        }
        if profile.cleans {
            store.clean_below(u32::MAX);
        }
        let epoch = map.next_epoch();
        *self.store.borrow_mut() = Some(store.clone());
        for index in 0..store.shard_count() {
            let (member, store) = (self.clone(), store.clone());
            node.spawn(usize::from(index) % profile.cores, async move {
                match open_shard(&store, ShardIndex(index), profile, epoch).await {
                    Ok(shard) => member.shards.borrow_mut().push(shard),
                    Err(refusal) => member.refuse(refusal),
                }
            });
        }
        Ok(())
    }

    /// Of the indexes of all shards, in the order of the shards.
    pub fn digest(&self) -> Vec<u128> {
        let mut digests: Vec<(ShardIndex, u128)> =
            self.shards.borrow().iter().map(|shard| (shard.store().index(), shard.store().contents_digest())).collect();
        digests.sort_unstable();
        digests.into_iter().map(|(_, digest)| digest).collect()
    }
}

async fn open_device() -> Result<Device, Refusal> {
    Device::open(Path::new(DISK)).await.map_err(|error| Refusal::Other(error.to_string()))
}

fn refusal_of(error: &store::OpenError) -> Refusal {
    match error {
        store::OpenError::Io { .. } | store::OpenError::NoSegment { .. } | store::OpenError::Append(_) => {
            Refusal::Device(error.to_string())
        }
        store::OpenError::Superblock(_) => Refusal::Damage(error.to_string()),
        _ => Refusal::Other(error.to_string()),
    }
}

async fn open_shard(
    store: &std::sync::Arc<Store>,
    index: ShardIndex,
    profile: Profile,
    epoch: Epoch,
) -> Result<Rc<GroupShard>, Refusal> {
    let device = open_device().await?;
    let (shard, recovery) = Shard::open(store, device, index).await.map_err(|error| refusal_of(&error))?;
    if let Some(damage) = recovery.damage.first() {
        return Err(Refusal::Damage(damage.to_string()));
    }
    let records = (1..=profile.groups).map(GroupId).filter(|group| store.shard_of(*group) == index);
    let records = records.map(|group| record_of(group, epoch)).collect();
    let (groups, refused) = GroupShard::start(shard, STORE, recovery, records).await;
    match refused.into_iter().next() {
        None => Ok(groups),
        Some(error @ replication::StartError::Append { .. }) => Err(Refusal::Device(error.to_string())),
        Some(error) => Err(Refusal::Other(error.to_string())),
    }
}

fn record_of(id: GroupId, epoch: Epoch) -> GroupRecord {
    GroupRecord { epoch, ..GroupRecord::begun_with(id, (1, "default".to_owned()), vec![STORE], 1) }
}

/// The one layer.
pub fn layer_record() -> store::format::LayerRecord {
    store::format::LayerRecord {
        layer: LAYER,
        parent: LayerId(0),
        family: FamilyId(1),
        created_at_ns: 1,
        retain_until_ns: 0,
        key: KeyId(0),
    }
}

/// Whose a chunk is.
pub fn group_of(profile: &Profile, chunk: ChunkId) -> GroupId {
    GroupId(1 + chunk.0 % profile.groups)
}
