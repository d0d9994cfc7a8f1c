//! What a seed decides once: how large the cluster is, how fast, how its groups are protected, what clients do.

use runtime::sim::{DiskOptions, Latency, LinkOptions, NodeOptions, Random};
use std::time::Duration;

/// Clocks run up to this much faster or slower than the world, in millionths: what grants allow for.
const CLOCK_RATE_MAX_PPM: i32 = 20_000;
/// Of so many runs the devices of one are filled.
const FULL_ONE_IN: u64 = 16;
/// Of so many runs one destroys more than the policies allow for.
const BEYOND_ONE_IN: u64 = 16;
/// Of so many runs the nodes are of two releases.
const MIXED_ONE_IN: u64 = 4;
/// Beside those that fill devices clients do at most so many operations.
const FULL_OPERATIONS_MAX: u64 = 8_000;
/// Chunks of 1 MiB that are more than a device of the smallest size takes.
const CHUNKS_TO_FILL: u32 = 240;

/// How the groups of a pool are protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pool {
    /// Members of each group.
    pub replicas: usize,
    /// Members that must have a write.
    pub min_in_sync: usize,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Profile {
    /// Storage nodes, 1 to 7.
    pub nodes: usize,
    /// More may be destroyed than the policies allow for: then what was acknowledged may be lost.
    pub beyond_policy: bool,
    /// Another node comes later.
    pub grows: bool,
    /// Devices of each node.
    pub devices: Vec<usize>,
    /// Cores of each node.
    pub cores: usize,
    /// Shards of each device.
    pub shards: u8,
    /// At least one; groups are dealt to them in turn.
    pub pools: Vec<Pool>,
    /// Placement groups.
    pub groups: u32,
    /// Chunks of each group that are used, and blocks of each chunk: few, so that operations meet.
    pub chunks_per_group: u32,
    /// See [`chunks_per_group`](Self::chunks_per_group).
    pub blocks_per_chunk: u32,
    /// Chunks of each group that are written from end to end, until the devices are full: none, in most runs.
    pub hoard_chunks: u32,
    /// Clients that write those.
    pub hoarders: usize,
    /// Clients, each with one operation at a time.
    pub clients: usize,
    /// Operations of all of them together.
    pub operations: u64,
    /// Operations that a client sends in a row, at most, before it rests.
    pub burst: u64,
    /// How long faults may begin.
    pub duration: Duration,
    /// Every link, unless a fault makes it worse.
    pub link: LinkOptions,
    /// Every disk.
    pub disk: DiskOptions,
    /// How long a request to the map takes each way, at most.
    pub map_latency: Duration,
    /// Nodes that faults keep from working at a time. What destroys no copy may go beyond that and nothing be lost, so
    /// in some runs it does.
    pub at_once: usize,
    /// Segments are cleaned as soon as something in them is dead.
    pub cleans: bool,
    /// Nodes are of two releases: of a process and the one after it on the same node one is of each, so that every restart is an
    /// upgrade or the way back.
    pub mixes_releases: bool,
}

impl Profile {
    /// `releases`: decides whether nodes are of two.
    pub fn draw(random: &Random, releases: &Random) -> Self {
        Self { mixes_releases: releases.one_in(MIXED_ONE_IN), ..Self::draw_plain(random) }
    }

    /// The same with nodes of one release.
    pub fn draw_plain(random: &Random) -> Self {
        let profile = Self::draw_usual(random);
        if random.one_in(FULL_ONE_IN) { profile.filled(random) } else { profile }
    }

    /// With few devices, which are filled by and by.
    fn filled(self, random: &Random) -> Self {
        let (nodes, groups) = (self.nodes.min(3), self.groups.min(4));
        let pools = self.pools.into_iter().map(|pool| Pool { replicas: pool.replicas.min(nodes), ..pool });
        let pools = pools.map(|pool| Pool { min_in_sync: pool.min_in_sync.min(pool.replicas), ..pool });
        Self {
            nodes,
            beyond_policy: false,
            grows: false,
            devices: vec![1; nodes],
            shards: 1,
            pools: pools.collect(),
            groups,
            hoard_chunks: CHUNKS_TO_FILL / groups,
            hoarders: 1 << random.below(5),
            operations: self.operations.min(FULL_OPERATIONS_MAX),
            duration: Duration::from_secs(random.between(15, 40)),
            disk: DiskOptions { volatile_cache: self.disk.volatile_cache, ..DiskOptions::default() },
            ..self
        }
    }

    fn draw_usual(random: &Random) -> Self {
        let nodes = match random.below(16) {
            0 => 1,
            1 => 2,
            2..10 => 3,
            10..13 => 4,
            _ => 5 + random.below(3) as usize,
        };
        let most_devices = if nodes > 4 { 2 } else { 4 };
        let grows = random.one_in(4);
        let devices = (0..nodes + usize::from(grows)).map(|_| 1 + random.below(most_devices) as usize).collect();
        let pools = (0..1 + random.below(2)).map(|_| Self::draw_pool(random, nodes)).collect();
        let duration = Duration::from_secs(match random.below(8) {
            0 => random.between(60, 120),
            1..3 => random.between(2, 8),
            _ => random.between(10, 40),
        });
        Self {
            nodes,
            beyond_policy: random.one_in(BEYOND_ONE_IN),
            grows,
            devices,
            cores: 1 + random.below(3) as usize,
            shards: 1 << random.below(2),
            pools,
            groups: 1 + random.below(14) as u32,
            chunks_per_group: 1 + random.below(2) as u32,
            blocks_per_chunk: 16 << random.below(2),
            hoard_chunks: 0,
            hoarders: 0,
            clients: 1 + random.below(10) as usize,
            operations: random.between(200, 20_000),
            burst: 1 << random.below(7),
            duration,
            link: Self::draw_link(random),
            disk: Self::draw_disk(random),
            map_latency: Duration::from_micros(random.between(50, if random.one_in(4) { 200_000 } else { 5_000 })),
            at_once: if random.one_in(2) { 1 } else { usize::MAX },
            cleans: random.one_in(4),
            mixes_releases: false,
        }
    }

    /// Nodes at the end.
    pub fn all_nodes(&self) -> usize {
        self.nodes + usize::from(self.grows)
    }

    fn draw_pool(random: &Random, nodes: usize) -> Pool {
        let replicas = match random.below(8) {
            0 => 1,
            1 => 2,
            _ => 3,
        };
        let replicas = replicas.min(nodes);
        // Mostly as many as is usual: two of three, one of two.
        let usual = [1, 1, 2][replicas - 1];
        let min_in_sync = if random.one_in(4) { 1 + random.below(replicas as u64) as usize } else { usual };
        Pool { replicas, min_in_sync }
    }

    fn draw_link(random: &Random) -> LinkOptions {
        let delay_ns =
            if random.one_in(4) { random.between(100_000, 5_000_000) } else { random.between(5_000, 50_000) };
        LinkOptions { delay_ns, spread_ns: random.below(2 * delay_ns + 1) }
    }

    fn draw_disk(random: &Random) -> DiskOptions {
        let slower = if random.one_in(4) { random.between(2, 20) } else { 1 };
        let slow_ns = if random.one_in(4) { 200_000_000 } else { 20_000_000 };
        let base = DiskOptions::default();
        let scaled = |latency: Latency| Latency {
            base_ns: latency.base_ns * slower,
            spread_ns: latency.spread_ns * slower,
            slow_ns,
            ..latency
        };
        DiskOptions {
            block_size_bytes: if random.one_in(2) { 512 } else { 4096 },
            volatile_cache: !random.one_in(3),
            read: scaled(base.read),
            write: scaled(base.write),
            flush: scaled(base.flush),
            ..base
        }
    }

    /// Whether the map may be restored from a backup: any two sets of members that are enough to write have one in common,
    /// who knows what the map has forgotten.
    pub fn may_restore(&self) -> bool {
        self.pools.iter().all(|pool| 2 * pool.min_in_sync > pool.replicas)
    }

    /// The clocks of a node: any start, a rate, and a wall clock that is off by up to a minute.
    pub fn draw_clock(random: &Random) -> NodeOptions {
        NodeOptions {
            clock_start: Duration::from_millis(random.below(100_000_000)),
            clock_rate_offset_ppm: draw_clock_rate_ppm(random),
            wall_clock_offset_ns: draw_wall_clock_offset(random),
        }
    }
}

/// How much faster than the world a clock may run.
pub fn draw_clock_rate_ppm(random: &Random) -> i32 {
    random.below(2 * CLOCK_RATE_MAX_PPM as u64 + 1) as i32 - CLOCK_RATE_MAX_PPM
}

/// How far a wall clock may be off.
pub fn draw_wall_clock_offset(random: &Random) -> i64 {
    random.below(120_000_000_000) as i64 - 60_000_000_000
}
