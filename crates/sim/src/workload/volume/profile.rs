//! What a seed decides once: the shape of the node, of the load, and of the trouble.

use runtime::sim::{DiskFaults, DiskOptions, Random};
use std::time::Duration;
use types::CHUNK_BYTES;

/// Bytes of the volume: three chunks, so that some commands lie in two of them.
pub const VOLUME_BYTES: u64 = 3 * CHUNK_BYTES;

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
    /// Whether snapshots of the volume are taken, looked at and deleted meanwhile.
    pub snapshots: bool,
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
}

impl Profile {
    pub fn draw(random: &Random) -> Self {
        let block_bytes: u64 = if random.one_in(3) { 512 } else { 4096 };
        let wide = random.one_in(4);
        let blocks = if wide { VOLUME_BYTES / block_bytes } else { 32 << random.below(3) };
        let border = CHUNK_BYTES / block_bytes;
        Self {
            cores: 1 + random.below(3) as usize,
            block_bytes,
            // Around the border of two chunks.
            first_block: if wide { 0 } else { border - blocks / 2 },
            blocks,
            core_clients: random.below(3) as usize,
            nvme_hosts: 1 + random.below(2) as usize,
            nbd_clients: random.below(2) as usize,
            long: if wide { 5 } else { random.below(3) },
            churn: random.one_in(3),
            snapshots: random.one_in(2),
            longest_log2_ns: 24 + random.below(4),
            map_latency: if random.one_in(3) { Duration::from_micros(500) } else { Duration::ZERO },
            trouble: match random.below(4) {
                0 | 1 => Trouble::None,
                2 => Trouble::Network,
                _ => Trouble::Disk,
            },
        }
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
            Trouble::None | Trouble::Network => none,
        }
    }
}
