//! Load whose history is judged: clients in a thread of their own, as hosts of several paths and over NBD.
//!
//! Each attempt at a command is an operation of its own, with a stamp of its own. What a host gave up and sent again may be done
//! until what it sent last is answered, and not a moment longer.

use e2e::random::Random;
use nbd::client::{Client, ClientError};
use nvme::host::multipath::{Multipath, Options};
use nvme::host::{HostError, HostIdentity, Namespace};
use runtime::{IoBuf, SharedBuf, sleep, spawn, timeout};
use sim::checker;
use sim::history::{Action, History, OperationId, Value, fill_block, read_block};
use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// What the history counts in: parts of blocks are written, too.
const SECTOR_BYTES: u64 = 512;
const BLOCK_SECTORS: u64 = types::BLOCK_BYTES as u64 / SECTOR_BYTES;
/// A volume is used in pieces of so many sectors, far from each other, so that many groups have a part of it.
const PIECE_SECTORS: u64 = 128;
const PIECES: u64 = 32;
const SECTORS: u64 = PIECES * PIECE_SECTORS;
/// Workers of the host, and of the NBD client.
const HOST_WORKERS: usize = 6;
const NBD_WORKERS: usize = 2;
const WORKERS: usize = HOST_WORKERS + NBD_WORKERS;
/// Between two commands of a worker: what is judged is to cover the fault, not to be large.
const PAUSE: Duration = Duration::from_millis(4);
/// A host that has no answer for so long sends again. Less than it takes others to follow a head that stands still, so that what
/// it held becomes a ghost.
const IO_TIMEOUT: Duration = Duration::from_secs(5);
/// An NBD client that has no answer for so long connects anew.
const NBD_PATIENCE: Duration = Duration::from_secs(20);
/// The clock of `Shared` says this of a worker that waits for nothing.
const IDLE: u64 = u64::MAX;

/// A volume, and how it is reached.
#[derive(Clone, Debug)]
pub struct Target {
    /// NVMe/TCP of all nodes.
    pub paths: Vec<SocketAddr>,
    /// The subsystem.
    pub nqn: String,
    /// The namespace.
    pub nsid: u32,
    /// NBD of one node that stays, and the volume's name; none: all workers are of the host.
    pub nbd: Option<(SocketAddr, String)>,
    /// Size of the volume.
    pub size_bytes: u64,
}

/// What the driver's thread sees of the load.
struct Shared {
    began: Instant,
    /// Since when each worker waits for an answer, in milliseconds.
    waits_since: [AtomicU64; WORKERS],
    completed: AtomicU64,
    written_blocks: AtomicU64,
    resent: AtomicU64,
    wrong: AtomicU64,
    /// Longest times of the host's commands, in milliseconds, since they were asked for.
    longest_read: AtomicU64,
    longest_write: AtomicU64,
    stopping: AtomicBool,
}

impl Shared {
    fn now(&self) -> u64 {
        self.began.elapsed().as_millis() as u64
    }
}

/// What is on its way has an answer by then, and all that is used was read.
const FINISH_MAX: Duration = Duration::from_secs(90);

/// What came of a load.
#[derive(Debug)]
pub struct Outcome {
    /// What clients saw.
    pub history: History,
    /// Blocks that were no write's, and errors that no fault explains.
    pub wrong: Vec<String>,
    /// Commands that were answered.
    pub completed: u64,
    /// Commands that were sent again.
    pub resent: u64,
}

impl Outcome {
    /// What was done, in numbers.
    pub fn counts(&self) -> String {
        let (operations, completed, resent) = (self.history.operations().len(), self.completed, self.resent);
        format!("{operations} operations, {completed} commands answered, {resent} sent again")
    }

    /// No answer was wrong by itself, and an order of operations explains all of them.
    ///
    /// # Panics
    /// Otherwise.
    pub fn judge(&self) {
        assert!(self.wrong.is_empty(), "{} answers are wrong: {:#?}", self.wrong.len(), &self.wrong[..1]);
        if let Err(violation) = checker::check(&self.history) {
            panic!("{}: {violation}\n{}", violation.checker(), self.history.of_block(violation.block()));
        }
    }
}

/// A load that runs.
pub struct Load {
    shared: Arc<Shared>,
    thread: JoinHandle<Outcome>,
}

impl Load {
    /// Starts one on a volume that reads as zeroes.
    pub fn start(target: Target, seed: u64) -> Self {
        Self::begin(target, seed, Space::IsThere)
    }

    /// The same where new blocks are to be refused: all that it uses is written first, and nothing of it is given back.
    pub fn start_on_what_is_full(target: Target, seed: u64) -> Self {
        Self::begin(target, seed, Space::IsFull)
    }

    fn begin(target: Target, seed: u64, space: Space) -> Self {
        let shared = Arc::new(Shared {
            began: Instant::now(),
            waits_since: [const { AtomicU64::new(IDLE) }; WORKERS],
            completed: AtomicU64::new(0),
            written_blocks: AtomicU64::new(0),
            resent: AtomicU64::new(0),
            wrong: AtomicU64::new(0),
            longest_read: AtomicU64::new(0),
            longest_write: AtomicU64::new(0),
            stopping: AtomicBool::new(false),
        });
        let of_thread = shared.clone();
        let run = move || runtime::uring::block_on(run(of_thread, target, seed, space)).expect("io_uring works here");
        Self { shared, thread: std::thread::spawn(run) }
    }

    /// Commands answered so far.
    pub fn completed(&self) -> u64 {
        self.shared.completed.load(Ordering::Relaxed)
    }

    /// Blocks of writes that were acknowledged so far.
    pub fn written_blocks(&self) -> u64 {
        self.shared.written_blocks.load(Ordering::Relaxed)
    }

    /// Commands that were sent again so far.
    pub fn resent(&self) -> u64 {
        self.shared.resent.load(Ordering::Relaxed)
    }

    /// Answers so far that no fault explains.
    pub fn wrong(&self) -> u64 {
        self.shared.wrong.load(Ordering::Relaxed)
    }

    /// The longest times that the host's reads, and what changes something, had to wait for an answer since this was asked for last.
    pub fn longest(&self) -> (Duration, Duration) {
        let of = |longest: &AtomicU64| Duration::from_millis(longest.swap(0, Ordering::Relaxed));
        (of(&self.shared.longest_read), of(&self.shared.longest_write))
    }

    /// How long the command has waited that waits longest.
    pub fn longest_wait(&self) -> Duration {
        let now = self.shared.now();
        let since = self.shared.waits_since.iter().map(|since| since.load(Ordering::Relaxed)).min().unwrap_or(IDLE);
        Duration::from_millis(now.saturating_sub(since))
    }

    /// Ends it: all that is used is read once more, and then the history is complete.
    pub fn finish(self) -> Outcome {
        self.shared.stopping.store(true, Ordering::Relaxed);
        let began = Instant::now();
        while !self.thread.is_finished() {
            assert!(began.elapsed() < FINISH_MAX, "the load does not come to its end within {FINISH_MAX:?}");
            std::thread::sleep(Duration::from_millis(50));
        }
        self.thread.join().unwrap_or_else(|_| panic!("the load's thread failed: see above"))
    }
}

/// Whether new blocks are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Space {
    IsThere,
    IsFull,
}

/// Writes a volume from its beginning until there is no space left.
pub fn fill(address: SocketAddr, volume: &str) {
    const PIECE: usize = 512 << 10;
    let volume = volume.to_owned();
    let run = move || async move {
        let client = Client::connect(address, &volume, true).await.expect("it is served");
        for piece in 0_u64.. {
            let mut buf = IoBuf::new(PIECE);
            buf.fill(piece as u8 | 1);
            match client.write(piece * PIECE as u64, buf.freeze(), false).await {
                Ok(()) => {}
                Err(ClientError::Lost(why)) => panic!("after {piece} pieces: {why}"),
                Err(_) => break,
            }
        }
        client.abort();
    };
    let filled = std::thread::spawn(move || runtime::uring::block_on(run()).expect("io_uring works here")).join();
    filled.unwrap_or_else(|_| panic!("see above"));
}

/// In the load's thread.
struct Clients {
    shared: Arc<Shared>,
    space: Space,
    target: Target,
    history: RefCell<History>,
    random: RefCell<Random>,
    wrong: RefCell<Vec<String>>,
    running: Cell<usize>,
}

async fn run(shared: Arc<Shared>, target: Target, seed: u64, space: Space) -> Outcome {
    let host = Multipath::new(&target.paths, options(&target));
    let nbd_workers = if target.nbd.is_some() { NBD_WORKERS } else { 0 };
    let clients = Rc::new(Clients {
        shared,
        space,
        target,
        history: RefCell::new(History::of_blocks(SECTOR_BYTES)),
        random: RefCell::new(Random::new(seed)),
        wrong: RefCell::default(),
        running: Cell::new(WORKERS - NBD_WORKERS + nbd_workers),
    });
    if space == Space::IsFull {
        for first in (0..SECTORS).step_by(PIECE_SECTORS as usize) {
            clients.change(&host, Deed::Write, (first, PIECE_SECTORS)).await;
        }
    }
    for worker in 0..HOST_WORKERS {
        spawn(clients.clone().work_as_host(host.clone(), worker));
    }
    for worker in HOST_WORKERS..HOST_WORKERS + nbd_workers {
        spawn(clients.clone().work_over_nbd(worker));
    }
    while clients.running.get() > 0 {
        clients.shared.resent.store(host.counts().requeued, Ordering::Relaxed);
        clients.shared.wrong.store(clients.wrong.borrow().len() as u64, Ordering::Relaxed);
        sleep(PAUSE).await;
    }
    for first in (0..SECTORS).step_by(PIECE_SECTORS as usize) {
        let waits = clients.waits(0);
        clients.read(&host, (first, PIECE_SECTORS)).await;
        drop(waits);
    }
    let resent = host.counts().requeued;
    host.close();
    clients.shared.resent.store(resent, Ordering::Relaxed);
    let (history, wrong) = (clients.history.take(), clients.wrong.take());
    Outcome { history, wrong, completed: clients.shared.completed.load(Ordering::Relaxed), resent }
}

fn options(target: &Target) -> Options {
    let process = std::process::id();
    let mut id = *b"cairn-faults-hst";
    id[12..].copy_from_slice(&process.to_le_bytes());
    let host = HostIdentity { nqn: format!("nqn.2026-01.test:faults-{process}"), id };
    let controller = nvme::host::Options { io_queues: 2, ..nvme::host::Options::new(host, &target.nqn) };
    Options {
        io_timeout: IO_TIMEOUT,
        connect_timeout: Duration::from_secs(3),
        reconnect_delay: Duration::from_secs(1),
        retries: u32::MAX,
        retry_delay: Duration::from_millis(500),
        ..Options::new(controller)
    }
}

/// A worker waits for an answer until this goes.
struct Waits<'a>(&'a AtomicU64);

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.store(IDLE, Ordering::Relaxed);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deed {
    Write,
    Zero,
    Discard,
    Read,
}

/// The attempts at one command.
struct Attempts<'a> {
    history: &'a RefCell<History>,
    all: RefCell<Vec<OperationId>>,
}

impl Attempts<'_> {
    fn begin(&self, action: Action, (first, count): (u64, u64)) -> OperationId {
        let id = self.history.borrow_mut().start(action, first, count as u32);
        self.all.borrow_mut().push(id);
        id
    }

    /// The last one was done, and those before it take effect no more.
    fn done(self) {
        let mut history = self.history.borrow_mut();
        let mut all = self.all.into_inner();
        history.done(all.pop().expect("what was answered was sent"));
        all.into_iter().for_each(|id| history.over(id));
    }

    /// Reads that were not answered did nothing.
    fn read(self, values: Option<Vec<Value>>) {
        let mut history = self.history.borrow_mut();
        let mut all = self.all.into_inner();
        if let Some(values) = values {
            history.answered(all.pop().expect("what was answered was sent"), values);
        }
        all.into_iter().for_each(|id| history.refused(id));
    }
}

impl Clients {
    fn goes_on(&self) -> bool {
        !self.shared.stopping.load(Ordering::Relaxed)
    }

    fn waits(&self, worker: usize) -> Waits<'_> {
        let since = &self.shared.waits_since[worker];
        since.store(self.shared.now(), Ordering::Relaxed);
        Waits(since)
    }

    fn completed(&self) {
        self.shared.completed.fetch_add(1, Ordering::Relaxed);
    }

    fn written(&self, (first, count): (u64, u64)) {
        let blocks = (first + count).div_ceil(BLOCK_SECTORS) - first / BLOCK_SECTORS;
        self.shared.written_blocks.fetch_add(blocks, Ordering::Relaxed);
    }

    fn draw(&self) -> (Deed, (u64, u64)) {
        let mut random = self.random.borrow_mut();
        let deed = match random.below(16) {
            0..9 => Deed::Write,
            9 if self.space == Space::IsThere => Deed::Zero,
            10 if self.space == Space::IsThere => Deed::Discard,
            9 | 10 => Deed::Write,
            _ => Deed::Read,
        };
        let piece = random.below(PIECES) * PIECE_SECTORS;
        let blocks_of_piece = PIECE_SECTORS / BLOCK_SECTORS;
        let block = random.below(blocks_of_piece);
        let (first, count) = match random.below(8) {
            // A part of a block.
            0 if deed != Deed::Discard => {
                let first = random.below(BLOCK_SECTORS);
                (block * BLOCK_SECTORS + first, 1 + random.below(BLOCK_SECTORS - first))
            }
            1 => (block * BLOCK_SECTORS, (1 + random.below(blocks_of_piece - block)) * BLOCK_SECTORS),
            _ => (block * BLOCK_SECTORS, BLOCK_SECTORS),
        };
        (deed, (piece + first, count))
    }

    /// Where a sector of the history lies in the volume.
    fn offset(&self, sector: u64) -> u64 {
        let stride = self.target.size_bytes / PIECES;
        sector / PIECE_SECTORS * stride + sector % PIECE_SECTORS * SECTOR_BYTES
    }

    fn contents(id: OperationId, (first, count): (u64, u64)) -> SharedBuf {
        let mut buf = IoBuf::new((count * SECTOR_BYTES) as usize);
        for (sector, bytes) in (first..).zip(buf.chunks_exact_mut(SECTOR_BYTES as usize)) {
            fill_block(History::stamp(id), sector, bytes);
        }
        buf.freeze()
    }

    fn values(&self, first: u64, bytes: &[u8]) -> Option<Vec<Value>> {
        let sectors = (first..).zip(bytes.chunks_exact(SECTOR_BYTES as usize));
        let values: Result<Vec<_>, _> = sectors.map(|(sector, bytes)| read_block(sector, bytes)).collect();
        values.map_err(|bad| self.wrong.borrow_mut().push(bad.to_string())).ok()
    }

    fn attempts(&self) -> Attempts<'_> {
        Attempts { history: &self.history, all: RefCell::default() }
    }

    async fn work_as_host(self: Rc<Self>, host: Multipath, worker: usize) {
        while self.goes_on() {
            let (deed, range) = self.draw();
            let (waits, began) = (self.waits(worker), self.shared.now());
            let longest = match deed {
                Deed::Read => {
                    self.read(&host, range).await;
                    &self.shared.longest_read
                }
                _ => {
                    self.change(&host, deed, range).await;
                    &self.shared.longest_write
                }
            };
            longest.fetch_max(self.shared.now() - began, Ordering::Relaxed);
            drop(waits);
            sleep(PAUSE).await;
        }
        self.running.set(self.running.get() - 1);
    }

    async fn change(&self, host: &Multipath, deed: Deed, range: (u64, u64)) {
        let attempts = self.attempts();
        let (offset, len) = (self.offset(range.0), range.1 * SECTOR_BYTES);
        let send = |namespace: Namespace| {
            let action = if deed == Deed::Write { Action::Write } else { Action::Zero };
            let id = attempts.begin(action, range);
            async move {
                match deed {
                    Deed::Write => namespace.write(offset, Self::contents(id, range)).await,
                    Deed::Discard => namespace.deallocate(&[(offset, len)]).await,
                    Deed::Zero | Deed::Read => namespace.write_zeroes(offset, len, false).await,
                }
            }
        };
        match host.command(self.target.nsid, send).await {
            Ok(()) => {
                attempts.done();
                self.completed();
                if deed == Deed::Write {
                    self.written(range);
                }
            }
            Err(error) => self.failed(&error, deed, range),
        }
    }

    async fn read(&self, host: &Multipath, range: (u64, u64)) {
        let attempts = self.attempts();
        let (offset, len) = (self.offset(range.0), range.1 * SECTOR_BYTES);
        let send = |namespace: Namespace| {
            attempts.begin(Action::Read(Vec::new()), range);
            async move { namespace.read(offset, len as u32).await }
        };
        let read = host.command(self.target.nsid, send).await;
        match read {
            Ok(bytes) => {
                attempts.read(self.values(range.0, &bytes));
                self.completed();
            }
            Err(error) => {
                attempts.read(None);
                self.failed(&error, Deed::Read, range);
            }
        }
    }

    /// A host with several paths is told nothing of any fault that the cluster bears.
    fn failed(&self, error: &HostError, deed: Deed, (first, count): (u64, u64)) {
        self.wrong.borrow_mut().push(format!("{deed:?} of {count} sectors at {first} failed: {error}"));
    }

    async fn work_over_nbd(self: Rc<Self>, worker: usize) {
        let (address, name) = self.target.nbd.clone().expect("there is one to reach");
        // What was sent on connections that the node ended: it is over when something is answered on a new one.
        let unanswered = RefCell::new(Vec::new());
        while self.goes_on() {
            if let Ok(Ok(client)) = timeout(NBD_PATIENCE, Client::connect(address, &name, true)).await {
                self.use_nbd(&client, worker, &unanswered).await;
                client.abort();
            }
            sleep(PAUSE * 25).await;
        }
        self.running.set(self.running.get() - 1);
    }

    async fn use_nbd(&self, client: &Client, worker: usize, unanswered: &RefCell<Vec<OperationId>>) {
        while self.goes_on() {
            let sent = Cell::new(None);
            let waits = self.waits(worker);
            let done = timeout(NBD_PATIENCE, self.act_over_nbd(client, &sent)).await;
            drop(waits);
            match (done, sent.get()) {
                (Ok(Ok(())), _) => {
                    self.completed();
                    unanswered.take().into_iter().for_each(|id| self.history.borrow_mut().over(id));
                }
                (Ok(Err(ClientError::Lost(_))), Some(id)) => return unanswered.borrow_mut().push(id),
                _ => return,
            }
            sleep(PAUSE).await;
        }
    }

    /// `sent`: what changes something, and was not answered.
    async fn act_over_nbd(&self, client: &Client, sent: &Cell<Option<OperationId>>) -> Result<(), ClientError> {
        let (deed, range) = self.draw();
        let (offset, len) = (self.offset(range.0), (range.1 * SECTOR_BYTES) as u32);
        let start = |action| self.history.borrow_mut().start(action, range.0, range.1 as u32);
        match deed {
            Deed::Write => {
                let id = start(Action::Write);
                sent.set(Some(id));
                client.write(offset, Self::contents(id, range), false).await?;
                self.history.borrow_mut().done(id);
                self.written(range);
            }
            Deed::Zero | Deed::Discard => {
                let id = start(Action::Zero);
                sent.set(Some(id));
                client.write_zeroes(offset, len, false).await?;
                self.history.borrow_mut().done(id);
            }
            Deed::Read => {
                let bytes = {
                    let id = start(Action::Read(Vec::new()));
                    let read = client.read(offset, len).await;
                    let values = read.as_ref().ok().and_then(|bytes| self.values(range.0, bytes));
                    match values {
                        Some(values) => self.history.borrow_mut().answered(id, values),
                        None => self.history.borrow_mut().refused(id),
                    }
                    read
                };
                bytes?;
            }
        }
        Ok(())
    }
}
