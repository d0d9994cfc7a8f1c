//! Abort over the whole target: the command is of a queue on another core than the Abort.

use crate::node::{Cluster, cluster};
use crate::raw::{Raw, bare_controller, bytes};
use nvme::host::Controller;
use nvme::wire::{Cqe, Sqe, Status, admin, nvm};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

const COMMAND: u16 = 42;

fn abort(cluster: &Cluster, controller: &Controller, queue: u32, command: u16) -> Rc<RefCell<Option<u64>>> {
    let controller = controller.clone();
    cluster.start(async move {
        let mut sqe = Sqe::new(admin::ABORT, 0);
        sqe.cdw[0] = queue | u32::from(command) << 16;
        controller.admin_command(sqe, 0).await.expect("answered").result & 1
    })
}

/// A write on queue 1 that was asked for its data, and the tag of that.
fn waiting_write(cluster: &Cluster, controller: &Controller) -> (Raw, u16) {
    let (address, id, nsid) = (cluster.address(), controller.id(), cluster.served.nsids[1]);
    cluster.run(async move {
        let raw = Raw::queue(address, id, 15).await;
        raw.io(nvm::WRITE, nsid, COMMAND, 8);
        raw.send().await;
        let r2t = raw.read(24).await;
        (raw, u16::from_le_bytes([r2t[10], r2t[11]]))
    })
}

#[test]
fn a_write_is_aborted_when_its_data_has_come_and_the_abort_is_answered_after_it() {
    let cluster = cluster(1);
    let controller = bare_controller(&cluster);
    let (raw, tag) = waiting_write(&cluster, &controller);
    let aborted = abort(&cluster, &controller, 1, COMMAND);
    cluster.pass(Duration::from_millis(500));
    assert!(aborted.borrow().is_none(), "its data is on the way");
    let cqe = cluster.run(async move {
        raw.writer.borrow_mut().h2c_data(COMMAND, tag, 0, bytes(&[1; 8 << 12]), true);
        raw.send().await;
        let answer = raw.read(24).await;
        Cqe::decode(answer[8..].try_into().expect("a completion"))
    });
    assert_eq!((cqe.command, cqe.status), (COMMAND, Status::ABORT_REQUESTED));
    cluster.pass(Duration::from_millis(50));
    assert_eq!(*aborted.borrow(), Some(0));
}

#[test]
fn an_abort_is_answered_in_time_whatever_the_host_does() {
    let cluster = cluster(2);
    let controller = bare_controller(&cluster);
    let (raw, _) = waiting_write(&cluster, &controller);
    let aborted = abort(&cluster, &controller, 1, COMMAND);
    cluster.pass(nvme::limits::ABORT_TIMEOUT + Duration::from_millis(100));
    assert_eq!(*aborted.borrow(), Some(1), "not aborted so far");
    for (queue, command) in [(1, 7), (2, COMMAND), (99, 1), (0xFFFF, 1)] {
        let nothing = abort(&cluster, &controller, queue, command);
        cluster.pass(Duration::from_millis(100));
        assert_eq!(*nothing.borrow(), Some(1), "queue {queue}, command {command}");
    }
    drop(raw);
}
