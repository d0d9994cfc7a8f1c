//! Whole clusters survive what goes wrong, and a run is the same run twice. Many more seeds: `make sim`.

use sim::runner::{self, Plan};
use sim::workload::{RunOptions, Workload};

fn cluster() -> &'static Workload {
    Workload::named("cluster").expect("it is one of the workloads")
}

#[test]
fn what_goes_wrong_in_a_cluster_loses_nothing_and_heals() {
    let summary = runner::run(cluster(), &Plan::new(cluster(), 1..31)).unwrap_or_else(|failed| panic!("{failed}"));
    let total = summary.total;
    assert!(total.answered > 50_000 && total.reigns > 300 && total.crashes > 50, "{total}");
    assert!(total.faults.iter().filter(|count| **count > 0).count() > 18, "{total}");
}

#[test]
fn heads_reach_groups_wherever_they_are_led() {
    let heads = Workload::named("heads").expect("it is one of the workloads");
    let summary = runner::run(heads, &Plan::new(heads, 1..16)).unwrap_or_else(|failed| panic!("{failed}"));
    let total = summary.total;
    assert!(total.answered > 25_000 && total.far > 15_000 && total.reigns > 150 && total.crashes > 25, "{total}");
}

fn hosts() -> &'static Workload {
    Workload::named("hosts").expect("it is one of the workloads")
}

#[test]
fn hosts_that_send_again_what_they_gave_up_lose_nothing_while_heads_move() {
    let summary = runner::run(hosts(), &Plan::new(hosts(), 1..17)).unwrap_or_else(|failed| panic!("{failed}"));
    let total = summary.total;
    assert!(total.answered > 15_000 && total.resent > 50 && total.resets > 10 && total.crashes > 30, "{total}");
    assert!(total.snapshots > 10 && total.clones > 0, "{total}");
}

#[test]
fn a_run_of_a_cluster_is_the_same_run_twice() {
    for (workload, seed) in [(cluster(), 1), (cluster(), 5), (cluster(), 6), (hosts(), 1), (hosts(), 4)] {
        let run =
            || runner::run_seed(workload, &RunOptions::new(seed, 0)).unwrap_or_else(|failure| panic!("{failure}"));
        assert_eq!(run(), run(), "{} seed {seed}", workload.name);
    }
}

#[test]
fn faults_that_are_left_out_do_not_happen_and_operations_are_no_more_than_asked_for() {
    let seed = 5;
    let faults = (cluster().faults)(&RunOptions::new(seed, 0)).len() as u32;
    assert!(faults > 3);
    let options = RunOptions { without: (2..=faults).collect(), operations: Some(10), ..RunOptions::new(seed, 0) };
    let report = runner::run_seed(cluster(), &options).unwrap_or_else(|failure| panic!("{failure}"));
    assert_eq!(report.faults.iter().sum::<u64>(), 1);
    // Besides those of clients, each group is read once, and written to, when all is over.
    let whole = runner::run_seed(cluster(), &RunOptions::new(seed, 0)).unwrap_or_else(|failure| panic!("{failure}"));
    assert!(report.operations < whole.operations / 2, "{report} {whole}");
}
