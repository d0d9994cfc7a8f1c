//! Transactions whose outcome is unknown.

use super::RETRY_WAIT;
use crate::map::{Change, KeyValue, MapError, MapFuture, MapStore, Outcome, Revision, Transaction};
use std::time::Duration;

/// So many deadlines of the map's requests it is tried to learn an outcome: longer than a change of its leader takes.
const DEADLINES_MAX: u32 = 4;

/// Sends `transaction` until it is known what became of it. After [`Outcome::Committed`] it is done, once. After
/// [`Outcome::Conflict`] it is not done and never will be, or an earlier sending of this call was done and not heard
/// of: from now on a look says which.
///
/// A look alone would not: a request that was not answered may be on its way still, and be done after a look that found
/// nothing of it (a server that stood still goes on with what it had received). Who believes that look tells its caller
/// "failed" of something that happens later. Another sending of the same compare-and-swap settles it: if that is done,
/// or a revision that it compares has gone, then so is every sending's chance, for no revision of a key comes back
/// (unless the map is restored from a backup: against that, those who act on records keep the newest they have seen).
///
/// A key that must be absent can become absent again. So where only that was in the way, a key that the transaction
/// compares by its revision is put as it is, in a revision of its own.
///
/// The transaction must change a key that it compares; if it compares none by its revision, what it makes must never be
/// removed.
///
/// # Errors
/// What the map refuses. [`MapError::Unknown`] if the map does not answer for so long that the outcome stays open.
///
/// # Panics
/// If the transaction changes nothing that it compares: it could be done twice.
pub async fn settle(map: &dyn MapStore, transaction: Transaction) -> Result<Outcome, MapError> {
    let excludes_itself = |change: &Change| transaction.compares.iter().any(|(key, _)| key == change.key());
    let is_once = transaction.changes.is_empty() || transaction.changes.iter().any(excludes_itself);
    assert!(is_once, "this could be done twice: {transaction:?}");
    let mut is_open = false;
    let outcome = answered(map, &mut is_open, || map.transact(transaction.clone())).await?;
    if outcome == Outcome::Conflict && is_open {
        spoil(map, &transaction).await?;
    }
    Ok(outcome)
}

/// Makes sure that no sending of `transaction` that is still on its way can be done.
async fn spoil(map: &dyn MapStore, transaction: &Transaction) -> Result<(), MapError> {
    let Some((key, compared)) = transaction.compares.iter().find(|(_, modified)| *modified != Revision(0)) else {
        return Ok(());
    };
    let found = answered(map, &mut false, || map.get(key)).await?;
    // A look that finds another revision proves something: the one that is compared never comes back.
    let Some(KeyValue { value, lease, .. }) = found.filter(|found| found.modified == *compared) else { return Ok(()) };
    let put = Change::Put { key: key.clone(), value, lease };
    let same = Transaction { compares: vec![(key.clone(), *compared)], changes: vec![put] };
    // A conflict is as good: somebody else gave the key another revision.
    answered(map, &mut false, || map.transact(same.clone())).await.map(drop)
}

/// The answer to `ask`, which is asked again while there is none. `is_open` says whether an asking was not answered.
async fn answered<'a, T>(
    map: &dyn MapStore,
    is_open: &mut bool,
    ask: impl Fn() -> MapFuture<'a, T>,
) -> Result<T, MapError> {
    let began = runtime::now();
    let patience: Duration = map.request_deadline() * DEADLINES_MAX;
    loop {
        match ask().await {
            Err(MapError::Unknown) if runtime::now().since(began) < patience => {
                *is_open = true;
                runtime::sleep(RETRY_WAIT).await;
            }
            answer => return answer,
        }
    }
}
