//! Durations counted in buckets, each twice as wide as the one before.

use std::time::Duration;

/// Buckets: up to 1.024 µs, 2.048 µs, 4.096 µs, … 17.2 s, and all above.
pub const BUCKETS: usize = 26;
/// The first bucket's bound, as a power of two: to find a bucket is to count bits.
const FIRST_BOUND_BITS: u32 = 10;

/// The longest duration of a bucket; `None`: of the last, which has no bound.
pub fn bucket_bound(bucket: usize) -> Option<Duration> {
    (bucket + 1 < BUCKETS).then(|| Duration::from_nanos(1 << (FIRST_BOUND_BITS as usize + bucket)))
}

/// How many durations fell into each bucket, and what they add up to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    /// By bucket: not cumulative.
    pub counts: [u64; BUCKETS],
    /// Sum of all.
    pub sum_ns: u64,
}

impl Histogram {
    /// Counts one.
    pub(super) fn add(&mut self, ns: u64) {
        let bits = u64::BITS - (ns.saturating_sub(1) >> FIRST_BOUND_BITS).leading_zeros();
        self.counts[(bits as usize).min(BUCKETS - 1)] += 1;
        self.sum_ns += ns;
    }

    /// Adds what another one counted.
    pub(super) fn merge(&mut self, other: &Self) {
        self.counts.iter_mut().zip(other.counts).for_each(|(here, there)| *here += there);
        self.sum_ns += other.sum_ns;
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_falls_into_the_first_bucket_that_holds_it() {
        for bucket in 0..BUCKETS - 1 {
            let bound = bucket_bound(bucket).expect("all but the last have one").as_nanos() as u64;
            for (ns, expected) in [(bound, bucket), (bound + 1, bucket + 1)] {
                let mut histogram = Histogram::default();
                histogram.add(ns);
                assert_eq!(histogram.counts.iter().position(|count| *count == 1), Some(expected), "{ns} ns");
            }
        }
        assert_eq!(bucket_bound(BUCKETS - 1), None);
        let mut histogram = Histogram::default();
        histogram.add(0);
        histogram.add(3_600_000_000_000);
        assert_eq!((histogram.counts[0], histogram.counts[BUCKETS - 1], histogram.count()), (1, 1, 2));
        assert_eq!(histogram.sum_ns, 3_600_000_000_000);
    }
}
