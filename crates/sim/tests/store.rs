//! The store and a whole node survive crashes, and a run is the same run twice. The ten thousand crashes of every test
//! run, the comparison of two builds and the mutants are in `e2e/sim.sh`: optimised they take a fraction of the time.

use sim::runner::{self, Plan};
use sim::workload::{Report, RunOptions, Workload};

fn workload(name: &str) -> &'static Workload {
    Workload::named(name).expect("it is one of the workloads")
}

fn crashes(name: &str, seeds: std::ops::Range<u64>) -> Report {
    let workload = workload(name);
    runner::run(workload, &Plan::new(workload, seeds)).unwrap_or_else(|failed| panic!("{failed}")).total
}

#[test]
fn crashes_of_a_store_lose_nothing_that_was_acknowledged() {
    let total = crashes("store", 1..16);
    assert!(total.crashes >= 1_000 && total.answered >= 50_000, "{total:?}");
}

#[test]
fn crashes_of_a_node_lose_nothing_that_was_acknowledged() {
    let total = crashes("volume", 1..9);
    assert!(total.crashes >= 200 && total.answered >= 5_000, "{total:?}");
}

/// The seed that found it: an NVMe/TCP host, which cannot ask for block status, was judged to have been answered while the
/// volume was locked.
#[test]
fn what_a_door_cannot_be_asked_is_no_answer_of_a_locked_volume() {
    assert!(crashes("volume", 1000..1001).locks > 0);
}

#[test]
fn a_run_is_the_same_run_twice() {
    for name in ["store", "volume"] {
        let workload = workload(name);
        let options = RunOptions::new(7, workload.default_crashes);
        let run = || runner::run_seed(workload, &options).unwrap_or_else(|failure| panic!("{name}: {failure}"));
        assert_eq!(run(), run(), "{name}");
    }
}
