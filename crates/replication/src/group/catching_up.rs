//! What a group keeps of members that are made whole: at their primary, and at the member itself.

use super::Group;
use crate::fill::member::Filler;
use crate::fill::primary::Filling;
use crate::shard::GroupShard;
use std::rc::Rc;
use store::ReadError;
use types::{ChunkId, LayerId, Mutant, StoreId, mutant};

impl Group {
    /// Which reign of this member it is.
    pub(crate) fn reign(&self) -> u32 {
        self.window.borrow().reign()
    }

    /// Whether an entry about the chunk has its place and is not committed; of a primary that has begun.
    pub(crate) fn is_on_its_way(&self, chunk: ChunkId) -> bool {
        self.recent.borrow().touches_behind(self.committed(), chunk) && !mutant(Mutant::UnitTakenTooEarly)
    }

    /// Whether others can be made whole: what is committed is here, and either all behind it will be, or nothing is
    /// before somebody is whole.
    pub(crate) fn may_fill(&self) -> bool {
        let member = self.member.borrow();
        member.has_begun() || member.next_place().is_some() && !member.record().may_commit()
    }

    /// Writers of the chunk wait as long as this lives.
    pub(crate) fn hold(self: &Rc<Self>, chunk: ChunkId) -> Held {
        self.held.borrow_mut().push(chunk);
        Held(self.clone(), chunk)
    }

    /// The attempt to make a member whole that is under way.
    pub(crate) fn filling(&self, store: StoreId) -> Option<Rc<Filling>> {
        self.fillings.borrow().iter().find(|filling| filling.to == store).cloned()
    }

    pub(crate) fn add_filling(&self, filling: Rc<Filling>) {
        self.fillings.borrow_mut().push(filling);
    }

    pub(crate) fn remove_filling(&self, over: &Rc<Filling>) {
        self.fillings.borrow_mut().retain(|filling| !Rc::ptr_eq(filling, over));
    }

    /// Who makes this member whole.
    pub(crate) fn filler(&self) -> Option<Rc<Filler>> {
        let filler = self.filler.borrow().clone()?;
        if filler.from != self.member.borrow().record().primary {
            filler.end();
        }
        Some(filler)
    }

    pub(crate) fn set_filler(&self, filler: Option<Rc<Filler>>) {
        if let Some(before) = std::mem::replace(&mut *self.filler.borrow_mut(), filler) {
            before.end();
        }
    }

    /// What was prepared and is not applied is given up: it comes in another way.
    pub(crate) fn forget_uncommitted(&self, shard: &GroupShard) {
        let applied = shard.store().committed_through(self.id);
        shard.forget_queued(self.index, applied);
        if !shard.store().cut(self.id, applied) {
            self.stop("its store cannot forget entries that were never committed");
        }
    }

    /// A chunk is damaged here. Whether another member can make it whole.
    pub(crate) fn note_damage(&self, error: &ReadError) -> bool {
        let Some(place) = error.leaf().filter(|_| !mutant(Mutant::DamagedGoesOn)) else { return false };
        let (others, me) = {
            let member = self.member.borrow();
            (member.record().in_sync.clone(), member.store())
        };
        let mut damaged = self.damaged.borrow_mut();
        if !damaged.contains(&place) {
            damaged.push(place);
        }
        others.iter().any(|store| *store != me)
    }

    /// Chunks that are damaged here.
    pub(crate) fn damaged(&self) -> Vec<(LayerId, ChunkId)> {
        self.damaged.borrow().clone()
    }

    /// Whether what is here is to be read and compared: there are others, and nothing is known to be wrong.
    pub(crate) fn is_to_scrub(&self) -> bool {
        let member = self.member.borrow();
        !member.is_alone() && member.is_whole() && self.stopped.get().is_none()
    }

    /// The other members in sync, at a primary that has begun.
    pub(crate) fn others_if_leads(&self) -> Vec<StoreId> {
        let member = self.member.borrow();
        match member.has_begun() {
            true => member.record().in_sync.iter().copied().filter(|store| *store != member.store()).collect(),
            false => Vec::new(),
        }
    }

    /// All of them have come from another member.
    pub(crate) fn is_whole_again(&self) {
        self.damaged.borrow_mut().clear();
    }
}

/// Writers of a chunk wait as long as this lives.
pub(crate) struct Held(Rc<Group>, ChunkId);

impl Drop for Held {
    fn drop(&mut self) {
        let Self(group, chunk) = self;
        let mut held = group.held.borrow_mut();
        if let Some(at) = held.iter().position(|held| held == chunk) {
            held.swap_remove(at);
        }
        drop(held);
        group.room.wake_all();
    }
}
