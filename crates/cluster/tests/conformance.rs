//! One suite for every store of the map: what the floors above rely on, whoever keeps it.

use cluster::{
    CatalogError, Change, Event, KEY_BYTES_MAX, LeaseId, MapError, MapFaults, MapStore, Outcome, RedbMap, Revision,
    SimMap, TRANSACTION_OPERATIONS_MAX, Transaction, VALUE_BYTES_MAX,
};
use runtime::sim::{NodeOptions, World};
use std::future::Future;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

/// Runs a future that needs no reactor: the redb map answers from a thread of its own.
fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

/// A directory that goes with the test.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("cairn-map-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a temporary directory");
        Self(path)
    }
    fn file(&self) -> PathBuf {
        self.0.join("map.redb")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

async fn put(map: &dyn MapStore, key: &str, value: &str) -> Revision {
    match map.transact(Transaction::new().put(key, value.into())).await {
        Ok(Outcome::Committed(revision)) => revision,
        other => panic!("put {key}: {other:?}"),
    }
}

async fn value(map: &dyn MapStore, key: &str) -> Option<String> {
    let found = map.get(key).await.expect("an answer");
    found.map(|found| String::from_utf8(found.value).expect("text"))
}

async fn the_suite(map: &dyn MapStore) {
    compare_and_swap(map).await;
    all_or_nothing(map).await;
    limits(map).await;
    listing(map).await;
    watch_order(map).await;
    compaction(map).await;
    leases(map).await;
}

async fn compare_and_swap(map: &dyn MapStore) {
    assert_eq!(map.get("cas/a").await, Ok(None));
    let make = || Transaction::new().expect_absent("cas/a").put("cas/a", b"1".to_vec());
    let Ok(Outcome::Committed(first)) = map.transact(make()).await else { panic!("absent, so made") };
    assert_eq!(map.transact(make()).await, Ok(Outcome::Conflict), "it is there now");
    let swap = |from| Transaction::new().expect("cas/a", from).put("cas/a", b"2".to_vec());
    let Ok(Outcome::Committed(second)) = map.transact(swap(first)).await else { panic!("unchanged, so swapped") };
    assert!(second > first);
    assert_eq!(map.transact(swap(first)).await, Ok(Outcome::Conflict), "a stale revision swaps nothing");
    assert_eq!(map.get("cas/a").await.expect("an answer").expect("there").modified, second);
    // A key that was removed and made again is another one.
    map.transact(Transaction::new().delete("cas/a")).await.expect("an answer");
    put(map, "cas/a", "3").await;
    assert_eq!(map.transact(swap(second)).await, Ok(Outcome::Conflict));
}

async fn all_or_nothing(map: &dyn MapStore) {
    let before = put(map, "all/a", "1").await;
    let half = Transaction::new().expect("all/a", before).expect("all/b", before).put("all/a", b"2".to_vec());
    assert_eq!(map.transact(half).await, Ok(Outcome::Conflict));
    assert_eq!(value(map, "all/a").await.as_deref(), Some("1"));
    let both = Transaction::new().put("all/a", b"2".to_vec()).put("all/b", b"2".to_vec()).delete("all/none");
    let Ok(Outcome::Committed(revision)) = map.transact(both).await else { panic!("no compare, so done") };
    for item in map.list("all/").await.expect("an answer").items {
        assert_eq!((item.value.as_slice(), item.modified), (b"2".as_slice(), revision));
    }
    // A transaction that changes nothing is no revision.
    let nothing = map.transact(Transaction::new().expect("all/a", revision).delete("all/none")).await;
    assert_eq!(nothing, Ok(Outcome::Committed(map.list("").await.expect("an answer").revision)));
    assert_eq!(nothing, Ok(Outcome::Committed(revision)));
}

async fn limits(map: &dyn MapStore) {
    let many = |count: usize| {
        (0..count).fold(Transaction::new(), |all, i| {
            all.expect_absent(format!("limits/{i}")).put(format!("limits/{i}"), vec![0])
        })
    };
    let refused =
        |answer: Result<Outcome, MapError>| assert!(matches!(answer, Err(MapError::Refused(_))), "{answer:?}");
    refused(map.transact(many(TRANSACTION_OPERATIONS_MAX + 1)).await);
    refused(map.transact(Transaction::new().put("limits/x", vec![0; VALUE_BYTES_MAX + 1])).await);
    refused(map.transact(Transaction::new().put("x".repeat(KEY_BYTES_MAX + 1), vec![])).await);
    refused(map.transact(Transaction::new().put("limits/x", vec![]).delete("limits/x")).await);
    assert!(map.list("limits/").await.expect("an answer").items.is_empty(), "refused means not done");
    assert!(matches!(map.transact(many(TRANSACTION_OPERATIONS_MAX)).await, Ok(Outcome::Committed(_))));
    let largest = Transaction::new().put("limits/x", vec![7; VALUE_BYTES_MAX]);
    assert!(matches!(map.transact(largest).await, Ok(Outcome::Committed(_))));
}

async fn listing(map: &dyn MapStore) {
    for key in ["list/b", "list/a", "list/a/1", "lisu", "lis"] {
        put(map, key, key).await;
    }
    let listing = map.list("list/").await.expect("an answer");
    let keys: Vec<&str> = listing.items.iter().map(|item| item.key.as_str()).collect();
    assert_eq!(keys, ["list/a", "list/a/1", "list/b"]);
    assert!(listing.items.iter().all(|item| item.modified <= listing.revision));
}

async fn watch_order(map: &dyn MapStore) {
    let start = put(map, "watch/other", "").await;
    let mut watch = map.watch("watch/w/", Revision(start.0 + 1));
    put(map, "watch/w/a", "1").await;
    put(map, "watch/other", "").await;
    let both = Transaction::new().put("watch/w/b", b"2".to_vec()).delete("watch/w/a");
    map.transact(both).await.expect("an answer");
    let mut told = Vec::new();
    while told.len() < 3 {
        told.extend(watch.next().await.expect("an answer"));
    }
    let plain: Vec<_> = told.iter().map(|e| (e.revision.0 - start.0, e.key.as_str(), e.value.as_deref())).collect();
    assert_eq!(
        plain,
        [(1, "watch/w/a", Some(b"1".as_slice())), (3, "watch/w/b", Some(b"2".as_slice())), (3, "watch/w/a", None)]
    );
    // From the past: the same again, without a gap.
    let again: Vec<Event> = map.watch("watch/w/", Revision(start.0 + 1)).next().await.expect("an answer");
    assert_eq!(again, told);
}

async fn compaction(map: &dyn MapStore) {
    let first = put(map, "compact/a", "1").await;
    let second = put(map, "compact/a", "2").await;
    map.compact(first).await.expect("an answer");
    let gap = map.watch("compact/", first).next().await;
    assert_eq!(gap, Err(MapError::Compacted { oldest: second }));
    let after = map.watch("compact/", second).next().await.expect("an answer");
    assert_eq!(after.iter().map(|event| event.revision).collect::<Vec<_>>(), [second]);
    assert_eq!(value(map, "compact/a").await.as_deref(), Some("2"), "what a key holds is never compacted");
}

async fn leases(map: &dyn MapStore) {
    let absent = LeaseId(u64::MAX);
    let under = |key: &str, lease| {
        let put = Change::Put { key: key.to_owned(), value: vec![], lease: Some(lease) };
        Transaction { compares: Vec::new(), changes: vec![put] }
    };
    assert_eq!(map.transact(under("lease/x", absent)).await, Err(MapError::NoLease(absent)));
    assert_eq!(map.keep_alive(absent).await, Err(MapError::NoLease(absent)));

    let long = map.grant(Duration::from_secs(3600)).await.expect("a lease");
    map.transact(under("lease/a", long)).await.expect("an answer");
    map.transact(under("lease/b", long)).await.expect("an answer");
    put(map, "lease/b", "free of it").await;
    map.keep_alive(long).await.expect("it lives");
    map.revoke(long).await.expect("it lived");
    assert_eq!(map.get("lease/a").await, Ok(None), "the key goes with its lease");
    assert!(map.get("lease/b").await.expect("an answer").is_some(), "the key had left the lease");
    assert_eq!(map.keep_alive(long).await, Err(MapError::NoLease(long)));

    // One that nobody keeps alive ends by itself, and a watcher hears of it.
    let from = map.list("").await.expect("an answer").revision;
    let short = map.grant(Duration::from_millis(50)).await.expect("a lease");
    map.transact(under("lease/short", short)).await.expect("an answer");
    let mut watch = map.watch("lease/short", Revision(from.0 + 1));
    let mut told = Vec::new();
    while told.len() < 2 {
        told.extend(watch.next().await.expect("an answer"));
    }
    assert_eq!(told.iter().map(|event| event.value.is_some()).collect::<Vec<_>>(), [true, false]);
    assert!(short > long, "lease ids are not used again");
}

#[test]
fn the_simulated_map_keeps_the_suite() {
    let world = World::new(1);
    let node = world.add_node(1, NodeOptions::default());
    let done = world.run_on(&node, 0, async { the_suite(&*SimMap::new()).await });
    assert_eq!(done, Ok(()));
}

#[test]
fn a_slow_simulated_map_keeps_the_suite() {
    let world = World::new(2);
    let node = world.add_node(1, NodeOptions::default());
    let map = SimMap::new();
    map.set_faults(MapFaults { latency_max: Duration::from_millis(2), ..MapFaults::default() });
    assert_eq!(world.run_on(&node, 0, async move { the_suite(&*map).await }), Ok(()));
}

#[test]
fn redb_keeps_the_suite() {
    let scratch = Scratch::new("suite");
    let map = RedbMap::open(&scratch.file()).expect("a new file");
    block_on(the_suite(&*map));
}

#[test]
fn what_redb_answered_is_there_after_opening_again() {
    let scratch = Scratch::new("again");
    let open = || loop {
        // The thread of the handle dropped before lets go of the file a moment later.
        match RedbMap::open(&scratch.file()) {
            Err(MapError::Storage(why)) if why.contains("already open") => thread::yield_now(),
            other => break other.expect("opens"),
        }
    };
    let (revision, lease) = block_on(async {
        let map = open();
        put(&*map, "a", "1").await;
        put(&*map, "b", "2").await;
        map.compact(Revision(1)).await.expect("an answer");
        map.transact(Transaction::new().delete("a")).await.expect("an answer");
        let lease = map.grant(Duration::from_secs(3600)).await.expect("a lease");
        (put(&*map, "c", "3").await, lease)
    });
    block_on(async {
        let map = open();
        assert_eq!(map.list("").await.expect("an answer").revision, revision);
        assert_eq!(value(&*map, "a").await, None);
        assert_eq!(value(&*map, "b").await.as_deref(), Some("2"));
        map.keep_alive(lease).await.expect("leases outlive the process");
        assert!(map.grant(Duration::from_secs(1)).await.expect("a lease") > lease);
        let gap = map.watch("", Revision(1)).next().await;
        assert_eq!(gap, Err(MapError::Compacted { oldest: Revision(2) }));
        let told = map.watch("", Revision(2)).next().await.expect("an answer");
        assert_eq!(told.iter().map(|event| event.key.as_str()).collect::<Vec<_>>(), ["b", "a", "c"]);
    });
}

#[test]
fn a_file_that_is_no_map_is_refused() {
    let scratch = Scratch::new("foreign");
    std::fs::write(scratch.file(), vec![0x5a; 8192]).expect("written");
    assert!(matches!(RedbMap::open(&scratch.file()), Err(MapError::Storage(_))));
}

#[test]
fn a_record_of_a_later_schema_is_refused_not_guessed() {
    let error = cluster::decode::<cluster::ClusterRecord>("cluster", br#"{"schema":9,"id":"00","more":1}"#);
    let Err(CatalogError::BadRecord { why, .. }) = error else { panic!("{error:?}") };
    assert!(why.contains("schema 9"), "{why}");
}

#[test]
fn a_bit_turned_over_in_a_redb_file_is_seen() {
    let scratch = Scratch::new("rot");
    let value = "the seed by which blocks are found";
    let map = RedbMap::open(&scratch.file()).expect("a new map");
    block_on(put(&*map, "volumes/1", value));
    drop(map);
    let closed = std::fs::File::open(scratch.file()).expect("there");
    closed.lock().expect("the thread that has the file lets go of it");
    let mut bytes = std::fs::read(scratch.file()).expect("readable");
    let places: Vec<usize> =
        (0..bytes.len() - value.len()).filter(|&at| bytes[at..].starts_with(value.as_bytes())).collect();
    assert!(!places.is_empty(), "the value is in the file");
    places.iter().for_each(|at| bytes[at + 4] ^= 1);
    std::fs::write(scratch.file(), &bytes).expect("written");
    drop(closed);
    let refused = RedbMap::open(&scratch.file()).map(drop);
    assert!(
        matches!(&refused, Err(MapError::Storage(why)) if why.contains("orrupt") || why.contains("damaged")),
        "{refused:?}"
    );
}
