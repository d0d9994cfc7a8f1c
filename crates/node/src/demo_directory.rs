//! The directory of `cairn demo`: everything lives in it and outlives the process.
//!
//! ```text
//!   D/demo.toml               what the first call said; whether it got to its end
//!   D/lock                    held with flock while a process serves D
//!   D/map.redb                the cluster map
//!   D/node-1/node.toml        exactly what a real node's directory holds
//!   D/node-1/device-1.img     sparse file that serves as the device
//!   D/node-2/…                the same of further nodes
//!   D/etcd/                   the cluster map, and no map.redb, where nodes are processes; D/log/etcd.log is its log
//! ```
//!
//! The first call is all or nothing: until `demo.toml` says that it got to its end nothing was served, so the next
//! call begins anew. From then on nothing that is missing is ever made again: a missing device is an error.

use crate::config::{ConfigError, DEFAULT_ADMIN_PORT, DEFAULT_NBD_PORT, DEFAULT_NVME_PORT};
use crate::config::{DeviceConfig, MapConfig, NodeConfig, default_busy_poll_us};
use crate::demo_processes::{Ports, Processes, settle_ports, write_node_file};
use crate::files::{self, FileError, Lock, during};
use crate::fleet::EtcdPlace;
use crate::service::NodePlace;
use crate::size::ByteSize;
use crate::volume_spec::{BlockSize, VolumeSpec};
use serde::{Deserialize, Serialize};
use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Size of the device when the first call does not say one.
pub const DEFAULT_DEVICE_SIZE: ByteSize = ByteSize(4 << 30);
/// Smallest device of the store.
pub const DEVICE_SIZE_MIN: ByteSize = ByteSize(256 << 20);
/// Largest device of the store: 40 bits of 512-byte units.
pub const DEVICE_SIZE_MAX: ByteSize = ByteSize(512 << 40);
/// Most nodes of one process: far more than a demonstration needs.
pub const NODES_MAX: u16 = 16;
/// Most copies of a block.
pub const REPLICAS_MAX: u16 = 5;
/// The volume of a new directory when the first call names none.
const DEFAULT_VOLUME_NAME: &str = "demo";
const DEFAULT_VOLUME_SIZE: ByteSize = ByteSize(1 << 30);
/// Unit of a file's `st_blocks`, whatever its file system.
const STAT_BLOCK_BYTES: u64 = 512;
/// Version of `demo.toml`.
const DEMO_FILE_VERSION: u32 = 1;

/// What the command line of `cairn demo` says; `None` is "as before", or the default in a new directory.
#[derive(Clone, Debug, Default)]
pub struct DemoOptions {
    /// The directory.
    pub directory: PathBuf,
    /// Size of the device.
    pub device_size: Option<ByteSize>,
    /// Nodes, each with a device of its own.
    pub nodes: Option<u16>,
    /// Copies of each block, on as many nodes.
    pub replicas: Option<u16>,
    /// Each node is a process of its own, and the map is in etcd.
    pub processes: bool,
    /// Volumes that must be there.
    pub volumes: Vec<VolumeSpec>,
    /// Address to listen on.
    pub listen: Option<IpAddr>,
    /// Port of the NVMe/TCP target.
    pub nvme_port: Option<u16>,
    /// Port for NVMe discovery alone.
    pub discovery_port: Option<u16>,
    /// Port of the NBD server.
    pub nbd_port: Option<u16>,
    /// Port of the admin API.
    pub admin_port: Option<u16>,
    /// Cores of the data path.
    pub cores: Option<u16>,
    /// Tried at this start on all locked volumes. Where they are is nobody else's business: not written down.
    pub key_files: Vec<PathBuf>,
}

/// `demo.toml`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct DemoFile {
    version: u32,
    device_size: ByteSize,
    #[serde(default = "one", skip_serializing_if = "is_one")]
    nodes: u16,
    #[serde(default = "one", skip_serializing_if = "is_one")]
    replicas: u16,
    /// Volumes that the first call makes. Later they are only a record of it: a deleted volume stays deleted.
    first_volumes: Vec<VolumeSpec>,
    /// The first call got to its end.
    complete: bool,
    /// The nodes are processes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    processes: Option<Processes>,
}

fn one() -> u16 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_one(number: &u16) -> bool {
    *number == 1
}

/// Why the directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    /// A file of it.
    #[error(transparent)]
    File(#[from] FileError),
    /// Its `node.toml`.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A device size that cannot be.
    #[error("a device of {0} cannot be: choose a multiple of 4096 from 256M to 512T")]
    DeviceSize(ByteSize),
    /// Another size than the one that is there.
    #[error(
        "{directory} has a device of {there}, --device-size says {asked}: leave --device-size away or choose another --dir"
    )]
    OtherDeviceSize {
        /// The directory.
        directory: PathBuf,
        /// What is there.
        there: ByteSize,
        /// What was asked.
        asked: ByteSize,
    },
    /// More copies than nodes.
    #[error(
        "{replicas} copies need {replicas} nodes, and there are {nodes}: say --nodes {replicas}, or take fewer copies"
    )]
    TooFewNodes {
        /// Copies.
        replicas: u16,
        /// Nodes.
        nodes: u16,
    },
    /// Processes, each of which would be alone.
    #[error("nodes that are processes keep at least two copies: say --nodes 3 --replicas 3, or leave --processes away")]
    AloneInProcesses,
    /// Other numbers than those that are there.
    #[error("{directory} has {there} {what}, --{what} says {asked}: leave it away or choose another --dir")]
    OtherNumber {
        /// The directory.
        directory: PathBuf,
        /// Of what.
        what: &'static str,
        /// What is there.
        there: u16,
        /// What was asked.
        asked: u16,
    },
    /// A file that was there is gone or changed.
    #[error("{path} {what}")]
    Broken {
        /// The file.
        path: PathBuf,
        /// What is wrong and what to do.
        what: String,
    },
}

/// A directory in use: the lock is held as long as this lives.
#[derive(Debug)]
pub struct DemoDirectory {
    /// The nodes, the command line's wishes in what they are to do.
    pub nodes: Vec<NodePlace>,
    /// The map, if the nodes are processes.
    pub etcd: Option<EtcdPlace>,
    /// Copies of each block.
    pub replicas: u16,
    /// Volumes that must be there before anything is served.
    pub wanted_volumes: Vec<VolumeSpec>,
    /// Nothing was ever served from here: the map and the format of the device are still to be made.
    pub is_new: bool,
    /// Says that the first call got to its end.
    pub completion: Completion,
    /// Held as long as the directory is served.
    pub lock: Lock,
}

/// What is left to say when the wanted volumes are there.
#[derive(Debug)]
pub struct Completion {
    path: PathBuf,
    file: DemoFile,
}

impl Completion {
    /// The first call got to its end: from now on everything in the directory is somebody's data.
    ///
    /// # Errors
    /// What the system says of `demo.toml`.
    pub fn write(mut self) -> Result<(), FileError> {
        if self.file.complete {
            return Ok(());
        }
        self.file.complete = true;
        write_demo_file(&self.path, &self.file)
    }
}

impl DemoDirectory {
    /// Opens the directory, or makes it.
    ///
    /// # Errors
    /// Held by another process; another device size than asked; a file missing.
    pub fn open(options: &DemoOptions) -> Result<Self, DemoError> {
        let directory = &options.directory;
        check_device_size(options.device_size.unwrap_or(DEFAULT_DEVICE_SIZE))?;
        let was_there = directory.exists();
        fs::create_dir_all(directory).map_err(during("create", directory))?;
        if !was_there {
            files::sync_parent(directory)?;
        }
        let lock = Lock::take(&directory.join("lock"))?;
        let demo_path = directory.join("demo.toml");
        let before: Option<DemoFile> = match demo_path.try_exists().map_err(during("look for", &demo_path))? {
            true => Some(files::read_toml(&demo_path)?),
            false => None,
        };
        let mut ports = Ports::new();
        let (demo_file, is_new) = match before {
            Some(file) if file.complete => (reopen(options, &demo_path, file)?, false),
            interrupted => {
                if interrupted.is_none() {
                    refuse_strangers(directory)?;
                }
                (make(options, &demo_path, &mut ports)?, true)
            }
        };
        let demo_file = keep_ports(demo_file, &demo_path, &mut ports)?;
        let config_paths = (1..=demo_file.nodes).map(|number| node_directory(directory, number).join("node.toml"));
        if demo_file.processes.is_some() {
            for path in config_paths {
                ports.keep_for(&files::read_toml(&path)?);
            }
        }
        let mut nodes = Vec::new();
        for number in 1..=demo_file.nodes {
            let config_path = node_directory(directory, number).join("node.toml");
            if let Some(processes) = &demo_file.processes {
                write_wishes(&config_path, processes, options, (number, &mut ports))?;
            }
            let mut config = NodeConfig::read(&config_path)?;
            check_parts(&config, directory, demo_file.device_size, is_new)?;
            warn_of_little_room(&config)?;
            if demo_file.processes.is_none() {
                apply_wishes(&mut config, options, number);
            }
            config.check_ports().map_err(|what| ConfigError::Value { path: config_path.clone(), what })?;
            config.key_files.extend(options.key_files.iter().cloned());
            nodes.push(NodePlace { config, config_path });
        }
        let replicas = demo_file.replicas;
        let etcd = demo_file.processes.as_ref().map(|processes| processes.etcd(directory));
        if let Some(log) = etcd.as_ref().and_then(|etcd| etcd.log.parent()) {
            fs::create_dir_all(log).map_err(during("create", log))?;
        }
        let wanted_volumes = if is_new { demo_file.first_volumes.clone() } else { later_volumes(options, &demo_file) };
        let completion = Completion { path: demo_path, file: demo_file };
        Ok(Self { nodes, etcd, replicas, wanted_volumes, is_new, completion, lock })
    }
}

/// Where nodes are processes their etcd needs its ports.
fn keep_ports(file: DemoFile, demo_path: &Path, ports: &mut Ports) -> Result<DemoFile, DemoError> {
    let kept = file.processes.as_ref().map(|processes| processes.still_free(ports));
    let kept = DemoFile { processes: kept, ..file.clone() };
    if kept != file {
        write_demo_file(demo_path, &kept)?;
    }
    Ok(kept)
}

/// A process is told by its file what it is to do: what this call wishes stands there from now on.
fn write_wishes(
    path: &Path,
    processes: &Processes,
    options: &DemoOptions,
    (number, ports): (u16, &mut Ports),
) -> Result<(), DemoError> {
    let mut config: NodeConfig = files::read_toml(path)?;
    apply_wishes(&mut config, options, number);
    config.map.etcd = vec![processes.etcd_url()];
    settle_ports(&mut config, ports);
    Ok(write_node_file(path, &config)?)
}

/// Volumes that are named now and were not by the first call: what that made may have another name or size by now, or be
/// deleted, and stays so.
fn later_volumes(options: &DemoOptions, file: &DemoFile) -> Vec<VolumeSpec> {
    options.volumes.iter().filter(|volume| !file.first_volumes.contains(volume)).cloned().collect()
}

/// Whether a device may have this size.
///
/// # Errors
/// [`DemoError::DeviceSize`] if it may not.
pub fn check_device_size(size: ByteSize) -> Result<(), DemoError> {
    let fits = (DEVICE_SIZE_MIN..=DEVICE_SIZE_MAX).contains(&size) && size.0.is_multiple_of(4096);
    if fits { Ok(()) } else { Err(DemoError::DeviceSize(size)) }
}

fn write_demo_file(path: &Path, file: &DemoFile) -> Result<(), FileError> {
    files::write_toml(path, "What the first `cairn demo` of this directory said. Written by Cairn.", file)
}

fn reopen(options: &DemoOptions, demo_path: &Path, file: DemoFile) -> Result<DemoFile, DemoError> {
    if file.version != DEMO_FILE_VERSION {
        let what = format!(
            "has version {}, this cairn knows {DEMO_FILE_VERSION}: use the cairn that made the directory, or a newer one",
            file.version
        );
        return Err(DemoError::Broken { path: demo_path.to_owned(), what });
    }
    for (what, asked, there) in [("nodes", options.nodes, file.nodes), ("replicas", options.replicas, file.replicas)] {
        if let Some(asked) = asked.filter(|asked| *asked != there) {
            return Err(DemoError::OtherNumber { directory: options.directory.clone(), what, there, asked });
        }
    }
    if options.processes && file.processes.is_none() {
        let what = "says that all nodes are in one process: leave --processes away, or choose another --dir".to_owned();
        return Err(DemoError::Broken { path: demo_path.to_owned(), what });
    }
    match options.device_size {
        Some(asked) if asked != file.device_size => {
            Err(DemoError::OtherDeviceSize { directory: options.directory.clone(), there: file.device_size, asked })
        }
        _ => Ok(file),
    }
}

/// A directory without `demo.toml` that holds parts of a node is not ours to write into.
fn refuse_strangers(directory: &Path) -> Result<(), DemoError> {
    for part in ["map.redb", "node-1"] {
        let path = directory.join(part);
        if path.exists() {
            let what = "is there and demo.toml is not: put demo.toml back or choose another --dir".to_owned();
            return Err(DemoError::Broken { path, what });
        }
    }
    Ok(())
}

fn node_directory(directory: &Path, number: u16) -> PathBuf {
    directory.join(format!("node-{number}"))
}

fn make(options: &DemoOptions, demo_path: &Path, ports: &mut Ports) -> Result<DemoFile, DemoError> {
    let directory = &options.directory;
    let default_volume = || VolumeSpec {
        name: DEFAULT_VOLUME_NAME.parse().expect("the default name follows the rule"),
        size: DEFAULT_VOLUME_SIZE,
        block_size: BlockSize::default(),
    };
    let first_volumes = if options.volumes.is_empty() { vec![default_volume()] } else { options.volumes.clone() };
    let device_size = options.device_size.unwrap_or(DEFAULT_DEVICE_SIZE);
    let (nodes, replicas) = (options.nodes.unwrap_or(1), options.replicas.unwrap_or(1));
    if replicas > nodes {
        return Err(DemoError::TooFewNodes { replicas, nodes });
    }
    if options.processes && replicas < 2 {
        return Err(DemoError::AloneInProcesses);
    }
    let processes = options.processes.then(|| Processes::new(ports));
    let file = DemoFile {
        version: DEMO_FILE_VERSION,
        device_size,
        nodes,
        replicas,
        first_volumes,
        complete: false,
        processes,
    };
    write_demo_file(demo_path, &file)?;
    remove_leftover(&directory.join("map.redb"))?;
    let etcd = directory.join("etcd");
    if etcd.exists() {
        fs::remove_dir_all(&etcd).map_err(during("remove", &etcd))?;
    }
    for number in 1..=nodes {
        make_node(options, number, &file)?;
    }
    Ok(file)
}

fn remove_leftover(leftover: &Path) -> Result<(), DemoError> {
    match fs::remove_file(leftover) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(during("remove", leftover)(error).into()),
        _ => Ok(()),
    }
}

fn make_node(options: &DemoOptions, number: u16, file: &DemoFile) -> Result<(), DemoError> {
    let node_directory = node_directory(&options.directory, number);
    fs::create_dir_all(&node_directory).map_err(during("create", &node_directory))?;
    remove_leftover(&node_directory.join("device-1.img"))?;
    let port = |first: u16| first.saturating_add(number - 1);
    let (lock, map) = match &file.processes {
        Some(processes) => ("lock", MapConfig { etcd: vec![processes.etcd_url()], ..MapConfig::default() }),
        None => ("../lock", MapConfig::in_redb(PathBuf::from("../map.redb"))),
    };
    let mut config = NodeConfig {
        node: number.into(),
        lock: PathBuf::from(lock),
        listen: IpAddr::V4(Ipv4Addr::LOCALHOST),
        advertise: None,
        peers: None,
        cluster: None,
        nvme_port: port(DEFAULT_NVME_PORT),
        discovery_port: None,
        nbd_port: port(DEFAULT_NBD_PORT),
        admin_port: if file.processes.is_some() { port(DEFAULT_ADMIN_PORT) } else { DEFAULT_ADMIN_PORT },
        peers_port: None,
        replicas: file.processes.as_ref().map(|_| file.replicas),
        cores: 1,
        busy_poll_us: default_busy_poll_us(),
        any_host: true,
        map,
        key_files: Vec::new(),
        devices: vec![DeviceConfig { path: PathBuf::from("device-1.img") }],
    };
    apply_wishes(&mut config, options, number);
    let image = node_directory.join("device-1.img");
    let device = fs::File::create(&image).map_err(during("create", &image))?;
    device.set_len(file.device_size.0).map_err(during("size", &image))?;
    device.sync_all().map_err(during("sync", &image))?;
    // Last in its directory: with its name that of the image is durable. What lies in the one above is when
    // `Completion::write` puts demo.toml there.
    files::write_toml(&node_directory.join("node.toml"), "A node of Cairn. Paths are relative to this file.", &config)?;
    Ok(())
}

/// Ports are those of the first node; each further one has the next, or any where that is 0.
fn apply_wishes(config: &mut NodeConfig, options: &DemoOptions, number: u16) {
    let port = |first: u16| if first == 0 { 0 } else { first.saturating_add(number - 1) };
    config.listen = options.listen.unwrap_or(config.listen);
    config.nvme_port = options.nvme_port.map_or(config.nvme_port, port);
    config.discovery_port = options.discovery_port.map(port).or(config.discovery_port);
    config.nbd_port = options.nbd_port.map_or(config.nbd_port, port);
    // Of nodes in one process the first has the API.
    let has_api = config.map.is_shared();
    let admin_port = options.admin_port.map(|first| if has_api { port(first) } else { first });
    config.admin_port = admin_port.unwrap_or(config.admin_port);
    config.cores = options.cores.unwrap_or(config.cores);
    // Directories of earlier versions do not say so.
    config.any_host = true;
}

/// A sparse device may be larger than the file system has room for: that is no error until it is written full.
fn warn_of_little_room(config: &NodeConfig) -> Result<(), DemoError> {
    for device in &config.devices {
        let metadata = fs::metadata(&device.path).map_err(during("look at", &device.path))?;
        let unwritten = metadata.len().saturating_sub(metadata.blocks() * STAT_BLOCK_BYTES);
        let free = files::free_bytes(&device.path)?;
        if metadata.is_file() && unwritten > free {
            log::warn!(
                "{} may grow by {} MiB and its file system has {} MiB left: the device fails when that is full",
                device.path.display(),
                unwritten >> 20,
                free >> 20
            );
        }
    }
    Ok(())
}

/// Nothing that was once served may be missing, and nothing missing is made again.
fn check_parts(config: &NodeConfig, directory: &Path, device_size: ByteSize, is_new: bool) -> Result<(), DemoError> {
    let broken = |path: &Path, what: String| DemoError::Broken { path: path.to_owned(), what };
    // An empty one would be taken for that of a new cluster.
    let has_map = || fs::metadata(config.map.redb_file()).is_ok_and(|metadata| metadata.len() > 0);
    if config.map.is_shared() {
        let etcd = directory.join("etcd");
        if !is_new && !etcd.is_dir() {
            return Err(broken(&etcd, "is gone: put it back, or choose another --dir".to_owned()));
        }
    } else if !is_new && !has_map() {
        return Err(broken(
            config.map.redb_file(),
            "is gone or empty: put it back, or choose another --dir".to_owned(),
        ));
    }
    for (number, device) in config.devices.iter().enumerate() {
        let Ok(metadata) = fs::metadata(&device.path) else {
            return Err(broken(&device.path, "is gone: put it back, or choose another --dir".to_owned()));
        };
        // Those that were added later have sizes of their own.
        if number == 0 && metadata.is_file() && metadata.len() != device_size.0 {
            let what = format!(
                "has {} and demo.toml says {device_size}: put back the file of that size",
                ByteSize(metadata.len())
            );
            return Err(broken(&device.path, what));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TempDir;

    fn options(directory: &TempDir) -> DemoOptions {
        DemoOptions { directory: directory.path().join("d"), ..DemoOptions::default() }
    }

    fn served(options: &DemoOptions) {
        let demo = DemoDirectory::open(options).unwrap();
        fs::write(demo.nodes[0].config.map.redb_file(), b"map").unwrap();
        demo.completion.write().unwrap();
    }

    #[test]
    fn a_new_directory_has_the_promised_layout_and_one_volume() {
        let temp = TempDir::new();
        let demo = DemoDirectory::open(&options(&temp)).unwrap();
        assert!(demo.is_new);
        assert_eq!(demo.wanted_volumes, ["demo:1G:512".parse().unwrap()]);
        for part in ["demo.toml", "lock", "node-1/node.toml", "node-1/device-1.img"] {
            assert!(temp.path().join("d").join(part).is_file(), "{part}");
        }
        let image = fs::metadata(&demo.nodes[0].config.devices[0].path).unwrap();
        assert_eq!(image.len(), 4 << 30);
        assert!(std::os::unix::fs::MetadataExt::blocks(&image) < 2048, "the image is sparse");
    }

    #[test]
    fn volumes_that_are_named_replace_the_default_one() {
        let temp = TempDir::new();
        let volumes = vec!["a:1G".parse().unwrap(), "b:2G:4096".parse().unwrap()];
        let demo = DemoDirectory::open(&DemoOptions { volumes: volumes.clone(), ..options(&temp) }).unwrap();
        assert_eq!(demo.wanted_volumes, volumes);
    }

    #[test]
    fn reopening_makes_no_volume_and_keeps_the_ports() {
        let temp = TempDir::new();
        let first = DemoOptions { nvme_port: Some(5000), ..options(&temp) };
        let config = DemoDirectory::open(&first).unwrap().nodes.remove(0).config;
        served(&first);
        let again = DemoDirectory::open(&options(&temp)).unwrap();
        assert!(!again.is_new && again.wanted_volumes.is_empty());
        assert_eq!(again.nodes[0].config.nvme_port, 5000);
        drop(again);
        let other = DemoDirectory::open(&DemoOptions { nvme_port: Some(0), ..options(&temp) }).unwrap();
        assert_eq!(other.nodes[0].config.nvme_port, 0);
        assert_eq!(other.nodes[0].config.listen, config.listen);
        drop(other);
        // The default of another one.
        let error =
            DemoDirectory::open(&DemoOptions { nbd_port: Some(5000), ..options(&temp) }).unwrap_err().to_string();
        assert!(error.contains("nvme_port and nbd_port are both 5000"), "{error}");
    }

    #[test]
    fn what_the_first_call_made_is_not_made_again() {
        let temp = TempDir::new();
        let volumes = vec!["a:1G".parse().unwrap(), "b:2G".parse().unwrap()];
        let first = DemoOptions { volumes, ..options(&temp) };
        served(&first);
        assert!(DemoDirectory::open(&first).unwrap().wanted_volumes.is_empty(), "one of them may be renamed by now");
        let volumes = vec!["a:1G".parse().unwrap(), "c:1G".parse().unwrap(), "b:3G".parse().unwrap()];
        let later = DemoDirectory::open(&DemoOptions { volumes: volumes.clone(), ..options(&temp) }).unwrap();
        assert_eq!(later.wanted_volumes, volumes[1..]);
    }

    #[test]
    fn an_interrupted_first_call_begins_anew() {
        let temp = TempDir::new();
        let interrupted = DemoDirectory::open(&options(&temp)).unwrap();
        fs::write(interrupted.nodes[0].config.map.redb_file(), b"half a map").unwrap();
        fs::write(&interrupted.nodes[0].config.devices[0].path, b"half a format").unwrap();
        drop(interrupted);
        let size = Some(ByteSize(1 << 30));
        let demo = DemoDirectory::open(&DemoOptions { device_size: size, ..options(&temp) }).unwrap();
        assert!(demo.is_new && !demo.nodes[0].config.map.redb_file().exists());
        let image = fs::File::open(&demo.nodes[0].config.devices[0].path).unwrap();
        assert_eq!(image.metadata().unwrap().len(), 1 << 30);
        let mut begin = [0xff; 16];
        std::os::unix::fs::FileExt::read_exact_at(&image, &mut begin, 0).unwrap();
        assert_eq!(begin, [0; 16], "the image is a new one");
    }

    #[test]
    fn an_empty_map_is_not_taken_for_a_new_one() {
        let temp = TempDir::new();
        served(&options(&temp));
        let map = DemoDirectory::open(&options(&temp)).unwrap().nodes.remove(0).config.map.redb.unwrap();
        fs::write(&map, b"").unwrap();
        let error = DemoDirectory::open(&options(&temp)).unwrap_err().to_string();
        assert!(error.contains("map.redb is gone or empty"), "{error}");
    }

    #[test]
    fn another_device_size_is_refused_and_both_are_named() {
        let temp = TempDir::new();
        let with = |size| DemoOptions { device_size: Some(ByteSize(size)), ..options(&temp) };
        served(&with(1 << 30));
        assert!(!DemoDirectory::open(&with(1 << 30)).unwrap().is_new);
        let error = DemoDirectory::open(&with(2 << 30)).unwrap_err().to_string();
        assert!(error.contains("1G") && error.contains("2G"), "{error}");
        for size in [(256 << 20) - 4096, (1 << 30) + 1] {
            assert!(matches!(DemoDirectory::open(&with(size)), Err(DemoError::DeviceSize(_))));
        }
    }

    #[test]
    fn nothing_that_was_served_is_made_again() {
        for part in ["map.redb", "node-1/device-1.img", "node-1/node.toml", "demo.toml"] {
            let temp = TempDir::new();
            served(&options(&temp));
            fs::remove_file(temp.path().join("d").join(part)).unwrap();
            let error = DemoDirectory::open(&options(&temp)).unwrap_err().to_string();
            assert!(error.contains(Path::new(part).file_name().unwrap().to_str().unwrap()), "{part}: {error}");
        }
        let temp = TempDir::new();
        served(&options(&temp));
        let image = temp.path().join("d/node-1/device-1.img");
        fs::OpenOptions::new().write(true).open(&image).unwrap().set_len(1 << 30).unwrap();
        let error = DemoDirectory::open(&options(&temp)).unwrap_err().to_string();
        assert!(error.contains("1G") && error.contains("4G"), "{error}");
    }

    #[test]
    fn each_node_has_a_directory_of_its_own_and_the_next_ports() {
        let temp = TempDir::new();
        let three = DemoOptions { nodes: Some(3), replicas: Some(2), nvme_port: Some(5000), ..options(&temp) };
        let demo = DemoDirectory::open(&three).unwrap();
        let told: Vec<_> = demo.nodes.iter().map(|node| (node.config.node, node.config.nvme_port)).collect();
        assert_eq!(told, [(1, 5000), (2, 5001), (3, 5002)]);
        assert_eq!(demo.replicas, 2);
        let maps: Vec<_> = demo.nodes.iter().map(|node| node.config.map.redb_file().canonicalize().ok()).collect();
        assert!(maps.windows(2).all(|two| two[0] == two[1]), "they have one map");
        fs::write(demo.nodes[0].config.map.redb_file(), b"map").unwrap();
        demo.completion.write().unwrap();
        drop(demo.lock);
        let again = DemoDirectory::open(&DemoOptions { nvme_port: Some(0), ..options(&temp) }).unwrap();
        assert!(again.nodes.len() == 3 && again.nodes.iter().all(|node| node.config.nvme_port == 0));
        drop(again.lock);
        let other = DemoDirectory::open(&DemoOptions { nodes: Some(2), ..options(&temp) });
        assert!(matches!(other, Err(DemoError::OtherNumber { what: "nodes", there: 3, asked: 2, .. })), "{other:?}");
        let few = TempDir::new();
        let few = DemoOptions { nodes: Some(2), replicas: Some(3), ..options(&few) };
        assert!(matches!(DemoDirectory::open(&few), Err(DemoError::TooFewNodes { replicas: 3, nodes: 2 })));
    }

    #[test]
    fn a_second_opening_is_refused_while_the_first_lives() {
        let temp = TempDir::new();
        let first = DemoDirectory::open(&options(&temp)).unwrap();
        let error = DemoDirectory::open(&options(&temp)).unwrap_err();
        assert!(matches!(error, DemoError::File(FileError::Locked { .. })), "{error}");
        drop(first);
        DemoDirectory::open(&options(&temp)).unwrap();
    }
}
