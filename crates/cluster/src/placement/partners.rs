//! Many partners: what a device held is copied from many others to many others when it is lost.

use super::tally::Tally;

/// Devices that each device shares a group with at least, where rules and numbers allow it.
pub const PARTNERS_MIN: u32 = 20;

/// Lets devices with few partners change places with others: both hold as many groups as before, and what was kept stays.
pub(super) fn spread(tally: &mut Tally) {
    for device in 0..tally.count.len() as u16 {
        while tally.partners(device) < possible(tally, device) {
            if !change_places(tally, device) {
                break;
            }
        }
    }
}

/// Partners that the device could have: no more than there are devices outside of its domain, nor than the places beside it in
/// its groups.
fn possible(tally: &Tally, device: u16) -> u32 {
    let domain = tally.world.domain[device as usize] as usize;
    let outside = tally.count.len() - tally.world.of_domain[domain].len();
    let places = tally.count[device as usize] * (tally.world.copies as u32 - 1);
    PARTNERS_MIN.min(outside as u32).min(places)
}

/// A device that shares no group with `device` changes places with one that shares several, if neither costs a move and
/// neither loses a partner by it.
fn change_places(tally: &mut Tally, device: u16) -> bool {
    let strangers = (0..tally.count.len() as u16).filter(|&other| {
        other != device
            && tally.shared(device, other) == 0
            && tally.world.domain[device as usize] != tally.world.domain[other as usize]
    });
    for stranger in strangers.collect::<Vec<_>>() {
        for &here in &tally.of_device[device as usize] {
            let here = here as usize;
            for &crowded in &tally.groups[here].members {
                let is_spare = crowded != device && tally.shared(device, crowded) > 1 && tally.is_new(here, crowded);
                if !is_spare || !tally.fits(here, stranger, Some(crowded)) {
                    continue;
                }
                let elsewhere = tally.of_device[stranger as usize].iter().map(|&group| group as usize);
                let exchange = elsewhere.into_iter().find(|&there| {
                    let others = &tally.groups[there].members;
                    tally.is_new(there, stranger)
                        && tally.fits(there, crowded, Some(stranger))
                        && others.iter().all(|&other| other == stranger || tally.shared(stranger, other) > 1)
                });
                if let Some(there) = exchange {
                    tally.replace(here, crowded, stranger);
                    tally.replace(there, stranger, crowded);
                    return true;
                }
            }
        }
    }
    false
}
