//! Snapshots, clones, rollbacks, and layers that end.
//!
//! ```text
//!   volume  ──layers──▶ 4 ▸ 7 ▸ 9     9 is its top: written to. Each layer's record names its parent.
//!   snapshot "monday" ──────▶ 7       what reading through 7, then 4 gives
//!
//!   push_layer      12, over 9        a layer that is nobody's yet: if nothing follows, it ends
//!   take_top        9 ▸ 12            no effect: 12 is empty. From now on any head that opens the volume writes to 12
//!   name_snapshot   "tuesday" ▶ 9     once the head goes on with 12
//! ```
//!
//! A layer is **wanted** as long as a volume writes to it or a snapshot names it. One that is not, and has no child, is
//! deleted; with one child it is merged into that. The map says so by what is in it and nothing else: whoever comes
//! after a crash finds the same layers to end.

use super::volumes::{Ids, begin_volume, make};
use super::{ATTEMPTS_MAX, Attempt, CatalogError, NewVolume, RETRY_WAIT, attempt};
use crate::map::{MapError, MapStore, Outcome, Revision, TRANSACTION_OPERATIONS_MAX, Transaction};
use crate::names::check_name;
use crate::records::{LayerRecord, Record, SnapshotRecord, VolumeRecord, VolumeState, keys};
use crate::typed::{Versioned, encode, get, list};
use std::collections::{BTreeMap, BTreeSet};
use types::{FamilyId, LayerId, Mutant, NodeId, VolumeId, mutant};

/// Volumes changed in one transaction; the rest of it is for layers.
const VOLUMES_AT_ONCE: usize = TRANSACTION_OPERATIONS_MAX - 8;

/// A layer that nobody wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndingLayer {
    /// Which.
    pub layer: LayerId,
    /// Its parent; 0: none.
    pub parent: LayerId,
    /// Its only child, which takes its blocks; `None`: it has none, and is deleted.
    pub into: Option<LayerId>,
    /// What maps the family's chunks to slots.
    pub family_seed: u64,
    /// The family's slot table.
    pub table: u32,
}

/// What of a family is to end next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextEnding {
    /// This layer.
    Layer(EndingLayer),
    /// Commands may still write to this one, and there is no other.
    Waits(LayerId),
    /// Nothing.
    Nothing,
    /// Another node serves the family.
    Elsewhere,
}

pub(super) async fn volume(map: &dyn MapStore, id: VolumeId) -> Result<Versioned<VolumeRecord>, CatalogError> {
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
}

/// A new, empty top over `below` (oldest first).
async fn new_top(
    map: &dyn MapStore,
    id: VolumeId,
    below: impl AsyncFn(&VolumeRecord) -> Result<Vec<LayerId>, CatalogError>,
) -> Result<NewTop, CatalogError> {
    for _ in 0..ATTEMPTS_MAX {
        let found = volume(map, id).await?;
        let mut ids = Ids::begin(map).await?;
        let mut layers = below(&found.record).await?;
        let layer = LayerRecord {
            id: ids.layer(),
            parent: layers.last().copied().unwrap_or_default(),
            family: found.record.family,
            key_id: found.record.key.unwrap_or_default(),
            created_at_ns: runtime::wall_clock_ns(),
        };
        layers.push(layer.id);
        // The volume stays as it is, and must still be there: the layers of a family without volumes are never looked
        // for.
        let transaction =
            Transaction::new().expect(found.record.key(), found.modified).put(layer.key(), encode(&layer));
        if let Attempt::Done = attempt(map, ids.put(transaction)).await? {
            return Ok(NewTop { volume: VolumeRecord { layers, ..found.record }, was: found.modified });
        }
        // If it was done and not heard of, the map has a layer more than it needs: it ends.
    }
    Err(CatalogError::Contended)
}

/// The first step of a snapshot: a new top over the volume's layers.
pub async fn push_layer(map: &dyn MapStore, id: VolumeId) -> Result<NewTop, CatalogError> {
    new_top(map, id, async |volume| Ok(volume.layers.clone())).await
}

/// The first step of a rollback: a new top over the layer of a snapshot. With [`take_top`], what was written to the
/// volume since is nobody's.
pub async fn roll_back(map: &dyn MapStore, id: VolumeId, name: &str) -> Result<NewTop, CatalogError> {
    let to = snapshot(map, id, name).await?;
    new_top(map, id, async |volume| match mutant(Mutant::RollbackKeepsNewer) {
        true => Ok(volume.layers.clone()),
        false => chain_of(map, to.layer).await,
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
        match map.transact(transaction).await {
            Ok(Outcome::Committed(_)) => return Ok(()),
            Err(error @ MapError::Refused(_)) => return Err(error.into()),
            Ok(Outcome::Conflict) | Err(_) => {}
        }
        match get::<VolumeRecord>(map, &key).await {
            Ok(Some(found)) if found.record.layers.last() == new.volume.layers.last() => return Ok(()),
            // Not done, and maybe on its way: doing it once more is harmless.
            Ok(Some(found)) if found.modified == new.was => {}
            Ok(_) => return Err(CatalogError::Contended),
            Err(_) => {}
        }
        runtime::sleep(RETRY_WAIT).await;
    }
}

/// The last step of a snapshot: `layer`, which the volume has and does not write to any more, gets a name.
///
/// # Errors
/// If the name is not allowed or taken.
pub async fn name_snapshot(
    map: &dyn MapStore,
    id: VolumeId,
    name: &str,
    layer: LayerId,
) -> Result<SnapshotRecord, CatalogError> {
    check_name(name)?;
    let key = keys::snapshot(id, name);
    for _ in 0..ATTEMPTS_MAX {
        let found = volume(map, id).await?;
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
        // The volume is put as it is, so that who deletes it meanwhile looks again, and finds the snapshot.
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

/// Takes a snapshot's name away: its layer ends when nothing else wants it.
pub async fn delete_snapshot(map: &dyn MapStore, id: VolumeId, name: &str) -> Result<SnapshotRecord, CatalogError> {
    let key = keys::snapshot(id, name);
    let mut asked: Option<SnapshotRecord> = None;
    for _ in 0..ATTEMPTS_MAX {
        let Some(found) = get::<SnapshotRecord>(map, &key).await? else {
            return asked.ok_or_else(|| CatalogError::NoSnapshot(name.to_owned()));
        };
        let transaction = Transaction::new().expect(&key, found.modified).delete(&key);
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
        let origin = volume(map, source).await?;
        let new = NewVolume {
            name: new_name.to_owned(),
            size_bytes: from.size_bytes,
            block_size_bytes: origin.record.block_size_bytes,
            // A copy is no way around the limits of what it is a copy of.
            limits: origin.record.limits,
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
        begun.hosts = origin.record.hosts;
        let own = begun.layers.clone();
        begun.layers = chain_of(map, from.layer).await?;
        if !mutant(Mutant::CloneSharesTop) {
            begun.layers.extend(own);
        }
        // The snapshot is put as it is: it must be there when the clone is, and who deletes it meanwhile looks again.
        let found = get::<SnapshotRecord>(map, &from.key()).await?;
        let Some(found) = found.filter(|found| found.record == from) else { continue };
        let transaction = make(&begun, ids).expect(from.key(), found.modified).put(from.key(), encode(&from));
        if let Attempt::Done = attempt(map, transaction).await? {
            return Ok(begun);
        }
    }
    Err(CatalogError::Contended)
}

/// A layer of a family that nobody wants and that can end now: those without a child first, for what they hold needs no
/// place. None of those that are `written_to`, whatever the map says of them: what is written to a layer that has ended
/// is lost. Nothing if another node than `head` serves the family.
pub async fn next_ending(
    map: &dyn MapStore,
    family: FamilyId,
    head: NodeId,
    written_to: &BTreeSet<LayerId>,
) -> Result<NextEnding, CatalogError> {
    // Volumes last: whoever takes them over in between shows there.
    let layers = list::<LayerRecord>(map, keys::LAYERS).await?;
    let snapshots = list::<SnapshotRecord>(map, keys::SNAPSHOTS).await?;
    let volumes = list::<VolumeRecord>(map, keys::VOLUMES).await?;
    let of_family: Vec<_> = volumes.into_iter().map(|v| v.record).filter(|v| v.family == family).collect();
    let Some(any) = of_family.first() else { return Ok(NextEnding::Nothing) };
    if of_family.iter().any(|volume| volume.head != head) {
        // Another node's matter: only the head knows what is written to.
        return Ok(NextEnding::Elsewhere);
    }
    let serving = of_family.iter().filter(|volume| volume.state != VolumeState::Deleting);
    let mut wanted: BTreeSet<LayerId> = serving.filter_map(|volume| volume.layers.last().copied()).collect();
    wanted.extend(snapshots.iter().filter(|found| found.record.family == family).map(|found| found.record.layer));
    let layers: Vec<_> = layers.into_iter().map(|found| found.record).filter(|layer| layer.family == family).collect();
    let mut children: BTreeMap<LayerId, Vec<LayerId>> = BTreeMap::new();
    for layer in &layers {
        children.entry(layer.parent).or_default().push(layer.id);
    }
    let unwanted = layers.iter().filter(|layer| !wanted.contains(&layer.id));
    let ending = |layer: &LayerRecord| {
        let into = match children.get(&layer.id).map(Vec::as_slice) {
            None => None,
            Some([child]) => Some(*child),
            Some(_) => return None,
        };
        let (family_seed, table) = (any.family_seed, any.table);
        Some(EndingLayer { layer: layer.id, parent: layer.parent, into, family_seed, table })
    };
    let mut endings: Vec<_> = unwanted.filter_map(ending).collect();
    endings.sort_by_key(|ending| (ending.into.is_some(), ending.layer));
    let free = endings.iter().find(|ending| !written_to.contains(&ending.layer));
    Ok(match (free, endings.first()) {
        (Some(&ending), _) => NextEnding::Layer(ending),
        (None, Some(waits)) => NextEnding::Waits(waits.layer),
        (None, None) => NextEnding::Nothing,
    })
}

/// Nothing of the layer is stored any more: takes it out of the lists of all volumes, gives its child its parent, and
/// removes it. Returns the volumes that were changed.
pub async fn finish_ending(map: &dyn MapStore, ending: &EndingLayer) -> Result<Vec<VolumeRecord>, CatalogError> {
    let mut changed: BTreeMap<VolumeId, VolumeRecord> = BTreeMap::new();
    for _ in 0..ATTEMPTS_MAX {
        let Some(layer) = get::<LayerRecord>(map, &keys::layer(ending.layer)).await? else {
            return Ok(changed.into_values().collect());
        };
        let volumes = list::<VolumeRecord>(map, keys::VOLUMES).await?;
        let due: Vec<_> = volumes.into_iter().filter(|v| v.record.layers.contains(&ending.layer)).collect();
        let (now, later) = due.split_at(due.len().min(VOLUMES_AT_ONCE));
        let mut transaction = Transaction::new();
        for old in now {
            let mut new = old.record.clone();
            new.layers.retain(|layer| *layer != ending.layer);
            transaction = transaction.expect(new.key(), old.modified).put(new.key(), encode(&new));
            changed.insert(new.id, new);
        }
        if later.is_empty() {
            transaction = transaction.expect(layer.record.key(), layer.modified).delete(layer.record.key());
            let child = match ending.into {
                Some(into) => get::<LayerRecord>(map, &keys::layer(into)).await?,
                None => None,
            };
            if let Some(child) = child {
                let new = LayerRecord { parent: layer.record.parent, ..child.record };
                transaction = transaction.expect(new.key(), child.modified).put(new.key(), encode(&new));
            }
        }
        attempt(map, transaction).await?;
    }
    Err(CatalogError::Contended)
}
