//! Each rule of cleaning, freeing and deleting, broken: the test that is made for it notices. A process of its own: a
//! bug is on for all of it.
#![cfg(feature = "mutants")]

mod common;

use common::cleaning::*;
use common::layers::layers_survive;
use common::openings::an_opening_that_is_cut_off_leaves_no_damage;
use common::tombstones::{Deletion, a_deleted_block_never_returns};
use std::time::Duration;
use types::Mutant;

/// Seeds that a bug may need.
const MOST_SEEDS: u64 = 12;

fn storms(seed: u64) {
    storm(seed, 6, 20);
}

fn layers(seed: u64) {
    layers_survive(seed, 10, 400);
}

#[test]
fn every_broken_rule_of_cleaning_is_noticed() {
    type Check = fn(u64);
    let mutants: [(Mutant, Check); 16] = [
        (Mutant::TombstoneLost, |seed| a_deleted_block_never_returns(seed, Deletion::HidingZeroes)),
        (Mutant::LayerDeleteNotReplayed, |seed| a_deleted_block_never_returns(seed, Deletion::Volume)),
        (Mutant::ReadFallsThroughZeroes, |seed| a_deleted_block_never_returns(seed, Deletion::HidingZeroes)),
        (Mutant::YoungSegmentFreed, |_| what_replay_reads_is_not_used_again()),
        (Mutant::ReadPinIgnored, |_| a_read_keeps_its_segment()),
        (Mutant::ReserveOpenToNewBlocks, |_| a_full_device_can_be_emptied()),
        (Mutant::EndingForgottenTooEarly, |_| blocks_of_a_layer_that_is_gone_are_moved()),
        (Mutant::TailTakenUnseen, |_| rot_within_an_open_segment_hides_what_lies_behind()),
        (Mutant::RecordBesideOpening, |seed| {
            an_opening_that_is_cut_off_leaves_no_damage(seed);
        }),
        (Mutant::FreedBeforePassForgot, |seed| {
            a_pass_beside_a_move_names_the_old_place(Duration::from_micros(25 * seed));
        }),
        (Mutant::SegmentReusedBeforeMovesDurable, storms),
        (Mutant::MoveAppliedBlindly, storms),
        (Mutant::MoveCountedTwice, storms),
        (Mutant::TornWriteReplayed, storms),
        (Mutant::DiscardDropsNeighbour, storms),
        (Mutant::LayerRecordLostByCleaning, layers),
    ];
    let is_missed = |(mutant, check): &(Mutant, Check)| !mutant.is_caught("cleaning", 0..MOST_SEEDS, check);
    let missed: Vec<_> = mutants.iter().filter(|one| is_missed(one)).map(|(mutant, _)| *mutant).collect();
    assert!(missed.is_empty(), "not noticed in {MOST_SEEDS} seeds: {missed:?}");
}
