//! What a seed decides once: the shape of the device, of the load, and of the trouble.

use runtime::sim::{DiskFaults, DiskOptions, Random};

/// Chunks and groups of a run; every chunk belongs to one group.
#[derive(Clone, Copy, Debug)]
pub struct Profile {
    /// Shards of the store, and cores of its node: each shard on one of them.
    pub shards: u8,
    /// See [`shards`](Self::shards).
    pub cores: usize,
    /// Placement groups.
    pub groups: u32,
    /// Chunks that are used.
    pub chunks: u32,
    /// Blocks of each that are used: few, so that operations meet.
    pub blocks_per_chunk: u32,
    /// Clients of each shard.
    pub clients: usize,
    /// Of 16 operations, how many are as large as an entry may be.
    pub large: u64,
    /// Segments are cleaned as soon as something in them is dead.
    pub cleans: bool,
    /// Longest time between two crashes, as a power of two of nanoseconds.
    pub longest_log2_ns: u64,
    /// What goes wrong besides crashes.
    pub trouble: Trouble,
}

/// What goes wrong besides crashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// Nothing: the disk does what it says. Any damage that is reported is an error.
    None,
    /// Writes, flushes and reads fail now and then, and say so.
    Errors,
    /// Bits turn over, writes are lost and misplaced. What is damaged may be refused, never returned wrong.
    Lies,
}

impl Profile {
    pub fn draw(random: &Random) -> Self {
        let shards = 1 << random.below(2);
        let trouble = match random.below(8) {
            0..5 => Trouble::None,
            5 => Trouble::Errors,
            _ => Trouble::Lies,
        };
        // Mostly little and hot; now and then much, so that segments are filled, freed and used again.
        let cleans = random.one_in(3);
        let wide = cleans || random.one_in(4);
        Self {
            shards,
            cores: 1 + random.below(2) as usize,
            groups: 1 + random.below(4) as u32,
            chunks: 2 + random.below(4) as u32,
            blocks_per_chunk: if wide { 256 } else { 32 << random.below(2) },
            clients: 1 << random.below(4),
            large: if wide { 10 } else { random.below(4) },
            cleans,
            longest_log2_ns: if random.one_in(if cleans { 2 } else { 8 }) { 28 } else { 22 + random.below(3) },
            trouble,
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
            Trouble::Errors => DiskFaults {
                write_error: some(20_000),
                flush_error: if random.one_in(4) { some(20_000) } else { 0 },
                read_error: some(2_000),
                hang: if random.one_in(4) { some(500) } else { 0 },
                ..none
            },
            Trouble::Lies if random.one_in(2) => {
                DiskFaults { lost_write: some(3_000), misplaced_write: some(3_000), bit_rot: some(3_000), ..none }
            }
            _ => none,
        }
    }
}
