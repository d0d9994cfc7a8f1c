//! A volume that moves to other groups while it is used: see `common/relocating.rs`.

use crate::common::relocating::{
    a_move_under_a_failing_map_loses_nothing, a_move_whose_head_dies_is_given_up,
    a_snapshot_behind_a_last_copy_that_took_too_long_holds_what_it_held,
    a_snapshot_taken_again_while_its_volume_moves_holds_what_it_held, a_snapshot_that_is_open_holds_what_it_held,
    a_volume_moves_while_it_is_used, an_encrypted_volume_moves_and_its_clone_stays,
    who_slept_writes_nothing_where_the_volume_was,
};

#[test]
fn what_it_holds_is_the_same() {
    (1..4).for_each(a_volume_moves_while_it_is_used);
}

#[test]
fn it_is_given_up_when_its_head_dies() {
    (1..9).for_each(a_move_whose_head_dies_is_given_up);
}

#[test]
fn it_loses_nothing_whatever_the_map_does() {
    (1..7).for_each(a_move_under_a_failing_map_loses_nothing);
}

#[test]
fn an_older_head_is_refused() {
    (1..3).for_each(who_slept_writes_nothing_where_the_volume_was);
}

#[test]
fn an_encrypted_one_keeps_its_key_and_its_clone_stays() {
    an_encrypted_volume_moves_and_its_clone_stays(1);
}

#[test]
fn a_snapshot_is_read_while_its_volume_moves() {
    (1..4).for_each(a_snapshot_that_is_open_holds_what_it_held);
}

#[test]
fn a_snapshot_that_is_taken_again_moves_as_it_is() {
    (1..9).for_each(a_snapshot_taken_again_while_its_volume_moves_holds_what_it_held);
}

#[test]
fn a_snapshot_behind_a_try_that_failed_moves_as_it_is() {
    (1..5).for_each(a_snapshot_behind_a_last_copy_that_took_too_long_holds_what_it_held);
}
