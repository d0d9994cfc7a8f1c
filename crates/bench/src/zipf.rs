//! Which block is written next: all alike, or some far more often than others.

use runtime::sim::Random;

/// Draws numbers below a limit.
pub enum Draw {
    /// Each as often as any other.
    Uniform(u64),
    /// By Zipf's law.
    Zipf(Zipf),
}

impl Draw {
    /// Numbers below `count`, by Zipf's law if there is an exponent.
    ///
    /// # Panics
    /// If there is nothing to draw from, or more than fits in 32 bits for Zipf's law.
    pub fn new(count: u64, exponent: Option<f64>) -> Self {
        assert!(count > 0, "nothing to draw from");
        match exponent {
            Some(exponent) => Self::Zipf(Zipf::new(count, exponent)),
            None => Self::Uniform(count),
        }
    }

    /// The next number.
    pub fn next(&self, random: &Random) -> u64 {
        match self {
            Self::Uniform(count) => random.below(*count),
            Self::Zipf(zipf) => zipf.next(random),
        }
    }
}

/// Number k in the order of popularity is drawn in proportion to 1 / k^exponent; the popular ones are spread over all
/// numbers. Walker's alias method: two look-ups a number, whatever the count.
pub struct Zipf {
    /// Of each column the share, in 2^-32, that is its own, and who has the rest.
    columns: Vec<(u32, u32)>,
}

/// Odd, and no multiple of what a count is likely to be: neighbours in popularity are not neighbours on the volume.
const SPREAD: u64 = 0x9E37_79B1;

impl Zipf {
    fn new(count: u64, exponent: f64) -> Self {
        let n = u32::try_from(count).expect("a table of so many does not fit in memory") as usize;
        let mut share: Vec<f64> = (1..=n).map(|k| (k as f64).powf(-exponent)).collect();
        let mean = share.iter().sum::<f64>() / n as f64;
        share.iter_mut().for_each(|one| *one /= mean);
        let mut columns: Vec<(u32, u32)> = (0..n as u32).map(|k| (u32::MAX, k)).collect();
        let (mut short, mut long): (Vec<u32>, Vec<u32>) = (0..n as u32).partition(|k| share[*k as usize] < 1.0);
        while let (Some(small), Some(large)) = (short.pop(), long.last().copied()) {
            columns[small as usize] = ((share[small as usize] * 4_294_967_296.0) as u32, large);
            share[large as usize] -= 1.0 - share[small as usize];
            if share[large as usize] < 1.0 {
                long.pop();
                short.push(large);
            }
        }
        Self { columns }
    }

    fn next(&self, random: &Random) -> u64 {
        let count = self.columns.len() as u64;
        let column = random.below(count);
        let (own, other) = self.columns[column as usize];
        let rank = if random.next_u64() >> 32 <= u64::from(own) { column } else { u64::from(other) };
        rank.wrapping_mul(SPREAD) % count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_is_drawn_as_often_as_the_law_says() {
        let (zipf, random) = (Zipf::new(10_000, 1.1), Random::new(3));
        let mut seen = vec![0_u32; 10_000];
        (0..1_000_000).for_each(|_| seen[zipf.next(&random) as usize] += 1);
        let sum: f64 = (1..=10_000).map(|k| f64::from(k).powf(-1.1)).sum();
        for k in [1_u64, 2, 10, 100] {
            let expected = 1e6 * (k as f64).powf(-1.1) / sum;
            let found = f64::from(seen[((k - 1).wrapping_mul(SPREAD) % 10_000) as usize]);
            assert!((found - expected).abs() < expected / 10.0 + 40.0, "number {k}: {found} of {expected}");
        }
        assert!(seen.iter().filter(|count| **count > 0).count() > 9_000, "all are drawn at times");
    }
}
