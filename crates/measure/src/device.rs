//! What a path's bytes lie on: memory, a disk of this machine, or what only looks like one, as sysfs tells.
//!
//! ```text
//!   path ── its file system's device, or its own ──▶ /sys/dev/block/MAJOR:MINOR ──▶ the disk (of a partition: around it) ──▶ Device
//! ```
//!
//! Nothing is guessed: of a namespace at the other end of a network, or of a device that is mapped onto others, this machine does
//! not know how many copies there are.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Device {
    /// Memory of this machine.
    Memory,
    /// A disk on a bus of this machine: one copy, as far as can be seen from here.
    Disk {
        /// Kind, model and cache.
        media: String,
        /// By which the kernel counts its I/O.
        number: u64,
    },
    /// A namespace of an NVMe target, reached over a network.
    Fabric(Fabric),
    /// What is mapped onto something else, or reached by another protocol: nobody here knows what holds the blocks.
    Other {
        /// In words.
        what: String,
        /// By which the kernel counts its I/O; none: it does not.
        number: Option<u64>,
    },
}

/// How the kernel reaches an NVMe namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fabric {
    /// `tcp`, `rdma`, `fc`, `loop`; of several paths each once.
    pub transports: Vec<String>,
    /// The subsystem.
    pub nqn: String,
    /// The namespace.
    pub nsid: u32,
    /// Addresses of its controllers.
    pub addresses: Vec<String>,
}

impl Device {
    /// What `media` is in a setting; none: unknown.
    pub fn media(&self) -> Option<&str> {
        match self {
            Self::Memory => Some("memory"),
            Self::Disk { media, .. } => Some(media),
            Self::Fabric(_) | Self::Other { .. } => None,
        }
    }

    /// The device whose I/O the kernel counts, if these are bytes that the storage writes and not only its client.
    pub fn counted(&self) -> Option<u64> {
        match self {
            Self::Disk { number, .. } => Some(*number),
            Self::Memory | Self::Fabric(_) | Self::Other { .. } => None,
        }
    }

    /// In words.
    pub fn told(&self) -> String {
        match self {
            Self::Memory => "memory".to_owned(),
            Self::Disk { media, .. } => media.clone(),
            Self::Fabric(Fabric { transports, nqn, nsid, addresses }) => {
                format!("NVMe over {}: namespace {nsid} of {nqn} at {}", transports.join(", "), addresses.join(", "))
            }
            Self::Other { what, .. } => what.clone(),
        }
    }
}

/// What a path's bytes lie on.
pub fn device_of(path: &Path) -> Device {
    let unknown = |what: &str| Device::Other { what: what.to_owned(), number: None };
    let Ok(metadata) = fs::metadata(path) else { return unknown("not there") };
    let number = if metadata.file_type().is_block_device() { metadata.rdev() } else { metadata.dev() };
    if let Some(device) = in_sysfs(Path::new("/sys"), number) {
        return device;
    }
    match file_system(&fs::read_to_string("/proc/self/mountinfo").unwrap_or_default(), number).as_deref() {
        Some("tmpfs" | "ramfs") => Device::Memory,
        Some(kind) => unknown(&format!("a file system of the kind {kind}")),
        None => unknown("a file system that is not mounted here"),
    }
}

/// The kind of the file system with this device number.
fn file_system(mountinfo: &str, number: u64) -> Option<String> {
    let number = format!("{}:{}", libc::major(number), libc::minor(number));
    let mount = mountinfo.lines().find(|line| line.split_whitespace().nth(2) == Some(&number))?;
    Some(mount.rsplit_once(" - ")?.1.split_whitespace().next()?.to_owned())
}

/// A block device, as it stands in the tree at `sys`; none: it is not there.
fn in_sysfs(sys: &Path, number: u64) -> Option<Device> {
    let at = sys.join(format!("dev/block/{}:{}", libc::major(number), libc::minor(number)));
    let mut disk = fs::canonicalize(at).ok()?;
    if disk.join("partition").exists() {
        disk.pop();
    }
    let name = disk.file_name()?.to_string_lossy().into_owned();
    if name.starts_with("nvme") {
        match nvme(&disk) {
            Some(fabric) if fabric.transports == ["pcie"] => {}
            Some(fabric) => return Some(Device::Fabric(fabric)),
            None => {
                return Some(Device::Other { what: format!("{name}, an NVMe namespace without a path"), number: None });
            }
        }
    }
    let other = |what: String| Some(Device::Other { what, number: Some(number) });
    match mapped(&disk, &name) {
        Some(what) => other(what),
        None if is_virtual(&disk) => other(format!("{name}, which is no disk of this machine")),
        None => Some(Device::Disk { media: media(&disk, &name), number }),
    }
}

/// Its paths: a namespace hangs below a controller, or, with several paths, below its subsystem.
fn nvme(disk: &Path) -> Option<Fabric> {
    let above = fs::canonicalize(disk.join("device")).ok()?;
    let controllers: Vec<PathBuf> = match above.join("transport").exists() {
        true => vec![above.clone()],
        false => {
            let below = fs::read_dir(&above).ok()?.flatten().map(|entry| entry.path());
            below.filter(|path| path.join("transport").exists()).collect()
        }
    };
    let all = |of: &dyn Fn(&Path) -> Option<String>| {
        let mut all: Vec<String> = controllers.iter().filter_map(|controller| of(controller)).collect();
        all.sort();
        all.dedup();
        all
    };
    let transports = all(&|controller| text(&controller.join("transport")));
    let addresses = all(&|controller| address(&text(&controller.join("address"))?));
    let nqn = text(&above.join("subsysnqn")).or_else(|| text(&controllers.first()?.join("subsysnqn")));
    let nsid = text(&disk.join("nsid")).and_then(|nsid| nsid.parse().ok());
    (!transports.is_empty()).then_some(Fabric {
        transports,
        nqn: nqn.unwrap_or_default(),
        nsid: nsid.unwrap_or_default(),
        addresses,
    })
}

/// `10.0.0.1:4420` of `traddr=10.0.0.1,trsvcid=4420,…`; what has another form as it is.
fn address(told: &str) -> Option<String> {
    let value = |key: &str| told.split(',').find_map(|part| part.strip_prefix(key));
    match (value("traddr="), value("trsvcid=")) {
        (Some(host), Some(port)) if host.contains(':') => Some(format!("[{host}]:{port}")),
        (Some(host), Some(port)) => Some(format!("{host}:{port}")),
        _ => Some(told.to_owned()).filter(|told| !told.is_empty()),
    }
}

/// What is known of a device whose blocks another one holds, or another machine.
fn mapped(disk: &Path, name: &str) -> Option<String> {
    let read = |below: &str| text(&disk.join(below));
    if name.starts_with("rbd") {
        let [pool, image] = ["device/pool", "device/name"].map(|below| read(below).unwrap_or_else(|| "?".to_owned()));
        return Some(format!("{name}, image {pool}/{image} of Ceph by the kernel"));
    }
    if name.starts_with("nbd") {
        return Some(format!("{name}, an NBD export"));
    }
    if let Some(file) = read("loop/backing_file") {
        return Some(format!("{name}, the file {file}"));
    }
    if disk.join("dm").exists() {
        return Some(format!("{name}, mapped ({})", read("dm/uuid").unwrap_or_default()));
    }
    if disk.join("md").exists() {
        return Some(format!("{name}, an array ({})", read("md/level").unwrap_or_default()));
    }
    // A SCSI disk that an initiator has made.
    let is_part = |begins: &str| disk.components().any(|part| part.as_os_str().to_string_lossy().starts_with(begins));
    if is_part("session") {
        return Some(format!("{name}, a disk over iSCSI"));
    }
    is_part("rport-").then(|| format!("{name}, a disk over Fibre Channel"))
}

/// What hangs on no bus.
fn is_virtual(disk: &Path) -> bool {
    disk.to_string_lossy().contains("/devices/virtual/")
}

fn media(disk: &Path, name: &str) -> String {
    let read = |below: &str| text(&disk.join(below));
    // What lies beneath a virtual machine's disk is its host's to know.
    let is_of_a_guest = ["vd", "xvd"].iter().any(|begins| name.starts_with(begins));
    let model = read("device/model").unwrap_or_else(|| name.trim_end_matches(|c: char| c.is_ascii_digit()).to_owned());
    let kind = match (read("queue/rotational").as_deref(), is_of_a_guest) {
        (_, true) => "virtual disk",
        (Some("1"), false) => "rotating disk",
        _ => "disk",
    };
    let cache = read("queue/write_cache").unwrap_or_else(|| "cache unknown".to_owned());
    format!("{kind} {model}, {cache}")
}

fn text(path: &Path) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// A tree as sysfs is, which goes with this.
    struct Sys(PathBuf);

    impl Sys {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("cairn-measure-sys-{}-{name}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            fs::create_dir_all(path.join("dev/block")).unwrap();
            Self(fs::canonicalize(path).unwrap())
        }

        /// A disk with a device number, and what its files say.
        fn disk(&self, minor: u32, at: &str, files: &[(&str, &str)]) -> u64 {
            let disk = self.0.join(at);
            fs::create_dir_all(&disk).unwrap();
            symlink(&disk, self.0.join(format!("dev/block/259:{minor}"))).unwrap();
            self.files(at, files);
            libc::makedev(259, minor)
        }

        fn files(&self, at: &str, files: &[(&str, &str)]) {
            for (name, says) in files {
                let path = self.0.join(at).join(name);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, format!("{says}\n")).unwrap();
            }
        }

        fn link(&self, at: &str, to: &str) {
            symlink(self.0.join(to), self.0.join(at)).unwrap();
        }

        fn is(&self, number: u64) -> Device {
            in_sysfs(&self.0, number).unwrap()
        }
    }

    impl Drop for Sys {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    /// Where a disk stands, what its files say, and what is told of it.
    type Stands<'a> = (&'a str, &'a [(&'a str, &'a str)], &'a str);

    const NQN: &str = "nqn.2014-08.org.nvmexpress:uuid:7";

    #[test]
    fn a_namespace_over_tcp_is_no_disk_with_one_path_or_with_several() {
        let sys = Sys::new("fabric");
        let one = "devices/virtual/nvme-fabrics/ctl/nvme0";
        let number = sys.disk(1, &format!("{one}/nvme0n1"), &[("nsid", "3"), ("size", "1")]);
        let address = "traddr=10.0.0.1,trsvcid=4420,src_addr=10.0.0.9";
        sys.files(one, &[("transport", "tcp"), ("subsysnqn", NQN), ("address", address)]);
        sys.link(&format!("{one}/nvme0n1/device"), one);
        let fabric = |addresses: &[&str]| {
            Device::Fabric(Fabric {
                transports: vec!["tcp".to_owned()],
                nqn: NQN.to_owned(),
                nsid: 3,
                addresses: addresses.iter().map(|address| (*address).to_owned()).collect(),
            })
        };
        assert_eq!(sys.is(number), fabric(&["10.0.0.1:4420"]));
        assert_eq!((sys.is(number).media(), sys.is(number).counted()), (None, None));

        let subsystem = "devices/virtual/nvme-subsystem/nvme-subsys1";
        let number = sys.disk(2, &format!("{subsystem}/nvme1n1"), &[("nsid", "3")]);
        sys.files(subsystem, &[("subsysnqn", NQN)]);
        sys.link(&format!("{subsystem}/nvme1n1/device"), subsystem);
        for (controller, host) in [("nvme1", "10.0.0.1"), ("nvme2", "fd00::2")] {
            let at = format!("devices/virtual/nvme-fabrics/ctl/{controller}");
            let address = format!("traddr={host},trsvcid=4420");
            sys.files(&at, &[("transport", "tcp"), ("subsysnqn", NQN), ("address", &address)]);
            sys.link(&format!("{subsystem}/{controller}"), &at);
        }
        assert_eq!(sys.is(number), fabric(&["10.0.0.1:4420", "[fd00::2]:4420"]));
        assert!(sys.is(number).told().contains(NQN));
    }

    #[test]
    fn a_disk_of_this_machine_is_one_and_so_is_its_partition() {
        let sys = Sys::new("disk");
        let controller = "devices/pci0000:00/0000:00:04.0/nvme/nvme0";
        let at = format!("{controller}/nvme0n1");
        let whole = sys.disk(1, &at, &[("queue/rotational", "0"), ("queue/write_cache", "write through")]);
        sys.files(controller, &[("transport", "pcie"), ("address", "0000:00:04.0"), ("model", "FAST")]);
        sys.link(&format!("{at}/device"), controller);
        let part = sys.disk(2, &format!("{at}/nvme0n1p1"), &[("partition", "1")]);
        for number in [whole, part] {
            let media = "disk FAST, write through".to_owned();
            assert_eq!(sys.is(number), Device::Disk { media, number });
            assert_eq!(sys.is(number).counted(), Some(number));
        }
        let guest =
            sys.disk(3, "devices/pci0000:00/0000:00:02.0/virtio1/block/vda", &[("queue/write_cache", "write back")]);
        assert_eq!(sys.is(guest).media(), Some("virtual disk vda, write back"));
    }

    #[test]
    fn what_other_machines_or_devices_hold_is_told_as_that() {
        let sys = Sys::new("other");
        let disks: [Stands<'_>; 8] = [
            ("devices/rbd/0/block/rbd0", &[("device/pool", "p"), ("device/name", "i")], "image p/i of Ceph"),
            ("devices/virtual/block/nbd0", &[("pid", "7")], "an NBD export"),
            ("devices/virtual/block/loop0", &[("loop/backing_file", "/x.img")], "the file /x.img"),
            ("devices/virtual/block/dm-0", &[("dm/uuid", "CRYPT-LUKS2-7")], "mapped (CRYPT-LUKS2-7)"),
            ("devices/virtual/block/md0", &[("md/level", "raid1")], "an array (raid1)"),
            ("devices/virtual/block/zram0", &[], "no disk of this machine"),
            ("devices/platform/host2/session1/target2:0:0/2:0:0:0/block/sda", &[], "over iSCSI"),
            ("devices/pci0000:00/host3/rport-3:0-0/target3:0:0/3:0:0:0/block/sdb", &[], "over Fibre Channel"),
        ];
        for (minor, (at, files, told)) in disks.into_iter().enumerate() {
            let device = sys.is(sys.disk(minor as u32, at, files));
            assert!(matches!(device, Device::Other { .. }) && device.told().contains(told), "{at}: {device:?}");
            assert_eq!((device.media(), device.counted()), (None, None), "{at}");
        }
        let lost = sys.disk(9, "devices/virtual/nvme-subsystem/nvme-subsys9/nvme9n1", &[("nsid", "1")]);
        assert!(sys.is(lost).told().contains("without a path"));
        assert_eq!(in_sysfs(&sys.0, libc::makedev(9, 9)), None);
    }

    #[test]
    fn a_file_system_is_told_by_its_device() {
        let mounts = "29 1 0:26 / /dev/shm rw - tmpfs tmpfs rw\n30 1 0:44 / /n rw shared:1 - nfs4 h:/x rw\n";
        assert_eq!(file_system(mounts, libc::makedev(0, 26)).as_deref(), Some("tmpfs"));
        assert_eq!(file_system(mounts, libc::makedev(0, 44)).as_deref(), Some("nfs4"));
        assert_eq!(file_system(mounts, libc::makedev(0, 45)), None);
    }
}
