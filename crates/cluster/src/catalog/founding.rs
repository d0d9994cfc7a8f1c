//! A cluster's first pool, made by whichever of its nodes is there: when devices of enough nodes are.

use super::{CatalogError, NewPool, ensure, ensure_pool};
use crate::map::MapStore;
use crate::records::{DeviceRecord, DeviceState, FoundingRecord, PoolRecord, keys};
use crate::typed::{get, list};
use std::collections::BTreeMap;
use types::{NodeId, StoreId};

/// How far it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Founding {
    /// There is a pool.
    Done(PoolRecord),
    /// Devices of so many nodes are there.
    Waits(usize),
}

/// The pool of this name; made of all devices there are, if there is none and those of `replicas` nodes are. Of nodes that
/// find that at once, and know of different devices, one says what it is made of, and all make it of that: so it does not
/// matter who comes how far.
///
/// # Panics
/// Without a replica.
pub async fn found_pool(map: &dyn MapStore, name: &str, replicas: u32) -> Result<Founding, CatalogError> {
    if let Some(found) = get::<PoolRecord>(map, &keys::pool(name)).await? {
        return Ok(Founding::Done(found.record));
    }
    let said = match get::<FoundingRecord>(map, &keys::founding(name)).await? {
        Some(said) => said.record,
        None => {
            let devices = list::<DeviceRecord>(map, keys::DEVICES).await?;
            let mut of_nodes: BTreeMap<NodeId, Vec<StoreId>> = BTreeMap::new();
            let formatted = devices.into_iter().map(|found| found.record).filter(|it| it.state == DeviceState::Active);
            formatted.for_each(|device| of_nodes.entry(device.node).or_default().push(device.store));
            if of_nodes.len() < replicas as usize {
                return Ok(Founding::Waits(of_nodes.len()));
            }
            // One may be away.
            let min_in_sync = replicas.saturating_sub(1).max(1);
            let stores = alternating(of_nodes.into_values().collect());
            ensure(map, FoundingRecord { name: name.to_owned(), replicas, min_in_sync, stores }).await?.record
        }
    };
    let FoundingRecord { name, replicas, min_in_sync, stores } = said;
    Ok(Founding::Done(ensure_pool(map, &NewPool { name, replicas, min_in_sync, rules: None, stores }).await?))
}

/// One of each node in turn: neighbours in the list are of different nodes as long as there are.
fn alternating(mut of_nodes: Vec<Vec<StoreId>>) -> Vec<StoreId> {
    let mut all = Vec::new();
    for place in 0..of_nodes.iter().map(Vec::len).max().unwrap_or_default() {
        all.extend(of_nodes.iter_mut().filter_map(|stores| stores.get(place).copied()));
    }
    all
}
