//! A compare-and-write that is two commands, for other commands or for a rollback: the test of it notices.

use crate::common::locks::{a_snapshot_takes_nothing_back, is_before_or_after_a_rollback, no_raise_is_lost};
use std::ops::Range;
use types::Mutant;

/// Seeds that a bug may need.
const SEEDS: Range<u64> = 1..5;

#[test]
fn a_write_apart_from_its_compare_is_noticed() {
    assert!(Mutant::CompareAndWriteSplit.is_caught("no_raise_is_lost", SEEDS, no_raise_is_lost));
    let rollback = is_before_or_after_a_rollback;
    assert!(Mutant::ComparedBeforeRollback.is_caught("is_before_or_after_a_rollback", SEEDS, rollback));
    let snapshot = a_snapshot_takes_nothing_back;
    assert!(Mutant::SnapshotTakesBack.is_caught("a_snapshot_takes_nothing_back", SEEDS, snapshot));
}
