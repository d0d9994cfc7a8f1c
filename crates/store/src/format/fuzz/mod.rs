//! What a fuzzer calls, and what it starts from.
//!
//! Each `fuzz_*` takes any bytes and must not panic. Sums and hashes are put right first, so that the fuzzer gets
//! behind them: what is tested is that no byte that a decoder accepts is ignored. Whatever decodes must encode to the
//! same bytes.

pub mod samples;

use super::bytes::u32_at;
use super::checkpoint::{GroupState, SegmentUse};
use super::entry::{Entry, EntryBody};
use super::hash::plain_hash;
use super::record::{RECORD_HEADER_BYTES, Record};
use super::{Geometry, LeafView, Opening, SlotPosition, Superblock, superblock::SUPERBLOCK_BYTES};
use super::{SegmentHeader, StoredBlock};
use samples::{BLOCK_SIZE_BYTES, PLACE, key};

/// Any bytes as a superblock slot.
pub fn fuzz_superblock(bytes: &[u8]) {
    let mut slot = vec![0; SUPERBLOCK_BYTES];
    let len = bytes.len().min(SUPERBLOCK_BYTES);
    slot[..len].copy_from_slice(&bytes[..len]);
    let sum = plain_hash(&slot[..SUPERBLOCK_BYTES - 32]);
    slot[SUPERBLOCK_BYTES - 32..].copy_from_slice(&sum);
    for position in SlotPosition::ALL {
        let _ = Superblock::decode(position, bytes);
        let Ok(superblock) = Superblock::decode(position, &slot) else { continue };
        if superblock.compat == 0 {
            let mut again = vec![0xff; SUPERBLOCK_BYTES];
            superblock.encode(position, &mut again);
            assert_eq!(again, slot);
        }
    }
}

/// Any bytes as the first block of a segment.
pub fn fuzz_segment_header(bytes: &[u8]) {
    let _ = SegmentHeader::decode(&key(), PLACE.segment, bytes);
    let mut block = bytes[..bytes.len().min(BLOCK_SIZE_BYTES as usize)].to_vec();
    block.resize(BLOCK_SIZE_BYTES as usize, 0);
    samples::seal_segment_header(&mut block);
    if let Ok(header) = SegmentHeader::decode(&key(), PLACE.segment, &block) {
        let mut again = vec![0xff; block.len()];
        header.encode(&key(), &mut again);
        assert_eq!(again, block);
    }
}

/// Any bytes as a record, blocks included.
pub fn fuzz_record(bytes: &[u8]) {
    let room = 4 << 20;
    if let Ok(record) = Record::decode(&key(), &PLACE, BLOCK_SIZE_BYTES, room, bytes) {
        let _ = record.check_blocks(bytes);
    }
    let mut sealed = bytes.to_vec();
    samples::seal_record(&mut sealed);
    let Ok(record) = Record::decode(&key(), &PLACE, BLOCK_SIZE_BYTES, room, &sealed) else { return };
    let _ = record.check_blocks(&sealed);
    let area_bytes = record.header.blocks_offset_bytes(BLOCK_SIZE_BYTES);
    let mut again = vec![0; RECORD_HEADER_BYTES];
    let mut count = 0;
    for entry in record.entries() {
        encode_again(&entry, &mut again);
        if let EntryBody::Leaf(data) = entry.body
            && let Some(leaf) = sealed.get(entry.data_offset_bytes as usize..)
        {
            let _ = data.decode(leaf);
        }
        count += 1;
    }
    assert_eq!(count, record.header.entry_count, "what was checked is what is walked");
    again.resize(area_bytes, 0xff);
    record.header.encode(&key(), &PLACE, BLOCK_SIZE_BYTES, &mut again);
    assert_eq!(again, sealed[..area_bytes]);
}

/// Any bytes as a leaf.
pub fn fuzz_leaf(bytes: &[u8]) {
    let Ok(view) = LeafView::decode(bytes) else { return };
    let mut again = vec![0xff; view.encoded_bytes()];
    view.encode(&mut again);
    assert_eq!(again, bytes);
    let leaf = crate::index::Leaf::from_view(&view);
    assert_eq!(leaf.check(), Ok(()));
    let last_seq = if view.is_untrusted { types::Seq(0) } else { view.last_seq };
    assert_eq!((leaf.stored_count(), leaf.last_seq()), (view.stored_count, last_seq));
    assert_eq!((leaf.view().last_seq, leaf.is_untrusted()), (view.last_seq, view.is_untrusted));
}

/// Any numbers as a division of a device.
pub fn fuzz_geometry(bytes: &[u8]) {
    let mut numbers = [0; 20];
    let len = bytes.len().min(20);
    numbers[..len].copy_from_slice(&bytes[..len]);
    let size = super::bytes::u64_at(&numbers, 0);
    let (block, segment) = (u32_at(&numbers, 8), u32_at(&numbers, 12));
    let _ = Geometry::for_device(size, block);
    if let Ok(geometry) = Geometry::with(size, block, segment, Some(numbers[16])) {
        assert_eq!(geometry.check(), Ok(()));
    }
}

/// Appends the entry as its writer would.
fn encode_again(entry: &Entry<'_>, out: &mut Vec<u8>) {
    let head = &entry.head;
    let mut payload = Vec::new();
    match &entry.body {
        EntryBody::Write(sums) | EntryBody::Install(sums) => {
            let start = out.len();
            out.resize(start + super::EntryHead::write_bytes(sums.count()), 0xff);
            head.encode_write(sums.iter(), &mut out[start..]);
            return;
        }
        EntryBody::Move(moved) => {
            let from: Vec<_> = moved
                .sums
                .iter()
                .zip(moved.from())
                .map(|((checksum, stored), location)| StoredBlock { location, stored, checksum })
                .collect();
            let start = out.len();
            out.resize(start + super::EntryHead::move_bytes(from.len()), 0xff);
            head.encode_move(&from, &mut out[start..]);
            return;
        }
        EntryBody::Zero | EntryBody::EpochStart | EntryBody::Noop => {}
        EntryBody::InstallBegin | EntryBody::InstallZero => {}
        EntryBody::InstallEnd(last_seq) => payload.extend(last_seq.0.to_le_bytes()),
        EntryBody::MemberState(state) => payload.extend_from_slice(state),
        EntryBody::VolumeEpoch(volume) => payload.extend(volume.0.to_le_bytes()),
        EntryBody::Merge(layer, chunks) => {
            payload.extend(layer.0.to_le_bytes());
            payload.extend_from_slice(chunks.bytes());
        }
        EntryBody::LayerDelete(chunks) => payload.extend_from_slice(chunks.bytes()),
        EntryBody::GroupRecord(record) => payload.extend_from_slice(record),
        EntryBody::Layer(layer) | EntryBody::LayerState(layer) | EntryBody::InstallLayer(layer) => {
            payload.extend(layer.encode());
        }
        EntryBody::MergeState(merge) => payload.extend(merge.encode()),
        EntryBody::Opening(opening) => {
            let gaps: Vec<_> = opening.gaps().collect();
            Opening::encode(opening.incarnation, opening.previous, opening.void_from, &gaps, &mut payload);
        }
        EntryBody::PassBegin(begin) => payload.extend(begin.encode()),
        EntryBody::PassEnd(end) => payload.extend(end.encode()),
        EntryBody::Leaf(data) => payload.extend(data.encode()),
        EntryBody::GroupState(state) | EntryBody::Skip(state) => {
            let (epochs, volumes): (Vec<_>, Vec<_>) = (state.epochs().collect(), state.volumes().collect());
            GroupState::encode(state.committed, &epochs, &volumes, state.record, state.member, &mut payload);
        }
        EntryBody::Segments(table) => table.iter().for_each(|segment: SegmentUse| segment.encode(&mut payload)),
    }
    let start = out.len();
    out.resize(start + super::EntryHead::encoded_bytes(payload.len()), 0xff);
    head.encode_with(&payload, &mut out[start..]);
}
