//! The map's store as everything above sees it: etcd's shape, and no more of it than is needed.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

/// Most operations (and most compares) in one transaction: etcd's default limit.
pub const TRANSACTION_OPERATIONS_MAX: usize = 128;
/// Largest value: well below etcd's 1.5 MiB request, so that several fit into one transaction.
pub const VALUE_BYTES_MAX: usize = 256 << 10;
/// Longest key.
pub const KEY_BYTES_MAX: usize = 512;
/// A request over a network has its answer by then, or [`MapError::Unknown`]: half of a session's 10 s, so that a
/// renewal that got none can be sent once more before the session ends.
pub const REQUEST_DEADLINE: Duration = Duration::from_secs(5);
/// A watch that has heard nothing of the store for so long, not even that nothing happened, says so.
pub const WATCH_SILENCE_MAX: Duration = Duration::from_secs(5);

/// The map's clock: +1 with every transaction that changed something. 0 is "before the first".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(pub u64);

/// A lease: keys put under it go when it is not kept alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseId(pub u64);

/// A key and what it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyValue {
    /// The key.
    pub key: String,
    /// Its value.
    pub value: Vec<u8>,
    /// The revision that last changed it: what a compare-and-swap names.
    pub modified: Revision,
    /// The lease it lives under.
    pub lease: Option<LeaseId>,
}

/// All keys with a prefix, as of one revision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// The store's revision: a watch from the next one misses nothing.
    pub revision: Revision,
    /// In the order of their keys. Of a large map there are several listings at a time: they share what is in it.
    pub items: Vec<Arc<KeyValue>>,
}

/// One change of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Sets a key.
    Put {
        /// The key.
        key: String,
        /// Its new value.
        value: Vec<u8>,
        /// The lease it is to live under.
        lease: Option<LeaseId>,
    },
    /// Removes a key, if it is there.
    Delete {
        /// The key.
        key: String,
    },
}

impl Change {
    /// The key that is changed.
    pub fn key(&self) -> &str {
        match self {
            Self::Put { key, .. } | Self::Delete { key } => key,
        }
    }
}

/// Compare, and if all is as expected, change: all or nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transaction {
    /// Keys and the revision that must have last changed them; 0: the key must be absent.
    pub compares: Vec<(String, Revision)>,
    /// Done together if all compares hold. A key may occur once.
    pub changes: Vec<Change>,
}

impl Transaction {
    /// Nothing yet.
    pub fn new() -> Self {
        Self::default()
    }
    /// Demands that `key` was last changed by `modified`.
    #[must_use]
    pub fn expect(mut self, key: impl Into<String>, modified: Revision) -> Self {
        self.compares.push((key.into(), modified));
        self
    }
    /// Demands that there is no `key`.
    #[must_use]
    pub fn expect_absent(self, key: impl Into<String>) -> Self {
        self.expect(key, Revision(0))
    }
    /// Sets `key`.
    #[must_use]
    pub fn put(mut self, key: impl Into<String>, value: Vec<u8>) -> Self {
        self.changes.push(Change::Put { key: key.into(), value, lease: None });
        self
    }
    /// Removes `key`.
    #[must_use]
    pub fn delete(mut self, key: impl Into<String>) -> Self {
        self.changes.push(Change::Delete { key: key.into() });
        self
    }
}

/// How a transaction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Done, as this revision.
    Committed(Revision),
    /// A compare failed; nothing was changed.
    Conflict,
}

/// One change of one key, as a watch tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The transaction that made it; several events may share one.
    pub revision: Revision,
    /// The key.
    pub key: String,
    /// What it holds now; `None`: it was removed.
    pub value: Option<Vec<u8>>,
}

/// What the map's store may answer instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MapError {
    /// No answer: whether the request was done is **unknown**, and it may still be on its way: a look that finds it not
    /// done proves nothing. Send the same compare-and-swap again until it is committed or a conflict.
    #[error("the cluster map did not answer; whether the request was done is unknown")]
    Unknown,
    /// The history a watch asked for is gone: list again and watch from there.
    #[error("the map's history before revision {} was compacted: list again and watch from there", oldest.0)]
    Compacted {
        /// The oldest revision that a watch may begin with.
        oldest: Revision,
    },
    /// A watch cannot hear the store: what it told last may be old by now. It goes on where it is asked again.
    #[error("the cluster map was not heard of for {} s: what is known of it may be old", WATCH_SILENCE_MAX.as_secs())]
    Silent,
    /// The store went back in time, as one that was restored from a backup does: revisions that were seen may be given
    /// again, for something else. List again and watch from there.
    #[error("the cluster map went back to revision {}: it was restored from a backup; list again", revision.0)]
    WentBack {
        /// Where it is now.
        revision: Revision,
    },
    /// No such lease: it ended.
    #[error("the lease {} does not exist: it has ended", .0.0)]
    NoLease(LeaseId),
    /// The request was done, or what is asked for was, and not enough nodes hold a copy of that: lost with the store, it would be
    /// lost. Whoever asks again is told when they do.
    #[error(
        "the cluster map says so, and {held} of {needed} nodes that must keep a copy of that have it: if the map were lost now, it would \
         be gone. Whether what was asked for is done is to be looked up; nodes keep their copies beside their node.toml, and their logs \
         say what keeps them from it"
    )]
    NotCopied {
        /// So many nodes hold it.
        held: usize,
        /// So many have to.
        needed: usize,
    },
    /// The request breaks a limit of the store.
    #[error("the map refuses the request: {0}")]
    Refused(String),
    /// The file or service behind the map failed.
    #[error("the map's storage failed: {0}")]
    Storage(String),
}

/// A future of the map: lives on the core that asked.
pub type MapFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, MapError>> + 'a>>;

/// A small store with compare-and-swap, watches and leases. One handle serves all cores. A node by itself asks for no
/// watch and no lease; several nodes need both, and what they need is fixed here and in the suite that every backend
/// runs (`tests/conformance`).
///
/// Reads are linearizable: they see every transaction that was committed before they were asked.
///
/// Any error other than [`MapError::Refused`], [`MapError::NoLease`] and [`MapError::Compacted`] leaves it open
/// whether a request was done, or will be; so does dropping its future.
pub trait MapStore: Send + Sync {
    /// Every request has ended by then.
    fn request_deadline(&self) -> Duration {
        REQUEST_DEADLINE
    }
    /// The key, if it is there.
    fn get(&self, key: &str) -> MapFuture<'_, Option<KeyValue>>;
    /// All keys that begin with `prefix`.
    fn list(&self, prefix: &str) -> MapFuture<'_, Listing>;
    /// Compare and change.
    fn transact(&self, transaction: Transaction) -> MapFuture<'_, Outcome>;
    /// The changes of keys that begin with `prefix`, in order and without a gap, from revision `from` on: one that was
    /// seen, or the next.
    fn watch(&self, prefix: &str, from: Revision) -> Box<dyn Watch>;
    /// Forgets the history up to and including `through`; what the keys hold now stays.
    fn compact(&self, through: Revision) -> MapFuture<'_, ()>;
    /// A new lease that ends `time_to_live` after it was last kept alive: never earlier, and later where the store was
    /// away or had a new leader.
    fn grant(&self, time_to_live: Duration) -> MapFuture<'_, LeaseId>;
    /// Begins the lease's time anew.
    fn keep_alive(&self, lease: LeaseId) -> MapFuture<'_, ()>;
    /// Ends the lease now and removes its keys.
    fn revoke(&self, lease: LeaseId) -> MapFuture<'_, ()>;
    /// Which of the store's members answered when they were last asked, where it has several.
    fn members(&self) -> Members {
        Members::default()
    }
    /// What is known of the copies that nodes keep, where changes wait for them.
    fn copies(&self) -> Option<Arc<crate::Copies>> {
        None
    }
}

/// Members of a store, as the options name them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Members {
    /// Those that answer.
    pub there: Vec<String>,
    /// Those that did not, twice.
    pub silent: Vec<String>,
}

/// A watch; dropping it ends it.
pub trait Watch {
    /// The next changes: at least one; all changes of one transaction come together. A call that is dropped loses
    /// nothing.
    ///
    /// # Errors
    /// [`MapError::Silent`]: nothing is lost, ask again. [`MapError::Compacted`] and [`MapError::WentBack`]: list again
    /// and begin another watch.
    fn next(&mut self) -> MapFuture<'_, Vec<Event>>;
}
