//! Who holds what: first all that is missing, then from those with too much to those with too little.

use super::partners;
use super::shares::Limits;
use super::tally::Tally;
use std::collections::VecDeque;

/// A way through others is looked for in so many turns per device at most: what is found then is not the best, perhaps.
const TURNS_PER_DEVICE_MAX: usize = 8;
/// On a way through others a copy costs as much as more steps than there can be.
const COPY_COST: i32 = 1 << 16;
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

/// Moves memberships from devices that have too much to devices that have too little, and makes as few copies for it as
/// there can be. Who is within its limits gives and takes for others' sake alone: for a few groups more or less nothing
/// is copied.
pub(super) fn even_out(tally: &mut Tally, limits: &[Limits]) {
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
    save_copies(tally, limits);
}

fn is_off(tally: &Tally, limits: &[Limits]) -> bool {
    tally.count.iter().zip(limits).any(|(count, limits)| !(limits.least..=limits.most).contains(count))
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
/// one.
fn take_through_others(tally: &mut Tally, to: u16) -> bool {
    let devices = 0..tally.count.len() as u16;
    let have_too_much: Vec<u16> = devices.filter(|&device| tally.excess(device) > 0).collect();
    way(tally, &have_too_much, |device| device == to).is_some_and(|(way, _)| hand_on(tally, &way))
}

/// Lets devices change places as long as that saves copies: each holds as many groups as before, or its share rounded
/// the other way, and more of those that it had.
fn save_copies(tally: &mut Tally, limits: &[Limits]) {
    let all: Vec<u16> = (0..tally.count.len() as u16).collect();
    while lost_needlessly(tally) > 0 {
        let count = |device: u16| tally.count[device as usize];
        let gives = |device: &u16| count(*device) > limits[*device as usize].down;
        let takes = |device: u16| count(device) < limits[device as usize].up;
        let givers: Vec<u16> = all.iter().copied().filter(gives).collect();
        let found = way(tally, &all, |_| false).or_else(|| way(tally, &givers, takes));
        let saves = found.filter(|(_, cost)| *cost < 0);
        if !saves.is_some_and(|(way, _)| hand_on(tally, &way)) {
            return;
        }
    }
}

/// Groups that devices held and hold no more, beyond those that they must have lost to hold no more than they do.
fn lost_needlessly(tally: &Tally) -> u32 {
    let mut kept = vec![0u32; tally.count.len()];
    let mut lost = 0;
    for group in &tally.groups {
        group.kept.iter().for_each(|&device| kept[device as usize] += 1);
        lost += group.kept.iter().filter(|device| !group.members.contains(device)).count() as u32;
    }
    lost - kept.iter().zip(&tally.count).map(|(kept, count)| kept.saturating_sub(*count)).sum::<u32>()
}

/// What it costs in copies at least that `from` hands a group to `to`, and which.
fn cheapest_group(tally: &Tally, from: u16, to: u16) -> Option<(i32, usize)> {
    let mut best: Option<(i32, usize)> = None;
    for group in tally.of_device[from as usize].iter().map(|&group| group as usize) {
        let cost = tally.cost(group, from, to);
        if best.is_none_or(|best| (cost, group) < best) && tally.fits(group, to, Some(from)) {
            best = Some((cost, group));
        }
    }
    best
}

/// From a device, the group that it gives, and who takes it.
type HandOver = (u16, usize, u16);

/// The way from one of `starts` to an end that costs the fewest copies, from its end, and its cost: to take back what
/// was handed over before costs less than nothing. Where a circle costs less than nothing it is that instead. Of ways
/// that cost the same the shortest: no two of its steps are in each other's way, as what is between them could be left
/// out.
fn way(tally: &Tally, starts: &[u16], is_end: impl Fn(u16) -> bool) -> Option<(Vec<HandOver>, i32)> {
    let devices = tally.count.len();
    let mut came: Vec<Option<(u16, usize)>> = vec![None; devices];
    let mut cost = vec![i32::MAX; devices];
    starts.iter().for_each(|&device| cost[device as usize] = 0);
    let mut queue = VecDeque::from_iter(starts.iter().copied());
    let mut is_queued: Vec<bool> = cost.iter().map(|&cost| cost == 0).collect();
    let groups_each = (tally.groups.len() * tally.world.copies).div_ceil(devices);
    let turns = (TURNS_PER_DEVICE_MAX * devices).min(STEPS_MAX / (devices * groups_each)).max(1);
    for _ in 0..turns {
        let Some(from) = queue.pop_front() else { break };
        is_queued[from as usize] = false;
        for next in (0..devices as u16).filter(|&next| next != from) {
            let Some((step, group)) = cheapest_group(tally, from, next) else { continue };
            let reached = cost[from as usize] + COPY_COST * step + 1;
            if reached >= cost[next as usize] {
                continue;
            }
            cost[next as usize] = reached;
            came[next as usize] = Some((from, group));
            let back = back(&came, next);
            if back.last().is_some_and(|(first, ..)| *first == next) {
                return Some((back, -1));
            }
            if !std::mem::replace(&mut is_queued[next as usize], true) {
                queue.push_back(next);
            }
        }
    }
    let ends = (0..devices as u16).filter(|&device| came[device as usize].is_some() && is_end(device));
    let end = ends.min_by_key(|&device| (cost[device as usize], device))?;
    Some((back(&came, end), cost[end as usize]))
}

/// The steps that lead to `end`, the last one first; or once around, if they lead from there, too.
fn back(came: &[Option<(u16, usize)>], end: u16) -> Vec<HandOver> {
    let mut steps = Vec::new();
    let mut at = end;
    while let Some((from, group)) = came[at as usize] {
        steps.push((from, group, at));
        at = from;
        if at == end {
            break;
        }
    }
    steps
}

/// Hands groups along the way, from its end. `false`, and nothing is changed, if one group is on it twice in a way that
/// does not fit.
fn hand_on(tally: &mut Tally, way: &[HandOver]) -> bool {
    for (done, &(from, group, to)) in way.iter().enumerate() {
        if !tally.groups[group].members.contains(&from) || !tally.fits(group, to, Some(from)) {
            way[..done].iter().rev().for_each(|&(from, group, to)| tally.replace(group, to, from));
            return false;
        }
        tally.replace(group, from, to);
    }
    true
}
