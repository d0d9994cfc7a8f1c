//! How the cluster, its devices and its volumes are.

use super::Scrape;
use super::family::Families;
use crate::admin::types::Health;
use volume::{DeviceStatus, Encryption, PeerTraffic, VolumeUsage};

pub(super) fn tell(scrape: &Scrape, families: &mut Families) {
    let Scrape { status, .. } = scrape;
    families.gauge("cairn_build_info", "Always 1; which build this is.", |tell| {
        tell(&[("version", &status.version), ("cluster", &status.cluster_id)], 1.0);
    });
    families.gauge("cairn_health", "1 at the state that the cluster is in, as `cairn status` tells it.", |tell| {
        let states = [
            ("healthy", Health::Healthy),
            ("degraded", Health::Degraded),
            ("unavailable", Health::Unavailable),
            ("damaged", Health::Damaged),
        ];
        for (name, state) in states {
            tell(&[("state", name)], flag(status.health == state));
        }
    });
    families.gauge("cairn_groups", "Placement groups that this node has a part in.", |tell| {
        tell(&[], status.groups as f64);
    });
    families.gauge("cairn_groups_serving", "Placement groups that serve.", |tell| {
        tell(&[], status.groups_serving as f64);
    });
    families.gauge("cairn_provisioned_bytes", "Sum of the sizes of all volumes, those in the trash too.", |tell| {
        tell(&[], status.capacity.provisioned_bytes as f64);
    });
    families.gauge("cairn_trash_volumes", "Deleted volumes that can be restored.", |tell| {
        tell(&[], status.trash.len() as f64);
    });
    let spoken = &scrape.node.spoken;
    let help = "Connections with other nodes that were closed because of a frame that no node sends.";
    families.counter("cairn_peer_frames_refused_total", help, |tell| tell(&[], spoken.refused as f64));
    let help = "Frames, and fields of beats, that only a release after this one has: 0 but in tests of upgrades.";
    families.counter("cairn_rehearsed_total", help, |tell| {
        tell(&[("what", "frames-sent")], spoken.sent as f64);
        tell(&[("what", "frames-received")], spoken.received as f64);
        tell(&[("what", "fields-received")], spoken.fields_received as f64);
    });
    peers(scrape, families);
    devices(scrape, families);
    volumes(scrape, families);
}

/// What goes on between this node and each one of the cluster.
fn peers(scrape: &Scrape, families: &mut Families) {
    let each = |of: &mut dyn FnMut(&str, &str, &PeerTraffic)| {
        for ((node, peer), its) in &scrape.node.peers {
            of(&format!("node-{node}"), &format!("node-{peer}"), its);
        }
    };
    let help =
        "Connections with another node. More than pairs of cores: some are left over, and closed after a minute.";
    families.gauge("cairn_peer_connections", help, |tell| {
        each(&mut |node, peer, its| tell(&[("node", node), ("peer", peer)], its.connections.into()));
    });
    families.gauge(
        "cairn_peer_core_pairs",
        "Pairs of a core here and one of another node that have a connection.",
        |tell| {
            each(&mut |node, peer, its| tell(&[("node", node), ("peer", peer)], its.core_pairs.into()));
        },
    );
    families.counter("cairn_peer_beats_total", "Beats to another node: sent, and answered by it.", |tell| {
        each(&mut |node, peer, its| {
            tell(&[("node", node), ("peer", peer), ("what", "sent")], its.beats_sent as f64);
            tell(&[("node", node), ("peer", peer), ("what", "answered")], its.beats_answered as f64);
        });
    });
}

fn flag(is_set: bool) -> f64 {
    f64::from(u8::from(is_set))
}

/// A figure of a device: name, help, value.
type OfDevice = (&'static str, &'static str, fn(&DeviceStatus) -> f64);

const DEVICE_GAUGES: [OfDevice; 8] = [
    ("cairn_device_size_bytes", "Size of the device.", |device| device.size_bytes as f64),
    ("cairn_device_capacity_bytes", "Bytes that can be stored on it.", |device| device.capacity_bytes as f64),
    ("cairn_device_live_bytes", "Bytes of data that are stored on it.", |device| device.live_bytes as f64),
    ("cairn_device_used_bytes", "Bytes of its segments in use, dead data in them too.", |device| {
        device.used_bytes as f64
    }),
    ("cairn_device_failed", "1 if it takes nothing more.", |device| flag(device.failed.is_some())),
    ("cairn_device_slow", "1 if it is slow.", |device| flag(device.slow.is_some())),
    ("cairn_device_throttling", "1 if writers wait for the cleaner, or did a moment ago.", |device| {
        flag(device.throttling)
    }),
    ("cairn_device_damaged_places", "Damaged places found on it since it was opened.", |device| device.damage as f64),
];

const DEVICE_COUNTERS: [OfDevice; 6] = [
    ("cairn_device_written_bytes_total", "Bytes written to it.", |device| device.device_bytes_written as f64),
    ("cairn_device_read_bytes_total", "Bytes read of it.", |device| device.device_bytes_read as f64),
    ("cairn_device_appends_total", "Records appended to its logs.", |device| device.appends as f64),
    ("cairn_device_entries_total", "Entries in those records.", |device| device.entries as f64),
    ("cairn_device_segments_cleaned_total", "Segments that the cleaner has emptied.", |device| {
        device.segments_cleaned as f64
    }),
    ("cairn_device_throttled_writes_total", "Writes that had to wait for the cleaner.", |device| {
        device.throttled as f64
    }),
];

fn devices(scrape: &Scrape, families: &mut Families) {
    let each = |value: fn(&DeviceStatus) -> f64, tell: &mut dyn FnMut(super::family::Labels, f64)| {
        for device in &scrape.node.devices {
            let (path, store) = (device.path.display().to_string(), device.store.to_string());
            tell(&[("device", &path), ("store", &store)], value(device));
        }
    };
    for (name, help, value) in DEVICE_GAUGES {
        families.gauge(name, help, |tell| each(value, tell));
    }
    for (name, help, value) in DEVICE_COUNTERS {
        families.counter(name, help, |tell| each(value, tell));
    }
}

/// A figure of what a volume takes: name, help, value.
type OfUsage = (&'static str, &'static str, fn(&VolumeUsage) -> u64);

const VOLUME_USAGE: [OfUsage; 3] = [
    ("cairn_volume_unique_bytes", "Bytes that only this volume holds.", |usage| usage.unique_bytes),
    ("cairn_volume_shared_bytes", "Bytes that it shares with snapshots and other volumes.", |usage| usage.shared_bytes),
    ("cairn_volume_stored_bytes", "Both together as they are stored: compressed, if they are.", |usage| {
        usage.stored_bytes
    }),
];

fn volumes(scrape: &Scrape, families: &mut Families) {
    families.gauge("cairn_volume_size_bytes", "Size of the volume: what it promises.", |tell| {
        for info in &scrape.volumes {
            tell(&[("volume", &info.name)], info.size_bytes as f64);
        }
    });
    families.gauge("cairn_volume_locked", "1 if nobody can use it until it is unlocked.", |tell| {
        for info in scrape.volumes.iter().filter(|info| info.encryption != Encryption::Off) {
            tell(&[("volume", &info.name)], flag(info.encryption == Encryption::Locked));
        }
    });
    for (name, help, value) in VOLUME_USAGE {
        families.gauge(name, help, |tell| {
            for info in &scrape.volumes {
                if let Some(usage) = scrape.usage.get(&info.id) {
                    tell(&[("volume", &info.name)], value(usage) as f64);
                }
            }
        });
    }
}
