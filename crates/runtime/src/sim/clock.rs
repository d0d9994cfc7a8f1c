//! A node's clocks: both run on the world's time, neither shows it.

use crate::time::Instant;
use std::cell::Cell;

const MILLION: u64 = 1_000_000;

/// A deadline, the clock that it was looked up in (see [`NodeClock`]), and the time of the world then.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct KnownDeadline((Instant, (u64, u64), u32), u64);

/// Monotonic clock with its own start and rate, and a wall clock that is off by some amount.
#[derive(Debug)]
pub(super) struct NodeClock {
    /// World time and node time at the last change of rate.
    since: Cell<(u64, u64)>,
    /// Nanoseconds this clock advances in a millisecond of the world: 1,000,000 is exact.
    rate: Cell<u32>,
    wall_offset_ns: Cell<i64>,
}

/// 2026-01-01: where wall clocks start, so that times look like times.
const WALL_CLOCK_START_NS: u64 = 1_767_225_600_000_000_000;

impl NodeClock {
    pub(super) fn new(world_now: u64, start: u64, rate_offset_ppm: i32, wall_offset_ns: i64) -> Self {
        let clock = Self {
            since: Cell::new((world_now, start)),
            rate: Cell::new(0),
            wall_offset_ns: Cell::new(wall_offset_ns),
        };
        clock.set_rate(world_now, rate_offset_ppm);
        clock
    }

    /// # Panics
    /// Beyond ±500,000: a clock that stands still or runs backwards is no monotonic clock.
    pub(super) fn set_rate(&self, world_now: u64, offset_ppm: i32) {
        assert!(offset_ppm.abs() <= 500_000, "a clock's rate is off by {offset_ppm} ppm");
        if self.rate.get() != 0 {
            self.since.set((world_now, self.at(world_now).0));
        }
        self.rate.set((MILLION as i32 + offset_ppm) as u32);
    }

    pub(super) fn set_wall_offset(&self, offset_ns: i64) {
        self.wall_offset_ns.set(offset_ns);
    }

    /// What the clock shows at a time of the world.
    pub(super) fn at(&self, world: u64) -> Instant {
        let (since_world, since_node) = self.since.get();
        // In two parts, so that nothing is wider than 64 bits: this is asked at every step.
        let (passed, rate) = (world - since_world, u64::from(self.rate.get()));
        Instant(since_node + passed / MILLION * rate + passed % MILLION * rate / MILLION)
    }

    /// The same as of [`world_time_of`](Self::world_time_of), of a deadline that is mostly the one before.
    pub(super) fn world_time_of_next(&self, deadline: Instant, known: &Cell<KnownDeadline>) -> u64 {
        let from = (deadline, self.since.get(), self.rate.get());
        match known.get() {
            KnownDeadline(known, time) if known == from => time,
            _ => {
                let time = self.world_time_of(deadline);
                known.set(KnownDeadline(from, time));
                time
            }
        }
    }

    /// The first time of the world at which the clock shows at least `deadline`.
    pub(super) fn world_time_of(&self, deadline: Instant) -> u64 {
        let (since_world, since_node) = self.since.get();
        let (ahead, rate) = (deadline.0.saturating_sub(since_node), u64::from(self.rate.get()));
        let rest = (ahead % rate * MILLION).div_ceil(rate);
        (ahead / rate).saturating_mul(MILLION).saturating_add(since_world).saturating_add(rest)
    }

    pub(super) fn wall_ns(&self, world: u64) -> u64 {
        (WALL_CLOCK_START_NS + world).saturating_add_signed(self.wall_offset_ns.get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_is_reached_at_its_world_time_and_not_before() {
        for ppm in [-20_000, -1, 0, 1, 20_000] {
            let clock = NodeClock::new(1_000, 77, ppm, 0);
            for deadline in [78, 1_000, 123_456_789, 9_999_999_999, 123_456_789_012_345_678] {
                let world = clock.world_time_of(Instant(deadline));
                assert!(clock.at(world).0 >= deadline && clock.at(world - 1).0 < deadline, "{ppm} {deadline}");
            }
        }
    }

    #[test]
    fn a_change_of_rate_makes_no_jump() {
        let clock = NodeClock::new(0, 5, 0, 0);
        clock.set_rate(1_000_000, 20_000);
        assert_eq!(clock.at(1_000_000), Instant(1_000_005));
        assert_eq!(clock.at(2_000_000), Instant(2_020_005));
    }
}
