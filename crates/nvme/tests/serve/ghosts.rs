//! Commands of a host that has given its connection up must not be executed later, and silent hosts are let go.

use crate::ghost_write::{BLOCK, ghost_write, read};
use crate::node::{cluster, connect, pattern};
use nvme::host::HostError;
use runtime::TcpStream;
use std::time::Duration;

#[test]
fn what_a_host_gave_up_while_the_target_stood_still_is_not_executed() {
    for seed in 0..20 {
        let cluster = cluster(seed);
        let (_controller, namespace, first) = ghost_write(&cluster, Duration::from_millis(300));
        assert!(read(&cluster, &namespace) == first, "seed {seed}: a ghost wrote");
    }
}

#[test]
fn a_controller_whose_host_is_silent_ends_after_its_keep_alive_timeout() {
    let cluster = cluster(1);
    let (_controller, namespace) = cluster.connect(cluster.options(1));
    cluster.pass(Duration::from_secs(30));
    assert_eq!(cluster.served.target.controllers().len(), 1, "kept alive by the host");
    cluster.world.silence_connections(&cluster.client, &cluster.storage);
    // The last keep alive came at most 2.5 s ago.
    cluster.pass(Duration::from_secs(2));
    assert_eq!(cluster.served.target.controllers().len(), 1, "not yet");
    cluster.pass(Duration::from_secs(5));
    assert!(cluster.served.target.controllers().is_empty());
    drop(namespace);
}

#[test]
fn a_pause_longer_than_the_keep_alive_timeout_ends_the_controller_before_a_byte_is_read() {
    let cluster = cluster(2);
    let (_controller, namespace) = cluster.connect(cluster.options(1));
    let first = pattern(BLOCK as usize, 1);
    {
        let (namespace, first) = (namespace.clone(), first.clone());
        cluster.run(async move { namespace.write(0, first).await.expect("written") });
    }
    cluster.storage.pause();
    // The host's connections stay open: only the clock says that it may have gone elsewhere.
    let late = {
        let namespace = namespace.clone();
        cluster.start(async move { namespace.write(0, pattern(BLOCK as usize, 2)).await })
    };
    cluster.pass(Duration::from_secs(8));
    cluster.storage.resume();
    cluster.pass(Duration::from_secs(1));
    assert!(matches!(*late.borrow(), Some(Err(HostError::Connection(_)))), "{:?}", late.borrow());
    let (_controller, namespace) = cluster.connect(cluster.options(1));
    assert!(read(&cluster, &namespace) == *first);
}

#[test]
fn a_host_that_comes_again_ends_its_older_controller_first() {
    let cluster = cluster(3);
    let (older, namespace) = cluster.connect(cluster.options(1));
    let (other, other_namespace) = cluster.connect(cluster.options(2));
    let (newer, new_namespace) = cluster.connect(cluster.options(1));
    let lost = cluster.run(async move { namespace.read(0, BLOCK).await }).expect_err("the older controller ended");
    assert!(matches!(lost, HostError::Connection(_)), "{lost}");
    assert!(older.admin().failure().is_some());
    cluster.run(async move {
        new_namespace.read(0, BLOCK).await.expect("the newer one lives");
        other_namespace.read(0, BLOCK).await.expect("another host's lives");
    });
    assert_eq!(cluster.served.target.controllers().len(), 2);
    drop((newer, other));
}

#[test]
fn the_older_controller_ends_on_a_core_that_stands_still_before_the_newer_is_answered() {
    let cluster = cluster(4);
    // Queue 1 lives on core 1, the admin queue on core 0.
    let (_older, namespace) = cluster.connect(cluster.options(1));
    let first = pattern(BLOCK as usize, 1);
    {
        let (namespace, first) = (namespace.clone(), first.clone());
        cluster.run(async move { namespace.write(0, first).await.expect("written") });
    }
    cluster.storage.pause_core(1);
    let late = {
        let namespace = namespace.clone();
        cluster.start(async move { namespace.write(0, pattern(BLOCK as usize, 2)).await })
    };
    let (address, options, nsid) = (cluster.address(), cluster.options(1), cluster.served.nsids[0]);
    let again = cluster.start(async move { connect(address, &options, nsid).await });
    cluster.pass(Duration::from_millis(60));
    assert!(again.borrow().is_none(), "answered before the older controller had ended everywhere");
    cluster.storage.resume_core(1);
    cluster.pass(Duration::from_millis(200));
    assert!(matches!(*late.borrow(), Some(Err(_)) | Some(Ok(()))));
    let executed = matches!(*late.borrow(), Some(Ok(())));
    let connected = again.borrow_mut().take().expect("answered").map_err(|error| error.to_string());
    let (_controller, namespace) = connected.expect("connected");
    let now = read(&cluster, &namespace);
    let expected = if executed { pattern(BLOCK as usize, 2) } else { first };
    assert!(now == *expected, "what the older controller did, it did before the newer was answered");
}

#[test]
fn a_connection_that_says_nothing_is_closed() {
    let cluster = cluster(5);
    let address = cluster.address();
    let silent = cluster.start(async move {
        let stream = TcpStream::connect(address).await.expect("connected");
        stream.recv().await.map(|bytes| bytes.len())
    });
    cluster.pass(Duration::from_secs(9));
    assert!(silent.borrow().is_none());
    cluster.pass(Duration::from_secs(2));
    assert!(matches!(*silent.borrow(), Some(Ok(0) | Err(_))));
}

#[test]
fn connections_that_break_at_any_moment_leave_nothing_behind() {
    for seed in 0..10 {
        let cluster = cluster(seed);
        let (controller, namespace) = cluster.connect(cluster.options(1));
        for index in 0..64u64 {
            let namespace = namespace.clone();
            drop(cluster.start(async move { namespace.write(index << 17, pattern(128 << 10, 7)).await }));
        }
        cluster.pass(Duration::from_micros(100 + seed * 150));
        cluster.world.reset_connections(&cluster.client, &cluster.storage);
        cluster.pass(Duration::from_secs(1));
        assert!(cluster.served.target.controllers().is_empty(), "seed {seed}");
        let (_controller, namespace) = cluster.connect(cluster.options(1));
        read(&cluster, &namespace);
        drop(controller);
    }
}
