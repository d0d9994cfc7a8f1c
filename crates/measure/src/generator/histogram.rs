//! Latencies, to a thousandth.

use crate::fio::Nanoseconds;
use hdrhistogram::Histogram as Bins;
use std::time::Duration;

/// What takes longer is counted as this; the slowest of all is told as it was.
const LATENCY_MAX: Duration = Duration::from_secs(100);
/// Decimal digits of a latency that are kept: ten times as fine as fio's bins.
const DIGITS: u8 = 3;

/// How many operations took how long. It is as large as it will be from the beginning: counting allocates nothing.
#[derive(Clone)]
pub struct Histogram {
    /// Of nanoseconds.
    bins: Bins<u64>,
    sum: Duration,
    slowest: Duration,
}

impl Default for Histogram {
    fn default() -> Self {
        let bins = Bins::new_with_bounds(1, LATENCY_MAX.as_nanos() as u64, DIGITS);
        Self { bins: bins.expect("the bounds are in order"), sum: Duration::ZERO, slowest: Duration::ZERO }
    }
}

impl Histogram {
    /// One more.
    pub fn count(&mut self, latency: Duration) {
        self.bins.saturating_record(latency.as_nanos() as u64);
        self.sum += latency;
        self.slowest = self.slowest.max(latency);
    }

    /// All that another one counted, too.
    pub fn add(&mut self, other: &Self) {
        self.bins.add(&other.bins).expect("all have the same bounds");
        self.sum += other.sum;
        self.slowest = self.slowest.max(other.slowest);
    }

    /// Nothing was counted.
    pub fn clear(&mut self) {
        self.bins.reset();
        (self.sum, self.slowest) = (Duration::ZERO, Duration::ZERO);
    }

    /// How many there were.
    pub fn operations(&self) -> u64 {
        self.bins.len()
    }

    /// Their mean, µs; of none it is 0.
    pub fn mean_us(&self) -> f64 {
        self.sum.as_nanos() as f64 / self.operations().max(1) as f64 / 1e3
    }

    /// What this share of them took at most, µs.
    pub fn quantile_us(&self, share: f64) -> f64 {
        self.bins.value_at_quantile(share) as f64 / 1e3
    }

    /// The slowest, µs.
    pub fn max_us(&self) -> f64 {
        self.slowest.as_nanos() as f64 / 1e3
    }

    /// As fio tells them: a bin is called by its middle.
    pub(crate) fn nanoseconds(&self) -> Nanoseconds {
        let bins = self.bins.iter_recorded().map(|bin| {
            let middle = self.bins.median_equivalent(bin.value_iterated_to());
            (middle.to_string(), bin.count_at_value())
        });
        Nanoseconds {
            max: self.slowest.as_nanos() as f64,
            mean: self.sum.as_nanos() as f64 / self.operations().max(1) as f64,
            count: self.operations(),
            bins: bins.collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(nanoseconds: impl IntoIterator<Item = u64>) -> Histogram {
        let mut histogram = Histogram::default();
        nanoseconds.into_iter().for_each(|latency| histogram.count(Duration::from_nanos(latency)));
        histogram
    }

    #[test]
    fn no_io_is_lost_and_none_is_told_more_than_a_thousandth_off() {
        let latencies: Vec<u64> = (0..2_000).map(|at| at * at * 37).collect();
        let told = counted(latencies.iter().copied()).nanoseconds();
        assert_eq!(
            (told.bins.values().sum::<u64>(), told.count, told.max),
            (2_000, 2_000, (1_999 * 1_999 * 37) as f64)
        );
        let mean = latencies.iter().sum::<u64>() as f64 / 2_000.0;
        assert!((told.mean - mean).abs() < 1.0);
        for nanoseconds in [90, 1_000, 123_456, 9_999_999_999] {
            let one = counted([nanoseconds]);
            let told: f64 = one.nanoseconds().bins.keys().next().unwrap().parse().unwrap();
            for told in [told, one.quantile_us(0.5) * 1e3] {
                let off = (told - nanoseconds as f64).abs();
                assert!(off <= nanoseconds as f64 / 1000.0, "{nanoseconds} is told as {told}");
            }
        }
    }

    #[test]
    fn what_takes_longer_than_there_is_room_for_is_the_slowest_still() {
        let long = counted([1_000, 200_000_000_000]);
        assert_eq!((long.operations(), long.max_us()), (2, 200e6));
        assert!((long.quantile_us(1.0) - 100e6).abs() < 1e5);
    }

    #[test]
    fn two_together_are_as_one_that_counted_all() {
        let (mut one, other, all) = (counted(1..500), counted(500..1_000), counted(1..1_000));
        one.add(&other);
        assert_eq!((one.operations(), one.mean_us(), one.max_us()), (999, all.mean_us(), all.max_us()));
        assert_eq!(one.quantile_us(0.99), all.quantile_us(0.99));
        one.clear();
        assert_eq!((one.operations(), one.mean_us(), one.max_us()), (0, 0.0, 0.0));
    }
}
