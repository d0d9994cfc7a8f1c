//! `cairn status`.

use crate::Failure;
use crate::client::Client;
use crate::output::{Format, show};
use crate::volume::compression_name;
use node::admin::types::{Capacity, Device, Health, Status};
use node::size::ByteSize;

pub(crate) fn run(client: &Client, format: Format) -> Result<(), Failure> {
    show(format, &client.status()?, text)
}

fn text(status: &Status) -> String {
    let health = match status.health {
        Health::Healthy => "healthy",
        Health::Degraded => "degraded",
        Health::Unavailable => "unavailable",
        Health::Damaged => "damaged",
    };
    let mut text = format!("health   {health}\n");
    for reason in &status.reasons {
        text += &format!("         - {reason}\n");
    }
    text += &format!("cluster  {} (cairn {})\n", status.cluster_id, status.version);
    text += &format!("volumes  {}", status.volumes);
    if status.volumes_deleting > 0 {
        text += &format!(", {} being deleted", status.volumes_deleting);
    }
    if !status.trash.is_empty() {
        text += &format!(", {} in the trash", status.trash.len());
    }
    if !status.volumes_locked.is_empty() {
        text += &format!(", {} locked ({})", status.volumes_locked.len(), status.volumes_locked.join(", "));
    }
    text += "\n";
    for pool in &status.pools {
        let (replicas, compression) = (pool.replicas, compression_name(pool.compression));
        let copies = if replicas == 1 { "1 copy".to_owned() } else { format!("{replicas} copies") };
        text += &format!("pool     {}: {copies} of each block, compression {compression}\n", pool.name);
    }
    text += &capacity(&status.capacity);
    text += &format!("groups   {} of {} serve\n", status.groups_serving, status.groups);
    for risk in status.at_risk.iter().filter(|risk| !risk.volumes.is_empty()) {
        text += &format!("at risk  {}: {}\n", risk.nodes.join(" or "), risk.volumes.join(", "));
    }
    for doing in &status.doing {
        text += &format!("doing    {}\n", crate::duty::doing_text(doing));
    }
    for device in &status.devices {
        let used = percent(device.live_bytes, device.capacity_bytes);
        let state = state_of(device);
        text += &format!("device   {}: {}, {state}, {used} % full\n", device.path, ByteSize(device.size_bytes));
    }
    text
}

/// How the device is, in words.
pub(crate) fn state_of(device: &Device) -> &'static str {
    match device {
        Device { failed: Some(_), .. } => "failed",
        Device { slow: Some(_), .. } => "slow",
        Device { throttling: true, .. } => "writes wait for space to be cleaned",
        _ => "in use",
    }
}

pub(crate) fn percent(part: u64, whole: u64) -> u64 {
    part.saturating_mul(100).checked_div(whole).unwrap_or(0)
}

/// What there is, what is taken, and what the volumes promise together.
fn capacity(capacity: &Capacity) -> String {
    let size = |bytes: u64| ByteSize(bytes).rounded();
    let mut text = format!(
        "space    {} of {} used ({} %), devices of {} in all; the volumes promise {} ({} %)",
        size(capacity.used_bytes),
        size(capacity.usable_bytes),
        percent(capacity.used_bytes, capacity.usable_bytes),
        size(capacity.raw_bytes),
        size(capacity.provisioned_bytes),
        capacity.overcommit_percent,
    );
    if capacity.overcommit_percent > 100 {
        text += ": more than the devices can hold";
    }
    text + "\n"
}
