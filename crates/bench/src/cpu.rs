//! CPU time, of one process and of the whole machine.
//!
//! On loopback the receiver's TCP work is charged to the sender, so the figure that can be compared is the whole
//! machine's: busy time of all cores while the load ran, less what the machine does when nothing runs.

use std::fs;
use std::io;
use std::time::{Duration, Instant};

/// Ticks per second of the kernel's process accounting (USER_HZ, 100 on every Linux architecture in use).
const TICKS_PER_SECOND: f64 = 100.0;
/// One look at the machine at rest, and how many there are at most.
const LOOK: Duration = Duration::from_millis(500);
const LOOKS_MAX: usize = 6;
/// A machine that is no busier is quiet.
const QUIET_CORES: f64 = 0.05;

/// CPU seconds the machine has spent on anything but idling (idle and iowait left out), since boot.
///
/// # Errors
/// If /proc/stat cannot be read or is not as proc(5) says.
pub fn machine_busy_seconds() -> io::Result<f64> {
    let text = fs::read_to_string("/proc/stat")?;
    let line = text.lines().next().and_then(|line| line.strip_prefix("cpu "));
    let fields: Vec<f64> = line.unwrap_or_default().split_whitespace().filter_map(|field| field.parse().ok()).collect();
    match fields[..] {
        // user nice system idle iowait irq softirq steal
        [user, nice, system, _, _, irq, softirq, ..] => Ok((user + nice + system + irq + softirq) / TICKS_PER_SECOND),
        _ => Err(io::Error::other("/proc/stat does not begin with a cpu line")),
    }
}

/// CPU seconds (user, system) that a process and its threads have used.
///
/// # Errors
/// If there is no such process.
pub fn process_seconds(pid: u32) -> io::Result<(f64, f64)> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The second field is the name in parentheses and may hold anything: count from its end.
    let after_name = text.rsplit_once(')').map_or("", |(_, rest)| rest);
    let field = |n: usize| after_name.split_whitespace().nth(n).and_then(|f| f.parse::<f64>().ok());
    match (field(11), field(12)) {
        (Some(user), Some(system)) => Ok((user / TICKS_PER_SECOND, system / TICKS_PER_SECOND)),
        _ => Err(io::Error::other(format!("/proc/{pid}/stat is not as proc(5) says"))),
    }
}

/// Memory of this process that is resident now.
///
/// # Errors
/// If /proc/self/status cannot be read or is not as proc(5) says.
pub fn resident_bytes() -> io::Result<u64> {
    let text = fs::read_to_string("/proc/self/status")?;
    let kib =
        text.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kib.map(|kib| kib << 10).ok_or_else(|| io::Error::other("/proc/self/status has no VmRSS"))
}

/// A measurement of CPU under way.
pub struct CpuMeter {
    started: Instant,
    machine: f64,
    processes: Vec<(u32, f64)>,
    /// Cores the machine keeps busy when nothing runs, measured before.
    idle_cores: f64,
}

/// What a [`CpuMeter`] saw.
#[derive(Clone, Debug, serde::Serialize)]
pub struct CpuUse {
    /// Cores busy in the whole machine, less what was busy at rest.
    pub machine_cores: f64,
    /// Cores busy in each process asked for, in that order.
    pub process_cores: Vec<f64>,
}

impl CpuMeter {
    /// Cores the machine keeps busy by itself: the least of some looks, as many as it takes until it is quiet. What was
    /// there before leaves work behind (memory that is given back) that is over before the load ends, if not before it
    /// begins: a single look takes too much from what is measured then.
    ///
    /// # Errors
    /// If /proc cannot be read.
    pub fn idle_cores() -> io::Result<f64> {
        let mut least = f64::INFINITY;
        for _ in 0..LOOKS_MAX {
            let (before, started) = (machine_busy_seconds()?, Instant::now());
            std::thread::sleep(LOOK);
            least = least.min((machine_busy_seconds()? - before) / started.elapsed().as_secs_f64());
            if least <= QUIET_CORES {
                break;
            }
        }
        Ok(least)
    }

    /// Begins now.
    ///
    /// # Errors
    /// If /proc cannot be read or a process is not there.
    pub fn start(pids: &[u32], idle_cores: f64) -> io::Result<Self> {
        let processes = pids.iter().map(|pid| process_seconds(*pid).map(|(u, s)| (*pid, u + s)));
        Ok(Self {
            processes: processes.collect::<io::Result<_>>()?,
            machine: machine_busy_seconds()?,
            started: Instant::now(),
            idle_cores,
        })
    }

    /// Ends now.
    ///
    /// # Errors
    /// If /proc cannot be read or a process has ended meanwhile.
    pub fn finish(self) -> io::Result<CpuUse> {
        let seconds = self.started.elapsed().as_secs_f64();
        let machine_cores = (machine_busy_seconds()? - self.machine) / seconds - self.idle_cores;
        let mut process_cores = Vec::with_capacity(self.processes.len());
        for (pid, before) in self.processes {
            let (user, system) = process_seconds(pid)?;
            process_cores.push((user + system - before) / seconds);
        }
        Ok(CpuUse { machine_cores: machine_cores.max(0.0), process_cores })
    }
}
