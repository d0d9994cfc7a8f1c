//! The state machine of a map's store, without any I/O: what redb keeps on disk and the simulation in memory.

use crate::map::{
    Change, Event, KEY_BYTES_MAX, KeyValue, LeaseId, Listing, MapError, Outcome, Revision, TRANSACTION_OPERATIONS_MAX,
    Transaction, VALUE_BYTES_MAX,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// Events kept for watches; beyond it the older half is compacted. A watcher that sleeps through it lists again.
const HISTORY_EVENTS_MAX: usize = 8192;

#[derive(Clone, Debug)]
pub(crate) struct Lease {
    pub(crate) time_to_live: Duration,
    pub(crate) ends_at: Duration,
}

/// What a watch is told.
pub(crate) struct Told {
    /// What has happened; empty: nothing yet.
    pub(crate) events: Vec<Event>,
    /// Where it goes on.
    pub(crate) next: Revision,
}

/// Refuses what breaks a limit that every store has.
pub(crate) fn check_limits(transaction: &Transaction) -> Result<(), MapError> {
    let refuse = |why: String| Err(MapError::Refused(why));
    let largest = transaction.compares.len().max(transaction.changes.len());
    if largest > TRANSACTION_OPERATIONS_MAX {
        return refuse(format!("{largest} operations in one transaction; at most {TRANSACTION_OPERATIONS_MAX}"));
    }
    let mut keys = BTreeSet::new();
    for change in &transaction.changes {
        let key = change.key();
        if key.is_empty() || key.len() > KEY_BYTES_MAX {
            return refuse(format!("a key of {} bytes; 1 to {KEY_BYTES_MAX} are allowed", key.len()));
        }
        if !keys.insert(key) {
            return refuse(format!("the key {key} occurs twice in one transaction"));
        }
        if let Change::Put { value, .. } = change
            && value.len() > VALUE_BYTES_MAX
        {
            return refuse(format!("{} bytes for {key}; at most {VALUE_BYTES_MAX}", value.len()));
        }
    }
    Ok(())
}

/// Time here is what the owner's clock says, since any fixed start.
#[derive(Clone, Default)]
pub(crate) struct MapState {
    pub(crate) revision: Revision,
    /// History up to and including this is gone.
    pub(crate) compacted: Revision,
    pub(crate) items: BTreeMap<String, Arc<KeyValue>>,
    pub(crate) history: VecDeque<Event>,
    pub(crate) leases: BTreeMap<LeaseId, Lease>,
    pub(crate) last_lease: u64,
}

impl MapState {
    pub(crate) fn get(&self, key: &str) -> Option<KeyValue> {
        self.items.get(key).map(|item| (**item).clone())
    }

    pub(crate) fn list(&self, prefix: &str) -> Listing {
        let items = self.items.range(prefix.to_owned()..).take_while(|(key, _)| key.starts_with(prefix));
        Listing { revision: self.revision, items: items.map(|(_, item)| item.clone()).collect() }
    }

    /// Does the transaction; the events are what has changed.
    pub(crate) fn transact(&mut self, transaction: Transaction) -> Result<(Outcome, Vec<Event>), MapError> {
        self.check(&transaction)?;
        let holds = |(key, expected): &(String, Revision)| {
            self.items.get(key).map_or(Revision(0), |item| item.modified) == *expected
        };
        if !transaction.compares.iter().all(holds) {
            return Ok((Outcome::Conflict, Vec::new()));
        }
        let events = self.apply(transaction.changes);
        Ok((Outcome::Committed(self.revision), events))
    }

    fn check(&self, transaction: &Transaction) -> Result<(), MapError> {
        check_limits(transaction)?;
        let unknown = |change: &Change| match change {
            Change::Put { lease, .. } => lease.filter(|lease| !self.leases.contains_key(lease)),
            Change::Delete { .. } => None,
        };
        transaction.changes.iter().find_map(unknown).map_or(Ok(()), |lease| Err(MapError::NoLease(lease)))
    }

    fn apply(&mut self, changes: Vec<Change>) -> Vec<Event> {
        let revision = Revision(self.revision.0 + 1);
        let mut events = Vec::with_capacity(changes.len());
        for change in changes {
            match change {
                Change::Put { key, value, lease } => {
                    let item = Arc::new(KeyValue { key: key.clone(), value: value.clone(), modified: revision, lease });
                    self.items.insert(key.clone(), item);
                    events.push(Event { revision, key, value: Some(value) });
                }
                Change::Delete { key } => {
                    if self.items.remove(&key).is_some() {
                        events.push(Event { revision, key, value: None });
                    }
                }
            }
        }
        if !events.is_empty() {
            self.revision = revision;
            self.history.extend(events.iter().cloned());
            if self.history.len() > HISTORY_EVENTS_MAX {
                self.compact(self.history[HISTORY_EVENTS_MAX / 2].revision);
            }
        }
        events
    }

    /// What a watch of `prefix` from `from` on is told now. Where it goes on is past what happened to other keys too:
    /// what is compacted of that is no gap.
    pub(crate) fn events(&self, prefix: &str, from: Revision) -> Result<Told, MapError> {
        let next = Revision(self.revision.0 + 1);
        if from > next {
            return Err(MapError::WentBack { revision: self.revision });
        }
        if from <= self.compacted {
            return Err(MapError::Compacted { oldest: Revision(self.compacted.0 + 1) });
        }
        let start = self.history.partition_point(|event| event.revision < from);
        let events = self.history.range(start..).filter(|event| event.key.starts_with(prefix));
        Ok(Told { events: events.cloned().collect(), next })
    }

    pub(crate) fn compact(&mut self, through: Revision) {
        let through = through.min(self.revision);
        if through > self.compacted {
            self.compacted = through;
            self.history.drain(..self.history.partition_point(|event| event.revision <= through));
        }
    }

    pub(crate) fn grant(&mut self, time_to_live: Duration, now: Duration) -> LeaseId {
        self.last_lease += 1;
        let lease = LeaseId(self.last_lease);
        self.leases.insert(lease, Lease { time_to_live, ends_at: now + time_to_live });
        lease
    }

    pub(crate) fn keep_alive(&mut self, lease: LeaseId, now: Duration) -> Result<(), MapError> {
        let entry = self.leases.get_mut(&lease).ok_or(MapError::NoLease(lease))?;
        entry.ends_at = entry.ends_at.max(now + entry.time_to_live);
        Ok(())
    }

    /// Ends the lease and removes its keys.
    pub(crate) fn revoke(&mut self, lease: LeaseId) -> Result<Vec<Event>, MapError> {
        self.leases.remove(&lease).ok_or(MapError::NoLease(lease))?;
        let held = self.items.values().filter(|item| item.lease == Some(lease));
        let changes = held.map(|item| Change::Delete { key: item.key.clone() }).collect();
        Ok(self.apply(changes))
    }

    /// All leases begin their time anew, as after a change of the store's leader, who does not know when they began.
    pub(crate) fn begin_leases_anew(&mut self, now: Duration) {
        self.leases.values_mut().for_each(|lease| lease.ends_at = now + lease.time_to_live);
    }

    /// Ends all leases at once and takes their keys away, as part of no transaction.
    pub(crate) fn forget_leases(&mut self) {
        self.leases.clear();
        self.items.retain(|_, item| item.lease.is_none());
    }

    /// A lease whose time is over.
    pub(crate) fn expired(&self, now: Duration) -> Option<LeaseId> {
        self.leases.iter().find(|(_, lease)| lease.ends_at <= now).map(|(id, _)| *id)
    }

    /// When the next lease ends.
    pub(crate) fn next_end(&self) -> Option<Duration> {
        self.leases.values().map(|lease| lease.ends_at).min()
    }
}
