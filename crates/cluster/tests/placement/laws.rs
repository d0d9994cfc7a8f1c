//! What holds of every placement, reckoned anew and otherwise than the code under test does.

use crate::clusters::Pool;
use cluster::FailureDomain;
use cluster::placement::{Device, Duty, Group, PARTNERS_MIN, Placement};
use std::collections::{BTreeMap, BTreeSet};
use types::StoreId;

fn usable(pool: &Pool) -> Vec<&Device> {
    let of_class = |device: &Device| pool.rules.class.is_empty() || device.class == pool.rules.class;
    pool.devices.iter().filter(|device| device.duty == Duty::In && device.weight > 0 && of_class(device)).collect()
}

pub fn domain_of(device: &Device, domain: FailureDomain) -> String {
    match domain {
        FailureDomain::Device => device.store.to_string(),
        FailureDomain::Node => device.node.to_string(),
        FailureDomain::Rack => format!("{}/{}", device.zone, device.rack),
        FailureDomain::Zone => device.zone.clone(),
    }
}

/// Share of each device by its weight: domains take water to one level, and at most one member of each group.
pub fn shares(pool: &Pool, copies: usize) -> BTreeMap<StoreId, f64> {
    let (groups, devices) = (pool.groups.len() as f64, usable(pool));
    let mut weights: BTreeMap<String, f64> = BTreeMap::new();
    for device in &devices {
        *weights.entry(domain_of(device, pool.rules.failure_domain)).or_default() += device.weight as f64;
    }
    let poured = |level: f64| weights.values().map(|weight| (level * weight).min(groups)).sum::<f64>();
    let (mut low, mut high) = (0.0, groups * copies as f64 + 1.0);
    for _ in 0..200 {
        let middle = (low + high) / 2.0;
        if poured(middle) < groups * copies as f64 { low = middle } else { high = middle }
    }
    let share = |device: &&Device| {
        let weight = weights[&domain_of(device, pool.rules.failure_domain)];
        (device.store, (high * weight).min(groups) * device.weight as f64 / weight)
    };
    devices.iter().map(share).collect()
}

fn held(placement: &Placement) -> BTreeMap<StoreId, u32> {
    let mut held = BTreeMap::new();
    placement.groups.iter().flat_map(|group| &group.members).for_each(|store| *held.entry(*store).or_default() += 1);
    held
}

/// Every group is whole, on usable devices, and in as many failure domains as it has members.
pub fn rules_are_kept(pool: &Pool, placement: &Placement) {
    let domains: BTreeMap<StoreId, String> =
        usable(pool).iter().map(|device| (device.store, domain_of(device, pool.rules.failure_domain))).collect();
    for group in &placement.groups {
        assert_eq!(group.members.len(), placement.copies, "{group:?}");
        let seen: BTreeSet<&String> =
            group.members.iter().map(|store| domains.get(store).expect("a usable device")).collect();
        assert_eq!(seen.len(), placement.copies, "{group:?} has two members in one {}", pool.rules.failure_domain);
    }
}

/// Each device holds its share, to 5 % or one group.
pub fn is_balanced(pool: &Pool, placement: &Placement) {
    let (shares, held) = (shares(pool, placement.copies), held(placement));
    for (store, due) in &shares {
        let held = f64::from(held.get(store).copied().unwrap_or(0));
        assert!((held - due).abs() <= (due * 0.05).max(1.0) + 1e-6, "device {store} holds {held} groups of {due}");
    }
    for told in &placement.shares {
        assert!((told.due - shares[&told.store]).abs() < 1e-3, "{told:?} is due {}", shares[&told.store]);
        assert_eq!(told.held, held.get(&told.store).copied().unwrap_or(0));
    }
}

/// Each device leads its part of what it holds, rounded up or down.
pub fn is_led_evenly(placement: &Placement) {
    let (held, copies) = (held(placement), placement.copies as u32);
    let mut led: BTreeMap<StoreId, u32> = BTreeMap::new();
    placement.groups.iter().for_each(|group| *led.entry(group.members[0]).or_default() += 1);
    for (store, held) in held {
        let led = led.get(&store).copied().unwrap_or(0);
        let part = held / copies..=held.div_ceil(copies);
        assert!(part.contains(&led), "device {store} leads {led} of {held} groups of {copies} members");
    }
}

/// Whether a failure domain is in nearly every group, or a domain or device, much heavier than the others, in every
/// second one: then most places beside anybody else are its.
pub fn is_tight(pool: &Pool, placement: &Placement) -> bool {
    let domains = usable(pool).into_iter().map(|device| (device.store, domain_of(device, pool.rules.failure_domain)));
    let domains: BTreeMap<StoreId, String> = domains.collect();
    let mut due: BTreeMap<&String, f64> = BTreeMap::new();
    placement.shares.iter().for_each(|share| *due.entry(&domains[&share.store]).or_default() += share.due);
    let (groups, count) = (pool.groups.len() as f64, due.len());
    let mean_of = |count: usize| groups * placement.copies as f64 / count as f64;
    let is_heavy = |due: f64, mean: f64| due > f64::max(0.5 * groups, 2.0 * mean);
    due.values().any(|&due| due > 0.8 * groups || is_heavy(due, mean_of(count)))
        || placement.shares.iter().any(|share| is_heavy(share.due, mean_of(placement.shares.len())))
}

/// Each device has as many partners as it should, where that can be: 20, or all devices outside of its domain that have
/// places for so many, or half as many as there are places beside it in its groups. Not where a domain is in every
/// group: it takes one of these places each time. In a pool that has changed up to a tenth may be missing: few moves
/// come first.
pub fn has_partners(pool: &Pool, placement: &Placement, is_new: bool) {
    if is_tight(pool, placement) {
        return;
    }
    let mut partners: BTreeMap<StoreId, BTreeSet<StoreId>> = BTreeMap::new();
    for group in &placement.groups {
        for store in &group.members {
            let others = group.members.iter().filter(|other| *other != store);
            partners.entry(*store).or_default().extend(others);
        }
    }
    let (held, devices) = (held(placement), usable(pool));
    for device in &devices {
        let domain = domain_of(device, pool.rules.failure_domain);
        let places = |store| held.get(store).copied().unwrap_or(0) * (placement.copies as u32 - 1) / 2;
        let outside = devices.iter().filter(|other| domain_of(other, pool.rules.failure_domain) != domain);
        let possible = PARTNERS_MIN.min(outside.clone().count() as u32);
        let roomy = outside.filter(|other| places(&other.store) >= possible).count() as u32;
        let least = PARTNERS_MIN.min(roomy).min(places(&device.store));
        let least = if is_new { least } else { least * 9 / 10 };
        let held = held.get(&device.store).copied().unwrap_or(0);
        let has = partners.get(&device.store).map_or(0, BTreeSet::len) as u32;
        assert!(has >= least, "device {} has {has} partners of {least}, with {held} groups", device.store);
    }
}

/// The fewest copies with which anybody could come from `before` to even shares: all that lies where it may not stay or
/// where it is too much, and all that is too little.
pub fn fewest_copies(pool: &Pool, before: &[Group], copies: usize) -> f64 {
    let (shares, mut kept) = (shares(pool, copies), BTreeMap::<StoreId, f64>::new());
    let mut gone = 0.0;
    for store in before.iter().flat_map(|group| &group.members) {
        if shares.contains_key(store) { *kept.entry(*store).or_default() += 1.0 } else { gone += 1.0 }
    }
    let (mut above, mut below) = (0.0, 0.0);
    for (store, due) in &shares {
        let kept = kept.get(store).copied().unwrap_or(0.0);
        above += (kept - (due - 1e-6).ceil()).max(0.0);
        below += ((due + 1e-6).floor() - kept).max(0.0);
    }
    f64::max(gone + above, below)
}

pub fn all(pool: &Pool, placement: &Placement) {
    has_partners(pool, placement, true);
    but_partners(pool, placement);
}

/// The same for a pool that has changed.
pub fn all_after_a_change(pool: &Pool, placement: &Placement) {
    has_partners(pool, placement, false);
    but_partners(pool, placement);
}

fn but_partners(pool: &Pool, placement: &Placement) {
    rules_are_kept(pool, placement);
    is_balanced(pool, placement);
    is_led_evenly(placement);
}
