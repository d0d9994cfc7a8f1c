//! Leases: they hold keys, never end early, and end.

use super::{Subject, answer, commit, get, list, put, told, under};
use cluster::{LeaseId, MapError, MapStore, Revision, Transaction};
use std::time::Duration;

async fn grant(map: &dyn MapStore, time_to_live: Duration) -> LeaseId {
    // One whose answer was lost ends by itself, and holds nothing.
    answer(|| map.grant(time_to_live)).await.expect("a lease")
}

pub async fn absent(Subject { map, lease_time, .. }: &Subject<'_>) {
    let lease = grant(*map, *lease_time).await;
    answer(|| map.keep_alive(lease)).await.expect("it lives");
    let never = LeaseId(u64::MAX >> 1);
    assert_eq!(answer(|| map.transact(under("absent/l", never))).await, Err(MapError::NoLease(never)));
    assert_eq!(get(*map, "absent/l").await, None);
    assert_eq!(answer(|| map.keep_alive(never)).await, Err(MapError::NoLease(never)));
    assert_eq!(answer(|| map.revoke(never)).await, Err(MapError::NoLease(never)));
}

pub async fn revoked(Subject { map, lease_time, .. }: &Subject<'_>) {
    let start = list(*map, "").await.revision;
    let (lease, other) = (grant(*map, *lease_time * 100).await, grant(*map, *lease_time * 100).await);
    assert_ne!(lease, other);
    commit(*map, under("revoked/a", lease)).await;
    commit(*map, under("revoked/b", lease)).await;
    commit(*map, under("revoked/c", other)).await;
    assert_eq!(get(*map, "revoked/a").await.expect("there").lease, Some(lease));
    let ended = answer(|| map.revoke(lease)).await;
    assert!(matches!(ended, Ok(()) | Err(MapError::NoLease(_))), "{ended:?}");
    let keys: Vec<_> = list(*map, "revoked/").await.items.iter().map(|item| item.key.clone()).collect();
    assert_eq!(keys, ["revoked/c"], "its keys went with it, and no other");
    assert_eq!(answer(|| map.keep_alive(lease)).await, Err(MapError::NoLease(lease)));
    let events = told(&mut *map.watch("revoked/", Revision(start.0 + 1)), 5).await;
    let removed: Vec<_> = events.iter().filter(|event| event.value.is_none()).collect();
    assert_eq!(removed.len(), 2);
    assert_eq!(removed[0].revision, removed[1].revision, "together");
    let again = answer(|| map.transact(under("revoked/a", lease))).await;
    assert_eq!(again, Err(MapError::NoLease(lease)), "it is not used again");
}

pub async fn kept_and_expired(subject: &Subject<'_>) {
    let (map, time) = (subject.map, subject.lease_time);
    let start = list(map, "").await.revision;
    let lease = grant(map, time).await;
    commit(map, under("kept/a", lease)).await;
    commit(map, under("kept/b", lease)).await;
    let mut last_kept = runtime::now();
    for _ in 0..4 {
        runtime::sleep(time / 2).await;
        last_kept = runtime::now();
        answer(|| map.keep_alive(lease)).await.expect("it is kept, so it lives");
        assert_eq!(list(map, "kept/").await.items.len(), 2, "{:?} after its beginning", time * 2);
    }
    // Nobody comes to end it, and nothing else happens: who watches hears of it all the same.
    let mut watch = map.watch("kept/", Revision(start.0 + 1));
    let events = told(&mut *watch, 4).await;
    assert!(runtime::now().since(last_kept) >= time, "never early");
    let ends: Vec<_> = events.iter().map(|event| (event.key.as_str(), event.value.is_some())).collect();
    assert_eq!(ends, [("kept/a", true), ("kept/b", true), ("kept/a", false), ("kept/b", false)]);
    assert_eq!(events[2].revision, events[3].revision, "together");
    assert!(list(map, "kept/").await.items.is_empty());
    assert_eq!(answer(|| map.keep_alive(lease)).await, Err(MapError::NoLease(lease)), "what ended stays so");
    // One that nobody watches ends too.
    let unwatched = grant(map, time).await;
    commit(map, under("kept/c", unwatched)).await;
    for _ in 0..100 {
        runtime::sleep(time / 2).await;
        if get(map, "kept/c").await.is_none() {
            return;
        }
    }
    panic!("a lease that nobody keeps is still there");
}

pub async fn a_key_leaves_its_lease(subject: &Subject<'_>) {
    let (map, time) = (subject.map, subject.lease_time);
    let (first, second) = (grant(map, time * 100).await, grant(map, time * 100).await);
    for key in ["leaves/a", "leaves/b", "leaves/c"] {
        commit(map, under(key, first)).await;
    }
    put(map, "leaves/a", "free of it").await;
    let found = get(map, "leaves/b").await.expect("there");
    let moved = Transaction { changes: under("leaves/b", second).changes, ..Transaction::default() };
    commit(map, moved.expect("leaves/b", found.modified)).await;
    let _ = answer(|| map.revoke(first)).await;
    let left: Vec<_> = list(map, "leaves/").await.items.iter().map(|item| (item.key.clone(), item.lease)).collect();
    assert_eq!(left, [("leaves/a".to_owned(), None), ("leaves/b".to_owned(), Some(second))]);
}
