//! What ends a connection, and that it says why.

use crate::harness::{Answer, Digests, Host, shared, world};
use nvme::wire::pdu::{FatalError, PduType, R2t, TermReq};
use nvme::wire::{Sgl, Sqe, nvm};

fn io_queue(digests: Digests) -> (Host, Host) {
    let world = world();
    let (admin, id) = Host::admin(&world, digests, usize::MAX);
    (Host::io(&world, id, 1, digests, usize::MAX), admin)
}

fn write(len: u32) -> Sqe {
    let mut sqe = Sqe::new(nvm::WRITE, 1);
    sqe.cdw[2] = len / 512 - 1;
    sqe.sgl = Sgl::transport(len);
    sqe
}

fn asked_for(host: &mut Host, len: u32) -> R2t {
    host.queue_command(write(len), None);
    match &host.exchange()[..] {
        [Answer::R2t(r2t)] => *r2t,
        other => panic!("{other:?}"),
    }
}

fn fatal(host: &mut Host) -> (u16, u32) {
    let answers = host.exchange();
    assert!(host.terminated);
    match answers.last() {
        Some(Answer::Term(term)) => (term.status, term.information),
        other => panic!("no TermReq: {other:?}"),
    }
}

#[test]
fn a_wrong_header_digest_is_fatal() {
    let (mut host, _admin) = io_queue(Digests(true, false));
    host.queue_command(Sqe::new(nvm::FLUSH, 1), None);
    let mut bytes = host.writer.drain_to_vec();
    bytes[20] ^= 1;
    let answers = host.send(&bytes);
    assert!(matches!(&answers[..], [Answer::Term(term)] if term.status == FatalError::HeaderDigest as u16));
}

#[test]
fn data_for_nobody_or_for_another_command_is_fatal() {
    let (mut host, _admin) = io_queue(Digests(false, false));
    host.writer.h2c_data(1, 3, 0, shared(&[0; 512]), true);
    assert_eq!(fatal(&mut host), (FatalError::InvalidHeaderField as u16, 10));

    let (mut host, _admin) = io_queue(Digests(false, false));
    let r2t = asked_for(&mut host, 32768);
    host.writer.h2c_data(r2t.command + 1, r2t.transfer_tag, 0, shared(&[0; 512]), true);
    assert_eq!(fatal(&mut host), (FatalError::InvalidHeaderField as u16, 8));

    let (mut host, _admin) = io_queue(Digests(false, false));
    asked_for(&mut host, 32768);
    host.writer.h2c_data(1, 60000, 0, shared(&[0; 512]), true);
    assert_eq!(fatal(&mut host), (FatalError::InvalidHeaderField as u16, 10));
}

#[test]
fn data_out_of_order_or_too_long_is_fatal() {
    let (mut host, _admin) = io_queue(Digests(false, false));
    let r2t = asked_for(&mut host, 32768);
    host.writer.h2c_data(r2t.command, r2t.transfer_tag, 512, shared(&[0; 512]), false);
    assert_eq!(fatal(&mut host), (FatalError::DataOutOfRange as u16, 12));

    let (mut host, _admin) = io_queue(Digests(false, false));
    let r2t = asked_for(&mut host, 32768);
    host.writer.h2c_data(r2t.command, r2t.transfer_tag, 0, shared(&[0; 512]), false);
    host.writer.h2c_data(r2t.command, r2t.transfer_tag, 512, shared(&[0; 32768]), true);
    assert_eq!(fatal(&mut host), (FatalError::DataOutOfRange as u16, 16));
}

#[test]
fn data_in_the_capsule_above_the_limit_is_fatal() {
    let (mut host, _admin) = io_queue(Digests(false, false));
    host.queue_command(write(16 << 10), Some(&[0; 16 << 10]));
    assert!(matches!(&host.exchange()[..], [Answer::Response(cqe)] if cqe.status.is_success()));
    host.queue_command(write(17 << 10), Some(&[0; 17 << 10]));
    assert_eq!(fatal(&mut host), (FatalError::InvalidHeaderField as u16, 4));

    let (mut admin, _) = Host::admin(&world(), Digests(false, false), usize::MAX);
    admin.queue_command(Sqe::new(nvme::wire::admin::SET_FEATURES, 0), Some(&[0; 8704]));
    assert_eq!(fatal(&mut admin), (FatalError::InvalidHeaderField as u16, 4));
}

#[test]
fn more_commands_than_the_queue_holds_are_fatal() {
    let (mut host, _admin) = io_queue(Digests(false, false));
    host.hold = true;
    for _ in 0..16 {
        host.queue_command(Sqe::new(nvm::FLUSH, 1), None);
    }
    assert!(host.exchange().is_empty() && host.held.len() == 16);
    host.queue_command(Sqe::new(nvm::FLUSH, 1), None);
    assert_eq!(fatal(&mut host).0, FatalError::LimitExceeded as u16);
    // What was admitted is still executed; nothing is sent after the TermReq.
    for (tag, nsid, operation) in std::mem::take(&mut host.held) {
        host.execute(tag, nsid, operation);
    }
    assert_eq!(host.machine.queued_bytes(), 0);
}

#[test]
fn a_command_may_follow_its_predecessors_completion_at_once() {
    let (mut host, _admin) = io_queue(Digests(false, false));
    for _ in 0..100 {
        for _ in 0..16 {
            host.queue_command(Sqe::new(nvm::FLUSH, 1), None);
        }
        assert_eq!(host.exchange().len(), 16);
    }
}

#[test]
fn a_hosts_termreq_ends_the_connection_without_an_answer() {
    let (mut host, _admin) = io_queue(Digests(true, true));
    host.writer.terminate(PduType::H2cTermReq, &TermReq { status: 1, information: 4 }, &[7; 24]);
    assert!(host.exchange().is_empty());
    assert!(host.terminated);
}

#[test]
fn the_header_in_error_is_sent_back() {
    let (mut host, _admin) = io_queue(Digests(false, false));
    host.writer.h2c_data(1, 3, 0, shared(&[9; 512]), true);
    let bytes = host.writer.drain_to_vec();
    host.machine.feed(shared(&bytes));
    while host.machine.next(&host.world.table).is_some() {}
    let mut parts = Vec::new();
    host.machine.drain(&mut parts, usize::MAX);
    let sent: Vec<u8> = parts.iter().flat_map(|part| part.to_vec()).collect();
    assert_eq!(sent[24..], bytes[..24]);
}
