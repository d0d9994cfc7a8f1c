//! Which hosts may use which volumes: told, kept, and changed under running hosts.

use crate::node::{Cluster, NQN, VOLUME_BYTES, cluster, connect, pattern};
use nvme::host::{Controller, HostError, HostIdentity, Options, discover};
use nvme::wire::log::{decode_ana, page};
use nvme::wire::{ANA_NOTICES, NAMESPACE_NOTICES, Sqe, Status, admin, feature};
use std::time::Duration;
use volume::HostChange;

fn host(number: u8) -> String {
    format!("nqn.2026-01.io.example:host-{number}")
}

fn options(number: u8) -> Options {
    Options::new(HostIdentity { nqn: host(number), id: [number; 16] }, NQN)
}

/// Changes the hosts of a volume as the node does: the map, every core, and then the fence.
fn change(cluster: &Cluster, volume: &'static str, change: HostChange) {
    let served = cluster.served.clone();
    let order = async move {
        let changed = served.assembly.change_hosts(volume, &change, true).await.expect("changed");
        served.target.fence_hosts(changed.nsid).await;
    };
    cluster.world.run_on(&cluster.storage, 0, order).expect("the node goes on");
}

fn allow(cluster: &Cluster, volume: &'static str, number: u8) {
    change(cluster, volume, HostChange::Allow(host(number)));
}

fn deny(cluster: &Cluster, volume: &'static str, number: u8) {
    change(cluster, volume, HostChange::Deny(host(number)));
}

async fn want_events(controller: &Controller) {
    let mut sqe = Sqe::new(admin::SET_FEATURES, 0);
    sqe.cdw[0] = u32::from(feature::ASYNC_EVENT_CONFIGURATION);
    sqe.cdw[1] = NAMESPACE_NOTICES | ANA_NOTICES;
    controller.admin_command(sqe, 0).await.expect("configured");
}

fn status<T: std::fmt::Debug>(result: Result<T, HostError>) -> Option<Status> {
    result.expect_err("refused").status().map(Status::code)
}

#[test]
fn a_host_sees_the_namespaces_it_may_use_and_no_trace_of_others() {
    let cluster = cluster(1);
    let [a, b] = cluster.served.nsids;
    allow(&cluster, "a", 1);
    let address = cluster.address();
    cluster.run(async move {
        let ours = Controller::connect(address, &options(1)).await.expect("connected");
        assert_eq!(ours.namespaces().await, Ok(vec![a, b]));
        let other = Controller::connect(address, &options(2)).await.expect("connected");
        assert_eq!(other.namespaces().await, Ok(vec![b]));
        assert!(other.namespace(a).await.is_err(), "it reads as inactive");
        let ana = other.log_page(page::ANA, 0, 4096).await.expect("ANA");
        assert_eq!(decode_ana(&ana).iter().map(|(group, ..)| *group).collect::<Vec<_>>(), [b]);
        let mut read = Sqe::new(nvme::wire::nvm::READ, a);
        read.cdw[2] = 0;
        assert_eq!(status(other.queues()[0].submit(read, None, 512).await), Some(Status::INVALID_NAMESPACE));
        let (_, namespace) = connect(address, &options(2), b).await.expect("connected");
        namespace.write(0, pattern(4096, 1)).await.expect("what is open to all");
    });
}

#[test]
fn a_host_that_may_use_nothing_is_refused_and_discovery_does_not_name_the_subsystem_to_it() {
    crate::logs::keep();
    let cluster = cluster(2);
    for volume in ["a", "b"] {
        allow(&cluster, volume, 1);
    }
    let address = cluster.address();
    cluster.run(async move {
        assert!(Controller::connect(address, &options(1)).await.is_ok());
        let refused = Controller::connect(address, &options(2)).await.map(|_| ());
        assert_eq!(status(refused), Some(Status::CONNECT_INVALID_HOST));
        for (number, listed) in [(1, 1), (2, 0)] {
            let entries = discover(address, &options(number).host).await.expect("discovered");
            assert_eq!(entries.iter().filter(|entry| !entry.is_discovery).count(), listed, "host {number}");
        }
    });
    crate::logs::assert_logged(&["host-2", "invalid host"]);
}

#[test]
fn running_hosts_are_told_when_they_may_use_more_or_less() {
    let cluster = cluster(3);
    let [a, b] = cluster.served.nsids;
    allow(&cluster, "a", 1);
    let address = cluster.address();
    let controller = cluster.run(async move {
        let controller = Controller::connect(address, &options(2)).await.expect("connected");
        want_events(&controller).await;
        controller
    });
    for (step, expected) in [(true, vec![a, b]), (false, vec![b]), (true, vec![a, b])] {
        let told = {
            let controller = controller.clone();
            cluster.start(async move { controller.next_event().await })
        };
        cluster.pass(Duration::from_millis(50));
        assert!(told.borrow().is_none());
        if step {
            allow(&cluster, "a", 2)
        } else {
            deny(&cluster, "a", 2)
        }
        // What another host may use is none of its business.
        allow(&cluster, "a", 3);
        cluster.pass(Duration::from_millis(50));
        assert_eq!(*told.borrow(), Some(Ok(0x0004_0002)));
        let controller = controller.clone();
        let (changed, list) = cluster.run(async move {
            let changed = controller.log_page(page::CHANGED_NAMESPACES, 0, 4096).await.expect("page");
            (changed[..8].to_vec(), controller.namespaces().await.expect("list"))
        });
        assert_eq!(changed, [a.to_le_bytes(), [0; 4]].concat(), "one namespace changed for it");
        assert_eq!(list, expected);
    }
}

/// A host writes without end; when `deny` is done nothing of it is written any more, on any core, whatever was on its way.
#[test]
fn when_a_host_is_denied_nothing_of_it_is_done_any_more() {
    for seed in 0..12 {
        let cluster = cluster(seed);
        let address = cluster.address();
        let nsid = cluster.served.nsids[0];
        for number in [1, 2] {
            allow(&cluster, "a", number);
        }
        // In the capsule, by R2T, over two chunks; both cores, several queues.
        let mut writers = Vec::new();
        for (lane, len) in [(0u64, 4096usize), (1, 64 << 10), (2, 256 << 10)] {
            let mut options = options(1);
            options.host.id = [10 + lane as u8; 16]; // else each would end the one before
            options.io_queues = 2;
            options.queue_depth = 4;
            writers.push(cluster.start(async move {
                let (_controller, namespace) = connect(address, &options, nsid).await.expect("connected");
                for round in 0u64.. {
                    let offset = (2 * lane + 1) * (4 << 20) - len as u64 / 2 / 4096 * 4096;
                    let data = pattern(len, round as u8);
                    if let Err(error) = namespace.write(offset, data).await {
                        return error;
                    }
                }
                unreachable!("it is denied before")
            }));
        }
        cluster.pass(Duration::from_micros(3000 + seed * 137));
        deny(&cluster, "a", 1);
        let (controller, namespace) =
            cluster.run(async move { connect(address, &options(2), nsid).await.expect("connected") });
        let image = |namespace: nvme::host::Namespace| async move {
            let mut all = Vec::new();
            for offset in (0..VOLUME_BYTES).step_by(1 << 20) {
                all.extend_from_slice(&namespace.read(offset, 1 << 20).await.expect("read"));
            }
            all
        };
        let before = {
            let namespace = namespace.clone();
            cluster.run(async move { image(namespace).await })
        };
        cluster.pass(Duration::from_secs(1));
        let after = cluster.run(async move { image(namespace).await });
        assert!(before == after, "seed {seed}: a denied host wrote");
        for writer in writers {
            let error = writer.borrow_mut().take().expect("it was refused");
            assert_eq!(error.status().map(Status::code), Some(Status::INVALID_NAMESPACE), "seed {seed}: {error}");
        }
        drop(controller);
    }
}

#[test]
fn persistent_discovery_hosts_are_told_of_what_changes_for_them_and_of_nothing_else() {
    let cluster = cluster(4);
    let address = cluster.served.discovery;
    let persistent = |number: u8| {
        cluster.run(async move {
            let mut options = options(number);
            options.subsystem = nvme::wire::DISCOVERY_NQN.to_owned();
            options.io_queues = 0;
            let controller = Controller::connect(address, &options).await.expect("connected");
            let mut sqe = Sqe::new(admin::SET_FEATURES, 0);
            sqe.cdw[0] = u32::from(feature::ASYNC_EVENT_CONFIGURATION);
            sqe.cdw[1] = nvme::wire::DISCOVERY_NOTICES;
            controller.admin_command(sqe, 0).await.expect("configured");
            controller
        })
    };
    let read = |controller: &Controller| {
        let controller = controller.clone();
        cluster.run(async move {
            let page = controller.log_page(page::DISCOVERY, 0, 1024).await.expect("read");
            let number = |at: usize| u64::from_le_bytes(page[at..at + 8].try_into().expect("8 bytes"));
            (number(0), number(8))
        })
    };
    let (one, two) = (persistent(1), persistent(2));
    let wait = |controller: &Controller| {
        let controller = controller.clone();
        cluster.start(async move { controller.next_event().await })
    };
    let (told_one, told_two) = (wait(&one), wait(&two));
    let before = (read(&one), read(&two));
    assert_eq!(before.0, before.1);
    // Both lose nothing by the first step, and host 2 the subsystem by the second.
    allow(&cluster, "a", 1);
    cluster.pass(Duration::from_millis(20));
    assert!(told_one.borrow().is_none() && told_two.borrow().is_none());
    allow(&cluster, "b", 1);
    cluster.pass(Duration::from_millis(20));
    assert_eq!(*told_two.borrow(), Some(Ok(0x0070_F002)));
    assert!(told_one.borrow().is_none(), "nothing changed for host 1");
    let after = (read(&one), read(&two));
    assert!(after.1.0 > before.1.0, "the generation counts up");
    assert_eq!((after.0.1, after.1.1), (before.0.1, before.1.1 - 1), "one entry is gone, for host 2");
    // Another port: both are told.
    let told_two = wait(&two);
    let served = cluster.served.clone();
    let ip = cluster.storage.ip();
    let open = async move {
        let listener = runtime::TcpListener::bind((ip, 0).into()).expect("a free port");
        runtime::spawn(served.target.clone().serve(listener, nvme::serve::Port::Discovery))
    };
    let listening = cluster.world.run_on(&cluster.storage, 0, open).expect("open");
    cluster.pass(Duration::from_millis(20));
    assert_eq!((told_one.borrow().clone(), told_two.borrow().clone()), (Some(Ok(0x0070_F002)), Some(Ok(0x0070_F002))));
    assert_eq!(read(&two).1, after.1.1 + 1);
    // And when it is closed.
    let told_two = wait(&two);
    let close = async move { listening.cancel() };
    cluster.world.run_on(&cluster.storage, 0, close).expect("closed");
    cluster.pass(Duration::from_millis(20));
    assert_eq!(*told_two.borrow(), Some(Ok(0x0070_F002)));
    assert_eq!(read(&two).1, after.1.1);
}
