//! A record while it gathers, and while it is on its way.
//!
//! ```text
//!   entries area (128 KiB)             copied (1 MiB, taken at the first copy)     the callers' own buffers
//!   │ header │ entry │ entry │ …       │ block │ block │ …                          │ large aligned write │
//!        └───────────────┬──────────────────────┴────────────────────────────────────────┘
//!                        gathered by one device write, in the order of the entries
//! ```
//!
//! Small blocks are copied here once, summed while they are in the first-level cache. Everything is recycled.

use super::BlockSum;
use crate::entry::{BlockCoding, LogPosition};
use crate::format::record::{MAX_RECORD_BYTES, RECORD_HEADER_BYTES, blocks_offset_bytes, record_length_bytes};
use crate::format::{
    EntryHead, RecordHeader, RecordKey, RecordKind, RecordPlace, RecordSeq, SegmentIndex, StoredBlock, Stream,
};
use runtime::{Instant, IoBuf, SharedBuf};

/// Room for header and entries. One-block writes fill a record after 256 entries of 88 bytes: 23 KiB; the rest is for
/// records of groups and for checkpoint entries.
pub(crate) const ENTRIES_AREA_BYTES: usize = 128 << 10;
/// Writes up to this are copied: a copy fused with the sum costs less than another element to gather.
const COPY_UP_TO_BYTES: usize = 16 << 10;
/// Pieces of one record: with the two halves of the segment header and the entries below what the device gathers.
const MAX_PIECES: usize = 256;

/// Where a stretch of blocks lies in memory.
enum Piece {
    /// Bytes of the copy buffer.
    Copied { start: usize, end: usize },
    /// The caller's.
    Shared(SharedBuf),
}

/// How far a batch is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Takes entries, or waits for its turn.
    Gathering,
    /// The device writes it.
    Writing,
    /// Written; durable after the next sync.
    Written,
    /// The device said no.
    Failed,
}

/// A record on its way.
pub(crate) struct Batch {
    pub(crate) seq: RecordSeq,
    pub(crate) kind: RecordKind,
    /// Where it goes.
    pub(crate) stream: Stream,
    /// Whether an epoch of a group begins in it.
    pub(crate) begins_epoch: bool,
    /// How long it may become: what its segment has room for.
    room_bytes: usize,
    pub(crate) progress: Progress,
    /// When it was handed to the device.
    pub(crate) issued: Instant,
    /// Once it is issued: its segment, and the last record there before it.
    pub(crate) behind: Option<(SegmentIndex, RecordSeq)>,
    /// Whether this is the second try, elsewhere.
    pub(crate) retried: bool,
    /// Position of its last entry, or of the last before it.
    pub(crate) last: LogPosition,
    /// Header and entries.
    entries_area: Area,
    entries_bytes: usize,
    entry_count: u16,
    copied: Area,
    copied_bytes: usize,
    pieces: Vec<Piece>,
    /// Blocks and what fills up the last of the device's blocks.
    blocks_bytes: usize,
    padding_bytes: usize,
    /// The list handed to the device, kept for its room.
    pub(crate) parts: Vec<SharedBuf>,
}

/// A buffer that is written, then shared with the device, then written again.
#[derive(Default)]
enum Area {
    #[default]
    None,
    Own(IoBuf),
    Shared(SharedBuf),
}

impl Area {
    /// For writing; taken anew if the device still holds it.
    fn own(&mut self, bytes: usize) -> &mut IoBuf {
        let buf = match std::mem::take(self) {
            Self::Own(buf) => buf,
            Self::Shared(shared) => shared.try_into_unique().unwrap_or_else(|held| {
                // Only after a failed append whose parts somebody still holds: the bytes must not change under them.
                let mut copy = IoBuf::new(bytes);
                copy[..held.len()].copy_from_slice(&held);
                copy
            }),
            Self::None => IoBuf::new(bytes),
        };
        *self = Self::Own(buf);
        match self {
            Self::Own(buf) => buf,
            _ => unreachable!("set just above"),
        }
    }

    /// Takes the buffer back from the device; if it is still held there, the next use takes another.
    fn reclaim(&mut self) {
        *self = match std::mem::take(self) {
            Self::Shared(shared) => shared.try_into_unique().map_or(Self::None, Self::Own),
            other => other,
        };
    }

    fn share(&mut self) -> &SharedBuf {
        if let Self::Own(_) = self {
            *self = match std::mem::take(self) {
                Self::Own(buf) => Self::Shared(buf.freeze()),
                other => other,
            };
        }
        match self {
            Self::Shared(shared) => shared,
            _ => unreachable!("shared just above"),
        }
    }
}

impl Batch {
    /// An empty batch; its buffers come with the first use.
    pub(crate) fn new() -> Self {
        Self {
            seq: RecordSeq(0),
            kind: RecordKind::Log,
            stream: Stream::Hot,
            begins_epoch: false,
            room_bytes: 0,
            progress: Progress::Gathering,
            issued: Instant::default(),
            behind: None,
            retried: false,
            last: LogPosition(0),
            entries_area: Area::None,
            entries_bytes: 0,
            entry_count: 0,
            copied: Area::None,
            copied_bytes: 0,
            pieces: Vec::new(),
            blocks_bytes: 0,
            padding_bytes: 0,
            parts: Vec::new(),
        }
    }

    /// Begins the record `seq`, which goes to a stream, where it has so much room.
    pub(crate) fn begin(
        &mut self,
        seq: RecordSeq,
        kind: RecordKind,
        (stream, room_bytes): (Stream, usize),
        last: LogPosition,
    ) {
        self.pieces.clear();
        *self = Self {
            seq,
            kind,
            stream,
            room_bytes: room_bytes.min(MAX_RECORD_BYTES),
            last,
            entries_area: std::mem::take(&mut self.entries_area),
            copied: std::mem::take(&mut self.copied),
            pieces: std::mem::take(&mut self.pieces),
            parts: std::mem::take(&mut self.parts),
            ..Self::new()
        };
    }

    /// Lets go of the callers' buffers and keeps its own for the next record.
    pub(crate) fn retire(&mut self) {
        self.pieces.clear();
        self.parts.clear();
        self.copied.reclaim();
        self.entries_area.reclaim();
    }

    /// Whether an entry of this length with this many bytes of blocks still fits.
    pub(crate) fn fits(&self, entry_bytes: usize, blocks_bytes: usize, block_size_bytes: u32) -> bool {
        let entries_bytes = self.entries_bytes + entry_bytes;
        let front = blocks_offset_bytes(entries_bytes, block_size_bytes);
        front <= ENTRIES_AREA_BYTES
            && front + (self.blocks_bytes + blocks_bytes).next_multiple_of(block_size_bytes as usize) <= self.room_bytes
            && self.pieces.len() + 2 < MAX_PIECES
            && self.entry_count < u16::MAX
    }

    /// Whether nothing is in it.
    pub(crate) fn is_empty(&self) -> bool {
        self.entry_count == 0
    }

    /// Bytes of blocks gathered: where the next entry's blocks begin, from the first block.
    pub(crate) fn blocks_bytes(&self) -> usize {
        self.blocks_bytes
    }

    /// Bytes that were queued to be written: without what fills up the last block.
    pub(crate) fn queued_bytes(&self) -> usize {
        self.blocks_bytes - self.padding_bytes
    }

    /// Adds an entry that `encode` writes to the front of what it is given; it returns the length.
    pub(crate) fn push_entry(&mut self, encode: impl FnOnce(&mut [u8]) -> usize) {
        let at = RECORD_HEADER_BYTES + self.entries_bytes;
        self.entries_bytes += encode(&mut self.entries_area.own(ENTRIES_AREA_BYTES)[at..]);
        self.entry_count += 1;
    }

    /// Adds a write's entry and its blocks; `sum` is told each block's sum and stored length.
    pub(crate) fn push_write(
        &mut self,
        head: &EntryHead,
        bytes: SharedBuf,
        coding: &BlockCoding,
        alignment: usize,
        sum: &mut impl FnMut(BlockSum),
    ) {
        let sums_at = RECORD_HEADER_BYTES + self.entries_bytes;
        let blocks = bytes.len();
        let aligned = [bytes.as_ptr() as usize, blocks, self.blocks_bytes].iter().all(|n| n.is_multiple_of(alignment));
        let copy = blocks <= COPY_UP_TO_BYTES || !aligned;
        let copied = if copy {
            let end = self.copied_bytes + blocks;
            Some(&mut self.copied.own(MAX_RECORD_BYTES)[self.copied_bytes..end])
        } else {
            None
        };
        let area = self.entries_area.own(ENTRIES_AREA_BYTES);
        let mut told = |checksum, length| {
            sum((checksum, length));
            (checksum, length)
        };
        let sources = coding.blocks(head.block_count, &bytes);
        let length = match copied {
            Some(mut copied) => {
                let sums = sources.map(|(from, checksum, length)| {
                    let (to, rest) = std::mem::take(&mut copied).split_at_mut(from.len());
                    copied = rest;
                    to.copy_from_slice(from);
                    told(checksum, length)
                });
                head.encode_write(sums, &mut area[sums_at..])
            }
            None => {
                let sums = sources.map(|(_, checksum, length)| told(checksum, length));
                head.encode_write(sums, &mut area[sums_at..])
            }
        };
        self.entries_bytes += length;
        self.entry_count += 1;
        self.blocks_bytes += blocks;
        if copy {
            self.note_copied(blocks);
        } else {
            self.pieces.push(Piece::Shared(bytes));
        }
    }

    fn note_copied(&mut self, bytes: usize) {
        let start = self.copied_bytes;
        self.copied_bytes += bytes;
        match self.pieces.last_mut() {
            Some(Piece::Copied { end, .. }) if *end == start => *end += bytes,
            _ => self.pieces.push(Piece::Copied { start, end: start + bytes }),
        }
    }

    /// Adds an entry whose data (a leaf, not blocks) is copied behind what is there.
    pub(crate) fn push_with_data(&mut self, head: &EntryHead, payload: &[u8], data: &[u8]) {
        self.push_entry(|out| head.encode_with(payload, out));
        let start = self.copied_bytes;
        self.copied.own(MAX_RECORD_BYTES)[start..start + data.len()].copy_from_slice(data);
        self.blocks_bytes += data.len();
        self.note_copied(data.len());
    }

    /// Adds a move; `bytes` are what is stored of its blocks, in their order.
    pub(crate) fn push_move<'a>(
        &mut self,
        head: &EntryHead,
        from: &[StoredBlock],
        bytes: impl Iterator<Item = &'a [u8]>,
    ) {
        self.push_entry(|out| head.encode_move(from, out));
        for (block, bytes) in from.iter().zip(bytes) {
            let (start, length) = (self.copied_bytes, block.stored.bytes());
            self.copied.own(MAX_RECORD_BYTES)[start..start + length].copy_from_slice(&bytes[..length]);
            self.blocks_bytes += length;
            self.note_copied(length);
        }
    }

    /// Leaves and compressed blocks end anywhere: zeroes up to the device block.
    fn pad(&mut self, block_size_bytes: u32) {
        let padding = self.blocks_bytes.next_multiple_of(block_size_bytes as usize) - self.blocks_bytes;
        if padding > 0 {
            let start = self.copied_bytes;
            self.copied.own(MAX_RECORD_BYTES)[start..start + padding].fill(0);
            self.blocks_bytes += padding;
            self.padding_bytes += padding;
            self.note_copied(padding);
        }
    }

    /// Length of the record as it stands.
    pub(crate) fn record_bytes(&self, block_size_bytes: u32) -> usize {
        record_length_bytes(self.entries_bytes, self.blocks_bytes, block_size_bytes)
    }

    /// Where its blocks begin, from the start of the record.
    pub(crate) fn blocks_offset_bytes(&self, block_size_bytes: u32) -> usize {
        blocks_offset_bytes(self.entries_bytes, block_size_bytes)
    }

    /// Completes the record for this place and lists in `parts` what the device is to write.
    pub(crate) fn encode(&mut self, key: &RecordKey, place: &RecordPlace, block_size_bytes: u32, stamp: &Stamp) {
        self.pad(block_size_bytes);
        let header = RecordHeader {
            kind: self.kind,
            shard: stamp.shard,
            length_bytes: self.record_bytes(block_size_bytes) as u32,
            entries_bytes: self.entries_bytes as u32,
            entry_count: self.entry_count,
            seq: self.seq,
            durable_through: stamp.durable_through,
            incarnation: stamp.incarnation,
            wall_time_ns: stamp.wall_time_ns,
        };
        let front = self.blocks_offset_bytes(block_size_bytes);
        header.encode(key, place, block_size_bytes, &mut self.entries_area.own(ENTRIES_AREA_BYTES)[..front]);
        let entries = self.entries_area.share().slice(0..front);
        self.parts.push(entries);
        for piece in &self.pieces {
            let part = match piece {
                Piece::Copied { start, end } => self.copied.share().slice(*start..*end),
                Piece::Shared(bytes) => bytes.clone(),
            };
            self.parts.push(part);
        }
        self.progress = Progress::Writing;
    }
}

/// What a record's header says beyond its contents.
pub(crate) struct Stamp {
    pub(crate) shard: types::ShardIndex,
    pub(crate) durable_through: RecordSeq,
    pub(crate) incarnation: types::Incarnation,
    pub(crate) wall_time_ns: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::EntryKind;
    use types::BlockRange;

    fn write(count: u32) -> EntryHead {
        let mut head = EntryHead::new(EntryKind::Write).with_range(BlockRange::new(0, count));
        head.seq = types::Seq(1);
        head
    }

    #[test]
    fn neighbouring_copies_are_one_piece_and_large_writes_are_not_copied() {
        let mut batch = Batch::new();
        batch.begin(RecordSeq(1), RecordKind::Log, (Stream::Hot, MAX_RECORD_BYTES), LogPosition(0));
        for _ in 0..3 {
            batch.push_write(&write(1), IoBuf::zeroed(4096).freeze(), &BlockCoding::PLAIN, 4096, &mut |_| ());
        }
        let large = IoBuf::zeroed(32 << 10).freeze();
        let address = large.as_ptr();
        batch.push_write(&write(8), large, &BlockCoding::PLAIN, 4096, &mut |_| ());
        batch.push_write(&write(1), IoBuf::zeroed(4096).freeze(), &BlockCoding::PLAIN, 4096, &mut |_| ());
        assert_eq!(batch.pieces.len(), 3);
        assert_eq!(batch.blocks_bytes(), 12 * 4096);
        assert!(matches!(&batch.pieces[1], Piece::Shared(bytes) if bytes.as_ptr() == address));
    }

    #[test]
    fn unaligned_bytes_are_copied_whatever_their_length() {
        let mut batch = Batch::new();
        batch.begin(RecordSeq(1), RecordKind::Log, (Stream::Hot, MAX_RECORD_BYTES), LogPosition(0));
        let bytes = IoBuf::zeroed((32 << 10) + 64).freeze().slice(64..(32 << 10) + 64);
        batch.push_write(&write(8), bytes, &BlockCoding::PLAIN, 512, &mut |_| ());
        assert!(matches!(batch.pieces[0], Piece::Copied { start: 0, end: 32768 }));
    }
}
