//! The map as it is heard of, for whoever compares one look with the next: a watch, so that nobody lists it again and again.
//!
//! On a thread of its own, as the map's requests are for tasks of a core.

use cluster::{KeyValue, Listing, MapError, MapStore, Revision, keys};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Until the map is asked again that did not answer.
const RETRY_WAIT: Duration = Duration::from_secs(1);
/// So often it is looked at whether this is to end.
const STOP_WAIT: Duration = Duration::from_millis(200);

/// What was heard.
#[derive(Default)]
struct Heard {
    entries: BTreeMap<String, Arc<KeyValue>>,
    revision: Revision,
    /// Grows with each change; 0: nothing was heard yet.
    version: u64,
    is_away: bool,
    /// How often the map was found to be an older one.
    went_back: u64,
    is_stopped: bool,
}

impl Heard {
    fn listing(&self) -> Listing {
        Listing { revision: self.revision, items: self.entries.values().cloned().collect() }
    }
}

/// See the module.
#[derive(Clone, Default)]
pub(crate) struct Follower(Arc<Mutex<Heard>>);

/// How the map is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MapState {
    /// Whether it does not answer.
    pub(crate) is_away: bool,
    /// How often it went back in time.
    pub(crate) went_back: u64,
}

impl Follower {
    /// Follows the map until [`stop`](Self::stop).
    pub(crate) fn start(map: Arc<dyn MapStore>) -> Self {
        let this = Self::default();
        let follower = this.clone();
        let work = move || {
            let followed = runtime::uring::block_on(async move { follower.follow(&*map).await });
            if let Err(error) = followed {
                log::warn!("what changes in the cluster is not noted as events: {error}");
            }
        };
        if let Err(error) = std::thread::Builder::new().name("cairn-follow".to_owned()).spawn(work) {
            log::warn!("what changes in the cluster is not noted as events: {error}");
        }
        this
    }

    /// It ends soon, and holds the map no more.
    pub(super) fn stop(&self) {
        self.heard().is_stopped = true;
    }

    /// How the map is.
    pub(super) fn state(&self) -> MapState {
        let heard = self.heard();
        MapState { is_away: heard.is_away, went_back: heard.went_back }
    }

    /// All of it, if it has changed since this version, and its version.
    pub(super) fn listing_after(&self, version: u64) -> Option<(u64, Listing)> {
        let heard = self.heard();
        (heard.version != version && !heard.is_away).then(|| (heard.version, heard.listing()))
    }

    /// All of it as it was heard of last, be the map away since; `None`: nothing was heard yet.
    pub(crate) fn last(&self) -> Option<Listing> {
        let heard = self.heard();
        (heard.version > 0).then(|| heard.listing())
    }

    fn heard(&self) -> MutexGuard<'_, Heard> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_stopped(&self) -> bool {
        self.heard().is_stopped
    }

    async fn follow(&self, map: &dyn MapStore) {
        while !self.is_stopped() {
            match map.list("").await {
                Ok(listing) => {
                    let from = Revision(listing.revision.0 + 1);
                    self.is_all(listing);
                    self.hear_on(map, from).await;
                }
                Err(error) => {
                    log::debug!("events: the map is listed again: {error}");
                    self.heard().is_away = true;
                    runtime::sleep(RETRY_WAIT).await;
                }
            }
        }
    }

    fn is_all(&self, listing: Listing) {
        let mut heard = self.heard();
        heard.revision = listing.revision;
        heard.entries = listing.items.into_iter().map(|item| (item.key.clone(), item)).collect();
        heard.version += 1;
        heard.is_away = false;
    }

    /// Until it has to be listed again.
    async fn hear_on(&self, map: &dyn MapStore, from: Revision) {
        let mut watch = map.watch("", from);
        while !self.is_stopped() {
            // A call that is dropped loses nothing.
            let Ok(told) = runtime::timeout(STOP_WAIT, watch.next()).await else { continue };
            match told {
                Ok(events) => self.hear(&events),
                Err(MapError::Silent) => {
                    self.heard().is_away = true;
                    while map.get(keys::CLUSTER).await.is_err() {
                        if self.is_stopped() {
                            return;
                        }
                        runtime::sleep(RETRY_WAIT).await;
                    }
                    self.heard().is_away = false;
                }
                Err(error) => {
                    if matches!(error, MapError::WentBack { .. }) {
                        self.heard().went_back += 1;
                    }
                    return log::debug!("events: the map is followed anew: {error}");
                }
            }
        }
    }

    fn hear(&self, events: &[cluster::Event]) {
        let mut heard = self.heard();
        for cluster::Event { revision, key, value } in events {
            heard.revision = heard.revision.max(*revision);
            match value {
                Some(value) => {
                    let (value, modified) = (value.clone(), *revision);
                    let item = KeyValue { key: key.clone(), value, modified, lease: None };
                    heard.entries.insert(key.clone(), Arc::new(item));
                }
                None => drop(heard.entries.remove(key)),
            }
        }
        heard.version += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cluster::{Event, RedbMap, Transaction};
    use std::time::Instant;

    #[test]
    fn what_is_put_and_deleted_is_heard() {
        let follower = Follower::default();
        assert!(follower.listing_after(0).is_none() && follower.last().is_none(), "nothing was heard yet");
        follower.is_all(Listing { revision: Revision(3), items: Vec::new() });
        let event = |revision, value: Option<&str>| Event {
            revision: Revision(revision),
            key: "a".to_owned(),
            value: value.map(|value| value.as_bytes().to_vec()),
        };
        follower.hear(&[event(4, Some("1"))]);
        let (version, listing) = follower.listing_after(0).expect("something");
        assert_eq!((listing.revision, listing.items.len()), (Revision(4), 1));
        assert!(follower.listing_after(version).is_none());
        follower.hear(&[event(5, None)]);
        assert!(follower.listing_after(version).expect("something").1.items.is_empty());
        follower.heard().is_away = true;
        assert!(follower.listing_after(0).is_none(), "what may be old is not looked at");
        assert_eq!(follower.last().expect("it was heard").revision, Revision(5), "it is remembered");
    }

    #[test]
    fn a_map_in_a_file_is_followed_and_let_go_when_that_is_over() {
        let directory = crate::testing::TempDir::new();
        let path = directory.path().join("map.redb");
        let map = RedbMap::open(&path).expect("a map");
        let follower = Follower::start(map.clone());
        let write = map.clone();
        runtime::uring::block_on(async move {
            write.transact(Transaction::new().put("volumes/1", b"{}".to_vec())).await.expect("written");
        })
        .expect("a core");
        let until = |what: &dyn Fn() -> bool| {
            let began = Instant::now();
            while !what() {
                assert!(began.elapsed() < Duration::from_secs(10));
                std::thread::sleep(Duration::from_millis(10));
            }
        };
        until(&|| follower.listing_after(0).is_some_and(|(_, listing)| listing.items.len() == 1));
        follower.stop();
        drop(map);
        until(&|| RedbMap::open(&path).is_ok());
    }
}
