//! The trash: what was deleted can come back, whole, for as long as its term says and through any number of crashes.

use crate::common::{Machine, Random, new_volume, payload, read_all};
use cluster::{MapFaults, TRASH_TERM, VolumeRecord, keys, list};
use std::time::Duration;
use volume::{Assembly, IoError, VolumeError};

const MIB: u64 = 1 << 20;

async fn make(assembly: &Assembly, name: &str, mib: u64) -> volume::VolumeInfo {
    let made = assembly.create_volume(new_volume(name, mib * MIB)).await.expect("made");
    let volume = assembly.directory().by_name(name).expect("served");
    let bytes = Random::new(mib).bytes(MIB as usize);
    for chunk in 0..mib {
        volume.write(chunk * MIB, payload(&bytes)).await.expect("written");
    }
    made
}

async fn live_bytes(assembly: &Assembly) -> u64 {
    assembly.status().await.devices[0].live_bytes
}

/// Waits until nothing is stored any more.
async fn all_given_back(assembly: &Assembly, machine_map: &dyn cluster::MapStore) {
    for _ in 0..10_000 {
        if list::<VolumeRecord>(machine_map, keys::VOLUMES).await.expect("volumes").is_empty() {
            assert_eq!(assembly.status().await.deleting_volumes, 0);
            return;
        }
        runtime::sleep(Duration::from_millis(1)).await;
    }
    panic!("the space does not come back");
}

#[test]
fn a_volume_in_the_trash_serves_nothing_and_comes_back_whole() {
    let machine = Machine::new(1, 2);
    let assembly = machine.start();
    machine.run(async move {
        let made = make(&assembly, "a", 16).await;
        let volume = assembly.directory().by_name("a").expect("served");
        let trashed = assembly.trash_volume("a").await.expect("deleted");
        assert_eq!(trashed.info, made);
        assert!(matches!(volume.read(0, 4096).await, Err(IoError::Gone(_))));
        assert!(assembly.volumes().is_empty() && assembly.directory().by_nsid(made.nsid).is_none());
        assert_eq!(assembly.trash_volume("a").await, Err(VolumeError::NotFound("a".to_owned())));
        assert!(live_bytes(&assembly).await >= 16 * MIB, "it still takes its space");

        let other = make(&assembly, "a", 4).await;
        assert_ne!(other.nsid, made.nsid);
        let refused = assembly.restore_volume(made.id, None).await;
        assert!(matches!(refused, Err(VolumeError::Exists(_))), "{refused:?}");
        let restored = assembly.restore_volume(made.id, Some("b")).await.expect("restored");
        assert_eq!(restored, volume::VolumeInfo { name: "b".into(), ..made });
        let volume = assembly.directory().by_name("b").expect("served");
        assert_eq!(read_all(&volume).await, Random::new(16).bytes(MIB as usize).repeat(16));
        volume.write(0, payload(&[1; 4096])).await.expect("written");
        assert_eq!(assembly.trash(), []);
    });
}

#[test]
fn a_term_survives_crashes_and_ends_by_itself_and_not_before() {
    for seed in 0..4 {
        let machine = Machine::new(20 + seed, 2);
        let mut assembly = machine.start();
        let trashed = {
            let assembly = assembly.clone();
            machine.run(async move {
                make(&assembly, "kept", 8).await;
                make(&assembly, "gone", 8).await;
                assembly.trash_volume("gone").await.expect("deleted")
            })
        };
        // Down for a part of the term, up for another, again and again.
        let step = TRASH_TERM / 7;
        for hour in 0..6 {
            if hour % 2 == 0 {
                machine.node.crash();
                machine.world.run_for(step);
                machine.node.start();
                assembly = machine.start();
            } else {
                machine.world.run_for(step);
            }
            assert_eq!(assembly.trash(), std::slice::from_ref(&trashed), "after step {hour}");
        }
        machine.world.run_for(step + Duration::from_secs(60));
        let map = machine.map.clone();
        let ended = assembly.clone();
        machine.run(async move {
            assert_eq!((ended.trash(), ended.volumes().len()), (vec![], 1));
            let refused = ended.restore_volume(trashed.info.id, None).await;
            assert_eq!(refused, Err(VolumeError::NotInTrash(trashed.info.id)));
            let kept = ended.directory().by_name("kept").expect("served");
            assert_eq!(read_all(&kept).await, Random::new(8).bytes(MIB as usize).repeat(8));
            ended.delete_volume("kept").await.expect("deleted");
            all_given_back(&ended, &*map).await;
            assert!(live_bytes(&ended).await < MIB);
        });
    }
}

#[test]
fn a_term_that_ended_while_the_node_was_down_is_over_at_its_next_start() {
    let machine = Machine::new(30, 1);
    let assembly = machine.start();
    machine.run(async move {
        make(&assembly, "a", 8).await;
        assembly.trash_volume("a").await.expect("deleted");
    });
    machine.node.crash();
    machine.world.run_for(TRASH_TERM * 2);
    machine.node.start();
    let (assembly, map) = (machine.start(), machine.map.clone());
    machine.run(async move { all_given_back(&assembly, &*map).await });
}

#[test]
fn a_clock_that_is_put_forward_ends_no_term() {
    let machine = Machine::new(31, 1);
    let assembly = machine.start();
    {
        let assembly = assembly.clone();
        machine.run(async move {
            make(&assembly, "a", 1).await;
            assembly.trash_volume("a").await.expect("deleted");
        });
    }
    machine.node.set_wall_clock_offset(48 * 3600 * 1_000_000_000);
    machine.world.run_for(TRASH_TERM / 2);
    assert_eq!(assembly.trash().len(), 1);
}

/// A crash at any time of a delete, a restore, or the emptying: the volume is served whole, in the trash, or gone.
#[test]
fn a_crash_at_any_step_leaves_the_volume_before_it_or_behind_it() {
    let whole = Random::new(4).bytes(MIB as usize).repeat(4);
    let mut seen = std::collections::BTreeSet::new();
    for seed in 0..48 {
        let machine = Machine::new(100 + seed, 2);
        let assembly = machine.start();
        {
            let assembly = assembly.clone();
            machine.run(async move { drop(make(&assembly, "a", 4).await) });
        }
        let latency_max = Duration::from_millis(2);
        machine.map.set_faults(MapFaults { latency_max, ..MapFaults::default() });
        machine.node.spawn(0, async move {
            let Ok(trashed) = assembly.trash_volume("a").await else { return };
            let id = trashed.info.id;
            if seed % 3 > 0 {
                let _ = assembly.restore_volume(id, None).await;
            }
            if seed % 3 > 1 {
                let _ = assembly.trash_volume("a").await;
            }
            let _ = assembly.empty_trash(id).await;
        });
        machine.world.run_for(Duration::from_micros(400 * seed));
        machine.map.set_faults(MapFaults::default());
        machine.crash();
        let (assembly, map, whole) = (machine.start(), machine.map.clone(), whole.clone());
        let found = machine.run(async move {
            let records = list::<VolumeRecord>(&*map, keys::VOLUMES).await.expect("volumes").len();
            let found = (assembly.volumes().len(), assembly.trash().len());
            match found {
                (1, 0) => {}
                (0, 1) => drop(assembly.restore_volume(assembly.trash()[0].info.id, None).await.expect("restored")),
                (0, 0) => {
                    all_given_back(&assembly, &*map).await;
                    return (found, records);
                }
                other => panic!("{other:?}"),
            }
            let volume = assembly.directory().by_name("a").expect("served");
            assert_eq!(read_all(&volume).await, whole, "seed {seed}");
            (found, records)
        });
        seen.insert(found.0);
    }
    assert_eq!(seen.len(), 3, "all three were met: {seen:?}");
}

#[test]
fn no_space_names_what_lies_in_the_trash_and_emptying_it_makes_room() {
    let machine = Machine::new(40, 2);
    let assembly = machine.start();
    machine.run(async move {
        make(&assembly, "old", 100).await;
        let old = assembly.trash_volume("old").await.expect("deleted").info.id;
        assembly.create_volume(new_volume("a", 1 << 30)).await.expect("made");
        let volume = assembly.directory().by_name("a").expect("served");
        let bytes = Random::new(1).bytes(MIB as usize);
        let mut chunk = 0;
        let why = loop {
            match volume.write(chunk * MIB, payload(&bytes)).await {
                Ok(()) => chunk += 1,
                Err(IoError::NoSpace(why)) => break why,
                Err(error) => panic!("{error}"),
            }
        };
        assert!(why.contains("in the trash: old"), "{why}");
        assert!(live_bytes(&assembly).await >= (100 + chunk) * MIB, "nothing empties it early");
        assembly.empty_trash(old).await.expect("emptied");
        for attempt in 0.. {
            match volume.write(chunk * MIB, payload(&bytes)).await {
                Ok(()) => break,
                Err(IoError::NoSpace(why)) => assert!(attempt < 5000 && !why.contains("trash"), "{why}"),
                Err(error) => panic!("{error}"),
            }
            runtime::sleep(Duration::from_millis(10)).await;
        }
        let read = volume.read((chunk - 1) * MIB, MIB as u32).await.expect("readable");
        assert_eq!(&*read.bytes, &bytes[..]);
    });
}

/// Layers end while a volume that reads through them lies in the trash: it comes back whole.
#[test]
fn a_clone_in_the_trash_outlives_its_snapshot_and_its_parent() {
    let machine = Machine::new(50, 2);
    let assembly = machine.start();
    let id = machine.run(async move {
        make(&assembly, "parent", 8).await;
        assembly.create_snapshot("parent", "s").await.expect("taken");
        let clone = assembly.clone_volume("parent", "s", "clone").await.expect("cloned");
        let volume = assembly.directory().by_name("clone").expect("served");
        volume.write(MIB, payload(&[9; 4096])).await.expect("written");
        let refused = assembly.trash_volume("parent").await;
        assert!(matches!(refused, Err(VolumeError::HasSnapshots(_))), "{refused:?}");
        assembly.trash_volume("clone").await.expect("deleted");
        let parent = assembly.directory().by_name("parent").expect("served");
        parent.write(0, payload(&[1; 4096])).await.expect("written");
        assembly.delete_snapshot("parent", "s").await.expect("deleted");
        runtime::sleep(Duration::from_secs(2)).await;
        assembly.delete_volume("parent").await.expect("deleted");
        clone.id
    });
    machine.crash();
    let assembly = machine.start();
    machine.run(async move {
        runtime::sleep(Duration::from_secs(2)).await;
        assert_eq!(assembly.status().await.deleting_volumes, 0, "what only the parent held is given back");
        assembly.restore_volume(id, None).await.expect("restored");
        let volume = assembly.directory().by_name("clone").expect("served");
        let mut expected = Random::new(8).bytes(MIB as usize).repeat(8);
        expected[MIB as usize..][..4096].fill(9);
        assert!(read_all(&volume).await == expected);
    });
}
