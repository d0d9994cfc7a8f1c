//! Which NVMe hosts may use a volume.

use super::{ATTEMPTS_MAX, CatalogError, Reign, attempt};
use crate::map::{MapStore, Transaction};
use crate::names::check_nqn;
use crate::records::{HostAccess, Record, VolumeRecord, keys};
use crate::typed::{encode, get};
use types::VolumeId;

/// A change to the hosts of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostChange {
    /// Every host may use it.
    AllowAny,
    /// This host may use it. It begins the list of a volume that was open to all.
    Allow(String),
    /// Only hosts that are named may use it: none, if none was.
    DenyAny,
    /// This host may not use it any more.
    Deny(String),
}

/// Changes which hosts may use the volume. Nothing is changed where it is so already.
///
/// # Errors
/// If an NQN is none, the list is full, or one host is to be denied what is open to all.
pub async fn change_hosts(
    map: &dyn MapStore,
    id: VolumeId,
    change: &HostChange,
    open_by_default: bool,
    by: Reign,
) -> Result<VolumeRecord, CatalogError> {
    if let HostChange::Allow(nqn) | HostChange::Deny(nqn) = change {
        check_nqn(nqn)?;
    }
    let key = keys::volume(id);
    for _ in 0..ATTEMPTS_MAX {
        let found = get::<VolumeRecord>(map, &key).await?.ok_or(CatalogError::Gone(id))?;
        by.check(&found.record)?;
        let hosts = changed(&found.record, change, open_by_default)?;
        if hosts == found.record.hosts {
            return Ok(found.record);
        }
        let changed = VolumeRecord { hosts, ..found.record };
        attempt(map, Transaction::new().expect(changed.key(), found.modified).put(changed.key(), encode(&changed)))
            .await?;
    }
    Err(CatalogError::Contended)
}

fn changed(volume: &VolumeRecord, change: &HostChange, open_by_default: bool) -> Result<HostAccess, CatalogError> {
    let is_open = volume.hosts.is_open(open_by_default);
    let mut listed = volume.hosts.listed().to_vec();
    match change {
        HostChange::AllowAny => return Ok(HostAccess::Any),
        HostChange::Allow(nqn) => match listed.binary_search(nqn) {
            Ok(_) => {}
            Err(_) if listed.len() >= HostAccess::LISTED_MAX => {
                return Err(CatalogError::TooManyHosts(volume.name.clone()));
            }
            Err(place) => listed.insert(place, nqn.clone()),
        },
        HostChange::Deny(_) if is_open => return Err(CatalogError::OpenToAll(volume.name.clone())),
        HostChange::Deny(nqn) => listed.retain(|other| other != nqn),
        HostChange::DenyAny => {}
    }
    Ok(HostAccess::Listed(listed))
}
