//! The simulated map keeps the suite, without faults and with those under which each statement still has to hold.

use crate::suite::{self, Subject};
use cluster::{MapCounts, MapFaults, SimMap};
use runtime::sim::{NodeOptions, World};
use std::time::Duration;

/// Requests and answers that get lost or come late, watches that lag, leaders that change. History that goes by itself
/// is not among them: a watch may then rightly be told to list again.
pub const NETWORK_FAULTS: MapFaults = MapFaults {
    latency_max: Duration::from_millis(5),
    requests_lost: 100,
    answers_lost: 100,
    requests_late: 100,
    late_max: Duration::from_secs(2),
    watches_late: 300,
    watch_lag_max: Duration::from_secs(1),
    leader_changes: 20,
    ..MapFaults::NONE
};

fn run(seed: u64, faults: MapFaults) -> MapCounts {
    let world = World::new(seed);
    let node = world.add_node(1, NodeOptions::default());
    let map = SimMap::new();
    map.set_faults(faults);
    let suites = map.clone();
    let done = world.run_on(&node, 0, async move {
        let subject = Subject {
            map: &*suites,
            lease_time: Duration::from_secs(60),
            late_max: faults.late_max,
            heard_within: Duration::from_millis(50),
        };
        suite::run(&subject).await;
    });
    assert_eq!(done, Ok(()), "seed {seed}");
    map.counts()
}

#[test]
fn the_simulated_map_keeps_the_suite() {
    assert_eq!(run(1, MapFaults::NONE), MapCounts::default(), "nothing goes wrong of itself");
}

#[test]
fn a_slow_simulated_map_keeps_the_suite() {
    let latency_max = Duration::from_millis(2);
    assert_eq!(run(2, MapFaults { latency_max, ..MapFaults::NONE }), MapCounts::default());
}

#[test]
fn the_simulated_map_keeps_the_suite_whatever_the_network_does() {
    for seed in 1..=20 {
        let counts = run(seed, NETWORK_FAULTS);
        let MapCounts { requests_lost, answers_lost, requests_late, watches_late, leader_changes, .. } = counts;
        let all = [requests_lost, answers_lost, requests_late, watches_late, leader_changes];
        assert!(all.iter().all(|count| *count > 0), "seed {seed}: {counts:?}");
    }
}
