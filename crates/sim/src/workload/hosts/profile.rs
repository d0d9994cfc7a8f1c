//! What a seed decides once: the cluster, its volumes, and who uses them.

use crate::workload::cluster::layout::Layout;
use crate::workload::cluster::profile::{Pool, Profile as Cluster};
use crate::workload::volume::profile::VOLUME_BYTES;
use cluster::Compression;
use runtime::sim::Random;
use std::time::Duration;
use types::CHUNK_BYTES;

/// The smallest device: one shard. And one of four, so that all cores have some.
const DISK_BYTES: [u64; 2] = [256 << 20, (1 << 30) + (64 << 20)];

/// See the module.
#[derive(Clone, Debug)]
pub struct Profile {
    /// Nodes, links, disks, clocks, how long things break.
    pub cluster: Cluster,
    /// Of each device; a node has one.
    pub disk_bytes: u64,
    /// The unit of all operations, and the block of the namespaces: whole blocks, or sectors.
    pub block_bytes: u64,
    /// First of the blocks of each volume that are used, and how many: few, so that operations meet.
    pub first_block: u64,
    /// See [`first_block`](Self::first_block).
    pub blocks: u64,
    /// Volumes that are there from the beginning, each of a family of its own.
    pub volumes: usize,
    /// Machines with a multipath host each.
    pub hosts: usize,
    /// Commands of a host under way at a time.
    pub workers: usize,
    /// Machines with an NBD client on each volume.
    pub nbd_clients: usize,
    /// What a host waits for.
    pub waits: Waits,
    /// Whether an administrator is at work: snapshots, clones, rollbacks, growth, trash.
    pub administrator: bool,
    /// Whether somebody sends volumes from node to node.
    pub mover: bool,
    /// Whether somebody has devices and nodes emptied, replaced, and rest.
    pub operator: bool,
    /// The node that leaves for good when all is mended, and another comes.
    pub leaves: Option<usize>,
    pub compression: Compression,
    pub encrypted: bool,
}

/// See [`nvme::host::multipath::Options`].
#[derive(Clone, Copy, Debug)]
pub struct Waits {
    pub io_timeout: Duration,
    pub reconnect_delay: Duration,
    pub keep_alive: Duration,
}

impl Profile {
    pub fn draw(random: &Random) -> Self {
        let cluster = draw_cluster(random);
        let block_bytes: u64 = if random.one_in(3) { 512 } else { 4096 };
        let blocks = 16 << random.below(3);
        let middle = CHUNK_BYTES / block_bytes;
        Self {
            disk_bytes: DISK_BYTES[usize::from(cluster.cores > 1 && random.one_in(2))],
            block_bytes,
            first_block: middle - blocks / 2,
            blocks,
            volumes: 1 + random.below(3) as usize,
            hosts: 1 + random.below(3) as usize,
            workers: 1 + random.below(4) as usize,
            nbd_clients: random.below(2) as usize,
            waits: Waits {
                io_timeout: Duration::from_millis(match random.below(3) {
                    0 => random.between(300, 2_000),
                    1 => random.between(2_000, 8_000),
                    _ => 30_000,
                }),
                reconnect_delay: Duration::from_millis(random.between(1, 2_000)),
                keep_alive: Duration::from_secs(5),
            },
            administrator: random.one_in(2),
            compression: match random.below(6) {
                0 => Compression::Lz4,
                1 => Compression::Zstd,
                _ => Compression::Off,
            },
            encrypted: random.one_in(4),
            mover: random.one_in(3),
            operator: random.one_in(3),
            leaves: random.one_in(3).then(|| random.below(cluster.nodes as u64) as usize),
            cluster,
        }
    }

    /// Bytes of each volume at first.
    pub fn volume_bytes(&self) -> u64 {
        VOLUME_BYTES
    }

    /// Nodes whose devices hold nothing at first: there are more than copies, and somebody who may want them.
    pub fn spares(&self) -> usize {
        usize::from(self.operator && self.cluster.nodes > self.cluster.pools[0].replicas)
    }

    /// Machines of clients.
    pub fn machines(&self) -> usize {
        self.hosts + self.nbd_clients
    }

    /// Where nodes and disks are, for those who draw faults: its groups are not those that there will be.
    pub fn layout(&self, random: &Random) -> Layout {
        let addresses = (0..self.cluster.nodes).map(|_| std::net::IpAddr::from([10, 0, 0, 1]));
        Layout::draw(&self.cluster, addresses, random)
    }
}

/// A cluster of few nodes, each of one device, that runs for long enough for heads to move.
fn draw_cluster(random: &Random) -> Cluster {
    let nodes = [2, 3, 3, 3, 4][random.below(5) as usize];
    let replicas = [1, 2, 3, 3, 3, 3][random.below(6) as usize].min(nodes);
    let min_in_sync = if replicas == 3 && !random.one_in(4) { 2 } else { 1 };
    Cluster {
        nodes,
        beyond_policy: false,
        grows: false,
        devices: vec![1; nodes],
        shards: 1,
        cores: 1 + random.below(2) as usize,
        pools: vec![Pool { replicas, min_in_sync }],
        groups: nodes as u32,
        hoard_chunks: 0,
        hoarders: 0,
        operations: random.between(300, 6_000),
        burst: 1 << random.below(6),
        duration: Duration::from_secs(random.between(15, 70)),
        ..Cluster::draw_plain(random)
    }
}
