//! A host with several paths: what it does when one of them fails. That it finds the head among several nodes, and that
//! nothing is lost by it, is shown by the simulator's workload `hosts`.

use crate::node::{Cluster, cluster, pattern};
use nvme::host::HostError;
use nvme::host::multipath::{Multipath, Namespace, Options};
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

const BLOCK: u32 = 4096;

/// A host with a path to the target, and one to where nobody is.
fn host(cluster: &Cluster, options: Options) -> (Multipath, Namespace) {
    let (nobody, there) = ((cluster.client.ip(), 4420).into(), cluster.address());
    let host = cluster.run(async move { Multipath::new(&[nobody, there], options) });
    let namespace = host.namespace(cluster.served.nsids[0]);
    (host, namespace)
}

fn options(cluster: &Cluster) -> Options {
    Options {
        io_timeout: Duration::from_secs(1),
        reconnect_delay: Duration::from_millis(100),
        ..Options::new(cluster.options(1))
    }
}

fn read(cluster: &Cluster, namespace: &Namespace) -> Vec<u8> {
    let namespace = namespace.clone();
    cluster.run(async move { namespace.read(0, BLOCK).await.expect("there is a path").to_vec() })
}

#[test]
fn a_command_waits_for_a_path_and_goes_on_over_the_next_connection() {
    let cluster = cluster(1);
    let (host, namespace) = host(&cluster, options(&cluster));
    let first = namespace.clone();
    cluster.run(async move { first.write(0, pattern(BLOCK as usize, 1)).await.expect("written") });
    assert_eq!(host.path_states(namespace.nsid()), [None, Some(1)], "one path, and it is optimized");
    cluster.world.reset_connections(&cluster.client, &cluster.storage);
    assert!(read(&cluster, &namespace) == *pattern(BLOCK as usize, 1));
    assert_eq!((host.counts().connected, host.counts().timed_out), (2, 0));
}

#[test]
fn what_has_no_answer_in_time_is_sent_again_and_its_ghost_writes_nothing() {
    for seed in 0..20 {
        let cluster = cluster(seed);
        let (host, namespace) = host(&cluster, options(&cluster));
        assert_eq!(read(&cluster, &namespace), [0; BLOCK as usize]);
        cluster.storage.pause();
        let attempts = Rc::new(Cell::new(0u8));
        let (sending, count) = (namespace.clone(), attempts.clone());
        let written = cluster.start(async move {
            let write = sending.command(|path| {
                count.set(count.get() + 1);
                let bytes = pattern(BLOCK as usize, count.get());
                async move { path.write(0, bytes).await }
            });
            write.await
        });
        cluster.pass(Duration::from_secs(3));
        assert_eq!((host.counts().timed_out, attempts.get()), (1, 1), "seed {seed}: one attempt, and no path since");
        cluster.storage.resume();
        cluster.pass(Duration::from_secs(6));
        assert_eq!(*written.borrow(), Some(Ok(())), "seed {seed}");
        let last = pattern(BLOCK as usize, attempts.get());
        assert!(attempts.get() >= 2 && read(&cluster, &namespace) == *last, "seed {seed}: a ghost wrote");
    }
}

#[test]
fn a_command_that_finds_no_path_fails_where_that_is_wanted() {
    let cluster = cluster(2);
    let wait = Duration::from_secs(2);
    let (_host, namespace) = host(&cluster, Options { no_path_timeout: Some(wait), ..options(&cluster) });
    cluster.storage.kill();
    let answer = cluster.run(async move { namespace.read(0, BLOCK).await.map(drop) });
    assert_eq!(answer, Err(HostError::NoPath(wait)));
}
