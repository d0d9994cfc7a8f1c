//! Deliberate bugs of clients: the test that is made for each notices.

use crate::common::programs::{
    a_program_that_slept_is_refused, what_a_program_opens_is_its_own, what_others_use_is_not_taken,
};
use std::ops::Range;
use types::Mutant;

/// Seeds that a bug may need.
const SEEDS: Range<u64> = 1..4;

#[test]
fn what_a_client_must_not_do_is_noticed() {
    assert!(Mutant::UsedVolumeTaken.is_caught("what_others_use_is_not_taken", SEEDS, what_others_use_is_not_taken));
    assert!(Mutant::ClientTakenForGone.is_caught(
        "what_a_program_opens_is_its_own",
        SEEDS,
        what_a_program_opens_is_its_own
    ));
    assert!(Mutant::OldOpeningServes.is_caught(
        "a_program_that_slept_is_refused",
        SEEDS,
        a_program_that_slept_is_refused
    ));
}
