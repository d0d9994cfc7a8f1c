//! The fixed part of an entry.

use super::kind::{EntryFlags, EntryKind, Uses};
use super::sums::put_sums;
use super::{ENTRY_ALIGNMENT, ENTRY_HEAD_BYTES, MOVE_BYTES_PER_BLOCK, WHAT, WRITE_BYTES_PER_BLOCK};
use crate::format::blocks::{Crc32c, StoredBlock, StoredLength};
use crate::format::bytes::{check_zero, put_u16, put_u32, put_u40, put_u64, round_up, u16_at, u32_at, u64_at};
use crate::format::{FormatError, LeafKey, PassId};
use types::{BLOCKS_PER_CHUNK, BlockRange, ChunkId, Epoch, GroupId, KeyId, LayerId, Seq, Term, VolumeEpoch};

/// The fixed part of an entry. Fields that its kind does not use are zero.
///
/// | at | bytes | field |
/// |---|---|---|
/// | 0 | 4 | length of the entry, payload and zeroes included: a multiple of 8 |
/// | 4 | 4 | length of the payload |
/// | 8 | 1 | kind |
/// | 9 | 1 | flags: 1 hides below (zero, merge) |
/// | 10 | 1 | EC shard: 0, a whole copy |
/// | 11 | 1 | first block of the chunk |
/// | 12 | 2 | number of blocks, 0..=256 |
/// | 14 | 2 | zero |
/// | 16 | 4 | group |
/// | 20 | 4 | epoch |
/// | 24 | 8 | sequence in the group (checkpoint kinds: pass; member state: its number) |
/// | 32 | 8 | commit: all of the group up to this sequence was committed when this was written |
/// | 40 | 4 | volume epoch |
/// | 44 | 4 | key that the blocks are encrypted with, 0 none |
/// | 48 | 8 | layer |
/// | 56 | 4 | chunk |
/// | 60 | 4 | atomic group: entries of a record with the same number, not 0, belong together |
/// | 64 | 4 | [mark](types::Term) of who led in the epoch |
/// | 68 | 12 | zero, for later |
/// | 80 | … | payload, then zeroes to a multiple of 8 |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryHead {
    /// What it says.
    pub kind: EntryKind,
    /// Bits.
    pub flags: EntryFlags,
    /// The group whose order it is in.
    pub group: GroupId,
    /// The epoch in which it was given its sequence, and whose that was.
    pub term: Term,
    /// Its place in the group's order. Of checkpoint kinds: the pass. Of a member's state: its number.
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
            term: Term::NONE,
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
        put_u32(out, 20, self.term.epoch.0);
        put_u64(out, 24, self.seq.0);
        put_u64(out, 32, self.commit.0);
        put_u32(out, 40, self.volume_epoch.0);
        put_u32(out, 44, self.key.0);
        put_u64(out, 48, self.layer.0);
        put_u32(out, 56, self.chunk.0);
        put_u32(out, 60, self.atomic_group);
        put_u32(out, 64, self.term.mark);
        out[68..ENTRY_HEAD_BYTES].fill(0);
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

    /// Writes a [`EntryKind::Write`] or [`EntryKind::Install`] to the front of `out`: per block its sum and stored length. Returns its length.
    ///
    /// # Panics
    /// If there are not `block_count` sums, or `out` is too short.
    pub fn encode_write(&self, sums: impl Iterator<Item = (Crc32c, StoredLength)>, out: &mut [u8]) -> usize {
        debug_assert!(matches!(self.kind, EntryKind::Write | EntryKind::Install));
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

    pub(super) fn decode(from: &[u8]) -> Result<Self, FormatError> {
        if from[10] != 0 {
            return Err(FormatError::Field { what: WHAT, field: "EC shard", found: u64::from(from[10]) });
        }
        check_zero(WHAT, 14, &from[14..16])?;
        check_zero(WHAT, 68, &from[68..ENTRY_HEAD_BYTES])?;
        let head = Self {
            kind: EntryKind::from_byte(from[8])?,
            flags: EntryFlags(from[9]),
            group: GroupId(u32_at(from, 16)),
            term: Term::new(Epoch(u32_at(from, 20)), u32_at(from, 64)),
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
    pub(crate) fn check(&self) -> Result<(), FormatError> {
        let field = |field, found: u64| Err(FormatError::Field { what: WHAT, field, found });
        let uses = self.kind.uses();
        let of_kind = match self.kind {
            EntryKind::Zero | EntryKind::InstallZero | EntryKind::Merge => EntryFlags::HIDES_BELOW.0,
            EntryKind::InstallBegin => EntryFlags::KEEPS.0,
            _ => 0,
        };
        let known = of_kind | if self.kind.is_ordered() { EntryFlags::CARRIED.0 } else { 0 };
        if self.flags.0 & !known != 0 {
            return Err(FormatError::Features { what: WHAT, bits: u64::from(self.flags.0) });
        }
        let ordered = self.kind.is_ordered();
        if ordered && (self.seq.0 == 0 || self.commit >= self.seq) {
            return field("sequence", self.seq.0);
        }
        let of_member = self.kind.is_of_member();
        if !ordered && (self.term != Term::NONE || self.volume_epoch.0 != 0 || self.commit.0 != 0 && !of_member) {
            return field("epoch or commit of an entry without an order", self.commit.0);
        }
        if !ordered && !of_member && uses != Uses::PassAndGroup && self.group.0 != 0 {
            return field("group", u64::from(self.group.0));
        }
        let has_blocks = matches!(uses, Uses::OrderAndBlocks | Uses::MemberAndBlocks | Uses::Blocks);
        let is_counted = uses == Uses::MemberAndNumber;
        let is_not = has_blocks && !ordered
            || matches!(uses, Uses::Member | Uses::MemberAndLayer | Uses::MemberAndChunk | Uses::Nothing);
        if is_not && self.seq.0 != 0 || is_counted && self.seq.0 == 0 {
            return field("sequence", self.seq.0);
        }
        let end = u32::from(self.first_block) + u32::from(self.block_count);
        if has_blocks && (self.block_count == 0 || end > BLOCKS_PER_CHUNK) || !has_blocks && end != 0 {
            return field("number of blocks", u64::from(self.block_count));
        }
        let has_chunk = has_blocks || matches!(uses, Uses::MemberAndChunk | Uses::PassAndChunk);
        if !has_chunk && self.chunk.0 != 0 {
            return field("chunk", u64::from(self.chunk.0));
        }
        if !has_chunk && !matches!(uses, Uses::OrderAndLayer | Uses::MemberAndLayer) && self.layer.0 != 0 {
            return field("layer", self.layer.0);
        }
        if !matches!(self.kind, EntryKind::Write | EntryKind::Install | EntryKind::Move) && self.key.0 != 0 {
            return field("key", u64::from(self.key.0));
        }
        if !ordered && self.atomic_group != 0 {
            return field("atomic group", u64::from(self.atomic_group));
        }
        Ok(())
    }
}
