//! What a group keeps of members that are made whole: at their primary, and at the member itself.

use super::Group;
use crate::changes::{Blocks, Changes};
use crate::fill::member::Filler;
use crate::fill::primary::Filling;
use crate::protocol::Member;
use crate::shard::GroupShard;
use std::rc::Rc;
use store::{Entry, ReadError};
use types::{ChunkId, LayerId, Mutant, Seq, StoreId, mutant};

impl Group {
    /// For whom all writers wait.
    pub(crate) fn held_for(&self) -> Option<StoreId> {
        self.held_for.get()
    }

    /// All writers wait until this member has all that is committed and is being added; or until somebody
    /// [lets](Self::let_writers_go) them go.
    pub(crate) fn hold_writers_for(&self, store: StoreId) {
        self.held_for.set(Some(store));
        self.add_held_for();
    }

    /// Adds the member that writers wait for, if it has all: from then on it counts (R3).
    pub(super) fn add_held_for(&self) {
        let Some(store) = self.held_for.get() else { return };
        self.with(|member| member.add(store));
        if self.member.borrow().change_under_way() {
            self.let_writers_go();
        }
    }

    /// Nobody waits for a member any more.
    pub(crate) fn let_writers_go(&self) {
        if self.held_for.take().is_some() {
            self.room.wake_all();
        }
    }

    /// Which reign of this member it is.
    pub(crate) fn reign(&self) -> u32 {
        self.window.borrow().reign()
    }

    /// Whether an entry about the chunk has its place and is not committed; of a primary that has begun.
    pub(crate) fn is_on_its_way(&self, chunk: ChunkId) -> bool {
        self.recent.borrow().touches_behind(self.committed(), chunk) && !mutant(Mutant::UnitTakenTooEarly)
    }

    /// Whether others can be made whole: what is committed is here, and either all behind it will be, or nothing is
    /// before somebody is whole. From who may lack leaves nobody is made whole.
    pub(crate) fn may_fill(&self) -> bool {
        !self.in_doubt.get() && self.member.borrow().may_fill()
    }

    /// From now on, for whoever asks, this member lacks something; that it does is written down. Returns what all of its
    /// leaves hold but those that say otherwise; 0, if that is not known.
    pub(crate) fn begins_to_lack(&self) -> Seq {
        if !self.lacks_as_written.replace(true) {
            let shard = self.shard.upgrade();
            self.noted_whole.set(false);
            self.base_of_leaves.set(shard.map_or(Seq(0), |shard| shard.store().committed_through(self.id)));
        }
        self.with(Member::begins_to_fill);
        self.base_of_leaves.get()
    }

    /// It is to hold nothing from now on: no leaf is what it was.
    pub(crate) fn gives_up(&self) {
        self.set_filler(None);
        self.begins_to_lack();
        if !mutant(Mutant::DroppedTakenForKept) {
            self.base_of_leaves.set(Seq(0));
        }
    }

    /// It is damaged, and nothing was written down that it lacks: it can lead, if nobody else does.
    pub(crate) fn lacks_only_blocks(&self) -> bool {
        !self.lacks_as_written.get() && self.is_to_be_mended()
    }

    /// The blocks of the chunk that entries behind `base` were about, if that is known.
    pub(crate) fn changed_behind(&self, base: Seq, chunk: ChunkId) -> Option<Blocks> {
        self.changes.borrow().behind(base, chunk)
    }

    /// The chunks that entries behind `base` were about, if that is known.
    pub(crate) fn chunks_changed_behind(&self, base: Seq) -> Option<Vec<ChunkId>> {
        self.changes.borrow().chunks_behind(base)
    }

    /// An entry takes its place in the order, here.
    pub(crate) fn note_change(&self, entry: &Entry) {
        let is_away = is_anybody_away(&self.member.borrow());
        self.changes.borrow_mut().note(entry, is_away);
    }

    /// What was skipped is not known.
    pub(crate) fn has_skipped(&self, through: Seq) {
        *self.changes.borrow_mut() = Changes::from(through);
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

    /// Members that are being made whole, and messages of that which were not looked at here.
    pub(crate) fn fill_lengths(&self) -> (usize, usize) {
        let said = self.filler.borrow().as_ref().map_or(0, |filler| filler.said_count());
        (self.fillings.borrow().len(), said)
    }

    /// Entries that are kept for others, and their bytes.
    pub(crate) fn kept(&self) -> (usize, usize) {
        self.recent.borrow().lengths()
    }

    /// Entries that have a place and are not committed, at the primary.
    pub(crate) fn prepared_count(&self) -> usize {
        self.window.borrow().len()
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

    /// A chunk is damaged here. Of a primary: who can mend it.
    pub(crate) fn note_damage(&self, error: &ReadError) -> Mender {
        let Some(place) = error.leaf().filter(|_| !mutant(Mutant::DamagedGoesOn)) else { return Mender::Nobody };
        if self.member.borrow().is_alone() {
            // Nobody can mend it; whoever joins later is made whole from what can be read then.
            return Mender::Nobody;
        }
        let mut damaged = self.damaged.borrow_mut();
        if !damaged.contains(&place) {
            damaged.push(place);
        }
        if self.member.borrow().whole_others() > 0 {
            return Mender::Another;
        }
        let has_it = |filling: &Rc<Filling>| !filling.brings(place.1);
        match self.fillings.borrow().iter().any(has_it) {
            true => Mender::AnotherSoon,
            false => Mender::Nobody,
        }
    }

    /// Leaves may be lost here, and nobody knows which.
    pub(crate) fn note_doubt(&self) {
        self.in_doubt.set(true);
    }

    /// Whether something is damaged here, or may be, that another member has.
    pub(crate) fn is_to_be_mended(&self) -> bool {
        self.in_doubt.get() || !self.damaged.borrow().is_empty()
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

    /// A leaf whose last entry is this or a later one may lack what came before: records are damaged that held it.
    pub(crate) fn doubtful_from(&self) -> Seq {
        match mutant(Mutant::TornOutTakenForWhole) {
            true => Seq(u64::MAX),
            false => self.doubtful_from.get(),
        }
    }

    /// From where on leaves are in doubt; [`Seq`] of all bits: none is, or each that is has its mark on the device.
    pub(crate) fn set_doubtful_from(&self, from: Seq) {
        self.doubtful_from.set(from);
    }

    /// Whether an entry may be lost with which an epoch began: then it is no proof against another's log that this one differs.
    pub(crate) fn is_log_in_doubt(&self) -> bool {
        self.log_in_doubt.get()
    }

    /// See [`is_log_in_doubt`](Self::is_log_in_doubt). What is damaged is found again at the next start, until it is mended.
    pub(crate) fn set_log_in_doubt(&self, is_it: bool) {
        self.log_in_doubt.set(is_it);
    }

    /// All of them have come from another member.
    pub(crate) fn is_whole_again(&self, mended: &[(LayerId, ChunkId)]) {
        self.lacks_as_written.set(false);
        self.in_doubt.set(false);
        self.damaged.borrow_mut().retain(|place| !mended.contains(place));
    }
}

/// Who has a chunk that is damaged at the primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mender {
    /// Another member in sync.
    Another,
    /// One that has it, and is being made whole.
    AnotherSoon,
    /// Nobody, as far as is known.
    Nobody,
}

/// Whether a member may come back, and lack what is noted.
pub(super) fn is_anybody_away(member: &Member) -> bool {
    let record = member.record();
    !record.joining.is_empty() || !record.eligible.is_empty()
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
