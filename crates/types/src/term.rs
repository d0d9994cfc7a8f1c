//! Whose an entry of a group's order is.

use crate::{Epoch, Incarnation, StoreId};
use core::fmt;

/// The epoch in which an entry got its place, and a mark of who led it. A map that was restored from a backup gives an
/// epoch again: two that led in it, each on its own, wrote entries of the same epoch and sequence, and only the mark tells
/// one's from the other's. Ordered by the epoch, then by the mark, whose order means nothing but is the same everywhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Term {
    /// The epoch.
    pub epoch: Epoch,
    /// Of the store that led in it and that life of it; 0 before the first epoch.
    pub mark: u32,
}

impl Term {
    /// Before the first.
    pub const NONE: Self = Self::new(Epoch(0), 0);

    /// Of this epoch, with a mark as it is written.
    pub const fn new(epoch: Epoch, mark: u32) -> Self {
        Self { epoch, mark }
    }

    /// Of this epoch, led by this life of a store. The mark is the upper half of a 64-bit mix of both (the finalizer of
    /// SplitMix64): two that lead in one epoch have the same once in 2^32 times.
    pub const fn led_by(epoch: Epoch, store: StoreId, life: Incarnation) -> Self {
        let halves = (store.0 as u64) ^ ((store.0 >> 64) as u64).rotate_left(32);
        let mixed = mix(mix(halves) ^ life.0);
        Self { epoch, mark: (mixed >> 32) as u32 }
    }
}

const fn mix(number: u64) -> u64 {
    let number = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    number ^ (number >> 31)
}

impl From<Epoch> for Term {
    /// Without a mark.
    fn from(epoch: Epoch) -> Self {
        Self::new(epoch, 0)
    }
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({:08x})", self.epoch, self.mark)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Marks are on devices: they never change.
    #[test]
    fn marks_are_those_of_before() {
        let mark = |store, life| Term::led_by(Epoch(7), StoreId(store), Incarnation(life)).mark;
        let found = [mark(1, 1), mark(1, 2), mark(2, 1), mark(1 << 64, 1)];
        assert_eq!(found.map(|mark| format!("{mark:08x}")), ["e9fd6049", "bcd9dbb4", "e06dd043", "114aea39"]);
    }

    #[test]
    fn a_later_epoch_is_greater_whatever_the_marks() {
        assert!(Term::new(Epoch(3), 9) < Term::new(Epoch(4), 1));
        assert!(Term::new(Epoch(3), 1) < Term::new(Epoch(3), 2));
        assert!(Term::NONE < Term::led_by(Epoch(1), StoreId(1), Incarnation(1)));
    }
}
