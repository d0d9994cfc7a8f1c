//! Snapshots of several volumes at one instant (H12): what the map says of all of them, it says in one transaction.
//!
//! ```text
//!   push_tops        a ▸ 4 ▸ 12   b ▸ 9 ▸ 13     new, empty tops; 4 and 9 are leaving: their heads may write to them still
//!   name_snapshots   a@x ▶ 4      b@x ▶ 9        once all heads were stopped at one instant
//! ```
//!
//! Both compare every volume's head and its reign: who has been followed has stopped nothing. And what a head has left by
//! its own word is not named any more: the keeper of its family may be ending it.

use super::snapshots::volume;
use super::volumes::Ids;
use super::{ATTEMPTS_MAX, Attempt, CatalogError, Reign, attempt};
use crate::map::{MapStore, TRANSACTION_OPERATIONS_MAX, Transaction};
use crate::names::check_name;
use crate::records::{LayerRecord, Record, Reference, SnapshotRecord, VolumeRecord, VolumeState, keys};
use crate::typed::{encode, get};
use types::{LayerId, Mutant, VolumeId, mutant};

/// Allocators that a transaction puts beside what it makes.
const ALLOCATORS: usize = 3;
/// Volumes that get their tops in one transaction: two records each.
pub const INSTANT_VOLUMES_MAX: usize = (TRANSACTION_OPERATIONS_MAX - ALLOCATORS) / 2;

/// A volume, and what its snapshot is to be called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The volume.
    pub volume: String,
    /// The snapshot's name.
    pub name: String,
}

/// A volume as its head serves it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Served {
    /// Which.
    pub volume: VolumeId,
    /// Under which its head serves it.
    pub by: Reign,
    /// What it writes to.
    pub top: LayerId,
}

/// A volume that has got its new top, and the layer that is to be named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pushed {
    /// Which.
    pub volume: VolumeId,
    /// Under which its head is to go on with the new top.
    pub by: Reign,
    /// What it wrote to.
    pub old_top: LayerId,
    /// What it is to write to.
    pub new_top: LayerId,
    /// Its size: none but its head changes that.
    pub size_bytes: u64,
}

/// The volumes of which snapshots are wanted, in the order of the call. Nothing is changed.
///
/// # Errors
/// Too many, one of them twice, a name that is not allowed or taken, or a volume that is not there.
pub async fn find_wanted(map: &dyn MapStore, wanted: &[Wanted]) -> Result<Vec<VolumeRecord>, CatalogError> {
    if wanted.len() > INSTANT_VOLUMES_MAX {
        return Err(CatalogError::TooManyVolumes(wanted.len()));
    }
    let mut found = Vec::with_capacity(wanted.len());
    for (place, Wanted { volume, name }) in wanted.iter().enumerate() {
        check_name(name)?;
        if wanted[..place].iter().any(|other| other.volume == *volume) {
            return Err(CatalogError::NamedTwice(volume.clone()));
        }
        let missing = || CatalogError::NotFound(volume.clone());
        let id = get::<Reference>(map, &keys::volume_name(volume)).await?.ok_or_else(missing)?.record.volume;
        let record = get::<VolumeRecord>(map, &keys::volume(id)).await?.ok_or_else(missing)?.record;
        if record.state != VolumeState::Online {
            return Err(missing());
        }
        if map.get(&keys::snapshot(id, name)).await?.is_some() {
            return Err(CatalogError::SnapshotExists(format!("{volume}@{name}")));
        }
        found.push(record);
    }
    Ok(found)
}

/// The first step: every volume gets a new, empty top, or none does. From now on any head that opens one writes to its new top.
///
/// # Errors
/// Another head, another top, or a volume that is gone. [`MapError::Unknown`](crate::MapError::Unknown) if nobody knows whether
/// it was done: then its head hears of it, and goes on with the new top by itself.
pub async fn push_tops(map: &dyn MapStore, served: &[Served]) -> Result<Vec<Pushed>, CatalogError> {
    assert!(served.len() <= INSTANT_VOLUMES_MAX, "more than one transaction holds");
    for _ in 0..ATTEMPTS_MAX {
        let mut ids = Ids::begin(map).await?;
        let (mut pushed, mut transaction) = (Vec::with_capacity(served.len()), Transaction::new());
        for &Served { volume: id, by, top } in served {
            let found = volume(map, id, by).await?;
            let mut record = found.record;
            if record.layers.last() != Some(&top) {
                return Err(CatalogError::WentOn(id));
            }
            let layer = LayerRecord {
                id: ids.layer(),
                parent: top,
                family: record.family,
                key_id: record.key.unwrap_or_default(),
                created_at_ns: runtime::wall_clock_ns(),
            };
            record.layers.push(layer.id);
            record.leaves(top);
            transaction = transaction
                .expect(record.key(), found.modified)
                .put(record.key(), encode(&record))
                .put(layer.key(), encode(&layer));
            let size_bytes = record.size_bytes;
            pushed.push(Pushed { volume: id, by, old_top: top, new_top: layer.id, size_bytes });
        }
        if let Attempt::Done = attempt(map, ids.put(transaction)).await? {
            return Ok(pushed);
        }
    }
    Err(CatalogError::Contended)
}

/// The last step: the old tops are named, all or none.
///
/// # Errors
/// A volume has another head by now, is gone, or was rolled back; its head has left the layer; or a name was taken meanwhile. Then
/// nothing is named.
pub async fn name_snapshots(
    map: &dyn MapStore,
    named: &[(Pushed, String)],
) -> Result<Vec<SnapshotRecord>, CatalogError> {
    let created_at_ns = runtime::wall_clock_ns();
    for _ in 0..ATTEMPTS_MAX {
        let (mut made, mut transaction) = (Vec::with_capacity(named.len()), Transaction::new());
        let (mut is_done, mut went_on) = (false, None);
        for (Pushed { volume: id, by, old_top, size_bytes, .. }, name) in named {
            let found = match mutant(Mutant::InstantOfReplacedHead) {
                true => super::snapshots::online(map, *id).await?,
                false => volume(map, *id, *by).await?,
            };
            let record = found.record;
            let snapshot = SnapshotRecord {
                volume: *id,
                name: name.clone(),
                layer: *old_top,
                family: record.family,
                size_bytes: *size_bytes,
                created_at_ns,
            };
            match get::<SnapshotRecord>(map, &snapshot.key()).await? {
                // An earlier attempt, which was not heard of, has named all; one may have been deleted since.
                Some(found) if found.record.layer == *old_top => is_done = true,
                Some(_) => return Err(CatalogError::SnapshotExists(format!("{}@{name}", record.name))),
                None => {}
            }
            let is_below_top = record.layers.split_last().is_some_and(|(_, below)| below.contains(old_top));
            let is_held = record.leaving.contains(old_top) || mutant(Mutant::InstantOfLayerLeft);
            if !(is_below_top && is_held) {
                went_on = went_on.or(Some(*id));
            }
            // As it is, for the same reasons as with one snapshot.
            transaction = transaction
                .expect(record.key(), found.modified)
                .put(record.key(), encode(&record))
                .expect_absent(snapshot.key())
                .put(snapshot.key(), encode(&snapshot));
            made.push(snapshot);
        }
        if is_done {
            return Ok(made);
        }
        if let Some(id) = went_on {
            return Err(CatalogError::WentOn(id));
        }
        if let Attempt::Done = attempt(map, transaction).await? {
            return Ok(made);
        }
    }
    Err(CatalogError::Contended)
}
