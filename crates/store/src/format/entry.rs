//! An entry: one thing that happened, as the log says it.
//!
//! 80 fixed bytes and a payload that depends on the kind. The common one, a write of one block, is 88 bytes and is
//! encoded without an allocation: [`EntryHead::encode_write`].

use super::blocks::{Crc32c, DeviceUnit, StoredBlock, StoredLength};
use super::bytes::{
    check_length, check_zero, put_u16, put_u32, put_u40, put_u64, round_up, u16_at, u32_at, u40_at, u64_at,
};
use super::checkpoint::{GroupState, LayerRecord, MergeRecord, PassBegin, PassEnd, SegmentTable};
use super::leaf::LeafData;
use super::opening::Opening;
use super::record::{MAX_RECORD_BYTES, RecordKind};
use super::{FormatError, LeafKey, PassId};
use types::{BLOCKS_PER_CHUNK, BlockRange, ChunkId, Epoch, GroupId, KeyId, LayerId, Seq, VolumeEpoch, VolumeId};

const WHAT: &str = "entry";
/// Length of the fixed part.
pub const ENTRY_HEAD_BYTES: usize = 80;
/// Entries begin at multiples of this.
pub const ENTRY_ALIGNMENT: usize = 8;
/// Payload of a write, per block: its sum and its stored length.
pub const WRITE_BYTES_PER_BLOCK: usize = 5;
/// Payload of a move, per block: as of a write, and where it was.
pub const MOVE_BYTES_PER_BLOCK: usize = WRITE_BYTES_PER_BLOCK + 5;
/// Largest opaque record of a group: as the pieces of the cluster map.
pub const MAX_GROUP_RECORD_BYTES: usize = 256 << 10;

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
    /// A layer's blocks are merged into its child.
    Merge = 8,
    /// A layer and all its blocks are gone.
    LayerDelete = 9,
    /// A new incarnation of the store begins.
    Opening = 16,
    /// Blocks were moved by the cleaner: true only where the index still names the old place.
    Move = 17,
    /// Checkpoint: a pass begins.
    PassBegin = 32,
    /// Checkpoint: a leaf.
    Leaf = 33,
    /// Checkpoint: what is known of a group.
    GroupState = 34,
    /// Checkpoint: a layer.
    LayerState = 35,
    /// Checkpoint: a merge that is not finished.
    MergeState = 36,
    /// Checkpoint: segments and the records they hold.
    Segments = 37,
    /// Checkpoint: the pass is complete.
    PassEnd = 38,
}

/// Which fields of the head a kind uses; the others are zero.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Uses {
    /// Group order; layer, chunk and blocks.
    OrderAndBlocks,
    /// Group order; layer.
    OrderAndLayer,
    /// Group order.
    Order,
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
    fn from_byte(byte: u8) -> Result<Self, FormatError> {
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
            16 => Self::Opening,
            17 => Self::Move,
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

    fn uses(self) -> Uses {
        match self {
            Self::Write | Self::Zero => Uses::OrderAndBlocks,
            Self::Layer | Self::Merge | Self::LayerDelete => Uses::OrderAndLayer,
            Self::EpochStart | Self::VolumeEpoch | Self::GroupRecord | Self::Noop => Uses::Order,
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

    fn record_kind(self) -> RecordKind {
        match self.uses() {
            Uses::Order | Uses::OrderAndBlocks | Uses::OrderAndLayer => RecordKind::Log,
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
    /// Of a zero: it hides what the layers below hold, so the leaf must remember it. Not set where there are none.
    pub const HIDES_BELOW: Self = Self(1);

    /// Whether all bits of `other` are set.
    pub fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// The fixed part of an entry. Fields that its kind does not use are zero.
///
/// | at | bytes | field |
/// |---|---|---|
/// | 0 | 4 | length of the entry, payload and zeroes included: a multiple of 8 |
/// | 4 | 4 | length of the payload |
/// | 8 | 1 | kind |
/// | 9 | 1 | flags: 1 hides below (zero) |
/// | 10 | 1 | EC shard: 0, a whole copy |
/// | 11 | 1 | first block of the chunk |
/// | 12 | 2 | number of blocks, 0..=256 |
/// | 14 | 2 | zero |
/// | 16 | 4 | group |
/// | 20 | 4 | epoch |
/// | 24 | 8 | sequence in the group (checkpoint kinds: pass) |
/// | 32 | 8 | commit: all of the group up to this sequence was committed when this was written |
/// | 40 | 4 | volume epoch |
/// | 44 | 4 | key that the blocks are encrypted with, 0 none |
/// | 48 | 8 | layer |
/// | 56 | 4 | chunk |
/// | 60 | 4 | atomic group: entries of a record with the same number, not 0, belong together |
/// | 64 | 16 | zero, for later |
/// | 80 | … | payload, then zeroes to a multiple of 8 |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryHead {
    /// What it says.
    pub kind: EntryKind,
    /// Bits.
    pub flags: EntryFlags,
    /// The group whose order it is in.
    pub group: GroupId,
    /// The epoch in which it was given its sequence.
    pub epoch: Epoch,
    /// Its place in the group's order. Of checkpoint kinds: the pass.
    pub seq: Seq,
    /// The group's commit number as known when this was written.
    pub commit: Seq,
    /// The epoch of the volume's head that asked for it.
    pub volume_epoch: VolumeEpoch,
    /// Key that its blocks are encrypted with.
    pub key: KeyId,
    /// The layer.
    pub layer: LayerId,
    /// The chunk.
    pub chunk: ChunkId,
    /// First block of the chunk.
    pub first_block: u8,
    /// Number of blocks; 0 if the kind has none.
    pub block_count: u16,
    /// Entries of one record with the same number, not 0, are all there or none is: one record holds them all.
    pub atomic_group: u32,
}

impl EntryHead {
    /// A head of this kind, all else zero.
    pub const fn new(kind: EntryKind) -> Self {
        Self {
            kind,
            flags: EntryFlags(0),
            group: GroupId(0),
            epoch: Epoch(0),
            seq: Seq(0),
            commit: Seq(0),
            volume_epoch: VolumeEpoch(0),
            key: KeyId(0),
            layer: LayerId(0),
            chunk: ChunkId(0),
            first_block: 0,
            block_count: 0,
            atomic_group: 0,
        }
    }

    /// A head of a checkpoint entry.
    pub const fn of_pass(kind: EntryKind, pass: PassId) -> Self {
        let mut head = Self::new(kind);
        head.seq = Seq(pass.0);
        head
    }

    /// The same head, for these blocks.
    pub fn with_range(mut self, range: BlockRange) -> Self {
        self.first_block = range.first as u8;
        self.block_count = range.count;
        self
    }

    /// The blocks, if the kind has any.
    pub fn range(&self) -> Option<BlockRange> {
        (self.block_count > 0).then(|| BlockRange::new(u32::from(self.first_block), u32::from(self.block_count)))
    }

    /// What its leaf is looked up by.
    pub fn leaf_key(&self) -> LeafKey {
        LeafKey { layer: self.layer, chunk: self.chunk }
    }

    /// Of checkpoint kinds: the pass.
    pub fn pass(&self) -> PassId {
        PassId(self.seq.0)
    }

    /// Length of an entry with this much payload.
    pub const fn encoded_bytes(payload_bytes: usize) -> usize {
        round_up(ENTRY_HEAD_BYTES + payload_bytes, ENTRY_ALIGNMENT)
    }

    /// Length of a write of this many blocks.
    pub const fn write_bytes(block_count: usize) -> usize {
        Self::encoded_bytes(block_count * WRITE_BYTES_PER_BLOCK)
    }

    /// Length of a move of this many blocks.
    pub const fn move_bytes(block_count: usize) -> usize {
        Self::encoded_bytes(block_count * MOVE_BYTES_PER_BLOCK)
    }

    /// Writes the head and the zeroes behind the payload to the front of `out`; the payload's bytes between are the
    /// caller's. Returns the entry's length.
    ///
    /// # Panics
    /// If `out` is shorter than that.
    pub fn encode(&self, payload_bytes: usize, out: &mut [u8]) -> usize {
        let length = Self::encoded_bytes(payload_bytes);
        let out = &mut out[..length];
        put_u32(out, 0, length as u32);
        put_u32(out, 4, payload_bytes as u32);
        out[8] = self.kind as u8;
        out[9] = self.flags.0;
        out[10] = 0;
        out[11] = self.first_block;
        put_u16(out, 12, self.block_count);
        put_u16(out, 14, 0);
        put_u32(out, 16, self.group.0);
        put_u32(out, 20, self.epoch.0);
        put_u64(out, 24, self.seq.0);
        put_u64(out, 32, self.commit.0);
        put_u32(out, 40, self.volume_epoch.0);
        put_u32(out, 44, self.key.0);
        put_u64(out, 48, self.layer.0);
        put_u32(out, 56, self.chunk.0);
        put_u32(out, 60, self.atomic_group);
        out[64..ENTRY_HEAD_BYTES].fill(0);
        out[ENTRY_HEAD_BYTES + payload_bytes..].fill(0);
        length
    }

    /// Writes an entry with its payload to the front of `out`; returns its length.
    ///
    /// # Panics
    /// If `out` is shorter than that.
    pub fn encode_with(&self, payload: &[u8], out: &mut [u8]) -> usize {
        let length = self.encode(payload.len(), out);
        out[ENTRY_HEAD_BYTES..ENTRY_HEAD_BYTES + payload.len()].copy_from_slice(payload);
        length
    }

    /// Writes a [`EntryKind::Write`] to the front of `out`: per block its sum and stored length. Returns its length.
    ///
    /// # Panics
    /// If there are not `block_count` sums, or `out` is too short.
    pub fn encode_write(&self, sums: impl Iterator<Item = (Crc32c, StoredLength)>, out: &mut [u8]) -> usize {
        debug_assert_eq!(self.kind, EntryKind::Write);
        let count = usize::from(self.block_count);
        let length = self.encode(count * WRITE_BYTES_PER_BLOCK, out);
        let written = put_sums(&mut out[ENTRY_HEAD_BYTES..], count, sums);
        assert_eq!(written, count, "a sum for each block");
        length
    }

    /// Writes a [`EntryKind::Move`] to the front of `out`; `from` says for each block where it was, and what is moved.
    /// Returns its length.
    ///
    /// # Panics
    /// If there are not `block_count` of them, or `out` is too short.
    pub fn encode_move(&self, from: &[StoredBlock], out: &mut [u8]) -> usize {
        debug_assert_eq!(self.kind, EntryKind::Move);
        let count = usize::from(self.block_count);
        assert_eq!(from.len(), count, "a place for each block");
        let length = self.encode(count * MOVE_BYTES_PER_BLOCK, out);
        let payload = &mut out[ENTRY_HEAD_BYTES..];
        put_sums(payload, count, from.iter().map(|block| (block.checksum, block.stored)));
        for (i, block) in from.iter().enumerate() {
            put_u40(payload, count * WRITE_BYTES_PER_BLOCK + i * 5, block.location.0);
        }
        length
    }

    fn decode(from: &[u8]) -> Result<Self, FormatError> {
        if from[10] != 0 {
            return Err(FormatError::Field { what: WHAT, field: "EC shard", found: u64::from(from[10]) });
        }
        check_zero(WHAT, 14, &from[14..16])?;
        check_zero(WHAT, 64, &from[64..ENTRY_HEAD_BYTES])?;
        let head = Self {
            kind: EntryKind::from_byte(from[8])?,
            flags: EntryFlags(from[9]),
            group: GroupId(u32_at(from, 16)),
            epoch: Epoch(u32_at(from, 20)),
            seq: Seq(u64_at(from, 24)),
            commit: Seq(u64_at(from, 32)),
            volume_epoch: VolumeEpoch(u32_at(from, 40)),
            key: KeyId(u32_at(from, 44)),
            layer: LayerId(u64_at(from, 48)),
            chunk: ChunkId(u32_at(from, 56)),
            first_block: from[11],
            block_count: u16_at(from, 12),
            atomic_group: u32_at(from, 60),
        };
        head.check()?;
        Ok(head)
    }

    /// Fields that the kind uses hold what can be, the others zero.
    fn check(&self) -> Result<(), FormatError> {
        let field = |field, found: u64| Err(FormatError::Field { what: WHAT, field, found });
        let uses = self.kind.uses();
        let known = if self.kind == EntryKind::Zero { EntryFlags::HIDES_BELOW.0 } else { 0 };
        if self.flags.0 & !known != 0 {
            return Err(FormatError::Features { what: WHAT, bits: u64::from(self.flags.0) });
        }
        let ordered = self.kind.is_ordered();
        if ordered && (self.seq.0 == 0 || self.commit >= self.seq) {
            return field("sequence", self.seq.0);
        }
        if !ordered && (self.epoch.0 != 0 || self.commit.0 != 0 || self.volume_epoch.0 != 0) {
            return field("epoch or commit of an entry without an order", self.commit.0);
        }
        if !ordered && uses != Uses::PassAndGroup && self.group.0 != 0 {
            return field("group", u64::from(self.group.0));
        }
        if matches!(uses, Uses::Blocks | Uses::Nothing) && self.seq.0 != 0 {
            return field("sequence", self.seq.0);
        }
        let has_blocks = matches!(uses, Uses::OrderAndBlocks | Uses::Blocks);
        let end = u32::from(self.first_block) + u32::from(self.block_count);
        if has_blocks && (self.block_count == 0 || end > BLOCKS_PER_CHUNK) || !has_blocks && end != 0 {
            return field("number of blocks", u64::from(self.block_count));
        }
        let has_chunk = has_blocks || uses == Uses::PassAndChunk;
        if !has_chunk && self.chunk.0 != 0 {
            return field("chunk", u64::from(self.chunk.0));
        }
        if !has_chunk && uses != Uses::OrderAndLayer && self.layer.0 != 0 {
            return field("layer", self.layer.0);
        }
        if !matches!(self.kind, EntryKind::Write | EntryKind::Move) && self.key.0 != 0 {
            return field("key", u64::from(self.key.0));
        }
        if !ordered && self.atomic_group != 0 {
            return field("atomic group", u64::from(self.atomic_group));
        }
        Ok(())
    }
}

fn put_sums(out: &mut [u8], count: usize, sums: impl Iterator<Item = (Crc32c, StoredLength)>) -> usize {
    let (checksums, lengths) = out[..count * WRITE_BYTES_PER_BLOCK].split_at_mut(count * 4);
    let mut written = 0;
    for (checksum, stored) in sums {
        put_u32(checksums, written * 4, checksum.0);
        lengths[written] = stored.byte();
        written += 1;
    }
    written
}

/// Sums and stored lengths of an entry's blocks.
///
/// | at | bytes | field |
/// |---|---|---|
/// | 0 | 4 × count | crc32c of each block as stored |
/// | 4 × count | count | stored length and codec of each |
/// | 5 × count | 5 × count | of a move only: where each was, 512-byte units |
#[derive(Clone, Copy, Debug)]
pub struct StoredSums<'a> {
    bytes: &'a [u8],
    count: usize,
}

impl<'a> StoredSums<'a> {
    /// `bytes` is checked: it has room for `count`, and each length is one.
    fn decode(bytes: &'a [u8], count: usize) -> Result<Self, FormatError> {
        for byte in &bytes[count * 4..count * WRITE_BYTES_PER_BLOCK] {
            if StoredLength::from_byte(*byte).is_none() {
                return Err(FormatError::Field { what: WHAT, field: "stored length", found: u64::from(*byte) });
            }
        }
        Ok(Self { bytes, count })
    }

    /// Number of blocks.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Sum and stored length of each block, in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (Crc32c, StoredLength)> + use<'a> {
        let (bytes, count) = (self.bytes, self.count);
        (0..count).map(move |i| {
            let stored = StoredLength::from_byte(bytes[count * 4 + i]).unwrap_or(StoredLength::RAW);
            (Crc32c(u32_at(bytes, i * 4)), stored)
        })
    }

    /// The blocks as the index keeps them, the first of them at `first` on the device, the others behind it.
    pub fn stored_from(&self, first: DeviceUnit) -> impl ExactSizeIterator<Item = StoredBlock> + use<'a> {
        let mut location = first;
        self.iter().map(move |(checksum, stored)| {
            let block = StoredBlock { location, stored, checksum };
            location = block.end();
            block
        })
    }

    /// Units that all of them take.
    pub fn units(&self) -> u64 {
        self.iter().map(|(_, stored)| u64::from(stored.units())).sum()
    }
}

/// The payload of a move.
#[derive(Clone, Copy, Debug)]
pub struct MovedBlocks<'a> {
    /// What is moved, as of a write.
    pub sums: StoredSums<'a>,
}

impl<'a> MovedBlocks<'a> {
    /// Where each block was.
    pub fn from(&self) -> impl ExactSizeIterator<Item = DeviceUnit> + use<'a> {
        let (bytes, count) = (self.sums.bytes, self.sums.count);
        (0..count).map(move |i| DeviceUnit(u40_at(bytes, count * WRITE_BYTES_PER_BLOCK + i * 5)))
    }
}

/// What an entry says, beyond its head.
#[derive(Clone, Copy, Debug)]
pub enum EntryBody<'a> {
    /// [`EntryKind::Write`].
    Write(StoredSums<'a>),
    /// [`EntryKind::Zero`].
    Zero,
    /// [`EntryKind::EpochStart`]: epoch and sequence are the head's.
    EpochStart,
    /// [`EntryKind::VolumeEpoch`]: the epoch is the head's. Payload: volume, 8 bytes.
    VolumeEpoch(VolumeId),
    /// [`EntryKind::GroupRecord`]: bytes that the store does not read.
    GroupRecord(&'a [u8]),
    /// [`EntryKind::Layer`]: the head names the same layer.
    Layer(LayerRecord),
    /// [`EntryKind::Noop`].
    Noop,
    /// [`EntryKind::Merge`]: the head's layer into this one. Payload: layer, 8 bytes.
    Merge(LayerId),
    /// [`EntryKind::LayerDelete`]: the head's layer.
    LayerDelete,
    /// [`EntryKind::Opening`].
    Opening(Opening<'a>),
    /// [`EntryKind::Move`].
    Move(MovedBlocks<'a>),
    /// [`EntryKind::PassBegin`].
    PassBegin(PassBegin),
    /// [`EntryKind::Leaf`]: the leaf itself lies where the blocks of a write lie.
    Leaf(LeafData),
    /// [`EntryKind::GroupState`].
    GroupState(GroupState<'a>),
    /// [`EntryKind::LayerState`].
    LayerState(LayerRecord),
    /// [`EntryKind::MergeState`].
    MergeState(MergeRecord),
    /// [`EntryKind::Segments`].
    Segments(SegmentTable<'a>),
    /// [`EntryKind::PassEnd`].
    PassEnd(PassEnd),
}

/// An entry of a record that was found good.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// Its fixed part.
    pub head: EntryHead,
    /// The rest.
    pub body: EntryBody<'a>,
    /// Where its blocks, or its leaf, begin, from the start of the record (if it has any).
    pub data_offset_bytes: u32,
}

impl<'a> Entry<'a> {
    /// Sums of the blocks that follow in the record: of a write or a move.
    pub fn stored_sums(&self) -> Option<StoredSums<'a>> {
        match self.body {
            EntryBody::Write(sums) | EntryBody::Move(MovedBlocks { sums }) => Some(sums),
            _ => None,
        }
    }

    /// Bytes it has in the record's block area.
    pub fn data_bytes(&self) -> u32 {
        match self.body {
            EntryBody::Leaf(data) => data.stored_bytes() as u32,
            _ => self.stored_sums().map_or(0, |sums| sums.units() as u32 * super::UNIT_BYTES as u32),
        }
    }

    pub(crate) fn check_record_kind(&self, record: RecordKind) -> Result<(), FormatError> {
        if self.head.kind.record_kind() != record {
            let found = self.head.kind as u64;
            return Err(FormatError::Field { what: WHAT, field: "kind in this kind of record", found });
        }
        Ok(())
    }
}

fn decode_body<'a>(head: &EntryHead, payload: &'a [u8]) -> Result<EntryBody<'a>, FormatError> {
    let count = usize::from(head.block_count);
    let exactly = |expected: usize| {
        if payload.len() == expected {
            return Ok(());
        }
        Err(FormatError::Field { what: WHAT, field: "payload length", found: payload.len() as u64 })
    };
    Ok(match head.kind {
        EntryKind::Write => {
            exactly(count * WRITE_BYTES_PER_BLOCK)?;
            EntryBody::Write(StoredSums::decode(payload, count)?)
        }
        EntryKind::Move => {
            exactly(count * MOVE_BYTES_PER_BLOCK)?;
            EntryBody::Move(MovedBlocks { sums: StoredSums::decode(payload, count)? })
        }
        EntryKind::Zero => exactly(0).map(|()| EntryBody::Zero)?,
        EntryKind::EpochStart => exactly(0).map(|()| EntryBody::EpochStart)?,
        EntryKind::Noop => exactly(0).map(|()| EntryBody::Noop)?,
        EntryKind::LayerDelete => exactly(0).map(|()| EntryBody::LayerDelete)?,
        EntryKind::VolumeEpoch => exactly(8).map(|()| EntryBody::VolumeEpoch(VolumeId(u64_at(payload, 0))))?,
        EntryKind::Merge => exactly(8).map(|()| EntryBody::Merge(LayerId(u64_at(payload, 0))))?,
        EntryKind::GroupRecord if payload.len() > MAX_GROUP_RECORD_BYTES => {
            return Err(FormatError::Field { what: WHAT, field: "payload length", found: payload.len() as u64 });
        }
        EntryKind::GroupRecord => EntryBody::GroupRecord(payload),
        EntryKind::Layer => {
            let record = LayerRecord::decode(payload)?;
            if record.layer != head.layer {
                return Err(FormatError::Field { what: WHAT, field: "layer", found: record.layer.0 });
            }
            EntryBody::Layer(record)
        }
        EntryKind::LayerState => EntryBody::LayerState(LayerRecord::decode(payload)?),
        EntryKind::MergeState => EntryBody::MergeState(MergeRecord::decode(payload)?),
        EntryKind::Opening => EntryBody::Opening(Opening::decode(payload)?),
        EntryKind::PassBegin => EntryBody::PassBegin(PassBegin::decode(payload)?),
        EntryKind::PassEnd => EntryBody::PassEnd(PassEnd::decode(payload)?),
        EntryKind::Leaf => EntryBody::Leaf(LeafData::decode_payload(payload)?),
        EntryKind::GroupState => EntryBody::GroupState(GroupState::decode(payload)?),
        EntryKind::Segments => EntryBody::Segments(SegmentTable::decode(payload)?),
    })
}

/// Walks encoded entries.
pub(crate) struct Entries<'a> {
    rest: &'a [u8],
    data_end_bytes: u32,
}

impl<'a> Entries<'a> {
    pub(crate) fn new(entries: &'a [u8], blocks_offset_bytes: u32) -> Self {
        Self { rest: entries, data_end_bytes: blocks_offset_bytes }
    }

    /// Where the blocks of the entries walked so far end, from the start of the record.
    pub(crate) fn data_end_bytes(&self) -> u32 {
        self.data_end_bytes
    }

    /// The next entry; `None` behind the last.
    pub(crate) fn next_checked(&mut self) -> Result<Option<Entry<'a>>, FormatError> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        check_length(WHAT, self.rest, ENTRY_HEAD_BYTES)?;
        let length = u32_at(self.rest, 0) as usize;
        let payload_bytes = u32_at(self.rest, 4) as usize;
        if payload_bytes > MAX_RECORD_BYTES || length != EntryHead::encoded_bytes(payload_bytes) {
            return Err(FormatError::Field { what: WHAT, field: "length", found: length as u64 });
        }
        check_length(WHAT, self.rest, length)?;
        let (entry, rest) = self.rest.split_at(length);
        let payload_end = ENTRY_HEAD_BYTES + payload_bytes;
        check_zero(WHAT, payload_end, &entry[payload_end..])?;
        let head = EntryHead::decode(entry)?;
        let body = decode_body(&head, &entry[ENTRY_HEAD_BYTES..payload_end])?;
        let entry = Entry { head, body, data_offset_bytes: self.data_end_bytes };
        // At most 1 MiB of entries, 5 bytes of them per block of at most 4 KiB: far below 2^32; and the record's
        // length is compared with the sum.
        self.data_end_bytes = self.data_end_bytes.saturating_add(entry.data_bytes());
        self.rest = rest;
        Ok(Some(entry))
    }
}
