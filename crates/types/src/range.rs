//! Blocks and chunks: the two sizes that everything else is counted in.

/// Block of the store and unit of every checksum: 4 KiB.
pub const BLOCK_BYTES: usize = 4096;
/// A chunk is the unit of placement: 1 MiB of a volume, in one group. Commands are split there.
pub const CHUNK_BYTES: u64 = 1 << 20;
/// Blocks in a chunk: 256.
pub const BLOCKS_PER_CHUNK: u32 = (CHUNK_BYTES / BLOCK_BYTES as u64) as u32;

/// Blocks `first..first + count` of one chunk; `count` is 1..=256 and never runs past the chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BlockRange {
    /// First block, 0..=255.
    pub first: u16,
    /// Number of blocks, 1..=256.
    pub count: u16,
}

impl BlockRange {
    /// # Panics
    /// If the range is empty or runs past the chunk: the caller has split its command there.
    pub fn new(first: u32, count: u32) -> Self {
        assert!(count > 0 && first + count <= BLOCKS_PER_CHUNK, "range {first}+{count} outside a chunk");
        Self { first: first as u16, count: count as u16 }
    }
    /// One past the last block.
    pub fn end(self) -> u32 {
        u32::from(self.first) + u32::from(self.count)
    }
    /// Whether both ranges hold a common block.
    pub fn overlaps(self, other: Self) -> bool {
        u32::from(self.first) < other.end() && u32::from(other.first) < self.end()
    }
    /// Length of the range as plain blocks, in bytes.
    pub fn bytes(self) -> usize {
        usize::from(self.count) * BLOCK_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_do_not_overlap() {
        assert!(!BlockRange::new(0, 4).overlaps(BlockRange::new(4, 1)));
        assert!(BlockRange::new(0, 5).overlaps(BlockRange::new(4, 1)));
    }

    #[test]
    #[should_panic(expected = "outside a chunk")]
    fn a_range_past_the_chunk_is_refused() {
        BlockRange::new(255, 2);
    }
}
