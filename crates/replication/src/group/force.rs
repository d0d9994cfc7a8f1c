//! An operator has said whose copy counts (R24): what a copy that counts does, and what all others do.

use super::Group;
use crate::protocol::Member;
use cluster::{Forced, GroupRecord};
use types::{Epoch, Mutant, Seq, mutant};

impl Group {
    /// An operator has said whose copy counts (R24). Who has stopped hears of it at its next start.
    pub(super) fn hear_of_force(&self, record: &GroupRecord) {
        let Some(forced) = record.forced.filter(|_| self.stopped.get().is_none()) else { return };
        let (me, is_news) = {
            let member = self.member.borrow();
            (member.store(), member.record().epoch >= forced.epoch && !member.has_in_log(forced.epoch))
        };
        if !is_news || self.forced_by.replace(forced.epoch) == forced.epoch {
            return;
        }
        log::warn!("group {}: an operator has said that the copy of store {} counts", self.id, forced.store);
        if forced.store == me {
            self.set_filler(None);
            self.begin_to_count(forced);
        } else if !mutant(Mutant::ForceHeardByOneOnly) {
            self.with(Member::gives_way);
            self.is_worth_nothing();
        }
    }

    /// This copy is to count; it leads nothing until it does.
    pub(crate) fn begin_to_count(&self, forced: Forced) {
        self.forced_by.set(forced.epoch);
        self.with(Member::begins_to_fill);
        if let Some((shard, group)) =
            self.shard.upgrade().and_then(|shard| Some((shard.clone(), shard.group(self.id)?)))
        {
            runtime::spawn(crate::force::heed(shard, group, forced));
        }
    }

    /// What is in this copy is committed. In one turn it is taken for whole, so that all of that is applied, and leads nothing.
    pub(crate) fn commit_what_counts(&self) {
        self.with(Member::is_what_counts);
        self.with(Member::commits_what_counts);
        self.with(Member::begins_to_fill);
    }

    /// Whether this is the last force that was heeded.
    pub(crate) fn heeds(&self, epoch: Epoch) -> bool {
        self.forced_by.get() == epoch
    }

    /// This copy has everything that counts, and that is written down.
    pub(crate) fn counts(&self) {
        self.lacks_as_written.set(false);
        self.noted_whole.set(true);
        self.set_doubtful_from(Seq(u64::MAX));
        self.set_log_in_doubt(false);
        self.with(Member::is_what_counts);
        self.write_state();
    }

    /// Nothing of what is here is taken for what others have, not even where it looks the same.
    pub(crate) fn is_worth_nothing(&self) {
        self.gives_up();
        self.set_doubtful_from(Seq(0));
        self.set_log_in_doubt(true);
    }

    /// It was heeded when the group was opened.
    pub(crate) fn has_heeded_force(&self, epoch: Epoch) {
        self.forced_by.set(epoch);
    }
}
