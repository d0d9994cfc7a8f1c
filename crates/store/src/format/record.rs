//! A record: what one device write appends.
//!
//! ```text
//!  ├── header ──┼── entry ──┼── entry ──┼─ … ─┼─ zeroes ─┤── blocks or leaves, in the entries' order ──┼─ zeroes ─┤
//!  0            80                             up to a device block                          up to a device block
//! ```
//!
//! The keyed hash covers header and entries, the entries carry the sum of each block and leaf, and the zeroes are
//! checked: so every byte is covered, and header and entries can be judged without reading the blocks.

use super::bytes::{check_length, check_zero, put_u16, put_u32, put_u64, round_up, u16_at, u32_at, u64_at};
use super::entry::{Entries, Entry};
use super::{FormatError, Generation, HASH_BYTES, RecordKey, RecordSeq, SegmentIndex};
use types::{Incarnation, Mutant, ShardIndex, mutant};

const WHAT: &str = "record header";
/// First bytes of every record.
pub const RECORD_MAGIC: [u8; 4] = *b"CRec";
/// Length of the header.
pub const RECORD_HEADER_BYTES: usize = 80;
/// Largest record in all. The scan at opening relies on it: a constant of the format.
pub const MAX_RECORD_BYTES: usize = 1 << 20;
/// Appends in flight per shard: behind the last durable record there may be this many others, in any state. A constant
/// of the format.
pub const MAX_APPENDS_IN_FLIGHT: usize = 2;
const HASH_AT: usize = 64;
const _: () = assert!(HASH_AT + HASH_BYTES == RECORD_HEADER_BYTES);

/// What a record is for. The entries in it say the rest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum RecordKind {
    /// Entries of groups; none at all if it is there only for its `durable_through`.
    #[default]
    Log = 0,
    /// Part of a checkpoint pass.
    Checkpoint = 1,
    /// The first of an incarnation: one entry, [`super::Opening`].
    Opening = 2,
    /// Blocks that the cleaner moves.
    Move = 3,
}

/// Where a record is; hashed with it, stored nowhere in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RecordPlace {
    /// The segment.
    pub segment: SegmentIndex,
    /// This use of the segment, from its header.
    pub generation: Generation,
    /// Where the record begins in the segment, in bytes.
    pub offset_bytes: u32,
}

/// The header of a record.
///
/// | at | bytes | field |
/// |---|---|---|
/// | 0 | 4 | magic `CRec` |
/// | 4 | 1 | kind: 0 log, 1 checkpoint, 2 opening, 3 move |
/// | 5 | 1 | flags, 0 |
/// | 6 | 1 | shard |
/// | 7 | 1 | zero |
/// | 8 | 4 | length of the whole record, bytes: a multiple of the device block, ≤ 1 MiB |
/// | 12 | 4 | length of the entries, bytes |
/// | 16 | 2 | number of entries |
/// | 18 | 6 | zero |
/// | 24 | 8 | sequence |
/// | 32 | 8 | `durable_through`: all records of the shard up to this one were durable when this was issued |
/// | 40 | 8 | incarnation |
/// | 48 | 8 | wall clock, ns since 1970 |
/// | 56 | 8 | zero |
/// | 64 | 16 | keyed hash over place, bytes 0..64, entries |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordHeader {
    /// What it is for.
    pub kind: RecordKind,
    /// The shard whose order it is in.
    pub shard: ShardIndex,
    /// Length of the whole record.
    pub length_bytes: u32,
    /// Length of the entries.
    pub entries_bytes: u32,
    /// Number of entries.
    pub entry_count: u16,
    /// Its place in the shard's order.
    pub seq: RecordSeq,
    /// Every record up to this one was durable when this one was issued.
    pub durable_through: RecordSeq,
    /// The start of the store that wrote it.
    pub incarnation: Incarnation,
    /// Wall clock, ns since 1970. Nothing is decided by it.
    pub wall_time_ns: u64,
}

/// Where the blocks of a record with this many bytes of entries begin.
pub const fn blocks_offset_bytes(entries_bytes: usize, block_size_bytes: u32) -> usize {
    round_up(RECORD_HEADER_BYTES + entries_bytes, block_size_bytes as usize)
}

/// Length of a record with these bytes of entries and of blocks.
pub const fn record_length_bytes(entries_bytes: usize, blocks_bytes: usize, block_size_bytes: u32) -> usize {
    blocks_offset_bytes(entries_bytes, block_size_bytes) + round_up(blocks_bytes, block_size_bytes as usize)
}

impl RecordHeader {
    /// Where the blocks begin, from the start of the record.
    pub fn blocks_offset_bytes(&self, block_size_bytes: u32) -> usize {
        blocks_offset_bytes(self.entries_bytes as usize, block_size_bytes)
    }

    /// Completes `area`, whose bytes from 80 hold the encoded entries: writes the header in front of them and zeroes
    /// behind them. `area` is all that comes before the blocks. (What follows the blocks up to a device block is
    /// zeroes, and the caller's to write.)
    ///
    /// # Panics
    /// If `area` has not the length of header and entries, rounded up to a device block.
    pub fn encode(&self, key: &RecordKey, place: &RecordPlace, block_size_bytes: u32, area: &mut [u8]) {
        assert_eq!(area.len(), self.blocks_offset_bytes(block_size_bytes));
        assert!(self.length_bytes as usize <= MAX_RECORD_BYTES && self.length_bytes as usize >= area.len());
        let entries_end = RECORD_HEADER_BYTES + self.entries_bytes as usize;
        area[entries_end..].fill(0);
        area[..HASH_AT].fill(0);
        area[..4].copy_from_slice(&RECORD_MAGIC);
        area[4] = self.kind as u8;
        area[6] = self.shard.0;
        put_u32(area, 8, self.length_bytes);
        put_u32(area, 12, self.entries_bytes);
        put_u16(area, 16, self.entry_count);
        put_u64(area, 24, self.seq.0);
        put_u64(area, 32, self.durable_through.0);
        put_u64(area, 40, self.incarnation.0);
        put_u64(area, 48, self.wall_time_ns);
        let hash = hash_of(key, place, &area[..entries_end]);
        area[HASH_AT..RECORD_HEADER_BYTES].copy_from_slice(&hash);
    }

    /// Whether the block looks like the begin of the record `seq`, damaged as it may be.
    pub(crate) fn may_be_of(block: &[u8], seq: RecordSeq) -> bool {
        block.starts_with(&RECORD_MAGIC) || RecordSeq(u64_at(block, 24)) == seq
    }

    /// Reads what *may* be a header from the first device block of it, to know how much to read before
    /// [`Record::decode`] judges. `room_bytes` is what is left of the segment from here.
    ///
    /// # Errors
    /// [`FormatError::Magic`] if no record begins here; else what cannot be.
    pub fn peek(block: &[u8], block_size_bytes: u32, room_bytes: usize) -> Result<Self, FormatError> {
        check_length(WHAT, block, RECORD_HEADER_BYTES)?;
        if block[..4] != RECORD_MAGIC {
            return Err(FormatError::Magic { what: WHAT });
        }
        let field = |field, found: u64| Err(FormatError::Field { what: WHAT, field, found });
        let kind = match block[4] {
            0 => RecordKind::Log,
            1 => RecordKind::Checkpoint,
            2 => RecordKind::Opening,
            3 => RecordKind::Move,
            other => return field("kind", u64::from(other)),
        };
        if block[5] != 0 {
            return Err(FormatError::Features { what: WHAT, bits: u64::from(block[5]) });
        }
        let header = Self {
            kind,
            shard: ShardIndex(block[6]),
            length_bytes: u32_at(block, 8),
            entries_bytes: u32_at(block, 12),
            entry_count: u16_at(block, 16),
            seq: RecordSeq(u64_at(block, 24)),
            durable_through: RecordSeq(u64_at(block, 32)),
            incarnation: Incarnation(u64_at(block, 40)),
            wall_time_ns: u64_at(block, 48),
        };
        check_zero(WHAT, 7, &block[7..8])?;
        check_zero(WHAT, 18, &block[18..24])?;
        check_zero(WHAT, 56, &block[56..HASH_AT])?;
        let length = header.length_bytes as usize;
        if length > MAX_RECORD_BYTES.min(room_bytes) || !length.is_multiple_of(block_size_bytes as usize) {
            return field("length", length as u64);
        }
        if header.entries_bytes as usize > MAX_RECORD_BYTES || header.blocks_offset_bytes(block_size_bytes) > length {
            return field("entries length", u64::from(header.entries_bytes));
        }
        if header.seq.0 == 0 || header.durable_through >= header.seq {
            return field("sequence", header.seq.0);
        }
        Ok(header)
    }
}

fn hash_of(key: &RecordKey, place: &RecordPlace, header_and_entries: &[u8]) -> [u8; HASH_BYTES] {
    let parts = [&header_and_entries[..HASH_AT], &header_and_entries[RECORD_HEADER_BYTES..]];
    key.hash(place.segment, place.offset_bytes, place.generation, parts)
}

/// A record whose header and entries are what was written here.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// Its header.
    pub header: RecordHeader,
    entries: &'a [u8],
    blocks_offset_bytes: u32,
}

impl<'a> Record<'a> {
    /// Judges header and entries. `area` begins with the record and holds at least all that comes before its blocks;
    /// more is not looked at. Everything is checked here, each entry too: [`entries`](Self::entries) cannot fail.
    ///
    /// # Errors
    /// Whatever is not as written, at this place, by this store.
    pub fn decode(
        key: &RecordKey,
        place: &RecordPlace,
        block_size_bytes: u32,
        room_bytes: usize,
        area: &'a [u8],
    ) -> Result<Self, FormatError> {
        let header = RecordHeader::peek(area, block_size_bytes, room_bytes)?;
        let blocks_offset = header.blocks_offset_bytes(block_size_bytes);
        check_length(WHAT, area, blocks_offset)?;
        let entries_end = RECORD_HEADER_BYTES + header.entries_bytes as usize;
        if hash_of(key, place, &area[..entries_end]) != area[HASH_AT..RECORD_HEADER_BYTES]
            && !mutant(Mutant::WrongKeyAccepted)
        {
            return Err(FormatError::Hash { what: WHAT });
        }
        check_zero(WHAT, entries_end, &area[entries_end..blocks_offset])?;
        let record = Self::again(header, block_size_bytes, area);
        record.check_entries(block_size_bytes)?;
        Ok(record)
    }

    /// As [`decode`](Self::decode), but for the keyed hash: what has the form of a record, whoever wrote it and
    /// wherever. For those who believe nothing of it that they do not know already, block by block.
    ///
    /// # Errors
    /// What has not the form of a record.
    pub(crate) fn decode_unproven(
        block_size_bytes: u32,
        room_bytes: usize,
        area: &'a [u8],
    ) -> Result<Self, FormatError> {
        let header = RecordHeader::peek(area, block_size_bytes, room_bytes)?;
        check_length(WHAT, area, header.blocks_offset_bytes(block_size_bytes))?;
        let record = Self::again(header, block_size_bytes, area);
        record.check_entries(block_size_bytes)?;
        Ok(record)
    }

    /// The record in `area` again, that [`decode`](Self::decode) found good and whose header this is.
    pub(crate) fn again(header: RecordHeader, block_size_bytes: u32, area: &'a [u8]) -> Self {
        let entries_end = RECORD_HEADER_BYTES + header.entries_bytes as usize;
        let blocks_offset_bytes = header.blocks_offset_bytes(block_size_bytes) as u32;
        Self { header, entries: &area[RECORD_HEADER_BYTES..entries_end], blocks_offset_bytes }
    }

    fn check_entries(&self, block_size_bytes: u32) -> Result<(), FormatError> {
        let mut entries = Entries::new(self.entries, self.blocks_offset_bytes);
        let mut count = 0;
        while let Some(entry) = entries.next_checked()? {
            entry.check_record_kind(self.header.kind)?;
            count += 1;
        }
        if count != u32::from(self.header.entry_count) {
            return Err(FormatError::Field { what: WHAT, field: "entry count", found: u64::from(count) });
        }
        let length = round_up(entries.data_end_bytes() as usize, block_size_bytes as usize);
        if length != self.header.length_bytes as usize {
            return Err(FormatError::Field { what: WHAT, field: "length", found: u64::from(self.header.length_bytes) });
        }
        Ok(())
    }

    /// The entries, in order.
    pub fn entries(&self) -> impl Iterator<Item = Entry<'a>> + use<'a> {
        let mut entries = Entries::new(self.entries, self.blocks_offset_bytes);
        core::iter::from_fn(move || entries.next_checked().ok().flatten())
    }

    /// Judges the zeroes behind the data. `whole` is the whole record.
    ///
    /// # Errors
    /// If they are not zeroes.
    pub fn check_padding(&self, whole: &[u8]) -> Result<(), FormatError> {
        let data: usize = self.entries().map(|entry| entry.data_bytes() as usize).sum();
        let end = self.blocks_offset_bytes as usize + data;
        check_length("record", whole, self.header.length_bytes as usize)?;
        check_zero("record", end, &whole[end..self.header.length_bytes as usize])
    }

    /// Judges the rest: the sum of each block and the zeroes behind the last. `whole` is the whole record.
    ///
    /// # Errors
    /// The first block that differs.
    pub fn check_blocks(&self, whole: &[u8]) -> Result<(), FormatError> {
        check_length("record", whole, self.header.length_bytes as usize)?;
        let mut end = self.blocks_offset_bytes as usize;
        for entry in self.entries() {
            if let super::EntryBody::Leaf(data) = entry.body {
                data.decode(&whole[end..])?;
                end += data.stored_bytes();
            }
            for (checksum, stored) in entry.stored_sums().into_iter().flat_map(|sums| sums.iter()) {
                if super::Crc32c::of(&whole[end..end + stored.bytes()]) != checksum {
                    return Err(FormatError::Hash { what: "block" });
                }
                end += stored.bytes();
            }
        }
        check_zero("record", end, &whole[end..self.header.length_bytes as usize])
    }
}
