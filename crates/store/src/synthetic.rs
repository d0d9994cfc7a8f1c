//! An index as large as wanted without the data: to measure opening and memory per TiB.
//!
//! A TiB of random 4 KiB writes takes hours to make. What opening reads of it is the last pass: so an index is made up
//! here and a pass of it written, in the very format, to a device that may be sparse. The segments it names have their
//! headers, which opening reads too; the blocks in them are never read.

use crate::error::AppendError;
use crate::format::Stream;
use crate::format::{Crc32c, DeviceUnit, Geometry, LeafKey, SegmentIndex, StoredBlock, StoredLength};
use crate::shard::{OpenSegment, Role, Shard, ShardCore, State, segment_header};
use types::{BLOCK_BYTES, BLOCKS_PER_CHUNK, BlockRange, ChunkId, LayerId, Seq};

/// Chunks made up before other tasks have their turn.
const CHUNKS_PER_TURN: u32 = 256;

/// How the blocks of a chunk lie on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyntheticLayout {
    /// Each anywhere, as after random 4 KiB writes: the most that a leaf can take.
    Random,
    /// One behind the other, as after sequential writes.
    Sequential,
}

/// Gives `shard` an index of `chunks` full chunks of `layer`, and writes a pass of it. After that the shard is only
/// good for being dropped and opened again: what its index names was never written.
///
/// # Errors
/// A failing device, or one too small for the pass.
pub async fn write_synthetic_pass(
    shard: &Shard,
    layer: LayerId,
    chunks: u32,
    layout: SyntheticLayout,
) -> Result<(), AppendError> {
    let segments = take_segments(&shard.core).await?;
    let mut random = u64::from(shard.index().0) + 1;
    for chunk in 0..chunks {
        make_up_chunk(&shard.core, LeafKey { layer, chunk: ChunkId(chunk) }, &segments, layout, &mut random);
        if chunk % CHUNKS_PER_TURN == 0 {
            runtime::yield_now().await;
        }
    }
    shard.pass_now().await
}

/// Takes the shard's share of what new blocks may fill, as if it were full: the segments of which blocks are made up.
async fn take_segments(core: &ShardCore) -> Result<Vec<SegmentIndex>, AppendError> {
    let first_record = core.state.borrow_mut().leave_segment();
    let shards_left = u32::from(core.store.shard_count() - core.index.0);
    let usage = core.store.usage();
    let room_bytes = usage.new_blocks_until_bytes.saturating_sub(usage.used_bytes);
    let share = (room_bytes / u64::from(core.store.geometry.segment_size_bytes)) as u32 / shards_left;
    for _ in 0..share {
        let Some((segment, generation)) = core.store.pool.take() else { break };
        let open = OpenSegment { segment, generation, offset_bytes: 0 };
        let mut header = vec![segment_header(core, &open, Stream::Hot, first_record)];
        let offset_bytes = core.store.geometry.segment_start_bytes(segment);
        let written = core.device.write(offset_bytes, &mut header).await;
        written.map_err(|error| core.store.fail(&format!("header of segment {}: {error}", segment.0)))?;
        let segments = &mut core.state.borrow_mut().segments;
        segments.open(segment, generation, Stream::Hot, first_record);
        segments.seal(segment);
    }
    let state = core.state.borrow();
    let sealed = state.segments.ours().filter(|(_, state)| state.role == Role::Sealed);
    Ok(sealed.map(|(segment, _)| segment).collect())
}

fn make_up_chunk(core: &ShardCore, key: LeafKey, segments: &[SegmentIndex], layout: SyntheticLayout, random: &mut u64) {
    let geometry = core.store.geometry;
    let start = place_of(&geometry, segments, next(random));
    let mut state = core.state.borrow_mut();
    let State { index, segments: uses, .. } = &mut *state;
    let blocks = (0..u64::from(BLOCKS_PER_CHUNK)).map(|block| {
        let location = match layout {
            SyntheticLayout::Random => place_of(&geometry, segments, next(random)),
            SyntheticLayout::Sequential => start + block * 8,
        };
        let checksum = Crc32c(location as u32);
        let stored = StoredBlock { location: DeviceUnit(location), stored: StoredLength::RAW, checksum };
        uses.born(stored.location, u32::from(stored.stored.units()));
        stored
    });
    index.apply_write(key, Seq(1), BlockRange::new(0, BLOCKS_PER_CHUNK), blocks, |_| ());
}

/// The unit of some block of some segment, with room for a chunk behind it.
fn place_of(geometry: &Geometry, segments: &[SegmentIndex], random: u64) -> u64 {
    let segment = segments[(random % segments.len() as u64) as usize];
    let room = geometry.segment_size_bytes - 2 * types::CHUNK_BYTES as u32;
    let block = (random >> 32) as u32 % (room / BLOCK_BYTES as u32);
    geometry.unit_at(segment, geometry.block_size_bytes + block * BLOCK_BYTES as u32).0
}

/// The next number of a splitmix64 sequence.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*state ^ *state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}
