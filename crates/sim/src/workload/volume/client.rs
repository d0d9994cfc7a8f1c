//! Clients: random writes, zeroes and reads of one volume, each recorded.

use super::door::{Door, Trouble};
use super::machine::{Serving, VOLUME};
use super::profile::{self, Profile};
use crate::history::{Action, History, OperationId, fill_block, read_block};
use crate::workload::Failure;
use runtime::{IoBuf, random_u64};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use volume::{Assembly, MAX_TRANSFER_BYTES};

/// Before a client whose operation failed does the next: an error may come at once, and time has to pass.
const PAUSE: Duration = Duration::from_micros(100);

/// What all clients of a run share. They run on the cores of several nodes, all in one thread; it is shared like among
/// threads because that is what the cores' own code demands.
pub struct Clients {
    pub profile: Profile,
    ledger: Mutex<Ledger>,
    stop: AtomicBool,
    /// The node is being stopped: it may say so.
    closing: AtomicBool,
    running: AtomicUsize,
}

/// What was seen.
pub struct Ledger {
    pub history: History,
    pub failure: Option<Failure>,
}

/// How a client reaches the volume.
#[derive(Clone, Copy, Debug)]
pub enum Way {
    Nvme { host: u8 },
    Nbd,
}

impl Clients {
    pub fn new(profile: Profile) -> Arc<Self> {
        let history = History::of_blocks(profile.block_bytes);
        Arc::new(Self {
            profile,
            ledger: Mutex::new(Ledger { history, failure: None }),
            stop: AtomicBool::new(false),
            closing: AtomicBool::new(false),
            running: AtomicUsize::new(0),
        })
    }

    pub fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().expect("nobody panics with it")
    }

    pub fn set_stop(&self, stop: bool) {
        self.stop.store(stop, Ordering::Relaxed);
    }

    pub fn set_closing(&self, closing: bool) {
        self.closing.store(closing, Ordering::Relaxed);
    }

    pub fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Relaxed)
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Clients that have not ended.
    pub fn running(&self) -> usize {
        self.running.load(Ordering::Relaxed)
    }

    /// One more client is about to run.
    pub fn begin(&self) {
        self.running.fetch_add(1, Ordering::Relaxed);
    }

    pub fn end(&self) {
        self.running.fetch_sub(1, Ordering::Relaxed);
    }

    /// Their machine is gone.
    pub fn all_gone(&self) {
        self.set_closing(false);
        self.running.store(0, Ordering::Relaxed);
    }

    pub fn fail(&self, checker: &'static str, message: impl std::fmt::Display) {
        self.ledger().failure.get_or_insert_with(|| Failure::new(checker, message));
    }

    /// A client that loses its connection makes another one, until it is told to stop.
    pub async fn run_remote(self: Arc<Self>, serving: Serving, way: Way) {
        let mut goes_on = true;
        while goes_on && !self.stopped() {
            let door = match way {
                Way::Nvme { host } => Door::nvme(serving.address, host, serving.nsid).await,
                Way::Nbd => Door::nbd(serving.address).await,
            };
            match door {
                Ok(door) => goes_on = self.run(&door).await,
                // Of a host whose first connection was reset meanwhile the node wants no second one.
                Err(Trouble::Failed(_)) if self.profile.trouble == profile::Trouble::Network => {}
                Err(trouble) => self.judge(&trouble),
            }
            runtime::sleep(PAUSE).await;
        }
        self.end();
    }

    /// One client, until it is told to stop or its door is closed. Whether it is worth to try again: where one command
    /// failed all may, and commands of which nobody knows whether they were done are hard to judge.
    pub async fn run(&self, door: &Door) -> bool {
        while !self.stopped() {
            let (first, count) = self.draw_range();
            let done = match random_u64() % 16 {
                0..9 => self.write(door, first, count).await,
                9 => self.zero(door, first, count).await,
                _ => self.read(door, first, count).await,
            };
            match done {
                Ok(()) => {}
                Err(Trouble::Lost) => return true,
                Err(Trouble::NoSpace) => runtime::sleep(PAUSE).await,
                Err(trouble) => {
                    self.judge(&trouble);
                    return false;
                }
            }
        }
        false
    }

    /// Reads all that is used, 64 KiB at a time.
    pub async fn read_all(&self, door: &Door) {
        let step = crate::history::ATOMIC_BYTES / self.profile.block_bytes;
        let end = self.profile.first_block + self.profile.blocks;
        let mut first = self.profile.first_block;
        while first < end {
            let count = (step - first % step).min(end - first);
            if let Err(trouble) = self.read(door, first, count).await {
                self.judge(&trouble);
            }
            first += count;
        }
    }

    /// Whether what a client was told is an error of what is tested.
    fn judge(&self, trouble: &Trouble) {
        match trouble {
            Trouble::NoSpace | Trouble::Lost => {}
            Trouble::Failed(_) if self.profile.trouble == profile::Trouble::Disk => {}
            Trouble::Failed(_) if self.closing.load(Ordering::Relaxed) => {}
            Trouble::Failed(what) | Trouble::Wrong(what) => self.fail("error", what),
        }
    }

    /// Blocks within 64 KiB, or across borders of it.
    pub fn draw_range(&self) -> (u64, u64) {
        let Profile { first_block, blocks, block_bytes, .. } = self.profile;
        let step = crate::history::ATOMIC_BYTES / block_bytes;
        let at = random_u64() % blocks;
        let first = first_block + at;
        let kind = random_u64() % 16;
        let most = match kind {
            kind if kind < self.profile.long => u64::from(MAX_TRANSFER_BYTES) / block_bytes,
            kind if kind.is_multiple_of(2) => 1,
            _ => step - first % step,
        };
        (first, (1 + random_u64() % most).min(blocks - at))
    }

    fn start(&self, action: Action, first: u64, count: u64) -> OperationId {
        self.ledger().history.start(action, first, count as u32)
    }

    async fn write(&self, door: &Door, first: u64, count: u64) -> Result<(), Trouble> {
        let id = self.start(Action::Write, first, count);
        let block_bytes = self.profile.block_bytes;
        let mut buf = IoBuf::new((count * block_bytes) as usize);
        for (block, bytes) in (first..).zip(buf.chunks_exact_mut(block_bytes as usize)) {
            fill_block(History::stamp(id), block, bytes);
        }
        door.write(first * block_bytes, buf.freeze()).await?;
        self.ledger().history.done(id);
        Ok(())
    }

    async fn zero(&self, door: &Door, first: u64, count: u64) -> Result<(), Trouble> {
        let id = self.start(Action::Zero, first, count);
        door.zero(first * self.profile.block_bytes, count * self.profile.block_bytes).await?;
        self.ledger().history.done(id);
        Ok(())
    }

    async fn read(&self, door: &Door, first: u64, count: u64) -> Result<(), Trouble> {
        let id = self.start(Action::Read(Vec::new()), first, count);
        let block_bytes = self.profile.block_bytes;
        let read = match door.read(first * block_bytes, (count * block_bytes) as u32).await {
            Ok(bytes) => bytes,
            Err(trouble) => {
                self.ledger().history.refused(id);
                return Err(trouble);
            }
        };
        let values: Result<Vec<_>, _> = (first..)
            .zip(read.chunks_exact(block_bytes as usize))
            .map(|(block, bytes)| read_block(block, bytes))
            .collect();
        match values {
            Ok(values) => self.ledger().history.answered(id, values),
            Err(bad) => self.fail("contents", bad),
        }
        Ok(())
    }
}

/// Runs a task for a client on core number `core` of the node. To be called on its first core.
pub fn spawn_on_core<F: Future<Output = ()> + 'static>(
    clients: Arc<Clients>,
    assembly: &Assembly,
    core: usize,
    task: impl FnOnce(Arc<Clients>, Door) -> F + Send + 'static,
) {
    assembly.spawn_on(core, move |directory| async move {
        match directory.by_name(VOLUME) {
            Some(volume) => task(clients.clone(), Door::Core(volume)).await,
            None => clients.fail("error", format!("core {core} does not serve the volume")),
        }
        clients.end();
    });
}
