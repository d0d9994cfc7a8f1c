//! Entries that take no place in a group's order: what a member keeps for itself, and what it is given as a whole.

use crate::shard::GroupShard;
use runtime::sleep;
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;
use store::{AppendError, Entry, EntryKind, LogPosition};
use types::{ChunkId, GroupId, LayerId, Seq, Term, VolumeEpoch};

/// A store without room is asked again after this.
const FULL_WAIT: Duration = Duration::from_millis(100);

/// Those of one group in a shard, one after the other.
pub(crate) struct Outside {
    shard: Rc<GroupShard>,
    group: GroupId,
    /// The last that was queued.
    last: Cell<LogPosition>,
}

impl Outside {
    pub(crate) fn new(shard: &Rc<GroupShard>, group: GroupId) -> Self {
        Self { shard: shard.clone(), group, last: Cell::default() }
    }

    /// Queues one, once the store takes it.
    ///
    /// # Errors
    /// A store that has stopped; or it is given up.
    pub(crate) async fn put(
        &self,
        layer: LayerId,
        chunk: ChunkId,
        kind: EntryKind,
        is_given_up: impl Fn() -> bool,
    ) -> Result<(), String> {
        let (group, term, seq, volume_epoch) = (self.group, Term::NONE, Seq(0), VolumeEpoch(0));
        let entry = Entry { group, term, seq, commit: Seq(0), volume_epoch, layer, chunk, kind };
        loop {
            if is_given_up() {
                return Err("it was given up".to_owned());
            }
            match self.shard.store().prepare(entry.clone()) {
                Ok(position) => {
                    self.last.set(position);
                    return Ok(());
                }
                Err(AppendError::Busy) => self.shard.store().room().await.map_err(|error| error.to_string())?,
                Err(AppendError::NoSpace { .. }) => sleep(FULL_WAIT).await,
                Err(error) => return Err(error.to_string()),
            }
        }
    }

    /// Resolves when all that was queued is on the device.
    ///
    /// # Errors
    /// A store that has stopped.
    pub(crate) async fn durable(&self) -> Result<(), String> {
        let store = self.shard.store();
        let mut seen = store.durable_through();
        while seen < self.last.get() {
            seen = store.durable_changed(seen).await.map_err(|error| error.to_string())?;
        }
        Ok(())
    }
}
