//! Chunk → slot → group.

use types::{ChunkId, GroupId, Slot};

/// Number of slots of every table.
pub const SLOTS: u32 = 65_536;

/// The slot of a chunk: fixed for ever, part of the format of every cluster.
///
/// ```text
/// x = seed + (chunk + 1) × 0x9E3779B97F4A7C15     (64-bit, wrapping)
/// x = (x ^ x >> 30) × 0xBF58476D1CE4E5B9
/// x = (x ^ x >> 27) × 0x94D049BB133111EB
/// slot = top 16 bits of (x ^ x >> 31)
/// ```
///
/// This is output number `chunk` of the generator SplitMix64 started with the family's seed: every bit depends on
/// every bit of seed and chunk, and neighbouring chunks land in unrelated slots.
pub fn slot_of(family_seed: u64, chunk: ChunkId) -> Slot {
    let x = family_seed.wrapping_add((u64::from(chunk.0) + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    let x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    Slot(((x ^ (x >> 31)) >> 48) as u16)
}

/// Slots `first..=last` belong to `group`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotRun {
    /// First slot.
    pub first: Slot,
    /// Last slot.
    pub last: Slot,
    /// Their group.
    pub group: GroupId,
}

/// A table is not whole.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TableError {
    /// The runs leave a slot out or give it twice.
    #[error("the slot table's runs go on with slot {found} where {expected} was due")]
    NotContiguous {
        /// First slot that no run has yet.
        expected: u32,
        /// Where the next run begins (65,536: there is none).
        found: u32,
    },
    /// A run ends before it begins.
    #[error("the slot table's run {first} to {last} is empty")]
    EmptyRun {
        /// First slot.
        first: u16,
        /// Last slot.
        last: u16,
    },
}

/// Which group each slot belongs to. 128 KiB, looked up without a search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotTable {
    groups: Vec<GroupId>,
    /// Index into `groups` for each slot.
    places: Box<[u16]>,
}

impl SlotTable {
    /// A table from all its runs, in order.
    ///
    /// # Errors
    /// If a slot has no group, or two.
    pub fn from_runs(runs: &[SlotRun]) -> Result<Self, TableError> {
        let mut groups: Vec<GroupId> = runs.iter().map(|run| run.group).collect();
        groups.sort_unstable();
        groups.dedup();
        let mut places = Vec::with_capacity(SLOTS as usize);
        for run in runs {
            if run.last < run.first {
                return Err(TableError::EmptyRun { first: run.first.0, last: run.last.0 });
            }
            if u32::from(run.first.0) != places.len() as u32 {
                return Err(TableError::NotContiguous { expected: places.len() as u32, found: run.first.0.into() });
            }
            let place = groups.binary_search(&run.group).expect("made from these runs") as u16;
            places.extend((run.first.0..=run.last.0).map(|_| place));
        }
        if places.len() as u32 != SLOTS {
            return Err(TableError::NotContiguous { expected: places.len() as u32, found: SLOTS });
        }
        Ok(Self { groups, places: places.into() })
    }

    /// Deals all slots to `groups` in equal shares (to one slot).
    ///
    /// # Panics
    /// Without a group, or with more groups than slots.
    pub fn deal(groups: &[GroupId]) -> Vec<SlotRun> {
        let even: Vec<(GroupId, u64)> = groups.iter().map(|group| (*group, 1)).collect();
        Self::deal_by_weight(&even)
    }

    /// Deals all slots to `groups` in proportion to their weights (to one slot); each gets one at least.
    ///
    /// # Panics
    /// Without a group, or with more groups than slots.
    pub fn deal_by_weight(groups: &[(GroupId, u64)]) -> Vec<SlotRun> {
        let count = groups.len() as u32;
        assert!((1..=SLOTS).contains(&count), "{count} groups for {SLOTS} slots");
        let total = groups.iter().map(|(_, weight)| u128::from(*weight)).sum::<u128>();
        // One slot each, the others by weight; without any weight evenly.
        let shared = u128::from(SLOTS - count);
        let bound = |index: usize, before: u128| match total {
            0 => (index as u128 * u128::from(SLOTS) / u128::from(count)) as u32,
            _ => index as u32 + (before * shared / total) as u32,
        };
        let (mut before, mut runs) = (0, Vec::with_capacity(groups.len()));
        for (index, (group, weight)) in groups.iter().enumerate() {
            let first = bound(index, before);
            before += u128::from(*weight);
            let last = bound(index + 1, before) - 1;
            runs.push(SlotRun { first: Slot(first as u16), last: Slot(last as u16), group: *group });
        }
        runs
    }

    /// Its groups, in the order of their ids.
    pub fn groups(&self) -> &[GroupId] {
        &self.groups
    }

    /// Where in [`groups`](Self::groups) the slot's group is.
    pub fn place_of(&self, slot: Slot) -> usize {
        usize::from(self.places[usize::from(slot.0)])
    }

    /// The slot's group.
    pub fn group_of(&self, slot: Slot) -> GroupId {
        self.groups[self.place_of(slot)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// These numbers are in every cluster ever made: if they change, no chunk is found again.
    #[test]
    fn the_slot_of_a_chunk_never_changes() {
        let golden = [(0, 0, 0xe220), (0, 1, 0x6e78), (1, 0, 0x910a), (1234567, 0, 0x599e), (1234567, 1, 0x2c73)];
        for (seed, chunk, slot) in golden {
            assert_eq!(slot_of(seed, ChunkId(chunk)), Slot(slot), "seed {seed}, chunk {chunk}");
        }
    }

    #[test]
    fn chunks_spread_evenly_over_groups() {
        let groups: Vec<GroupId> = (1..=100).map(GroupId).collect();
        let table = SlotTable::from_runs(&SlotTable::deal(&groups)).expect("whole");
        let mut counts = [0u32; 100];
        for chunk in 0..100_000 {
            counts[table.place_of(slot_of(0xCA12, ChunkId(chunk)))] += 1;
        }
        let (least, most) = (counts.iter().min().copied(), counts.iter().max().copied());
        assert!(least > Some(850) && most < Some(1150), "1,000 expected per group, found {least:?} to {most:?}");
    }

    /// Property: whatever the number of groups, each slot has one group and shares differ by at most one slot.
    #[test]
    fn any_number_of_groups_shares_all_slots() {
        for count in [1, 2, 3, 7, 99, 100, 101, 1000, 65_535, 65_536] {
            let groups: Vec<GroupId> = (0..count).map(|index| GroupId(index * 3 + 1)).collect();
            let runs = SlotTable::deal(&groups);
            let sizes: Vec<u32> = runs.iter().map(|run| u32::from(run.last.0) - u32::from(run.first.0) + 1).collect();
            assert!(sizes.iter().max().expect("some") - sizes.iter().min().expect("some") <= 1);
            let table = SlotTable::from_runs(&runs).expect("whole");
            assert_eq!(table.groups(), groups);
            for run in &runs {
                assert_eq!((table.group_of(run.first), table.group_of(run.last)), (run.group, run.group));
            }
        }
    }

    #[test]
    fn a_table_with_a_gap_or_an_overlap_is_refused() {
        let run = |first, last| SlotRun { first: Slot(first), last: Slot(last), group: GroupId(1) };
        let refused = |runs: &[SlotRun]| SlotTable::from_runs(runs).expect_err("refused");
        assert_eq!(refused(&[run(1, 65_535)]), TableError::NotContiguous { expected: 0, found: 1 });
        assert_eq!(refused(&[run(0, 9), run(9, 65_535)]), TableError::NotContiguous { expected: 10, found: 9 });
        assert_eq!(refused(&[run(0, 65_534)]), TableError::NotContiguous { expected: 65_535, found: SLOTS });
        assert_eq!(refused(&[run(5, 4)]), TableError::EmptyRun { first: 5, last: 4 });
    }
}
