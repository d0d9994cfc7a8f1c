//! Snapshots and rollbacks while the map loses requests and answers: what failed has changed nothing, what was done
//! stays done, and no write that was acknowledged afterwards is gone with the next start.

use super::{Machine, new_volume, payload};
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
pub fn round(seed: u64, rolls_back: bool) -> bool {
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

/// The same of a snapshot alone.
pub fn what_is_written_after_a_snapshot_that_failed_stays(seed: u64) {
    round(seed, false);
}

/// Answers of the map are lost, and its watches say it late: what is written right behind a rollback or a snapshot, whatever
/// that came to, stays.
pub fn what_is_written_behind_a_lost_answer_stays(seed: u64) {
    let machine = Machine::new(seed, 2);
    let (assembly, map) = (machine.start(), machine.map.clone());
    machine.run(async move {
        assembly.create_volume(new_volume("v", SIZE)).await.expect("made");
        write(&assembly, 0, 1).await;
        assembly.create_snapshot("v", "s").await.expect("taken");
        for number in 2..10 {
            let late = MapFaults { watches_late: 1024, watch_lag_max: Duration::from_secs(4), ..MapFaults::default() };
            map.set_faults(MapFaults { answers_lost: 2 * LOST, ..late });
            let done = match number % 2 == 0 {
                true => assembly.roll_back("v", "s").await,
                false => assembly.create_snapshot("v", &format!("s{number}")).await.map(drop),
            };
            map.set_faults(late);
            write(&assembly, 1, number).await;
            map.set_faults(MapFaults::default());
            runtime::sleep(Duration::from_secs(6)).await;
            assert_eq!(content(&assembly).await, [1, number], "{done:?}");
        }
    });
}
