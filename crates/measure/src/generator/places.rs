//! What a load does next: it reads or writes, in order or anywhere; drawn as fio draws it.

use crate::profile::Case;
use runtime::sim::Random;
use std::cell::Cell;

/// What a load's I/Os are: their size, and what they have which share of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// Bytes of one I/O, which begins at a multiple of it.
    pub block_size_bytes: u64,
    /// Of 100 I/Os so many read; the others write.
    pub read_percent: u8,
    /// Of 100 I/Os so many go to a block drawn at random; the others follow the last of their direction.
    pub random_percent: u8,
    /// Whether each write is followed by a flush.
    pub flushes: bool,
}

impl From<&Case> for Pattern {
    fn from(case: &Case) -> Self {
        let Case { block_size_bytes, read_percent, random_percent, fsync: flushes, .. } = *case;
        Self { block_size_bytes, read_percent, random_percent, flushes }
    }
}

/// One I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// First byte.
    pub(super) offset_bytes: u64,
    /// It writes otherwise.
    pub(super) is_read: bool,
}

/// Where a job is in what it reads and writes; all that it has under way share it.
#[derive(Debug)]
pub(super) struct Places {
    pattern: Pattern,
    random: Random,
    /// First byte of its share, and its blocks.
    begin_bytes: u64,
    blocks: u64,
    /// The block behind the last one, of reads and of writes.
    next: [Cell<u64>; 2],
}

impl Places {
    /// Of each of so many jobs, over the first `span_bytes`. Jobs that go through the span in order have a part of it each.
    ///
    /// # Errors
    /// If there is no room for one I/O, or a share is above 100: what is wrong.
    pub(super) fn of_jobs(pattern: Pattern, span_bytes: u64, jobs: u32, seed: u64) -> Result<Vec<Self>, String> {
        let bytes = pattern.block_size_bytes;
        if pattern.read_percent > 100 || pattern.random_percent > 100 {
            return Err("a share is 0 to 100 per cent".to_owned());
        }
        let is_divided = pattern.random_percent < 100 && jobs > 1;
        let share_bytes = if is_divided { span_bytes / u64::from(jobs) } else { span_bytes };
        let blocks = share_bytes.checked_div(bytes).unwrap_or(0);
        if blocks == 0 {
            return Err(format!("I/Os of {bytes} bytes do not fit in {share_bytes}"));
        }
        let of_job = |job: u64| Self {
            pattern,
            random: Random::for_purpose(seed, job + 1),
            begin_bytes: if is_divided { job * blocks * bytes } else { 0 },
            blocks,
            next: Default::default(),
        };
        Ok((0..u64::from(jobs)).map(of_job).collect())
    }

    /// The next I/O. Behind the last block comes the first.
    pub(super) fn next(&self) -> Place {
        let Pattern { block_size_bytes, read_percent, random_percent, .. } = self.pattern;
        let is_read = self.happens(read_percent);
        let next = &self.next[usize::from(is_read)];
        let block = if self.happens(random_percent) { self.random.below(self.blocks) } else { next.get() };
        next.set((block + 1) % self.blocks);
        Place { offset_bytes: self.begin_bytes + block * block_size_bytes, is_read }
    }

    /// Nothing is drawn for what always or never happens: what is drawn for places stays the same with it.
    fn happens(&self, percent: u8) -> bool {
        match percent {
            0 => false,
            100 => true,
            _ => self.random.below(100) < u64::from(percent),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: u64 = 8192;
    const BLOCKS: u64 = 100;

    fn pattern(read_percent: u8, random_percent: u8) -> Pattern {
        Pattern { block_size_bytes: BLOCK, read_percent, random_percent, flushes: false }
    }

    /// What the last of so many jobs does.
    fn drawn(pattern: Pattern, jobs: u32, seed: u64, count: usize) -> Vec<Place> {
        let places = Places::of_jobs(pattern, BLOCKS * BLOCK + 5000, jobs, seed).unwrap().pop().unwrap();
        (0..count).map(|_| places.next()).collect()
    }

    fn offsets(drawn: &[Place]) -> Vec<u64> {
        drawn.iter().map(|place| place.offset_bytes).collect()
    }

    #[test]
    fn in_order_each_block_comes_once_and_then_again() {
        let expected: Vec<_> = (0..201).map(|number| number % BLOCKS * BLOCK).collect();
        assert_eq!(offsets(&drawn(pattern(0, 0), 1, 1, 201)), expected);
    }

    #[test]
    fn at_random_all_blocks_come_and_none_beyond() {
        let mut seen = [0; BLOCKS as usize];
        drawn(pattern(100, 100), 1, 1, 10_000)
            .iter()
            .for_each(|place| seen[(place.offset_bytes / BLOCK) as usize] += 1);
        assert!(seen.iter().all(|count| (50..200).contains(count)), "{seen:?}");
    }

    #[test]
    fn of_a_mix_shares_are_as_asked_and_each_direction_is_in_order_by_itself() {
        let all = drawn(pattern(80, 60), 1, 1, 10_000);
        let reads = all.iter().filter(|place| place.is_read).count();
        assert!((7_700..8_300).contains(&reads), "{reads} reads of 10,000");
        // What follows the last of its own direction: those in order, and one of a hundred of the others by chance.
        let mut last = [None; 2];
        let follows = |place: &&Place| {
            let before = last[usize::from(place.is_read)].replace(place.offset_bytes);
            before.is_some_and(|before| (before + BLOCK) % (BLOCKS * BLOCK) == place.offset_bytes)
        };
        let in_order = all.iter().filter(follows).count();
        assert!((3_700..4_400).contains(&in_order), "{in_order} in order of 10,000");
    }

    #[test]
    fn jobs_that_go_in_order_have_a_part_each_and_begin_anew_at_its_end() {
        let last = offsets(&drawn(pattern(0, 0), 4, 1, 10_000));
        let part = BLOCKS / 4 * BLOCK;
        assert_eq!((last[0], last[1], last[25]), (3 * part, 3 * part + BLOCK, 3 * part));
        assert!(last.iter().all(|offset| (3 * part..4 * part).contains(offset)));
        assert!(
            drawn(pattern(0, 100), 4, 1, 10_000).iter().any(|place| place.offset_bytes < part),
            "all is everybody's"
        );
    }

    #[test]
    fn a_seed_draws_the_same_and_another_does_not() {
        let one = drawn(pattern(50, 100), 2, 1, 1_000);
        assert_eq!(one, drawn(pattern(50, 100), 2, 1, 1_000));
        assert_ne!(one, drawn(pattern(50, 100), 2, 2, 1_000));
        assert_ne!(one, drawn(pattern(50, 100), 1, 1, 1_000), "jobs do not do the same");
        let written = drawn(pattern(0, 100), 2, 1, 1_000);
        assert_eq!(offsets(&written), offsets(&drawn(pattern(100, 100), 2, 1, 1_000)), "what is read was written");
    }

    #[test]
    fn what_has_no_room_or_no_sense_is_refused() {
        let refused = |pattern, span, jobs| Places::of_jobs(pattern, span, jobs, 1).is_err();
        assert!(refused(pattern(50, 100), BLOCK - 1, 1));
        assert!(refused(pattern(50, 0), 2 * BLOCK, 3));
        assert!(refused(Pattern { block_size_bytes: 0, ..pattern(50, 100) }, BLOCK, 1));
        assert!(refused(pattern(101, 100), BLOCK, 1) && refused(pattern(100, 101), BLOCK, 1));
        assert!(!refused(pattern(50, 100), BLOCK, 3));
    }
}
