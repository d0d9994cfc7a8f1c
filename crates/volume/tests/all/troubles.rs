//! Devices that damage, fail, stutter or fall silent while they are in use: said where and why, and nobody waits for
//! ever.

use crate::common::nodes::{CHUNKS, Cluster, made, of};
use crate::common::{DISK, Machine, Random, new_volume, payload};
use runtime::sim::{DiskFaults, SimDisk};
use std::cell::{Cell, RefCell};
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;
use types::CHUNK_BYTES;
use volume::{Assembly, IoError, NodeStatus};

const ALWAYS: u32 = 1_000_000;
const BLOCKS: u64 = 100;

/// A node with a volume "a" whose first blocks are written, each with bytes of its own.
fn written(seed: u64) -> (Machine, Assembly, SimDisk) {
    let machine = Machine::new(seed, 2);
    let assembly = machine.start();
    let disk = machine.node.disk(Path::new(DISK)).expect("there");
    let writing = assembly.clone();
    machine.run(async move {
        writing.create_volume(new_volume("a", 64 << 20)).await.expect("made");
        let volume = writing.directory().by_name("a").expect("served");
        for block in 0..BLOCKS {
            volume.write(block * 4096, payload(&Random::new(block).bytes(4096))).await.expect("written");
        }
    });
    (machine, assembly, disk)
}

fn status(machine: &Machine, assembly: &Assembly) -> NodeStatus {
    let assembly = assembly.clone();
    machine.run(async move { assembly.status().await })
}

/// Where on the disk the block with these bytes lies.
fn place_of(disk: &SimDisk, block: &[u8]) -> u64 {
    let mut bytes = vec![0; 32 << 20];
    disk.peek(0, &mut bytes);
    let found = bytes.chunks_exact(512).position(|sector| *sector == block[..512]);
    found.expect("the block is on the disk") as u64 * 512
}

/// Reads and writes that began and are not waited for.
fn begin(machine: &Machine, assembly: &Assembly) -> Rc<RefCell<Vec<Result<(), IoError>>>> {
    let ended = Rc::new(RefCell::new(Vec::new()));
    let volume = assembly.directory().by_name("a").expect("served");
    for block in 0..4 {
        let (reads, writes, ended, other) = (volume.clone(), volume.clone(), ended.clone(), ended.clone());
        machine.node.spawn(0, async move {
            let read = reads.read(block * 4096, 4096).await.map(drop);
            ended.borrow_mut().push(read);
        });
        machine.node.spawn(0, async move {
            let written = writes.write((block << 20) + (1 << 19), payload(&[7; 4096])).await;
            other.borrow_mut().push(written);
        });
    }
    ended
}

#[test]
fn a_damaged_block_is_told_with_device_segment_offset_volume_and_block() {
    let (machine, assembly, disk) = written(1);
    let damaged = place_of(&disk, &Random::new(17).bytes(4096));
    disk.flip_bit(damaged + 100, 3);
    for _ in 0..2 {
        let assembly = assembly.clone();
        machine.run(async move {
            let volume = assembly.directory().by_name("a").expect("served");
            for block in 0..BLOCKS {
                match volume.read(block * 4096, 4096).await {
                    Ok(read) => assert_eq!(&*read.bytes, &Random::new(block).bytes(4096)[..]),
                    Err(error) => assert!(matches!(error, IoError::Damaged(_)) && block == 17, "{block}: {error}"),
                }
            }
        });
    }
    let status = status(&machine, &assembly);
    let device = &status.devices[0];
    let [told] = &device.damaged[..] else { panic!("{:?}", device.damaged) };
    assert_eq!(device.damage, 1, "met twice, it is one place");
    let segment = (damaged - (1 << 20)) / (4 << 20);
    let wanted =
        ["/disk: volume a,", "chunk 0 block 17", &format!("segment {segment} byte {damaged}")].map(str::to_owned);
    assert!(wanted.iter().all(|part| told.contains(part)), "{told} says not {wanted:?}");
    assert_eq!((status.groups_serving, &device.failed), (status.groups_total, &None), "the rest goes on");
}

#[test]
fn the_list_of_damaged_places_is_bounded_and_its_count_is_not() {
    let (machine, assembly, disk) = written(2);
    for block in 0..BLOCKS {
        let at = place_of(&disk, &Random::new(block).bytes(4096));
        disk.flip_bit(at + 4000, 7);
    }
    let reading = assembly.clone();
    machine.run(async move {
        let volume = reading.directory().by_name("a").expect("served");
        for block in 0..BLOCKS {
            let read = volume.read(block * 4096, 4096).await;
            assert!(matches!(read, Err(IoError::Damaged(_))), "{block}: {read:?}");
        }
    });
    let status = status(&machine, &assembly);
    assert_eq!((status.devices[0].damaged.len(), status.devices[0].damage), (64, BLOCKS));
    assert_eq!(status.devices[0].failed, None, "a wrong sum is not a device that refuses");
}

#[test]
fn a_device_that_fails_every_read_is_given_up() {
    let (machine, assembly, disk) = written(3);
    disk.set_faults(DiskFaults { read_error: ALWAYS, ..DiskFaults::default() });
    let reading = assembly.clone();
    machine.run(async move {
        let volume = reading.directory().by_name("a").expect("served");
        let mut refused = 0;
        while let Err(IoError::Damaged(why)) = volume.read(0, 4096).await {
            assert!(why.contains("chunk 0 block 0") && why.contains("reading 4096 bytes at byte"), "{why}");
            refused += 1;
            assert!(refused < 100, "it is asked for ever");
        }
        let later = volume.read(0, 4096).await.map(drop);
        assert!(matches!(later, Err(IoError::Unavailable(_))), "{later:?}");
    });
    let status = status(&machine, &assembly);
    let failed = status.devices[0].failed.clone().expect("failed");
    assert!(failed.contains("32 reads in a row failed"), "{failed}");
    assert!(status.reasons.iter().any(|reason| reason.contains(&failed)), "{:?}", status.reasons);
}

#[test]
fn a_device_that_falls_silent_is_slow_then_failed_and_all_who_wait_are_told() {
    for seed in 0..4 {
        let (machine, assembly, disk) = written(10 + seed);
        disk.set_hanging(true);
        let ended = begin(&machine, &assembly);
        machine.world.run_for(Duration::from_millis(3500));
        let during = status(&machine, &assembly);
        assert!(during.devices[0].slow.is_some() && during.devices[0].failed.is_none(), "{during:?}");
        machine.world.run_for(Duration::from_secs(24));
        let told = status(&machine, &assembly);
        assert_eq!(told.devices[0].failed, None);
        // Whoever waited for 10 s is told that the volume waits.
        assert!(told.reasons.iter().any(|reason| reason.contains("hosts are told to wait")), "{:?}", told.reasons);
        assert_eq!(ended.borrow().len(), 8, "{ended:?}");
        assert!(ended.borrow().iter().all(|result| matches!(result, Err(IoError::Stopped(_)))), "{ended:?}");
        machine.world.run_for(Duration::from_secs(5));
        let after = status(&machine, &assembly);
        let failed = after.devices[0].failed.clone().expect("failed");
        assert!(failed.contains("was not answered for 30 s"), "{failed}");
        assert!(after.groups_serving < after.groups_total);
        // Whoever asks again is told why.
        machine.world.run_for(Duration::from_secs(2));
        let again = begin(&machine, &assembly);
        machine.world.run_for(Duration::from_secs(1));
        let again = again.borrow();
        assert_eq!(again.len(), 8, "{again:?}");
        assert!(again.iter().all(|result| matches!(result, Err(IoError::Unavailable(_)))), "{again:?}");
    }
}

#[test]
fn reads_alone_that_nobody_answers_fail_the_device_too() {
    let (machine, assembly, disk) = written(20);
    machine.world.run_for(Duration::from_secs(2));
    disk.set_hanging(true);
    let volume = assembly.directory().by_name("a").expect("served");
    let ended = Rc::new(RefCell::new(Vec::new()));
    let slot = ended.clone();
    // Two stretches of the disk: read by tasks of their own.
    machine.node.spawn(0, async move {
        loop {
            let read = volume.read(0, 4096 * 50).await.map(drop);
            let is_over = !matches!(read, Err(IoError::Stopped(_)));
            slot.borrow_mut().push(read);
            if is_over {
                return;
            }
            runtime::sleep(Duration::from_millis(500)).await;
        }
    });
    machine.world.run_for(Duration::from_secs(34));
    let ended = ended.take();
    assert!(matches!(ended.first(), Some(Err(IoError::Stopped(_)))), "{ended:?}");
    assert!(matches!(ended.last(), Some(Err(IoError::Unavailable(_)))), "{ended:?}");
    let failed = status(&machine, &assembly).devices[0].failed.clone().expect("failed");
    assert!(failed.contains("a read was not answered"), "{failed}");
}

#[test]
fn a_device_that_stutters_is_slow_for_a_while_and_comes_back_by_itself() {
    let (machine, assembly, disk) = written(30);
    assert_eq!(status(&machine, &assembly).devices[0].slow, None);
    disk.set_hanging(true);
    let ended = begin(&machine, &assembly);
    machine.world.run_for(Duration::from_secs(4));
    disk.set_hanging(false);
    machine.world.run_for(Duration::from_secs(1));
    assert!(ended.borrow().len() == 8 && ended.borrow().iter().all(Result::is_ok), "{ended:?}");
    let slow = status(&machine, &assembly).devices[0].slow.clone().expect("slow");
    assert!(slow.starts_with("an append took"), "{slow}");
    machine.world.run_for(Duration::from_secs(70));
    assert_eq!(status(&machine, &assembly).devices[0].slow, None);
}

/// A device answers no read any more while reads wait that begin in one chunk and end in the next: what lies there is read
/// of another node, and what each of both parts brings is told as one.
#[test]
fn a_read_of_two_chunks_outlives_a_device_that_answers_none() {
    const LAST_BLOCK: u64 = CHUNK_BYTES - 4096;
    let cluster = Cluster::new(89, 1);
    cluster.at(0, made);
    cluster.at(0, |assembly| async move {
        let volume = of(&assembly);
        for chunk in 0..CHUNKS {
            let bytes = [chunk as u8; 4096];
            volume.write(chunk * CHUNK_BYTES, payload(&bytes)).await.expect("written");
            volume.write(chunk * CHUNK_BYTES + LAST_BLOCK, payload(&bytes)).await.expect("written");
        }
    });
    let disk = cluster.nodes[0].disk(Path::new(DISK)).expect("there");
    disk.set_reads_hanging(true);
    let told = Rc::new(Cell::new(0));
    let volume = of(cluster.assemblies.borrow()[0].as_ref().expect("it is up"));
    for chunk in 0..CHUNKS - 1 {
        let (volume, told) = (volume.clone(), told.clone());
        cluster.nodes[0].spawn(0, async move {
            let read = volume.read(chunk * CHUNK_BYTES + LAST_BLOCK, 8192).await.expect("readable");
            let is_it = read.bytes.iter().enumerate().all(|(at, byte)| u64::from(*byte) == chunk + at as u64 / 4096);
            assert!(is_it, "chunk {chunk}: {} and {}", read.bytes[0], read.bytes[4096]);
            told.set(told.get() + 1);
        });
    }
    cluster.pass(Duration::from_secs(20));
    assert_eq!(told.get(), CHUNKS - 1);
    disk.set_reads_hanging(false);
}
