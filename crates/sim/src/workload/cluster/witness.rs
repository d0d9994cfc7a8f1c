//! Every entry that any member is given: at one place of a group's order there is one, in all epochs,
//! whoever led in them, for ever.

use crate::workload::Failure;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use replication::GroupShard;
use std::cell::RefCell;
use std::hash::{BuildHasher, Hash, Hasher};
use std::rc::Rc;
use store::{Entry, EntryKind};
use types::{GroupId, Seq, Term};

/// Of an entry, in the orders of all groups.
type Place = (GroupId, Term, Seq);

/// What was given to members, by its place: the sum of it, and the store that had it first.
#[derive(Default)]
pub struct Witness {
    seen: RefCell<HashMap<Place, (u64, usize), FixedState>>,
    pub failure: RefCell<Option<Failure>>,
}

impl Witness {
    /// Looks at all that `shard` is given from now on, which is of the store with this index.
    pub fn watch(self: &Rc<Self>, shard: &GroupShard, store: usize) {
        let witness = self.clone();
        shard.set_witness(Rc::new(move |entry| witness.look(entry, store)));
    }

    /// Entries that were given, each counted once.
    pub fn count(&self) -> u64 {
        self.seen.borrow().len() as u64
    }

    fn look(&self, entry: &Entry, store: usize) {
        // Entries outside the order have no place; of those that a unit brings, a member is given only the place.
        if entry.seq == Seq(0) || matches!(entry.kind, EntryKind::Noop) {
            return;
        }
        let place = (entry.group, entry.term, entry.seq);
        let sum = sum_of(entry);
        let (known, first) = *self.seen.borrow_mut().entry(place).or_insert((sum, store));
        if known != sum {
            let (group, term, seq) = place;
            let message =
                format!("group {group}: stores {first} and {store} have different entries at epoch {term} seq {seq}");
            self.failure.borrow_mut().get_or_insert_with(|| Failure::new("sequence", message));
        }
    }
}

/// Of what the entry does, not of what its primary knew as committed when it was sent.
fn sum_of(entry: &Entry) -> u64 {
    let mut hasher = FixedState::with_seed(0).build_hasher();
    (entry.volume_epoch, entry.layer, entry.chunk).hash(&mut hasher);
    match &entry.kind {
        EntryKind::Write { range, bytes, .. } => (range.first, range.count, crc32c::crc32c(bytes)).hash(&mut hasher),
        kind => format!("{kind:?}").hash(&mut hasher),
    }
    hasher.finish()
}
