//! What the simulated map does wrong, each as etcd does.

use crate::simulated::NETWORK_FAULTS;
use crate::suite::{commit, get, list, plain, put, told, under, value};
use cluster::{
    MapError, MapFaults, MapStore, Outcome, REQUEST_DEADLINE, Revision, SimMap, Transaction, WATCH_SILENCE_MAX,
};
use runtime::sim::{NodeOptions, SimNode, World};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use types::NodeId;

const ALWAYS: u32 = 1024;
const SECOND: Duration = Duration::from_secs(1);
/// A world, its nodes 1, 2, … and the map as each reaches it.
struct Cluster {
    world: World,
    nodes: Vec<SimNode>,
    map: Arc<SimMap>,
}

impl Cluster {
    fn new(seed: u64, nodes: u32) -> Self {
        let world = World::new(seed);
        // Clocks of nodes have nothing to do with each other.
        let start = |index: u32| NodeOptions { clock_start: SECOND * 1000 * (nodes - index), ..NodeOptions::default() };
        let nodes = (0..nodes).map(|index| world.add_node(1, start(index))).collect();
        Self { world, nodes, map: SimMap::new() }
    }

    fn handle(&self, node: u32) -> Arc<SimMap> {
        self.map.handle_for(NodeId(node))
    }

    /// Runs on a node, with its handle.
    fn on<T: 'static, F: Future<Output = T> + 'static>(&self, node: u32, work: impl FnOnce(Arc<SimMap>) -> F) -> T {
        let work = work(self.handle(node));
        self.world.run_on(&self.nodes[node as usize - 1], 0, work).expect("the world goes on")
    }

    /// The same, beside what else happens.
    fn begin<T: 'static, F: Future<Output = T> + 'static>(
        &self,
        node: u32,
        work: impl FnOnce(Arc<SimMap>) -> F,
    ) -> Rc<RefCell<Option<T>>> {
        let (work, slot) = (work(self.handle(node)), Rc::new(RefCell::new(None)));
        let result = slot.clone();
        self.nodes[node as usize - 1].spawn(0, async move { *result.borrow_mut() = Some(work.await) });
        slot
    }
}

fn make(key: &str) -> Transaction {
    Transaction::new().expect_absent(key).put(key, b"1".to_vec())
}

#[test]
fn what_is_not_done_when_it_is_looked_for_may_be_done_later() {
    let cluster = Cluster::new(1, 1);
    cluster.map.set_faults(MapFaults { requests_late: ALWAYS, late_max: SECOND, ..MapFaults::NONE });
    cluster.on(1, async |map| {
        assert_eq!(map.transact(make("a")).await, Err(MapError::Unknown));
        map.set_faults(MapFaults::NONE);
        assert_eq!(map.get("a").await, Ok(None), "a look proves nothing");
        assert_eq!(map.counts().requests_late, 0);
        let mut watch = map.watch("a", Revision(1));
        assert_eq!(watch.next().await.expect("told").len(), 1, "nobody asks for anything else: it arrives by itself");
        assert!(map.get("a").await.expect("an answer").is_some());
        assert_eq!(map.counts().requests_late, 1);
    });
}

#[test]
fn a_request_arrives_whatever_becomes_of_its_sender() {
    let cluster = Cluster::new(2, 2);
    cluster.map.set_faults(MapFaults { latency_max: SECOND, ..MapFaults::NONE });
    let sent = cluster.begin(1, async |map| map.transact(make("a")).await);
    cluster.world.run_for(Duration::from_millis(1));
    cluster.nodes[0].crash();
    cluster.map.set_faults(MapFaults::NONE);
    cluster.on(2, async |map| {
        assert_eq!(map.get("a").await, Ok(None), "it is on its way");
        runtime::sleep(SECOND).await;
        assert!(map.get("a").await.expect("an answer").is_some());
    });
    assert!(sent.borrow().is_none());
}

#[test]
fn requests_and_answers_get_lost() {
    let cluster = Cluster::new(3, 1);
    cluster.on(1, async |map| {
        map.set_faults(MapFaults { requests_lost: ALWAYS, ..MapFaults::NONE });
        assert_eq!(map.transact(make("a")).await, Err(MapError::Unknown));
        map.set_faults(MapFaults { answers_lost: ALWAYS, ..MapFaults::NONE });
        assert_eq!(map.transact(make("b")).await, Err(MapError::Unknown));
        map.set_faults(MapFaults::NONE);
        runtime::sleep(SECOND * 60).await;
        let keys: Vec<_> = list(&*map, "").await.items.iter().map(|item| item.key.clone()).collect();
        assert_eq!(keys, ["b"], "never done, and done");
        assert_eq!((map.counts().requests_lost, map.counts().answers_lost), (1, 1));
    });
}

#[test]
fn a_watch_is_told_late_in_order_and_without_a_gap() {
    let cluster = Cluster::new(4, 1);
    cluster.map.set_faults(MapFaults { watches_late: ALWAYS, watch_lag_max: SECOND, ..MapFaults::NONE });
    cluster.on(1, async |map| {
        let mut watch = map.watch("a", Revision(1));
        let mut largest = Duration::ZERO;
        for round in 0..50 {
            let done = put(&*map, "a", &round.to_string()).await;
            let since = runtime::now();
            let told = told(&mut *watch, 1).await;
            assert_eq!(told.iter().map(|event| event.revision).collect::<Vec<_>>(), [done]);
            largest = largest.max(runtime::now().since(since));
        }
        assert!(largest > SECOND / 2 && largest <= SECOND, "{largest:?}");
        assert_eq!(map.counts().watches_late, 50);
        // What happens meanwhile is not forgotten.
        let first = put(&*map, "a", "x").await;
        let behind = runtime::timeout(Duration::from_millis(1), watch.next()).await;
        assert_eq!(behind, Err(runtime::Elapsed));
        put(&*map, "a", "y").await;
        assert_eq!(plain(&told(&mut *watch, 2).await, first), [(0, "a", Some("x")), (1, "a", Some("y"))]);
    });
}

#[test]
fn history_is_compacted_from_under_a_watch_that_lags_and_from_under_no_other() {
    let cluster = Cluster::new(5, 1);
    cluster.map.set_faults(MapFaults { compactions: ALWAYS, ..MapFaults::NONE });
    cluster.on(1, async |map| {
        let mut prompt = map.watch("a", Revision(1));
        let mut slow = map.watch("a", Revision(1));
        for round in 0..3 {
            put(&*map, "a", &round.to_string()).await;
            assert_eq!(told(&mut *prompt, 1).await.len(), 1);
        }
        assert_eq!(slow.next().await, Err(MapError::Compacted { oldest: Revision(3) }));
        assert_eq!(map.counts().compactions, 3);
        // While it is being told late, too.
        let always = MapFaults { compactions: ALWAYS, watches_late: ALWAYS, watch_lag_max: SECOND, ..MapFaults::NONE };
        map.set_faults(always);
        let other = map.clone();
        runtime::spawn(async move {
            loop {
                runtime::sleep(Duration::from_micros(100)).await;
                put(&*other, "a", "x").await;
            }
        });
        let told = prompt.next().await;
        assert!(matches!(told, Err(MapError::Compacted { .. })), "{told:?}");
    });
}

#[test]
fn a_new_leader_begins_leases_anew() {
    let cluster = Cluster::new(6, 1);
    let lease = cluster.on(1, async |map| {
        let lease = map.grant(SECOND * 10).await.expect("a lease");
        commit(&*map, under("a", lease)).await;
        // A renewal that arrives, unseen by all, before the leader changes: it takes nothing of what that gives.
        map.set_faults(MapFaults { requests_late: ALWAYS, late_max: SECOND, ..MapFaults::NONE });
        assert_eq!(map.keep_alive(lease).await, Err(MapError::Unknown));
        map.set_faults(MapFaults::NONE);
        runtime::sleep(SECOND * 8).await;
        lease
    });
    cluster.map.change_leader();
    cluster.on(1, async move |map| {
        assert!(get(&*map, "a").await.is_some());
        runtime::sleep(SECOND * 9).await;
        assert!(get(&*map, "a").await.is_some(), "its time began anew");
        map.keep_alive(lease).await.expect("it lives");
        runtime::sleep(SECOND * 9).await;
        assert!(get(&*map, "a").await.is_some(), "it is kept as before");
        runtime::sleep(SECOND * 2).await;
        assert_eq!(get(&*map, "a").await, None);
        assert_eq!(map.counts().leader_changes, 1);
    });
}

#[test]
fn requests_under_way_when_the_leader_changes_end_unknown_done_or_not() {
    let cluster = Cluster::new(7, 1);
    cluster.map.set_faults(MapFaults { latency_max: SECOND, ..MapFaults::NONE });
    let sent: Vec<_> =
        (0..100).map(|i| cluster.begin(1, async move |map| map.transact(make(&format!("a/{i}"))).await)).collect();
    cluster.world.run_for(SECOND / 2);
    let known_before = sent.iter().filter(|sent| sent.borrow().is_some()).count();
    cluster.map.change_leader();
    cluster.world.run_for(SECOND * 3);
    let unknown = sent.iter().filter(|sent| *sent.borrow() == Some(Err(MapError::Unknown))).count();
    assert_eq!(unknown, 100 - known_before, "all others");
    cluster.map.set_faults(MapFaults::NONE);
    let done = cluster.on(1, async |map| list(&*map, "a/").await.items.len());
    assert!(done > 50 && done < 100 && known_before < 50, "{known_before} known, {done} done");
    let counts = cluster.map.counts();
    assert_eq!(counts.requests_lost as usize, 100 - done);
}

#[test]
fn leaders_change_by_themselves() {
    let cluster = Cluster::new(8, 1);
    cluster.map.set_faults(MapFaults { leader_changes: 512, ..MapFaults::NONE });
    cluster.on(1, async |map| {
        let mut unknown = 0;
        for i in 0..200 {
            unknown += u64::from(map.transact(make(&format!("a/{i}"))).await == Err(MapError::Unknown));
        }
        map.set_faults(MapFaults::NONE);
        let (counts, done) = (map.counts(), list(&*map, "a/").await.items.len() as u64);
        assert_eq!(counts.leader_changes, unknown);
        assert_eq!((counts.requests_lost, counts.requests_lost + counts.answers_lost), (200 - done, unknown));
        assert!((60..140).contains(&unknown) && (160 - 40..190).contains(&done), "{unknown} unknown, {done} done");
    });
}

#[test]
fn a_node_that_is_cut_off_waits_for_its_deadline_and_others_go_on() {
    let cluster = Cluster::new(9, 2);
    cluster.map.set_faults(MapFaults { late_max: SECOND, ..MapFaults::NONE });
    cluster.map.set_cut_off(NodeId(1), true);
    let sent: Vec<_> = (0..60)
        .map(|i| {
            cluster.begin(1, async move |map| {
                let since = runtime::now();
                let answer = map.transact(make(&format!("a/{i}"))).await;
                (answer, runtime::now().since(since))
            })
        })
        .collect();
    cluster.on(2, async |map| put(&*map, "b", "1").await);
    let at_once = cluster.on(2, async |map| list(&*map, "a/").await.items.len());
    assert!((5..40).contains(&at_once), "{at_once} were done, and nobody was told");
    cluster.world.run_for(REQUEST_DEADLINE);
    let at_the_deadline = cluster.on(2, async |map| list(&*map, "a/").await.items.len());
    for sent in sent {
        assert_eq!(*sent.borrow(), Some((Err(MapError::Unknown), REQUEST_DEADLINE)));
    }
    cluster.world.run_for(SECOND);
    let in_the_end = cluster.on(2, async |map| list(&*map, "a/").await.items.len());
    assert!(at_the_deadline < in_the_end && in_the_end < 60, "{at_the_deadline}, {in_the_end}: late, and never");
    assert_eq!(cluster.map.counts().requests_cut_off, 60);
    cluster.map.set_cut_off(NodeId(1), false);
    cluster.on(1, async |map| assert_eq!(value(&*map, "b").await.as_deref(), Some("1")));
}

#[test]
fn an_answer_on_its_way_to_a_node_that_is_cut_off_does_not_arrive() {
    let cluster = Cluster::new(10, 1);
    cluster.map.set_faults(MapFaults { latency_max: SECOND, ..MapFaults::NONE });
    let sent = cluster.begin(1, async |map| map.transact(make("a")).await);
    cluster.world.run_for(Duration::from_millis(1));
    cluster.map.set_cut_off(NodeId(1), true);
    cluster.world.run_for(REQUEST_DEADLINE - Duration::from_millis(2));
    assert_eq!(*sent.borrow(), None);
    cluster.world.run_for(Duration::from_millis(2));
    assert_eq!(*sent.borrow(), Some(Err(MapError::Unknown)));
}

#[test]
fn the_whole_map_can_be_unreachable() {
    let cluster = Cluster::new(11, 2);
    cluster.on(1, async |map| put(&*map, "a", "1").await);
    cluster.map.set_unreachable(true);
    for node in [1, 2] {
        assert_eq!(cluster.on(node, async |map| map.get("a").await), Err(MapError::Unknown));
    }
    let plain = cluster.map.clone();
    let node = &cluster.nodes[0];
    let silent = cluster.world.run_on(node, 0, async move { plain.watch("a", Revision(1)).next().await });
    assert_eq!(silent, Ok(Err(MapError::Silent)));
    cluster.map.set_unreachable(false);
    assert!(cluster.on(2, async |map| map.get("a").await).expect("an answer").is_some());
}

#[test]
fn a_watch_that_is_cut_off_says_so_and_goes_on_without_a_gap() {
    let cluster = Cluster::new(12, 2);
    let start = cluster.on(2, async |map| put(&*map, "a", "0").await);
    let heard = Rc::new(RefCell::new(Vec::new()));
    let hears = heard.clone();
    let _watches = cluster.begin(1, async move |map| {
        let mut watch = map.watch("a", Revision(start.0 + 1));
        loop {
            let told = watch.next().await;
            hears.borrow_mut().push((runtime::now(), told));
        }
    });
    cluster.world.run_for(SECOND * 60);
    assert!(heard.borrow().is_empty(), "nothing happens, and that is no silence");
    cluster.map.set_cut_off(NodeId(1), true);
    let cut_at = cluster.on(1, async |_| runtime::now());
    cluster.on(2, async |map| put(&*map, "a", "1").await);
    cluster.world.run_for(WATCH_SILENCE_MAX * 5 / 2);
    cluster.on(2, async |map| put(&*map, "a", "2").await);
    let silences: Vec<_> = heard.take().into_iter().map(|(at, told)| (at.since(cut_at), told)).collect();
    let expected = [1, 2].map(|times| (WATCH_SILENCE_MAX * times, Err(MapError::Silent)));
    assert_eq!(silences, expected);
    assert_eq!(cluster.map.counts().watches_silent, 2);
    cluster.map.set_cut_off(NodeId(1), false);
    cluster.world.run_for(SECOND);
    let told: Vec<_> = heard.take().into_iter().map(|(_, told)| told.expect("told")).collect();
    assert_eq!(plain(&told.concat(), start), [(1, "a", Some("1")), (2, "a", Some("2"))]);
}

#[test]
fn what_a_watch_is_being_told_does_not_arrive_where_the_node_is_cut_off_meanwhile() {
    let cluster = Cluster::new(17, 2);
    let start = cluster.on(2, async |map| put(&*map, "a", "0").await);
    cluster.map.set_faults(MapFaults { latency_max: SECOND, ..MapFaults::NONE });
    let told = cluster.begin(1, async move |map| map.watch("a", start).next().await);
    cluster.world.run_for(Duration::from_micros(1));
    cluster.map.set_cut_off(NodeId(1), true);
    cluster.world.run_for(SECOND * 2);
    assert_eq!(*told.borrow(), None);
    cluster.map.set_cut_off(NodeId(1), false);
    cluster.world.run_for(SECOND * 2);
    assert_eq!(plain(&told.take().expect("an answer").expect("told"), start), [(0, "a", Some("0"))]);
}

#[test]
fn who_is_cut_off_loses_its_lease() {
    let cluster = Cluster::new(13, 2);
    let _kept = cluster.begin(1, async |map| {
        let lease = map.grant(SECOND * 10).await.expect("a lease");
        commit(&*map, under("a", lease)).await;
        loop {
            runtime::sleep(SECOND * 3).await;
            let _ = map.keep_alive(lease).await;
        }
    });
    cluster.world.run_for(SECOND * 60);
    assert!(cluster.on(2, async |map| get(&*map, "a").await).is_some());
    cluster.map.set_cut_off(NodeId(1), true);
    cluster.world.run_for(SECOND * 60);
    assert_eq!(cluster.on(2, async |map| get(&*map, "a").await), None);
}

/// Node 2's clock shows a thousand seconds less than node 1's, and both are right.
#[test]
fn a_lease_runs_on_the_clock_of_the_map() {
    let cluster = Cluster::new(14, 2);
    for (grants, looks) in [(1, 2), (2, 1)] {
        cluster.on(grants, async move |map| {
            let lease = map.grant(SECOND * 10).await.expect("a lease");
            commit(&*map, under(&format!("a/{grants}"), lease)).await;
        });
        let there = |after| {
            cluster.world.run_for(after);
            cluster.on(looks, async move |map| get(&*map, &format!("a/{grants}")).await.is_some())
        };
        assert!(there(Duration::ZERO));
        assert!(there(SECOND * 9));
        assert!(!there(SECOND * 2));
    }
}

#[test]
fn a_restored_map_has_gone_back_in_time() {
    let cluster = Cluster::new(15, 1);
    let (mut watch, first, lease) = cluster.on(1, async |map| {
        put(&*map, "a", "1").await;
        let lease = map.grant(SECOND * 1000).await.expect("a lease");
        let first = commit(&*map, under("held", lease)).await;
        (map.watch("a", Revision(first.0 + 1)), first, lease)
    });
    let backup = cluster.map.backup();
    let seen = cluster.on(1, async |map| {
        put(&*map, "b", "1").await;
        put(&*map, "a", "2").await
    });
    cluster.map.restore(&backup);
    cluster.on(1, async move |map| {
        for _ in 0..2 {
            assert_eq!(watch.next().await, Err(MapError::WentBack { revision: first }), "it ends");
        }
        let listing = list(&*map, "").await;
        assert_eq!(listing.revision, first);
        let keys: Vec<_> = listing.items.iter().map(|item| item.key.as_str()).collect();
        assert_eq!(keys, ["a"], "neither what came later, nor what a lease held");
        assert_eq!(map.keep_alive(lease).await, Err(MapError::NoLease(lease)));
        assert!(map.grant(SECOND).await.expect("a lease") > lease, "ids are not given again");
        assert_eq!(map.watch("", Revision(seen.0 + 1)).next().await, Err(MapError::WentBack { revision: first }));
        // The same revision names something else: who saw "a" at it takes the new history for the old one.
        put(&*map, "c", "1").await;
        let again = put(&*map, "a", "3").await;
        assert_eq!(again, seen);
        let swap = Transaction::new().expect("a", seen).put("a", b"4".to_vec());
        assert_eq!(map.transact(swap).await, Ok(Outcome::Committed(Revision(seen.0 + 1))));
        assert_eq!(map.counts().restores, 1);
    });
}

/// What a node knows of the map by listing and watching.
async fn follow(map: Arc<SimMap>, known: Rc<RefCell<BTreeMap<String, Vec<u8>>>>) {
    loop {
        let Ok(listing) = map.list("").await else { continue };
        *known.borrow_mut() = listing.items.iter().map(|item| (item.key.clone(), item.value.clone())).collect();
        let (mut watch, mut last) = (map.watch("", Revision(listing.revision.0 + 1)), listing.revision);
        loop {
            let events = match watch.next().await {
                Ok(events) => events,
                Err(MapError::Silent) => continue,
                Err(MapError::Compacted { .. } | MapError::WentBack { .. }) => break,
                Err(error) => panic!("{error}"),
            };
            for event in events {
                assert!(event.revision >= last, "in order");
                last = event.revision;
                let mut known = known.borrow_mut();
                match event.value {
                    Some(value) => drop(known.insert(event.key, value)),
                    None => drop(known.remove(&event.key)),
                }
            }
        }
    }
}

/// Writers, followers and leases, while everything goes wrong that can. The trace of the run and what was counted.
fn everything_goes_wrong(seed: u64) -> (u64, cluster::MapCounts) {
    let cluster = Cluster::new(seed, 3);
    let known: Vec<_> = (0..3).map(|_| Rc::new(RefCell::new(BTreeMap::new()))).collect();
    for (node, known) in (1..).zip(&known) {
        let known = known.clone();
        cluster.begin(node, async move |map| follow(map, known).await);
        cluster.begin(node, async move |map| {
            for round in 0..300_u64 {
                let key = format!("a/{}", runtime::random_u64() % 5);
                let lease = map.grant(SECOND * 3).await.ok();
                let Ok(found) = map.get(&key).await else { continue };
                let was = found.map_or(Revision(0), |found| found.modified);
                let put = match lease.filter(|_| round % 2 == 0) {
                    Some(lease) => Transaction { changes: under(&key, lease).changes, ..Transaction::default() },
                    None => Transaction::new().put(&key, round.to_string().into_bytes()),
                };
                let _ = map.transact(put.expect(&key, was)).await;
                runtime::sleep(Duration::from_millis(runtime::random_u64() % 100)).await;
            }
        });
    }
    let faults = MapFaults { compactions: 50, ..NETWORK_FAULTS };
    cluster.map.set_faults(faults);
    for round in 0..4 {
        let backup = cluster.map.backup();
        cluster.map.set_cut_off(NodeId(round % 3 + 1), true);
        cluster.world.run_for(SECOND * 7);
        cluster.map.set_cut_off(NodeId(round % 3 + 1), false);
        cluster.map.set_unreachable(round == 2);
        cluster.world.run_for(SECOND * 2);
        cluster.map.set_unreachable(false);
        if round % 2 == 1 {
            cluster.map.restore(&backup);
        }
        cluster.map.change_leader();
    }
    cluster.map.set_faults(MapFaults::NONE);
    cluster.world.run_for(SECOND * 120);
    let is = cluster.on(1, async |map| list(&*map, "").await.items);
    let is: BTreeMap<_, _> = is.iter().map(|item| (item.key.clone(), item.value.clone())).collect();
    assert!(!is.is_empty(), "seed {seed}");
    for known in known {
        assert_eq!(*known.borrow(), is, "seed {seed}: who lists again when told to knows what the map holds");
    }
    (cluster.world.trace_hash(), cluster.map.counts())
}

#[test]
fn who_lists_again_when_told_to_knows_the_map_and_a_seed_is_one_run() {
    let runs: Vec<_> = (1..=10).map(everything_goes_wrong).collect();
    assert_eq!(runs[..3], [1, 2, 3].map(everything_goes_wrong), "the same seeds, the same runs");
    assert_ne!(runs[0], runs[1]);
    let counts = runs[0].1;
    let seen = [counts.requests_lost, counts.answers_lost, counts.requests_late, counts.requests_cut_off];
    let more = [counts.watches_late, counts.watches_silent, counts.compactions, counts.leader_changes, counts.restores];
    assert!(seen.iter().chain(&more).all(|count| *count > 0), "{counts:?}");
}

#[test]
fn a_fault_that_is_off_draws_nothing_from_the_seed() {
    let drawn = |asks: bool| {
        Cluster::new(16, 1).on(1, async move |map| {
            if asks {
                let mut watch = map.watch("a", Revision(1));
                put(&*map, "a", "1").await;
                told(&mut *watch, 1).await;
            }
            runtime::random_u64()
        })
    };
    assert_eq!(drawn(true), drawn(false));
}
