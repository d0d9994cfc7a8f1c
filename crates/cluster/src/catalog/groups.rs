//! Reigns of primaries.

use super::{ATTEMPTS_MAX, Attempt, CatalogError, attempt};
use crate::map::{MapStore, TRANSACTION_OPERATIONS_MAX, Transaction};
use crate::records::{GroupRecord, Record, keys};
use crate::typed::{Versioned, encode, list};
use types::{Epoch, Mutant, StoreId, mutant};

/// Makes `store` primary, in a new epoch, of each group that it leads in the map: a store that starts is nobody's
/// primary until this has been done, whatever the record says. Returns the records as they are afterwards.
///
/// An epoch that was begun and not heard of is skipped: nobody has used it.
pub async fn begin_epochs(map: &dyn MapStore, store: StoreId) -> Result<Vec<GroupRecord>, CatalogError> {
    let mut begun = Vec::new();
    for _ in 0..ATTEMPTS_MAX {
        let groups = list::<GroupRecord>(map, keys::GROUPS).await?;
        let is_begun = |group: &GroupRecord| begun.iter().any(|other: &GroupRecord| other.id == group.id);
        let due: Vec<_> = groups.into_iter().filter(|g| g.record.primary == store && !is_begun(&g.record)).collect();
        if due.is_empty() {
            return Ok(begun);
        }
        for batch in due.chunks(TRANSACTION_OPERATIONS_MAX) {
            let next: Vec<GroupRecord> = batch.iter().map(next_epoch).collect();
            let mut transaction = Transaction::new();
            for (old, new) in batch.iter().zip(&next) {
                transaction = transaction.expect(new.key(), old.modified).put(new.key(), encode(new));
            }
            if let Attempt::Done = attempt(map, transaction).await? {
                begun.extend(next);
            }
        }
    }
    Err(CatalogError::Contended)
}

fn next_epoch(group: &Versioned<GroupRecord>) -> GroupRecord {
    let old = group.record.epoch;
    let goes_on = mutant(Mutant::OldEpochAfterRestart) && old > Epoch(0);
    GroupRecord { epoch: if goes_on { old } else { Epoch(old.0 + 1) }, ..group.record.clone() }
}
