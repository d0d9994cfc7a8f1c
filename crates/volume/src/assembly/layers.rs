//! Ends layers that nobody wants: those of deleted volumes and snapshots, and those that a rollback left behind.
//!
//! ```text
//!   map: next layer of the family to end ─► each core: walk its shards for the layer's chunks
//!                                              └─► merge or delete entries, up to 64 chunks each, to their groups
//!        nothing is left of it ◄──────────────────┘
//!   groups: the layer is gone ─► map: out of the volumes' lists ─► cores: volumes without it ─► the next one
//! ```
//!
//! Nothing is remembered but what the map says: after a crash the same layers are found again, and what was done of
//! them is done. A deleted volume's record stays until the last layer of its own has ended.

use super::{Assembly, VolumeError};
use crate::head::Head;
use cluster::{
    EndingLayer, NextEnding, VolumeRecord, VolumeState as Life, finish_delete, finish_ending, keys, list, next_ending,
    slot_of,
};
use replication::{GroupError, GroupRef, Placed};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;
use store::{LeafCursor, MAX_ENTRY_CHUNKS};
use types::{ChunkId, FamilyId, LayerId};

/// Entries on their way at once, per shard: 16 × 64 chunks, well below what a group lets in.
const ENTRIES_AT_ONCE: usize = 16;
/// What could not go on (no space for entries, a store or the map away, a command that hangs) is tried again after
/// this.
const RETRY_WAIT: Duration = Duration::from_secs(1);

/// Families whose layers are looked after: a task is at work; true: it must look again.
#[derive(Default)]
pub(super) struct Families(BTreeMap<FamilyId, bool>);

impl Assembly {
    /// The volume was deleted: its record goes when nothing of its own is left.
    pub(super) fn erase_in_background(&self, volume: &VolumeRecord) {
        self.0.deleting.borrow_mut().push(volume.id);
        self.tend_in_background(volume.family);
    }

    /// Ends what of the family nobody wants, now and until there is nothing left.
    pub(super) fn tend_in_background(&self, family: FamilyId) {
        if let Some(again) = self.0.families.borrow_mut().0.get_mut(&family) {
            *again = true;
            return;
        }
        self.0.families.borrow_mut().0.insert(family, false);
        let this = self.clone();
        runtime::spawn(async move {
            loop {
                if let Err(error) = this.tend(family).await {
                    log::debug!("layers of family {family} cannot end now: {error}");
                    runtime::sleep(RETRY_WAIT).await;
                    continue;
                }
                let mut families = this.0.families.borrow_mut();
                let again = families.0.get_mut(&family).is_some_and(std::mem::take);
                if !again {
                    families.0.remove(&family);
                    return;
                }
            }
        });
    }

    async fn tend(&self, family: FamilyId) -> Result<(), VolumeError> {
        loop {
            let ending = {
                // Not while a snapshot is taken: for a moment the layer that it will name looks like one nobody wants.
                let _alone = self.0.changing.lock().await;
                next_ending(&*self.0.map, family, &self.written_to().await?).await?
            };
            match ending {
                NextEnding::Layer(ending) => self.end_layer(&ending).await?,
                NextEnding::Waits(layer) => {
                    return Err(VolumeError::Layer(format!("commands still write to layer {layer}")));
                }
                NextEnding::Nothing => return self.finish_deleted(family).await,
            }
        }
    }

    /// The layers that commands write to, on any core: to those that are not in the answer nobody ever writes again, as
    /// long as no volume is changed.
    async fn written_to(&self) -> Result<BTreeSet<LayerId>, VolumeError> {
        let of_cores = self.on_each_core(|head| {
            Box::pin(async move {
                let mut layers = BTreeSet::new();
                head.written_to(&mut layers);
                layers
            })
        });
        let of_cores = of_cores.await;
        if of_cores.len() < self.0.cores.len() {
            return Err(VolumeError::Layer("a core has ended".to_owned()));
        }
        Ok(of_cores.into_iter().flatten().collect())
    }

    /// Merges or deletes one layer, wholly.
    ///
    /// # Errors
    /// If a group of the table is not served: what its store holds of the layer is not known here. What the others hold
    /// has ended, and the layer stays in the map, and in all lists, until the rest has.
    async fn end_layer(&self, ending: &EndingLayer) -> Result<(), VolumeError> {
        let _alone = self.0.ending.lock().await;
        let ending = *ending;
        let groups = self.table(ending.table).map(|table| table.table.groups().len());
        for is_last in [false, true] {
            let outcomes = self.on_each_core(move |head| {
                Box::pin(async move {
                    let done = if is_last { forget(&head, &ending).await } else { end_here(&head, &ending).await };
                    done.map_err(|error| error.to_string())
                })
            });
            let covered: Result<usize, String> = outcomes.await.into_iter().sum();
            // A place has its group on one core at most: the sum counts none twice.
            if Some(covered.map_err(VolumeError::Layer)?) != groups {
                let why = format!("a group that may hold some of layer {} is not served", ending.layer);
                return Err(VolumeError::Layer(why));
            }
        }
        let _changing = self.0.changing.lock().await;
        for volume in finish_ending(&*self.0.map, &ending).await? {
            if volume.state == Life::Online {
                self.refresh(&volume).await?;
            }
        }
        Ok(())
    }

    async fn finish_deleted(&self, family: FamilyId) -> Result<(), VolumeError> {
        let volumes = list::<VolumeRecord>(&*self.0.map, keys::VOLUMES).await?.into_iter().map(|found| found.record);
        for volume in volumes.filter(|volume| volume.family == family && volume.state == Life::Deleting) {
            finish_delete(&*self.0.map, &volume).await?;
            self.0.deleting.borrow_mut().retain(|id| *id != volume.id);
        }
        self.forget_keys().await
    }
}

/// Ends what this core's shards hold of the layer. Returns how many groups of the table serve here,
/// and have nothing of it any more.
async fn end_here(head: &Rc<Head>, ending: &EndingLayer) -> Result<usize, GroupError> {
    let Some(table) = head.table(ending.table) else { return Ok(0) };
    for shard in head.shards() {
        let store = shard.groups.store();
        // Twice at most: nobody writes to the layer any more.
        while store.layer_usage(ending.layer).leaves > 0 {
            let (mut cursor, mut found, mut goes_on) = (LeafCursor::default(), Vec::new(), true);
            let mut of_group: BTreeMap<usize, Vec<ChunkId>> = BTreeMap::new();
            while goes_on {
                goes_on = store.walk_layer(ending.layer, &mut cursor, &mut found);
                for chunk in found.drain(..) {
                    of_group
                        .entry(table.layout.table.place_of(slot_of(ending.family_seed, chunk)))
                        .or_default()
                        .push(chunk);
                }
                runtime::yield_now().await;
            }
            let mut queued = Vec::with_capacity(ENTRIES_AT_ONCE);
            for (place, mut chunks) in of_group {
                let group = table.groups[place].as_ref().ok_or_else(|| GroupError::Stopped {
                    group: table.layout.table.groups()[place],
                    reason: "it is not served where its chunks are".to_owned(),
                })?;
                chunks.sort_unstable();
                for some in chunks.chunks(MAX_ENTRY_CHUNKS) {
                    queued.push((group.clone(), ask(group, ending, some.to_vec()).await?));
                    if queued.len() == ENTRIES_AT_ONCE {
                        commit(&mut queued).await?;
                    }
                }
            }
            commit(&mut queued).await?;
        }
    }
    Ok(table.groups.iter().flatten().filter(|group| group.stopped().is_none()).count())
}

async fn ask(group: &GroupRef, ending: &EndingLayer, chunks: Vec<ChunkId>) -> Result<Placed, GroupError> {
    match ending.into {
        Some(into) => group.merge(ending.layer, into, chunks, ending.parent != LayerId(0)).await,
        None => group.delete_layer(ending.layer, chunks).await,
    }
}

async fn commit(queued: &mut Vec<(GroupRef, Placed)>) -> Result<(), GroupError> {
    for (group, seq) in queued.drain(..) {
        group.wait_committed(seq).await?;
    }
    Ok(())
}

/// Nothing is left of the layer on any core: every group of this one is told that it is gone. Returns how many were.
async fn forget(head: &Rc<Head>, ending: &EndingLayer) -> Result<usize, GroupError> {
    let Some(table) = head.table(ending.table) else { return Ok(0) };
    let mut queued = Vec::new();
    for group in table.groups.iter().flatten() {
        queued.push((group.clone(), group.delete_layer(ending.layer, Vec::new()).await?));
    }
    let told = queued.len();
    commit(&mut queued).await?;
    Ok(told)
}
