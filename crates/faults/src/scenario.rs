//! One fault each: load runs, the fault comes, the load goes on within 30 s, status says why, all becomes whole again, and what
//! clients saw is judged.

use crate::cluster::{Cluster, signal};
use crate::load::Load;
use libc::{SIGCONT, SIGKILL, SIGSTOP};
use sim::checker;
use std::time::{Duration, Instant};

/// Name and fault.
pub type Scenario = (&'static str, fn());

/// All of them.
pub const ALL: [Scenario; 7] = [
    ("paused-head", paused_head),
    ("primary-killed", primary_killed),
    ("head-killed", head_killed),
    ("power-cut", power_cut),
    ("two-at-once", two_at_once),
    ("rolling-restart", rolling_restart),
    ("etcd-killed", etcd_killed),
];

/// Load before the fault.
const BEFORE: Duration = Duration::from_secs(2);
/// Longer than a lease and a session last, than a host waits for an answer, and than it takes others to go on.
const PAUSED: Duration = Duration::from_secs(20);

struct Run {
    cluster: Cluster,
    load: Load,
}

impl Run {
    /// A cluster under load; NBD at a node that is not hurt.
    fn new(nodes: usize, nbd_node: usize) -> Self {
        let cluster = Cluster::new(nodes, "512M");
        let load = Load::start(cluster.target(Some(nbd_node)), 1);
        cluster.until_answered("the load runs", &load);
        cluster.pause(BEFORE, &load);
        Self { cluster, load }
    }

    /// All is whole again; what clients saw is judged, and what devices hold.
    fn judge(self) {
        let Self { cluster, load } = self;
        cluster.until("the cluster is whole again", Some(&load), Cluster::is_whole);
        cluster.until_answered("the load goes on", &load);
        let outcome = load.finish();
        let (operations, completed, resent) = (outcome.history.operations().len(), outcome.completed, outcome.resent);
        println!("      {operations} operations, {completed} commands answered, {resent} sent again");
        for cause in cluster.causes.borrow().iter() {
            println!("      status said: {cause}");
        }
        assert!(outcome.wrong.is_empty(), "{} answers are wrong: {:#?}", outcome.wrong.len(), &outcome.wrong[..1]);
        if let Err(violation) = checker::check(&outcome.history) {
            panic!("{}: {violation}\n{}", violation.checker(), outcome.history.of_block(violation.block()));
        }
        let unexplained = cluster.unexplained.take();
        cluster.stop();
        assert!(unexplained.is_empty(), "{} findings do not explain themselves: {}", unexplained.len(), unexplained[0]);
    }
}

/// The node that serves the volume stands still, and goes on when others have taken its place: what it still holds of requests
/// must do nothing.
fn paused_head() {
    let run = Run::new(3, 2);
    let head = run.cluster.head().expect("the volume has a head");
    assert_eq!(head, 1, "a volume's first home is the first node");
    let paused = run.cluster.node(head).worker;
    let began = Instant::now();
    signal(paused, SIGSTOP);
    // Whatever fails before it goes on: it does.
    let goes_on = GoesOn(paused);
    run.cluster.until("another node has the head", Some(&run.load), |cluster| {
        cluster.is_whole();
        cluster
            .ask_node(2, "/v1/volumes/load")
            .is_some_and(|volume| volume["head"] != "node-1" && volume["head"].is_string())
    });
    run.cluster.until_answered("the load has answers without it", &run.load);
    run.cluster.pause(PAUSED.saturating_sub(began.elapsed()), &run.load);
    assert!(run.cluster.has_said("node-1 has not been heard of"), "{:?}", run.cluster.causes);
    drop(goes_on);
    run.judge();
}

struct GoesOn(i32);

impl Drop for GoesOn {
    fn drop(&mut self) {
        signal(self.0, SIGCONT);
    }
}

/// kill -9 of a node that leads groups and has no head, again and again.
fn primary_killed() {
    let run = Run::new(3, 2);
    for _ in 0..3 {
        kill_and_return(&run, 3);
    }
    run.judge();
}

/// The node ends, and the one that its supervisor starts is heard of.
fn kill_and_return(run: &Run, node: usize) {
    let before = run.cluster.node(node).worker;
    signal(before, SIGKILL);
    run.cluster.until(&format!("node-{node} is there again"), Some(&run.load), |cluster| {
        cluster.is_whole()
            && cluster.ask("/v1/nodes").is_some_and(|nodes| {
                let pid = nodes[node - 1]["pid"].as_i64();
                pid != Some(before.into()) && pid != Some(0)
            })
    });
}

/// kill -9 of the node that serves the volume.
fn head_killed() {
    let run = Run::new(3, 2);
    kill_and_return(&run, run.cluster.head().expect("the volume has a head"));
    run.judge();
}

/// kill -9 of all processes at once.
fn power_cut() {
    let mut run = Run::new(3, 2);
    run.cluster.cut();
    run.cluster.start_again();
    run.judge();
}

/// kill -9 of two of three nodes.
fn two_at_once() {
    let run = Run::new(3, 2);
    let killed = [1, 3].map(|node| run.cluster.node(node).worker);
    killed.iter().for_each(|worker| signal(*worker, SIGKILL));
    run.cluster.until("both are there again", Some(&run.load), |cluster| {
        let pids = |nodes: serde_json::Value| [0, 2].map(|node: usize| nodes[node]["pid"].as_i64().unwrap_or(0) as i32);
        let now = cluster.ask("/v1/nodes").map(pids);
        cluster.is_whole() && now.is_some_and(|now| now.iter().all(|pid| *pid != 0 && !killed.contains(pid)))
    });
    run.judge();
}

/// Each node ends with its supervisor, one after the other, and comes again.
fn rolling_restart() {
    let run = Run::new(3, 2);
    for node in [3, 2, 1] {
        let before = run.cluster.node(node);
        signal(before.supervisor, libc::SIGTERM);
        run.cluster.until(&format!("node-{node} was started anew"), Some(&run.load), |cluster| {
            cluster.is_whole()
                && cluster.ask("/v1/nodes").is_some_and(|nodes| {
                    let pid = nodes[node - 1]["pid"].as_i64();
                    pid != Some(before.worker.into()) && pid != Some(0)
                })
        });
    }
    run.judge();
}

/// kill -9 of the map: I/O goes on without it, and it comes again.
fn etcd_killed() {
    let run = Run::new(3, 2);
    for _ in 0..2 {
        let before = run.cluster.etcd();
        signal(before, SIGKILL);
        run.cluster.until_answered("the load has answers", &run.load);
        run.cluster.until("the cluster is whole", Some(&run.load), Cluster::is_whole);
        assert_ne!(run.cluster.etcd(), before, "another etcd was started");
    }
    run.judge();
}
