//! Data keys of encrypted volumes, and how a pool compresses.
//!
//! A key's record comes into the map with the first volume of its family and goes with the last one: without it nothing
//! of the family can be read, whatever is left of it on devices.

use super::{ATTEMPTS_MAX, Attempt, CatalogError, RETRY_WAIT, attempt, ensure};
use crate::map::{MapError, MapStore, Transaction};
use crate::records::{Allocator, Compression, KeyRecord, KeyWrap, PoolRecord, Record, VolumeRecord, keys};
use crate::typed::{Versioned, encode, get, list};
use types::KeyId;

/// A key id for one volume to be made; never given twice.
pub async fn new_key_id(map: &dyn MapStore) -> Result<KeyId, CatalogError> {
    for _ in 0..ATTEMPTS_MAX {
        let found = ensure(map, Allocator { kind: "data-key".to_owned(), next: 1 }).await?;
        let key = found.record.key();
        let next = Allocator { next: found.record.next + 1, ..found.record.clone() };
        let transaction = Transaction::new().expect(&key, found.modified).put(&key, encode(&next));
        if let Attempt::Done = attempt(map, transaction).await? {
            let used_up = || CatalogError::BadRecord { key, why: "all ids are used up".to_owned() };
            return u32::try_from(found.record.next).map(KeyId).map_err(|_| used_up());
        }
    }
    Err(CatalogError::Contended)
}

/// A data key's record.
pub async fn key_record(map: &dyn MapStore, id: KeyId) -> Result<Versioned<KeyRecord>, CatalogError> {
    let key = keys::data_key(id);
    let found = get::<KeyRecord>(map, &key).await?;
    let missing = || CatalogError::BadRecord { key, why: "a volume names it, and it is missing".to_owned() };
    found.ok_or_else(missing)
}

/// Gives the key other wraps, if its record is still of that revision. What it was wrapped with before is forgotten,
/// also by the map's history.
pub async fn set_wraps(map: &dyn MapStore, was: Versioned<KeyRecord>, wraps: Vec<KeyWrap>) -> Result<(), CatalogError> {
    let key = was.record.key();
    let changed = KeyRecord { wraps, ..was.record };
    for _ in 0..ATTEMPTS_MAX {
        let transaction = Transaction::new().expect(&key, was.modified).put(&key, encode(&changed));
        let is_done = matches!(attempt(map, transaction).await?, Attempt::Done);
        let found = key_record(map, changed.id).await?;
        if is_done || found.record == changed {
            return forget_history(map).await;
        }
        if found.modified != was.modified {
            break;
        }
    }
    Err(CatalogError::Contended)
}

/// The change to the key's record that goes with the removal of `volume`: with the last volume of a family its key
/// goes. In any case the transaction fails if another volume of the family is removed meanwhile.
pub(super) async fn let_go(
    map: &dyn MapStore,
    volume: &VolumeRecord,
    transaction: Transaction,
) -> Result<Transaction, CatalogError> {
    let Some(id) = volume.key else { return Ok(transaction) };
    let key = keys::data_key(id);
    let Some(found) = get::<KeyRecord>(map, &key).await? else { return Ok(transaction) };
    let volumes = list::<VolumeRecord>(map, keys::VOLUMES).await?;
    let is_last = !volumes.iter().any(|other| other.record.key == Some(id) && other.record.id != volume.id);
    let transaction = transaction.expect(&key, found.modified);
    Ok(if is_last { transaction.delete(&key) } else { transaction.put(&key, encode(&found.record)) })
}

/// Makes the map forget what its records were.
pub(super) async fn forget_history(map: &dyn MapStore) -> Result<(), CatalogError> {
    for _ in 0..ATTEMPTS_MAX {
        let forgotten = match map.list(keys::CLUSTER).await {
            Ok(listing) => map.compact(listing.revision).await,
            Err(error) => Err(error),
        };
        match forgotten {
            Err(MapError::Unknown) => runtime::sleep(RETRY_WAIT).await,
            forgotten => return Ok(forgotten?),
        }
    }
    Err(CatalogError::Contended)
}

/// Compresses what is written to the pool's volumes from now on like this.
pub async fn set_compression(
    map: &dyn MapStore,
    pool: &str,
    compression: Compression,
) -> Result<PoolRecord, CatalogError> {
    let key = keys::pool(pool);
    for _ in 0..ATTEMPTS_MAX {
        let found = get::<PoolRecord>(map, &key).await?.ok_or_else(|| CatalogError::NoPool(pool.to_owned()))?;
        if found.record.compression == compression {
            return Ok(found.record);
        }
        let changed = PoolRecord { compression, ..found.record };
        attempt(map, Transaction::new().expect(&key, found.modified).put(&key, encode(&changed))).await?;
    }
    Err(CatalogError::Contended)
}
