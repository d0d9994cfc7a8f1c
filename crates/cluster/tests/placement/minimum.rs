//! The fewest copies there can be, exactly: what placement is measured by where rules leave little room.

use crate::clusters::Pool;
use crate::laws;
use cluster::placement::Group;
use std::collections::BTreeMap;
use types::StoreId;

/// The fewest copies after which every group has so many members, no two of them in one domain, and every device its
/// share, rounded up or down.
///
/// A flow of least cost: from groups through their domains to devices. It begins with all that may stay and, anywhere,
/// what is missing: nobody can do with less. From there each step takes the cheapest way from a device with too much to
/// one with too little, which leaves no cheaper one behind; of ways that cost the same the shortest, as on that no two
/// steps get in each other's way.
pub fn fewest_copies(pool: &Pool, before: &[Group], copies: usize) -> usize {
    let mut flow = Flow::new(pool, before, copies);
    while flow.step() {}
    flow.copies()
}

struct Flow {
    /// Of each device.
    domain: Vec<usize>,
    least: Vec<usize>,
    most: Vec<usize>,
    count: Vec<usize>,
    /// Of each group: its members, and those that it had.
    members: Vec<Vec<usize>>,
    had: Vec<Vec<usize>>,
}

/// A step costs this much per copy, and one beside: so the shortest way comes first among those that cost the same.
const COPY: i64 = 1 << 20;

impl Flow {
    fn new(pool: &Pool, before: &[Group], copies: usize) -> Self {
        let shares = laws::shares(pool, copies);
        let number: BTreeMap<StoreId, usize> = shares.keys().copied().zip(0..).collect();
        let mut domains = BTreeMap::new();
        let mut domain = vec![0; number.len()];
        for (store, name) in laws::domains(pool) {
            let next = domains.len();
            domain[number[&store]] = *domains.entry(name).or_insert(next);
        }
        let mut flow = Self {
            least: shares.values().map(|due| (due + 1e-6).floor() as usize).collect(),
            most: shares.values().map(|due| (due - 1e-6).ceil() as usize).collect(),
            count: vec![0; domain.len()],
            members: vec![Vec::new(); before.len()],
            had: vec![Vec::new(); before.len()],
            domain,
        };
        for (at, group) in before.iter().enumerate() {
            for device in group.members.iter().filter_map(|store| number.get(store).copied()) {
                if flow.members[at].len() < copies && flow.is_free(at, device, None) {
                    flow.members[at].push(device);
                    flow.count[device] += 1;
                }
            }
            flow.had[at] = flow.members[at].clone();
        }
        for group in 0..before.len() {
            while flow.members[group].len() < copies {
                let free = (0..flow.count.len()).filter(|&device| flow.is_free(group, device, None));
                let device = free.max_by_key(|&device| flow.most[device] as i64 - flow.count[device] as i64);
                let device = device.expect("there are enough domains");
                flow.members[group].push(device);
                flow.count[device] += 1;
            }
        }
        flow
    }

    fn is_free(&self, group: usize, device: usize, instead_of: Option<usize>) -> bool {
        let mut others = self.members[group].iter().filter(|&&other| Some(other) != instead_of);
        others.all(|&other| self.domain[other] != self.domain[device])
    }

    fn copies(&self) -> usize {
        let new = |(members, had): (&Vec<usize>, &Vec<usize>)| members.iter().filter(|one| !had.contains(one)).count();
        self.members.iter().zip(&self.had).map(new).sum()
    }

    /// For each two devices what it costs that the one hands a group to the other, and which.
    fn arcs(&self) -> Vec<Vec<Option<(i64, usize)>>> {
        let devices = self.count.len();
        let mut arcs = vec![vec![None::<(i64, usize)>; devices]; devices];
        let mut taken = vec![usize::MAX; devices];
        for (group, members) in self.members.iter().enumerate() {
            members.iter().for_each(|&member| taken[self.domain[member]] = group);
            let is_new = |device: usize| i64::from(!self.had[group].contains(&device));
            for to in 0..devices {
                for &from in members {
                    if from == to || (taken[self.domain[to]] == group && self.domain[from] != self.domain[to]) {
                        continue;
                    }
                    let cost = COPY * (is_new(to) - is_new(from)) + 1;
                    if arcs[from][to].is_none_or(|(least, _)| cost < least) {
                        arcs[from][to] = Some((cost, group));
                    }
                }
            }
        }
        arcs
    }

    /// Takes one group from who has too much to who has too little. `false`: there is neither.
    fn step(&mut self) -> bool {
        let devices = self.count.len();
        let over: Vec<usize> = (0..devices).filter(|&device| self.count[device] > self.most[device]).collect();
        let under: Vec<usize> = (0..devices).filter(|&device| self.count[device] < self.least[device]).collect();
        if over.is_empty() && under.is_empty() {
            return false;
        }
        // Node `devices`: whoever has more than its least may give to whoever has less than its most, for nothing.
        let hub = devices;
        let arcs = self.arcs();
        let mut cost = vec![i64::MAX; devices + 1];
        let mut came = vec![usize::MAX; devices + 1];
        over.iter().for_each(|&device| cost[device] = 0);
        if over.is_empty() {
            cost[hub] = 0;
        }
        loop {
            let mut is_changed = false;
            let mut reach = |from: usize, to: usize, step: i64, cost: &mut Vec<i64>| {
                if cost[from] != i64::MAX && cost[from] + step < cost[to] {
                    cost[to] = cost[from] + step;
                    came[to] = from;
                    is_changed = true;
                }
            };
            for (from, arcs) in arcs.iter().enumerate() {
                for (to, arc) in arcs.iter().enumerate() {
                    if let Some((step, _)) = arc {
                        reach(from, to, *step, &mut cost);
                    }
                }
                if self.count[from] < self.most[from] {
                    reach(from, hub, 1, &mut cost);
                }
                if self.count[from] > self.least[from] {
                    reach(hub, from, 1, &mut cost);
                }
            }
            if !is_changed {
                break;
            }
        }
        let end = if under.is_empty() { hub } else { *under.iter().min_by_key(|&&one| cost[one]).expect("one") };
        assert!(cost[end] != i64::MAX, "shares can be had");
        let mut at = end;
        while came[at] != usize::MAX {
            let from = came[at];
            if from != hub && at != hub {
                let (_, group) = arcs[from][at].expect("it was gone");
                assert!(self.is_free(group, at, Some(from)), "two steps of the shortest way are in each other's way");
                let place = self.members[group].iter().position(|&one| one == from).expect("a member");
                self.members[group][place] = at;
                self.count[from] -= 1;
                self.count[at] += 1;
            }
            at = from;
        }
        true
    }
}
