//! Catch-up: a member that lacks what no entry can bring is made whole, chunk by chunk (R14, R15 of docs/replication.md).
//!
//! ```text
//!   primary: [`primary`]                                 member: [`member`]
//!   compares its leaves with the member's ── pending ──► nothing of these chunks comes as an entry
//!   entries behind c, of pending chunks as no-ops ─────► log goes on behind c
//!   per chunk: writers wait, leaves of one moment ─────► emptied, installed, trusted; nothing behind that moment is
//!                                                        applied before
//! ```

pub(crate) mod member;
pub(crate) mod primary;

use crate::shard::GroupShard;
use crate::wire::LeafLine;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use runtime::background_step;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use store::format::UNIT_BYTES;
use store::{EntryKind, LayerUsage, LeafCursor};
use types::{ChunkId, FamilyId, GroupId, LayerId};

/// Says which group holds a chunk of a family; nothing of a family that is not known.
pub type Owner = Arc<dyn Fn(FamilyId, ChunkId) -> Option<GroupId> + Send + Sync>;

/// An attempt in which nothing happens for so long is over; another follows.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);
/// Leaves looked at in one step.
const LEAVES_PER_STEP: u32 = 2048;
/// The same where each is counted.
const COUNTED_PER_STEP: u32 = 256;

/// All leaves of a group in a shard, by chunk and layer, walked in steps between the turns in which clients are served. A
/// leaf that changes meanwhile is as it was when it was looked at.
///
/// # Errors
/// One of a family that is not known, and may be one: whose it is nobody can say before the map has told of it.
pub(crate) async fn leaves_of(shard: &GroupShard, group: GroupId, owner: &Owner) -> Result<Vec<LeafLine>, String> {
    let families = families_of(shard);
    let (mut leaves, mut found) = (Vec::new(), Vec::new());
    let mut cursor = LeafCursor::default();
    loop {
        let more = shard.store().walk_leaves(&mut cursor, LEAVES_PER_STEP, &mut found);
        for (layer, chunk, last_seq) in found.drain(..) {
            let family = families.get(&layer).copied();
            match owner(family.unwrap_or_default(), chunk) {
                Some(owner) if owner == group => leaves.push(LeafLine { chunk, layer, last_seq }),
                Some(_) => {}
                None if family.is_none_or(|family| shard.is_nobodys(family)) => {}
                None => return Err(format!("the family of layer {layer} is not known yet")),
            }
        }
        if !more {
            break;
        }
        background_step().await;
    }
    leaves.sort_unstable();
    leaves.dedup_by_key(|leaf| (leaf.chunk, leaf.layer));
    Ok(leaves)
}

/// Bytes that a shard holds of each of its groups; nothing, where a family is not known yet. Walked like [`leaves_of`]; what a layer
/// holds is shared out by blocks, whatever each is compressed to.
pub(crate) async fn bytes_of_groups(shard: &GroupShard, owner: &Owner) -> Option<BTreeMap<GroupId, u64>> {
    let store = shard.store();
    let families = families_of(shard);
    let mut blocks: BTreeMap<(LayerId, GroupId), u64> = BTreeMap::new();
    let (mut cursor, mut found, mut goes_on) = (LeafCursor::default(), Vec::new(), true);
    while goes_on {
        goes_on = store.walk_stored(&mut cursor, COUNTED_PER_STEP, &mut found);
        for (layer, chunk, stored) in found.drain(..) {
            let family = families.get(&layer).copied();
            match owner(family.unwrap_or_default(), chunk) {
                Some(group) => *blocks.entry((layer, group)).or_default() += u64::from(stored),
                None if family.is_none_or(|family| shard.is_nobodys(family)) => {}
                None => return None,
            }
        }
        background_step().await;
    }
    let mut bytes: BTreeMap<GroupId, u64> = shard.groups().iter().map(|group| (group.id(), 0)).collect();
    for ((layer, group), of_group) in blocks {
        let LayerUsage { stored_blocks, stored_units, .. } = store.layer_usage(layer);
        let share = u128::from(stored_units * UNIT_BYTES as u64) * u128::from(of_group);
        *bytes.entry(group).or_default() += (share / u128::from(stored_blocks.max(of_group))) as u64;
    }
    Some(bytes)
}

fn families_of(shard: &GroupShard) -> HashMap<LayerId, FamilyId, FixedState> {
    shard.store().layers_held().iter().map(|record| (record.layer, record.family)).collect()
}

/// The chunks that an entry is about, if any of them is one of `these`; other kinds are about none.
pub(crate) fn touches(kind: &EntryKind, chunk: ChunkId, these: impl Fn(ChunkId) -> bool) -> bool {
    match kind {
        EntryKind::Write { .. } | EntryKind::Zero { .. } => these(chunk),
        EntryKind::Merge { chunks, .. } | EntryKind::LayerDelete { chunks } => chunks.iter().any(|chunk| these(*chunk)),
        _ => false,
    }
}

/// The same entry without what is about `these` chunks: a no-op of its place, if nothing is left.
pub(crate) fn without(kind: &EntryKind, chunk: ChunkId, these: impl Fn(ChunkId) -> bool) -> EntryKind {
    let rest = |chunks: &[ChunkId]| chunks.iter().copied().filter(|chunk| !these(*chunk)).collect::<Vec<_>>();
    match kind {
        EntryKind::Write { .. } | EntryKind::Zero { .. } if these(chunk) => EntryKind::Noop,
        EntryKind::Merge { into, chunks, hides_below } => match rest(chunks) {
            chunks if chunks.is_empty() => EntryKind::Noop,
            chunks => EntryKind::Merge { into: *into, chunks, hides_below: *hides_below },
        },
        // Without chunks it would end the layer.
        EntryKind::LayerDelete { chunks } if !chunks.is_empty() => match rest(chunks) {
            chunks if chunks.is_empty() => EntryKind::Noop,
            chunks => EntryKind::LayerDelete { chunks },
        },
        other => other.clone(),
    }
}
