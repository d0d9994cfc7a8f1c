//! The map in etcd (3.4 and later), for clusters whose nodes have no node of their own to trust it to.
//!
//! etcd's client waits for sockets, which cores do by io_uring: it runs on a thread of its own, under tokio. Requests go there as
//! tasks, and answers come back to the asking core by a queue. The thread ends when the last handle is dropped, watches included.
//! Requests and watches are for tasks of a core: its clock keeps their deadlines.
//!
//! | here | in etcd |
//! |---|---|
//! | revision | revision of the store: it begins with 1, and a put is a later one |
//! | compare | `mod_revision` of the key; 0 where there is none |
//! | history gone through *r* | compacted at *r*: a watch that begins at *r* would miss keys that went with it, so that it is refused here |
//! | lease | lease; its time is rounded up to seconds, and etcd takes none below one election's one and a half |
//!
//! Rooms: `errors` (what etcd answers, and what that leaves open), `image` (all of it in memory), `members` (which of them answer), `reach` (which member is asked),
//! `watch`.

mod errors;
mod image;
mod members;
mod reach;
mod watch;

use crate::map::{
    Change, KeyValue, LeaseId, Listing, MapError, MapFuture, MapStore, Members, Outcome, REQUEST_DEADLINE, Revision,
    Transaction, Watch,
};
use crate::state::check_limits;
use errors::{not_done, told};
use etcd_client::{Client, Compare, CompareOp, DeleteOptions, GetOptions, LeaseGrantOptions, PutOptions, Txn, TxnOp};
use image::{Found, Image};
use reach::Reach;
use runtime::channel::cross;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
use watch::EtcdWatch;

/// An answer comes from a member within this, or another is asked next.
const ANSWER_WAIT: Duration = Duration::from_secs(4);
/// Who asks the same again when nobody knows asks no more often than this, of a store that is away.
const AGAIN_AFTER: Duration = Duration::from_millis(100);

/// A listing is asked for in pages: etcd answers others in between. For each page etcd counts all keys that are left, so a long listing has
/// pages of this part of it.
const PAGE_KEYS: i64 = 2000;
const PAGE_KEYS_MAX: i64 = 32_000;
const PAGES: i64 = 16;

/// How to reach etcd.
#[derive(Clone, Default)]
pub struct EtcdOptions {
    /// Its members: `http://host:2379`, or `https://…`.
    pub endpoints: Vec<String>,
    /// A user and its password, where it asks for one: over `https`, or to this machine.
    pub user: Option<(String, String)>,
    /// Of `https`: the authorities that sign its certificates, PEM: these and no others. None: those that the system trusts.
    pub authority_pem: Option<Vec<u8>>,
    /// Of `https`: our certificate and its key, PEM, where it asks for one.
    pub identity_pem: Option<(Vec<u8>, Vec<u8>)>,
}

/// See the module.
#[derive(Clone)]
pub struct EtcdMap {
    reach: Arc<Reach>,
    image: Arc<Image>,
    tasks: Handle,
    members: Arc<Mutex<Members>>,
    /// Dropped with the last handle: the thread ends.
    alive: Arc<oneshot::Sender<()>>,
}

impl EtcdMap {
    /// Begins to talk to it. Whether it is there, and knows the user, shows with the first request.
    ///
    /// # Errors
    /// The options name no endpoint, or the system has no thread for it.
    pub fn open(options: &EtcdOptions) -> Result<Arc<Self>, MapError> {
        let reach = Arc::new(Reach::new(options)?);
        let tokio = Builder::new_current_thread().enable_all().build().map_err(storage)?;
        let tasks = tokio.handle().clone();
        let (alive, ended) = oneshot::channel::<()>();
        // Nothing is ever sent: it ends when the other side is dropped.
        let run = move || drop(tokio.block_on(ended));
        thread::Builder::new().name("map".to_owned()).spawn(run).map_err(storage)?;
        let members = Arc::new(Mutex::new(Members::default()));
        tasks.spawn(members::look(reach.clone(), members.clone()));
        let image = Image::new(reach.clone());
        Ok(Arc::new(Self { reach, image, tasks, members, alive: Arc::new(alive) }))
    }

    /// Has it done on the map's thread. What is not answered in time may be done all the same.
    fn ask<T, F>(&self, work: impl FnOnce(Client) -> F + Send + 'static) -> MapFuture<'_, T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, MapError>> + Send + 'static,
    {
        Box::pin(async move {
            let (reply, mut answer) = cross(1);
            let (reach, alive) = (self.reach.clone(), self.alive.clone());
            self.tasks.spawn(async move {
                let done = ask_one(&reach, work).await;
                if matches!(done, Err(MapError::Unknown)) {
                    tokio::time::sleep(AGAIN_AFTER).await;
                }
                // Who asked may be gone: then nobody needs the answer.
                let _ = reply.try_send(done);
                drop(alive);
            });
            let answer = runtime::timeout(REQUEST_DEADLINE, answer.recv()).await;
            answer.map_or(Err(MapError::Unknown), |answer| answer.unwrap_or(Err(MapError::Unknown)))
        })
    }
}

/// A part of a listing; where the next one begins, and how many keys are left.
struct Page {
    listing: Listing,
    next: Option<(String, i64)>,
}

/// Keys of a page, when so many are left.
fn next_limit(left: i64) -> i64 {
    (left / PAGES).clamp(PAGE_KEYS, PAGE_KEYS_MAX)
}

/// The first keys of `from..end` as they were at a revision, or are if that is 0.
async fn read_page(
    client: &Client,
    reach: &Reach,
    (from, end): (String, Vec<u8>),
    limit: i64,
    at: Revision,
) -> Result<Page, MapError> {
    let mut kv = client.kv_client().max_decoding_message_size(usize::MAX);
    let wanted = GetOptions::new().with_range(end).with_limit(limit).with_revision(at.0 as i64);
    // If that is compacted meanwhile the listing is begun anew.
    let found = kv.get(from, Some(wanted)).await.map_err(told).map_err(|error| match error {
        MapError::Compacted { .. } => MapError::Unknown,
        error => error,
    })?;
    let now = reach.check(found.header())?;
    // All pages say what the first one's revision says.
    let revision = if at == Revision(0) { now } else { at };
    let items = found.kvs().iter().map(|found| key_value(found).map(Arc::new)).collect::<Result<Vec<_>, _>>()?;
    let left = found.count() - items.len() as i64;
    let next = items.last().filter(|_| found.more()).map(|last| (format!("{}\0", last.key), left));
    Ok(Page { listing: Listing { revision, items }, next })
}

impl EtcdMap {
    /// Pages of listings that were read of etcd: what is listed out of memory reads none.
    pub fn pages_read(&self) -> u64 {
        self.image.pages()
    }

    /// A listing of etcd itself. Each page has the time that a request has; so it may be as long as the map is.
    async fn list_etcd(&self, prefix: &str) -> Result<Listing, MapError> {
        let mut from = if prefix.is_empty() { "\0".to_owned() } else { prefix.to_owned() };
        let (mut listing, mut limit) = (Listing::default(), next_limit(0));
        loop {
            let (reach, of, at) = (self.reach.clone(), (from, end_of(prefix)), listing.revision);
            let page = self.ask(move |client| async move { read_page(&client, &reach, of, limit, at).await }).await?;
            self.image.count_page();
            listing.revision = page.listing.revision;
            listing.items.extend(page.listing.items);
            match page.next {
                Some((next, left)) => (from, limit) = (next, next_limit(left)),
                None => return Ok(listing),
            }
        }
    }
}

/// Asks whoever is to be asked; the next is, if there is no answer.
async fn ask_one<T, F>(reach: &Reach, work: impl FnOnce(Client) -> F) -> Result<T, MapError>
where
    F: Future<Output = Result<T, MapError>>,
{
    let (turn, client) = reach.client().await?;
    let done = tokio::time::timeout(ANSWER_WAIT, work(client)).await.unwrap_or(Err(MapError::Unknown));
    if matches!(done, Err(MapError::Unknown)) || reach.was_astray() {
        reach.failed(turn).await;
    }
    done
}

impl MapStore for EtcdMap {
    fn members(&self) -> Members {
        self.members.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn get(&self, key: &str) -> MapFuture<'_, Option<KeyValue>> {
        let (key, reach) = (key.to_owned(), self.reach.clone());
        self.ask(|client| async move {
            let mut kv = client.kv_client().max_decoding_message_size(usize::MAX);
            let found = kv.get(key, None).await.map_err(told)?;
            reach.check(found.header())?;
            found.kvs().first().map(key_value).transpose()
        })
    }

    fn list(&self, prefix: &str) -> MapFuture<'_, Listing> {
        let prefix = prefix.to_owned();
        Box::pin(async move {
            let mut read = None;
            loop {
                let (image, of) = (self.image.clone(), prefix.clone());
                match self.ask(|client| image.find(client, of)).await? {
                    Found::There(listing) => return Ok(listing),
                    Found::Ask => return self.list_etcd(&prefix).await,
                    Found::Reading(pages) if read.replace(pages) != Some(pages) => {}
                    // Nothing more of it was read all the while.
                    Found::Reading(_) => return Err(MapError::Unknown),
                }
            }
        })
    }

    fn transact(&self, transaction: Transaction) -> MapFuture<'_, Outcome> {
        let reach = self.reach.clone();
        self.ask(|client| async move {
            check_limits(&transaction)?;
            let lease = transaction.changes.iter().find_map(|change| match change {
                Change::Put { lease, .. } => *lease,
                Change::Delete { .. } => None,
            });
            let done = client.kv_client().txn(txn_of(transaction)).await.map_err(|error| not_done(error, lease))?;
            let now = reach.check(done.header())?;
            Ok(match done.succeeded() {
                true => Outcome::Committed(now),
                false => Outcome::Conflict,
            })
        })
    }

    fn watch(&self, prefix: &str, from: Revision) -> Box<dyn Watch> {
        Box::new(EtcdWatch::new(self.clone(), prefix, from))
    }

    fn compact(&self, through: Revision) -> MapFuture<'_, ()> {
        self.ask(move |client| async move {
            match client.kv_client().compact(through.0 as i64, None).await.map_err(told) {
                // It is gone already.
                Ok(_) | Err(MapError::Compacted { .. }) => Ok(()),
                Err(error) => Err(error),
            }
        })
    }

    fn grant(&self, time_to_live: Duration) -> MapFuture<'_, LeaseId> {
        let seconds = time_to_live.as_secs() + u64::from(time_to_live.subsec_nanos() > 0);
        self.ask(move |client| async move {
            let none: Option<LeaseGrantOptions> = None;
            let granted = client.lease_client().grant(seconds.max(1) as i64, none).await.map_err(told)?;
            Ok(LeaseId(granted.id() as u64))
        })
    }

    fn keep_alive(&self, lease: LeaseId) -> MapFuture<'_, ()> {
        self.ask(move |client| async move {
            let kept = client.lease_client().keep_alive(lease.0 as i64).await;
            kept.map(drop).map_err(|error| not_done(error, Some(lease)))
        })
    }

    fn revoke(&self, lease: LeaseId) -> MapFuture<'_, ()> {
        self.ask(move |client| async move {
            let ended = client.lease_client().revoke(lease.0 as i64).await;
            ended.map(drop).map_err(|error| not_done(error, Some(lease)))
        })
    }
}

/// The first key behind all that begin with `prefix`, as etcd names ranges.
fn end_of(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    match end.last_mut() {
        // No byte of a text is 255.
        Some(last) => *last += 1,
        None => end.push(0),
    }
    end
}

fn storage(error: std::io::Error) -> MapError {
    MapError::Storage(error.to_string())
}

fn txn_of(transaction: Transaction) -> Txn {
    let compare = |(key, modified): (String, Revision)| Compare::mod_revision(key, CompareOp::Equal, modified.0 as i64);
    let change = |change: Change| match change {
        Change::Put { key, value, lease } => {
            let options = lease.map(|lease| PutOptions::new().with_lease(lease.0 as i64));
            TxnOp::put(key, value, options)
        }
        Change::Delete { key } => TxnOp::delete(key, None::<DeleteOptions>),
    };
    let compares: Vec<_> = transaction.compares.into_iter().map(compare).collect();
    let changes: Vec<_> = transaction.changes.into_iter().map(change).collect();
    Txn::new().when(compares).and_then(changes)
}

fn text(bytes: &[u8]) -> Result<String, MapError> {
    let text = std::str::from_utf8(bytes);
    text.map(str::to_owned)
        .map_err(|_| MapError::Storage("etcd holds a key that is no text: it is not this cluster's alone".to_owned()))
}

fn key_value(found: &etcd_client::KeyValue) -> Result<KeyValue, MapError> {
    Ok(KeyValue {
        key: text(found.key())?,
        value: found.value().to_vec(),
        modified: Revision(found.mod_revision() as u64),
        lease: lease_of(found),
    })
}

fn lease_of(found: &etcd_client::KeyValue) -> Option<LeaseId> {
    (found.lease() != 0).then(|| LeaseId(found.lease() as u64))
}
