//! A program is the head of the volume it opens, by the same rules as nodes.

use crate::common::programs;

#[test]
fn what_a_program_opens_is_its_own() {
    (1..3).for_each(programs::what_a_program_opens_is_its_own);
}

#[test]
fn what_others_use_is_not_taken() {
    (1..3).for_each(programs::what_others_use_is_not_taken);
}

#[test]
fn what_a_dead_program_wrote_is_there_and_nothing_comes_late() {
    (1..9).for_each(programs::what_a_dead_program_wrote_is_there_and_nothing_comes_late);
}

#[test]
fn a_program_that_slept_is_refused() {
    (1..5).for_each(programs::a_program_that_slept_is_refused);
}

#[test]
fn a_program_outlives_a_node() {
    (1..7).for_each(programs::a_program_outlives_a_node);
}
