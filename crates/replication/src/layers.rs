//! Layers that end: entries of the group's order like any other, without a head. Nobody writes to the layer any more,
//! so there is no older head to fence.

use crate::error::GroupError;
use crate::group::{Group, Placed};
use store::EntryKind;
use store::format::LayerRecord;
use types::{ChunkId, LayerId, VolumeEpoch};

impl Group {
    /// Lets the group's members know layers that it was not told of, by entries.
    ///
    /// # Errors
    /// If one was not queued.
    pub async fn tell_layers(&self, layers: &[LayerRecord]) -> Result<(), GroupError> {
        for record in layers {
            self.wait_for_room(0).await?;
            while !self.try_tell_layer(VolumeEpoch(0), record)? {
                self.wait_for_segments().await?;
            }
        }
        Ok(())
    }

    /// Merges chunks of this group of the layer `from` into its only child: rising, at most
    /// [`store::MAX_ENTRY_CHUNKS`]. `hides_below`: whether `from` has a parent.
    ///
    /// # Errors
    /// If nothing was queued.
    pub async fn merge(
        &self,
        from: LayerId,
        into: LayerId,
        chunks: Vec<ChunkId>,
        hides_below: bool,
    ) -> Result<Placed, GroupError> {
        self.submit_own(from, EntryKind::Merge { into, chunks, hides_below }).await
    }

    /// Deletes chunks of this group of a layer that nobody reads: rising, at most [`store::MAX_ENTRY_CHUNKS`]. Without
    /// any: the layer is gone.
    ///
    /// # Errors
    /// If nothing was queued.
    pub async fn delete_layer(&self, layer: LayerId, chunks: Vec<ChunkId>) -> Result<Placed, GroupError> {
        self.submit_own(layer, EntryKind::LayerDelete { chunks }).await
    }
}
