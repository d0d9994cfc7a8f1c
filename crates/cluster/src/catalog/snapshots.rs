//! Snapshots, clones and rollbacks.
//!
//! ```text
//!   volume  ──layers──▶ 4 ▸ 7 ▸ 9     9 is its top: written to. Each layer's record names its parent.
//!   snapshot "monday" ──────▶ 7       what reading through 7, then 4 gives
//!
//!   push_layer      12, over 9        a layer that is leaving already: if nothing follows, it ends
//!   take_top        9 ▸ 12            no effect: 12 is empty. From now on any head that opens the volume writes to 12;
//!                                     9 is leaving: until its head says otherwise, commands may write to it
//!   name_snapshot   "tuesday" ▶ 9     once the head goes on with 12
//! ```
//!
//! What nobody wants any more ends: see [`endings`](super::endings).

use super::relocation::OWN_SNAPSHOT;
use super::volumes::{Ids, begin_volume, make};
use super::{ATTEMPTS_MAX, Attempt, CatalogError, NewVolume, RETRY_WAIT, Reign, attempt, settle};
use crate::map::{MapError, MapStore, Outcome, Revision, Transaction};
use crate::names::check_name;
use crate::records::{FamilyRecord, HostAccess, LayerRecord, Record, SnapshotRecord, VolumeRecord, VolumeState, keys};
use crate::typed::{Versioned, encode, get, list};
use types::{LayerId, Mutant, NodeId, VolumeId, mutant};

/// A volume that is used, for its head.
pub(super) async fn volume(
    map: &dyn MapStore,
    id: VolumeId,
    by: Reign,
) -> Result<Versioned<VolumeRecord>, CatalogError> {
    let found = online(map, id).await?;
    by.check(&found.record)?;
    Ok(found)
}

pub(super) async fn online(map: &dyn MapStore, id: VolumeId) -> Result<Versioned<VolumeRecord>, CatalogError> {
    let found = get::<VolumeRecord>(map, &keys::volume(id)).await?;
    found.filter(|found| found.record.state == VolumeState::Online).ok_or(CatalogError::Gone(id))
}

/// The snapshots of a volume, by name.
pub async fn snapshots(map: &dyn MapStore, volume: VolumeId) -> Result<Vec<SnapshotRecord>, CatalogError> {
    let found = list::<SnapshotRecord>(map, &keys::snapshots_of(volume)).await?;
    Ok(found.into_iter().map(|found| found.record).collect())
}

/// A snapshot of a volume.
pub async fn snapshot(map: &dyn MapStore, volume: VolumeId, name: &str) -> Result<SnapshotRecord, CatalogError> {
    let found = get::<SnapshotRecord>(map, &keys::snapshot(volume, name)).await?;
    found.map(|found| found.record).ok_or_else(|| CatalogError::NoSnapshot(name.to_owned()))
}

/// The layer and what it is read through, oldest first.
pub async fn chain_of(map: &dyn MapStore, layer: LayerId) -> Result<Vec<LayerId>, CatalogError> {
    let (mut chain, mut next) = (Vec::new(), layer);
    while next != LayerId(0) {
        let key = keys::layer(next);
        let found = get::<LayerRecord>(map, &key).await?;
        let missing =
            || CatalogError::BadRecord { key, why: "a layer above it names it, and it is missing".to_owned() };
        chain.push(next);
        next = found.ok_or_else(missing)?.record.parent;
    }
    chain.reverse();
    Ok(chain)
}

/// A new, empty top for a volume. Its record is in the map, and it is nobody's until [`take_top`]: if that does not
/// follow, it ends as any layer that nobody wants, and with it what stores were told of it.
#[derive(Clone, Debug)]
pub struct NewTop {
    /// The volume as it will be.
    pub volume: VolumeRecord,
    /// The volume as it is.
    was: Revision,
    /// The family as it was when its layers were read: none of them has ended since.
    family: Option<Versioned<FamilyRecord>>,
}

/// The transaction, which fails if a layer of the family has ended since. The family is put as it is: a keeper that ends a layer, and
/// has looked before this for volumes that are read through it, looks again.
fn unless_ended(transaction: Transaction, family: &Option<Versioned<FamilyRecord>>) -> Transaction {
    match family {
        Some(family) if !mutant(Mutant::EndedChainTaken) => {
            let (key, transaction) = (family.record.key(), transaction.expect(family.record.key(), family.modified));
            if mutant(Mutant::ChainTakenUnsaid) { transaction } else { transaction.put(key, encode(&family.record)) }
        }
        _ => transaction,
    }
}

async fn family_of(map: &dyn MapStore, volume: &VolumeRecord) -> Result<Option<Versioned<FamilyRecord>>, CatalogError> {
    get::<FamilyRecord>(map, &keys::family(volume.family)).await
}

/// As [`chain_of`], of a family as it is: nothing, if a layer has ended meanwhile.
async fn chain_in(
    map: &dyn MapStore,
    layer: LayerId,
    of: &VolumeRecord,
    family: &Option<Versioned<FamilyRecord>>,
) -> Result<Option<Vec<LayerId>>, CatalogError> {
    match chain_of(map, layer).await {
        Ok(chain) => Ok(Some(chain)),
        Err(error) if family_of(map, of).await? == *family => Err(error),
        Err(_) => Ok(None),
    }
}

/// A new, empty top over `below` (oldest first).
async fn new_top(
    map: &dyn MapStore,
    id: VolumeId,
    by: Reign,
    is_own_chain: bool,
    below: impl AsyncFn(&VolumeRecord, &Option<Versioned<FamilyRecord>>) -> Result<Option<Vec<LayerId>>, CatalogError>,
) -> Result<NewTop, CatalogError> {
    for _ in 0..ATTEMPTS_MAX {
        let found = volume(map, id, by).await?;
        // Whatever ends of the volume's own layers puts the volume.
        let family = if is_own_chain { None } else { family_of(map, &found.record).await? };
        let mut ids = Ids::begin(map).await?;
        let Some(mut layers) = below(&found.record, &family).await? else { continue };
        let layer = LayerRecord {
            id: ids.layer(),
            parent: layers.last().copied().unwrap_or_default(),
            family: found.record.family,
            key_id: found.record.key.unwrap_or_default(),
            created_at_ns: runtime::wall_clock_ns(),
        };
        layers.push(layer.id);
        // Until it is the top it does not end; if it never is, it is left as any other.
        let mut volume = found.record;
        volume.leaves(layer.id);
        let transaction = Transaction::new()
            .expect(volume.key(), found.modified)
            .put(volume.key(), encode(&volume))
            .put(layer.key(), encode(&layer));
        if let Outcome::Committed(was) = settle(map, ids.put(transaction)).await? {
            volume.leaving.retain(|leaving| *leaving != layer.id);
            if let (Some(old_top), false) = (volume.layers.last().copied(), mutant(Mutant::LeavingForgotten)) {
                volume.leaves(old_top);
            }
            return Ok(NewTop { volume: VolumeRecord { layers, ..volume }, was, family });
        }
        // If it was done and not heard of, the map has a layer more than it needs: it ends.
    }
    Err(CatalogError::Contended)
}

/// The first step of a snapshot: a new top over the volume's layers.
pub async fn push_layer(map: &dyn MapStore, id: VolumeId, by: Reign) -> Result<NewTop, CatalogError> {
    new_top(map, id, by, true, async |volume, _| Ok(Some(volume.layers.clone()))).await
}

/// The first step of a rollback: a new top over the layer of a snapshot. With [`take_top`], what was written to the
/// volume since is nobody's.
pub async fn roll_back(map: &dyn MapStore, id: VolumeId, name: &str, by: Reign) -> Result<NewTop, CatalogError> {
    let to = snapshot(map, id, name).await?;
    new_top(map, id, by, false, async |volume, family| match mutant(Mutant::RollbackKeepsNewer) {
        true => Ok(Some(volume.layers.clone())),
        false => chain_in(map, to.layer, volume, family).await,
    })
    .await
}

/// From now on any head that opens the volume writes to its new top. Does not return before it is known whether that is
/// so, however long the map is away: who went on without knowing would write to one layer while the map names another,
/// and with the next start what it wrote would be gone.
///
/// # Errors
/// The volume is as it was: others changed it meanwhile, or the map refuses.
pub async fn take_top(map: &dyn MapStore, new: &NewTop) -> Result<(), CatalogError> {
    let key = new.volume.key();
    loop {
        let transaction = Transaction::new().expect(&key, new.was).put(&key, encode(&new.volume));
        match map.transact(unless_ended(transaction, &new.family)).await {
            Ok(Outcome::Committed(_)) => return Ok(()),
            Err(error @ MapError::Refused(_)) => return Err(error.into()),
            Err(_) if mutant(Mutant::SnapshotNewLayer) => return Ok(()),
            Err(error) if mutant(Mutant::LostAnswerRefused) => return Err(error.into()),
            Ok(Outcome::Conflict) | Err(_) => {}
        }
        match get::<VolumeRecord>(map, &key).await {
            Ok(Some(found)) if found.record.layers.last() == new.volume.layers.last() => return Ok(()),
            // Not done, and maybe on its way: doing it once more is harmless. It never will be if a layer has ended.
            Ok(Some(found)) if found.modified == new.was => {
                let is_compared = new.family.is_some();
                if is_compared && family_of(map, &new.volume).await.is_ok_and(|family| family != new.family) {
                    return Err(CatalogError::Contended);
                }
            }
            Ok(_) => return Err(CatalogError::Contended),
            Err(_) => {}
        }
        runtime::sleep(RETRY_WAIT).await;
    }
}

/// The last step of a snapshot: `layer`, which the volume has and does not write to any more, gets a name.
///
/// # Errors
/// If the name is not allowed or taken. A move's own ([`OWN_SNAPSHOT`]) are allowed here.
pub async fn name_snapshot(
    map: &dyn MapStore,
    id: VolumeId,
    name: &str,
    layer: LayerId,
    by: Reign,
) -> Result<SnapshotRecord, CatalogError> {
    check_name(name.strip_prefix(OWN_SNAPSHOT).unwrap_or(name))?;
    let key = keys::snapshot(id, name);
    for _ in 0..ATTEMPTS_MAX {
        let found = volume(map, id, by).await?;
        if let Some(there) = get::<SnapshotRecord>(map, &key).await? {
            let is_ours = there.record.layer == layer;
            return if is_ours { Ok(there.record) } else { Err(CatalogError::SnapshotExists(name.to_owned())) };
        }
        let is_below_top = found.record.layers.split_last().is_some_and(|(_, below)| below.contains(&layer));
        assert!(is_below_top, "layer {layer} is not one that volume {id} has left behind");
        let snapshot = SnapshotRecord {
            volume: id,
            name: name.to_owned(),
            layer,
            family: found.record.family,
            size_bytes: found.record.size_bytes,
            created_at_ns: runtime::wall_clock_ns(),
        };
        // The volume is put as it is, so that who deletes it meanwhile looks again, and finds the snapshot; and that no
        // keeper ends the layer which it had found to be nobody's.
        let transaction = Transaction::new()
            .expect(found.record.key(), found.modified)
            .put(found.record.key(), encode(&found.record))
            .expect_absent(&key)
            .put(&key, encode(&snapshot));
        if let Attempt::Done = attempt(map, transaction).await? {
            return Ok(snapshot);
        }
    }
    Err(CatalogError::Contended)
}

/// Takes a snapshot's name away: its layer ends when nothing else wants it, and no earlier head reads through it.
pub async fn delete_snapshot(
    map: &dyn MapStore,
    id: VolumeId,
    name: &str,
    by: Reign,
) -> Result<SnapshotRecord, CatalogError> {
    let key = keys::snapshot(id, name);
    let mut asked: Option<SnapshotRecord> = None;
    for _ in 0..ATTEMPTS_MAX {
        let Some(found) = get::<SnapshotRecord>(map, &key).await? else {
            return asked.ok_or_else(|| CatalogError::NoSnapshot(name.to_owned()));
        };
        let of = volume(map, id, by).await?;
        let mut volume = of.record;
        volume.leaves(found.record.layer);
        let transaction = Transaction::new()
            .expect(&key, found.modified)
            .delete(&key)
            .expect(volume.key(), of.modified)
            .put(volume.key(), encode(&volume));
        asked = Some(found.record.clone());
        if let Attempt::Done = attempt(map, transaction).await? {
            return Ok(found.record);
        }
    }
    Err(CatalogError::Contended)
}

/// Makes a volume of a snapshot: it begins with what the snapshot holds, and shares it.
///
/// # Errors
/// As [`create_volume`](super::create_volume).
pub async fn clone_volume(
    map: &dyn MapStore,
    source: VolumeId,
    snapshot_name: &str,
    new_name: &str,
    head: NodeId,
) -> Result<VolumeRecord, CatalogError> {
    let nguid = super::volumes::new_nguid();
    for _ in 0..ATTEMPTS_MAX {
        let from = snapshot(map, source, snapshot_name).await?;
        let origin = online(map, source).await?;
        let new = NewVolume {
            name: new_name.to_owned(),
            size_bytes: from.size_bytes,
            block_size_bytes: origin.record.block_size_bytes,
            // A copy is no way around the limits of what it is a copy of.
            limits: origin.record.limits,
            hosts: HostAccess::Unset,
        };
        let (mut begun, ids) = match begin_volume(map, &new, &origin.record.pool, head, &nguid).await? {
            Ok(begun) => begun,
            Err(made) => return Ok(made),
        };
        begun.table = origin.record.table;
        begun.family = origin.record.family;
        begun.family_seed = origin.record.family_seed;
        begun.key = origin.record.key;
        // Who may not see a volume must not see its copy.
        begun.hosts = origin.record.hosts.clone();
        let own = begun.layers.clone();
        let family = family_of(map, &origin.record).await?;
        let Some(chain) = chain_in(map, from.layer, &origin.record, &family).await? else { continue };
        begun.layers = chain;
        if !mutant(Mutant::CloneSharesTop) {
            begun.layers.extend(own);
        }
        // The snapshot is put as it is: it must be there when the clone is, and who deletes it meanwhile looks again.
        let found = get::<SnapshotRecord>(map, &from.key()).await?;
        let Some(found) = found.filter(|found| found.record == from) else { continue };
        let transaction = make(&begun, ids).expect(from.key(), found.modified).put(from.key(), encode(&from));
        if let Attempt::Done = attempt(map, unless_ended(transaction, &family)).await? {
            return Ok(begun);
        }
    }
    Err(CatalogError::Contended)
}
