//! An index as large as wanted without the data: to measure opening and memory per TiB.
//!
//! A TiB of random 4 KiB writes takes hours to make. What opening reads of it is the last pass: so an index is made up
//! here and a pass of it written, in the very format, to a device that may be sparse; the blocks it names are never read.

use crate::error::AppendError;
use crate::format::{Crc32c, Geometry, LeafKey, SegmentIndex, StoredBlock, StoredLength};
use crate::shard::{Shard, ShardCore};
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

/// Gives `shard` an index of `chunks` full chunks of `layer`, and writes a pass of it. After that the shard is only good
/// for being dropped and opened again: what its index names was never written.
///
/// # Errors
/// A failing device, or one too small for the pass.
pub async fn write_synthetic_pass(
    shard: &Shard,
    layer: LayerId,
    chunks: u32,
    layout: SyntheticLayout,
) -> Result<(), AppendError> {
    let mut random = u64::from(shard.index().0) + 1;
    for chunk in 0..chunks {
        make_up_chunk(&shard.core, LeafKey { layer, chunk: ChunkId(chunk) }, layout, &mut random);
        if chunk % CHUNKS_PER_TURN == 0 {
            runtime::yield_now().await;
        }
    }
    shard.pass_now().await
}

fn make_up_chunk(core: &ShardCore, key: LeafKey, layout: SyntheticLayout, random: &mut u64) {
    let geometry = core.store.geometry;
    let start = place_of(&geometry, next(random));
    let mut state = core.state.borrow_mut();
    let blocks = (0..u64::from(BLOCKS_PER_CHUNK)).map(|block| {
        let location = match layout {
            SyntheticLayout::Random => place_of(&geometry, next(random)),
            SyntheticLayout::Sequential => start + block * 8,
        };
        let checksum = Crc32c(location as u32);
        StoredBlock { location: crate::format::DeviceUnit(location), stored: StoredLength::RAW, checksum }
    });
    state.index.apply_write(key, Seq(1), BlockRange::new(0, BLOCKS_PER_CHUNK), blocks, |_| ());
}

/// The unit of some block of some segment, with room for a chunk behind it.
fn place_of(geometry: &Geometry, random: u64) -> u64 {
    let segment = SegmentIndex((random % u64::from(geometry.segment_count)) as u32);
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
