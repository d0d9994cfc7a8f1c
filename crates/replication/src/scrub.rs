//! Each member reads what it holds, a little at a time, and the primary has others compare: what is damaged is found before
//! it is needed, and comes from another member (`fill`).

use crate::fill::Owner;
use crate::group::GroupRef;
use crate::node::{CoreGroups, Line};
use crate::shard::GroupShard;
use crate::wire::{Fill, FillMessage};
use runtime::background_step;
use std::rc::Rc;
use store::{ImageBlock, LeafCursor, LeafImage, ReadError};
use types::{BlockRange, ChunkId, FamilyId, GroupId, LayerId, Mutant, Seq, StoreId, mutant};

/// Leaves that are looked up at once.
const LEAVES_PER_STEP: u32 = 64;
/// Slots that are looked through at once for the leaves of a group.
const SLOTS_PER_STEP: u32 = 2048;

/// What a member holds of a chunk in a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldLeaf {
    /// The last entry in it.
    pub last_seq: Seq,
    /// Of what it says of its blocks, their checksums among it; 0 if it says nothing.
    pub digest: u128,
    /// Blocks that have bytes on the device.
    pub stored_blocks: u32,
}

impl CoreGroups {
    /// The leaves that a member here holds of its group, in order of layer and chunk; `None` if there is no such member on this
    /// core. Those of layers that are not known are nobody's.
    pub async fn leaves_of(&self, store: StoreId, group: GroupId) -> Option<Vec<(LayerId, ChunkId)>> {
        let shard = self.shard_of(store, group)?;
        shard.group(group)?;
        let owner = self.owner();
        let is_its = |layer, chunk| group_of(&shard, &owner, layer, chunk).is_some_and(|found| found.id() == group);
        let (mut cursor, mut found, mut leaves) = (LeafCursor::default(), Vec::new(), Vec::new());
        loop {
            let goes_on = shard.store().walk_leaves(&mut cursor, SLOTS_PER_STEP, &mut found);
            leaves
                .extend(found.drain(..).map(|(layer, chunk, _)| (layer, chunk)).filter(|leaf| is_its(leaf.0, leaf.1)));
            if !goes_on {
                break;
            }
            background_step().await;
        }
        leaves.sort_unstable();
        Some(leaves)
    }

    /// What a member here holds of a chunk in a layer; `None` if there is no such member on this core. Every block of it is
    /// read from the device and compared with its checksum, at the pace of scrub; what cannot be read is mended.
    pub async fn held(
        &self,
        store: StoreId,
        group: GroupId,
        (layer, chunk): (LayerId, ChunkId),
    ) -> Option<Result<HeldLeaf, ReadError>> {
        let shard = self.shard_of(store, group)?;
        let member = shard.group(group)?;
        let held = self.held_by(&shard, layer, chunk).await;
        match &held {
            Err(ReadError::Stopped { .. } | ReadError::Untrusted { .. }) | Ok(_) => {}
            Err(error) => {
                log::error!("group {group}: {error}");
                member.note_damage(error);
            }
        }
        Some(held)
    }

    async fn held_by(&self, shard: &GroupShard, layer: LayerId, chunk: ChunkId) -> Result<HeldLeaf, ReadError> {
        let image = shard.store().image(layer, chunk)?;
        let digest = shard.store().group_digest([(layer, chunk)])?;
        let stored_blocks = stored(&image).map(|range| u32::from(range.count)).sum();
        read(self, &image).await?;
        Ok(HeldLeaf { last_seq: image.last_seq(), digest, stored_blocks })
    }
}

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
            let is_read = match shard.store().image(layer, chunk) {
                Ok(image) => read(&core, &image).await.map(|()| image.last_seq()),
                Err(error) => Err(error),
            };
            match is_read {
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

/// Blocks of which there are bytes.
fn stored(image: &LeafImage) -> impl Iterator<Item = BlockRange> + '_ {
    image.runs().filter(|(_, block)| *block == ImageBlock::Stored).map(|(range, _)| range)
}

/// Reads a leaf, every block of it.
async fn read(core: &CoreGroups, image: &LeafImage) -> Result<(), ReadError> {
    for range in stored(image).collect::<Vec<_>>() {
        let mut first = u32::from(range.first);
        while first < range.end() {
            let count = core.pace().piece_blocks().min(range.end() - first);
            let range = BlockRange::new(first, count);
            core.pace().wait_for(range.bytes(), 1).await;
            image.read(range).await?;
            first += count;
            background_step().await;
        }
    }
    Ok(())
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
    let is_same = |image: LeafImage| image.last_seq() == last_seq;
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
