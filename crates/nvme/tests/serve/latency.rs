//! Where the time of a command goes: each stage made long on purpose, in virtual time, and found in the flight recorder.

use crate::node::{Cluster, cluster, options, pattern};
use crate::raw::{Raw, bare_controller};
use nvme::host::Namespace;
use nvme::wire::pdu::{DataHeader, PduType};
use nvme::wire::{Sqe, admin, nvm};
use runtime::sim::SimDisk;
use std::path::Path;
use std::time::Duration;
use volume::latency::{Class, Door, Latencies, Operation, SlowIo, Stage, VolumeLatency};

/// How long a stage is held up; all others together take far less.
const LONG: Duration = Duration::from_millis(300);
const SHORT: Duration = Duration::from_millis(50);

fn disk(cluster: &Cluster) -> SimDisk {
    cluster.storage.disk(Path::new("/disk")).expect("there")
}

/// What is remembered of the volume behind the first namespace, or the second.
fn told(cluster: &Cluster, index: usize) -> VolumeLatency {
    let (assembly, nsid) = (cluster.served.assembly.clone(), cluster.served.nsids[index]);
    cluster.on_storage(async move {
        let id = assembly.volumes().into_iter().find(|info| info.nsid == nsid).expect("there").id;
        assembly.volume_latencies().await.remove(&id).expect("served")
    })
}

fn all(cluster: &Cluster) -> Latencies {
    let assembly = cluster.served.assembly.clone();
    cluster.on_storage(async move { assembly.latencies().await })
}

/// The command was held up in this stage and in no other.
fn assert_held_up(io: &SlowIo, stage: Stage) {
    assert!(io.stages.stage(stage) >= LONG - SHORT, "{stage:?}: {io:?}");
    let others = io.stages.total() - io.stages.stage(stage);
    assert!(others < SHORT, "elsewhere: {io:?}");
    assert!(io.stages.total() < 2 * LONG, "not longer than it was held up: {io:?}");
}

/// A good host, and one that writes 4 KiB at each of `offsets` at once while the disk hangs for a while.
fn write_while_disk_hangs(cluster: &Cluster, namespace: &Namespace, offsets: &[u64]) {
    disk(cluster).set_hanging(true);
    let written: Vec<_> = offsets
        .iter()
        .map(|&offset| {
            let namespace = namespace.clone();
            let written = cluster.start(async move { namespace.write(offset, pattern(4096, 1)).await });
            cluster.pass(Duration::from_millis(1)); // so that the record of the first has left
            written
        })
        .collect();
    cluster.pass(LONG);
    disk(cluster).set_hanging(false);
    cluster.pass(SHORT);
    assert!(written.iter().all(|written| written.borrow().as_ref().is_some_and(Result::is_ok)), "all are written");
}

#[test]
fn a_disk_that_takes_its_time_shows_in_the_device_and_what_waits_behind_it_in_queue_and_admit() {
    let cluster = cluster(11);
    let (controller, namespace) = cluster.connect(options(1));
    // The groups know of the head before: the first write of a reign waits for that.
    for offset in [4096, (1 << 20) + 4096] {
        let writer = namespace.clone();
        cluster.run(async move { writer.write(offset, pattern(4096, 1)).await }).expect("written");
    }
    // One chunk: one shard, whose second record waits for the first one.
    write_while_disk_hangs(&cluster, &namespace, &[0, 8192]);
    let slowest = told(&cluster, 0).slowest;
    assert_eq!(slowest.iter().take(2).map(|io| io.offset_bytes).collect::<Vec<_>>(), [0, 8192]);
    assert_held_up(&slowest[0], Stage::Device);
    assert!(slowest[1].stages.stage(Stage::Queue) >= LONG - SHORT, "{:?}", slowest[1]);
    // What overlaps waits for its turn.
    write_while_disk_hangs(&cluster, &namespace, &[1 << 20, 1 << 20]);
    let told = told(&cluster, 0);
    let mut overlapping = told.slowest.iter().filter(|io| io.offset_bytes == 1 << 20);
    assert!(overlapping.any(|io| io.stages.stage(Stage::Admit) >= LONG - SHORT), "{told:?}");
    let writes = &told.recent[Class::Write as usize];
    assert_eq!((writes.operations, writes.failed, writes.bytes), (6, 0, 6 * 4096));
    assert!(told.slowest.iter().all(|io| (io.door, io.operation) == (Door::Nvme, Operation::Write)));
    drop((controller, namespace));
}

#[test]
fn reads_tell_the_device_and_sums_agree_with_the_histograms() {
    let cluster = cluster(12);
    let (controller, namespace) = cluster.connect(options(1));
    let writer = namespace.clone();
    cluster.run(async move { writer.write(0, pattern(4096, 1)).await }).expect("written");
    disk(&cluster).set_hanging(true);
    let reader = namespace.clone();
    let read = cluster.start(async move { reader.read(0, 4096).await });
    cluster.pass(LONG);
    disk(&cluster).set_hanging(false);
    cluster.pass(SHORT);
    assert!(read.borrow().as_ref().is_some_and(Result::is_ok));
    let flusher = namespace.clone();
    cluster.run(async move {
        flusher.flush().await.expect("flushed");
        flusher.read(1 << 40, 4096).await.expect_err("past the end");
    });
    let (told, all) = (told(&cluster, 0), all(&cluster));
    assert_eq!((told.slowest[0].operation, told.slowest[0].len_bytes), (Operation::Read, 4096));
    assert_held_up(&told.slowest[0], Stage::Device);
    for class in Class::ALL {
        let totals = &told.totals[class as usize];
        assert_eq!(all.total(Door::Nvme, class).count(), totals.operations, "{class:?}");
        for stage in Stage::ALL {
            let histogram = all.stage(Door::Nvme, class, stage);
            assert_eq!(histogram.sum_ns, totals.stages.stage(stage).as_nanos() as u64, "{class:?} {stage:?}");
        }
    }
    assert_eq!(told.totals.map(|of| of.operations), [1, 1, 1], "what never reached the volume is not counted");
    assert_eq!(all.total(Door::Nbd, Class::Read).count(), 0);
    drop((controller, namespace));
}

#[test]
fn a_host_that_is_slow_to_send_shows_in_receive() {
    let cluster = cluster(13);
    let controller = bare_controller(&cluster);
    let (address, id, nsid) = (cluster.address(), controller.id(), cluster.served.nsids[1]);
    let len = 64 << 10;
    cluster.run(async move {
        let raw = Raw::queue(address, id, 15).await;
        raw.io(nvm::WRITE, nsid, 1, len >> 12);
        raw.send().await;
        let r2t = raw.read(24).await;
        let transfer_tag = u16::from_le_bytes([r2t[10], r2t[11]]);
        let header = DataHeader { flags: 4, command: 1, transfer_tag, offset_bytes: 0, len_bytes: len };
        runtime::sleep(LONG).await;
        raw.send_bytes(&header.encode(PduType::H2cData, 24, 24 + len)).await;
        raw.send_bytes(&vec![7; len as usize]).await;
        raw.read(24).await;
    });
    let slowest = told(&cluster, 1).slowest;
    assert_eq!(slowest.len(), 1);
    assert_held_up(&slowest[0], Stage::Receive);
    drop(controller);
}

#[test]
fn a_write_that_ended_before_its_data_came_is_not_told_of_the_next_command_in_its_place() {
    let cluster = cluster(16);
    let controller = bare_controller(&cluster);
    let (address, id, nsid) = (cluster.address(), controller.id(), cluster.served.nsids[1]);
    let aborter = controller.clone();
    cluster.run(async move {
        let raw = Raw::queue(address, id, 15).await;
        raw.io(nvm::WRITE, nsid, 1, 16);
        raw.send().await;
        let r2t = raw.read(24).await;
        let transfer_tag = u16::from_le_bytes([r2t[10], r2t[11]]);
        let mut abort = Sqe::new(admin::ABORT, 0);
        abort.cdw[0] = 1 | 1 << 16; // queue and command
        runtime::spawn(async move { drop(aborter.admin_command(abort, 0).await) });
        runtime::sleep(LONG).await;
        let len = 16 << 12;
        let header = DataHeader { flags: 4, command: 1, transfer_tag, offset_bytes: 0, len_bytes: len };
        raw.send_bytes(&header.encode(PduType::H2cData, 24, 24 + len)).await;
        raw.send_bytes(&vec![7; len as usize]).await;
        raw.read(24).await;
        raw.io(nvm::READ, nsid, 2, 1);
        raw.send().await;
        raw.read(24 + 4096).await;
        runtime::sleep(SHORT).await;
    });
    let told = told(&cluster, 1);
    assert_eq!(told.totals[Class::Write as usize].operations, 0, "it was aborted: {told:?}");
    let read = told.slowest.iter().find(|io| io.operation == Operation::Read).expect("kept");
    assert!(read.stages.total() < SHORT, "{read:?}");
    drop(controller);
}

#[test]
fn a_host_that_is_slow_to_read_shows_in_send() {
    let cluster = cluster(14);
    let controller = bare_controller(&cluster);
    let (address, id, nsid) = (cluster.address(), controller.id(), cluster.served.nsids[1]);
    const READS: u16 = 12;
    const LEN: usize = 1 << 20;
    cluster.run(async move {
        let raw = Raw::queue(address, id, 31).await;
        for command in 0..READS {
            raw.io(nvm::READ, nsid, command, (LEN >> 12) as u32);
        }
        raw.send().await;
        runtime::sleep(LONG).await;
        for _ in 0..READS {
            raw.read(LEN).await;
        }
        runtime::sleep(SHORT).await;
    });
    let told = told(&cluster, 1);
    assert!(!told.slowest.is_empty());
    assert_held_up(&told.slowest[0], Stage::Send);
    drop(controller);
}

#[test]
fn what_is_told_is_of_the_last_minutes_and_the_slowest_alone_are_kept() {
    let cluster = cluster(15);
    let (controller, namespace) = cluster.connect(options(1));
    let writes = |count: u64| {
        let namespace = namespace.clone();
        cluster.run(async move {
            for index in 0..count {
                namespace.write(index * 4096, pattern(4096, 1)).await.expect("written");
            }
        });
    };
    writes(100);
    let first = told(&cluster, 0);
    assert_eq!(first.recent[Class::Write as usize].operations, 100);
    assert_eq!(first.slowest.len(), 8, "as many as a core keeps of a period");
    assert!(first.slowest.is_sorted_by_key(|io| std::cmp::Reverse(io.stages.total())));
    cluster.pass(Duration::from_secs(70));
    writes(1);
    let second = told(&cluster, 0);
    assert_eq!((second.recent[1].operations, second.slowest.len()), (101, 9), "of the period before, too");
    cluster.pass(Duration::from_secs(70));
    assert_eq!(told(&cluster, 0).recent[1].operations, 1);
    cluster.pass(Duration::from_secs(200));
    let last = told(&cluster, 0);
    assert_eq!((last.recent[1].operations, last.totals[1].operations, last.slowest.len()), (0, 101, 0));
    drop((controller, namespace));
}
