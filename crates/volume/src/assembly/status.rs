//! How the node is.

use super::devices::Unusable;
use super::{Assembly, Reason, Relocation, TrashedVolume};
use crate::api::VolumeInfo;
use crate::head::Head;
use replication::node::{PeerTraffic, SpokenCounts};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use types::{Mutant, NodeId, StoreId, mutant};

/// Longer than it takes others to lead what a node led that says nothing, as long as the map answers.
const SILENT: Duration = Duration::from_secs(8);

/// How a node is.
#[derive(Clone, Debug, Default)]
pub struct NodeStatus {
    /// Its devices.
    pub devices: Vec<DeviceStatus>,
    /// Placement groups it should have a part in.
    pub groups_total: usize,
    /// Those of them that may answer now: their leader has its leases, its session where it needs one, and enough
    /// copies to write.
    pub groups_serving: usize,
    /// What is wrong; empty: nothing.
    pub reasons: Vec<String>,
    /// Deleted volumes whose space is not back yet.
    pub deleting_volumes: usize,
    /// Deleted volumes that are kept for a term.
    pub trash: Vec<TrashedVolume>,
    /// Sum of the sizes of all volumes, those in the trash too: what they could come to hold.
    pub provisioned_bytes: u64,
    /// Volumes that this node moves to other groups, by name.
    pub relocations: Vec<(String, Relocation)>,
    /// What was said and heard of what only a later release has, and connections that were closed over what no node sends.
    pub spoken: SpokenCounts,
    /// What goes on between a node (the first) and each node of the cluster, itself too.
    pub peers: BTreeMap<(NodeId, NodeId), PeerTraffic>,
}

impl NodeStatus {
    /// That of another node of the same cluster, too.
    pub fn add(&mut self, other: Self) {
        self.devices.extend(other.devices);
        self.peers.extend(other.peers);
        self.groups_total += other.groups_total;
        self.groups_serving += other.groups_serving;
        self.reasons.extend(other.reasons);
        self.deleting_volumes += other.deleting_volumes;
        self.trash.extend(other.trash);
        self.provisioned_bytes += other.provisioned_bytes;
        self.relocations.extend(other.relocations);
        self.spoken.sent += other.spoken.sent;
        self.spoken.received += other.spoken.received;
        self.spoken.fields_received += other.spoken.fields_received;
        self.spoken.refused += other.spoken.refused;
    }
}

/// How a device is.
#[derive(Clone, Debug, Default)]
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
    /// Bytes that can be stored: the device less what is kept back for the store itself.
    pub capacity_bytes: u64,
    /// Why it takes nothing more.
    pub failed: Option<String>,
    /// Why it is slow, if it is.
    pub slow: Option<String>,
    /// Writers wait for the cleaner, or did a moment ago.
    pub throttling: bool,
    /// How often one did since the device was opened.
    pub throttled: u64,
    /// Damaged places found when it was opened or read since.
    pub damage: u64,
    /// They stay damaged: what they lack has no room here as long as they are kept.
    pub has_no_room_to_mend: bool,
    /// Those that reads met: where, of which volume. Bounded; [`damage`](Self::damage) counts them all.
    pub damaged: Vec<String>,
    /// Records written since then.
    pub appends: u64,
    /// Entries in them.
    pub entries: u64,
    /// Segments that were cleaned since then.
    pub segments_cleaned: u64,
    /// Bytes written.
    pub device_bytes_written: u64,
    /// Bytes read.
    pub device_bytes_read: u64,
}

pub use cluster::health::{REFUSED_PERCENT, WARNING_PERCENT};

/// What a device's fill means for its clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fill {
    /// There is room.
    Room,
    /// From [`WARNING_PERCENT`] on.
    Warning,
    /// From [`REFUSED_PERCENT`] on: new blocks are refused; overwrites, discards and deletes go on.
    Full,
}

impl DeviceStatus {
    /// How much of what can be stored is stored.
    pub fn used_percent(&self) -> u64 {
        self.live_bytes.saturating_mul(100).checked_div(self.capacity_bytes).unwrap_or(0)
    }

    /// What that means.
    pub fn fill(&self) -> Fill {
        match self.used_percent() {
            ..WARNING_PERCENT => Fill::Room,
            WARNING_PERCENT..REFUSED_PERCENT => Fill::Warning,
            REFUSED_PERCENT.. => Fill::Full,
        }
    }
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
    damaged: Vec<String>,
    slow: Option<store::Slow>,
    throttling: bool,
    statistics: store::Statistics,
}

impl Assembly {
    /// How the node is now.
    pub async fn status(&self) -> NodeStatus {
        let node = &self.0;
        let mut status = NodeStatus {
            groups_total: node.groups_missing,
            reasons: self
                .still_wrong()
                .chain(node.heads.troubles())
                .chain(self.who_waits())
                .chain(self.who_is_apart())
                .chain(self.who_keeps_no_copy())
                .collect(),
            deleting_volumes: node.deleting.borrow().len(),
            provisioned_bytes: self.provisioned_bytes(),
            relocations: self.relocations(),
            trash: self.trash(),
            spoken: node.groups.spoken(),
            peers: node.groups.traffic().into_iter().map(|(peer, its)| ((node.id, peer), its)).collect(),
            devices: node.devices.borrow().iter().map(device_status).collect(),
            ..NodeStatus::default()
        };
        let silent = Arc::new(self.silent_stores());
        let of_cores = self.on_each_core(move |head| {
            let silent = silent.clone();
            Box::pin(async move { core_status(&head, &silent) })
        });
        for core in of_cores.await {
            status.groups_total += core.groups_total;
            status.groups_serving += core.groups_serving;
            status.reasons.extend(core.reasons);
            for shard in core.shards {
                let Some(device) = status.devices.iter_mut().find(|device| device.store == shard.store) else {
                    continue;
                };
                device.damage += shard.damage;
                device.damaged.extend(shard.damaged);
                device.slow = device.slow.take().or(shard.slow.map(in_words));
                device.throttling |= shard.throttling;
                device.throttled += shard.statistics.throttled;
                device.appends += shard.statistics.appends;
                device.entries += shard.statistics.entries;
                device.segments_cleaned += shard.statistics.segments_cleaned;
                device.device_bytes_written += shard.statistics.appended_bytes;
                device.device_bytes_read += shard.statistics.device_read_bytes;
            }
        }
        for (device, open) in status.devices.iter().zip(node.devices.borrow().iter()) {
            let Some(failed) = open.store.failed() else { continue };
            // Its groups stopped for this very reason: it is told once, with the device.
            let text = failed.to_string();
            status.reasons.retain(|reason| *reason != text);
            let remedy = match failed {
                store::AppendError::Stopped { .. } => {
                    "start the node again; a store that stops a second time at the same record stays stopped: report it \
                     then, and see what `cairn device check` says"
                }
                _ => "put the device right and start the node again",
            };
            status.reasons.push(format!("{}: {text}: {remedy}", device.path.display()));
        }
        for Unusable { record, why } in &*node.unusable.borrow() {
            // Another may have come to its place since.
            let (path, store) = (&record.path, record.store);
            status.reasons.push(format!(
                "{path}: {why}: the node serves without it; put the device back and start the node again, or have another take its \
                 place: `cairn device format PATH`, `cairn device add PATH`, `cairn device replace {store} PATH`"
            ));
            status.devices.push(DeviceStatus {
                store,
                path: path.into(),
                size_bytes: record.size_bytes,
                failed: Some(why.clone()),
                ..DeviceStatus::default()
            });
        }
        status
    }

    /// What was wrong when the node started, and is not right since.
    fn still_wrong(&self) -> impl Iterator<Item = String> {
        let devices = self.0.devices.borrow();
        let lacks = |store: StoreId| {
            let found = devices.iter().find(|device| device.store.store_id() == store);
            found.is_none_or(|device| device.store.has_losses())
        };
        let is_so = |reason: &&Reason| reason.lost_by.is_none_or(lacks);
        let wrong: Vec<_> = self.0.reasons.iter().filter(is_so).map(|reason| reason.text.clone()).collect();
        wrong.into_iter()
    }

    /// Stores of nodes that had a session when the map was last heard, and say nothing to this one.
    fn silent_stores(&self) -> BTreeSet<StoreId> {
        let is_silent = |node: NodeId| node != self.0.id && self.0.groups.silence_of(node) >= SILENT;
        self.0.heads.stores_of(is_silent)
    }

    fn provisioned_bytes(&self) -> u64 {
        let is_its = |volume: &&VolumeInfo| volume.head == self.0.id;
        let served = self.0.volumes.borrow().values().filter(is_its).map(|volume| volume.size_bytes).sum::<u64>();
        served + self.trash().iter().map(|volume| volume.info.size_bytes).sum::<u64>()
    }
}

pub(super) fn in_words(slow: store::Slow) -> String {
    format!("{} took {:.1} s", slow.what, slow.took.as_secs_f32())
}

fn core_status(head: &Head, silent: &BTreeSet<StoreId>) -> CoreStatus {
    let mut status = CoreStatus { groups_total: head.groups_stopped(), ..CoreStatus::default() };
    for (volume, group) in head.patience.stopped() {
        let name = head.directory.by_id(volume).map_or_else(|| volume.to_string(), |volume| volume.info().name);
        status.reasons.push(format!("volume {name}: group {group} serves nobody, and hosts are told to wait"));
    }
    for shard in head.shards() {
        for group in shard.groups.groups() {
            // Each is counted where its primary is, or would be; of one that nobody hears, where its first member is that is heard.
            let standing = group.standing();
            let primary = standing.record.primary;
            let is_next = || {
                let heard = standing.record.members().find(|member| !silent.contains(member));
                silent.contains(&primary) && heard == Some(shard.store)
            };
            let is_its = primary == shard.store || is_next();
            status.groups_total += usize::from(is_its);
            match group.stopped() {
                None => {
                    // Who leads and hears nobody of those that count answers nothing; with too few of them nothing is written.
                    let may_answer = standing.serves && standing.record.may_commit();
                    let serves = may_answer || standing.leads && mutant(Mutant::SilentGroupsCounted);
                    status.groups_serving += usize::from(is_its && serves);
                }
                // One line for all groups of a store that fail for one reason: the device says it.
                Some(reason) if status.reasons.iter().all(|known| known != reason) => {
                    status.reasons.push(reason.to_owned());
                }
                Some(_) => {}
            }
        }
        let store = shard.groups.store();
        let met = store.damage_met();
        status.shards.push(ShardStatus {
            store: shard.store,
            damage: if store.has_losses() { shard.damage } else { 0 } + met.len() as u64 + store.damage_unlisted(),
            damaged: met.iter().map(|error| head.describe_damage(&shard.path, error)).collect(),
            slow: store.slow(),
            throttling: store.is_throttling(),
            statistics: store.statistics(),
        });
    }
    status
}

pub(super) fn device_status(device: &super::devices::OpenDevice) -> DeviceStatus {
    let usage = device.store.usage();
    DeviceStatus {
        store: device.store.store_id(),
        path: device.path.clone(),
        size_bytes: device.size_bytes,
        used_bytes: usage.used_bytes,
        live_bytes: usage.live_bytes,
        capacity_bytes: usage.usable_bytes,
        failed: device.store.failed().map(|error| error.to_string()),
        damage: if device.store.has_losses() { device.store.damage().len() as u64 } else { 0 },
        has_no_room_to_mend: device.store.has_no_room_to_mend(),
        ..DeviceStatus::default()
    }
}
