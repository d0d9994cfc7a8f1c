//! What a seed decides once: the shape of the node, of the load, and of the trouble.

use cluster::Compression;
use runtime::sim::{DiskFaults, DiskOptions, Random};
use std::time::Duration;
use types::CHUNK_BYTES;

/// Bytes of the volume: three chunks, so that some commands lie in two of them.
pub const VOLUME_BYTES: u64 = 3 * CHUNK_BYTES;
/// What a volume of which all blocks are used may grow by.
const GROWTH_BYTES: u64 = 2 * CHUNK_BYTES;

/// See the module.
#[derive(Clone, Copy, Debug)]
pub struct Profile {
    /// Cores of the storage node.
    pub cores: usize,
    /// The unit of all operations: whole blocks of the store, or sectors of it that are read, changed and written.
    pub block_bytes: u64,
    /// First of the blocks that are used.
    pub first_block: u64,
    /// How many are used: few, so that operations meet.
    pub blocks: u64,
    /// Clients inside the node, on each core.
    pub core_clients: usize,
    /// NVMe/TCP hosts on another machine, and NBD clients.
    pub nvme_hosts: usize,
    /// See [`nvme_hosts`](Self::nvme_hosts).
    pub nbd_clients: usize,
    /// Of 16 operations, how many are longer than what is written all or nothing.
    pub long: u64,
    /// Whether other volumes are made and deleted meanwhile.
    pub churn: bool,
    /// Whether snapshots of the volume are taken, looked at, cloned, rolled back to and deleted meanwhile.
    pub snapshots: bool,
    /// Whether the volume grows: then the blocks that are used lie around its end.
    pub grows: bool,
    /// Whether the device is small and another volume fills it: it is cleaned, and sometimes full.
    pub tight: bool,
    /// How what is written is compressed at first. Unless it is not: then blocks differ in what can be saved of them,
    /// and the pool is told now and then to compress otherwise.
    pub compression: Compression,
    /// Whether the volume and its clones are encrypted, and locked now and then.
    pub encrypted: bool,
    /// Longest time between two crashes, as a power of two of nanoseconds.
    pub longest_log2_ns: u64,
    /// Longest time in which the map answers.
    pub map_latency: Duration,
    /// What goes wrong besides crashes.
    pub trouble: Trouble,
}

/// What goes wrong besides crashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// Nothing: the disk does what it says.
    None,
    /// Connections are reset and clients' machines crash.
    Network,
    /// Writes, flushes and reads of the disk fail now and then, and say so; some never end.
    Disk,
    /// Bits turn over while nobody writes. What they hit may be refused, never returned wrong.
    Rot,
}

impl Profile {
    pub fn draw(random: &Random) -> Self {
        let tight = random.one_in(4);
        let block_bytes: u64 = if !tight && random.one_in(3) { 512 } else { 4096 };
        let wide = !tight && random.one_in(4);
        let grows = random.one_in(2);
        let blocks = match wide {
            true => (VOLUME_BYTES + if grows { GROWTH_BYTES } else { 0 }) / block_bytes,
            false => 32 << random.below(3),
        };
        // Around the border of two chunks, or around the end.
        let middle = if grows { VOLUME_BYTES } else { CHUNK_BYTES } / block_bytes;
        Self {
            cores: 1 + random.below(3) as usize,
            block_bytes,
            first_block: if wide { 0 } else { middle - blocks / 2 },
            blocks,
            core_clients: random.below(3) as usize,
            nvme_hosts: 1 + random.below(2) as usize,
            nbd_clients: random.below(2) as usize,
            long: if wide { 5 } else { random.below(3) },
            churn: random.one_in(3),
            snapshots: random.one_in(2),
            grows,
            tight,
            longest_log2_ns: if tight { 27 } else { 24 + random.below(4) },
            map_latency: if random.one_in(3) { Duration::from_micros(500) } else { Duration::ZERO },
            trouble: match random.below(9) {
                0..4 => Trouble::None,
                4 => Trouble::Network,
                5 | 6 => Trouble::Disk,
                _ => Trouble::Rot,
            },
            compression: match random.below(6) {
                0 => Compression::Lz4,
                1 => Compression::Zstd,
                _ => Compression::Off,
            },
            encrypted: random.one_in(3),
        }
    }

    /// The blocks that are used.
    pub fn window(&self) -> std::ops::Range<u64> {
        self.first_block..self.first_block + self.blocks
    }

    /// What the volume may grow to.
    pub fn most_bytes(&self) -> u64 {
        VOLUME_BYTES.max(self.window().end * self.block_bytes)
    }

    pub fn disk(&self, random: &Random) -> DiskOptions {
        DiskOptions {
            block_size_bytes: if random.one_in(2) { 512 } else { 4096 },
            volatile_cache: !random.one_in(3),
            ..DiskOptions::default()
        }
    }

    /// Faults of the disk while clients run.
    pub fn faults(&self, random: &Random) -> DiskFaults {
        let none = DiskFaults::default();
        let some = |most: u64| random.below(most) as u32;
        match self.trouble {
            Trouble::Disk => DiskFaults {
                write_error: some(10_000),
                flush_error: if random.one_in(4) { some(10_000) } else { 0 },
                read_error: some(2_000),
                hang: if random.one_in(4) { some(2_000) } else { 0 },
                ..none
            },
            Trouble::None | Trouble::Network | Trouble::Rot => none,
        }
    }
}
