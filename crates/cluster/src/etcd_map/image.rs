//! All of the map in memory: read once, and then as one watch tells what changes. A node has several followers of the map and people who
//! ask how the cluster is; of a large map each listing would be seconds of etcd's time.
//!
//! A listing of the image is linearizable as one of etcd is: etcd is asked for its revision, and the image is taken when it has heard of
//! all up to there. The store is the cluster's alone, so that each of its revisions is told by the watch. If the image does not come there
//! in time, etcd is listed.
//!
//! An image lives as long as the connection of its watch: a store that comes back may have gone back in time. The next who lists
//! everything reads it anew.

use super::errors::told;
use super::reach::Reach;
use super::watch::{Follower, Hears};
use super::{Page, ask_one, end_of, next_limit, read_page};
use crate::map::{Event, KeyValue, LeaseId, Listing, MapError, Revision};
use etcd_client::{Client, GetOptions};
use std::borrow::Borrow;
use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

/// Who lists waits so long for what is being read, and asks again if more of it was.
const READ_WAIT: Duration = Duration::from_secs(3);
/// An image that has not heard of a revision within this is not waited for.
const HEAR_WAIT: Duration = Duration::from_secs(1);

/// What became of a wish for a listing.
pub(super) enum Found {
    /// Here it is.
    There(Listing),
    /// It is being read; so many pages of etcd were, ever.
    Reading(u64),
    /// There is no image, or it is behind: etcd is to be listed.
    Ask,
}

/// See the module. Its tasks run on the map's thread.
pub(super) struct Image {
    reach: Arc<Reach>,
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Default)]
struct State {
    entries: BTreeSet<ByKey>,
    revision: Revision,
    /// Whether a watch tells what changes.
    is_live: bool,
    is_being_read: bool,
    /// Times that all was read, or could not be; and why the last time.
    reads: u64,
    failed: Option<MapError>,
    pages: u64,
}

/// In the order of keys.
struct ByKey(Arc<KeyValue>);

impl Borrow<str> for ByKey {
    fn borrow(&self) -> &str {
        &self.0.key
    }
}

impl Ord for ByKey {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.key.cmp(&other.0.key)
    }
}

impl PartialOrd for ByKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for ByKey {
    fn eq(&self, other: &Self) -> bool {
        self.0.key == other.0.key
    }
}

impl Eq for ByKey {}

impl Image {
    pub(super) fn new(reach: Arc<Reach>) -> Arc<Self> {
        Arc::new(Self { reach, state: Mutex::default(), changed: Notify::new() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Pages that were read of etcd, ever.
    pub(super) fn pages(&self) -> u64 {
        self.state().pages
    }

    pub(super) fn count_page(&self) {
        self.state().pages += 1;
        self.changed.notify_waiters();
    }

    /// All keys with a prefix, if they can be told without listing etcd. Who wants all of them has the image made.
    pub(super) async fn find(self: Arc<Self>, client: Client, prefix: String) -> Result<Found, MapError> {
        if !self.state().is_live {
            if !prefix.is_empty() {
                return Ok(Found::Ask);
            }
            if !self.is_read().await? {
                return Ok(Found::Reading(self.pages()));
            }
        }
        let wanted = GetOptions::new().with_count_only();
        let now = self.reach.check(client.kv_client().get("\0", Some(wanted)).await.map_err(told)?.header())?;
        let is_there =
            self.until(HEAR_WAIT, |state| (!state.is_live || state.revision >= now).then_some(state.is_live));
        match is_there.await {
            Some(true) => Ok(Found::There(self.listing(&prefix))),
            _ => Ok(Found::Ask),
        }
    }

    fn listing(&self, prefix: &str) -> Listing {
        let state = self.state();
        let from = state.entries.range::<str, _>((Bound::Included(prefix), Bound::Unbounded)).map(|ByKey(item)| item);
        let items = from.take_while(|item| item.key.starts_with(prefix)).cloned().collect();
        Listing { revision: state.revision, items }
    }

    /// Has all of it read, if nobody does already, and waits for that; false: it goes on.
    ///
    /// # Errors
    /// Why it could not be read.
    async fn is_read(self: &Arc<Self>) -> Result<bool, MapError> {
        let before = {
            let mut state = self.state();
            if !state.is_being_read {
                state.is_being_read = true;
                tokio::spawn(self.clone().read_and_follow());
            }
            state.reads
        };
        let ended = |state: &State| match (state.is_live, state.reads == before) {
            (true, _) => Some(Ok(true)),
            (false, true) => None,
            (false, false) => Some(Err(state.failed.clone().unwrap_or(MapError::Unknown))),
        };
        self.until(READ_WAIT, ended).await.unwrap_or(Ok(false))
    }

    /// Waits until something is the case, for a while.
    async fn until<T>(&self, wait: Duration, is: impl Fn(&State) -> Option<T>) -> Option<T> {
        let deadline = Instant::now() + wait;
        loop {
            let changed = self.changed.notified();
            if let Some(found) = is(&self.state()) {
                return Some(found);
            }
            timeout_at(deadline, changed).await.ok()?;
        }
    }

    /// The task: to the end of the connection.
    async fn read_and_follow(self: Arc<Self>) {
        let read = self.read().await;
        let from = {
            let mut state = self.state();
            state.reads += 1;
            state.is_being_read = false;
            state.is_live = read.is_ok();
            match read {
                Ok(Listing { revision, items }) => {
                    state.entries = items.into_iter().map(ByKey).collect();
                    state.revision = revision;
                    state.failed = None;
                    Some(Revision(revision.0 + 1))
                }
                Err(error) => {
                    state.failed = Some(error);
                    None
                }
            }
        };
        self.changed.notify_waiters();
        let Some(from) = from else { return };
        let mut follower = Follower::new(self.reach.clone(), "", from, self.clone());
        if let Err(error) = follower.follow().await {
            log::debug!("the map is read anew when it is listed next: {error}");
        }
        self.state().is_live = false;
        self.changed.notify_waiters();
    }

    /// Page by page, each within the time of a request.
    async fn read(&self) -> Result<Listing, MapError> {
        let (mut listing, mut from, mut limit) = (Listing::default(), "\0".to_owned(), next_limit(0));
        loop {
            let (reach, at) = (self.reach.clone(), listing.revision);
            let work = |client| async move { read_page(&client, &reach, (from, end_of("")), limit, at).await };
            let Page { listing: page, next } = ask_one(&self.reach, work).await?;
            self.count_page();
            listing.revision = page.revision;
            listing.items.extend(page.items);
            match next {
                Some((next, left)) => (from, limit) = (next, next_limit(left)),
                None => return Ok(listing),
            }
        }
    }
}

impl Hears for Arc<Image> {
    fn hear(&mut self, events: Vec<(Event, Option<LeaseId>)>) -> bool {
        if events.is_empty() {
            return true;
        }
        let mut state = self.state();
        for (Event { revision, key, value }, lease) in events {
            state.revision = revision;
            match value {
                Some(value) => {
                    let item = KeyValue { key, value, modified: revision, lease };
                    drop(state.entries.replace(ByKey(Arc::new(item))));
                }
                None => drop(state.entries.remove(key.as_str())),
            }
        }
        drop(state);
        self.changed.notify_waiters();
        true
    }
}
