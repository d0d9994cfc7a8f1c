//! Entries of a group's order outside a record: what one member sends to another, in the very bytes of the log.
//!
//! ```text
//!   heads                                   blocks
//!   │ head, payload │ head, payload │ …      │ block │ block │ …     one behind the other, in the order of the entries
//! ```
//!
//! Layouts are those of [`format::entry`](crate::format::entry); here is only what belongs where. Encoding computes the
//! sum of each block, decoding compares it; blocks themselves are never copied.

use crate::entry::{BlockCoding, Entry, EntryKind, MAX_ENTRY_BLOCKS, MAX_ENTRY_CHUNKS, MAX_GROUP_RECORD_BYTES};
use crate::format::entry::{ChunkList, ENTRY_HEAD_BYTES, Entries};
use crate::format::{
    self, Crc32c, EntryBody, EntryFlags, EntryHead, FormatError, LayerRecord, StoredLength, UNIT_BYTES,
};
use runtime::SharedBuf;
use std::ops::Range;
use types::{ChunkId, GroupId, LayerId, Seq, VolumeId};

/// Why an entry cannot be sent, or is not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OrderedError {
    /// Bytes that are no entry, or an entry that no log may hold.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// It is of one store alone.
    #[error("group {group}, entry {seq}: its kind ({kind}) has no place in a group's order")]
    Kind {
        /// The group.
        group: GroupId,
        /// Its sequence, if it has any.
        seq: Seq,
        /// The number of its kind.
        kind: u8,
    },
    /// A store would not take it.
    #[error("group {group}, entry {seq}: {field} {found}, which no store takes")]
    Limit {
        /// The group.
        group: GroupId,
        /// Its sequence.
        seq: Seq,
        /// What there is too much, or too little, of.
        field: &'static str,
        /// How much.
        found: usize,
    },
    /// Its blocks are longer or shorter than its head says.
    #[error("group {group}, entry {seq}: {found} bytes of blocks where its head names {expected}")]
    Blocks {
        /// The group.
        group: GroupId,
        /// Its sequence.
        seq: Seq,
        /// Bytes named.
        expected: usize,
        /// Bytes there.
        found: usize,
    },
    /// A block is not the one that was written.
    #[error("group {group}, entry {seq}, block {block}: its sum is {found:08x} and should be {expected:08x}")]
    Sum {
        /// The group.
        group: GroupId,
        /// The entry's sequence.
        seq: Seq,
        /// Number of the block in its chunk.
        block: u16,
        /// The sum that the entry names.
        expected: u32,
        /// That of the bytes.
        found: u32,
    },
}

/// What an entry takes when it is encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OrderedBytes {
    /// Head and payload: a multiple of 8.
    pub head: usize,
    /// Its blocks.
    pub blocks: usize,
}

/// What the entry takes.
///
/// # Errors
/// An entry outside the order, or one that a store would not take.
pub fn ordered_bytes(entry: &Entry) -> Result<OrderedBytes, OrderedError> {
    let Entry { group, seq, .. } = *entry;
    let limit = |field, found| Err(OrderedError::Limit { group, seq, field, found });
    let (payload, blocks) = match &entry.kind {
        EntryKind::Write { range, .. } if range.count > MAX_ENTRY_BLOCKS => return limit("blocks", range.count.into()),
        EntryKind::Write { range, bytes, coding } => {
            let expected = coding.bytes(range.count);
            if bytes.len() != expected {
                return Err(OrderedError::Blocks { group, seq, expected, found: bytes.len() });
            }
            (usize::from(range.count) * format::entry::WRITE_BYTES_PER_BLOCK, expected)
        }
        EntryKind::Zero { .. } | EntryKind::EpochStart | EntryKind::Noop => (0, 0),
        EntryKind::VolumeEpoch { .. } => (size_of::<VolumeId>(), 0),
        EntryKind::Layer { record } if record.layer != entry.layer => return limit("record of another layer", 1),
        EntryKind::Layer { .. } => (LayerRecord::ENCODED_BYTES, 0),
        EntryKind::GroupRecord { record } if record.len() > MAX_GROUP_RECORD_BYTES => {
            return limit("bytes of record", record.len());
        }
        EntryKind::GroupRecord { record } => (record.len(), 0),
        EntryKind::Merge { chunks, .. } if chunks.is_empty() || !can_be_listed(chunks) => {
            return limit("chunks", chunks.len());
        }
        EntryKind::Merge { into, .. } if *into == entry.layer => return limit("layer merged into itself", 1),
        EntryKind::Merge { chunks, .. } => (size_of::<LayerId>() + chunks.len() * ChunkList::BYTES_PER_CHUNK, 0),
        EntryKind::LayerDelete { chunks } if !can_be_listed(chunks) => return limit("chunks", chunks.len()),
        EntryKind::LayerDelete { chunks } => (chunks.len() * ChunkList::BYTES_PER_CHUNK, 0),
        EntryKind::MemberState { .. }
        | EntryKind::InstallBegin { .. }
        | EntryKind::Install { .. }
        | EntryKind::InstallZero { .. }
        | EntryKind::InstallEnd { .. }
        | EntryKind::InstallLayer { .. }
        | EntryKind::Skip { .. } => {
            return Err(OrderedError::Kind { group, seq, kind: crate::shard::kind_of(&entry.kind) as u8 });
        }
    };
    Ok(OrderedBytes { head: EntryHead::encoded_bytes(payload), blocks })
}

fn can_be_listed(chunks: &[ChunkId]) -> bool {
    chunks.len() <= MAX_ENTRY_CHUNKS && chunks.is_sorted_by(|a, b| a < b)
}

/// Appends the entry's head and payload to `heads`; returns its blocks, if it has any, as they lie.
///
/// Allocates nothing but what `heads` grows by.
///
/// # Errors
/// As of [`ordered_bytes`], and a head that no log may hold. `heads` is as it was then.
pub fn encode_ordered<'a>(entry: &'a Entry, heads: &mut Vec<u8>) -> Result<Option<&'a SharedBuf>, OrderedError> {
    let bytes = ordered_bytes(entry)?;
    let head = head_of(entry);
    head.check()?;
    let start = heads.len();
    heads.resize(start + ENTRY_HEAD_BYTES, 0);
    let mut blocks = None;
    match &entry.kind {
        EntryKind::Write { bytes: stored, coding, .. } => {
            heads.resize(start + bytes.head, 0);
            let sums = coding.blocks(head.block_count, stored).map(|(_, sum, length)| (sum, length));
            head.encode_write(sums, &mut heads[start..]);
            blocks = Some(stored);
        }
        EntryKind::VolumeEpoch { volume } => heads.extend_from_slice(&volume.0.to_le_bytes()),
        EntryKind::Layer { record } => heads.extend_from_slice(&record.encode()),
        EntryKind::GroupRecord { record } => heads.extend_from_slice(record),
        EntryKind::Merge { into, chunks, .. } => {
            heads.extend_from_slice(&into.0.to_le_bytes());
            ChunkList::encode(chunks, heads);
        }
        EntryKind::LayerDelete { chunks } => ChunkList::encode(chunks, heads),
        _ => {}
    }
    if blocks.is_none() {
        let payload_bytes = heads.len() - start - ENTRY_HEAD_BYTES;
        heads.resize(start + bytes.head, 0);
        head.encode(payload_bytes, &mut heads[start..]);
    }
    assert_eq!(heads.len() - start, bytes.head, "an entry is as long as was said");
    Ok(blocks)
}

/// The fixed part, as the log has it.
fn head_of(entry: &Entry) -> EntryHead {
    let mut head = EntryHead::new(crate::shard::kind_of(&entry.kind));
    (head.group, head.term, head.seq, head.commit) = (entry.group, entry.term, entry.seq, entry.commit);
    head.volume_epoch = entry.volume_epoch;
    let hides = |hides_below| if hides_below { EntryFlags::HIDES_BELOW } else { EntryFlags::default() };
    match &entry.kind {
        EntryKind::Write { range, coding, .. } => {
            (head.layer, head.chunk, head.key) = (entry.layer, entry.chunk, coding.key());
            head.with_range(*range)
        }
        EntryKind::Zero { range, hides_below } => {
            (head.layer, head.chunk, head.flags) = (entry.layer, entry.chunk, hides(*hides_below));
            head.with_range(*range)
        }
        EntryKind::Merge { hides_below, .. } => EntryHead { layer: entry.layer, flags: hides(*hides_below), ..head },
        EntryKind::Layer { .. } | EntryKind::LayerDelete { .. } => EntryHead { layer: entry.layer, ..head },
        _ => head,
    }
}

/// Walks encoded entries; what it gives shares the memory they came in.
pub struct OrderedEntries<'a> {
    body: &'a SharedBuf,
    entries: Entries<'a>,
}

impl<'a> OrderedEntries<'a> {
    /// The entries whose heads lie in this range of `body` and whose blocks begin at `blocks_at_bytes`.
    ///
    /// # Panics
    /// If the range is not inside `body`.
    pub fn new(body: &'a SharedBuf, heads: Range<usize>, blocks_at_bytes: u32) -> Self {
        Self { body, entries: Entries::new(&body[heads], blocks_at_bytes) }
    }

    /// Where the blocks of the entries walked so far end.
    pub fn blocks_end_bytes(&self) -> u32 {
        self.entries.data_end_bytes()
    }

    /// The next entry, whose blocks have the sums that it names; `None` behind the last.
    ///
    /// # Errors
    /// Bytes that are no entry, an entry outside a group's order, one that no store would take, a wrong sum. The walk has
    /// ended then.
    pub fn next_entry(&mut self) -> Result<Option<Entry>, OrderedError> {
        let Some(found) = self.entries.next_checked()? else { return Ok(None) };
        if found.head.atomic_group != 0 {
            let (field, found) = ("atomic group", u64::from(found.head.atomic_group));
            return Err(FormatError::Field { what: "entry that was sent", field, found }.into());
        }
        if found.head.flags.has(EntryFlags::CARRIED) {
            let (field, found) = ("flags", u64::from(found.head.flags.0));
            return Err(FormatError::Field { what: "entry that was sent", field, found }.into());
        }
        entry_of(&found, self.body).map(Some)
    }
}

/// The entry as it was prepared. Its data offset is one in `bytes`, of which its head is a part.
pub(crate) fn entry_of(found: &format::Entry<'_>, bytes: &SharedBuf) -> Result<Entry, OrderedError> {
    let head = &found.head;
    let EntryHead { group, term, seq, commit, volume_epoch, layer, chunk, .. } = *head;
    let range = || head.range().expect("an entry of this kind has blocks");
    let limit = |field, found| Err(OrderedError::Limit { group, seq, field, found });
    let kind = match &found.body {
        EntryBody::Write(_) if head.block_count > MAX_ENTRY_BLOCKS => return limit("blocks", head.block_count.into()),
        EntryBody::Write(_) => {
            let (bytes, coding) = blocks_of(found, bytes)?;
            EntryKind::Write { range: range(), bytes, coding }
        }
        EntryBody::Zero => EntryKind::Zero { range: range(), hides_below: head.flags.has(EntryFlags::HIDES_BELOW) },
        EntryBody::EpochStart => EntryKind::EpochStart,
        EntryBody::VolumeEpoch(volume) => EntryKind::VolumeEpoch { volume: *volume },
        EntryBody::GroupRecord(record) if record.len() > MAX_GROUP_RECORD_BYTES => {
            return limit("bytes of record", record.len());
        }
        EntryBody::GroupRecord(record) => {
            let start = record.as_ptr().addr() - bytes.as_ptr().addr();
            EntryKind::GroupRecord { record: bytes.slice(start..start + record.len()) }
        }
        EntryBody::Layer(record) => EntryKind::Layer { record: *record },
        EntryBody::Noop => EntryKind::Noop,
        EntryBody::Merge(into, chunks) => EntryKind::Merge {
            into: *into,
            chunks: chunks.iter().collect(),
            hides_below: head.flags.has(EntryFlags::HIDES_BELOW),
        },
        EntryBody::LayerDelete(chunks) => EntryKind::LayerDelete { chunks: chunks.iter().collect() },
        _ => return Err(OrderedError::Kind { group, seq, kind: head.kind as u8 }),
    };
    Ok(Entry { group, term, seq, commit, volume_epoch, layer, chunk, kind })
}

/// The blocks that an entry brings, compared with their sums, and what was done to them.
fn blocks_of(found: &format::Entry<'_>, bytes: &SharedBuf) -> Result<(SharedBuf, BlockCoding), OrderedError> {
    let EntryHead { group, seq, first_block, key, .. } = found.head;
    let sums = found.stored_sums().expect("an entry with blocks has their sums");
    let start = found.data_offset_bytes as usize;
    let expected = found.data_bytes() as usize;
    let there = bytes.len().saturating_sub(start);
    if there < expected {
        return Err(OrderedError::Blocks { group, seq, expected, found: there });
    }
    let (mut at, mut is_plain) = (start, true);
    let mut lengths = [StoredLength::RAW; MAX_ENTRY_BLOCKS as usize];
    let mut seen_sums = [Crc32c(0); MAX_ENTRY_BLOCKS as usize];
    for (number, (checksum, stored)) in sums.iter().enumerate() {
        let end = at + usize::from(stored.units()) * UNIT_BYTES;
        let seen = Crc32c::of(&bytes[at..end]);
        if seen != checksum {
            let block = u16::from(first_block) + number as u16;
            return Err(OrderedError::Sum { group, seq, block, expected: checksum.0, found: seen.0 });
        }
        is_plain &= stored == StoredLength::RAW;
        lengths[number] = stored;
        seen_sums[number] = seen;
        at = end;
    }
    let coding = BlockCoding::new(key, (!is_plain).then_some(&lengths[..sums.count()]));
    Ok((bytes.slice(start..at), coding.with_sums(seen_sums[..sums.count()].iter().copied())))
}
