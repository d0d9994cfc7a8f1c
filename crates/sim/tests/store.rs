//! The store survives ten thousand crashes, and a run is the same run twice.

use sim::runner::{self, Plan};
use sim::workload::{RunOptions, Workload};

fn store() -> &'static Workload {
    Workload::named("store").expect("it is one of the workloads")
}

#[test]
fn ten_thousand_crashes_lose_nothing_that_was_acknowledged() {
    let summary = runner::run(store(), &Plan::new(store(), 1..141)).unwrap_or_else(|failed| panic!("{failed}"));
    println!("{summary:?}");
    assert!(summary.total.crashes >= 10_000, "only {} crashes", summary.total.crashes);
    assert!(summary.total.answered >= 100_000, "only {} operations were answered", summary.total.answered);
}

#[test]
fn a_run_of_a_hundred_thousand_operations_and_many_crashes_is_the_same_twice() {
    let run = || {
        let plan = Plan { crashes: 600, ..Plan::new(store(), 7..8) };
        let options = RunOptions { seed: plan.seeds.start, crashes: plan.crashes, trace: false };
        runner::run_seed(store(), &options).unwrap_or_else(|failure| panic!("{failure}"))
    };
    let first = run();
    assert!(first.operations >= 100_000 && first.crashes >= 10, "{first:?}");
    assert_eq!(first, run());
}
