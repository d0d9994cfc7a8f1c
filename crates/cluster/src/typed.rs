//! Records in and out of the map's bytes.

use crate::catalog::CatalogError;
use crate::map::{MapStore, Revision};
use crate::records::Record;
use serde::{Deserialize, Serialize};
use std::future::{Future, poll_fn};
use std::task::Poll;

/// A record and the revision that a compare-and-swap of it names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Versioned<T> {
    /// The record.
    pub record: T,
    /// The revision that last changed it.
    pub modified: Revision,
}

#[derive(Serialize)]
struct Stored<'a, T> {
    schema: u32,
    #[serde(flatten)]
    record: &'a T,
}

#[derive(Deserialize)]
struct Schema {
    schema: u32,
}

/// The record's bytes.
///
/// # Panics
/// Never: records are plain data.
pub fn encode<T: Record>(record: &T) -> Vec<u8> {
    serde_json::to_vec(&Stored { schema: T::SCHEMA, record }).expect("a record is plain data")
}

/// The record in `bytes`, found at `key`.
///
/// # Errors
/// If it is no such record, or of a later schema.
pub fn decode<T: Record>(key: &str, bytes: &[u8]) -> Result<T, CatalogError> {
    let bad = |why: String| CatalogError::BadRecord { key: key.to_owned(), why };
    let Schema { schema } = serde_json::from_slice(bytes).map_err(|error| bad(error.to_string()))?;
    if schema > T::SCHEMA {
        return Err(bad(format!("it has schema {schema}, this program knows up to {}: start a newer one", T::SCHEMA)));
    }
    serde_json::from_slice(bytes).map_err(|error| bad(error.to_string()))
}

/// The record at `key`.
pub async fn get<T: Record>(map: &dyn MapStore, key: &str) -> Result<Option<Versioned<T>>, CatalogError> {
    let Some(found) = map.get(key).await? else { return Ok(None) };
    Ok(Some(Versioned { record: decode(key, &found.value)?, modified: found.modified }))
}

/// The records at these keys, in their order; all are asked for at once.
pub async fn get_each<T: Record>(
    map: &dyn MapStore,
    keys: &[String],
) -> Result<Vec<Option<Versioned<T>>>, CatalogError> {
    let mut waits: Vec<_> = keys.iter().map(|key| Some(Box::pin(get::<T>(map, key)))).collect();
    let mut found: Vec<_> = keys.iter().map(|_| None).collect();
    poll_fn(|cx| {
        for (wait, found) in waits.iter_mut().zip(&mut found) {
            if let Some(Poll::Ready(answer)) = wait.as_mut().map(|wait| wait.as_mut().poll(cx)) {
                *wait = None;
                *found = answer?;
            }
        }
        if waits.iter().all(Option::is_none) { Poll::Ready(Ok(())) } else { Poll::Pending }
    })
    .await
    .map(|()| found)
}

/// All records whose key begins with `prefix`.
pub async fn list<T: Record>(map: &dyn MapStore, prefix: &str) -> Result<Vec<Versioned<T>>, CatalogError> {
    let listing = map.list(prefix).await?;
    let mut found = Vec::with_capacity(listing.items.len());
    for (at, item) in listing.items.iter().enumerate() {
        go_on(at).await;
        found.push(Versioned { record: decode(&item.key, &item.value)?, modified: item.modified });
    }
    Ok(found)
}

/// Of what is as long as the map so many are looked at in one turn of the core, which clients wait for.
const RECORDS_PER_TURN: usize = 256;

/// Before the record number `at` of many: the turn ends where it has gone on for long enough.
pub async fn go_on(at: usize) {
    if at > 0 && at.is_multiple_of(RECORDS_PER_TURN) {
        runtime::turn_end().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::ClusterRecord;

    #[test]
    fn a_record_of_a_later_schema_is_refused_not_guessed() {
        let error = decode::<ClusterRecord>("cluster", br#"{"schema":9,"id":"00","more":1}"#);
        let Err(CatalogError::BadRecord { why, .. }) = error else { panic!("{error:?}") };
        assert!(why.contains("schema 9"), "{why}");
    }
}
