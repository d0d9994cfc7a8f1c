//! Leaves that a member receives from another: whole, or not to be trusted, whatever happens meanwhile.

use crate::common::installs::*;
use crate::common::lost::*;
use crate::common::members::*;
use crate::common::*;
use store::format::LayerRecord;
use store::{EntryKind, ImageBlock, ReadError};
use types::*;

#[test]
fn an_install_leaves_the_old_leaf_an_untrusted_one_or_the_new_one() {
    let mut met = [0; 3];
    for seed in 0..4 {
        let of_seed = an_install_at_every_moment(seed);
        (0..3).for_each(|i| met[i] += of_seed[i]);
    }
    println!("old, untrusted and new leaves found: {met:?}");
    assert!(met.iter().all(|count| *count > 5), "{met:?}");
}

#[test]
fn what_a_member_trusts_is_what_its_primary_has() {
    let mut met = [0; 4];
    for seed in 70..76 {
        let of_seed = install_storm(seed, 4, 25);
        (0..4).for_each(|i| met[i] += of_seed[i]);
    }
    println!("losses of power, installs that ended well, installs that lacked an entry, entries skipped: {met:?}");
    assert!(met[0] > 100 && met[1] > 20 && met[2] > 2 && met[3] > 100, "{met:?}");
}

#[test]
fn a_full_device_takes_what_another_member_has() {
    an_install_has_room_where_new_blocks_have_none();
}

fn begin() -> EntryKind {
    EntryKind::InstallBegin { keeps: false }
}

fn blocks(chunk: u32, first: u32, count: u32, version: u64) -> EntryKind {
    let range = BlockRange::new(first, count);
    EntryKind::Install { range, bytes: bytes_of(ChunkId(chunk), range, version), coding: Default::default() }
}

fn finish(last_seq: u64) -> EntryKind {
    EntryKind::InstallEnd { last_seq: Seq(last_seq) }
}

async fn install(shard: &store::Shard, chunk: u32, kinds: impl IntoIterator<Item = EntryKind>) {
    prepare(shard, kinds.into_iter().map(|kind| entry(0, 0, ChunkId(chunk), kind))).await;
}

fn trust(shard: &store::Shard, chunk: u32) -> (bool, Seq) {
    let image = shard.image(LAYER, ChunkId(chunk)).expect("it is not lost");
    (image.is_trusted(), image.last_seq())
}

/// An entry that the image lacks and that came before the end: the leaf would lack it for ever.
#[test]
fn a_leaf_that_lacks_an_entry_is_not_trusted() {
    let rig = rig(40);
    rig.run(async {
        let (shard, _) = open_whole().await;
        prepare(&shard, [start(1, 1), write(1, 2, 0, 0), write(1, 3, 0, 1)]).await;
        shard.commit(GROUP, Seq(2));
        install(&shard, 0, [begin(), blocks(0, 0, 1, 2)]).await;
        shard.commit(GROUP, Seq(3));
        install(&shard, 0, [finish(2)]).await;
        assert_eq!(trust(&shard, 0), (false, Seq(0)));
        let buf = runtime::IoBuf::new(BLOCK_BYTES);
        let (read, _) = shard.read(&[LAYER], ChunkId(0), BlockRange::new(0, 1), buf, &mut Vec::new()).await;
        assert_eq!(read, Err(ReadError::Untrusted { layer: LAYER, chunk: ChunkId(0) }));
        let known = shard.known_blocks(&[LAYER], ChunkId(0), BlockRange::new(0, 1), &mut Vec::new());
        assert_eq!(known, Err(ReadError::Untrusted { layer: LAYER, chunk: ChunkId(0) }));
        // The same through a pass and a restart: what was left out is not forgotten.
        install(&shard, 0, [begin()]).await;
        prepare(&shard, [write(1, 4, 0, 2)]).await;
        shard.commit(GROUP, Seq(4));
        install(&shard, 0, [blocks(0, 0, 2, 3)]).await;
        shard.pass_now().await.expect("an open shard");
        shard.pass_now().await.expect("an open shard");
    });
    lose_power(&rig);
    rig.run(async {
        let (shard, _) = open_whole().await;
        assert_eq!((trust(&shard, 0), shard.committed_through(GROUP)), ((false, Seq(0)), Seq(4)));
        install(&shard, 0, [finish(3)]).await;
        assert_eq!(trust(&shard, 0), (false, Seq(0)));
        install(&shard, 0, [blocks(0, 2, 1, 4)]).await;
        install(&shard, 0, [finish(4)]).await;
        assert_eq!(trust(&shard, 0), (true, Seq(4)));
        assert_eq!(versions(&shard, 0, 4).await, [3, 3, 4, 0]);
    });
}

/// Committed between the queueing of the begin and its effect: replay comes to it behind the begin.
#[test]
fn an_entry_beside_the_begin_counts_as_left_out() {
    for commit_early in [true, false] {
        let rig = rig(41);
        rig.run(async move {
            let (shard, _) = open_whole().await;
            prepare(&shard, [start(1, 1), write(1, 2, 0, 0), write(1, 3, 0, 1)]).await;
            shard.commit(GROUP, Seq(if commit_early { 3 } else { 2 }));
            let position = shard.prepare(entry(0, 0, ChunkId(0), begin())).expect("there is room");
            assert!(shard.commit(GROUP, Seq(3)).is_done(), "the begin is not durable yet");
            assert_eq!(versions(&shard, 0, 2).await, [2, 3]);
            durable(&shard, position).await;
            install(&shard, 0, [blocks(0, 0, 1, 2)]).await;
            install(&shard, 0, [finish(2)]).await;
            assert_eq!(trust(&shard, 0), if commit_early { (true, Seq(2)) } else { (false, Seq(0)) });
        });
    }
}

/// Pieces that were lost with a crash are not missed by the end, since the end waits for them.
#[test]
fn the_end_before_the_rest_is_durable_stops_the_store() {
    let rig = rig(42);
    rig.run(async {
        let (shard, _) = open_whole().await;
        shard.prepare(entry(0, 0, ChunkId(0), begin())).expect("there is room");
        let refused = shard.prepare(entry(0, 0, ChunkId(0), finish(2))).expect_err("the begin is not durable");
        assert!(matches!(refused, store::AppendError::Stopped { .. }), "{refused}");
    });
}

/// What another member does not have: the leaf is gone, through passes and restarts. One with something in it is not
/// what such an end says.
#[test]
fn a_leaf_of_nothing_is_as_if_it_had_never_been() {
    let rig = rig(43);
    rig.run(async {
        let (shard, _) = open_whole().await;
        prepare(&shard, [start(1, 1), write(1, 2, 0, 0), write(1, 3, 1, 0)]).await;
        shard.commit(GROUP, Seq(3));
        shard.pass_now().await.expect("an open shard");
        install(&shard, 0, [begin()]).await;
        install(&shard, 0, [finish(0)]).await;
        install(&shard, 1, [begin(), blocks(1, 0, 1, 9)]).await;
        install(&shard, 1, [finish(0)]).await;
        assert_eq!(shard.layer_usage(LAYER).leaves, 1);
        assert_eq!((trust(&shard, 0), trust(&shard, 1)), ((true, Seq(0)), (false, Seq(0))));
        assert_eq!(versions(&shard, 0, 1).await, [0]);
    });
    for _ in 0..2 {
        lose_power(&rig);
        rig.run(async {
            let (shard, _) = open_whole().await;
            assert_eq!(shard.layer_usage(LAYER).leaves, 1);
            assert_eq!((trust(&shard, 0), trust(&shard, 1)), ((true, Seq(0)), (false, Seq(0))));
            shard.pass_now().await.expect("an open shard");
            shard.pass_now().await.expect("an open shard");
        });
    }
}

/// A leaf ends while it is being installed: what comes later for it is nothing.
#[test]
fn a_leaf_that_is_deleted_under_an_install_stays_away() {
    let rig = rig(44);
    rig.run(async {
        let (shard, _) = open_whole().await;
        prepare(&shard, [start(1, 1), write(1, 2, 0, 0), write(1, 3, 1, 0)]).await;
        shard.commit(GROUP, Seq(3));
        let delete = EntryKind::LayerDelete { chunks: vec![ChunkId(0), ChunkId(1)] };
        prepare(&shard, [entry(1, 4, ChunkId(0), delete)]).await;
        // Of one leaf the begin is in effect, of the other it is on its way.
        install(&shard, 0, [begin(), blocks(0, 0, 4, 3)]).await;
        let last = [begin(), blocks(1, 0, 4, 3)].map(|kind| shard.prepare(entry(0, 0, ChunkId(1), kind)));
        shard.commit(GROUP, Seq(4));
        durable(&shard, last[1].clone().expect("there is room")).await;
        for chunk in [0, 1] {
            install(&shard, chunk, [blocks(chunk, 8, 4, 3)]).await;
            install(&shard, chunk, [finish(3)]).await;
        }
        assert_eq!((shard.layer_usage(LAYER).leaves, shard.statistics().live_bytes), (0, 0));
    });
    lose_power(&rig);
    rig.run(async {
        let (shard, _) = open_whole().await;
        shard.commit(GROUP, Seq(4));
        assert_eq!((shard.layer_usage(LAYER).leaves, shard.statistics().live_bytes), (0, 0));
    });
}

/// A merge takes what the leaf that ends says: from one that is not to be trusted nobody knows what. And into one: it
/// will be installed with what came from below.
#[test]
fn a_merge_from_or_into_a_leaf_that_is_installed_is_not_trusted() {
    let rig = rig(45);
    let top = LayerId(8);
    rig.run(async move {
        let (shard, _) = open_whole().await;
        let of_top = |entry: store::Entry| store::Entry { layer: top, ..entry };
        let layers = [(2, LAYER, LayerId(0)), (3, top, LAYER)].map(|(seq, layer, parent)| {
            let record = LayerRecord { layer, parent, ..LayerRecord::default() };
            store::Entry { layer, ..entry(1, seq, ChunkId(0), EntryKind::Layer { record }) }
        });
        prepare(&shard, [start(1, 1)].into_iter().chain(layers)).await;
        // Chunks 0 and 1 lack something below, chunks 2 and 3 above; of 1 and 3 the begin is on its way.
        prepare(&shard, (0..4).map(|chunk| write(1, 4 + u64::from(chunk), chunk, 0))).await;
        prepare(&shard, (0..4).map(|chunk| of_top(write(1, 8 + u64::from(chunk), chunk, 1)))).await;
        shard.commit(GROUP, Seq(11));
        let chunks = (0..4).map(ChunkId).collect();
        let merge = EntryKind::Merge { into: top, chunks, hides_below: false };
        prepare(&shard, [entry(1, 12, ChunkId(0), merge)]).await;
        install(&shard, 0, [begin(), blocks(0, 2, 1, 7)]).await;
        prepare(&shard, [of_top(entry(0, 0, ChunkId(2), begin()))]).await;
        let below = shard.prepare(entry(0, 0, ChunkId(1), begin())).expect("there is room");
        let above = shard.prepare(of_top(entry(0, 0, ChunkId(3), begin()))).expect("there is room");
        shard.commit(GROUP, Seq(12));
        durable(&shard, below.max(above)).await;
        assert_eq!(shard.layer_usage(LAYER).leaves, 0);
        let trusted =
            |shard: &store::Shard, chunk| shard.image(top, ChunkId(chunk)).expect("it is not lost").is_trusted();
        assert_eq!([0, 1, 2, 3].map(|chunk| trusted(&shard, chunk)), [false; 4]);
        shard.pass_now().await.expect("an open shard");
        // An image of before the merge lacks it, one of behind it does not.
        for (last_seq, is_enough) in [(11, false), (12, true)] {
            prepare(&shard, [of_top(entry(0, 0, ChunkId(3), blocks(3, 0, 2, 9)))]).await;
            prepare(&shard, [of_top(entry(0, 0, ChunkId(3), finish(last_seq)))]).await;
            assert_eq!(trusted(&shard, 3), is_enough);
        }
    });
    lose_power(&rig);
    rig.run(async move {
        let (shard, _) = open_whole().await;
        shard.commit(GROUP, Seq(12));
        let trusted = |chunk| shard.image(top, ChunkId(chunk)).expect("it is not lost").is_trusted();
        assert_eq!([0, 1, 2, 3].map(trusted), [false, false, false, true]);
        assert_eq!(shard.layer_usage(LAYER).leaves, 0);
    });
}

/// A snapshot of a leaf: what is written after it, cleaned away and used again does not change it.
#[test]
fn an_image_is_of_one_moment() {
    let rig = rig(46);
    rig.run(async {
        let (shard, recovery) = open_whole().await;
        let writer = moments::Writer::begin(&shard, &recovery, GROUP).await;
        for chunk in (0..5).map(ChunkId) {
            writer.write_chunk(LAYER, chunk, 1).await;
        }
        let zeroes = EntryKind::Zero { range: BlockRange::new(10, 6), hides_below: true };
        writer.ask(LAYER, ChunkId(0), zeroes).await;
        let last = writer.ask(LAYER, ChunkId(0), coded_write(ChunkId(0), BlockRange::new(20, 4), 2)).await;
        let absent = EntryKind::Zero { range: BlockRange::new(200, 56), hides_below: false };
        let last = last.max(writer.ask(LAYER, ChunkId(0), absent).await);
        writer.settle().await;
        let image = shard.image(LAYER, ChunkId(0)).expect("it is not lost");
        assert_eq!((image.last_seq(), image.is_trusted()), (last, true));
        let runs = [
            (BlockRange::new(0, 10), ImageBlock::Stored),
            (BlockRange::new(10, 6), ImageBlock::Zero),
            (BlockRange::new(16, 184), ImageBlock::Stored),
            (BlockRange::new(200, 56), ImageBlock::Absent),
        ];
        assert_eq!(image.runs().collect::<Vec<_>>(), runs);
        // All of it dies, and its segments would be used again: more than the device holds is written.
        shard.store().clean_below(u32::MAX);
        for version in 3..80 {
            for chunk in (0..5).map(ChunkId) {
                writer.write_chunk(LAYER, chunk, version).await;
            }
        }
        assert!(shard.statistics().segments_freed > 64, "{:?}", shard.statistics());
        let mut stored = image.read(BlockRange::new(0, 256)).await.expect("it is still there");
        let mut block = 0;
        stored.for_each(|found| {
            let mut expected = vec![0; BLOCK_BYTES];
            let version = if (20..24).contains(&block) { 2 } else { 1 };
            fill_block(&mut expected, ChunkId(0), block, version);
            match runs.iter().find(|run| u32::from(block) < run.0.end()).expect("they cover all").1 {
                ImageBlock::Stored => {
                    let (_, _, bytes) = found.expect("it was stored");
                    assert!(bytes == &expected[..bytes.len()], "block {block} is of another moment");
                }
                _ => assert!(found.is_none()),
            }
            block += 1;
        });
        assert_eq!(block, 256);
        let mut part = image.read(BlockRange::new(12, 6)).await.expect("it is still there");
        let mut seen = Vec::new();
        part.for_each(|found| seen.push(found.is_some()));
        assert_eq!(seen, [false, false, false, false, true, true]);
        let none = shard.image(LayerId(99), ChunkId(7)).expect("nothing is lost");
        assert_eq!((none.last_seq(), none.runs().count()), (Seq(0), 1));
    });
}

/// A walk in steps of one slot, with leaves made and ended between them, tells of each that lives all the time.
#[test]
fn a_walk_tells_of_each_leaf_that_lives_all_the_time() {
    let rig = rig(47);
    rig.run(async {
        let (shard, _) = open_whole().await;
        prepare(&shard, [start(1, 1)]).await;
        prepare(&shard, (2..42).map(|seq| write(1, seq, seq as u32, 0))).await;
        shard.commit(GROUP, Seq(41));
        let (mut cursor, mut found, mut seq) = (store::LeafCursor::default(), Vec::new(), 42);
        while shard.walk_leaves(&mut cursor, 1, &mut found) {
            let ended = ChunkId(41 - (seq as u32 - 42) / 2 % 10);
            let kind = EntryKind::LayerDelete { chunks: vec![ended] };
            prepare(&shard, [write(1, seq, 100 + seq as u32, 0), entry(1, seq + 1, ChunkId(0), kind)]).await;
            seq += 2;
            shard.commit(GROUP, Seq(seq - 1));
        }
        for lives in 2..=31u32 {
            let told = found.iter().filter(|leaf| leaf.1 == ChunkId(lives)).collect::<Vec<_>>();
            assert_eq!(told, [&(LAYER, ChunkId(lives), Seq(lives.into()))]);
        }
    });
}

#[test]
fn a_members_state_is_the_last_that_was_durable() {
    let rig = rig(48);
    let state = |text: &str| {
        let state = runtime::IoBuf::copy_of(text.as_bytes()).freeze();
        entry(0, 0, ChunkId(0), EntryKind::MemberState { state })
    };
    let found = |recovery: &store::Recovery| recovery.groups[0].member_state.clone();
    rig.run(async move {
        let (shard, _) = open_whole().await;
        let position = shard.prepare(state("first")).expect("there is room");
        assert_eq!(shard.member_state(GROUP), b"", "it is not durable yet");
        durable(&shard, position).await;
        assert_eq!(shard.member_state(GROUP), b"first");
        prepare(&shard, [start(1, 1), state("second"), write(1, 2, 0, 0)]).await;
        assert_eq!(shard.prepared_through(GROUP), Seq(2), "it takes no place in the order");
    });
    lose_power(&rig);
    rig.run(async move {
        let (shard, recovery) = open_whole().await;
        assert_eq!(found(&recovery).as_deref(), Some(&b"second"[..]));
        // The pass holds it, and what is written beside the pass is not lost to it.
        shard.pass_now().await.expect("an open shard");
        let passing = shard.clone();
        runtime::spawn(async move { passing.pass_now().await.expect("an open shard") });
        for number in 0..40 {
            prepare(&shard, [state(&format!("{number}"))]).await;
        }
        shard.pass_now().await.expect("an open shard");
    });
    lose_power(&rig);
    rig.run(async move {
        let (shard, recovery) = open_whole().await;
        assert_eq!(found(&recovery).as_deref(), Some(&b"39"[..]));
        let empty = entry(0, 0, ChunkId(0), EntryKind::MemberState { state: runtime::IoBuf::new(0).freeze() });
        prepare(&shard, [state(&"x".repeat(store::MAX_MEMBER_STATE_BYTES)), empty]).await;
        let too_long = state(&"x".repeat(store::MAX_MEMBER_STATE_BYTES + 1));
        assert!(shard.prepare(too_long).is_err());
    });
    lose_power(&rig);
    rig.run(async move {
        let (_, recovery) = open_whole().await;
        assert_eq!(found(&recovery), None);
    });
}

/// At every moment: what was told to be durable, or what was asked for behind it.
#[test]
fn a_members_state_survives_at_every_moment() {
    let rig = rig(49);
    let shard = rig.run(async {
        let (shard, _) = open_whole().await;
        prepare(&shard, [start(1, 1), write(1, 2, 0, 0)]).await;
        shard.commit(GROUP, Seq(2));
        shard
    });
    let state = |number: u64| {
        let state = runtime::IoBuf::copy_of(&number.to_le_bytes()).freeze();
        entry(0, 0, ChunkId(0), EntryKind::MemberState { state })
    };
    let known = std::rc::Rc::new(std::cell::Cell::new((0, 0)));
    let told = known.clone();
    let task = async move {
        let passing = shard.clone();
        runtime::spawn(async move { while passing.pass_now().await.is_ok() {} });
        for number in 1..12 {
            told.set((number, number - 1));
            prepare(&shard, [state(number)]).await;
            told.set((number, number));
        }
    };
    let moments = rig.at_every_moment(1, task, |image| {
        let (asked, durable) = known.get();
        let (_, recovery) = image.open();
        assert_eq!(recovery.damage, []);
        let found = recovery.groups[0].member_state.as_ref();
        let found = found.map_or(0, |state| u64::from_le_bytes(state[..].try_into().expect("eight bytes")));
        assert!((durable..=asked).contains(&found), "{found}, asked for {asked}, durable {durable}");
    });
    assert!(moments > 30, "{moments}");
}

/// Entries outside the order have no sequence that a later one could show to be missing: where a record is lost, a
/// group that has such entries may lack one, and is told to be damaged; another one, of which all is there, is not.
#[test]
fn a_group_that_may_lack_an_install_is_damaged() {
    for in_the_pass in [true, false] {
        let rig = rig_of_4_kib(50);
        let other = |entry: store::Entry| store::Entry { group: GroupId(2), ..entry };
        rig.run(async move {
            let (shard, _) = open_whole().await;
            prepare(&shard, [start(1, 1), other(start(1, 1))]).await;
            let state = runtime::IoBuf::copy_of(b"behind").freeze();
            prepare(&shard, [entry(0, 0, ChunkId(0), EntryKind::MemberState { state })]).await;
            shard.commit(GROUP, Seq(1));
            shard.commit(GroupId(2), Seq(1));
            if in_the_pass {
                shard.pass_now().await.expect("an open shard");
            }
            install(&shard, 0, [begin()]).await;
            install(&shard, 0, [blocks(0, 0, 1, 77)]).await;
            prepare(&shard, [write(1, 2, 1, 0), other(write(1, 2, 5, 0))]).await;
        });
        spoil_record_of(&rig, 0, 0, 77);
        let (_, recovery) = rig.open();
        assert!(!recovery.damage.is_empty());
        let damaged: Vec<_> = recovery.groups.iter().map(|group| (group.group, group.damaged)).collect();
        assert_eq!(damaged, [(GROUP, true), (GroupId(2), false)], "with the state in a pass: {in_the_pass}");
    }
}

/// What changed alone is installed: each loss of power leaves the old leaf, one that is not to be trusted, or the new one.
#[test]
fn what_is_kept_by_an_install_stays_at_every_moment() {
    let (old, new) = ([2, 2, 2, 2, 0, 0], [2, 9, 0, 2, 9, 0]);
    let rig = rig(43);
    let shard = rig.run(async {
        let (shard, _) = open_whole().await;
        let range = BlockRange::new(0, 4);
        let write = EntryKind::write(range, bytes_of(ChunkId(0), range, 2));
        prepare(&shard, [start(1, 1), entry(1, 2, ChunkId(0), write)]).await;
        shard.commit(GROUP, Seq(2));
        shard
    });
    let passing = shard.clone();
    let task = async move {
        runtime::spawn(async move { while passing.pass_now().await.is_ok() {} });
        install(&shard, 0, [EntryKind::InstallBegin { keeps: true }]).await;
        let absent = EntryKind::InstallZero { range: BlockRange::new(2, 1), hides_below: false };
        install(&shard, 0, [blocks(0, 1, 1, 9), absent, blocks(0, 4, 1, 9)]).await;
        install(&shard, 0, [finish(9)]).await;
        runtime::sleep(std::time::Duration::from_millis(5)).await;
    };
    let mut met = [0; 3];
    let judge = || async move {
        let (shard, recovery) = open_whole().await;
        assert_eq!(recovery.damage, []);
        shard.commit(GROUP, Seq(2));
        match trust(&shard, 0) {
            (false, seq) => (1, vec![seq.0]),
            (true, Seq(2)) => (0, versions(&shard, 0, 6).await),
            (true, _) => (2, versions(&shard, 0, 6).await),
        }
    };
    rig.at_every_moment(1, task, |image| {
        let (which, seen) = image.run(judge());
        let due: [&[u64]; 3] = [&old, &[0], &new];
        assert_eq!(seen, due[which]);
        met[which] += 1;
    });
    assert!(met.iter().all(|count| *count > 2), "{met:?}");
    lose_power(&rig);
    assert_eq!(rig.run(judge()), (2, new.to_vec()));
}

/// Replay would find in the leaf what the entry replaced, and its segment may hold something else by then.
#[test]
fn an_entry_beside_a_begin_that_keeps_stops_the_store() {
    let rig = rig(44);
    rig.run(async {
        let (shard, _) = open_whole().await;
        prepare(&shard, [start(1, 1), write(1, 2, 0, 0), write(1, 3, 0, 1)]).await;
        shard.commit(GROUP, Seq(2));
        shard.prepare(entry(0, 0, ChunkId(0), EntryKind::InstallBegin { keeps: true })).expect("there is room");
        shard.commit(GROUP, Seq(3));
        runtime::sleep(std::time::Duration::from_millis(50)).await;
        assert!(shard.store().failed().is_some());
    });
}
