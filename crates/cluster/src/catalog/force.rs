//! An operator says whose copy of a group counts (R24 of docs/replication.md).

use super::{ATTEMPTS_MAX, CatalogError, settle};
use crate::map::{MapStore, Outcome, Transaction};
use crate::records::{GroupRecord, MembersError, keys};
use crate::typed::{encode, get};
use types::{Epoch, GroupId, Mutant, StoreId, mutant};

/// Why nobody was said to count.
#[derive(Debug, thiserror::Error)]
pub enum ForceError {
    /// Of the map.
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    /// There is no such group.
    #[error("there is no placement group {0}")]
    NoGroup(GroupId),
    /// It has no such member.
    #[error(transparent)]
    Members(#[from] MembersError),
    /// Somebody leads it, or has led it, since it was looked at.
    #[error(
        "group {0} has changed since it was looked at: it may have gone on by itself. See `cairn group ls`, and decide again"
    )]
    Moved(GroupId),
    /// The record changed, again and again.
    #[error("the record of group {0} changes all the time: look at `cairn status`, and try again")]
    Moving(GroupId),
}

/// From now on the copy of `store` is what the group holds, whatever others have. `judged`: the reign that the group had when it was
/// looked at; `known`: the newest epoch that any member was heard to know.
///
/// # Errors
/// See [`ForceError`].
pub async fn force_group(
    map: &dyn MapStore,
    group: GroupId,
    store: StoreId,
    (judged, known): (Epoch, Epoch),
) -> Result<GroupRecord, ForceError> {
    let key = keys::group(group);
    for _ in 0..ATTEMPTS_MAX {
        let found = get::<GroupRecord>(map, &key).await?;
        let found = found.ok_or(ForceError::NoGroup(group))?;
        if found.record.epoch != judged && !mutant(Mutant::ForcedUnseen) {
            return Err(ForceError::Moved(group));
        }
        let next = found.record.forced_by(store, known)?;
        let transaction = Transaction::new().expect(key.clone(), found.modified).put(key.clone(), encode(&next));
        if let Outcome::Committed(_) = settle(map, transaction).await.map_err(CatalogError::from)? {
            return Ok(next);
        }
    }
    Err(ForceError::Moving(group))
}
