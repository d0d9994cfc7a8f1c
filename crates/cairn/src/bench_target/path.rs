//! A file or device of this machine, which may be no disk of it.

use super::volume::{self, Told};
use super::{DEFAULT_ENGINE, Known, NONE, SAME_MACHINE, Wish, locality_of_host, name, network_to};
use crate::Failure;
use crate::client::Client;
use measure::device::{Device, Fabric, device_of};
use measure::fio::Fio;
use measure::machine::{DeviceCounter, NetworkCounter, Processes, Watch};
use measure::run::Contestant;
use measure::setting::Setting;
use measure::target::{Door, Target, prepare_path};
use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;

/// Whether the kernel reaches it over a network, by NVMe.
pub(super) fn is_over_fabrics(path: &Path) -> bool {
    matches!(device_of(path), Device::Fabric(_))
}

/// A file or device, which is made or looked at. A cluster is asked for what may be a volume of it.
pub(crate) fn file(path: &Path, wish: &Wish, fio: &Fio, client: Option<&Rc<Client>>) -> Result<Known, Failure> {
    let engine = if wish.engine == DEFAULT_ENGINE || wish.engine == "io_uring" { &wish.engine } else { DEFAULT_ENGINE };
    let door = Door::Path { path: path.to_owned(), engine: engine.to_owned() };
    // Before a file is made that fio could not use.
    fio.check(&door).map_err(Failure::of)?;
    let size = prepare_path(path, wish.span_bytes, wish.overwrite).map_err(Failure::of)?;
    let device = device_of(path);
    let Told { setting, mut about, watch } = match volume_of(&device, client, wish)? {
        Some(told) => told,
        None => told(&device, wish)?,
    };
    about.insert("engine".to_owned(), format!("{engine}, O_DIRECT"));
    about.insert("device".to_owned(), device.told());
    let contestant = Contestant::new(name(&Target::Path(path.to_owned())), vec![door], setting, about, watch);
    Ok((contestant, Some(size)))
}

/// The volume that it is, if the cluster has one of this name and number. A cluster that does not answer knows none.
fn volume_of(device: &Device, client: Option<&Rc<Client>>, wish: &Wish) -> Result<Option<Told>, Failure> {
    let (Device::Fabric(fabric), Some(client)) = (device, client) else { return Ok(None) };
    let is_it = |volume: &node::admin::types::Volume| volume.nqn == fabric.nqn && volume.nsid == fabric.nsid;
    let Some(volume) = client.volumes().ok().and_then(|volumes| volumes.into_iter().find(is_it)) else {
        return Ok(None);
    };
    let volume = client.volume(&volume.name)?;
    volume::refuse_held(&volume, wish)?;
    volume::told(&volume, client).map(Some)
}

/// What this machine knows of it.
fn told(device: &Device, wish: &Wish) -> Result<Told, Failure> {
    let setting = setting_of(device);
    // What a client sends to storage elsewhere is not what that writes.
    let devices = match device {
        Device::Memory | Device::Disk { .. } => {
            device.counted().map_or(DeviceCounter::None, |number| DeviceCounter::Kernel(vec![number]))
        }
        Device::Fabric(_) | Device::Other { .. } => super::remote::storage(wish)?,
    };
    let network = match device {
        Device::Fabric(fabric) => network_to(setting.get("locality"), fabric.addresses.first().map(String::as_str)),
        _ => NetworkCounter::None,
    };
    let watch = Watch { processes: Processes { names: wish.processes.clone(), under: None }, devices, network };
    Ok(Told { setting, about: BTreeMap::new(), watch })
}

/// Of a disk, all; of what only looks like one, where it is at most.
fn setting_of(device: &Device) -> Setting {
    let mut setting = Setting::default();
    match device {
        Device::Memory | Device::Disk { .. } => {
            let media = device.media().unwrap_or_default();
            setting.set("copies", "1");
            setting.set("min-in-sync", "1");
            for field in ["nodes", "node-cores", "placement", "limits", "checksums", "encryption", "cache"] {
                setting.set(field, NONE);
            }
            setting.set("durability", if media.ends_with("write through") { "each-write" } else { "flush" });
            setting.set("compression", "off");
            setting.set("locality", SAME_MACHINE);
            setting.set("media", media);
        }
        Device::Fabric(Fabric { addresses, .. }) => {
            let mut localities: Vec<&str> = addresses.iter().map(|address| locality_of_host(address)).collect();
            localities.dedup();
            if let [locality] = localities[..] {
                setting.set("locality", locality);
            }
        }
        Device::Other { .. } => {}
    }
    setting
}

#[cfg(test)]
mod tests {
    use super::*;
    use measure::setting::UNKNOWN;

    const DISK: [&str; 4] = ["copies", "checksums", "encryption", "durability"];

    #[test]
    fn a_disk_is_one_copy_and_what_looks_like_one_is_unknown() {
        let disk = setting_of(&Device::Disk { media: "disk FAST, write through".to_owned(), number: 7 });
        assert_eq!(DISK.map(|field| disk.get(field)), ["1", "none", "none", "each-write"]);
        assert_eq!(setting_of(&Device::Memory).get("media"), "memory");
        let fabric = |addresses: &[&str]| {
            Device::Fabric(Fabric {
                transports: vec!["tcp".to_owned()],
                nqn: "nqn.x".to_owned(),
                nsid: 1,
                addresses: addresses.iter().map(|address| (*address).to_owned()).collect(),
            })
        };
        let mapped = Device::Other { what: "dm-0, mapped".to_owned(), number: Some(7) };
        for device in [&fabric(&["192.0.2.1:4420"]), &fabric(&[]), &mapped] {
            let setting = setting_of(device);
            assert_eq!(DISK.map(|field| setting.get(field)), [UNKNOWN; 4], "{device:?}");
            assert_eq!(setting.get("media"), UNKNOWN);
        }
        let locality = |addresses: &[&str]| setting_of(&fabric(addresses)).get("locality").to_owned();
        assert_eq!(locality(&["127.0.0.1:4420", "127.0.0.1:4421"]), "same-machine");
        assert_eq!(locality(&["192.0.2.1:4420"]), "remote");
        assert_eq!(locality(&["127.0.0.1:4420", "192.0.2.1:4420"]), UNKNOWN);
    }

    #[test]
    fn nobody_counts_for_a_client_what_storage_writes() {
        let wish = Wish::default();
        let told = |device: &Device| told(device, &wish).map_err(|failure| failure.line().to_owned()).unwrap().watch;
        assert!(matches!(told(&Device::Disk { media: String::new(), number: 7 }).devices, DeviceCounter::Kernel(_)));
        let mapped = told(&Device::Other { what: String::new(), number: Some(7) });
        assert!(matches!(mapped.devices, DeviceCounter::None));
        assert_eq!(mapped.network, NetworkCounter::None);
    }
}
