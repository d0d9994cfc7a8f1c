//! Heads that go from one node to another by the will of the one that has them.

use super::{ATTEMPTS_MAX, Attempt, CatalogError, Reign, attempt};
use crate::map::{MapStore, Transaction};
use crate::records::{Record, VolumeRecord, VolumeState, keys};
use crate::typed::{encode, get};
use types::{NodeId, VolumeEpoch, VolumeId};

/// Whether a node that is given a volume is to keep it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stay {
    /// It is its home from now on.
    ForGood,
    /// Its home stays what it is.
    Meanwhile,
}

/// Makes `to` the head of a volume whose head is `by`, in a new volume epoch. The node takes it in one of its own as soon as it
/// hears of that. Returns the volume as it is then.
///
/// # Errors
/// [`CatalogError::Deposed`]: another has become its head; [`CatalogError::Gone`]: it is not used any more.
pub async fn give_head(
    map: &dyn MapStore,
    id: VolumeId,
    by: Reign,
    to: NodeId,
    stay: Stay,
) -> Result<VolumeRecord, CatalogError> {
    let key = keys::volume(id);
    for _ in 0..ATTEMPTS_MAX {
        let found = get::<VolumeRecord>(map, &key).await?;
        let found = found.filter(|found| found.record.state == VolumeState::Online).ok_or(CatalogError::Gone(id))?;
        // An attempt of this call was done and not heard of, or somebody else had the same wish.
        let is_there = found.record.head == to && found.record.volume_epoch > by.epoch;
        let home = if stay == Stay::ForGood { to } else { found.record.home };
        if is_there && found.record.home == home {
            return Ok(found.record);
        }
        if !is_there {
            by.check(&found.record)?;
        }
        // Where it is at home anybody may say: no command depends on that.
        let given = match is_there || by.node == to {
            true => VolumeRecord { home, ..found.record },
            false => {
                let volume_epoch = VolumeEpoch(found.record.volume_epoch.0 + 1);
                VolumeRecord { head: to, volume_epoch, home, ..found.record }
            }
        };
        let transaction = Transaction::new().expect(given.key(), found.modified).put(given.key(), encode(&given));
        if let Attempt::Done = attempt(map, transaction).await? {
            return Ok(given);
        }
    }
    Err(CatalogError::Contended)
}
