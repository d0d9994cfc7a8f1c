//! Rules of docs/replication.md, each broken on purpose, one after the other: the model notices.
#![cfg(feature = "mutants")]

use model::mutants::{MUTANTS, Shows, caught, search};
use model::search::Limits;
use std::time::Duration;
use types::Mutant;

/// A bug may need so many states.
const MOST_STATES: usize = 3_000_000;

#[test]
fn every_broken_rule_of_the_protocol_is_noticed() {
    let missed: Vec<_> = MUTANTS.iter().filter(|(mutant, shows)| !is_noticed(*mutant, *shows)).collect();
    assert!(missed.is_empty(), "not noticed: {missed:?}");
}

/// Whether a search finds something with the bug, and as long a one finds nothing without it.
fn is_noticed(mutant: Mutant, shows: Shows) -> bool {
    let limits = |states| Limits { states, time: Duration::from_secs(300) };
    let (states, broken) = caught(mutant, shows, limits(MOST_STATES));
    let how = match (broken, search(shows, limits(states)).broken) {
        (None, _) => Err(format!("{states} states break no rule")),
        (Some(_), Some(broken)) => Err(format!("without it, too: {}", broken.rule)),
        (Some(broken), None) => Ok(format!("{states} states: {}", broken.rule)),
    };
    mutant.tell("the model", how.as_deref())
}
