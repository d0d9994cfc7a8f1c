//! What operators ask: foretold, refused, or begun.

use super::{Followed, is_done};
use crate::catalog::CatalogError;
use crate::map::{MapStore, TRANSACTION_OPERATIONS_MAX, Transaction};
use crate::placement::duty::{Forecast, RecordChange, Refusal, Request, Subject, View, foretell};
use crate::records::{DeviceDuty, DevicePlaceRecord, DeviceRecord, DeviceState, DutiesRecord, keys};
use crate::typed::encode;
use types::{Mutant, StoreId, mutant};

/// A decision is tried so often against others who change the same records.
const ATTEMPTS_MAX: u32 = 10;

/// Why something is not begun.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DutyError {
    /// It would take away too much.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The map.
    #[error(transparent)]
    Map(#[from] CatalogError),
    /// Something is not understood.
    #[error("{0}: start a newer program")]
    Unreadable(String),
    /// Too many at once.
    #[error("node {0} has too many devices to be changed at once: do it device by device")]
    TooMany(types::NodeId),
}

/// What was begun, and what follows from it.
#[derive(Clone, Debug, Default)]
pub struct Decided {
    /// What is to happen.
    pub forecast: Forecast,
    /// What the map said before.
    pub before: View,
}

/// What the request would do.
///
/// # Errors
/// Why it cannot be.
pub async fn foretold(map: &dyn MapStore, request: &Request) -> Result<Decided, DutyError> {
    let mut known = Followed::of(&map.list("").await.map_err(CatalogError::from)?);
    let before = known.view().map_err(DutyError::Unreadable)?.clone();
    let forecast = foretell(&before, request)?;
    Ok(Decided { forecast, before })
}

/// What a device would get that is not in the map yet.
///
/// # Errors
/// Why it would get nothing.
pub async fn foretold_device(map: &dyn MapStore, device: DeviceRecord) -> Result<Decided, DutyError> {
    let mut known = Followed::of(&map.list("").await.map_err(CatalogError::from)?);
    let mut before = known.view().map_err(DutyError::Unreadable)?.clone();
    let store = device.store;
    before.devices.insert(store, DeviceRecord { state: DeviceState::Active, ..device });
    let forecast = foretell(&before, &Request::Add { store, class: String::new(), weight: None })?;
    Ok(Decided { forecast, before })
}

/// Begins it, if nothing that speaks against it has changed since it was looked at.
///
/// # Errors
/// Why it cannot be.
pub async fn decide(map: &dyn MapStore, request: &Request) -> Result<Decided, DutyError> {
    for _ in 0..ATTEMPTS_MAX {
        let mut known = Followed::of(&map.list("").await.map_err(CatalogError::from)?);
        let before = known.view().map_err(DutyError::Unreadable)?.clone();
        let forecast = foretell(&before, request)?;
        let settled = settles_first(&known, request);
        let changes = if settled.is_empty() { &forecast.changes } else { &settled };
        let mut transaction = Transaction::new();
        for change in changes {
            transaction = compared(transaction, &known, change);
        }
        if transaction.changes.is_empty() {
            return Ok(Decided { forecast, before });
        }
        transaction = in_order(transaction, &known);
        if transaction.changes.len().max(transaction.compares.len()) > TRANSACTION_OPERATIONS_MAX {
            let (Request::GiveUp(Subject::Node(node)) | Request::Remove(Subject::Node(node))) = request else {
                unreachable!("one device at a time: {request:?}")
            };
            return Err(DutyError::TooMany(*node));
        }
        if is_done(map, transaction).await?.is_some() && settled.is_empty() {
            return Ok(Decided { forecast, before });
        }
    }
    Err(CatalogError::Contended.into())
}

/// The transaction, after all orders that are known and before all others: what each of two may do both may not.
pub(super) fn in_order(transaction: Transaction, known: &Followed) -> Transaction {
    if mutant(Mutant::DutiesApart) {
        return transaction;
    }
    let next = DutiesRecord { orders: known.duties.orders + 1 };
    transaction.expect(keys::DUTIES, known.revision(keys::DUTIES)).put(keys::DUTIES, encode(&next))
}

/// What is said before a device is taken out of the map: that it is to hold nothing. From then on nobody has anything
/// brought there, and then it is looked at once more.
fn settles_first(known: &Followed, request: &Request) -> Vec<RecordChange> {
    let Request::Remove(subject) = request else { return Vec::new() };
    let stores: Vec<StoreId> = match subject {
        Subject::Device(store) => vec![*store],
        Subject::Node(node) => known.records().devices.values().filter(|d| d.node == *node).map(|d| d.store).collect(),
    };
    if mutant(Mutant::RemovedUnseen) {
        return Vec::new();
    }
    let place = |store: &StoreId| {
        let place = known.records().device_places.get(store).cloned();
        place.unwrap_or_else(|| DevicePlaceRecord::unset(*store))
    };
    let stays = stores.iter().map(place).filter(|place| place.duty == DeviceDuty::In);
    stays
        .map(|place| {
            RecordChange::DevicePlace(DevicePlaceRecord { duty: DeviceDuty::Draining { into: None }, ..place })
        })
        .collect()
}

/// The transaction, with this change and what it was decided by.
pub(super) fn compared(transaction: Transaction, known: &Followed, change: &RecordChange) -> Transaction {
    let decided_by: Vec<String> = match change {
        RecordChange::DevicePlace(place) => vec![keys::device(place.store)],
        RecordChange::NodePlace(place) => vec![keys::node(place.node)],
        RecordChange::NodeSet(_) => Vec::new(),
        RecordChange::WantedGone(group) => vec![keys::group(*group)],
        RecordChange::Wanted(order) => {
            let view = known.records();
            let members = view.groups.get(&order.group).map_or(&[][..], |group| &group.members);
            let comes = order.members.iter().filter(|store| !members.contains(store));
            let said = |store: &StoreId| {
                let node = view.devices.get(store).map(|device| keys::node_place(device.node));
                [Some(keys::device(*store)), Some(keys::device_place(*store)), node]
            };
            std::iter::once(keys::group(order.group)).chain(comes.flat_map(said).flatten()).collect()
        }
        RecordChange::DeviceGone(_) | RecordChange::NodeGone(_) => Vec::new(),
    };
    let expect = |mut transaction: Transaction, key: String| {
        if !transaction.compares.iter().any(|(compared, _)| *compared == key) {
            let is_blind = mutant(Mutant::RemovedUnseen) && key.starts_with(keys::DEVICE_PLACES);
            let modified = known.revision(&key);
            transaction = if is_blind { transaction } else { transaction.expect(key, modified) };
        }
        transaction
    };
    let mut transaction = decided_by.into_iter().fold(transaction, expect);
    for (key, value) in change.puts() {
        transaction = expect(transaction, key.clone());
        transaction = match value {
            Some(value) => transaction.put(key, value),
            None => transaction.delete(key),
        };
    }
    transaction
}
