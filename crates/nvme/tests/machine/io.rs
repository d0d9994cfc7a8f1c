//! Reads and writes, by every way that data can take.

use crate::harness::{Answer, Digests, Host, world};
use nvme::machine::Operation;
use nvme::wire::pdu::flag;
use nvme::wire::{DatasetRange, Sgl, Sqe, Status, nvm};

const ALL_DIGESTS: [Digests; 4] =
    [Digests(false, false), Digests(true, false), Digests(false, true), Digests(true, true)];

fn io_queue(digests: Digests, step: usize) -> (Host, Host) {
    let world = world();
    let (admin, id) = Host::admin(&world, digests, usize::MAX);
    (Host::io(&world, id, 1, digests, step), admin)
}

fn command(opcode: u8, nsid: u32, slba: u64, blocks: u32) -> Sqe {
    let mut sqe = Sqe::new(opcode, nsid);
    sqe.set_slba(slba);
    sqe.cdw[2] = blocks - 1;
    sqe
}

fn read(nsid: u32, slba: u64, blocks: u32) -> Sqe {
    let mut sqe = command(nvm::READ, nsid, slba, blocks);
    sqe.sgl = Sgl::transport(blocks << if nsid == 1 { 9 } else { 12 });
    sqe
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|index| (index * 7 + index / 512) as u8).collect()
}

/// Writes by R2T: the data goes in `pieces` H2CData PDUs.
fn write_by_r2t(host: &mut Host, nsid: u32, slba: u64, data: &[u8], pieces: usize) -> Vec<Answer> {
    let shift = if nsid == 1 { 9 } else { 12 };
    let mut sqe = command(nvm::WRITE, nsid, slba, (data.len() >> shift) as u32);
    sqe.sgl = Sgl::transport(data.len() as u32);
    host.queue_command(sqe, None);
    let answers = host.exchange();
    let [Answer::R2t(r2t)] = &answers[..] else { panic!("{answers:?}") };
    assert_eq!((r2t.offset_bytes, r2t.len_bytes as usize), (0, data.len()));
    let size = data.len().div_ceil(pieces);
    for (index, piece) in data.chunks(size).enumerate() {
        let last = (index + 1) * size >= data.len();
        let piece = crate::harness::shared(piece);
        host.writer.h2c_data(r2t.command, r2t.transfer_tag, (index * size) as u32, piece, last);
    }
    host.exchange()
}

#[test]
fn what_is_written_is_read_whatever_the_digests_and_the_cuts_of_the_stream() {
    for digests in ALL_DIGESTS {
        for (step, direct) in [(1, false), (13, false), (1000, true), (4096, false), (usize::MAX, false)] {
            let (mut host, _admin) = io_queue(digests, step);
            host.direct = direct;
            let data = pattern(4096);
            assert!(host.command(command(nvm::WRITE, 1, 8, 8), Some(&data)).status.is_success());
            assert_eq!(host.read_command(read(1, 8, 8)).as_deref(), Ok(&data[..]));
            let more = pattern(24 << 10);
            let answers = write_by_r2t(&mut host, 2, 3, &more, 3);
            assert!(matches!(&answers[..], [Answer::Response(cqe)] if cqe.status.is_success()), "{answers:?}");
            assert_eq!(host.read_command(read(2, 3, 6)).as_deref(), Ok(&more[..]));
            assert_eq!(host.read_command(read(1, 15, 1)).as_deref(), Ok(&data[7 * 512..]));
        }
    }
}

/// The reader of the harness refuses data that does not begin at a multiple of what the host asked for (HPDA).
#[test]
fn data_comes_in_any_split_at_any_alignment_and_in_any_cuts_of_the_stream() {
    let mut state = 0x5eed_u64;
    let mut random = move |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    for round in 0..120 {
        let digests = ALL_DIGESTS[round % 4];
        let world = world();
        let (_admin, id) = Host::admin(&world, digests, usize::MAX);
        let (wants, pads) = (4 * (1 + random(32)), 4 * (1 + random(32)));
        let mut host = Host::opened_aligned(&world, digests, 1 + random(9000), wants, pads);
        host.direct = random(2) == 0;
        assert!(host.connect(1, 15, id, 4).status.is_success());
        let data = pattern((1 + random(64)) << 12);
        let mut sqe = command(nvm::WRITE, 2, 5, (data.len() >> 12) as u32);
        sqe.sgl = Sgl::transport(data.len() as u32);
        host.queue_command(sqe, None);
        let answers = host.exchange();
        let [Answer::R2t(r2t)] = answers[..] else { panic!("{answers:?}") };
        let mut at = 0;
        while at < data.len() {
            // Multiples of four, as the specification asks, from a word to all of it.
            let longest = 1 << random(16);
            let len = (4 * (1 + random(longest))).min(data.len() - at);
            let piece = crate::harness::shared(&data[at..at + len]);
            host.writer.h2c_data(r2t.command, r2t.transfer_tag, at as u32, piece, at + len == data.len());
            at += len;
        }
        let answers = host.exchange();
        assert!(matches!(&answers[..], [Answer::Response(cqe)] if cqe.status.is_success()), "{round}: {answers:?}");
        assert_eq!(host.read_command(read(2, 5, (data.len() >> 12) as u32)).as_deref(), Ok(&data[..]), "{round}");
    }
}

#[test]
fn a_whole_mebibyte_goes_both_ways() {
    let (mut host, _admin) = io_queue(Digests(true, true), usize::MAX);
    let data = pattern(1 << 20);
    let answers = write_by_r2t(&mut host, 2, 0, &data, 1);
    assert!(matches!(&answers[..], [Answer::Response(cqe)] if cqe.status.is_success()), "{answers:?}");
    assert_eq!(host.read_command(read(2, 0, 256)).as_deref(), Ok(&data[..]));
    assert_eq!(host.read_command(read(2, 0, 257)), Err(Status::INVALID_FIELD), "above MDTS");
}

#[test]
fn without_flow_control_a_read_is_one_pdu_and_with_it_two() {
    let world = world();
    let (_admin, id) = Host::admin(&world, Digests(false, false), usize::MAX);
    for (queue, attributes, pdus) in [(1, 0, 2), (2, 4, 1)] {
        let mut host = Host::opened(&world, Digests(false, false), usize::MAX);
        let connected = host.connect(queue, 3, id, attributes);
        assert!(connected.status.is_success());
        assert_eq!(connected.sq_head, if pdus == 2 { 1 } else { 0xFFFF }, "so the host knows that it was switched off");
        let mut heads = Vec::new();
        for _ in 0..5 {
            host.queue_command(read(1, 0, 1), None);
            let answers = host.exchange();
            assert_eq!(answers.len(), pdus);
            let Answer::Data(header, _) = &answers[0] else { panic!("{answers:?}") };
            assert_eq!(header.flags & flag::SUCCESS != 0, pdus == 1);
            assert!(header.flags & flag::LAST != 0);
            heads.extend(answers.iter().filter_map(|answer| match answer {
                Answer::Response(cqe) => Some(cqe.sq_head),
                _ => None,
            }));
        }
        let expected: &[u16] = if pdus == 2 { &[2, 3, 0, 1, 2] } else { &[] };
        assert_eq!(heads, expected, "SQHD goes round, Connect was the first");
    }
}

#[test]
fn the_other_commands_do_what_they_say() {
    let (mut host, _admin) = io_queue(Digests(false, false), 1);
    let data = pattern(8192);
    assert!(host.command(command(nvm::WRITE, 1, 0, 16), Some(&data)).status.is_success());
    assert!(host.command(command(nvm::COMPARE, 1, 0, 16), Some(&data)).status.is_success());
    let mut other = data.clone();
    other[5000] ^= 1;
    assert_eq!(host.command(command(nvm::COMPARE, 1, 0, 16), Some(&other)).status.code(), Status::COMPARE_FAILURE);
    assert!(host.command(Sqe::new(nvm::FLUSH, 1), None).status.is_success());
    assert!(host.command(Sqe::new(nvm::FLUSH, u32::MAX), None).status.is_success());
    assert!(host.command(command(nvm::WRITE_ZEROES, 1, 1, 1), None).status.is_success());
    assert_eq!(host.read_command(read(1, 0, 3)).map(|b| (b[0], b[512], b[1024])), Ok((data[0], 0, data[1024])));
    let mut dsm = Sqe::new(nvm::DATASET_MANAGEMENT, 1);
    dsm.cdw[0] = 1;
    dsm.cdw[1] = DatasetRange::DEALLOCATE;
    let ranges = [DatasetRange { block_count: 1, slba: 2 }, DatasetRange { block_count: 8, slba: 8 }];
    let mut bytes: Vec<u8> = ranges.iter().flat_map(|range| range.encode()).collect();
    bytes.resize(4096, 0); // as Linux sends it
    assert!(host.command(dsm, Some(&bytes)).status.is_success());
    let left = host.read_command(read(1, 0, 16)).expect("read");
    assert!(left[1024..1536].iter().all(|b| *b == 0) && left[4096..].iter().all(|b| *b == 0));
    assert_eq!(left[1536..4096], data[1536..4096]);
}

#[test]
fn refusals_answer_the_command_and_the_stream_goes_on() {
    let (mut host, _admin) = io_queue(Digests(true, true), 1);
    let data = pattern(4096);
    let status = |host: &mut Host, sqe, data: Option<&[u8]>| host.command(sqe, data).status.code();
    assert_eq!(status(&mut host, command(nvm::WRITE, 1, 4095, 8), Some(&data)), Status::LBA_OUT_OF_RANGE);
    assert_eq!(status(&mut host, command(nvm::WRITE, 1, u64::MAX, 8), Some(&data)), Status::LBA_OUT_OF_RANGE);
    assert_eq!(status(&mut host, command(nvm::WRITE, 3, 0, 8), Some(&data)), Status::INVALID_NAMESPACE);
    assert_eq!(status(&mut host, command(nvm::WRITE, 1, 0, 16), Some(&data)), Status::DATA_SGL_LENGTH_INVALID);
    assert_eq!(status(&mut host, command(0x99, 1, 0, 8), Some(&data)), Status::INVALID_OPCODE);
    assert_eq!(host.read_command(command(nvm::READ, 1, 0, 8)), Err(Status::DATA_SGL_LENGTH_INVALID));
    let mut without_sgl = read(1, 0, 1);
    without_sgl.flags = 0;
    assert_eq!(host.read_command(without_sgl), Err(Status::INVALID_FIELD));
    assert!(host.command(command(nvm::WRITE, 1, 0, 8), Some(&data)).status.is_success());
}

#[test]
fn a_broken_payload_ends_its_command_alone_and_may_be_tried_again() {
    let (mut host, _admin) = io_queue(Digests(true, true), usize::MAX);
    let data = pattern(4096);
    host.queue_command(command(nvm::WRITE, 1, 0, 8), Some(&data));
    let mut bytes = host.writer.drain_to_vec();
    bytes[72 + 4 + 50] ^= 0x10;
    let answers = host.send(&bytes);
    let [Answer::Response(cqe)] = &answers[..] else { panic!("{answers:?}") };
    assert_eq!(cqe.status, Status::TRANSIENT_TRANSPORT);
    assert_eq!(host.read_command(read(1, 0, 8)), Ok(vec![0; 4096]), "nothing of it was written");

    let mut sqe = command(nvm::WRITE, 1, 0, 8);
    sqe.sgl = Sgl::transport(4096);
    host.queue_command(sqe, None);
    let answers = host.exchange();
    let [Answer::R2t(r2t)] = &answers[..] else { panic!("{answers:?}") };
    for (index, half) in data.chunks(2048).enumerate() {
        let half = crate::harness::shared(half);
        host.writer.h2c_data(r2t.command, r2t.transfer_tag, index as u32 * 2048, half, index == 1);
    }
    let mut bytes = host.writer.drain_to_vec();
    bytes[100] ^= 1; // in the first of the two
    let answers = host.send(&bytes);
    assert!(matches!(&answers[..], [Answer::Response(cqe)] if cqe.status == Status::TRANSIENT_TRANSPORT));
    assert_eq!(host.machine.receiving_bytes(), 0);
    assert_eq!(host.read_command(read(1, 0, 8)), Ok(vec![0; 4096]));
}

#[test]
fn a_write_waits_for_its_grant_and_others_pass_it() {
    let (mut host, _admin) = io_queue(Digests(false, false), usize::MAX);
    host.hold_grants = true;
    let mut sqe = command(nvm::WRITE, 1, 0, 64);
    sqe.sgl = Sgl::transport(32 << 10);
    host.queue_command(sqe, None);
    assert!(host.exchange().is_empty());
    assert!(host.command(Sqe::new(nvm::FLUSH, 1), None).status.is_success());
    assert_eq!(host.machine.receiving_bytes(), 0);
    let (tag, len) = host.wanted[0];
    assert_eq!(len, 32 << 10);
    host.machine.grant(tag);
    assert_eq!(host.machine.receiving_bytes(), 32 << 10);
    assert!(matches!(&host.answers()[..], [Answer::R2t(_)]));
}

#[test]
fn answers_come_in_the_order_of_their_ends() {
    let (mut host, _admin) = io_queue(Digests(false, false), usize::MAX);
    host.hold = true;
    let first = host.queue_command(command(nvm::WRITE, 1, 0, 8), Some(&pattern(4096)));
    let second = host.queue_command(Sqe::new(nvm::FLUSH, 1), None);
    assert!(host.exchange().is_empty());
    let held = std::mem::take(&mut host.held);
    assert!(matches!(held[0].2, Operation::Write { .. }) && matches!(held[1].2, Operation::Flush));
    for (tag, nsid, operation) in held.into_iter().rev() {
        host.execute(tag, nsid, operation);
    }
    let order: Vec<u16> = host
        .answers()
        .iter()
        .map(|answer| match answer {
            Answer::Response(cqe) => cqe.command,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(order, [second, first]);
}
