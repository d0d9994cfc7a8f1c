//! # Every byte on the device
//!
//! One file per structure; in each the layout as a table, sizes asserted at compile time, encode and decode side by
//! side, and a test that holds the encoding to fixed bytes. `docs/formats.md` draws the same bytes for somebody who
//! writes a reader of their own.
//!
//! ```text
//!  0        1 MiB                                                              end - 1 MiB     end
//!  ├─ front ─┼─ segment 0 ─┬─ segment 1 ─┬─ … ─┬─ segment n-1 ─┤  (left over)  ├──── back ─────┤
//!  │ 2 slots │                                                                 │    2 slots    │
//!            │ header │ record │ record │ …
//!                     │ header, entries, zeroes │ blocks │
//! ```
//!
//! **Promises.** Integers are little endian. Every byte that is written is under a checksum or is zero and checked to
//! be; a decoder never panics, whatever the bytes, and never allocates more than a few times what it was given.
//! What a decoder returns can be encoded again to the same bytes.
//!
//! **Never.** No I/O here, and no judgement of what a missing record means: that is recovery's.

pub mod blocks;
mod bytes;
pub mod checkpoint;
pub mod entry;
pub mod fuzz;
pub mod geometry;
pub mod hash;
pub mod leaf;
pub mod opening;
pub mod record;
pub mod segment;
pub mod superblock;

pub use blocks::{Codec, Crc32c, DeviceUnit, StoredBlock, StoredLength, UNIT_BYTES, UNITS_PER_BLOCK};
pub use checkpoint::{GroupState, LayerRecord, MemberState, MergeRecord, PassBegin, PassEnd, SegmentUse};
pub use entry::{ENTRY_HEAD_BYTES, Entry, EntryBody, EntryFlags, EntryHead, EntryKind};
pub use geometry::{END_AREA_BYTES, Geometry, GeometryError};
pub use hash::{HASH_BYTES, HashKey, RecordKey};
pub use leaf::{LeafData, LeafView};
pub use opening::{Opening, SeqRange};
pub use record::{MAX_RECORD_BYTES, RECORD_HEADER_BYTES, Record, RecordHeader, RecordKind, RecordPlace};
pub use segment::{SegmentHeader, Stream};
pub use superblock::{SUPERBLOCK_BYTES, ShardRoot, SlotPosition, StopMark, Superblock};

use types::{ChunkId, LayerId};

/// Position in a shard's order of records. The first is 1; 0 means "nothing yet".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecordSeq(pub u64);

/// Number of a segment on its device, from 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentIndex(pub u32);

/// Use of a segment: counts up over the whole device each time any segment is opened for appending, so that no two
/// uses share one. The first is 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Generation(pub u64);

/// Number of a checkpoint pass of one shard. The first is 1; 0 means "none yet".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PassId(pub u64);

/// What a leaf is looked up by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeafKey {
    /// The layer.
    pub layer: LayerId,
    /// The chunk of the volume.
    pub chunk: ChunkId,
}

/// Where a record is: enough to read it and to see that it is the one meant.
///
/// | at | bytes | field |
/// |---|---|---|
/// | 0 | 8 | record sequence, 0 if there is none (then all is 0) |
/// | 8 | 8 | generation of the segment |
/// | 16 | 4 | segment |
/// | 20 | 4 | byte offset of the record in the segment |
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RecordPointer {
    /// Its sequence number; 0 for "none".
    pub seq: RecordSeq,
    /// The use of the segment it was written in.
    pub generation: Generation,
    /// The segment.
    pub segment: SegmentIndex,
    /// Where it begins there, in bytes.
    pub offset_bytes: u32,
}

impl RecordPointer {
    /// Length as stored.
    pub const ENCODED_BYTES: usize = 24;

    /// Whether it points nowhere.
    pub fn is_none(self) -> bool {
        self.seq.0 == 0
    }

    pub(crate) fn encode(self, out: &mut [u8]) {
        bytes::put_u64(out, 0, self.seq.0);
        bytes::put_u64(out, 8, self.generation.0);
        bytes::put_u32(out, 16, self.segment.0);
        bytes::put_u32(out, 20, self.offset_bytes);
    }

    pub(crate) fn decode(what: &'static str, from: &[u8]) -> Result<Self, FormatError> {
        let pointer = Self {
            seq: RecordSeq(bytes::u64_at(from, 0)),
            generation: Generation(bytes::u64_at(from, 8)),
            segment: SegmentIndex(bytes::u32_at(from, 16)),
            offset_bytes: bytes::u32_at(from, 20),
        };
        if pointer.is_none() && pointer != Self::default() {
            return Err(FormatError::NotZero { what, offset: 8 });
        }
        Ok(pointer)
    }
}

/// Why bytes are not what they should be. `what` names the structure.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// Fewer bytes than the structure has.
    #[error("{what}: {found} bytes where {expected} are needed")]
    Short {
        /// The structure.
        what: &'static str,
        /// Bytes needed.
        expected: usize,
        /// Bytes given.
        found: usize,
    },
    /// The first bytes are not this structure's mark: most often nothing was ever written here.
    #[error("{what}: not there (no magic number)")]
    Magic {
        /// The structure.
        what: &'static str,
    },
    /// The bytes are not those that were written, or were written for another place or store.
    #[error("{what}: checksum differs")]
    Hash {
        /// The structure.
        what: &'static str,
    },
    /// Written by a newer build.
    #[error("{what}: format version {found}, this build reads {supported}: use the newer cairn that wrote it")]
    Version {
        /// The structure.
        what: &'static str,
        /// Version found.
        found: u32,
        /// Version this build reads.
        supported: u32,
    },
    /// Uses a feature this build does not have.
    #[error("{what}: needs features this build does not have (bits {bits:#x}): use the newer cairn that wrote it")]
    Features {
        /// The structure.
        what: &'static str,
        /// The unknown bits.
        bits: u64,
    },
    /// A field holds what no writer writes.
    #[error("{what}: {field} is {found}, which cannot be")]
    Field {
        /// The structure.
        what: &'static str,
        /// The field.
        field: &'static str,
        /// Its value.
        found: u64,
    },
    /// A byte that is not in use is not zero.
    #[error("{what}: the unused byte at offset {offset} is not zero")]
    NotZero {
        /// The structure.
        what: &'static str,
        /// Offset within the bytes checked.
        offset: usize,
    },
}
