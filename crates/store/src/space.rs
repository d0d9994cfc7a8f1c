//! Who may take the last segments.

use crate::format::Geometry;

/// Free segments that each kind of append leaves alone. Smaller and more useful ones may go further down, so that what
/// is stored can always be deleted, and a pass, which is what frees segments, can always be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Space {
    /// What is not usable: 10 % of the device, at least 8 segments and at least 5 per shard, at most half of the
    /// device.
    pub(crate) kept_back: u32,
    /// Overwrites.
    pub(crate) for_overwrites: u32,
    /// Zeroes: what gives space back.
    pub(crate) for_zeroes: u32,
    /// What the groups need to go on: without the entries of an epoch nothing is served, not even reads.
    pub(crate) for_groups: u32,
    /// What the cleaner copies.
    pub(crate) for_moves: u32,
    /// With no more free segments than these a pass is written for those that hold nothing any more.
    pub(crate) passes_begin: u32,
    /// Below this many segments that are free or hold nothing the cleaner makes more.
    pub(crate) cleaning_begins: u32,
}

/// Segments kept back at least: on the smallest devices a percentage of them would be less than a pass needs.
const MIN_KEPT_BACK: u32 = 8;
/// The same where more shards than usual share a small device.
const MIN_KEPT_BACK_PER_SHARD: u32 = 5;

impl Space {
    /// The same where passes need more segments than one each, so many more.
    pub(crate) fn raised_by(self, segments: u32) -> Self {
        Self {
            for_overwrites: self.for_overwrites + segments,
            for_zeroes: self.for_zeroes + segments,
            for_groups: self.for_groups + segments,
            for_moves: self.for_moves + segments,
            passes_begin: self.passes_begin + segments,
            cleaning_begins: self.cleaning_begins + segments,
            ..self
        }
    }

    /// The limits for a device. Where all shards take a segment for the entries of groups at once, each still has one
    /// for its pass: else nothing would ever become free.
    pub(crate) fn of(geometry: &Geometry) -> Self {
        let (total, shards) = (geometry.segment_count, u32::from(geometry.shard_count));
        let kept_back = (total / 10).max(MIN_KEPT_BACK).max(MIN_KEPT_BACK_PER_SHARD * shards).min(total / 2);
        let for_groups = (kept_back / 16).max(2 * shards);
        let step = (kept_back / 32).max(shards.div_ceil(2));
        let (for_zeroes, for_overwrites) = (for_groups + step, for_groups + 2 * step);
        let passes_begin = for_overwrites + (kept_back * 3 / 10).max(2);
        let cleaning_begins = for_overwrites + (kept_back * 2 / 5).max(3);
        Self { kept_back, for_overwrites, for_zeroes, for_groups, for_moves: for_groups, passes_begin, cleaning_begins }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smaller_may_go_further() {
        let mib = [256, 512, 1024, 2048, 4096, 1 << 16, 1 << 20].map(|mib: u64| Geometry::for_device(mib << 20, 512));
        let crowded = Geometry::with(512 << 20, 512, 4 << 20, Some(8));
        for geometry in mib.into_iter().chain([crowded]) {
            let geometry = geometry.expect("a device of that size can be divided");
            let (space, total) = (Space::of(&geometry), geometry.segment_count);
            assert!(0 < space.for_groups && space.for_groups < space.for_zeroes);
            assert!(space.for_zeroes < space.for_overwrites);
            assert!(
                space.for_overwrites + 1 < space.passes_begin
                    && space.passes_begin < space.cleaning_begins
                    && space.cleaning_begins <= space.kept_back
            );
            assert!(space.for_moves < space.for_overwrites && space.kept_back <= total / 2);
            assert!(2 * u32::from(geometry.shard_count) <= space.for_groups.min(space.for_moves));
        }
    }
}
