//! An assertion that fails stops its store alone. A process of its own: the deliberate failure is global.
#![cfg(feature = "mutants")]

mod common;

use common::{DISK, DISK_BYTES, Machine, new_volume, payload};
use runtime::sim::DiskOptions;
use std::path::PathBuf;
use std::time::Duration;
use store::check::{CheckOptions, Finding, What, check};
use types::Mutant;
use volume::{Assembly, IoError, NodeOptions, NodeStatus};

const OTHER_DISK: &str = "/other";
const CHUNKS: u64 = 64;
/// What the deliberate assertion is about.
const UNLUCKY: u64 = 13;

fn start(machine: &Machine) -> Assembly {
    let options = NodeOptions { devices: [DISK, OTHER_DISK].map(PathBuf::from).to_vec(), ..machine.options() };
    machine.run(async move { Assembly::start(options).await.expect("a node with a stopped store starts") })
}

/// Chunks that can be read, and are right.
async fn readable(assembly: &Assembly) -> Vec<u64> {
    let volume = assembly.directory().by_name("a").expect("served");
    let mut readable = Vec::new();
    for chunk in 0..CHUNKS {
        match volume.read(chunk << 20, 4096).await {
            Ok(read) => {
                assert!(read.bytes.iter().all(|byte| *byte == chunk as u8), "chunk {chunk}");
                readable.push(chunk);
            }
            Err(IoError::Unavailable(_)) => {}
            Err(error) => panic!("chunk {chunk}: {error}"),
        }
    }
    readable
}

/// The one device that has stopped, and why.
fn stopped(status: &NodeStatus) -> (PathBuf, String) {
    let stopped: Vec<_> = status.devices.iter().filter_map(|d| Some((d.path.clone(), d.failed.clone()?))).collect();
    let [one] = &stopped[..] else { panic!("{status:?}") };
    assert!(status.groups_serving > 0 && status.groups_serving < status.groups_total, "{status:?}");
    assert_eq!(status.groups_total, 200, "those of the stopped store count");
    assert_eq!(status.reasons.len(), 1, "told once, not for each group: {:?}", status.reasons);
    assert!(status.reasons[0].contains(&one.1), "{:?}", status.reasons);
    one.clone()
}

/// One after the other: the switch is the process's.
#[test]
fn an_assertion_stops_its_store_and_no_other() {
    an_assertion_stops_its_store_alone_and_twice_at_one_record_for_good();
    a_store_that_stopped_once_serves_again_when_the_cause_is_gone();
    a_snapshot_deleted_while_a_store_is_stopped_takes_nothing_with_it();
    a_rollback_while_a_store_is_stopped_lasts();
}

fn an_assertion_stops_its_store_alone_and_twice_at_one_record_for_good() {
    let machine = Machine::new(1, 2);
    machine.node.add_disk(OTHER_DISK, DISK_BYTES, DiskOptions::default());
    let assembly = start(&machine);
    Mutant::activate(Some(Mutant::AssertionFails));
    let (status, served) = machine.run(async move {
        assembly.create_volume(new_volume("a", CHUNKS << 20)).await.expect("made");
        let volume = assembly.directory().by_name("a").expect("served");
        for chunk in (0..CHUNKS).filter(|chunk| *chunk != UNLUCKY) {
            volume.write(chunk << 20, payload(&[chunk as u8; 4096])).await.expect("written");
        }
        let refused = volume.write(UNLUCKY << 20, payload(&[UNLUCKY as u8; 4096])).await;
        assert!(matches!(refused, Err(IoError::Unavailable(_))), "{refused:?}");
        let served = readable(&assembly).await;
        for &chunk in &served {
            volume.write((chunk << 20) + 8192, payload(&[1; 4096])).await.expect("the other store goes on");
        }
        runtime::sleep(Duration::from_secs(1)).await;
        (assembly.status().await, served)
    });
    assert!((1..CHUNKS as usize - 1).contains(&served.len()), "{served:?}");
    let (path, why) = stopped(&status);
    assert!(why.contains("an assertion failed at record ") && why.contains("chunk 13 is written to"), "{why}");
    let record = why.split("record ").nth(1).and_then(|rest| rest.split(' ').next()).expect("a number").to_owned();

    // It is opened once more, stops at the same record, and is left alone from then on, whatever became of the bug.
    for (round, wanted) in
        ["an assertion failed at", "an assertion failed 2 times at", "an assertion failed 2 times at"]
            .into_iter()
            .enumerate()
    {
        machine.crash();
        if round == 2 {
            Mutant::activate(None);
        }
        let assembly = start(&machine);
        let (status, now) = machine.run(async move {
            let now = readable(&assembly).await;
            runtime::sleep(Duration::from_secs(1)).await;
            (assembly.status().await, now)
        });
        let (where_now, why) = stopped(&status);
        assert_eq!((&where_now, &now), (&path, &served), "round {round}");
        assert!(why.contains(wanted) && why.contains(&format!("record {record} of shard")), "round {round}: {why}");
    }

    // Told so, it is opened again.
    machine.crash();
    let found = machine.run(async move {
        let device = runtime::Device::open(&path).await.expect("there");
        check(&device, CheckOptions { repair: true }).await.expect("a store's device").findings
    });
    let [Finding { what: What::Stopped { record: at, times: 2, .. }, repaired: true }] = found[..] else {
        panic!("{found:?}")
    };
    assert_eq!(at.0.to_string(), record);
    machine.crash();
    let assembly = start(&machine);
    machine.run(async move {
        assert_eq!(assembly.status().await.reasons, Vec::<String>::new());
        // The write that met the assertion was durable and never acknowledged: it may be there.
        let expected: Vec<u64> = (0..CHUNKS).collect();
        assert_eq!(readable(&assembly).await, expected);
    });
}

fn a_store_that_stopped_once_serves_again_when_the_cause_is_gone() {
    let machine = Machine::new(2, 1);
    machine.node.add_disk(OTHER_DISK, DISK_BYTES, DiskOptions::default());
    let assembly = start(&machine);
    Mutant::activate(Some(Mutant::AssertionFails));
    machine.run(async move {
        assembly.create_volume(new_volume("a", CHUNKS << 20)).await.expect("made");
        let volume = assembly.directory().by_name("a").expect("served");
        let refused = volume.write(UNLUCKY << 20, payload(&[UNLUCKY as u8; 4096])).await;
        assert!(matches!(refused, Err(IoError::Unavailable(_))), "{refused:?}");
        runtime::sleep(Duration::from_secs(1)).await;
    });
    Mutant::activate(None);
    machine.crash();
    let assembly = start(&machine);
    machine.run(async move {
        assert_eq!(assembly.status().await.reasons, Vec::<String>::new());
        let volume = assembly.directory().by_name("a").expect("served");
        for chunk in 0..CHUNKS {
            volume.write(chunk << 20, payload(&[chunk as u8; 4096])).await.expect("written");
        }
        assert_eq!(readable(&assembly).await.len(), CHUNKS as usize);
    });
}

/// The volume's blocks are in the layer that the snapshot named: the stopped store has not merged its part of it.
fn a_snapshot_deleted_while_a_store_is_stopped_takes_nothing_with_it() {
    let machine = Machine::new(3, 2);
    machine.node.add_disk(OTHER_DISK, DISK_BYTES, DiskOptions::default());
    let assembly = start(&machine);
    let path = machine.run(async move {
        assembly.create_volume(new_volume("a", CHUNKS << 20)).await.expect("made");
        let volume = assembly.directory().by_name("a").expect("served");
        for chunk in (0..CHUNKS).filter(|chunk| *chunk != UNLUCKY) {
            volume.write(chunk << 20, payload(&[chunk as u8; 4096])).await.expect("written");
        }
        assembly.create_snapshot("a", "s").await.expect("taken");
        Mutant::activate(Some(Mutant::AssertionFails));
        let refused = volume.write(UNLUCKY << 20, payload(&[UNLUCKY as u8; 4096])).await;
        assert!(matches!(refused, Err(IoError::Unavailable(_))), "{refused:?}");
        runtime::sleep(Duration::from_secs(1)).await;
        stopped(&assembly.status().await).0
    });

    // It stops again at the start.
    machine.crash();
    let assembly = start(&machine);
    machine.run(async move {
        assembly.delete_snapshot("a", "s").await.expect("deleted");
        runtime::sleep(Duration::from_secs(5)).await;
        assert!(readable(&assembly).await.len() < CHUNKS as usize - 1);
    });

    Mutant::activate(None);
    machine.crash();
    machine.run(async move {
        let device = runtime::Device::open(&path).await.expect("there");
        check(&device, CheckOptions { repair: true }).await.expect("a store's device");
    });
    machine.crash();
    let assembly = start(&machine);
    machine.run(async move {
        runtime::sleep(Duration::from_secs(5)).await;
        assert_eq!(readable(&assembly).await, (0..CHUNKS).collect::<Vec<_>>());
        let volume = assembly.volumes().into_iter().next().expect("served");
        assert_eq!(volume.layers.len(), 1, "what the snapshot named has been merged");
    });
}

/// What the stopped store serves cannot be told of the new layer; with the next start it is.
fn a_rollback_while_a_store_is_stopped_lasts() {
    let machine = Machine::new(4, 2);
    machine.node.add_disk(OTHER_DISK, DISK_BYTES, DiskOptions::default());
    let assembly = start(&machine);
    let served = machine.run(async move {
        assembly.create_volume(new_volume("a", CHUNKS << 20)).await.expect("made");
        let volume = assembly.directory().by_name("a").expect("served");
        let chunks = || (0..CHUNKS).filter(|chunk| *chunk != UNLUCKY);
        for chunk in chunks() {
            volume.write(chunk << 20, payload(&[chunk as u8; 4096])).await.expect("written");
        }
        assembly.create_snapshot("a", "s").await.expect("taken");
        for chunk in chunks() {
            volume.write(chunk << 20, payload(&[99; 4096])).await.expect("written");
        }
        Mutant::activate(Some(Mutant::AssertionFails));
        let refused = volume.write(UNLUCKY << 20, payload(&[99; 4096])).await;
        assert!(matches!(refused, Err(IoError::Unavailable(_))), "{refused:?}");
        runtime::sleep(Duration::from_secs(1)).await;
        assembly.roll_back("a", "s").await.expect("rolled back");
        let served = readable(&assembly).await;
        assert!((1..CHUNKS as usize - 1).contains(&served.len()), "{served:?}");
        for &chunk in &served {
            volume.write((chunk << 20) + 8192, payload(&[77; 4096])).await.expect("the other store goes on");
        }
        runtime::sleep(Duration::from_secs(3)).await;
        served
    });
    Mutant::activate(None);
    machine.crash();
    let assembly = start(&machine);
    machine.run(async move {
        runtime::sleep(Duration::from_secs(3)).await;
        let volume = assembly.directory().by_name("a").expect("served");
        for chunk in 0..CHUNKS {
            let wanted = if chunk == UNLUCKY { 0 } else { chunk as u8 };
            let read = volume.read(chunk << 20, 12_288).await.expect("readable");
            assert_eq!((read.bytes[0], read.bytes[4095]), (wanted, wanted), "chunk {chunk} is rolled back");
            assert_eq!(read.bytes[8192], if served.contains(&chunk) { 77 } else { 0 }, "chunk {chunk}");
        }
    });
}
