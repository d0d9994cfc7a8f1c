//! NBD and NVMe/TCP of somebody else's, Ceph and Vitastor: nothing tells what they are.

use super::{
    Known, NBD_PORT, SAME_MACHINE, Wish, address_of, authority_of, locality_of, locality_of_host, name, network_to, own,
};
use crate::Failure;
use ::torture::target::Uri;
use measure::device::{Device, device_of};
use measure::generator::Reached;
use measure::machine::{DeviceCounter, Processes, Watch};
use measure::run::Contestant;
use measure::setting::{Setting, UNKNOWN};
use measure::target::{Door, Target};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Whatever it holds is written over: that must be said.
pub(super) fn remote(target: &Target, wish: &Wish) -> Result<Known, Failure> {
    let name = name(target);
    if !wish.overwrite {
        return Err(Failure::new(format!(
            "{name} would be written over, and what it holds cannot be looked at: --overwrite says that nobody needs it"
        )));
    }
    let Way { how, processes, authorities } = way(target)?;
    let mut setting = Setting::default();
    let mut localities: Vec<&str> = authorities.iter().map(|authority| locality_of_host(authority)).collect();
    localities.dedup();
    if let [locality] = localities[..] {
        setting.set("locality", locality);
    }
    if matches!(target, Target::Nbd(uri) if authorities.is_empty() && locality_of(uri) == SAME_MACHINE) {
        setting.set("locality", SAME_MACHINE);
    }
    // Where it is may have to be said, and says whose bytes count.
    let locality = match setting.get("locality") {
        UNKNOWN => wish.said("locality").unwrap_or(UNKNOWN),
        told => told,
    };
    let mut names: Vec<String> = processes.iter().map(|name| (*name).to_owned()).collect();
    names.extend(wish.processes.iter().cloned());
    let watch = Watch {
        processes: Processes { names, under: None },
        devices: storage(wish)?,
        network: network_to(locality, authorities.first().map(String::as_str)),
    };
    let about = |engine: &str| BTreeMap::from([("engine".to_owned(), engine.to_owned())]);
    let contestant = match how {
        How::Fio(door) => {
            let about = about(door.engine());
            Contestant::new(name, vec![door], setting, about, watch)
        }
        How::Own(reached) => own(name, reached, setting, about("cairn's own generator"), watch),
    };
    Ok((contestant, None))
}

/// Who loads it.
enum How {
    Fio(Door),
    Own(Reached),
}

struct Way {
    how: How,
    /// Names of its processes, where they are known.
    processes: &'static [&'static str],
    /// HOST:PORT of all that serve blocks, where the target says it.
    authorities: Vec<String>,
}

fn way(target: &Target) -> Result<Way, Failure> {
    let way = |how, processes, authorities| Way { how, processes, authorities };
    Ok(match target {
        Target::Rbd { pool, image, conf } => {
            let door = Door::Rbd { pool: pool.clone(), image: image.clone(), conf: conf.clone() };
            way(How::Fio(door), &["ceph-osd", "ceph-mon"], Vec::new())
        }
        Target::Vitastor { image, etcd, conf, engine } => {
            let engine = engine.clone().unwrap_or_else(|| installed(&ENGINE_PLACES, VITASTOR_ENGINE));
            let door = Door::Vitastor { image: image.clone(), etcd: etcd.clone(), conf: conf.clone(), engine };
            // Where its etcd is says nothing of where its OSDs are.
            way(How::Fio(door), &["vitastor-osd", "etcd"], Vec::new())
        }
        Target::Nbd(uri) => {
            let authorities = authority_of(uri).map(str::to_owned).into_iter().collect();
            way(How::Fio(Door::Nbd { uri: uri.clone() }), &[], authorities)
        }
        Target::OwnNbd(rest) => {
            let (authority, export) = rest.split_once('/').unwrap_or((rest, ""));
            let reached = Reached::Nbd { address: address_of(authority, NBD_PORT)?, export: export.to_owned() };
            way(How::Own(reached), &[], vec![authority.to_owned()])
        }
        Target::OwnNvme(uri) => {
            let Uri { hosts, nqn, nsid } = uri.parse().map_err(Failure::new)?;
            let paths = hosts.iter().map(|host| address_of(host, 0)).collect::<Result<_, _>>()?;
            way(How::Own(Reached::Nvme { paths, nqn, nsid }), &[], hosts)
        }
        Target::Cairn { .. } | Target::Path(_) => unreachable!("these are known"),
    })
}

/// Vitastor's engine of fio, and where packages put it.
const VITASTOR_ENGINE: &str = "libfio_vitastor.so";
const ENGINE_PLACES: [&str; 5] =
    ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/local/lib"];

/// Where this file is; in none of these places: its name alone.
fn installed(places: &[&str], file: &str) -> PathBuf {
    let found = places.iter().map(|place| Path::new(place).join(file)).find(|path| path.exists());
    found.unwrap_or_else(|| PathBuf::from(file))
}

/// Who counts the bytes of a target that does not: the kernel, of the devices that were named.
pub(super) fn storage(wish: &Wish) -> Result<DeviceCounter, Failure> {
    let mut numbers = Vec::new();
    for path in &wish.storage {
        let device = device_of(path);
        match device {
            Device::Disk { number, .. } | Device::Other { number: Some(number), .. } => numbers.push(number),
            Device::Memory | Device::Fabric(_) | Device::Other { number: None, .. } => {
                return Err(Failure::new(format!(
                    "--storage {}: {}, of which this machine counts no bytes; name a block device or a directory on one, or \
                     leave it out",
                    path.display(),
                    device.told()
                )));
            }
        }
    }
    // Two directories of one device are one.
    numbers.sort_unstable();
    numbers.dedup();
    Ok(if numbers.is_empty() { DeviceCounter::None } else { DeviceCounter::Kernel(numbers) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use measure::machine::NetworkCounter;

    fn watch(target: &Target, settings: &[(&str, &str)]) -> Watch {
        let settings = settings.iter().map(|(field, value)| ((*field).to_owned(), (*value).to_owned())).collect();
        let wish = Wish { overwrite: true, settings, processes: vec!["x".to_owned()], ..Wish::default() };
        remote(target, &wish).map_err(|failure| failure.line().to_owned()).unwrap().0.watch
    }

    #[test]
    fn bytes_of_a_peer_are_counted_where_somebody_has_said_where_it_is() {
        let rbd = Target::Rbd { pool: "p".to_owned(), image: "i".to_owned(), conf: None };
        let unknown = watch(&rbd, &[]);
        assert_eq!(unknown.network, NetworkCounter::None);
        assert!(matches!(unknown.devices, DeviceCounter::None));
        assert_eq!(unknown.processes.names, ["ceph-osd", "ceph-mon", "x"]);
        assert_eq!(watch(&rbd, &[("locality", "same-machine")]).network, NetworkCounter::Loopback);
        for target in
            ["nbd://127.0.0.1/x", "nbd+unix:///x?socket=/s", "own-nbd://127.0.0.1/x", "nvme-tcp://127.0.0.1:1/q?nsid=1"]
        {
            let target: Target = target.parse().unwrap();
            assert_eq!(watch(&target, &[]).network, NetworkCounter::Loopback, "{target:?}");
        }
        // What the address says is not to be said otherwise.
        let elsewhere = Target::Nbd("nbd://192.0.2.1/x".to_owned());
        assert_ne!(watch(&elsewhere, &[("locality", "same-machine")]).network, NetworkCounter::Loopback);
    }

    #[test]
    fn vitastor_is_reached_by_its_own_engine() {
        let target: Target = "vitastor:i?etcd=127.0.0.1:2379&engine=/v/libfio_vitastor.so".parse().unwrap();
        let wish = Wish { overwrite: true, ..Wish::default() };
        let (contestant, size) = remote(&target, &wish).map_err(|failure| failure.line().to_owned()).unwrap();
        assert_eq!((contestant.name.as_str(), size), ("vitastor:i", None));
        assert_eq!(contestant.doors[0].job_lines()[0], "ioengine=external:/v/libfio_vitastor.so");
        assert_eq!(contestant.watch.processes.names, ["vitastor-osd", "etcd"]);
        // Its etcd is here; its blocks may be anywhere.
        assert_eq!(contestant.setting.get("locality"), UNKNOWN);
        assert_eq!(installed(&["/nowhere", "/proc"], "uptime"), Path::new("/proc/uptime"));
        assert_eq!(installed(&["/nowhere"], VITASTOR_ENGINE), Path::new(VITASTOR_ENGINE));
        assert!(remote(&target, &Wish::default()).is_err(), "it is not written over unasked");
    }

    #[test]
    fn what_our_own_generator_loads_is_no_run_of_fio() {
        for target in ["own-nbd://127.0.0.1/x", "nvme-tcp://127.0.0.1:1,127.0.0.1:2/q?nsid=1"] {
            let wish = Wish { overwrite: true, ..Wish::default() };
            let known = remote(&target.parse().unwrap(), &wish).map_err(|failure| failure.line().to_owned());
            let contestant = known.unwrap().0;
            assert!(contestant.doors.is_empty() && contestant.own_load.is_some() && contestant.own_fill.is_some());
            assert_eq!(contestant.setting.get("fio"), measure::generator::NAME);
        }
        let wish = Wish { overwrite: true, ..Wish::default() };
        let bad = remote(&Target::OwnNvme("nvme-tcp://h".to_owned()), &wish).map(drop).unwrap_err();
        assert!(bad.line().contains("nvme-tcp://HOST:PORT"), "{}", bad.line());
    }

    #[test]
    fn storage_that_nobody_counts_is_refused() {
        let storage = |path: &str| storage(&Wish { storage: vec![path.into()], ..Wish::default() });
        let refused = storage("/proc").map(drop).unwrap_err();
        assert!(refused.line().contains("--storage /proc") && refused.line().contains("proc"), "{}", refused.line());
        assert!(storage("/nowhere/at/all").is_err());
    }
}
