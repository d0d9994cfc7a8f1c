//! `node.toml`: what one node is, where its devices are and where it listens. Paths are relative to the file.

use crate::doors::NODES_MAX;
use crate::files::{self, FileError};
use crate::service::reachable;
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use types::{ClusterId, NodeId};

/// Default port of the NVMe/TCP target: the one that IANA gave to NVMe over TCP.
pub const DEFAULT_NVME_PORT: u16 = 4420;
/// Default port of the NBD server: the one that IANA gave to NBD.
pub const DEFAULT_NBD_PORT: u16 = 10809;
/// Default port of the admin API.
pub const DEFAULT_ADMIN_PORT: u16 = 8420;
/// Default port for other nodes, where they are processes of their own.
pub const DEFAULT_PEERS_PORT: u16 = 8430;
/// Default file of the map of a cluster in one process.
pub const DEFAULT_MAP: &str = "map.redb";
/// Copies that a new cluster of several processes keeps, if nothing is said.
pub const DEFAULT_REPLICAS: u16 = 3;
/// Most copies of a block.
pub const REPLICAS_MAX: u16 = 5;
/// Most cores of one node: more than any machine that this was tried on has, and few enough for all tables.
pub const CORES_MAX: u16 = 256;
/// Longest look for requests before a sleep, µs: whoever wants more wants a core that never sleeps.
pub const BUSY_POLL_MAX_US: u32 = 10_000;

/// What a node is told by its file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeConfig {
    /// Number of the node in its cluster.
    #[serde(default = "default_node")]
    pub node: u32,
    /// Held with `flock` while the node runs.
    #[serde(default = "default_lock")]
    pub lock: PathBuf,
    /// Address that all servers listen on.
    #[serde(default = "default_listen")]
    pub listen: IpAddr,
    /// The address that clients and other nodes are told, where `listen` is none that anybody can connect to (0.0.0.0, ::) or one
    /// that others reach by another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advertise: Option<IpAddr>,
    /// Where nodes are processes of their own: the address that they reach each other by, for a network of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peers: Option<IpAddr>,
    /// The id of the cluster in etcd: the node does not start with another one. `cairn init` and `cairn join` write it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// NVMe/TCP; 0 takes any free port, as for the others.
    #[serde(default = "default_nvme_port")]
    pub nvme_port: u16,
    /// A port for NVMe discovery alone. The NVMe port answers discovery in any case.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub discovery_port: Option<u16>,
    /// NBD.
    #[serde(default = "default_nbd_port")]
    pub nbd_port: u16,
    /// The admin API.
    #[serde(default = "default_admin_port")]
    pub admin_port: u16,
    /// Where other nodes connect: any free port where all are in one process, else [`DEFAULT_PEERS_PORT`] if the file does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peers_port: Option<u16>,
    /// Copies of each block that a new cluster of several nodes keeps: its first pool is made when devices of so many nodes are
    /// there. Later it changes nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<u16>,
    /// Cores of the data path; all of the machine if the file does not say.
    #[serde(default = "default_cores")]
    pub cores: u16,
    /// How long a core looks for requests before it sleeps, µs, where they come as close to each other; 0: it always sleeps.
    #[serde(default = "default_busy_poll_us", skip_serializing_if = "is_default_busy_poll")]
    pub busy_poll_us: u32,
    /// Where the cluster map is.
    #[serde(default)]
    pub map: MapConfig,
    /// Whether every NVMe host may use a volume of which nobody has said which may. `cairn demo` says yes.
    #[serde(default)]
    pub any_host: bool,
    /// Each is tried at the start on all locked volumes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub key_files: Vec<PathBuf>,
    /// Its devices.
    #[serde(rename = "device")]
    pub devices: Vec<DeviceConfig>,
}

/// Where the cluster map is: in one of both.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MapConfig {
    /// A redb file, for a cluster within one process: [`DEFAULT_MAP`] if nothing is said at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redb: Option<PathBuf>,
    /// Members of an etcd, `http://HOST:2379` or `https://…`, for a cluster of several processes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub etcd: Vec<String>,
    /// Of `https`: the authority that signed etcd's certificates, PEM; those that the system trusts, if nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authority: Option<PathBuf>,
    /// Of `https`: this node's certificate, PEM, where etcd asks for one, and its key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate: Option<PathBuf>,
    /// See above.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate_key: Option<PathBuf>,
    /// The user that etcd knows, where it asks for one, and the file with its password.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// See above.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password_file: Option<PathBuf>,
}

impl MapConfig {
    /// A redb file.
    pub fn in_redb(path: PathBuf) -> Self {
        Self { redb: Some(path), ..Self::default() }
    }

    /// Whether it is shared with nodes that are processes of their own.
    pub fn is_shared(&self) -> bool {
        !self.etcd.is_empty()
    }

    /// The redb file.
    pub fn redb_file(&self) -> &Path {
        self.redb.as_deref().unwrap_or(Path::new(DEFAULT_MAP))
    }

    /// Paths in it are taken from there.
    pub fn paths_from(&mut self, base: &Path) {
        if !self.is_shared() {
            self.redb = Some(base.join(self.redb_file()));
        }
        let files = [&mut self.authority, &mut self.certificate, &mut self.certificate_key, &mut self.password_file];
        files.into_iter().flatten().for_each(|path| *path = base.join(&*path));
    }

    /// Whether what it says goes together.
    ///
    /// # Errors
    /// What does not.
    pub fn check(&self) -> Result<(), String> {
        if self.is_shared() && self.redb.is_some() {
            return Err("the map is in redb and in etcd: name one".to_owned());
        }
        if let Some(other) = self.etcd.iter().find(|url| !url.starts_with("http://") && !url.starts_with("https://")) {
            return Err(format!("etcd is named as '{other}': write http://HOST:2379 or https://HOST:2379"));
        }
        let of_etcd = [
            ("authority", self.authority.is_some()),
            ("certificate", self.certificate.is_some()),
            ("certificate_key", self.certificate_key.is_some()),
            ("user", self.user.is_some()),
            ("password_file", self.password_file.is_some()),
        ];
        match of_etcd.iter().find(|(_, is_there)| *is_there && !self.is_shared()) {
            Some((field, _)) => Err(format!("{field} is for a map in etcd, and no etcd is named")),
            None if self.certificate.is_some() != self.certificate_key.is_some() => {
                Err("certificate and certificate_key go together: name both".to_owned())
            }
            None if self.user.is_some() != self.password_file.is_some() => {
                Err("user and password_file go together: name both".to_owned())
            }
            None => Ok(()),
        }
    }
}

fn default_node() -> u32 {
    1
}

fn default_lock() -> PathBuf {
    PathBuf::from("lock")
}

fn default_listen() -> IpAddr {
    Ipv4Addr::LOCALHOST.into()
}

fn default_nvme_port() -> u16 {
    DEFAULT_NVME_PORT
}

fn default_nbd_port() -> u16 {
    DEFAULT_NBD_PORT
}

fn default_admin_port() -> u16 {
    DEFAULT_ADMIN_PORT
}

/// What the runtime looks for by itself.
pub fn default_busy_poll_us() -> u32 {
    runtime::uring::BUSY_POLL.as_micros() as u32
}

fn is_default_busy_poll(busy_poll_us: &u32) -> bool {
    *busy_poll_us == default_busy_poll_us()
}

/// Whether a core may look for so long.
///
/// # Errors
/// It is longer than [`BUSY_POLL_MAX_US`].
pub fn check_busy_poll(busy_poll_us: u32) -> Result<(), String> {
    match busy_poll_us {
        0..=BUSY_POLL_MAX_US => Ok(()),
        _ => Err(format!("busy_poll_us is {busy_poll_us}: choose 0 (always sleep) to {BUSY_POLL_MAX_US}")),
    }
}

/// All cores of the machine.
pub fn default_cores() -> u16 {
    std::thread::available_parallelism().map_or(1, |cores| cores.get().min(usize::from(CORES_MAX)) as u16)
}

/// One device of the node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceConfig {
    /// Block device or file.
    pub path: PathBuf,
}

/// What is wrong with a node's file.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// Not there, not readable, not TOML, a field that is unknown or missing.
    #[error(transparent)]
    File(#[from] FileError),
    /// A value that cannot be.
    #[error("{path}: {what}")]
    Value {
        /// The file.
        path: PathBuf,
        /// What is wrong and what may stand there.
        what: String,
    },
}

impl NodeConfig {
    /// Reads a node's file; the paths in it become usable from anywhere.
    ///
    /// # Errors
    /// A file that is not there or says what cannot be.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let mut config: Self = files::read_toml(path)?;
        config.check().map_err(|what| ConfigError::Value { path: path.to_owned(), what })?;
        let base = path.parent().unwrap_or(Path::new(""));
        config.lock = base.join(&config.lock);
        config.map.paths_from(base);
        for device in &mut config.devices {
            device.path = base.join(&device.path);
        }
        for path in &mut config.key_files {
            *path = base.join(&*path);
        }
        Ok(config)
    }

    /// The node's number.
    pub fn node_id(&self) -> NodeId {
        NodeId(self.node)
    }

    /// Where other nodes connect.
    pub fn peers_address(&self) -> SocketAddr {
        match (self.map.is_shared(), self.peers_port) {
            (true, port) => {
                let listen = self.advertise.filter(|_| self.listen.is_unspecified()).unwrap_or(self.listen);
                SocketAddr::new(self.peers.unwrap_or(listen), port.unwrap_or(DEFAULT_PEERS_PORT))
            }
            (false, port) => SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port.unwrap_or(0)),
        }
    }

    /// The address to tell others for one listened on.
    pub fn told(&self, listening: SocketAddr) -> SocketAddr {
        match self.advertise {
            Some(advertise) => SocketAddr::new(advertise, listening.port()),
            None => reachable(listening),
        }
    }

    /// The cluster that it is to be a node of, if that is said.
    pub fn cluster_id(&self) -> Option<ClusterId> {
        self.cluster.as_deref().and_then(|id| parse_cluster_id(id).ok())
    }

    /// Copies that the first pool of a cluster of several processes keeps.
    pub fn founding_replicas(&self) -> u32 {
        self.replicas.unwrap_or(DEFAULT_REPLICAS).into()
    }

    fn check(&self) -> Result<(), String> {
        if self.node == 0 || self.node > NODES_MAX {
            return Err(format!("node is {}: nodes are numbered from 1 to {NODES_MAX}", self.node));
        }
        if self.cores == 0 || self.cores > CORES_MAX {
            return Err(format!("cores is {}: choose 1 to {CORES_MAX}", self.cores));
        }
        check_busy_poll(self.busy_poll_us)?;
        self.map.check()?;
        self.check_addresses()?;
        match self.replicas {
            Some(_) if !self.map.is_shared() => {
                return Err("replicas is for nodes that share a map in etcd, and no etcd is named".to_owned());
            }
            Some(replicas) if !(2..=REPLICAS_MAX).contains(&replicas) => {
                return Err(format!("replicas is {replicas}: several nodes keep 2 to {REPLICAS_MAX} copies"));
            }
            _ => {}
        }
        if self.devices.is_empty() {
            return Err("no [[device]] is named: a node needs at least one".to_owned());
        }
        self.check_ports()
    }

    pub(crate) fn check_addresses(&self) -> Result<(), String> {
        let unspecified = |what: &str, address: Option<IpAddr>| match address {
            Some(address) if address.is_unspecified() => {
                Err(format!("{what} is {address}, which nobody can connect to: name an address of this machine"))
            }
            _ => Ok(()),
        };
        unspecified("advertise", self.advertise)?;
        unspecified("peers", self.peers)?;
        if self.peers.is_some() && !self.map.is_shared() {
            return Err("peers is for nodes that share a map in etcd, and no etcd is named".to_owned());
        }
        self.cluster.as_deref().map(parse_cluster_id).transpose().map(drop)
    }

    /// Whether each server has a port of its own; 0 is one.
    pub(crate) fn check_ports(&self) -> Result<(), String> {
        let ports = [
            ("nvme_port", self.nvme_port),
            ("nbd_port", self.nbd_port),
            ("admin_port", self.admin_port),
            ("discovery_port", self.discovery_port.unwrap_or(0)),
            ("peers_port", self.peers_address().port()),
        ];
        for (index, (name, port)) in ports.iter().enumerate() {
            if let Some((other, _)) = ports[..index].iter().find(|(_, other)| other == port && *port != 0) {
                return Err(format!("{other} and {name} are both {port}: give each server a port of its own"));
            }
        }
        Ok(())
    }
}

/// A cluster's id, as `cairn init` tells it.
///
/// # Errors
/// What is none.
pub fn parse_cluster_id(text: &str) -> Result<ClusterId, String> {
    let is_hex = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let id = is_hex.then(|| u128::from_str_radix(text, 16).ok()).flatten();
    id.map(ClusterId).ok_or_else(|| format!("'{text}' is no cluster's id: write the 32 digits that `cairn init` told"))
}

/// Names another device in a node's file, durably; the rest of the file stays as it is, comments too. One that is named
/// already is not named again. Returns what the file said before, if it says more now: [`put_back`] takes it.
///
/// # Errors
/// A file that is not there, cannot be written, or is none of a node; it is left as it was.
pub fn append_device(file: &Path, device: &Path) -> Result<Option<String>, ConfigError> {
    if NodeConfig::read(file)?.devices.iter().any(|there| there.path == device) {
        return Ok(None);
    }
    let entry = DeviceList { device: vec![DeviceConfig { path: device.to_owned() }] };
    let (before, after) = files::with_tables(file, &entry)?;
    if let Err(error) = toml::from_str::<NodeConfig>(&after) {
        let why = error.message();
        let what =
            format!("no [[device]] can be put behind what stands in it ({why}): write each device as a [[device]]");
        return Err(ConfigError::Value { path: file.to_owned(), what });
    }
    files::replace(file, after.as_bytes())?;
    Ok(Some(before))
}

/// Names a device no more in a node's file, durably; the rest of the file stays as it is. Returns whether it was named.
///
/// # Errors
/// A file that is not there, cannot be written, is none of a node, or names its devices in another way than `[[device]]`; it is
/// left as it was.
pub fn remove_device(file: &Path, device: &Path) -> Result<bool, ConfigError> {
    let named = |config: &NodeConfig| config.devices.iter().filter(|there| there.path == device).count();
    let before = NodeConfig::read(file)?;
    if named(&before) == 0 {
        return Ok(false);
    }
    let text = std::fs::read_to_string(file).map_err(files::during("read", file))?;
    let after = without_device(&text, file.parent().unwrap_or(Path::new("")), device);
    match toml::from_str::<NodeConfig>(&after) {
        Ok(config) if config.devices.len() < before.devices.len() => {}
        _ => {
            let what = format!("{} is not a [[device]] by itself: take it out by hand", device.display());
            return Err(ConfigError::Value { path: file.to_owned(), what });
        }
    }
    files::replace(file, after.as_bytes())?;
    Ok(true)
}

/// A node's file without the tables of a device. Paths count from `directory`.
fn without_device(text: &str, directory: &Path, device: &Path) -> String {
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let is_header = |line: &&str| line.trim_start().starts_with('[');
    let (mut kept, mut at) = (String::new(), 0);
    while at < lines.len() {
        let end = lines[at + 1..].iter().position(is_header).map_or(lines.len(), |next| at + 1 + next);
        let table: String = lines[at..end].concat();
        let is_it = lines[at].trim() == "[[device]]"
            && toml::from_str::<DeviceList>(&table)
                .is_ok_and(|list| list.device.iter().any(|there| directory.join(&there.path) == device));
        if !is_it {
            kept += &table;
        }
        at = end;
    }
    kept
}

/// Makes a node's file say again what it said before [`append_device`].
///
/// # Errors
/// A file that cannot be written.
pub fn put_back(file: &Path, before: &str) -> Result<(), ConfigError> {
    Ok(files::replace(file, before.as_bytes())?)
}

/// As it stands in the file.
#[derive(Serialize, Deserialize)]
struct DeviceList {
    device: Vec<DeviceConfig>,
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINIMAL: &str = r#"
        node = 1
        lock = "../lock"
        listen = "127.0.0.1"
        nvme_port = 0
        nbd_port = 0
        admin_port = 0
        cores = 2
        key_files = ["../key"]
        map = { redb = "../map.redb" }
        [[device]]
        path = "device-1.img"
    "#;

    fn read(text: &str) -> Result<NodeConfig, String> {
        let directory = crate::testing::TempDir::new();
        let path = directory.path().join("node.toml");
        std::fs::write(&path, text).unwrap();
        NodeConfig::read(&path)
            .map(|mut config| {
                let [key_file] = &mut config.key_files[..] else { panic!("one key file") };
                for path in [
                    &mut config.lock,
                    config.map.redb.as_mut().expect("in redb"),
                    &mut config.devices[0].path,
                    key_file,
                ] {
                    *path = path.strip_prefix(directory.path()).unwrap().to_owned();
                }
                config
            })
            .map_err(|e| e.to_string())
    }

    #[test]
    fn paths_are_taken_from_where_the_file_is() {
        let config = read(MINIMAL).unwrap();
        assert_eq!(config.lock, Path::new("../lock"));
        assert_eq!(config.devices[0].path, Path::new("device-1.img"));
        assert_eq!(config.key_files, [Path::new("../key")]);
    }

    #[test]
    fn nodes_and_clients_may_have_networks_of_their_own() {
        let of = |more: &str| {
            let directory = crate::testing::TempDir::new();
            let path = directory.path().join("node.toml");
            std::fs::write(&path, format!("{more}\n[map]\netcd = [\"http://[::1]:1\"]\n[[device]]\npath = \"a\""))
                .unwrap();
            NodeConfig::read(&path).map_err(|error| error.to_string())
        };
        let address = |text: &str| text.parse::<SocketAddr>().expect("an address");
        let config = of("listen = \"fd00::2\"").unwrap();
        assert_eq!(config.peers_address(), address("[fd00::2]:8430"));
        let config = of("listen = \"10.0.0.2\"\npeers = \"fd01::2\"\npeers_port = 9").unwrap();
        assert_eq!(config.peers_address(), address("[fd01::2]:9"));
        assert_eq!(config.told(address("10.0.0.2:4420")), address("10.0.0.2:4420"));
        let config = of("listen = \"::\"\nadvertise = \"fd00::2\"").unwrap();
        assert_eq!(config.peers_address(), address("[fd00::2]:8430"));
        assert_eq!(config.told(address("[::]:4420")), address("[fd00::2]:4420"));
        for (more, named) in [
            ("peers = \"::\"", "peers is ::, which nobody can connect to"),
            ("advertise = \"0.0.0.0\"", "advertise is 0.0.0.0"),
            ("cluster = \"7\"", "32 digits"),
        ] {
            let error = of(more).unwrap_err();
            assert!(error.contains(named), "{error}");
        }
    }

    #[test]
    fn a_device_is_enough_and_another_one_is_named_behind_it() {
        let directory = crate::testing::TempDir::new();
        let path = directory.path().join("node.toml");
        std::fs::write(&path, "# Mine.\n[[device]]\npath = \"a\"").unwrap();
        let config = NodeConfig::read(&path).unwrap();
        assert_eq!((config.node, config.nvme_port, config.listen.is_loopback()), (1, DEFAULT_NVME_PORT, true));
        assert_eq!(config.map.redb_file(), directory.path().join("map.redb"));
        for _ in 0..2 {
            append_device(&path, Path::new("/dev/b \"c\"")).unwrap();
        }
        let paths: Vec<_> = NodeConfig::read(&path).unwrap().devices.into_iter().map(|device| device.path).collect();
        assert_eq!(paths, [directory.path().join("a"), PathBuf::from("/dev/b \"c\"")]);
        assert!(std::fs::read_to_string(&path).unwrap().starts_with("# Mine.\n"));
    }

    #[test]
    fn a_device_that_left_is_named_no_more_and_all_else_stays() {
        let directory = crate::testing::TempDir::new();
        let path = directory.path().join("node.toml");
        let text =
            "# Mine.\nnode = 2\n\n[[device]] \npath = \"a\"\n\n[[device]]\npath = \"/dev/b\"\n\n[map]\nredb = \"m\"\n";
        std::fs::write(&path, text).unwrap();
        assert!(!remove_device(&path, Path::new("/dev/c")).unwrap());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text, "nothing was to be taken out");
        assert!(remove_device(&path, &directory.path().join("a")).unwrap());
        let left = std::fs::read_to_string(&path).unwrap();
        assert_eq!(left, "# Mine.\nnode = 2\n\n[[device]]\npath = \"/dev/b\"\n\n[map]\nredb = \"m\"\n");
        let inline = "device = [{ path = \"/dev/b\" }, { path = \"/dev/c\" }]\n";
        std::fs::write(&path, inline).unwrap();
        let refused = remove_device(&path, Path::new("/dev/b")).unwrap_err().to_string();
        assert!(refused.contains("by hand"), "{refused}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), inline);
    }

    #[test]
    fn what_cannot_be_is_refused_with_the_field_named() {
        for (from, to, named) in [
            ("cores = 2", "cores = 0", "cores"),
            ("cores = 2", "busy_poll_us = 10001", "busy_poll_us"),
            ("node = 1", "node = 0", "node"),
            ("node = 1", "node = 1\nshelf = 3", "shelf"),
            ("nvme_port = 0", "nvme_port = 70000", "line 5: invalid value: integer `70000`"),
            ("nbd_port = 0", "nbd_port = 8420\ndiscovery_port = 8420", "nbd_port and discovery_port are both 8420"),
            ("lock = ", "look = ", "look"),
            ("map = { redb", "map = { etcd = [\"http://a:1\"], redb", "name one"),
            ("map = { redb = \"../map.redb\" }", "map = { etcd = [\"a:1\"] }", "write http://HOST:2379"),
            ("../map.redb\" }", "../map.redb\", user = \"u\" }", "user is for a map in etcd"),
            ("node = 1", "node = 1\nreplicas = 3", "no etcd is named"),
        ] {
            let error = read(&MINIMAL.replace(from, to)).unwrap_err();
            assert!(error.contains(named) && error.contains("node.toml"), "{to}: {error}");
            assert!(!error.contains('\n'), "one line: {error}");
        }
    }
}
