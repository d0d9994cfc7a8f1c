//! Hosts that break rules, or keep none: each is let go with a reason in the log, and the others are served meanwhile.

use crate::good::Good;
use crate::logs::{assert_logged, count, keep};
use crate::node::{Cluster, cluster, options, pattern};
use crate::raw::{Raw, bare_controller, bytes};
use nvme::limits;
use nvme::wire::pdu::{DataHeader, FatalError, IcReq, PduType, TermReq};
use nvme::wire::writer::PduWriter;
use nvme::wire::{Sgl, Sqe, nvm};
use runtime::TcpStream;
use runtime::sim::Random;
use std::path::Path;
use std::time::Duration;

const MIB: u32 = 1 << 20;

#[test]
fn a_host_that_does_not_read_is_let_go_and_keeps_nobody_waiting() {
    keep();
    let cluster = cluster(1);
    let good = Good::new(&cluster);
    let controller = bare_controller(&cluster);
    let (address, id, nsid) = (cluster.address(), controller.id(), cluster.served.nsids[1]);
    let raw = cluster.run(async move {
        let raw = Raw::queue(address, id, 255).await;
        for command in 0..200 {
            raw.io(nvm::READ, nsid, command, MIB >> 12);
        }
        raw.send().await;
        raw
    });
    good.is_served(&cluster, Duration::from_secs(1));
    cluster.pass(limits::TRANSFER_TIMEOUT + Duration::from_secs(3));
    assert_logged(&["queue 1", "did not get on for 30 s"]);
    good.is_served(&cluster, Duration::from_secs(1));
    drop((raw, controller));
}

#[test]
fn a_host_that_is_asked_for_data_and_sends_none_gives_way_to_those_who_wait_for_the_memory() {
    keep();
    let cluster = cluster(2);
    let good = Good::new(&cluster);
    // Odd queues live on the second core, as one of the two queues of the good host: together as much as that core may hold.
    let shares = limits::MAX_CORE_PAYLOAD_BYTES / limits::MAX_CONNECTION_GRANTED_BYTES;
    let (controller, queues) = crate::greedy::is_asked_for_data(&cluster, (0..shares as u16).map(|one| 2 * one + 1));
    cluster.pass(Duration::from_secs(1));
    good.is_served(&cluster, Duration::from_secs(8));
    assert_logged(&["queue 1", "others wait for the memory"]);
    let controller_lives = controller.clone();
    cluster.run(async move { controller_lives.namespaces().await }).expect("its other queues live");
    drop(queues);
}

#[test]
fn one_host_that_is_asked_for_data_leaves_room_for_the_data_of_others() {
    crate::greedy::leaves_room_for_data(2);
}

#[test]
fn a_host_that_does_not_take_the_answers_of_its_admin_queue_keeps_nobody_waiting() {
    crate::greedy::takes_no_answers(3);
}

#[test]
fn a_host_that_sends_its_data_byte_by_byte_is_let_go() {
    keep();
    let cluster = cluster(3);
    let good = Good::new(&cluster);
    let controller = bare_controller(&cluster);
    let (address, id, nsid) = (cluster.address(), controller.id(), cluster.served.nsids[1]);
    let slow = cluster.start(async move {
        let raw = Raw::queue(address, id, 15).await;
        raw.io(nvm::WRITE, nsid, 1, MIB >> 12);
        raw.send().await;
        let r2t = raw.read(24).await;
        let header = DataHeader {
            flags: 4,
            command: 1,
            transfer_tag: u16::from_le_bytes([r2t[10], r2t[11]]),
            offset_bytes: 0,
            len_bytes: MIB,
        };
        raw.send_bytes(&header.encode(PduType::H2cData, 24, 24 + MIB)).await;
        for _ in 0..120 {
            raw.send_bytes(&[7; 100]).await;
            runtime::sleep(Duration::from_millis(500)).await;
        }
    });
    cluster.pass(Duration::from_secs(20));
    good.is_served(&cluster, Duration::from_secs(1));
    cluster.pass(Duration::from_secs(15));
    assert_logged(&["queue 1", "did not get on"]);
    good.is_served(&cluster, Duration::from_secs(1));
    drop((slow, controller));
}

#[test]
fn a_host_that_is_gone_without_a_word_is_let_go_after_its_keep_alive_timeout() {
    keep();
    let cluster = cluster(4);
    let (_controller, namespace) = cluster.connect(cluster.options(1));
    cluster.world.silence_connections(&cluster.client, &cluster.storage);
    cluster.pass(Duration::from_secs(8));
    assert!(cluster.served.target.controllers().is_empty());
    assert_logged(&["uuid:0001", "keep alive"]);
    Good::new(&cluster).is_served(&cluster, Duration::from_secs(1));
    drop(namespace);
}

#[test]
fn ten_thousand_connections_in_a_row_keep_no_host_out() {
    keep();
    let cluster = cluster(5);
    let good = Good::new(&cluster);
    let address = cluster.address();
    let flood = cluster.start(async move {
        let mut open = Vec::new();
        for number in 0..10_000u32 {
            let Ok(stream) = TcpStream::connect(address).await else { continue };
            match number % 4 {
                0 => {}
                1 => drop(stream.send(&mut vec![bytes(&[0; 5])]).await),
                // More than may be there at once say nothing and stay.
                _ if open.len() < 3 * limits::MAX_UNCONNECTED => open.push(stream),
                _ => open[number as usize % (3 * limits::MAX_UNCONNECTED)] = stream,
            }
        }
        open.len()
    });
    let mut came_in = 0;
    while flood.borrow().is_none() {
        cluster.pass(Duration::from_millis(200));
        good.is_served(&cluster, Duration::from_secs(1));
        // Who means it comes in, too.
        let other = cluster.connect(cluster.options(20 + came_in % 50));
        came_in += 1;
        drop(other);
    }
    assert!(came_in > 0);
    assert_logged(&["have not sent Connect", "the oldest is closed"]);
    assert!(count("") < 2_000, "{} lines were logged", count(""));
    cluster.pass(limits::CONNECT_TIMEOUT + Duration::from_secs(1));
    good.is_served(&cluster, Duration::from_secs(1));
}

#[test]
fn garbage_ends_its_connection_alone() {
    keep();
    let cluster = cluster(6);
    let good = Good::new(&cluster);
    let random = Random::new(6);
    for round in 0..60u64 {
        let mut noise: Vec<u8> = (0..1 + random.below(3000)).map(|_| random.next_u64() as u8).collect();
        // Some of it looks like a PDU at first.
        if round % 3 == 1 {
            noise.splice(0..0, IcReq::default().encode(PduType::IcReq));
        }
        if round % 3 == 2 {
            noise[0] = 4;
        }
        let controller = bare_controller(&cluster);
        let (address, id) = (cluster.address(), controller.id());
        let is_queue = round % 2 == 0;
        let ended = cluster.start(async move {
            let raw = if is_queue { Raw::queue(address, id, 15).await } else { Raw::silent(address).await };
            raw.send_bytes(&noise).await;
            raw.read_to_end().await
        });
        cluster.pass(limits::TERMINATION_TIMEOUT + Duration::from_secs(11));
        assert!(ended.borrow().is_some(), "round {round}: the connection stays open");
        drop(controller);
        good.is_served(&cluster, Duration::from_secs(1));
    }
    assert_logged(&["PDU of type", "before Connect"]);
    assert_logged(&["PDU of type", "queue 1"]);
}

/// What the target answers to bytes on an I/O queue: the TermReq, if there is one, and then the end.
fn fatal(cluster: &Cluster, sent: Vec<u8>, closes: bool) -> Option<TermReq> {
    let controller = bare_controller(cluster);
    let (address, id) = (cluster.address(), controller.id());
    let ended = cluster.start(async move {
        let raw = Raw::queue(address, id, 15).await;
        raw.send_bytes(&sent).await;
        if closes {
            raw.stream.shutdown();
        }
        raw.read_to_end().await
    });
    cluster.pass(limits::TERMINATION_TIMEOUT + Duration::from_secs(3));
    let answer = ended.borrow_mut().take().expect("the connection is closed in time");
    drop(controller);
    (answer.first() == Some(&3)).then(|| TermReq::decode(answer[..24].try_into().expect("a header")))
}

#[test]
fn oversized_and_misplaced_pdus_are_told_and_closed_and_cut_ones_are_forgotten() {
    keep();
    let cluster = cluster(7);
    let good = Good::new(&cluster);
    let nsid = cluster.served.nsids[1];
    let mut writer = PduWriter::new();
    let write = |blocks: u32| {
        let mut sqe = Sqe::new(nvm::WRITE, nsid);
        sqe.cdw[2] = blocks - 1;
        sqe
    };
    let expect = |fatal: FatalError, information: u32| Some(TermReq { status: fatal as u16, information });

    // PLEN of 4 GiB, and more data than was agreed on.
    let huge = [4, 0, 72, 72, 0xFF, 0xFF, 0xFF, 0xFF];
    assert_eq!(fatal(&cluster, huge.to_vec(), false), expect(FatalError::InvalidHeaderField, 4));
    writer.command(&write(5), Some(bytes(&[1; 5 << 12])));
    assert_eq!(fatal(&cluster, writer.drain_to_vec(), false), expect(FatalError::InvalidHeaderField, 4));
    // Data that nobody asked for, and data before its turn.
    writer.h2c_data(1, 0, 0, bytes(&[1; 4096]), true);
    assert_eq!(fatal(&cluster, writer.drain_to_vec(), false), expect(FatalError::InvalidHeaderField, 10));
    let mut by_r2t = write(2);
    by_r2t.sgl = Sgl::transport(8192);
    writer.command(&by_r2t, None);
    writer.h2c_data(0, 0, 4096, bytes(&[1; 4096]), true);
    let answer = fatal(&cluster, writer.drain_to_vec(), false);
    assert!(answer.is_none(), "an R2T came first: {answer:?}");
    assert_logged(&["queue 1", "DataOutOfRange", "information 12"]);
    // A second ICReq, and a PDU of the other direction.
    let again = IcReq::default().encode(PduType::IcReq);
    assert_eq!(fatal(&cluster, again.to_vec(), false), expect(FatalError::SequenceError, 0));
    let response = [5, 0, 24, 0, 24, 0, 0, 0];
    assert_eq!(fatal(&cluster, response.to_vec(), false), expect(FatalError::InvalidHeaderField, 0));
    // Cut at any byte: nothing of it is done, and nothing is left behind.
    writer.command(&write(1), Some(bytes(&[9; 4096])));
    let whole = writer.drain_to_vec();
    for cut in [1, 7, 8, 71, 72, 73, 2000, whole.len() - 1] {
        assert_eq!(fatal(&cluster, whole[..cut].to_vec(), true), None);
    }
    let namespace = {
        let address = cluster.address();
        cluster.run(async move { crate::node::connect(address, &options(3), nsid).await.expect("connected") })
    };
    let read = cluster.run(async move { namespace.1.read(0, 4096).await.expect("read") });
    assert!(read.iter().all(|byte| *byte == 0), "part of a PDU was executed");
    good.is_served(&cluster, Duration::from_secs(1));
}

/// The target's own fault: what it did not read while it had taken on all it may counts against nobody.
#[test]
fn a_device_that_stands_still_for_ten_seconds_costs_no_host_its_connection() {
    keep();
    let cluster = cluster(9);
    let mut options = options(7);
    options.io_queues = 4;
    options.keep_alive = Duration::from_secs(5);
    let (controller, namespace) = cluster.connect(options);
    let disk = cluster.storage.disk(Path::new("/disk")).expect("there");
    disk.set_hanging(true);
    // More than one core takes on at once.
    let written: Vec<_> = (0..160)
        .map(|number: u64| {
            let namespace = namespace.clone();
            cluster.start(async move { namespace.write(number % 60 * u64::from(MIB), pattern(MIB as usize, 1)).await })
        })
        .collect();
    cluster.pass(Duration::from_secs(10));
    assert!(written.iter().all(|written| written.borrow().is_none()), "the device stands still");
    disk.set_hanging(false);
    cluster.pass(Duration::from_secs(20));
    for (number, written) in written.iter().enumerate() {
        assert_eq!(written.borrow_mut().take().map(|result| result.is_ok()), Some(true), "write {number}");
    }
    drop((controller, namespace));
}
