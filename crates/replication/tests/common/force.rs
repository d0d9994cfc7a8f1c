//! R24: an operator says whose copy counts, where nobody can know.

use super::common::{Cluster, SOON, store_of};
use super::old_maps::{one_of_two, why_stopped};
#[cfg(feature = "mutants")]
use super::rules::poisoned;
use super::rules::{SECOND, assert_alike};
use types::Epoch;
#[cfg(feature = "mutants")]
use types::Mutant;

/// What an operator does; `known`: the newest epoch that he was told of.
fn force(cluster: &Cluster, index: usize, known: Epoch) {
    cluster.put(&cluster.record().forced_by(store_of(index), known).expect("it is a member"));
}

fn read(cluster: &Cluster, index: usize, chunk: u32) -> u8 {
    cluster.read(index, chunk).expect("it is up").expect("it is read")
}

/// Whoever had more is lost, and another copy is what there is. Should the lost one come back after all, it is no more than a
/// copy of that.
pub fn an_older_copy_leads_if_that_is_said() {
    let (cluster, _) = one_of_two();
    cluster.crash(1);
    cluster.wait_until("it is not removed", SOON, |cluster| cluster.record().in_sync == [store_of(0)]);
    for chunk in [1, 2, 3, 1, 2, 3, 1, 2, 3] {
        cluster.write(0, chunk, 7).expect("it is up").expect("one is enough");
    }
    cluster.crash(0);
    cluster.start(1);
    for _ in 0..100 {
        cluster.world.run_for(SECOND / 10);
        assert!(cluster.standing(1).is_some_and(|standing| !standing.serves), "it lacks what was acknowledged");
    }
    force(&cluster, 1, Epoch(0));
    cluster.wait_for_primary(&[1], 3 * SOON);
    assert_eq!(read(&cluster, 1, 1), 6);
    // Fewer than the other has, of which it must not be said that they are the same.
    for chunk in 1..3 {
        cluster.write(1, chunk, 8).expect("it is up").expect("one is enough");
    }
    cluster.start(0);
    let is_back = |cluster: &Cluster| cluster.record().in_sync.len() == 2;
    cluster.wait_until("it does not come back", 6 * SOON, is_back);
    cluster.world.run_for(SECOND);
    assert_alike(&cluster, 0, 1);
    cluster.crash(1);
    let primary = cluster.wait_for_primary(&[0], 3 * SOON);
    assert_eq!(read(&cluster, primary, 1), 8);
}

/// Who was said to count is lost after more was written there, and the other is said to: the first comes back as a copy of that.
pub fn who_counted_gives_way_to_who_counts_now() {
    let (cluster, _) = one_of_two();
    cluster.crash(1);
    cluster.wait_until("it is not removed", SOON, |cluster| cluster.record().in_sync == [store_of(0)]);
    cluster.write(0, 1, 7).expect("it is up").expect("one is enough");
    cluster.crash(0);
    cluster.start(1);
    force(&cluster, 1, Epoch(0));
    cluster.wait_for_primary(&[1], 3 * SOON);
    for _ in 0..5 {
        cluster.write(1, 1, 8).expect("it is up").expect("one is enough");
    }
    cluster.crash(1);
    cluster.start(0);
    force(&cluster, 0, Epoch(0));
    cluster.wait_for_primary(&[0], 3 * SOON);
    assert_eq!(read(&cluster, 0, 1), 7);
    cluster.start(1);
    cluster.wait_until("it does not come back", 6 * SOON, |cluster| cluster.record().in_sync.len() == 2);
    cluster.world.run_for(SECOND);
    assert_alike(&cluster, 0, 1);
}

/// Two were acknowledged by two maps, and one of them has stopped: the operator says that it is to be that one.
pub fn a_copy_that_has_stopped_leads_if_that_is_said() {
    let (cluster, backup) = one_of_two();
    cluster.crash(1);
    cluster.wait_until("it is not removed", SOON, |cluster| cluster.record().in_sync == [store_of(0)]);
    cluster.write(0, 1, 7).expect("it is up").expect("one is enough");
    cluster.crash(0);
    cluster.map.restore(&backup);
    cluster.start(1);
    cluster.wait_for_primary(&[1], 3 * SOON);
    cluster.write(1, 1, 8).expect("it is up").expect("one is enough");
    cluster.start(0);
    cluster.wait_until("it does not stop", 3 * SOON, |cluster| why_stopped(cluster, 0).is_some());
    let known = (0..2).filter_map(|index| cluster.standing(index)).map(|standing| standing.record.epoch).max();
    force(&cluster, 0, known.expect("both are up"));
    // Who has stopped hears of it when its node starts anew.
    cluster.crash(0);
    cluster.start(0);
    cluster.wait_for_primary(&[0], 6 * SOON);
    assert_eq!(read(&cluster, 0, 1), 7);
    cluster.wait_until("it does not follow", 6 * SOON, |cluster| cluster.record().in_sync.len() == 2);
    cluster.world.run_for(SECOND);
    assert_alike(&cluster, 0, 1);
}

/// The entry that stops whoever applies it is given up, in lives that go on and in later ones.
#[cfg(feature = "mutants")]
pub fn a_poisoned_group_goes_on_if_that_is_said() {
    Mutant::activate(Some(Mutant::AssertionFails));
    for starts_anew in [false, true] {
        let cluster = poisoned();
        let alive = 1;
        force(&cluster, alive, Epoch(0));
        if starts_anew {
            cluster.crash(alive);
            cluster.start(alive);
        }
        let primary = cluster.wait_for_primary(&[alive], 6 * SOON);
        cluster.write(primary, 2, 9).expect("it is up").expect("two are enough");
        assert_eq!(read(&cluster, primary, 2), 9);
    }
}
