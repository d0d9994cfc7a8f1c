//! Says in the log when a device fills up, before its clients are told, and when it has failed.

use super::Assembly;
use super::status::{DeviceStatus, Fill, device_status};
use std::rc::Rc;
use std::time::Duration;
use store::Store;

/// How often the fill is looked at: a fast device takes gigabytes in that time, a small part of what is left from the
/// first warning on.
const WATCH_INTERVAL: Duration = Duration::from_secs(5);
/// How often while a device is full: who waits for room wants to know when there is some.
const FULL_WATCH_INTERVAL: Duration = Duration::from_secs(1);
/// A level counts as left only this much below it, so that a device at its edge does not fill the log.
const SLACK_PERCENT: u64 = 2;

impl Assembly {
    /// Watches for as long as the node lives.
    pub(super) fn watch_devices(&self) {
        let node = Rc::downgrade(&self.0);
        let mut told = Vec::new();
        runtime::spawn(async move {
            loop {
                let Some(alive) = node.upgrade() else { return };
                // One may have been added meanwhile.
                told.resize(alive.devices.borrow().len(), (Fill::Room, false));
                for (device, (fill, failed)) in alive.devices.borrow().iter().zip(&mut told) {
                    let status = device_status(device);
                    // The shard that refused first has said so already.
                    let before = if device.store.is_refusing() { Fill::Full } else { *fill };
                    let level = level_of(before, &status, &device.store);
                    *fill = level;
                    match level {
                        Fill::Full => drop(device.store.begin_refusing()),
                        Fill::Room | Fill::Warning => device.store.end_refusing(),
                    }
                    if level != before {
                        tell(before, level, &status, &alive.head.in_trash.borrow());
                    }
                    if let Some(why) = &status.failed
                        && !std::mem::replace(failed, true)
                    {
                        log::error!("{}: {why}: it serves nothing any more", status.path.display());
                    }
                }
                let is_full = told.iter().any(|(fill, _)| *fill == Fill::Full);
                drop(alive);
                runtime::sleep(if is_full { FULL_WATCH_INTERVAL } else { WATCH_INTERVAL }).await;
            }
        });
    }
}

/// What is to be told of a device: full as soon as it has refused new blocks, whatever it holds, until it takes them.
fn level_of(told: Fill, status: &DeviceStatus, store: &Store) -> Fill {
    let takes_some = store.takes_new_blocks(status.capacity_bytes / 100 * SLACK_PERCENT);
    if store.is_refusing() && !takes_some { Fill::Full } else { next_level(told, status) }
}

/// Up at once, down only when the level is left for good.
fn next_level(told: Fill, device: &DeviceStatus) -> Fill {
    let now = device.fill();
    if now >= told {
        return now;
    }
    let with_slack = device.capacity_bytes / 100 * SLACK_PERCENT + device.live_bytes;
    DeviceStatus { live_bytes: with_slack, ..device.clone() }.fill().min(told)
}

/// What to do about a device that has no room.
pub(super) fn remedy(in_trash: &str) -> String {
    let trash = if in_trash.is_empty() { String::new() } else { format!(" (in the trash: {in_trash})") };
    format!(": delete or discard data, or add a device{trash}")
}

fn tell(before: Fill, level: Fill, device: &DeviceStatus, in_trash: &str) {
    let is = format!("{} is {} % full", device.path.display(), device.used_percent());
    match (before, level) {
        (_, Fill::Room) => log::info!("{is}: there is room again"),
        (Fill::Full, Fill::Warning) => log::warn!("{is}: new blocks are taken again{}", remedy(in_trash)),
        (_, Fill::Warning) => log::warn!("{is}{}", remedy(in_trash)),
        (_, Fill::Full) => log::error!("{is}, new blocks are refused{}", remedy(in_trash)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::StoreId;

    fn filled(percent: u64) -> DeviceStatus {
        DeviceStatus {
            store: StoreId(1),
            path: "/d".into(),
            size_bytes: 2000,
            live_bytes: percent * 10,
            capacity_bytes: 1000,
            ..DeviceStatus::default()
        }
    }

    #[test]
    fn each_level_is_told_once_and_left_with_slack() {
        let mut told = Fill::Room;
        let mut lines = Vec::new();
        for percent in [10, 74, 75, 74, 75, 89, 90, 89, 90, 95, 88, 87, 76, 74, 72, 10] {
            let level = next_level(told, &filled(percent));
            if level != told {
                lines.push((percent, level));
            }
            told = level;
        }
        assert_eq!(lines, [(75, Fill::Warning), (90, Fill::Full), (87, Fill::Warning), (72, Fill::Room)]);
    }
}
