//! Which bytes of a volume are used: pieces of at most 64 KiB, evenly over all of it, so that many groups have a part of them.

use checker::history::ATOMIC_BYTES;
use serde::{Deserialize, Serialize};

/// Where the blocks of a history lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layout {
    /// What the history counts in: the volume's logical block.
    pub block_bytes: u64,
    /// Blocks of a piece.
    pub piece_blocks: u64,
    /// Pieces.
    pub pieces: u64,
    /// From the beginning of a piece to that of the next.
    pub stride_bytes: u64,
}

impl Layout {
    /// Of a volume of this size so many bytes, or all there are. Commands move at most `most_bytes`. None: there is no room for
    /// a piece.
    pub fn new(size_bytes: u64, span_bytes: u64, block_bytes: u64, most_bytes: u64) -> Option<Self> {
        let piece_bytes = ATOMIC_BYTES.min(most_bytes).max(block_bytes);
        let there = size_bytes / piece_bytes;
        let pieces = (span_bytes / piece_bytes).max(1).min(there);
        if pieces == 0 {
            return None;
        }
        let stride_bytes = there / pieces * piece_bytes;
        Some(Self { block_bytes, piece_blocks: piece_bytes / block_bytes, pieces, stride_bytes })
    }

    /// All of its blocks.
    pub fn blocks(&self) -> u64 {
        self.pieces * self.piece_blocks
    }

    /// Bytes that are used.
    pub fn span_bytes(&self) -> u64 {
        self.blocks() * self.block_bytes
    }

    /// First block and number of blocks of each piece.
    pub fn all_pieces(self) -> impl Iterator<Item = (u64, u64)> {
        (0..self.pieces).map(move |piece| (piece * self.piece_blocks, self.piece_blocks))
    }

    /// Where a block lies in the volume.
    pub fn offset_bytes(&self, block: u64) -> u64 {
        block / self.piece_blocks * self.stride_bytes + block % self.piece_blocks * self.block_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_lie_evenly_and_within() {
        for (size, span, block, most) in [
            (128 << 20, 2 << 20, 512, 1 << 20),
            (100 << 20, 16 << 20, 4096, 32 << 10),
            (3 << 16, 1 << 30, 512, 1 << 20),
        ] {
            let layout = Layout::new(size, span, block, most).expect("there is room");
            assert!(layout.span_bytes() <= span.min(size));
            let last = layout.blocks() - 1;
            assert!(layout.offset_bytes(last) + block <= size, "{layout:?}");
            assert_eq!(
                layout.offset_bytes(layout.piece_blocks),
                layout.stride_bytes % size.max(layout.stride_bytes + 1)
            );
        }
        let all = Layout::new(3 << 16, 1 << 30, 512, 1 << 20).expect("there is room");
        assert_eq!((all.pieces, all.stride_bytes), (3, 1 << 16));
        assert_eq!(Layout::new(1000, 1 << 30, 512, 1 << 20), None);
    }
}
