//! The cleaner at work, and the lights going out: moves, passes and segments used again lose nothing, and nothing that
//! somebody still needs is written over.

use crate::common::cleaning::{self, Met};
use std::time::Duration;

#[test]
fn what_was_acknowledged_survives_a_loss_of_power_at_any_moment_of_cleaning() {
    let mut met = Met::default();
    for seed in 0..4 {
        let of_seed = cleaning::storm(seed, 8, 60);
        met.losses += of_seed.losses;
        met.cleaned += of_seed.cleaned;
        met.freed += of_seed.freed;
        met.passes += of_seed.passes;
    }
    println!("{met:?}");
    assert!(met.losses > 100 && met.cleaned > 40 && met.freed > 40, "nothing of interest was met: {met:?}");
}

#[test]
fn a_segment_that_replay_would_read_is_not_used_again() {
    cleaning::what_replay_reads_is_not_used_again();
}

#[test]
fn a_segment_in_which_a_read_is_under_way_is_not_used_again() {
    cleaning::a_read_keeps_its_segment();
}

#[test]
fn a_pass_that_is_asked_for_waits_for_no_client() {
    cleaning::a_pass_that_is_asked_for_waits_for_no_client();
}

#[test]
fn a_place_that_a_leaf_of_the_pass_names_is_not_used_again() {
    for after_us in (0..150).step_by(50) {
        cleaning::a_pass_beside_a_move_names_the_old_place(Duration::from_micros(after_us));
    }
}

#[test]
fn blocks_of_a_layer_that_is_gone_are_moved() {
    cleaning::blocks_of_a_layer_that_is_gone_are_moved();
}

#[test]
fn a_full_device_can_be_emptied() {
    cleaning::a_full_device_can_be_emptied();
}

#[test]
fn rot_within_an_open_segment_hides_what_lies_behind() {
    cleaning::rot_within_an_open_segment_hides_what_lies_behind();
}
