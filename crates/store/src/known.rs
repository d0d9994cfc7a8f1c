//! What a device knows of groups and layers, without a store on it: for who makes the cluster's map anew.

use crate::error::OpenError;
use crate::open::{GroupRecovery, look_at_groups};
use crate::shard::catch_in;
use crate::store::Store;
use runtime::Device;
use std::collections::BTreeMap;
use types::{ClusterId, LayerId, ShardIndex, StoreId};

/// See the module.
#[derive(Clone, Debug)]
pub struct Known {
    /// The cluster that the device belongs to.
    pub cluster: ClusterId,
    /// The store.
    pub store: StoreId,
    /// Groups of all its shards.
    pub groups: Vec<GroupRecovery>,
    /// Layers of which it holds anything, by id, and of how many chunks.
    pub layers: Vec<(LayerId, u64)>,
    /// Something was durable and is not there: it may have been about a group.
    pub is_damaged: bool,
}

/// Reads as much of a device as opening it would, and writes nothing. Nobody else may have it open.
///
/// # Errors
/// As of opening.
pub async fn known(device: &Device) -> Result<Known, OpenError> {
    let store = Store::look(device).await?;
    let (cluster, id) = (store.cluster_id(), store.store_id());
    let is_damaged = !store.damage().is_empty();
    let mut known = Known { cluster, store: id, groups: Vec::new(), layers: Vec::new(), is_damaged };
    let mut layers = BTreeMap::new();
    for shard in (0..store.shard_count()).map(ShardIndex) {
        match catch_in(look_at_groups(device, &store, shard)).await {
            Ok((recovery, of_shard)) => {
                for (layer, chunks) in of_shard {
                    *layers.entry(layer).or_default() += chunks;
                }
                known.is_damaged |= !recovery.damage.is_empty() || recovery.group_states_lost;
                known.groups.extend(recovery.groups);
            }
            // It would stop here again.
            Err(_) => known.is_damaged = true,
        }
    }
    known.layers = layers.into_iter().collect();
    Ok(known)
}
