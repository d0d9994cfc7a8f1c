//! Pools that change: what moves is what has to.

use crate::clusters::{Pool, Random, device, timed};
use crate::laws;
use cluster::FailureDomain;
use cluster::placement::{Duty, Placement};

/// Places the pool anew after `change`, and holds it to the fewest copies there can be.
fn changed(pool: &Pool, change: impl FnOnce(&mut Pool)) -> (Pool, Placement) {
    let before = pool.place();
    assert_eq!(before.copies_to_make(), 0, "nothing moves as long as nothing changes");
    let mut next = pool.clone();
    change(&mut next);
    let (after, took) = timed(|| next.place());
    let (fewest, copies) = (laws::fewest_copies(&next, &before.groups, after.copies), after.copies_to_make());
    println!("{} devices: {copies} copies, {fewest} at least, {took:?}", next.devices.len());
    // Where a domain is in nearly every group, others have to make room for it that have nothing too much.
    let most = if laws::is_tight(&next, &after) || laws::is_tight(pool, &before) { 1.5 } else { 1.1 };
    assert!(
        copies as f64 <= f64::max(fewest * most, fewest + 2.0) + 1e-6,
        "{copies} copies are made where {fewest} are enough"
    );
    laws::all_after_a_change(&next, &after);
    next.groups = after.groups.clone();
    (next, after)
}

#[test]
fn pools_of_any_shape_change_with_few_moves() {
    // In the last one members have to change places for partners.
    for seed in (0..50).chain([545]) {
        let mut random = Random(seed);
        let mut pool = Pool::drawn(&mut random, 20).placed();
        println!("seed {seed}: {:?}", pool.rules);
        for _ in 0..4 {
            let count = pool.devices.len() as u64;
            let (at, next) = (random.below(count) as usize, 1000 + u128::from(count));
            let node = pool.devices[at].node.0;
            let what = random.below(5);
            let weight = 100 * random.between(1, 10);
            let (changed, _) = match what {
                0 => changed(&pool, |pool| pool.devices.push(device(next, node, pool.devices[at].weight))),
                1 => changed(&pool, |pool| pool.devices.push(device(next, 500 + node, weight))),
                2 => changed(&pool, |pool| pool.devices[at].weight = weight),
                3 if count > 8 && pool.devices.iter().filter(|device| device.duty == Duty::In).count() > 7 => {
                    let mut lost = pool.clone();
                    lost.devices[at].duty = Duty::Out;
                    if can_be_placed(&lost) { changed(&pool, |pool| *pool = lost) } else { continue }
                }
                4 => {
                    let into = pool.devices[at].clone();
                    changed(&pool, |pool| {
                        pool.devices.push(device(next, into.node.0, into.weight));
                        pool.devices[at].duty = Duty::Draining { into: Some(types::StoreId(next)) };
                    })
                }
                _ => continue,
            };
            pool = changed;
        }
    }
}

fn can_be_placed(pool: &Pool) -> bool {
    cluster::placement::place(&pool.devices, &pool.rules, &[], &pool.groups).is_ok()
}

#[test]
fn a_device_that_is_replaced_hands_over_what_it_holds_and_nothing_else_moves() {
    let pool = Pool::even(5, 3, 3, FailureDomain::Node).placed();
    let held = pool.place().shares[7].held as usize;
    let (_, after) = changed(&pool, |pool| {
        pool.devices[7].duty = Duty::Draining { into: Some(types::StoreId(99)) };
        pool.devices.push(device(99, pool.devices[7].node.0, 1000));
    });
    assert_eq!(after.copies_to_make(), held);
    assert!(after.moves.iter().all(|step| step.from == Some(types::StoreId(8)) && step.to == Some(types::StoreId(99))));
}

#[test]
fn large_pools_change_with_few_moves() {
    for (nodes, per_node) in [(1000, 1), (100, 10)] {
        let pool = Pool::even(nodes, per_node, 3, FailureDomain::Node).placed();
        let (pool, _) = changed(&pool, |pool| pool.devices[17].duty = Duty::Out);
        let (pool, _) = changed(&pool, |pool| {
            (0..u128::from(per_node)).for_each(|at| pool.devices.push(device(5000 + at, 5000, 1000)));
        });
        let (pool, _) = changed(&pool, |pool| pool.devices.iter_mut().take(50).for_each(|device| device.weight = 1500));
        changed(&pool, |pool| pool.devices.retain(|device| device.node.0 != 3));
    }
}
