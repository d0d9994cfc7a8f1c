//! Ends layers that nobody wants: those of deleted volumes and snapshots, and those that a rollback left behind.
//!
//! ```text
//!   head of a volume    leaves what it wrote to: nothing acts on it here, and its epoch is raised at every group
//!   keeper of the family
//!      map: next layer of the family to end ─► each core: its groups are asked to end it; their primaries walk what they hold
//!                                                 └─► merge or delete entries, up to 64 chunks each
//!           nothing is left of it ◄──────────────────┘
//!      groups: the layer is gone ─► map: out of the volumes' lists ─► heads: volumes without it ─► the next one
//! ```
//!
//! Nothing is remembered but what the map says: after a crash the same layers are found again, and what was done of
//! them is done. A deleted volume's record stays until the last layer of its own has ended.

use super::{Assembly, Node, VolumeError, layer_record};
use crate::head::Head;
use cluster::{
    EndingLayer, LayerRecord, NextEnding, Reign, VolumeRecord, VolumeState as Life, finish_delete, finish_ending, get,
    have_left, keys, list, next_ending,
};
use replication::{LayerEnd, Stamp};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use types::{FamilyId, LayerId, Mutant, VolumeEpoch, VolumeId, mutant};

/// What could not go on (no space for entries, a store or the map away, a command that hangs) is tried again after
/// this.
const RETRY_WAIT: Duration = Duration::from_secs(1);

/// What is looked after in the background: a task is at work; true: it must look again.
pub(super) type Tended<K> = RefCell<BTreeMap<K, bool>>;

/// Layers of one volume, oldest first, as groups are told of them.
pub(super) type Chain = Arc<[store::format::LayerRecord]>;

impl Assembly {
    /// The volume was deleted: its record goes when nothing of its own is left.
    pub(super) fn erase_in_background(&self, volume: &VolumeRecord) {
        let mut deleting = self.0.deleting.borrow_mut();
        if !deleting.contains(&volume.id) {
            deleting.push(volume.id);
        }
        drop(deleting);
        self.leave_in_background(volume.id);
        self.tend_in_background(volume.family);
    }

    /// Ends what of the family nobody wants, now and until there is nothing left, if this node is its keeper.
    pub(super) fn tend_in_background(&self, family: FamilyId) {
        if self.0.heads.keeps(family).is_some() {
            self.see_to(family, |node| &node.families, async |this, family| this.tend(family).await);
        }
    }

    /// Leaves the layers that the volume wrote to before, as soon as nothing acts on them any more.
    pub(super) fn leave_in_background(&self, volume: VolumeId) {
        self.see_to(volume, |node| &node.leaving, async |this, volume| this.leave(volume).await);
    }

    /// Does the work until it succeeds; once more, if it is asked for again meanwhile.
    fn see_to<K: Ord + Copy + Display + 'static>(
        &self,
        key: K,
        tended: fn(&Node) -> &Tended<K>,
        work: impl AsyncFn(&Self, K) -> Result<(), VolumeError> + 'static,
    ) {
        if let Some(again) = tended(&self.0).borrow_mut().get_mut(&key) {
            *again = true;
            return;
        }
        tended(&self.0).borrow_mut().insert(key, false);
        let this = self.clone();
        runtime::spawn(async move {
            loop {
                if let Err(error) = work(&this, key).await {
                    log::debug!("layers of {key} cannot end now: {error}");
                    runtime::sleep(RETRY_WAIT).await;
                    continue;
                }
                let mut tended = tended(&this.0).borrow_mut();
                let again = tended.get_mut(&key).is_some_and(std::mem::take);
                if !again {
                    tended.remove(&key);
                    return;
                }
            }
        });
    }

    async fn tend(&self, family: FamilyId) -> Result<(), VolumeError> {
        loop {
            let Some(by) = self.0.heads.keeps(family).map(|epoch| Reign { node: self.0.id, epoch }) else {
                return Ok(());
            };
            match next_ending(&*self.0.map, family, by).await? {
                NextEnding::Layer(ending) => self.end_layer(&ending, by).await?,
                // Whoever leaves a layer says so in the map, and that is heard of.
                NextEnding::Nothing { over } => return self.finish_deleted(over).await,
                NextEnding::Elsewhere => {
                    self.0.heads.keep_no_more(family, by.epoch);
                    return Ok(());
                }
            }
        }
    }

    /// Says in the map which of the layers that the volume is leaving it has left.
    ///
    /// # Errors
    /// Not all of them yet.
    async fn leave(&self, id: VolumeId) -> Result<(), VolumeError> {
        let Some(by) = self.reign(id) else { return Ok(()) };
        let Some(found) = get::<VolumeRecord>(&*self.0.map, &keys::volume(id)).await? else { return Ok(()) };
        if found.record.leaving.is_empty() || found.record.volume_epoch != by.epoch {
            return Ok(());
        }
        if !mutant(Mutant::LeftWithoutRaise) {
            self.raise_everywhere(id).await?;
        }
        // Not while the volume is changed: for a moment nobody writes to the layer that all will write to.
        let _alone = self.0.changing.one(id).await;
        if self.is_being_named(id) {
            return Err(VolumeError::Layer("snapshots of several volumes are being named".to_owned()));
        }
        if self.0.heads.is_unsure(id) {
            // A deletion without an answer may have been done late: whoever still reads that snapshot here hears of it first.
            self.tell_snapshots(id, None).await?;
        }
        // In this order: what acted may have become an orphan in between, and never the other way round.
        let written_to = self.written_to().await?;
        let has_orphans = self.on_each_core(move |head| Box::pin(async move { head.has_orphans(id) })).await;
        if has_orphans.len() < self.0.cores.len() || has_orphans.contains(&true) {
            return Err(VolumeError::Layer("what of a command is done nobody knows yet".to_owned()));
        }
        let (stay, left): (Vec<_>, Vec<_>) =
            found.record.leaving.into_iter().partition(|layer| written_to.contains(layer));
        have_left(&*self.0.map, id, &left, by).await?;
        match stay.first() {
            Some(layer) => Err(VolumeError::Layer(format!("commands still write to layer {layer}"))),
            None => Ok(()),
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
    async fn end_layer(&self, ending: &EndingLayer, by: Reign) -> Result<(), VolumeError> {
        let _alone = self.0.ending.lock().await;
        let ending = *ending;
        let groups = self.table(ending.table).await?.table.groups().len();
        let told = self.chain_below(ending.into).await?;
        for is_last in [false, true] {
            let told = told.clone();
            let outcomes = self.on_each_core(move |head| {
                let told = told.clone();
                Box::pin(async move { end_here(&head, &ending, by.epoch, is_last, &told).await })
            });
            let (mut covered, mut why) = (0, None);
            for (done, failed) in outcomes.await {
                covered += done;
                why = why.or(failed);
            }
            // A place has its group on one core: the sum counts none twice.
            if covered != groups {
                let why =
                    why.unwrap_or_else(|| format!("a group that may hold some of layer {} is away", ending.layer));
                return Err(VolumeError::Layer(why));
            }
        }
        // Who reads a volume and then its layers finds all of them.
        let volumes = list::<VolumeRecord>(&*self.0.map, keys::VOLUMES).await?.into_iter().map(|found| found.record);
        let family: Vec<_> = volumes.filter(|volume| volume.family == ending.family).map(|volume| volume.id).collect();
        let alone = self.0.changing.all(&family).await;
        for VolumeRecord { id, .. } in finish_ending(&*self.0.map, &ending, by).await? {
            // A clone that has come meanwhile.
            let _its = if alone.is_with(id) { None } else { Some(self.0.changing.one(id).await) };
            // It may have been changed since.
            let found = get::<VolumeRecord>(&*self.0.map, &keys::volume(id)).await?;
            if let Some(volume) = found.map(|found| found.record).filter(|volume| volume.state == Life::Online)
                && self.is_listed(id)
            {
                self.refresh(&volume).await?;
            }
        }
        Ok(())
    }

    /// A layer and those below it, oldest first.
    pub(super) async fn chain_below(&self, layer: Option<LayerId>) -> Result<Chain, VolumeError> {
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

    async fn finish_deleted(&self, over: Vec<VolumeRecord>) -> Result<(), VolumeError> {
        for volume in over {
            finish_delete(&*self.0.map, &volume).await?;
            self.0.deleting.borrow_mut().retain(|id| *id != volume.id);
        }
        Ok(())
    }
}

/// Ends what the groups of this core hold of the layer, or has them forget it. Returns how many of the table's groups have done
/// so, and why the first that has not did not.
async fn end_here(
    head: &Rc<Head>,
    ending: &EndingLayer,
    epoch: VolumeEpoch,
    is_last: bool,
    told: &[store::format::LayerRecord],
) -> (usize, Option<String>) {
    let (mut done, mut why) = (0, None);
    let Some(table) = head.table(ending.table) else { return (done, why) };
    let keeper = Stamp::of_keeper(ending.family, epoch);
    let end = LayerEnd { layer: ending.layer, into: ending.into, hides_below: ending.parent != LayerId(0) };
    for group in table.groups.iter().flatten() {
        let ended = if is_last {
            group.forget_layer(keeper, ending.layer).await
        } else {
            group.end_layer(keeper, told, end).await
        };
        match ended {
            Ok(()) => done += 1,
            Err(error) => why = why.or_else(|| Some(error.to_string())),
        }
    }
    (done, why)
}
