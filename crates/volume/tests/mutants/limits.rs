//! The check of limits that change finds the bug that it is there for.

use crate::common::limits::check_live_change;
use types::Mutant;

#[test]
fn who_obeys_the_old_limit_is_noticed() {
    let check = |seed| check_live_change(seed).expect("the limit of now is obeyed");
    assert!(Mutant::OldLimitObeyed.is_caught("a limit that changes", 1..2, check));
}
