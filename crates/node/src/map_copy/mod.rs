//! A copy of the cluster's map beside the node's file, written as the map changes: should etcd be lost, `cairn map rebuild` makes
//! another of the copies of all nodes and of what their devices know.
//!
//! ```text
//!   etcd ──watch──▶ journal, appended and made durable ──▶ Copies: "held through revision r" ──▶ who waits for it, here and elsewhere
//!        ──list───▶ base, now and then, when the journal has grown as long ──▶ the journal begins anew
//! ```
//!
//! A change costs a line in the journal and one sync, however large the map; what comes meanwhile shares the next one. The base is
//! written on a thread of its own while the journal goes on. Without etcd what was heard of it stays, and is what counts.

mod files;
mod journal;

use crate::admin::now_ns;
use crate::config::NodeConfig;
use crate::files::{FileError, during, replace_secret};
use cluster::{
    Archive, ClusterRecord, CopiedMap, Copies, CopyTrouble, Event, Listing, MapError, MapStore, Revision, Watch,
    is_in_copies, keys,
};
use files::{BASE, OLD, Writer, no_json, read, write_base};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// Until the map is asked again that did not answer, or a file written that could not be: twice as long each time, up to the latter.
const RETRY_WAIT: Duration = Duration::from_secs(1);
const RETRY_WAIT_MAX: Duration = Duration::from_secs(30);
/// A journal is folded into a new base when it is longer than this and than its base.
const FOLD_BYTES_MIN: u64 = 4 << 20;
/// So many changes at most share a sync.
const EVENTS_AT_ONCE: usize = 4096;

/// Where the base of the copy is.
pub(crate) fn path_of(config: &NodeConfig) -> PathBuf {
    config.lock.with_file_name(BASE)
}

/// All copies that are there and can be read.
pub(crate) fn copies(config: &NodeConfig) -> Vec<Archive> {
    let path = path_of(config);
    [read(&path), read(&path.with_file_name(OLD))].into_iter().flatten().collect()
}

/// Keeps the copy for as long as the process lives, on a thread of its own: files are waited for. Returns the map whose changes wait
/// for copies.
pub(crate) fn keep(map: Arc<dyn MapStore>, path: PathBuf) -> Arc<dyn MapStore> {
    let copies = Copies::of_a_node();
    let copied = CopiedMap::new(map.clone(), copies.clone());
    let ends = NoCopy(copies.clone());
    let work = move || {
        let ends = ends;
        let copying = runtime::uring::block_on(async move {
            let mut copier = Copier { map, path, copies, known: None, fold: None };
            let mut wait = RETRY_WAIT;
            loop {
                match copier.follow().await {
                    Stop::Map(error) => {
                        log::debug!("the map's copy is begun anew: {error}");
                        wait = RETRY_WAIT;
                    }
                    Stop::File(error) => {
                        copier.copies.holds_nothing(CopyTrouble::Unwritten(error.to_string()));
                        log::error!("this node keeps no copy of the map, should etcd be lost: {error}");
                        wait = (wait * 2).min(RETRY_WAIT_MAX);
                    }
                }
                runtime::sleep(wait).await;
            }
        });
        let Err(error): std::io::Result<std::convert::Infallible> = copying;
        log::error!("this node keeps no copy of the map: {error}");
        drop(ends);
    };
    if let Err(error) = std::thread::Builder::new().name("cairn-copy".to_owned()).spawn(work) {
        log::error!("this node keeps no copy of the map: {error}");
    }
    copied
}

/// However the thread ends, or is not begun: nobody waits for what it does not do.
struct NoCopy(Arc<Copies>);

impl Drop for NoCopy {
    fn drop(&mut self) {
        self.0.holds_nothing(CopyTrouble::Ended);
    }
}

enum Stop {
    Map(MapError),
    File(FileError),
}

/// A base that is being written: its revision and length.
type Fold = JoinHandle<Result<u64, String>>;

struct Copier {
    map: Arc<dyn MapStore>,
    path: PathBuf,
    copies: Arc<Copies>,
    /// The cluster and the last revision of the copy that is there.
    known: Option<(ClusterRecord, Revision)>,
    fold: Option<Fold>,
}

impl Copier {
    async fn follow(&mut self) -> Stop {
        let Err(stop) = self.follow_on().await;
        // What it writes is of a line that is over; it must not come behind the next one's base.
        if let Some(fold) = self.fold.take() {
            let _ = fold.join();
        }
        stop
    }

    async fn follow_on(&mut self) -> Result<std::convert::Infallible, Stop> {
        self.copies.begins();
        loop {
            let listing = self.map.list("").await.map_err(Stop::Map)?;
            let mut watch = self.map.watch("", Revision(listing.revision.0 + 1));
            self.copies.writes();
            let begun = self.begin(&listing).map_err(Stop::File)?;
            self.copies.holds(listing.revision);
            // It is as large as the map.
            drop(listing);
            match begun {
                Some((writer, base_bytes)) => self.write_on(watch, writer, base_bytes).await?,
                // There is nothing to keep, before there is a cluster.
                None => while !self.heard(&mut *watch).await?.iter().any(|event| is_in_copies(&event.key)) {},
            }
        }
    }

    /// What comes next.
    async fn heard(&self, watch: &mut dyn Watch) -> Result<Vec<Event>, Stop> {
        loop {
            match watch.next().await {
                Ok(events) => return Ok(events),
                Err(MapError::Silent) => {}
                Err(error) => return Err(Stop::Map(error)),
            }
        }
    }

    /// Appends what comes, for as long as it comes.
    async fn write_on(&mut self, mut watch: Box<dyn Watch>, mut writer: Writer, base_bytes: u64) -> Result<(), Stop> {
        let mut fold_at = base_bytes.max(FOLD_BYTES_MIN);
        loop {
            let mut events = self.heard(&mut *watch).await?;
            let mut ended = None;
            while events.len() < EVENTS_AT_ONCE && ended.is_none() {
                match runtime::timeout(Duration::ZERO, watch.next()).await {
                    Ok(Ok(more)) => events.extend(more),
                    Ok(Err(MapError::Silent)) | Err(_) => break,
                    Ok(Err(error)) => ended = Some(error),
                }
            }
            let (lines, last) = journal::lines(&events).map_err(|error| Stop::File(no_json(&self.path, &error)))?;
            if let Some(last) = last {
                self.copies.writes();
                writer.append(&lines, last).map_err(Stop::File)?;
            }
            if let Some(Event { revision, .. }) = events.last() {
                self.copies.holds(*revision);
                if let Some((_, known)) = &mut self.known {
                    *known = *revision;
                }
            }
            if let Some(error) = ended {
                return Err(Stop::Map(error));
            }
            if self.fold.is_none() && writer.bytes > fold_at {
                writer.turn().map_err(Stop::File)?;
                self.fold = self.begin_fold(&writer);
            }
            if let Some(fold) = self.fold.take_if(|fold| fold.is_finished()) {
                match fold.join() {
                    Ok(Ok(bytes)) => {
                        writer.forget_earlier().map_err(Stop::File)?;
                        fold_at = bytes.max(FOLD_BYTES_MIN);
                    }
                    // The journals have it all: the next one is tried when there is as much again.
                    Ok(Err(error)) => log::warn!("the copy of the map was not written anew: {error}"),
                    Err(_) => log::warn!("the copy of the map was not written anew: the thread that does it failed"),
                }
            }
        }
    }

    fn begin_fold(&self, writer: &Writer) -> Option<Fold> {
        let (map, path, line, least) = (self.map.clone(), self.path.clone(), writer.line(), writer.last);
        let work = move || {
            let folded = runtime::uring::block_on(async move {
                let listing = map.list("").await.map_err(|error| error.to_string())?;
                if listing.revision.0 < least {
                    return Err("the map is an older one than was copied".to_owned());
                }
                write_base(&path, &listing, now_ns(), line).map_err(|error| error.to_string())
            });
            folded.unwrap_or_else(|error| Err(error.to_string()))
        };
        let begun = std::thread::Builder::new().name("cairn-fold".to_owned()).spawn(work);
        begun.map_err(|error| log::warn!("the copy of the map is not written anew: {error}")).ok()
    }

    /// Writes a base of a new line, and begins its journal. A map without a cluster is none: the copy stays. So does, under another name,
    /// that of a map that was newer.
    fn begin(&mut self, listing: &Listing) -> Result<Option<(Writer, u64)>, FileError> {
        let found = listing.items.iter().find(|item| item.key == keys::CLUSTER);
        let found = found.and_then(|item| cluster::decode::<ClusterRecord>(&item.key, &item.value).ok());
        let Some(cluster) = found else { return Ok(None) };
        let known = self.known.take().or_else(|| known_at(&self.path));
        if known.is_some_and(|(of, revision)| of.id != cluster.id || revision > listing.revision) {
            self.set_aside()?;
        }
        let (line, revision) = (now_ns(), listing.revision);
        let base_bytes = write_base(&self.path, listing, line, line)?;
        self.known = Some((cluster, revision));
        Ok(Some((Writer::begin(&self.path, line, revision.0)?, base_bytes)))
    }

    /// Keeps what is there under another name, with all that its journals have.
    fn set_aside(&self) -> Result<(), FileError> {
        let Some(copy) = read(&self.path) else { return Ok(()) };
        let old = self.path.with_file_name(OLD);
        log::warn!(
            "the map is another one, or an older one, than the copy that was kept of it: that is {} now",
            old.display()
        );
        replace_secret(&old, &serde_json::to_vec(&copy).expect("it is plain data"))?;
        std::fs::remove_file(&self.path).map_err(during("remove", &self.path))
    }
}

/// The cluster and the last revision of the copy that is there.
fn known_at(path: &Path) -> Option<(ClusterRecord, Revision)> {
    let there = read(path)?;
    Some((there.cluster().ok()?, Revision(there.revision)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use cluster::{RedbMap, Transaction, encode};
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

    fn copier(path: &Path) -> Copier {
        let map = RedbMap::open(&path.with_file_name("map.redb")).expect("a map");
        Copier { map, path: path.to_owned(), copies: Copies::of_a_node(), known: None, fold: None }
    }

    #[test]
    fn what_was_newer_stays() {
        let directory = crate::testing::TempDir::new();
        let path = directory.path().join(BASE);
        let mut first = copier(&path);
        assert!(first.begin(&copy(70, Some(1))).expect("written").is_some());
        let revision = |path: &Path| read(path).map(|archive| archive.revision);
        assert_eq!(revision(&path), Some(70));
        assert!(first.begin(&copy(80, None)).expect("an etcd that has nothing").is_none());
        assert_eq!(revision(&path), Some(70));
        let Copier { map, .. } = first;
        let mut later = Copier { map, path: path.clone(), copies: Copies::of_a_node(), known: None, fold: None };
        assert!(later.begin(&copy(9, Some(1))).is_ok(), "an older map");
        assert_eq!((revision(&path), revision(&path.with_file_name(OLD))), (Some(9), Some(70)));
        assert!(later.begin(&copy(10, Some(1))).is_ok());
        assert_eq!((revision(&path), revision(&path.with_file_name(OLD))), (Some(10), Some(70)));
    }

    /// Through the map that waits: what was answered is in the files.
    #[test]
    fn what_is_answered_is_in_the_copy() {
        let directory = crate::testing::TempDir::new();
        let path = directory.path().join(BASE);
        let map = RedbMap::open(&directory.path().join("map.redb")).expect("a map");
        let kept = keep(map.clone(), path.clone());
        let done = runtime::uring::block_on(async move {
            let put = |key: &str, value: Vec<u8>| Transaction::new().expect_absent(key).put(key, value);
            kept.transact(put(keys::CLUSTER, encode(&cluster(1)))).await.expect("done");
            for number in 0..50 {
                let key = format!("volumes/{number:02}");
                kept.transact(put(&key, b"{}".to_vec())).await.expect("done");
                let there = read(&path).expect("a copy");
                assert!(there.entries.contains_key(&key), "{key} was answered, and the copy has {:?}", there.revision);
            }
        });
        done.expect("a core");
    }
}
