//! Verified load: random requests at a depth, every read checked, every outcome written down.

use crate::disk::{Disk, DiskError};
use crate::journal::{Journal, Violation};
use crate::pattern::{Content, SECTOR_BYTES, Stamp};
use crate::random::Random;
use runtime::{IoBuf, TaskHandle};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

const BLOCK_SECTORS: u64 = (types::BLOCK_BYTES / SECTOR_BYTES) as u64;
/// Reads of a whole verification: long enough to be fast, short enough to fit a request of both protocols.
const VERIFY_BYTES: u32 = 256 << 10;
/// Reads of a whole verification in flight.
const VERIFY_DEPTH: usize = 4;

/// What the load is made of.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Decides everything.
    pub seed: u64,
    /// Tag of the volume on every sector.
    pub volume: u64,
    /// Requests in flight.
    pub depth: usize,
    /// Longest request, in sectors.
    pub sectors_max: u64,
    /// Unit of offsets and lengths: 1 sector, or 8 on a volume with 4 KiB blocks.
    pub align_sectors: u64,
}

/// A volume under verified load. Its journal outlives every connection and every process that serves the volume.
pub struct Load {
    plan: Plan,
    journal: RefCell<Journal>,
    random: RefCell<Random>,
    /// Ranges being read: nothing is written there meanwhile.
    reading: RefCell<Vec<(u64, u64)>>,
    completed: Cell<u64>,
    stopping: Cell<bool>,
    running: Cell<usize>,
    violation: RefCell<Option<String>>,
}

enum Action {
    Read,
    Write,
    Trim,
    WriteZeroes,
    Flush,
}

impl Load {
    /// On a volume of `size_bytes` that reads as zeroes.
    pub fn new(plan: Plan, size_bytes: u64) -> Rc<Self> {
        let random = RefCell::new(Random::new(plan.seed));
        Rc::new(Self {
            plan,
            journal: RefCell::new(Journal::new(size_bytes)),
            random,
            reading: RefCell::default(),
            completed: Cell::new(0),
            stopping: Cell::new(false),
            running: Cell::new(0),
            violation: RefCell::new(None),
        })
    }

    /// On a volume whose contents are somebody else's: they are read, and what they are is what may be read.
    ///
    /// # Panics
    /// If a read fails.
    pub async fn over_unknown(plan: Plan, disk: &Disk, size_bytes: u64) -> Rc<Self> {
        let load = Self::new(plan, size_bytes);
        for offset in (0..size_bytes).step_by(VERIFY_BYTES as usize) {
            let len = u64::from(VERIFY_BYTES).min(size_bytes - offset) as u32;
            let bytes = disk.read(offset, len).await.expect("the volume is served");
            let mut journal = load.journal.borrow_mut();
            let contents = bytes.chunks_exact(SECTOR_BYTES).map(Content::of);
            let write = journal.begin(offset / SECTOR_BYTES as u64, contents);
            journal.completed(write);
        }
        load
    }

    /// Starts the plan's depth of workers on `disk`. They end when the connection is lost, after
    /// [`stop`](Self::stop), or at the first violation.
    pub fn start(self: &Rc<Self>, disk: &Disk) -> Vec<TaskHandle> {
        self.stopping.set(false);
        (0..self.plan.depth)
            .map(|_| {
                let (load, disk) = (self.clone(), disk.clone());
                self.running.set(self.running.get() + 1);
                runtime::spawn(async move {
                    while !load.stopping.get() {
                        if load.step(&disk).await.is_err() {
                            break;
                        }
                    }
                    load.running.set(load.running.get() - 1);
                })
            })
            .collect()
    }

    /// Lets the workers end after the request that each has in flight.
    pub fn stop(&self) {
        self.stopping.set(true);
    }

    /// Requests that were answered with success so far.
    pub fn completed(&self) -> u64 {
        self.completed.get()
    }

    /// Waits until `ready`, at most `seconds`.
    async fn wait(&self, what: &str, seconds: u32, ready: impl Fn(&Self) -> bool) {
        let pause = std::time::Duration::from_millis(1);
        for _ in 0..seconds * 1000 {
            if ready(self) {
                return;
            }
            runtime::sleep(pause).await;
        }
        panic!("{what}: not within {seconds} s ({} requests completed)", self.completed());
    }

    /// Waits until `count` requests have been answered, or a violation was found.
    pub async fn reach(&self, count: u64) {
        self.wait("the load does not move", 60, |load| {
            load.completed() >= count || load.violation.borrow().is_some() || load.running.get() == 0
        })
        .await;
    }

    /// Waits until all workers have ended.
    pub async fn ended(&self) {
        self.wait("workers do not end", 60, |load| load.running.get() == 0).await;
    }

    /// The first thing that was wrong, if anything was.
    pub fn violation(&self) -> Option<String> {
        self.violation.borrow().clone()
    }

    /// # Panics
    /// If a read has returned what must not be there.
    pub fn assert_sound(&self) {
        if let Some(violation) = &*self.violation.borrow() {
            panic!("{violation}; seed {}, {} requests completed", self.plan.seed, self.completed());
        }
    }

    /// Reads the whole volume and checks every sector.
    ///
    /// # Panics
    /// At the first violation or error.
    pub async fn verify(self: &Rc<Self>, disk: &Disk) {
        self.check_all(disk).await;
        self.assert_sound();
    }

    /// As [`verify`](Self::verify), but the first violation or error is only kept.
    pub async fn check_all(self: &Rc<Self>, disk: &Disk) {
        let size_bytes = self.journal.borrow().sector_count() * SECTOR_BYTES as u64;
        let next = Rc::new(Cell::new(0));
        self.running.set(self.running.get() + VERIFY_DEPTH);
        for _ in 0..VERIFY_DEPTH {
            let (load, disk, next) = (self.clone(), disk.clone(), next.clone());
            runtime::spawn(async move {
                loop {
                    let offset: u64 = next.get();
                    let len = u64::from(VERIFY_BYTES).min(size_bytes - offset);
                    if len == 0 || load.violation.borrow().is_some() {
                        break;
                    }
                    next.set(offset + len);
                    match disk.read(offset, len as u32).await {
                        Ok(bytes) => load.check(offset / SECTOR_BYTES as u64, &bytes),
                        Err(error) => load.report(format!("read of {offset}+{len} while verifying: {error}")),
                    }
                }
                load.running.set(load.running.get() - 1);
            });
        }
        self.ended().await;
    }

    fn check(&self, first: u64, bytes: &[u8]) {
        if let Err(violation) = self.journal.borrow_mut().check(first, bytes) {
            self.report_violation(&violation);
        }
    }

    fn report_violation(&self, violation: &Violation) {
        self.report(violation.to_string());
    }

    fn report(&self, what: String) {
        self.violation.borrow_mut().get_or_insert(what);
        self.stopping.set(true);
    }

    /// One random request, from choice to outcome. `Err` when the connection is lost.
    async fn step(&self, disk: &Disk) -> Result<(), DiskError> {
        let (action, first, count) = self.choose();
        let result = match action {
            Action::Read => self.read(disk, first, count).await,
            Action::Write => self.write(disk, first, count).await,
            Action::Flush => disk.flush().await,
            Action::Trim => {
                let write = self.journal.borrow_mut().begin_zeroes(first, count);
                let result = disk.trim(first * SECTOR_BYTES as u64, count as u32 * SECTOR_BYTES as u32).await;
                self.settle(write, result)
            }
            Action::WriteZeroes => {
                let write = self.journal.borrow_mut().begin_zeroes(first, count);
                let result = disk.write_zeroes(first * SECTOR_BYTES as u64, count as u32 * SECTOR_BYTES as u32).await;
                self.settle(write, result)
            }
        };
        match result {
            Ok(()) => {
                self.completed.set(self.completed.get() + 1);
                Ok(())
            }
            Err(DiskError::Refused(why)) => {
                self.report(format!("request for sectors {first}+{count}: {why}"));
                Err(DiskError::Refused(why))
            }
            lost => lost,
        }
    }

    async fn read(&self, disk: &Disk, first: u64, count: u64) -> Result<(), DiskError> {
        self.reading.borrow_mut().push((first, count));
        let result = disk.read(first * SECTOR_BYTES as u64, count as u32 * SECTOR_BYTES as u32).await;
        {
            let mut reading = self.reading.borrow_mut();
            let place = reading.iter().position(|range| *range == (first, count));
            place.map(|place| reading.swap_remove(place));
        }
        self.check(first, &result?);
        Ok(())
    }

    async fn write(&self, disk: &Disk, first: u64, count: u64) -> Result<(), DiskError> {
        let mut bytes = IoBuf::new(count as usize * SECTOR_BYTES);
        let write = {
            let mut journal = self.journal.borrow_mut();
            let version = journal.next_write().0;
            for (sector, bytes) in (first..).zip(bytes.chunks_exact_mut(SECTOR_BYTES)) {
                Stamp { volume: self.plan.volume, sector, version }.fill(bytes);
            }
            journal.begin(first, bytes.chunks_exact(SECTOR_BYTES).map(Content::of))
        };
        let result = disk.write(first * SECTOR_BYTES as u64, bytes.freeze()).await;
        self.settle(write, result)
    }

    fn settle(&self, write: crate::journal::WriteId, result: Result<(), DiskError>) -> Result<(), DiskError> {
        let mut journal = self.journal.borrow_mut();
        match &result {
            Ok(()) => journal.completed(write),
            Err(DiskError::Lost(_)) => journal.lost(write),
            Err(DiskError::Refused(_)) => journal.refused(write),
        }
        result
    }

    /// What to do next, and where: never a read where a write is in flight, nor the other way round; writes may
    /// overlap.
    fn choose(&self) -> (Action, u64, u64) {
        let mut random = self.random.borrow_mut();
        loop {
            let action = match random.below(100) {
                0..30 => Action::Read,
                30..90 => Action::Write,
                90..94 => Action::Trim,
                94..98 => Action::WriteZeroes,
                _ => Action::Flush,
            };
            let align = if matches!(action, Action::Trim) { BLOCK_SECTORS } else { self.plan.align_sectors };
            let (first, count) = self.choose_range(&mut random, align);
            let is_free = match action {
                Action::Read => !self.journal.borrow().is_written(first, count),
                Action::Flush => true,
                _ => !self.reading.borrow().iter().any(|(at, len)| *at < first + count && first < at + len),
            };
            if is_free {
                return (action, first, count);
            }
        }
    }

    /// Mostly short, sometimes anywhere up to the longest; half of them in a small hot region, so that they overlap.
    fn choose_range(&self, random: &mut Random, align: u64) -> (u64, u64) {
        let total = self.journal.borrow().sector_count() / align;
        let longest = (self.plan.sectors_max / align).max(1);
        let count = match random.below(10) {
            0..5 => 1 + random.below(longest.min(8)),
            5..9 => 1 + random.below(longest.min(64)),
            _ => 1 + random.below(longest),
        };
        let space = if random.percent(50) { (total / 32).max(count) } else { total };
        let first = random.below(space - count + 1);
        (first * align, count * align)
    }
}
