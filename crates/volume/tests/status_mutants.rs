//! Deliberate bugs of block status and of snapshots that are read: the test that is made for each notices. A process of
//! its own: a bug is on for all of it.
#![cfg(feature = "mutants")]

mod common;

use common::status::{a_deleted_snapshot_is_right_or_gone, told_blocks_are_the_stored_ones};
use types::Mutant;

/// Seeds that a bug may need.
const MOST_SEEDS: u64 = 6;

#[test]
fn what_would_lose_blocks_of_a_backup_is_noticed() {
    type Check = fn(u64);
    let mutants: [(Mutant, Check); 2] = [
        (Mutant::StatusOfTopOnly, told_blocks_are_the_stored_ones),
        (Mutant::SnapshotReadersNotAwaited, a_deleted_snapshot_is_right_or_gone),
    ];
    for (mutant, check) in mutants {
        let noticed = (1..=MOST_SEEDS).find(|seed| {
            Mutant::activate(Some(mutant));
            let broken = std::panic::catch_unwind(|| check(*seed));
            Mutant::activate(None);
            broken.is_err()
        });
        println!("{mutant:?}: seed {noticed:?}");
        assert!(noticed.is_some(), "{mutant:?} was not noticed in {MOST_SEEDS} seeds");
    }
}
