//! Who sees to it that what operators say of nodes and devices is done: one node at a time.
//!
//! ```text
//!   operator ─► node-places, device-places          map's watch ─► Followed ─► next_changes ─► wanted/G
//!                                                        ▲                        carry_out ─► groups/G, epoch + 1
//!                                                        └── every transaction compares `control` and what it was decided by
//! ```
//!
//! There is no state but the map's, besides since when somebody is away. Whoever takes over goes on; what an earlier one
//! sends late is refused, as the record `control` is another by then.

mod decisions;
mod followed;
mod reign;
mod standing;

pub use decisions::{Decided, DutyError, decide, foretold, foretold_device};
pub use followed::{Followed, Heard};
pub use reign::{GIVE_UP_AFTER, HISTORY_KEPT, Reigning, Turned};
pub use standing::{ClusterStanding, DeviceStanding, NodeStanding};

use crate::catalog::{CatalogError, settle};
use crate::map::{MapStore, Outcome, Revision, Transaction};
use crate::records::{ControlRecord, Record, keys};
use crate::typed::{encode, get};
use types::{Mutant, NodeId, mutant};

/// A node controls, in this reign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Control {
    /// Which.
    pub node: NodeId,
    /// In which reign.
    pub epoch: u64,
    /// The revision of its record: what each of its transactions compares.
    modified: Revision,
}

impl Control {
    /// Makes a node the one that controls, if it `is_due`, in an epoch that nobody has had.
    ///
    /// # Errors
    /// The map's.
    pub async fn take(
        map: &dyn MapStore,
        node: NodeId,
        is_due: impl Fn(Option<&ControlRecord>) -> bool,
    ) -> Result<Option<Self>, CatalogError> {
        let found = get::<ControlRecord>(map, keys::CONTROL).await?;
        if !is_due(found.as_ref().map(|found| &found.record)) {
            return Ok(None);
        }
        let epoch = found.as_ref().map_or(1, |found| found.record.epoch + 1);
        let record = ControlRecord { node, epoch };
        let transaction = match &found {
            Some(found) => Transaction::new().expect(record.key(), found.modified),
            None => Transaction::new().expect_absent(record.key()),
        };
        settle(map, transaction.put(record.key(), encode(&record))).await?;
        // What was done and not answered is found here, too.
        let found = get::<ControlRecord>(map, keys::CONTROL).await?;
        let is_mine = found.filter(|found| found.record == record);
        Ok(is_mine.map(|found| Self { node, epoch, modified: found.modified }))
    }

    /// The beginning of each of its transactions.
    fn transaction(&self) -> Transaction {
        match mutant(Mutant::OlderControlWrites) {
            true => Transaction::new(),
            false => Transaction::new().expect(keys::CONTROL, self.modified),
        }
    }
}

/// Whether it was done.
async fn is_done(map: &dyn MapStore, transaction: Transaction) -> Result<Option<Revision>, CatalogError> {
    match settle(map, transaction).await? {
        Outcome::Committed(revision) => Ok(Some(revision)),
        Outcome::Conflict => Ok(None),
    }
}
