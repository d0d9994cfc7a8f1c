//! Volumes with a limit: the others of the same core and of the same connection go on, and nothing waits for what waits.

use crate::node::{Cluster, cluster, connect, options, pattern};
use nvme::host::{Controller, HostError, Namespace, Options};
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;
use volume::{HostChange, LimitChange, VolumeChange};

const SECOND: Duration = Duration::from_secs(1);
/// As a Linux host has it.
const DEPTH: usize = 128;

fn limit(cluster: &Cluster, volume: &'static str, iops: u64) {
    let served = cluster.served.clone();
    let limits = LimitChange { iops: Some(Some(iops)), ..LimitChange::default() };
    let order = async move { served.assembly.change_volume(volume, &VolumeChange::limits(limits)).await };
    cluster.world.run_on(&cluster.storage, 0, order).expect("the node goes on").expect("limited");
}

/// Writes from so many tasks, until one fails; how many have ended.
fn flood(cluster: &Cluster, namespace: &Namespace, depth: usize, len: usize) -> Rc<Cell<u64>> {
    let done = Rc::new(Cell::new(0));
    for task in 0..depth {
        let (namespace, done) = (namespace.clone(), done.clone());
        cluster.client.spawn(0, async move {
            let place = (task * len) as u64 % (32 << 20);
            while namespace.write(place, pattern(len, 1)).await.is_ok() {
                done.set(done.get() + 1);
            }
        });
    }
    done
}

fn in_time(cluster: &Cluster, done: &Cell<u64>, time: Duration) -> u64 {
    let before = done.get();
    cluster.pass(time);
    done.get() - before
}

fn one_queue(host: u8) -> Options {
    Options { io_queues: 1, queue_depth: 2 * DEPTH as u16, ..options(host) }
}

/// The namespace of each volume over one connection, as a Linux host has them.
fn both(cluster: &Cluster, options: Options) -> (Controller, [Namespace; 2]) {
    let (address, nsids) = (cluster.address(), cluster.served.nsids);
    cluster.run(async move {
        let (controller, first) = connect(address, &options, nsids[0]).await.expect("connected");
        let second = controller.namespace(nsids[1]).await.expect("there");
        (controller, [first, second])
    })
}

/// In-capsule writes, and those whose data is asked for.
#[test]
fn a_neighbour_on_the_same_connection_goes_on_at_full_rate() {
    for (seed, len) in [(1, 4096), (2, 16 << 10), (3, 128 << 10)] {
        let cluster = cluster(seed);
        let (_controller, [a, b]) = both(&cluster, one_queue(1));
        let beside = flood(&cluster, &b, 8, 4096);
        cluster.pass(SECOND / 10);
        let alone = in_time(&cluster, &beside, SECOND);
        limit(&cluster, "a", 20);
        let limited = flood(&cluster, &a, DEPTH, len);
        cluster.pass(SECOND);
        let before = limited.get();
        let together = in_time(&cluster, &beside, SECOND);
        assert!(together * 10 > alone * 8, "{len} bytes: {together} in a second, {alone} alone");
        cluster.pass(4 * SECOND);
        let limited = limited.get() - before;
        assert!((98..=102).contains(&limited), "{len} bytes: {limited} in five seconds");
    }
}

/// Many hosts flood one volume with the longest commands, far more than a core's budget; the neighbour is on all cores.
#[test]
fn what_waits_takes_nothing_of_the_core_s_budget() {
    let cluster = cluster(4);
    limit(&cluster, "a", 1);
    let neighbour = Options { io_queues: 2, ..options(99) };
    let (address, nsid) = (cluster.address(), cluster.served.nsids[1]);
    let (_controller, b) = cluster.run(async move { connect(address, &neighbour, nsid).await.expect("connected") });
    let beside = flood(&cluster, &b, 4, 4096);
    cluster.pass(SECOND / 10);
    let alone = in_time(&cluster, &beside, SECOND / 2);
    let mut floods = Vec::new();
    for host in 0..20 {
        // 5,120 commands, of 80 MiB that are sent along or 1.3 GiB that are asked for.
        let (controller, [a, _]) = both(&cluster, one_queue(host));
        let len = if host % 2 == 0 { 16 << 10 } else { 256 << 10 };
        floods.push((flood(&cluster, &a, 2 * DEPTH - 1, len), controller));
    }
    cluster.pass(SECOND);
    let together = in_time(&cluster, &beside, SECOND / 2);
    assert!(together * 10 > alone * 8, "{together} in half a second, {alone} alone");
    // Longer than a transfer may stand still, and than a host may be silent.
    cluster.pass(40 * SECOND);
    assert!(in_time(&cluster, &beside, SECOND / 2) * 10 > alone * 8);
    let done: u64 = floods.iter().map(|(flood, _)| flood.get()).sum();
    assert!((40..=44).contains(&done), "{done} in 42 seconds");
    let ended = floods.iter().filter(|(_, controller)| controller.queues()[0].failure().is_some()).count();
    assert_eq!(ended, 0, "no host was let go for what its volume's limit did");
}

#[test]
fn a_flush_is_never_held() {
    let cluster = cluster(5);
    limit(&cluster, "a", 1);
    let (_controller, [a, _]) = both(&cluster, one_queue(1));
    flood(&cluster, &a, DEPTH, 4096);
    cluster.pass(3 * SECOND);
    let flushed = cluster.start(async move { a.flush().await });
    cluster.pass(SECOND / 10);
    assert_eq!(*flushed.borrow(), Some(Ok(())));
}

/// A denial does not wait for what waits, and nothing of it is done later.
#[test]
fn a_denial_passes_what_waits() {
    let cluster = cluster(6);
    limit(&cluster, "a", 1);
    let (_controller, [a, _]) = both(&cluster, one_queue(1));
    flood(&cluster, &a, DEPTH, 4096);
    cluster.pass(3 * SECOND);
    let last = a.clone();
    let late = cluster.start(async move { last.write(40 << 20, pattern(4096, 9)).await });
    cluster.pass(SECOND / 10);
    let (served, began) = (cluster.served.clone(), cluster.world.now());
    let order = async move {
        for change in [HostChange::DenyAny, HostChange::Allow("nqn.2026-01.io.example:other".into())] {
            let changed = served.assembly.change_hosts("a", &change, true).await.expect("changed");
            served.target.fence_hosts(changed.nsid).await;
        }
    };
    cluster.world.run_on(&cluster.storage, 0, order).expect("the node goes on");
    assert!(cluster.world.now() - began < SECOND / 10);
    cluster.pass(SECOND);
    let refused = late.borrow_mut().take().expect("answered at once");
    assert!(matches!(refused, Err(HostError::Status(_))), "{refused:?}");
    let served = cluster.served.clone();
    let read = async move {
        let volume = served.assembly.directory().by_name("a").expect("served");
        volume.read(40 << 20, 4096).await.expect("readable").bytes.iter().all(|byte| *byte == 0)
    };
    assert!(cluster.world.run_on(&cluster.storage, 0, read).expect("the node goes on"), "nothing of it was done");
}

/// What waited when its connection ended is never done; the end of the node waits for nothing of it.
#[test]
fn what_waits_ends_with_its_connection() {
    let cluster = cluster(7);
    limit(&cluster, "a", 1);
    let (controller, [a, _]) = both(&cluster, one_queue(1));
    let first = flood(&cluster, &a, DEPTH, 4096);
    cluster.pass(3 * SECOND);
    let ended = first.get();
    let last = a.clone();
    drop(cluster.start(async move { last.write(40 << 20, pattern(4096, 9)).await }));
    cluster.pass(SECOND / 10);
    cluster.run(async move { controller.shutdown().await.expect("shut down") });
    drop(a);
    cluster.pass(SECOND);
    limit(&cluster, "a", 100_000);
    let served = cluster.served.clone();
    let (began, read) = (cluster.world.now(), async move {
        let volume = served.assembly.directory().by_name("a").expect("served");
        let is_untouched = volume.read(40 << 20, 4096).await.expect("readable").bytes.iter().all(|byte| *byte == 0);
        served.target.stop();
        served.assembly.stop().await;
        is_untouched
    });
    assert!(cluster.world.run_on(&cluster.storage, 0, read).expect("the node goes on"), "nothing of it was done");
    assert!(cluster.world.now() - began < 2 * SECOND);
    assert!(first.get() <= ended + 2, "{} of {ended}", first.get());
}
