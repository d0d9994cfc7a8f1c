//! Clusters from a seed.

use cluster::FailureDomain;
use cluster::placement::{Device, Duty, Group, Placement, Rules, groups_for, place};
use std::time::Duration;
use types::{GroupId, NodeId, StoreId};

/// SplitMix64.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^ (x >> 31)
    }
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
    pub fn between(&mut self, first: u64, last: u64) -> u64 {
        first + self.below(last - first + 1)
    }
    pub fn pick<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len() as u64) as usize]
    }
}

/// A pool's devices, rules and groups.
#[derive(Clone, Debug)]
pub struct Pool {
    pub devices: Vec<Device>,
    pub rules: Rules,
    pub groups: Vec<Group>,
}

pub fn device(store: u128, node: u32, weight: u64) -> Device {
    Device {
        store: StoreId(store),
        node: NodeId(node),
        rack: format!("r{}", node % 12),
        zone: format!("z{}", node % 4),
        class: String::new(),
        weight,
        duty: Duty::In,
        may_lead: true,
    }
}

pub fn rules(replicas: usize, failure_domain: FailureDomain) -> Rules {
    let min_in_sync = replicas.div_ceil(2).max(1);
    Rules { replicas, min_in_sync, failure_domain, class: String::new(), may_degrade: false }
}

impl Pool {
    /// Nodes with so many devices each, all alike.
    pub fn even(nodes: u32, devices_per_node: u32, replicas: usize, failure_domain: FailureDomain) -> Self {
        Self::new(nodes, devices_per_node, replicas, failure_domain, |_| 1000)
    }

    pub fn new(
        nodes: u32,
        devices_per_node: u32,
        replicas: usize,
        failure_domain: FailureDomain,
        mut weight: impl FnMut(u32) -> u64,
    ) -> Self {
        let devices = (0..nodes * devices_per_node)
            .map(|at| device(u128::from(at) + 1, at / devices_per_node + 1, weight(at)))
            .collect::<Vec<_>>();
        let count = groups_for(devices.len() as u32, replicas as u32);
        let group = |id| Group { id: GroupId(id), members: Vec::new(), table: None };
        Self { devices, rules: rules(replicas, failure_domain), groups: (1..=count).map(group).collect() }
    }

    /// Any cluster of at most so many nodes whose rules can be kept.
    pub fn drawn(random: &mut Random, nodes_max: u64) -> Self {
        let replicas = random.pick(&[1, 2, 2, 3, 3, 3, 4, 5]);
        let domain =
            random.pick(&[FailureDomain::Device, FailureDomain::Node, FailureDomain::Node, FailureDomain::Rack]);
        let nodes = random.between(replicas as u64, nodes_max) as u32;
        let per_node = random.between(1, 6) as u32;
        let spread = random.pick(&[1, 1, 2, 4, 10]);
        Self::new(nodes, per_node, replicas, domain, |_| 100 * random.between(1, spread))
    }

    /// As `groups` are now placed.
    pub fn place(&self) -> Placement {
        place(&self.devices, &self.rules, &[], &self.groups).expect("its rules can be kept")
    }

    /// All groups placed.
    pub fn placed(mut self) -> Self {
        self.groups = self.place().groups;
        self
    }
}

/// What `work` gives, and the CPU time that it took: other work on the machine does not count.
pub fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let on_cpu = || {
        let told = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux tells it");
        Duration::from_nanos(told.split(' ').next().and_then(|ns| ns.parse().ok()).expect("nanoseconds"))
    };
    let begin = on_cpu();
    let result = work();
    (result, on_cpu() - begin)
}
