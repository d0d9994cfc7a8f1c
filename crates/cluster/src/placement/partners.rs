//! Many partners: what a device held is copied from many others to many others when it is lost.

use super::tally::{Full, Tally};

/// Devices that each device shares a group with at least, where rules and numbers allow it.
pub const PARTNERS_MIN: u32 = 20;
/// Of the copies that have to be made anyway, so many more (1 of 10) may be made for partners.
const PRICE: usize = 10;

/// So many pairs of places are looked at, by all devices and by each of them evenly: where rules leave little room most
/// of it is in vain.
const LOOKS_MAX: usize = 50_000_000;

/// Lets devices with few partners change places with others: all hold as many groups as before. First where that costs
/// nothing, then at a small part of what is copied anyway: where nothing changes, nothing moves.
pub(super) fn spread(tally: &mut Tally) {
    let is_new = |group: usize, tally: &Tally| {
        tally.groups[group].members.iter().filter(|&&device| tally.is_new(group, device)).count()
    };
    let mut budget = ((0..tally.groups.len()).map(|group| is_new(group, tally)).sum::<usize>() / PRICE) as i32;
    let mut looks = LOOKS_MAX;
    for price in [0, 1, 2] {
        for device in 0..tally.count.len() as u16 {
            while tally.partners[device as usize] < possible(tally, device) && price <= budget {
                let mut own = looks.min(LOOKS_MAX / tally.count.len());
                looks -= own;
                let spent = change_places(tally, device, price, &mut own);
                looks += own;
                let Some(spent) = spent else { break };
                budget -= spent;
            }
        }
    }
}

/// Partners that the device could have: no more than there are devices outside of its domain, nor than the places
/// beside it in its groups, of which a domain that is in every group takes one each time.
fn possible(tally: &Tally, device: u16) -> u32 {
    let (count, domain) = (tally.count[device as usize], tally.world.domain[device as usize] as usize);
    let of_domain = tally.world.of_domain[domain].len() as u32;
    let outside = tally.count.len() as u32 - of_domain;
    let mut full = tally.full;
    if tally.is_full[domain] {
        full = Full { domains: full.domains - 1, devices: full.devices - of_domain };
    }
    let open = (tally.world.copies as u32 - 1).saturating_sub(full.domains);
    PARTNERS_MIN.min(outside).min(full.devices.min(count * full.domains) + count * open)
}

/// Brings `device` and one that shares no group with it together: two members of two groups change places, at the price
/// of so many copies or less, and fewer partners are missing then than before. What it cost.
fn change_places(tally: &mut Tally, device: u16, price: i32, looks: &mut usize) -> Option<i32> {
    let strangers: Vec<u16> = (0..tally.count.len() as u16)
        .filter(|&other| tally.shared(device, other) == 0)
        .filter(|&other| tally.world.domain[device as usize] != tally.world.domain[other as usize])
        .collect();
    let groups_of = |device: u16| tally.of_device[device as usize].iter().map(|&group| group as usize);
    for stranger in strangers {
        for here in groups_of(device) {
            // Either the stranger comes here for somebody, or the device goes there for somebody.
            for &goes in &tally.groups[here].members {
                for there in groups_of(stranger) {
                    *looks = looks.checked_sub(1)?;
                    let cost = |comes: u16| tally.cost(here, goes, comes) + tally.cost(there, comes, goes);
                    let comes = tally.groups[there].members.iter().copied().find(|&comes| {
                        (goes == device) != (comes == stranger)
                            && cost(comes) <= price
                            && tally.fits(here, comes, Some(goes))
                            && tally.fits(there, goes, Some(comes))
                            && missing_then(tally, (here, goes), (there, comes)) < 0
                    });
                    if let Some(comes) = comes {
                        let cost = cost(comes);
                        tally.replace(here, goes, comes);
                        tally.replace(there, comes, goes);
                        return Some(cost);
                    }
                }
            }
        }
    }
    None
}

/// How many more partners are missing if these two members of two groups change places; negative: fewer.
fn missing_then(tally: &Tally, one: (usize, u16), other: (usize, u16)) -> i32 {
    let ((here, goes), (there, comes)) = (one, other);
    // Who is in both groups stays with both.
    let beside = |group: usize, device: u16, not_in: usize| {
        let members = tally.groups[group].members.iter().copied();
        members.filter(move |&other| other != device && !tally.groups[not_in].members.contains(&other))
    };
    let (left, found) = ([0, 0], [0, 0]);
    let (mut left, mut found, mut missing) = (left, found, 0);
    for (side, (group, goes, comes, not_in)) in
        [(here, goes, comes, there), (there, comes, goes, here)].into_iter().enumerate()
    {
        for device in beside(group, goes, not_in) {
            let (is_left, is_found) = (tally.shared(device, goes) == 1, tally.shared(device, comes) == 0);
            missing += missing_by(tally, device, i32::from(is_found) - i32::from(is_left));
            left[side] += i32::from(is_left);
            found[1 - side] += i32::from(is_found);
        }
    }
    missing + missing_by(tally, goes, found[0] - left[0]) + missing_by(tally, comes, found[1] - left[1])
}

/// How many more partners the device lacks if it has so many more.
fn missing_by(tally: &Tally, device: u16, more: i32) -> i32 {
    let lacks = possible(tally, device) as i32 - tally.partners[device as usize] as i32;
    (lacks - more).max(0) - lacks.max(0)
}

/// Partners that somebody needs and that would be lost if the member left the group.
pub(super) fn lost(tally: &Tally, group: usize, device: u16) -> usize {
    let has_spare = |device: u16| tally.partners[device as usize] > possible(tally, device);
    let is_lost = |&&other: &&u16| {
        other != device && tally.shared(device, other) == 1 && !(has_spare(device) && has_spare(other))
    };
    tally.groups[group].members.iter().filter(is_lost).count()
}
