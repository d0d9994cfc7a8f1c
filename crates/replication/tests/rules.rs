//! Rules of docs/replication.md that whole nodes keep, and what shows that each is kept: one fault, looked at where it does
//! harm at once. In a build with mutants each rule is also broken on purpose, and what shows it has to notice.

mod common;
#[path = "common/force.rs"]
mod force;
#[path = "common/mending.rs"]
mod mending;
#[path = "common/old_maps.rs"]
mod old_maps;
#[path = "common/one_member.rs"]
mod one_member;
#[path = "common/pace.rs"]
mod pace;
#[path = "common/parts.rs"]
mod parts;
#[path = "common/releases.rs"]
mod releases;
#[path = "common/room.rs"]
mod room;
#[path = "common/rules.rs"]
mod rules;

use common::holds;
use types::Mutant;

#[test]
fn what_was_changed_on_its_way_is_no_hello() {
    holds(releases::what_was_changed_on_its_way_is_no_hello, &[Mutant::DowngradeUnseen]);
}

#[test]
fn releases_run_side_by_side() {
    holds(releases::releases_run_side_by_side, &[Mutant::KindSentUnasked]);
}

#[test]
fn who_has_no_version_in_common_is_told() {
    holds(releases::who_has_no_version_in_common_is_told, &[]);
}

#[test]
fn nothing_is_read_before_it_is_committed() {
    holds(rules::nothing_is_read_before_it_is_committed, &[Mutant::ReadBeforeCommitted]);
}

#[test]
fn a_map_that_went_back_stops_the_group() {
    holds(rules::a_map_that_went_back_stops_the_group, &[Mutant::OldMapFollowed]);
}

#[test]
fn what_a_member_heard_of_outlives_it() {
    holds(old_maps::what_a_member_heard_of_outlives_it, &[Mutant::HeardForgotten]);
}

#[test]
fn a_member_that_has_stopped_says_what_it_knows() {
    holds(old_maps::a_member_that_has_stopped_says_what_it_knows, &[Mutant::StoppedSaysNothing]);
}

#[test]
fn entries_of_an_epoch_that_came_twice_are_told_apart() {
    holds(old_maps::entries_of_an_epoch_that_came_twice_are_told_apart, &[Mutant::TermUnmarked]);
}

#[test]
fn who_hears_nobody_leaves_the_others_to_go_on() {
    let bugs = [Mutant::CutOffRemoves, Mutant::CutOffCampaigns];
    holds(parts::who_hears_nobody_leaves_the_others_to_go_on, &bugs);
}

#[test]
fn who_hears_too_few_of_its_group_leaves_the_others_to_go_on() {
    holds(parts::who_hears_too_few_of_its_group_leaves_the_others_to_go_on, &[Mutant::SoonRemoved]);
}

#[test]
fn of_two_that_hear_nobody_the_smaller_takes_the_lead() {
    holds(parts::of_two_that_hear_nobody_the_smaller_takes_the_lead, &[Mutant::SoonRemoved]);
}

#[test]
fn who_is_left_and_hears_nobody_gives_its_session_up() {
    holds(parts::who_is_left_and_hears_nobody_gives_its_session_up, &[Mutant::CutOffStays]);
}

#[test]
fn an_outage_costs_what_was_written_meanwhile() {
    holds(rules::an_outage_costs_what_was_written_meanwhile, &[Mutant::WholeChunksSent]);
}

#[test]
fn a_slow_primary_hands_over() {
    holds(rules::a_slow_primary_hands_over, &[Mutant::SlowPrimaryStays]);
}

#[test]
fn three_slow_members_stay() {
    holds(rules::three_slow_members_stay, &[Mutant::SlowRemovedAlways]);
}

#[test]
fn a_full_member_is_not_written_to() {
    holds(room::a_full_member_is_not_written_to, &[Mutant::FullMemberIgnored]);
}

#[test]
fn a_full_member_says_so_at_once() {
    holds(room::a_full_member_says_so_at_once, &[Mutant::FullToldByTheClock]);
}

#[test]
fn who_says_that_it_is_full_leads_on() {
    holds(room::who_says_that_it_is_full_leads_on, &[Mutant::EarlyBeatTakesLeases]);
}

#[test]
fn a_full_member_that_was_away_first_gives_back() {
    holds(room::a_full_member_that_was_away_first_gives_back, &[Mutant::UnitsByNumber]);
}

#[test]
fn what_gives_back_passes_what_finds_no_room() {
    holds(room::what_gives_back_passes_what_finds_no_room, &[Mutant::NobodyPassesFull]);
}

#[test]
fn what_gives_back_is_not_waited_for_behind_what_finds_no_room() {
    holds(room::what_gives_back_is_not_waited_for_behind_what_finds_no_room, &[Mutant::OrderStandsWhileFull]);
}

#[test]
fn a_hung_core_leads_no_longer() {
    holds(rules::a_hung_core_leads_no_longer, &[Mutant::HungCoreSpokenFor]);
}

#[test]
fn what_remains_of_a_group_refuses_nothing() {
    holds(rules::what_remains_of_a_group_refuses_nothing, &[Mutant::RefusedForNeighbour]);
}

#[test]
fn a_stranger_is_not_listened_to() {
    holds(rules::a_stranger_is_not_listened_to, &[Mutant::StrangerHeard]);
}

#[test]
fn a_death_that_is_told_is_not_waited_for() {
    holds(rules::a_death_that_is_told_is_not_waited_for, &[Mutant::OtherLifeDead]);
}

#[test]
fn a_word_about_an_earlier_life_is_not_believed_of_a_later_one() {
    holds(rules::a_word_about_an_earlier_life_is_not_believed_of_a_later_one, &[Mutant::OtherLifeDead]);
}

#[test]
fn a_deposed_primary_reads_nothing() {
    holds(rules::a_deposed_primary_reads_nothing, &[Mutant::DeposedGranted]);
}

#[test]
fn who_was_away_is_sent_what_changed_alone() {
    holds(rules::who_was_away_is_sent_what_changed_alone, &[Mutant::ChangeForgotten]);
}

#[test]
fn damage_of_two_members_in_different_places_is_mended() {
    holds(mending::damage_of_two_members_in_different_places_is_mended, &[]);
}

#[cfg(feature = "mutants")]
#[test]
fn nobody_takes_a_poisoned_group_over() {
    holds(rules::nobody_takes_a_poisoned_group_over, &[Mutant::PoisonNotTold]);
}

#[cfg(feature = "mutants")]
#[test]
fn a_poisoned_group_is_not_taken_over_after_a_restart() {
    holds(rules::a_poisoned_group_is_not_taken_over_after_a_restart, &[Mutant::PoisonForgotten]);
}

#[test]
fn who_crashes_while_it_is_made_whole_is_not_taken_for_whole() {
    holds(rules::who_crashes_while_it_is_made_whole_is_not_taken_for_whole, &[Mutant::FillNotNoted]);
}

#[test]
fn who_has_heard_of_an_epoch_is_not_whole_by_that() {
    holds(rules::who_has_heard_of_an_epoch_is_not_whole_by_that, &[Mutant::NoteOverwritten]);
}

#[test]
fn who_comes_back_to_a_group_of_many_volumes_is_made_whole() {
    holds(rules::who_comes_back_to_a_group_of_many_volumes_is_made_whole, &[Mutant::SkipsOnce]);
}

#[test]
fn what_was_deleted_meanwhile_does_not_come_back() {
    holds(rules::what_was_deleted_meanwhile_does_not_come_back, &[Mutant::DeletedChunkNotSent]);
}

#[test]
fn what_is_left_of_a_layer_that_is_gone_goes_too() {
    holds(rules::what_is_left_of_a_layer_that_is_gone_goes_too, &[Mutant::GoneLayerForgotten]);
}

#[test]
fn who_was_away_for_long_comes_back_chunk_by_chunk() {
    holds(
        rules::who_was_away_for_long_comes_back_chunk_by_chunk,
        &[Mutant::CatchUpMissesChunk, Mutant::LastSeqIgnored],
    );
}

#[test]
fn writes_go_on_while_a_member_is_made_whole() {
    holds(rules::writes_go_on_while_a_member_is_made_whole, &[Mutant::UnitTakenTooEarly, Mutant::AppliedBeforeUnit]);
}

#[test]
fn a_part_that_is_lost_with_its_connection_is_not_missed() {
    holds(rules::a_part_that_is_lost_with_its_connection_is_not_missed, &[Mutant::LostPartMissed]);
}

#[test]
fn what_rots_as_it_comes_is_brought_again() {
    holds(mending::what_rots_as_it_comes_is_brought_again, &[Mutant::UnitNotReadBack]);
}

#[test]
fn nobody_is_made_whole_from_a_damaged_copy() {
    holds(mending::nobody_is_made_whole_from_a_damaged_copy, &[Mutant::UnreadableLeftOut, Mutant::ChecksumSkipped]);
}

#[test]
fn a_damaged_block_is_read_from_another_member_and_mended() {
    holds(mending::a_damaged_block_is_read_from_another_member_and_mended, &[Mutant::DamagedGoesOn]);
}

#[test]
fn two_reads_that_meet_damage_at_once_are_done_elsewhere() {
    holds(mending::two_reads_that_meet_damage_at_once_are_done_elsewhere, &[Mutant::DamageSaidFinal]);
}

#[test]
fn a_damaged_block_that_nobody_reads_is_found_and_mended() {
    holds(mending::a_damaged_block_that_nobody_reads_is_found_and_mended, &[Mutant::DamageNotTold]);
}

#[test]
fn a_copy_that_differs_is_found_and_mended() {
    holds(mending::a_copy_that_differs_is_found_and_mended, &[Mutant::DigestsNotCompared]);
}

#[test]
fn a_unit_brings_nothing_of_other_groups() {
    holds(rules::a_unit_brings_nothing_of_other_groups, &[Mutant::UnitOfOtherGroups]);
}

#[test]
fn what_came_as_no_ops_is_not_taken_for_known() {
    holds(rules::what_came_as_no_ops_is_not_taken_for_known, &[Mutant::NoopsTakenForKnown]);
}

#[test]
fn what_a_group_of_one_writes_is_not_left_out() {
    holds(rules::what_a_group_of_one_writes_is_not_left_out, &[Mutant::AloneNotNoted]);
}

#[test]
fn damage_that_is_met_through_another_layer_is_mended() {
    holds(mending::damage_that_is_met_through_another_layer_is_mended, &[Mutant::DamageOfTopLayer]);
}

#[test]
fn who_is_made_whole_counts_for_nothing() {
    holds(one_member::who_is_made_whole_counts_for_nothing, &[Mutant::FilledCounts]);
}

#[test]
fn what_was_told_earlier_and_comes_late_does_not_count() {
    holds(one_member::what_was_told_earlier_and_comes_late_does_not_count, &[Mutant::ToldOutOfOrder]);
}

#[cfg(feature = "mutants")]
#[test]
fn other_groups_of_a_poisoned_store_go_on() {
    holds(rules::other_groups_of_a_poisoned_store_go_on, &[Mutant::AllGroupsPoisoned]);
}

#[test]
fn what_is_lost_between_others_is_brought_again() {
    holds(mending::what_is_lost_between_others_is_brought_again, &[Mutant::TornOutTakenForWhole]);
}

#[test]
fn who_has_lost_the_beginning_of_an_epoch_is_made_whole() {
    holds(mending::who_has_lost_the_beginning_of_an_epoch_is_made_whole, &[Mutant::TornLogBelieved]);
}

#[test]
fn damage_is_over_when_all_is_whole_again() {
    holds(mending::damage_is_over_when_all_is_whole_again, &[Mutant::LossesForgotten]);
}

#[test]
fn what_a_store_has_left_behind_is_dropped() {
    let broken_by = [Mutant::LeftTakenForWhole, Mutant::LeftDroppedEarly, Mutant::DroppedTakenForKept];
    holds(mending::what_a_store_has_left_behind_is_dropped, &broken_by);
}

#[test]
fn what_is_nobodys_stands_in_nobodys_way() {
    holds(mending::what_is_nobodys_stands_in_nobodys_way, &[Mutant::UnknownFamilyWaitedFor]);
}

#[test]
fn an_older_copy_leads_if_that_is_said() {
    holds(force::an_older_copy_leads_if_that_is_said, &[Mutant::ForceHeardByOneOnly]);
}

#[test]
fn who_counted_gives_way_to_who_counts_now() {
    holds(force::who_counted_gives_way_to_who_counts_now, &[Mutant::ForceHeardByOneOnly]);
}

#[test]
fn a_copy_that_has_stopped_leads_if_that_is_said() {
    holds(force::a_copy_that_has_stopped_leads_if_that_is_said, &[Mutant::ForceHeardByOneOnly]);
}

#[cfg(feature = "mutants")]
#[test]
fn a_poisoned_group_goes_on_if_that_is_said() {
    holds(force::a_poisoned_group_goes_on_if_that_is_said, &[Mutant::PoisonOutlivesForce]);
}

#[test]
fn reads_that_a_device_does_not_answer_are_done_elsewhere() {
    holds(rules::reads_that_a_device_does_not_answer_are_done_elsewhere, &[Mutant::SlowReadsUnseen]);
}

#[test]
fn who_only_reads_is_no_quiet() {
    holds(pace::who_only_reads_is_no_quiet, &[Mutant::ReadsNotHeard]);
}
