//! A watch: a task on the map's thread follows etcd, connects again where it stopped, and hands events to the core that asked.
//!
//! What etcd says of its progress is taken for a sign of life and for nothing else: 3.4 may say it before it has sent the events
//! up to there.

use super::errors::told;
use super::reach::Reach;
use super::{EtcdMap, lease_of, text};
use crate::map::{Event, LeaseId, MapError, MapFuture, REQUEST_DEADLINE, Revision, WATCH_SILENCE_MAX, Watch};
use etcd_client::{Client, Error, EventType, WatchOptions, WatchResponse, WatchStream};
use runtime::channel::{CrossReceiver, CrossSender, cross};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::AbortHandle;
use tokio::time::{Instant, interval, sleep, timeout};

/// So many answers of etcd wait for the core.
const WAITING_MAX: usize = 64;
/// It is asked for a sign of life so often.
const PROGRESS_EVERY: Duration = Duration::from_secs(1);
/// Nothing was heard for so long: another connection is tried.
const DEAF_MAX: Duration = Duration::from_secs(4);
/// After a connection that failed the next is tried when this is over.
const AGAIN_AFTER: Duration = Duration::from_millis(200);

/// Nothing in it: etcd was heard.
type Heard = Result<Vec<Event>, MapError>;

/// See the module.
pub(super) struct EtcdWatch {
    map: EtcdMap,
    prefix: String,
    from: Revision,
    following: Option<(CrossReceiver<Heard>, AbortHandle)>,
}

impl EtcdWatch {
    pub(super) fn new(map: EtcdMap, prefix: &str, from: Revision) -> Self {
        Self { map, prefix: prefix.to_owned(), from, following: None }
    }

    fn following(&mut self) -> &mut CrossReceiver<Heard> {
        let Self { map, prefix, from, following } = self;
        let (heard, _) = following.get_or_insert_with(|| {
            let (tell, heard) = cross(WAITING_MAX);
            let follower = Follower::new(map.reach.clone(), prefix, *from, tell);
            (heard, map.tasks.spawn(follower.run()).abort_handle())
        });
        heard
    }
}

impl Watch for EtcdWatch {
    fn next(&mut self) -> MapFuture<'_, Vec<Event>> {
        Box::pin(async move {
            loop {
                let heard = runtime::timeout(WATCH_SILENCE_MAX, self.following().recv()).await;
                let Ok(heard) = heard.map_err(|_| MapError::Silent)? else {
                    // It was told more than it took: another follower begins behind what it has taken.
                    self.stop();
                    continue;
                };
                match heard {
                    Ok(events) => {
                        if let Some(last) = events.last() {
                            self.from = Revision(last.revision.0 + 1);
                            return Ok(events);
                        }
                    }
                    Err(error) => {
                        // Asked again, it looks again.
                        self.stop();
                        return Err(error);
                    }
                }
            }
        })
    }
}

impl EtcdWatch {
    fn stop(&mut self) {
        if let Some((_, task)) = self.following.take() {
            task.abort();
        }
    }
}

impl Drop for EtcdWatch {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Whoever is told what changes.
pub(super) trait Hears {
    /// What etcd has told, in order, each with the lease that its key lives under; nothing: a sign of life. False: it wants no more.
    fn hear(&mut self, events: Vec<(Event, Option<LeaseId>)>) -> bool;
}

impl Hears for CrossSender<Heard> {
    fn hear(&mut self, events: Vec<(Event, Option<LeaseId>)>) -> bool {
        let is_alive = events.is_empty();
        let told = self.try_send(Ok(events.into_iter().map(|(event, _)| event).collect()));
        // Nobody waits here for a core that is slow: the connection, which others share, would seem deaf. A sign of life is one among
        // others.
        is_alive || told.is_ok()
    }
}

/// Follows etcd, for who hears.
pub(super) struct Follower<H> {
    reach: Arc<Reach>,
    prefix: String,
    /// What was not told yet.
    from: Revision,
    hears: H,
}

impl Follower<CrossSender<Heard>> {
    /// The task of a watch: connects again and again.
    async fn run(mut self) {
        loop {
            match self.follow().await {
                Err(MapError::Unknown | MapError::Silent) => sleep(AGAIN_AFTER).await,
                Err(error) => {
                    // Who is not there any more need not be told. Its stream has ended: nobody waits for this.
                    let _ = self.hears.send(Err(error)).await;
                    return;
                }
                // Nobody listens any more, or is too slow.
                Ok(()) => return,
            }
        }
    }
}

impl<H: Hears> Follower<H> {
    pub(super) fn new(reach: Arc<Reach>, prefix: &str, from: Revision, hears: H) -> Self {
        Self { reach, prefix: prefix.to_owned(), from, hears }
    }

    /// Until the connection fails, or who hears wants no more, or has to be told something that it has to act upon.
    pub(super) async fn follow(&mut self) -> Result<(), MapError> {
        let (turn, client) = self.reach.client().await?;
        let followed = self.follow_one(&client).await;
        if matches!(followed, Err(MapError::Unknown | MapError::Silent)) {
            self.reach.failed(turn).await;
        }
        followed
    }

    async fn follow_one(&mut self, client: &Client) -> Result<(), MapError> {
        let begun = timeout(REQUEST_DEADLINE, self.begin(client)).await;
        let mut stream = begun.map_err(|_| MapError::Unknown)??;
        let (mut progress, mut heard_at) = (interval(PROGRESS_EVERY), Instant::now());
        loop {
            let response = tokio::select! {
                response = stream.message() => response.map_err(told)?.ok_or(MapError::Unknown)?,
                _ = progress.tick() => {
                    if heard_at.elapsed() > DEAF_MAX {
                        return Err(MapError::Silent);
                    }
                    stream.request_progress().await.map_err(unheard)?;
                    continue;
                }
            };
            heard_at = Instant::now();
            if response.compact_revision() > 0 {
                return Err(MapError::Compacted { oldest: Revision(response.compact_revision() as u64 + 1) });
            }
            if response.canceled() {
                log::warn!("etcd ended a watch of {:?}: {}", self.prefix, response.cancel_reason());
                return Err(MapError::Unknown);
            }
            self.reach.check(response.header())?;
            let events = self.events_of(&response)?;
            if let Some((last, _)) = events.last() {
                self.from = Revision(last.revision.0 + 1);
            }
            if !self.hears.hear(events) {
                return Ok(());
            }
        }
    }

    /// Looks where the store is, and begins one revision before what is wanted: etcd would not say that what belongs there was
    /// compacted with it.
    async fn begin(&self, client: &Client) -> Result<WatchStream, MapError> {
        let key = if self.prefix.is_empty() { "\0" } else { self.prefix.as_str() };
        let now = self.reach.check(client.kv_client().get(key, None).await.map_err(told)?.header())?;
        if self.from.0 > now.0 + 1 {
            return Err(MapError::WentBack { revision: now });
        }
        if self.from.0 == now.0 + 1 {
            // Nothing is missed so far: it hears of what comes, whatever is compacted. If something has come before etcd had
            // begun, that may be gone by now.
            let mut stream = self.watch_from(client, self.from).await?;
            let begun = stream.message().await.map_err(told)?.ok_or(MapError::Unknown)?;
            if begun.created() && !begun.canceled() && self.reach.check(begun.header())? < self.from {
                return Ok(stream);
            }
        }
        self.watch_from(client, Revision(self.from.0.saturating_sub(1).max(1))).await
    }

    async fn watch_from(&self, client: &Client, first: Revision) -> Result<WatchStream, MapError> {
        let options = WatchOptions::new().with_start_revision(first.0 as i64);
        let options = if self.prefix.is_empty() { options.with_all_keys() } else { options.with_prefix() };
        let mut watches = client.watch_client().max_decoding_message_size(usize::MAX);
        watches.watch(self.prefix.as_str(), Some(options)).await.map_err(told)
    }

    fn events_of(&self, response: &WatchResponse) -> Result<Vec<(Event, Option<LeaseId>)>, MapError> {
        let wanted =
            |event: &&etcd_client::Event| event.kv().is_some_and(|found| found.mod_revision() as u64 >= self.from.0);
        let event = |event: &etcd_client::Event| {
            let found = event.kv().ok_or(MapError::Unknown)?;
            let value = (event.event_type() == EventType::Put).then(|| found.value().to_vec());
            let event = Event { revision: Revision(found.mod_revision() as u64), key: text(found.key())?, value };
            Ok((event, lease_of(found)))
        };
        response.events().iter().filter(wanted).map(event).collect()
    }
}

fn unheard(_: Error) -> MapError {
    MapError::Unknown
}
