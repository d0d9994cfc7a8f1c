//! What the map says, for whoever asks how the cluster is: that is `cluster::health`, and none of it is thought over here, on a
//! core that serves.

use super::{Assembly, VolumeError};
use cluster::{CatalogError, Listing, Members};
use std::collections::BTreeMap;
use types::StoreId;

/// What the map says, and since when it has been so.
#[derive(Clone, Debug, Default)]
pub struct Standings {
    /// All of it.
    pub listing: Listing,
    /// Stores without a session, and since when this node has seen that: ns since 1970.
    pub away_since: BTreeMap<StoreId, u64>,
    /// Members of the store that holds the map.
    pub map_members: Members,
}

impl Assembly {
    /// What the map says.
    ///
    /// # Errors
    /// The map's.
    pub async fn standing(&self) -> Result<Standings, VolumeError> {
        let listing = self.0.map.list("").await.map_err(CatalogError::from)?;
        Ok(Standings { listing, away_since: self.0.heads.away_since(), map_members: self.0.map.members() })
    }
}
