//! Rules of catching up, each broken on purpose: the test of `cluster.rs` notices.
#![cfg(feature = "mutants")]

mod common;

use std::panic::catch_unwind;
use types::Mutant;

#[test]
fn every_broken_rule_of_catching_up_is_noticed() {
    let mutants = [Mutant::CatchUpMissesChunk];
    let is_missed = |mutant: &Mutant| {
        Mutant::activate(Some(*mutant));
        let is_missed = catch_unwind(common::away_for_long).is_ok();
        Mutant::activate(None);
        is_missed
    };
    let missed: Vec<_> = mutants.into_iter().filter(is_missed).collect();
    assert!(missed.is_empty(), "not noticed: {missed:?}");
}
