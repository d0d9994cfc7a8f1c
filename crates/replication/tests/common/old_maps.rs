//! R11: a map that was restored from a backup knows less than members do, and gives epochs again.

use super::common::{Cluster, SOON, store_of};
use super::rules::{MILLISECOND, SECOND, assert_alike};
use types::Epoch;

pub fn why_stopped(cluster: &Cluster, index: usize) -> Option<String> {
    cluster.standing(index).and_then(|standing| standing.stopped)
}

/// Two members, one of which is enough; the second is not reached, and has heard from the map that it is out. What is
/// written then the first has alone.
pub fn one_of_two() -> (Cluster, cluster::MapBackup) {
    let cluster = Cluster::new(1, 2, 1);
    (0..2).for_each(|index| cluster.start(index));
    cluster.wait_for_primary(&[0], SOON);
    cluster.write(0, 1, 6).expect("it is up").expect("it is written");
    cluster.wait_for_all(SOON);
    let backup = cluster.map.backup();
    (cluster, backup)
}

/// Nobody may serve what was there before that, whatever the map says.
fn assert_only_newest_is_served(cluster: &Cluster, index: usize) {
    for _ in 0..100 {
        cluster.world.run_for(100 * MILLISECOND);
        let standing = cluster.standing(index);
        assert!(standing.is_some_and(|standing| !standing.serves), "it serves an older state: {:#?}", cluster.told());
    }
}

/// A member that heard of an epoch, and has no entry of it, starts anew, alone, by a map that has forgotten it.
pub fn what_a_member_heard_of_outlives_it() {
    let (cluster, backup) = one_of_two();
    cluster.cut(0, 1);
    cluster.cut(1, 0);
    let epoch_of = |cluster: &Cluster, index| cluster.standing(index).map_or(Epoch(0), |known| known.record.epoch);
    let is_out = |cluster: &Cluster| cluster.record().in_sync == [store_of(0)];
    cluster.wait_until("it is not removed", SOON, is_out);
    cluster.write(0, 1, 7).expect("it is up").expect("one is enough");
    let has_heard = |cluster: &Cluster| epoch_of(cluster, 1) == cluster.record().epoch;
    cluster.wait_until("it is not told", SOON, has_heard);
    cluster.world.run_for(SECOND);
    (0..2).for_each(|index| cluster.crash(index));
    cluster.map.restore(&backup);
    cluster.start(1);
    let stops =
        |cluster: &Cluster| why_stopped(cluster, 1).is_some() || cluster.standing(1).is_some_and(|it| it.serves);
    cluster.wait_until("it neither stops nor serves", 3 * SOON, stops);
    assert!(why_stopped(&cluster, 1).is_some_and(|why| why.contains("went back in time")), "{:#?}", cluster.told());
}

/// A member that never heard of an epoch goes by a map that has forgotten it; the one that did has stopped, and says so.
pub fn a_member_that_has_stopped_says_what_it_knows() {
    let (cluster, backup) = one_of_two();
    cluster.crash(1);
    let is_out = |cluster: &Cluster| cluster.record().in_sync == [store_of(0)];
    cluster.wait_until("it is not removed", SOON, is_out);
    cluster.write(0, 1, 7).expect("it is up").expect("one is enough");
    cluster.crash(0);
    cluster.map.restore(&backup);
    cluster.start(0);
    cluster.wait_until("it goes by an older map", 3 * SOON, |cluster| why_stopped(cluster, 0).is_some());
    cluster.start(1);
    assert_only_newest_is_served(&cluster, 1);
    assert!(why_stopped(&cluster, 1).is_some_and(|why| why.contains("went back in time")), "{:#?}", cluster.told());
}

/// Member 0 wrote in an epoch that the map has forgotten, of which nobody else knows, and was away when it came again: what
/// it has of that epoch is not what the others have, though epoch and sequence are the same.
pub fn entries_of_an_epoch_that_came_twice_are_told_apart() {
    let cluster = Cluster::new(1, 3, 2);
    (0..3).for_each(|index| cluster.start(index));
    cluster.wait_for_primary(&[0], SOON);
    cluster.write(0, 1, 1).expect("it is up").expect("it is written");
    cluster.wait_for_all(SOON);
    let backup = cluster.map.backup();
    // One after the other, so that there are two epochs; of neither anything reaches another.
    cluster.crash(1);
    cluster.world.run_for(800 * MILLISECOND);
    cluster.crash(2);
    cluster.wait_until("they are not removed", 2 * SOON, |cluster| cluster.record().in_sync == [store_of(0)]);
    cluster.world.run_for(SECOND);
    let alone = cluster.standing(0).expect("it is up").record.epoch;
    for chunk in 2..6 {
        cluster.submit(0, chunk, 3, 2).expect("it is up").expect("it has a place, and is never committed");
    }
    cluster.world.run_for(SECOND);
    cluster.crash(0);
    cluster.map.restore(&backup);
    cluster.start(1);
    cluster.start(2);
    let primary = cluster.wait_for_primary(&[1, 2], 3 * SOON);
    assert!(cluster.record().epoch <= alone, "the epoch comes again: {} behind {alone}", cluster.record().epoch);
    for chunk in 2..12 {
        cluster.write(primary, chunk, 3).expect("it is up").expect("it is written");
    }
    while cluster.record().epoch <= alone {
        cluster.crash(3 - primary);
        cluster.world.run_for(3 * SECOND);
        cluster.start(3 - primary);
        cluster.wait_until("it is not back", SOON, |cluster| cluster.record().in_sync.len() == 2);
    }
    cluster.start(0);
    cluster.wait_for_all(3 * SOON);
    cluster.world.run_for(SECOND);
    assert_alike(&cluster, 0, 1);
    assert_alike(&cluster, 0, 2);
}
