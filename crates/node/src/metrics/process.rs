//! The process, under the names that every Prometheus client library uses.

use super::family::Families;
use std::fs;
use std::time::Duration;

/// Fields of `/proc/self/stat` behind the name (proc(5)): times in ticks, resident memory in pages.
const STAT_USER_TICKS: usize = 11;
const STAT_SYSTEM_TICKS: usize = 12;
const STAT_RESIDENT_PAGES: usize = 21;

/// What the system says of this process; what it does not say is not told.
pub(super) fn tell(families: &mut Families) {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    if let Some((cpu, resident_bytes)) = parse(&stat, system(libc::_SC_CLK_TCK), system(libc::_SC_PAGESIZE)) {
        families.counter("process_cpu_seconds_total", "CPU time that the process has used.", |tell| {
            tell(&[], cpu.as_secs_f64());
        });
        families.gauge("process_resident_memory_bytes", "Memory of the process that is resident.", |tell| {
            tell(&[], resident_bytes as f64);
        });
    }
    if let Ok(descriptors) = fs::read_dir("/proc/self/fd") {
        families.gauge("process_open_fds", "File descriptors that are open.", |tell| {
            tell(&[], descriptors.count() as f64);
        });
    }
}

fn system(name: libc::c_int) -> u64 {
    // SAFETY: asks for a number; no memory is passed.
    u64::try_from(unsafe { libc::sysconf(name) }).unwrap_or(0)
}

/// CPU time and resident bytes of a line of `/proc/PID/stat`.
fn parse(stat: &str, ticks_per_second: u64, page_bytes: u64) -> Option<(Duration, u64)> {
    // The name stands in parentheses and may hold anything, spaces and parentheses too.
    let fields: Vec<u64> =
        stat.rsplit_once(')')?.1.split_whitespace().map(|field| field.parse().unwrap_or(0)).collect();
    let ticks = fields.get(STAT_USER_TICKS)? + fields.get(STAT_SYSTEM_TICKS)?;
    let cpu = Duration::from_millis((ticks * 1000).checked_div(ticks_per_second)?);
    Some((cpu, fields.get(STAT_RESIDENT_PAGES)? * page_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_spaces_and_parentheses_moves_no_field() {
        let line = "42 (a ) b) S 1 2 3 4 5 6 7 8 9 10 250 50 0 0 20 0 3 0 99 1000 7 18446744073709551615";
        assert_eq!(parse(line, 100, 4096), Some((Duration::from_secs(3), 7 * 4096)));
        assert_eq!(parse("", 100, 4096), None);
        assert_eq!(parse(line, 0, 4096), None);
    }
}
