//! Orders about the NVMe hosts of a volume: the map says who may use it, every core is told, and only when nothing runs
//! any more of a host that was denied the order is reported done. So who takes a volume from one host and gives it to
//! another needs no other fence.

use crate::control::{Answer, ControlError};
use crate::local_node::control_error;
use crate::volume_spec::VolumeName;
use nvme::serve::Target;
use std::sync::Arc;
use std::time::Duration;
use volume::{Assembly, HostChange, VolumeInfo};

/// What runs of a denied host is given to end: below the time after which the admin API gives up.
const FENCE_TIMEOUT: Duration = Duration::from_secs(3);

/// A change to the hosts of a volume.
pub(crate) struct HostOrder {
    pub(crate) name: VolumeName,
    pub(crate) change: HostChange,
    pub(crate) open_by_default: bool,
}

/// Carries an order out. Nobody may be waiting for the answer any more: it was carried out all the same.
pub(crate) async fn answer(
    assembly: Assembly,
    target: Option<Arc<Target>>,
    order: HostOrder,
    reply: Answer<VolumeInfo>,
) {
    let _ = reply.send(carry_out(&assembly, target, order).await);
}

async fn carry_out(
    assembly: &Assembly,
    target: Option<Arc<Target>>,
    order: HostOrder,
) -> Result<VolumeInfo, ControlError> {
    let HostOrder { name, change, open_by_default } = order;
    let changed = assembly.change_hosts(name.as_str(), &change, open_by_default).await.map_err(control_error)?;
    if let Some(target) = target
        && runtime::timeout(FENCE_TIMEOUT, target.fence_hosts(changed.nsid)).await.is_err()
    {
        return Err(ControlError::Unavailable(format!(
            "commands of hosts that may not use the volume '{name}' any more have not ended within {} s: they get no new \
             ones in; say it again until this is gone before another host uses the volume",
            FENCE_TIMEOUT.as_secs()
        )));
    }
    Ok(changed)
}
