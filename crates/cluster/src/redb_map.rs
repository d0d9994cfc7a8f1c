//! The map in a redb file, for a cluster in one process.
//!
//! redb is synchronous and waits for fsync, which no core may do: one thread owns the file and a [`MapState`] that
//! mirrors it. Requests reach it by a queue and answers go back to the asking core. A transaction is answered after
//! its fsync. The thread ends when the last handle is dropped. Requests and watches are for tasks of a core: its clock
//! keeps their deadlines.
//!
//! | table     | key                  | value                                        |
//! |-----------|----------------------|----------------------------------------------|
//! | `items`   | key                  | modified revision, lease (0: none), value    |
//! | `history` | revision, number     | key, whether it was put, value               |
//! | `leases`  | lease                | time to live in ns (it begins anew at opening) |
//! | `meta`    | `revision` `compacted` `lease` `version` | number                   |

use crate::map::{
    Event, KeyValue, LeaseId, Listing, MapError, MapFuture, MapStore, Outcome, Revision, Transaction,
    WATCH_SILENCE_MAX, Watch,
};
use crate::state::{Lease, MapState, Told};
use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};
use runtime::channel::{CrossReceiver, CrossSender, cross};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

const ITEMS: TableDefinition<&str, (u64, u64, &[u8])> = TableDefinition::new("items");
const HISTORY: TableDefinition<(u64, u32), (&str, bool, &[u8])> = TableDefinition::new("history");
const LEASES: TableDefinition<u64, u64> = TableDefinition::new("leases");
const META: TableDefinition<&str, u64> = TableDefinition::new("meta");
/// Version of the tables above.
const VERSION: u64 = 1;
/// The thread looks for ended leases at least this often once one exists.
const IDLE_WAIT: Duration = Duration::from_secs(3600);
/// A file has no network that loses answers: what takes longer is a disk that hangs. The kernel gives it up after 30 s.
const DEADLINE: Duration = Duration::from_secs(30);
/// redb's cache: the map is mirrored in memory, so the file needs next to none.
const CACHE_BYTES: usize = 1 << 20;

type Reply<T> = CrossSender<Result<T, MapError>>;
type Answer<T> = CrossReceiver<Result<T, MapError>>;

enum Request {
    Get(String, Reply<Option<KeyValue>>),
    List(String, Reply<Listing>),
    Transact(Transaction, Reply<Outcome>),
    Watch(Waiting),
    Compact(Revision, Reply<()>),
    Grant(Duration, Reply<LeaseId>),
    KeepAlive(LeaseId, Reply<()>),
    Revoke(LeaseId, Reply<()>),
}

/// A watcher that waits for its next events.
struct Waiting {
    prefix: String,
    from: Revision,
    /// When it is told that nothing happened: who hears not even that knows that the disk hangs.
    until: Instant,
    reply: Reply<Told>,
}

/// See the module. Clones share the file.
#[derive(Clone)]
pub struct RedbMap {
    requests: Sender<Request>,
    deadline: Duration,
    silence_max: Duration,
}

impl RedbMap {
    /// Opens the file, or makes it.
    ///
    /// # Errors
    /// The file is in use by another process, no map, damaged, of a later version, or the system's error.
    pub fn open(path: &Path) -> Result<Arc<Self>, MapError> {
        let mut database = Database::builder().set_cache_size(CACHE_BYTES).create(path).map_err(storage)?;
        // redb looks at its sums only after a crash; a bit turned over in a volume's record would go unseen. And what
        // it could repair it would take from an older state, in which volumes may be missing.
        if !database.check_integrity().map_err(storage)? {
            return Err(storage("it is damaged: put back a good copy of it"));
        }
        let state = load(&database).map_err(storage)?;
        let (sender, receiver) = channel();
        let thread = thread::Builder::new().name("map".to_owned());
        let keeper = Keeper { database, state, waiting: Vec::new(), failed: None, started: Instant::now() };
        thread.spawn(move || keeper.run(&receiver)).map_err(storage)?;
        Ok(Arc::new(Self { requests: sender, deadline: DEADLINE, silence_max: WATCH_SILENCE_MAX }))
    }

    fn ask<T: Send + 'static>(&self, request: impl FnOnce(Reply<T>) -> Request + 'static) -> MapFuture<'_, T> {
        Box::pin(async move {
            let mut answer = self.send(request)?;
            let answer = runtime::timeout(self.deadline, answer.recv()).await;
            answer.map_or(Err(MapError::Unknown), |answer| answer.unwrap_or(Err(MapError::Unknown)))
        })
    }

    fn send<T: Send>(&self, request: impl FnOnce(Reply<T>) -> Request) -> Result<Answer<T>, MapError> {
        let (reply, answer) = cross(1);
        self.requests.send(request(reply)).map_err(|_| MapError::Unknown)?;
        Ok(answer)
    }
}

impl MapStore for RedbMap {
    fn request_deadline(&self) -> Duration {
        self.deadline
    }
    fn get(&self, key: &str) -> MapFuture<'_, Option<KeyValue>> {
        let key = key.to_owned();
        self.ask(|reply| Request::Get(key, reply))
    }
    fn list(&self, prefix: &str) -> MapFuture<'_, Listing> {
        let prefix = prefix.to_owned();
        self.ask(|reply| Request::List(prefix, reply))
    }
    fn transact(&self, transaction: Transaction) -> MapFuture<'_, Outcome> {
        self.ask(|reply| Request::Transact(transaction, reply))
    }
    fn watch(&self, prefix: &str, from: Revision) -> Box<dyn Watch> {
        Box::new(RedbWatch { map: self.clone(), prefix: prefix.to_owned(), from, asked: None })
    }
    fn compact(&self, through: Revision) -> MapFuture<'_, ()> {
        self.ask(move |reply| Request::Compact(through, reply))
    }
    fn grant(&self, time_to_live: Duration) -> MapFuture<'_, LeaseId> {
        self.ask(move |reply| Request::Grant(time_to_live, reply))
    }
    fn keep_alive(&self, lease: LeaseId) -> MapFuture<'_, ()> {
        self.ask(move |reply| Request::KeepAlive(lease, reply))
    }
    fn revoke(&self, lease: LeaseId) -> MapFuture<'_, ()> {
        self.ask(move |reply| Request::Revoke(lease, reply))
    }
}

struct RedbWatch {
    map: RedbMap,
    prefix: String,
    from: Revision,
    /// What the thread was asked for; also after a call was dropped that waited for it.
    asked: Option<Answer<Told>>,
}

impl RedbWatch {
    async fn told(&mut self) -> Result<Told, MapError> {
        let silence_max = self.map.silence_max;
        let answer = match &mut self.asked {
            Some(answer) => answer,
            None => {
                let (prefix, from, until) = (self.prefix.clone(), self.from, Instant::now() + silence_max / 2);
                let asked = self.map.send(|reply| Request::Watch(Waiting { prefix, from, until, reply }))?;
                self.asked.insert(asked)
            }
        };
        let told = runtime::timeout(silence_max, answer.recv()).await.map_err(|_| MapError::Silent)?;
        self.asked = None;
        told.unwrap_or(Err(MapError::Unknown))
    }
}

impl Watch for RedbWatch {
    fn next(&mut self) -> MapFuture<'_, Vec<Event>> {
        Box::pin(async move {
            loop {
                let told = self.told().await?;
                self.from = told.next;
                if !told.events.is_empty() {
                    return Ok(told.events);
                }
            }
        })
    }
}

/// The thread's side.
struct Keeper {
    database: Database,
    state: MapState,
    waiting: Vec<Waiting>,
    /// After a failed write the mirror and the file may differ: nothing is answered from it any more.
    failed: Option<MapError>,
    started: Instant,
}

impl Keeper {
    fn run(mut self, requests: &Receiver<Request>) {
        loop {
            match requests.recv_timeout(self.wait()) {
                Ok(request) => self.serve(request),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            while self.failed.is_none()
                && let Some(lease) = self.state.expired(self.now())
            {
                let _ = self.revoke(lease); // a failure is kept in `failed`
            }
            self.tell_watchers();
        }
    }

    fn now(&self) -> Duration {
        self.started.elapsed()
    }

    /// How long nothing is to be done if nobody asks.
    fn wait(&self) -> Duration {
        let lease = self.state.next_end().map(|end| end.saturating_sub(self.now()));
        let watcher = self.waiting.iter().map(|waiting| waiting.until.saturating_duration_since(Instant::now())).min();
        lease.into_iter().chain(watcher).fold(IDLE_WAIT, Duration::min)
    }

    fn serve(&mut self, request: Request) {
        match request {
            Request::Get(key, reply) => answer(&reply, self.alive().map(|()| self.state.get(&key))),
            Request::List(prefix, reply) => answer(&reply, self.alive().map(|()| self.state.list(&prefix))),
            Request::Transact(transaction, reply) => answer(&reply, self.transact(transaction)),
            Request::Watch(waiting) => self.waiting.push(waiting),
            Request::Compact(through, reply) => answer(&reply, self.compact(through)),
            Request::Grant(time_to_live, reply) => answer(&reply, self.grant(time_to_live)),
            Request::KeepAlive(lease, reply) => {
                let now = self.now();
                answer(&reply, self.alive().and_then(|()| self.state.keep_alive(lease, now)));
            }
            Request::Revoke(lease, reply) => answer(&reply, self.revoke(lease)),
        }
    }

    fn alive(&self) -> Result<(), MapError> {
        self.failed.clone().map_or(Ok(()), Err)
    }

    fn transact(&mut self, transaction: Transaction) -> Result<Outcome, MapError> {
        self.alive()?;
        let (outcome, events) = self.state.transact(transaction)?;
        if !events.is_empty() {
            self.keep(|file, state| file.events(&events, state))?;
        }
        Ok(outcome)
    }

    fn compact(&mut self, through: Revision) -> Result<(), MapError> {
        self.alive()?;
        self.state.compact(through);
        self.keep(|_, _| Ok(()))
    }

    fn grant(&mut self, time_to_live: Duration) -> Result<LeaseId, MapError> {
        self.alive()?;
        let lease = self.state.grant(time_to_live, self.now());
        self.keep(|file, _| file.lease(lease, Some(time_to_live)))?;
        Ok(lease)
    }

    fn revoke(&mut self, lease: LeaseId) -> Result<(), MapError> {
        self.alive()?;
        let events = self.state.revoke(lease)?;
        self.keep(|file, state| {
            file.lease(lease, None)?;
            file.events(&events, state)
        })
    }

    /// Makes durable what the state has just become.
    fn keep(&mut self, write: impl FnOnce(&File<'_>, &MapState) -> Result<(), redb::Error>) -> Result<(), MapError> {
        let kept = (|| {
            let transaction = self.database.begin_write()?;
            let file = File(&transaction);
            write(&file, &self.state)?;
            file.meta(&self.state)?;
            transaction.commit()?;
            Ok::<(), redb::Error>(())
        })();
        kept.map_err(|error| {
            let error = storage(error);
            self.failed = Some(error.clone());
            error
        })
    }

    fn tell_watchers(&mut self) {
        let mut still = Vec::new();
        for mut waiting in std::mem::take(&mut self.waiting) {
            let told = self.alive().and_then(|()| self.state.events(&waiting.prefix, waiting.from));
            match told {
                Ok(told) if told.events.is_empty() && Instant::now() < waiting.until => {
                    waiting.from = told.next;
                    still.push(waiting);
                }
                told => answer(&waiting.reply, told),
            }
        }
        self.waiting = still;
    }
}

/// Who asked may be gone: then nobody needs the answer.
fn answer<T: Send>(reply: &Reply<T>, value: Result<T, MapError>) {
    let _ = reply.try_send(value);
}

fn storage(error: impl std::fmt::Display) -> MapError {
    MapError::Storage(error.to_string())
}

/// The tables within one write transaction.
struct File<'a>(&'a redb::WriteTransaction);

impl File<'_> {
    fn events(&self, events: &[Event], state: &MapState) -> Result<(), redb::Error> {
        let mut items = self.0.open_table(ITEMS)?;
        let mut history = self.0.open_table(HISTORY)?;
        for (number, event) in events.iter().enumerate() {
            let value = event.value.as_deref();
            history.insert(
                (event.revision.0, number as u32),
                (event.key.as_str(), value.is_some(), value.unwrap_or_default()),
            )?;
            match state.items.get(&event.key) {
                Some(item) => {
                    let lease = item.lease.map_or(0, |lease| lease.0);
                    items.insert(item.key.as_str(), (item.modified.0, lease, item.value.as_slice()))?;
                }
                None => drop(items.remove(event.key.as_str())?),
            }
        }
        Ok(())
    }

    fn lease(&self, lease: LeaseId, time_to_live: Option<Duration>) -> Result<(), redb::Error> {
        let mut leases = self.0.open_table(LEASES)?;
        match time_to_live {
            Some(time) => drop(leases.insert(lease.0, time.as_nanos() as u64)?),
            None => drop(leases.remove(lease.0)?),
        }
        Ok(())
    }

    fn meta(&self, state: &MapState) -> Result<(), redb::Error> {
        self.0.open_table(HISTORY)?.retain_in(..=(state.compacted.0, u32::MAX), |_, _| false)?;
        let mut meta = self.0.open_table(META)?;
        meta.insert("version", VERSION)?;
        meta.insert("revision", state.revision.0)?;
        meta.insert("compacted", state.compacted.0)?;
        meta.insert("lease", state.last_lease)?;
        Ok(())
    }
}

/// Reads the whole file into a state; makes the tables of a new one.
fn load(database: &Database) -> Result<MapState, redb::Error> {
    let mut state = MapState::default();
    let transaction = database.begin_write()?;
    // Opening a table in a write transaction makes it.
    transaction.open_table(ITEMS)?;
    transaction.open_table(HISTORY)?;
    transaction.open_table(LEASES)?;
    transaction.open_table(META)?;
    transaction.commit()?;

    let transaction = database.begin_read()?;
    let meta = transaction.open_table(META)?;
    let number = |key: &str| Ok::<u64, redb::Error>(meta.get(key)?.map_or(0, |value| value.value()));
    let version = number("version")?;
    if version > VERSION {
        return Err(redb::Error::Corrupted(format!(
            "the map is of version {version}, this program knows up to {VERSION}: start a newer one"
        )));
    }
    state.revision = Revision(number("revision")?);
    state.compacted = Revision(number("compacted")?);
    state.last_lease = number("lease")?;
    for row in transaction.open_table(ITEMS)?.iter()? {
        let (key, value) = row?;
        let (modified, lease, bytes) = value.value();
        let item = KeyValue {
            key: key.value().to_owned(),
            value: bytes.to_vec(),
            modified: Revision(modified),
            lease: (lease != 0).then_some(LeaseId(lease)),
        };
        state.items.insert(item.key.clone(), Arc::new(item));
    }
    for row in transaction.open_table(HISTORY)?.iter()? {
        let (place, event) = row?;
        let (key, put, value) = event.value();
        let value = put.then(|| value.to_vec());
        state.history.push_back(Event { revision: Revision(place.value().0), key: key.to_owned(), value });
    }
    for row in transaction.open_table(LEASES)?.iter()? {
        let (lease, time) = row?;
        let time_to_live = Duration::from_nanos(time.value());
        state.leases.insert(LeaseId(lease.value()), Lease { time_to_live, ends_at: time_to_live });
    }
    Ok(state)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A map whose thread hangs.
    fn hanging() -> (RedbMap, Receiver<Request>) {
        let (requests, thread) = channel();
        let short = Duration::from_millis(20);
        (RedbMap { requests, deadline: short, silence_max: short }, thread)
    }

    /// Long beside what such a map waits, and short beside what a map waits for.
    const SOON: Duration = Duration::from_secs(2);

    #[test]
    fn a_disk_that_hangs_holds_no_request_beyond_its_deadline() {
        let (map, _thread) = hanging();
        let answer = async move { runtime::timeout(SOON, map.get("a")).await };
        assert_eq!(runtime::uring::block_on(answer).expect("io_uring is there"), Ok(Err(MapError::Unknown)));
    }

    /// Idle for several times what makes a watch say that it hears nothing, and while others' keys are compacted away.
    #[test]
    fn a_watch_to_whom_nothing_happens_is_not_told_that_the_map_hangs() {
        let path = std::env::temp_dir().join(format!("cairn-map-idle-{}.redb", std::process::id()));
        let map = RedbMap::open(&path).expect("a new file");
        let map = RedbMap { silence_max: Duration::from_millis(400), ..(*map).clone() };
        let told = runtime::uring::block_on(async move {
            let put = |key: &'static str| Transaction::new().put(key, Vec::new());
            let mut watch = map.watch("a", Revision(1));
            assert_eq!(map.transact(put("b")).await, Ok(Outcome::Committed(Revision(1))));
            let idle = runtime::timeout(Duration::from_millis(1500), watch.next()).await;
            assert_eq!(idle, Err(runtime::Elapsed));
            map.compact(Revision(1)).await.expect("an answer");
            map.transact(put("a")).await.expect("an answer");
            watch.next().await
        });
        std::fs::remove_file(&path).expect("it was there");
        assert_eq!(told.expect("io_uring is there").expect("no gap").len(), 1);
    }

    #[test]
    fn a_watch_of_a_map_that_hangs_says_that_it_hears_nothing() {
        let (map, _thread) = hanging();
        let told = async move { runtime::timeout(SOON, map.watch("", Revision(1)).next()).await };
        assert_eq!(runtime::uring::block_on(told).expect("io_uring is there"), Ok(Err(MapError::Silent)));
    }
}
