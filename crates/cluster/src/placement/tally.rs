//! What is held by whom while groups are placed, counted as it changes.

use super::shares::Shares;
use super::world::World;
use super::{Group, NodeSet, Share};
use std::collections::BTreeMap;
use types::NodeId;

/// Steps in which devices are filled.
const PACE: u64 = 16;

/// A group, by numbers of devices.
pub(super) struct Held {
    pub(super) members: Vec<u16>,
    /// Who held it before, and may go on: leaving it there costs no move.
    pub(super) kept: Vec<u16>,
    /// Its node set.
    pub(super) set: Option<usize>,
}

/// Domains that are to be in every group, and their devices.
#[derive(Clone, Copy, Default)]
pub(super) struct Full {
    pub(super) domains: u32,
    pub(super) devices: u32,
}

pub(super) struct Tally<'a> {
    pub(super) world: &'a World,
    pub(super) groups: Vec<Held>,
    /// The nodes of each set, by number: who leads, then the others in their order.
    pub(super) sets: Vec<Vec<u32>>,
    /// Groups of each device: how many it has, which, and how many it should have.
    pub(super) count: Vec<u32>,
    pub(super) of_device: Vec<Vec<u32>>,
    pub(super) target: Vec<u32>,
    /// Of each domain, whether it is to be in every group; and all that are.
    pub(super) is_full: Vec<bool>,
    pub(super) full: Full,
    /// Groups of node sets that each leads, as the member on the node that leads.
    pub(super) homes: Vec<u32>,
    /// How far each is filled, in steps: within a step, who shares least with the others comes first.
    pub(super) pace: Vec<u32>,
    /// 2^20 / target: a device with more groups may share more.
    ease: Vec<u64>,
    /// Groups that two devices share.
    shared: Vec<u16>,
    /// Devices that each shares a group with.
    pub(super) partners: Vec<u32>,
}

impl<'a> Tally<'a> {
    /// What may stay where it is. A device that another takes the place of hands over all that it has.
    pub(super) fn new(world: &'a World, sets: &[NodeSet], groups: &[Group]) -> Self {
        let devices = world.stores.len();
        let numbers: BTreeMap<u32, usize> = sets.iter().enumerate().map(|(at, set)| (set.table, at)).collect();
        let node_numbers = |set: &NodeSet| {
            let number = |node: &NodeId| world.node_index(*node).map(|node| node as u32);
            let lead = number(&set.lead);
            let mut nodes: Vec<u32> = set.nodes.iter().filter_map(number).collect();
            nodes.sort_by_key(|&node| Some(node) != lead);
            nodes
        };
        let mut tally = Self {
            world,
            groups: Vec::with_capacity(groups.len()),
            sets: sets.iter().map(node_numbers).collect(),
            count: vec![0; devices],
            of_device: vec![Vec::new(); devices],
            target: vec![u32::MAX; devices],
            is_full: vec![false; world.of_domain.len()],
            full: Full::default(),
            homes: vec![0; devices],
            pace: vec![0; devices],
            ease: vec![0; devices],
            shared: vec![0; devices * devices],
            partners: vec![0; devices],
        };
        for group in groups {
            let set = group.table.and_then(|table| numbers.get(&table).copied());
            tally.groups.push(Held { members: Vec::new(), kept: Vec::new(), set });
            let at = tally.groups.len() - 1;
            let stay = group.members.iter().filter_map(|store| world.device(*store));
            let step_in = group.members.iter().filter_map(|store| world.instead.get(store).copied());
            for (device, is_kept) in stay.map(|device| (device, true)).chain(step_in.map(|device| (device, false))) {
                if tally.groups[at].members.len() < world.copies && tally.fits(at, device, None) {
                    tally.add(at, device);
                    if is_kept {
                        tally.groups[at].kept.push(device);
                    }
                }
            }
        }
        tally
    }

    pub(super) fn set_targets(&mut self, target: Vec<u32>) {
        self.ease = target.iter().map(|&target| (1 << 20) / u64::from(target.max(1))).collect();
        self.target = target;
        for (list, is_full) in self.world.of_domain.iter().zip(&mut self.is_full) {
            let target: u32 = list.iter().map(|&device| self.target[device as usize]).sum();
            *is_full = target as usize == self.groups.len();
            if *is_full {
                self.full.domains += 1;
                self.full.devices += list.len() as u32;
            }
        }
        (0..self.count.len()).for_each(|device| self.keep_pace(device));
    }

    fn keep_pace(&mut self, device: usize) {
        self.pace[device] = (u64::from(self.count[device]) * PACE / u64::from(self.target[device].max(1))) as u32;
    }

    pub(super) fn add(&mut self, group: usize, device: u16) {
        for at in 0..self.groups[group].members.len() {
            let other = self.groups[group].members[at];
            *self.shared_mut(device, other) += 1;
            *self.shared_mut(other, device) += 1;
            self.count_partners(device, other, 1, u32::wrapping_add);
        }
        self.groups[group].members.push(device);
        self.count[device as usize] += 1;
        self.keep_pace(device as usize);
        self.homes[device as usize] += u32::from(self.is_at_home(group, device));
        self.of_device[device as usize].push(group as u32);
    }

    pub(super) fn remove(&mut self, group: usize, device: u16) {
        self.groups[group].members.retain(|&other| other != device);
        for at in 0..self.groups[group].members.len() {
            let other = self.groups[group].members[at];
            *self.shared_mut(device, other) -= 1;
            *self.shared_mut(other, device) -= 1;
            self.count_partners(device, other, 0, u32::wrapping_sub);
        }
        self.count[device as usize] -= 1;
        self.keep_pace(device as usize);
        self.homes[device as usize] -= u32::from(self.is_at_home(group, device));
        let list = &mut self.of_device[device as usize];
        let at = list.iter().position(|&other| other == group as u32).expect("it is a member");
        list.swap_remove(at);
    }

    pub(super) fn replace(&mut self, group: usize, old: u16, new: u16) {
        self.remove(group, old);
        self.add(group, new);
    }

    fn shared_mut(&mut self, one: u16, other: u16) -> &mut u16 {
        &mut self.shared[one as usize * self.world.stores.len() + other as usize]
    }

    fn count_partners(&mut self, one: u16, other: u16, if_shared: u16, by: fn(u32, u32) -> u32) {
        if self.shared(one, other) == if_shared {
            for device in [one, other] {
                self.partners[device as usize] = by(self.partners[device as usize], 1);
            }
        }
    }

    /// Groups that both are in.
    pub(super) fn shared(&self, one: u16, other: u16) -> u16 {
        self.shared[one as usize * self.world.stores.len() + other as usize]
    }

    /// Whether the device may be a member of the group beside its others, or instead of one of them.
    pub(super) fn fits(&self, group: usize, device: u16, instead_of: Option<u16>) -> bool {
        let held = &self.groups[group];
        let domain = self.world.domain[device as usize];
        let mut others = held.members.iter().filter(|&&other| Some(other) != instead_of);
        if others.any(|&other| other == device || self.world.domain[other as usize] == domain) {
            return false;
        }
        let Some(set) = held.set else { return true };
        let node = self.world.node[device as usize];
        let room = self.sets[set].iter().filter(|&&other| other == node).count();
        let others = held.members.iter().filter(|&&other| Some(other) != instead_of);
        others.filter(|&&other| self.world.node[other as usize] == node).count() < room
    }

    /// Whether the device is on the node that leads the group's set.
    pub(super) fn is_at_home(&self, group: usize, device: u16) -> bool {
        let lead = self.groups[group].set.and_then(|set| self.sets[set].first());
        lead == Some(&self.world.node[device as usize])
    }

    /// Groups of node sets that the device leads, as a part of all that it is to hold: in 1/1024.
    pub(super) fn home_part(&self, device: u16) -> u32 {
        self.homes[device as usize] * 1024 / self.target[device as usize].max(1)
    }

    /// How far the device is above its target; negative: below.
    pub(super) fn excess(&self, device: u16) -> i64 {
        i64::from(self.count[device as usize]) - i64::from(self.target[device as usize])
    }

    /// Whether leaving the group costs the device no move, because it came only now.
    pub(super) fn is_new(&self, group: usize, device: u16) -> bool {
        !self.groups[group].kept.contains(&device)
    }

    /// What it costs in copies that one comes instead of the other: who was there before comes back for nothing.
    pub(super) fn cost(&self, group: usize, old: u16, new: u16) -> i32 {
        i32::from(self.is_new(group, new)) - i32::from(self.is_new(group, old))
    }

    /// How much of the groups of both the device shares with the members of one of them, if it came instead of `old`:
    /// the more groups two devices have, the more they may share.
    pub(super) fn crowd(&self, group: usize, device: u16, old: Option<u16>) -> u64 {
        let others = self.groups[group].members.iter().filter(|&&other| Some(other) != old);
        let crowd = |&other: &u16| u64::from(self.shared(device, other)) * self.ease[other as usize];
        others.map(crowd).sum::<u64>() * self.ease[device as usize]
    }

    /// What is told of each device.
    pub(super) fn told(&self, shares: &Shares, order: &[Vec<u16>]) -> Vec<Share> {
        let mut led = vec![0; self.count.len()];
        order.iter().filter_map(|members| members.first()).for_each(|&device| led[device as usize] += 1);
        let share = |device: usize| Share {
            store: self.world.stores[device],
            due: shares.of_device[device].value(),
            held: self.count[device],
            led: led[device],
            partners: self.partners[device],
            is_saturated: shares.is_saturated[self.world.domain[device] as usize],
        };
        (0..self.count.len()).map(share).collect()
    }
}
