//! What a load does next: it reads or writes, in order or anywhere.

use runtime::sim::Random;
use std::cell::Cell;
use std::io;

/// Shares of a load's operations, and the size of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// Of 100 operations so many read; the others write.
    pub read_percent: u64,
    /// Of 100 operations so many go to a block drawn at random; the others follow the last of their direction.
    pub random_percent: u64,
    /// Bytes of one operation, which begins at a multiple of it.
    pub block_size_bytes: u32,
}

/// One operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    /// It writes otherwise.
    pub is_read: bool,
    /// Where it begins.
    pub offset_bytes: u64,
}

/// Where a load is in what it reads and writes; all its workers share it, as fio's job does with all that it has under way.
#[derive(Debug)]
pub struct Cursor {
    pattern: Pattern,
    blocks: u64,
    /// The block behind the last one, of reads and of writes.
    next: [Cell<u64>; 2],
}

impl Cursor {
    /// Over the first `span_bytes`, from their beginning.
    ///
    /// # Errors
    /// If there is no room for one operation, or a share is above 100.
    pub fn new(pattern: Pattern, span_bytes: u64) -> io::Result<Self> {
        if pattern.read_percent > 100 || pattern.random_percent > 100 {
            return Err(io::Error::other("a share is 0 to 100 per cent"));
        }
        let blocks = span_bytes.checked_div(pattern.block_size_bytes.into()).unwrap_or(0);
        if blocks == 0 {
            let what = format!("operations of {} bytes do not fit in {span_bytes}", pattern.block_size_bytes);
            return Err(io::Error::other(what));
        }
        Ok(Self { pattern, blocks, next: Default::default() })
    }

    /// What is done next. Behind the last block comes the first.
    pub fn next(&self, random: &Random) -> Operation {
        let Pattern { read_percent, random_percent, block_size_bytes } = self.pattern;
        let is_read = happens(read_percent, random);
        let next = &self.next[usize::from(is_read)];
        let block = if happens(random_percent, random) { random.below(self.blocks) } else { next.get() };
        next.set((block + 1) % self.blocks);
        Operation { is_read, offset_bytes: block * u64::from(block_size_bytes) }
    }
}

/// Nothing is drawn for what always or never happens: what is drawn for places stays the same with it.
fn happens(percent: u64, random: &Random) -> bool {
    match percent {
        0 => false,
        100 => true,
        _ => random.below(100) < percent,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(read_percent: u64, random_percent: u64, count: usize) -> Vec<Operation> {
        let pattern = Pattern { read_percent, random_percent, block_size_bytes: 8192 };
        let (cursor, random) = (Cursor::new(pattern, 100 * 8192 + 5000).expect("valid"), Random::new(1));
        (0..count).map(|_| cursor.next(&random)).collect()
    }

    #[test]
    fn in_order_each_block_comes_once_and_then_again() {
        let offsets: Vec<_> = drawn(0, 0, 201).iter().map(|operation| operation.offset_bytes).collect();
        let expected: Vec<_> = (0..201).map(|number| number % 100 * 8192).collect();
        assert_eq!(offsets, expected);
    }

    #[test]
    fn at_random_all_blocks_come_and_none_beyond() {
        let mut seen = [0; 100];
        drawn(100, 100, 10_000).iter().for_each(|operation| seen[(operation.offset_bytes / 8192) as usize] += 1);
        assert!(seen.iter().all(|count| (50..200).contains(count)), "{seen:?}");
    }

    #[test]
    fn of_a_mix_shares_are_as_asked() {
        let all = drawn(80, 60, 10_000);
        let reads = all.iter().filter(|operation| operation.is_read).count();
        assert!((7_700..8_300).contains(&reads), "{reads} reads of 10,000");
        // What follows the last of its own direction: those in order, and one of a hundred of the others by chance.
        let mut last = [None; 2];
        let follows = |operation: &&Operation| {
            let before = last[usize::from(operation.is_read)].replace(operation.offset_bytes);
            before.is_some_and(|before| (before + 8192) % (100 * 8192) == operation.offset_bytes)
        };
        let in_order = all.iter().filter(follows).count();
        assert!((3_700..4_400).contains(&in_order), "{in_order} in order of 10,000");
    }

    #[test]
    fn what_has_no_room_or_no_sense_is_refused() {
        let pattern = Pattern { read_percent: 50, random_percent: 100, block_size_bytes: 8192 };
        assert!(Cursor::new(pattern, 8191).is_err());
        assert!(Cursor::new(Pattern { block_size_bytes: 0, ..pattern }, 8192).is_err());
        assert!(Cursor::new(Pattern { read_percent: 101, ..pattern }, 8192).is_err());
        assert!(Cursor::new(Pattern { random_percent: 101, ..pattern }, 8192).is_err());
        assert!(Cursor::new(pattern, 8192).is_ok());
    }
}
