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
    have_left, keys, next_ending,
};
use replication::{GroupError, LayerEnd, Stamp};
use runtime::Instant;
use runtime::channel::cross;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use types::{FamilyId, GroupId, LayerId, Mutant, VolumeEpoch, VolumeId, mutant};

/// What could not go on (no space for entries, a store or the map away, a command that hangs) is tried again after
/// this.
const RETRY_WAIT: Duration = Duration::from_secs(1);
/// The groups of a volume that have not taken its head's epoch after this take it the next time.
const RAISE_WAIT: Duration = Duration::from_secs(10);

/// Groups of one core that are told of a head at once.
const RAISED_AT_ONCE: usize = 16;

/// What is looked after in the background: a task is at work; true: it must look again.
pub(super) type Tended<K> = RefCell<BTreeMap<K, bool>>;

/// Layers of one volume, oldest first, as groups are told of them.
type Chain = Arc<[store::format::LayerRecord]>;

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
        let _alone = self.0.changing.lock().await;
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

    /// From when this returns no group takes anything of an earlier head of the volume (H4). Asked once in each reign; what
    /// some groups know when it fails they are not asked again.
    ///
    /// # Errors
    /// A group does not serve, or this node is the head no more.
    pub(super) async fn raise_everywhere(&self, id: VolumeId) -> Result<(), VolumeError> {
        let gone = || VolumeError::Layer(format!("this node is not the head of volume {id}"));
        let epoch = self.reign(id).ok_or_else(gone)?.epoch;
        let known = self.0.heads.raised(id, epoch);
        if let Raised::Everywhere = known {
            return Ok(());
        }
        let Some(found) = get::<VolumeRecord>(&*self.0.map, &keys::volume(id)).await? else { return Err(gone()) };
        let layers = self.chain_below(found.record.layers.last().copied()).await?;
        let table = found.record.table;
        let known: Arc<BTreeSet<GroupId>> = Arc::new(match known {
            Raised::At(groups) => groups,
            Raised::Everywhere => BTreeSet::new(),
        });
        let until = runtime::now() + RAISE_WAIT;
        let told = self.on_each_core(move |head| {
            let raising = Raising { volume: id, epoch, layers: layers.clone(), until };
            let known = known.clone();
            Box::pin(async move { raise_here(&head, table, &raising, &known).await })
        });
        let (mut raised, mut why) = (BTreeSet::new(), None);
        for (groups, failed) in told.await {
            raised.extend(groups);
            why = why.or(failed);
        }
        // A group may have several places in a table.
        let all: Option<BTreeSet<GroupId>> =
            self.table(table).map(|table| table.table.groups().iter().copied().collect());
        let is_everywhere = all.is_some_and(|all| raised.is_superset(&all));
        self.0.heads.have_raised(id, epoch, if is_everywhere { Raised::Everywhere } else { Raised::At(raised) });
        match is_everywhere {
            true => Ok(()),
            false => Err(VolumeError::Layer(why.unwrap_or_else(|| "a group of the volume is away".to_owned()))),
        }
    }

    /// Asks all groups of a table for something, on each core those that it asks; how many have done it is what a core says,
    /// and why one has not.
    async fn of_all_groups(
        &self,
        table: u32,
        ask: impl Fn(Rc<Head>) -> std::pin::Pin<Box<dyn Future<Output = (usize, Option<String>)>>> + Send + Clone + 'static,
    ) -> Result<(), VolumeError> {
        let groups = self.table(table).map(|table| table.table.groups().len());
        let (mut covered, mut why) = (0, None);
        for (done, failed) in self.on_each_core(ask).await {
            covered += done;
            why = why.or(failed);
        }
        // A place has its group on one core: the sum counts none twice.
        match Some(covered) == groups {
            true => Ok(()),
            false => Err(VolumeError::Layer(why.unwrap_or_else(|| "a group is away".to_owned()))),
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
        let told = self.chain_below(ending.into).await?;
        for is_last in [false, true] {
            let told = told.clone();
            self.of_all_groups(ending.table, move |head| {
                let told = told.clone();
                Box::pin(async move { end_here(&head, &ending, by.epoch, is_last, &told).await })
            })
            .await?;
        }
        let _changing = self.0.changing.lock().await;
        for volume in finish_ending(&*self.0.map, &ending, by).await? {
            if volume.state == Life::Online && self.is_listed(volume.id) {
                self.refresh(&volume).await?;
            }
        }
        Ok(())
    }

    /// A layer and those below it, oldest first.
    async fn chain_below(&self, layer: Option<LayerId>) -> Result<Chain, VolumeError> {
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

/// Which groups know the epoch of a volume's head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Raised {
    /// All of its table.
    Everywhere,
    /// These, and maybe others.
    At(BTreeSet<GroupId>),
}

/// What groups are to know.
struct Raising {
    volume: VolumeId,
    epoch: VolumeEpoch,
    layers: Chain,
    until: Instant,
}

/// Has the groups of this core know the volume's epoch, several at once. Returns those that do, and why another does not.
async fn raise_here(
    head: &Rc<Head>,
    table: u32,
    raising: &Raising,
    known: &BTreeSet<GroupId>,
) -> (BTreeSet<GroupId>, Option<String>) {
    let Some(table) = head.table(table) else { return (BTreeSet::new(), None) };
    let here = table.groups.iter().flatten();
    let (mut raised, due): (BTreeSet<GroupId>, Vec<_>) =
        here.fold(Default::default(), |(mut raised, mut due), group| {
            match known.contains(&group.id()) {
                true => drop(raised.insert(group.id())),
                false => due.push(group.clone()),
            }
            (raised, due)
        });
    let (told, mut outcomes) = cross(RAISED_AT_ONCE);
    for lane in 0..RAISED_AT_ONCE.min(due.len()) {
        let lane: Vec<_> = due.iter().skip(lane).step_by(RAISED_AT_ONCE).cloned().collect();
        let (told, volume, epoch, layers, until) =
            (told.clone(), raising.volume, raising.epoch, raising.layers.clone(), raising.until);
        runtime::spawn(async move {
            for group in lane {
                let raised = async {
                    while let Err(error) = group.tell(Stamp::new(volume, epoch, &layers)).await {
                        group.ask_again(error).await?;
                    }
                    Ok::<_, GroupError>(())
                };
                let left = Duration::from_nanos(until.0.saturating_sub(runtime::now().0));
                let outcome = match runtime::timeout(left, raised).await {
                    Ok(Ok(())) => Ok(group.id()),
                    Ok(Err(error)) => Err(error.to_string()),
                    Err(_) => Err(format!("group {} does not serve", group.id())),
                };
                let _ = told.send(outcome).await;
            }
        });
    }
    drop(told);
    let mut why = None;
    while let Ok(outcome) = outcomes.recv().await {
        match outcome {
            Ok(group) => drop(raised.insert(group)),
            Err(error) => why = why.or(Some(error)),
        }
    }
    (raised, why)
}
