//! Who may take the last segments.

/// Free segments that each kind of append leaves alone. Smaller and more useful ones may go further down, so that what
/// is stored can always be deleted, and a pass, which is what frees segments, can always be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Space {
    /// New blocks: 10 % of the device (at least 8 segments) and 10 % of what is usable.
    pub(crate) for_new_blocks: u32,
    /// Overwrites.
    pub(crate) for_overwrites: u32,
    /// Zeroes: what gives space back.
    pub(crate) for_zeroes: u32,
    /// What the groups need to go on: without the entries of an epoch nothing is served, not even reads.
    pub(crate) for_groups: u32,
    /// Below this many free segments a pass is due, should it free any.
    pub(crate) pass_is_urgent: u32,
}

/// Segments kept back at least: on the smallest devices a percentage of them would be less than a pass needs.
const MIN_KEPT_BACK: u32 = 8;

impl Space {
    /// The limits for a device of this many segments.
    pub(crate) fn of(total: u32) -> Self {
        let kept_back = (total / 10).max(MIN_KEPT_BACK).min(total / 2);
        let for_new_blocks = kept_back + (total - kept_back) / 10;
        Self {
            for_new_blocks,
            for_overwrites: kept_back / 2,
            for_zeroes: kept_back / 4,
            for_groups: kept_back / 8,
            // Time to write a pass before new blocks are refused.
            pass_is_urgent: for_new_blocks + (total - for_new_blocks) / 8,
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
            assert!(space.for_overwrites < space.for_new_blocks && space.for_new_blocks < space.pass_is_urgent);
            assert!(space.for_new_blocks <= total / 4);
        }
    }
}
