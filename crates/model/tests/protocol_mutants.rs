//! Rules of docs/replication.md, each broken on purpose, one after the other: the model notices.
#![cfg(feature = "mutants")]

use model::mutants::{MUTANTS, caught};
use model::search::Limits;
use std::time::Duration;

#[test]
fn every_broken_rule_of_the_protocol_is_noticed() {
    let missed: Vec<_> = MUTANTS
        .iter()
        .filter(|(mutant, shows)| {
            let limits = Limits { states: 3_000_000, time: Duration::from_secs(300) };
            let (states, broken) = caught(*mutant, *shows, limits);
            println!("{mutant:?}: {states} states: {}", broken.as_ref().map_or("-", |broken| broken.rule));
            broken.is_none()
        })
        .collect();
    assert!(missed.is_empty(), "not noticed: {missed:?}");
}
