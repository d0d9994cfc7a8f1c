//! The test of layers would notice each rule that is broken. A process of its own: a bug is on for all of it.
#![cfg(feature = "mutants")]

mod common;

use common::layers::{
    a_late_leaf_of_a_layer_that_is_gone_has_its_family, a_merge_behind_the_walk_of_a_pass_is_in_it,
    an_ended_leaf_in_an_older_pass_stays_away, layers_survive,
};
use types::Mutant;

const MOST_SEEDS: u64 = 12;

#[test]
fn every_broken_rule_of_layers_is_noticed() {
    let mutants = [
        Mutant::MergeNotOrdered,
        Mutant::MergedBlocksNotCounted,
        Mutant::MergeLosesZeroes,
        Mutant::MergedLeafNotInPass,
        Mutant::StaleLeafLoaded,
        Mutant::LayerStateLost,
        Mutant::LateLeafHasNoFamily,
    ];
    let check = |seed| {
        a_late_leaf_of_a_layer_that_is_gone_has_its_family();
        an_ended_leaf_in_an_older_pass_stays_away();
        a_merge_behind_the_walk_of_a_pass_is_in_it();
        layers_survive(seed, 10, 400);
    };
    for mutant in mutants {
        assert!(mutant.is_caught("layers_survive", 0..MOST_SEEDS, check), "{mutant:?} was not noticed");
    }
}
