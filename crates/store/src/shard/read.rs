//! Reads: index, device, checksum; plain blocks straight into the caller's buffer.
//!
//! ```text
//!   blocks of the read    0 1 2 3 4 5 6 7        one stretch of plain blocks: one device read into the caller's buffer
//!   places on the device  ▒▒ ▒  ▒▒▒   ▒ ▒        else, in the order of the device, one read for all that lies within
//!                         └──┬──┘     └┬┘        16 KiB of each other; from there blocks are copied, or handed out as
//!                          read      read        they are stored
//! ```

use super::stretch::{Ordered, Piece, is_aligned};
use super::{Shard, ShardCore};
use crate::error::ReadError;
use crate::format::blocks::BlockState;
use crate::format::{Crc32c, LeafKey, SegmentIndex, StoredLength};
use crate::index::{ExtentKind, extents};
use runtime::IoBuf;
use std::rc::Rc;
use std::sync::Arc;
use types::{BlockRange, ChunkId, LayerId, Mutant, mutant};

/// crc32c of 4 KiB of zeroes.
pub const ZERO_BLOCK_CHECKSUM: u32 = 0x98f9_4189;

/// What a reader can use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// Blocks as they were written, in its buffer, unless some are compressed.
    Plain,
    /// What is stored of each block.
    Stored,
}

/// What a read brought.
pub enum Content {
    /// All blocks are in the buffer.
    Plain,
    /// The buffer is as it was; this is stored of the blocks.
    Stored(StoredBlocks),
}

/// What is stored of the blocks of a read, verified.
pub struct StoredBlocks(pub(super) Lists);

impl StoredBlocks {
    /// Tells of each block, in order: its length and codec, its sum and its bytes; nothing of one that is zeroes.
    pub fn for_each(&mut self, mut told: impl FnMut(Option<(StoredLength, Crc32c, &mut [u8])>)) {
        let Lists { states, pieces, .. } = &mut self.0;
        for state in states {
            told(state.stored().map(|block| {
                let at = block.location.byte_offset();
                let behind = pieces.partition_point(|piece| piece.offset_bytes <= at);
                let piece = &mut pieces[behind - 1];
                let start = (at - piece.offset_bytes) as usize;
                (block.stored, block.checksum, &mut piece.bytes[start..start + block.stored.bytes()])
            }));
        }
    }
}

/// What a read notes while it is under way. The lists are used again: an array for a whole chunk would be 6 KiB in
/// every command's task, moved and cleared for each 4 KiB that is read.
pub(super) struct Lists {
    core: Rc<ShardCore>,
    /// What the index said of each block, when the read began.
    pub(super) states: Vec<BlockState>,
    /// Those that are stored, in the order of the device.
    pub(super) order: Vec<Ordered>,
    /// What was read of the device, in its order.
    pub(super) pieces: Vec<Piece>,
}

/// The lists of one read, for the next.
#[derive(Default)]
pub(crate) struct SpareLists(Vec<BlockState>, Vec<Ordered>, Vec<Piece>);

impl Lists {
    pub(super) fn absent(core: &Rc<ShardCore>, count: u16) -> Self {
        let SpareLists(mut states, order, pieces) = core.state.borrow_mut().spare_lists.pop().unwrap_or_default();
        states.resize(usize::from(count), BlockState::Absent);
        Self { core: core.clone(), states, order, pieces }
    }

    pub(super) fn put_in_order(&mut self) {
        let stored =
            |(i, state): (usize, &BlockState)| state.stored().map(|stored| Ordered { block: i as u16, stored });
        self.order.extend(self.states.iter().enumerate().filter_map(stored));
        self.order.sort_unstable_by_key(|one| one.stored.location);
    }
}

impl Drop for Lists {
    fn drop(&mut self) {
        self.states.clear();
        self.order.clear();
        self.pieces.clear();
        let (states, order) = (std::mem::take(&mut self.states), std::mem::take(&mut self.order));
        let spare = SpareLists(states, order, std::mem::take(&mut self.pieces));
        self.core.state.borrow_mut().spare_lists.push(spare);
    }
}

impl Shard {
    /// As [`read_stored`](Self::read_stored), of blocks of which none was compressed.
    ///
    /// # Errors
    /// As there; and if one was.
    pub async fn read(
        &self,
        layers: &[LayerId],
        chunk: ChunkId,
        range: BlockRange,
        buf: IoBuf,
        checksums: &mut Vec<u32>,
    ) -> (Result<(), ReadError>, IoBuf) {
        let (result, buf) = self.read_stored(layers, chunk, range, Want::Plain, buf, checksums).await;
        let result = result.and_then(|content| match content {
            Content::Plain => Ok(()),
            Content::Stored(_) => {
                Err(ReadError::Codec { layer: first_of(layers), chunk, block: u32::from(range.first) })
            }
        });
        (result, buf)
    }

    /// Reads `range` of `chunk`: each block from the first of `layers` (newest first) that knows it, zeroes if none
    /// does. The index is asked once, at the first poll: a commit is seen wholly or not at all. Of blocks that come
    /// plain the crc32c of each is pushed to `checksums`. The buffer comes back in any case, its contents undefined
    /// after an error.
    ///
    /// # Errors
    /// What the device returns, or does not, twice.
    ///
    /// # Panics
    /// If `buf` has not the length of the range, aligned to a block.
    pub async fn read_stored(
        &self,
        layers: &[LayerId],
        chunk: ChunkId,
        range: BlockRange,
        want: Want,
        buf: IoBuf,
        checksums: &mut Vec<u32>,
    ) -> (Result<Content, ReadError>, IoBuf) {
        assert_eq!(buf.len(), range.bytes(), "a buffer of the range's length");
        let core = &self.core;
        core.counters.borrow_mut().reads += 1;
        if let Some(failed) = core.store.failed() {
            return (Err(ReadError::Stopped { reason: told(&failed) }), buf);
        }
        let mut lists = Lists::absent(core, range.count);
        let found = core.guarded(|| core.look_up(layers, chunk, range, &mut lists.states));
        if let Err(error) = found.unwrap_or_else(|stopped| Err(ReadError::Stopped { reason: told(&stopped) })) {
            core.note_read(&Err(error.clone()));
            return (Err(error), buf);
        }
        let wanted = Wanted { layers_first: first_of(layers), chunk, range };
        let coded = |state: &BlockState| {
            state.stored().is_some_and(|block| want == Want::Stored || block.stored != StoredLength::RAW)
        };
        if lists.states.iter().any(coded) {
            lists.put_in_order();
            let result = core.read_pieces(wanted, &mut lists).await;
            return (result.map(|()| Content::Stored(StoredBlocks(lists))), buf);
        }
        for state in &lists.states {
            checksums.push(state.stored().map_or(ZERO_BLOCK_CHECKSUM, |block| block.checksum.0));
        }
        let (result, buf) = core.read_plain(wanted, lists, buf).await;
        (result.map(|()| Content::Plain), buf)
    }
}

fn first_of(layers: &[LayerId]) -> LayerId {
    layers.first().copied().unwrap_or_default()
}

pub(super) fn told(error: &dyn std::fmt::Display) -> Arc<str> {
    Arc::from(error.to_string())
}

/// What a read is for, to say so in an error.
#[derive(Clone, Copy)]
pub(super) struct Wanted {
    pub(super) layers_first: LayerId,
    pub(super) chunk: ChunkId,
    pub(super) range: BlockRange,
}

/// A segment that is not given away while this lives.
pub(super) struct Pin {
    core: Rc<ShardCore>,
    segment: SegmentIndex,
}

impl Drop for Pin {
    fn drop(&mut self) {
        self.core.state.borrow_mut().unpin(&self.core, self.segment);
    }
}

impl ShardCore {
    fn look_up(
        &self,
        layers: &[LayerId],
        chunk: ChunkId,
        range: BlockRange,
        states: &mut [BlockState],
    ) -> Result<(), ReadError> {
        let state = self.state.borrow();
        for (depth, layer) in layers.iter().enumerate() {
            if mutant(Mutant::ReadFallsThroughZeroes) {
                let zeroes = states.iter_mut().filter(|state| **state == BlockState::Zero);
                zeroes.for_each(|state| *state = BlockState::Absent);
            }
            if depth > 0 && !states.contains(&BlockState::Absent) {
                break; // whatever lies below is hidden
            }
            let key = LeafKey { layer: *layer, chunk };
            if state.lost.has(key) {
                return Err(ReadError::IndexLost { layer: *layer, chunk });
            }
            if !state.index.fill(key, range, states) {
                return Err(ReadError::Untrusted { layer: *layer, chunk });
            }
        }
        Ok(())
    }

    pub(super) fn pin(self: &Rc<Self>, segment: SegmentIndex) -> Pin {
        self.state.borrow_mut().segments.get_mut(segment).pins += u32::from(!mutant(Mutant::ReadPinIgnored));
        Pin { core: self.clone(), segment }
    }

    /// Reads blocks of which none is compressed.
    async fn read_plain(
        self: &Rc<Self>,
        wanted: Wanted,
        mut lists: Lists,
        mut buf: IoBuf,
    ) -> (Result<(), ReadError>, IoBuf) {
        let mut all = extents(&lists.states);
        let first = all.next().expect("a read has blocks");
        let single = all.next().is_none();
        drop(all);
        match first.kind {
            ExtentKind::Zeroes if single => {
                buf.fill(0);
                (Ok(()), buf)
            }
            // The common read: one stretch of the device, no other task.
            ExtentKind::Stored { location, .. }
                if single && is_aligned(location, self.store.geometry.block_size_bytes) =>
            {
                let stored = |(i, state): (usize, &BlockState)| Ordered {
                    block: i as u16,
                    stored: state.stored().expect("a stored stretch"),
                };
                lists.order.extend(lists.states.iter().enumerate().map(stored));
                let _pin = self.pin(self.segment_of(location));
                self.read_stretch(wanted, location.byte_offset(), &lists.order, buf).await
            }
            _ => {
                lists.put_in_order();
                let result = self.read_scattered(wanted, &mut lists, &mut buf).await;
                (result, buf)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_sum_of_a_zero_block_is_right() {
        assert_eq!(super::ZERO_BLOCK_CHECKSUM, crc32c::crc32c(&[0; 4096]));
    }
}
