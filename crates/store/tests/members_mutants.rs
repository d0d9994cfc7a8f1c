//! Each rule of what a group's members need of the store, broken: the test that is made for it notices. A process of its
//! own: a bug is on for all of it.
#![cfg(feature = "mutants")]

mod common;

use common::carry::carried_at_every_moment;
use common::installs::{an_install_at_every_moment, install_storm};
use common::lost::{
    a_lost_beginning_is_missed, a_lost_header_is_not_judged_by_an_earlier_use, a_lost_leaf_is_missed_in_who_takes_it,
    a_segment_that_another_shard_took_stays_its, much_damage_does_not_end_the_log,
    no_epoch_is_found_without_the_one_before, what_a_pass_says_takes_no_entrys_place,
    what_lies_before_a_bad_place_is_read, what_was_cut_is_not_taken_for_committed,
};
use common::members::{a_cut_forgets_what_lies_behind, what_is_prepared_outlives_a_pass};
use common::skips::a_skip_at_every_moment;
use types::Mutant;

/// Seeds that a bug may need.
const MOST_SEEDS: u64 = 8;

#[test]
fn every_broken_rule_of_members_is_noticed() {
    type Check = fn(u64);
    let mutants: [(Mutant, &str, Check); 19] = [
        (Mutant::ReadAheadTakenForAll, "what_lies_before_a_bad_place_is_read", what_lies_before_a_bad_place_is_read),
        (
            Mutant::EpochBesideRecord,
            "no_epoch_is_found_without_the_one_before",
            no_epoch_is_found_without_the_one_before,
        ),
        (Mutant::InstallMissedByPass, "installs beside passes", |seed| {
            install_storm(seed, 4, 10);
        }),
        (Mutant::LeftOutForgotten, "installs beside entries", |seed| {
            install_storm(seed, 4, 25);
        }),
        (Mutant::CutForgotten, "a_cut_forgets_what_lies_behind", a_cut_forgets_what_lies_behind),
        (Mutant::SkippedEntriesApplied, "a_skip_at_every_moment", |seed| {
            a_skip_at_every_moment(seed);
        }),
        (Mutant::InstallEndTrustedEarly, "an_install_at_every_moment", |seed| {
            an_install_at_every_moment(seed);
        }),
        (Mutant::InstallEndTrustedEarly, "installs beside entries", |seed| {
            install_storm(seed, 2, 25);
        }),
        (Mutant::CarriedBeforeDurable, "carried_at_every_moment", |seed| {
            carried_at_every_moment(seed);
        }),
        (Mutant::CarriedThoughCut, "carried_at_every_moment", |seed| {
            carried_at_every_moment(seed);
        }),
        (Mutant::CarriedTakenForNew, "carried_at_every_moment", |seed| {
            carried_at_every_moment(seed);
        }),
        (Mutant::PreparedForgottenByPass, "what_is_prepared_outlives_a_pass", what_is_prepared_outlives_a_pass),
        (Mutant::BeginningTakenForWhole, "a_lost_beginning_is_missed", a_lost_beginning_is_missed),
        (
            Mutant::StateTakenForEntries,
            "what_a_pass_says_takes_no_entrys_place",
            what_a_pass_says_takes_no_entrys_place,
        ),
        (
            Mutant::CutTakenForCommitted,
            "what_was_cut_is_not_taken_for_committed",
            what_was_cut_is_not_taken_for_committed,
        ),
        (Mutant::MergeHidesLostLeaf, "a_lost_leaf_is_missed_in_who_takes_it", a_lost_leaf_is_missed_in_who_takes_it),
        (
            Mutant::OthersSegmentGiven,
            "a_segment_that_another_shard_took_stays_its",
            a_segment_that_another_shard_took_stays_its,
        ),
        (
            Mutant::HeaderOfNextUseIgnored,
            "a_lost_header_is_not_judged_by_an_earlier_use",
            a_lost_header_is_not_judged_by_an_earlier_use,
        ),
        (Mutant::LogEndsInDamage, "much_damage_does_not_end_the_log", much_damage_does_not_end_the_log),
    ];
    let is_missed = |(mutant, name, check): &(Mutant, &str, Check)| !mutant.is_caught(name, 0..MOST_SEEDS, check);
    let missed: Vec<_> = mutants.iter().filter(|one| is_missed(one)).map(|(mutant, ..)| *mutant).collect();
    assert!(missed.is_empty(), "not noticed in {MOST_SEEDS} seeds: {missed:?}");
}
