//! What clients do, and how long it takes.

use super::Scrape;
use super::family::Families;
use volume::latency::{Class, ClassTotals, Door, Stage};

/// A figure of a volume's commands of one class: name, help, value.
type OfCommands = (&'static str, &'static str, fn(&ClassTotals) -> f64);

const VOLUME_COUNTERS: [OfCommands; 4] = [
    ("cairn_volume_operations_total", "Commands of the volume that were answered.", |of| of.operations as f64),
    ("cairn_volume_failures_total", "Commands of the volume that were answered with an error.", |of| of.failed as f64),
    ("cairn_volume_bytes_total", "Bytes that the commands of the volume were about.", |of| of.bytes as f64),
    (
        "cairn_volume_seconds_total",
        "Time from the first byte of a command to its answer, added up over all commands of the volume.",
        |of| of.stages.total().as_secs_f64(),
    ),
];

pub(super) fn tell(scrape: &Scrape, families: &mut Families) {
    let traffic = &scrape.traffic;
    families.gauge("cairn_nvme_controllers", "Controllers that NVMe hosts have connected.", |tell| {
        tell(&[], traffic.nvme_controllers as f64);
    });
    families.gauge("cairn_nbd_connections", "Connections of NBD clients.", |tell| {
        tell(&[], traffic.nbd_connections as f64);
    });
    for (name, help, value) in VOLUME_COUNTERS {
        families.counter(name, help, |tell| {
            for info in &scrape.volumes {
                let totals = traffic.volumes.get(&info.id).map(|latency| latency.totals).unwrap_or_default();
                for (class, of) in Class::ALL.iter().zip(&totals) {
                    tell(&[("volume", &info.name), ("operation", class.name())], value(of));
                }
            }
        });
    }
    let each = || Door::ALL.into_iter().flat_map(|door| Class::ALL.map(|class| (door, class)));
    families.histogram("cairn_io_seconds", "Time from the first byte of a command to its answer.", |tell| {
        for (door, class) in each() {
            let labels = [("door", door.name()), ("operation", class.name())];
            tell(&labels, traffic.latencies.total(door, class));
        }
    });
    families.histogram("cairn_io_stage_seconds", "The same by stage: where the time goes.", |tell| {
        for (door, class) in each() {
            for stage in Stage::ALL {
                let labels = [("door", door.name()), ("operation", class.name()), ("stage", stage.name())];
                tell(&labels, traffic.latencies.stage(door, class, stage));
            }
        }
    });
}
