//! What volumes take, and what changed between two of their snapshots.
//!
//! Each layer's blocks are counted in the store as they change. A layer belongs to every volume and snapshot that is
//! read through it: what only one volume is read through is its own, the rest it shares.

use super::{Assembly, VolumeError};
use crate::api::VolumeInfo;
use crate::head::Head;
use crate::status::SnapshotMark;
use cluster::{
    CatalogError, LayerRecord, SnapshotRecord, VolumeRecord, VolumeState as Life, chain_of, get, keys, list, snapshot,
};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use store::format::UNIT_BYTES;
use store::{LayerUsage, LeafCursor};
use types::{BLOCK_BYTES, CHUNK_BYTES, LayerId, VolumeId};

/// Bytes of a volume whose groups are asked in one go, and the extents that come of it.
const ASKED_BYTES: u64 = 1 << 30;
const EXTENTS_MAX: usize = 65_536;

/// What a volume takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VolumeUsage {
    /// Its size: what it promises.
    pub logical_bytes: u64,
    /// Blocks that nothing else is read through: they come back when it is deleted.
    pub unique_bytes: u64,
    /// Blocks that it shares with snapshots and other volumes.
    pub shared_bytes: u64,
    /// Both together, as they lie on the devices: compressed, if they are.
    pub stored_bytes: u64,
}

/// A stretch of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteRange {
    /// Its first byte.
    pub offset_bytes: u64,
    /// How long it is.
    pub length_bytes: u64,
}

impl Assembly {
    /// What each volume of the map takes, those in the trash too.
    pub async fn usage(&self) -> Result<BTreeMap<VolumeId, VolumeUsage>, VolumeError> {
        let map = &*self.0.map;
        let volumes = list::<VolumeRecord>(map, keys::VOLUMES).await?;
        let snapshots = list::<SnapshotRecord>(map, keys::SNAPSHOTS).await?;
        let layers = list::<LayerRecord>(map, keys::LAYERS).await?;
        let parents: BTreeMap<LayerId, LayerId> =
            layers.iter().map(|found| (found.record.id, found.record.parent)).collect();
        let ids: Vec<LayerId> = parents.keys().copied().collect();
        let of_cores = self
            .on_each_core(move |head| {
                let ids = ids.clone();
                Box::pin(async move { stored_here(&head, &ids) })
            })
            .await;
        let mut held: BTreeMap<LayerId, LayerUsage> = BTreeMap::new();
        for (layer, here) in of_cores.into_iter().flatten() {
            let all = held.entry(layer).or_default();
            all.stored_blocks += here.stored_blocks;
            all.stored_units += here.stored_units;
        }
        // How many volumes and snapshots are read through each layer.
        let chain = |top: LayerId| {
            let next = |layer: &LayerId| parents.get(layer).copied().filter(|parent| *parent != LayerId(0));
            std::iter::successors(Some(top), next)
        };
        let mut readers: BTreeMap<LayerId, u64> = BTreeMap::new();
        let tops = volumes.iter().filter_map(|found| found.record.layers.last().copied());
        for layer in tops.chain(snapshots.iter().map(|found| found.record.layer)).flat_map(chain) {
            *readers.entry(layer).or_default() += 1;
        }
        let usage_of = |volume: &VolumeRecord| {
            let mut usage = VolumeUsage { logical_bytes: volume.size_bytes, ..VolumeUsage::default() };
            for layer in volume.layers.last().copied().into_iter().flat_map(chain) {
                let of_layer = held.get(&layer).copied().unwrap_or_default();
                let bytes = of_layer.stored_blocks * BLOCK_BYTES as u64;
                usage.stored_bytes += of_layer.stored_units * UNIT_BYTES as u64;
                match readers.get(&layer) {
                    Some(1) => usage.unique_bytes += bytes,
                    _ => usage.shared_bytes += bytes,
                }
            }
            usage
        };
        let kept = volumes.iter().map(|found| &found.record).filter(|volume| volume.state != Life::Deleting);
        Ok(kept.map(|volume| (volume.id, usage_of(volume))).collect())
    }

    /// What was written, zeroed or discarded between two snapshots of a volume, or since one until now: stretches in
    /// order. They may say more than differs, never less.
    ///
    /// # Errors
    /// If there is no such snapshot, or the volume was rolled back in between.
    pub async fn changed_blocks(
        &self,
        volume: &str,
        from: &str,
        to: Option<&str>,
    ) -> Result<Vec<ByteRange>, VolumeError> {
        // No layer ends meanwhile: a walk could pass by what a merge carries from one leaf to another.
        let _ending = self.0.ending.lock().await;
        let info = self.mine(volume)?;
        let map = &*self.0.map;
        let older = snapshot(map, info.id, from).await?;
        let top = match to {
            Some(name) => snapshot(map, info.id, name).await?.layer,
            None => self.top(&info).await?,
        };
        let chain = chain_of(map, top).await?;
        let Some(place) = chain.iter().position(|layer| *layer == older.layer) else {
            return Err(VolumeError::NotBefore { from: from.to_owned(), to: to.unwrap_or("the volume").to_owned() });
        };
        if !self.leads_all(&info).await? {
            return self.asked_of_groups(&info, older.layer, to).await;
        }
        let newer: Vec<LayerId> = chain[place + 1..].to_vec();
        let of_cores = self
            .on_each_core(move |head| {
                let newer = newer.clone();
                Box::pin(async move { changed_here(&head, &newer).await })
            })
            .await;
        let mut changed: Vec<ByteRange> = of_cores.into_iter().flatten().collect();
        changed.sort_unstable_by_key(|range| range.offset_bytes);
        changed.retain(|range| range.offset_bytes < info.size_bytes);
        Ok(joined(changed))
    }

    /// Whether all groups of the volume are led by this node: then its stores know all that there is of it.
    async fn leads_all(&self, info: &VolumeInfo) -> Result<bool, VolumeError> {
        let found = get::<VolumeRecord>(&*self.0.map, &keys::volume(info.id)).await?;
        let table = found.ok_or(CatalogError::Gone(info.id))?.record.table;
        let of_cores = self.on_each_core(move |head| {
            let leads_all = head
                .table(table)
                .is_some_and(|table| table.groups.iter().flatten().all(|group| group.here().is_some()));
            Box::pin(std::future::ready(leads_all))
        });
        let of_cores = of_cores.await;
        Ok(of_cores.len() == self.0.cores.len() && of_cores.into_iter().all(|leads_all| leads_all))
    }

    /// The same of a volume whose groups are led anywhere: each is asked, chunk by chunk, as a read would be.
    async fn asked_of_groups(
        &self,
        info: &VolumeInfo,
        since: LayerId,
        to: Option<&str>,
    ) -> Result<Vec<ByteRange>, VolumeError> {
        let unserved = || VolumeError::Layer(format!("volume {} is not served: is it locked?", info.name));
        let volume = self.0.head.directory.by_id(info.id).ok_or_else(unserved)?;
        let view = match to {
            Some(name) => volume.snapshot(name).ok_or_else(|| CatalogError::NoSnapshot(name.to_owned()))?,
            None => volume,
        };
        let (mut changed, mut at, end) = (Vec::new(), 0, view.size_bytes().min(info.size_bytes));
        while at < end {
            let asked = view.block_status(at, (end - at).min(ASKED_BYTES), &[SnapshotMark(since)], EXTENTS_MAX).await;
            for extent in asked.map_err(|error| VolumeError::Layer(error.to_string()))? {
                if extent.changed_since != 0 {
                    changed.push(ByteRange { offset_bytes: at, length_bytes: extent.len_bytes });
                }
                at += extent.len_bytes;
            }
        }
        Ok(joined(changed))
    }
}

fn stored_here(head: &Rc<Head>, layers: &[LayerId]) -> Vec<(LayerId, LayerUsage)> {
    let of_shard = |store: &Rc<store::Shard>| {
        let store = store.clone();
        layers.iter().map(move |layer| (*layer, store.layer_usage(*layer))).collect::<Vec<_>>()
    };
    head.shards()
        .iter()
        .flat_map(|shard| of_shard(shard.groups.store()))
        .filter(|(_, held)| held.stored_blocks > 0)
        .collect()
}

async fn changed_here(head: &Rc<Head>, layers: &[LayerId]) -> Vec<ByteRange> {
    let mut changed = Vec::new();
    for shard in head.shards() {
        let store = shard.groups.store();
        let mut chunks = BTreeSet::new();
        for layer in layers {
            let (mut cursor, mut found, mut goes_on) = (LeafCursor::default(), Vec::new(), true);
            while goes_on {
                goes_on = store.walk_layer(*layer, &mut cursor, &mut found);
                chunks.extend(found.drain(..));
                runtime::yield_now().await;
            }
        }
        let mut blocks = Vec::new();
        for (count, chunk) in chunks.into_iter().enumerate() {
            store.changed_blocks(layers, chunk, &mut blocks);
            let start = u64::from(chunk.0) * CHUNK_BYTES;
            changed.extend(blocks.drain(..).map(|range| ByteRange {
                offset_bytes: start + u64::from(range.first) * BLOCK_BYTES as u64,
                length_bytes: range.bytes() as u64,
            }));
            if count % 256 == 255 {
                runtime::yield_now().await;
            }
        }
    }
    changed
}

/// Neighbours as one.
fn joined(ranges: Vec<ByteRange>) -> Vec<ByteRange> {
    let mut joined: Vec<ByteRange> = Vec::new();
    for range in ranges {
        match joined.last_mut() {
            Some(last) if last.offset_bytes + last.length_bytes == range.offset_bytes => {
                last.length_bytes += range.length_bytes;
            }
            _ => joined.push(range),
        }
    }
    joined
}
