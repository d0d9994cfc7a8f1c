//! Load whose history is judged: clients in a thread of their own, as hosts of several paths and over NBD.

use crate::clients::Clients;
use crate::file::Record;
use crate::finding::{Finding, Kind};
use crate::judge::{Judge, Judged};
use crate::layout::Layout;
use crate::target::Target;
use checker::history::ATOMIC_BYTES;
use nvme::host::HostIdentity;
use nvme::host::multipath::{Multipath, Options};
use runtime::{random_u64, sleep, spawn};
use std::fs::File;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Parts of blocks are written, too.
const BLOCK_BYTES: u64 = 512;
/// Of what is used unless told otherwise.
const SPAN_BYTES: u64 = 2 << 20;
/// Workers of the host, and of the NBD client, unless told otherwise.
const HOST_WORKERS: usize = 6;
const NBD_WORKERS: usize = 2;
/// Between two commands of a worker: what is judged is to cover the fault, not to be large.
pub(crate) const PAUSE: Duration = Duration::from_millis(4);
/// A host that has no answer for so long sends again. Less than it takes others to follow a head that stands still, so that what
/// it held becomes a ghost.
const IO_TIMEOUT: Duration = Duration::from_secs(5);
/// What hosts say unless told otherwise.
const KEEP_ALIVE: Duration = Duration::from_secs(5);
/// A history ends, and the next begins with what is there, after so many operations: what is kept in memory, and what is judged at
/// a time, stays small however long the load runs.
const OPERATIONS_MAX: usize = 200_000;
/// The clock of `Shared` says this of a worker that waits for nothing.
const IDLE: u64 = u64::MAX;

/// What is to be done to whom.
pub struct Plan {
    /// The volume.
    pub target: Target,
    /// Which of its bytes.
    pub layout: Layout,
    /// Bytes that are written all or nothing, within boundaries of as many.
    pub atomic_bytes: u64,
    /// Where everything that is drawn comes from.
    pub seed: u64,
    /// Workers of the host.
    pub workers: usize,
    /// Who the host says it is.
    pub host: HostIdentity,
    /// The host sends again what has no answer for so long.
    pub io_timeout: Duration,
    /// The host's keep alive.
    pub keep_alive: Duration,
    /// Whether zeroes are written.
    pub zeroes: bool,
    /// Whether blocks are given back, and read as zeroes then.
    pub discards: bool,
    /// Whether what is written is durable only when it is flushed.
    pub needs_flush: bool,
    /// New blocks are refused: all that is used is written first, and nothing of it is given back.
    pub is_full: bool,
    /// Nothing is written if anything is there.
    pub spares: bool,
    /// Where the histories are kept.
    pub keep: Option<File>,
}

impl Plan {
    /// On a volume of Cairn.
    pub fn new(target: Target, host: HostIdentity, seed: u64) -> Self {
        let layout = Layout::new(target.size_bytes, SPAN_BYTES, BLOCK_BYTES, ATOMIC_BYTES);
        Self {
            layout: layout.expect("a volume has a MiB at least"),
            target,
            atomic_bytes: ATOMIC_BYTES,
            seed,
            workers: HOST_WORKERS,
            host,
            io_timeout: IO_TIMEOUT,
            keep_alive: KEEP_ALIVE,
            zeroes: true,
            discards: true,
            needs_flush: false,
            is_full: false,
            spares: false,
            keep: None,
        }
    }

    fn nbd_workers(&self) -> usize {
        if self.target.nbd.is_some() { NBD_WORKERS } else { 0 }
    }
}

/// What the load does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// What is there is read.
    Reads,
    /// Commands run.
    Runs,
    /// All is read again.
    ReadsAgain,
}

/// Commands by what they are, and what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Reads that were answered.
    pub reads: u64,
    /// Writes, zeroes and discards that were acknowledged.
    pub writes: u64,
    /// Flushes that were acknowledged.
    pub flushes: u64,
    /// Commands that were sent again.
    pub resent: u64,
    /// Attempts at a change of which nobody knows whether they were done.
    pub ambiguous: u64,
}

/// What the driver's thread sees of the load.
pub(crate) struct Shared {
    began: Instant,
    /// Since when each worker waits for an answer, in milliseconds.
    waits_since: Box<[AtomicU64]>,
    stage: AtomicU64,
    pub reads: AtomicU64,
    pub writes: AtomicU64,
    pub flushes: AtomicU64,
    pub written_blocks: AtomicU64,
    pub resent: AtomicU64,
    pub ambiguous: AtomicU64,
    pub wrong: AtomicU64,
    /// Longest times of the host's commands, in milliseconds, since they were asked for.
    pub longest_read: AtomicU64,
    pub longest_write: AtomicU64,
    /// When the last answer came, and the longest time between two since that was asked for.
    last_answer: AtomicU64,
    longest_gap: AtomicU64,
    stopping: AtomicBool,
    abandoned: AtomicBool,
}

impl Shared {
    fn new(workers: usize) -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            began: Instant::now(),
            waits_since: (0..workers).map(|_| AtomicU64::new(IDLE)).collect(),
            stage: zero(),
            reads: zero(),
            writes: zero(),
            flushes: zero(),
            written_blocks: zero(),
            resent: zero(),
            ambiguous: zero(),
            wrong: zero(),
            longest_read: zero(),
            longest_write: zero(),
            last_answer: zero(),
            longest_gap: zero(),
            stopping: AtomicBool::new(false),
            abandoned: AtomicBool::new(false),
        }
    }

    pub fn now(&self) -> u64 {
        self.began.elapsed().as_millis() as u64
    }

    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed) || self.is_abandoned()
    }

    fn is_abandoned(&self) -> bool {
        self.abandoned.load(Ordering::Relaxed)
    }

    pub fn waits(&self, worker: usize) -> Waits<'_> {
        let since = &self.waits_since[worker];
        since.store(self.now(), Ordering::Relaxed);
        Waits(since)
    }

    /// A command has an answer.
    pub fn answered(&self, count: &AtomicU64) {
        count.fetch_add(1, Ordering::Relaxed);
        let now = self.now();
        let last = self.last_answer.swap(now, Ordering::Relaxed);
        self.longest_gap.fetch_max(now.saturating_sub(last), Ordering::Relaxed);
    }

    fn enters(&self, stage: Stage) {
        self.stage.store(stage as u64, Ordering::Relaxed);
    }
}

/// A worker waits for an answer until this goes.
pub(crate) struct Waits<'a>(&'a AtomicU64);

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.store(IDLE, Ordering::Relaxed);
    }
}

/// What came of a load.
#[derive(Debug, Default)]
pub struct Outcome {
    /// All that is wrong.
    pub findings: Vec<Finding>,
    /// Histories, one after the other, and their operations.
    pub histories: u64,
    /// See `histories`.
    pub operations: u64,
    /// What was done.
    pub counts: Counts,
    /// Blocks that held something when it began.
    pub held: u64,
    /// Blocks that were read at the end.
    pub read_again: u64,
    /// Why histories could not be kept.
    pub not_kept: Option<String>,
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Counts { reads, writes, flushes, resent, .. } = self.counts;
        let completed = reads + writes + flushes;
        write!(f, "{} operations, {completed} commands answered, {resent} sent again", self.operations)
    }
}

/// What the load's thread has to say at its end.
struct Ended {
    held: u64,
    read_again: u64,
}

/// A load that runs.
pub struct Load {
    shared: Arc<Shared>,
    judge: Judge,
    thread: JoinHandle<Ended>,
}

impl Load {
    /// Starts one: it reads what is there, and goes on.
    pub fn start(mut plan: Plan) -> Self {
        let shared = Arc::new(Shared::new(plan.workers + plan.nbd_workers()));
        let judge = Judge::start(plan.keep.take());
        let (of_thread, records) = (shared.clone(), judge.sender());
        let run = move || runtime::uring::block_on(run(of_thread, plan, records)).expect("io_uring works here");
        Self { shared, judge, thread: std::thread::spawn(run) }
    }

    /// Commands answered so far.
    pub fn completed(&self) -> u64 {
        let Counts { reads, writes, flushes, .. } = self.counts();
        reads + writes + flushes
    }

    /// What was done so far.
    pub fn counts(&self) -> Counts {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let Shared { reads, writes, flushes, resent, ambiguous, .. } = &*self.shared;
        let (reads, writes, flushes) = (of(reads), of(writes), of(flushes));
        Counts { reads, writes, flushes, resent: of(resent), ambiguous: of(ambiguous) }
    }

    /// Blocks of 4 KiB of writes that were acknowledged so far.
    pub fn written_blocks(&self) -> u64 {
        self.shared.written_blocks.load(Ordering::Relaxed)
    }

    /// Commands that were sent again so far.
    pub fn resent(&self) -> u64 {
        self.counts().resent
    }

    /// Answers so far that are wrong by themselves.
    pub fn wrong(&self) -> u64 {
        self.shared.wrong.load(Ordering::Relaxed)
    }

    /// What it does.
    pub fn stage(&self) -> Stage {
        let all = [Stage::Reads, Stage::Runs, Stage::ReadsAgain];
        all[self.shared.stage.load(Ordering::Relaxed) as usize]
    }

    /// The longest times that the host's reads, and what changes something, had to wait for an answer since this was asked for last.
    pub fn longest(&self) -> (Duration, Duration) {
        let of = |longest: &AtomicU64| Duration::from_millis(longest.swap(0, Ordering::Relaxed));
        (of(&self.shared.longest_read), of(&self.shared.longest_write))
    }

    /// The longest time between two answers since this was asked for last, up to now.
    pub fn longest_gap(&self) -> Duration {
        let open = self.shared.now().saturating_sub(self.shared.last_answer.load(Ordering::Relaxed));
        Duration::from_millis(self.shared.longest_gap.swap(0, Ordering::Relaxed).max(open))
    }

    /// How long the command has waited that waits longest.
    pub fn longest_wait(&self) -> Duration {
        let now = self.shared.now();
        let since = self.shared.waits_since.iter().map(|since| since.load(Ordering::Relaxed)).min().unwrap_or(IDLE);
        Duration::from_millis(now.saturating_sub(since))
    }

    /// No command is begun any more; then all that is used is read again.
    pub fn stop(&self) {
        self.shared.stopping.store(true, Ordering::Relaxed);
    }

    /// Nothing is waited for any more: what has no answer by now may be done at any time, or never.
    pub fn abandon(&self) {
        self.shared.abandoned.store(true, Ordering::Relaxed);
    }

    /// Whether it has come to its end.
    pub fn has_ended(&self) -> bool {
        self.thread.is_finished()
    }

    /// Ends it, and judges what clients saw. What has no answer within this time is abandoned, and told.
    pub fn finish(self, most: Duration) -> Outcome {
        self.stop();
        let began = Instant::now();
        let mut hangs = false;
        while !self.has_ended() {
            if !hangs && began.elapsed() > most {
                hangs = true;
                self.abandon();
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let counts = self.counts();
        let Ended { held, read_again } =
            self.thread.join().unwrap_or_else(|_| panic!("the load's thread failed: see above"));
        let Judged { mut findings, histories, operations, not_kept } = self.judge.finish();
        if hangs {
            findings.push(Finding::new(Kind::Hung, format!("the load did not come to its end within {most:?}")));
        }
        Outcome { findings, histories, operations, counts, held, read_again, not_kept }
    }
}

async fn run(shared: Arc<Shared>, plan: Plan, records: Sender<Record>) -> Ended {
    let plan = Rc::new(plan);
    let mark = random_u64();
    let begin = |number: u64| Rc::new(Clients::new(shared.clone(), plan.clone(), mark.wrapping_add(number), number));
    let mut host = Multipath::new(&plan.target.paths, options(&plan));
    let mut clients = begin(0);
    let held = until_abandoned(&shared, clients.clone().read_first(host.clone())).await;
    let mut ended = Ended { held: held.unwrap_or(0), read_again: 0 };
    let mut resent = 0;
    for number in 1.. {
        if held.is_none() || plan.spares && ended.held > 0 {
            break;
        }
        if plan.is_full {
            until_abandoned(&shared, clients.clone().write_all(host.clone())).await;
        }
        shared.enters(Stage::Runs);
        work(&clients, &host, resent).await;
        shared.enters(Stage::ReadsAgain);
        let is_last = shared.is_stopping();
        if is_last {
            // What a host was told before is worth nothing to one that comes anew.
            resent += host.counts().requeued;
            host.close();
            host = Multipath::new(&plan.target.paths, options(&plan));
        }
        let next = begin(number);
        let read = until_abandoned(&shared, clients.clone().read_again(host.clone(), next.clone())).await;
        ended.read_again = read.unwrap_or(0);
        shared.resent.store(resent + host.counts().requeued, Ordering::Relaxed);
        let before = std::mem::replace(&mut clients, next);
        // Nobody judges any more if whoever does has failed.
        let _ = records.send(before.record(shared.is_abandoned()));
        if is_last {
            break;
        }
    }
    host.close();
    ended
}

/// Workers run until they are to stop, or the history is long.
async fn work(clients: &Rc<Clients>, host: &Multipath, resent: u64) {
    for worker in 0..clients.plan.workers {
        clients.begin_worker();
        spawn(clients.clone().work_as_host(host.clone(), worker));
    }
    for worker in 0..clients.plan.nbd_workers() {
        clients.begin_worker();
        spawn(clients.clone().work_over_nbd(clients.plan.workers + worker));
    }
    let shared = &clients.shared;
    while clients.running() > 0 && !shared.is_abandoned() {
        // What was sent over NBD on a connection that ended may be done in the midst of the next one.
        clients.is_long.set(clients.operations() >= OPERATIONS_MAX && clients.plan.target.nbd.is_none());
        shared.resent.store(resent + host.counts().requeued, Ordering::Relaxed);
        sleep(PAUSE).await;
    }
}

/// What a task comes to, unless it is abandoned.
async fn until_abandoned<T: 'static>(shared: &Shared, task: impl Future<Output = T> + 'static) -> Option<T> {
    let done = Rc::new(std::cell::Cell::new(None));
    let place = done.clone();
    spawn(async move { place.set(Some(task.await)) });
    loop {
        if let Some(done) = done.take() {
            return Some(done);
        }
        if shared.is_abandoned() {
            return None;
        }
        sleep(PAUSE).await;
    }
}

fn options(plan: &Plan) -> Options {
    let controller = nvme::host::Options {
        io_queues: 2,
        keep_alive: plan.keep_alive,
        ..nvme::host::Options::new(plan.host.clone(), &plan.target.nqn)
    };
    Options {
        io_timeout: plan.io_timeout,
        connect_timeout: Duration::from_secs(3),
        reconnect_delay: Duration::from_secs(1),
        retries: u32::MAX,
        retry_delay: Duration::from_millis(500),
        ..Options::new(controller)
    }
}
