//! Layers that end: entries of the group's order like any other, asked for by the keeper of the family. It is fenced as the
//! head of a volume is: of two keepers the group takes nothing of the earlier one behind something of the later one, entry by
//! entry. No head writes to the layer any more: each volume that did has left it, with its epoch raised at every group
//! (docs/heads.md, H4 and H13).

use crate::error::GroupError;
use crate::group::{Group, Placed, Stamp};
use crate::shard::GroupShard;
use runtime::background_step;
use std::rc::Rc;
use store::format::LayerRecord;
use store::{EntryKind, LeafCursor, MAX_ENTRY_CHUNKS};
use types::{ChunkId, LayerId, VolumeEpoch};

/// Entries on their way at once: 16 × 64 chunks, well below what a group lets in.
const ENTRIES_AT_ONCE: usize = 16;

/// What is to become of what a group holds of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayerEnd {
    /// The layer that nobody wants.
    pub layer: LayerId,
    /// Its only child, which takes its blocks; `None`: it has none, and they are deleted.
    pub into: Option<LayerId>,
    /// Whether it has a parent.
    pub hides_below: bool,
}

impl Group {
    /// Lets the group's members know layers that it was not told of, by entries; parents first.
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

    /// Merges all that the group holds of a layer into its only child, or deletes it if that has none. `told`: the child and
    /// what lies below it.
    ///
    /// # Errors
    /// If not all of it is known to be committed: it may be asked for again. [`GroupError::OldHead`]: there is a later keeper.
    pub async fn end_layer(&self, keeper: Stamp<'_>, told: &[LayerRecord], end: LayerEnd) -> Result<(), GroupError> {
        let LayerEnd { layer, into, hides_below } = end;
        loop {
            // What the index holds then is all that was prepared before, of an earlier keeper too.
            self.reader(keeper).await?;
            self.wait_begun().await?;
            let chunks = self.chunks_of(&self.its_shard()?, layer).await?;
            if chunks.is_empty() {
                return Ok(());
            }
            self.tell_layers(told).await?;
            let mut queued = Vec::with_capacity(ENTRIES_AT_ONCE);
            for some in chunks.chunks(MAX_ENTRY_CHUNKS) {
                let chunks = some.to_vec();
                queued.push(match into {
                    Some(into) => {
                        self.submit_for(keeper, layer, EntryKind::Merge { into, chunks, hides_below }).await?
                    }
                    None => self.delete_chunks(keeper, layer, chunks).await?,
                });
                if queued.len() == ENTRIES_AT_ONCE {
                    self.wait_for_all(&mut queued).await?;
                }
            }
            self.wait_for_all(&mut queued).await?;
        }
    }

    /// Deletes chunks of this group of a layer that nobody reads: rising, at most [`store::MAX_ENTRY_CHUNKS`].
    ///
    /// # Errors
    /// If nothing was queued.
    pub async fn delete_chunks(
        &self,
        keeper: Stamp<'_>,
        layer: LayerId,
        chunks: Vec<ChunkId>,
    ) -> Result<Placed, GroupError> {
        debug_assert!(!chunks.is_empty(), "without chunks it is the layer that goes");
        self.submit_for(keeper, layer, EntryKind::LayerDelete { chunks }).await
    }

    /// The group holds nothing of the layer any more: it is gone.
    ///
    /// # Errors
    /// As of [`end_layer`](Self::end_layer).
    pub async fn forget_layer(&self, keeper: Stamp<'_>, layer: LayerId) -> Result<(), GroupError> {
        let placed = self.submit_for(keeper, layer, EntryKind::LayerDelete { chunks: Vec::new() }).await?;
        self.wait_committed(placed).await.map(drop)
    }

    async fn wait_for_all(&self, queued: &mut Vec<Placed>) -> Result<(), GroupError> {
        for placed in queued.drain(..) {
            self.wait_committed(placed).await?;
        }
        Ok(())
    }

    /// The chunks of this group of which its store holds something in the layer, rising.
    ///
    /// # Errors
    /// Whose one of them is nobody can say here before the map has told of the family: nothing is known to be left or not.
    async fn chunks_of(&self, shard: &Rc<GroupShard>, layer: LayerId) -> Result<Vec<ChunkId>, GroupError> {
        let store = shard.store();
        let owner = shard.outside().map(|outside| outside.owner());
        let family = store.layer(layer).map(|record| record.family);
        let owner_of = |chunk| owner.as_ref().zip(family).and_then(|(owner, family)| owner(family, chunk));
        let mut chunks = Vec::new();
        let (mut cursor, mut found, mut goes_on) = (LeafCursor::default(), Vec::new(), true);
        while goes_on {
            goes_on = store.walk_layer(layer, &mut cursor, &mut found);
            for chunk in found.drain(..) {
                match owner_of(chunk) {
                    Some(owner) if owner == self.id() => chunks.push(chunk),
                    Some(_) => {}
                    None => return Err(GroupError::NotPrimary { group: self.id(), primary: None }),
                }
            }
            background_step().await;
        }
        chunks.sort_unstable();
        chunks.dedup();
        Ok(chunks)
    }
}
