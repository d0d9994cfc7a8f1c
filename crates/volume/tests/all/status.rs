//! Block status and snapshots that are read where they are: what is told of blocks is exact, through layers, rollbacks,
//! merges and restarts; a snapshot that is deleted under its readers is right until it is gone. And what status counts.

use crate::common::silent::a_group_that_answers_nobody_is_not_counted;
use crate::common::status::{a_deleted_snapshot_is_right_or_gone, is_read_only, told_blocks_are_the_stored_ones};
use crate::common::{Machine, new_volume, payload};
use volume::{IoError, VolumeChange};

#[test]
fn what_is_told_of_blocks_is_exact() {
    (1..=6).for_each(told_blocks_are_the_stored_ones);
}

#[test]
fn groups_that_answer_nobody_are_not_counted() {
    (1..=4).for_each(a_group_that_answers_nobody_is_not_counted);
}

#[test]
fn a_snapshot_that_is_deleted_is_right_until_it_is_gone() {
    (1..=4).for_each(a_deleted_snapshot_is_right_or_gone);
}

#[test]
fn a_snapshot_keeps_its_size_and_its_name() {
    let machine = Machine::new(1, 2);
    let assembly = machine.start();
    machine.run(async move {
        assembly.create_volume(new_volume("v", 3 << 20)).await.expect("made");
        let volume = assembly.directory().by_name("v").expect("served");
        volume.write(0, payload(&[7; 4096])).await.expect("written");
        assembly.create_snapshot("v", "s").await.expect("taken");
        assembly.change_volume("v", &VolumeChange::size(8 << 20)).await.expect("grown");
        let snapshot = volume.snapshot("s").expect("served");
        assert_eq!((snapshot.size_bytes(), volume.size_bytes()), (3 << 20, 8 << 20));
        assert_eq!(snapshot.info().name, "v@s");
        assert!(matches!(snapshot.read(3 << 20, 1).await, Err(IoError::OutOfRange { .. })));
        assert!(matches!(snapshot.block_status(0, 4 << 20, &[], 1).await, Err(IoError::OutOfRange { .. })));
        is_read_only(&snapshot).await;
        assert!(volume.snapshot("t").is_none() && volume.snapshots().len() == 1);
        // Another one of the same name is another snapshot: who holds the old one is told that it is gone.
        assembly.delete_snapshot("v", "s").await.expect("deleted");
        volume.write(0, payload(&[8; 4096])).await.expect("written");
        assembly.create_snapshot("v", "s").await.expect("taken");
        assert!(matches!(snapshot.read(0, 1).await, Err(IoError::Gone(why)) if why.contains("v@s")));
        let again = volume.snapshot("s").expect("served");
        assert_eq!(again.read(0, 1).await.expect("readable").bytes[..], [8]);
        // With the volume its handles end.
        assembly.delete_snapshot("v", "s").await.expect("deleted");
        assembly.delete_volume("v").await.expect("deleted");
        assert!(matches!(again.read(0, 1).await, Err(IoError::Gone(_))));
        assembly.stop().await;
    });
}

/// A question waits for the writes before it: of one that is not durable yet nothing is told too early, and it is not
/// missed either.
#[test]
fn status_is_in_order_with_writes() {
    for cores in 1..=2 {
        let machine = Machine::new(1, cores);
        let assembly = machine.start();
        machine.run(async move {
            assembly.create_volume(new_volume("v", 8 << 20)).await.expect("made");
            let volume = assembly.directory().by_name("v").expect("served");
            for chunk in 0..8_u64 {
                let at = (chunk << 20) + 8192;
                let before = volume.block_status(at, 4096, &[], 1);
                let write = volume.write(at, payload(&[1; 4096]));
                let after = volume.block_status(at, 4096, &[], 1);
                runtime::spawn(async move { write.await.expect("written") });
                assert!(!before.await.expect("known")[0].is_stored, "chunk {chunk}: asked before the write");
                assert!(after.await.expect("known")[0].is_stored, "chunk {chunk}: asked behind the write");
            }
            assembly.stop().await;
        });
    }
}
