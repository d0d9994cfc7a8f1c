//! A copy of the map as a file: what an export would be, of what was listed, without taking its values apart.

use crate::archive::FORMAT;
use crate::map::Listing;
use crate::records::keys;
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

/// Whether what happens to a key belongs into copies: how full devices are does not, nor who is there.
pub fn is_in_copies(key: &str) -> bool {
    !keys::is_of_a_life(key) && !key.starts_with(keys::STORE_USAGE)
}

/// What a copy is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyFormat {
    /// An [`Archive`](crate::Archive), by itself.
    Archive,
    /// What journals of this line go on from. A program that knows nothing of them does not take it for all there is: to it, its
    /// format is that of a later one.
    Base {
        /// Of these journals.
        line: u64,
    },
}

impl CopyFormat {
    /// The format of a base.
    pub const OF_A_BASE: u32 = 2;
}

/// All that lasts of what was listed.
///
/// # Errors
/// A key that holds no JSON.
pub fn copy_of(listing: &Listing, taken_at_ns: u64, format: CopyFormat) -> Result<Vec<u8>, serde_json::Error> {
    let (format, line) = match format {
        CopyFormat::Archive => (FORMAT, None),
        CopyFormat::Base { line } => (CopyFormat::OF_A_BASE, Some(line)),
    };
    let revision = listing.revision.0;
    serde_json::to_vec(&Copied { format, line, revision, taken_at_ns, entries: Entries(listing) })
}

/// An archive that borrows.
#[derive(Serialize)]
struct Copied<'a> {
    format: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u64>,
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
        let listing = Listing { revision: Revision(7), items };
        let copy = copy_of(&listing, 5, CopyFormat::Archive).expect("it is JSON");
        let archive: Archive = serde_json::from_slice(&copy).expect("an archive");
        assert_eq!((archive.format, archive.revision, archive.taken_at_ns), (FORMAT, 7, 5));
        let entries = [("volumes/1", serde_json::json!({"a": 1})), ("volumes/2", serde_json::json!([2, 3]))];
        assert!(archive.entries.into_iter().eq(entries.map(|(key, value)| (key.to_owned(), value))));
        let broken = Listing { revision: Revision(7), items: vec![item("volumes/1", "{")] };
        assert!(copy_of(&broken, 5, CopyFormat::Archive).is_err(), "no copy rather than half of one");
    }

    #[test]
    fn what_does_not_last_is_not_worth_a_copy() {
        assert!(!is_in_copies(&keys::session(StoreId(2))) && !is_in_copies(&keys::store_usage(StoreId(2))));
        assert!(is_in_copies("volumes/1") && is_in_copies(&keys::group(types::GroupId(1))));
    }

    /// What only the map and its copies know; all else is known to devices, or begins anew far ahead.
    #[test]
    fn names_layers_and_places_are_waited_for() {
        for key in
            ["volumes/1", "layers/1", "snapshots/1/a", "pools/p", "tables/1/0", "data-keys/1", "devices/1", "nodes/1"]
        {
            assert!(keys::is_copied(key), "{key}");
        }
        for key in ["groups/1", "families/1", "allocators/layer", "store-usage/1", "sessions/1", "control", "duties"] {
            assert!(!keys::is_copied(key), "{key}");
        }
    }

    #[test]
    fn a_base_is_no_archive_to_who_knows_no_journals() {
        let listing = Listing { revision: Revision(7), items: vec![item("volumes/1", "{}")] };
        let base = copy_of(&listing, 5, CopyFormat::Base { line: 3 }).expect("it is JSON");
        let archive: Archive = serde_json::from_slice(&base).expect("its words are known");
        assert!(archive.cluster().is_err_and(|error| error.to_string().contains("format 2")));
    }
}
