//! Volumes made, served again and deleted; devices that are not what they should be.

use crate::common::{DISK, Machine, Random, new_volume, payload, read_all};
use cluster::{GroupRecord, SimMap, VolumeRecord, keys, list};
use runtime::sim::DiskFaults;
use std::time::Duration;
use volume::{Assembly, IoError, StartError, VolumeError};

/// Waits until the space of all deleted volumes is back.
async fn all_erased(assembly: &Assembly) {
    while assembly.status().await.deleting_volumes > 0 {
        runtime::sleep(Duration::from_millis(5)).await;
    }
}

async fn fill(assembly: &Assembly, name: &str, mib: u64) {
    let volume = assembly.directory().by_name(name).expect("served");
    let bytes = Random::new(mib).bytes(1 << 20);
    for chunk in 0..mib {
        volume.write(chunk << 20, payload(&bytes)).await.expect("written");
    }
}

#[test]
fn a_new_node_serves_and_says_so() {
    for cores in [1, 2] {
        let machine = Machine::new(1, cores);
        let assembly = machine.start();
        machine.run(async move {
            let made = assembly.create_volume(new_volume("demo", 1 << 30)).await.expect("made");
            assert_eq!((made.nsid, made.size_bytes, made.block_size_bytes), (1, 1 << 30, 512));
            assert_ne!(made.nguid, [0; 16]);
            let again = assembly.create_volume(new_volume("demo", 1 << 20)).await;
            assert_eq!(again, Err(VolumeError::Exists(Box::new(made.clone()))));
            let bad = assembly.create_volume(new_volume("Demo", 1 << 20)).await;
            assert!(matches!(bad, Err(VolumeError::BadName(_))), "{bad:?}");
            let status = assembly.status().await;
            assert_eq!((status.groups_total, status.groups_serving), (100, 100));
            assert_eq!(status.reasons, Vec::<String>::new());
            assert_eq!(assembly.volumes(), [made]);
        });
    }
}

#[test]
fn a_restart_finds_everything_in_a_new_epoch() {
    let machine = Machine::new(2, 2);
    let assembly = machine.start();
    let cluster = assembly.cluster_id();
    let before = machine.run(async move {
        let made = assembly.create_volume(new_volume("a", 4 << 20)).await.expect("made");
        fill(&assembly, "a", 4).await;
        assembly.stop().await;
        made
    });
    let map = machine.map.clone();
    for start in 2..5 {
        machine.crash();
        let assembly = machine.start();
        assert_eq!(assembly.cluster_id(), cluster);
        assert_eq!(assembly.volumes(), std::slice::from_ref(&before), "name, size, namespace and NGUID are stable");
        let map = map.clone();
        machine.run(async move {
            let groups = list::<GroupRecord>(&*map, keys::GROUPS).await.expect("groups");
            assert!(groups.iter().all(|group| group.record.epoch.0 == start), "each start is a new epoch");
            let volumes = list::<VolumeRecord>(&*map, keys::VOLUMES).await.expect("volumes");
            assert_eq!(volumes[0].record.volume_epoch.0, start, "and each a new reign of the head");
            let volume = assembly.directory().by_name("a").expect("served");
            assert_eq!(read_all(&volume).await, Random::new(4).bytes(1 << 20).repeat(4));
        });
    }
}

/// The shards of a device are dealt to as many cores as there are, at each start anew.
#[test]
fn a_device_is_served_by_one_core_or_two_or_more_than_it_has_shards() {
    // Two shards.
    let machine = Machine::with_disk(5, 3, 1 << 30);
    let size: u64 = 24 << 20;
    let model = std::rc::Rc::new(std::cell::RefCell::new(vec![0; size as usize]));
    for (start, cores) in [1, 2, 1, 3, 2, 1].into_iter().enumerate() {
        let mut options = machine.options();
        options.cores.truncate(cores);
        let (model, map) = (model.clone(), machine.map.clone());
        machine.run(async move {
            let assembly = Assembly::start(options).await.expect("the node starts");
            if start == 0 {
                assembly.create_volume(new_volume("a", size)).await.expect("made");
            }
            let devices = list::<cluster::DeviceRecord>(&*map, keys::DEVICES).await.expect("devices");
            assert_eq!(devices.len(), 1, "it is the same device, not formatted anew");
            let volume = assembly.directory().by_name("a").expect("served");
            assert_eq!(
                crate::common::first_difference(&read_all(&volume).await, &model.borrow()),
                None,
                "start {start}"
            );
            let random = Random::new(start as u64);
            for _ in 0..60 {
                let (offset, length) = random.range(size);
                let bytes = random.bytes(length as usize);
                volume.write(offset, payload(&bytes)).await.expect("written");
                model.borrow_mut()[offset as usize..][..bytes.len()].copy_from_slice(&bytes);
            }
            if start % 2 == 0 {
                assembly.stop().await;
            }
        });
        machine.crash();
    }
}

#[test]
fn a_deleted_volume_is_gone_and_its_space_comes_back() {
    let machine = Machine::new(3, 2);
    let assembly = machine.start();
    machine.run(async move {
        // Far more than fits at once.
        for round in 0..6 {
            let made = assembly.create_volume(new_volume("a", 100 << 20)).await.expect("made");
            let volume = assembly.directory().by_nsid(made.nsid).expect("served");
            let zero = volume.read(0, 4096).await.expect("readable");
            assert!(zero.bytes.iter().all(|byte| *byte == 0), "nothing of the last one shows, round {round}");
            fill(&assembly, "a", 100).await;
            assembly.delete_volume("a").await.expect("deleted");
            let late = volume.write(0, payload(&[1; 4096])).await;
            assert!(matches!(late, Err(IoError::Gone(_))), "{late:?}");
            assert!(assembly.directory().by_name("a").is_none());
            assert_eq!(assembly.delete_volume("a").await, Err(VolumeError::NotFound("a".to_owned())));
            all_erased(&assembly).await;
        }
    });
}

#[test]
fn a_deletion_goes_on_after_a_crash() {
    for seed in 0..6 {
        let machine = Machine::new(40 + seed, 2);
        let assembly = machine.start();
        machine.run(async move {
            for name in ["a", "b"] {
                assembly.create_volume(new_volume(name, 32 << 20)).await.expect("made");
                fill(&assembly, name, 32).await;
            }
            assembly.delete_volume("a").await.expect("deleted");
            runtime::sleep(Duration::from_micros(100 * seed)).await;
        });
        machine.crash();
        let assembly = machine.start();
        let map = machine.map.clone();
        machine.run(async move {
            assert_eq!(assembly.volumes().len(), 1, "what was deleted stays deleted");
            all_erased(&assembly).await;
            let left = list::<VolumeRecord>(&*map, keys::VOLUMES).await.expect("volumes");
            assert_eq!(left.len(), 1);
            let b = assembly.directory().by_name("b").expect("served");
            assert_eq!(read_all(&b).await, Random::new(32).bytes(1 << 20).repeat(32), "its neighbour is whole");
            let made = assembly.create_volume(new_volume("a", 32 << 20)).await.expect("made");
            assert!(made.id.0 > 2, "the id is never used again");
            let again = assembly.directory().by_name("a").expect("served");
            assert!(read_all(&again).await.iter().all(|byte| *byte == 0));
        });
    }
}

#[test]
fn a_device_of_another_cluster_is_refused_and_left_alone() {
    let machine = Machine::new(5, 1);
    let mine = machine.start().cluster_id();
    machine.crash();
    let options = volume::NodeOptions { map: SimMap::new(), ..machine.options() };
    let refused = machine.run(async move { Assembly::start(options).await.map(drop) });
    assert!(matches!(refused, Err(StartError::OtherCluster { found, .. }) if found == mine), "{refused:?}");
    machine.crash();
    assert_eq!(machine.start().cluster_id(), mine);
}

#[test]
fn a_device_that_lost_its_store_is_not_formatted_again() {
    let machine = Machine::new(6, 1);
    machine.start();
    machine.crash();
    let disk = machine.node.disk(std::path::Path::new(DISK)).expect("there");
    for start in (0..crate::common::DISK_BYTES).step_by(1 << 20) {
        disk.poke(start, &vec![0; 1 << 20]);
    }
    let options = machine.options();
    let refused = machine.run(async move { Assembly::start(options).await.map(drop) });
    assert!(matches!(refused, Err(StartError::Blank { .. })), "{refused:?}");
}

#[test]
fn ranges_past_the_end_are_refused() {
    let machine = Machine::new(7, 1);
    let assembly = machine.start();
    machine.run(async move {
        assembly.create_volume(new_volume("a", 1 << 20)).await.expect("made");
        let volume = assembly.directory().by_name("a").expect("served");
        let size = 1 << 20;
        let out =
            |result: Result<(), IoError>| assert!(matches!(result, Err(IoError::OutOfRange { .. })), "{result:?}");
        out(volume.read(size - 1, 2).await.map(drop));
        out(volume.write(size, payload(&[1])).await);
        out(volume.write_zeroes(0, size + 1).await);
        out(volume.discard(u64::MAX, 2).await);
        volume.read(size - 1, 1).await.expect("the last byte");
        volume.write_zeroes(size, 0).await.expect("nothing at the end");
        volume.flush().await.expect("flushed");
    });
}

#[test]
fn a_failed_device_says_so_and_acknowledges_nothing() {
    let machine = Machine::new(8, 2);
    let assembly = machine.start();
    let disk = machine.node.disk(std::path::Path::new(DISK)).expect("there");
    machine.run(async move {
        assembly.create_volume(new_volume("a", 8 << 20)).await.expect("made");
        fill(&assembly, "a", 8).await;
        disk.set_faults(DiskFaults { flush_error: 1_000_000, ..DiskFaults::default() });
        let volume = assembly.directory().by_name("a").expect("served");
        for chunk in 0..8 {
            let refused = volume.write(chunk << 20, payload(&[1; 4096])).await;
            assert!(matches!(refused, Err(IoError::Unavailable(_))), "{refused:?}");
        }
        let status = assembly.status().await;
        assert!(status.groups_serving < status.groups_total);
        assert!(status.devices[0].failed.is_some() && !status.reasons.is_empty(), "{status:?}");
        disk.set_faults(DiskFaults::default());
        let still = volume.write(0, payload(&[1; 4096])).await;
        assert!(still.is_err(), "a device that failed stays failed until it is opened again");
    });
    machine.crash();
    let assembly = machine.start();
    machine.run(async move {
        let volume = assembly.directory().by_name("a").expect("served");
        volume.write(0, payload(&[2; 4096])).await.expect("written");
        assert_eq!(assembly.status().await.reasons, Vec::<String>::new());
    });
}

#[test]
fn a_full_device_refuses_new_blocks_and_takes_them_again_when_some_are_given_back() {
    let machine = Machine::new(9, 1);
    let assembly = machine.start();
    machine.run(async move {
        assembly.create_volume(new_volume("a", 1 << 30)).await.expect("made");
        let volume = assembly.directory().by_name("a").expect("served");
        let bytes = Random::new(9).bytes(1 << 20);
        let mut chunk = 0;
        let refused = loop {
            match volume.write(chunk << 20, payload(&bytes)).await {
                Ok(()) => chunk += 1,
                Err(error) => break error,
            }
            assert!(chunk < 256, "more than the device holds");
        };
        assert!(matches!(refused, IoError::NoSpace(_)), "{refused:?}");
        assert!(chunk > 128, "only {chunk} MiB of 256 could be filled");
        let read = volume.read(0, 1 << 20).await.expect("reads go on");
        assert_eq!(&*read.bytes, &bytes[..]);
        volume.discard(0, 1 << 30).await.expect("giving back always works");
        // What was freed may be used again once a checkpoint no longer needs it.
        for attempt in 0.. {
            match volume.write(0, payload(&bytes)).await {
                Ok(()) => break,
                Err(error) => assert!(attempt < 1000, "{error}"),
            }
            runtime::sleep(Duration::from_millis(10)).await;
        }
        let read = volume.read(1 << 20, 1 << 20).await.expect("readable");
        assert!(read.bytes.iter().all(|byte| *byte == 0), "a discarded block does not come back");
    });
}
