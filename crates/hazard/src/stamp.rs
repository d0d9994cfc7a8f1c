//! What is written to a block: who wrote it, which block, and which of its writes, over and over.

/// Size of what is written by one command.
pub(crate) const BLOCK_BYTES: usize = 4096;
const CELL_BYTES: usize = 32;
const MARK: [u8; 8] = *b"ghost??!";

/// One write of one block, in one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    /// A random number.
    pub run: u64,
    /// The block.
    pub block: u64,
    /// Which write of it, from 1.
    pub write: u64,
}

impl Stamp {
    fn cell(self) -> [u8; CELL_BYTES] {
        let mut cell = [0; CELL_BYTES];
        for (place, word) in cell.chunks_exact_mut(8).zip([
            MARK,
            self.run.to_le_bytes(),
            self.block.to_le_bytes(),
            self.write.to_le_bytes(),
        ]) {
            place.copy_from_slice(&word);
        }
        cell
    }

    /// Fills a block with it.
    pub fn fill(self, bytes: &mut [u8]) {
        let cell = self.cell();
        bytes.chunks_exact_mut(CELL_BYTES).for_each(|place| place.copy_from_slice(&cell));
    }

    /// What a block holds, if that is not this: in words.
    pub fn differs(self, bytes: &[u8]) -> Option<String> {
        let cells: Vec<&[u8]> = bytes.chunks_exact(CELL_BYTES).collect();
        let wanted = self.cell();
        let other = cells.iter().find(|cell| ***cell != wanted)?;
        let words = |cell: &[u8]| {
            let word = |at: usize| u64::from_le_bytes(cell[at..at + 8].try_into().expect("eight bytes"));
            match () {
                () if cell[..8] != MARK => "what this run did not write".to_owned(),
                () if word(8) != self.run => "a write of an earlier run".to_owned(),
                () if word(16) != self.block => format!("write {} of block {}", word(24), word(16)),
                () => format!("write {}", word(24)),
            }
        };
        let found = words(other);
        let of_it = cells.iter().filter(|cell| **cell == *other).count();
        Some(if of_it == cells.len() { found } else { format!("{found} in a part of the block") })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_says_which_write_it_is_of() {
        let (old, new) = (Stamp { run: 1, block: 5, write: 7 }, Stamp { run: 1, block: 5, write: 8 });
        let mut bytes = [0; BLOCK_BYTES];
        assert_eq!(new.differs(&bytes).as_deref(), Some("what this run did not write"));
        old.fill(&mut bytes);
        assert_eq!(old.differs(&bytes), None);
        assert_eq!(new.differs(&bytes).as_deref(), Some("write 7"));
        assert_eq!(Stamp { block: 6, ..old }.differs(&bytes).as_deref(), Some("write 7 of block 5"));
        assert_eq!(Stamp { run: 2, ..old }.differs(&bytes).as_deref(), Some("a write of an earlier run"));
        new.fill(&mut bytes[..512]);
        assert_eq!(new.differs(&bytes).as_deref(), Some("write 7 in a part of the block"));
    }
}
