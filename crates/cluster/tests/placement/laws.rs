//! What holds of every placement, reckoned anew and otherwise than the code under test does.

use crate::clusters::Pool;
use crate::dealt::Dealt;
use cluster::FailureDomain;
use cluster::placement::{Device, Duty, Group, PARTNERS_MIN, Placement};
use std::collections::{BTreeMap, BTreeSet};
use types::StoreId;

fn usable(pool: &Pool) -> Vec<&Device> {
    let of_class = |device: &Device| pool.rules.class.is_empty() || device.class == pool.rules.class;
    pool.devices.iter().filter(|device| device.duty == Duty::In && device.weight > 0 && of_class(device)).collect()
}

fn domain_of(device: &Device, domain: FailureDomain) -> String {
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

/// The failure domain of each device that may hold something.
pub fn domains(pool: &Pool) -> BTreeMap<StoreId, String> {
    usable(pool).iter().map(|device| (device.store, domain_of(device, pool.rules.failure_domain))).collect()
}

/// Every group is whole, on usable devices, all of the pool's class, and in as many failure domains as it has members.
pub fn rules_are_kept(pool: &Pool, placement: &Placement) {
    let domains = domains(pool);
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

/// Each device has 20 partners, or all devices outside of its domain. Of these each counts as what it can be: half of
/// the groups that the two would share if groups were dealt by what each holds, and at most one.
pub fn has_partners(pool: &Pool, placement: &Placement) {
    let lacking = lacking_partners(pool, placement);
    assert!(lacking.is_empty(), "{lacking:?}");
}

/// Those that have fewer partners than they should: how many they have, and should have.
pub fn lacking_partners(pool: &Pool, placement: &Placement) -> Vec<(StoreId, usize, usize)> {
    let mut partners: BTreeMap<StoreId, BTreeSet<StoreId>> = BTreeMap::new();
    for group in &placement.groups {
        for store in &group.members {
            partners.entry(*store).or_default().extend(group.members.iter().filter(|other| *other != store));
        }
    }
    let has = |store: &StoreId| partners.get(store).map_or(0, BTreeSet::len);
    placement.shares.iter().for_each(|share| assert_eq!(share.partners as usize, has(&share.store)));
    let domains = domains(pool);
    let is_outside = |store: &StoreId, other: &StoreId| domains[store] != domains[other];
    let most =
        |store: &StoreId| (PARTNERS_MIN as usize).min(domains.keys().filter(|other| is_outside(store, other)).count());
    // What could be takes long to reckon, and is asked for few.
    let short: Vec<&StoreId> = domains.keys().filter(|store| has(store) < most(store)).collect();
    if short.is_empty() {
        return Vec::new();
    }
    let dealt = Dealt::new(&domains, placement);
    let can_be = |store: &StoreId| {
        let others = domains.keys().filter(|other| is_outside(store, other));
        others.map(|other| (dealt.shared(*store, *other) / 2.0).min(1.0)).sum::<f64>()
    };
    let least = |store: &StoreId| most(store).min((can_be(store) + 1e-3) as usize);
    short.into_iter().map(|store| (*store, has(store), least(store))).filter(|(_, has, least)| has < least).collect()
}

/// The fewest copies with which anybody could come from `before` to even shares: all that lies where it may not stay or
/// where it is too much, and all that is too little. Where rules leave little room even [`crate::minimum`] is more.
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
    has_partners(pool, placement);
    but_partners(pool, placement);
}

pub fn but_partners(pool: &Pool, placement: &Placement) {
    rules_are_kept(pool, placement);
    is_balanced(pool, placement);
    is_led_evenly(placement);
}
