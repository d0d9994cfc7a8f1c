//! How the node is.

use super::Assembly;
use crate::head::Head;
use runtime::channel::cross;
use std::path::PathBuf;
use std::rc::Rc;
use types::StoreId;

/// How a node is.
#[derive(Clone, Debug, Default)]
pub struct NodeStatus {
    /// Its devices.
    pub devices: Vec<DeviceStatus>,
    /// Placement groups it should have a part in.
    pub groups_total: usize,
    /// Those of them that serve.
    pub groups_serving: usize,
    /// What is wrong; empty: nothing.
    pub reasons: Vec<String>,
    /// Deleted volumes whose space is not back yet.
    pub deleting_volumes: usize,
}

/// How a device is.
#[derive(Clone, Debug)]
pub struct DeviceStatus {
    /// Its store.
    pub store: StoreId,
    /// Where.
    pub path: PathBuf,
    /// Its size.
    pub size_bytes: u64,
    /// Bytes of segments in use.
    pub used_bytes: u64,
    /// Bytes of data in them; the rest comes back when nothing in a segment lives any more.
    pub live_bytes: u64,
    /// Bytes that may be filled with new blocks before they are refused.
    pub capacity_bytes: u64,
    /// Why it takes nothing more.
    pub failed: Option<String>,
    /// Damaged places found when it was opened.
    pub damage: u64,
    /// Records written since then.
    pub appends: u64,
    /// Entries in them.
    pub entries: u64,
    /// Bytes written.
    pub device_bytes_written: u64,
    /// Bytes read.
    pub device_bytes_read: u64,
}

/// What one core has to tell.
#[derive(Default)]
struct CoreStatus {
    groups_total: usize,
    groups_serving: usize,
    reasons: Vec<String>,
    shards: Vec<ShardStatus>,
}

struct ShardStatus {
    store: StoreId,
    damage: u64,
    statistics: store::Statistics,
}

impl Assembly {
    /// How the node is now.
    pub async fn status(&self) -> NodeStatus {
        let node = &self.0;
        let (told, mut all_told) = cross(usize::from(node.cores));
        for core in 0..node.cores {
            let told = told.clone();
            let tell = move |head: Rc<Head>| {
                Box::pin(async move {
                    let _ = told.send(core_status(&head)).await;
                }) as crate::message::LocalFuture
            };
            node.head.spawn_on(core, tell);
        }
        let mut status = NodeStatus {
            groups_total: node.groups_missing,
            reasons: node.reasons.clone(),
            deleting_volumes: node.deleting.borrow().len(),
            devices: node.devices.iter().map(device_status).collect(),
            ..NodeStatus::default()
        };
        for _ in 0..node.cores {
            let Ok(core) = all_told.recv().await else { continue };
            status.groups_total += core.groups_total;
            status.groups_serving += core.groups_serving;
            status.reasons.extend(core.reasons);
            for shard in core.shards {
                let Some(device) = status.devices.iter_mut().find(|device| device.store == shard.store) else {
                    continue;
                };
                device.damage += shard.damage;
                device.appends += shard.statistics.appends;
                device.entries += shard.statistics.entries;
                device.device_bytes_written += shard.statistics.appended_bytes;
                device.device_bytes_read += shard.statistics.device_read_bytes;
            }
        }
        for device in &status.devices {
            let Some(failed) = &device.failed else { continue };
            // Its groups stopped for this very reason: it is told once, with the device.
            status.reasons.retain(|reason| reason != failed);
            let path = device.path.display();
            status.reasons.push(format!("{path}: {failed}: put the device right and start the node again"));
        }
        status
    }
}

fn core_status(head: &Head) -> CoreStatus {
    let mut status = CoreStatus::default();
    for shard in head.shards() {
        for group in shard.groups.groups() {
            status.groups_total += 1;
            match group.stopped() {
                None => status.groups_serving += 1,
                // One line for all groups of a store that fail for one reason: the device says it.
                Some(reason) if status.reasons.iter().all(|known| known != reason) => {
                    status.reasons.push(reason.to_owned());
                }
                Some(_) => {}
            }
        }
        status.shards.push(ShardStatus {
            store: shard.store,
            damage: shard.damage,
            statistics: shard.groups.store().statistics(),
        });
    }
    status
}

fn device_status(device: &super::devices::OpenDevice) -> DeviceStatus {
    let usage = device.store.usage();
    DeviceStatus {
        store: device.store.store_id(),
        path: device.path.clone(),
        size_bytes: device.size_bytes,
        used_bytes: usage.used_bytes,
        live_bytes: usage.live_bytes,
        capacity_bytes: usage.usable_bytes,
        failed: device.store.failed().map(|error| error.to_string()),
        damage: device.store.damage().len() as u64,
        appends: 0,
        entries: 0,
        device_bytes_written: 0,
        device_bytes_read: 0,
    }
}
