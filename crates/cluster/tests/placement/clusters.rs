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

    /// Any cluster of at most so many nodes whose rules can be kept: racks in zones, some of them without a name, as many
    /// nodes in each as it happens; in every third one devices of several classes, and a pool of one of them.
    pub fn drawn(random: &mut Random, nodes_max: u64) -> Self {
        let replicas = random.pick(&[1, 2, 2, 3, 3, 3, 4, 5]);
        let domain = random.pick(&[
            FailureDomain::Device,
            FailureDomain::Node,
            FailureDomain::Node,
            FailureDomain::Rack,
            FailureDomain::Zone,
        ]);
        let sites = Sites::drawn(random, replicas as u64);
        let nodes = random.between(replicas as u64, nodes_max) as u32;
        let per_node = random.between(1, 6) as u32;
        let spread = random.pick(&[1, 1, 2, 4, 10]);
        let mut pool = Self::new(nodes, per_node, replicas, domain, |_| 100 * random.between(1, spread));
        for node in 1..=nodes {
            // The first nodes are in all there are, so that copies have somewhere to lie.
            let (zone, rack) = sites.of(random, u64::from(node - 1));
            for device in pool.devices.iter_mut().filter(|device| device.node.0 == node) {
                (device.zone, device.rack) = (zone.clone(), rack.clone());
            }
        }
        if random.below(3) == 0 {
            pool.rules.class = "fast".to_owned();
            for (at, device) in pool.devices.iter_mut().enumerate() {
                let is_first = (at as u32).is_multiple_of(per_node);
                device.class = if is_first { "fast" } else { random.pick(&["fast", "large", ""]) }.to_owned();
            }
            let of_class = pool.devices.iter().filter(|device| device.class == "fast").count();
            pool.groups.truncate(groups_for(of_class as u32, replicas as u32) as usize);
        }
        pool
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

/// Zones, and the racks in each.
struct Sites {
    zones: u64,
    racks: u64,
    /// Whether the last zone and each zone's last rack have no name.
    is_unnamed: bool,
}

impl Sites {
    /// So many zones at least.
    fn drawn(random: &mut Random, zones_min: u64) -> Self {
        let zones = random.between(zones_min, zones_min + 3);
        Self { zones, racks: random.between(1, 4), is_unnamed: random.below(4) == 0 }
    }

    /// The zone and the rack of a node: each has one, as far as nodes go; the others are anywhere.
    fn of(&self, random: &mut Random, node: u64) -> (String, String) {
        let site = if node < self.zones * self.racks { node } else { random.below(self.zones * self.racks) };
        let (zone, rack) = (site % self.zones, site / self.zones);
        let name = |kind: &str, at: u64, count: u64| {
            if self.is_unnamed && at + 1 == count { String::new() } else { format!("{kind}{at}") }
        };
        (name("z", zone, self.zones), name("r", rack, self.racks))
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
