//! Deliberate bugs of volumes whose groups do not serve: the test that is made for each notices.

use crate::common::hosts::{
    a_head_that_does_not_reach_a_group_leaves_the_volume_to_who_does,
    what_waits_at_a_head_that_is_not_heard_is_answered,
};
use crate::common::stopped::{
    one_volumes_change_is_no_others_business, what_has_no_outcome_is_in_no_snapshot, what_is_gone_is_not_waited_for,
};
use crate::common::unknown::what_has_no_outcome_is_read_by_nobody;
use std::ops::Range;
use types::Mutant;

/// Seeds that a bug may need.
const SEEDS: Range<u64> = 1..3;

#[test]
fn what_waits_for_a_stopped_group_is_noticed() {
    assert!(Mutant::UnknownBlocksNothing.is_caught(
        "what_has_no_outcome_is_read_by_nobody",
        SEEDS,
        what_has_no_outcome_is_read_by_nobody
    ));
    assert!(Mutant::GoneWaitedFor.is_caught("what_is_gone_is_not_waited_for", SEEDS, what_is_gone_is_not_waited_for));
    for bug in [Mutant::ElsewhereWaitedFor, Mutant::UnheardTakes, Mutant::CutOffRemoves] {
        assert!(bug.is_caught(
            "what_waits_at_a_head_that_is_not_heard_is_answered",
            SEEDS,
            what_waits_at_a_head_that_is_not_heard_is_answered
        ));
    }
    assert!(Mutant::UnreachedStays.is_caught(
        "a_head_that_does_not_reach_a_group_leaves_the_volume_to_who_does",
        SEEDS,
        a_head_that_does_not_reach_a_group_leaves_the_volume_to_who_does
    ));
    assert!(Mutant::OneChangeAtATime.is_caught(
        "one_volumes_change_is_no_others_business",
        SEEDS,
        one_volumes_change_is_no_others_business
    ));
    assert!(Mutant::InstantOverOrphans.is_caught(
        "what_has_no_outcome_is_in_no_snapshot",
        SEEDS,
        what_has_no_outcome_is_in_no_snapshot
    ));
}
