//! `cairn map export` and `cairn map import`: the cluster's map as a file. The store of the map is asked itself, as the node's file
//! says where it is: no node has to run, and for an import none may. `cairn map gather` and `cairn map rebuild` make one of what
//! nodes and their devices know, where it was lost.

use crate::config::NodeConfig;
use crate::files::{self, FileError};
use crate::joining::{JoiningError, endpoints, of_catalog, on_a_core, open};
use crate::map_copy;
pub use cluster::Losses;
use cluster::{Archive, Gathered, GroupRecord, ImportError, LayerKnown, RebuildError, StoreKnows, decode};
use replication::newest_record;
use runtime::Device;
use std::path::{Path, PathBuf};
use types::{ClusterId, GroupId, LayerId, StoreId};

/// Why a map is not written to a file, or a file not put into a map.
#[derive(Debug, thiserror::Error)]
pub enum MapFileError {
    /// The map, or the process.
    #[error(transparent)]
    Map(#[from] JoiningError),
    /// The file, or the node's.
    #[error(transparent)]
    File(#[from] FileError),
    /// What is in the file.
    #[error("{path} {why}", path = path.display())]
    Content {
        /// Which.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// A device that is not looked at.
    #[error(
        "{path} cannot be looked at ({why}): stop the node that serves it; if it is gone for good, take it out of the node's file and name its store to `cairn map rebuild --lost`",
        path = path.display()
    )]
    Device {
        /// Where it is.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// What was gathered is not enough, or does not go together.
    #[error("{0}; nothing was changed. {advice}", advice = advice(.0))]
    Rebuild(#[from] RebuildError),
    /// The map takes none.
    #[error(
        "{0}; nothing was changed: if that map is to be replaced, stop all nodes and give them an etcd that has nothing"
    )]
    NotEmpty(ImportError),
}

fn advice(error: &RebuildError) -> &'static str {
    match error {
        RebuildError::Missing { .. } => {
            "Run `cairn map gather` on their nodes and name those files as well; a store that is gone for good is named with --lost: what it alone had is lost"
        }
        RebuildError::TwoRecords { .. } => {
            "Both copies are on their devices: keep them, and decide which one counts; the other's device is named with --lost and left out of the files"
        }
        RebuildError::Unnamed { .. } | RebuildError::UnnamedGroups { .. } => {
            "Name the files of all nodes: another one's copy is newer. If there is none, what lies there is served by nobody: --without-unnamed makes the map without it, and leaves it on the devices, where nothing finds it any more"
        }
        RebuildError::NoCopy => "Gather on the other nodes, too: each keeps a copy beside its node.toml",
        _ => "Name files of one cluster that this build wrote",
    }
}

/// What was gathered of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatheredTold {
    /// Revision of the newest copy of the map that the node kept; `None`: there is no copy.
    pub revision: Option<u64>,
    /// Its devices: the path, the store, how many groups it knows, and whether it may have known more.
    pub devices: Vec<(String, StoreId, usize, bool)>,
}

/// What a map was rebuilt of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RebuiltTold {
    /// The map.
    pub map: Told,
    /// Groups of which a device knew more than the copy.
    pub newer: usize,
    /// Groups that only devices know: left out.
    pub unknown: Vec<GroupId>,
    /// Layers that only devices know: given up.
    pub unnamed: Vec<LayerId>,
}

/// What was written or read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// The cluster.
    pub cluster: ClusterId,
    /// The map's revision of which the file is.
    pub revision: u64,
    /// Keys in it.
    pub keys: usize,
    /// Wall time of the export, ns since 1970.
    pub taken_at_ns: u64,
}

fn told(archive: &Archive, cluster: ClusterId) -> Told {
    Told { cluster, revision: archive.revision, keys: archive.entries.len(), taken_at_ns: archive.taken_at_ns }
}

/// Writes the map of the node's cluster to a file, which only its owner may read: the key that nodes know each other by is in it.
///
/// # Errors
/// The map's; a file that cannot be written.
pub fn export(config: &NodeConfig, to: &Path) -> Result<Told, MapFileError> {
    let (map, named) = (open(config)?, endpoints(config));
    let taken_at_ns = crate::admin::now_ns();
    let archive = on_a_core(async move { Archive::export(&*map, taken_at_ns).await })?;
    let archive = archive.map_err(|error| of_catalog(error, named))?;
    let cluster = archive.cluster().map_err(|error| content(to, &error))?;
    let text = serde_json::to_vec_pretty(&archive).expect("it is plain data");
    files::replace_secret(to, &text)?;
    Ok(told(&archive, cluster.id))
}

/// Puts what was exported into a map that has no cluster.
///
/// # Errors
/// The map has one, or does not answer; the file is none.
pub fn import(config: &NodeConfig, from: &Path) -> Result<Told, MapFileError> {
    let text = std::fs::read(from).map_err(files::during("read", from))?;
    let archive: Archive =
        serde_json::from_slice(&text).map_err(|error| content(from, &format!("is no export of a map: {error}")))?;
    put_in(config, &archive, from)
}

/// `from`: where it comes from, to say so.
fn put_in(config: &NodeConfig, archive: &Archive, from: &Path) -> Result<Told, MapFileError> {
    let cluster = archive.cluster().map_err(|error| content(from, &error))?;
    let (map, named) = (open(config)?, endpoints(config));
    let taken = archive.clone();
    match on_a_core(async move { taken.import(&*map).await })? {
        Ok(_) => Ok(told(archive, cluster.id)),
        Err(ImportError::Map(error)) => Err(of_catalog(error, named).into()),
        Err(error @ ImportError::NotEmpty(_)) => Err(MapFileError::NotEmpty(error)),
        Err(error) => Err(content(from, &error)),
    }
}

/// Writes what the node keeps of the map and what its devices know of groups to a file. The node may not run; etcd is not asked.
///
/// # Errors
/// A device that cannot be read, or is in use; a file that cannot be written.
pub fn gather(config: &NodeConfig, to: &Path) -> Result<GatheredTold, MapFileError> {
    let copies = map_copy::copies(config);
    let newest = copies.iter().max_by_key(|copy| copy.revision);
    let base = |id: GroupId| {
        let key = cluster::keys::group(id);
        let value = newest?.entries.get(&key)?.to_string();
        decode::<GroupRecord>(&key, value.as_bytes()).ok()
    };
    let mut stores = Vec::new();
    for device in &config.devices {
        let path = device.path.clone();
        let look = async move {
            let device = Device::open(&path).await.map_err(|error| error.to_string())?;
            store::known(&device).await.map_err(|error| error.to_string())
        };
        let known = on_a_core(look)?.map_err(|why| MapFileError::Device { path: device.path.clone(), why })?;
        let groups = known.groups.iter().filter_map(|found| newest_record(found, base(found.group).as_ref())).collect();
        let path = device.path.display().to_string();
        let layers = known.layers.iter().map(|(layer, chunks)| LayerKnown { layer: *layer, chunks: *chunks }).collect();
        stores.push(StoreKnows { store: known.store, path, is_damaged: known.is_damaged, groups, layers });
    }
    let devices = stores.iter().map(|known| (known.path.clone(), known.store, known.groups.len(), known.is_damaged));
    let told = GatheredTold { revision: newest.map(|copy| copy.revision), devices: devices.collect() };
    let text = serde_json::to_vec(&Gathered::new(copies, stores)).expect("it is plain data");
    files::replace_secret(to, &text)?;
    Ok(told)
}

/// Makes a map of what was gathered of all nodes, and puts it into one that has no cluster.
///
/// # Errors
/// Files that are none, or lack what may be needed; the map has a cluster, or does not answer.
pub fn rebuild(config: &NodeConfig, from: &[PathBuf], losses: &Losses) -> Result<RebuiltTold, MapFileError> {
    let read = |path: &PathBuf| {
        let text = std::fs::read(path).map_err(files::during("read", path))?;
        serde_json::from_slice::<Gathered>(&text)
            .map_err(|error| content(path, &format!("is nothing that `cairn map gather` wrote: {error}")))
    };
    let gathered = from.iter().map(read).collect::<Result<Vec<_>, _>>()?;
    let rebuilt = cluster::rebuild(&gathered, losses)?;
    let map = put_in(config, &rebuilt.archive, Path::new("what was gathered"))?;
    Ok(RebuiltTold { map, newer: rebuilt.newer, unknown: rebuilt.unknown, unnamed: rebuilt.unnamed })
}

fn content(path: &Path, why: &impl ToString) -> MapFileError {
    MapFileError::Content { path: path.to_owned(), why: format!("cannot be used: {}", why.to_string()) }
}
