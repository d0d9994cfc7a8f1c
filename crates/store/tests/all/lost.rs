//! Records that are lost.

use crate::common::lost;

#[test]
fn a_lost_beginning_is_missed() {
    lost::a_lost_beginning_is_missed(90);
}

#[test]
fn what_a_pass_says_takes_no_entrys_place() {
    lost::what_a_pass_says_takes_no_entrys_place(91);
}

#[test]
fn a_segment_that_another_shard_took_stays_its() {
    lost::a_segment_that_another_shard_took_stays_its(92);
}

#[test]
fn what_was_cut_is_not_taken_for_committed() {
    lost::what_was_cut_is_not_taken_for_committed(93);
}

#[test]
fn a_lost_leaf_is_missed_in_who_takes_it() {
    lost::a_lost_leaf_is_missed_in_who_takes_it(94);
}

#[test]
fn a_lost_header_is_not_judged_by_an_earlier_use() {
    lost::a_lost_header_is_not_judged_by_an_earlier_use(92);
}

#[test]
fn much_damage_does_not_end_the_log() {
    lost::much_damage_does_not_end_the_log(93);
}

#[test]
fn what_an_earlier_life_left_behind_the_end_stays_void() {
    lost::what_an_earlier_life_left_behind_the_end_stays_void(94);
}

#[test]
fn no_epoch_is_found_without_the_one_before() {
    lost::no_epoch_is_found_without_the_one_before(7);
}

#[test]
fn what_lies_before_a_bad_place_is_read() {
    lost::what_lies_before_a_bad_place_is_read(8);
}

#[test]
fn a_torn_record_cuts_nothing() {
    lost::a_torn_record_cuts_nothing(95);
}
