//! What a volume may do in a second: the same rates for all cores, all connections and both doors.
//!
//! Each rate is one number, the time at which all that was taken so far is paid for (the *theoretical arrival time* of
//! the generic cell rate algorithm, ITU-T I.371 annex A). Whoever takes moves it forward by what it takes, and may begin
//! when it is no further ahead than the burst. No tokens are filled in by a timer, no lock is held, and a volume that
//! nobody uses costs nothing.
//!
//! ```text
//!   paid until ──────────────┐                 an idle volume: paid until some time ago, so that burst × rate may begin
//!   ───────────┬─────────────┼──────► time     at once; then one command each 1 / rate
//!             now   ≤ burst ─┘ begins now,
//!                   > burst    begins when it is not any more
//! ```

use cluster::Limits;
use runtime::Instant;
use std::sync::atomic::{AtomicU64, Ordering};

const SECOND_NS: u128 = 1_000_000_000;

/// What a command takes of its volume's limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    /// Commands.
    pub commands: u64,
    /// Bytes that it moves.
    pub bytes: u64,
}

impl Cost {
    /// One command that moves so many bytes.
    pub fn of(bytes: u64) -> Self {
        Self { commands: 1, bytes }
    }
}

/// One volume's limits, shared by all cores.
#[derive(Debug)]
pub(crate) struct Limiter {
    limits: Limits,
    burst_ns: u64,
    /// Until when the commands taken so far are paid for, in ns of the node's clock; so the bytes.
    commands_paid_ns: AtomicU64,
    bytes_paid_ns: AtomicU64,
}

impl Limiter {
    /// `None` if there is nothing to limit. It begins with nothing saved up: a limit that was just changed is no way to
    /// a new burst.
    pub(crate) fn new(limits: Limits, now: Instant) -> Option<Self> {
        let burst_ns = limits.burst().as_nanos() as u64;
        let paid = || AtomicU64::new(now.0.saturating_add(burst_ns));
        let limiter = Self { limits, burst_ns, commands_paid_ns: paid(), bytes_paid_ns: paid() };
        (!limits.is_unset()).then_some(limiter)
    }

    pub(crate) fn limits(&self) -> Limits {
        self.limits
    }

    /// Takes it; when the command may begin, `now` or later.
    pub(crate) fn take(&self, cost: Cost, now: Instant) -> Instant {
        let take = |rate: Option<u64>, paid_ns: &AtomicU64, units: u64| match rate {
            Some(rate) if units > 0 => self.pay(paid_ns, time_for(units, rate), now),
            _ => now,
        };
        let commands = take(self.limits.iops, &self.commands_paid_ns, cost.commands);
        let bytes = take(self.limits.bytes_per_second, &self.bytes_paid_ns, cost.bytes);
        commands.max(bytes)
    }

    fn pay(&self, paid_ns: &AtomicU64, price_ns: u64, now: Instant) -> Instant {
        let next = |paid: u64| Some(paid.max(now.0).saturating_add(price_ns));
        // Relaxed: the number is all there is to agree on.
        let update = paid_ns.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        let was = update.unwrap_or_else(|same| same);
        Instant(was.saturating_sub(self.burst_ns).max(now.0))
    }
}

/// What so many units take at a rate per second, rounded up: rather a billionth too slow than too fast.
fn time_for(units: u64, rate: u64) -> u64 {
    (u128::from(units) * SECOND_NS).div_ceil(u128::from(rate)).min(u128::from(u64::MAX)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const MS: u64 = 1_000_000;

    fn limiter(limits: Limits) -> Limiter {
        Limiter::new(limits, Instant(0)).expect("there is a limit")
    }

    fn iops(iops: u64, burst_ms: u64) -> Limiter {
        limiter(Limits { iops: Some(iops), burst_ms: Some(burst_ms), ..Limits::default() })
    }

    #[test]
    fn what_was_saved_up_goes_at_once_and_then_the_rate_holds() {
        let limiter = iops(100, 50);
        let now = Instant(1000 * MS);
        let at_once = (0..100).take_while(|_| limiter.take(Cost::of(1 << 20), now) == now).count();
        assert_eq!(at_once, 6, "50 ms of 100 in a second, and one");
        // The one that was refused has its place, and the next its own behind it.
        let starts: Vec<u64> = (0..3).map(|_| limiter.take(Cost::of(0), now).0 - now.0).collect();
        assert_eq!(starts, [20 * MS, 30 * MS, 40 * MS]);
    }

    #[test]
    fn a_new_limit_has_nothing_saved_up() {
        let limiter = iops(100, 1000);
        assert_eq!([0, 1, 2].map(|_| limiter.take(Cost::of(0), Instant(0)).0), [0, 10 * MS, 20 * MS]);
    }

    #[test]
    fn the_scarcer_of_both_limits_decides() {
        let limits = Limits { iops: Some(1000), bytes_per_second: Some(1 << 20), burst_ms: Some(10) };
        let (limiter, now) = (limiter(limits), Instant(1_000_000 * MS));
        assert_eq!(limiter.take(Cost::of(1 << 20), now), now);
        let second = limiter.take(Cost::of(4096), now);
        assert_eq!(second, now + Duration::from_millis(990), "the first one's bytes, less the burst");
        assert_eq!(limiter.take(Cost::of(0), now), now, "no bytes, so no wait for bytes");
    }

    #[test]
    fn extremes_neither_overflow_nor_divide_by_nothing() {
        let limits = Limits { iops: Some(1), bytes_per_second: Some(64 << 10), burst_ms: Some(60 * 60 * 1000) };
        let limiter = limiter(limits);
        for _ in 0..10 {
            limiter.take(Cost { commands: u64::MAX, bytes: u64::MAX }, Instant(u64::MAX / 2));
        }
        assert!(Limiter::new(Limits::default(), Instant(0)).is_none());
    }
}
