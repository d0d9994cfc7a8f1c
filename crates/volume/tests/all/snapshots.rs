//! Snapshots, clones, rollbacks, growth and deletions against plain byte arrays, with restarts and crashes in between;
//! and what a snapshot promises to who writes while it is taken.

use crate::common::{Machine, Random, first_difference, new_volume, payload, read_all};
use cluster::{LayerRecord, MapStore, keys, list};
use std::collections::BTreeMap;
use std::time::Duration;
use volume::{Assembly, ByteRange, Volume, VolumeChange, VolumeError};

const SIZE: u64 = 2 << 20;
const MOST_VOLUMES: usize = 4;
const MOST_SNAPSHOTS: usize = 6;

/// What there must be: volumes by name, snapshots by volume and name.
#[derive(Clone, Default)]
struct Model {
    volumes: BTreeMap<String, Vec<u8>>,
    snapshots: BTreeMap<(String, String), Vec<u8>>,
    next_name: u64,
}

impl Model {
    fn new_name(&mut self) -> String {
        self.next_name += 1;
        format!("n{}", self.next_name)
    }

    fn some_volume(&self, random: &Random) -> String {
        let all: Vec<_> = self.volumes.keys().collect();
        all[random.below(all.len() as u64) as usize].clone()
    }

    fn some_snapshot(&self, random: &Random) -> Option<(String, String)> {
        let all: Vec<_> = self.snapshots.keys().collect();
        (!all.is_empty()).then(|| all[random.below(all.len() as u64) as usize].clone())
    }
}

fn served(assembly: &Assembly, name: &str) -> Volume {
    assembly.directory().by_name(name).expect("served")
}

async fn write_something(assembly: &Assembly, model: &mut Model, random: &Random) {
    let name = model.some_volume(random);
    let (volume, content) = (served(assembly, &name), model.volumes.get_mut(&name).expect("picked"));
    let (offset, len) = random.range(content.len() as u64);
    let len = len.min(100_000);
    let (from, to) = (offset as usize, (offset + len) as usize);
    match random.below(6) {
        0..=3 => {
            let bytes = random.bytes(len as usize);
            volume.write(offset, payload(&bytes)).await.expect("written");
            content[from..to].copy_from_slice(&bytes);
        }
        4 => {
            volume.write_zeroes(offset, len).await.expect("zeroed");
            content[from..to].fill(0);
        }
        _ => {
            volume.discard(offset, len).await.expect("discarded");
            let (first, end) = (from.next_multiple_of(4096), to / 4096 * 4096);
            if first < end {
                content[first..end].fill(0);
            }
        }
    }
}

/// One random thing that an administrator does.
async fn administer(assembly: &Assembly, model: &mut Model, random: &Random) {
    let picked = model.some_snapshot(random);
    match (random.below(10), picked) {
        (0..=3, _) if model.snapshots.len() < MOST_SNAPSHOTS => {
            let (volume, name) = (model.some_volume(random), model.new_name());
            assembly.create_snapshot(&volume, &name).await.expect("taken");
            let content = model.volumes[&volume].clone();
            model.snapshots.insert((volume, name), content);
        }
        (4, Some((volume, name))) if model.volumes.len() < MOST_VOLUMES => {
            let new = model.new_name();
            assembly.clone_volume(&volume, &name, &new).await.expect("cloned");
            let content = model.snapshots[&(volume, name)].clone();
            model.volumes.insert(new, content);
        }
        (5, Some((volume, name))) => {
            assembly.roll_back(&volume, &name).await.expect("rolled back");
            let mut content = model.snapshots[&(volume.clone(), name)].clone();
            content.resize(model.volumes[&volume].len(), 0);
            model.volumes.insert(volume, content);
        }
        (6 | 7, Some((volume, name))) => {
            assembly.delete_snapshot(&volume, &name).await.expect("deleted");
            model.snapshots.remove(&(volume, name));
        }
        (8, _) => {
            let volume = model.some_volume(random);
            let content = model.volumes.get_mut(&volume).expect("picked");
            let size = content.len() as u64 + 4096 * random.below(40);
            assert_eq!(
                assembly.change_volume(&volume, &VolumeChange::size(size)).await.expect("grown").size_bytes,
                size
            );
            content.resize(size as usize, 0);
        }
        _ if model.volumes.len() > 1 => {
            let volume = model.some_volume(random);
            let has_snapshots = model.snapshots.keys().any(|(of, _)| *of == volume);
            let deleted = assembly.delete_volume(&volume).await;
            if has_snapshots {
                assert!(matches!(deleted, Err(VolumeError::HasSnapshots(_))), "{deleted:?}");
            } else {
                deleted.expect("deleted");
                model.volumes.remove(&volume);
            }
        }
        _ => {}
    }
}

/// All volumes hold what they must, and so do the snapshots, as their clones show.
async fn verify(assembly: &Assembly, model: &mut Model) {
    for (name, content) in &model.volumes {
        let found = read_all(&served(assembly, name)).await;
        assert_eq!((first_difference(&found, content), found.len()), (None, content.len()), "volume {name}");
    }
    for ((volume, name), content) in model.snapshots.clone() {
        let clone = model.new_name();
        assembly.clone_volume(&volume, &name, &clone).await.expect("cloned");
        let found = read_all(&served(assembly, &clone)).await;
        assert_eq!(
            (first_difference(&found, &content), found.len()),
            (None, content.len()),
            "snapshot {volume}@{name}"
        );
        assembly.delete_volume(&clone).await.expect("deleted");
    }
}

/// Waits until the map has this many layers: nothing is left to end.
async fn layers_left(map: &dyn MapStore, count: usize) {
    for _ in 0..4000 {
        if list::<LayerRecord>(map, keys::LAYERS).await.expect("layers").len() == count {
            return;
        }
        runtime::sleep(Duration::from_millis(5)).await;
    }
    let left = list::<LayerRecord>(map, keys::LAYERS).await.expect("layers");
    panic!("{count} layers are needed and there are {left:?}");
}

async fn live_bytes(assembly: &Assembly) -> u64 {
    // What the devices say follows the next append.
    runtime::sleep(Duration::from_secs(2)).await;
    assembly.status().await.devices.iter().map(|device| device.live_bytes).sum()
}

/// Deletes everything; nothing of it may be left.
async fn delete_all(assembly: &Assembly, model: &Model, map: &dyn MapStore) {
    for (volume, name) in model.snapshots.keys() {
        assembly.delete_snapshot(volume, name).await.expect("deleted");
    }
    for volume in model.volumes.keys() {
        assembly.delete_volume(volume).await.expect("deleted");
    }
    layers_left(map, 0).await;
    assert_eq!(live_bytes(assembly).await, 0, "nothing is stored any more");
}

fn against_the_model(seed: u64, cores: usize) {
    let machine = Machine::with_disk(seed, cores, 512 << 20);
    let mut model = Model::default();
    let rounds = 4;
    for round in 0..rounds {
        let (assembly, map) = (machine.start(), machine.map.clone());
        model = machine.run(async move {
            if round == 0 {
                assembly.create_volume(new_volume("first", SIZE)).await.expect("made");
                model.volumes.insert("first".to_owned(), vec![0; SIZE as usize]);
            }
            verify(&assembly, &mut model).await;
            let random = Random::new(seed.wrapping_mul(1000) + round);
            for _ in 0..60 {
                match random.below(4) {
                    0 => administer(&assembly, &mut model, &random).await,
                    _ => write_something(&assembly, &mut model, &random).await,
                }
            }
            if round % 2 == 0 {
                verify(&assembly, &mut model).await;
            }
            if round == rounds - 1 {
                delete_all(&assembly, &model, &*map).await;
            }
            model
        });
        machine.crash();
    }
}

#[test]
fn one_core_keeps_to_the_model() {
    (1..=4).for_each(|seed| against_the_model(seed, 1));
}

#[test]
fn two_cores_keep_to_the_model() {
    (11..=14).for_each(|seed| against_the_model(seed, 2));
}

#[test]
fn a_snapshot_is_one_instant_on_all_cores() {
    (1..=3).for_each(crate::common::instant::is_one_on_all_cores);
}

#[test]
fn a_snapshot_waits_for_commands_of_every_earlier_term() {
    (1..=4).for_each(crate::common::instant::waits_for_every_earlier_term);
}

#[test]
fn a_layer_that_nobody_names_is_merged_away_and_reads_get_shorter() {
    let machine = Machine::new(5, 2);
    let (assembly, map) = (machine.start(), machine.map.clone());
    machine.run(async move {
        assembly.create_volume(new_volume("v", SIZE)).await.expect("made");
        let volume = served(&assembly, "v");
        let mut content = vec![0; SIZE as usize];
        for number in 0..12u64 {
            let bytes = Random::new(number).bytes(40_960);
            let offset = (number * 65_536) as usize;
            volume.write(offset as u64, payload(&bytes)).await.expect("written");
            content[offset..offset + bytes.len()].copy_from_slice(&bytes);
            assembly.create_snapshot("v", &format!("s{number}")).await.expect("taken");
        }
        layers_left(&*map, 13).await;
        for number in 0..12 {
            assembly.delete_snapshot("v", &format!("s{number}")).await.expect("deleted");
        }
        layers_left(&*map, 1).await;
        assert_eq!(first_difference(&read_all(&volume).await, &content), None);
        let usage = assembly.usage().await.expect("counted");
        let of_volume = usage[&volume.id()];
        assert_eq!((of_volume.unique_bytes, of_volume.shared_bytes), (12 * 40_960, 0));
        assert_eq!(live_bytes(&assembly).await, 12 * 40_960);
    });
}

#[test]
fn usage_tells_what_is_shared_from_what_is_not() {
    let machine = Machine::new(6, 2);
    let assembly = machine.start();
    machine.run(async move {
        assembly.create_volume(new_volume("v", SIZE)).await.expect("made");
        let volume = served(&assembly, "v");
        volume.write(0, payload(&[1; 65_536])).await.expect("written");
        assembly.create_snapshot("v", "s").await.expect("taken");
        volume.write(0, payload(&[2; 8_192])).await.expect("written");
        assembly.clone_volume("v", "s", "c").await.expect("cloned");
        let clone = served(&assembly, "c");
        clone.write(1 << 20, payload(&[3; 4_096])).await.expect("written");
        let usage = assembly.usage().await.expect("counted");
        let (of_volume, of_clone) = (usage[&volume.id()], usage[&clone.id()]);
        assert_eq!((of_volume.unique_bytes, of_volume.shared_bytes), (8_192, 65_536));
        assert_eq!((of_clone.unique_bytes, of_clone.shared_bytes), (4_096, 65_536));
        assert_eq!((of_clone.logical_bytes, of_clone.stored_bytes), (SIZE, 69_632));
    });
}

#[test]
fn changed_blocks_are_those_written_between_two_snapshots() {
    let machine = Machine::new(7, 2);
    let assembly = machine.start();
    machine.run(async move {
        assembly.create_volume(new_volume("v", 8 << 20)).await.expect("made");
        let volume = served(&assembly, "v");
        volume.write(0, payload(&[1; 65_536])).await.expect("written");
        assembly.create_snapshot("v", "a").await.expect("taken");
        assert_eq!(assembly.changed_blocks("v", "a", None).await, Ok(vec![]));
        volume.write(4_096, payload(&[2; 4_096])).await.expect("written");
        volume.write((3 << 20) - 8_192, payload(&[2; 16_384])).await.expect("written");
        assembly.create_snapshot("v", "b").await.expect("taken");
        volume.discard(8_192, 4_096).await.expect("discarded");
        let range = |offset_bytes, length_bytes| ByteRange { offset_bytes, length_bytes };
        let first = vec![range(4_096, 4_096), range((3 << 20) - 8_192, 16_384)];
        assert_eq!(assembly.changed_blocks("v", "a", Some("b")).await, Ok(first));
        assert_eq!(assembly.changed_blocks("v", "b", None).await, Ok(vec![range(8_192, 4_096)]));
        let all = vec![range(4_096, 8_192), range((3 << 20) - 8_192, 16_384)];
        assert_eq!(assembly.changed_blocks("v", "a", None).await, Ok(all));
        let wrong = assembly.changed_blocks("v", "b", Some("a")).await;
        assert!(matches!(wrong, Err(VolumeError::NotBefore { .. })), "{wrong:?}");
        let none = assembly.changed_blocks("v", "x", None).await;
        assert_eq!(none, Err(VolumeError::NoSnapshot("x".to_owned())));
    });
}

#[test]
fn what_is_asked_for_wrongly_is_said() {
    let machine = Machine::new(8, 1);
    let (assembly, map) = (machine.start(), machine.map.clone());
    machine.run(async move {
        assembly.create_volume(new_volume("v", SIZE)).await.expect("made");
        assembly.create_volume(new_volume("w", SIZE)).await.expect("made");
        assembly.create_snapshot("v", "s").await.expect("taken");
        let again = assembly.create_snapshot("v", "s").await;
        assert_eq!(again, Err(VolumeError::SnapshotExists("s".to_owned())));
        let bad = assembly.create_snapshot("v", "S!").await;
        assert!(matches!(bad, Err(VolumeError::BadName(_))), "{bad:?}");
        assert!(matches!(assembly.create_snapshot("x", "s").await, Err(VolumeError::NotFound(_))));
        assert_eq!(assembly.roll_back("w", "s").await, Err(VolumeError::NoSnapshot("s".to_owned())));
        assert_eq!(assembly.delete_snapshot("w", "s").await, Err(VolumeError::NoSnapshot("s".to_owned())));
        assert!(matches!(assembly.clone_volume("v", "s", "w").await, Err(VolumeError::Exists(_))));
        assert!(matches!(
            assembly.change_volume("v", &VolumeChange::size(SIZE - 4096)).await,
            Err(VolumeError::Smaller { .. })
        ));
        assert!(matches!(
            assembly.change_volume("v", &VolumeChange::size(SIZE + 1)).await,
            Err(VolumeError::BadSize(_))
        ));
        assert!(matches!(assembly.delete_volume("v").await, Err(VolumeError::HasSnapshots(_))));
        assert!(served(&assembly, "v").write(0, payload(&[1; 512])).await.is_ok(), "it is served as before");
        let names: Vec<_> = assembly.snapshots("v").await.expect("listed").into_iter().map(|s| s.name).collect();
        assert_eq!(names, ["s"]);
        // Of what was refused nothing stays behind.
        layers_left(&*map as &dyn MapStore, 3).await;
    });
}
