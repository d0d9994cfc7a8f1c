//! Snapshots that cores could not be told of, as the map did not answer: they can be read when it does.

use super::{Machine, new_volume};
use cluster::MapFaults;
use std::time::Duration;

/// Of 1,024. Each snapshot takes some ten requests.
const FAILS: u32 = 60;
const LATE_MAX: Duration = Duration::from_secs(2);
const SNAPSHOTS: u64 = 12;

pub fn a_snapshot_can_be_read_once_the_map_answers(seed: u64) {
    let machine = Machine::new(seed, 2);
    let (assembly, map) = (machine.start(), machine.map.clone());
    machine.run(async move {
        assembly.create_volume(new_volume("v", 8 << 20)).await.expect("made");
        for number in 0..SNAPSHOTS {
            let name = format!("s{number}");
            let (requests_lost, answers_lost, requests_late) = (FAILS, FAILS, FAILS);
            map.set_faults(MapFaults {
                requests_lost,
                answers_lost,
                requests_late,
                late_max: LATE_MAX,
                ..MapFaults::default()
            });
            let done = assembly.create_snapshot("v", &name).await;
            map.set_faults(MapFaults::default());
            runtime::sleep(LATE_MAX + Duration::from_secs(3)).await;
            let there = assembly.snapshots("v").await.expect("listed");
            let mut there: Vec<String> = there.into_iter().map(|snapshot| snapshot.name).collect();
            let volume = assembly.directory().by_name("v").expect("served");
            let mut known: Vec<String> = volume.snapshots().into_iter().map(|snapshot| snapshot.name).collect();
            there.sort();
            known.sort();
            assert_eq!(known, there, "{name}: {done:?}");
            assert!(done.is_err() || there.contains(&name), "{name} was taken");
            if let Some(snapshot) = volume.snapshot(&name) {
                snapshot.read(0, 4096).await.expect("readable");
            }
        }
    });
}
