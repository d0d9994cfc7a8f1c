//! `cairn init` and `cairn join`: what is looked at before anything of a machine is changed, what the map is told, and the node's
//! file at last. Cut off anywhere, the same command again goes on.

use crate::config::{DeviceConfig, NodeConfig};
use crate::files::{self, FileError};
use crate::local_node::open_map;
use cluster::{
    CatalogError, DeviceRecord, DeviceState, JoinError, MapError, MapStore, Newcomer, NodeRecord, SessionRecord,
    begin_cluster, foretell_join, join_cluster, keys,
};
pub use cluster::{ClusterRecord, Joined, NewDevice};
use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;
use types::{ClusterId, NodeId, StoreId};
use volume::draft_cluster;

/// A node that is there takes a connection within this.
const CONNECT_WAIT: Duration = Duration::from_secs(3);
/// The node's file in its directory.
pub const NODE_FILE: &str = "node.toml";

/// What is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A new cluster that keeps so many copies.
    Begin {
        /// Copies of each block.
        replicas: u32,
    },
    /// One more node, of this cluster if it is said.
    Join {
        /// Which cluster.
        wanted: Option<ClusterId>,
        /// Its devices hold nothing until they are said to take another's place.
        is_spare: bool,
    },
}

/// Why a machine does not become a node.
#[derive(Debug, thiserror::Error)]
pub enum JoiningError {
    /// It is one.
    #[error("this machine is node-{node} already, by {path}: start it with `cairn node run --config {path}`; for another node choose another --dir", path = path.display())]
    IsNode {
        /// Which.
        node: u32,
        /// By which file.
        path: PathBuf,
    },
    /// The file, or one that the command names.
    #[error(transparent)]
    File(#[from] FileError),
    /// What is said cannot be.
    #[error("{0}")]
    Value(String),
    /// The map.
    #[error("no etcd answers at {endpoints}: check the URLs, that etcd runs, and that its port is reached from here")]
    NoAnswer {
        /// Where it was looked for.
        endpoints: String,
    },
    /// The map refuses.
    #[error("etcd at {endpoints} cannot be used ({error}): see --etcd-user, --etcd-ca and --etcd-cert in the help")]
    Etcd {
        /// Where.
        endpoints: String,
        /// What it says.
        error: String,
    },
    /// The cluster refuses.
    #[error(transparent)]
    Join(JoinError),
    /// None of the nodes there are.
    #[error(
        "{name} runs and is not reached at {address} ({why}): this machine and the others must reach each other there (routes, firewalls)"
    )]
    Unreached {
        /// A node.
        name: String,
        /// Where it is.
        address: String,
        /// What the system says.
        why: String,
    },
    /// The cluster is at a version that this program does not speak.
    #[error(transparent)]
    Version(#[from] cluster::VersionError),
    /// An address or a port.
    #[error("{0}")]
    Address(String),
    /// The process itself.
    #[error("cannot begin: {0}")]
    System(std::io::Error),
}

/// What is there of the cluster before this machine is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Around {
    /// The cluster, if there is one.
    pub cluster: Option<ClusterRecord>,
    /// Its nodes.
    pub nodes: usize,
    /// Those that run.
    pub running: usize,
    /// Those that run and are not reached, by name.
    pub unreached: Vec<String>,
    /// Devices that have been named and not opened yet.
    pub unopened: BTreeSet<StoreId>,
}

/// Looks whether the machine can be a node as `config` says, and changes nothing: its addresses and ports, etcd, and the nodes there
/// are. `formatted` are the stores on those of its devices that are formatted already.
///
/// # Errors
/// What speaks against it.
pub fn look(config: &NodeConfig, file: &Path, purpose: Purpose, formatted: &[StoreId]) -> Result<Around, JoiningError> {
    if file.exists() {
        let node = NodeConfig::read(file).map_err(|error| JoiningError::Value(error.to_string()))?.node;
        return Err(JoiningError::IsNode { node, path: file.to_owned() });
    }
    check_addresses(config)?;
    let (map, named) = (open(config)?, endpoints(config));
    let looked = on_a_core(async move { around(&*map).await })?;
    let (around, running) = looked.map_err(|error| of_catalog(error, named))?;
    match (purpose, &around.cluster) {
        // It was begun with this machine, and cut off.
        (Purpose::Begin { .. }, Some(_)) if formatted.iter().any(|store| around.unopened.contains(store)) => {}
        (Purpose::Begin { .. }, Some(there)) => return Err(JoiningError::Join(JoinError::Begun(there.id))),
        (Purpose::Join { .. }, None) => return Err(JoiningError::Join(JoinError::NoCluster)),
        (Purpose::Join { wanted: Some(wanted), .. }, Some(there)) if there.id != wanted => {
            return Err(JoiningError::Join(JoinError::OtherCluster { found: there.id, wanted }));
        }
        _ => {}
    }
    if let Some(there) = &around.cluster {
        let speaks = crate::release::of_this_process().map_err(|error| JoiningError::Value(error.to_string()))?;
        there.admits(speaks.cluster_versions)?;
    }
    reach(around, running)
}

/// What it would do.
///
/// # Errors
/// As of [`join`].
pub fn foretell(config: &NodeConfig, purpose: Purpose, devices: Vec<NewDevice>) -> Result<Joined, JoiningError> {
    let Purpose::Join { wanted, is_spare } = purpose else {
        return Err(JoiningError::Value(
            "what a new cluster is filled with is not known before: leave --dry-run out".into(),
        ));
    };
    let newcomer = Newcomer { address: config.peers_address(), devices, is_spare };
    let map = open(config)?;
    on_a_core(async move { foretell_join(&*map, wanted, &newcomer).await })?.map_err(|error| of_join(error, config))
}

/// Makes the machine a node of the cluster, or the cluster with it; then writes its file. `config` is what that is to say, without
/// number and cluster.
///
/// # Errors
/// What the map has against it, or a file that cannot be written: the same again goes on then.
pub fn join(
    config: &NodeConfig,
    file: &Path,
    purpose: Purpose,
    devices: Vec<NewDevice>,
) -> Result<Joined, JoiningError> {
    let is_spare = matches!(purpose, Purpose::Join { is_spare: true, .. });
    let newcomer = Newcomer { address: config.peers_address(), devices, is_spare };
    let map = open(config)?;
    let told = newcomer.clone();
    let joined = on_a_core(async move {
        match purpose {
            Purpose::Begin { replicas } => begin_cluster(&*map, draft_cluster(replicas), &told).await,
            Purpose::Join { wanted, .. } => join_cluster(&*map, wanted, &told).await,
        }
    })?;
    let joined = joined.map_err(|error| of_join(error, config))?;
    let config = NodeConfig {
        node: joined.node.0,
        cluster: Some(joined.cluster.id.to_string()),
        devices: newcomer.devices.iter().map(|device| DeviceConfig { path: PathBuf::from(&device.path) }).collect(),
        ..config.clone()
    };
    write(&config, file)?;
    Ok(joined)
}

/// The file, without what the machine itself says anew at each start.
fn write(config: &NodeConfig, file: &Path) -> Result<(), JoiningError> {
    let failed = |error: toml::ser::Error| JoiningError::Value(error.to_string().replace('\n', " "));
    let mut table = toml::Table::try_from(config).map_err(failed)?;
    if config.cores == crate::config::default_cores() {
        table.remove("cores");
    }
    if let Some(directory) = file.parent() {
        std::fs::create_dir_all(directory).map_err(files::during("create", directory))?;
    }
    files::write_toml(file, "Made by cairn init or cairn join; docs/node.md says what may stand here.", &table)?;
    Ok(())
}

async fn around(map: &dyn MapStore) -> Result<(Around, Vec<NodeRecord>), CatalogError> {
    let cluster = cluster::get::<ClusterRecord>(map, keys::CLUSTER).await?.map(|found| found.record);
    let nodes: Vec<NodeRecord> =
        cluster::list::<NodeRecord>(map, keys::NODES).await?.into_iter().map(|found| found.record).collect();
    let sessions = cluster::list::<SessionRecord>(map, keys::SESSIONS).await?;
    let alive: BTreeSet<NodeId> = sessions.into_iter().map(|session| session.record.node).collect();
    let running: Vec<NodeRecord> = nodes.iter().filter(|node| alive.contains(&node.id)).cloned().collect();
    let devices = cluster::list::<DeviceRecord>(map, keys::DEVICES).await?.into_iter().map(|found| found.record);
    let unopened = devices.filter(|device| device.state == DeviceState::New).map(|device| device.store).collect();
    let around = Around { cluster, nodes: nodes.len(), running: running.len(), unreached: Vec::new(), unopened };
    Ok((around, running))
}

/// Whoever runs is to be reached: none at all is an error, some only are told.
fn reach(mut around: Around, running: Vec<NodeRecord>) -> Result<Around, JoiningError> {
    let mut first = None;
    for node in running {
        let name = format!("node-{}", node.id);
        let connected = match node.address.parse::<SocketAddr>() {
            Ok(address) => TcpStream::connect_timeout(&address, CONNECT_WAIT).map(drop).map_err(|e| e.to_string()),
            Err(error) => Err(error.to_string()),
        };
        if let Err(why) = connected {
            around.unreached.push(format!("{name} at {}", node.address));
            first.get_or_insert(JoiningError::Unreached { name, address: node.address, why });
        }
    }
    match first {
        Some(error) if around.unreached.len() == around.running => Err(error),
        _ => Ok(around),
    }
}

/// The addresses must be ones that somebody can connect to, of this machine, and the ports free.
fn check_addresses(config: &NodeConfig) -> Result<(), JoiningError> {
    if config.listen.is_unspecified() && config.advertise.is_none() {
        return Err(JoiningError::Address(format!(
            "--listen {} is no address that anybody can connect to: say which one others use with --advertise ADDRESS",
            config.listen
        )));
    }
    config.check_addresses().and_then(|()| config.check_ports()).map_err(JoiningError::Address)?;
    let peers = config.peers_address();
    if config.listen.is_loopback() != peers.ip().is_loopback() {
        return Err(JoiningError::Address(format!(
            "clients would use {} and other nodes {}: one is for this machine alone, the other is not",
            config.listen,
            peers.ip()
        )));
    }
    let wanted = [
        (config.listen, config.nvme_port, "--listen", "--nvme-port"),
        (config.listen, config.nbd_port, "--listen", "--nbd-port"),
        (config.listen, config.admin_port, "--listen", "--admin-port"),
        (peers.ip(), peers.port(), "--peers", "--peers-port"),
    ];
    wanted.into_iter().try_for_each(|(address, port, flag, port_flag)| is_free(address, port, (flag, port_flag)))
}

fn is_free(address: IpAddr, port: u16, (flag, port_flag): (&str, &str)) -> Result<(), JoiningError> {
    let at = SocketAddr::new(address, port);
    let Err(error) = TcpListener::bind(at) else { return Ok(()) };
    let remedy = match error.kind() {
        ErrorKind::AddrNotAvailable => format!("{address} is no address of this machine: choose one with {flag}"),
        ErrorKind::AddrInUse => format!("something listens there: end it, or choose another port with {port_flag}"),
        ErrorKind::PermissionDenied => format!("choose a port from 1024 on with {port_flag}, or do this as root"),
        _ => format!("choose another with {flag} or {port_flag}"),
    };
    Err(JoiningError::Address(format!("cannot listen on {at} ({error}): {remedy}")))
}

pub(crate) fn open(config: &NodeConfig) -> Result<std::sync::Arc<dyn MapStore>, JoiningError> {
    open_map(config).map_err(|error| JoiningError::Etcd { endpoints: endpoints(config), error: error.to_string() })
}

pub(crate) fn endpoints(config: &NodeConfig) -> String {
    config.map.etcd.join(", ")
}

pub(crate) fn on_a_core<F: Future + 'static>(work: F) -> Result<F::Output, JoiningError>
where
    F::Output: 'static,
{
    runtime::uring::block_on(work).map_err(JoiningError::System)
}

fn of_join(error: JoinError, config: &NodeConfig) -> JoiningError {
    match error {
        JoinError::Map(error) => of_catalog(error, endpoints(config)),
        error => JoiningError::Join(error),
    }
}

pub(crate) fn of_catalog(error: CatalogError, endpoints: String) -> JoiningError {
    match error {
        CatalogError::Map(MapError::Unknown) => JoiningError::NoAnswer { endpoints },
        error => JoiningError::Etcd { endpoints, error: error.to_string() },
    }
}
