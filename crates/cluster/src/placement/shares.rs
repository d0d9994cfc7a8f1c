//! What each device is to hold.
//!
//! All memberships are shared out by weight; but a failure domain holds at most one member of each group. One that
//! would get more by its weight is in every group, and the others share what is left: the largest even share that rules
//! allow.

use super::world::World;
use std::cmp::Ordering;

/// A share as a fraction: no rounding before the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fraction {
    above: u128,
    below: u128,
}

impl Fraction {
    fn floor(self) -> u32 {
        (self.above / self.below) as u32
    }
    fn has_rest(self) -> bool {
        !self.above.is_multiple_of(self.below)
    }
    pub(super) fn value(self) -> f64 {
        self.above as f64 / self.below as f64
    }
    /// By what is left over when it is rounded down.
    fn compare_rest(self, other: Self) -> Ordering {
        (self.above % self.below * other.below).cmp(&(other.above % other.below * self.below))
    }
}

/// The shares of all devices.
pub(super) struct Shares {
    pub(super) of_device: Vec<Fraction>,
    of_domain: Vec<Fraction>,
    pub(super) is_saturated: Vec<bool>,
    memberships: u32,
}

impl Shares {
    /// What the devices of a node are to hold.
    pub(super) fn of_node(&self, world: &World, node: usize) -> f64 {
        world.of_node[node].iter().map(|&d| self.of_device[d as usize].value()).sum()
    }
}

pub(super) fn shares(world: &World, groups: usize) -> Shares {
    let groups = groups as u128;
    let weights: Vec<u128> =
        world.of_domain.iter().map(|list| list.iter().map(|&d| u128::from(world.weight[d as usize])).sum()).collect();
    let mut is_saturated = vec![false; weights.len()];
    let (mut left, mut weight) = (groups * world.copies as u128, weights.iter().sum::<u128>());
    // Who is full at one level of the water is so at every higher one; each turn finds one at least, or is the last.
    loop {
        let over: Vec<usize> =
            (0..weights.len()).filter(|&at| !is_saturated[at] && weights[at] * left > groups * weight).collect();
        if over.is_empty() {
            break;
        }
        for at in over {
            is_saturated[at] = true;
            left -= groups;
            weight -= weights[at];
        }
    }
    let share = |domain: usize, part: u128| match is_saturated[domain] {
        true => Fraction { above: groups * part, below: weights[domain] },
        false => Fraction { above: left * part, below: weight },
    };
    let of_device = world.domain.iter().zip(&world.weight).map(|(&at, &weight)| share(at as usize, weight.into()));
    Shares {
        of_device: of_device.collect(),
        of_domain: weights.iter().enumerate().map(|(at, &weight)| share(at, weight)).collect(),
        is_saturated,
        memberships: groups as u32 * world.copies as u32,
    }
}

/// What a device may hold before anything is moved for its share's sake.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) least: u32,
    pub(super) most: u32,
    /// Its share, rounded down and up.
    pub(super) down: u32,
    pub(super) up: u32,
}

/// A twentieth of the share, or one group, to both sides; and its target, where node sets leave no choice.
pub(super) fn limits(shares: &Shares, targets: &[u32]) -> Vec<Limits> {
    let limits = |(share, &target): (&Fraction, &u32)| {
        let Fraction { above, below } = *share;
        let (a_twentieth_less, one_less) = ((above * 19).div_ceil(below * 20), above.div_ceil(below).saturating_sub(1));
        let (a_twentieth_more, one_more) = (above * 21 / (below * 20), above / below + 1);
        Limits {
            least: target.min(a_twentieth_less.min(one_less) as u32),
            most: target.max(a_twentieth_more.max(one_more) as u32),
            down: target.min(share.floor()),
            up: target.max(above.div_ceil(below) as u32),
        }
    };
    shares.of_device.iter().zip(targets).map(limits).collect()
}

/// Shares in whole groups: each rounded up or down, so that no domain gets more than one member of each group, and so
/// that as much as possible of what is `kept` may stay.
pub(super) fn targets(world: &World, shares: &Shares, kept: &[u32]) -> Vec<u32> {
    let kept_in = |list: &Vec<u16>| list.iter().map(|&d| kept[d as usize]).sum();
    let kept_by_domain: Vec<u32> = world.of_domain.iter().map(kept_in).collect();
    let domains = round(&shares.of_domain, &kept_by_domain, shares.memberships);
    let mut targets = vec![0; kept.len()];
    for (list, due) in world.of_domain.iter().zip(domains) {
        let fractions: Vec<Fraction> = list.iter().map(|&d| shares.of_device[d as usize]).collect();
        let kept: Vec<u32> = list.iter().map(|&d| kept[d as usize]).collect();
        for (&device, target) in list.iter().zip(round(&fractions, &kept, due)) {
            targets[device as usize] = target;
        }
    }
    targets
}

/// Rounds all, to a sum of `total`: up first where more is kept than that, then where most is lost.
fn round(shares: &[Fraction], kept: &[u32], total: u32) -> Vec<u32> {
    let mut rounded: Vec<u32> = shares.iter().map(|share| share.floor()).collect();
    let mut order: Vec<usize> = (0..shares.len()).filter(|&at| shares[at].has_rest()).collect();
    order.sort_by(|&a, &b| {
        let keeps_more = |at: usize| kept[at] > rounded[at];
        keeps_more(b).cmp(&keeps_more(a)).then(shares[b].compare_rest(shares[a]))
    });
    let left = total - rounded.iter().sum::<u32>();
    assert!(left as usize <= order.len(), "{left} of {total} memberships are in no share");
    order.iter().take(left as usize).for_each(|&at| rounded[at] += 1);
    rounded
}
