//! Snapshots of several volumes at one instant: their heads may be any nodes, and any node may be asked.

use crate::common::hanging::Scene as Hanging;
use crate::common::nodes::served;
use crate::common::together::{
    a_head_that_is_replaced_is_no_instant, is_one_over_nodes, nobody_waits_for_who_was_asked,
};
use crate::common::{Machine, new_volume, payload};
use cluster::{INSTANT_VOLUMES_MAX, SnapshotRecord, Wanted, keys, list};
use std::time::Duration;
use types::CHUNK_BYTES;
use volume::VolumeError;

#[test]
fn a_snapshot_of_several_volumes_is_an_instant_for_all_heads() {
    (1..4).for_each(is_one_over_nodes);
}

#[test]
fn whoever_is_replaced_or_asked_and_dies_leaves_all_or_none() {
    a_head_that_is_replaced_is_no_instant(1);
    nobody_waits_for_who_was_asked(1);
}

fn wanted(names: &[(&str, &str)]) -> Vec<Wanted> {
    names.iter().map(|(volume, name)| Wanted { volume: (*volume).into(), name: (*name).into() }).collect()
}

#[test]
fn one_node_takes_them_of_volumes_of_a_family_too_in_the_order_of_the_call() {
    for cores in [1, 2] {
        let machine = Machine::new(1, cores);
        let assembly = machine.start();
        machine.run(async move {
            assembly.create_volume(new_volume("v", 1 << 20)).await.expect("made");
            let volume = served(&assembly, "v").expect("served");
            volume.write(0, payload(&[1; 4096])).await.expect("written");
            assembly.create_snapshot("v", "s").await.expect("taken");
            let copy = assembly.clone_volume("v", "s", "c").await.expect("cloned");
            let clone = served(&assembly, "c").expect("served");
            let taken = assembly.create_snapshots(&wanted(&[("v", "x"), ("c", "y")])).await.expect("taken");
            let told: Vec<_> = taken.iter().map(|taken| (taken.volume, taken.name.as_str())).collect();
            assert_eq!(told, [(volume.id(), "x"), (copy.id, "y")]);
            assert_eq!(taken[0].created_at_ns, taken[1].created_at_ns);
            for volume in [&volume, &clone] {
                volume.write(0, payload(&[2; 4096])).await.expect("written");
            }
            let (x, y) = (volume.snapshot("x").expect("known"), clone.snapshot("y").expect("known"));
            for snapshot in [x, y] {
                assert_eq!(snapshot.read(0, 4096).await.expect("readable").bytes[..], [1; 4096]);
            }
        });
    }
}

#[test]
fn what_cannot_be_changes_nothing() {
    let machine = Machine::new(1, 1);
    let (assembly, map) = (machine.start(), machine.map.clone());
    machine.run(async move {
        for name in ["a", "b", "gone"] {
            assembly.create_volume(new_volume(name, 1 << 20)).await.expect("made");
        }
        assembly.create_snapshot("b", "x").await.expect("taken");
        assembly.trash_volume("gone").await.expect("in the trash");
        let too_many: Vec<Wanted> = (0..=INSTANT_VOLUMES_MAX)
            .map(|index| Wanted { volume: format!("v{index}"), name: "x".to_owned() })
            .collect();
        let taken = assembly.create_snapshots(&wanted(&[("a", "x"), ("b", "x")])).await;
        assert_eq!(taken, Err(VolumeError::SnapshotExists("b@x".to_owned())));
        let taken = assembly.create_snapshots(&wanted(&[("a", "x"), ("gone", "x")])).await;
        assert_eq!(taken, Err(VolumeError::NotFound("gone".to_owned())));
        for (asked, why) in [(wanted(&[("a", "x"), ("a", "y")]), "a is named twice"), (too_many, "63 volumes")] {
            match assembly.create_snapshots(&asked).await {
                Err(VolumeError::NotTogether(reason)) => assert!(reason.contains(why), "{reason}"),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(served(&assembly, "a").expect("served").info().layers.len(), 1);
        let names = list::<SnapshotRecord>(&*map, keys::SNAPSHOTS).await.expect("readable");
        assert_eq!(names.len(), 1);
    });
}

/// Commands that do not end: none of the volumes gets a snapshot, and writing goes on in all of them.
#[test]
fn a_command_that_hangs_lets_none_be_taken() {
    let scene = Hanging::new(1);
    let assembly = scene.assembly.clone();
    scene.machine.run(async move {
        assembly.create_volume(new_volume("w", 1 << 20)).await.expect("made");
        assembly.create_snapshots(&wanted(&[("v", "first"), ("w", "first")])).await.expect("taken");
    });
    scene.touch("v");
    let done = scene.write_and_hang("v", 0);
    let assembly = scene.assembly.clone();
    let taken = scene.machine.run(async move {
        let taken = assembly.create_snapshots(&wanted(&[("w", "x"), ("v", "x")])).await;
        let other = served(&assembly, "w").expect("served");
        other.write(0, payload(&[5; 4096])).await.expect("written");
        taken
    });
    assert!(matches!(&taken, Err(VolumeError::NoInstant(why)) if why.contains("did not end")), "{taken:?}");
    scene.release(0);
    assert!(done.get());
    scene.is_written("v", 0);
    scene.machine.world.run_for(Duration::from_secs(15));
    assert_eq!(scene.layers(), 4, "what was not named has ended");
    let assembly = scene.assembly.clone();
    scene.machine.run(async move {
        assembly.create_snapshots(&wanted(&[("w", "x"), ("v", "x")])).await.expect("taken");
        let volume = served(&assembly, "v").expect("served");
        volume.write(CHUNK_BYTES, payload(&[6; 4096])).await.expect("written");
    });
}
