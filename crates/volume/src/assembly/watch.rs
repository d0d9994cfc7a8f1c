//! Says in the log when a device fills up, before its clients are told, and when it has failed.

use super::Assembly;
use super::status::{DeviceStatus, Fill, device_status};
use std::rc::Rc;
use std::time::Duration;

/// How often the fill is looked at: a fast device takes gigabytes in that time, a small part of what is left from the
/// first warning on.
const WATCH_INTERVAL: Duration = Duration::from_secs(5);
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
                    let level = next_level(*fill, &status);
                    if level != std::mem::replace(fill, level) {
                        tell(level, &status, &alive.head.in_trash.borrow());
                    }
                    if let Some(why) = &status.failed
                        && !std::mem::replace(failed, true)
                    {
                        log::error!("{}: {why}: it serves nothing any more", status.path.display());
                    }
                }
                drop(alive);
                runtime::sleep(WATCH_INTERVAL).await;
            }
        });
    }
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

fn tell(level: Fill, device: &DeviceStatus, in_trash: &str) {
    let (path, percent) = (device.path.display(), device.used_percent());
    let trash = if in_trash.is_empty() { String::new() } else { format!(" (in the trash: {in_trash})") };
    match level {
        Fill::Room => log::info!("{path} is {percent} % full: there is room again"),
        Fill::Warning => {
            log::warn!("{path} is {percent} % full: delete or discard data, or add a device{trash}");
        }
        Fill::Full => {
            log::error!(
                "{path} is {percent} % full, new blocks are refused: delete or discard data, or add a device{trash}"
            );
        }
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
