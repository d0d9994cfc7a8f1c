//! The header of a segment: whose it is, since when.

use super::bytes::{check_length, check_zero, put_u32, put_u64, put_u128, u32_at, u64_at, u128_at};
use super::{FormatError, Generation, HASH_BYTES, RecordKey, RecordKind, RecordSeq, SegmentIndex};
use types::{Incarnation, ShardIndex, StoreId};

const WHAT: &str = "segment header";
/// First bytes of every segment in use.
pub const SEGMENT_MAGIC: [u8; 8] = *b"CairnSeg";
/// The part of the block that has fields.
pub const SEGMENT_HEADER_BYTES: usize = 112;
const HASH_AT: usize = 96;
const _: () = assert!(HASH_AT + HASH_BYTES == SEGMENT_HEADER_BYTES);

/// What is gathered in a segment, so that what dies together lies together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Stream {
    /// What clients write.
    #[default]
    Hot = 0,
    /// What the cleaner moved: it has lived long and will live longer.
    Cold = 1,
    /// Checkpoint records: they die together, when the next pass is complete.
    Checkpoint = 2,
}

impl Stream {
    /// All of them, by number.
    pub(crate) const ALL: [Self; 3] = [Self::Hot, Self::Cold, Self::Checkpoint];

    /// Where a record of this kind goes, and what a segment that begins with one is. A checkpoint record may also lie
    /// in a hot segment, behind others.
    pub(crate) fn of(kind: RecordKind) -> Self {
        match kind {
            RecordKind::Move => Self::Cold,
            RecordKind::Log | RecordKind::Opening => Self::Hot,
            RecordKind::Checkpoint => Self::Checkpoint,
        }
    }

    pub(crate) fn from_byte(what: &'static str, byte: u8) -> Result<Self, FormatError> {
        match byte {
            0 => Ok(Self::Hot),
            1 => Ok(Self::Cold),
            2 => Ok(Self::Checkpoint),
            other => Err(FormatError::Field { what, field: "stream", found: u64::from(other) }),
        }
    }
}

/// The header of a segment: one device block at its start, written once when the segment is opened for appending.
///
/// | at | bytes | field |
/// |---|---|---|
/// | 0 | 8 | magic `CairnSeg` |
/// | 8 | 4 | version, 1 |
/// | 12 | 4 | segment |
/// | 16 | 8 | generation |
/// | 24 | 16 | store id |
/// | 40 | 8 | first record sequence: no record in here has a smaller one |
/// | 48 | 8 | incarnation of the store that opened it |
/// | 56 | 8 | created at, wall clock, ns since 1970 |
/// | 64 | 1 | shard |
/// | 65 | 1 | stream: 0 hot, 1 cold, 2 checkpoint |
/// | 66 | 2 | zero |
/// | 68 | 4 | tenant (placement hint), 0 |
/// | 72 | 24 | zero |
/// | 96 | 16 | keyed hash over bytes 0..96, as if a record at offset 0 |
/// | 112 | … | zero to the end of the block |
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentHeader {
    /// Which segment this is.
    pub segment: SegmentIndex,
    /// This use of it.
    pub generation: Generation,
    /// The store it belongs to.
    pub store: StoreId,
    /// No record in here has a smaller sequence.
    pub first_record: RecordSeq,
    /// The start of the store that opened it.
    pub incarnation: Incarnation,
    /// Wall clock, ns since 1970.
    pub created_at_ns: u64,
    /// The shard whose records are in here.
    pub shard: ShardIndex,
    /// What is gathered here.
    pub stream: Stream,
}

impl SegmentHeader {
    /// Fills `block`, one device block.
    ///
    /// # Panics
    /// If `block` is shorter than the header.
    pub fn encode(&self, key: &RecordKey, block: &mut [u8]) {
        block.fill(0);
        block[..8].copy_from_slice(&SEGMENT_MAGIC);
        put_u32(block, 8, super::superblock::VERSION);
        put_u32(block, 12, self.segment.0);
        put_u64(block, 16, self.generation.0);
        put_u128(block, 24, self.store.0);
        put_u64(block, 40, self.first_record.0);
        put_u64(block, 48, self.incarnation.0);
        put_u64(block, 56, self.created_at_ns);
        block[64] = self.shard.0;
        block[65] = self.stream as u8;
        let hash = key.hash(self.segment, 0, self.generation, [&block[..HASH_AT], &[]]);
        block[HASH_AT..SEGMENT_HEADER_BYTES].copy_from_slice(&hash);
    }

    /// Reads the header of `segment` from its first block. What an other store, or this device before it was formatted,
    /// left there is told apart by the key.
    ///
    /// # Errors
    /// [`FormatError::Magic`] where nothing was ever written; anything else is damage, or another store's.
    pub fn decode(key: &RecordKey, segment: SegmentIndex, block: &[u8]) -> Result<Self, FormatError> {
        check_length(WHAT, block, SEGMENT_HEADER_BYTES)?;
        if block[..8] != SEGMENT_MAGIC {
            return Err(FormatError::Magic { what: WHAT });
        }
        let generation = Generation(u64_at(block, 16));
        let hash = key.hash(segment, 0, generation, [&block[..HASH_AT], &[]]);
        if hash != block[HASH_AT..SEGMENT_HEADER_BYTES] {
            return Err(FormatError::Hash { what: WHAT });
        }
        super::superblock::check_version(WHAT, u32_at(block, 8))?;
        if u32_at(block, 12) != segment.0 {
            return Err(FormatError::Field { what: WHAT, field: "segment", found: u64::from(u32_at(block, 12)) });
        }
        check_zero(WHAT, 66, &block[66..HASH_AT])?;
        check_zero(WHAT, SEGMENT_HEADER_BYTES, &block[SEGMENT_HEADER_BYTES..])?;
        Ok(Self {
            segment,
            generation,
            store: StoreId(u128_at(block, 24)),
            first_record: RecordSeq(u64_at(block, 40)),
            incarnation: Incarnation(u64_at(block, 48)),
            created_at_ns: u64_at(block, 56),
            shard: ShardIndex(block[64]),
            stream: Stream::from_byte(WHAT, block[65])?,
        })
    }
}
