//! The test of layers would notice each rule that is broken. A process of its own: a bug is on for all of it.
#![cfg(feature = "mutants")]

mod common;

use common::layers::{
    a_merge_behind_the_walk_of_a_pass_is_in_it, an_ended_leaf_in_an_older_pass_stays_away, layers_survive,
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
    ];
    for mutant in mutants {
        let noticed = (0..MOST_SEEDS).find(|seed| {
            Mutant::activate(Some(mutant));
            let broken = std::panic::catch_unwind(|| {
                an_ended_leaf_in_an_older_pass_stays_away();
                a_merge_behind_the_walk_of_a_pass_is_in_it();
                layers_survive(*seed, 10, 400)
            });
            Mutant::activate(None);
            broken.is_err()
        });
        println!("{mutant:?}: seed {noticed:?}");
        assert!(noticed.is_some(), "{mutant:?} was not noticed in {MOST_SEEDS} seeds");
    }
}
