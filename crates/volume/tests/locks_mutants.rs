//! A compare-and-write that is two commands: the test of it notices. A process of its own: a bug is on for all of it.
#![cfg(feature = "mutants")]

mod common;

use common::locks::no_raise_is_lost;
use types::Mutant;

#[test]
fn a_write_apart_from_its_compare_is_noticed() {
    Mutant::activate(Some(Mutant::CompareAndWriteSplit));
    let noticed = (1..=4).find(|seed| std::panic::catch_unwind(|| no_raise_is_lost(*seed)).is_err());
    println!("seed {noticed:?}");
    assert!(noticed.is_some(), "not noticed in 4 seeds");
}
