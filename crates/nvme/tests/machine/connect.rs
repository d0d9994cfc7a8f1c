//! Opening a connection and joining a controller.

use crate::harness::{Answer, Digests, HOST, Host, NQN, world};
use nvme::machine::Change;
use nvme::wire::pdu::{FatalError, IcReq, PduType};
use nvme::wire::{
    Configuration, Connect, ConnectData, DISCOVERY_NQN, DYNAMIC_CONTROLLER, InvalidParameter, Property, Sqe, Status,
    admin, fabrics_type, nvm, property,
};

const NO_DIGESTS: Digests = Digests(false, false);

fn icreq() -> IcReq {
    IcReq { pfv: 0, data_alignment: 0, header_digest: false, data_digest: false, limit: 0 }
}

fn assert_terminated(answers: &[Answer], fatal: FatalError, information: u32) {
    match answers.last() {
        Some(Answer::Term(term)) => assert_eq!((term.status, term.information), (fatal as u16, information)),
        other => panic!("no TermReq: {other:?}"),
    }
}

#[test]
fn a_second_icreq_is_a_sequence_error() {
    let mut host = Host::opened(&world(), NO_DIGESTS, usize::MAX);
    host.writer.ic(PduType::IcReq, &icreq());
    assert_terminated(&host.exchange(), FatalError::SequenceError, 0);
    assert!(host.terminated);
}

#[test]
fn a_command_before_icreq_is_a_sequence_error() {
    let mut host = Host::new(&world());
    host.queue_command(Sqe::new(nvm::FLUSH, 1), None);
    // The reader of this host is not open yet: look at the bytes.
    let bytes = host.writer.drain_to_vec();
    assert_terminated(&host.send(&bytes), FatalError::SequenceError, 0);
}

#[test]
fn an_icreq_of_another_version_or_alignment_is_refused() {
    for (bad, fatal, information) in [
        (IcReq { pfv: 1, ..icreq() }, FatalError::UnsupportedParameter, 8),
        (IcReq { data_alignment: 32, ..icreq() }, FatalError::InvalidHeaderField, 10),
    ] {
        let mut host = Host::new(&world());
        host.writer.ic(PduType::IcReq, &bad);
        assert_terminated(&host.exchange(), fatal, information);
    }
}

#[test]
fn every_command_before_connect_is_a_sequence_error_and_harmless() {
    let mut host = Host::opened(&world(), NO_DIGESTS, 1);
    assert_eq!(host.command(Sqe::new(admin::IDENTIFY, 0), None).status.code(), Status::COMMAND_SEQUENCE);
    assert_eq!(host.command(Sqe::new(nvm::WRITE, 1), Some(&[0; 512])).status.code(), Status::COMMAND_SEQUENCE);
    assert!(host.connect(0, 31, DYNAMIC_CONTROLLER, 0).status.is_success());
}

#[test]
fn a_refused_connect_names_the_field_and_may_be_tried_again() {
    let mut host = Host::opened(&world(), NO_DIGESTS, usize::MAX);
    let connect = Connect { record_format: 0, queue: 0, sq_size: 31, attributes: 0, keep_alive_ms: 0 };
    let cqe = host.connect_with(&connect, DYNAMIC_CONTROLLER, "nqn.unknown");
    assert_eq!(cqe.status, Status::CONNECT_INVALID_PARAMETERS.do_not_retry());
    assert_eq!(cqe.result, InvalidParameter::Data(256).result());
    assert!(host.connect_with(&connect, DYNAMIC_CONTROLLER, NQN).status.is_success());
    let again = host.connect_with(&connect, DYNAMIC_CONTROLLER, NQN);
    assert_eq!(again.status.code(), Status::COMMAND_SEQUENCE, "a second Connect on one queue");
}

#[test]
fn connect_data_may_come_by_r2t() {
    let mut host = Host::opened(&world(), NO_DIGESTS, usize::MAX);
    let connect = Connect { record_format: 0, queue: 0, sq_size: 31, attributes: 0, keep_alive_ms: 0 };
    let mut sqe = connect.encode();
    sqe.sgl = nvme::wire::Sgl::transport(1024);
    host.queue_command(sqe, None);
    let answers = host.exchange();
    let [Answer::R2t(r2t)] = &answers[..] else { panic!("{answers:?}") };
    let data = ConnectData {
        host_id: [1; 16],
        controller: DYNAMIC_CONTROLLER,
        subsystem: Some(NQN.into()),
        host: Some(HOST.into()),
    };
    let bytes = crate::harness::shared(&data.encode());
    host.writer.h2c_data(r2t.command, r2t.transfer_tag, 0, bytes, true);
    assert!(matches!(&host.exchange()[..], [Answer::Response(cqe)] if cqe.status.is_success()));
}

#[test]
fn an_io_queue_joins_an_enabled_controller_once() {
    let world = world();
    let (_admin, id) = Host::admin(&world, NO_DIGESTS, usize::MAX);
    let mut first = Host::opened(&world, NO_DIGESTS, usize::MAX);
    let cqe = first.connect(1, 127, id, 0);
    assert_eq!((cqe.status, cqe.result), (Status::SUCCESS, u64::from(id)));
    let mut second = Host::opened(&world, NO_DIGESTS, usize::MAX);
    assert_eq!(second.connect(1, 127, id, 0).status.code(), Status::CONNECT_BUSY);
    assert_eq!(second.connect(2, 0, id, 0).result, InvalidParameter::Command(44).result());
    assert_eq!(second.connect(2, 1024, id, 0).result, InvalidParameter::Command(44).result());
    assert_eq!(second.connect(99, 127, id, 0).result, InvalidParameter::Command(42).result());
    assert!(second.connect(2, 1023, id, 0).status.is_success());
}

#[test]
fn properties_have_their_sizes_and_only_cc_is_writable() {
    let world = world();
    let (mut host, _) = Host::admin(&world, NO_DIGESTS, 1);
    let capabilities = host.property(property::CAPABILITIES, 8);
    assert_eq!(capabilities & 0xFFFF, 1023);
    assert_eq!(capabilities >> 37 & 1, 1);
    assert_eq!(host.property(property::VERSION, 4), 0x20000);
    assert_eq!(host.property(property::CONFIGURATION, 4), u64::from(Configuration::ENABLE.0));
    for (offset, size) in [(property::CAPABILITIES, 4), (property::STATUS, 8), (0x24, 4), (u32::MAX, 4)] {
        let get = Property { size_bytes: Some(size), offset, value: 0 };
        let cqe = host.command(get.encode(fabrics_type::PROPERTY_GET), None);
        assert_eq!(cqe.status.code(), Status::INVALID_FIELD, "{offset:x}");
    }
    let set = Property { size_bytes: Some(4), offset: property::STATUS, value: 0 };
    assert_eq!(host.command(set.encode(fabrics_type::PROPERTY_SET), None).status.code(), Status::INVALID_FIELD);
}

#[test]
fn what_comes_for_a_controller_that_ends_may_be_tried_elsewhere() {
    crate::ending::tried_elsewhere();
}

#[test]
fn the_sizes_of_entries_may_be_said_after_it_is_enabled() {
    let world = world();
    let mut host = Host::opened(&world, NO_DIGESTS, usize::MAX);
    let id = host.connect(0, 31, DYNAMIC_CONTROLLER, 0).result as u16;
    let mut set = |value: u32| {
        let set = Property { size_bytes: Some(4), offset: property::CONFIGURATION, value: value.into() };
        host.command(set.encode(fabrics_type::PROPERTY_SET), None).status
    };
    assert!(set(1).is_success());
    let refused = Host::opened(&world, NO_DIGESTS, usize::MAX).connect(1, 15, id, 0).status;
    assert_eq!((refused.code(), refused.is_final()), (Status::COMMAND_SEQUENCE, false), "no sizes yet");
    assert!(set(Configuration::ENABLE.0).is_success());
    let mut io = Host::io(&world, id, 1, NO_DIGESTS, usize::MAX);
    assert!(io.command(Sqe::new(nvm::FLUSH, 1), None).status.is_success());
}

#[test]
fn a_reset_ends_the_io_queues_before_the_status_says_so() {
    let world = world();
    let (mut host, id) = Host::admin(&world, NO_DIGESTS, usize::MAX);
    let mut io = Host::io(&world, id, 1, NO_DIGESTS, usize::MAX);
    let set = Property { size_bytes: Some(4), offset: property::CONFIGURATION, value: 0 };
    assert!(host.command(set.encode(fabrics_type::PROPERTY_SET), None).status.is_success());
    assert_eq!(host.changes, [Change::EndQueues]);
    assert_eq!(host.property(property::STATUS, 4) & 1, 1, "queues have not ended yet");
    assert_eq!(io.command(Sqe::new(nvm::FLUSH, 1), None).status, Status::INTERNAL_PATH_ERROR);
    host.machine.queues_ended(0);
    assert_eq!(host.property(property::STATUS, 4), 0);
    assert_eq!(host.command(Sqe::new(admin::KEEP_ALIVE, 0), None).status.code(), Status::COMMAND_SEQUENCE);
    host.enable();
}

#[test]
fn a_shutdown_is_complete_when_the_io_queues_have_ended() {
    let world = world();
    let (mut host, _) = Host::admin(&world, NO_DIGESTS, usize::MAX);
    let value = u64::from(Configuration::ENABLE.0 | 1 << 14);
    let set = Property { size_bytes: Some(4), offset: property::CONFIGURATION, value };
    host.command(set.encode(fabrics_type::PROPERTY_SET), None);
    assert_eq!(host.property(property::STATUS, 4) >> 2 & 3, 1, "under way");
    host.machine.queues_ended(0);
    assert_eq!(host.property(property::STATUS, 4) >> 2 & 3, 2);
}

#[test]
fn a_discovery_controller_serves_its_log_and_nothing_else() {
    let world = world();
    let mut host = Host::opened(&world, NO_DIGESTS, 1);
    let connect = Connect { record_format: 0, queue: 0, sq_size: 31, attributes: 0, keep_alive_ms: 0 };
    let id = host.connect_with(&connect, DYNAMIC_CONTROLLER, DISCOVERY_NQN).result as u16;
    host.enable();
    let mut log = Sqe::new(admin::GET_LOG_PAGE, 0);
    log.cdw[0] = 0x70 | 511 << 16;
    log.sgl = nvme::wire::Sgl::transport(2048);
    let page = host.read_command(log).expect("the discovery log");
    assert_eq!((page.len(), page[0], page[8]), (2048, 7, 1));
    assert_eq!(&page[1024 + 512..1024 + 521], b"127.0.0.1");
    let mut identify = Sqe::new(admin::IDENTIFY, 1);
    identify.sgl = nvme::wire::Sgl::transport(4096);
    assert_eq!(host.read_command(identify), Err(Status::INVALID_FIELD), "it has no namespaces");
    log.cdw[0] = 0x0C | 15 << 16;
    assert_eq!(host.read_command(log), Err(Status::INVALID_LOG_PAGE));
    let mut io = Host::opened(&world, NO_DIGESTS, usize::MAX);
    assert_eq!(io.connect(1, 31, id, 0).result, InvalidParameter::Command(42).result());
}
