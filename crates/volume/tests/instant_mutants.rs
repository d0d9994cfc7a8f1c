//! Each rule of one instant, broken: the test that is made for it notices. A process of its own: a bug is on for all of
//! it.
#![cfg(feature = "mutants")]

mod common;

use common::instant::{is_one_on_all_cores, waits_for_every_earlier_term};
use types::Mutant;

/// Seeds that a bug may need.
const MOST_SEEDS: u64 = 6;

#[test]
fn every_broken_rule_of_one_instant_is_noticed() {
    type Check = fn(u64);
    let mutants: [(Mutant, Check); 2] = [
        (Mutant::SnapshotCoreByCore, is_one_on_all_cores),
        (Mutant::EarlierTermNotAwaited, waits_for_every_earlier_term),
    ];
    for (mutant, check) in mutants {
        let noticed = (1..=MOST_SEEDS).find(|seed| {
            Mutant::activate(Some(mutant));
            let broken = std::panic::catch_unwind(|| check(*seed));
            Mutant::activate(None);
            broken.is_err()
        });
        println!("{mutant:?}: seed {noticed:?}");
        assert!(noticed.is_some(), "{mutant:?} was not noticed in {MOST_SEEDS} seeds");
    }
}
