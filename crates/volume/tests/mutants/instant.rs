//! Each rule of one instant, broken: the test that is made for it notices.

use crate::common::instant::{is_one_on_all_cores, waits_for_every_earlier_term};
use crate::common::together::is_one_over_nodes;
use std::ops::Range;
use types::Mutant;

/// Seeds that a bug may need.
const SEEDS: Range<u64> = 1..7;
/// Of what shows in a moment of a turn only.
const MORE_SEEDS: Range<u64> = 1..40;

#[test]
fn every_broken_rule_of_one_instant_is_noticed() {
    assert!(Mutant::SnapshotCoreByCore.is_caught("is_one_on_all_cores", MORE_SEEDS, is_one_on_all_cores));
    assert!(Mutant::EarlierTermNotAwaited.is_caught(
        "waits_for_every_earlier_term",
        SEEDS,
        waits_for_every_earlier_term
    ));
    assert!(Mutant::InstantOfHeadGoneOn.is_caught("is_one_over_nodes", SEEDS, is_one_over_nodes));
    assert!(Mutant::InstantTopTakenEarly.is_caught("is_one_over_nodes", SEEDS, is_one_over_nodes));
}
