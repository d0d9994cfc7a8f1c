//! See [failing](crate::common::failing).

use crate::common::failing::{round, what_is_written_behind_a_lost_answer_stays};
use crate::common::untold::a_snapshot_can_be_read_once_the_map_answers;

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

#[test]
fn a_write_behind_a_lost_answer_stays() {
    (1..4).for_each(what_is_written_behind_a_lost_answer_stays);
}
