//! Each rule of what copies are waited for, and of what is made of them, broken: the test that is made for it notices. A process of its
//! own: a bug is on for all of it.
#![cfg(feature = "mutants")]

#[path = "copied/directed.rs"]
mod directed;

use directed::{
    a_change_is_answered_when_copies_hold_it, a_head_waits_for_copies_of_its_new_top,
    data_of_layers_that_no_copy_names_is_not_left, groups_that_no_copy_names_are_not_left,
    what_too_few_hold_is_not_found_either,
};
use types::Mutant;

#[test]
fn what_is_told_too_early_is_noticed() {
    assert!(Mutant::AnsweredBeforeCopied.is_caught(
        "a_change_is_answered_when_copies_hold_it",
        1..2,
        a_change_is_answered_when_copies_hold_it
    ));
    assert!(Mutant::AnsweredBeforeCopied.is_caught(
        "what_too_few_hold_is_not_found_either",
        1..2,
        what_too_few_hold_is_not_found_either
    ));
    assert!(Mutant::AnsweredBeforeCopied.is_caught(
        "a_head_waits_for_copies_of_its_new_top",
        1..2,
        a_head_waits_for_copies_of_its_new_top
    ));
}

#[test]
fn what_is_left_behind_is_noticed() {
    assert!(Mutant::UnnamedLayersLeft.is_caught(
        "data_of_layers_that_no_copy_names_is_not_left",
        1..2,
        data_of_layers_that_no_copy_names_is_not_left
    ));
    assert!(Mutant::UnnamedGroupsLeft.is_caught(
        "groups_that_no_copy_names_are_not_left",
        1..2,
        groups_that_no_copy_names_are_not_left
    ));
}
