//! Layers that end.
//!
//! A layer is **wanted** as long as a volume writes to it or a snapshot names it. One that is not, and that no volume is
//! **leaving**, ends: without a child it is deleted, with one child it is merged into that. The map says so by what is in it
//! and nothing else: whoever comes after a crash finds the same layers to end.
//!
//! ```text
//!   head:    old top ──► leaving ── no command of its acts on it, and its epoch is raised at every group ──► have_left
//!   keeper:  next_ending ──► each group: merged or deleted, forgotten ──► finish_ending: out of all lists
//! ```
//!
//! Heads know what their commands act on, each for its volume; the keeper of the family ends layers, for all of them.

use super::{ATTEMPTS_MAX, CatalogError, Reign, attempt};
use crate::map::{MapStore, TRANSACTION_OPERATIONS_MAX, Transaction};
use crate::records::{FamilyRecord, LayerRecord, Record, SnapshotRecord, VolumeRecord, VolumeState, keys};
use crate::typed::{Versioned, encode, get, list};
use std::collections::{BTreeMap, BTreeSet};
use types::{FamilyId, LayerId, Mutant, VolumeId, mutant};

/// Volumes changed in one transaction; the rest of it is for layers.
const VOLUMES_AT_ONCE: usize = TRANSACTION_OPERATIONS_MAX - 8;

/// A layer that nobody wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndingLayer {
    /// Which.
    pub layer: LayerId,
    /// Its family.
    pub family: FamilyId,
    /// Its parent; 0: none.
    pub parent: LayerId,
    /// Its only child, which takes its blocks; `None`: it has none, and is deleted.
    pub into: Option<LayerId>,
    /// What maps the family's chunks to slots.
    pub family_seed: u64,
    /// The family's slot table.
    pub table: u32,
}

/// What of a family is to end next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NextEnding {
    /// This layer.
    Layer(EndingLayer),
    /// Nothing now; of these volumes, which are being deleted, all has ended that can.
    Nothing {
        /// See above.
        over: Vec<VolumeRecord>,
    },
    /// The family has another keeper.
    Elsewhere,
}

/// The volume's head says that nobody acts on these layers any more, nor will.
pub async fn have_left(map: &dyn MapStore, id: VolumeId, left: &[LayerId], by: Reign) -> Result<(), CatalogError> {
    for _ in 0..ATTEMPTS_MAX {
        let Some(found) = get::<VolumeRecord>(map, &keys::volume(id)).await? else { return Ok(()) };
        by.check(&found.record)?;
        let mut volume = found.record;
        let before = volume.leaving.len();
        volume.leaving.retain(|layer| !left.contains(layer));
        if volume.leaving.len() == before {
            return Ok(());
        }
        attempt(map, Transaction::new().expect(volume.key(), found.modified).put(volume.key(), encode(&volume)))
            .await?;
    }
    Err(CatalogError::Contended)
}

/// The family's record, if its keeper is this one still.
async fn kept(map: &dyn MapStore, id: FamilyId, by: Reign) -> Result<Option<Versioned<FamilyRecord>>, CatalogError> {
    let found = get::<FamilyRecord>(map, &keys::family(id)).await?;
    Ok(found.filter(|found| found.record.keeper == by.node && found.record.epoch == by.epoch))
}

/// A layer of a family that nobody wants and that can end now: those without a child first, for what they hold needs no
/// place. Nothing unless `by` is the family's keeper.
pub async fn next_ending(map: &dyn MapStore, family: FamilyId, by: Reign) -> Result<NextEnding, CatalogError> {
    // Whatever makes a layer wanted, left, or nobody's, puts a volume of the family. So if these are the same before and
    // after, all of it is as it was at one instant; and what nobody wants then, nobody ever will.
    let mut before = volumes_of(map, family).await?;
    for _ in 0..ATTEMPTS_MAX {
        let layers = list::<LayerRecord>(map, keys::LAYERS).await?;
        let snapshots = list::<SnapshotRecord>(map, keys::SNAPSHOTS).await?;
        if kept(map, family, by).await?.is_none() {
            return Ok(NextEnding::Elsewhere);
        }
        let after = volumes_of(map, family).await?;
        if after == before || mutant(Mutant::EndingsReadApart) {
            let of_family: Vec<_> = after.into_iter().map(|found| found.record).collect();
            let layers = layers.into_iter().map(|found| found.record).filter(|layer| layer.family == family).collect();
            let named = snapshots.into_iter().map(|found| found.record).filter(|snapshot| snapshot.family == family);
            return Ok(next_of(&of_family, layers, named.map(|snapshot| snapshot.layer)));
        }
        before = after;
    }
    Err(CatalogError::Contended)
}

async fn volumes_of(map: &dyn MapStore, family: FamilyId) -> Result<Vec<Versioned<VolumeRecord>>, CatalogError> {
    let all = list::<VolumeRecord>(map, keys::VOLUMES).await?;
    Ok(all.into_iter().filter(|found| found.record.family == family).collect())
}

/// What of a family is to end next, of all its volumes and layers, and the layers that snapshots name.
fn next_of(of_family: &[VolumeRecord], layers: Vec<LayerRecord>, named: impl Iterator<Item = LayerId>) -> NextEnding {
    let Some(any) = of_family.first() else { return NextEnding::Nothing { over: Vec::new() } };
    let serving = of_family.iter().filter(|volume| volume.state != VolumeState::Deleting);
    let mut wanted: BTreeSet<LayerId> = serving.filter_map(|volume| volume.layers.last().copied()).collect();
    wanted.extend(named);
    let leaving: BTreeSet<LayerId> = of_family.iter().flat_map(|volume| volume.leaving.iter().copied()).collect();
    let mut children: BTreeMap<LayerId, Vec<LayerId>> = BTreeMap::new();
    for layer in &layers {
        children.entry(layer.parent).or_default().push(layer.id);
    }
    let unwanted = layers.iter().filter(|layer| !wanted.contains(&layer.id));
    let ending = |layer: &LayerRecord| {
        let into = match children.get(&layer.id).map(Vec::as_slice) {
            None => None,
            Some([child]) => Some(*child),
            Some(children) if mutant(Mutant::SharedLayerMerged) => children.last().copied(),
            Some(_) => return None,
        };
        let (family_seed, table) = (any.family_seed, any.table);
        Some(EndingLayer { layer: layer.id, family: any.family, parent: layer.parent, into, family_seed, table })
    };
    let mut endings: Vec<_> = unwanted.filter_map(ending).collect();
    endings.sort_by_key(|ending| (ending.into.is_some(), ending.layer));
    let free = endings.iter().find(|ending| !leaving.contains(&ending.layer));
    match free {
        Some(&ending) => NextEnding::Layer(ending),
        None => {
            let is_over = |volume: &&VolumeRecord| volume.state == VolumeState::Deleting && volume.leaving.is_empty();
            NextEnding::Nothing { over: of_family.iter().filter(is_over).cloned().collect() }
        }
    }
}

/// Nothing of the layer is stored any more: takes it out of the lists of all volumes, gives its child its parent, and
/// removes it. Returns the volumes that were changed.
///
/// # Errors
/// [`CatalogError::Contended`] if the family has another keeper by now: it finds the same.
pub async fn finish_ending(
    map: &dyn MapStore,
    ending: &EndingLayer,
    by: Reign,
) -> Result<Vec<VolumeRecord>, CatalogError> {
    let mut changed: BTreeMap<VolumeId, VolumeRecord> = BTreeMap::new();
    for _ in 0..ATTEMPTS_MAX {
        let Some(layer) = get::<LayerRecord>(map, &keys::layer(ending.layer)).await? else {
            return Ok(changed.into_values().collect());
        };
        let family = kept(map, ending.family, by).await?.ok_or(CatalogError::Contended)?;
        let volumes = list::<VolumeRecord>(map, keys::VOLUMES).await?;
        let due: Vec<_> = volumes.into_iter().filter(|v| v.record.layers.contains(&ending.layer)).collect();
        let (now, later) = due.split_at(due.len().min(VOLUMES_AT_ONCE));
        // The family is put as it is: who has read a chain of its layers looks again.
        let mut transaction = Transaction::new()
            .expect(family.record.key(), family.modified)
            .put(family.record.key(), encode(&family.record));
        for old in now {
            let mut new = old.record.clone();
            new.layers.retain(|layer| *layer != ending.layer);
            transaction = transaction.expect(new.key(), old.modified).put(new.key(), encode(&new));
            changed.insert(new.id, new);
        }
        if later.is_empty() {
            transaction = transaction.expect(layer.record.key(), layer.modified).delete(layer.record.key());
            let child = match ending.into {
                Some(into) => get::<LayerRecord>(map, &keys::layer(into)).await?,
                None => None,
            };
            if let Some(child) = child {
                let new = LayerRecord { parent: layer.record.parent, ..child.record };
                transaction = transaction.expect(new.key(), child.modified).put(new.key(), encode(&new));
            }
        }
        attempt(map, transaction).await?;
    }
    Err(CatalogError::Contended)
}
