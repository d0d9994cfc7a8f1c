//! Nodes and devices that come, are emptied and go, while volumes are written.

use crate::common::duties::{
    a_device_is_emptied_under_writes, a_last_copy_stays, a_node_is_emptied_under_writes_and_leaves,
    a_node_that_rests_leads_nothing_and_nothing_is_copied, another_node_goes_on_where_one_died,
    what_groups_hold_is_said,
};

#[test]
fn a_device_that_is_drained_is_empty_and_every_block_is_elsewhere() {
    a_device_is_emptied_under_writes(1);
}

#[test]
fn a_node_that_is_drained_may_be_removed_and_not_before() {
    a_node_is_emptied_under_writes_and_leaves(2);
}

#[test]
fn who_takes_over_the_orders_goes_on_with_them() {
    another_node_goes_on_where_one_died(3);
}

#[test]
fn in_maintenance_a_node_leads_nothing() {
    a_node_that_rests_leads_nothing_and_nothing_is_copied(4);
}

#[test]
fn the_last_copy_is_not_given_up() {
    a_last_copy_stays(5);
}

#[test]
fn what_is_on_a_device_is_said_by_group() {
    what_groups_hold_is_said(6);
}
