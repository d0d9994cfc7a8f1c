//! Who may take the last segments.

/// Free segments that each kind of append leaves alone. Smaller and more useful ones may go further down, so that what
/// is stored can always be deleted, and a pass, which is what frees segments, can always be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Space {
    /// What is not usable: 10 % of the device, at least 8 segments.
    pub(crate) kept_back: u32,
    /// What is left free by a device that is made up to be full of new blocks: [`kept_back`](Self::kept_back) and 10 % of
    /// what is usable.
    pub(crate) for_new_blocks: u32,
    /// Overwrites.
    pub(crate) for_overwrites: u32,
    /// Zeroes: what gives space back.
    pub(crate) for_zeroes: u32,
    /// What the groups need to go on: without the entries of an epoch nothing is served, not even reads.
    pub(crate) for_groups: u32,
    /// What the cleaner copies.
    pub(crate) for_moves: u32,
    /// Below this many free segments the cleaner makes more.
    pub(crate) cleaning_begins: u32,
}

/// Segments kept back at least: on the smallest devices a percentage of them would be less than a pass needs.
const MIN_KEPT_BACK: u32 = 8;

impl Space {
    /// The limits for a device of this many segments.
    pub(crate) fn of(total: u32) -> Self {
        let kept_back = (total / 10).max(MIN_KEPT_BACK).min(total / 2);
        let for_new_blocks = kept_back + (total - kept_back) / 10;
        Self {
            kept_back,
            for_new_blocks,
            for_overwrites: kept_back * 3 / 8,
            for_zeroes: kept_back / 4,
            for_groups: kept_back / 8,
            for_moves: kept_back / 8,
            cleaning_begins: kept_back * 3 / 4,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smaller_may_go_further() {
        for total in [55, 63, 255, 1023, 16383] {
            let space = Space::of(total);
            assert!(0 < space.for_groups && space.for_groups < space.for_zeroes);
            assert!(space.for_zeroes < space.for_overwrites);
            assert!(space.for_overwrites + 1 < space.cleaning_begins && space.cleaning_begins < space.kept_back);
            assert!(space.for_moves < space.for_overwrites && space.for_new_blocks <= total / 4);
        }
    }
}
