//! The cluster's map without its secrets: only what is known to hold none is told.

use cluster::{Listing, keys};
use serde_json::{Value, json};

/// Keys that hold no secret: each, or the beginning of many. What is not named here is left out, as are the key by which nodes know
/// each other and the data keys of encrypted volumes, wrapped as they are.
const TOLD: [&str; 26] = [
    keys::CLUSTER,
    keys::NODES,
    keys::DEVICES,
    keys::GROUPS,
    keys::VOLUMES,
    keys::POOLS,
    keys::TABLES,
    keys::SESSIONS,
    keys::CLIENTS,
    keys::DOORS,
    keys::FAMILIES,
    keys::LAYERS,
    keys::SNAPSHOTS,
    keys::NODE_PLACES,
    keys::DEVICE_PLACES,
    keys::POOL_RULES,
    keys::NODE_SETS,
    keys::WANTED,
    keys::SPLITS,
    keys::CONTROL,
    keys::DUTIES,
    keys::STORE_USAGE,
    "allocators/",
    "foundings/",
    "pool-drafts/",
    "volume-names/",
];

fn is_told(key: &str) -> bool {
    TOLD.iter().any(|told| if told.ends_with('/') { key.starts_with(told) } else { key == *told })
}

/// All of the map but for what holds a secret, or might.
pub(crate) fn without_secrets(listing: &Listing) -> Value {
    let mut entries = serde_json::Map::new();
    let mut taken_out = Vec::new();
    for item in &listing.items {
        match serde_json::from_slice::<Value>(&item.value) {
            Ok(value) if is_told(&item.key) => drop(entries.insert(item.key.clone(), value)),
            _ => taken_out.push(item.key.clone()),
        }
    }
    json!({ "revision": listing.revision.0, "entries": entries, "taken_out": taken_out })
}

#[cfg(test)]
mod tests {
    use super::*;
    use cluster::{KeyValue, Revision};
    use std::sync::Arc;

    #[test]
    fn keys_of_the_cluster_and_of_volumes_are_taken_out_and_what_is_not_known_too() {
        let item = |key: &str| {
            let value = format!("{{\"secret\":\"MARKED-{key}\"}}").into_bytes();
            Arc::new(KeyValue { key: key.to_owned(), value, modified: Revision(1), lease: None })
        };
        let data_key = keys::data_key(types::KeyId(7));
        let hidden = [keys::CLUSTER_KEY, &data_key, "something-new/1", "cluster-secret"];
        let shown = [keys::CLUSTER.to_owned(), keys::volume(types::VolumeId(1)), keys::group(types::GroupId(1))];
        let items = hidden.iter().map(|key| item(key)).chain(shown.iter().map(|key| item(key))).collect();
        let told = without_secrets(&Listing { revision: Revision(3), items }).to_string();
        for key in hidden {
            assert!(!told.contains(&format!("MARKED-{key}")) && told.contains(key), "{key}: {told}");
        }
        for key in shown {
            assert!(told.contains(&format!("MARKED-{key}")), "{key}: {told}");
        }
    }
}
