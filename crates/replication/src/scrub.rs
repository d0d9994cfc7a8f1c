//! Each member reads what it holds, a little at a time, and the primary has others compare: what is damaged is found before
//! it is needed, and comes from another member (`fill`).

use crate::fill::Owner;
use crate::group::GroupRef;
use crate::node::{CoreGroups, Line};
use crate::shard::GroupShard;
use crate::wire::{Fill, FillMessage};
use runtime::background_step;
use std::rc::Rc;
use store::{ImageBlock, LeafCursor, ReadError};
use types::{BlockRange, ChunkId, FamilyId, LayerId, Mutant, Seq, StoreId, mutant};

/// Leaves that are looked up at once.
const LEAVES_PER_STEP: u32 = 64;
/// Blocks that are read at once.
const READ_BLOCKS: u32 = 64;

/// Reads all leaves of a shard, one after the other, for ever.
pub(crate) async fn run(core: Rc<CoreGroups>, shard: Rc<GroupShard>) {
    let pause = core.timing().scrub;
    let mut cursor = LeafCursor::default();
    let mut found = Vec::new();
    while !shard.has_ended() {
        runtime::sleep(pause).await;
        let more = shard.store().walk_leaves(&mut cursor, LEAVES_PER_STEP, &mut found);
        for (layer, chunk, _) in found.drain(..) {
            let Some(group) = group_of(&shard, &core.owner(), layer, chunk) else { continue };
            if !group.is_to_scrub() {
                continue;
            }
            match read(&core, &shard, layer, chunk).await {
                Ok(last_seq) => compare_with_others(&core, &shard, &group, (layer, chunk), last_seq),
                Err(ReadError::Stopped { .. } | ReadError::Untrusted { .. }) => {}
                Err(error) => {
                    log::error!("group {}: {error}", group.id());
                    group.note_damage(&error);
                }
            }
            runtime::sleep(pause).await;
        }
        if !more {
            cursor = LeafCursor::default();
        }
    }
}

fn group_of(shard: &GroupShard, owner: &Owner, layer: LayerId, chunk: ChunkId) -> Option<GroupRef> {
    let known = shard.store().layer(layer);
    shard.group(owner(known.map_or(FamilyId(0), |record| record.family), chunk)?)
}

/// Reads a leaf, every block of it; returns its last entry.
async fn read(core: &CoreGroups, shard: &GroupShard, layer: LayerId, chunk: ChunkId) -> Result<Seq, ReadError> {
    let image = shard.store().image(layer, chunk)?;
    let stored: Vec<_> =
        image.runs().filter(|(_, block)| *block == ImageBlock::Stored).map(|(range, _)| range).collect();
    for range in stored {
        let mut first = u32::from(range.first);
        while first < range.end() {
            let count = READ_BLOCKS.min(range.end() - first);
            let range = BlockRange::new(first, count);
            core.pace().wait_for(range.bytes()).await;
            image.read(range).await?;
            first += count;
            background_step().await;
        }
    }
    Ok(image.last_seq())
}

/// Tells the other members what a leaf is, after this entry: they look whether theirs is the same.
fn compare_with_others(
    core: &Rc<CoreGroups>,
    shard: &Rc<GroupShard>,
    group: &GroupRef,
    (layer, chunk): (LayerId, ChunkId),
    last_seq: Seq,
) {
    let Ok(digest) = shard.store().group_digest([(layer, chunk)]) else { return };
    let is_same = |image: store::LeafImage| image.last_seq() == last_seq;
    if last_seq == Seq(0) || !shard.store().image(layer, chunk).is_ok_and(is_same) {
        return;
    }
    for store in group.others_if_leads() {
        let says = Fill::Digest { layer, chunk, last_seq, digest };
        core.send_fill(shard, group.id(), store, &FillMessage { attempt: 0, says }, &Line::default());
    }
}

/// The primary says what a leaf is after this entry. If it is another here, although nothing came since, it is wrong here.
pub(crate) fn compare(
    shard: &GroupShard,
    group: &GroupRef,
    from: StoreId,
    (layer, chunk): (LayerId, ChunkId),
    (last_seq, digest): (Seq, u128),
) {
    if !group.is_to_scrub() || group.member().record().primary != from || mutant(Mutant::DigestsNotCompared) {
        return;
    }
    let image = match shard.store().image(layer, chunk) {
        Ok(image) => image,
        Err(error @ ReadError::IndexLost { .. }) => {
            log::error!("group {}: {error}", group.id());
            group.note_damage(&error);
            return;
        }
        Err(_) => return,
    };
    let is_other = |mine| mine != digest;
    if image.last_seq() == last_seq && shard.store().group_digest([(layer, chunk)]).is_ok_and(is_other) {
        log::error!("group {}: chunk {chunk} of layer {layer} is not what the primary has", group.id());
        group.note_damage(&ReadError::Untrusted { layer, chunk });
    }
}
