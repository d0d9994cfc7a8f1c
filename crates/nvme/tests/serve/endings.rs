//! Resets and shutdowns: bounded in time, whatever a core or a host does.

use crate::logs::{assert_logged, keep};
use crate::node::cluster;
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
