//! Disks: what survives, what does not, and how they fail.

use super::*;
use crate::sim::{DiskFaults, SimDisk};

/// Writes `2` over a durable `1` in 8 sectors and crashes; gives what is there afterwards.
fn after_crash(seed: u64, synced: bool, volatile_cache: bool) -> Vec<u8> {
    let (world, node) = world_with_disk(seed, DiskOptions { volatile_cache, ..DiskOptions::default() });
    let run = async move {
        let device = open().await;
        write(&device, 4096, 4096, 1).await.expect("no fault");
        device.sync().await.expect("no fault");
        write(&device, 4096, 4096, 2).await.expect("no fault");
        if synced {
            device.sync().await.expect("no fault");
        }
    };
    world.run_on(&node, 0, run).expect("it ends");
    node.restart();
    world.run_on(&node, 0, async { read(&open().await, 4096, 4096).await }).expect("it ends")
}

#[test]
fn a_crash_takes_any_subset_of_unsynced_sectors_and_nothing_else() {
    let (mut all, mut none, mut torn) = (0, 0, 0);
    for seed in 0..200 {
        let bytes = after_crash(seed, false, true);
        let mut kept = 0;
        for sector in bytes.chunks(512) {
            assert!(sector.iter().all(|byte| *byte == sector[0]) && matches!(sector[0], 1 | 2), "a torn sector");
            kept += usize::from(sector[0] == 2);
        }
        match kept {
            0 => none += 1,
            8 => all += 1,
            _ => torn += 1,
        }
    }
    assert!(all > 10 && none > 10 && torn > 10, "kept {all}, lost {none}, torn {torn}");
}

#[test]
fn synced_writes_and_those_without_a_volatile_cache_survive() {
    for seed in 0..50 {
        assert!(after_crash(seed, true, true).iter().all(|byte| *byte == 2));
        assert!(after_crash(seed, false, false).iter().all(|byte| *byte == 2));
    }
}

#[test]
fn a_flush_covers_only_what_had_completed_when_it_was_asked_for() {
    let mut lost = 0;
    for seed in 0..100 {
        let (world, node) = world_with_disk(seed, DiskOptions::default());
        let run = async move {
            let device = open().await;
            let other = device.clone();
            crate::spawn(async move { other.sync().await.expect("no fault") });
            crate::yield_now().await; // the flush is asked for, the write is not done
            write(&device, 0, 512, 1).await.expect("no fault");
            crate::sleep(std::time::Duration::from_secs(1)).await;
        };
        world.run_on(&node, 0, run).expect("it ends");
        node.restart();
        let bytes = world.run_on(&node, 0, async { read(&open().await, 0, 512).await }).expect("it ends");
        lost += usize::from(bytes[0] == 0);
    }
    assert!(lost > 10, "{lost} of 100 lost");
}

#[test]
fn writes_in_flight_are_torn_even_without_a_volatile_cache() {
    let (mut all, mut none, mut torn) = (0, 0, 0);
    for seed in 0..200 {
        let (world, node) = world_with_disk(seed, DiskOptions { volatile_cache: false, ..DiskOptions::default() });
        node.spawn(0, async {
            let device = open().await;
            let _ = write(&device, 0, 8192, 7).await;
        });
        world.run_for(std::time::Duration::from_micros(4)); // submitted; no write is done in less than 10 µs
        node.restart();
        let bytes = world.run_on(&node, 0, async { read(&open().await, 0, 8192).await }).expect("it ends");
        match bytes.chunks(512).filter(|sector| sector[0] == 7).count() {
            0 => none += 1,
            16 => all += 1,
            _ => torn += 1,
        }
    }
    assert!(all > 10 && none > 10 && torn > 10, "done {all}, not {none}, torn {torn}");
}

#[test]
fn of_two_unsynced_writes_either_may_stay() {
    let mut seen = [0; 3];
    for seed in 0..200 {
        let (world, node) = world_with_disk(seed, DiskOptions::default());
        let run = async {
            let device = open().await;
            write(&device, 0, 512, 1).await.expect("no fault");
            write(&device, 0, 512, 2).await.expect("no fault");
        };
        world.run_on(&node, 0, run).expect("it ends");
        node.restart();
        let bytes = world.run_on(&node, 0, async { read(&open().await, 0, 512).await }).expect("it ends");
        seen[usize::from(bytes[0])] += 1;
    }
    assert!(seen.iter().all(|count| *count > 10), "{seen:?}");
}

#[test]
fn a_killed_process_loses_no_completed_write_until_the_power_goes_too() {
    let mut lost_later = 0;
    for seed in 0..50 {
        let (world, node) = world_with_disk(seed, DiskOptions::default());
        world.run_on(&node, 0, async { write(&open().await, 0, 512, 1).await.expect("no fault") }).expect("it ends");
        node.kill();
        node.start();
        let bytes = world.run_on(&node, 0, async { read(&open().await, 0, 512).await }).expect("it ends");
        assert_eq!(bytes[0], 1);
        node.restart();
        let bytes = world.run_on(&node, 0, async { read(&open().await, 0, 512).await }).expect("it ends");
        lost_later += usize::from(bytes[0] == 0);
    }
    assert!(lost_later > 5, "{lost_later} of 50");
}

/// A world whose disk has these faults from the start, and its disk.
fn faulty(faults: DiskFaults) -> (World, SimNode, SimDisk) {
    let (world, node) = world_with_disk(1, DiskOptions { faults, ..DiskOptions::default() });
    let disk = node.disk(Path::new(DISK)).expect("just added");
    (world, node, disk)
}

#[test]
fn each_fault_does_what_its_name_says() {
    const ALWAYS: u32 = 1_000_000;
    let none = DiskFaults::default();
    let (world, node, disk) = faulty(DiskFaults { write_error: ALWAYS, ..none });
    let result = world.run_on(&node, 0, async { write(&open().await, 0, 4096, 1).await }).expect("it ends");
    assert_eq!(result.expect_err("asked for").raw_os_error(), Some(libc::EIO));

    disk.set_faults(DiskFaults { flush_error: ALWAYS, ..none });
    assert!(world.run_on(&node, 0, async { open().await.sync().await }).expect("it ends").is_err());

    disk.set_faults(DiskFaults { read_error: ALWAYS, ..none });
    let result = world.run_on(&node, 0, async { open().await.read(0, IoBuf::new(512)).await.0 }).expect("it ends");
    assert!(result.is_err());

    let read_back = |faults| {
        let (world, node, disk) = faulty(faults);
        world
            .run_on(&node, 0, async { write(&open().await, 0, 4096, 0xff).await.expect("acknowledged") })
            .expect("ends");
        disk.set_faults(none);
        world.run_on(&node, 0, async { read(&open().await, 0, 4096).await }).expect("it ends")
    };
    assert!(read_back(none).iter().all(|byte| *byte == 0xff));
    assert!(read_back(DiskFaults { lost_write: ALWAYS, ..none }).iter().all(|byte| *byte == 0));
    assert!(read_back(DiskFaults { misplaced_write: ALWAYS, ..none }).iter().all(|byte| *byte == 0));

    let (world, node, disk) = faulty(none);
    world.run_on(&node, 0, async { write(&open().await, 0, 4096, 0xff).await.expect("no fault") }).expect("ends");
    disk.set_faults(DiskFaults { bit_rot: ALWAYS, ..none });
    let bytes = world.run_on(&node, 0, async { read(&open().await, 0, 4096).await }).expect("it ends");
    assert_eq!(bytes.iter().map(|byte| byte.count_zeros()).sum::<u32>(), 1);
}

#[test]
fn what_a_failed_flush_covered_may_be_lost_whatever_later_flushes_say() {
    let mut lost = 0;
    for seed in 0..50 {
        let (world, node) = world_with_disk(seed, DiskOptions::default());
        let disk = node.disk(Path::new(DISK)).expect("just added");
        disk.set_faults(DiskFaults { flush_error: 1_000_000, ..DiskFaults::default() });
        let run = async {
            let device = open().await;
            write(&device, 0, 512, 1).await.expect("no fault");
            device.sync().await.expect_err("asked for");
        };
        world.run_on(&node, 0, run).expect("it ends");
        disk.set_faults(DiskFaults::default());
        world.run_on(&node, 0, async { open().await.sync().await.expect("no fault") }).expect("it ends");
        node.restart();
        let bytes = world.run_on(&node, 0, async { read(&open().await, 0, 512).await }).expect("it ends");
        lost += usize::from(bytes[0] == 0);
    }
    assert!((10..40).contains(&lost), "{lost} of 50");
}

#[test]
fn what_is_written_again_after_a_failed_flush_is_durable_with_the_next() {
    for seed in 0..50 {
        let (world, node) = world_with_disk(seed, DiskOptions::default());
        let disk = node.disk(Path::new(DISK)).expect("just added");
        disk.set_faults(DiskFaults { flush_error: 1_000_000, ..DiskFaults::default() });
        let run = async {
            let device = open().await;
            write(&device, 0, 1536, 1).await.expect("no fault");
            device.sync().await.expect_err("asked for");
        };
        world.run_on(&node, 0, run).expect("it ends");
        disk.set_faults(DiskFaults::default());
        let again = async {
            let device = open().await;
            write(&device, 512, 512, 2).await.expect("no fault");
            device.sync().await.expect("no fault");
            write(&device, 512, 512, 3).await.expect("no fault");
        };
        world.run_on(&node, 0, again).expect("it ends");
        node.restart();
        let bytes = world.run_on(&node, 0, async { read(&open().await, 512, 512).await }).expect("it ends");
        assert!(
            bytes.iter().all(|byte| *byte == 2) || bytes.iter().all(|byte| *byte == 3),
            "seed {seed}: {}",
            bytes[0]
        );
    }
}

#[test]
fn a_hanging_disk_answers_when_it_is_released() {
    let (world, node, disk) = faulty(DiskFaults::default());
    disk.set_hanging(true);
    let done = std::rc::Rc::new(std::cell::Cell::new(false));
    let flag = done.clone();
    node.spawn(0, async move {
        write(&open().await, 0, 512, 1).await.expect("no fault");
        flag.set(true);
    });
    world.run_for(std::time::Duration::from_secs(100));
    assert!(!done.get());
    disk.set_hanging(false);
    world.run_until(|| done.get()).expect("it is released");
}

#[test]
fn a_disk_takes_as_much_longer_as_it_is_told_to() {
    let (world, node, disk) = faulty(DiskFaults::default());
    let times = [0, 2].map(|seconds| {
        disk.set_delay(std::time::Duration::from_secs(seconds));
        let began = world.now();
        world.run_on(&node, 0, async { write(&open().await, 0, 512, 1).await.expect("no fault") }).expect("it ends");
        (world.now() - began).as_secs()
    });
    assert_eq!(times, [0, 2]);
}

#[test]
fn a_dropped_future_leaves_its_write_running() {
    let (world, node) = world_with_disk(3, DiskOptions::default());
    let run = async {
        let device = open().await;
        let early = crate::timeout(std::time::Duration::from_nanos(1), write(&device, 0, 512, 9)).await;
        early.expect_err("no write is that fast");
        crate::sleep(std::time::Duration::from_secs(1)).await;
        read(&device, 0, 512).await
    };
    assert_eq!(world.run_on(&node, 0, run).expect("it ends")[0], 9);
}

#[test]
fn unaligned_and_outside_operations_are_refused() {
    let (world, node) = world_with_disk(4, DiskOptions { block_size_bytes: 4096, ..DiskOptions::default() });
    let run = async {
        let device = open().await;
        for (offset, len) in [(512, 4096), (0, 512), (DISK_BYTES, 4096), (u64::MAX - 4095, 4096)] {
            let error = write(&device, offset, len, 1).await.expect_err("refused");
            assert_eq!(error.raw_os_error(), Some(libc::EINVAL), "{offset} {len}");
        }
        let mut buf = IoBuf::new(8192);
        let unaligned = {
            let _ = buf.split_off(100 + 4096);
            buf.freeze().slice(100..4196)
        };
        device.write(0, &mut vec![unaligned]).await.expect_err("an address that is not aligned");
        Device::open(Path::new("elsewhere")).await.expect_err("no such disk").kind()
    };
    assert_eq!(world.run_on(&node, 0, run).expect("it ends"), std::io::ErrorKind::NotFound);
}
