//! A map as somebody hears of it who keeps a copy.

use crate::archive::Archive;
use crate::map::{Event, Listing, Revision};
use crate::records::keys;
use std::collections::BTreeMap;

/// See the module.
#[derive(Debug, Default)]
pub struct MapCopy {
    revision: Revision,
    entries: BTreeMap<String, Vec<u8>>,
}

impl MapCopy {
    /// All that lasts of what was listed.
    pub fn of(listing: Listing) -> Self {
        let lasting = listing.items.into_iter().filter(|item| !keys::is_of_a_life(&item.key));
        Self { revision: listing.revision, entries: lasting.map(|item| (item.key, item.value)).collect() }
    }

    /// Takes in what has happened; whether any of it is worth a new file: how full devices are is not.
    pub fn hear(&mut self, events: &[Event]) -> bool {
        let mut is_worth_it = false;
        for Event { revision, key, value } in events {
            self.revision = self.revision.max(*revision);
            if keys::is_of_a_life(key) {
                continue;
            }
            is_worth_it |= !key.starts_with(keys::STORE_USAGE);
            match value {
                Some(value) => self.entries.insert(key.clone(), value.clone()),
                None => self.entries.remove(key),
            };
        }
        is_worth_it
    }

    /// The revision that it is of.
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// As an export would be.
    ///
    /// # Errors
    /// A key that holds no JSON.
    pub fn archive(&self, taken_at_ns: u64) -> Result<Archive, serde_json::Error> {
        let entries = self.entries.iter().map(|(key, value)| Ok((key.clone(), serde_json::from_slice(value)?)));
        Ok(Archive::new(self.revision.0, taken_at_ns, entries.collect::<Result<_, serde_json::Error>>()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::StoreId;

    const A: StoreId = StoreId(1);
    const B: StoreId = StoreId(2);

    #[test]
    fn a_copy_is_what_an_export_would_be() {
        let item = |key: &str, value: &str| crate::map::KeyValue {
            key: key.to_owned(),
            value: value.as_bytes().to_vec(),
            modified: Revision(3),
            lease: None,
        };
        let items = vec![item("volumes/1", "{\"a\":1}"), item(&keys::session(A), "{}")];
        let mut copy = MapCopy::of(Listing { revision: Revision(7), items });
        let event = |revision, key: String, value: Option<&str>| Event {
            revision: Revision(revision),
            key,
            value: value.map(|value| value.as_bytes().to_vec()),
        };
        assert!(!copy.hear(&[event(8, keys::session(B), Some("{}"))]));
        assert!(!copy.hear(&[event(9, format!("{}1", keys::STORE_USAGE), Some("{}"))]), "not for that alone");
        assert!(copy.hear(&[event(10, "volumes/1".to_owned(), None), event(10, "volumes/2".to_owned(), Some("{}"))]));
        let archive = copy.archive(5).expect("it is JSON");
        assert_eq!((archive.revision, archive.entries.len()), (10, 2), "{archive:?}");
        assert!(archive.entries.contains_key("volumes/2"));
    }
}
