//! What a core remembers of the commands of its volumes.

use super::flight::{Class, Door, SlowIo, Stage, StageTimes};
use super::histogram::Histogram;
use runtime::{Instant, now, wall_clock_ns};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

/// Slowest commands kept of each volume on each core, of one period.
const SLOWEST_KEPT: usize = 8;
/// How long a period is: what is told is of the one under way and the one before.
const PERIOD: Duration = Duration::from_secs(60);

/// Histograms of one door and class: one per stage, in the order of [`Stage::ALL`], and one of the whole.
type OfClass = ([Histogram; 5], Histogram);

/// Where the time of all commands of one core went, or of several.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Latencies([[OfClass; Class::ALL.len()]; Door::ALL.len()]);

impl Latencies {
    /// Time in one stage.
    pub fn stage(&self, door: Door, class: Class, stage: Stage) -> &Histogram {
        &self.0[door as usize][class as usize].0[stage as usize]
    }

    /// Time in all stages together.
    pub fn total(&self, door: Door, class: Class) -> &Histogram {
        &self.0[door as usize][class as usize].1
    }

    /// That of others, too.
    pub fn merge(&mut self, other: &Self) {
        for (here, there) in self.0.iter_mut().flatten().zip(other.0.iter().flatten()) {
            here.0.iter_mut().zip(&there.0).for_each(|(here, there)| here.merge(there));
            here.1.merge(&there.1);
        }
    }

    fn add(&mut self, io: &SlowIo) {
        let (stages, total) = &mut self.0[io.door as usize][io.operation.class() as usize];
        stages.iter_mut().zip(io.stages.0).for_each(|(histogram, ns)| histogram.add(ns));
        total.add(io.stages.total_ns());
    }
}

/// What the commands of one class of a volume come to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassTotals {
    /// How many there were.
    pub operations: u64,
    /// Those of them that were answered with an error.
    pub failed: u64,
    /// Bytes they were about.
    pub bytes: u64,
    /// Time they were in each stage, added up.
    pub stages: StageTimes,
}

impl ClassTotals {
    fn add(&mut self, other: &Self) {
        self.operations += other.operations;
        self.failed += other.failed;
        self.bytes += other.bytes;
        self.stages.add(&other.stages);
    }

    fn since(mut self, earlier: &Self) -> Self {
        self.operations -= earlier.operations;
        self.failed -= earlier.failed;
        self.bytes -= earlier.bytes;
        self.stages.sub(&earlier.stages);
        self
    }
}

type Totals = [ClassTotals; Class::ALL.len()];

/// A stretch of a volume's life on one core.
#[derive(Default)]
struct Period {
    since: Instant,
    /// The totals when it began.
    base: Totals,
    /// The slowest commands that ended in it, in no order.
    slowest: Vec<SlowIo>,
    /// Once it is full: the fastest of those.
    least_ns: u64,
}

impl Period {
    fn begin(&mut self, since: Instant, base: Totals) {
        (self.since, self.base, self.least_ns) = (since, base, 0);
        self.slowest.clear();
    }

    fn keep(&mut self, io: &SlowIo) {
        if self.slowest.len() < SLOWEST_KEPT {
            self.slowest.push(*io);
        } else {
            let least = self.slowest.iter_mut().min_by_key(|kept| kept.stages.total_ns()).expect("it is full");
            *least = *io;
        }
        if self.slowest.len() == SLOWEST_KEPT {
            self.least_ns = self.slowest.iter().map(|kept| kept.stages.total_ns()).min().expect("it is full");
        }
    }
}

/// A volume's flight recorder on one core.
pub(crate) struct Recorder {
    core: u16,
    /// Of all volumes of this core.
    latencies: Rc<RefCell<Latencies>>,
    kept: RefCell<Kept>,
}

#[derive(Default)]
struct Kept {
    totals: Totals,
    current: Period,
    previous: Period,
}

impl Kept {
    fn turn_over(&mut self, now: Instant) {
        let Self { totals, current, previous } = self;
        match now.since(current.since) {
            age if age < PERIOD => {}
            age if age < 2 * PERIOD => {
                std::mem::swap(current, previous);
                current.begin(now, *totals);
            }
            // Nothing has happened since the period before it was over.
            _ => {
                previous.begin(now, *totals);
                current.begin(now, *totals);
            }
        }
    }
}

impl Recorder {
    pub(crate) fn new(core: u16, latencies: &Rc<RefCell<Latencies>>) -> Rc<Self> {
        let this = Self { core, latencies: latencies.clone(), kept: RefCell::default() };
        this.kept.borrow_mut().current.begin(now(), Totals::default());
        this.kept.borrow_mut().previous.begin(now(), Totals::default());
        Rc::new(this)
    }

    /// One that was never told the time.
    #[cfg(test)]
    pub(super) fn silent() -> Rc<Self> {
        Rc::new(Self { core: 0, latencies: Rc::default(), kept: RefCell::default() })
    }

    pub(super) fn core(&self) -> u16 {
        self.core
    }

    /// A command is over.
    pub(super) fn record(&self, now: Instant, io: &SlowIo) {
        self.latencies.borrow_mut().add(io);
        let kept = &mut *self.kept.borrow_mut();
        kept.turn_over(now);
        let totals = &mut kept.totals[io.operation.class() as usize];
        totals.operations += 1;
        totals.failed += u64::from(io.failed);
        totals.bytes += io.len_bytes;
        totals.stages.add(&io.stages);
        if kept.current.slowest.len() < SLOWEST_KEPT || io.stages.total_ns() > kept.current.least_ns {
            kept.current.keep(&SlowIo { ended_at_ns: wall_clock_ns(), ..*io });
        }
    }

    /// What is remembered of the volume here.
    pub(crate) fn told(&self) -> VolumeLatency {
        let kept = &mut *self.kept.borrow_mut();
        let now = now();
        kept.turn_over(now);
        let Kept { totals, current, previous } = kept;
        let mut recent = *totals;
        recent.iter_mut().zip(&previous.base).for_each(|(now, then)| *now = now.since(then));
        let slowest = previous.slowest.iter().chain(&current.slowest).copied().collect();
        VolumeLatency { totals: *totals, recent, recent_time: now.since(previous.since), slowest }
    }
}

/// Where the time of a volume's commands went.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VolumeLatency {
    /// Since this node serves it, by class, in the order of [`Class::ALL`].
    pub totals: [ClassTotals; 3],
    /// The same of the last one to two minutes.
    pub recent: [ClassTotals; 3],
    /// How long that is.
    pub recent_time: Duration,
    /// The slowest commands of that time, the slowest first.
    pub slowest: Vec<SlowIo>,
}

impl VolumeLatency {
    /// With what another core says.
    /// That of others, too.
    pub fn merge(&mut self, other: Self) {
        self.totals.iter_mut().zip(&other.totals).for_each(|(here, there)| here.add(there));
        self.recent.iter_mut().zip(&other.recent).for_each(|(here, there)| here.add(there));
        self.recent_time = self.recent_time.max(other.recent_time);
        self.slowest.extend(other.slowest);
        self.slowest.sort_by_key(|io| std::cmp::Reverse(io.stages.total_ns()));
        self.slowest.truncate(2 * SLOWEST_KEPT);
    }
}
