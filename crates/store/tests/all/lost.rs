//! Records that are lost.

use crate::common::lost;

#[test]
fn a_lost_beginning_is_missed() {
    lost::a_lost_beginning_is_missed(90);
}

#[test]
fn what_a_pass_says_takes_no_entrys_place() {
    lost::what_a_pass_says_takes_no_entrys_place(91);
}
