//! `cairn status`.

use crate::Failure;
use crate::client::Client;
use crate::output::{Format, show};
use node::admin::types::{Health, Status};
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
    text += &format!("\ngroups   {} of {} serve\n", status.groups_serving, status.groups);
    for device in &status.devices {
        let percent = |bytes: u64| bytes.saturating_mul(100).checked_div(device.capacity_bytes).unwrap_or(0);
        let (used, live) = (percent(device.used_bytes), percent(device.live_bytes));
        let state = if device.failed.is_some() { "failed" } else { "in use" };
        text += &format!(
            "device   {}: {}, {state}, {used} % full, {live} % live data\n",
            device.path,
            ByteSize(device.size_bytes)
        );
    }
    text
}
