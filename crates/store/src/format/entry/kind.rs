//! What an entry can say, and which fields of its head each kind uses.

use super::WHAT;
use crate::format::FormatError;
use crate::format::record::RecordKind;

/// What an entry says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum EntryKind {
    /// Blocks were written; they follow in the record.
    Write = 1,
    /// Blocks read as zeroes from here on (discard, write-zeroes).
    Zero = 2,
    /// The group's epoch begins with this sequence.
    EpochStart = 3,
    /// A volume's epoch was raised.
    VolumeEpoch = 4,
    /// The group's record in the cluster map, as bytes.
    GroupRecord = 5,
    /// A layer became known.
    Layer = 6,
    /// Nothing: it takes a place in the group's order.
    Noop = 7,
    /// Chunks of a layer are merged into its only child.
    Merge = 8,
    /// Chunks of a layer are gone; without any, the layer itself.
    LayerDelete = 9,
    /// What this member of the group keeps for itself.
    MemberState = 10,
    /// A leaf is not to be trusted: what another member holds of it follows. It is emptied, unless the flag says otherwise.
    InstallBegin = 11,
    /// Blocks of such a leaf; they follow in the record.
    Install = 12,
    /// Blocks of such a leaf that are zeroes.
    InstallZero = 13,
    /// Such a leaf is whole.
    InstallEnd = 14,
    /// This member goes on behind entries of its group that it lacks.
    Skip = 15,
    /// A new incarnation of the store begins.
    Opening = 16,
    /// Blocks were moved by the cleaner: true only where the index still names the old place.
    Move = 17,
    /// A layer, as another member of the group knows it.
    InstallLayer = 18,
    /// Checkpoint: a pass begins.
    PassBegin = 32,
    /// Checkpoint: a leaf.
    Leaf = 33,
    /// Checkpoint: what is known of a group.
    GroupState = 34,
    /// Checkpoint: a layer.
    LayerState = 35,
    /// Checkpoint: a layer that ends, or has ended and may still be named by records.
    MergeState = 36,
    /// Checkpoint: segments and the records they hold.
    Segments = 37,
    /// Checkpoint: the pass is complete.
    PassEnd = 38,
}

/// Which fields of the head a kind uses; the others are zero.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Uses {
    /// Group order; layer, chunk and blocks.
    OrderAndBlocks,
    /// Group order; layer.
    OrderAndLayer,
    /// Group order.
    Order,
    /// Group and commit, but no place in the order.
    Member,
    /// Group and commit; its number.
    MemberAndNumber,
    /// Group and commit; layer.
    MemberAndLayer,
    /// Group and commit; layer and chunk.
    MemberAndChunk,
    /// Group and commit; layer, chunk and blocks.
    MemberAndBlocks,
    /// Layer, chunk and blocks.
    Blocks,
    /// Pass; layer and chunk.
    PassAndChunk,
    /// Pass; group.
    PassAndGroup,
    /// Pass.
    Pass,
    /// None.
    Nothing,
}

impl EntryKind {
    pub(super) fn from_byte(byte: u8) -> Result<Self, FormatError> {
        Ok(match byte {
            1 => Self::Write,
            2 => Self::Zero,
            3 => Self::EpochStart,
            4 => Self::VolumeEpoch,
            5 => Self::GroupRecord,
            6 => Self::Layer,
            7 => Self::Noop,
            8 => Self::Merge,
            9 => Self::LayerDelete,
            10 => Self::MemberState,
            11 => Self::InstallBegin,
            12 => Self::Install,
            13 => Self::InstallZero,
            14 => Self::InstallEnd,
            15 => Self::Skip,
            16 => Self::Opening,
            17 => Self::Move,
            18 => Self::InstallLayer,
            32 => Self::PassBegin,
            33 => Self::Leaf,
            34 => Self::GroupState,
            35 => Self::LayerState,
            36 => Self::MergeState,
            37 => Self::Segments,
            38 => Self::PassEnd,
            other => return Err(FormatError::Field { what: WHAT, field: "kind", found: u64::from(other) }),
        })
    }

    pub(super) fn uses(self) -> Uses {
        match self {
            Self::Write | Self::Zero => Uses::OrderAndBlocks,
            Self::Layer | Self::Merge | Self::LayerDelete => Uses::OrderAndLayer,
            Self::EpochStart | Self::VolumeEpoch | Self::GroupRecord | Self::Noop => Uses::Order,
            Self::Skip => Uses::Member,
            Self::MemberState => Uses::MemberAndNumber,
            Self::InstallLayer => Uses::MemberAndLayer,
            Self::InstallBegin | Self::InstallEnd => Uses::MemberAndChunk,
            Self::Install | Self::InstallZero => Uses::MemberAndBlocks,
            Self::Opening => Uses::Nothing,
            Self::Move => Uses::Blocks,
            Self::Leaf => Uses::PassAndChunk,
            Self::GroupState => Uses::PassAndGroup,
            Self::PassBegin | Self::LayerState | Self::MergeState | Self::Segments | Self::PassEnd => Uses::Pass,
        }
    }

    /// Whether it is part of a group's order, and so has a group, an epoch and a sequence.
    pub fn is_ordered(self) -> bool {
        matches!(self.uses(), Uses::Order | Uses::OrderAndBlocks | Uses::OrderAndLayer)
    }

    /// Whether it is a group's and outside its order.
    pub fn is_of_member(self) -> bool {
        matches!(
            self.uses(),
            Uses::Member | Uses::MemberAndNumber | Uses::MemberAndLayer | Uses::MemberAndChunk | Uses::MemberAndBlocks
        )
    }

    pub(super) fn record_kind(self) -> RecordKind {
        match self.uses() {
            Uses::Order | Uses::OrderAndBlocks | Uses::OrderAndLayer => RecordKind::Log,
            Uses::Member | Uses::MemberAndNumber | Uses::MemberAndLayer => RecordKind::Log,
            Uses::MemberAndChunk | Uses::MemberAndBlocks => RecordKind::Log,
            Uses::Nothing => RecordKind::Opening,
            Uses::Blocks => RecordKind::Move,
            Uses::PassAndChunk | Uses::PassAndGroup | Uses::Pass => RecordKind::Checkpoint,
        }
    }
}

/// Bits of an entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct EntryFlags(pub u8);

impl EntryFlags {
    /// Of a zero, installed or not: it hides what the layers below hold, so the leaf must remember it. Not set where
    /// there are none. Of a merge: there are layers below the one that ends, so that what hides them must go on hiding them.
    pub const HIDES_BELOW: Self = Self(1);
    /// Of the begin of an install: the leaf keeps what it holds.
    pub const KEEPS: Self = Self(2);
    /// Of an entry of a group's order: it is in the order already, from an earlier record, and is written again to be in
    /// a later one. It takes the place of that, and what comes behind it stays.
    pub const CARRIED: Self = Self(4);

    /// These and those.
    pub fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether all bits of `other` are set.
    pub fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}
