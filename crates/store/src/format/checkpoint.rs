//! Payloads of the checkpoint entries, leaves apart ([`super::leaf`]).
//!
//! A pass of a shard is, among its other records: `PassBegin`, then in any order a `Leaf` for each leaf, a `GroupState`
//! for each group, `LayerState`, `MergeState`, `Segments`, then `PassEnd`. It counts only when a superblock names it.

use super::bytes::{check_length, check_zero, put_u32, put_u64, u32_at, u64_at};
use super::entry::{MAX_GROUP_RECORD_BYTES, MAX_MEMBER_STATE_BYTES};
use super::{FormatError, Generation, RecordPointer, RecordSeq, SegmentIndex, Stream};
use types::{Epoch, FamilyId, KeyId, LayerId, Seq, Term, VolumeEpoch, VolumeId};

fn check_exactly(what: &'static str, payload: &[u8], expected: usize) -> Result<(), FormatError> {
    if payload.len() == expected {
        return Ok(());
    }
    Err(FormatError::Field { what, field: "payload length", found: payload.len() as u64 })
}

/// The first entry of a pass.
///
/// | at | bytes | field |
/// |---|---|---|
/// | 0 | 24 | where replay begins, should this pass be the one loaded ([`RecordPointer`]) |
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PassBegin {
    /// The earlier of the pass's start and the oldest entry that was prepared and not applied then.
    pub replay_start: RecordPointer,
}

impl PassBegin {
    /// Length as stored.
    pub const ENCODED_BYTES: usize = RecordPointer::ENCODED_BYTES;

    /// The payload.
    pub fn encode(&self) -> [u8; Self::ENCODED_BYTES] {
        let mut out = [0; Self::ENCODED_BYTES];
        self.replay_start.encode(&mut out);
        out
    }

    pub(crate) fn decode(payload: &[u8]) -> Result<Self, FormatError> {
        check_exactly("pass begin", payload, Self::ENCODED_BYTES)?;
        Ok(Self { replay_start: RecordPointer::decode("pass begin", payload)? })
    }
}

/// The last entry of a pass. The counts say whether all of it was found again.
///
/// | at | bytes | field |
/// |---|---|---|
/// | 0 | 24 | the record of the pass's begin ([`RecordPointer`]) |
/// | 24 | 8 | leaves |
/// | 32 | 8 | group states |
/// | 40 | 8 | layers |
/// | 48 | 8 | merges |
/// | 56 | 8 | segments named |
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PassEnd {
    /// The record that holds the pass's begin.
    pub begin: RecordPointer,
    /// `Leaf` entries of the pass.
    pub leaves: u64,
    /// `GroupState` entries of the pass.
    pub groups: u64,
    /// `LayerState` entries of the pass.
    pub layers: u64,
    /// `MergeState` entries of the pass.
    pub merges: u64,
    /// Segments named by the `Segments` entries of the pass.
    pub segments: u64,
}

impl PassEnd {
    /// Length as stored.
    pub const ENCODED_BYTES: usize = 64;

    /// The payload.
    pub fn encode(&self) -> [u8; Self::ENCODED_BYTES] {
        let mut out = [0; Self::ENCODED_BYTES];
        self.begin.encode(&mut out);
        for (i, count) in [self.leaves, self.groups, self.layers, self.merges, self.segments].into_iter().enumerate() {
            put_u64(&mut out, 24 + i * 8, count);
        }
        out
    }

    pub(crate) fn decode(payload: &[u8]) -> Result<Self, FormatError> {
        check_exactly("pass end", payload, Self::ENCODED_BYTES)?;
        Ok(Self {
            begin: RecordPointer::decode("pass end", payload)?,
            leaves: u64_at(payload, 24),
            groups: u64_at(payload, 32),
            layers: u64_at(payload, 40),
            merges: u64_at(payload, 48),
            segments: u64_at(payload, 56),
        })
    }
}

/// What is known of a group: payload of `GroupState`, and of `Skip` without a member's state. If it does not fit one record, a pass holds several of one group,
/// which add up: the lists one after the other, the largest commit number, the last record that is not empty.
///
/// | at | bytes | field |
/// |---|---|---|
/// | 0 | 8 | committed through |
/// | 8 | 4 | number of epochs |
/// | 12 | 4 | number of volumes |
/// | 16 | 4 | length of the group's record |
/// | 20 | 4 | length of what the member keeps: 0, or 8 and its state |
/// | 24 | 16 × epochs | epoch (4), [mark](types::Term) (4), its first sequence (8); both rise |
/// | … | 16 × volumes | volume (8), highest volume epoch seen (4), zero (4) |
/// | … | length | the group's record |
/// | … | length | number of the member's state (8), its bytes |
#[derive(Clone, Copy, Debug, Default)]
pub struct GroupState<'a> {
    /// All up to this is committed, and in the leaves of the pass or behind its replay start.
    pub committed: Seq,
    epochs: &'a [u8],
    volumes: &'a [u8],
    /// The group's record in the cluster map, as bytes; empty if none is known.
    pub record: &'a [u8],
    /// What the member of the group keeps for itself.
    pub member: MemberState<'a>,
}

/// The last state that a member of a group wrote down. Of two the one with the higher number counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemberState<'a> {
    /// Counts up with each; 0: there was none.
    pub number: u64,
    /// Bytes that the store does not read.
    pub bytes: &'a [u8],
}

impl<'a> MemberState<'a> {
    const NUMBER_BYTES: usize = 8;

    fn encoded_bytes(&self) -> usize {
        if self.number == 0 { 0 } else { Self::NUMBER_BYTES + self.bytes.len() }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        assert!(self.bytes.len() <= MAX_MEMBER_STATE_BYTES);
        if self.number > 0 {
            out.extend_from_slice(&self.number.to_le_bytes());
            out.extend_from_slice(self.bytes);
        }
    }

    fn decode(what: &'static str, from: &'a [u8]) -> Result<Self, FormatError> {
        if from.is_empty() {
            return Ok(Self::default());
        }
        check_length(what, from, Self::NUMBER_BYTES)?;
        let state = Self { number: u64_at(from, 0), bytes: &from[Self::NUMBER_BYTES..] };
        if state.number == 0 || state.bytes.len() > MAX_MEMBER_STATE_BYTES {
            return Err(FormatError::Field { what, field: "member's state", found: state.number });
        }
        Ok(state)
    }
}

impl<'a> GroupState<'a> {
    /// Length without the lists.
    pub const HEAD_BYTES: usize = 24;
    /// Length of a list's element.
    pub const ITEM_BYTES: usize = 16;

    /// Length of a payload with these.
    pub fn encoded_bytes(epochs: usize, volumes: usize, record_bytes: usize) -> usize {
        Self::HEAD_BYTES + (epochs + volumes) * Self::ITEM_BYTES + record_bytes
    }

    /// Appends the payload to `out`.
    pub fn encode(
        committed: Seq,
        epochs: &[(Term, Seq)],
        volumes: &[(VolumeId, VolumeEpoch)],
        record: &[u8],
        member: MemberState<'_>,
        out: &mut Vec<u8>,
    ) {
        assert!(record.len() <= MAX_GROUP_RECORD_BYTES);
        let start = out.len();
        out.resize(start + Self::encoded_bytes(epochs.len(), volumes.len(), 0), 0);
        let payload = &mut out[start..];
        put_u64(payload, 0, committed.0);
        put_u32(payload, 8, epochs.len() as u32);
        put_u32(payload, 12, volumes.len() as u32);
        put_u32(payload, 16, record.len() as u32);
        put_u32(payload, 20, member.encoded_bytes() as u32);
        let (epoch_items, volume_items) = payload[Self::HEAD_BYTES..].split_at_mut(epochs.len() * Self::ITEM_BYTES);
        for (item, (term, first)) in epoch_items.chunks_exact_mut(Self::ITEM_BYTES).zip(epochs) {
            put_u32(item, 0, term.epoch.0);
            put_u32(item, 4, term.mark);
            put_u64(item, 8, first.0);
        }
        for (item, (volume, epoch)) in volume_items.chunks_exact_mut(Self::ITEM_BYTES).zip(volumes) {
            put_u64(item, 0, volume.0);
            put_u32(item, 8, epoch.0);
        }
        out.extend_from_slice(record);
        member.encode(out);
    }

    pub(crate) fn decode(payload: &'a [u8]) -> Result<Self, FormatError> {
        const WHAT: &str = "group state";
        check_length(WHAT, payload, Self::HEAD_BYTES)?;
        let epochs_bytes = u32_at(payload, 8) as usize * Self::ITEM_BYTES;
        let volumes_bytes = u32_at(payload, 12) as usize * Self::ITEM_BYTES;
        let record_bytes = u32_at(payload, 16) as usize;
        if record_bytes > MAX_GROUP_RECORD_BYTES {
            return Err(FormatError::Field { what: WHAT, field: "record length", found: record_bytes as u64 });
        }
        let member_bytes = u32_at(payload, 20) as usize;
        check_exactly(WHAT, payload, Self::HEAD_BYTES + epochs_bytes + volumes_bytes + record_bytes + member_bytes)?;
        let (epochs, rest) = payload[Self::HEAD_BYTES..].split_at(epochs_bytes);
        let (volumes, rest) = rest.split_at(volumes_bytes);
        let (record, member) = rest.split_at(record_bytes);
        let member = MemberState::decode(WHAT, member)?;
        let state = Self { committed: Seq(u64_at(payload, 0)), epochs, volumes, record, member };
        for item in volumes.chunks_exact(Self::ITEM_BYTES) {
            check_zero(WHAT, 12, &item[12..16])?;
        }
        if !state.epochs().is_sorted_by(|a, b| a.0 < b.0 && a.1 <= b.1) {
            return Err(FormatError::Field { what: WHAT, field: "order of epochs", found: 0 });
        }
        Ok(state)
    }

    /// Each epoch and the first sequence it owns, in order.
    pub fn epochs(&self) -> impl ExactSizeIterator<Item = (Term, Seq)> + use<'a> {
        let term = |item| Term::new(Epoch(u32_at(item, 0)), u32_at(item, 4));
        self.epochs.chunks_exact(Self::ITEM_BYTES).map(move |item| (term(item), Seq(u64_at(item, 8))))
    }

    /// Highest epoch seen of each volume.
    pub fn volumes(&self) -> impl ExactSizeIterator<Item = (VolumeId, VolumeEpoch)> + use<'a> {
        self.volumes
            .chunks_exact(Self::ITEM_BYTES)
            .map(|item| (VolumeId(u64_at(item, 0)), VolumeEpoch(u32_at(item, 8))))
    }
}

/// A layer: payload of `Layer` and of `LayerState`.
///
/// | at | bytes | field |
/// |---|---|---|
/// | 0 | 8 | layer |
/// | 8 | 8 | parent, 0 none |
/// | 16 | 8 | family |
/// | 24 | 8 | created at, wall clock, ns since 1970 |
/// | 32 | 8 | kept until, wall clock, ns since 1970; 0 as long as it is wanted |
/// | 40 | 4 | key |
/// | 44 | 20 | zero |
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LayerRecord {
    /// Its id, never used twice.
    pub layer: LayerId,
    /// The layer that is read where this one holds nothing; 0 for none.
    pub parent: LayerId,
    /// The family of volumes, snapshots and clones it belongs to.
    pub family: FamilyId,
    /// Wall clock, ns since 1970.
    pub created_at_ns: u64,
    /// Wall clock, ns since 1970; 0 for no term.
    pub retain_until_ns: u64,
    /// Key that new blocks of the family are encrypted with; 0 for none.
    pub key: KeyId,
}

impl LayerRecord {
    /// Length as stored.
    pub const ENCODED_BYTES: usize = 64;

    /// The payload.
    pub fn encode(&self) -> [u8; Self::ENCODED_BYTES] {
        let mut out = [0; Self::ENCODED_BYTES];
        put_u64(&mut out, 0, self.layer.0);
        put_u64(&mut out, 8, self.parent.0);
        put_u64(&mut out, 16, self.family.0);
        put_u64(&mut out, 24, self.created_at_ns);
        put_u64(&mut out, 32, self.retain_until_ns);
        put_u32(&mut out, 40, self.key.0);
        out
    }

    /// Reads one.
    ///
    /// # Errors
    /// Another length, or bits that mean nothing.
    pub fn decode(payload: &[u8]) -> Result<Self, FormatError> {
        const WHAT: &str = "layer";
        check_exactly(WHAT, payload, Self::ENCODED_BYTES)?;
        check_zero(WHAT, 44, &payload[44..])?;
        Ok(Self {
            layer: LayerId(u64_at(payload, 0)),
            parent: LayerId(u64_at(payload, 8)),
            family: FamilyId(u64_at(payload, 16)),
            created_at_ns: u64_at(payload, 24),
            retain_until_ns: u64_at(payload, 32),
            key: KeyId(u32_at(payload, 40)),
        })
    }
}

/// A layer that is merged into another, or deleted, and that records on the device may still name: payload of
/// `MergeState`.
///
/// | at | bytes | field |
/// |---|---|---|
/// | 0 | 8 | the layer that ends |
/// | 8 | 8 | the layer that takes its blocks; 0: none, it is deleted |
/// | 16 | 8 | record sequence behind which no record names it; 0 as long as it is under way |
/// | 24 | 8 | once it is gone: its parent, which its children have from then on; itself if that is not known |
/// | 32 | 8 | zero |
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MergeRecord {
    /// The layer that ends.
    pub from: LayerId,
    /// The layer that takes its blocks; 0: none, it is deleted.
    pub into: LayerId,
    /// No record behind this one names `from`; 0 as long as it is under way.
    pub gone: RecordSeq,
    /// Once it is gone: its parent; itself if that is not known.
    pub parent: LayerId,
}

impl MergeRecord {
    /// Length as stored.
    pub const ENCODED_BYTES: usize = 40;

    /// The payload.
    pub fn encode(&self) -> [u8; Self::ENCODED_BYTES] {
        let mut out = [0; Self::ENCODED_BYTES];
        put_u64(&mut out, 0, self.from.0);
        put_u64(&mut out, 8, self.into.0);
        put_u64(&mut out, 16, self.gone.0);
        put_u64(&mut out, 24, self.parent.0);
        out
    }

    pub(crate) fn decode(payload: &[u8]) -> Result<Self, FormatError> {
        const WHAT: &str = "merge";
        check_exactly(WHAT, payload, Self::ENCODED_BYTES)?;
        check_zero(WHAT, 32, &payload[32..])?;
        Ok(Self {
            parent: LayerId(u64_at(payload, 24)),
            from: LayerId(u64_at(payload, 0)),
            into: LayerId(u64_at(payload, 8)),
            gone: RecordSeq(u64_at(payload, 16)),
        })
    }
}

/// A segment and the records it holds: element of `Segments`.
///
/// | at | bytes | field |
/// |---|---|---|
/// | 0 | 4 | segment |
/// | 4 | 1 | stream |
/// | 5 | 1 | 1 if sealed: no record comes behind the last |
/// | 6 | 2 | zero |
/// | 8 | 8 | generation |
/// | 16 | 8 | first record sequence |
/// | 24 | 8 | last record sequence |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentUse {
    /// The segment.
    pub segment: SegmentIndex,
    /// What is gathered in it.
    pub stream: Stream,
    /// No record comes behind the last.
    pub sealed: bool,
    /// This use of it.
    pub generation: Generation,
    /// As its header says.
    pub first_record: RecordSeq,
    /// The last record when this was written; the last for ever if it is sealed.
    pub last_record: RecordSeq,
}

impl SegmentUse {
    /// Length as stored.
    pub const ENCODED_BYTES: usize = 32;

    /// Appends one element to a payload.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut item = [0; Self::ENCODED_BYTES];
        put_u32(&mut item, 0, self.segment.0);
        item[4] = self.stream as u8;
        item[5] = u8::from(self.sealed);
        put_u64(&mut item, 8, self.generation.0);
        put_u64(&mut item, 16, self.first_record.0);
        put_u64(&mut item, 24, self.last_record.0);
        out.extend_from_slice(&item);
    }

    fn decode(item: &[u8]) -> Result<Self, FormatError> {
        const WHAT: &str = "segment use";
        check_zero(WHAT, 6, &item[6..8])?;
        if item[5] > 1 {
            return Err(FormatError::Field { what: WHAT, field: "sealed", found: u64::from(item[5]) });
        }
        Ok(Self {
            segment: SegmentIndex(u32_at(item, 0)),
            stream: Stream::from_byte(WHAT, item[4])?,
            sealed: item[5] == 1,
            generation: Generation(u64_at(item, 8)),
            first_record: RecordSeq(u64_at(item, 16)),
            last_record: RecordSeq(u64_at(item, 24)),
        })
    }
}

/// Payload of `Segments`: [`SegmentUse`]s, one after the other.
#[derive(Clone, Copy, Debug)]
pub struct SegmentTable<'a>(&'a [u8]);

impl<'a> SegmentTable<'a> {
    pub(crate) fn decode(payload: &'a [u8]) -> Result<Self, FormatError> {
        if !payload.len().is_multiple_of(SegmentUse::ENCODED_BYTES) {
            return Err(FormatError::Field { what: "segments", field: "length", found: payload.len() as u64 });
        }
        payload.chunks_exact(SegmentUse::ENCODED_BYTES).try_for_each(|item| SegmentUse::decode(item).map(drop))?;
        Ok(Self(payload))
    }

    /// The segments, in no promised order.
    pub fn iter(&self) -> impl Iterator<Item = SegmentUse> + use<'a> {
        self.0.chunks_exact(SegmentUse::ENCODED_BYTES).filter_map(|item| SegmentUse::decode(item).ok())
    }
}
