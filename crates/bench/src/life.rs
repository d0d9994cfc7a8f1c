//! A long life: a store filled to a share of what is usable, then overwritten many times.
//!
//! ```text
//!   fill ─► overwrite: closed loop (as fast as it goes) or open loop (so many writes a second, whatever they take)
//!            │ fresh: until the first segment was cleaned
//!            └ tenth 1 │ tenth 2 │ … │ tenth 10       steady state: the second half
//! ```
//!
//! In the open loop the latency of a write counts from when it was due, so a store that stands still is not spared the
//! writes that it kept from being issued.

use crate::store_load::StoreLoad;
use crate::zipf::Draw;
use measure::generator::Histogram;
use runtime::channel::WaitList;
use runtime::sim::Random;
use serde::Serialize;
use std::cell::{Cell, RefCell};
use std::io;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;
use store::Statistics;
use types::BLOCK_BYTES;

/// Parts that a run is told in.
const PARTS: u64 = 10;
/// What is due in the open loop is issued in steps of this length.
const STEP: Duration = Duration::from_micros(250);
/// Writes under way in the open loop at most; what is due beyond that waits, and the wait counts.
const MAX_OUTSTANDING: u64 = 512;

/// What to do to the store.
#[derive(Clone, Debug)]
pub struct LifeOptions {
    /// Share of what is usable that is filled, in per cent.
    pub share_percent: u64,
    /// How often all of it is overwritten.
    pub overwrites: f64,
    /// Exponent of Zipf's law; none: uniform.
    pub zipf: Option<f64>,
    /// Writes under way at once in the closed loop.
    pub depth: u32,
    /// Writes per second that are offered; none: the closed loop.
    pub rate: Option<f64>,
}

/// One tenth of the run.
#[derive(Clone, Debug, Serialize)]
pub struct Part {
    /// Writes per second.
    pub iops: f64,
    /// Median latency.
    pub p50_us: f64,
    /// 99 % were faster.
    pub p99_us: f64,
    /// 99.9 % were faster.
    pub p999_us: f64,
    /// The slowest.
    pub max_us: f64,
    /// Writes that waited for a segment.
    pub waited: u64,
    /// CPU of this process, all its threads, per write.
    pub cpu_us: f64,
    /// Device bytes per byte of clients.
    pub amplification: f64,
}

/// Device bytes per byte of clients, and what they were. Clients' own are 1.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Amplification {
    /// All together.
    pub total: f64,
    /// Blocks that the cleaner copied.
    pub moved: f64,
    /// Records of checkpoint passes.
    pub checkpoint: f64,
    /// Headers, entries and padding of all other records.
    pub headers: f64,
}

/// What was measured.
#[derive(Clone, Debug, Serialize)]
pub struct LifeResult {
    /// Blocks that the load covers.
    pub blocks: u64,
    /// Segments of the device.
    pub segments: u64,
    /// Writes per second until the first segment was cleaned.
    pub fresh_iops: f64,
    /// Writes per second in the second half.
    pub steady_iops: f64,
    /// The run in tenths.
    pub parts: Vec<Part>,
    /// In the second half.
    pub amplification: Amplification,
    /// Blocks that lived, on average, in a segment that was cleaned: moved bytes per cleaned segment.
    pub cleaned_live_share: f64,
    /// Passes in the second half.
    pub passes: u64,
    /// Bytes of one record on average, in the second half.
    pub record_bytes: f64,
}

/// Counts at one moment.
#[derive(Clone, Copy)]
struct Mark {
    at: runtime::Instant,
    writes: u64,
    waited: u64,
    cpu_seconds: f64,
    device: Statistics,
    clients_bytes: u64,
}

/// What the workers share.
struct Life {
    store: Rc<StoreLoad>,
    draw: Draw,
    writes: u64,
    started: Cell<u64>,
    done: Cell<u64>,
    under_way: Cell<u64>,
    failure: RefCell<Option<io::Error>>,
    changed: WaitList,
    histogram: RefCell<Histogram>,
    marks: RefCell<Vec<Mark>>,
    parts: RefCell<Vec<Part>>,
    /// When the first segment was cleaned, and how much was written then.
    fresh_until: Cell<Option<(runtime::Instant, u64)>>,
}

/// Formats the file and leads a store on it through its life.
///
/// # Errors
/// What the device or the store says.
pub async fn run(path: &Path, options: &LifeOptions) -> io::Result<LifeResult> {
    let share = options.share_percent;
    let blocks = move |usage: &store::Usage| usage.usable_bytes / BLOCK_BYTES as u64 * share / 100 / 256 * 256;
    let store = Rc::new(StoreLoad::create_for(path, blocks).await?);
    store.begin().await?;
    store.fill().await?;
    let life = Rc::new(Life::new(store, options));
    life.marks.borrow_mut().push(life.mark()?);
    match options.rate {
        Some(rate) => life.clone().open_loop(rate).await,
        None => life.clone().closed_loop(options.depth),
    }
    let ended = || life.is_over().then_some(());
    life.changed.until(ended).await;
    life.store.close().await;
    match life.failure.take() {
        Some(error) => Err(error),
        None => Ok(life.result()),
    }
}

impl Life {
    fn new(store: Rc<StoreLoad>, options: &LifeOptions) -> Self {
        let writes = (store.blocks() as f64 * options.overwrites) as u64 / PARTS * PARTS;
        Self {
            draw: Draw::new(store.blocks(), options.zipf),
            store,
            writes,
            started: Cell::new(0),
            done: Cell::new(0),
            under_way: Cell::new(0),
            failure: RefCell::default(),
            changed: WaitList::default(),
            histogram: RefCell::default(),
            marks: RefCell::default(),
            parts: RefCell::default(),
            fresh_until: Cell::default(),
        }
    }

    fn is_over(&self) -> bool {
        let all_issued = self.started.get() == self.writes || self.failure.borrow().is_some();
        all_issued && self.under_way.get() == 0
    }

    fn may_start(&self) -> bool {
        self.started.get() < self.writes && self.failure.borrow().is_none()
    }

    fn mark(&self) -> io::Result<Mark> {
        let (user, system) = crate::cpu::process_seconds(std::process::id())?;
        Ok(Mark {
            at: runtime::now(),
            writes: self.done.get(),
            waited: self.store.waited(),
            cpu_seconds: user + system,
            device: self.store.statistics(),
            clients_bytes: self.store.written_bytes().1,
        })
    }

    fn closed_loop(self: Rc<Self>, depth: u32) {
        for worker in 0..depth {
            let life = self.clone();
            runtime::spawn(async move {
                let random = Random::new(u64::from(worker) + 1);
                while life.may_start() {
                    life.write(&random, runtime::now()).await;
                }
            });
        }
    }

    /// Issues what is due, step by step, until all is.
    async fn open_loop(self: Rc<Self>, rate: f64) {
        let (start, random) = (runtime::now(), Rc::new(Random::new(1)));
        for step in 0.. {
            if !self.may_start() {
                return;
            }
            let due = start + STEP * step;
            runtime::sleep_until(due).await;
            let through = (STEP.as_secs_f64() * f64::from(step + 1) * rate) as u64;
            while self.started.get() < through.min(self.writes) {
                self.changed.until(|| (self.under_way.get() < MAX_OUTSTANDING).then_some(())).await;
                let (life, random) = (self.clone(), random.clone());
                // Counted here, for the task begins later.
                self.started.set(self.started.get() + 1);
                self.under_way.set(self.under_way.get() + 1);
                runtime::spawn(async move { life.write_started(&random, due).await });
            }
        }
    }

    async fn write(&self, random: &Random, due: runtime::Instant) {
        self.started.set(self.started.get() + 1);
        self.under_way.set(self.under_way.get() + 1);
        self.write_started(random, due).await;
    }

    async fn write_started(&self, random: &Random, due: runtime::Instant) {
        let written = self.store.write(self.draw.next(random), 1).await;
        self.histogram.borrow_mut().count(runtime::now().since(due));
        self.done.set(self.done.get() + 1);
        let noted = written.and_then(|()| self.note());
        if let Err(error) = noted {
            self.failure.borrow_mut().get_or_insert(error);
        }
        self.under_way.set(self.under_way.get() - 1);
        self.changed.wake_all();
    }

    /// At the end of a tenth: what it was like.
    fn note(&self) -> io::Result<()> {
        let done = self.done.get();
        if self.fresh_until.get().is_none() && done.is_multiple_of(1024) && self.store.statistics().segments_cleaned > 0
        {
            self.fresh_until.set(Some((runtime::now(), done)));
        }
        if !done.is_multiple_of(self.writes / PARTS) {
            return Ok(());
        }
        let (now, before) = (self.mark()?, *self.marks.borrow().last().expect("one at the start"));
        let (writes, histogram) = ((now.writes - before.writes) as f64, &mut *self.histogram.borrow_mut());
        self.parts.borrow_mut().push(Part {
            iops: writes / now.at.since(before.at).as_secs_f64(),
            p50_us: histogram.quantile_us(0.5),
            p99_us: histogram.quantile_us(0.99),
            p999_us: histogram.quantile_us(0.999),
            max_us: histogram.max_us(),
            waited: now.waited - before.waited,
            cpu_us: (now.cpu_seconds - before.cpu_seconds) * 1e6 / writes,
            amplification: amplification(&before, &now).total,
        });
        histogram.clear();
        self.marks.borrow_mut().push(now);
        Ok(())
    }

    fn result(&self) -> LifeResult {
        let marks = self.marks.borrow();
        let (first, half, last) = (marks[0], marks[PARTS as usize / 2], marks[PARTS as usize]);
        let (fresh_at, fresh_writes) = self.fresh_until.get().unwrap_or((last.at, last.writes));
        let (before, after) = (&half.device, &last.device);
        let usage = self.store.usage();
        let cleaned = (after.segments_cleaned - before.segments_cleaned).max(1) as f64;
        let segment_bytes = self.store.segment_bytes() as f64;
        LifeResult {
            blocks: self.store.blocks(),
            segments: usage.capacity_bytes / self.store.segment_bytes(),
            fresh_iops: fresh_writes as f64 / fresh_at.since(first.at).as_secs_f64(),
            steady_iops: (last.writes - half.writes) as f64 / last.at.since(half.at).as_secs_f64(),
            parts: self.parts.borrow().clone(),
            amplification: amplification(&half, &last),
            cleaned_live_share: (after.moved_bytes - before.moved_bytes) as f64 / cleaned / segment_bytes,
            passes: after.passes - before.passes,
            record_bytes: (after.appended_bytes - before.appended_bytes) as f64
                / (after.appends - before.appends).max(1) as f64,
        }
    }
}

fn amplification(from: &Mark, to: &Mark) -> Amplification {
    let clients = (to.clients_bytes - from.clients_bytes) as f64;
    let part = |of: fn(&Statistics) -> u64| (of(&to.device) - of(&from.device)) as f64 / clients;
    let (total, moved) = (part(|s| s.appended_bytes), part(|s| s.moved_bytes));
    let checkpoint = part(|s| s.checkpoint_bytes);
    Amplification { total, moved, checkpoint, headers: total - 1.0 - moved - checkpoint }
}
