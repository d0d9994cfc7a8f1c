//! What of a volume may be changed while it is used: its name, its size, its limits. All of one change is one
//! transaction: who looks sees it whole or not at all.

use super::snapshots::volume;
use super::{ATTEMPTS_MAX, Attempt, CatalogError, Reign, attempt};
use crate::map::{MapStore, Transaction};
use crate::names::{check_name, check_volume_size};
use crate::records::{LimitChange, Record, Reference, VolumeRecord, keys};
use crate::typed::{Versioned, encode};
use types::{Mutant, VolumeId, mutant};

/// A change of a volume; what is `None` stays.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VolumeChange {
    /// What it is called from now on.
    pub name: Option<String>,
    /// Its size, not less than it has.
    pub size_bytes: Option<u64>,
    /// What it may do in a second.
    pub limits: LimitChange,
}

impl VolumeChange {
    /// A change of the size alone.
    pub fn size(size_bytes: u64) -> Self {
        Self { size_bytes: Some(size_bytes), ..Self::default() }
    }

    /// A change of the name alone.
    pub fn name(name: impl Into<String>) -> Self {
        Self { name: Some(name.into()), ..Self::default() }
    }

    /// A change of the limits alone.
    pub fn limits(limits: LimitChange) -> Self {
        Self { limits, ..Self::default() }
    }

    /// What the volume is then.
    fn of(&self, record: &VolumeRecord) -> Result<VolumeRecord, CatalogError> {
        let name = self.name.as_ref().unwrap_or(&record.name).clone();
        check_name(&name)?;
        let size_bytes = self.size_bytes.unwrap_or(record.size_bytes);
        check_volume_size(size_bytes)?;
        if size_bytes < record.size_bytes {
            let (volume, is_bytes) = (record.name.clone(), record.size_bytes);
            return Err(CatalogError::Smaller { volume, is_bytes, asked_bytes: size_bytes });
        }
        let limits = record.limits.changed(&self.limits)?;
        Ok(VolumeRecord { name, size_bytes, limits, ..record.clone() })
    }
}

/// Changes a volume. Its id, its namespace and its snapshots stay; a name that it had is free.
///
/// # Errors
/// If something is not allowed, the name is taken, or the size is less than it is.
pub async fn change_volume(
    map: &dyn MapStore,
    id: VolumeId,
    change: &VolumeChange,
    by: Reign,
) -> Result<VolumeRecord, CatalogError> {
    for _ in 0..ATTEMPTS_MAX {
        let found = volume(map, id, by).await?;
        let next = change.of(&found.record)?;
        // Nothing to do, or an attempt was done and not heard of.
        if next == found.record || mutant(Mutant::GrowthForgotten) {
            return Ok(next);
        }
        let transaction = renamed(map, &found, &next).await?;
        let transaction = transaction.expect(next.key(), found.modified).put(next.key(), encode(&next));
        if let Attempt::Done = attempt(map, transaction).await? {
            return Ok(next);
        }
    }
    Err(CatalogError::Contended)
}

/// The beginning of a transaction that gives the volume its new name, if it gets one.
async fn renamed(
    map: &dyn MapStore,
    was: &Versioned<VolumeRecord>,
    next: &VolumeRecord,
) -> Result<Transaction, CatalogError> {
    if next.name == was.record.name {
        return Ok(Transaction::new());
    }
    let reference = Reference { taken: keys::volume_name(&next.name), volume: next.id };
    if map.get(&reference.taken).await?.is_some() {
        return Err(CatalogError::Exists(next.name.clone()));
    }
    let transaction = Transaction::new().expect_absent(&reference.taken).put(&reference.taken, encode(&reference));
    Ok(transaction.delete(keys::volume_name(&was.record.name)))
}
