//! Deliberate bugs of block status, of snapshots that are read, of what status counts, and of copies that are compared: the test that is made for each notices.

use crate::common::copies::what_differs_is_told;
use crate::common::silent::a_group_that_answers_nobody_is_not_counted;
use crate::common::status::{a_deleted_snapshot_is_right_or_gone, told_blocks_are_the_stored_ones};
use std::ops::Range;
use types::Mutant;

/// Seeds that a bug may need.
const SEEDS: Range<u64> = 1..7;

#[test]
fn what_is_told_wrongly_is_noticed() {
    assert!(Mutant::StatusOfTopOnly.is_caught(
        "told_blocks_are_the_stored_ones",
        SEEDS,
        told_blocks_are_the_stored_ones
    ));
    assert!(Mutant::SnapshotReadersNotAwaited.is_caught(
        "a_deleted_snapshot_is_right_or_gone",
        SEEDS,
        a_deleted_snapshot_is_right_or_gone
    ));
    assert!(Mutant::SilentGroupsCounted.is_caught(
        "a_group_that_answers_nobody_is_not_counted",
        SEEDS,
        a_group_that_answers_nobody_is_not_counted
    ));
    assert!(Mutant::CopiesNotCompared.is_caught("what_differs_is_told", SEEDS, what_differs_is_told));
}
