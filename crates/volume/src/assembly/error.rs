//! Why a node does not start, or a volume is not made.

use crate::api::VolumeInfo;
use cluster::{CatalogError, InvalidInput, MapError, VersionError};
use std::net::SocketAddr;
use std::path::PathBuf;
use types::{ClusterId, LayerId, NodeId, StoreId, VolumeId};

fn by_whom(node: NodeId) -> String {
    match node.client_number() {
        Some(client) => format!("client-{client}"),
        None => format!("node-{node}"),
    }
}

fn elsewhere(volume: &str, head: NodeId) -> String {
    match head.client_number() {
        Some(client) => format!("client-{client} has volume {volume} open: end that program first"),
        None => format!("node {head} is the head of volume {volume}: ask there"),
    }
}

/// Why a node does not start.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StartError {
    /// The map.
    #[error(transparent)]
    Map(#[from] CatalogError),
    /// The cluster is at a version that the program does not speak.
    #[error(transparent)]
    Version(#[from] VersionError),
    /// A client makes no cluster.
    #[error("there is no cluster in this map: name the etcd of one")]
    NoCluster,
    /// Peers cannot reach the node where it was told that they do.
    #[error("cannot listen on {address} for other nodes: {message}")]
    Address {
        /// Where.
        address: SocketAddr,
        /// What the system says.
        message: String,
    },
    /// A device cannot be opened.
    #[error("cannot open the device {path}: {message}")]
    Device {
        /// Where.
        path: PathBuf,
        /// What the system says.
        message: String,
    },
    /// Another process has the device.
    #[error("cannot open the device {path}: {message}: end the process that has it open")]
    InUse {
        /// Where.
        path: PathBuf,
        /// What the system says.
        message: String,
    },
    /// The store on a device cannot be opened.
    #[error("cannot open the store on {path}: {error}")]
    Store {
        /// Where.
        path: PathBuf,
        /// Why.
        error: store::OpenError,
    },
    /// A device cannot be formatted.
    #[error("cannot format {path}: {error}")]
    Format {
        /// Where.
        path: PathBuf,
        /// Why.
        error: store::StoreError,
    },
    /// A device of another cluster.
    #[error("{path} holds store {store} of cluster {found}, this cluster is {expected}: give it its own devices")]
    OtherCluster {
        /// Where.
        path: PathBuf,
        /// The store on it.
        store: StoreId,
        /// The cluster in its superblock.
        found: ClusterId,
        /// The cluster in the map.
        expected: ClusterId,
    },
    /// A device that was in use and is blank now.
    #[error("{path} is blank and the map says that store {store} is on it: give the device back that it is on")]
    Blank {
        /// Where.
        path: PathBuf,
        /// The store that should be on it.
        store: StoreId,
    },
    /// A blank device where none is formatted.
    #[error("{path} is not formatted: see what is on it, then format it with `cairn device format {path}`")]
    NotFormatted {
        /// Where.
        path: PathBuf,
    },
    /// A newly formatted device where another one was.
    #[error(
        "{path} is newly formatted and the map says that store {store} is there: give back the device that it is on"
    )]
    Replaced {
        /// Where.
        path: PathBuf,
        /// The store that should be there.
        store: StoreId,
    },
    /// A device that volumes are on and the node was not started with.
    #[error("volumes are on {path} (store {store}) already: name it in the node's file and start the node again")]
    NeedsStart {
        /// Where.
        path: PathBuf,
        /// The store on it.
        store: StoreId,
    },
    /// A device that is open already.
    #[error("{path} holds store {store}, which this node serves already, maybe by another name: name each device once")]
    AlreadyServed {
        /// Where.
        path: PathBuf,
        /// The store on it.
        store: StoreId,
    },
    /// A device that the map does not know.
    #[error(
        "{path} holds store {store}, which the cluster's map does not know: if it was removed from the cluster, take it out of \
         the node's file; else put back the map that belongs to it"
    )]
    UnknownStore {
        /// Where.
        path: PathBuf,
        /// The store on it.
        store: StoreId,
    },
    /// No device.
    #[error("a node needs a device: none was given")]
    NoDevice,
    /// A shard cannot be opened.
    #[error("cannot open shard {shard} of the store on {path}: {message}")]
    Shard {
        /// Where.
        path: PathBuf,
        /// Which shard.
        shard: u8,
        /// Why.
        message: String,
    },
    /// A volume cannot be served.
    #[error(transparent)]
    Volume(#[from] VolumeError),
    /// A core ended while it started.
    #[error("a core ended while the node started")]
    CoreEnded,
}

impl From<MapError> for StartError {
    fn from(error: MapError) -> Self {
        Self::Map(error.into())
    }
}

/// Why a volume was not made or not deleted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VolumeError {
    /// Whose copy of a group counts cannot be said.
    #[error("{0}")]
    Force(String),
    /// The name is not allowed.
    #[error("{0}")]
    BadName(InvalidInput),
    /// The size is not allowed.
    #[error("{0}")]
    BadSize(InvalidInput),
    /// The block size is not allowed.
    #[error("{0}")]
    BadBlockSize(InvalidInput),
    /// A volume of this name is there.
    #[error("a volume named {} exists already, of {} bytes", .0.name, .0.size_bytes)]
    Exists(Box<VolumeInfo>),
    /// Another node is the volume's head.
    #[error("{}", elsewhere(volume, *head))]
    Elsewhere {
        /// The volume.
        volume: String,
        /// Its head.
        head: NodeId,
    },
    /// Others use it: a client has a volume alone.
    #[error("volume {volume} is in use through {}: let its clients go first", by_whom(*by))]
    InUse {
        /// The volume.
        volume: String,
        /// A node that has a client of it, or a client.
        by: NodeId,
    },
    /// Its key is not here.
    #[error("volume {0} is encrypted, and a client is given no keys yet: use it over NBD or NVMe/TCP")]
    Locked(String),
    /// No such volume.
    #[error("there is no volume named {0}")]
    NotFound(String),
    /// No such volume in the trash.
    #[error("there is no volume {0} in the trash")]
    NotInTrash(VolumeId),
    /// A limit is not allowed.
    #[error("{0}")]
    BadLimit(InvalidInput),
    /// The name of a host is none.
    #[error("{0}")]
    BadHost(InvalidInput),
    /// The hosts of the volume cannot be changed like this.
    #[error("{0}")]
    Hosts(CatalogError),
    /// All namespace ids are taken.
    #[error("{0}")]
    Full(CatalogError),
    /// One of its layers is not in the map.
    #[error("volume {volume} lists layer {layer}, which the map does not have")]
    NoLayer {
        /// The volume.
        volume: String,
        /// Its layer.
        layer: LayerId,
    },
    /// One of its layers is encrypted with another key.
    #[error("volume {volume} lists layer {layer}, which has another data key: put back a good copy of the map")]
    OtherKey {
        /// The volume.
        volume: String,
        /// Its layer.
        layer: LayerId,
    },
    /// It has no key that could be asked for.
    #[error("volume {0} is not encrypted")]
    NotEncrypted(String),
    /// No such pool.
    #[error("there is no pool named {0}")]
    NoPool(String),
    /// No such snapshot.
    #[error("there is no snapshot named {0}")]
    NoSnapshot(String),
    /// The snapshot's name is taken.
    #[error("a snapshot named {0} exists already")]
    SnapshotExists(String),
    /// A volume is deleted after its snapshots.
    #[error("{0}")]
    HasSnapshots(CatalogError),
    /// Volumes only grow.
    #[error("volume {volume} has {is_bytes} bytes and cannot become smaller ({asked_bytes} bytes)")]
    Smaller {
        /// The volume.
        volume: String,
        /// Its size.
        is_bytes: u64,
        /// The size asked for.
        asked_bytes: u64,
    },
    /// Its commands did not end: no snapshot was taken.
    #[error("commands of volume {volume} did not end within {seconds} s: no snapshot was taken, try again")]
    NotQuiet {
        /// The volume.
        volume: String,
        /// How long was waited.
        seconds: u64,
    },
    /// There was no instant at which all heads stood still.
    #[error("no snapshot was taken, and I/O goes on: {0}; try again")]
    NoInstant(String),
    /// These volumes have no snapshot of one instant.
    #[error("no snapshot was taken: {0}")]
    NotTogether(String),
    /// Its commands did not end: it stays where it is.
    #[error("commands of volume {volume} did not end within {seconds} s: it stays where it is, try again")]
    Busy {
        /// The volume.
        volume: String,
        /// How long was waited.
        seconds: u64,
    },
    /// A volume cannot go there.
    #[error("volume {volume} cannot go to node {to}: {why}")]
    NoWayThere {
        /// The volume.
        volume: String,
        /// Where it was to go.
        to: NodeId,
        /// Why it stays.
        why: String,
    },
    /// It does not come to lie elsewhere.
    #[error("volume {volume} stays where it is: {why}")]
    Stays {
        /// The volume.
        volume: String,
        /// Why.
        why: String,
    },
    /// One snapshot is not what the other one was made from.
    #[error("{to} was not made from what the snapshot {from} holds: name an older snapshot of the same history")]
    NotBefore {
        /// The one that should be older.
        from: String,
        /// The other.
        to: String,
    },
    /// A volume cannot lie as asked, or a pool not be as asked.
    #[error("{0}")]
    Place(CatalogError),
    /// Groups refuse what is said of a layer.
    #[error("the layers of the volume cannot be changed now: {0}")]
    Layer(String),
    /// The map.
    #[error("{0}")]
    Map(CatalogError),
}

impl From<CatalogError> for VolumeError {
    fn from(error: CatalogError) -> Self {
        match error {
            CatalogError::Input(input @ InvalidInput::Name(_)) => Self::BadName(input),
            CatalogError::Input(input @ InvalidInput::Size(_)) => Self::BadSize(input),
            CatalogError::Input(input @ InvalidInput::BlockSize(_)) => Self::BadBlockSize(input),
            CatalogError::Input(input @ InvalidInput::Nqn(_)) => Self::BadHost(input),
            CatalogError::Input(input) => Self::BadLimit(input),
            CatalogError::OpenToAll(_) | CatalogError::TooManyHosts(_) => Self::Hosts(error),
            CatalogError::NotFound(name) => Self::NotFound(name),
            CatalogError::NotInTrash(id) => Self::NotInTrash(id),
            CatalogError::SubsystemFull(_) => Self::Full(error),
            CatalogError::NoPool(name) => Self::NoPool(name),
            CatalogError::NoSnapshot(name) => Self::NoSnapshot(name),
            CatalogError::SnapshotExists(name) => Self::SnapshotExists(name),
            CatalogError::HasSnapshots { .. } => Self::HasSnapshots(error),
            CatalogError::TooManyVolumes(_) | CatalogError::NamedTwice(_) => Self::NotTogether(error.to_string()),
            CatalogError::Place(_) | CatalogError::Pool(_) => Self::Place(error),
            CatalogError::WentOn(_) => Self::NoInstant(error.to_string()),
            CatalogError::Smaller { volume, is_bytes, asked_bytes } => Self::Smaller { volume, is_bytes, asked_bytes },
            other => Self::Map(other),
        }
    }
}
