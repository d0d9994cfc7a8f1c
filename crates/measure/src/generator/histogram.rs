//! Latencies, to a hundredth: as fio keeps them.

use crate::fio::Nanoseconds;
use std::collections::BTreeMap;
use std::time::Duration;

/// Bits of a latency that are kept: an error of 1/128 at most, half of fio's.
const KEPT_BITS: u32 = 7;

/// How many I/Os took how long.
#[derive(Default)]
pub(super) struct Histogram {
    /// By the lowest latency of the bin, in ns.
    bins: BTreeMap<u64, u64>,
    sum: Duration,
    most: Duration,
    ios: u64,
}

impl Histogram {
    pub(super) fn count(&mut self, latency: Duration) {
        let nanoseconds = latency.as_nanos() as u64;
        *self.bins.entry(nanoseconds >> shift(nanoseconds) << shift(nanoseconds)).or_default() += 1;
        self.sum += latency;
        self.most = self.most.max(latency);
        self.ios += 1;
    }

    pub(super) fn ios(&self) -> u64 {
        self.ios
    }

    /// As fio tells them: a bin is called by its middle.
    pub(super) fn nanoseconds(&self) -> Nanoseconds {
        let middle = |lowest: &u64| lowest + (1 << shift(*lowest)) / 2;
        Nanoseconds {
            max: self.most.as_nanos() as f64,
            mean: self.sum.as_nanos() as f64 / self.ios.max(1) as f64,
            count: self.ios,
            bins: self.bins.iter().map(|(lowest, ios)| (middle(lowest).to_string(), *ios)).collect(),
        }
    }
}

/// Bits of this latency that are not kept.
fn shift(nanoseconds: u64) -> u32 {
    (u64::BITS - nanoseconds.leading_zeros()).saturating_sub(KEPT_BITS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_io_is_lost_and_none_is_told_more_than_a_hundredth_off() {
        let mut histogram = Histogram::default();
        let latencies: Vec<u64> = (0..2_000).map(|at| at * at * 37).collect();
        latencies.iter().for_each(|nanoseconds| histogram.count(Duration::from_nanos(*nanoseconds)));
        let told = histogram.nanoseconds();
        assert_eq!(
            (told.bins.values().sum::<u64>(), told.count, told.max),
            (2_000, 2_000, (1_999 * 1_999 * 37) as f64)
        );
        let mean = latencies.iter().sum::<u64>() as f64 / 2_000.0;
        assert!((told.mean - mean).abs() < 1.0);
        for nanoseconds in [90, 1_000, 123_456, 9_999_999_999] {
            let mut one = Histogram::default();
            one.count(Duration::from_nanos(nanoseconds));
            let told: f64 = one.nanoseconds().bins.keys().next().unwrap().parse().unwrap();
            assert!((told - nanoseconds as f64).abs() <= nanoseconds as f64 / 100.0, "{nanoseconds} is told as {told}");
        }
    }
}
