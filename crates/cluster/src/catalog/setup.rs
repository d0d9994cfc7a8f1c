//! A new cluster's records: each step makes what is missing and leaves alone what is there, so that a crash between
//! two steps costs nothing.

use super::{ATTEMPTS_MAX, Attempt, CatalogError, attempt};
use crate::map::{MapStore, Transaction};
use crate::records::{DeviceRecord, DeviceState, NodeRecord, Record, SlotTablePiece, keys};
use crate::slots::{SlotRun, SlotTable};
use crate::typed::{Versioned, encode, get, list};
use std::net::SocketAddr;
use types::{NodeId, StoreId};

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

/// Puts the pieces of a table whose number nobody else has.
pub(super) async fn ensure_table(map: &dyn MapStore, table: u32, runs: &[SlotRun]) -> Result<(), CatalogError> {
    for piece in pieces(table, runs) {
        ensure(map, piece).await?;
    }
    Ok(())
}

/// A table, cut into values.
pub(super) fn pieces(table: u32, runs: &[SlotRun]) -> Vec<SlotTablePiece> {
    let runs: Vec<(u16, u16, u32)> = runs.iter().map(|run| (run.first.0, run.last.0, run.group.0)).collect();
    let pieces = runs.len().div_ceil(SlotTablePiece::RUNS_MAX) as u32;
    let piece = |(piece, runs): (usize, &[(u16, u16, u32)])| SlotTablePiece {
        table,
        piece: piece as u32,
        pieces,
        runs: runs.to_vec(),
    };
    runs.chunks(SlotTablePiece::RUNS_MAX).enumerate().map(piece).collect()
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
