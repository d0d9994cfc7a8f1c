//! Gives back the space of a deleted volume.
//!
//! Every chunk that holds a block of the volume's layers gets an entry that makes it zero, in its group's order like any
//! write. The map keeps the volume, as being deleted, until nothing of it is stored: a crash only means that the next
//! start goes on. Its ids are never used again.

use super::{Assembly, VolumeError};
use crate::head::Head;
use crate::spec::VolumeSpec;
use cluster::{VolumeRecord, finish_delete};
use replication::{GroupError, Place};
use runtime::channel::cross;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use types::{BLOCKS_PER_CHUNK, BlockRange, ChunkId, LayerId};

/// Chunks whose entries are on their way at once, per shard.
const CHUNKS_AT_ONCE: usize = 256;
/// A deletion that could not go on (no space for its entries, the map away) tries again after this.
const RETRY_WAIT: Duration = Duration::from_secs(1);

impl Assembly {
    /// Returns at once; the volume's record goes when its last block has gone.
    pub(super) async fn erase_in_background(&self, volume: VolumeRecord) -> Result<(), VolumeError> {
        let spec = self.spec(&volume).await?;
        self.0.deleting.borrow_mut().push(volume.id);
        let this = self.clone();
        runtime::spawn(async move {
            while this.erase(&volume, &spec).await.is_err() {
                runtime::sleep(RETRY_WAIT).await;
            }
            this.0.deleting.borrow_mut().retain(|&id| id != volume.id);
        });
        Ok(())
    }

    async fn erase(&self, volume: &VolumeRecord, spec: &Arc<VolumeSpec>) -> Result<(), String> {
        let (done, mut all_done) = cross(usize::from(self.0.cores));
        for core in 0..self.0.cores {
            let (spec, done) = (spec.clone(), done.clone());
            self.0.head.spawn_on(core, move |head| {
                Box::pin(async move {
                    let outcome = erase_here(&head, &spec).await;
                    let _ = done.send(outcome.map_err(|error| error.to_string())).await;
                })
            });
        }
        let mut outcome = Ok(());
        for _ in 0..self.0.cores {
            outcome = outcome.and(all_done.recv().await.unwrap_or_else(|closed| Err(closed.to_string())));
        }
        outcome?;
        finish_delete(&*self.0.map, volume).await.map_err(|error| error.to_string())
    }
}

/// What this core's shards hold of the volume.
async fn erase_here(head: &Rc<Head>, spec: &VolumeSpec) -> Result<(), GroupError> {
    for shard in head.shards() {
        for &layer in &spec.layers {
            let (mut from, mut chunks) = (ChunkId(0), Vec::with_capacity(CHUNKS_AT_ONCE));
            loop {
                chunks.clear();
                shard.groups.store().chunks_of(layer, from, CHUNKS_AT_ONCE, &mut chunks);
                let Some(last) = chunks.last() else { break };
                from = ChunkId(last.0 + 1);
                erase_chunks(head, spec, layer, &chunks).await?;
            }
        }
    }
    Ok(())
}

async fn erase_chunks(
    head: &Rc<Head>,
    spec: &VolumeSpec,
    layer: LayerId,
    chunks: &[ChunkId],
) -> Result<(), GroupError> {
    let Some(table) = head.table(spec.table.id) else { return Ok(()) };
    let range = BlockRange::new(0, BLOCKS_PER_CHUNK);
    let mut queued = Vec::with_capacity(chunks.len());
    for &chunk in chunks {
        if let Some(group) = &table.groups[spec.place_of(chunk)] {
            let seq = group.zero(spec.stamp(), Place { layer, chunk, range }, false).await?;
            queued.push((group, seq));
        }
    }
    for (group, seq) in queued {
        group.wait_committed(seq).await?;
    }
    Ok(())
}
