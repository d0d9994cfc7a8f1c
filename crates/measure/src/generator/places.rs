//! Where the I/Os of a job go, and which of them write: drawn as fio draws it.

use crate::fio::Ask;
use runtime::sim::Random;
use std::cell::Cell;

/// Of one job.
pub(super) struct Places {
    random: Random,
    /// First byte of its share, and its blocks.
    begin: u64,
    blocks: u64,
    /// The block behind the last.
    next: Cell<u64>,
    block_bytes: u64,
    read_percent: u64,
    random_percent: u64,
}

impl Places {
    /// Of job `job`, from 0. Jobs that go through the span in order have a part of it each.
    pub(super) fn new(ask: &Ask, job: u64) -> Self {
        let case = &ask.case;
        let jobs = if case.random_percent < 100 { u64::from(case.jobs) } else { 1 };
        let blocks = ask.span_bytes / jobs / case.block_size_bytes;
        Self {
            random: Random::for_purpose(ask.seed, job + 1),
            begin: if jobs > 1 { job * blocks * case.block_size_bytes } else { 0 },
            blocks: blocks.max(1),
            next: Cell::new(0),
            block_bytes: case.block_size_bytes,
            read_percent: case.read_percent.into(),
            random_percent: case.random_percent.into(),
        }
    }

    /// First byte of the next I/O, and whether it writes.
    pub(super) fn next(&self) -> (u64, bool) {
        let is_random = self.random.below(100) < self.random_percent;
        let block = if is_random { self.random.below(self.blocks) } else { self.next.get() };
        self.next.set((block + 1) % self.blocks);
        (self.begin + block * self.block_bytes, self.random.below(100) >= self.read_percent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fio::Times;
    use crate::profile::Case;
    use std::time::Duration;

    const SPAN: u64 = 1 << 20;

    fn places(random_percent: u8, read_percent: u8, jobs: u32, job: u64, seed: u64) -> Vec<(u64, bool)> {
        let case = Case {
            name: String::new(),
            block_size_bytes: 4096,
            read_percent,
            random_percent,
            depth: 1,
            jobs,
            fsync: false,
        };
        let times = Times { warm_up: Duration::ZERO, measured: Duration::ZERO };
        let ask = Ask { case, span_bytes: SPAN, times, seed, rate: None };
        let places = Places::new(&ask, job);
        (0..10_000).map(|_| places.next()).collect()
    }

    #[test]
    fn shares_are_as_the_case_says() {
        let drawn = places(80, 70, 1, 0, 1);
        let writes = drawn.iter().filter(|(_, writes)| *writes).count();
        assert!((2_800..3_200).contains(&writes), "{writes}");
        let follow = drawn.windows(2).filter(|pair| pair[1].0 == pair[0].0 + 4096).count();
        assert!((1_800..2_300).contains(&follow), "{follow}");
        assert!(drawn.iter().all(|(offset, _)| offset % 4096 == 0 && offset + 4096 <= SPAN));
    }

    #[test]
    fn jobs_that_go_in_order_have_a_part_each_and_begin_anew_at_its_end() {
        let second = places(0, 0, 4, 1, 1);
        assert_eq!((second[0].0, second[1].0, second[64].0), (SPAN / 4, SPAN / 4 + 4096, SPAN / 4));
        assert!(second.iter().all(|(offset, _)| (SPAN / 4..SPAN / 2).contains(offset)));
    }

    #[test]
    fn a_seed_draws_the_same_and_another_does_not() {
        let one = places(100, 50, 2, 0, 1);
        assert_eq!(one, places(100, 50, 2, 0, 1));
        assert_ne!(one, places(100, 50, 2, 0, 2));
        assert_ne!(one, places(100, 50, 2, 1, 1), "jobs do not do the same");
    }
}
