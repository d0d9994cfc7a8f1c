//! Snapshots and rollbacks while the map loses requests and answers: what failed has changed nothing, what was done
//! stays done, and no write that was acknowledged afterwards is gone with the next start.

use crate::common::untold::a_snapshot_can_be_read_once_the_map_answers;
use crate::common::{Machine, new_volume, payload};
use cluster::{LayerRecord, MapFaults, keys, list};
use std::time::Duration;
use volume::{Assembly, VolumeChange, VolumeError};

const SIZE: u64 = 8 << 20;
/// Of 1,024.
const LOST: u32 = 40;

/// The first bytes of the volume's blocks 0 and 1.
async fn content(assembly: &Assembly) -> [u8; 2] {
    let volume = assembly.directory().by_name("v").expect("served");
    let read = volume.read(0, 8192).await.expect("readable");
    [read.bytes[0], read.bytes[4096]]
}

async fn write(assembly: &Assembly, block: u64, value: u8) {
    let volume = assembly.directory().by_name("v").expect("served");
    volume.write(block * 4096, payload(&[value; 4096])).await.expect("written");
}

/// Whether the volume is rolled back (or a snapshot taken) under a map that fails; then a life as usual, and a crash.
fn round(seed: u64, rolls_back: bool) -> bool {
    let machine = Machine::new(seed, 2);
    let (assembly, map) = (machine.start(), machine.map.clone());
    let (is_done, before) = machine.run(async move {
        assembly.create_volume(new_volume("v", SIZE)).await.expect("made");
        write(&assembly, 0, 1).await;
        assembly.create_snapshot("v", "s").await.expect("taken");
        write(&assembly, 0, 2).await;
        map.set_faults(MapFaults { requests_lost: LOST, answers_lost: LOST, ..MapFaults::default() });
        let done = match rolls_back {
            true => assembly.roll_back("v", "s").await,
            false => assembly.create_snapshot("v", "x").await.map(drop),
        };
        map.set_faults(MapFaults::default());
        let first = if rolls_back && done.is_ok() { 1 } else { 2 };
        assert_eq!(content(&assembly).await, [first, 0], "{done:?}");
        write(&assembly, 1, 3).await;
        // What looks at the map again, and what ends the layers that it does not want.
        match seed % 3 {
            0 => drop(assembly.change_volume("v", &VolumeChange::size(2 * SIZE)).await.expect("grown")),
            1 => assembly.delete_snapshot("v", "s").await.expect("deleted"),
            _ => {}
        }
        runtime::sleep(Duration::from_secs(3)).await;
        assert_eq!(content(&assembly).await, [first, 3], "as it was, and what was written since");
        write(&assembly, 1, 4).await;
        match assembly.create_snapshot("v", "later").await {
            Ok(_) => {}
            Err(error) => panic!("{error} after {done:?}"),
        }
        (done.is_ok(), [first, 4])
    });
    machine.crash();
    let (assembly, map) = (machine.start(), machine.map.clone());
    machine.run(async move {
        assert_eq!(content(&assembly).await, before, "what was acknowledged before the crash");
        for snapshot in assembly.snapshots("v").await.expect("listed") {
            match assembly.delete_snapshot("v", &snapshot.name).await {
                Ok(()) | Err(VolumeError::NoSnapshot(_)) => {}
                Err(error) => panic!("{error}"),
            }
        }
        runtime::sleep(Duration::from_secs(3)).await;
        assert_eq!(content(&assembly).await, before);
        let left = list::<LayerRecord>(&*map, keys::LAYERS).await.expect("layers");
        assert_eq!(left.len(), 1, "of what was begun and not done nothing stays: {left:?}");
    });
    is_done
}

fn rounds(rolls_back: bool) {
    let done = (1..=60).filter(|&seed| round(seed, rolls_back)).count();
    assert!((10..=50).contains(&done), "some were done and some failed: {done}");
}

#[test]
fn a_rollback_that_fails_changes_nothing_and_one_that_is_done_lasts() {
    rounds(true);
}

#[test]
fn a_snapshot_that_fails_takes_nothing_that_is_written_later() {
    rounds(false);
}

#[test]
fn a_snapshot_that_was_taken_while_the_map_failed_can_be_read() {
    (1..20).for_each(a_snapshot_can_be_read_once_the_map_answers);
}
