//! An entry: one thing that happened, as the log says it.
//!
//! 80 fixed bytes ([`EntryHead`]) and a payload that depends on the kind. The common one, a write of one block, is 88
//! bytes and is encoded without an allocation: [`EntryHead::encode_write`].

mod chunks;
mod head;
mod kind;
mod sums;

pub use chunks::ChunkList;
pub use head::EntryHead;
pub use kind::{EntryFlags, EntryKind};
pub use sums::{MovedBlocks, StoredSums};

use super::FormatError;
use super::bytes::{check_length, check_zero, u32_at, u64_at};
use super::checkpoint::{GroupState, LayerRecord, MergeRecord, PassBegin, PassEnd, SegmentTable};
use super::leaf::LeafData;
use super::opening::Opening;
use super::record::{MAX_RECORD_BYTES, RecordKind};
use types::{LayerId, Seq, VolumeId};

const WHAT: &str = "entry";
/// Length of the fixed part.
pub const ENTRY_HEAD_BYTES: usize = 80;
/// Entries begin at multiples of this.
pub const ENTRY_ALIGNMENT: usize = 8;
/// Payload of a write, per block: its sum and its stored length.
pub const WRITE_BYTES_PER_BLOCK: usize = 5;
/// Payload of a move, per block: as of a write, and where it was.
pub const MOVE_BYTES_PER_BLOCK: usize = WRITE_BYTES_PER_BLOCK + 5;
/// Payload of a merge in front of its chunks: the layer that takes their blocks.
const MERGE_HEAD_BYTES: usize = 8;
/// Most chunks of one merge or deletion: what applying it takes of a turn stays below 100 µs.
pub const MAX_ENTRY_CHUNKS: usize = 64;
/// Largest opaque record of a group: as the pieces of the cluster map.
pub const MAX_GROUP_RECORD_BYTES: usize = 256 << 10;

/// Largest opaque state of a member of a group.
pub const MAX_MEMBER_STATE_BYTES: usize = 4 << 10;

/// Most epochs that a skip names: of a longer history the oldest are left out.
pub const MAX_SKIP_EPOCHS: usize = 4096;
/// Longest payload of a skip: with the heads of entry and record it fits where a record's entries are gathered. 4,096
/// epochs leave room for 3,582 volumes without a record, or 1,024 volumes and a record of 40 KiB.
pub const MAX_SKIP_BYTES: usize = 120 << 10;

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
    /// [`EntryKind::Merge`]: chunks of the head's layer into this one. Payload: layer, 8 bytes; chunks, 4 bytes each.
    Merge(LayerId, ChunkList<'a>),
    /// [`EntryKind::LayerDelete`]: chunks of the head's layer; none: the layer itself. Payload: chunks, 4 bytes each.
    LayerDelete(ChunkList<'a>),
    /// [`EntryKind::MemberState`]: bytes that the store does not read.
    MemberState(&'a [u8]),
    /// [`EntryKind::InstallBegin`].
    InstallBegin,
    /// [`EntryKind::Install`].
    Install(StoredSums<'a>),
    /// [`EntryKind::InstallZero`].
    InstallZero,
    /// [`EntryKind::InstallLayer`]: the head names the same layer.
    InstallLayer(LayerRecord),
    /// [`EntryKind::InstallEnd`]: the leaf's last sequence, 8 bytes.
    InstallEnd(Seq),
    /// [`EntryKind::Skip`]: the group as it is where its order goes on, laid out as its state in a pass; what is committed
    /// there is what is skipped, and there is no state of a member.
    Skip(GroupState<'a>),
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
    /// Sums of the blocks that follow in the record: of a write, an install or a move.
    pub fn stored_sums(&self) -> Option<StoredSums<'a>> {
        match self.body {
            EntryBody::Write(sums) | EntryBody::Install(sums) | EntryBody::Move(MovedBlocks { sums }) => Some(sums),
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
        EntryKind::Install => {
            exactly(count * WRITE_BYTES_PER_BLOCK)?;
            EntryBody::Install(StoredSums::decode(payload, count)?)
        }
        EntryKind::InstallBegin => exactly(0).map(|()| EntryBody::InstallBegin)?,
        EntryKind::InstallZero => exactly(0).map(|()| EntryBody::InstallZero)?,
        EntryKind::InstallEnd => exactly(8).map(|()| EntryBody::InstallEnd(Seq(u64_at(payload, 0))))?,
        EntryKind::MemberState if payload.len() > MAX_MEMBER_STATE_BYTES => {
            return Err(FormatError::Field { what: WHAT, field: "payload length", found: payload.len() as u64 });
        }
        EntryKind::MemberState => EntryBody::MemberState(payload),
        EntryKind::Skip => EntryBody::Skip(decode_skip(payload)?),
        EntryKind::Move => {
            exactly(count * MOVE_BYTES_PER_BLOCK)?;
            EntryBody::Move(MovedBlocks { sums: StoredSums::decode(payload, count)? })
        }
        EntryKind::Zero => exactly(0).map(|()| EntryBody::Zero)?,
        EntryKind::EpochStart => exactly(0).map(|()| EntryBody::EpochStart)?,
        EntryKind::Noop => exactly(0).map(|()| EntryBody::Noop)?,
        EntryKind::LayerDelete => EntryBody::LayerDelete(ChunkList::decode(payload)?),
        EntryKind::VolumeEpoch => exactly(8).map(|()| EntryBody::VolumeEpoch(VolumeId(u64_at(payload, 0))))?,
        EntryKind::Merge => {
            check_length(WHAT, payload, MERGE_HEAD_BYTES + ChunkList::BYTES_PER_CHUNK)?;
            let into = LayerId(u64_at(payload, 0));
            if into == head.layer {
                return Err(FormatError::Field { what: WHAT, field: "layer to merge into", found: into.0 });
            }
            EntryBody::Merge(into, ChunkList::decode(&payload[MERGE_HEAD_BYTES..])?)
        }
        EntryKind::GroupRecord if payload.len() > MAX_GROUP_RECORD_BYTES => {
            return Err(FormatError::Field { what: WHAT, field: "payload length", found: payload.len() as u64 });
        }
        EntryKind::GroupRecord => EntryBody::GroupRecord(payload),
        EntryKind::Layer => EntryBody::Layer(layer_of(head, payload)?),
        EntryKind::InstallLayer => EntryBody::InstallLayer(layer_of(head, payload)?),
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

/// The payload of an entry about a layer, which its head names too.
fn layer_of(head: &EntryHead, payload: &[u8]) -> Result<LayerRecord, FormatError> {
    let record = LayerRecord::decode(payload)?;
    match record.layer == head.layer {
        true => Ok(record),
        false => Err(FormatError::Field { what: WHAT, field: "layer", found: record.layer.0 }),
    }
}

/// The payload of a skip.
pub(crate) fn decode_skip(payload: &[u8]) -> Result<GroupState<'_>, FormatError> {
    let field = |field, found| Err(FormatError::Field { what: "skip", field, found });
    if payload.len() > MAX_SKIP_BYTES {
        return field("payload length", payload.len() as u64);
    }
    let state = GroupState::decode(payload)?;
    if state.epochs().len() > MAX_SKIP_EPOCHS {
        return field("number of epochs", state.epochs().len() as u64);
    }
    if let Some((_, first)) = state.epochs().last().filter(|(_, first)| *first > state.committed) {
        return field("first sequence of an epoch", first.0);
    }
    match state.member.number {
        0 => Ok(state),
        other => field("member's state", other),
    }
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
