//! Our host and the target together: every kind of command, every kind of transfer.

use crate::node::{NQN, VOLUME_BYTES, cluster, connect, new_volume, options, pattern};
use nvme::host::{Controller, HostError, discover};
use nvme::serve::OtherNode;
use nvme::wire::{NAMESPACE_NOTICES, Sqe, Status, admin, feature};
use std::time::Duration;

#[test]
fn both_ports_list_the_subsystem() {
    let cluster = cluster(1);
    let host = options(1).host;
    for address in [cluster.served.address, cluster.served.discovery] {
        let host = host.clone();
        let entries = cluster.run(async move { discover(address, &host).await }).expect("discovered");
        let io: Vec<_> = entries.iter().filter(|entry| !entry.is_discovery).collect();
        assert_eq!(io.len(), 1);
        assert_eq!(io[0].subsystem, NQN);
        assert_eq!(format!("{}:{}", io[0].address, io[0].service), cluster.served.address.to_string());
    }
    let (address, options) = (cluster.served.discovery, cluster.options(1));
    let refused = cluster.run(async move { Controller::connect(address, &options).await.map(|_| ()) });
    let status = refused.expect_err("a discovery port").status().map(Status::code);
    assert_eq!(status, Some(Status::CONNECT_INVALID_PARAMETERS));
}

#[test]
fn discovery_names_other_nodes_as_far_as_a_host_needs_them() {
    let cluster = cluster(1);
    let other = |node: u8| OtherNode {
        node: types::NodeId(node.into()),
        port_id: 1000 * u16::from(node),
        address: ([10, 0, 0, node], 4420).into(),
    };
    let host = options(1).host;
    let named = || {
        let (address, host) = (cluster.address(), host.clone());
        let entries = cluster.run(async move { discover(address, &host).await }).expect("discovered");
        let io = entries.into_iter().filter(|entry| !entry.is_discovery);
        io.map(|entry| (entry.port_id, format!("{}:{}", entry.address, entry.service))).collect::<Vec<_>>()
    };
    let own = (1, cluster.address().to_string());
    assert_eq!(named(), vec![own.clone()]);
    let told = |nodes: std::ops::Range<u8>| nodes.map(|node| (1000 * u16::from(node), format!("10.0.0.{node}:4420")));
    for (there, expected) in [(2..4, 2..4), (2..9, 2..5), (6..7, 6..7)] {
        cluster.served.target.set_others(there.map(other).collect());
        assert_eq!(named(), std::iter::once(own.clone()).chain(told(expected)).collect::<Vec<_>>());
    }
}

#[test]
fn what_is_written_is_read_back_through_every_transfer_and_queue() {
    for (seed, (header_digest, data_digest)) in
        [(false, false), (true, false), (false, true), (true, true)].iter().enumerate()
    {
        let cluster = cluster(seed as u64);
        let mut options = cluster.options(1);
        options.io_queues = 3;
        options.queue_depth = 8;
        options.header_digest = *header_digest;
        options.data_digest = *data_digest;
        options.no_flow_control = *data_digest;
        let (address, nsids) = (cluster.address(), cluster.served.nsids);
        cluster.run(async move {
            let (controller, small) = connect(address, &options, nsids[0]).await.expect("connected");
            assert_eq!(controller.queues().len(), 3);
            assert_eq!(controller.namespaces().await.expect("list"), nsids);
            let large = controller.namespace(nsids[1]).await.expect("namespace");
            assert_eq!((small.block_bytes(), large.block_bytes()), (512, 4096));
            assert_eq!(small.size_bytes(), VOLUME_BYTES);
            for (round, len) in [512usize, 4096, 16384, 16896, 65536, 131072, 1 << 20].into_iter().enumerate() {
                for namespace in [&small, &large] {
                    let len = len.next_multiple_of(namespace.block_bytes() as usize);
                    let data = pattern(len, round as u8);
                    let offset = (round as u64) << 21;
                    namespace.write(offset, data.clone()).await.expect("written");
                    let read = namespace.read(offset, len as u32).await.expect("read");
                    assert!(*read == *data, "{len} bytes, round {round}");
                }
            }
        });
    }
}

#[test]
fn many_commands_at_once_each_get_their_own_answer() {
    let cluster = cluster(5);
    let mut options = cluster.options(1);
    options.io_queues = 2;
    options.queue_depth = 16;
    let (address, nsid) = (cluster.address(), cluster.served.nsids[1]);
    cluster.run(async move {
        let (_controller, namespace) = connect(address, &options, nsid).await.expect("connected");
        let (sender, mut receiver) = runtime::channel::bounded(256);
        for index in 0..200u64 {
            let (namespace, sender) = (namespace.clone(), sender.clone());
            runtime::spawn(async move {
                let data = pattern(8192, index as u8);
                namespace.write(index * 8192, data.clone()).await.expect("written");
                let read = namespace.read(index * 8192, 8192).await.expect("read");
                let _ = sender.try_send(*read == *data);
            });
        }
        drop(sender);
        let mut right = 0;
        while let Ok(same) = receiver.recv().await {
            assert!(same);
            right += 1;
        }
        assert_eq!(right, 200);
    });
}

#[test]
fn zeroes_discard_compare_and_flush_reach_the_volume() {
    let cluster = cluster(6);
    let (controller, namespace) = cluster.connect(cluster.options(1));
    cluster.run(async move {
        let _controller = controller;
        let data = pattern(64 << 10, 3);
        namespace.write(0, data.clone()).await.expect("written");
        namespace.flush().await.expect("flushed");
        namespace.compare(0, data.clone()).await.expect("the same");
        let different = namespace.compare(0, pattern(64 << 10, 4)).await.expect_err("different");
        assert_eq!(different.status().map(Status::code), Some(Status::COMPARE_FAILURE));
        namespace.write_zeroes(512, 1024, false).await.expect("zeroed");
        namespace.deallocate(&[(8192, 4096), (16384, 8192)]).await.expect("deallocated");
        let read = namespace.read(0, 64 << 10).await.expect("read");
        for (index, byte) in read.iter().enumerate() {
            let zero =
                (512..1536).contains(&index) || (8192..12288).contains(&index) || (16384..24576).contains(&index);
            assert_eq!(*byte, if zero { 0 } else { data[index] }, "byte {index}");
        }
        let behind = namespace.read(VOLUME_BYTES, 512).await.expect_err("behind the end");
        assert_eq!(behind.status().map(Status::code), Some(Status::LBA_OUT_OF_RANGE));
        let discard = namespace.deallocate(&[(VOLUME_BYTES - 4096, 8192)]).await.expect_err("behind the end");
        assert_eq!(discard.status().map(Status::code), Some(Status::LBA_OUT_OF_RANGE));
    });
}

#[test]
fn compare_and_write_is_one_for_hosts_on_other_cores_and_connections() {
    let cluster = cluster(11);
    // A counter that fits the capsule and lies over two chunks, and one whose data is asked for.
    for (offset, len) in [((1u64 << 20) - 4096, 8192usize), (4 << 20, 32 << 10)] {
        let image = move |value: u64| {
            let mut buf = runtime::IoBuf::new(len);
            buf.chunks_exact_mut(8).for_each(|word| word.copy_from_slice(&value.to_le_bytes()));
            buf.freeze()
        };
        let hosts: Vec<_> = (1..4)
            .map(|host| {
                let mut options = cluster.options(host);
                options.io_queues = 2;
                let (controller, namespace) = cluster.connect(options);
                cluster.start(async move {
                    let _controller = controller;
                    let mut raised = 0;
                    while raised < 10 {
                        let bytes = namespace.read(offset, len as u32).await.expect("read");
                        let value = u64::from_le_bytes(bytes[..8].try_into().expect("8 bytes"));
                        let pair = namespace.compare_and_write(offset, image(value), image(value + 1));
                        match pair.await.expect("answered") {
                            (Ok(()), Ok(())) => raised += 1,
                            (Err(compare), Err(write)) => {
                                assert_eq!(compare.status().map(Status::code), Some(Status::COMPARE_FAILURE));
                                assert_eq!(write.status().map(Status::code), Some(Status::ABORTED_FAILED_FUSED));
                            }
                            other => panic!("{other:?}"),
                        }
                    }
                })
            })
            .collect();
        cluster.pass(Duration::from_secs(2));
        assert!(hosts.iter().all(|host| host.borrow().is_some()), "all have raised it ten times");
        let (_controller, namespace) = cluster.connect(cluster.options(9));
        let last = cluster.run(async move { namespace.read(offset, len as u32).await.expect("read") });
        assert!(*last == *image(30), "a raise was lost");
    }
}

#[test]
fn a_host_is_told_of_namespaces_that_come_and_go() {
    let cluster = cluster(7);
    let (controller, namespace) = cluster.connect(cluster.options(1));
    let told = {
        let controller = controller.clone();
        cluster.run({
            let controller = controller.clone();
            async move {
                let mut sqe = Sqe::new(admin::SET_FEATURES, 0);
                sqe.cdw[0] = u32::from(feature::ASYNC_EVENT_CONFIGURATION);
                sqe.cdw[1] = NAMESPACE_NOTICES;
                controller.admin_command(sqe, 0).await.expect("configured");
            }
        });
        cluster.start(async move { controller.next_event().await })
    };
    cluster.pass(Duration::from_millis(50));
    assert!(told.borrow().is_none());
    let served = cluster.served.clone();
    let nsid = cluster
        .world
        .run_on(&cluster.storage, 0, async move {
            let new = new_volume("c", 1 << 20, 4096);
            served.assembly.create_volume(new).await.expect("a third volume").nsid
        })
        .expect("created");
    cluster.pass(Duration::from_millis(100));
    assert_eq!(*told.borrow(), Some(Ok(0x0004_0002)));
    let list = {
        let controller = controller.clone();
        cluster.run(async move { controller.namespaces().await }).expect("list")
    };
    assert!(list.contains(&nsid));
    let served = cluster.served.clone();
    cluster
        .world
        .run_on(&cluster.storage, 0, async move { served.assembly.delete_volume("a").await.map_err(|e| e.to_string()) })
        .expect("ran")
        .expect("deleted");
    let gone = cluster.run(async move { namespace.read(0, 512).await }).expect_err("deleted");
    assert_eq!(gone.status().map(Status::code), Some(Status::INVALID_NAMESPACE));
    drop(controller);
}

#[test]
fn a_shutdown_in_good_order_and_a_stop_of_the_target_free_everything() {
    let cluster = cluster(8);
    let (controller, namespace) = cluster.connect(cluster.options(1));
    assert_eq!(cluster.served.target.controllers().len(), 1);
    drop(namespace);
    cluster.run(async move { controller.shutdown().await }).expect("shut down");
    cluster.pass(Duration::from_millis(100));
    assert!(cluster.served.target.controllers().is_empty());

    let (_controller, namespace) = cluster.connect(cluster.options(1));
    let served = cluster.served.clone();
    cluster.world.run_on(&cluster.storage, 0, async move { served.target.stop() }).expect("stopped");
    cluster.pass(Duration::from_millis(100));
    let lost = cluster.run(async move { namespace.read(0, 512).await }).expect_err("the target has stopped");
    assert!(matches!(lost, HostError::Connection(_)), "{lost}");
}
