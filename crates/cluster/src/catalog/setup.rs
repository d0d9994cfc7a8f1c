//! A new cluster's records: each step makes what is missing and leaves alone what is there, so that a crash between
//! two steps costs nothing.

use super::{ATTEMPTS_MAX, Attempt, CatalogError, attempt};
use crate::map::{MapStore, TRANSACTION_OPERATIONS_MAX, Transaction};
use crate::records::{
    Allocator, Compression, DeviceRecord, DeviceState, GroupRecord, NodeRecord, Policy, PoolRecord, Record,
    SlotTablePiece, keys,
};
use crate::slots::{SlotRun, SlotTable};
use crate::typed::{Versioned, encode, get, list};
use std::net::SocketAddr;
use types::{GroupId, NodeId, StoreId};

/// The pool of a cluster that was not told otherwise.
pub const DEFAULT_POOL: &str = "default";
/// Placement groups per device, divided by the replicas: enough that recovery is many-to-many and shares are even,
/// few enough that a group's state is nothing.
pub(super) const GROUPS_PER_DEVICE: u32 = 100;
/// The first table.
const FIRST_TABLE: u32 = 1;

/// The record as it is in the map, made from `record` if it was not there.
pub async fn ensure<T: Record>(map: &dyn MapStore, record: T) -> Result<Versioned<T>, CatalogError> {
    let key = record.key();
    for _ in 0..ATTEMPTS_MAX {
        if let Some(found) = get(map, &key).await? {
            return Ok(found);
        }
        attempt(map, Transaction::new().expect_absent(&key).put(&key, encode(&record))).await?;
    }
    Err(CatalogError::Contended)
}

/// Says where a node is reached from now on.
pub async fn say_address(map: &dyn MapStore, node: NodeId, address: SocketAddr) -> Result<(), CatalogError> {
    let record = NodeRecord { id: node, address: address.to_string() };
    let key = record.key();
    for _ in 0..ATTEMPTS_MAX {
        let found: Option<Versioned<NodeRecord>> = get(map, &key).await?;
        let transaction = match found {
            Some(found) if found.record == record => return Ok(()),
            Some(found) => Transaction::new().expect(&key, found.modified),
            None => Transaction::new().expect_absent(&key),
        };
        if let Attempt::Done = attempt(map, transaction.put(&key, encode(&record))).await? {
            return Ok(());
        }
    }
    Err(CatalogError::Contended)
}

/// Notes that the device is formatted and must never be formatted again.
pub async fn activate_device(map: &dyn MapStore, store: StoreId) -> Result<(), CatalogError> {
    let key = keys::device(store);
    for _ in 0..ATTEMPTS_MAX {
        let missing = || CatalogError::BadRecord { key: key.clone(), why: "it is gone".to_owned() };
        let found: Versioned<DeviceRecord> = get(map, &key).await?.ok_or_else(missing)?;
        if found.record.state == DeviceState::Active {
            return Ok(());
        }
        let active = DeviceRecord { state: DeviceState::Active, ..found.record };
        let transaction = Transaction::new().expect(&key, found.modified).put(&key, encode(&active));
        if let Attempt::Done = attempt(map, transaction).await? {
            return Ok(());
        }
    }
    Err(CatalogError::Contended)
}

/// What a pool is to be.
#[derive(Clone, Debug)]
pub struct NewPool {
    /// Its name.
    pub name: String,
    /// Members of each group.
    pub replicas: u32,
    /// Members that must have a write before it is committed.
    pub min_in_sync: u32,
    /// Its devices.
    pub stores: Vec<StoreId>,
}

/// The pool, made with its groups and its table if it was not there. The pool's record is written last: while it is
/// missing, nothing has been stored in its groups and they may be completed.
///
/// # Panics
/// Without a device, or with fewer devices than replicas.
pub async fn ensure_pool(map: &dyn MapStore, new: &NewPool) -> Result<PoolRecord, CatalogError> {
    assert!(new.replicas >= 1 && new.stores.len() >= new.replicas as usize, "a pool needs a device per replica");
    if let Some(found) = get::<PoolRecord>(map, &keys::pool(&new.name)).await? {
        return Ok(found.record);
    }
    let groups = plan_groups(new);
    for batch in groups.chunks(TRANSACTION_OPERATIONS_MAX) {
        ensure_all(map, batch).await?;
    }
    let ids: Vec<GroupId> = groups.iter().map(|group| group.id).collect();
    ensure_table(map, FIRST_TABLE, &SlotTable::deal(&ids)).await?;
    for kind in ["volume", "layer", "family"] {
        ensure(map, Allocator { kind: kind.to_owned(), next: 1 }).await?;
    }
    let pool = PoolRecord {
        name: new.name.clone(),
        policy: Policy::Replicated,
        replicas: new.replicas,
        min_in_sync: new.min_in_sync,
        table: FIRST_TABLE,
        write_cache: false,
        compression: Compression::default(),
    };
    Ok(ensure(map, pool).await?.record)
}

pub(super) async fn ensure_table(map: &dyn MapStore, table: u32, runs: &[SlotRun]) -> Result<(), CatalogError> {
    let runs: Vec<(u16, u16, u32)> = runs.iter().map(|run| (run.first.0, run.last.0, run.group.0)).collect();
    let pieces = runs.len().div_ceil(SlotTablePiece::RUNS_MAX) as u32;
    for (piece, runs) in runs.chunks(SlotTablePiece::RUNS_MAX).enumerate() {
        ensure(map, SlotTablePiece { table, piece: piece as u32, pieces, runs: runs.to_vec() }).await?;
    }
    Ok(())
}

/// The groups of a new pool: ids from 1. Primaries are dealt round; every other member is the device that holds
/// least, and among those the one that has been this primary's partner least often.
fn plan_groups(new: &NewPool) -> Vec<GroupRecord> {
    let devices = new.stores.len();
    let count = (GROUPS_PER_DEVICE as usize * devices).div_ceil(new.replicas as usize);
    let mut held = vec![0u32; devices];
    let mut partners = vec![0u32; devices * devices];
    let mut plan = |index: usize| {
        let primary = index % devices;
        let mut members = vec![primary];
        while members.len() < new.replicas as usize {
            let others = (0..devices).filter(|device| !members.contains(device));
            let next =
                others.min_by_key(|&d| (held[d], partners[primary * devices + d], (d + devices - primary) % devices));
            let next = next.expect("as many devices as replicas");
            partners[primary * devices + next] += 1;
            members.push(next);
        }
        members.iter().for_each(|&device| held[device] += 1);
        let members: Vec<StoreId> = members.iter().map(|&device| new.stores[device]).collect();
        GroupRecord::begun_with(GroupId(index as u32 + 1), (FIRST_TABLE, new.name.clone()), members, new.min_in_sync)
    };
    (0..count).map(&mut plan).collect()
}

/// Makes those of `records` that are missing, in as many transactions as it takes.
async fn ensure_all<T: Record>(map: &dyn MapStore, records: &[T]) -> Result<(), CatalogError> {
    for _ in 0..ATTEMPTS_MAX {
        let mut transaction = Transaction::new();
        for record in records {
            let key = record.key();
            if map.get(&key).await?.is_none() {
                transaction = transaction.expect_absent(&key).put(&key, encode(record));
            }
        }
        if transaction.changes.is_empty() {
            return Ok(());
        }
        if let Attempt::Done = attempt(map, transaction).await? {
            return Ok(());
        }
    }
    Err(CatalogError::Contended)
}

/// A slot table from its pieces.
///
/// # Errors
/// If a piece is missing or the pieces do not make a whole table.
pub async fn load_table(map: &dyn MapStore, table: u32) -> Result<SlotTable, CatalogError> {
    let key = keys::table(table);
    let bad = |why: String| CatalogError::BadRecord { key: key.clone(), why };
    let pieces = list::<SlotTablePiece>(map, &key).await?;
    let expected = pieces.first().map_or(1, |piece| piece.record.pieces);
    if pieces.len() as u32 != expected {
        return Err(bad(format!("{} pieces of {expected} are there", pieces.len())));
    }
    let runs: Vec<_> = pieces.iter().flat_map(|piece| piece.record.slot_runs()).collect();
    SlotTable::from_runs(&runs).map_err(|error| bad(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(replicas: u32, devices: u128) -> NewPool {
        let stores = (1..=devices).map(StoreId).collect();
        NewPool { name: DEFAULT_POOL.to_owned(), replicas, min_in_sync: 1, stores }
    }

    /// Property over cluster sizes: members are distinct, and devices lead and hold equal shares.
    #[test]
    fn groups_are_dealt_evenly_to_devices() {
        for replicas in 1..=3 {
            for devices in u128::from(replicas)..=9 {
                let new = pool(replicas, devices);
                let groups = plan_groups(&new);
                assert_eq!(groups.len() as u32, (GROUPS_PER_DEVICE * devices as u32).div_ceil(replicas));
                for group in &groups {
                    let mut members = group.members.clone();
                    members.sort_unstable();
                    members.dedup();
                    assert_eq!(members.len() as u32, replicas, "{group:?}");
                }
                for store in &new.stores {
                    let led = groups.iter().filter(|group| group.primary == *store).count() as u32;
                    assert!(led.abs_diff(GROUPS_PER_DEVICE / replicas) <= 1, "{led} of {replicas}×{devices}");
                    let held = groups.iter().filter(|group| group.members.contains(store)).count() as u32;
                    assert!(held.abs_diff(GROUPS_PER_DEVICE) <= 5, "{held} held of {replicas}×{devices}");
                }
            }
        }
    }
}
