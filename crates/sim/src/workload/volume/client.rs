//! Clients: random writes, zeroes and reads of one volume, each recorded.

use super::door::{Door, Trouble};
use super::hoard::Hoard;
use super::lock::Lock;
use super::machine::Serving;
use super::model::{Model, Subject};
use super::profile::{self, Profile};
use crate::workload::{Failure, Report};
use checker::history::{Action, History, OperationId, Texture, Value, fill_textured, read_block};
use cluster::Compression;
use runtime::{Instant, IoBuf, random_u64};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use volume::{Assembly, MAX_TRANSFER_BYTES};

/// Before a client whose operation failed does the next: an error may come at once, and time has to pass.
const PAUSE: Duration = Duration::from_micros(100);
/// Who is told to wait asks again after this.
const TOLD_TO_WAIT: Duration = Duration::from_millis(500);
/// A command of a volume that is locked meanwhile is given up after so long, at least.
const GIVEN_UP: Duration = Duration::from_secs(1);
/// Of so many operations one tries to go beyond the end of the volume.
const BEYOND_ONE_IN: u64 = 16;

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

/// What was seen, and what there must be.
pub struct Ledger {
    pub history: History,
    pub model: Model,
    pub hoard: Hoard,
    pub lock: Lock,
    pub failure: Option<Failure>,
    /// What of the report is counted as it happens.
    pub counts: Report,
    /// The disk has turned bits over: what they hit may be refused.
    pub rotten: bool,
    /// In this start something was refused for the sake of a disk, and why: the node has to say so.
    pub refused: Option<String>,
}

/// How a client reaches the volume.
#[derive(Clone, Copy, Debug)]
pub enum Way {
    Nvme { host: u8 },
    Nbd,
}

impl Clients {
    pub fn new(profile: Profile) -> Arc<Self> {
        let ledger = Ledger {
            history: History::of_blocks(profile.block_bytes),
            model: Model::default(),
            hoard: Hoard::default(),
            lock: Lock::default(),
            failure: None,
            counts: Report::default(),
            rotten: false,
            refused: None,
        };
        Arc::new(Self {
            profile,
            ledger: Mutex::new(ledger),
            stop: AtomicBool::new(false),
            closing: AtomicBool::new(false),
            running: AtomicUsize::new(0),
        })
    }

    pub fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.try_lock().expect("nobody holds it for longer than a statement")
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

    pub fn stopped(&self) -> bool {
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
        // The next start opens it.
        self.ledger().lock = Lock::default();
    }

    /// How the lock of the judged volume is.
    pub fn lock(&self) -> Lock {
        self.ledger().lock
    }

    /// Waits until the volume is unlocked, or clients are stopped.
    async fn wait_for_key(&self) {
        while !self.lock().is_open() && !self.stopped() {
            runtime::sleep(PAUSE).await;
        }
    }

    /// Asks for something through a door, and holds the answer against the lock.
    async fn ask<T>(&self, door: &Door, asked: impl Future<Output = Result<T, Trouble>>) -> Result<T, Trouble> {
        let before = self.lock();
        let answer = asked.await;
        match self.profile.encrypted && door.may_be_locked() {
            true => before.judge(self.lock(), door.opened().unwrap_or(before), answer),
            false => answer,
        }
    }

    pub fn fail(&self, checker: &'static str, message: impl std::fmt::Display) {
        self.ledger().failure.get_or_insert_with(|| Failure::new(checker, message));
    }

    /// A client that loses its connection makes another one, until it is told to stop.
    pub async fn run_remote(self: Arc<Self>, serving: Serving, way: Way) {
        let mut goes_on = true;
        while goes_on && !self.stopped() {
            let lock = self.lock();
            let door = match way {
                Way::Nvme { host } => Door::nvme(serving.address, host, serving.nsid).await,
                Way::Nbd => Door::nbd(serving.address, lock).await,
            };
            match door {
                Ok(door) => goes_on = self.run(&door, &Subject::judged()).await,
                // There is nothing to connect to.
                Err(Trouble::Failed(_) | Trouble::Gone(_)) if !lock.is_open() || self.lock() != lock => {}
                // Of a host whose first connection was reset meanwhile the node wants no second one.
                Err(Trouble::Failed(_)) if self.profile.trouble == profile::Trouble::Network => {}
                Err(trouble) => self.judge(&Subject::judged(), &trouble),
            }
            runtime::sleep(PAUSE).await;
        }
        self.end();
    }

    /// One client, until it is told to stop or its door is closed. Whether it is worth to try again: where one command
    /// failed all may, and commands of which nobody knows whether they were done are hard to judge.
    pub async fn run(&self, door: &Door, subject: &Subject) -> bool {
        while !self.stopped() {
            let (first, count) = self.draw_range(door, subject);
            let done = match random_u64() % 16 {
                0..9 => self.write(door, subject, first, count).await,
                9 | 10 => self.zero(door, subject, first, count).await,
                11 => self.look(door, subject, first, count).await,
                _ => self.read(door, subject, first, count).await.map(drop),
            };
            match done {
                Ok(()) => {}
                Err(Trouble::Lost) => return true,
                Err(Trouble::Locked) => {
                    self.wait_for_key().await;
                    if !door.goes_on(&subject.name, self.lock()) {
                        return true;
                    }
                }
                Err(trouble) => {
                    self.judge(subject, &trouble);
                    if !trouble.may_go_on() {
                        return false;
                    }
                    runtime::sleep(if matches!(trouble, Trouble::Waits(_)) { TOLD_TO_WAIT } else { PAUSE }).await;
                }
            }
        }
        false
    }

    /// Reads all that is used, 64 KiB at a time.
    pub async fn read_all(&self, door: &Door, subject: &Subject) {
        let sure_bytes = self.ledger().model.size(subject).sure_bytes;
        for (first, count) in self.units(sure_bytes) {
            let mut read = self.read(door, subject, first, count).await.map(drop);
            while let Err(Trouble::Waits(_)) = read
                && !self.is_closing()
            {
                runtime::sleep(TOLD_TO_WAIT).await;
                read = self.read(door, subject, first, count).await.map(drop);
            }
            if let Err(trouble) = read {
                self.judge(subject, &trouble);
            }
        }
    }

    /// The blocks that are used of a volume of this size, in pieces of 64 KiB.
    pub fn units(&self, size_bytes: u64) -> Vec<(u64, u64)> {
        let step = checker::history::ATOMIC_BYTES / self.profile.block_bytes;
        let (mut first, end) = (self.profile.first_block, self.profile.window().end);
        let end = end.min(size_bytes / self.profile.block_bytes);
        let mut units = Vec::new();
        while first < end {
            let count = (step - first % step).min(end - first);
            units.push((first, count));
            first += count;
        }
        units
    }

    /// Whether what a client was told is an error of what is tested.
    pub fn judge(&self, subject: &Subject, trouble: &Trouble) {
        let disk_fails = self.profile.trouble == profile::Trouble::Disk;
        let ledger = &mut *self.ledger();
        let is_excused = match trouble {
            Trouble::Lost | Trouble::Locked | Trouble::Beyond => true,
            Trouble::NoSpace => self.profile.tight && ledger.hoard.may_fill_the_device(),
            Trouble::Gone(_) => self.is_closing() || disk_fails || !ledger.model.is_served(subject),
            Trouble::Damaged(_) => disk_fails || ledger.rotten,
            Trouble::Failed(_) => self.is_closing() || disk_fails || ledger.rotten,
            // A disk that hangs for so long.
            Trouble::Waits(_) => disk_fails,
            Trouble::Wrong(_) => false,
        };
        match trouble {
            Trouble::NoSpace => ledger.counts.full += 1,
            Trouble::Damaged(_) => ledger.counts.damaged_reads += 1,
            _ => {}
        }
        match trouble {
            _ if !is_excused => {
                ledger.failure.get_or_insert_with(|| Failure::new("error", format!("{}: {trouble}", subject.name)));
            }
            Trouble::Damaged(why) | Trouble::Failed(why) if !self.is_closing() => {
                ledger.refused.get_or_insert_with(|| why.clone());
            }
            _ => {}
        }
    }

    /// Blocks within 64 KiB, or across borders of it.
    pub fn draw_range(&self, door: &Door, subject: &Subject) -> (u64, u64) {
        let Profile { first_block, blocks, block_bytes, .. } = self.profile;
        let sure_bytes = self.sure_bytes(door, subject);
        let there = (sure_bytes / block_bytes).clamp(first_block + 1, first_block + blocks) - first_block;
        let blocks = if random_u64().is_multiple_of(BEYOND_ONE_IN) { blocks } else { there };
        let step = checker::history::ATOMIC_BYTES / block_bytes;
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

    /// Bytes that the volume has for who comes this way, at least.
    fn sure_bytes(&self, door: &Door, subject: &Subject) -> u64 {
        let sure_bytes = self.ledger().model.size(subject).sure_bytes;
        door.size_bytes().map_or(sure_bytes, |bytes| bytes.min(sure_bytes))
    }

    fn start(&self, action: Action, subject: &Subject, first: u64, count: u64) -> OperationId {
        self.ledger().history.start(action, subject.place(first), count as u32)
    }

    /// What was asked for, with an end that it has to keep to: nothing is done beyond it, nothing refused before it.
    fn judge_end<T>(&self, subject: &Subject, asked: Asked, answer: &Result<T, Trouble>) {
        let Asked { first, count, sure_bytes, way, .. } = asked;
        let end_bytes = (first + count) * self.profile.block_bytes;
        let wrong = match answer {
            Ok(_) if end_bytes > self.ledger().model.size(subject).asked_bytes => "done beyond its end",
            Err(Trouble::Beyond) if end_bytes <= sure_bytes => "refused as beyond its end",
            _ => return,
        };
        let asked_bytes = self.ledger().model.size(subject).asked_bytes;
        let (name, sizes) = (&subject.name, format!("{sure_bytes} to {asked_bytes} bytes"));
        self.fail("end", format!("blocks {first}+{count} of {name}, of {sizes}, were {wrong} through {way}"));
    }

    /// What changes blocks was answered.
    fn changed(&self, subject: &Subject, asked: Asked, id: OperationId, answer: &Result<(), Trouble>) {
        self.judge_end(subject, asked, answer);
        let step = checker::history::ATOMIC_BYTES / self.profile.block_bytes;
        let is_one_entry = asked.first / step == (asked.first + asked.count - 1) / step;
        match answer {
            Ok(()) => self.ledger().history.done(id),
            Err(Trouble::Beyond) => self.ledger().history.refused(id),
            Err(Trouble::NoSpace) if is_one_entry => self.ledger().history.refused(id),
            // Locked before it began. What was under way is given up after a second: what becomes of it nobody knows.
            Err(Trouble::Locked) if is_one_entry && runtime::now().since(asked.since) < GIVEN_UP => {
                self.ledger().history.refused(id);
            }
            // Of what is longer a part may have been done, and of anything else nobody knows.
            Err(_) => {}
        }
    }

    fn asked(&self, door: &Door, subject: &Subject, first: u64, count: u64) -> Asked {
        Asked { first, count, sure_bytes: self.sure_bytes(door, subject), way: door.name(), since: runtime::now() }
    }

    pub async fn write(&self, door: &Door, subject: &Subject, first: u64, count: u64) -> Result<(), Trouble> {
        let id = self.start(Action::Write, subject, first, count);
        let (block_bytes, stamp) = (self.profile.block_bytes, History::stamp(id));
        let may_be_smaller = self.profile.compression != Compression::Off && self.ledger().model.is_judged(subject);
        let mut buf = IoBuf::new((count * block_bytes) as usize);
        for (block, bytes) in (first..).zip(buf.chunks_exact_mut(block_bytes as usize)) {
            let texture = if may_be_smaller { texture(stamp, block) } else { Texture::Rough };
            fill_textured(texture, stamp, block, bytes);
        }
        let asked = self.asked(door, subject, first, count);
        let answer = self.ask(door, door.write(first * block_bytes, buf.freeze())).await;
        self.changed(subject, asked, id, &answer);
        answer
    }

    pub async fn zero(&self, door: &Door, subject: &Subject, first: u64, count: u64) -> Result<(), Trouble> {
        let id = self.start(Action::Zero, subject, first, count);
        let (block_bytes, asked) = (self.profile.block_bytes, self.asked(door, subject, first, count));
        let answer = self.ask(door, door.zero(first * block_bytes, count * block_bytes)).await;
        self.changed(subject, asked, id, &answer);
        answer
    }

    /// Returns what was read.
    pub async fn read(
        &self,
        door: &Door,
        subject: &Subject,
        first: u64,
        count: u64,
    ) -> Result<Option<Vec<Value>>, Trouble> {
        let id = self.start(Action::Read(Vec::new()), subject, first, count);
        let asked = self.asked(door, subject, first, count);
        let answer = self.values(door, first, count).await;
        self.judge_end(subject, asked, &answer);
        match &answer {
            Ok(Some(values)) => self.ledger().history.answered(id, values.clone()),
            Ok(None) => {}
            Err(_) => self.ledger().history.refused(id),
        }
        answer
    }

    /// Asks whether the blocks are a hole. If they are told to be, that is a read of zeroes, to be judged as one; if not
    /// nothing was learned.
    pub async fn look(&self, door: &Door, subject: &Subject, first: u64, count: u64) -> Result<(), Trouble> {
        let block_bytes = self.profile.block_bytes;
        let id = self.start(Action::Read(Vec::new()), subject, first, count);
        let asked = self.asked(door, subject, first, count);
        let is_hole = door.is_hole(first * block_bytes, (count * block_bytes) as u32);
        // Of a door that tells no status nothing was asked, locked or not.
        let answer = if door.tells_status() { self.ask(door, is_hole).await } else { is_hole.await };
        match answer {
            // Of a door that cannot be asked there is no answer to be judged.
            Ok(None) => {}
            _ => self.judge_end(subject, asked, &answer),
        }
        match answer {
            Ok(Some(true)) => self.ledger().history.answered(id, vec![Value::ZERO; count as usize]),
            _ => self.ledger().history.refused(id),
        }
        answer.map(drop)
    }

    /// What blocks hold; `None` if it is nothing that anybody wrote, which ends the run.
    pub async fn values(&self, door: &Door, first: u64, count: u64) -> Result<Option<Vec<Value>>, Trouble> {
        let block_bytes = self.profile.block_bytes;
        let bytes = self.ask(door, door.read(first * block_bytes, (count * block_bytes) as u32)).await?;
        let blocks = (first..).zip(bytes.chunks_exact(block_bytes as usize));
        let values: Result<Vec<_>, _> = blocks.map(|(block, bytes)| read_block(block, bytes)).collect();
        Ok(values.inspect_err(|bad| self.fail("contents", bad)).ok())
    }
}

/// Blocks of a command, and how many bytes the volume surely had when it was sent.
#[derive(Clone, Copy)]
struct Asked {
    first: u64,
    count: u64,
    sure_bytes: u64,
    way: &'static str,
    since: Instant,
}

/// Of three writes of eight nothing can be saved, which the node may give up to try; of the others it is different from
/// block to block.
fn texture(stamp: Value, block: u64) -> Texture {
    match (stamp.0 % 8, (stamp.0 + block) % 3) {
        (0..3, _) | (_, 0) => Texture::Rough,
        (_, 1) => Texture::Even,
        _ => Texture::Striped,
    }
}

/// Runs a task for a client of a volume on core number `core` of the node. To be called on its first core.
pub fn spawn_on_core<F: Future<Output = ()> + 'static>(
    clients: Arc<Clients>,
    assembly: &Assembly,
    core: usize,
    subject: Subject,
    task: impl FnOnce(Arc<Clients>, Door, Subject) -> F + Send + 'static,
) {
    clients.begin();
    assembly.spawn_on(core, move |directory| async move {
        clients.wait_for_key().await;
        match Door::core(&directory, &subject.name, clients.lock()) {
            Some(door) => task(clients.clone(), door, subject).await,
            None if !clients.lock().is_open() => {}
            None => clients.judge(&subject, &Trouble::Gone(format!("core {core} does not serve it"))),
        }
        clients.end();
    });
}
