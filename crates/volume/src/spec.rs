//! What all cores know of a volume and of a slot table: made once, shared, never changed.

use crate::api::{Encryption, Placed, VolumeInfo};
use crate::coding::Coding;
use crate::limit::Limiter;
use cluster::{Compression, SlotTable, VolumeRecord, slot_of};
use replication::{Access, Stamp};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;
use store::format::LayerRecord;
use types::{ChunkId, FamilyId, GroupId, LayerId, NodeId, VolumeEpoch};

/// A slot table and the core of each of its groups.
pub(crate) struct TableLayout {
    pub(crate) id: u32,
    pub(crate) table: SlotTable,
    /// By place in the table's list of groups.
    pub(crate) cores: Vec<u16>,
    /// Groups all of whose members are on devices of this node that it was not started with.
    pub(crate) missing: BTreeSet<GroupId>,
    /// The node that all members of its groups are on, if there is one.
    pub(crate) only_node: Option<NodeId>,
}

/// The same table as one core sees it: the groups whose chunks are its.
pub(crate) struct LocalTable {
    pub(crate) layout: Arc<TableLayout>,
    /// By place; `None`: another core's.
    pub(crate) groups: Vec<Option<Rc<Access>>>,
}

/// What a host is told of a volume that nobody serves.
pub(crate) fn volume_info(record: &VolumeRecord) -> VolumeInfo {
    VolumeInfo {
        id: record.id,
        name: record.name.clone(),
        size_bytes: record.size_bytes,
        block_size_bytes: record.block_size_bytes,
        nsid: record.nsid,
        nguid: record.nguid_bytes(),
        layers: record.layers.iter().rev().copied().collect(),
        pool: record.pool.as_str().into(),
        compression: Compression::default(),
        encryption: if record.key.is_some() { Encryption::Locked } else { Encryption::Off },
        hosts: record.hosts.clone(),
        limits: record.limits,
        head: record.head,
        home: record.home,
        placed: Placed::Spread,
        is_draft: record.draft_of.is_some(),
    }
}

/// What a host is told of a volume whose blocks are stored like this.
fn info_with(record: &VolumeRecord, coding: &Coding) -> VolumeInfo {
    let encryption = match (record.key, &coding.key) {
        (None, _) => Encryption::Off,
        (Some(_), Some(_)) => Encryption::Unlocked,
        (Some(_), None) => Encryption::Locked,
    };
    VolumeInfo { compression: coding.compression, encryption, ..volume_info(record) }
}

/// A volume under one head epoch.
pub(crate) struct VolumeSpec {
    pub(crate) info: VolumeInfo,
    pub(crate) family_seed: u64,
    pub(crate) epoch: VolumeEpoch,
    pub(crate) table: Arc<TableLayout>,
    pub(crate) layer_records: Vec<LayerRecord>,
    /// How blocks are stored.
    pub(crate) coding: Coding,
    /// What keeps the volume's limits.
    pub(crate) limiter: Option<Arc<Limiter>>,
    /// How often it was rolled back since this node knows it: what was compared before one is not written after it.
    pub(crate) rollbacks: u64,
}

impl VolumeSpec {
    pub(crate) fn new(
        record: &VolumeRecord,
        table: Arc<TableLayout>,
        layer_records: Vec<LayerRecord>,
        coding: Coding,
        limiter: Option<Arc<Limiter>>,
    ) -> Self {
        Self {
            info: info_with(record, &coding),
            family_seed: record.family_seed,
            epoch: record.volume_epoch,
            table,
            layer_records,
            coding,
            limiter,
            rollbacks: 0,
        }
    }

    /// The same, where its groups are led like this.
    pub(crate) fn placed(mut self, placed: Placed) -> Self {
        self.info.placed = placed;
        self
    }

    /// The same, after so many rollbacks.
    pub(crate) fn after(self, rollbacks: u64) -> Self {
        Self { rollbacks, ..self }
    }

    /// Whether these are layers of the family that lies where the volume does.
    pub(crate) fn is_of(&self, family: FamilyId) -> bool {
        self.layer_records.first().is_some_and(|record| record.family == family)
    }

    /// Where in the table the chunk's group is.
    pub(crate) fn place_of(&self, chunk: ChunkId) -> usize {
        self.table.table.place_of(slot_of(self.family_seed, chunk))
    }

    /// What is said of the head to a group.
    pub(crate) fn stamp(&self) -> Stamp<'_> {
        Stamp::new(self.info.id, self.epoch, &self.layer_records)
    }

    /// The layer that is written to.
    pub(crate) fn top(&self) -> LayerId {
        self.info.layers[0]
    }
}
