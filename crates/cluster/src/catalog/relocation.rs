//! A volume that moves to another slot table: a draft of it is made there, what it holds is copied into that, and then the
//! two change places.
//!
//! ```text
//!   create_draft     volume "data"  table 1, family 3, layers 4 ▸ 9       draft  table 7, family 8, layer 12
//!   copied: each snapshot of the volume, oldest first, and one like it taken of the draft; then what was written since
//!   take_places      volume "data"  table 7, family 8, layers 12 ▸ 15     draft  table 1, family 3, layers 4 ▸ 9: deleted
//!                    its snapshots name the draft's layers
//! ```
//!
//! Until the one transaction of the last step the volume is what it was, whatever becomes of the draft; behind it the volume
//! is there, whole. What it leaves ends as that of a volume that is deleted; clones stay where they were, with what they
//! share.

use super::snapshots::online;
use super::volumes::{begin_volume, make, new_nguid, taken_offline};
use super::{ATTEMPTS_MAX, Attempt, CatalogError, NewVolume, RETRY_WAIT, Reign, VolumePlace, attempt, snapshots};
use crate::map::{MapError, MapStore, TRANSACTION_OPERATIONS_MAX, Transaction};
use crate::records::{
    FamilyRecord, HostAccess, Limits, NodeSetRecord, Record, Reference, SnapshotRecord, VolumeRecord, VolumeState, keys,
};
use crate::typed::{Versioned, encode, get};
use std::collections::BTreeMap;
use types::{LayerId, Mutant, NodeId, VolumeEpoch, VolumeId, mutant};

/// What the names begin with that a move gives to snapshots of its own: nobody can name one so.
pub const OWN_SNAPSHOT: char = '~';

/// Snapshots that a volume may have when it moves: all of them take their new places in one transaction, with two records
/// each.
pub const MOVED_SNAPSHOTS_MAX: usize = (TRANSACTION_OPERATIONS_MAX - 16) / 2;

/// A volume and its draft that have changed places.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Places {
    /// The volume.
    pub moved: VolumeRecord,
    /// What was its draft: it is being deleted.
    pub left: VolumeRecord,
}

/// Makes a draft of a volume in another table, served by the volume's head and seen by no client.
///
/// # Errors
/// If the volume has another head by now, or the table's node set is gone.
pub async fn create_draft(
    map: &dyn MapStore,
    id: VolumeId,
    by: Reign,
    place: &VolumePlace,
) -> Result<VolumeRecord, CatalogError> {
    let (nguid, family_seed) = (new_nguid(), runtime::random_u64());
    for _ in 0..ATTEMPTS_MAX {
        let of = online(map, id).await?;
        by.check(&of.record)?;
        let new = NewVolume {
            name: format!("moving-{id}-{:08x}", family_seed as u32),
            size_bytes: of.record.size_bytes,
            block_size_bytes: of.record.block_size_bytes,
            limits: Limits::default(),
            hosts: HostAccess::Listed(Vec::new()),
        };
        let (begun, ids) = match begin_volume(map, &new, &place.pool, by.node, &nguid).await? {
            Ok(begun) => begun,
            Err(made) => return Ok(made),
        };
        let table = place.table.unwrap_or(begun.table);
        let draft = VolumeRecord { family_seed, table, key: of.record.key, draft_of: Some(id), ..begun };
        let family = FamilyRecord { id: draft.family, keeper: by.node, epoch: VolumeEpoch(1) };
        let mut transaction = make(&draft, ids)
            .expect(of.record.key(), of.modified)
            .expect_absent(family.key())
            .put(family.key(), encode(&family));
        if place.table.is_some() {
            let key = keys::node_set(table);
            let set = get::<NodeSetRecord>(map, &key).await?.filter(|set| set.record.pool == place.pool);
            let gone = || CatalogError::BadRecord { key: key.clone(), why: "it is gone: try again".to_owned() };
            transaction = transaction.expect(&key, set.ok_or_else(gone)?.modified);
        }
        if let Attempt::Done = attempt(map, transaction).await? {
            return Ok(draft);
        }
    }
    Err(CatalogError::Contended)
}

/// Snapshots of a volume that its draft has, by name: the layer that each named when it was copied.
pub type CopiedSnapshots = BTreeMap<String, LayerId>;

/// The volume and its draft change places: from now on the volume lies where the draft did, in the same reign of its head, and the
/// draft is deleted with what the volume held before. `home`: the volume's from now on.
///
/// `copied`: which layer was copied of each snapshot's name. To be called when both hold the same, nothing runs on the volume, and no
/// earlier head of it writes anything more. Does not
/// return before it is known whether it is done, however long the map is away: who went on without knowing would write to one
/// place while the map names another.
///
/// # Errors
/// All is as it was: the volume or the draft has another head, or they have other snapshots than each other, or others than were copied.
pub async fn take_places(
    map: &dyn MapStore,
    volume: (VolumeId, Reign),
    draft: (VolumeId, Reign),
    (home, copied): (NodeId, &CopiedSnapshots),
) -> Result<Places, CatalogError> {
    let (mut expected, mut is_open) = (None, false);
    loop {
        match swap(map, volume, draft, (home, copied), &mut expected).await {
            Ok(Some(places)) => return Ok(places),
            Ok(None) => {}
            // What was sent before and not answered may be done all the same.
            Err(CatalogError::Map(error)) if is_open || !matches!(error, MapError::Refused(_)) => {
                is_open |= expected.is_some();
                runtime::sleep(RETRY_WAIT).await;
            }
            Err(error) => return Err(error),
        }
    }
}

/// One attempt; `None`: another is needed. `expected`: both as they will be, or are, if an attempt was done and not heard of.
async fn swap(
    map: &dyn MapStore,
    (id, by): (VolumeId, Reign),
    (draft_id, draft_by): (VolumeId, Reign),
    (home, copied): (NodeId, &CopiedSnapshots),
    expected: &mut Option<Places>,
) -> Result<Option<Places>, CatalogError> {
    let old = online(map, id).await?;
    if let Some(places) = expected.as_ref().filter(|places| places.moved.family == old.record.family) {
        return Ok(Some(places.clone()));
    }
    by.check(&old.record)?;
    let draft = online(map, draft_id).await?;
    draft_by.check(&draft.record)?;
    let apart = || CatalogError::BadRecord { key: old.record.key(), why: "its draft is another's".to_owned() };
    if draft.record.draft_of != Some(id) || draft.record.size_bytes != old.record.size_bytes {
        return Err(apart());
    }
    let moved = VolumeRecord {
        pool: draft.record.pool.clone(),
        table: draft.record.table,
        family: draft.record.family,
        family_seed: draft.record.family_seed,
        layers: draft.record.layers.clone(),
        leaving: draft.record.leaving.clone(),
        home,
        ..old.record.clone()
    };
    let left = VolumeRecord {
        pool: old.record.pool.clone(),
        table: old.record.table,
        family: old.record.family,
        family_seed: old.record.family_seed,
        layers: old.record.layers.clone(),
        leaving: old.record.leaving.clone(),
        volume_epoch: VolumeEpoch(draft.record.volume_epoch.0 + 1),
        ..draft.record.clone()
    };
    let left = taken_offline(left, VolumeState::Deleting);
    let name = keys::volume_name(&draft.record.name);
    let named = get::<Reference>(map, &name).await?.filter(|named| named.record.volume == draft_id);
    let mut transaction = Transaction::new()
        .expect(moved.key(), old.modified)
        .put(moved.key(), encode(&moved))
        .expect(left.key(), draft.modified)
        .put(left.key(), encode(&left))
        .expect(&name, named.ok_or_else(apart)?.modified)
        .delete(&name);
    for (snapshot, replacement) in pairs(map, id, draft_id, copied).await? {
        transaction = transaction.expect(snapshot.record.key(), snapshot.modified);
        transaction = match replacement {
            Some(like) => {
                let SnapshotRecord { layer, family, .. } = like.record;
                let named = SnapshotRecord { layer, family, ..snapshot.record };
                transaction
                    .put(named.key(), encode(&named))
                    .expect(like.record.key(), like.modified)
                    .delete(like.record.key())
            }
            None => transaction.delete(snapshot.record.key()),
        };
    }
    *expected = Some(Places { moved: moved.clone(), left: left.clone() });
    match attempt(map, transaction).await? {
        Attempt::Done => Ok(Some(Places { moved, left })),
        Attempt::ReadAgain => Ok(None),
    }
}

/// A volume's snapshots, each with the one of the draft that is like it; those of the move itself have none.
async fn pairs(
    map: &dyn MapStore,
    id: VolumeId,
    draft: VolumeId,
    copied: &CopiedSnapshots,
) -> Result<Vec<(Versioned<SnapshotRecord>, Option<Versioned<SnapshotRecord>>)>, CatalogError> {
    let mut of_draft = snapshots(map, draft).await?;
    let mut pairs = Vec::new();
    for snapshot in snapshots(map, id).await? {
        let key = keys::snapshot(id, &snapshot.name);
        let Some(found) = get::<SnapshotRecord>(map, &key).await? else { return Err(CatalogError::Contended) };
        if snapshot.name.starts_with(OWN_SNAPSHOT) {
            pairs.push((found, None));
            continue;
        }
        // One that was deleted and taken again since has its name, and holds something else.
        if copied.get(&snapshot.name) != Some(&found.record.layer) && !mutant(Mutant::MovedByName) {
            return Err(CatalogError::Contended);
        }
        let Some(place) = of_draft.iter().position(|other| other.name == snapshot.name) else {
            return Err(CatalogError::Contended);
        };
        let like = of_draft.swap_remove(place);
        let like = get::<SnapshotRecord>(map, &like.key()).await?.ok_or(CatalogError::Contended)?;
        pairs.push((found, Some(like)));
    }
    if of_draft.is_empty() { Ok(pairs) } else { Err(CatalogError::Contended) }
}
