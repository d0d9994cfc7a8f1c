//! A volume of the cluster, which tells what it is.

use super::{
    Known, NBD_PORT, NONE, SAME_MACHINE, Wish, address_of, authority_of, locality_of, locality_of_host, name,
    network_to, own,
};
use crate::Failure;
use crate::client::Client;
use measure::device::device_of;
use measure::generator::Reached;
use measure::machine::{DeviceCounter, Processes, Watch};
use measure::run::Contestant;
use measure::setting::Setting;
use measure::target::{By, Door, Target};
use node::admin::pool_types::Placement;
use node::admin::types::{Compression, Limits, Node, Volume};
use node::size::ByteSize;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// Where NVMe/TCP targets listen that do not say it.
const NVME_PORT: u16 = 4420;
/// What threads of a node's data path are called.
const CORE_THREADS: &str = "cairn-core-";

/// What a cluster tells of a volume.
pub(super) struct Told {
    pub(super) setting: Setting,
    pub(super) about: BTreeMap<String, String>,
    pub(super) watch: Watch,
}

/// A volume, as far as its cluster tells what it is. No block is written.
pub(crate) fn cairn(
    volume: &str,
    conf: Option<&str>,
    by: Option<By>,
    client: &Rc<Client>,
    wish: &Wish,
) -> Result<Known, Failure> {
    let target = Target::Cairn { volume: volume.to_owned(), conf: conf.map(str::to_owned), by };
    let volume = client.volume(volume)?;
    refuse_held(&volume, wish)?;
    let Told { setting, mut about, watch } = told(&volume, client)?;
    let by = by.or_else(|| By::named(&wish.engine)).unwrap_or(By::Nbd);
    about.insert("engine".to_owned(), by.name().to_owned());
    let reached = match by {
        By::Nbd => Err(Door::Nbd { uri: volume.nbd_uri.clone() }),
        By::Libcairn => Err(libcairn(&volume.name, conf)?),
        By::OwnNbd => {
            let authority = authority_of(&volume.nbd_uri).unwrap_or_default();
            Ok(Reached::Nbd { address: address_of(authority, NBD_PORT)?, export: volume.name.clone() })
        }
        By::OwnNvme => {
            let paths = volume.nvme_addresses.iter().map(|address| address_of(address, NVME_PORT));
            let (nqn, nsid) = (volume.nqn.clone(), volume.nsid);
            Ok(Reached::Nvme { paths: paths.collect::<Result<_, _>>()?, nqn, nsid })
        }
    };
    let contestant = match reached {
        Ok(reached) => own(name(&target), reached, setting, about, watch),
        Err(door) => Contestant::new(name(&target), vec![door], setting, about, watch),
    };
    Ok((contestant, Some(volume.size_bytes)))
}

/// One that is locked, or holds something that nobody has said is not needed.
pub(super) fn refuse_held(volume: &Volume, wish: &Wish) -> Result<(), Failure> {
    let name = &volume.name;
    if volume.locked {
        return Err(Failure::new(format!("{name} is locked: cairn volume unlock {name}")));
    }
    let held = volume.usage.map_or(0, |usage| usage.unique_bytes + usage.shared_bytes);
    if held > 0 && !wish.overwrite {
        let held = ByteSize(held);
        return Err(Failure::new(format!(
            "{name} holds {held}, which would be written over: measure a new volume (cairn volume create), or say with \
             --overwrite that nobody needs it"
        )));
    }
    Ok(())
}

/// fio as the volume's head.
fn libcairn(name: &str, conf: Option<&str>) -> Result<Door, Failure> {
    let beside = || Some(std::env::current_exe().ok()?.parent()?.join("libcairn-fio.so"));
    let engine = std::env::var_os("CAIRN_FIO_ENGINE").map(PathBuf::from).or_else(beside).unwrap_or_default();
    // fio runs elsewhere.
    let conf = conf.map(|conf| std::path::absolute(conf).map(|path| path.display().to_string())).transpose();
    let conf = conf.map_err(|error| Failure::new(format!("{name}: {error}")))?;
    let uri = conf.map_or_else(|| format!("cairn:{name}"), |conf| format!("cairn:{name}?conf={conf}"));
    Ok(Door::Libcairn { uri, engine })
}

/// Asks the cluster.
pub(super) fn told(volume: &Volume, client: &Rc<Client>) -> Result<Told, Failure> {
    let pool = client.pool(&volume.pool)?;
    let (devices, nodes) = (client.devices()?, client.nodes()?);
    let locality = locality_of(&volume.nbd_uri);
    let mut setting = Setting::default();
    setting.set("copies", pool.replicas.to_string());
    setting.set("min-in-sync", pool.min_in_sync.to_string());
    setting.set("nodes", pool.nodes.len().to_string());
    if let Some(cores) = node_cores(&nodes) {
        setting.set("node-cores", cores);
    }
    let placement = match volume.placement {
        Placement::Gathered => "gathered",
        Placement::Spread => "spread",
    };
    setting.set("placement", placement);
    setting.set("limits", limits_told(&volume.limits));
    setting.set("durability", "each-write");
    setting.set("checksums", "crc32c");
    setting.set("encryption", if volume.encrypted { "AES-256-XTS" } else { "none" });
    let compression = match volume.compression {
        Compression::Lz4 => "lz4",
        Compression::Zstd => "zstd",
        Compression::Off => "off",
    };
    setting.set("compression", compression);
    setting.set("cache", "none");
    setting.set("locality", locality);
    if locality == SAME_MACHINE {
        let its: Option<Vec<String>> =
            devices.iter().map(|device| device_of(Path::new(&device.path)).media().map(str::to_owned)).collect();
        let mut its = its.unwrap_or_default();
        its.sort();
        its.dedup();
        if !its.is_empty() {
            setting.set("media", its.join(" and "));
        }
    }
    let about = [
        ("version", format!("cairn {}", client.status()?.version)),
        ("head", volume.head.clone()),
        ("devices", devices.len().to_string()),
    ];
    let asked = Rc::clone(client);
    let count = move || {
        let devices = asked.devices().ok()?;
        let sum = |of: fn(&node::admin::types::Device) -> u64| devices.iter().map(of).sum();
        Some((sum(|device| device.device_bytes_written), sum(|device| device.device_bytes_read)))
    };
    let processes = if locality == SAME_MACHINE { &["cairn", "etcd"][..] } else { &[] };
    let watch = Watch {
        processes: Processes::named(processes),
        devices: DeviceCounter::Target(Box::new(count)),
        network: network_to(locality, authority_of(&volume.nbd_uri)),
    };
    let about = about.into_iter().map(|(what, value)| (what.to_owned(), value)).collect();
    Ok(Told { setting, about, watch })
}

/// In words.
fn limits_told(limits: &Limits) -> String {
    let told = [(limits.iops, "IOPS"), (limits.bytes_per_second, "bytes/s"), (limits.burst_ms, "ms burst")];
    let told: Vec<String> = told.into_iter().filter_map(|(limit, unit)| Some(format!("{} {unit}", limit?))).collect();
    if told.is_empty() { NONE.to_owned() } else { told.join(", ") }
}

/// Cores of the nodes' data paths, as threads of their processes; none: not all of these are to be seen from here.
fn node_cores(nodes: &[Node]) -> Option<String> {
    let is_here = |node: &Node| node.pid != 0 && locality_of_host(&node.nbd_address) == SAME_MACHINE;
    if !nodes.iter().all(is_here) {
        return None;
    }
    let mut pids: Vec<u32> = nodes.iter().map(|node| node.pid).collect();
    pids.sort_unstable();
    pids.dedup();
    let cores: Option<Vec<usize>> = pids.into_iter().map(core_threads).collect();
    cores_told(&cores?, nodes.len())
}

/// `1 each`; of unlike nodes all of them; of nodes in one process what they share.
fn cores_told(cores: &[usize], nodes: usize) -> Option<String> {
    let first = cores.first()?;
    let all: Vec<String> = cores.iter().map(usize::to_string).collect();
    Some(match cores.iter().all(|of_one| of_one == first) {
        _ if cores.len() != nodes => format!("{} for {nodes} nodes", cores.iter().sum::<usize>()),
        true => format!("{first} each"),
        false => all.join(", "),
    })
}

fn core_threads(pid: u32) -> Option<usize> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten();
    let name = |thread: &fs::DirEntry| fs::read_to_string(thread.path().join("comm")).unwrap_or_default();
    let cores = threads.filter(|thread| name(thread).starts_with(CORE_THREADS)).count();
    (cores > 0).then_some(cores)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_of_nodes_are_told_one_by_one_unless_they_are_alike() {
        assert_eq!(cores_told(&[1, 1, 1], 3).as_deref(), Some("1 each"));
        assert_eq!(cores_told(&[2, 1, 1], 3).as_deref(), Some("2, 1, 1"));
        assert_eq!(cores_told(&[2], 3).as_deref(), Some("2 for 3 nodes"));
        assert_eq!(cores_told(&[], 0), None);
    }

    #[test]
    fn cores_are_threads_of_the_data_path() {
        let (begins, began) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let run = move || {
            begins.send(()).unwrap();
            let _ = ended.recv();
        };
        let thread = std::thread::Builder::new().name(format!("{CORE_THREADS}0")).spawn(run).unwrap();
        began.recv().unwrap();
        // Other tests of this process may have cores, too.
        assert!(core_threads(std::process::id()).is_some());
        drop(end);
        thread.join().unwrap();
        assert_eq!(core_threads(u32::MAX), None);
    }

    #[test]
    fn a_limit_is_part_of_a_setting() {
        assert_eq!(limits_told(&Limits::default()), "none");
        let limits = Limits { iops: Some(5000), bytes_per_second: None, burst_ms: Some(100) };
        assert_eq!(limits_told(&limits), "5000 IOPS, 100 ms burst");
    }
}
