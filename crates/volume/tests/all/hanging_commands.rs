//! Snapshots while commands hang: no layer ends that a command may still write to.

use crate::common::hanging::{self, *};

#[test]
fn one_volume_whose_commands_have_ended_does_not_end_a_layer_of_its_clones() {
    hanging::one_volume_whose_commands_have_ended_does_not_end_a_layer_of_its_clones(1);
}

#[test]
fn commands_of_an_earlier_attempt_do_not_end_the_layer_of_a_later_one() {
    let scene = Scene::new(2);
    let first = scene.write_and_hang("v", 0);
    scene.snapshot_fails("v", "x");
    let second = scene.write_and_hang("v", 1);
    scene.snapshot_fails("v", "y");
    scene.release(0);
    assert!(first.get() && !second.get());
    scene.release(1);
    assert!(second.get());
    scene.is_written("v", 0);
    scene.is_written("v", 1);
    assert_eq!(scene.layers(), 1, "what nobody named has ended");
}

/// Deletions go on beside a command that hangs: only its own layer stays.
#[test]
fn a_command_that_hangs_keeps_its_own_layer_and_no_other() {
    let scene = Scene::new(3);
    let assembly = scene.assembly.clone();
    scene.machine.run(async move {
        assembly.create_snapshot("v", "s").await.expect("taken");
        assembly.clone_volume("v", "s", "c").await.expect("cloned");
        assembly.clone_volume("v", "s", "d").await.expect("cloned");
    });
    scene.touch("v");
    let written = scene.write_and_hang("v", 0);
    scene.snapshot_fails("v", "x");
    let assembly = scene.assembly.clone();
    scene.machine.run(async move {
        assembly.delete_volume("c").await.expect("deleted");
        runtime::sleep(A_WHILE).await;
    });
    assert_eq!(scene.layers(), 4, "the snapshot, two tops, and the layer that is written to");
    scene.release(0);
    assert!(written.get());
    scene.is_written("v", 0);
    assert_eq!(scene.layers(), 3);
    let assembly = scene.assembly.clone();
    assert_eq!(scene.machine.run(async move { assembly.status().await.deleting_volumes }), 0);
}
