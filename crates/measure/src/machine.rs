//! What the machine and named processes spent: read from /proc, before and after.

use crate::MeasureError;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ffi::CStr;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Instant;

/// Ticks per second of the kernel's process accounting (USER_HZ, 100 on every Linux architecture in use).
const TICKS_PER_SECOND: f64 = 100.0;
/// What /proc/diskstats counts in, whatever the device's block.
const SECTOR_BYTES: u64 = 512;

/// Where bytes written to the target's devices are counted.
#[derive(Default)]
pub enum DeviceCounter {
    /// Nobody counts them.
    #[default]
    None,
    /// The kernel does, for the devices of these numbers.
    Kernel(Vec<u64>),
    /// The target does: bytes written and read since it started, or nothing if it does not answer.
    Target(Box<dyn Fn() -> Option<(u64, u64)>>),
}

/// Which processes of this machine are a target's.
#[derive(Clone, Debug, Default)]
pub struct Processes {
    /// Their names, as `ps -o comm` shows them, whoever has started them.
    pub names: Vec<String>,
    /// In place of names: these processes and whatever they have started.
    pub under: Option<Vec<u32>>,
}

/// Where bytes on the network are counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum NetworkCounter {
    /// Nobody counts them.
    #[default]
    None,
    /// What the loopback interface sends.
    Loopback,
    /// What this interface sends and receives: the one that leads to the storage.
    Interface(String),
    /// What this bridge sends itself, and what comes in at its ports: each byte once, whoever it is for.
    Bridge {
        /// Its name.
        bridge: String,
        /// What names of its ports begin with.
        ports: String,
    },
}

/// What is looked at.
#[derive(Default)]
pub struct Watch {
    /// The target's processes.
    pub processes: Processes,
    /// Who counts its device bytes.
    pub devices: DeviceCounter,
    /// Who counts bytes on the network.
    pub network: NetworkCounter,
}

/// By id and start.
type Ran = BTreeMap<(u32, u64), Process>;

/// The machine at one instant.
pub struct Look {
    at: Instant,
    busy_seconds: f64,
    /// By name.
    processes: BTreeMap<String, Ran>,
    /// The load generator, with what it has started.
    client: Option<Ran>,
    device_bytes: Option<(u64, u64)>,
    network_bytes: Option<u64>,
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
    /// CPU cores that the load generator kept busy.
    #[serde(default)]
    pub client_cores: Option<f64>,
    /// Bytes per second written to the target's devices.
    pub device_write_bytes_per_second: Option<f64>,
    /// Bytes per second read from them.
    pub device_read_bytes_per_second: Option<f64>,
    /// Bytes per second over the loopback interface, the interface that leads to the storage, or the bridge of a network of its own;
    /// payload and headers.
    pub network_bytes_per_second: Option<f64>,
}

/// Looks at the machine, the target and the load generator, which is the process of this id.
///
/// # Errors
/// If /proc/stat is not as proc(5) says.
pub fn look(watch: &Watch, client: Option<u32>) -> Result<Look, MeasureError> {
    let stat = read("/proc/stat")?;
    let busy_seconds = busy_seconds(&stat).ok_or_else(|| MeasureError::Machine("/proc/stat".to_owned()))?;
    let device_bytes = match &watch.devices {
        DeviceCounter::None => None,
        DeviceCounter::Kernel(devices) => all_device_bytes(&read("/proc/diskstats")?, devices),
        DeviceCounter::Target(ask) => ask(),
    };
    // Of this thread, which may have a network of its own.
    let dev = read("/proc/thread-self/net/dev")?;
    let network_bytes = match &watch.network {
        NetworkCounter::None => None,
        NetworkCounter::Loopback => sent_bytes(&dev, "lo"),
        NetworkCounter::Interface(name) => both_ways_bytes(&dev, name),
        NetworkCounter::Bridge { bridge, ports } => bridge_bytes(&dev, bridge, ports),
    };
    let all = all_processes();
    let processes = watch.processes.find(&all);
    let client = client.map(|client| descendants(&all, &[client]).map(Found::ran).collect());
    Ok(Look { at: Instant::now(), busy_seconds, processes, client, device_bytes, network_bytes })
}

/// CPU cores of all of these that are there now; one that began meanwhile has used all of its time meanwhile.
fn cores(before: Option<&Ran>, after: &Ran, seconds: f64) -> f64 {
    let used = |(id, process): (&(u32, u64), &Process)| {
        let earlier = before.and_then(|before| before.get(id)).map_or(0.0, |process| process.cpu_seconds);
        process.cpu_seconds - earlier
    };
    after.iter().map(used).sum::<f64>() / seconds
}

impl Look {
    /// What happened from this look to a later one.
    pub fn until(&self, later: &Look) -> Use {
        let seconds = later.at.duration_since(self.at).as_secs_f64().max(f64::MIN_POSITIVE);
        let rate = |before: u64, after: u64| after.saturating_sub(before) as f64 / seconds;
        let devices = self.device_bytes.zip(later.device_bytes);
        let processes = later.processes.iter().map(|(name, after)| ProcessUse {
            name: name.clone(),
            count: after.len(),
            cores: cores(self.processes.get(name), after, seconds),
            resident_bytes: after.values().map(|process| process.resident_bytes).sum(),
        });
        Use {
            seconds,
            machine_cores: (later.busy_seconds - self.busy_seconds) / seconds,
            processes: processes.filter(|process| process.count > 0).collect(),
            client_cores: later.client.as_ref().map(|after| cores(self.client.as_ref(), after, seconds)),
            device_write_bytes_per_second: devices.map(|(before, after)| rate(before.0, after.0)),
            device_read_bytes_per_second: devices.map(|(before, after)| rate(before.1, after.1)),
            network_bytes_per_second: self.network_bytes.zip(later.network_bytes).map(|(a, b)| rate(a, b)),
        }
    }

    /// Seconds between this look and an instant before it.
    pub fn seconds_since(&self, instant: Instant) -> f64 {
        self.at.saturating_duration_since(instant).as_secs_f64()
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

/// Of all of these; none: one of them is not there.
fn all_device_bytes(diskstats: &str, devices: &[u64]) -> Option<(u64, u64)> {
    devices.iter().try_fold((0, 0), |(written, read), device| {
        let (its_written, its_read) = device_bytes(diskstats, *device)?;
        Some((written + its_written, read + its_read))
    })
}

/// A column of an interface's line in /proc/net/dev.
fn column(dev: &str, interface: impl Fn(&str) -> bool, column: usize) -> impl Iterator<Item = u64> {
    dev.lines().filter_map(move |line| {
        let (name, figures) = line.trim_start().split_once(':')?;
        if interface(name) { figures.split_whitespace().nth(column)?.parse().ok() } else { None }
    })
}

const RECEIVED: usize = 0;
const SENT: usize = 8;

fn sent_bytes(dev: &str, interface: &str) -> Option<u64> {
    column(dev, |name| name == interface, SENT).next()
}

fn both_ways_bytes(dev: &str, interface: &str) -> Option<u64> {
    Some(sent_bytes(dev, interface)? + column(dev, |name| name == interface, RECEIVED).next()?)
}

/// The interface by which this machine sends to an address; none: it has no way there.
pub fn interface_to(address: IpAddr) -> Option<String> {
    let any: SocketAddr = match address {
        IpAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        IpAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    // A datagram socket that is connected has sent nothing, and its own address is that of the way there.
    let socket = UdpSocket::bind(any).ok()?;
    socket.connect((address, DISCARD_PORT)).ok()?;
    interface_of(socket.local_addr().ok()?.ip())
}

/// Nobody need listen there.
const DISCARD_PORT: u16 = 9;

/// The interface with this address.
fn interface_of(address: IpAddr) -> Option<String> {
    let mut first: *mut libc::ifaddrs = std::ptr::null_mut();
    // SAFETY: getifaddrs fills a pointer, for which there is room.
    if unsafe { libc::getifaddrs(&raw mut first) } != 0 {
        return None;
    }
    let (mut found, mut next) = (None, first);
    while !next.is_null() {
        // SAFETY: a node of the list, which is there until freeifaddrs.
        let node = unsafe { &*next };
        // SAFETY: its address is null, or one of the family that it says.
        if unsafe { ip_of(node.ifa_addr) } == Some(address) {
            // SAFETY: its name ends with a zero.
            found = Some(unsafe { CStr::from_ptr(node.ifa_name) }.to_string_lossy().into_owned());
            break;
        }
        next = node.ifa_next;
    }
    // SAFETY: it came of getifaddrs, and nothing of it is used any more.
    unsafe { libc::freeifaddrs(first) };
    found
}

/// # Safety
/// It is null, or points to an address of the family that it says.
unsafe fn ip_of(address: *const libc::sockaddr) -> Option<IpAddr> {
    if address.is_null() {
        return None;
    }
    // SAFETY: the caller says so.
    match i32::from(unsafe { (*address).sa_family }) {
        libc::AF_INET => {
            // SAFETY: of this family.
            let its = unsafe { (*address.cast::<libc::sockaddr_in>()).sin_addr };
            Some(IpAddr::V4(Ipv4Addr::from(u32::from_be(its.s_addr))))
        }
        libc::AF_INET6 => {
            // SAFETY: of this family.
            let its = unsafe { (*address.cast::<libc::sockaddr_in6>()).sin6_addr };
            Some(IpAddr::V6(Ipv6Addr::from(its.s6_addr)))
        }
        _ => None,
    }
}

fn bridge_bytes(dev: &str, bridge: &str, ports: &str) -> Option<u64> {
    Some(sent_bytes(dev, bridge)? + column(dev, |name| name.starts_with(ports), RECEIVED).sum::<u64>())
}

/// A process that was found.
struct Found {
    pid: u32,
    parent: u32,
    name: String,
    started: u64,
    process: Process,
}

impl Found {
    fn ran(&self) -> ((u32, u64), Process) {
        ((self.pid, self.started), self.process)
    }
}

/// All processes but this one, which may have the name of its target.
fn all_processes() -> Vec<Found> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let found = |entry: fs::DirEntry| {
        let pid = entry.file_name().to_str()?.parse::<u32>().ok().filter(|pid| *pid != std::process::id())?;
        // A process that has ended meanwhile is none.
        let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
        let (name, parent, started, process) = process_of(&stat)?;
        Some(Found { pid, parent, name: name.to_owned(), started, process })
    };
    entries.flatten().filter_map(found).collect()
}

/// These processes, and whatever descends from them.
fn descendants<'a>(all: &'a [Found], roots: &[u32]) -> impl Iterator<Item = &'a Found> {
    let mut known: Vec<u32> = roots.to_vec();
    let mut seen = 0;
    while seen < known.len() {
        let parent = known[seen];
        known.extend(all.iter().filter(|found| found.parent == parent && found.pid != parent).map(|found| found.pid));
        seen += 1;
    }
    all.iter().filter(move |found| known.contains(&found.pid))
}

impl Processes {
    /// All of these names.
    pub fn named(names: &[&str]) -> Self {
        Self { names: names.iter().map(|name| (*name).to_owned()).collect(), under: None }
    }

    /// These processes, and whatever they have started.
    pub fn under(roots: Vec<u32>) -> Self {
        Self { names: Vec::new(), under: Some(roots) }
    }

    fn find(&self, all: &[Found]) -> BTreeMap<String, Ran> {
        let mut of: BTreeMap<_, Ran> = self.names.iter().map(|name| (name.clone(), Ran::new())).collect();
        match &self.under {
            None => {
                for found in all {
                    of.entry(found.name.clone()).and_modify(|of_name| of_name.extend([found.ran()]));
                }
            }
            Some(roots) => {
                for found in descendants(all, roots) {
                    of.entry(found.name.clone()).or_default().extend([found.ran()]);
                }
            }
        }
        of
    }
}

/// Name, parent, start and use, of /proc/PID/stat.
fn process_of(stat: &str) -> Option<(&str, u32, u64, Process)> {
    // The second field is the name in parentheses and may hold anything: count from its end.
    let (before, after) = stat.rsplit_once(") ")?;
    let name = before.split_once('(')?.1;
    let fields: Vec<&str> = after.split_whitespace().collect();
    let number = |n: usize| fields.get(n)?.parse::<u64>().ok();
    // SAFETY: sysconf takes a number and returns one.
    let page_bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as u64;
    let cpu_seconds = (number(11)? + number(12)?) as f64 / TICKS_PER_SECOND;
    let parent = number(1)?.try_into().ok()?;
    Some((name, parent, number(19)?, Process { cpu_seconds, resident_bytes: number(21)? * page_bytes }))
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
        let (name, parent, started, process) = process_of(stat).unwrap();
        assert_eq!((name, parent, started, process.cpu_seconds), ("a) b (c", 1, 777, 2.0));
        assert_eq!(process.resident_bytes % 3, 0);
    }

    #[test]
    fn sectors_are_512_bytes() {
        let diskstats = " 254 0 vda 1 2 30 4 5 6 70 8 0 0 0\n 254 1 vda1 1 2 31 4 5 6 71 8 0 0 0\n";
        assert_eq!(device_bytes(diskstats, libc::makedev(254, 1)), Some((71 * 512, 31 * 512)));
        assert_eq!(device_bytes(diskstats, libc::makedev(254, 2)), None);
        let all = |minors: &[u32]| {
            all_device_bytes(diskstats, &minors.iter().map(|minor| libc::makedev(254, *minor)).collect::<Vec<_>>())
        };
        assert_eq!(all(&[0, 1]), Some((141 * 512, 61 * 512)));
        assert_eq!(all(&[0, 2]), None, "a sum without one of them would be too small");
    }

    const DEV: &str = "Inter-|   Receive\n face |bytes\n    lo: 11 2 0 0 0 0 0 0 99 2 0 0 0 0 0 0\n   hub: 7 2 0 0 0 0 0 0 50 2 0 0 0 0 0 0\n\
                       node-1: 3 1 0 0 0 0 0 0 1000 1 0 0 0 0 0 0\nnode-2: 4 1 0 0 0 0 0 0 1000 1 0 0 0 0 0 0\n";

    #[test]
    fn loopback_counts_what_is_sent() {
        assert_eq!(sent_bytes(DEV, "lo"), Some(99));
        assert_eq!(sent_bytes(DEV, "eth0"), None);
    }

    #[test]
    fn an_interface_counts_both_ways() {
        assert_eq!(both_ways_bytes(DEV, "hub"), Some(57));
        assert_eq!(both_ways_bytes(DEV, "eth0"), None);
    }

    #[test]
    fn the_way_to_this_machine_is_loopback() {
        assert_eq!(interface_to(Ipv4Addr::LOCALHOST.into()).as_deref(), Some("lo"));
        // Set aside for examples (RFC 5737): no interface has it.
        assert_eq!(interface_of(Ipv4Addr::new(192, 0, 2, 1).into()), None);
    }

    #[test]
    fn what_nobody_counts_is_not_zero() {
        let looked = look(&Watch::default(), None).unwrap();
        let spent = looked.until(&look(&Watch::default(), None).unwrap());
        assert_eq!((spent.network_bytes_per_second, spent.device_write_bytes_per_second), (None, None));
        let watch = || Watch { network: NetworkCounter::Loopback, ..Watch::default() };
        assert!(look(&watch(), None).unwrap().until(&look(&watch(), None).unwrap()).network_bytes_per_second.is_some());
    }

    #[test]
    fn a_byte_that_crosses_a_bridge_counts_once() {
        assert_eq!(bridge_bytes(DEV, "hub", "node-"), Some(50 + 3 + 4));
        assert_eq!(bridge_bytes(DEV, "none", "node-"), None);
    }

    fn process(pid: u32, parent: u32, name: &str) -> Found {
        let process = Process { cpu_seconds: f64::from(pid), resident_bytes: 0 };
        Found { pid, parent, name: name.to_owned(), started: 1, process }
    }

    #[test]
    fn only_what_a_target_has_started_is_its_own() {
        // A child may have a smaller number than its parent: they begin anew at the end.
        let all = [process(9, 1, "cairn"), process(4, 9, "cairn"), process(5, 4, "etcd"), process(7, 1, "cairn")];
        let of = |processes: Processes| {
            let found = processes.find(&all);
            let pids = |of_name: &Ran| of_name.keys().map(|(pid, _)| *pid).collect::<Vec<_>>();
            found.iter().map(|(name, its)| (name.clone(), pids(its))).collect::<Vec<_>>()
        };
        assert_eq!(of(Processes::named(&["cairn"])), [("cairn".to_owned(), vec![4, 7, 9])]);
        assert_eq!(of(Processes::under(vec![9])), [("cairn".to_owned(), vec![4, 9]), ("etcd".to_owned(), vec![5])]);
        assert_eq!(of(Processes::under(Vec::new())), []);
    }

    #[test]
    fn the_load_generator_counts_with_what_it_has_started() {
        let child = std::process::Command::new("sleep").arg("10").spawn();
        let mut child = child.unwrap();
        let looked = look(&Watch::default(), Some(child.id())).unwrap();
        assert_eq!(looked.client.unwrap().len(), 1);
        child.kill().and_then(|()| child.wait()).unwrap();
    }

    #[test]
    fn this_process_is_not_among_the_targets() {
        let own = fs::read_to_string("/proc/self/comm").unwrap().trim().to_owned();
        let watch = Watch { processes: Processes::named(&[&own]), ..Watch::default() };
        let looked = look(&watch, None).unwrap();
        assert!(!looked.processes[&own].keys().any(|(pid, _)| *pid == std::process::id()));
        assert!(looked.client.is_none());
    }
}
