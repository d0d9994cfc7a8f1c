//! The trash: deleted volumes that can be restored until their term is over.
//!
//! ```text
//!   Online ── trash_volume ──► Trashed(term) ── term over, or empty_trash ──► Deleting ── finish_delete ──► gone
//!      ▲                            │
//!      └────── restore_volume ──────┘   under any name that is free
//! ```
//!
//! Each arrow is one transaction: a crash leaves the volume before it or behind it.

use super::volumes::{take_offline, taken_offline};
use super::{ATTEMPTS_MAX, Attempt, CatalogError, Reign, attempt};
use crate::map::{MapStore, Transaction};
use crate::names::check_name;
use crate::records::{Record, Reference, TrashTerm, VolumeRecord, VolumeState, keys};
use crate::typed::{Versioned, encode, get};
use std::time::Duration;
use types::{NodeId, VolumeEpoch, VolumeId};

/// How long a deleted volume is kept: long enough that a mistake of one evening is found the next day.
pub const TRASH_TERM: Duration = Duration::from_secs(24 * 60 * 60);

/// Takes the volume's name and puts it into the trash, for [`TRASH_TERM`] from now on.
pub async fn trash_volume(map: &dyn MapStore, name: &str, by: Reign) -> Result<VolumeRecord, CatalogError> {
    let deleted_at_ns = runtime::wall_clock_ns();
    let keep_until_ns = deleted_at_ns + TRASH_TERM.as_nanos() as u64;
    take_offline(map, name, VolumeState::Trashed(TrashTerm { deleted_at_ns, keep_until_ns }), by).await
}

/// Takes a volume out of the trash, as `name`, with `head` as its head in a new epoch.
///
/// # Errors
/// If the name is not allowed or taken, or the volume is not in the trash.
pub async fn restore_volume(
    map: &dyn MapStore,
    id: VolumeId,
    name: &str,
    head: NodeId,
) -> Result<VolumeRecord, CatalogError> {
    check_name(name)?;
    // Who asks again after a lost answer finds the volume in the epoch that this call gave it.
    let mut given: Option<VolumeEpoch> = None;
    for _ in 0..ATTEMPTS_MAX {
        let found = volume_in(map, id).await?;
        let is_ours = found.record.name == name && given == Some(found.record.volume_epoch);
        if found.record.state == VolumeState::Online && is_ours {
            return Ok(found.record);
        }
        if !matches!(found.record.state, VolumeState::Trashed(_)) {
            return Err(CatalogError::NotInTrash(id));
        }
        let reference = Reference { taken: keys::volume_name(name), volume: id };
        if map.get(&reference.taken).await?.is_some() {
            return Err(CatalogError::Exists(name.to_owned()));
        }
        let volume_epoch = VolumeEpoch(found.record.volume_epoch.0 + 1);
        let online =
            VolumeRecord { name: name.to_owned(), state: VolumeState::Online, head, volume_epoch, ..found.record };
        let transaction = Transaction::new()
            .expect_absent(&reference.taken)
            .put(&reference.taken, encode(&reference))
            .expect(online.key(), found.modified)
            .put(online.key(), encode(&online));
        given = Some(volume_epoch);
        if let Attempt::Done = attempt(map, transaction).await? {
            return Ok(online);
        }
    }
    Err(CatalogError::Contended)
}

/// Ends the volume's time in the trash: from now on it is deleted, whatever happens.
///
/// # Errors
/// If it is not in the trash: it was restored, or is gone; or there for another term than `only`, if that is given.
pub async fn empty_trash(
    map: &dyn MapStore,
    id: VolumeId,
    only: Option<TrashTerm>,
) -> Result<VolumeRecord, CatalogError> {
    let mut asked = false;
    for _ in 0..ATTEMPTS_MAX {
        let found = volume_in(map, id).await?;
        if asked && found.record.state == VolumeState::Deleting {
            return Ok(found.record);
        }
        match found.record.state {
            VolumeState::Trashed(term) if only.is_none_or(|only| only == term) => {}
            _ => return Err(CatalogError::NotInTrash(id)),
        }
        let deleting = taken_offline(found.record, VolumeState::Deleting);
        let transaction =
            Transaction::new().expect(deleting.key(), found.modified).put(deleting.key(), encode(&deleting));
        asked = true;
        if let Attempt::Done = attempt(map, transaction).await? {
            return Ok(deleting);
        }
    }
    Err(CatalogError::Contended)
}

async fn volume_in(map: &dyn MapStore, id: VolumeId) -> Result<Versioned<VolumeRecord>, CatalogError> {
    get::<VolumeRecord>(map, &keys::volume(id)).await?.ok_or(CatalogError::NotInTrash(id))
}
