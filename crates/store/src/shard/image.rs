//! A leaf of one moment: what a member sends to another that lacks it.

use super::read::{Lists, Pin, StoredBlocks, Wanted, told};
use super::{Shard, ShardCore};
use crate::error::ReadError;
use crate::format::LeafKey;
use crate::format::blocks::{BlockState, DeviceUnit, UNIT_BYTES};
use std::ops::Range;
use std::rc::Rc;
use types::{BLOCKS_PER_CHUNK, BlockRange, ChunkId, LayerId, Seq};

/// What a leaf says of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageBlock {
    /// Nothing: the layers below are asked.
    Absent,
    /// It is zeroes, whatever the layers below hold.
    Zero,
    /// Bytes of it are stored.
    Stored,
}

/// A leaf as it was when [`Shard::image`] was called, whatever became of it since. What it names stays where it is as
/// long as this lives: segments that are emptied meanwhile are given away after it.
pub struct LeafImage {
    core: Rc<ShardCore>,
    key: LeafKey,
    last_seq: Seq,
    is_trusted: bool,
    states: Vec<BlockState>,
    /// Of each segment that a block lies in.
    _pins: Vec<Pin>,
}

impl Shard {
    /// The leaf of a chunk in a layer, all of one moment. Where there is none it is as one that is empty, with a
    /// `last_seq` of 0.
    ///
    /// # Errors
    /// If the leaf is lost, or the store has failed.
    pub fn image(&self, layer: LayerId, chunk: ChunkId) -> Result<LeafImage, ReadError> {
        let core = &self.core;
        if let Some(failed) = core.store.failed() {
            return Err(ReadError::Stopped { reason: told(&failed) });
        }
        let taken = core.guarded(|| core.take_image(LeafKey { layer, chunk }));
        taken.unwrap_or_else(|stopped| Err(ReadError::Stopped { reason: told(&stopped) }))
    }
}

impl ShardCore {
    fn take_image(self: &Rc<Self>, key: LeafKey) -> Result<LeafImage, ReadError> {
        let state = self.state.borrow();
        if state.lost.has(key) {
            return Err(ReadError::IndexLost { layer: key.layer, chunk: key.chunk });
        }
        let mut states = Vec::with_capacity(BLOCKS_PER_CHUNK as usize);
        state.index.lookup(key, BlockRange::new(0, BLOCKS_PER_CHUNK), |_, found| states.push(found));
        let (last_seq, is_trusted) = (state.index.last_seq(key), !state.index.is_untrusted(key));
        drop(state);
        let mut segments: Vec<_> =
            states.iter().filter_map(|found| Some(self.segment_of(found.stored()?.location))).collect();
        segments.sort_unstable();
        segments.dedup();
        let pins = segments.into_iter().map(|segment| self.pin(segment)).collect();
        Ok(LeafImage { core: self.clone(), key, last_seq, is_trusted, states, _pins: pins })
    }
}

impl LeafImage {
    /// The last entry of the group that is in it: 0 if there is no leaf, or one that is not to be trusted.
    pub fn last_seq(&self) -> Seq {
        self.last_seq
    }

    /// False if an install of it has begun and not ended: what it says is not what the group holds.
    pub fn is_trusted(&self) -> bool {
        self.is_trusted
    }

    /// What it says of its blocks, all of them in order, neighbours joined.
    pub fn runs(&self) -> impl Iterator<Item = (BlockRange, ImageBlock)> + '_ {
        let block_of = |state: &BlockState| match state {
            BlockState::Absent => ImageBlock::Absent,
            BlockState::Zero => ImageBlock::Zero,
            BlockState::Stored(_) => ImageBlock::Stored,
        };
        let mut first = 0;
        self.states.chunk_by(move |a, b| block_of(a) == block_of(b)).map(move |run| {
            let range = BlockRange::new(first, run.len() as u32);
            first += run.len() as u32;
            (range, block_of(&run[0]))
        })
    }

    /// Where the bytes of its stored blocks lie on the device: for who damages them, to see whether it is noticed.
    pub fn places_bytes(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        let bytes = |unit: DeviceUnit| unit.0 * UNIT_BYTES as u64;
        self.states
            .iter()
            .filter_map(|state| state.stored())
            .map(move |block| bytes(block.location)..bytes(block.end()))
    }

    /// What is stored of the blocks of `range`, verified; nothing of those of which nothing is.
    ///
    /// # Errors
    /// What the device returns, or does not, twice.
    pub async fn read(&self, range: BlockRange) -> Result<StoredBlocks, ReadError> {
        self.read_some(range, |_| true).await
    }

    /// The same, of those blocks alone that are wanted, all at once; the others are as those of which nothing is stored.
    ///
    /// # Errors
    /// As for all of them.
    pub async fn read_some(
        &self,
        range: BlockRange,
        is_wanted: impl Fn(u32) -> bool,
    ) -> Result<StoredBlocks, ReadError> {
        let core = &self.core;
        if let Some(failed) = core.store.failed() {
            return Err(ReadError::Stopped { reason: told(&failed) });
        }
        let mut lists = Lists::absent(core, range.count);
        for (state, block) in
            lists.states.iter_mut().zip(u32::from(range.first)..).filter(|(_, block)| is_wanted(*block))
        {
            *state = self.states[block as usize];
        }
        lists.put_in_order();
        if !lists.order.is_empty() {
            let wanted = Wanted { layers_first: self.key.layer, chunk: self.key.chunk, range };
            core.read_pieces(wanted, &mut lists).await?;
        }
        Ok(StoredBlocks(lists))
    }
}
