//! Compare-and-swap, reads, limits.

use super::{Subject, answer, commit, conflict, get, list, modified, put, value};
use cluster::{KEY_BYTES_MAX, MapError, Outcome, Revision, TRANSACTION_OPERATIONS_MAX, Transaction, VALUE_BYTES_MAX};

pub async fn compare_and_swap(Subject { map, .. }: &Subject<'_>) {
    let first = put(*map, "cas/a", "1").await;
    let swap = |from| Transaction::new().expect("cas/a", from).put("cas/a", b"2".to_vec());
    let second = commit(*map, swap(first)).await;
    assert!(second > first);
    conflict(*map, swap(first), "a stale revision swaps nothing").await;
    conflict(*map, swap(Revision(second.0 + 1000)), "nor does one that is not yet").await;
    assert_eq!(get(*map, "cas/a").await.expect("there").modified, second);
    // A compare of another key than the one that is changed.
    let other = Transaction::new().expect("cas/a", first).expect_absent("cas/b").put("cas/b", b"1".to_vec());
    conflict(*map, other, "all compares count").await;
    assert_eq!(get(*map, "cas/b").await, None);
}

pub async fn absent_compares(subject: &Subject<'_>) {
    let map = subject.map;
    assert_eq!(get(map, "absent/a").await, None);
    let make = || Transaction::new().expect_absent("absent/a").put("absent/a", b"1".to_vec());
    let first = commit(map, make()).await;
    conflict(map, make(), "it is there now").await;
    let delete = Transaction::new().expect("absent/a", first).delete("absent/a").put("absent/mark", b"1".to_vec());
    subject.nothing_under_way().await;
    commit(map, delete).await;
    assert_eq!(get(map, "absent/a").await, None);
    let again = commit(map, make()).await;
    assert!(again > first, "absent is absent, whatever was there");
    // A key that was removed and made again is another one.
    let swap = Transaction::new().expect("absent/a", first).put("absent/a", b"2".to_vec());
    conflict(map, swap, "of the key that was removed").await;
    // Only compares: a question.
    let there = |modified| Transaction::new().expect("absent/a", modified);
    assert!(matches!(answer(|| map.transact(there(again))).await, Ok(Outcome::Committed(_))));
    conflict(map, there(Revision(0)), "it is there").await;
}

pub async fn all_or_nothing(Subject { map, .. }: &Subject<'_>) {
    let before = put(*map, "all/a", "1").await;
    let half = Transaction::new().expect("all/a", before).expect("all/b", before).put("all/a", b"2".to_vec());
    conflict(*map, half, "one of two").await;
    assert_eq!(value(*map, "all/a").await.as_deref(), Some("1"));
    let both = Transaction::new().expect("all/a", before).put("all/a", b"2".to_vec()).put("all/b", b"2".to_vec());
    let revision = commit(*map, both.delete("all/none")).await;
    let items = list(*map, "all/").await.items;
    assert_eq!(items.len(), 2);
    for item in items {
        assert_eq!((item.value.as_slice(), item.modified), (b"2".as_slice(), revision));
    }
    // A transaction that changes nothing is no revision.
    let nothing = || Transaction::new().expect("all/a", revision).delete("all/none");
    assert_eq!(answer(|| map.transact(nothing())).await, Ok(Outcome::Committed(revision)));
    assert_eq!(list(*map, "").await.revision, revision);
}

pub async fn limits(Subject { map, .. }: &Subject<'_>) {
    let many = |count: usize| {
        (0..count).fold(Transaction::new(), |all, i| {
            all.expect_absent(format!("limits/{i}")).put(format!("limits/{i}"), vec![b'0'])
        })
    };
    let refused = async |transaction: Transaction| {
        let answer = answer(|| map.transact(transaction.clone())).await;
        assert!(matches!(answer, Err(MapError::Refused(_))), "{answer:?}");
    };
    refused(many(TRANSACTION_OPERATIONS_MAX + 1)).await;
    refused(Transaction::new().put("limits/x", vec![0; VALUE_BYTES_MAX + 1])).await;
    refused(Transaction::new().put("x".repeat(KEY_BYTES_MAX + 1), vec![])).await;
    refused(Transaction::new().put("", vec![])).await;
    refused(Transaction::new().put("limits/x", vec![]).delete("limits/x")).await;
    assert!(list(*map, "limits/").await.items.is_empty(), "refused means not done");
    commit(*map, many(TRANSACTION_OPERATIONS_MAX)).await;
    assert_eq!(list(*map, "limits/").await.items.len(), TRANSACTION_OPERATIONS_MAX);
    let longest = "limits/".to_owned() + &"x".repeat(KEY_BYTES_MAX - "limits/".len());
    commit(*map, Transaction::new().expect_absent(&longest).put(&longest, vec![7; VALUE_BYTES_MAX])).await;
    assert_eq!(get(*map, &longest).await.expect("there").value, vec![7; VALUE_BYTES_MAX]);
}

pub async fn listing(Subject { map, .. }: &Subject<'_>) {
    for key in ["list/b", "list/a", "list/a/1", "lisu", "lis"] {
        put(*map, key, key).await;
    }
    let listing = list(*map, "list/").await;
    let keys: Vec<&str> = listing.items.iter().map(|item| item.key.as_str()).collect();
    assert_eq!(keys, ["list/a", "list/a/1", "list/b"]);
    assert!(listing.items.iter().all(|item| item.modified <= listing.revision));
    assert_eq!(list(*map, "list/none").await.items, []);
}

/// Reads are linearizable: what was committed is seen by what is asked afterwards.
pub async fn reads_see_what_was_done(Subject { map, .. }: &Subject<'_>) {
    for round in 0..20 {
        let revision = put(*map, "reads/a", &round.to_string()).await;
        assert_eq!(modified(*map, "reads/a").await, revision);
        let listing = list(*map, "reads/").await;
        assert_eq!(listing.items[0].value, round.to_string().into_bytes());
        assert!(listing.revision >= revision);
    }
}
