//! `cairn map export` and `cairn map import`: the cluster's map as a file. The store of the map is asked itself, as the node's file
//! says where it is: no node has to run, and for an import none may.

use crate::config::NodeConfig;
use crate::files::{self, FileError};
use crate::joining::{JoiningError, endpoints, of_catalog, on_a_core, open};
use cluster::{Archive, ImportError};
use std::path::Path;
use types::ClusterId;

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
        path: std::path::PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The map takes none.
    #[error(
        "{0}; nothing was changed: if that map is to be replaced, stop all nodes and give them an etcd that has nothing"
    )]
    NotEmpty(ImportError),
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
    let cluster = archive.cluster().map_err(|error| content(from, &error))?;
    let (map, named) = (open(config)?, endpoints(config));
    let taken = archive.clone();
    match on_a_core(async move { taken.import(&*map).await })? {
        Ok(_) => Ok(told(&archive, cluster.id)),
        Err(ImportError::Map(error)) => Err(of_catalog(error, named).into()),
        Err(error @ ImportError::NotEmpty(_)) => Err(MapFileError::NotEmpty(error)),
        Err(error) => Err(content(from, &error)),
    }
}

fn content(path: &Path, why: &impl ToString) -> MapFileError {
    MapFileError::Content { path: path.to_owned(), why: format!("cannot be used: {}", why.to_string()) }
}
