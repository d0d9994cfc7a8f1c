//! What kind of machine a node runs on, and on what its devices are: facts of the kernel, no content of anything.

use crate::config::NodeConfig;
use crate::files::free_bytes;
use serde_json::{Value, json};
use std::ffi::CStr;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Mount options that have a value and are told: of others a value may be a secret.
const OPTIONS_TOLD: [&str; 16] = [
    "size=",
    "nr_inodes=",
    "mode=",
    "errors=",
    "commit=",
    "data=",
    "stripe=",
    "logbufs=",
    "logbsize=",
    "sunit=",
    "swidth=",
    "compress=",
    "inode64=",
    "recordsize=",
    "barrier=",
    "index=",
];

pub(super) fn text(config_path: &Path) -> Result<String, String> {
    let devices = NodeConfig::read(config_path).map(|config| config.devices).unwrap_or_default();
    let devices: Vec<Value> = devices.iter().map(|device| device_facts(&device.path)).collect();
    let directory = config_path.parent().unwrap_or(Path::new("."));
    let facts = json!({
        "cairn": env!("CARGO_PKG_VERSION"),
        "pid": std::process::id(),
        "process": lines_of("/proc/self/status", &["VmPeak", "VmRSS", "Threads"]),
        "kernel": kernel(),
        "system": line_of("/etc/os-release", "PRETTY_NAME="),
        "cores": std::thread::available_parallelism().map_or(0, usize::from),
        "processor": line_of("/proc/cpuinfo", "model name").trim_start_matches([':', ' ', '\t']),
        "memory": lines_of("/proc/meminfo", &["MemTotal", "MemAvailable", "SwapTotal", "SwapFree", "Committed_AS"]),
        "load": whole("/proc/loadavg"),
        "uptime_seconds": whole("/proc/uptime").split('.').next().unwrap_or_default(),
        "open_files_max": lines_of("/proc/self/limits", &["Max open files", "Max locked memory"]),
        "io_uring_disabled": whole("/proc/sys/kernel/io_uring_disabled"),
        "clock_source": whole("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
        "directory": { "path": directory.display().to_string(), "free_bytes": free_bytes(directory).ok(), "mount": mount_of(directory) },
        "devices": devices,
    });
    serde_json::to_string_pretty(&facts).map(|text| text + "\n").map_err(|error| error.to_string())
}

/// `uname`, without the name of the network node: the addresses are told elsewhere.
fn kernel() -> Value {
    // SAFETY: a utsname of zero bytes is valid, and the call writes to it alone.
    let (result, facts) = unsafe {
        let mut facts: libc::utsname = std::mem::zeroed();
        (libc::uname(&mut facts), facts)
    };
    if result != 0 {
        return Value::Null;
    }
    let text = |field: &[libc::c_char]| {
        // SAFETY: the kernel ends each field with a zero byte, within its length.
        unsafe { CStr::from_ptr(field.as_ptr()) }.to_string_lossy().into_owned()
    };
    json!({
        "name": text(&facts.sysname), "release": text(&facts.release), "version": text(&facts.version),
        "machine": text(&facts.machine),
    })
}

fn whole(path: impl AsRef<Path>) -> String {
    fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

/// What stands behind the first of these beginnings.
fn line_of(path: &str, beginning: &str) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    let found = text.lines().find_map(|line| line.strip_prefix(beginning));
    found.unwrap_or_default().trim().trim_matches('"').to_owned()
}

fn lines_of(path: &str, beginnings: &[&str]) -> Vec<String> {
    let text = fs::read_to_string(path).unwrap_or_default();
    let lines = text.lines().filter(|line| beginnings.iter().any(|beginning| line.starts_with(beginning)));
    lines.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

fn device_facts(path: &Path) -> Value {
    let found = match fs::metadata(path) {
        Ok(found) => found,
        Err(error) => return json!({ "path": path.display().to_string(), "error": error.to_string() }),
    };
    if !found.file_type().is_block_device() {
        return json!({
            "path": path.display().to_string(), "kind": "file", "size_bytes": found.len(),
            "stored_bytes": found.blocks() * 512, "free_bytes": free_bytes(path).ok(), "mount": mount_of(path),
        });
    }
    let (major, minor) = (libc::major(found.rdev()), libc::minor(found.rdev()));
    let mut place = fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).unwrap_or_default();
    let sectors: u64 = whole(place.join("size")).parse().unwrap_or(0);
    if place.join("partition").exists() {
        place.pop();
    }
    let fact = |name: &str| whole(place.join(name));
    json!({
        "path": path.display().to_string(), "kind": "block", "size_bytes": sectors * 512, "model": fact("device/model"),
        "firmware": fact("device/firmware_rev"), "rotational": fact("queue/rotational"), "write_cache": fact("queue/write_cache"),
        "scheduler": fact("queue/scheduler"), "logical_block": fact("queue/logical_block_size"),
        "physical_block": fact("queue/physical_block_size"),
    })
}

/// The file system that a path is on: where it is mounted, its kind, and how.
fn mount_of(path: &Path) -> Value {
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    // The last one hides those before it.
    let on = mounts.lines().rev().filter_map(mount_line).filter(|(point, ..)| path.starts_with(point));
    match on.max_by_key(|(point, ..)| point.components().count()) {
        Some((point, kind, options)) => {
            json!({ "point": point.display().to_string(), "kind": kind, "options": options })
        }
        None => Value::Null,
    }
}

fn mount_line(line: &str) -> Option<(PathBuf, String, Vec<String>)> {
    let mut fields = line.split(' ').skip(1);
    let (point, kind, options) = (fields.next()?, fields.next()?, fields.next()?);
    let told = |option: &str| match option.split_once('=') {
        Some((name, _)) if !OPTIONS_TOLD.iter().any(|told| option.starts_with(told)) => format!("{name}=(taken out)"),
        _ => option.to_owned(),
    };
    Some((point.replace("\\040", " ").into(), kind.to_owned(), options.split(',').map(told).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_of_a_mount_option_that_may_be_a_secret_is_not_told() {
        let line = "//h/s /mnt/a\\040b cifs rw,username=MARKED,password=MARKED,size=5k 0 0";
        let (point, kind, options) = mount_line(line).unwrap();
        assert_eq!((point.as_path(), &*kind), (Path::new("/mnt/a b"), "cifs"));
        assert_eq!(options, ["rw", "username=(taken out)", "password=(taken out)", "size=5k"]);
    }

    #[test]
    fn the_machine_is_described() {
        let directory = crate::testing::TempDir::new();
        let path = directory.path().join("node.toml");
        fs::write(&path, "[[device]]\npath = \"d.img\"\n[[device]]\npath = \"gone\"\n").unwrap();
        fs::write(directory.path().join("d.img"), [0; 4096]).unwrap();
        let facts: Value = serde_json::from_str(&text(&path).unwrap()).unwrap();
        assert_eq!(facts["kernel"]["name"], "Linux");
        assert!(facts["cores"].as_u64() > Some(0) && !facts["memory"].as_array().unwrap().is_empty(), "{facts}");
        assert_eq!((&facts["devices"][0]["kind"], &facts["devices"][0]["size_bytes"]), (&json!("file"), &json!(4096)));
        assert!(
            facts["devices"][0]["mount"]["kind"].is_string() && facts["devices"][1]["error"].is_string(),
            "{facts}"
        );
    }
}
