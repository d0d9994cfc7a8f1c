//! A pool that gets another device.

use super::numbers::{Numbered, Numbers};
use super::pools::unreadable;
use super::setup::{ensure_table, load_table};
use super::{ATTEMPTS_MAX, Attempt, CatalogError, attempt};
use crate::control::Followed;
use crate::map::{MapStore, TRANSACTION_OPERATIONS_MAX, Transaction};
use crate::placement::MEMBERSHIPS_PER_DEVICE;
use crate::records::{GroupRecord, PoolRecord, Record, keys};
use crate::slots::SlotTable;
use crate::typed::{encode, get, list};
use types::{GroupId, Mutant, StoreId, mutant};

/// Gives a device that comes to a pool of one copy its groups: as many as one of a new pool has; none if it is to leave, or is
/// not in the map. What a crash left of an earlier try is completed. The pool's volumes know nothing of them before [`deal_again`].
///
/// # Errors
/// A pool that is not there, or keeps more copies than one: there, groups move to the device instead.
pub async fn add_groups(map: &dyn MapStore, pool: &str, store: StoreId) -> Result<(), CatalogError> {
    let pool = pool_of_one_copy(map, pool).await?;
    for _ in 0..ATTEMPTS_MAX {
        let listing = map.list("").await?;
        let mut known = Followed::of(&listing);
        let view = known.view().map_err(unreadable)?;
        let has = view.groups.values().filter(|group| group.primary == store && group.pool == pool.name).count();
        if !view.devices.contains_key(&store) || known.is_leaving(store) {
            return Ok(());
        }
        let missing = MEMBERSHIPS_PER_DEVICE.saturating_sub(has as u32);
        if missing == 0 {
            return Ok(());
        }
        let mut numbers = Numbers::free(&listing, Numbered::Group)?;
        let first = numbers.take(missing);
        let said = known.said_of(store).into_iter().filter(|_| !mutant(Mutant::DealtUnseen));
        let mut transaction = said.fold(Transaction::new(), |all, (key, modified)| all.expect(key, modified));
        for id in (first..first + missing).map(GroupId) {
            let record = GroupRecord::begun_with(id, (pool.table, pool.name.clone()), vec![store], pool.min_in_sync);
            transaction = transaction.expect_absent(record.key()).put(record.key(), encode(&record));
        }
        if let Attempt::Done = attempt(map, numbers.put(transaction)).await? {
            return Ok(());
        }
    }
    Err(CatalogError::Contended)
}

// All of a device in one transaction, with the number that is used up and what is said of the device.
const _: () = assert!((MEMBERSHIPS_PER_DEVICE as usize) + 3 <= TRANSACTION_OPERATIONS_MAX);

async fn pool_of_one_copy(map: &dyn MapStore, name: &str) -> Result<PoolRecord, CatalogError> {
    let pool = get::<PoolRecord>(map, &keys::pool(name)).await?.ok_or_else(|| CatalogError::NoPool(name.to_owned()))?;
    if pool.record.replicas != 1 {
        let why = format!(
            "it keeps {} copies: what a device gets of it is said for all devices together",
            pool.record.replicas
        );
        return Err(CatalogError::BadRecord { key: keys::pool(name), why });
    }
    Ok(pool.record)
}

/// A new slot table over all groups of the pool if the one it has leaves some out; `weight` says how much of a volume
/// each device should hold. Volumes that are made from now on use it, those that are there keep theirs. Returns the
/// pool as it is then.
pub async fn deal_again(
    map: &dyn MapStore,
    pool: &str,
    weight: impl Fn(StoreId) -> u64,
) -> Result<PoolRecord, CatalogError> {
    for _ in 0..ATTEMPTS_MAX {
        let found = get::<PoolRecord>(map, &keys::pool(pool)).await?;
        let found = found.ok_or_else(|| CatalogError::NoPool(pool.to_owned()))?;
        let dealt = load_table(map, found.record.table).await?;
        let groups = list::<GroupRecord>(map, keys::GROUPS).await?.into_iter().map(|group| group.record);
        let groups: Vec<GroupRecord> = groups.filter(|group| group.pool == pool).collect();
        if groups.iter().all(|group| dealt.groups().contains(&group.id)) {
            return Ok(found.record);
        }
        let led = |store| groups.iter().filter(|group| group.primary == store).count() as u64;
        let weights: Vec<_> =
            groups.iter().map(|group| (group.id, weight(group.primary) / led(group.primary))).collect();
        // What a crash leaves of a table that no pool ever named stays behind, under a number of its own.
        let mut numbers = Numbers::free(&map.list("").await?, Numbered::Table)?;
        let table = numbers.take(1);
        if let Attempt::ReadAgain = attempt(map, numbers.put(Transaction::new())).await? {
            continue;
        }
        ensure_table(map, table, &SlotTable::deal_by_weight(&weights)).await?;
        let next = PoolRecord { table, ..found.record };
        let transaction = Transaction::new().expect(next.key(), found.modified).put(next.key(), encode(&next));
        if let Attempt::Done = attempt(map, transaction).await? {
            return Ok(next);
        }
    }
    Err(CatalogError::Contended)
}
