//! What a store holds of groups that it has left is dropped, and what it has lost to damage is over when every group is whole
//! again (R22, R23 of docs/replication.md). Both are looked at with each look at all of the map.

use crate::fill::{Owner, leaves_of};
use crate::group::{Group, MemberState};
use crate::node::CoreGroups;
use crate::outside::Outside;
use crate::shard::GroupShard;
use cluster::{GroupRecord, decode};
use foldhash::fast::FixedState;
use hashbrown::HashSet;
use runtime::{Instant, background_step, now};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use store::EntryKind;
use types::{ChunkId, Epoch, FamilyId, GroupId, LayerId, Mutant, Seq, StoreId, mutant};

/// Leaves that are dropped together.
const LEAVES_PER_STEP: usize = 256;

/// How far a group that its store has left is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    /// A look at the map found it whole without this store, in this epoch, for the first time then.
    Seen(Epoch, Instant),
    /// It is being dropped.
    Dropping(Epoch),
    /// Nothing of it is here that was in this epoch.
    Dropped(Epoch),
}

/// What a look at the map found that began after the shards were opened.
pub(crate) struct AllGroups {
    /// The groups, all of them.
    pub(crate) records: Arc<Vec<GroupRecord>>,
    /// The families that there are, if somebody wanted to know.
    pub(crate) families: Option<HashSet<FamilyId, FixedState>>,
    /// Stores of this node that serve.
    pub(crate) stores: Vec<StoreId>,
}

impl CoreGroups {
    /// The map was looked at.
    pub(crate) fn has_looked_at_all(self: &Rc<Self>, all: &AllGroups) {
        for shard in self.shards() {
            let index = shard.store().index();
            let of_shard = || all.records.iter().filter(|record| shard.store().store().shard_of(record.id) == index);
            let known = shard.known_groups();
            for record in of_shard().filter(|record| known.binary_search(&record.id).is_ok()) {
                let is_left = !record.members.contains(&shard.store_id()) && self.is_whole(record, &all.stores);
                if shard.has_left(record, is_left, self.timing().look / 2) {
                    runtime::spawn(drop_left(shard.clone(), record.id, self.owner()));
                }
            }
            self.look_for_orphans(&shard, all);
            let is_whole = || of_shard().all(|record| shard.lacks_nothing_of(record)) && shard.all_are_whole();
            if shard.store().has_losses() && (is_whole() || mutant(Mutant::LossesForgotten)) {
                runtime::spawn(losses_are_mended(shard));
            }
        }
    }

    /// Whether a group needs nobody but its members: all of them hold everything, and are there.
    fn is_whole(&self, record: &GroupRecord, ours: &[StoreId]) -> bool {
        let (view, silent) = (self.view(), self.timing().silent);
        let is_heard = |store: StoreId| view.life_of(store).is_some() && view.silence(store, record.id, now()) < silent;
        let is_there = |store: &StoreId| ours.contains(store) || is_heard(*store);
        let is_whole = record.joining.is_empty()
            && record.eligible.is_empty()
            && record.in_sync.len() == record.members.len()
            && record.in_sync.iter().all(is_there);
        record.in_sync.len() >= record.min_in_sync.max(1) as usize && (is_whole || mutant(Mutant::LeftDroppedEarly))
    }

    /// Leaves of layers whose family the map does not know are nobody's: their store had left when it ended. They are kept, for the
    /// map may be an older one, and stand in nobody's way.
    fn look_for_orphans(&self, shard: &Rc<GroupShard>, all: &AllGroups) {
        let owner = self.owner();
        let mut unknown: HashSet<FamilyId, FixedState> =
            shard.store().layers_held().iter().map(|layer| layer.family).collect();
        unknown.retain(|family| owner(*family, ChunkId(0)).is_none() && !shard.is_nobodys(*family));
        if let Some(families) = &all.families {
            let nobodys = unknown.iter().filter(|family| !families.contains(*family));
            shard.orphans.borrow_mut().extend(nobodys);
        } else if !unknown.is_empty() && !mutant(Mutant::UnknownFamilyWaitedFor) {
            self.shared.wants_families.store(true, Ordering::Relaxed);
        }
    }
}

async fn losses_are_mended(shard: Rc<GroupShard>) {
    let store = shard.store_id();
    match shard.store().losses_are_mended().await {
        Ok(true) => log::info!("store {store}: all that it had lost to damage has come from other copies"),
        Ok(false) => {}
        Err(error) => log::debug!("store {store}: {error}"),
    }
}

async fn drop_left(shard: Rc<GroupShard>, id: GroupId, owner: Owner) {
    let dropped = drop_group(&shard, id, &owner).await;
    match &dropped {
        Ok(0) => {}
        Ok(count) => log::info!("group {id}: store {} has left it, {count} chunks are dropped", shard.store_id()),
        Err(why) => log::debug!("group {id}: dropping what was left of it: {why}"),
    }
    shard.was_dropped(id, dropped.is_ok());
}

/// Drops what the shard holds of a group; returns how many leaves. First it is written down that the group lacks something
/// here: whoever comes back to it is made whole.
async fn drop_group(shard: &Rc<GroupShard>, id: GroupId, owner: &Owner) -> Result<usize, String> {
    let outside = Outside::new(shard, id);
    if !mutant(Mutant::LeftTakenForWhole) {
        let state = match shard.group(id) {
            Some(group) => group.state_to_note(false),
            None => MemberState { whole: false, ..shard.state_as_found(id) },
        };
        let state = state.encode();
        outside.put(LayerId(0), ChunkId(0), EntryKind::MemberState { state }, || shard.is_member(id)).await?;
        outside.durable().await?;
    }
    match shard.group(id) {
        Some(group) => group.forget_uncommitted(shard),
        None => drop(shard.store().cut(id, shard.store().committed_through(id))),
    }
    let mut leaves: Vec<_> = leaves_of(shard, id, owner).await?.iter().map(|leaf| (leaf.layer, leaf.chunk)).collect();
    // What was lost of it is wanted no more, either.
    let family = |layer| shard.store().layer(layer).map(|record| record.family);
    let is_its =
        |(layer, chunk): &(LayerId, ChunkId)| family(*layer).and_then(|family| owner(family, *chunk)) == Some(id);
    leaves.extend(shard.store().lost_leaves().0.into_iter().filter(is_its));
    leaves.sort_unstable();
    leaves.dedup();
    for part in leaves.chunks(LEAVES_PER_STEP) {
        if shard.is_member(id) {
            return Err("its store is a member again".to_owned());
        }
        drop_leaves(&outside, part, || shard.is_member(id)).await?;
        background_step().await;
    }
    Ok(leaves.len())
}

/// An install of nothing, of each of these leaves.
async fn drop_leaves(
    outside: &Outside,
    leaves: &[(LayerId, ChunkId)],
    is_given_up: impl Fn() -> bool,
) -> Result<(), String> {
    for (layer, chunk) in leaves {
        outside.put(*layer, *chunk, EntryKind::InstallBegin { keeps: false }, &is_given_up).await?;
    }
    outside.durable().await?;
    for (layer, chunk) in leaves {
        // What has begun to go goes: a leaf that is not whole would count as one that is there.
        outside.put(*layer, *chunk, EntryKind::InstallEnd { last_seq: Seq(0) }, || false).await?;
    }
    outside.durable().await
}

impl GroupShard {
    /// Whether what is here of the group is to be dropped from now on: two looks in a row found it whole, in one epoch, without
    /// this store, and neither was of an older record than the one known here.
    fn has_left(&self, record: &GroupRecord, is_left: bool, apart: Duration) -> bool {
        let id = record.id;
        let known = match self.group(id) {
            Some(group) => Some(group.member().record().epoch),
            None => self.known_epoch(id),
        };
        let mut left = self.left.borrow_mut();
        if !is_left || known.is_none_or(|known| record.epoch < known) {
            left.retain(|group, state| *group != id || matches!(state, Left::Dropping(_)));
            return false;
        }
        match left.get(&id).copied() {
            Some(Left::Dropping(_)) => return false,
            Some(Left::Dropped(epoch)) if epoch == record.epoch => return false,
            Some(Left::Seen(epoch, at)) if epoch == record.epoch => {
                if now().since(at) < apart {
                    return false;
                }
            }
            _ => {
                left.insert(id, Left::Seen(record.epoch, now()));
                return false;
            }
        }
        left.insert(id, Left::Dropping(record.epoch));
        drop(left);
        self.gave_up.borrow_mut().insert(id);
        if let Some(group) = self.group(id) {
            group.map_says(record, Epoch(0));
            group.gives_up();
        }
        true
    }

    fn was_dropped(&self, id: GroupId, is_done: bool) {
        let mut left = self.left.borrow_mut();
        match left.get(&id).copied() {
            Some(Left::Dropping(epoch)) if is_done => left.insert(id, Left::Dropped(epoch)),
            _ => left.remove(&id),
        };
    }

    /// Whether leaves of the family are nobody's.
    pub(crate) fn is_nobodys(&self, family: FamilyId) -> bool {
        self.orphans.borrow().contains(&family)
    }

    /// Whether what is here of the group is being dropped: nothing of it can be made whole before that has ended.
    pub(crate) fn is_dropping(&self, id: GroupId) -> bool {
        matches!(self.left.borrow().get(&id), Some(Left::Dropping(_)))
    }

    /// Whether what was here of the group was dropped, or began to be, in this life.
    pub(crate) fn has_given_up(&self, id: GroupId) -> bool {
        self.gave_up.borrow().contains(&id) && !mutant(Mutant::LeftTakenForWhole)
    }

    /// Whether the store takes part in the group, as far as is known here.
    fn is_member(&self, id: GroupId) -> bool {
        let store = self.store_id();
        self.group(id).is_some_and(|group| group.member().record().members().any(|member| member == store))
    }

    /// Groups that take part here, or of which something was here when the shard was opened.
    fn known_groups(&self) -> Vec<GroupId> {
        let mut known: Vec<_> = self.recovered_groups().collect();
        known.extend(self.groups().iter().map(|group| group.id()));
        known.sort_unstable();
        known.dedup();
        known
    }

    /// The last epoch that was written down of a group that takes no part here; of one whose record is not there, the first.
    /// `None`: it cannot be read.
    fn known_epoch(&self, id: GroupId) -> Option<Epoch> {
        let heard = self.state_as_found(id).heard.map_or(Epoch(0), |heard| heard.epoch);
        match self.store().group_record(id) {
            Some(record) => decode::<GroupRecord>("", record.as_slice()).ok().map(|record| record.epoch.max(heard)),
            None => Some(heard),
        }
    }

    /// Whether nothing of the group is to come: the store is no member, or the member here is whole.
    fn lacks_nothing_of(&self, record: &GroupRecord) -> bool {
        !record.members.contains(&self.store_id()) || self.group(record.id).is_some_and(|group| is_sound(&group))
    }

    /// Whether all groups that were ever here are whole, or dropped.
    fn all_are_whole(&self) -> bool {
        let is_over = |id: GroupId| match self.is_member(id) {
            true => self.group(id).is_some_and(|group| is_sound(&group)),
            false => matches!(self.left.borrow().get(&id), Some(Left::Dropped(_))),
        };
        self.known_groups().into_iter().all(is_over)
    }
}

/// Whether a member here lacks nothing, as far as anybody knows.
fn is_sound(group: &Group) -> bool {
    group.stopped().is_none() && group.member().is_whole() && !group.is_to_be_mended()
}
