//! What a shard has lost to damage, and the end of that: when all of it has come from other copies, passes go on.
//!
//! ```text
//!   opened with damage ── no pass, no segment is freed: the next opening finds the same damage ──┐
//!                                                                                                 │ what was lost is here
//!                                                                                                 │ again, or nobody's
//!   a pass over all that is here ◄── losses are mended ◄─────────────────────────────────────────┘
//!        │ durable, in all shards: nothing older is read any more
//!        ▼
//!   headers that are lost are written over with zeroes: their segments are free
//! ```

use super::Shard;
use crate::error::AppendError;
use crate::format::LeafKey;
use foldhash::fast::FixedState;
use hashbrown::HashSet;
use types::{ChunkId, LayerId, Mutant, mutant};

/// What of the index could not be loaded.
#[derive(Default)]
pub(crate) struct Lost {
    /// These leaves.
    pub(crate) leaves: HashSet<LeafKey, FixedState>,
    /// They name blocks in a segment whose header is lost: what they hold is read as ever, and keeps the segment from use.
    pub(crate) headless: HashSet<LeafKey, FixedState>,
    /// Leaves nobody knows which: then only those that were found in the last pass are sure.
    pub(crate) all_but: Option<HashSet<LeafKey, FixedState>>,
    /// Anything at all: then no pass may hide it.
    pub(crate) any: bool,
}

impl Lost {
    pub(crate) fn has(&self, key: LeafKey) -> bool {
        self.any && (self.leaves.contains(&key) || self.all_but.as_ref().is_some_and(|sure| !sure.contains(&key)))
    }

    /// The leaf is whole from now on, whatever was lost of it, or there is none any more.
    pub(crate) fn is_found(&mut self, key: LeafKey) {
        self.leaves.remove(&key);
        self.headless.remove(&key);
    }

    /// What was in a leaf is another's.
    pub(super) fn hand_on(&mut self, from: LeafKey, into: LeafKey) {
        // While the log is read `any` may be said only later.
        if self.leaves.contains(&from) || self.has(from) {
            // What was in it is not known: from now on of the leaf that should have taken it.
            self.leaves.insert(into);
        }
        if self.headless.remove(&from) {
            self.headless.insert(into);
        }
    }
}

impl Shard {
    /// Leaves that could not be loaded, or that name blocks in a segment whose header is lost; and whether others, nobody
    /// knows which, could not be loaded either.
    pub fn lost_leaves(&self) -> (Vec<(LayerId, ChunkId)>, bool) {
        let state = self.core.state.borrow();
        let lost = state.lost.leaves.union(&state.lost.headless);
        let mut leaves: Vec<_> = lost.map(|key| (key.layer, key.chunk)).collect();
        leaves.sort_unstable();
        (leaves, state.lost.all_but.is_some())
    }

    /// Whether damage was found when it was opened that nobody has said is [mended](Self::losses_are_mended): no pass is
    /// written as long, and no segment becomes free.
    pub fn has_losses(&self) -> bool {
        self.core.state.borrow().lost.any
    }

    /// Whoever knows the other copies says that all groups have everything again that was here, or nothing: each is whole, by
    /// a comparison of all its leaves if any may be lost that nobody knows, or has been given up durably. Writes a pass, from
    /// which the next opening begins; when the store's last shard has, segments whose header is lost are free. Nothing is
    /// done as long as a leaf is known to be lost: then `false`.
    ///
    /// # Errors
    /// When the shard has failed or was closed.
    pub async fn losses_are_mended(&self) -> Result<bool, AppendError> {
        {
            let mut state = self.core.state.borrow_mut();
            let is_mended = state.lost.leaves.is_empty() && state.lost.headless.is_empty();
            if !state.lost.any || !is_mended && !mutant(Mutant::LossesForgotten) {
                return Ok(!state.lost.any);
            }
            state.lost = Lost::default();
            state.segments.count_empties();
            state.estimate_pass();
            self.core.store.set_pass_bytes(self.core.index, state.pass.cost_bytes());
        }
        self.core.store.set_exhausted(self.core.index, false);
        self.pass_now().await?;
        self.core.store.losses_are_over(&self.core.device, self.core.index).await;
        self.core.durable_changed.wake_all();
        Ok(true)
    }

    /// These leaves have come from elsewhere: what reads met in them is not there any more.
    pub fn damage_is_mended(&self, leaves: &[(LayerId, ChunkId)]) {
        self.core.troubles.forget(leaves);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// While the log is read as well, before anybody knows that anything is lost.
    #[test]
    fn who_takes_what_is_in_a_lost_leaf_is_lost_too() {
        let [from, into, other] = [1, 2, 3].map(|layer| LeafKey { layer: LayerId(layer), chunk: ChunkId(7) });
        let mut lost = Lost::default();
        lost.leaves.insert(from);
        lost.headless.insert(other);
        lost.hand_on(from, into);
        lost.hand_on(other, from);
        assert!(lost.leaves.contains(&into) && lost.headless.contains(&from) && !lost.headless.contains(&other));
        lost.any = true;
        assert!(lost.has(into) && !lost.has(other));
    }
}
