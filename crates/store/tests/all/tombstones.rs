//! What was deleted never returns: blocks that the cleaner has moved to a cold segment are discarded, hidden by zeroes,
//! or deleted with their volume; then the segments that held them and the one that says so are cleaned and used again.
//! At every moment from the deletion on the lights go out.

use crate::common::tombstones::{Deletion, a_deleted_block_never_returns};

#[test]
fn what_was_discarded_never_returns() {
    a_deleted_block_never_returns(31, Deletion::Discard);
}

#[test]
fn zeroes_written_over_a_snapshot_show_neither_it_nor_what_they_replaced() {
    a_deleted_block_never_returns(32, Deletion::HidingZeroes);
}

#[test]
fn blocks_of_a_deleted_volume_never_return() {
    a_deleted_block_never_returns(33, Deletion::Volume);
}
