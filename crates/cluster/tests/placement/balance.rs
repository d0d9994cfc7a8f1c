//! New pools: even, many partners, within the rules.

use crate::clusters::{Pool, Random, timed};
use crate::laws;
use cluster::FailureDomain;

#[test]
fn new_pools_of_any_shape_are_even() {
    // In the last one members have to change places for partners.
    for seed in (0..120).chain([224]) {
        let pool = Pool::drawn(&mut Random(seed), 24);
        println!("seed {seed}: {} devices, {:?}", pool.devices.len(), pool.rules);
        if pool.rules.failure_domain == FailureDomain::Rack && pool.rules.replicas > 12 {
            continue;
        }
        laws::all(&pool, &pool.place());
    }
}

#[test]
fn every_number_of_devices_shares_groups_with_many() {
    for nodes in 3..=60 {
        for replicas in [2, 3] {
            let pool = Pool::even(nodes, 1, replicas, FailureDomain::Node);
            laws::all(&pool, &pool.place());
        }
    }
}

#[test]
fn the_same_input_gives_the_same_answer_in_any_order_of_devices() {
    for seed in 0..20 {
        let mut random = Random(seed);
        let mut pool = Pool::drawn(&mut random, 16);
        let first = pool.place();
        for at in (1..pool.devices.len()).rev() {
            pool.devices.swap(at, random.below(at as u64 + 1) as usize);
        }
        assert_eq!(pool.place(), first);
    }
}

/// The largest there is. Its time is told, and stands in docs/placement.md.
#[test]
fn a_thousand_devices_are_placed() {
    let shapes = [(1000, 1), (100, 10)];
    for (nodes, per_node) in shapes {
        let pool = Pool::even(nodes, per_node, 3, FailureDomain::Node);
        assert_eq!(pool.groups.len(), 33_334);
        let (placement, took) = timed(|| pool.place());
        println!("{nodes} nodes of {per_node} devices, {} groups: {took:?}", pool.groups.len());
        laws::all(&pool, &placement);
    }
}
