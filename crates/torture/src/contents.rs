//! What blocks hold: the stamp of the write that put it there, and of which run; or what was there before.

use checker::history::{Action, BadBlock, History, OperationId, Value, fill_block, read_block};
use foldhash::fast::FixedState;
use std::hash::BuildHasher;

/// Bits of a stamp that say which operation; above them, which history, so that what earlier runs left is not taken for this one's.
const OPERATION_BITS: u32 = 32;
const HISTORY_MASK: u64 = (1 << 30) - 1;

/// Of one history: its mark, and what was there when it began.
#[derive(Debug)]
pub struct Contents {
    mark: u64,
    /// Of each block that held something: what, and the operation of the history that stands for it.
    before: Vec<Option<(u64, OperationId)>>,
}

impl Contents {
    /// Of a history with this mark, of so many blocks.
    pub fn new(mark: u64, blocks: u64) -> Self {
        Self { mark: mark & HISTORY_MASK, before: vec![None; blocks as usize] }
    }

    /// What is there when the history begins, as if it had been written then: an operation for each row of blocks that hold something.
    /// How many blocks do.
    pub fn begin(&mut self, history: &mut History, first: u64, bytes: &[u8], block_bytes: usize) -> u64 {
        let (mut held, mut row) = (0, Vec::new());
        let end = first + (bytes.len() / block_bytes) as u64;
        for (block, bytes) in (first..).zip(bytes.chunks_exact(block_bytes)) {
            let is_zero = bytes.iter().all(|byte| *byte == 0);
            if !is_zero {
                row.push(digest(bytes));
                held += 1;
            }
            if row.is_empty() || !is_zero && block + 1 < end {
                continue;
            }
            let from = block + u64::from(!is_zero) - row.len() as u64;
            let id = history.start(Action::Write, from, row.len() as u32);
            history.done(id);
            for (block, digest) in (from..).zip(row.drain(..)) {
                self.before[block as usize] = Some((digest, id));
            }
        }
        held
    }

    /// Fills what a write puts at `first` and behind it.
    pub fn fill(&self, id: OperationId, first: u64, bytes: &mut [u8], block_bytes: usize) {
        let stamp = Value(self.mark << OPERATION_BITS | History::stamp(id).0);
        for (block, bytes) in (first..).zip(bytes.chunks_exact_mut(block_bytes)) {
            fill_block(stamp, block, bytes);
        }
    }

    /// Which operation of the history put this there.
    ///
    /// # Errors
    /// If none has: what it is like.
    pub fn value(&self, block: u64, bytes: &[u8]) -> Result<Value, Unknown> {
        let read = read_block(block, bytes);
        match read {
            Ok(Value::ZERO) => return Ok(Value::ZERO),
            Ok(Value(stamp)) if stamp >> OPERATION_BITS == self.mark => {
                return Ok(Value(stamp & ((1 << OPERATION_BITS) - 1)));
            }
            _ => {}
        }
        if let Some((before, id)) = self.before[block as usize]
            && before == digest(bytes)
        {
            return Ok(History::stamp(id));
        }
        match read {
            Ok(_) => Err(Unknown::Earlier { block }),
            Err(BadBlock::Torn { stamp, byte, .. }) if stamp >> OPERATION_BITS == self.mark && byte > 0 => {
                Err(Unknown::Torn { block, write: stamp & ((1 << OPERATION_BITS) - 1), byte })
            }
            Err(BadBlock::Misplaced { stamp, found, .. }) if stamp >> OPERATION_BITS == self.mark => {
                Err(Unknown::Misplaced { block, found, write: stamp & ((1 << OPERATION_BITS) - 1) })
            }
            Err(_) => Err(Unknown::Foreign { block }),
        }
    }
}

fn digest(bytes: &[u8]) -> u64 {
    FixedState::with_seed(0).hash_one(bytes)
}

/// Contents of a block that no operation of the history put there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unknown {
    /// It begins like a write's block and goes on otherwise.
    #[error("block {block} begins with what write {write} put there and goes on otherwise at byte {byte}")]
    Torn { block: u64, write: u64, byte: usize },
    /// It is the block of another place.
    #[error("block {block} holds what write {write} put at block {found}")]
    Misplaced { block: u64, found: u64, write: u64 },
    /// A write of an earlier history, which was over when this one began.
    #[error("block {block} holds what was written before this history began, and was not there then")]
    Earlier { block: u64 },
    /// Nothing that is known.
    #[error("block {block} holds what nobody here wrote: somebody else uses it, or it is damaged")]
    Foreign { block: u64 },
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: usize = 512;

    #[test]
    fn what_was_there_is_known_again() {
        let mut history = History::of_blocks(BLOCK as u64);
        let mut bytes = vec![0; 6 * BLOCK];
        // Two rows, the second at the end: one of something else, one of an earlier run.
        bytes[BLOCK..2 * BLOCK].fill(7);
        bytes[2 * BLOCK..3 * BLOCK].fill(8);
        Contents::new(1, 6).fill(OperationId(3), 5, &mut bytes[5 * BLOCK..], BLOCK);
        let mut contents = Contents::new(2, 6);
        assert_eq!(contents.begin(&mut history, 0, &bytes, BLOCK), 3);
        let rows: Vec<_> = history.operations().iter().map(|one| one.blocks()).collect();
        assert_eq!(rows, [1..3, 5..6]);
        let of = |block: u64| contents.value(block, &bytes[block as usize * BLOCK..][..BLOCK]);
        assert_eq!((0..6).map(|block| of(block).map(|value| value.0)).collect::<Vec<_>>(), [0, 1, 1, 0, 0, 2].map(Ok));
    }

    #[test]
    fn what_nobody_wrote_is_told_from_what_came_late() {
        let contents = Contents::new(2, 6);
        let mut bytes = vec![0; BLOCK];
        contents.fill(OperationId(4), 3, &mut bytes, BLOCK);
        assert_eq!(contents.value(3, &bytes), Ok(Value(5)));
        assert_eq!(contents.value(2, &bytes), Err(Unknown::Misplaced { block: 2, found: 3, write: 5 }));
        bytes[64] ^= 1;
        assert_eq!(contents.value(3, &bytes), Err(Unknown::Torn { block: 3, write: 5, byte: 64 }));
        Contents::new(1, 6).fill(OperationId(4), 3, &mut bytes, BLOCK);
        assert_eq!(contents.value(3, &bytes), Err(Unknown::Earlier { block: 3 }));
        bytes.fill(9);
        assert_eq!(contents.value(3, &bytes), Err(Unknown::Foreign { block: 3 }));
    }
}
