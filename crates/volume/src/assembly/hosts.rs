//! Which NVMe hosts may use a volume: here only what the map says is changed and told to every core. The doors ask it of
//! each command, and the NVMe target waits until nothing runs any more of a host that was denied.

use super::{Assembly, VolumeError};
use crate::api::VolumeInfo;
use cluster::{HostChange, VolumeRecord, change_hosts, get, keys};
use types::{Mutant, mutant};

impl Assembly {
    /// Changes which hosts may use a volume; every core's directory says so when this returns. `open_by_default`: who may
    /// use a volume of which nobody has said anything.
    pub async fn change_hosts(
        &self,
        volume: &str,
        change: &HostChange,
        open_by_default: bool,
    ) -> Result<VolumeInfo, VolumeError> {
        let (info, by, alone) = self.alone_with(volume).await?;
        let before = get::<VolumeRecord>(&*self.0.map, &keys::volume(info.id)).await?;
        let was_open = before.is_some_and(|found| found.record.hosts.is_open(open_by_default));
        let changed = change_hosts(&*self.0.map, info.id, change, open_by_default, by).await?;
        self.refresh(&changed).await?;
        drop(alone);
        // Who allows one of a volume that was open to all denies all others.
        let is_closed = was_open && !changed.hosts.is_open(open_by_default);
        let denies = is_closed || matches!(change, HostChange::Deny(_) | HostChange::DenyAny);
        if denies && !mutant(Mutant::DeniedWithoutRaise) {
            // Nor does an earlier head do anything more for it that counts. No other change waits for that.
            self.raise_everywhere(info.id).await?;
        }
        self.served(&changed.name)
    }
}
