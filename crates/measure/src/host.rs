//! A host with several paths that keeps a volume busy and remembers each I/O: what a failure is to whoever uses it.
//!
//! It does what Linux does with native multipath, unless told otherwise: a keep alive of 5 s, and 1 s between two attempts to connect.
//! Its figures are its own, not fio's: docs/bench.md says how the two compare.

use crate::MeasureError;
use crate::generator::{self, Payload};
use crate::series::{HostLoad, Io, Log};
use nvme::host::Namespace;
use nvme::host::multipath::{Multipath, Options};
use runtime::sim::Random;
use runtime::{sleep, spawn};
use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const KEEP_ALIVE: Duration = Duration::from_secs(5);
const RECONNECT: Duration = Duration::from_secs(1);
/// What a load may remember: 12 bytes each. One that does more ends, and says so.
const IOS_MAX: usize = 40_000_000;
const FILL_BYTES: u64 = 64 << 10;
const FILL_DEPTH: u64 = 8;
const LOOK: Duration = Duration::from_millis(10);

/// A namespace, and how it is reached.
#[derive(Clone, Debug)]
pub struct Volume {
    /// NVMe/TCP of all nodes.
    pub paths: Vec<SocketAddr>,
    /// The subsystem.
    pub nqn: String,
    /// The namespace.
    pub nsid: u32,
    /// Its size.
    pub size_bytes: u64,
}

/// What is seen from outside of the load's thread.
struct Shared {
    began: Instant,
    is_filled: AtomicBool,
    answered: AtomicU64,
    paths: AtomicUsize,
    is_stopping: AtomicBool,
    is_too_long: AtomicBool,
}

/// A load that runs, in a thread of its own.
pub struct Host {
    shared: Arc<Shared>,
    thread: JoinHandle<Log>,
}

/// What its workers share.
struct Work {
    shared: Arc<Shared>,
    host: Multipath,
    volume: Volume,
    load: HostLoad,
    payload: Payload,
    ios: RefCell<Vec<Io>>,
    /// Since when each worker waits for an answer.
    waiting: RefCell<Vec<Option<Instant>>>,
    running: Cell<usize>,
}

impl Host {
    /// Writes all of the volume once and then reads and writes at random until it is [finished](Self::finish).
    pub fn start(volume: Volume, load: HostLoad) -> Self {
        let shared = Arc::new(Shared {
            began: Instant::now(),
            is_filled: AtomicBool::new(false),
            answered: AtomicU64::new(0),
            paths: AtomicUsize::new(0),
            is_stopping: AtomicBool::new(false),
            is_too_long: AtomicBool::new(false),
        });
        let of_thread = shared.clone();
        let run = move || runtime::uring::block_on(run(of_thread, volume, load)).unwrap_or_default();
        Self { shared, thread: std::thread::spawn(run) }
    }

    /// Whether the volume was written once, so that the load goes on.
    pub fn is_filled(&self) -> bool {
        self.shared.is_filled.load(Relaxed)
    }

    /// Commands that were answered, without those that filled the volume.
    pub fn answered(&self) -> u64 {
        self.shared.answered.load(Relaxed)
    }

    /// Paths that are connected.
    pub fn paths(&self) -> usize {
        self.shared.paths.load(Relaxed)
    }

    /// Seconds since it began.
    pub fn seconds(&self) -> f64 {
        self.shared.began.elapsed().as_secs_f64()
    }

    /// Whether it has ended by itself.
    pub fn has_ended(&self) -> bool {
        self.thread.is_finished()
    }

    /// Ends it. Times in the log are since [`start`](Self::start).
    ///
    /// # Errors
    /// If it could not run, or did more than can be remembered.
    pub fn finish(self) -> Result<Log, MeasureError> {
        self.shared.is_stopping.store(true, Relaxed);
        let log = self.thread.join().map_err(|_| {
            MeasureError::Target(
                "the host's load has failed: see what is said above; is io_uring switched on?".to_owned(),
            )
        })?;
        if self.shared.is_too_long.load(Relaxed) {
            return Err(MeasureError::Target(format!("the load did more than {IOS_MAX} I/Os: give it less time")));
        }
        Ok(log)
    }
}

async fn run(shared: Arc<Shared>, volume: Volume, load: HostLoad) -> Log {
    let controller = nvme::host::Options::new(generator::identity(0), &volume.nqn);
    let controller = nvme::host::Options { keep_alive: KEEP_ALIVE, ..controller };
    let host = Multipath::new(&volume.paths, Options { reconnect_delay: RECONNECT, ..Options::new(controller) });
    let depth = load.depth as usize;
    let work = Rc::new(Work {
        shared: shared.clone(),
        host: host.clone(),
        volume,
        load,
        payload: Payload::default(),
        ios: RefCell::default(),
        waiting: RefCell::new(vec![None; depth]),
        running: Cell::new(FILL_DEPTH as usize),
    });
    for worker in 0..FILL_DEPTH {
        spawn(fill(work.clone(), worker));
    }
    work.ended().await;
    shared.is_filled.store(true, Relaxed);
    work.running.set(depth);
    for worker in 0..depth {
        spawn(worker_runs(work.clone(), worker));
    }
    work.stopped().await;
    let now = Instant::now();
    let unanswered = work.waiting.borrow().iter().flatten().map(|since| (now - *since).as_secs_f64()).collect();
    let seconds = shared.began.elapsed().as_secs_f64();
    // What is under way fails, and is no error of the target's.
    let ios = work.ios.take();
    host.close();
    work.ended().await;
    Log { ios, seconds, unanswered }
}

impl Work {
    fn look(&self) {
        let connected = self.host.path_states(self.volume.nsid).into_iter().flatten().count();
        self.shared.paths.store(connected, Relaxed);
    }

    /// Until no worker runs.
    async fn ended(&self) {
        while self.running.get() > 0 {
            self.look();
            sleep(LOOK).await;
        }
    }

    /// Until it is to end.
    async fn stopped(&self) {
        while !self.shared.is_stopping.load(Relaxed) && self.running.get() > 0 {
            self.look();
            sleep(LOOK).await;
        }
    }

    async fn write(&self, offset: u64, bytes: u64) -> bool {
        let send = |namespace: Namespace| {
            let data = self.payload.at(offset, bytes);
            async move { namespace.write(offset, data).await }
        };
        self.host.command(self.volume.nsid, send).await.is_ok()
    }

    async fn read(&self, offset: u64, bytes: u64) -> bool {
        let send = |namespace: Namespace| async move { namespace.read(offset, bytes as u32).await.map(drop) };
        self.host.command(self.volume.nsid, send).await.is_ok()
    }
}

async fn fill(work: Rc<Work>, worker: u64) {
    for piece in (worker..work.volume.size_bytes / FILL_BYTES).step_by(FILL_DEPTH as usize) {
        if work.shared.is_stopping.load(Relaxed) {
            break;
        }
        work.write(piece * FILL_BYTES, FILL_BYTES).await;
    }
    work.running.set(work.running.get() - 1);
}

async fn worker_runs(work: Rc<Work>, worker: usize) {
    let (random, bytes) = (Random::new(worker as u64 + 1), work.load.block_size_bytes);
    let blocks = work.volume.size_bytes / bytes;
    while !work.shared.is_stopping.load(Relaxed) {
        let offset = random.below(blocks) * bytes;
        let writes = random.below(100) >= u64::from(work.load.read_percent);
        let sent = Instant::now();
        work.waiting.borrow_mut()[worker] = Some(sent);
        let is_done = if writes { work.write(offset, bytes).await } else { work.read(offset, bytes).await };
        work.waiting.borrow_mut()[worker] = None;
        let micros = |since: Instant| since.elapsed().as_micros().min(u32::MAX.into()) as u32;
        let io = Io { at_us: micros(work.shared.began), latency_us: micros(sent), writes, failed: !is_done };
        work.ios.borrow_mut().push(io);
        work.shared.answered.fetch_add(1, Relaxed);
        if work.ios.borrow().len() >= IOS_MAX {
            work.shared.is_too_long.store(true, Relaxed);
            break;
        }
        if !is_done {
            // Who is refused at once would do nothing but ask again.
            sleep(LOOK).await;
        }
    }
    work.running.set(work.running.get() - 1);
}
