//! What the index knows of blocks: asked, nothing is read.

use super::Shard;
use super::read::told;
use crate::error::ReadError;
use crate::format::LeafKey;
use crate::format::blocks::BlockState;
use types::{BlockRange, ChunkId, LayerId, Mutant, mutant};

/// What is known of a block through a list of layers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KnownBlock {
    /// Which of the layers says something of it, counted from the newest; `None`: none does, it reads as zeroes.
    pub depth: Option<u32>,
    /// Whether bytes of it are stored; if not it reads as zeroes.
    pub is_stored: bool,
}

impl Shard {
    /// What is known of each block of `range` through `layers` (newest first), in order; replaces what `known` held.
    /// The index is asked once: a commit is seen wholly or not at all, and what was committed before is.
    ///
    /// # Errors
    /// If a leaf that may say something of the blocks is lost, or the store has failed.
    pub fn known_blocks(
        &self,
        layers: &[LayerId],
        chunk: ChunkId,
        range: BlockRange,
        known: &mut Vec<KnownBlock>,
    ) -> Result<(), ReadError> {
        known.clear();
        known.resize(usize::from(range.count), KnownBlock::default());
        if let Some(failed) = self.core.store.failed() {
            return Err(ReadError::Stopped { reason: told(&failed) });
        }
        let asked = self.core.guarded(|| self.ask_index(layers, chunk, range, known));
        asked.unwrap_or_else(|stopped| Err(ReadError::Stopped { reason: told(&stopped) }))
    }

    fn ask_index(
        &self,
        layers: &[LayerId],
        chunk: ChunkId,
        range: BlockRange,
        known: &mut [KnownBlock],
    ) -> Result<(), ReadError> {
        let state = self.core.state.borrow();
        for (depth, &layer) in layers.iter().enumerate() {
            if depth > 0 && (mutant(Mutant::StatusOfTopOnly) || known.iter().all(|block| block.depth.is_some())) {
                break; // whatever lies below is hidden
            }
            let key = LeafKey { layer, chunk };
            if state.lost.has(key) {
                return Err(ReadError::IndexLost { layer, chunk });
            }
            if state.index.is_untrusted(key) {
                return Err(ReadError::Untrusted { layer, chunk });
            }
            state.index.lookup(key, range, |block, found| {
                let place = &mut known[usize::from(block - range.first)];
                if place.depth.is_none() && found != BlockState::Absent {
                    *place = KnownBlock { depth: Some(depth as u32), is_stored: found.stored().is_some() };
                }
            });
        }
        Ok(())
    }
}
