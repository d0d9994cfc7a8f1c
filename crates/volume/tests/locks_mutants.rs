//! A compare-and-write that is two commands, for other commands or for a rollback: the test of it notices. A process of
//! its own: a bug is on for all of it.
#![cfg(feature = "mutants")]

mod common;

use common::locks::{is_before_or_after_a_rollback, no_raise_is_lost};
use types::Mutant;

#[test]
fn a_write_apart_from_its_compare_is_noticed() {
    type Check = fn(u64);
    let mutants: [(Mutant, Check); 2] = [
        (Mutant::CompareAndWriteSplit, no_raise_is_lost),
        (Mutant::ComparedBeforeRollback, is_before_or_after_a_rollback),
    ];
    for (mutant, check) in mutants {
        Mutant::activate(Some(mutant));
        let noticed = (1..=4).find(|seed| std::panic::catch_unwind(|| check(*seed)).is_err());
        Mutant::activate(None);
        println!("{mutant:?}: seed {noticed:?}");
        assert!(noticed.is_some(), "{mutant:?} was not noticed in 4 seeds");
    }
}
