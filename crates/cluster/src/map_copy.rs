//! A copy of the map as a file: what an export would be, of what was listed, without taking its values apart.

use crate::archive::FORMAT;
use crate::map::{Event, Listing};
use crate::records::keys;
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

/// Whether any of what has happened is worth a new copy: how full devices are is not, nor who is there.
pub fn is_worth_a_copy(events: &[Event]) -> bool {
    events.iter().any(|Event { key, .. }| !keys::is_of_a_life(key) && !key.starts_with(keys::STORE_USAGE))
}

/// All that lasts of what was listed, in the format of an [`Archive`](crate::Archive).
///
/// # Errors
/// A key that holds no JSON.
pub fn copy_of(listing: &Listing, taken_at_ns: u64) -> Result<Vec<u8>, serde_json::Error> {
    let revision = listing.revision.0;
    serde_json::to_vec(&Copied { format: FORMAT, revision, taken_at_ns, entries: Entries(listing) })
}

/// An archive that borrows.
#[derive(Serialize)]
struct Copied<'a> {
    format: u32,
    revision: u64,
    taken_at_ns: u64,
    entries: Entries<'a>,
}

struct Entries<'a>(&'a Listing);

impl Serialize for Entries<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let lasting = self.0.items.iter().filter(|item| !keys::is_of_a_life(&item.key));
        let read = |value| serde_json::from_slice::<&RawValue>(value).map_err(serde::ser::Error::custom);
        let entries = lasting.map(|item| Ok((&item.key, read(&item.value)?)));
        serializer.collect_map(entries.collect::<Result<Vec<_>, S::Error>>()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::archive::Archive;
    use crate::map::{KeyValue, Revision};
    use std::sync::Arc;
    use types::StoreId;

    fn item(key: &str, value: &str) -> Arc<KeyValue> {
        let (key, value) = (key.to_owned(), value.as_bytes().to_vec());
        Arc::new(KeyValue { key, value, modified: Revision(3), lease: None })
    }

    #[test]
    fn a_copy_is_what_an_export_would_be() {
        let items =
            vec![item(&keys::session(StoreId(1)), "{}"), item("volumes/1", "{\"a\":1}"), item("volumes/2", "[2, 3]")];
        let copy = copy_of(&Listing { revision: Revision(7), items }, 5).expect("it is JSON");
        let archive: Archive = serde_json::from_slice(&copy).expect("an archive");
        assert_eq!((archive.format, archive.revision, archive.taken_at_ns), (FORMAT, 7, 5));
        let entries = [("volumes/1", serde_json::json!({"a": 1})), ("volumes/2", serde_json::json!([2, 3]))];
        assert!(archive.entries.into_iter().eq(entries.map(|(key, value)| (key.to_owned(), value))));
        let broken = Listing { revision: Revision(7), items: vec![item("volumes/1", "{")] };
        assert!(copy_of(&broken, 5).is_err(), "no copy rather than half of one");
    }

    #[test]
    fn what_does_not_last_is_not_worth_a_copy() {
        let event = |key: String| Event { revision: Revision(8), key, value: None };
        let (session, usage) = (event(keys::session(StoreId(2))), event(format!("{}1", keys::STORE_USAGE)));
        assert!(!is_worth_a_copy(&[session.clone(), usage.clone()]));
        assert!(is_worth_a_copy(&[session, usage, event("volumes/1".to_owned())]));
    }
}
