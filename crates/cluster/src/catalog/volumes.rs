//! Volumes: made, given a head, deleted.

use super::keys::{forget_history, let_go};
use super::{ATTEMPTS_MAX, Attempt, CatalogError, Reign, VolumePlace, attempt};
use crate::map::{MapStore, TRANSACTION_OPERATIONS_MAX, Transaction};
use crate::names::{check_block_size, check_limits, check_name, check_volume_size};
use crate::records::{
    Allocator, FamilyRecord, HostAccess, KeyRecord, LayerRecord, Limits, NodeSetRecord, PoolRecord, Record, Reference,
    VolumeRecord, VolumeState, keys,
};
use crate::typed::{Versioned, encode, get, list};
use std::collections::BTreeSet;
use types::{FamilyId, LayerId, Mutant, NodeId, VolumeEpoch, VolumeId, mutant};

/// Namespaces of a subsystem (MNAN): ids 1..=1024.
pub const NSID_MAX: u32 = 1024;
/// The subsystem, and the project, of volumes that were not told otherwise.
pub const DEFAULT_SUBSYSTEM: &str = "default";

/// What a volume is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewVolume {
    /// Its name.
    pub name: String,
    /// Its size.
    pub size_bytes: u64,
    /// Logical block: 512 or 4,096.
    pub block_size_bytes: u32,
    /// What it may do in a second.
    pub limits: Limits,
    /// Who may use it from the beginning.
    pub hosts: HostAccess,
}

/// Makes a volume in the pool's own table with `head` as its head, in its first epoch, and as its home.
///
/// # Errors
/// If name or size are not allowed, the name is taken, or no namespace id is free.
pub async fn create_volume(
    map: &dyn MapStore,
    new: &NewVolume,
    pool: &str,
    head: NodeId,
) -> Result<VolumeRecord, CatalogError> {
    let place = VolumePlace { pool: pool.to_owned(), table: None, home: head };
    create_placed_volume(map, new, &place, head, None).await
}

/// Makes a volume where it is to lie, with `head` as its head in its first epoch. Its blocks are encrypted with `key`, if there
/// is one, which comes into the map with it.
///
/// # Errors
/// As [`create_volume`]; and if the table's node set is gone by now.
pub async fn create_placed_volume(
    map: &dyn MapStore,
    new: &NewVolume,
    place: &VolumePlace,
    head: NodeId,
    key: Option<&KeyRecord>,
) -> Result<VolumeRecord, CatalogError> {
    let (nguid, family_seed) = (new_nguid(), runtime::random_u64());
    for _ in 0..ATTEMPTS_MAX {
        let (begun, ids) = match begin_volume(map, new, &place.pool, head, &nguid).await? {
            Ok(begun) => begun,
            Err(made) => return Ok(made),
        };
        let table = place.table.unwrap_or(begun.table);
        let key_id = key.map(|key| key.id);
        let volume = VolumeRecord { family_seed, key: key_id, table, home: place.home, ..begun };
        let family = FamilyRecord { id: volume.family, keeper: head, epoch: VolumeEpoch(1) };
        let mut transaction = make(&volume, ids).expect_absent(family.key()).put(family.key(), encode(&family));
        if let Some(key) = key {
            let key = KeyRecord { family: volume.family, ..key.clone() };
            transaction = transaction.expect_absent(key.key()).put(key.key(), encode(&key));
        }
        if place.table.is_some() && !mutant(Mutant::TableWithoutSet) {
            let set_key = keys::node_set(table);
            let set = get::<NodeSetRecord>(map, &set_key).await?.filter(|set| set.record.pool == place.pool);
            let gone = || CatalogError::BadRecord { key: set_key.clone(), why: "it is gone: try again".to_owned() };
            transaction = transaction.expect(&set_key, set.ok_or_else(gone)?.modified);
        }
        if let Attempt::Done = attempt(map, transaction).await? {
            return Ok(volume);
        }
    }
    Err(CatalogError::Contended)
}

/// Random and the caller's alone: a record with this NGUID was made by its call, heard of or not.
pub(super) fn new_nguid() -> String {
    format!("{:016x}{:016x}", runtime::random_u64(), runtime::random_u64())
}

/// A volume to be made, in a family of its own; or, if an attempt was done and not heard of, the one that was made.
pub(super) async fn begin_volume(
    map: &dyn MapStore,
    new: &NewVolume,
    pool: &str,
    head: NodeId,
    nguid: &str,
) -> Result<Result<(VolumeRecord, Ids), VolumeRecord>, CatalogError> {
    check_name(&new.name)?;
    check_volume_size(new.size_bytes)?;
    check_block_size(new.block_size_bytes)?;
    check_limits(&new.limits)?;
    if let Some(taken) = get::<Reference>(map, &keys::volume_name(&new.name)).await? {
        let found = get::<VolumeRecord>(map, &keys::volume(taken.record.volume)).await?;
        return match found {
            Some(found) if found.record.nguid == nguid => Ok(Err(found.record)),
            _ => Err(CatalogError::Exists(new.name.clone())),
        };
    }
    let pool_record = get::<PoolRecord>(map, &keys::pool(pool)).await?;
    let pool_record = pool_record.ok_or_else(|| CatalogError::NoPool(pool.to_owned()))?.record;
    let mut ids = Ids::begin(map).await?;
    let id = VolumeId(ids.take(0));
    let volume = VolumeRecord {
        id,
        name: new.name.clone(),
        pool: pool_record.name,
        table: pool_record.table,
        size_bytes: new.size_bytes,
        block_size_bytes: new.block_size_bytes,
        subsystem: DEFAULT_SUBSYSTEM.to_owned(),
        nsid: free_nsid(map, DEFAULT_SUBSYSTEM, id).await?,
        nguid: nguid.to_owned(),
        family: FamilyId(ids.take(2)),
        family_seed: 0,
        key: None,
        hosts: new.hosts.clone(),
        limits: new.limits,
        layers: vec![ids.layer()],
        leaving: Vec::new(),
        head,
        volume_epoch: VolumeEpoch(1),
        created_at_ns: runtime::wall_clock_ns(),
        project: DEFAULT_SUBSYSTEM.to_owned(),
        state: VolumeState::Online,
        home: head,
        draft_of: None,
    };
    Ok(Ok((volume, ids)))
}

/// The transaction that makes `volume` with its last layer: fails if its name, its namespace id or one of its ids was
/// taken meanwhile.
pub(super) fn make(volume: &VolumeRecord, ids: Ids) -> Transaction {
    let (top, below) = volume.layers.split_last().expect("a volume has a layer");
    let layer = LayerRecord {
        id: *top,
        parent: below.last().copied().unwrap_or_default(),
        family: volume.family,
        key_id: volume.key.unwrap_or_default(),
        created_at_ns: volume.created_at_ns,
    };
    let taken = |key: String| Reference { taken: key, volume: volume.id };
    let name = taken(keys::volume_name(&volume.name));
    let nsid = taken(keys::nsid(&volume.subsystem, volume.nsid));
    let transaction = Transaction::new()
        .expect_absent(&name.taken)
        .put(&name.taken, encode(&name))
        .expect_absent(&nsid.taken)
        .put(&nsid.taken, encode(&nsid))
        .put(layer.key(), encode(&layer))
        .put(volume.key(), encode(volume));
    ids.put(transaction)
}

/// The allocators of volumes, layers and families, in this order.
pub(super) struct Ids([Versioned<Allocator>; 3]);

impl Ids {
    pub(super) async fn begin(map: &dyn MapStore) -> Result<Self, CatalogError> {
        let load = async |kind: &str| {
            let key = keys::allocator(kind);
            let found = get::<Allocator>(map, &key).await?;
            found.ok_or_else(|| CatalogError::BadRecord { key, why: "it is missing".to_owned() })
        };
        Ok(Self([load("volume").await?, load("layer").await?, load("family").await?]))
    }

    pub(super) fn layer(&mut self) -> LayerId {
        LayerId(self.take(1))
    }

    /// The transaction, with what was taken used up: fails if somebody else took ids meanwhile.
    pub(super) fn put(self, mut transaction: Transaction) -> Transaction {
        for allocator in self.0 {
            let key = allocator.record.key();
            transaction = transaction.expect(&key, allocator.modified).put(&key, encode(&allocator.record));
        }
        transaction
    }

    fn take(&mut self, which: usize) -> u64 {
        let next = &mut self.0[which].record.next;
        *next += 1;
        *next - 1
    }
}

/// A namespace id that is free, and was free for as long as can be: they are given in turn, like the ids of volumes. A
/// host that was away while a volume was deleted still sends what it had for that one to its namespace id: it must not
/// be the next volume's.
async fn free_nsid(map: &dyn MapStore, subsystem: &str, volume: VolumeId) -> Result<u32, CatalogError> {
    let prefix = keys::nsids(subsystem);
    let listing = map.list(&prefix).await?;
    let taken = listing.items.iter().filter_map(|item| u32::from_str_radix(&item.key[prefix.len()..], 16).ok());
    let taken: BTreeSet<u32> = taken.collect();
    let turn = volume.0.wrapping_sub(1) % u64::from(NSID_MAX);
    let mut in_turn = (0..NSID_MAX).map(|step| (turn as u32 + step) % NSID_MAX + 1);
    in_turn.find(|nsid| !taken.contains(nsid)).ok_or_else(|| CatalogError::SubsystemFull(subsystem.to_owned()))
}

/// Makes `node` the head of a volume, if it `is_due`, in a new volume epoch. Returns it as it is afterwards.
pub async fn take_head(
    map: &dyn MapStore,
    id: VolumeId,
    node: NodeId,
    is_due: impl Fn(&VolumeRecord) -> bool,
) -> Result<Option<VolumeRecord>, CatalogError> {
    for _ in 0..ATTEMPTS_MAX {
        let Some(old) = get::<VolumeRecord>(map, &keys::volume(id)).await?.filter(|found| is_due(&found.record)) else {
            return Ok(None);
        };
        let new = taken_by(node, &old);
        let transaction = Transaction::new().expect(new.key(), old.modified).put(new.key(), encode(&new));
        if let Attempt::Done = attempt(map, transaction).await? {
            return Ok(Some(new));
        }
    }
    Err(CatalogError::Contended)
}

fn taken_by(node: NodeId, old: &Versioned<VolumeRecord>) -> VolumeRecord {
    let volume_epoch = VolumeEpoch(old.record.volume_epoch.0 + 1);
    VolumeRecord { head: node, volume_epoch, ..old.record.clone() }
}

/// Makes `node` the head of each volume that `is_due`, in a new volume epoch. Returns them as they are afterwards, those
/// that are being deleted too.
pub async fn take_heads(
    map: &dyn MapStore,
    node: NodeId,
    is_due: impl Fn(&VolumeRecord) -> bool,
) -> Result<Vec<VolumeRecord>, CatalogError> {
    let mut taken: Vec<VolumeRecord> = Vec::new();
    for _ in 0..ATTEMPTS_MAX {
        let all = list::<VolumeRecord>(map, keys::VOLUMES).await?;
        let is_taken = |found: &VolumeRecord| taken.iter().any(|other| other.id == found.id);
        let due: Vec<_> = all.into_iter().filter(|found| is_due(&found.record) && !is_taken(&found.record)).collect();
        if due.is_empty() {
            taken.sort_by_key(|volume| volume.id);
            return Ok(taken);
        }
        for batch in due.chunks(TRANSACTION_OPERATIONS_MAX) {
            let next: Vec<VolumeRecord> = batch.iter().map(|old| taken_by(node, old)).collect();
            let put = |transaction: Transaction, (old, new): (&Versioned<VolumeRecord>, &VolumeRecord)| {
                transaction.expect(new.key(), old.modified).put(new.key(), encode(new))
            };
            let transaction = batch.iter().zip(&next).fold(Transaction::new(), put);
            if let Attempt::Done = attempt(map, transaction).await? {
                taken.extend(next);
            }
        }
    }
    Err(CatalogError::Contended)
}

/// Makes `node` the keeper of each family that `is_due`, in a new epoch; a family that has none yet has keeper 0. Returns
/// them as they are afterwards.
pub async fn take_families(
    map: &dyn MapStore,
    node: NodeId,
    is_due: impl Fn(&FamilyRecord) -> bool,
) -> Result<Vec<FamilyRecord>, CatalogError> {
    let mut taken: Vec<FamilyRecord> = Vec::new();
    for _ in 0..ATTEMPTS_MAX {
        let found = list::<FamilyRecord>(map, keys::FAMILIES).await?;
        let of_volumes = list::<VolumeRecord>(map, keys::VOLUMES).await?.into_iter().map(|found| found.record.family);
        let known: BTreeSet<FamilyId> = found.iter().map(|family| family.record.id).collect();
        let without: BTreeSet<FamilyId> = of_volumes.filter(|id| !known.contains(id)).collect();
        let nobodys = without.into_iter().map(|id| FamilyRecord { id, keeper: NodeId(0), epoch: VolumeEpoch(0) });
        let all = found.into_iter().map(|found| (found.record, Some(found.modified)));
        let is_taken = |family: &FamilyRecord| taken.iter().any(|other| other.id == family.id);
        let due: Vec<_> = all
            .chain(nobodys.map(|family| (family, None)))
            .filter(|(family, _)| is_due(family) && !is_taken(family))
            .collect();
        if due.is_empty() {
            taken.sort_by_key(|family| family.id);
            return Ok(taken);
        }
        for (old, was) in due {
            let new = FamilyRecord { keeper: node, epoch: VolumeEpoch(old.epoch.0 + 1), ..old };
            let transaction = match was {
                Some(was) => Transaction::new().expect(new.key(), was),
                None => Transaction::new().expect_absent(new.key()),
            };
            if let Attempt::Done = attempt(map, transaction.put(new.key(), encode(&new))).await? {
                taken.push(new);
            }
        }
    }
    Err(CatalogError::Contended)
}

/// Takes the volume's name and marks it as being deleted: from now on it is deleted, whatever happens.
pub async fn begin_delete(map: &dyn MapStore, name: &str, by: Reign) -> Result<VolumeRecord, CatalogError> {
    take_offline(map, name, VolumeState::Deleting, by).await
}

/// Takes the name away from the volume that has it, which goes on in `state`.
pub(super) async fn take_offline(
    map: &dyn MapStore,
    name: &str,
    state: VolumeState,
    by: Reign,
) -> Result<VolumeRecord, CatalogError> {
    let mut seen: Option<VolumeId> = None;
    let name_key = keys::volume_name(name);
    for _ in 0..ATTEMPTS_MAX {
        let reference = get::<Reference>(map, &name_key).await?;
        if let Some(id) = seen
            && reference.as_ref().is_none_or(|reference| reference.record.volume != id)
        {
            // An attempt of this call was done and not heard of; the name may already be another's.
            let found = get::<VolumeRecord>(map, &keys::volume(id)).await?;
            return found.map(|found| found.record).ok_or_else(|| CatalogError::NotFound(name.to_owned()));
        }
        let Some(reference) = reference else { return Err(CatalogError::NotFound(name.to_owned())) };
        let key = keys::volume(reference.record.volume);
        let missing = || CatalogError::BadRecord { key: key.clone(), why: "its name leads nowhere".to_owned() };
        let found = get::<VolumeRecord>(map, &key).await?.ok_or_else(missing)?;
        let snapshots = super::snapshots(map, found.record.id).await?;
        if !snapshots.is_empty() {
            return Err(CatalogError::HasSnapshots {
                volume: name.to_owned(),
                snapshots: snapshots.into_iter().map(|snapshot| snapshot.name).collect(),
            });
        }
        by.check(&found.record)?;
        seen = Some(found.record.id);
        let offline = taken_offline(found.record, state);
        let transaction = Transaction::new()
            .expect(&name_key, reference.modified)
            .delete(&name_key)
            .expect(&key, found.modified)
            .put(&key, encode(&offline));
        if let Attempt::Done = attempt(map, transaction).await? {
            return Ok(offline);
        }
    }
    Err(CatalogError::Contended)
}

/// The volume as it is when it serves no more; of one that is deleted the layer that it wrote to leaves.
pub(super) fn taken_offline(volume: VolumeRecord, state: VolumeState) -> VolumeRecord {
    let top = volume.layers.last().copied();
    let mut offline = VolumeRecord { state, ..volume };
    if let (VolumeState::Deleting, Some(top)) = (state, top) {
        offline.leaves(top);
    }
    offline
}

/// Removes a volume of which nothing is stored any more, and its hold on the namespace id; its layers have ended, or
/// are wanted by others of its family. Its ids are never used again: the allocators are past them.
pub async fn finish_delete(map: &dyn MapStore, volume: &VolumeRecord) -> Result<(), CatalogError> {
    for _ in 0..ATTEMPTS_MAX {
        let Some(found) = get::<VolumeRecord>(map, &volume.key()).await? else { return Ok(()) };
        assert_eq!(found.record.state, VolumeState::Deleting, "only a volume that is being deleted can be removed");
        let transaction = Transaction::new()
            .expect(volume.key(), found.modified)
            .delete(volume.key())
            .delete(keys::nsid(&volume.subsystem, volume.nsid));
        let transaction = let_go(map, volume, transaction).await?;
        let transaction = leave_family(map, volume, transaction).await?;
        if let Attempt::Done = attempt(map, transaction).await? {
            return if volume.key.is_some() { forget_history(map).await } else { Ok(()) };
        }
    }
    Err(CatalogError::Contended)
}

/// The change to the family's record that goes with the removal of `volume`: it goes with the last one. In any case the
/// transaction fails if another volume of the family is removed meanwhile.
async fn leave_family(
    map: &dyn MapStore,
    volume: &VolumeRecord,
    transaction: Transaction,
) -> Result<Transaction, CatalogError> {
    let key = keys::family(volume.family);
    let Some(found) = get::<FamilyRecord>(map, &key).await? else { return Ok(transaction) };
    let volumes = list::<VolumeRecord>(map, keys::VOLUMES).await?;
    let is_last = !volumes.iter().any(|other| other.record.family == volume.family && other.record.id != volume.id);
    let transaction = transaction.expect(&key, found.modified);
    Ok(if is_last { transaction.delete(&key) } else { transaction.put(&key, encode(&found.record)) })
}
