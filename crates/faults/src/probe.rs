//! Light load of a multipath host that does what Linux does unless told otherwise, with a keep alive of 5 s: how long its commands wait.

use nvme::host::multipath::{Multipath, Options};
use nvme::host::{HostIdentity, Namespace};
use runtime::{IoBuf, sleep, spawn};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use torture::target::Target;

const WORKERS: usize = 8;
/// Between two commands of a worker.
const PAUSE: Duration = Duration::from_millis(2);
const KEEP_ALIVE: Duration = Duration::from_secs(5);
/// To a node that comes back: so that the next failure need not wait for it.
const RECONNECT: Duration = Duration::from_secs(1);
const BLOCK_BYTES: u32 = types::BLOCK_BYTES as u32;
/// What is used of the volume lies so far apart: in other chunks, and so in other groups.
const STRIDE_BYTES: u64 = 1 << 20;

/// What the host has seen since [`Probe::begin`].
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    /// The longest that a command waited for its answer.
    pub longest_wait: Duration,
    /// The longest time in which no command was answered.
    pub longest_gap: Duration,
}

/// Times in microseconds since it began.
struct Shared {
    began: Instant,
    last_answer_us: AtomicU64,
    longest_wait_us: AtomicU64,
    longest_gap_us: AtomicU64,
    answered: [AtomicU64; WORKERS],
    failed: AtomicU64,
    paths: AtomicUsize,
    stopping: AtomicBool,
    running: AtomicUsize,
}

impl Shared {
    fn now_us(&self) -> u64 {
        self.began.elapsed().as_micros() as u64
    }
}

/// A host that uses a volume, in a thread of its own.
pub struct Probe {
    shared: Arc<Shared>,
    thread: JoinHandle<()>,
}

impl Probe {
    /// Begins to read and write; what the volume holds is overwritten.
    pub fn start(target: Target) -> Self {
        let shared = Arc::new(Shared {
            began: Instant::now(),
            last_answer_us: AtomicU64::new(0),
            longest_wait_us: AtomicU64::new(0),
            longest_gap_us: AtomicU64::new(0),
            answered: [const { AtomicU64::new(0) }; WORKERS],
            failed: AtomicU64::new(0),
            paths: AtomicUsize::new(0),
            stopping: AtomicBool::new(false),
            running: AtomicUsize::new(WORKERS),
        });
        let of_thread = shared.clone();
        let run = move || runtime::uring::block_on(run(of_thread, target)).expect("io_uring works here");
        Self { shared, thread: std::thread::spawn(run) }
    }

    /// From now on is counted anew.
    pub fn begin(&self) {
        self.shared.longest_wait_us.store(0, Relaxed);
        self.shared.longest_gap_us.store(0, Relaxed);
    }

    /// See [`Seen`].
    pub fn seen(&self) -> Seen {
        let micros = |value: &AtomicU64| Duration::from_micros(value.load(Relaxed));
        Seen { longest_wait: micros(&self.shared.longest_wait_us), longest_gap: micros(&self.shared.longest_gap_us) }
    }

    /// Commands that each worker had an answer to.
    pub fn answered(&self) -> [u64; WORKERS] {
        std::array::from_fn(|worker| self.shared.answered[worker].load(Relaxed))
    }

    /// Paths that are connected.
    pub fn paths(&self) -> usize {
        self.shared.paths.load(Relaxed)
    }

    /// Ends it; how many commands failed.
    ///
    /// # Panics
    /// If its thread did.
    pub fn finish(self) -> u64 {
        self.shared.stopping.store(true, Relaxed);
        self.thread.join().unwrap_or_else(|_| panic!("the host's thread failed: see above"));
        self.shared.failed.load(Relaxed)
    }
}

async fn run(shared: Arc<Shared>, target: Target) {
    let process = std::process::id();
    let mut id = *b"cairn-failover--";
    id[12..].copy_from_slice(&process.to_le_bytes());
    let host = HostIdentity { nqn: format!("nqn.2026-01.test:failover-{process}"), id };
    let controller = nvme::host::Options { keep_alive: KEEP_ALIVE, ..nvme::host::Options::new(host, &target.nqn) };
    let host = Multipath::new(&target.paths, Options { reconnect_delay: RECONNECT, ..Options::new(controller) });
    for worker in 0..WORKERS {
        spawn(work(shared.clone(), host.clone(), target.clone(), worker));
    }
    while shared.running.load(Relaxed) > 0 {
        let connected = host.path_states(target.nsid).into_iter().flatten().count();
        shared.paths.store(connected, Relaxed);
        sleep(PAUSE * 5).await;
    }
    host.close();
}

async fn work(shared: Arc<Shared>, host: Multipath, target: Target, worker: usize) {
    let (places, data) = (target.size_bytes / STRIDE_BYTES, IoBuf::new(BLOCK_BYTES as usize).freeze());
    for turn in (worker as u64..).step_by(WORKERS) {
        if shared.stopping.load(Relaxed) {
            break;
        }
        let offset = turn % places * STRIDE_BYTES;
        let writes = turn / places % 2 == 0;
        let sent_us = shared.now_us();
        let send = |namespace: Namespace| {
            let data = data.clone();
            async move {
                match writes {
                    true => namespace.write(offset, data).await,
                    false => namespace.read(offset, BLOCK_BYTES).await.map(drop),
                }
            }
        };
        if host.command(target.nsid, send).await.is_err() {
            shared.failed.fetch_add(1, Relaxed);
        }
        let now_us = shared.now_us();
        let last_us = shared.last_answer_us.swap(now_us, Relaxed);
        shared.longest_gap_us.fetch_max(now_us.saturating_sub(last_us), Relaxed);
        shared.longest_wait_us.fetch_max(now_us - sent_us, Relaxed);
        shared.answered[worker].fetch_add(1, Relaxed);
        sleep(PAUSE).await;
    }
    shared.running.fetch_sub(1, Relaxed);
}
