//! Each rule of an instant that the map keeps, broken: the test that is made for it notices. A process of its own: a bug is on
//! for all of it.
#![cfg(feature = "mutants")]

#[path = "instant/directed.rs"]
mod directed;

use directed::{a_layer_that_was_left_is_not_named, a_replaced_head_lets_nothing_be_named};
use types::Mutant;

#[test]
fn what_the_map_must_not_name_is_noticed() {
    assert!(Mutant::InstantOfReplacedHead.is_caught(
        "a_replaced_head_lets_nothing_be_named",
        1..2,
        a_replaced_head_lets_nothing_be_named
    ));
    assert!(Mutant::InstantOfLayerLeft.is_caught(
        "a_layer_that_was_left_is_not_named",
        1..2,
        a_layer_that_was_left_is_not_named
    ));
}
