//! A copy of the cluster's map beside the node's file, as the map changes: should etcd be lost, `cairn map rebuild` makes another
//! of the copies of all nodes and of what their devices know.

use crate::admin::now_ns;
use crate::config::NodeConfig;
use crate::files::{FileError, replace_secret};
use cluster::{Archive, ClusterRecord, Listing, MapError, MapStore, Revision, copy_of, is_worth_a_copy, keys};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Name of the file, beside the node's.
const FILE: &str = "map-copy.json";
/// What was there when the map was found to be an older one.
const OLD_FILE: &str = "map-copy.old.json";
/// Between two files at least; and so many times as long as one took: a large map is copied less often.
const WAIT: Duration = Duration::from_secs(1);
const SHARE: u32 = 10;
/// Until the map is asked again that did not answer.
const RETRY_WAIT: Duration = Duration::from_secs(1);

/// Where the copy is.
pub(crate) fn path_of(config: &NodeConfig) -> PathBuf {
    config.lock.with_file_name(FILE)
}

/// All copies that are there and can be read.
pub(crate) fn copies(config: &NodeConfig) -> Vec<Archive> {
    let path = path_of(config);
    [read(&path), read(&path.with_file_name(OLD_FILE))].into_iter().flatten().collect()
}

fn read(path: &Path) -> Option<Archive> {
    serde_json::from_slice(&std::fs::read(path).ok()?).ok()
}

/// Keeps the copy for as long as the process lives, on a thread of its own: files are waited for.
pub(crate) fn keep(map: Arc<dyn MapStore>, path: PathBuf) {
    let work = move || {
        let copying = runtime::uring::block_on(async move {
            let mut copier = Copier { path, last: None };
            loop {
                match copier.follow(&*map).await {
                    Stop::Map(error) => log::debug!("the map's copy is begun anew: {error}"),
                    Stop::File(error) => log::warn!("no copy of the map is kept: {error}"),
                }
                runtime::sleep(RETRY_WAIT).await;
            }
        });
        let Err(error): std::io::Result<std::convert::Infallible> = copying;
        log::warn!("no copy of the map is kept: {error}");
    };
    if let Err(error) = std::thread::Builder::new().name("cairn-copy".to_owned()).spawn(work) {
        log::warn!("no copy of the map is kept: {error}");
    }
}

enum Stop {
    Map(MapError),
    File(FileError),
}

struct Copier {
    path: PathBuf,
    /// The cluster and the revision of the file that is there.
    last: Option<(ClusterRecord, Revision)>,
}

impl Copier {
    async fn follow(&mut self, map: &dyn MapStore) -> Stop {
        let Err(stop) = self.follow_on(map).await;
        stop
    }

    async fn follow_on(&mut self, map: &dyn MapStore) -> Result<std::convert::Infallible, Stop> {
        let mut watch = None;
        loop {
            let listing = map.list("").await.map_err(Stop::Map)?;
            let watch = watch.get_or_insert_with(|| map.watch("", Revision(listing.revision.0 + 1)));
            let began = Instant::now();
            self.write(&listing)?;
            // It is as large as the map.
            drop(listing);
            runtime::sleep(WAIT.max(began.elapsed() * SHARE)).await;
            loop {
                match watch.next().await {
                    Ok(events) if is_worth_a_copy(&events) => break,
                    Ok(_) | Err(MapError::Silent) => {}
                    Err(error) => return Err(Stop::Map(error)),
                }
            }
        }
    }

    /// A map without a cluster is none: the copy stays. So does, under another name, that of a map that was newer.
    fn write(&mut self, listing: &Listing) -> Result<(), Stop> {
        let found = listing.items.iter().find(|item| item.key == keys::CLUSTER);
        let found = found.and_then(|item| cluster::decode::<ClusterRecord>(&item.key, &item.value).ok());
        let (Some(cluster), Ok(copy)) = (found, copy_of(listing, now_ns())) else { return Ok(()) };
        let known = self.last.take().or_else(|| {
            let there = read(&self.path)?;
            Some((there.cluster().ok()?, Revision(there.revision)))
        });
        if known.is_some_and(|(of, revision)| of.id != cluster.id || revision > listing.revision) {
            let old = self.path.with_file_name(OLD_FILE);
            log::warn!(
                "the map is another one, or an older one, than the copy that was kept of it: that is {} now",
                old.display()
            );
            std::fs::rename(&self.path, &old)
                .map_err(crate::files::during("rename", &self.path))
                .map_err(Stop::File)?;
        }
        replace_secret(&self.path, &copy).map_err(Stop::File)?;
        self.last = Some((cluster, listing.revision));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cluster::encode;
    use types::ClusterId;

    fn cluster(id: u128) -> ClusterRecord {
        ClusterRecord { id: ClusterId(id), cluster_version: 1, finished: None, created_at_ns: 1, replicas: None }
    }

    fn copy(revision: u64, cluster_id: Option<u128>) -> Listing {
        let item = |id| {
            let (key, value) = (keys::CLUSTER.to_owned(), encode(&cluster(id)));
            Arc::new(cluster::KeyValue { key, value, modified: Revision(1), lease: None })
        };
        Listing { revision: Revision(revision), items: cluster_id.map(item).into_iter().collect() }
    }

    #[test]
    fn what_was_newer_stays() {
        let directory = crate::testing::TempDir::new();
        let path = directory.path().join(FILE);
        let mut copier = Copier { path: path.clone(), last: None };
        assert!(copier.write(&copy(70, Some(1))).is_ok());
        let revision = |path: &Path| read(path).map(|archive| archive.revision);
        assert_eq!(revision(&path), Some(70));
        assert!(copier.write(&copy(80, None)).is_ok(), "an etcd that has nothing");
        assert_eq!(revision(&path), Some(70));
        let mut later = Copier { path: path.clone(), last: None };
        assert!(later.write(&copy(9, Some(1))).is_ok(), "an older map");
        assert_eq!((revision(&path), revision(&path.with_file_name(OLD_FILE))), (Some(9), Some(70)));
        assert!(later.write(&copy(10, Some(1))).is_ok());
        assert_eq!((revision(&path), revision(&path.with_file_name(OLD_FILE))), (Some(10), Some(70)));
    }
}
