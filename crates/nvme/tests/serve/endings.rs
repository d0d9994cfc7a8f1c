//! Resets and shutdowns: bounded in time, whatever a core or a host does.

use crate::logs::{assert_logged, keep};
use crate::node::{cluster, options, pattern};
use crate::raw::{Raw, bare_controller};
use nvme::host::Controller;
use nvme::limits;
use nvme::wire::pdu::{PduType, TermReq};
use nvme::wire::{Configuration, Property, controller_status, fabrics_type, property};
use std::time::Duration;

async fn set_configuration(controller: &Controller, value: u32) {
    let set = Property { size_bytes: Some(4), offset: property::CONFIGURATION, value: u64::from(value) };
    controller.admin_command(set.encode(fabrics_type::PROPERTY_SET), 0).await.expect("set");
}

async fn status_of(controller: &Controller) -> u32 {
    let get = Property { size_bytes: Some(4), offset: property::STATUS, value: 0 };
    controller.admin_command(get.encode(fabrics_type::PROPERTY_GET), 0).await.expect("read").result as u32
}

#[test]
fn a_reset_in_which_a_core_takes_no_part_makes_the_controller_fail_in_time() {
    let cluster = cluster(1);
    let controller = bare_controller(&cluster);
    cluster.storage.pause_core(1);
    let reset = controller.clone();
    cluster.run(async move { set_configuration(&reset, Configuration::ENABLE.0 & !1).await });
    let look = |controller: &Controller| {
        let controller = controller.clone();
        cluster.run(async move { status_of(&controller).await })
    };
    assert_eq!(look(&controller), controller_status::READY, "under way");
    cluster.pass(limits::RESET_TIMEOUT + Duration::from_millis(100));
    assert_eq!(look(&controller) & controller_status::FATAL, controller_status::FATAL);
    cluster.storage.resume_core(1);
    cluster.pass(Duration::from_secs(1));
    // The way out that is always there.
    drop(controller);
    cluster.pass(Duration::from_secs(1));
    assert!(cluster.served.target.controllers().is_empty());
    let again = bare_controller(&cluster);
    assert_eq!(look(&again), controller_status::READY);
}

#[test]
fn a_host_that_shuts_down_and_stays_is_let_go() {
    let cluster = cluster(2);
    let controller = bare_controller(&cluster);
    let normal = 1 << 14;
    {
        let controller = controller.clone();
        cluster.run(async move {
            set_configuration(&controller, Configuration::ENABLE.0 | normal).await;
            runtime::sleep(Duration::from_millis(50)).await;
            let status = status_of(&controller).await;
            assert_eq!(status & 0b1100, controller_status::SHUTDOWN_COMPLETE);
        });
    }
    cluster.pass(limits::SHUTDOWN_TIMEOUT - Duration::from_secs(5));
    assert_eq!(cluster.served.target.controllers().len(), 1, "its keep alive still counts");
    cluster.pass(Duration::from_secs(10));
    assert!(cluster.served.target.controllers().is_empty());
}

#[test]
fn a_termreq_of_the_host_closes_the_connection_at_once_and_is_logged() {
    keep();
    let cluster = cluster(3);
    let controller = bare_controller(&cluster);
    let (address, id) = (cluster.address(), controller.id());
    let closed = cluster.start(async move {
        let raw = Raw::queue(address, id, 15).await;
        raw.writer.borrow_mut().terminate(PduType::H2cTermReq, &TermReq { status: 4, information: 12 }, &[7; 24]);
        raw.send().await;
        raw.read_to_end().await
    });
    cluster.pass(Duration::from_millis(200));
    assert_eq!(*closed.borrow(), Some(Vec::new()));
    assert_logged(&["queue 1", "the host says", "fatal error 4", "information 12"]);
}

/// A stop under load: of what was sent everything that was done is answered, and nothing else is.
#[test]
fn a_drain_answers_what_was_admitted() {
    const BLOCKS: u64 = 4000;
    for seed in 0..4 {
        let cluster = cluster(seed);
        let (_controller, namespace) = cluster.connect(options(1));
        let answered: Vec<_> = (0..BLOCKS)
            .map(|block| {
                let namespace = namespace.clone();
                cluster.start(async move { namespace.write(block * 4096, pattern(4096, 7)).await.is_ok() })
            })
            .collect();
        cluster.pass(Duration::from_millis(5 + 3 * seed));
        let (served, began) = (cluster.served.clone(), cluster.world.now());
        let stop = async move {
            served.target.drain().await;
            served.target.stop();
        };
        cluster.world.run_on(&cluster.storage, 0, stop).expect("the node goes on");
        assert!(cluster.world.now() - began < Duration::from_millis(500), "{:?}", cluster.world.now() - began);
        cluster.pass(Duration::from_secs(1));
        let served = cluster.served.clone();
        let read = async move {
            let volume = served.assembly.directory().by_name("a").expect("served");
            let mut written = Vec::new();
            for block in 0..BLOCKS {
                let read = volume.read(block * 4096, 4096).await.expect("readable");
                written.push(read.bytes.iter().any(|byte| *byte != 0));
            }
            written
        };
        let written = cluster.world.run_on(&cluster.storage, 0, read).expect("the node goes on");
        let answered: Vec<bool> = answered.iter().map(|answer| *answer.borrow() == Some(true)).collect();
        let done = answered.iter().filter(|is_answered| **is_answered).count();
        assert!(done > 0 && done < BLOCKS as usize, "seed {seed}: stopped in the middle, {done} were answered");
        let differs = answered.iter().zip(&written).position(|(answered, written)| answered != written);
        assert_eq!(differs, None, "seed {seed}: a block is written and its write is not answered");
    }
}
