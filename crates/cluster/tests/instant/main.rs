//! Snapshots of several volumes: the map has all or none of them, and none that its head did not stop for.

mod directed;

use cluster::{
    CatalogError, INSTANT_VOLUMES_MAX, MapFaults, Wanted, find_wanted, name_snapshot, name_snapshots, push_layer,
    push_tops, take_top, trash_volume,
};
use directed::{
    FIRST, a_layer_that_was_left_is_not_named, a_replaced_head_lets_nothing_be_named, named, served, snapshots,
    volumes, wanted, with_volumes,
};
use std::time::Duration;

#[test]
fn as_many_as_a_transaction_holds_get_tops_and_names_at_once() {
    with_volumes(1, INSTANT_VOLUMES_MAX, |map| async move {
        let all = wanted(INSTANT_VOLUMES_MAX);
        assert_eq!(find_wanted(&*map, &all).await.expect("found").len(), INSTANT_VOLUMES_MAX);
        let before = served(&*map).await;
        let pushed = push_tops(&*map, &before).await.expect("pushed");
        for (volume, (was, pushed)) in volumes(&*map).await.iter().zip(before.iter().zip(&pushed)) {
            assert_eq!(volume.layers, [was.top, pushed.new_top]);
            assert_eq!(volume.leaving, [was.top], "its head may write to it still");
        }
        let made = name_snapshots(&*map, &named(&pushed)).await.expect("named");
        assert_eq!(made.len(), INSTANT_VOLUMES_MAX);
        assert_eq!(snapshots(&*map).await.len(), INSTANT_VOLUMES_MAX);
        assert!(made.windows(2).all(|two| two[0].created_at_ns == two[1].created_at_ns), "one instant");
        let error = find_wanted(&*map, &wanted(INSTANT_VOLUMES_MAX + 1)).await.expect_err("too many");
        assert!(error.to_string().contains("63 volumes are too many"), "{error}");
    });
}

#[test]
fn what_cannot_be_is_refused_with_its_reason() {
    with_volumes(1, 3, |map| async move {
        let asked = |names: &[(&str, &str)]| -> Vec<Wanted> {
            let wanted = |(volume, name): &(&str, &str)| Wanted { volume: (*volume).into(), name: (*name).into() };
            names.iter().map(wanted).collect()
        };
        let refused = async |names: &[(&str, &str)]| find_wanted(&*map, &asked(names)).await.expect_err("refused");
        assert_eq!(refused(&[("v0", "x"), ("v0", "y")]).await, CatalogError::NamedTwice("v0".into()));
        assert_eq!(refused(&[("v0", "x"), ("none", "x")]).await, CatalogError::NotFound("none".into()));
        assert!(matches!(refused(&[("v0", "x"), ("v1", "X!")]).await, CatalogError::Input(_)));
        let all = served(&*map).await;
        let pushed = push_tops(&*map, &all[..1]).await.expect("pushed");
        name_snapshots(&*map, &named(&pushed)).await.expect("named");
        assert_eq!(refused(&[("v1", "x"), ("v0", "x")]).await, CatalogError::SnapshotExists("v0@x".into()));
        trash_volume(&*map, "v2", FIRST).await.expect("in the trash");
        assert_eq!(refused(&[("v1", "x"), ("v2", "x")]).await, CatalogError::NotFound("v2".into()));
        // Once they are in the trash, or deleted, they get no top either.
        assert!(push_tops(&*map, &all[1..]).await.is_err());
        assert_eq!(volumes(&*map).await[1].layers.len(), 1, "all or none");
    });
}

/// A name that was taken meanwhile, or one volume that went on: the others are not named either.
#[test]
fn all_are_named_or_none() {
    with_volumes(1, 3, |map| async move {
        let all = served(&*map).await;
        let pushed = push_tops(&*map, &all).await.expect("pushed");
        let again = push_tops(&*map, &all[..1]).await;
        assert_eq!(again, Err(CatalogError::WentOn(all[0].volume)), "its top is another");
        // Somebody takes a snapshot of the last one under this name.
        let new = push_layer(&*map, all[2].volume, FIRST).await.expect("pushed");
        take_top(&*map, &new).await.expect("taken");
        name_snapshot(&*map, all[2].volume, "x", pushed[2].new_top, FIRST).await.expect("named");
        let refused = name_snapshots(&*map, &named(&pushed)).await;
        assert_eq!(refused, Err(CatalogError::SnapshotExists("v2@x".into())));
        assert_eq!(snapshots(&*map).await, [("x".to_owned(), pushed[2].new_top)]);
    });
}

/// Answers get lost: what is reported is so, and what is not reported is all or none.
#[test]
fn lost_answers_make_no_half_of_it() {
    for seed in 0..40 {
        with_volumes(seed, 4, |map| async move {
            let all = served(&*map).await;
            map.set_faults(MapFaults { requests_lost: 200, answers_lost: 200, requests_late: 100, ..MapFaults::NONE });
            let outcome = async {
                let pushed = push_tops(&*map, &all).await?;
                name_snapshots(&*map, &named(&pushed)).await
            };
            let outcome = outcome.await;
            map.set_faults(MapFaults::NONE);
            runtime::sleep(Duration::from_secs(60)).await;
            let there = snapshots(&*map).await.len();
            let is_so = if outcome.is_ok() { there == 4 } else { there == 0 || there == 4 };
            assert!(is_so, "seed {seed}: {there} snapshots after {outcome:?}");
            let lengths: Vec<_> = volumes(&*map).await.iter().map(|volume| volume.layers.len()).collect();
            assert!(lengths.windows(2).all(|two| two[0] == two[1]), "seed {seed}: {lengths:?} layers");
        });
    }
}

#[test]
fn what_is_named_is_what_every_head_stopped_for() {
    a_replaced_head_lets_nothing_be_named(1);
    a_layer_that_was_left_is_not_named(1);
}
