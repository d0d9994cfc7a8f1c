//! Many partners: what a device held is copied from many others to many others when it is lost.

use super::tally::Tally;

/// Devices that each device shares a group with at least, where rules and numbers allow it.
pub const PARTNERS_MIN: u32 = 20;
/// Of the copies that have to be made anyway, so many more (1 of 20) may be made for partners.
const PRICE: usize = 20;

/// Lets devices with few partners change places with others: all hold as many groups as before. First where that costs
/// nothing, then at a small part of what is copied anyway: where nothing changes, nothing moves.
pub(super) fn spread(tally: &mut Tally) {
    let is_new = |group: usize, tally: &Tally| {
        tally.groups[group].members.iter().filter(|&&device| tally.is_new(group, device)).count()
    };
    let mut budget = (0..tally.groups.len()).map(|group| is_new(group, tally)).sum::<usize>() / PRICE;
    for is_free in [true, false] {
        for device in 0..tally.count.len() as u16 {
            while tally.partners[device as usize] < possible(tally, device) {
                if (!is_free && budget < 2) || !change_places(tally, device, is_free) {
                    break;
                }
                budget -= if is_free { 0 } else { 2 };
            }
        }
    }
}

/// Partners that the device could have: no more than there are devices outside of its domain, nor than the places
/// beside it in its groups.
fn possible(tally: &Tally, device: u16) -> u32 {
    let domain = tally.world.domain[device as usize] as usize;
    let outside = tally.count.len() - tally.world.of_domain[domain].len();
    let places = tally.count[device as usize] * (tally.world.copies as u32 - 1);
    PARTNERS_MIN.min(outside as u32).min(places)
}

/// Brings `device` and one that shares no group with it together: two members of two groups change places, where nobody
/// loses a partner that it needs; `is_free`: and nothing is copied for it.
fn change_places(tally: &mut Tally, device: u16, is_free: bool) -> bool {
    let strangers: Vec<u16> = (0..tally.count.len() as u16)
        .filter(|&other| tally.shared(device, other) == 0)
        .filter(|&other| tally.world.domain[device as usize] != tally.world.domain[other as usize])
        .collect();
    let groups_of = |device: u16| tally.of_device[device as usize].iter().map(|&group| group as usize);
    for stranger in strangers {
        for here in groups_of(device) {
            // Either the stranger comes here for somebody, or the device goes there for somebody.
            for &goes in &tally.groups[here].members {
                if !may_go(tally, here, goes, is_free) {
                    continue;
                }
                for there in groups_of(stranger) {
                    let comes = tally.groups[there].members.iter().copied().find(|&comes| {
                        (goes == device) != (comes == stranger)
                            && may_go(tally, there, comes, is_free)
                            && tally.fits(here, comes, Some(goes))
                            && tally.fits(there, goes, Some(comes))
                    });
                    if let Some(comes) = comes {
                        tally.replace(here, goes, comes);
                        tally.replace(there, comes, goes);
                        return true;
                    }
                }
            }
        }
    }
    false
}

/// Whether the member may leave the group: it and each of the others share another one, or have partners to spare. If
/// nothing is to be copied, it came only now.
fn may_go(tally: &Tally, group: usize, device: u16, is_free: bool) -> bool {
    (!is_free || tally.is_new(group, device)) && lost(tally, group, device) == 0
}

/// Partners that somebody needs and that would be lost if the member left the group.
pub(super) fn lost(tally: &Tally, group: usize, device: u16) -> usize {
    let has_spare = |device: u16| tally.partners[device as usize] > possible(tally, device);
    let is_lost = |&&other: &&u16| {
        other != device && tally.shared(device, other) == 1 && !(has_spare(device) && has_spare(other))
    };
    tally.groups[group].members.iter().filter(is_lost).count()
}
