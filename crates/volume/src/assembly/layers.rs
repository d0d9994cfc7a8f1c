//! Ends layers that nobody wants: those of deleted volumes and snapshots, and those that a rollback left behind.
//!
//! ```text
//!   map: next layer of the family to end ─► each core: its groups are asked to end it; their primaries walk what they hold
//!                                              └─► merge or delete entries, up to 64 chunks each
//!        nothing is left of it ◄──────────────────┘
//!   groups: the layer is gone ─► map: out of the volumes' lists ─► cores: volumes without it ─► the next one
//! ```
//!
//! Nothing is remembered but what the map says: after a crash the same layers are found again, and what was done of
//! them is done. A deleted volume's record stays until the last layer of its own has ended.

use super::{Assembly, VolumeError, layer_record};
use crate::head::Head;
use cluster::{
    EndingLayer, LayerRecord, NextEnding, VolumeRecord, VolumeState as Life, finish_delete, finish_ending, get, keys,
    list, next_ending,
};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use types::{FamilyId, LayerId};

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
                next_ending(&*self.0.map, family, self.0.id, &self.written_to().await?).await?
            };
            match ending {
                NextEnding::Layer(ending) => self.end_layer(&ending).await?,
                NextEnding::Waits(layer) => {
                    return Err(VolumeError::Layer(format!("commands still write to layer {layer}")));
                }
                NextEnding::Nothing => return self.finish_deleted(family).await,
                NextEnding::Elsewhere => return Ok(()),
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
        let told = self.chain_below(ending.into).await?;
        for is_last in [false, true] {
            let told = told.clone();
            let outcomes = self.on_each_core(move |head| {
                let told = told.clone();
                Box::pin(async move { end_here(&head, &ending, is_last, &told).await })
            });
            let (mut covered, mut why) = (0, None);
            for (done, failed) in outcomes.await {
                covered += done;
                why = why.or(failed);
            }
            // A place has its group on one core: the sum counts none twice.
            if Some(covered) != groups {
                let why =
                    why.unwrap_or_else(|| format!("a group that may hold some of layer {} is away", ending.layer));
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

    /// A layer and those below it, oldest first.
    async fn chain_below(&self, layer: Option<LayerId>) -> Result<Arc<[store::format::LayerRecord]>, VolumeError> {
        let mut records = Vec::new();
        let mut next = layer.unwrap_or_default();
        while next != LayerId(0) {
            let Some(found) = get::<LayerRecord>(&*self.0.map, &keys::layer(next)).await? else { break };
            next = found.record.parent;
            records.push(layer_record(&found.record));
        }
        records.reverse();
        Ok(records.into())
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

/// Ends what the groups of this core hold of the layer, or has them forget it. Returns how many of the table's groups have done
/// so, and why the first that has not did not.
async fn end_here(
    head: &Rc<Head>,
    ending: &EndingLayer,
    is_last: bool,
    told: &[store::format::LayerRecord],
) -> (usize, Option<String>) {
    let (mut done, mut why) = (0, None);
    let Some(table) = head.table(ending.table) else { return (done, why) };
    for group in table.groups.iter().flatten() {
        let ended = if is_last {
            group.forget_layer(ending.layer).await
        } else {
            group.end_layer(told, ending.layer, ending.into, ending.parent != LayerId(0)).await
        };
        match ended {
            Ok(()) => done += 1,
            Err(error) => why = why.or_else(|| Some(error.to_string())),
        }
    }
    (done, why)
}
