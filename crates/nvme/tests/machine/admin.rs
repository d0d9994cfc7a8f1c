//! Admin commands: identify, logs, features, events, abort.

use crate::harness::{Answer, BLOCKS, Digests, Host, world};
use nvme::wire::identify::{IdentifyController, IdentifyNamespace, cns, decode_namespace_list, decode_nguid};
use nvme::wire::log::{GetLogPage, decode_ana, page};
use nvme::wire::{NAMESPACE_NOTICES, SAVE, Sgl, Sqe, Status, admin, feature};

fn admin_queue() -> (Host, u16) {
    Host::admin(&world(), Digests(false, false), 1)
}

fn identify(host: &mut Host, selector: u8, nsid: u32) -> Result<[u8; 4096], Status> {
    let mut sqe = Sqe::new(admin::IDENTIFY, nsid);
    sqe.cdw[0] = u32::from(selector);
    sqe.sgl = Sgl::transport(4096);
    host.read_command(sqe).map(|bytes| bytes.try_into().expect("4096 bytes"))
}

fn log(host: &mut Host, page: u8, offset_bytes: u64, len_bytes: u64, retain_event: bool) -> Result<Vec<u8>, Status> {
    let get = GetLogPage { page, specific: 0, retain_event, len_bytes, offset_bytes, offset_is_index: false };
    let mut sqe = Sqe::new(admin::GET_LOG_PAGE, u32::MAX);
    sqe.cdw = get.encode();
    sqe.sgl = Sgl::transport(len_bytes as u32);
    host.read_command(sqe)
}

fn set_feature(host: &mut Host, id: u8, value: u32, data: Option<&[u8]>) -> Result<u32, Status> {
    let mut sqe = Sqe::new(admin::SET_FEATURES, 0);
    sqe.cdw[0] = u32::from(id);
    sqe.cdw[1] = value;
    let cqe = host.command(sqe, data);
    if cqe.status.is_success() { Ok(cqe.result as u32) } else { Err(cqe.status.code()) }
}

fn get_feature(host: &mut Host, id: u8, value: u32) -> Result<u32, Status> {
    let mut sqe = Sqe::new(admin::GET_FEATURES, 0);
    sqe.cdw[0] = u32::from(id);
    sqe.cdw[1] = value;
    let cqe = host.command(sqe, None);
    if cqe.status.is_success() { Ok(cqe.result as u32) } else { Err(cqe.status.code()) }
}

#[test]
fn the_controller_tells_its_limits_truthfully() {
    let (mut host, id) = admin_queue();
    let told = IdentifyController::decode(&identify(&mut host, cns::CONTROLLER, 0).expect("identify"));
    assert_eq!(told.controller, id);
    assert_eq!(told.subsystem, crate::harness::NQN);
    assert_eq!(told.in_capsule_bytes(), 16 << 10);
    assert_eq!(told.max_transfer_bytes(), Some(1 << 20));
    assert_eq!(told.volatile_write_cache, 0, "writes are durable");
    assert_eq!((told.namespaces, told.max_allowed_namespaces, told.ana_group_count), (1024, 1024, 1024));
    assert_eq!(told.cmic & 0b1010, 0b1010, "several controllers, ANA");
    assert_eq!(told.optional_commands, 0b1_1101);
    assert_eq!((told.fused_operations, told.compare_and_write_blocks), (1, 16), "compare and write, 64 KiB of 4Kn");
}

#[test]
fn namespaces_are_shared_stable_and_tell_their_untorn_size() {
    let (mut host, _) = admin_queue();
    for (nsid, shift) in [(1, 9), (2, 12)] {
        let bytes = identify(&mut host, cns::NAMESPACE, nsid).expect("identify");
        let told = IdentifyNamespace::decode(&bytes).expect("a namespace");
        let expected = IdentifyNamespace {
            size_blocks: BLOCKS,
            block_shift: shift,
            untorn_bytes: 64 << 10,
            compare_and_write_bytes: 64 << 10,
            boundary_bytes: 1 << 20,
            granularity_bytes: 4096,
            ana_group: nsid,
            nguid: [nsid as u8; 16],
        };
        assert_eq!(told, expected);
        assert_eq!(bytes[30], 1, "NMIC shared");
        let descriptors = identify(&mut host, cns::NAMESPACE_DESCRIPTORS, nsid).expect("descriptors");
        assert_eq!(decode_nguid(&descriptors), Some([nsid as u8; 16]));
        assert_eq!(identify(&mut host, cns::INDEPENDENT_NAMESPACE, nsid).expect("independent")[14], 1);
    }
}

#[test]
fn identify_lists_and_refuses_what_is_not_there() {
    let (mut host, _) = admin_queue();
    let list =
        |host: &mut Host, after| identify(host, cns::ACTIVE_NAMESPACES, after).map(|b| decode_namespace_list(&b));
    assert_eq!(list(&mut host, 0), Ok(vec![1, 2]));
    assert_eq!(list(&mut host, 1), Ok(vec![2]));
    assert_eq!(list(&mut host, u32::MAX), Err(Status::INVALID_NAMESPACE));
    assert_eq!(identify(&mut host, cns::NAMESPACE, 9), Ok([0; 4096]), "inactive");
    assert_eq!(identify(&mut host, cns::NAMESPACE, 0), Err(Status::INVALID_NAMESPACE));
    assert_eq!(identify(&mut host, cns::NAMESPACE, u32::MAX), Err(Status::INVALID_NAMESPACE));
    assert_eq!(identify(&mut host, cns::NAMESPACE_DESCRIPTORS, 9), Err(Status::INVALID_NAMESPACE));
    for unknown in [0x04, 0x10, 0x13, 0x14, 0xFF] {
        assert_eq!(identify(&mut host, unknown, 1), Err(Status::INVALID_FIELD), "CNS {unknown:02x}");
    }
    assert!(identify(&mut host, cns::COMMAND_SETS, 0).is_ok_and(|bytes| bytes[0] == 1));
    assert!(identify(&mut host, cns::COMMAND_SET_CONTROLLER, 0).is_ok());
}

#[test]
fn log_pages_that_exist_and_the_right_error_for_the_rest() {
    let (mut host, _) = admin_queue();
    let health = log(&mut host, page::HEALTH, 0, 512, false).expect("health");
    assert_eq!((health[0], health[3]), (0, 100));
    assert_eq!(log(&mut host, page::FIRMWARE, 0, 512, false).map(|page| page[0]), Ok(1));
    let effects = log(&mut host, page::EFFECTS, 0, 4096, false).expect("effects");
    assert_eq!((effects[4 * 6], effects[1024 + 4], effects[1024 + 8]), (1, 3, 1));
    let ana = log(&mut host, page::ANA, 0, 4096, false).expect("ANA");
    assert_eq!(decode_ana(&ana), [(1, 1, vec![1]), (2, 1, vec![2])]);
    assert_eq!(log(&mut host, page::ANA, 16, 32, false).map(|page| page[0]), Ok(1), "from an offset");
    assert_eq!(log(&mut host, page::SUPPORTED, 0, 1024, false).map(|page| (page[0], page[4 * 0x0C])), Ok((1, 1)));
    let features = log(&mut host, page::FEATURES, 0, 1024, false).expect("features");
    let known: Vec<usize> = (0..256).filter(|id| features[4 * id] & 1 != 0).collect();
    assert_eq!(known, [1, 2, 4, 5, 7, 0x0A, 0x0B, 0x0F, 0x16, 0x81]);
    assert_eq!(log(&mut host, page::MANAGEMENT, 0, 4096, false), Ok(vec![0; 4096]), "no NVMe-MI");
    for unknown in [0x06, 0x0D, page::DISCOVERY, 0x80, 0xFF] {
        assert_eq!(log(&mut host, unknown, 0, 512, false), Err(Status::INVALID_LOG_PAGE), "page {unknown:02x}");
    }
    assert_eq!(log(&mut host, page::HEALTH, 2, 16, false), Err(Status::INVALID_FIELD), "not at a dword");
    assert_eq!(log(&mut host, page::HEALTH, 516, 16, false), Err(Status::INVALID_FIELD), "behind the end");
    let errors = log(&mut host, page::ERROR, 0, 128, false).expect("errors");
    assert_eq!(u64::from_le_bytes(errors[..8].try_into().expect("8 bytes")), 7, "each failure above was counted");
}

#[test]
fn features_are_kept_and_refused() {
    let (mut host, _) = admin_queue();
    assert_eq!(set_feature(&mut host, feature::NUMBER_OF_QUEUES, 3 | 7 << 16, None), Ok(3 | 3 << 16));
    assert_eq!(get_feature(&mut host, feature::NUMBER_OF_QUEUES, 0), Ok(3 | 3 << 16));
    assert_eq!(set_feature(&mut host, feature::NUMBER_OF_QUEUES, 500 | 500 << 16, None), Ok(63 | 63 << 16));
    assert_eq!(set_feature(&mut host, feature::NUMBER_OF_QUEUES, 0xFFFF, None), Err(Status::INVALID_FIELD));
    assert_eq!(set_feature(&mut host, feature::KEEP_ALIVE_TIMER, 30_000, None), Ok(0));
    assert_eq!(get_feature(&mut host, feature::KEEP_ALIVE_TIMER, 0), Ok(30_000));
    assert_eq!(set_feature(&mut host, feature::KEEP_ALIVE_TIMER, 0, None), Err(Status::KEEP_ALIVE_INVALID));
    assert_eq!(set_feature(&mut host, feature::KEEP_ALIVE_TIMER, 301_000, None), Err(Status::KEEP_ALIVE_INVALID));
    assert_eq!(set_feature(&mut host, feature::ASYNC_EVENT_CONFIGURATION, 0x900, None), Ok(0));
    assert_eq!(get_feature(&mut host, feature::ASYNC_EVENT_CONFIGURATION, 0), Ok(0x900));
    let mut behaviour = [0; 512];
    behaviour[0] = 1;
    assert_eq!(set_feature(&mut host, feature::HOST_BEHAVIOR, 0, Some(&behaviour)), Ok(0));
    assert_eq!(set_feature(&mut host, feature::HOST_IDENTIFIER, 1, Some(&[0; 16])), Err(Status::COMMAND_SEQUENCE));
    assert_eq!(set_feature(&mut host, 0x06, 1, None), Err(Status::INVALID_FIELD), "there is no volatile cache");
    assert_eq!(get_feature(&mut host, 0xC0, 0), Err(Status::INVALID_FIELD));
    let mut save = Sqe::new(admin::SET_FEATURES, 0);
    save.cdw[0] = SAVE | u32::from(feature::ARBITRATION);
    assert_eq!(host.command(save, None).status.code(), Status::FEATURE_NOT_SAVEABLE);
    let mut id = Sqe::new(admin::GET_FEATURES, 0);
    id.cdw[0] = u32::from(feature::HOST_IDENTIFIER);
    id.cdw[1] = 1;
    id.sgl = Sgl::transport(16);
    assert_eq!(host.read_command(id), Ok(vec![1; 16]));
}

/// What page 12h lists can be asked for in every way, and what it does not list in none.
#[test]
fn features_have_values_defaults_and_abilities() {
    let (mut host, _) = admin_queue();
    let ask = |host: &mut Host, id: u8, select: u32| {
        let mut sqe = Sqe::new(admin::GET_FEATURES, 0);
        sqe.cdw[0] = u32::from(id) | select << 8;
        sqe.cdw[1] = u32::from(id == feature::HOST_IDENTIFIER);
        sqe.sgl = Sgl::transport(4096);
        host.queue_command(sqe, None);
        let answers = host.exchange();
        match answers.last() {
            Some(Answer::Response(cqe)) if cqe.status.is_success() => Ok(cqe.result as u32),
            Some(Answer::Response(cqe)) => Err(cqe.status.code()),
            Some(Answer::Data(..)) => Ok(0),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(set_feature(&mut host, feature::ARBITRATION, 3, None), Ok(0));
    assert_eq!(set_feature(&mut host, feature::TEMPERATURE_THRESHOLD, 1 << 20 | 77, None), Ok(0));
    let values: Vec<_> = (0..3).map(|select| ask(&mut host, feature::ARBITRATION, select)).collect();
    assert_eq!(values, [Ok(3), Ok(6), Ok(6)], "now, default, saved");
    assert_eq!(get_feature(&mut host, feature::TEMPERATURE_THRESHOLD, 1 << 20), Ok(77));
    assert_eq!(get_feature(&mut host, feature::TEMPERATURE_THRESHOLD, 0), Ok(0xFFFF));
    assert_eq!(get_feature(&mut host, feature::TEMPERATURE_THRESHOLD, 2 << 20), Err(Status::INVALID_FIELD));
    for id in 0..=255 {
        let known = [1, 2, 4, 5, 7, 0x0A, 0x0B, 0x0F, 0x16, 0x81].contains(&id);
        let can = if id == feature::HOST_IDENTIFIER { 0 } else { 1 << 2 };
        assert_eq!(ask(&mut host, id, 3), if known { Ok(can) } else { Err(Status::INVALID_FIELD) }, "{id:02x}");
        assert_eq!((0..3).all(|select| ask(&mut host, id, select).is_ok()), known, "{id:02x}");
        assert_eq!(ask(&mut host, id, 4), Err(Status::INVALID_FIELD));
    }
}

#[test]
fn event_requests_wait_are_bounded_answered_and_aborted() {
    let (mut host, _) = admin_queue();
    let requests: Vec<u16> =
        (0..4).map(|_| host.queue_command(Sqe::new(admin::ASYNC_EVENT_REQUEST, 0), None)).collect();
    assert!(host.exchange().is_empty(), "all four are parked");
    let fifth = host.command(Sqe::new(admin::ASYNC_EVENT_REQUEST, 0), None);
    assert_eq!(fifth.status.code(), Status::ASYNC_EVENT_LIMIT);

    host.machine.namespaces_changed([5].into_iter());
    assert!(host.answers().is_empty(), "the host has not asked for this event");
    set_feature(&mut host, feature::ASYNC_EVENT_CONFIGURATION, NAMESPACE_NOTICES, None).expect("configured");
    host.machine.namespaces_changed([7].into_iter());
    host.machine.namespaces_changed([9].into_iter());
    let answers = host.answers();
    let [Answer::Response(cqe)] = &answers[..] else { panic!("one event until the page is read: {answers:?}") };
    assert_eq!((cqe.command, cqe.result), (requests[0], 0x0004_0002));
    let changed = log(&mut host, page::CHANGED_NAMESPACES, 0, 4096, false).expect("page");
    assert_eq!(decode_namespace_list(&changed.try_into().expect("4096 bytes")), [5, 7, 9]);
    host.machine.namespaces_changed([5].into_iter());
    assert_eq!(host.answers().len(), 1, "unmasked by reading");

    let mut abort = Sqe::new(admin::ABORT, 0);
    abort.cdw[0] = u32::from(requests[2]) << 16;
    host.queue_command(abort, None);
    let answers = host.exchange();
    let [Answer::Response(aborted), Answer::Response(done)] = &answers[..] else { panic!("{answers:?}") };
    assert_eq!((aborted.command, aborted.status), (requests[2], Status::ABORT_REQUESTED));
    assert_eq!((done.status, done.result & 1), (Status::SUCCESS, 0));
    abort.cdw[0] = 0xFFFF << 16;
    assert_eq!(host.command(abort, None).result & 1, 1, "nothing to abort");
    abort.cdw[0] = 3 | 1 << 16;
    assert_eq!(host.command(abort, None).result & 1, 1, "an admitted command is executed");
}

#[test]
fn unknown_admin_commands_and_wrong_scopes_are_refused() {
    let (mut host, _) = admin_queue();
    for opcode in [0x00, 0x01, 0x04, 0x05, 0x0D, 0x10, 0x80, 0xC1] {
        assert_eq!(host.command(Sqe::new(opcode, 0), None).status.code(), Status::INVALID_OPCODE, "{opcode:02x}");
    }
    assert_eq!(host.command(Sqe::new(admin::KEEP_ALIVE, 1), None).status.code(), Status::INVALID_FIELD);
    assert!(host.command(Sqe::new(admin::KEEP_ALIVE, 0), None).status.is_success());
}
