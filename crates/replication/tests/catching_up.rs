//! A member is made whole while something else goes wrong.

mod common;

use cluster::MapFaults;
use common::{SOON, store_of};
use std::time::Duration;
use types::NodeId;

/// Who is in sync is fewer than what has to be: only a member that comes back chunk by chunk can help.
#[test]
fn a_member_comes_back_chunk_by_chunk_although_too_few_are_in_sync() {
    let cluster = common::three();
    cluster.wait_for_primary(&[0], SOON);
    cluster.tell_layer(0).expect("it is up").expect("it has a place");
    for chunk in 0..10 {
        cluster.write(0, chunk, 7).expect("it is up").expect("it is written");
    }
    cluster.crash(2);
    for round in 0..40 {
        for chunk in 2..30 {
            cluster.write(0, chunk, round + 10).expect("it is up").expect("it is written");
        }
    }
    assert_eq!(cluster.record().in_sync, [store_of(0), store_of(1)]);
    // It never comes back.
    cluster.crash(1);
    cluster.world.run_for(Duration::from_secs(3));
    // It may be the primary that nobody hears, until it hears somebody or that has lasted.
    assert_eq!(cluster.record().in_sync, [store_of(0), store_of(1)]);
    cluster.start(2);
    let until = cluster.world.now() + 4 * SOON;
    while cluster.record().in_sync.len() < 2 {
        assert!(cluster.world.now() < until, "it waits for ever");
        cluster.world.run_for(Duration::from_millis(100));
    }
    cluster.write(0, 3, 99).expect("it is up").expect("it is written");
    cluster.world.run_for(Duration::from_secs(1));
    assert_eq!(cluster.digests(0), cluster.digests(2));
}

/// A primary finds damage while one other is in sync: who takes over mends it, although it is alone for a while.
#[test]
fn damage_is_mended_when_two_are_left() {
    let cluster = common::three();
    cluster.wait_for_primary(&[0], SOON);
    for chunk in 0..4 {
        cluster.write(0, chunk, 0xb0 + chunk as u8).expect("it is up").expect("it is written");
    }
    cluster.crash(2);
    cluster.world.run_for(Duration::from_secs(3));
    assert_eq!(cluster.record().in_sync, [store_of(0), store_of(1)]);
    cluster.disks[0].rot_sector(&[0xb2; 32]).expect("it is on the disk");
    let _ = cluster.read(0, 2);
    let primary = cluster.wait_for_primary(&[0, 1], 4 * SOON);
    assert_eq!(cluster.read(primary, 2).expect("it is up"), Ok(0xb2));
    let until = cluster.world.now() + 4 * SOON;
    while cluster.record().in_sync.len() < 2 {
        assert!(cluster.world.now() < until, "it waits for ever");
        cluster.world.run_for(Duration::from_millis(100));
    }
    cluster.write(primary, 3, 99).expect("it is up").expect("it is written");
}

/// A primary comes back without what it had acknowledged; the others have applied it, and cannot give it entry by entry.
#[test]
fn a_primary_that_lost_its_tail_lets_another_lead() {
    let cluster = common::three();
    cluster.wait_for_primary(&[0], SOON);
    cluster.write(0, 1, 1).expect("it is up").expect("it is written");
    cluster.world.run_for(Duration::from_millis(500));
    let before = cluster.disks[0].after_power_loss(1);
    for chunk in 0..5 {
        cluster.write(0, chunk, 0x77).expect("it is up").expect("it is written");
    }
    cluster.world.run_for(Duration::from_millis(500));
    cluster.crash(0);
    cluster.disks[0].insert(&before);
    cluster.start(0);
    cluster.world.run_for(Duration::from_millis(500));
    let primary = cluster.wait_for_primary(&[0, 1, 2], 3 * SOON);
    for chunk in 0..5 {
        assert_eq!(cluster.read(primary, chunk).expect("it is up"), Ok(0x77), "chunk {chunk}");
    }
    cluster.wait_for_all(3 * SOON);
    assert_eq!(cluster.digests(0), cluster.digests(1));
}

/// Two are left, and the primary has damage that nobody reads: it is found, and the member that was away comes back.
#[test]
fn damage_that_nobody_reads_keeps_nobody_away_when_two_are_left() {
    let cluster = common::three();
    cluster.wait_for_primary(&[0], SOON);
    cluster.crash(2);
    for chunk in 0..4 {
        cluster.write(0, chunk, 0xc0 + chunk as u8).expect("it is up").expect("it is written");
    }
    for round in 0..1200 {
        cluster.write(0, 10 + round % 10, 9).expect("it is up").expect("it is written");
    }
    cluster.world.run_for(Duration::from_secs(3));
    assert_eq!(cluster.record().in_sync, [store_of(0), store_of(1)]);
    cluster.disks[0].rot_sector(&[0xc1; 32]).expect("it is on the disk");
    cluster.start(2);
    cluster.wait_for_all(6 * SOON);
    cluster.world.run_for(Duration::from_secs(1));
    assert_eq!(cluster.digests(0), cluster.digests(2));
    // It is mended: whoever looks finds nothing more.
    for _ in 0..100 {
        cluster.world.run_for(Duration::from_millis(200));
        assert_eq!(cluster.record().in_sync.len(), 3);
    }
}

/// Writers that never pause are ahead of it for ever: they wait for a moment.
#[test]
fn a_member_with_a_slower_device_is_added_while_clients_write() {
    let cluster = common::three();
    cluster.wait_for_primary(&[0], SOON);
    cluster.crash(2);
    cluster.wait_until("two are in sync", SOON, |cluster| cluster.record().in_sync.len() == 2);
    cluster.disks[2].set_delay(Duration::from_millis(15));
    cluster.start(2);
    cluster.world.run_for(Duration::from_secs(1));
    let until = cluster.world.now() + SOON;
    let mut round = 0;
    while cluster.record().in_sync.len() < 3 {
        assert!(cluster.world.now() < until, "it is not added: {:#?}", cluster.told());
        for _ in 0..8 {
            round += 1;
            cluster.submit(0, round % 20, round / 20 % 200, round as u8).expect("it is up").expect("it has a place");
        }
        cluster.world.run_for(Duration::from_millis(2));
    }
    cluster.write(0, 1, 99).expect("it is up").expect("it is written");
    cluster.world.run_for(Duration::from_secs(1));
    assert_eq!(cluster.digests(0), cluster.digests(2));
}

/// A primary that stood still has heard nobody meanwhile, and takes nobody out for that.
#[test]
fn who_slept_takes_nobody_out() {
    for sleep in [1400, 1450, 1500, 1550, 1600, 1650, 1700] {
        let cluster = common::three();
        cluster.wait_for_primary(&[0], SOON);
        cluster.nodes[0].pause();
        cluster.world.run_for(Duration::from_millis(sleep));
        cluster.nodes[0].resume();
        for _ in 0..100 {
            cluster.world.run_for(Duration::from_millis(5));
            let record = cluster.record();
            assert_eq!(record.in_sync.len(), 3, "after {sleep} ms: {record:?}");
        }
    }
}

/// A primary finds damage and gives the group up while the map makes a change that it asked for: the new record names it
/// once more, and it cannot lead.
#[test]
fn a_change_that_is_done_after_its_primary_gave_up_stops_nobody() {
    for offset in (0..1500).step_by(30) {
        let cluster = common::three();
        cluster.wait_for_primary(&[0], SOON);
        for chunk in 0..4 {
            cluster.write(0, chunk, 0xb0 + chunk as u8).expect("it is up").expect("it is written");
        }
        cluster.crash(2);
        cluster.world.run_for(Duration::from_secs(3));
        assert_eq!(cluster.record().in_sync, [store_of(0), store_of(1)]);
        cluster.disks[0].rot_sector(&[0xb2; 32]).expect("it is on the disk");
        cluster.map.set_faults(MapFaults { latency_max: Duration::from_millis(300), ..MapFaults::default() });
        cluster.start(2);
        cluster.world.run_for(Duration::from_millis(offset));
        let _ = cluster.read(0, 2);
        let primary = cluster.wait_for_primary(&[0, 1, 2], 4 * SOON);
        assert_eq!(cluster.read(primary, 2).expect("it is up"), Ok(0xb2), "after {offset} ms");
    }
}

/// The primary alone cannot reach the map when a member dies: another member, which can, is to lead.
#[test]
fn a_primary_that_alone_cannot_reach_the_map_gives_the_group_up() {
    let cluster = common::three();
    cluster.wait_for_primary(&[0], SOON);
    cluster.map.set_cut_off(NodeId(1), true);
    cluster.crash(2);
    cluster.world.run_for(2 * SOON);
    cluster.wait_for_primary(&[0, 1], 2 * SOON);
}

/// The only one in sync starts anew, and whoever is left lacks what no entry brings: before its first entry a primary
/// makes nobody whole.
#[test]
fn a_primary_that_is_alone_and_starts_anew_makes_others_whole() {
    let cluster = common::three();
    cluster.wait_for_primary(&[0], SOON);
    cluster.crash(2);
    for round in 0..1200 {
        cluster.write(0, 10 + round % 10, 9).expect("it is up").expect("it is written");
    }
    cluster.crash(1);
    cluster.world.run_for(Duration::from_secs(3));
    cluster.crash(0);
    cluster.start(0);
    cluster.start(2);
    cluster.wait_for_primary(&[0, 2], 6 * SOON);
}
