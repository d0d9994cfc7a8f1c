//! Runs a workload over seeds, on all cores of the machine: a world needs one thread.

use crate::workload::cluster::format_numbers;
use crate::workload::{Failure, Report, RunOptions, Workload};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, Once};
use std::time::{Duration, Instant};
use types::Mutant;

static QUIET: Once = Once::new();

thread_local! {
    /// Where and why the last run of this thread panicked.
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
    /// Whether this thread runs a seed right now.
    static RUNNING: Cell<bool> = const { Cell::new(false) };
}

/// Which seeds, and how long.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The seeds, all of them unless the time runs out or one fails.
    pub seeds: Range<u64>,
    /// Real time after which no further seed is begun.
    pub time_limit: Option<Duration>,
    /// Crashes of each run.
    pub crashes: u32,
    /// The deliberate bug that is switched on (it must be switched on already: this names it in the command).
    pub mutant: Option<Mutant>,
    /// Numbers of faults that are left out.
    pub without: BTreeSet<u32>,
    /// See [`RunOptions::operations`].
    pub operations: Option<u64>,
}

impl Plan {
    /// `seeds` of a workload as it is run by default.
    pub fn new(workload: &Workload, seeds: Range<u64>) -> Self {
        let crashes = workload.default_crashes;
        Self { seeds, time_limit: None, crashes, mutant: None, without: BTreeSet::new(), operations: None }
    }

    /// How one seed of it is run.
    pub fn options(&self, seed: u64) -> RunOptions {
        let (without, operations) = (self.without.clone(), self.operations);
        RunOptions { without, operations, ..RunOptions::new(seed, self.crashes) }
    }
}

/// A seed that failed.
#[derive(Clone, Debug)]
pub struct FailedSeed {
    /// Which.
    pub seed: u64,
    /// Why.
    pub failure: Failure,
    /// The one command that repeats it.
    pub command: String,
}

impl std::fmt::Display for FailedSeed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "seed {} failed. {}\nrepeat it with:\n    {}", self.seed, self.failure, self.command)
    }
}

/// What a plan came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Seeds run.
    pub seeds: u64,
    /// All their reports.
    pub total: Report,
    /// Time of cores that they took, all added up.
    pub busy: Duration,
    /// Real time that passed.
    pub took: Duration,
}

impl Summary {
    /// Adds another.
    pub fn add(&mut self, other: &Self) {
        self.seeds += other.seeds;
        self.total.add(&other.total);
        self.busy += other.busy;
        self.took += other.took;
    }

    /// How fast it went: what depends on the machine and is no part of a report.
    pub fn speed(&self) -> String {
        let (busy, took) = (self.busy.as_secs_f64().max(1e-9), self.took.as_secs_f64().max(1e-9));
        let mut out = format!(
            "{:.0} seeds per minute, {:.0} operations per second of one core",
            self.seeds as f64 * 60.0 / took,
            self.total.operations as f64 / busy
        );
        if self.total.virtual_time > Duration::ZERO {
            out += &format!(", {:.1} virtual hours per real hour", self.total.virtual_time.as_secs_f64() / took);
        }
        out
    }
}

/// Runs one seed. A panic is a failure like any other: an assertion of what is tested has noticed.
pub fn run_seed(workload: &Workload, options: &RunOptions) -> Result<Report, Failure> {
    QUIET.call_once(quiet_panics);
    PANIC.set(None);
    RUNNING.set(true);
    let outcome = catch_unwind(AssertUnwindSafe(|| (workload.run)(options)));
    RUNNING.set(false);
    match PANIC.take() {
        // Also one that stopped a store alone and went no further.
        Some(panic) => Err(Failure::new("assertion", panic)),
        None => outcome.unwrap_or_else(|_| Err(Failure::new("assertion", "a panic that said nothing"))),
    }
}

/// From now on a panic within a run says where and why only to whoever runs the seed.
fn quiet_panics() {
    let otherwise = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if !RUNNING.try_with(Cell::get).unwrap_or(false) {
            return otherwise(info);
        }
        PANIC.with_borrow_mut(|panic| {
            panic.get_or_insert_with(|| info.to_string());
        });
    }));
}

/// The command that repeats a run.
pub fn command(workload: &Workload, seed: u64, plan: &Plan) -> String {
    let features = if plan.mutant.is_some() { " --features mutants" } else { "" };
    let mut command = format!("cargo run --release -p cairn-sim{features} -- run {} --seed {seed}", workload.name);
    if plan.crashes != workload.default_crashes {
        command += &format!(" --crashes {}", plan.crashes);
    }
    if !plan.without.is_empty() {
        command += &format!(" --without {}", format_numbers(&plan.without));
    }
    if let Some(operations) = plan.operations {
        command += &format!(" --operations {operations}");
    }
    if let Some(mutant) = plan.mutant {
        command += &format!(" --mutant {mutant:?}");
    }
    command
}

/// Time that this thread has had of a core, whatever else the machine does: its first number in the kernel's statistics.
fn thread_time_ns() -> u64 {
    let told = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    told.split(' ').next().and_then(|time| time.parse().ok()).unwrap_or_default()
}

/// Runs the seeds of a plan.
///
/// # Errors
/// The lowest seed that failed of those that were run.
pub fn run(workload: &Workload, plan: &Plan) -> Result<Summary, FailedSeed> {
    let (next, stop) = (AtomicU64::new(plan.seeds.start), AtomicBool::new(false));
    let busy_ns = AtomicU64::new(0);
    let reports = Mutex::new(Vec::new());
    let failed: Mutex<Option<FailedSeed>> = Mutex::new(None);
    let begin = Instant::now();
    let work = || {
        while !stop.load(Ordering::Relaxed) && plan.time_limit.is_none_or(|limit| begin.elapsed() < limit) {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= plan.seeds.end {
                return;
            }
            let began = thread_time_ns();
            let outcome = run_seed(workload, &plan.options(seed));
            busy_ns.fetch_add(thread_time_ns() - began, Ordering::Relaxed);
            match outcome {
                Ok(report) => reports.lock().expect("runs do not panic").push((seed, report)),
                Err(failure) => {
                    stop.store(true, Ordering::Relaxed);
                    let mut failed = failed.lock().expect("runs do not panic");
                    if failed.as_ref().is_none_or(|lowest| seed < lowest.seed) {
                        *failed = Some(FailedSeed { seed, failure, command: command(workload, seed, plan) });
                    }
                }
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    if let Some(failed) = failed.into_inner().expect("runs do not panic") {
        return Err(failed);
    }
    let mut reports = reports.into_inner().expect("runs do not panic");
    reports.sort_unstable_by_key(|(seed, _)| *seed);
    let busy = Duration::from_nanos(busy_ns.into_inner());
    let mut summary = Summary { seeds: reports.len() as u64, total: Report::default(), busy, took: begin.elapsed() };
    reports.iter().for_each(|(_, report)| summary.total.add(report));
    Ok(summary)
}
