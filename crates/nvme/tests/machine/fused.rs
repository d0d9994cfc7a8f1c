//! Compare-and-write as a fused pair, and commands that are taken back while they wait.

use crate::harness::{Answer, Digests, Host, shared, world};
use nvme::machine::{Aborting, Operation};
use nvme::wire::pdu::R2t;
use nvme::wire::{Cqe, Sgl, Sqe, Status, nvm};

const BYTES: usize = 4096;

fn io_queue(digests: Digests, step: usize) -> (Host, Host) {
    let world = world();
    let (admin, id) = Host::admin(&world, digests, usize::MAX);
    (Host::io(&world, id, 1, digests, step), admin)
}

/// A half of a pair on blocks 8 to 15 of the first namespace.
fn half(opcode: u8, fuse: u8) -> Sqe {
    let mut sqe = Sqe::new(opcode, 1);
    sqe.set_slba(8);
    sqe.cdw[2] = (BYTES >> 9) as u32 - 1;
    sqe.flags |= fuse;
    sqe
}

fn compare() -> Sqe {
    half(nvm::COMPARE, Sqe::FUSE_FIRST)
}

fn write() -> Sqe {
    half(nvm::WRITE, Sqe::FUSE_SECOND)
}

/// The completions among the answers, by the order in which they came: command and status.
fn ends(answers: &[Answer]) -> Vec<(u16, Status)> {
    answers
        .iter()
        .filter_map(|answer| match answer {
            Answer::Response(Cqe { command, status, .. }) => Some((*command, status.code())),
            _ => None,
        })
        .collect()
}

/// Whether what failed may be asked for again: either half, or neither.
fn may_be_retried(answers: &[Answer]) -> bool {
    let failed = answers.iter().filter_map(|answer| match answer {
        Answer::Response(Cqe { status, .. }) if !status.is_success() => Some(!status.is_final()),
        _ => None,
    });
    let failed: Vec<bool> = failed.collect();
    assert!(!failed.is_empty() && failed.iter().all(|may| *may == failed[0]), "{answers:?}");
    failed[0]
}

fn asked(answers: &[Answer]) -> Vec<R2t> {
    answers
        .iter()
        .filter_map(|answer| match answer {
            Answer::R2t(r2t) => Some(*r2t),
            _ => None,
        })
        .collect()
}

fn held(host: &Host) -> &[u8] {
    &host.volumes[0][8 << 9..][..BYTES]
}

#[test]
fn a_pair_writes_if_it_finds_what_it_expects_and_is_two_completions_in_order() {
    for digests in [Digests(false, false), Digests(true, true)] {
        for step in [1, 100, usize::MAX] {
            let (mut host, _admin) = io_queue(digests, step);
            let pair = |host: &mut Host, expected: u8, new: u8| {
                let first = host.queue_command(compare(), Some(&[expected; BYTES]));
                let second = host.queue_command(write(), Some(&[new; BYTES]));
                (first, second, ends(&host.exchange()))
            };
            let (first, second, done) = pair(&mut host, 0, 5);
            assert_eq!(done, [(first, Status::SUCCESS), (second, Status::SUCCESS)]);
            assert!(held(&host).iter().all(|byte| *byte == 5));
            let (first, second, done) = pair(&mut host, 0, 6);
            assert_eq!(done, [(first, Status::COMPARE_FAILURE), (second, Status::ABORTED_FAILED_FUSED)]);
            assert!(held(&host).iter().all(|byte| *byte == 5), "nothing is written");
        }
    }
}

#[test]
fn halves_belong_together_by_their_order_whenever_their_data_comes() {
    // Which half comes by R2T, and whose data the host sends first.
    for (first_by_r2t, second_by_r2t, second_first) in
        [(true, false, false), (false, true, false), (true, true, false), (true, true, true)]
    {
        let (mut host, _admin) = io_queue(Digests(false, true), usize::MAX);
        let queue = |host: &mut Host, mut sqe: Sqe, byte: u8, by_r2t: bool| {
            sqe.sgl = Sgl::transport(BYTES as u32);
            let data = [byte; BYTES];
            host.queue_command(sqe, (!by_r2t).then_some(&data[..]))
        };
        let first = queue(&mut host, compare(), 0, first_by_r2t);
        let second = queue(&mut host, write(), 7, second_by_r2t);
        let other = host.queue_command(Sqe::new(nvm::FLUSH, 1), None);
        let answers = host.exchange();
        assert_eq!(ends(&answers), [(other, Status::SUCCESS)], "what follows does not wait for the pair");
        let mut wanted = asked(&answers);
        assert_eq!(wanted.len(), usize::from(first_by_r2t) + usize::from(second_by_r2t));
        if second_first {
            wanted.reverse();
        }
        let mut done = Vec::new();
        for r2t in wanted {
            assert!(done.is_empty());
            let data = shared(&[if r2t.command == first { 0 } else { 7 }; BYTES]);
            host.writer.h2c_data(r2t.command, r2t.transfer_tag, 0, data, true);
            done = ends(&host.exchange());
        }
        assert_eq!(done, [(first, Status::SUCCESS), (second, Status::SUCCESS)]);
        assert!(held(&host).iter().all(|byte| *byte == 7));
    }
}

#[test]
fn a_half_without_the_other_is_missing_it() {
    let (mut host, _admin) = io_queue(Digests(false, false), 1);
    let alone = host.queue_command(write(), Some(&[1; BYTES]));
    assert_eq!(ends(&host.exchange()), [(alone, Status::ABORTED_MISSING_FUSED)]);

    let first = host.queue_command(compare(), Some(&[0; BYTES]));
    assert!(host.exchange().is_empty(), "its second half may come");
    let flush = host.queue_command(Sqe::new(nvm::FLUSH, 1), None);
    assert_eq!(ends(&host.exchange()), [(first, Status::ABORTED_MISSING_FUSED), (flush, Status::SUCCESS)]);

    let first = host.queue_command(compare(), Some(&[0; BYTES]));
    let again = host.queue_command(compare(), Some(&[0; BYTES]));
    let second = host.queue_command(write(), Some(&[1; BYTES]));
    let done = ends(&host.exchange());
    assert_eq!(done, [(first, Status::ABORTED_MISSING_FUSED), (again, Status::SUCCESS), (second, Status::SUCCESS)]);
}

#[test]
fn a_first_half_that_ends_while_its_data_is_on_the_way_takes_the_data_all_the_same() {
    let (mut host, _admin) = io_queue(Digests(false, false), usize::MAX);
    let mut by_r2t = compare();
    by_r2t.sgl = Sgl::transport(BYTES as u32);
    let first = host.queue_command(by_r2t, None);
    let wanted = asked(&host.exchange());
    let flush = host.queue_command(Sqe::new(nvm::FLUSH, 1), None);
    assert_eq!(ends(&host.exchange()), [(flush, Status::SUCCESS)]);
    host.writer.h2c_data(wanted[0].command, wanted[0].transfer_tag, 0, shared(&[0; BYTES]), true);
    assert_eq!(ends(&host.exchange()), [(first, Status::ABORTED_MISSING_FUSED)]);
    assert!(!host.terminated);
}

#[test]
fn halves_of_different_ranges_are_an_invalid_field() {
    for change in 0..3 {
        let (mut host, _admin) = io_queue(Digests(false, false), 1);
        let mut other = write();
        let mut data = vec![1; BYTES];
        match change {
            0 => other.set_slba(9),
            1 => {
                other.cdw[2] = 3;
                data.truncate(2048);
            }
            _ => {
                other.nsid = 2;
                other.set_slba(1);
                other.cdw[2] = 0;
            }
        }
        let first = host.queue_command(compare(), Some(&[0; BYTES]));
        let second = host.queue_command(other, Some(&data));
        let both = [(first, Status::INVALID_FIELD), (second, Status::INVALID_FIELD)];
        assert_eq!(ends(&host.exchange()), both, "change {change}");
        assert!(host.volumes.iter().all(|volume| volume.iter().all(|byte| *byte == 0)));
    }
}

#[test]
fn a_half_that_is_refused_or_broken_fails_the_other() {
    let (mut host, _admin) = io_queue(Digests(false, true), usize::MAX);
    let mut behind = compare();
    behind.set_slba(u64::MAX);
    let first = host.queue_command(behind, Some(&[0; BYTES]));
    let second = host.queue_command(write(), Some(&[1; BYTES]));
    let failed = [(first, Status::LBA_OUT_OF_RANGE), (second, Status::ABORTED_FAILED_FUSED)];
    let answers = host.exchange();
    assert_eq!(ends(&answers), failed);
    assert!(!may_be_retried(&answers), "the same would fail again");

    let mut behind = write();
    behind.set_slba(u64::MAX);
    let first = host.queue_command(compare(), Some(&[0; BYTES]));
    let second = host.queue_command(behind, Some(&[1; BYTES]));
    let failed = [(first, Status::ABORTED_FAILED_FUSED), (second, Status::LBA_OUT_OF_RANGE)];
    assert_eq!(ends(&host.exchange()), failed);

    for broken in [0, 1] {
        let first = host.queue_command(compare(), Some(&[0; BYTES]));
        let second = host.queue_command(write(), Some(&[1; BYTES]));
        let mut bytes = host.writer.drain_to_vec();
        bytes[broken * (72 + BYTES + 4) + 72 + 10] ^= 1;
        let answers = host.send(&bytes);
        assert!(may_be_retried(&answers), "bytes that were damaged on their way may come whole");
        let mut done = ends(&answers);
        done.sort_unstable_by_key(|(command, _)| *command);
        let status = |index| if index == broken { Status::TRANSIENT_TRANSPORT } else { Status::ABORTED_FAILED_FUSED };
        assert_eq!(done, [(first, status(0)), (second, status(1))]);
    }
    assert!(host.volumes[0].iter().all(|byte| *byte == 0));
    // The queue goes on as if nothing had been.
    let first = host.queue_command(compare(), Some(&[0; BYTES]));
    let second = host.queue_command(write(), Some(&[9; BYTES]));
    assert_eq!(ends(&host.exchange()), [(first, Status::SUCCESS), (second, Status::SUCCESS)]);
}

#[test]
fn admin_commands_are_never_halves() {
    let (_io, mut admin) = io_queue(Digests(false, false), 1);
    let mut fused = Sqe::new(nvme::wire::admin::SET_FEATURES, 0);
    fused.flags |= Sqe::FUSE_FIRST;
    assert_eq!(admin.command(fused, Some(&[0; 512])).status.code(), Status::INVALID_FIELD);
    assert!(admin.command(Sqe::new(nvme::wire::admin::KEEP_ALIVE, 0), None).status.is_success());
}

fn large_write() -> Sqe {
    let mut sqe = half(nvm::WRITE, 0);
    sqe.cdw[2] = 63;
    sqe.sgl = Sgl::transport(32 << 10);
    sqe
}

#[test]
fn a_write_that_waits_for_room_is_aborted_at_once_and_its_grant_goes_nowhere() {
    let (mut host, _admin) = io_queue(Digests(false, false), usize::MAX);
    host.hold_grants = true;
    let command = host.queue_command(large_write(), None);
    assert!(host.exchange().is_empty());
    assert_eq!(host.machine.abort(command), Aborting::Aborted);
    assert_eq!(ends(&host.answers()), [(command, Status::ABORT_REQUESTED)]);
    // The next one takes the same slot; the late grant is not for it.
    let next = host.queue_command(large_write(), None);
    assert!(host.exchange().is_empty());
    let wanted: Vec<_> = host.wanted.iter().map(|(tag, _)| *tag).collect();
    host.machine.grant(wanted[0]);
    assert!(host.answers().is_empty());
    host.machine.grant(wanted[1]);
    assert_eq!(asked(&host.answers())[0].command, next);
}

#[test]
fn a_write_whose_data_is_on_the_way_is_aborted_when_it_has_come() {
    let (mut host, _admin) = io_queue(Digests(false, false), usize::MAX);
    let command = host.queue_command(large_write(), None);
    let r2t = asked(&host.exchange())[0];
    let Aborting::Waits(tag) = host.machine.abort(command) else { panic!("its data is on the way") };
    assert!(host.answers().is_empty() && host.machine.is_under_way(tag));
    host.writer.h2c_data(command, r2t.transfer_tag, 0, shared(&vec![3; 32 << 10]), true);
    assert_eq!(ends(&host.exchange()), [(command, Status::ABORT_REQUESTED)]);
    assert!(!host.machine.is_under_way(tag) && host.volumes[0].iter().all(|byte| *byte == 0));
    assert_eq!(host.machine.receiving_bytes(), 0);
}

#[test]
fn what_is_executed_is_not_aborted_and_a_half_takes_its_other_half_along() {
    let (mut host, _admin) = io_queue(Digests(false, false), usize::MAX);
    host.hold = true;
    let flush = host.queue_command(Sqe::new(nvm::FLUSH, 1), None);
    assert!(host.exchange().is_empty());
    assert_eq!(host.machine.abort(flush), Aborting::NotAborted);
    assert_eq!(host.machine.abort(999), Aborting::NotAborted);

    let first = host.queue_command(compare(), Some(&[0; BYTES]));
    assert!(host.exchange().is_empty());
    assert_eq!(host.machine.abort(first), Aborting::Aborted);
    let second = host.queue_command(write(), Some(&[1; BYTES]));
    let done = ends(&host.exchange());
    assert_eq!(done, [(first, Status::ABORT_REQUESTED), (second, Status::ABORTED_FAILED_FUSED)]);
    assert!(matches!(host.held[..], [(_, _, Operation::Flush)]), "nothing else was handed on");
}

#[test]
fn no_more_aborts_at_once_than_were_told() {
    let (_io, mut admin) = io_queue(Digests(false, false), usize::MAX);
    admin.hold_changes = true;
    let mut abort = Sqe::new(nvme::wire::admin::ABORT, 0);
    abort.cdw[0] = 1 | 7 << 16;
    for _ in 0..4 {
        admin.queue_command(abort, None);
    }
    assert!(admin.exchange().is_empty() && admin.changes.len() == 4);
    assert_eq!(admin.command(abort, None).status.code(), Status::ABORT_LIMIT);
    for change in std::mem::take(&mut admin.changes) {
        let nvme::machine::Change::Abort { tag, queue, command } = change else { panic!("{change:?}") };
        assert_eq!((queue, command), (1, 7));
        admin.machine.complete_abort(tag, false);
    }
    assert!(admin.answers().iter().all(|answer| matches!(answer, Answer::Response(cqe) if cqe.result == 1)));
    admin.queue_command(abort, None);
    assert!(admin.exchange().is_empty(), "there is room again");
}
