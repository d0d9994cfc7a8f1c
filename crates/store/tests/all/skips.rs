//! Members that go on behind entries they lack: what was skipped is never applied, whatever happens meanwhile.

use crate::common::lost::*;
use crate::common::members::*;
use crate::common::skips::*;
use crate::common::*;
use runtime::IoBuf;
use store::format::LayerRecord;
use store::{AppendError, Entry, EntryKind, MAX_SKIP_BYTES, MAX_SKIP_EPOCHS, Shard};
use types::*;

#[test]
fn a_skip_leaves_the_old_order_or_the_new_one() {
    let mut met = [0; 2];
    for seed in 0..8 {
        let of_seed = a_skip_at_every_moment(seed);
        (0..2).for_each(|i| met[i] += of_seed[i]);
    }
    println!("members found before and behind the skip: {met:?}");
    assert!(met.iter().all(|count| *count > 20), "{met:?}");
}

fn ends(shard: &Shard) -> (u64, u64) {
    (shard.committed_through(GROUP).0, shard.prepared_through(GROUP).0)
}

#[test]
fn the_order_goes_on_behind_what_is_skipped() {
    let rig = rig(80);
    rig.run(async {
        let shard = with_lone_tail().await;
        assert_eq!(ends(&shard), (COMMITTED, PREPARED));
        let asked = shard.prepare(skip(100, &[(1, 1), (4, 7)], "of epoch 4")).expect("there is room");
        assert_eq!(ends(&shard), (COMMITTED, PREPARED), "it is not durable yet");
        durable(&shard, asked).await;
        assert_eq!(ends(&shard), (100, 100));
        assert_eq!(shard.prepared_entries(GROUP, Seq(0), usize::MAX).await.expect("readable").len(), 0);
        assert!(!shard.cut(GROUP, Seq(99)), "it is committed");
        prepare(&shard, [write(4, 101, 0, 0)]).await;
        assert_eq!(ends(&shard), (100, 101));
        // Nothing waits in the records of what was dropped: the next opening reads none of them.
        assert!(shard.commit(GROUP, Seq(101)).is_done());
        shard.pass_now().await.expect("an open shard");
        shard.pass_now().await.expect("an open shard");
    });
    lose_power(&rig);
    rig.run(async {
        let (shard, recovery) = open_whole().await;
        assert!(recovery.counters.entries < 10, "{:?}", recovery.counters);
        assert_eq!(ends(&shard), (101, 101));
        assert_eq!(versions(&shard, 0, 6).await, [101, 3, 0, 0, 0, 0]);
        assert_eq!(shard.image(LAYER, ChunkId(0)).expect("it is not lost").last_seq(), Seq(101));
        assert_eq!(shard.image(LAYER, ChunkId(1)).expect("it is not lost").last_seq(), Seq(COMMITTED));
        let refused = shard.prepare(write(4, 103, 0, 0)).expect_err("102 is next");
        assert!(matches!(refused, AppendError::Stopped { .. }), "{refused}");
    });
}

#[test]
fn an_entry_beside_a_skip_stops_the_store() {
    let rig = rig(81);
    rig.run(async {
        let shard = with_lone_tail().await;
        shard.prepare(skip(100, &[(1, 1)], "")).expect("there is room");
        let refused = shard.prepare(write(3, PREPARED + 1, 0, 0)).expect_err("it would be dropped");
        assert!(matches!(refused, AppendError::Stopped { .. }), "{refused}");
    });
}

/// What is said to be committed while a skip is on its way counts behind it, where replay comes to it too.
#[test]
fn a_skip_of_what_is_committed_drops_nothing() {
    let rig = rig(82);
    rig.run(async {
        let shard = with_lone_tail().await;
        let asked = shard.prepare(skip(COMMITTED, &[(1, 1), (4, 3)], "told")).expect("there is room");
        assert!(shard.commit(GROUP, Seq(9)).is_done());
        assert_eq!(ends(&shard), (COMMITTED, PREPARED));
        durable(&shard, asked).await;
        assert_eq!(ends(&shard), (9, PREPARED));
        // Of what was committed behind it: the newer record, and no epoch, for epoch 4 is newer.
        assert_eq!(shard.group_record(GROUP).as_deref(), Some(&b"of epoch 3"[..]));
        assert_eq!(shard.history(GROUP), [(term(1), Seq(1)), (term(4), Seq(3))]);
        assert_eq!(shard.volume_epochs(GROUP), [(VolumeId(12), VolumeEpoch(9))]);
        assert_eq!(versions(&shard, 0, 6).await, [6, 3, 0, 0, 0, 7]);
        assert!(shard.commit(GROUP, Seq(PREPARED)).is_done());
        assert_eq!(versions(&shard, 0, 2).await, [6, 11]);
        // What is known here is of a newer epoch than what this one tells, but for epochs of volumes.
        prepare(&shard, [skip(8, &[(1, 1), (3, 5)], "older")]).await;
        assert_eq!(ends(&shard), (PREPARED, PREPARED));
        assert_eq!(shard.history(GROUP), [(term(1), Seq(1)), (term(4), Seq(3))]);
        assert_eq!(shard.group_record(GROUP).as_deref(), Some(&b"of epoch 3"[..]));
    });
}

/// The record of the last skip that became durable is found, through passes that begin and end beside it: what a pass
/// says of a group never lies behind a newer skip.
#[test]
fn a_pass_beside_a_skip_does_not_take_it_back() {
    let rig = rig(83);
    let shard = rig.run(with_lone_tail());
    let known = std::rc::Rc::new(std::cell::Cell::new((0, 0)));
    let told = known.clone();
    let task = async move {
        let passing = shard.clone();
        runtime::spawn(async move { while passing.pass_now().await.is_ok() {} });
        for number in 1..60 {
            told.set((number, number - 1));
            // Above what is committed, or not.
            let through = 20 + number / 2;
            prepare(&shard, [skip(through, &[(1, 1), (4, 7)], &number.to_string())]).await;
            told.set((number, number));
        }
    };
    let moments = rig.at_every_moment(1, task, |image| {
        let (asked, durable) = known.get();
        let (_, recovery) = image.open();
        assert_eq!(recovery.damage, []);
        let record = recovery.groups[0].record.clone().expect("there is one");
        let found = String::from_utf8(record).expect("text").parse().unwrap_or(0);
        assert!((durable..=asked).contains(&found), "{found}, asked for {asked}, durable {durable}");
        let through = if found == 0 { PREPARED } else { 20 + found / 2 };
        assert_eq!(recovery.groups[0].prepared_through, Seq(through));
    });
    assert!(moments > 100, "{moments}");
}

fn skip_with(through: u64, epochs: u32, volumes: u64, record_bytes: usize) -> Entry {
    let kind = EntryKind::Skip {
        through: Seq(through),
        epochs: (1..=epochs).map(|epoch| (term(epoch), Seq(u64::from(epoch)))).collect(),
        volumes: (1..=volumes).map(|volume| (VolumeId(volume), VolumeEpoch(3))).collect(),
        record: IoBuf::zeroed(record_bytes).freeze(),
    };
    Entry { kind, ..skip(0, &[], "") }
}

/// What another member said is refused where no log may hold it, and the store goes on. The longest that fits survives.
#[test]
fn a_skip_that_no_log_may_hold_is_refused() {
    let rig = rig(84);
    let volumes = (MAX_SKIP_BYTES - 24) / 16 - MAX_SKIP_EPOCHS;
    rig.run(async move {
        let shard = with_lone_tail().await;
        let most = MAX_SKIP_EPOCHS as u32;
        let behind = skip(100, &[(1, 1), (4, 101)], "");
        let falling = skip(100, &[(4, 7), (1, 8)], "");
        let wrong = [
            skip_with(5000, most + 1, 0, 0),
            skip_with(5000, most, volumes as u64 + 1, 0),
            skip_with(5000, most, volumes as u64, 16),
            skip_with(5000, 1, 0, store::MAX_GROUP_RECORD_BYTES + 1),
            behind,
            falling,
        ];
        for one in wrong {
            let refused = shard.prepare(one).expect_err("no log may hold it");
            assert!(matches!(refused, AppendError::Invalid { group: GROUP, .. }), "{refused}");
        }
        prepare(&shard, [skip_with(5000, most, volumes as u64, 8), skip_with(5000, 4096, 0, 48 << 10)]).await;
    });
    for _ in 0..2 {
        lose_power(&rig);
        rig.run(async move {
            let (shard, recovery) = open_whole().await;
            let found = &recovery.groups[0];
            assert_eq!((found.epoch_history.len(), found.volume_epochs.len()), (MAX_SKIP_EPOCHS, volumes));
            assert_eq!(found.record.as_ref().map(Vec::len), Some(48 << 10));
            assert_eq!((found.committed, found.prepared_through), (Seq(5000), Seq(5000)));
            shard.pass_now().await.expect("an open shard");
        });
    }
}

/// A record is lost: a group is damaged by that if it had applied what was in it, not if that was skipped over.
#[test]
fn a_group_is_damaged_by_what_it_had_applied_and_lacks() {
    // In one record or in four; the entry whose record is lost; the last that was applied when the skip was asked for;
    // whether an entry follows the skip.
    let cases = [
        (false, 3, 2, true, false),
        (false, 3, 3, true, true),
        (false, 3, 3, false, true),
        (false, 4, 4, true, true),
        (false, 4, 3, false, false),
        (true, 2, 2, true, true),
        (true, 2, 0, true, false),
    ];
    for (in_one, lost, applied, is_followed, is_damaged) in cases {
        let rig = rig_of_4_kib(85);
        rig.run(async move {
            let (shard, _) = open_whole().await;
            let entries = [start(1, 1), write(1, 2, 0, 0), write(1, 3, 0, 1), write(1, 4, 0, 2)];
            for part in entries.chunks(if in_one { 4 } else { 1 }) {
                prepare(&shard, part.to_vec()).await;
            }
            assert!(shard.commit(GROUP, Seq(applied)).is_done());
            prepare(&shard, [skip(50, &[(1, 1), (4, 7)], "")]).await;
            let following = [saying(50, write(4, 51, 1, 0)), saying(51, write(4, 52, 1, 0))];
            if is_followed {
                prepare(&shard, following).await;
            }
        });
        spoil_record_of(&rig, 0, lost - 2, lost.into());
        let recovery = rig.open().1;
        assert!(!recovery.damage.is_empty());
        let (found, ends) = (&recovery.groups[0], (50, if is_followed { 52 } else { 50 }));
        let case = (in_one, lost, applied, is_followed);
        assert_eq!(found.damaged, is_damaged, "{case:?}: {found:?}");
        assert_eq!((found.committed.0, found.prepared_through.0), ends, "{case:?}");
    }
}

/// The skip is the first that is known of the group: what is lost behind it is missed.
#[test]
fn what_is_lost_behind_a_skip_is_missed() {
    let rig = rig_of_4_kib(87);
    rig.run(async {
        let (shard, _) = open_whole().await;
        prepare(&shard, [skip(50, &[(1, 1), (4, 7)], "")]).await;
        for seq in 51..55 {
            prepare(&shard, [write(4, seq, 0, seq as u32)]).await;
        }
    });
    spoil_record_of(&rig, 0, 51, 51);
    let recovery = rig.open().1;
    let found = &recovery.groups[0];
    assert_eq!((found.damaged, found.committed, found.prepared_through), (true, Seq(50), Seq(50)), "{found:?}");
}

/// Damage is found, and the member goes on behind it: its group lacks nothing any more.
#[test]
fn what_was_lost_and_skipped_over_is_not_missed() {
    let rig = rig_of_4_kib(86);
    let lacks = |recovery: &store::Recovery| {
        let told = recovery.damage.iter().any(|damage| matches!(damage, store::Damage::GroupEntries { .. }));
        (told, recovery.groups[0].damaged)
    };
    rig.run(async {
        let (shard, _) = open_whole().await;
        for one in [start(1, 1), write(1, 2, 0, 0), write(1, 3, 0, 1)] {
            prepare(&shard, [one]).await;
        }
        assert!(shard.commit(GROUP, Seq(3)).is_done());
        // It says how much is committed, and nothing else.
        prepare(&shard, [skip(1, &[(1, 1)], "")]).await;
    });
    spoil_record_of(&rig, 0, 1, 3);
    rig.run(async move {
        let (shard, recovery) = open().await;
        assert_eq!((lacks(&recovery), ends(&shard)), ((true, true), (2, 2)));
        prepare(&shard, [skip(50, &[(1, 1), (4, 7)], "")]).await;
        prepare(&shard, [saying(50, write(4, 51, 0, 1))]).await;
    });
    lose_power(&rig);
    rig.run(async move {
        let (shard, recovery) = open().await;
        assert!(!recovery.damage.is_empty(), "the record is lost as before");
        assert_eq!((lacks(&recovery), ends(&shard)), ((false, false), (50, 51)));
    });
}

/// A member is told of layers by another: what it knew stays, also that one is gone, and a crash takes nothing of it.
#[test]
fn a_layer_that_another_member_knows_is_known() {
    let of = |layer: u64, parent: u64| LayerRecord {
        layer: LayerId(layer),
        parent: LayerId(parent),
        family: FamilyId(3),
        ..LayerRecord::default()
    };
    let told = move |layer: u64, parent: u64| Entry {
        layer: LayerId(layer),
        ..entry(0, 0, ChunkId(0), EntryKind::InstallLayer { record: of(layer, parent) })
    };
    let in_order = move |seq, layer: u64, parent: u64| Entry {
        layer: LayerId(layer),
        ..entry(3, seq, ChunkId(0), EntryKind::Layer { record: of(layer, parent) })
    };
    let known = |shard: &Shard, layer| shard.layer(LayerId(layer)).map(|record| record.parent.0);
    let rig = rig(84);
    rig.run(async move {
        let shard = with_lone_tail().await;
        prepare(&shard, [in_order(PREPARED + 1, 70, 0), in_order(PREPARED + 2, 71, 70)]).await;
        let ends = EntryKind::LayerDelete { chunks: Vec::new() };
        prepare(&shard, [Entry { layer: LayerId(70), ..entry(3, PREPARED + 3, ChunkId(0), ends) }]).await;
        assert!(shard.commit(GROUP, Seq(PREPARED + 3)).is_done());
        assert_eq!((known(&shard, 70), known(&shard, 71)), (None, Some(0)));
        prepare(&shard, [told(70, 0), told(71, 9), told(72, 71)]).await;
        assert_eq!((known(&shard, 70), known(&shard, 71), known(&shard, 72)), (None, Some(0), Some(71)));
    });
    lose_power(&rig);
    rig.run(async move {
        let (shard, _) = open_whole().await;
        assert_eq!((known(&shard, 70), known(&shard, 71), known(&shard, 72)), (None, Some(0), Some(71)));
        shard.pass_now().await.expect("an open shard");
        shard.pass_now().await.expect("an open shard");
    });
    lose_power(&rig);
    rig.run(async move {
        let (shard, _) = open_whole().await;
        assert_eq!((known(&shard, 70), known(&shard, 71), known(&shard, 72)), (None, Some(0), Some(71)));
    });
}
