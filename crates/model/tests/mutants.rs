//! Rules of docs/replication.md, each broken on purpose, one after the other: the model notices.
#![cfg(feature = "mutants")]

use model::mutants::{MUTANTS, caught};
use std::time::Duration;

#[test]
fn every_broken_rule_of_the_protocol_is_noticed() {
    let missed: Vec<_> = MUTANTS
        .iter()
        .filter(|(mutant, shows)| {
            let (states, broken) = caught(*mutant, *shows, Duration::from_secs(120));
            println!("{mutant:?}: {states} states: {}", broken.as_ref().map_or("-", |broken| broken.rule));
            broken.is_none()
        })
        .collect();
    assert!(missed.is_empty(), "not noticed: {missed:?}");
}
