//! Deliberate bugs of heads and of layers that are left: the test that is made for each notices.

use crate::common::failing::{
    what_is_written_after_a_snapshot_that_failed_stays, what_is_written_behind_a_lost_answer_stays,
};
use crate::common::forwards::{
    what_comes_of_a_session_that_was_ended_is_refused, what_is_on_its_way_is_done_before_the_next_session,
    what_waits_for_a_client_that_is_gone_is_not_sent,
};
use crate::common::growth::a_volume_lies_where_the_table_of_its_record_says;
use crate::common::hanging::one_volume_whose_commands_have_ended_does_not_end_a_layer_of_its_clones;
use crate::common::hosts::a_host_that_has_left_keeps_nothing;
use crate::common::keys::who_has_the_key_takes_over;
use crate::common::nodes::{
    a_head_that_slept_decides_nothing, a_host_that_goes_back_keeps_what_it_wrote_there,
    a_session_that_is_gone_is_said_again, a_snapshot_is_an_instant_for_a_head_that_slept,
    nothing_is_done_for_a_host_that_was_denied, what_two_volumes_are_built_on_stays,
    who_slept_reads_no_snapshot_that_is_gone,
};
use crate::common::relocating::{
    a_snapshot_taken_again_while_its_volume_moves_holds_what_it_held, a_snapshot_that_is_open_holds_what_it_held,
    a_volume_moves_while_it_is_used,
};
use crate::common::untold::a_snapshot_can_be_read_once_the_map_answers;
use std::ops::Range;
use types::Mutant;

/// Seeds that a bug may need.
const SEEDS: Range<u64> = 1..7;

#[test]
fn what_an_older_head_could_do_is_noticed() {
    assert!(Mutant::DeposedHeadDecides.is_caught(
        "a_head_that_slept_decides_nothing",
        SEEDS,
        a_head_that_slept_decides_nothing
    ));
    assert!(Mutant::SnapshotWithoutRaise.is_caught(
        "a_snapshot_is_an_instant_for_a_head_that_slept",
        SEEDS,
        a_snapshot_is_an_instant_for_a_head_that_slept
    ));
    assert!(Mutant::LeftWithoutRaise.is_caught(
        "who_slept_reads_no_snapshot_that_is_gone",
        SEEDS,
        who_slept_reads_no_snapshot_that_is_gone
    ));
    assert!(Mutant::DoneBeforeRaise.is_caught("a_host_that_goes_back_keeps_what_it_wrote_there", SEEDS, |seed| {
        a_host_that_goes_back_keeps_what_it_wrote_there(seed);
    }));
    assert!(Mutant::EndedControllerCounts.is_caught(
        "a_host_that_has_left_keeps_nothing",
        SEEDS,
        a_host_that_has_left_keeps_nothing
    ));
    assert!(Mutant::SessionUnasked.is_caught(
        "what_is_on_its_way_is_done_before_the_next_session",
        SEEDS,
        what_is_on_its_way_is_done_before_the_next_session
    ));
    assert!(Mutant::EndedSessionHeard.is_caught(
        "what_comes_of_a_session_that_was_ended_is_refused",
        SEEDS,
        what_comes_of_a_session_that_was_ended_is_refused
    ));
    assert!(Mutant::SentForGone.is_caught(
        "what_waits_for_a_client_that_is_gone_is_not_sent",
        SEEDS,
        what_waits_for_a_client_that_is_gone_is_not_sent
    ));
    assert!(Mutant::LeavingForgotten.is_caught(
        "one_volume_whose_commands_have_ended_does_not_end_a_layer_of_its_clones",
        SEEDS,
        one_volume_whose_commands_have_ended_does_not_end_a_layer_of_its_clones
    ));
    assert!(Mutant::UntoldForgotten.is_caught(
        "a_snapshot_can_be_read_once_the_map_answers",
        SEEDS,
        a_snapshot_can_be_read_once_the_map_answers
    ));
    assert!(Mutant::DeniedWithoutRaise.is_caught(
        "nothing_is_done_for_a_host_that_was_denied",
        SEEDS,
        nothing_is_done_for_a_host_that_was_denied
    ));
    assert!(Mutant::SharedLayerMerged.is_caught(
        "what_two_volumes_are_built_on_stays",
        SEEDS,
        what_two_volumes_are_built_on_stays
    ));
    assert!(Mutant::SnapshotNewLayer.is_caught(
        "what_is_written_after_a_snapshot_that_failed_stays",
        1..40,
        what_is_written_after_a_snapshot_that_failed_stays
    ));
    assert!(Mutant::LostAnswerRefused.is_caught(
        "what_is_written_behind_a_lost_answer_stays",
        1..40,
        what_is_written_behind_a_lost_answer_stays
    ));
    for mutant in [Mutant::LastChangesLeft, Mutant::MovedWhileUsed] {
        assert!(mutant.is_caught("a_volume_moves_while_it_is_used", 1..10, a_volume_moves_while_it_is_used));
    }
    assert!(Mutant::MovedByName.is_caught(
        "a_snapshot_taken_again_while_its_volume_moves_holds_what_it_held",
        SEEDS,
        a_snapshot_taken_again_while_its_volume_moves_holds_what_it_held
    ));
    assert!(Mutant::OldPlaceRead.is_caught(
        "a_snapshot_that_is_open_holds_what_it_held",
        SEEDS,
        a_snapshot_that_is_open_holds_what_it_held
    ));
    assert!(Mutant::LockedTakesOver.is_caught("who_has_the_key_takes_over", SEEDS, who_has_the_key_takes_over));
    assert!(Mutant::OlderTableTaken.is_caught(
        "a_volume_lies_where_the_table_of_its_record_says",
        SEEDS,
        a_volume_lies_where_the_table_of_its_record_says
    ));
    assert!(Mutant::SessionSaidOnce.is_caught(
        "a_session_that_is_gone_is_said_again",
        SEEDS,
        a_session_that_is_gone_is_said_again
    ));
}
