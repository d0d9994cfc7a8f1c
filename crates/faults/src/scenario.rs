//! One fault each: load runs, the fault comes, the load goes on within 30 s, status says why, all becomes whole again, and what
//! clients saw is judged.

use crate::cluster::{Cluster, FIVE, GATHERED, SPREAD, Shape, StandsStill, TWO, signal};
use crate::devices;
use crate::load;
use crate::moves;
use crate::network::Cut;
use crate::outage;
use crate::told;
use libc::SIGKILL;
use std::time::{Duration, Instant};
use torture::load::{Load, Plan};

/// Name and fault.
pub type Scenario = (&'static str, fn());

/// All of them.
pub const ALL: [Scenario; 33] = [
    ("paused-head", paused_head),
    ("primary-killed", primary_killed),
    ("head-killed", head_killed),
    ("power-cut", power_cut),
    ("two-at-once", two_at_once),
    ("rolling-restart", rolling_restart),
    ("etcd-killed", etcd_killed),
    ("device-garbage", device_garbage),
    ("device-noise", device_noise),
    ("device-noise-writing", device_noise_writing),
    ("device-truncated", device_truncated),
    ("device-wiped", device_wiped),
    ("device-erring", devices::erring),
    ("device-unreadable", devices::unreadable),
    ("device-slow", devices::slow),
    ("device-hanging", devices::hanging),
    ("device-reads-hanging", devices::reads_hanging),
    ("device-no-places", devices::no_places),
    ("device-full", devices::full),
    ("node-replaced", moves::node_replaced),
    ("short-outage", outage::short),
    ("five-nodes", five_nodes),
    ("five-paused", five_paused),
    ("five-cut", five_cut),
    ("device-swapped", moves::device_swapped),
    ("cut-from-nodes", cut_from_nodes),
    ("cut-one-way", cut_one_way),
    ("cut-one-link", cut_one_link),
    ("cut-two", cut_two),
    ("cut-from-etcd", cut_from_etcd),
    ("cut-from-clients", cut_from_clients),
    ("cut-flapping", cut_flapping),
    ("etcd-members", etcd_members),
];

pub(crate) const MIB: u64 = 1 << 20;
/// Load before the fault.
pub(crate) const BEFORE: Duration = Duration::from_secs(2);
/// Longer than a lease and a session last, than a host waits for an answer, than it takes others to go on, and than a node waits
/// for a group that does not serve.
const PAUSED: Duration = Duration::from_secs(20);

/// So long a node does not hear what it is asked: too short for others to do without it.
const DEAF: Duration = Duration::from_millis(400);
/// A host that has no answer for so long sends again: long before a node that stands still has given up what it holds.
const SENT_AGAIN: Duration = Duration::from_secs(2);
/// So long one node is alone: longer than it takes it to see that the others are silent, and to have that written down.
const ALONE: Duration = Duration::from_secs(16);

/// So long etcd does not answer: longer than the 10 s of a session.
const SILENT: Duration = Duration::from_secs(15);

/// A node that was killed, and had lived, is started again after this; see `node::supervisor`.
const STARTED_AGAIN_AFTER: Duration = Duration::from_secs(2);

/// A cut lasts so long at least: longer than leases and sessions.
const CUT: Duration = Duration::from_secs(10);

pub(crate) struct Run {
    pub(crate) cluster: Cluster,
    pub(crate) load: Load,
}

impl Run {
    /// A cluster under load; NBD at a node that is not hurt.
    pub(crate) fn new(shape: Shape, nbd_node: Option<usize>) -> Self {
        Self::of(Cluster::new(shape), nbd_node)
    }

    /// The same of nodes in networks of their own, the first of which has the head and leads.
    pub(crate) fn in_networks(shape: Shape) -> Self {
        Self::of(Cluster::in_networks(shape, &[]), Some(2))
    }

    fn of(cluster: Cluster, nbd_node: Option<usize>) -> Self {
        let plan = load::plan(cluster.target(nbd_node), 1);
        Self::with(cluster, plan)
    }

    /// This load on a cluster.
    pub(crate) fn with(cluster: Cluster, plan: Plan) -> Self {
        let load = Load::start(plan);
        cluster.until_answered("the load runs", &load);
        cluster.pause(BEFORE, &load);
        Self { cluster, load }
    }

    /// The first node, which has the head and leads, is cut off for so long that others go on; and heard again.
    fn is_cut(&mut self, cut: Cut) {
        self.cluster.network().cut(1, cut);
        self.cluster.until_answered(&format!("the load has answers: {cut:?}"), &self.load);
        self.cluster.pause(CUT, &self.load);
        self.cluster.until_answered("and goes on", &self.load);
        self.cluster.network().heal(1, cut);
        self.cluster.until("the cluster is whole again", Some(&self.load), Cluster::is_whole);
    }

    /// All is whole again; what clients saw is judged, and what devices hold.
    pub(crate) fn judge(self) {
        self.cluster.until("the cluster is whole again", Some(&self.load), Cluster::is_whole);
        self.cluster.until_answered("the load goes on", &self.load);
        self.judge_clients().explained_and_stopped();
    }

    /// What clients saw is judged, whatever became of the cluster.
    fn judge_clients(self) -> Cluster {
        let Self { cluster, load } = self;
        for cause in cluster.causes.borrow().iter() {
            println!("      status said: {cause}");
        }
        println!("      {}", load::passes(load));
        cluster
    }
}

/// The node that serves the volume stands still, and goes on when others have taken its place: what it still holds of requests
/// must do nothing. The first time it does before it may know: it has a session, and hosts that have sent again elsewhere what it
/// holds have not ended their connections for its silence. The second time it has given up what it held. The third time it waits
/// for answers of a node that is killed: it asks again for what its clients have had done elsewhere since.
fn paused_head() {
    let cluster = Cluster::new(SPREAD);
    let plan = load::plan(cluster.target(Some(2)), 1);
    let run = Run::with(cluster, Plan { io_timeout: SENT_AGAIN, keep_alive: 2 * PAUSED, ..plan });
    serves(&run, 1);
    stands_still(&run, Duration::ZERO, || {});
    returns_to_the_first(&run);
    stands_still(&run, PAUSED, || {});
    assert!(run.cluster.has_said("node-1 has not been heard of"), "{:?}", run.cluster.causes);
    returns_to_the_first(&run);
    let leads = run.cluster.node(3).worker;
    let deaf = StandsStill::new(leads);
    run.cluster.pause(DEAF, &run.load);
    stands_still(&run, Duration::ZERO, || signal(leads, SIGKILL));
    drop(deaf);
    run.judge();
}

fn returns_to_the_first(run: &Run) {
    run.cluster.until("the cluster is whole again", Some(&run.load), Cluster::is_whole);
    serves(run, 1);
}

/// The volume goes to this node, if it is elsewhere.
fn serves(run: &Run, node: usize) {
    if run.cluster.head() != Some(node) {
        // Who is asked may not have heard yet that the node is there again.
        run.cluster.cairn_when_it_can(&["volume", "move", "load", &format!("node-{node}")]);
        run.cluster.until("the volume has moved", Some(&run.load), |cluster| cluster.head() == Some(node));
    }
}

/// The first node does until others go on without it, and at least so long; `meanwhile` happens when it does.
fn stands_still(run: &Run, at_least: Duration, meanwhile: impl FnOnce()) {
    let still = StandsStill::new(run.cluster.node(1).worker);
    let began = Instant::now();
    meanwhile();
    run.cluster.until("another node has the head", Some(&run.load), |cluster| {
        cluster.notes_what_is_said_at(2);
        cluster
            .ask_node(2, "/v1/volumes/load")
            .is_some_and(|volume| volume["head"] != "node-1" && volume["head"].is_string())
    });
    run.cluster.until_answered("the load has answers without it", &run.load);
    run.cluster.pause(at_least.saturating_sub(began.elapsed()), &run.load);
    drop(still);
    println!("      it stood still for {:.1} s", began.elapsed().as_secs_f64());
}

/// kill -9 of a node that leads groups and has no head, again and again; and of the last one that stands, which leads all.
fn primary_killed() {
    let run = Run::new(SPREAD, Some(2));
    serves(&run, 1);
    for _ in 0..2 {
        kill_and_return(&run, 3);
    }
    run.judge();
    last_one_standing();
}

/// Two of three nodes stand still until the third has gone on without them, which has two copies to write at least: what it
/// acknowledges alone is lost when it is killed, and the two go on without it.
fn last_one_standing() {
    let run = Run::new(GATHERED, None);
    let last = run.cluster.node(1);
    let others = [2, 3].map(|node| StandsStill::new(run.cluster.node(node).worker));
    run.cluster.pause(ALONE, &run.load);
    println!("      alone: a command waits for {:?}", run.load.longest_wait());
    signal(last.worker, SIGKILL);
    drop(others);
    let away = StandsStill::new(last.successor());
    run.cluster.until_answered("two have answers without the third", &run.load);
    drop(away);
    // First of all: had it acknowledged anything alone, it would stop now and say that the others lost it.
    let cluster = run.judge_clients();
    cluster.until("the cluster is whole again", None, Cluster::is_whole);
    cluster.explained_and_stopped();
}

/// The node ends, and the one that its supervisor starts is heard of.
fn kill_and_return(run: &Run, node: usize) {
    end_and_return(run, node, run.cluster.node(node).worker);
}

/// The same of one that may not be heard of.
pub(crate) fn end_and_return(run: &Run, node: usize, before: i32) {
    signal(before, SIGKILL);
    returns(run, node, before);
}

/// The one that its supervisor starts is heard of, and all is whole.
pub(crate) fn returns(run: &Run, node: usize, before: i32) {
    run.cluster.until(&format!("node-{node} is there again"), Some(&run.load), |cluster| {
        cluster.is_whole()
            && cluster.ask("/v1/nodes").is_some_and(|nodes| {
                let pid = nodes[node - 1]["pid"].as_i64();
                pid != Some(before.into()) && pid != Some(0)
            })
    });
}

/// kill -9 of the node that serves the volume, which its supervisor starts again: 2 s later, the first time.
fn head_killed() {
    let run = Run::new(GATHERED, Some(2));
    let head = run.cluster.head().expect("the volume has a head");
    let before = run.cluster.node(head);
    let killed = Instant::now();
    signal(before.worker, SIGKILL);
    before.successor();
    let after = killed.elapsed();
    println!("      started again {:.2} s after the kill", after.as_secs_f64());
    let is_in_time = (STARTED_AGAIN_AFTER..2 * STARTED_AGAIN_AFTER).contains(&after);
    assert!(is_in_time, "it was started again after {after:?}, and not {STARTED_AGAIN_AFTER:?}");
    returns(&run, head, before.worker);
    run.judge();
}

/// kill -9 of all processes at once.
fn power_cut() {
    let mut run = Run::new(GATHERED, Some(2));
    run.cluster.cut();
    run.cluster.start_again();
    run.judge();
}

/// kill -9 of two of three nodes.
fn two_at_once() {
    let run = Run::new(GATHERED, Some(2));
    kill_both_and_return(&run, [1, 3]);
    run.judge();
}

fn kill_both_and_return(run: &Run, both: [usize; 2]) {
    let killed = both.map(|node| run.cluster.node(node).worker);
    killed.iter().for_each(|worker| signal(*worker, SIGKILL));
    run.cluster.until("both are there again", Some(&run.load), |cluster| {
        let pids = |nodes: serde_json::Value| both.map(|node| nodes[node - 1]["pid"].as_i64().unwrap_or(0) as i32);
        let now = cluster.ask("/v1/nodes").map(pids);
        cluster.is_whole() && now.is_some_and(|now| now.iter().all(|pid| *pid != 0 && !killed.contains(pid)))
    });
}

/// Each node ends with its supervisor, one after the other, and comes again.
fn rolling_restart() {
    let run = Run::new(GATHERED, Some(2));
    for node in [3, 2, 1] {
        let before = run.cluster.node(node);
        signal(before.supervisor, libc::SIGTERM);
        is_told_away(&run, node);
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

/// Waits until status says that the node is away, what that puts at risk, what is done, until when, and what to run.
pub(crate) fn is_told_away(run: &Run, node: usize) {
    run.cluster.until(&format!("status says that node-{node} is away"), Some(&run.load), |cluster| {
        cluster.findings().iter().any(|one| told::of_node(one, node))
    });
}

/// The map does not answer for longer than a session lasts, and is killed then; then kill -9 of it at once: I/O goes on without it,
/// and it comes again.
fn etcd_killed() {
    let run = Run::new(GATHERED, Some(2));
    for silent in [SILENT, Duration::ZERO] {
        let before = run.cluster.etcd();
        let still = StandsStill::new(before);
        let began = Instant::now();
        while began.elapsed() < silent {
            run.cluster.until_answered("the load has answers without a map", &run.load);
            run.cluster.pause(BEFORE, &run.load);
        }
        signal(before, SIGKILL);
        drop(still);
        run.cluster.until_answered("the load has answers", &run.load);
        run.cluster.until("the cluster is whole", Some(&run.load), Cluster::is_whole);
        assert_ne!(run.cluster.etcd(), before, "another etcd was started");
    }
    run.judge();
}

/// A part of a device is written over while its node serves: what is read of it is an error, and comes from others. When the
/// node starts anew, what it finds of its log and its index has holes; all that it lacks comes from others, and the device is
/// used as before.
fn device_garbage() {
    let mut run = Run::new(SPREAD, Some(2));
    run.cluster.pause(BEFORE, &run.load);
    for offset in [40 * MIB, 200 * MIB] {
        run.cluster.write_over(3, offset, 8 * MIB as usize);
    }
    kill_and_return(&run, 3);
    println!("      {}", run.cluster.agrees());
    kill_and_return(&run, 3);
    run.cluster.until("nothing is said to be damaged", Some(&run.load), |cluster| cluster.damage_of(3) == Some(0));
    run.judge();
}

/// All of a device is written over, what says that it is one of the cluster's included; its node stands still meanwhile, so that nothing
/// of it is written after that, and is killed. When it starts anew it cannot use the device and says so; another takes its place.
fn device_noise() {
    let mut run = Run::new(SPREAD, Some(2));
    run.cluster.pause(BEFORE, &run.load);
    let worker = run.cluster.node(3).worker;
    let still = StandsStill::new(worker);
    run.cluster.write_over_all(3);
    signal(worker, SIGKILL);
    drop(still);
    run.cluster.until_answered("the load has answers without it", &run.load);
    devices::is_told(&run, "has failed: ");
    is_replaced(run, 3);
}

/// All of a device is written over but what it says of itself, which lies in its first and its last 1 MiB, while its node goes on writing
/// there. When that starts anew the last that it wrote is good, and nothing else is: nothing is free, for what is damaged is kept.
fn device_noise_writing() {
    let mut run = Run::new(SPREAD, Some(2));
    run.cluster.pause(BEFORE, &run.load);
    run.cluster.write_over_but_ends(3, MIB);
    run.cluster.until_answered("the load has answers with it", &run.load);
    signal(run.cluster.node(3).worker, SIGKILL);
    run.cluster.until_answered("the load has answers without it", &run.load);
    devices::is_told(&run, "segments is free");
    is_replaced(run, 3);
}

/// A device loses what lies behind its first part, while its node serves and for good: its node says so, the others serve, and
/// another device takes its place.
fn device_truncated() {
    let run = Run::new(SPREAD, Some(2));
    run.cluster.truncate(3, 48 * MIB);
    run.cluster.until_answered("the load has answers without it", &run.load);
    signal(run.cluster.node(3).worker, SIGKILL);
    devices::is_told(&run, "has failed: ");
    is_replaced(run, 3);
}

/// A device is empty when its node starts: wiped, or another in its place.
fn device_wiped() {
    let run = Run::new(SPREAD, Some(2));
    run.cluster.truncate(3, 0);
    run.cluster.truncate(3, 512 * MIB);
    signal(run.cluster.node(3).worker, SIGKILL);
    devices::is_told(&run, "has failed: ");
    is_replaced(run, 3);
}

/// Three of five nodes hold a group, others hold others: two nodes at once, the head, and all of them are killed.
fn five_nodes() {
    let mut run = Run::new(FIVE, Some(2));
    kill_both_and_return(&run, [4, 5]);
    kill_and_return(&run, run.cluster.head().expect("the volume has a head"));
    run.cluster.cut();
    run.cluster.start_again();
    run.judge();
}

/// The node with the head of one of five stands still: some groups have it, and others do not.
fn five_paused() {
    let run = Run::new(FIVE, Some(2));
    serves(&run, 1);
    stands_still(&run, PAUSED, || {});
    assert!(run.cluster.has_said("node-1 has not been heard of"), "{:?}", run.cluster.causes);
    run.judge();
}

/// The same is cut off from the other four, and leads all groups that it has.
fn five_cut() {
    let mut run = Run::in_networks(Shape { placement: GATHERED.placement, ..FIVE });
    run.is_cut(Cut::Nodes);
    run.judge();
}

/// The node with the head hears no other node and is not heard; it has etcd and clients.
fn cut_from_nodes() {
    let mut run = Run::in_networks(GATHERED);
    run.is_cut(Cut::Nodes);
    run.judge();
}

/// What it says to others is lost, and it hears them; then the other way round.
fn cut_one_way() {
    let mut run = Run::in_networks(GATHERED);
    run.is_cut(Cut::ToNodes);
    serves(&run, 1);
    run.is_cut(Cut::FromNodes);
    run.judge();
}

/// The node with the head and another that leads some of the volume's groups do not hear each other; the third hears both.
fn cut_one_link() {
    let mut run = Run::in_networks(SPREAD);
    serves(&run, 1);
    run.is_cut(Cut::Second);
    run.judge();
}

/// Two nodes that both reach etcd do not hear each other; each leads some of the volume's groups.
fn cut_two() {
    let mut run = Run::in_networks(TWO);
    run.is_cut(Cut::Nodes);
    run.judge();
}

/// It reaches no etcd; then nothing at all.
fn cut_from_etcd() {
    let mut run = Run::in_networks(GATHERED);
    run.is_cut(Cut::Etcd);
    serves(&run, 1);
    run.is_cut(Cut::All);
    run.judge();
}

/// No client reaches it.
fn cut_from_clients() {
    let mut run = Run::in_networks(GATHERED);
    run.is_cut(Cut::Clients);
    run.judge();
}

/// It is cut off and heard again, over and over, for about as long as it takes others to notice.
fn cut_flapping() {
    let mut run = Run::in_networks(GATHERED);
    for turn in 0..8_u64 {
        run.cluster.network().cut(1, Cut::Nodes);
        run.cluster.pause(Duration::from_millis(400 + 300 * turn), &run.load);
        run.cluster.network().heal(1, Cut::Nodes);
        run.cluster.pause(Duration::from_millis(700), &run.load);
    }
    run.cluster.until_answered("the load goes on", &run.load);
    run.judge();
}

/// One of three etcds is killed, and the one that leads; then all of them.
fn etcd_members() {
    let mut run = Run::in_networks(GATHERED);
    let leader = run.cluster.network().etcd_leader().expect("one leads");
    for killed in [(leader + 1) % 3, leader] {
        run.cluster.network().kill_etcd(killed);
        run.cluster.until_answered("the load has answers", &run.load);
        let lost = run.cluster.network().etcd_name(killed);
        run.cluster.until("status says which is lost, what is at risk, and what to do", Some(&run.load), |cluster| {
            cluster.findings().iter().any(|one| told::of_map_member(one, &lost))
        });
        run.cluster.network().start_etcd(killed);
        run.cluster.until("status is green with it", Some(&run.load), Cluster::is_whole);
    }
    (0..3).for_each(|member| run.cluster.network().kill_etcd(member));
    run.cluster.until_answered("the load has answers without a map", &run.load);
    run.cluster.until("status says what goes on, what is at risk, and what to do", Some(&run.load), |cluster| {
        cluster.findings().iter().any(told::of_silent_map)
    });
    (0..3).for_each(|member| run.cluster.network().start_etcd(member));
    run.judge();
}

/// Another device of the node takes the place of its first.
fn is_replaced(mut run: Run, node: usize) {
    run.cluster.until_answered("the load has answers", &run.load);
    run.cluster.replace_device(node);
    run.cluster.until("the cluster is whole again", Some(&run.load), Cluster::is_whole);
    run.judge();
}
