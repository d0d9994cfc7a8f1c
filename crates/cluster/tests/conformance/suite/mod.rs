//! What the floors above rely on, whoever keeps the map. Every statement is written so that it holds, and can be
//! tested, where requests and answers get lost or come late: what is done here is done by compare-and-swap, sent again
//! until its outcome is known.
//!
//! Time is passed by sleeping, in virtual time where the map is simulated.

mod leases;
mod lost_answers;
mod transactions;
mod watches;

use cluster::{
    Change, Event, KeyValue, LeaseId, Listing, MapError, MapFuture, MapStore, Outcome, Revision, Transaction, Watch,
};
use std::time::Duration;

/// A map, and what the suite has to know of it.
pub struct Subject<'a> {
    pub map: &'a dyn MapStore,
    /// A lease's time that is long beside a request's, and short enough to wait for.
    pub lease_time: Duration,
    /// A request that was not answered is done within this time, or never.
    pub late_max: Duration,
    /// A watch has heard of what was done before it began within this time.
    pub heard_within: Duration,
}

/// Every statement; the map must be the suite's alone.
pub async fn run(subject: &Subject<'_>) {
    transactions::compare_and_swap(subject).await;
    transactions::absent_compares(subject).await;
    transactions::all_or_nothing(subject).await;
    transactions::limits(subject).await;
    transactions::listing(subject).await;
    transactions::reads_see_what_was_done(subject).await;
    watches::order_without_gaps(subject).await;
    watches::one_transaction_together(subject).await;
    watches::from_an_old_revision(subject).await;
    watches::a_call_that_is_dropped_loses_nothing(subject).await;
    watches::compaction(subject).await;
    watches::what_others_did_can_be_compacted(subject).await;
    watches::not_from_the_future(subject).await;
    leases::absent(subject).await;
    leases::revoked(subject).await;
    leases::kept_and_expired(subject).await;
    leases::a_key_leaves_its_lease(subject).await;
    lost_answers::retried_until_known(subject).await;
}

/// More unanswered requests in a row than this is a map that is away.
const ASKED_MAX: u32 = 1000;

impl Subject<'_> {
    /// Until nothing that was sent before can still be done: for what is true only if it is not.
    pub async fn nothing_under_way(&self) {
        runtime::sleep(self.late_max).await;
    }
}

/// The answer to what may be asked any number of times.
pub async fn answer<'a, T>(ask: impl Fn() -> MapFuture<'a, T>) -> Result<T, MapError> {
    for _ in 0..ASKED_MAX {
        match ask().await {
            Err(MapError::Unknown) => {}
            answer => return answer,
        }
    }
    panic!("the map is away");
}

pub async fn get(map: &dyn MapStore, key: &str) -> Option<KeyValue> {
    answer(|| map.get(key)).await.expect("an answer")
}

pub async fn value(map: &dyn MapStore, key: &str) -> Option<String> {
    get(map, key).await.map(|found| String::from_utf8(found.value).expect("text"))
}

pub async fn list(map: &dyn MapStore, prefix: &str) -> Listing {
    answer(|| map.list(prefix)).await.expect("an answer")
}

pub async fn modified(map: &dyn MapStore, key: &str) -> Revision {
    get(map, key).await.map_or(Revision(0), |found| found.modified)
}

/// Does what nobody else does, and what can be done only once: it changes a key that it compares, and puts one.
pub async fn commit(map: &dyn MapStore, transaction: Transaction) -> Revision {
    let put = transaction.changes.iter().find_map(|change| match change {
        Change::Put { key, value, .. } => Some((key.clone(), value.clone())),
        Change::Delete { .. } => None,
    });
    let (key, value) = put.expect("a key that is put");
    let mut is_open = false;
    for _ in 0..ASKED_MAX {
        match map.transact(transaction.clone()).await {
            Ok(Outcome::Committed(revision)) => return revision,
            Err(MapError::Unknown) => is_open = true,
            Ok(Outcome::Conflict) if is_open => {
                let found = get(map, &key).await.expect("it was done and not heard of");
                assert_eq!(found.value, value, "{key}");
                return found.modified;
            }
            other => panic!("{transaction:?}: {other:?}"),
        }
    }
    panic!("the map is away");
}

/// Nothing is changed by this.
pub async fn conflict(map: &dyn MapStore, transaction: Transaction, why: &str) {
    assert_eq!(answer(|| map.transact(transaction.clone())).await, Ok(Outcome::Conflict), "{why}");
}

pub async fn put(map: &dyn MapStore, key: &str, value: &str) -> Revision {
    let was = modified(map, key).await;
    commit(map, Transaction::new().expect(key, was).put(key, value.into())).await
}

/// Puts one key, that is not there, under a lease.
pub fn under(key: &str, lease: LeaseId) -> Transaction {
    let put = Change::Put { key: key.to_owned(), value: b"held".to_vec(), lease: Some(lease) };
    Transaction { changes: vec![put], ..Transaction::new().expect_absent(key) }
}

/// At least so many of the next events.
pub async fn told(watch: &mut dyn Watch, count: usize) -> Vec<Event> {
    let mut told = Vec::new();
    while told.len() < count {
        match watch.next().await {
            Ok(events) => told.extend(events),
            Err(MapError::Silent) => {}
            Err(error) => panic!("{error} after {told:?}"),
        }
    }
    told
}

/// Revision after `start`, key and value.
pub fn plain(events: &[Event], start: Revision) -> Vec<(u64, &str, Option<&str>)> {
    let plain = events.iter().map(|event| {
        let value = event.value.as_deref().map(|value| std::str::from_utf8(value).expect("text"));
        (event.revision.0 - start.0, event.key.as_str(), value)
    });
    plain.collect()
}
