//! Where rules leave little choice, or none.

use crate::clusters::{Pool, device, rules};
use crate::laws;
use cluster::FailureDomain;
use cluster::placement::{Duty, PlacementError, place};

#[test]
fn a_node_heavier_than_its_share_is_in_every_group_and_the_others_share_the_rest() {
    let mut pool = Pool::even(6, 2, 3, FailureDomain::Node);
    pool.devices.iter_mut().take(2).for_each(|device| device.weight = 100_000);
    let placement = pool.place();
    laws::all(&pool, &placement);
    let heavy = pool.devices[0].node;
    for group in &placement.groups {
        assert!(group.members.iter().any(|store| pool.devices[store.0 as usize - 1].node == heavy));
    }
    assert!(placement.shares[0].is_saturated && !placement.shares[5].is_saturated);
}

#[test]
fn three_nodes_with_three_copies_hold_everything_each() {
    for weights in [[1, 1, 1], [1, 5, 100]] {
        let pool = Pool::new(3, 4, 3, FailureDomain::Node, |at| weights[at as usize / 4]);
        let placement = pool.place();
        laws::rules_are_kept(&pool, &placement);
        laws::is_balanced(&pool, &placement);
    }
}

#[test]
fn too_few_domains_are_refused_by_name() {
    let mut pool = Pool::even(4, 2, 3, FailureDomain::Rack);
    for device in &mut pool.devices {
        let rack = if device.node.0 == 1 { "a" } else { "" };
        (device.rack, device.zone) = (rack.to_owned(), String::new());
    }
    let refused = place(&pool.devices, &pool.rules, &[], &pool.groups).expect_err("two racks");
    let expected = PlacementError::TooFewDomains {
        replicas: 3,
        domain: FailureDomain::Rack,
        found: 2,
        unnamed: 3,
        class: String::new(),
    };
    assert_eq!(refused, expected);
    assert_eq!(
        refused.to_string(),
        "3 copies need 3 racks, and devices are in 2 (the 3 nodes that name no rack count as one): add more, take \
         fewer copies, or a smaller failure domain"
    );
}

#[test]
fn groups_have_fewer_members_only_where_the_rules_allow_it() {
    let mut pool = Pool::even(2, 2, 3, FailureDomain::Node);
    assert!(place(&pool.devices, &pool.rules, &[], &pool.groups).is_err());
    pool.rules.may_degrade = true;
    let placement = pool.place();
    assert_eq!(placement.copies, 2);
    laws::all(&pool, &placement);
    // A third node comes: each group gets the member that it lacks, and nothing else moves.
    pool.groups = placement.groups;
    pool.devices.extend((0..2).map(|at| device(50 + at, 9, 1000)));
    let healed = pool.place();
    assert_eq!((healed.copies, healed.copies_to_make()), (3, pool.groups.len()));
    assert!(healed.moves.iter().all(|step| step.from.is_none()));
    pool.devices.iter_mut().filter(|device| device.node.0 != 1).for_each(|device| device.duty = Duty::Out);
    assert!(place(&pool.devices, &pool.rules, &[], &pool.groups).is_err(), "one is below the least in sync");
}

#[test]
fn only_devices_of_the_class_are_used() {
    let mut pool = Pool::even(8, 2, 3, FailureDomain::Node);
    for device in &mut pool.devices {
        device.class = if device.store.0 % 2 == 0 { "fast" } else { "large" }.to_owned();
    }
    pool.rules.class = "fast".to_owned();
    let placement = pool.place();
    laws::all(&pool, &placement);
    assert!(placement.groups.iter().flat_map(|group| &group.members).all(|store| store.0 % 2 == 0));
    pool.rules.class = "tape".to_owned();
    let refused = place(&pool.devices, &pool.rules, &[], &pool.groups).expect_err("there is none");
    assert_eq!(refused.to_string(), "no device can hold anything of class tape: add one");
}

#[test]
fn a_node_that_moves_to_another_rack_breaks_no_failure_domain() {
    let pool = Pool::even(12, 2, 3, FailureDomain::Rack).placed();
    let mut moved = pool.clone();
    for device in moved.devices.iter_mut().filter(|device| device.node.0 == 1) {
        (device.rack, device.zone) = ("r2".to_owned(), "z2".to_owned());
    }
    let placement = moved.place();
    laws::rules_are_kept(&moved, &placement);
    laws::is_balanced(&moved, &placement);
}

#[test]
fn a_pool_without_groups_or_devices_is_no_accident() {
    let mut pool = Pool::even(4, 1, 3, FailureDomain::Node);
    pool.groups.clear();
    let placement = pool.place();
    assert!(placement.groups.is_empty() && placement.shares.iter().all(|share| share.held == 0 && share.due == 0.0));
    let refused = place(&[], &pool.rules, &[], &pool.groups).expect_err("nothing is there");
    assert_eq!(refused, PlacementError::NoDevice { class: String::new() });
}

#[test]
fn a_single_node_keeps_one_copy_or_several_on_its_devices() {
    for (devices, replicas) in [(1, 1), (5, 1), (3, 2), (3, 3)] {
        let mut pool = Pool::even(1, devices, replicas, FailureDomain::Device);
        laws::all(&pool, &pool.place());
        pool.rules = rules(replicas + devices as usize, FailureDomain::Device);
        assert!(place(&pool.devices, &pool.rules, &[], &pool.groups).is_err());
    }
}
