//! The map as a file: to be put into another store, which has nothing.
//!
//! ```text
//!   export   all keys of one revision, but for what lives under a lease (sessions, doors): who lives says so again
//!   import   into a store without a cluster; numbers and epochs go on far behind those of the file
//! ```
//!
//! A map that is older than what devices know gives nothing away: each member of a group refuses a record that is older than its
//! own, so that the group stops; and a head, a keeper or a new layer gets a number that nobody had since. What was made after the
//! export is not in it.

use crate::catalog::CatalogError;
use crate::map::{KeyValue, MapError, MapStore, Outcome, Revision, Transaction};
use crate::records::{Allocator, ClusterRecord, ControlRecord, FamilyRecord, VolumeRecord, keys};
use crate::typed::{decode, encode};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use types::{ClusterId, VolumeEpoch};

/// What is written today.
pub(crate) const FORMAT: u32 = 1;
/// Ids and epochs that may have been given since the export are not given again.
pub(crate) const SKIPPED: u32 = 1 << 16;
/// Keys in one transaction.
const KEYS_AT_ONCE: usize = 64;
/// Requests without an answer, one after the other, until the import is given up.
const TRIES: u32 = 6;

/// All that a map holds for longer than a node lives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Archive {
    /// Of this file: 1.
    pub format: u32,
    /// The revision that it is of.
    pub revision: u64,
    /// Wall time of the export, ns since 1970: only told.
    pub taken_at_ns: u64,
    /// What each key holds: all of it is JSON.
    pub entries: BTreeMap<String, Value>,
}

/// Why a file is not put into a map.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImportError {
    /// Not one that this program knows.
    #[error("it is no export of a map in format {FORMAT}: {0}")]
    Format(String),
    /// There is one.
    #[error("cluster {0} is in that map already: only a map without a cluster takes an export")]
    NotEmpty(ClusterId),
    /// The map.
    #[error(transparent)]
    Map(#[from] CatalogError),
}

impl Archive {
    /// All of a map.
    ///
    /// # Errors
    /// The map's; a key that holds something else than JSON.
    pub async fn export(map: &dyn MapStore, taken_at_ns: u64) -> Result<Self, CatalogError> {
        let listing = map.list("").await?;
        let lasting = listing.items.iter().filter(|item| item.lease.is_none());
        let entry = |item: &Arc<KeyValue>| match serde_json::from_slice(&item.value) {
            Ok(value) => Ok((item.key.clone(), value)),
            Err(error) => Err(CatalogError::BadRecord { key: item.key.clone(), why: error.to_string() }),
        };
        let entries = lasting.map(entry).collect::<Result<_, _>>()?;
        Ok(Self { format: FORMAT, revision: listing.revision.0, taken_at_ns, entries })
    }

    /// The cluster whose map it is.
    ///
    /// # Errors
    /// It is no map of a cluster.
    pub fn cluster(&self) -> Result<ClusterRecord, ImportError> {
        if self.format != FORMAT {
            return Err(ImportError::Format(format!("it has format {}", self.format)));
        }
        let found =
            self.entries.get(keys::CLUSTER).ok_or_else(|| ImportError::Format("no cluster is in it".to_owned()))?;
        let bytes = serde_json::to_vec(found).expect("it was read");
        decode(keys::CLUSTER, &bytes).map_err(|error| ImportError::Format(error.to_string()))
    }

    /// Puts all of it into a map that has no cluster; the cluster last, so that it is there with all of it or not at all. Cut
    /// off, the same goes on. Returns how many keys.
    ///
    /// # Errors
    /// See above; the map's.
    pub async fn import(&self, map: &dyn MapStore) -> Result<usize, ImportError> {
        self.cluster()?;
        let there = map.list("").await.map_err(CatalogError::from)?.items;
        if let Some(cluster) = there.iter().find(|item| item.key == keys::CLUSTER) {
            let record: ClusterRecord = decode(&cluster.key, &cluster.value)?;
            return Err(ImportError::NotEmpty(record.id));
        }
        let mut due = Vec::with_capacity(self.entries.len());
        for (key, value) in self.entries.iter().filter(|(key, _)| *key != keys::CLUSTER) {
            due.push((key.clone(), behind(key, value)?));
        }
        let cluster = serde_json::to_vec(&self.entries[keys::CLUSTER]).expect("it was read");
        let parts = due.chunks(KEYS_AT_ONCE).map(<[_]>::to_vec).chain([vec![(keys::CLUSTER.to_owned(), cluster)]]);
        for part in parts {
            put(map, part, &there).await?;
        }
        Ok(self.entries.len())
    }
}

/// What a key is to hold: numbers that are given out go on far behind, lest one is given twice.
fn behind(key: &str, value: &Value) -> Result<Vec<u8>, CatalogError> {
    let bytes = serde_json::to_vec(value).expect("it was read");
    let later = |epoch: VolumeEpoch| VolumeEpoch(epoch.0 + SKIPPED);
    Ok(match key {
        _ if key.starts_with(keys::VOLUMES) => {
            let volume: VolumeRecord = decode(key, &bytes)?;
            encode(&VolumeRecord { volume_epoch: later(volume.volume_epoch), ..volume })
        }
        _ if key.starts_with(keys::FAMILIES) => {
            let family: FamilyRecord = decode(key, &bytes)?;
            encode(&FamilyRecord { epoch: later(family.epoch), ..family })
        }
        _ if key.starts_with(keys::ALLOCATORS) => {
            let allocator: Allocator = decode(key, &bytes)?;
            encode(&Allocator { next: allocator.next + u64::from(SKIPPED), ..allocator })
        }
        keys::CONTROL => {
            let control: ControlRecord = decode(key, &bytes)?;
            encode(&ControlRecord { epoch: control.epoch + u64::from(SKIPPED), ..control })
        }
        _ => bytes,
    })
}

/// Until it is known to be done, or the map does not answer for long: what stands there is what an import that was cut off has
/// put there.
async fn put(map: &dyn MapStore, part: Vec<(String, Vec<u8>)>, there: &[Arc<KeyValue>]) -> Result<(), CatalogError> {
    let is_there =
        |(key, value): &&(String, Vec<u8>)| there.iter().any(|item| item.key == *key && item.value == *value);
    let missing = part.iter().filter(|entry| !is_there(entry));
    let mut transaction = Transaction::new();
    for (key, value) in missing {
        let modified = there.iter().find(|item| item.key == *key).map_or(Revision(0), |item| item.modified);
        transaction = transaction.expect(key, modified).put(key, value.clone());
    }
    if transaction.changes.is_empty() {
        return Ok(());
    }
    for _ in 0..TRIES {
        match map.transact(transaction.clone()).await {
            Ok(Outcome::Committed(_)) => return Ok(()),
            // It may have been done without an answer.
            Ok(Outcome::Conflict) => {
                for (key, value) in &part {
                    if map.get(key).await?.is_none_or(|found| found.value != *value) {
                        return Err(CatalogError::Contended);
                    }
                }
                return Ok(());
            }
            Err(MapError::Unknown) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(MapError::Unknown.into())
}
