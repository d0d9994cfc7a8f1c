//! Who leads: of the groups that it holds each device leads its part, and groups of a node set are led from home.

use super::Group;
use super::tally::Tally;
use std::collections::VecDeque;

/// The members of each group in order: the preferred primary, then who takes over from whom.
pub(super) fn lead(tally: &Tally, groups: &[Group]) -> Vec<Vec<u16>> {
    let leaders = Leaders::new(tally, groups).balanced();
    let mut after = vec![0u32; tally.count.len()];
    let order = |(at, group): (usize, &Group)| {
        let held = &tally.groups[at];
        let mut members = held.members.clone();
        let was = |device: u16| group.members.iter().position(|store| *store == tally.world.stores[device as usize]);
        match held.set {
            // In the order of the set's nodes, so that all of its groups go the same way when one is lost.
            Some(set) => sort_by_nodes(tally, &tally.sets[set], leaders[at], &mut members),
            None => members.sort_by_key(|&device| {
                let may_lead = tally.world.may_lead[device as usize];
                (device != leaders[at], !may_lead, was(device).unwrap_or(usize::MAX), after[device as usize], device)
            }),
        }
        members.iter().skip(1).take(1).for_each(|&next| after[next as usize] += 1);
        members
    };
    groups.iter().enumerate().map(order).collect()
}

fn sort_by_nodes(tally: &Tally, nodes: &[u32], leader: u16, members: &mut [u16]) {
    let place = |device: u16| nodes.iter().position(|&node| node == tally.world.node[device as usize]);
    members.sort_by_key(|&device| {
        let may_lead = tally.world.may_lead[device as usize];
        (device != leader, !may_lead, place(device).unwrap_or(usize::MAX), device)
    });
}

struct Leaders<'a> {
    tally: &'a Tally<'a>,
    /// Of each group.
    leader: Vec<u16>,
    led: Vec<u32>,
    /// What those that may lead hold together.
    holding: u64,
}

impl<'a> Leaders<'a> {
    /// Who leads stays where that is not too much; the others go to whoever has the smallest part of its own.
    fn new(tally: &'a Tally<'a>, groups: &[Group]) -> Self {
        let count = |device: usize| if tally.world.may_lead[device] { u64::from(tally.count[device]) } else { 0 };
        let holding = (0..tally.count.len()).map(count).sum();
        let mut this = Self { tally, leader: vec![u16::MAX; groups.len()], led: vec![0; tally.count.len()], holding };
        for (at, group) in groups.iter().enumerate() {
            let was = group.members.first().and_then(|store| tally.world.device(*store));
            if let Some(home) = this.leader_of_set(at, was) {
                this.give(at, home);
            }
        }
        for (at, group) in groups.iter().enumerate() {
            let Some(was) = group.members.first().and_then(|store| tally.world.device(*store)) else { continue };
            let may_stay = this.leader[at] == u16::MAX && tally.groups[at].members.contains(&was);
            if may_stay && this.led[was as usize] < this.most(was) {
                this.give(at, was);
            }
        }
        for at in 0..groups.len() {
            if this.leader[at] == u16::MAX {
                let part = |device: u16| this.led[device as usize] * 4096 / tally.count[device as usize].max(1);
                let cannot = |device: u16| !tally.world.may_lead[device as usize];
                let members = tally.groups[at].members.iter().copied();
                let least = members.min_by_key(|&device| (cannot(device), part(device), device));
                this.give(at, least.expect("a group has a member"));
            }
        }
        this
    }

    fn give(&mut self, group: usize, device: u16) {
        if let Some(was) = self.led.get_mut(self.leader[group] as usize) {
            *was -= 1;
        }
        self.leader[group] = device;
        self.led[device as usize] += 1;
    }

    /// Of a group of a node set: the member on the node that leads; who leads now, if several are there.
    fn leader_of_set(&self, group: usize, was: Option<u16>) -> Option<u16> {
        let held = &self.tally.groups[group];
        let nodes = &self.tally.sets[held.set?];
        let rank = |device: u16| {
            let place = nodes.iter().position(|&node| node == self.tally.world.node[device as usize]);
            (!self.tally.world.may_lead[device as usize], place.unwrap_or(usize::MAX), Some(device) != was, device)
        };
        held.members.iter().copied().min_by_key(|&device| rank(device))
    }

    /// What the device is to lead, times `holding`.
    fn part(&self, device: u16) -> u64 {
        if !self.tally.world.may_lead[device as usize] {
            return 0;
        }
        u64::from(self.tally.count[device as usize]) * self.leader.len() as u64
    }

    fn least(&self, device: u16) -> u32 {
        (self.part(device) / self.holding.max(1)) as u32
    }

    fn most(&self, device: u16) -> u32 {
        self.part(device).div_ceil(self.holding.max(1)) as u32
    }

    /// Everybody leads its part of what it holds, rounded up or down, as far as homes allow.
    fn balanced(mut self) -> Vec<u16> {
        for device in 0..self.led.len() as u16 {
            while self.led[device as usize] > self.most(device) {
                if !self.hand_over(device) {
                    break;
                }
            }
        }
        for device in 0..self.led.len() as u16 {
            while self.led[device as usize] < self.least(device) {
                if !self.take_over(device) {
                    break;
                }
            }
        }
        self.leader
    }

    fn may_change(&self, group: usize) -> bool {
        self.tally.groups[group].set.is_none()
    }

    /// `device` leads one less, and somebody who may lead more leads one more; those between them as many as before.
    fn hand_over(&mut self, device: u16) -> bool {
        let mut came: Vec<Option<(u16, usize)>> = vec![None; self.led.len()];
        let mut queue = VecDeque::from([device]);
        while let Some(from) = queue.pop_front() {
            for &group in &self.tally.of_device[from as usize] {
                let group = group as usize;
                if self.leader[group] != from || !self.may_change(group) {
                    continue;
                }
                for &next in &self.tally.groups[group].members {
                    if next == device || came[next as usize].is_some() {
                        continue;
                    }
                    came[next as usize] = Some((from, group));
                    if self.led[next as usize] < self.most(next) {
                        self.walk(&came, next, device);
                        return true;
                    }
                    queue.push_back(next);
                }
            }
        }
        false
    }

    /// `device` leads one more, and somebody who leads more than he must one less.
    fn take_over(&mut self, device: u16) -> bool {
        // Who may give to whom, from the end: `came[x]` is who takes from x, and which group.
        let mut came: Vec<Option<(u16, usize)>> = vec![None; self.led.len()];
        let mut queue = VecDeque::from([device]);
        while let Some(to) = queue.pop_front() {
            for &group in &self.tally.of_device[to as usize] {
                let group = group as usize;
                let from = self.leader[group];
                if from == to || from == device || !self.may_change(group) || came[from as usize].is_some() {
                    continue;
                }
                came[from as usize] = Some((to, group));
                if self.led[from as usize] > self.least(from) {
                    let mut at = from;
                    while at != device {
                        let (to, group) = came[at as usize].expect("on the way");
                        self.give(group, to);
                        at = to;
                    }
                    return true;
                }
                queue.push_back(from);
            }
        }
        false
    }

    fn walk(&mut self, came: &[Option<(u16, usize)>], end: u16, start: u16) {
        let mut at = end;
        while at != start {
            let (from, group) = came[at as usize].expect("on the way");
            self.give(group, at);
            at = from;
        }
    }
}
