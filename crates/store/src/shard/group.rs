//! What a shard keeps of a group: its order from the first entry that is not applied, and what the log said of it.

use crate::format::{Crc32c, LayerRecord, LeafKey, RecordSeq, StoredLength};
use std::collections::VecDeque;
use types::{BlockRange, ChunkId, GroupId, LayerId, Seq, Term, VolumeEpoch, VolumeId};

/// Sums that an entry holds without memory of its own: a write of 16 KiB.
const INLINE_SUMS: usize = 4;

/// What an entry says of one block that it brings.
pub(crate) type BlockSum = (Crc32c, StoredLength);

/// crc32c and stored length of each block of a write.
#[derive(Debug)]
pub(crate) enum Sums {
    Few([BlockSum; INLINE_SUMS], u8),
    Many(Vec<BlockSum>),
}

impl Sums {
    /// Room for `count` sums; `spare` lends a vector if that is many.
    pub(crate) fn for_blocks(count: usize, spare: &mut Vec<Vec<BlockSum>>) -> Self {
        if count <= INLINE_SUMS {
            return Self::Few([(Crc32c(0), StoredLength::RAW); INLINE_SUMS], 0);
        }
        Self::Many(spare.pop().unwrap_or_else(|| Vec::with_capacity(usize::from(crate::entry::MAX_ENTRY_BLOCKS))))
    }

    pub(crate) fn push(&mut self, sum: BlockSum) {
        match self {
            Self::Few(sums, len) => {
                sums[usize::from(*len)] = sum;
                *len += 1;
            }
            Self::Many(sums) => sums.push(sum),
        }
    }

    pub(crate) fn as_slice(&self) -> &[BlockSum] {
        match self {
            Self::Few(sums, len) => &sums[..usize::from(*len)],
            Self::Many(sums) => sums,
        }
    }

    /// Gives the vector back to `spare`.
    pub(crate) fn recycle(self, spare: &mut Vec<Vec<BlockSum>>) {
        if let Self::Many(mut sums) = self {
            sums.clear();
            spare.push(sums);
        }
    }
}

/// An entry that is in the log and not in the index.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) seq: Seq,
    pub(crate) term: Term,
    /// The record it is in.
    pub(crate) record: RecordSeq,
    pub(crate) action: Action,
}

/// What applying an entry does.
#[derive(Debug)]
pub(crate) enum Action {
    /// `offset_bytes`: where its blocks begin, from the first block of the record.
    Write {
        key: LeafKey,
        range: BlockRange,
        offset_bytes: u32,
        sums: Sums,
    },
    Zero {
        key: LeafKey,
        range: BlockRange,
        hides_below: bool,
    },
    EpochStart,
    VolumeEpoch(VolumeId, VolumeEpoch),
    Layer(LayerRecord),
    GroupRecord(Vec<u8>),
    /// Boxed, as the next: rare, and larger than a write otherwise.
    Merge(Box<Merge>),
    LayerDelete(LayerId, Box<[ChunkId]>),
    Noop,
}

/// Chunks of a layer that go to its child.
#[derive(Debug)]
pub(crate) struct Merge {
    pub(crate) from: LayerId,
    pub(crate) into: LayerId,
    pub(crate) chunks: Vec<ChunkId>,
    /// Zeroes go on hiding what lies below.
    pub(crate) hides_below: bool,
}

/// One group of the shard.
#[derive(Debug, Default)]
pub(crate) struct Group {
    /// Entries not applied, in the group's order. Only during replay it may have holes.
    pub(crate) prepared: VecDeque<Prepared>,
    /// Everything up to here is in the index.
    pub(crate) committed: Seq,
    /// The first entry of the last cut. It lies in the log: what begins a group anew that has nothing else may not leave
    /// it standing.
    pub(crate) cut_from: Option<Seq>,
    /// What the applied entries say of the group itself.
    pub(crate) own: OwnState,
    /// States of this member that were queued or found.
    pub(crate) member_states: u64,
    /// Skips that are on their way to the device, and how far everything was said to be committed meanwhile.
    pub(crate) skips_on_the_way: u32,
    pub(crate) commit_held: Seq,
}

impl Group {
    /// Sequence of the last entry in the log.
    pub(crate) fn prepared_through(&self) -> Seq {
        self.prepared.back().map_or(self.committed, |last| last.seq)
    }

    /// Whether an entry may come next: it leaves no hole, and is the first or takes the place of what was cut.
    pub(crate) fn may_take(&self, seq: Seq) -> bool {
        match (self.prepared_through(), self.cut_from) {
            (Seq(0), Some(cut_from)) => seq <= cut_from,
            (Seq(0), None) => true,
            (last, _) => seq.0 <= last.0 + 1,
        }
    }

    /// The newest epoch in the log.
    pub(crate) fn last_term(&self) -> Term {
        self.prepared.back().map_or(self.applied_term(), |last| last.term.max(self.applied_term()))
    }

    /// The newest epoch of which anything is applied.
    pub(crate) fn applied_term(&self) -> Term {
        self.own.epochs.last().map_or(Term::NONE, |(term, _)| *term)
    }
}

/// What the log says of a group itself.
#[derive(Clone, Debug, Default)]
pub(crate) struct OwnState {
    /// Epoch starts, in order.
    pub(crate) epochs: Vec<(Term, Seq)>,
    /// Volume epochs, by volume.
    pub(crate) volume_epochs: Vec<(VolumeId, VolumeEpoch)>,
    /// The record; empty if none is known.
    pub(crate) record: Vec<u8>,
    /// What this member keeps for itself, with its number; 0: nothing.
    pub(crate) member: (u64, Vec<u8>),
}

impl OwnState {
    /// Takes in what an entry says of the group itself.
    pub(crate) fn see(&mut self, seq: Seq, term: Term, action: &Action) {
        match action {
            // A group that goes on from a pass has the epochs of before already.
            Action::EpochStart if self.epochs.last().is_none_or(|(last, _)| *last < term) => {
                self.epochs.push((term, seq));
            }
            Action::VolumeEpoch(volume, epoch) => raise(&mut self.volume_epochs, *volume, *epoch),
            Action::GroupRecord(record) => self.record.clone_from(record),
            Action::EpochStart
            | Action::Write { .. }
            | Action::Zero { .. }
            | Action::Layer(_)
            | Action::Merge(_)
            | Action::LayerDelete(..)
            | Action::Noop => {}
        }
    }
}

/// Raises a volume's epoch in a list; few volumes have blocks in one group, and this is asked once per head move.
pub(crate) fn raise(list: &mut Vec<(VolumeId, VolumeEpoch)>, volume: VolumeId, epoch: VolumeEpoch) {
    match list.binary_search_by_key(&volume, |(id, _)| *id) {
        Ok(at) => list[at].1 = list[at].1.max(epoch),
        Err(at) => list.insert(at, (volume, epoch)),
    }
}

/// The groups of a shard, by id.
pub(crate) type Groups = hashbrown::HashMap<GroupId, Group, foldhash::fast::FixedState>;

/// The ids in order: what is written or reported must not depend on how the map hashes.
pub(crate) fn sorted_ids(groups: &Groups) -> Vec<GroupId> {
    let mut ids: Vec<_> = groups.keys().copied().collect();
    ids.sort_unstable();
    ids
}
