//! Snapshots as one core serves them: read only, through the layers below the one that the snapshot names.
//!
//! A reader holds a list of layers, as of the time when the core was told of the snapshot. It stays right: what of the
//! list ends meanwhile is merged into the layer above it in the same list, and ids are never used again. That holds as
//! long as the snapshot has its name in the map; so who deletes it first takes it away from all cores, and waits for
//! those who read.
//!
//! A volume that has come to lie elsewhere has other layers, in other groups, and so have its snapshots. Until a core has
//! been told of those, nothing is read of them there.

use crate::api::IoError;
use crate::head::VolumeState;
use cluster::OWN_SNAPSHOT;
use runtime::channel::WaitList;
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use types::{FamilyId, LayerId, Mutant, mutant};

/// What a client is told of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotInfo {
    /// Its name, without that of its volume.
    pub name: String,
    /// Its size: that of the volume when it was taken.
    pub size_bytes: u64,
    /// When it was taken, ns since 1970.
    pub created_at_ns: u64,
    /// What it is read through, newest first; the first is the layer that it names.
    pub layers: Arc<[LayerId]>,
    /// Whose they are. Elsewhere there are none of these.
    pub family: FamilyId,
}

impl SnapshotInfo {
    /// Whether a move of the volume took it for itself.
    pub(crate) fn is_own(&self) -> bool {
        self.name.starts_with(OWN_SNAPSHOT)
    }

    /// The layer that it names.
    pub(crate) fn layer(&self) -> LayerId {
        self.layers[0]
    }
}

/// A snapshot on one core.
pub(crate) struct SnapshotState {
    pub(crate) info: SnapshotInfo,
    gone: Cell<bool>,
    running: Cell<u64>,
    drained: WaitList,
}

/// A command of a snapshot that runs.
pub(crate) struct Reading(Rc<SnapshotState>);

impl Reading {
    /// What it reads.
    pub(crate) fn snapshot(&self) -> &Rc<SnapshotState> {
        &self.0
    }
}

impl SnapshotState {
    fn new(info: SnapshotInfo) -> Rc<Self> {
        Rc::new(Self { info, gone: Cell::new(false), running: Cell::new(0), drained: WaitList::default() })
    }

    /// Lets a command in.
    pub(crate) fn let_in(self: &Rc<Self>, volume: impl FnOnce() -> String) -> Result<Reading, IoError> {
        if self.gone.get() {
            return Err(self.gone(&volume()));
        }
        self.running.set(self.running.get() + 1);
        Ok(Reading(self.clone()))
    }

    /// Whether it was taken away from this core.
    pub(crate) fn is_gone(&self) -> bool {
        self.gone.get()
    }

    /// What a command of it comes to when it is gone.
    #[cold]
    pub(crate) fn gone(&self, volume: &str) -> IoError {
        IoError::Gone(format!("snapshot {volume}@{} was deleted", self.info.name))
    }

    /// Resolves when nobody reads it who was let in here.
    async fn drained(&self) {
        if !mutant(Mutant::SnapshotReadersNotAwaited) {
            self.drained.until(|| (self.running.get() == 0).then_some(())).await;
        }
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        let running = self.0.running.get() - 1;
        self.0.running.set(running);
        if running == 0 {
            self.0.drained.wake_all();
        }
    }
}

impl VolumeState {
    /// From now on these are the volume's snapshots on this core. Returns when nobody reads one that is not among them
    /// any more.
    pub(crate) async fn set_snapshots(&self, infos: &[SnapshotInfo]) {
        let is_same = |old: &SnapshotInfo, new: &SnapshotInfo| (&old.name, old.layer()) == (&new.name, new.layer());
        let old = self.snapshots.take();
        let keep = |info: &SnapshotInfo| old.iter().find(|state| is_same(&state.info, info)).cloned();
        self.snapshots
            .replace(infos.iter().map(|info| keep(info).unwrap_or_else(|| SnapshotState::new(info.clone()))).collect());
        let gone: Vec<_> =
            old.into_iter().filter(|state| !infos.iter().any(|info| is_same(&state.info, info))).collect();
        if !mutant(Mutant::SnapshotReadersNotAwaited) {
            gone.iter().for_each(|state| state.gone.set(true));
        }
        for state in gone {
            state.drained().await;
        }
    }
}
