//! Watches: in order, without a gap, each transaction whole; and what they are told of a past that is gone.

use super::{Subject, answer, commit, list, modified, plain, put, told};
use cluster::{MapError, MapStore, Revision, Transaction};
use std::time::Duration;

fn after(revision: Revision) -> Revision {
    Revision(revision.0 + 1)
}

/// An absence that is tested: nothing within this time.
const NOTHING_FOR: Duration = Duration::from_millis(50);

pub async fn order_without_gaps(Subject { map, .. }: &Subject<'_>) {
    let start = put(*map, "order/other", "").await;
    let mut watch = map.watch("order/w/", after(start));
    for round in 0..20 {
        put(*map, "order/w/a", &round.to_string()).await;
        put(*map, "order/other", "").await;
    }
    let told = told(&mut *watch, 20).await;
    let values: Vec<_> = (0..20).map(|round: u64| (2 * round + 1, round.to_string())).collect();
    let expected: Vec<_> = values.iter().map(|(at, value)| (*at, "order/w/a", Some(value.as_str()))).collect();
    assert_eq!(plain(&told, start), expected);
    // It was there first, and hears of what comes.
    assert_eq!(runtime::timeout(NOTHING_FOR, watch.next()).await, Err(runtime::Elapsed));
    put(*map, "order/w/b", "live").await;
    assert_eq!(super::told(&mut *watch, 1).await[0].key, "order/w/b");
}

pub async fn one_transaction_together(subject: &Subject<'_>) {
    let map = subject.map;
    let start = put(map, "together/w/a", "1").await;
    subject.nothing_under_way().await;
    let mut watch = map.watch("together/w/", after(start));
    let all = Transaction::new().expect("together/w/a", start).put("together/w/b", b"2".to_vec());
    commit(map, all.put("together/other", vec![]).delete("together/w/a").put("together/w/c", b"3".to_vec())).await;
    let told = watch.next().await.expect("told");
    let expected = [(1, "together/w/b", Some("2")), (1, "together/w/a", None), (1, "together/w/c", Some("3"))];
    assert_eq!(plain(&told, start), expected, "in one call, in its order");
}

pub async fn from_an_old_revision(Subject { map, .. }: &Subject<'_>) {
    let start = put(*map, "old/a", "0").await;
    let second = put(*map, "old/a", "1").await;
    put(*map, "old/b", "1").await;
    let whole = told(&mut *map.watch("old/", start), 3).await;
    assert_eq!(plain(&whole, start), [(0, "old/a", Some("0")), (1, "old/a", Some("1")), (2, "old/b", Some("1"))]);
    assert_eq!(told(&mut *map.watch("old/", second), 2).await, whole[1..]);
    // From the past into the present.
    let mut watch = map.watch("old/", second);
    assert_eq!(told(&mut *watch, 2).await, whole[1..]);
    put(*map, "old/a", "2").await;
    assert_eq!(plain(&told(&mut *watch, 1).await, start), [(3, "old/a", Some("2"))]);
}

pub async fn a_call_that_is_dropped_loses_nothing(Subject { map, .. }: &Subject<'_>) {
    let start = put(*map, "dropped/a", "0").await;
    let mut watch = map.watch("dropped/", after(start));
    assert_eq!(runtime::timeout(NOTHING_FOR, watch.next()).await, Err(runtime::Elapsed));
    put(*map, "dropped/a", "1").await;
    // Some of these calls are dropped with the answer on its way.
    let mut told = Vec::new();
    for patience_us in (0..).step_by(100) {
        if let Ok(events) = runtime::timeout(Duration::from_micros(patience_us), watch.next()).await {
            told.extend(events.expect("told"));
            break;
        }
    }
    assert_eq!(plain(&told, start), [(1, "dropped/a", Some("1"))]);
}

pub async fn compaction(subject: &Subject<'_>) {
    let Subject { map, .. } = subject;
    let first = put(*map, "compact/a", "1").await;
    let mut behind = map.watch("compact/", first);
    let second = put(*map, "compact/a", "2").await;
    answer(|| map.compact(first)).await.expect("compacted");
    for _ in 0..2 {
        assert_eq!(behind.next().await, Err(MapError::Compacted { oldest: second }));
    }
    assert_eq!(map.watch("compact/", first).next().await, Err(MapError::Compacted { oldest: second }));
    let told = map.watch("compact/", second).next().await.expect("what is left");
    assert_eq!(told.iter().map(|event| event.revision).collect::<Vec<_>>(), [second]);
    assert_eq!(modified(*map, "compact/a").await, second, "what a key holds is never compacted");
    // The way out: list again, and watch from there.
    let listing = list(*map, "compact/").await;
    let mut watch = map.watch("compact/", after(listing.revision));
    let third = put(*map, "compact/a", "3").await;
    assert_eq!(super::told(&mut *watch, 1).await[0].revision, third);
    // Of a key that is gone too.
    subject.nothing_under_way().await;
    let removed = Transaction::new().expect("compact/a", third).delete("compact/a").put("compact/b", vec![]);
    let fourth = commit(*map, removed).await;
    answer(|| map.compact(fourth)).await.expect("compacted");
    let gone = map.watch("compact/a", fourth).next().await;
    assert_eq!(gone, Err(MapError::Compacted { oldest: after(fourth) }));
}

/// A watch that was told all there was has no gap when that is forgotten.
pub async fn what_others_did_can_be_compacted(Subject { map, heard_within, .. }: &Subject<'_>) {
    let start = put(*map, "others/a", "1").await;
    let mut watch = map.watch("others/w/", after(start));
    let map: &dyn MapStore = *map;
    for round in 0..3 {
        let last = put(map, "others/a", "2").await;
        assert_eq!(runtime::timeout(*heard_within, waiting_long_enough(&mut *watch)).await, Err(runtime::Elapsed));
        answer(|| map.compact(last)).await.expect("compacted");
        let own = put(map, "others/w/a", &round.to_string()).await;
        assert_eq!(told(&mut *watch, 1).await[0].revision, own);
    }
}

async fn waiting_long_enough(watch: &mut dyn cluster::Watch) {
    while watch.next().await == Err(MapError::Silent) {}
}

pub async fn not_from_the_future(Subject { map, .. }: &Subject<'_>) {
    let now = put(*map, "future/a", "1").await;
    let next = runtime::timeout(NOTHING_FOR, map.watch("future/", after(now)).next()).await;
    assert_eq!(next, Err(runtime::Elapsed), "the next one is waited for");
    let later = map.watch("future/", after(after(now))).next().await;
    assert_eq!(later, Err(MapError::WentBack { revision: now }), "who saw a later revision saw another history");
}
