//! The check of limits that change finds the bug that it is there for.
#![cfg(feature = "mutants")]

mod common;

use common::limits::check_live_change;
use types::Mutant;

#[test]
fn who_obeys_the_old_limit_is_noticed() {
    assert_eq!(check_live_change(1), Ok(()));
    Mutant::activate(Some(Mutant::OldLimitObeyed));
    let noticed = check_live_change(1);
    Mutant::activate(None);
    assert!(noticed.is_err(), "not noticed");
}
