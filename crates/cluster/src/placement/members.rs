//! Who holds what: first all that is missing, then from those with too much to those with too little.

use super::partners;
use super::shares::Limits;
use super::tally::Tally;
use std::collections::VecDeque;

/// A way through others is looked for in so many turns per device at most: what is found then is not the best, perhaps.
const TURNS_PER_DEVICE_MAX: usize = 8;
/// And in so many steps, each a look at one group for one device.
const STEPS_MAX: usize = 20_000_000;
/// After so many ways that were not found no more are looked for.
const MISSES_MAX: usize = 32;

/// Gives each group the members it lacks. Groups of a node set come first, as they have least choice.
pub(super) fn fill(tally: &mut Tally) {
    let copies = tally.world.copies;
    let mut short: Vec<usize> = (0..tally.groups.len()).filter(|&at| tally.groups[at].members.len() < copies).collect();
    short.sort_by_key(|&at| (tally.groups[at].set.is_none(), copies - tally.groups[at].members.len()));
    let mut room: Vec<u32> = vec![0; tally.world.of_domain.len()];
    for (device, &domain) in tally.world.domain.iter().enumerate() {
        room[domain as usize] += tally.target[device].saturating_sub(tally.count[device]);
    }
    for (done, &group) in short.iter().enumerate() {
        let left = (short.len() - done) as u32;
        while tally.groups[group].members.len() < copies {
            let Some(device) = pick(tally, &room, left, group) else { break };
            let domain = tally.world.domain[device as usize];
            room[domain as usize] = room[domain as usize].saturating_sub(u32::from(tally.excess(device) < 0));
            tally.add(group, device);
        }
    }
}

/// The next member of a group: one whose domain must be in every group that is left; else who is least filled, shares
/// the fewest groups with the members there are, and last by turns.
fn pick(tally: &Tally, room: &[u32], left: u32, group: usize) -> Option<u16> {
    let devices = tally.count.len();
    let offset = devices - group * 7 % devices;
    let mut best: Option<(_, u32, u64, usize, u16)> = None;
    for at in 0..devices {
        let (count, target) = (tally.count[at], tally.target[at]);
        let must = room[tally.world.domain[at] as usize] >= left;
        let over = count.saturating_sub(target);
        // A hundred thousand times a thousand of these are asked: what is cheap first.
        let first = (count >= target, !must, if count >= target { over } else { tally.pace[at] });
        if best.is_some_and(|(rank, ..)| rank < first) || !tally.fits(group, at as u16, None) {
            continue;
        }
        let leads = if tally.is_at_home(group, at as u16) { tally.home_part(at as u16) } else { 0 };
        let next = (first, leads, tally.crowd(group, at as u16, None), (at + offset) % devices, at as u16);
        if best.is_none_or(|best| next < best) {
            best = Some(next);
        }
    }
    best.map(|(.., device)| device)
}

/// Moves memberships from devices that have too much to devices that have too little: at the least cost first; what is
/// left then as if everything had been where it is now, so that who asks again finds nothing better. Who is within its
/// limits gives and takes for others' sake alone: for a few groups more or less nothing is copied.
pub(super) fn even_out(tally: &mut Tally, limits: &[Limits]) {
    even_out_once(tally, limits);
    if is_off(tally, limits) {
        let kept: Vec<Vec<u16>> = tally.groups.iter().map(|group| group.kept.clone()).collect();
        tally.groups.iter_mut().for_each(|group| group.kept.clone_from(&group.members));
        even_out_once(tally, limits);
        tally.groups.iter_mut().zip(kept).for_each(|(group, kept)| group.kept = kept);
    }
}

fn is_off(tally: &Tally, limits: &[Limits]) -> bool {
    tally.count.iter().zip(limits).any(|(count, limits)| !(limits.least..=limits.most).contains(count))
}

fn even_out_once(tally: &mut Tally, limits: &[Limits]) {
    let lacks: Vec<bool> = tally.count.iter().zip(limits).map(|(&count, limits)| count < limits.least).collect();
    fill_up(tally, limits, lacks);
    for from in 0..tally.count.len() as u16 {
        if tally.count[from as usize] > limits[from as usize].most {
            while tally.excess(from) > 0 && give_one(tally, from) {}
        }
    }
    if is_off(tally, limits) {
        fill_up(tally, limits, vec![true; limits.len()]);
    }
}

/// Fills these devices up to their targets.
fn fill_up(tally: &mut Tally, limits: &[Limits], mut takes: Vec<bool>) {
    let mut misses = 0;
    loop {
        let below = below_target(tally).into_iter().find(|&device| takes[device as usize]);
        let Some(to) = below else { return };
        if take_one(tally, to, limits) {
            continue;
        }
        let is_found = misses < MISSES_MAX && take_through_others(tally, to);
        misses += usize::from(!is_found);
        takes[to as usize] = is_found;
    }
}

/// Who lacks most of what is its own comes first: so all fill alike.
fn below_target(tally: &Tally) -> Vec<u16> {
    let lack = |device: u16| tally.excess(device) * 1024 / i64::from(tally.target[device as usize].max(1));
    let mut below: Vec<u16> = (0..tally.count.len() as u16).filter(|&device| tally.excess(device) < 0).collect();
    below.sort_by_key(|&device| (lack(device), device));
    below
}

fn give_one(tally: &mut Tally, from: u16) -> bool {
    for to in below_target(tally) {
        if let Some(group) = best_group(tally, from, to) {
            tally.replace(group, from, to);
            return true;
        }
    }
    false
}

/// One group of the device that has most too many, if one of its groups may go to `to`; else of the next, down to those
/// that have as many as they should, or a few less.
fn take_one(tally: &mut Tally, to: u16, limits: &[Limits]) -> bool {
    let devices = tally.count.len() as u16;
    let may_give = |device: u16| {
        let (count, target) = (tally.count[device as usize], tally.target[device as usize]);
        device != to && (count > target || (count > limits[device as usize].least && takes_more(tally, to, device)))
    };
    let mut givers: Vec<u16> = (0..devices).filter(|&device| may_give(device)).collect();
    givers.sort_by_key(|&device| (-tally.excess(device), device));
    for from in givers {
        if let Some(group) = best_group(tally, from, to) {
            tally.replace(group, from, to);
            return true;
        }
    }
    false
}

/// Whether `to` lacks more of its share than `from` would then: else the two would take turns.
fn takes_more(tally: &Tally, to: u16, from: u16) -> bool {
    let part = |count: u32, device: u16| u64::from(count) * 4096 / u64::from(tally.target[device as usize].max(1));
    part(tally.count[to as usize] + 1, to) <= part(tally.count[from as usize].saturating_sub(1), from)
}

/// The group that `from` best hands to `to`: where that costs least; then where nobody loses a partner that it needs;
/// then where `to` shares least with the others.
fn best_group(tally: &Tally, from: u16, to: u16) -> Option<usize> {
    let groups = tally.of_device[from as usize].iter().map(|&group| group as usize);
    let possible = groups.filter(|&group| tally.fits(group, to, Some(from)));
    possible.min_by_key(|&group| {
        // Between two devices at home, one that leads many gives a group that it leads, one that leads few another.
        let has_many = tally.home_part(from) > tally.home_part(to);
        let leads_wrong = tally.world.node[from as usize] == tally.world.node[to as usize]
            && tally.is_at_home(group, from) != has_many;
        let lost = partners::lost(tally, group, from);
        (tally.cost(group, from, to), leads_wrong, lost, tally.crowd(group, to, Some(from)), group)
    })
}

/// The same where none of them can be handed over directly: through others, each of which gives one group and takes
/// one. The way that costs the fewest copies: to take back what was handed over before costs less than nothing.
fn take_through_others(tally: &mut Tally, to: u16) -> bool {
    let devices = tally.count.len();
    let mut came: Vec<Option<(u16, usize)>> = vec![None; devices];
    let mut cost: Vec<i32> = (0..devices).map(|d| if tally.excess(d as u16) > 0 { 0 } else { i32::MAX }).collect();
    let mut queue: VecDeque<u16> = (0..devices as u16).filter(|&device| cost[device as usize] == 0).collect();
    let mut is_queued: Vec<bool> = cost.iter().map(|&cost| cost == 0).collect();
    let groups_each = (tally.groups.len() * tally.world.copies).div_ceil(devices);
    let mut turns = (TURNS_PER_DEVICE_MAX * devices).min(STEPS_MAX / (devices * groups_each)).max(1);
    while let Some(from) = queue.pop_front() {
        is_queued[from as usize] = false;
        turns -= 1;
        if turns == 0 {
            break;
        }
        for next in (0..devices as u16).filter(|&next| next != from) {
            let Some(group) = best_group(tally, from, next) else { continue };
            let reached = cost[from as usize] + tally.cost(group, from, next);
            if reached >= cost[next as usize] {
                continue;
            }
            cost[next as usize] = reached;
            came[next as usize] = Some((from, group));
            if !std::mem::replace(&mut is_queued[next as usize], true) {
                queue.push_back(next);
            }
        }
    }
    came[to as usize].is_some() && hand_on(tally, &came, to)
}

/// Hands groups along the way that was found, from its end. `false`, and nothing is changed, if one group is on it
/// twice in a way that does not fit.
fn hand_on(tally: &mut Tally, came: &[Option<(u16, usize)>], to: u16) -> bool {
    let mut done = Vec::new();
    let mut at = to;
    while let Some((from, group)) = came[at as usize] {
        let is_possible = tally.groups[group].members.contains(&from) && tally.fits(group, at, Some(from));
        if !is_possible || done.len() > came.len() {
            for (group, from, to) in done.into_iter().rev() {
                tally.replace(group, to, from);
            }
            return false;
        }
        tally.replace(group, from, at);
        done.push((group, from, at));
        at = from;
    }
    true
}
