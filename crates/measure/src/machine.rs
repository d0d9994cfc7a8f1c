//! What the machine and named processes spent: read from /proc, before and after.

use crate::MeasureError;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::time::Instant;

/// Ticks per second of the kernel's process accounting (USER_HZ, 100 on every Linux architecture in use).
const TICKS_PER_SECOND: f64 = 100.0;
/// What /proc/diskstats counts in, whatever the device's block.
const SECTOR_BYTES: u64 = 512;

/// Where bytes written to the target's devices are counted.
pub enum DeviceCounter {
    /// Nobody counts them.
    None,
    /// The kernel does, for the device of this number.
    Kernel(u64),
    /// The target does: bytes written and read since it started, or nothing if it does not answer.
    Target(Box<dyn Fn() -> Option<(u64, u64)>>),
}

/// The machine at one instant.
pub struct Look {
    at: Instant,
    busy_seconds: f64,
    /// By name: CPU seconds of each process, by id and start.
    processes: BTreeMap<String, BTreeMap<(u32, u64), Process>>,
    device_bytes: Option<(u64, u64)>,
    loopback_bytes: Option<u64>,
}

#[derive(Clone, Copy)]
struct Process {
    cpu_seconds: f64,
    resident_bytes: u64,
}

/// What the processes of one name used, all of them together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProcessUse {
    /// Its name, as `ps -o comm` shows it.
    pub name: String,
    /// How many there are.
    pub count: usize,
    /// CPU cores they kept busy.
    pub cores: f64,
    /// Memory that was resident at the end.
    pub resident_bytes: u64,
}

/// What happened between two looks, as rates.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Use {
    /// Seconds between the looks.
    pub seconds: f64,
    /// CPU cores busy on the whole machine, whoever kept them so.
    pub machine_cores: f64,
    /// The target's processes.
    pub processes: Vec<ProcessUse>,
    /// Bytes per second written to the target's devices.
    pub device_write_bytes_per_second: Option<f64>,
    /// Bytes per second read from them.
    pub device_read_bytes_per_second: Option<f64>,
    /// Bytes per second over the loopback interface, payload and headers.
    pub loopback_bytes_per_second: Option<f64>,
}

/// Looks at the machine and at the processes of these names.
///
/// # Errors
/// If /proc/stat is not as proc(5) says.
pub fn look(names: &[String], counter: &DeviceCounter) -> Result<Look, MeasureError> {
    let stat = read("/proc/stat")?;
    let busy_seconds = busy_seconds(&stat).ok_or_else(|| MeasureError::Machine("/proc/stat".to_owned()))?;
    let device_bytes = match counter {
        DeviceCounter::None => None,
        DeviceCounter::Kernel(device) => device_bytes(&read("/proc/diskstats")?, *device),
        DeviceCounter::Target(ask) => ask(),
    };
    let loopback_bytes = loopback_bytes(&read("/proc/net/dev")?);
    Ok(Look { at: Instant::now(), busy_seconds, processes: processes(names), device_bytes, loopback_bytes })
}

impl Look {
    /// What happened from this look to a later one.
    pub fn until(&self, later: &Look) -> Use {
        let seconds = later.at.duration_since(self.at).as_secs_f64().max(f64::MIN_POSITIVE);
        let rate = |before: u64, after: u64| after.saturating_sub(before) as f64 / seconds;
        let devices = self.device_bytes.zip(later.device_bytes);
        let processes = later.processes.iter().map(|(name, after)| {
            let before = self.processes.get(name);
            // A process that began meanwhile has used all of its time meanwhile.
            let used = |(id, process): (&(u32, u64), &Process)| {
                let earlier = before.and_then(|before| before.get(id)).map_or(0.0, |process| process.cpu_seconds);
                process.cpu_seconds - earlier
            };
            ProcessUse {
                name: name.clone(),
                count: after.len(),
                cores: after.iter().map(used).sum::<f64>() / seconds,
                resident_bytes: after.values().map(|process| process.resident_bytes).sum(),
            }
        });
        Use {
            seconds,
            machine_cores: (later.busy_seconds - self.busy_seconds) / seconds,
            processes: processes.filter(|process| process.count > 0).collect(),
            device_write_bytes_per_second: devices.map(|(before, after)| rate(before.0, after.0)),
            device_read_bytes_per_second: devices.map(|(before, after)| rate(before.1, after.1)),
            loopback_bytes_per_second: self.loopback_bytes.zip(later.loopback_bytes).map(|(a, b)| rate(a, b)),
        }
    }
}

fn read(path: &str) -> Result<String, MeasureError> {
    fs::read_to_string(path).map_err(|error| MeasureError::Machine(format!("{path} ({error})")))
}

/// CPU seconds the machine has spent on anything but idling (idle, iowait and what was stolen left out).
fn busy_seconds(stat: &str) -> Option<f64> {
    let line = stat.lines().next()?.strip_prefix("cpu ")?;
    let fields: Vec<f64> = line.split_whitespace().filter_map(|field| field.parse().ok()).collect();
    match fields[..] {
        // user nice system idle iowait irq softirq steal
        [user, nice, system, _, _, irq, softirq, ..] => Some((user + nice + system + irq + softirq) / TICKS_PER_SECOND),
        _ => None,
    }
}

fn device_bytes(diskstats: &str, device: u64) -> Option<(u64, u64)> {
    let number = [libc::major(device).to_string(), libc::minor(device).to_string()];
    diskstats.lines().find_map(|line| {
        // major minor name reads merged sectors-read ms writes merged sectors-written
        let fields: Vec<&str> = line.split_whitespace().collect();
        let sectors = |n: usize| fields.get(n)?.parse::<u64>().ok();
        (fields.get(..2)? == number).then_some(())?;
        Some((sectors(9)? * SECTOR_BYTES, sectors(5)? * SECTOR_BYTES))
    })
}

fn loopback_bytes(dev: &str) -> Option<u64> {
    let line = dev.lines().find_map(|line| line.trim_start().strip_prefix("lo:"))?;
    line.split_whitespace().nth(8)?.parse().ok()
}

/// The processes of these names, without this one, which may have the name of its target.
fn processes(names: &[String]) -> BTreeMap<String, BTreeMap<(u32, u64), Process>> {
    let mut found: BTreeMap<_, BTreeMap<_, _>> = names.iter().map(|name| (name.clone(), BTreeMap::new())).collect();
    let Ok(entries) = fs::read_dir("/proc") else { return found };
    for entry in entries.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        if pid == std::process::id() {
            continue;
        }
        // A process that has ended meanwhile is none.
        let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else { continue };
        let Some((name, started, process)) = process_of(&stat) else { continue };
        if let Some(of_name) = found.get_mut(name) {
            of_name.insert((pid, started), process);
        }
    }
    found
}

/// Name, start and use, of /proc/PID/stat.
fn process_of(stat: &str) -> Option<(&str, u64, Process)> {
    // The second field is the name in parentheses and may hold anything: count from its end.
    let (before, after) = stat.rsplit_once(") ")?;
    let name = before.split_once('(')?.1;
    let fields: Vec<&str> = after.split_whitespace().collect();
    let number = |n: usize| fields.get(n)?.parse::<u64>().ok();
    // SAFETY: sysconf takes a number and returns one.
    let page_bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as u64;
    let cpu_seconds = (number(11)? + number(12)?) as f64 / TICKS_PER_SECOND;
    Some((name, number(19)?, Process { cpu_seconds, resident_bytes: number(21)? * page_bytes }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_machine_is_told_from_an_idle_one() {
        assert_eq!(busy_seconds("cpu  100 50 200 9999 88 7 43 5 0 0\ncpu0 …"), Some(4.0));
        assert_eq!(busy_seconds("intr 5"), None);
    }

    #[test]
    fn a_process_is_read_whatever_its_name() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 0 0 0 0 0 150 50 0 0 20 0 4 0 777 9999 3 0";
        let (name, started, process) = process_of(stat).unwrap();
        assert_eq!((name, started, process.cpu_seconds), ("a) b (c", 777, 2.0));
        assert_eq!(process.resident_bytes % 3, 0);
    }

    #[test]
    fn sectors_are_512_bytes() {
        let diskstats = " 254 0 vda 1 2 30 4 5 6 70 8 0 0 0\n 254 1 vda1 1 2 31 4 5 6 71 8 0 0 0\n";
        assert_eq!(device_bytes(diskstats, libc::makedev(254, 1)), Some((71 * 512, 31 * 512)));
        assert_eq!(device_bytes(diskstats, libc::makedev(254, 2)), None);
    }

    #[test]
    fn loopback_counts_what_is_sent() {
        let dev = "Inter-|   Receive\n face |bytes\n    lo: 11 2 0 0 0 0 0 0 99 2 0 0 0 0 0 0\n";
        assert_eq!(loopback_bytes(dev), Some(99));
    }

    #[test]
    fn this_process_is_not_among_the_targets() {
        let own = fs::read_to_string("/proc/self/comm").unwrap().trim().to_owned();
        let looked = look(std::slice::from_ref(&own), &DeviceCounter::None).unwrap();
        assert!(!looked.processes[&own].keys().any(|(pid, _)| *pid == std::process::id()));
    }
}
