//! Answers that are lost: sending the same compare-and-swap again tells what became of it.

use super::{ASKED_MAX, Subject, get, list, told};
use cluster::{MapError, Outcome, Revision, Transaction};

const INCREMENTS: u64 = 100;

/// A counter: each increment is done once, whatever is heard of it, and nothing is done to it in between.
pub async fn retried_until_known(subject: &Subject<'_>) {
    let map = subject.map;
    let start = list(map, "").await.revision;
    for count in 1..=INCREMENTS {
        let was = get(map, "lost/counter").await.map_or(Revision(0), |found| found.modified);
        let transaction = Transaction::new().expect("lost/counter", was).put("lost/counter", count.to_string().into());
        let (mut is_open, mut is_known) = (false, false);
        for _ in 0..ASKED_MAX {
            match map.transact(transaction.clone()).await {
                Err(MapError::Unknown) => is_open = true,
                Ok(Outcome::Committed(_)) => is_known = true,
                Ok(Outcome::Conflict) if is_open => is_known = true,
                other => panic!("{other:?}"),
            }
            if is_known {
                break;
            }
        }
        let found = get(map, "lost/counter").await.expect("there");
        assert_eq!(found.value, count.to_string().into_bytes(), "done or a conflict with itself: it is there");
    }
    subject.nothing_under_way().await;
    let events = told(&mut *map.watch("lost/counter", Revision(start.0 + 1)), INCREMENTS as usize).await;
    let counts: Vec<_> = events.into_iter().map(|event| event.value.expect("put")).collect();
    let expected: Vec<_> = (1..=INCREMENTS).map(|count| count.to_string().into_bytes()).collect();
    assert_eq!(counts, expected, "each once, in order");
}
