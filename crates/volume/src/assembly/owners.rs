//! Which group holds a chunk of a family, for all cores: families share their slot table and seed, for ever.

use crate::spec::TableLayout;
use cluster::{VolumeRecord, slot_of};
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use std::sync::{Arc, PoisonError, RwLock};
use types::{ChunkId, FamilyId, GroupId};

/// See the module.
pub(super) struct Owners(RwLock<HashMap<FamilyId, (u64, Arc<TableLayout>), FixedState>>);

impl Default for Owners {
    fn default() -> Self {
        Self(RwLock::new(HashMap::with_hasher(FixedState::default())))
    }
}

impl Owners {
    /// The volume's family is known from now on.
    pub(super) fn learn(&self, volume: &VolumeRecord, table: &Arc<TableLayout>) {
        assert_eq!(table.id, volume.table, "the table of its own");
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        known.insert(volume.family, (volume.family_seed, table.clone()));
    }

    /// Nothing of a family that is not known.
    pub(super) fn of(&self, family: FamilyId, chunk: ChunkId) -> Option<GroupId> {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let (seed, table) = known.get(&family)?;
        let place = table.table.place_of(slot_of(*seed, chunk));
        table.table.groups().get(place).copied()
    }
}
