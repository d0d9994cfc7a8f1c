//! Blocks that the index names and that no good record was found to hold.

use super::records::{Walk, place_of};
use super::{Place, What};
use crate::format::{Crc32c, LeafKey, SegmentIndex, StoredBlock, UNIT_BYTES};
use runtime::IoBuf;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use types::{BLOCKS_PER_CHUNK, BlockRange};

/// Compares, one by one, the blocks of all segments in which fewer were proved by their records than the index names:
/// those of records that are damaged, and those that the index says something else of than the record does.
pub(super) async fn check_unproved(walk: &mut Walk<'_>) {
    let index = walk.examined.index();
    let mut named: BTreeMap<SegmentIndex, u64> = BTreeMap::new();
    index.for_each_stored(|_, _, stored| {
        if let Some(place) = place_of(walk.store, stored.location) {
            *named.entry(place.segment).or_default() += 1;
        }
    });
    let proved = |segment: &SegmentIndex| walk.proved.get(segment).copied().unwrap_or_default();
    let doubtful: BTreeSet<SegmentIndex> =
        named.iter().filter(|(segment, count)| proved(segment) != **count).map(|(segment, _)| *segment).collect();
    if doubtful.is_empty() {
        return;
    }
    // All blocks of these segments are counted anew.
    walk.counts.blocks_needed -= doubtful.iter().map(proved).sum::<u64>();
    for slot in 0..index.slot_count() {
        let Some(key) = index.leaf_at(slot).map(|(key, _)| key) else { continue };
        let mut of_leaf = Vec::new();
        index.lookup(key, BlockRange::new(0, BLOCKS_PER_CHUNK), |block, state| {
            if let Some(stored) = state.stored()
                && let Some(place) = place_of(walk.store, stored.location)
                && doubtful.contains(&place.segment)
            {
                of_leaf.push((block, stored, place));
            }
        });
        for (block, stored, place) in of_leaf {
            check_block(walk, key, block, stored, place).await;
        }
    }
}

async fn check_block(walk: &mut Walk<'_>, key: LeafKey, block: u16, stored: StoredBlock, place: Place) {
    // Reads are of whole device blocks; a compressed block may begin within one.
    let unit = walk.store.geometry.block_size_bytes as usize;
    let skip = stored.location.byte_offset() as usize % unit;
    let len = (skip + stored.stored.units() as usize * UNIT_BYTES).next_multiple_of(unit);
    let from = stored.location.byte_offset() - skip as u64;
    let (read, bytes) = walk.device.read(from, IoBuf::new(len)).await;
    walk.counts.bytes += len as u64;
    let why = match read {
        Err(error) => format!("it cannot be read: {error}"),
        Ok(()) => match Crc32c::of(&bytes[skip..skip + stored.stored.bytes()]) {
            found if found == stored.checksum => {
                walk.counts.blocks_needed += 1;
                return;
            }
            found => format!("its sum is {:08x}, and {:08x} was written", found.0, stored.checksum.0),
        },
    };
    let LeafKey { layer, chunk } = key;
    walk.tell(What::Block { place, layer, chunk, block, why: Arc::from(why) });
}
