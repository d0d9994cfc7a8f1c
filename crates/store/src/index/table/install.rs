//! Leaves that are received from another member, piece by piece.
//!
//! ```text
//!   trusted ──begin──▶ untrusted, empty (or as it was) ──blocks, zeroes──▶ untrusted ──end(last_seq)──▶ trusted
//!                         │ an entry of the order is left out, and its sequence noted     ▲
//!                         └── the end counts only if the image holds what was left out ───┘
//! ```
//!
//! What is installed goes into a leaf that an install has begun in, and nowhere else: where the begin was lost with a
//! crash, or the leaf is gone since, it is dead on arrival.

use super::{Held, Index, slot_mut};
use crate::format::blocks::BlockState;
use crate::format::{LeafKey, StoredBlock};
use types::{BLOCKS_PER_CHUNK, BlockRange, Mutant, Seq, mutant};

impl Index {
    /// Whether there is a leaf, and it is not to be trusted.
    pub fn is_untrusted(&self, key: LeafKey) -> bool {
        self.find(key).is_some_and(|slot| slot.leaf.is_untrusted())
    }

    /// The last entry of its group that a leaf took, or that was left out of it; 0 if there is no leaf.
    pub fn reached(&self, key: LeafKey) -> Seq {
        self.find(key).map_or(Seq(0), |slot| slot.leaf.reached())
    }

    /// Notes that an entry is left out of a leaf that is not to be trusted. Returns whether it is such a one.
    pub(super) fn leave_out(&mut self, key: LeafKey, seq: Seq) -> bool {
        let Some(number) = self.slot_number(key) else { return false };
        let leaf = &mut slot_mut(&mut self.pages, number).leaf;
        if leaf.is_untrusted() {
            leaf.distrust(seq.max(leaf.reached()));
        }
        leaf.is_untrusted()
    }

    /// A leaf that there is is not to be trusted from now on: an entry that it took took from what is not.
    pub fn distrust(&mut self, key: LeafKey) {
        if let Some(number) = self.slot_number(key) {
            let leaf = &mut slot_mut(&mut self.pages, number).leaf;
            leaf.distrust(leaf.reached());
        }
    }

    /// A leaf, there or not, is emptied and not to be trusted; `left_out` is the last entry of the order that came
    /// behind the begin, 0 if none has. `displaced` is told of each block of it.
    pub fn begin_install(&mut self, key: LeafKey, left_out: Seq, mut displaced: impl FnMut(StoredBlock)) {
        let number = self.find_or_add(key);
        let leaf = &mut slot_mut(&mut self.pages, number).leaf;
        let before = Held::by(leaf);
        leaf.update(BlockRange::new(0, BLOCKS_PER_CHUNK), |old| {
            old.stored().into_iter().for_each(&mut displaced);
            BlockState::Absent
        });
        leaf.distrust(left_out);
        if mutant(Mutant::InstallEndTrustedEarly) {
            leaf.set_last_seq(left_out.max(Seq(1)));
        }
        let after = Held::by(leaf);
        self.count_change(key.layer, before, after);
    }

    /// A leaf, there or not, is not to be trusted from now on, and holds what it held.
    pub fn keep_for_install(&mut self, key: LeafKey) {
        let number = self.find_or_add(key);
        slot_mut(&mut self.pages, number).leaf.distrust(Seq(0));
    }

    /// What is installed of each block of `range`. `displaced` is told of each block that was there before. Returns
    /// whether the leaf takes it.
    ///
    /// # Panics
    /// If `states` has fewer than `range` says.
    pub fn install(
        &mut self,
        key: LeafKey,
        range: BlockRange,
        mut states: impl Iterator<Item = BlockState>,
        mut displaced: impl FnMut(StoredBlock),
    ) -> bool {
        let Some(number) = self.slot_number(key) else { return false };
        let leaf = &mut slot_mut(&mut self.pages, number).leaf;
        if !leaf.is_untrusted() && !mutant(Mutant::InstallEndTrustedEarly) {
            return false;
        }
        let before = Held::by(leaf);
        leaf.update(range, |old| {
            old.stored().into_iter().for_each(&mut displaced);
            states.next().expect("a state for each block installed")
        });
        let after = Held::by(leaf);
        self.count_change(key.layer, before, after);
        true
    }

    /// The leaf holds all up to `last_seq`, and is trusted if nothing behind that was left out. With 0 and nothing in
    /// it, it is as if it had never been. Returns whether it is as the install said.
    pub fn end_install(&mut self, key: LeafKey, last_seq: Seq) -> bool {
        let Some(number) = self.slot_number(key) else { return false };
        let leaf = &mut slot_mut(&mut self.pages, number).leaf;
        let is_open = leaf.is_untrusted() || mutant(Mutant::InstallEndTrustedEarly);
        let is_nothing = last_seq == Seq(0);
        if !is_open || leaf.reached() > last_seq || is_nothing && !leaf.is_empty() {
            return false;
        }
        if is_nothing {
            self.take(key);
        } else {
            leaf.set_last_seq(last_seq);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{Crc32c, DeviceUnit, StoredLength};
    use types::{ChunkId, LayerId};

    const KEY: LeafKey = LeafKey { layer: LayerId(7), chunk: ChunkId(3) };

    fn at(location: u64) -> StoredBlock {
        StoredBlock { location: DeviceUnit(location), stored: StoredLength::RAW, checksum: Crc32c(location as u32) }
    }

    fn stored(index: &Index) -> (u64, u64) {
        (index.layer_usage(KEY.layer).stored_blocks, index.stored_blocks())
    }

    #[test]
    fn a_leaf_takes_installs_only_while_it_is_not_to_be_trusted() {
        let (mut index, two) = (Index::new(), BlockRange::new(4, 2));
        let places = |first: u64| (0..2).map(move |i| BlockState::Stored(at(first + 8 * i)));
        assert!(!index.install(KEY, two, places(4096), |_| ()), "there is no leaf");
        assert!(!index.end_install(KEY, Seq(9)));
        index.apply_write(KEY, Seq(5), two, [at(4096), at(4104)].into_iter(), |_| ());
        assert!(!index.install(KEY, two, places(8192), |_| ()), "it is trusted");
        let mut displaced = Vec::new();
        index.begin_install(KEY, Seq(0), |block| displaced.push(block.location.0));
        assert_eq!((displaced, stored(&index)), (vec![4096, 4104], (0, 0)));
        assert!(index.is_untrusted(KEY) && index.last_seq(KEY) == Seq(0) && !index.forget_empty(KEY, Seq(99)));
        assert!(!index.apply_write(KEY, Seq(6), two, [at(4096), at(4104)].into_iter(), |_| ()), "it is left out");
        assert!(index.install(KEY, two, places(8192), |_| ()) && stored(&index) == (2, 2));
        let mut states = [BlockState::Absent; 2];
        assert!(!index.fill(KEY, two, &mut states) && states == [BlockState::Absent; 2]);
        assert!(!index.end_install(KEY, Seq(5)), "it lacks entry 6");
        assert!(index.end_install(KEY, Seq(6)) && index.last_seq(KEY) == Seq(6));
        assert!(index.fill(KEY, two, &mut states) && states[1] == BlockState::Stored(at(8200)));
    }

    #[test]
    fn a_leaf_that_is_kept_holds_what_is_not_installed() {
        let (mut index, two) = (Index::new(), BlockRange::new(4, 2));
        index.apply_write(KEY, Seq(5), two, [at(4096), at(4104)].into_iter(), |_| ());
        index.keep_for_install(KEY);
        assert!(index.is_untrusted(KEY) && index.last_seq(KEY) == Seq(0) && stored(&index) == (2, 2));
        let mut displaced = Vec::new();
        let one = BlockRange::new(5, 1);
        let place = [BlockState::Stored(at(8192))].into_iter();
        assert!(index.install(KEY, one, place, |block| displaced.push(block.location.0)));
        assert!(index.end_install(KEY, Seq(9)) && displaced == [4104]);
        let mut states = [BlockState::Absent; 2];
        assert!(index.fill(KEY, two, &mut states));
        assert_eq!(states, [BlockState::Stored(at(4096)), BlockState::Stored(at(8192))]);
    }

    #[test]
    fn an_untrusted_leaf_is_stored_as_one_and_differs_from_one_that_is_trusted() {
        let mut index = Index::new();
        index.begin_install(KEY, Seq(0), |_| ());
        assert!(!index.apply_zero(KEY, Seq(4), BlockRange::new(0, 1), true, |_| ()));
        let digest = index.digest();
        let (_, view) = index.leaf_at(0).expect("the leaf");
        assert_eq!((view.last_seq, view.is_untrusted), (Seq(4), true));
        let mut other = Index::new();
        other.load(KEY, &view);
        assert!(other.is_untrusted(KEY) && other.digest() == digest && other.reached(KEY) == Seq(4));
        assert!(other.end_install(KEY, Seq(4)) && other.digest() != digest);
    }

    #[test]
    fn what_is_merged_from_an_untrusted_leaf_is_not_to_be_trusted() {
        let (mut index, above) = (Index::new(), LeafKey { layer: LayerId(8), ..KEY });
        let one = BlockRange::new(0, 1);
        index.begin_install(KEY, Seq(0), |_| ());
        index.apply_write(above, Seq(2), one, [at(4096)].into_iter(), |_| ());
        index.apply_merge(KEY, above, Seq(3), false, |_| ());
        assert!(index.is_untrusted(above) && index.slot_of(KEY).is_none() && index.stored_blocks() == 1);
        // Into one: the image of it will hold what came from below.
        let below = LeafKey { layer: LayerId(6), ..KEY };
        index.apply_write(below, Seq(4), one, [at(8192)].into_iter(), |_| ());
        let mut displaced = 0;
        index.apply_merge(below, above, Seq(5), false, |_| displaced += 1);
        assert_eq!((displaced, index.slot_of(below), index.reached(above)), (1, None, Seq(5)));
        assert!(!index.end_install(above, Seq(4)) && index.end_install(above, Seq(5)));
    }
}
