//! Closed-loop load: a number of workers that each keep one operation under way, warmed up and then measured.

use crate::cpu::{CpuMeter, CpuUse};
use hdrhistogram::Histogram;
use runtime::sim::Random;
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::io;
use std::rc::Rc;
use std::time::Duration;

/// What to run.
#[derive(Clone, Debug)]
pub struct LoadOptions {
    /// Operations under way at once.
    pub depth: u32,
    /// Time before anything is counted.
    pub warm_up: Duration,
    /// Time that is counted.
    pub measured: Duration,
    /// Processes whose CPU is told apart.
    pub pids: Vec<u32>,
    /// Cores busy at rest.
    pub idle_cores: f64,
}

/// What was measured. Latencies in microseconds.
#[derive(Clone, Debug, serde::Serialize)]
pub struct LoadResult {
    /// Operations that ended within the measured time.
    pub operations: u64,
    /// Operations per second.
    pub iops: f64,
    /// Mean latency.
    pub mean_us: f64,
    /// Median.
    pub p50_us: f64,
    /// 90 % were faster.
    pub p90_us: f64,
    /// 99 % were faster.
    pub p99_us: f64,
    /// 99.9 % were faster.
    pub p999_us: f64,
    /// The slowest.
    pub max_us: f64,
    /// CPU meanwhile.
    pub cpu: CpuUse,
}

impl LoadResult {
    /// CPU microseconds of the whole machine per operation.
    pub fn machine_cpu_us_per_operation(&self) -> f64 {
        self.cpu.machine_cores * 1e6 / self.iops
    }
    /// CPU microseconds of one of the processes per operation.
    pub fn process_cpu_us_per_operation(&self, process: usize) -> f64 {
        self.cpu.process_cores.get(process).copied().unwrap_or(f64::NAN) * 1e6 / self.iops
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    WarmUp,
    Measured,
    Over,
}

/// Runs `operation` (given the worker's number and its random numbers) on `depth` workers of the current core.
///
/// # Errors
/// The first error of an operation, or of reading /proc.
pub async fn run<F, O>(options: LoadOptions, operation: F) -> io::Result<LoadResult>
where
    F: Fn(u32, &Random) -> O + 'static,
    O: Future<Output = io::Result<()>> + 'static,
{
    let phase = Rc::new(Cell::new(Phase::WarmUp));
    let histogram =
        Rc::new(RefCell::new(Histogram::<u64>::new_with_bounds(100, 100_000_000_000, 3).map_err(io::Error::other)?));
    let failure = Rc::new(RefCell::new(None));
    let alive = Rc::new(Cell::new(options.depth));
    let ended = Rc::new(runtime::channel::WaitList::default());
    let operation = Rc::new(operation);
    for worker in 0..options.depth {
        let (phase, histogram, failure) = (phase.clone(), histogram.clone(), failure.clone());
        let (alive, ended, operation) = (alive.clone(), ended.clone(), operation.clone());
        runtime::spawn(async move {
            let random = Random::new(u64::from(worker) + 1);
            while phase.get() != Phase::Over {
                let started = runtime::now();
                if let Err(error) = operation(worker, &random).await {
                    failure.borrow_mut().get_or_insert(error);
                    break;
                }
                if phase.get() == Phase::Measured {
                    let nanoseconds = runtime::now().since(started).as_nanos() as u64;
                    histogram.borrow_mut().saturating_record(nanoseconds);
                }
            }
            alive.set(alive.get() - 1);
            ended.wake_all();
        });
    }
    let failed = failure.clone();
    let failed = move || failed.borrow().is_some();
    sleep_unless(options.warm_up, &failed).await;
    let meter = CpuMeter::start(&options.pids, options.idle_cores)?;
    phase.set(Phase::Measured);
    let started = runtime::now();
    sleep_unless(options.measured, &failed).await;
    let seconds = runtime::now().since(started).as_secs_f64();
    phase.set(Phase::Over);
    let cpu = meter.finish()?;
    ended.until(|| (alive.get() == 0).then_some(())).await;
    if let Some(error) = failure.take() {
        return Err(error);
    }
    let histogram = histogram.borrow();
    let us = |quantile| histogram.value_at_quantile(quantile) as f64 / 1000.0;
    Ok(LoadResult {
        operations: histogram.len(),
        iops: histogram.len() as f64 / seconds,
        mean_us: histogram.mean() / 1000.0,
        p50_us: us(0.5),
        p90_us: us(0.9),
        p99_us: us(0.99),
        p999_us: us(0.999),
        max_us: histogram.max() as f64 / 1000.0,
        cpu,
    })
}

/// How often a load that is waited for is asked whether it has failed.
const FAILURE_CHECK: Duration = Duration::from_millis(100);

/// Sleeps, unless there is nothing to wait for any more.
async fn sleep_unless(duration: Duration, failed: &impl Fn() -> bool) {
    let until = runtime::now() + duration;
    while !failed() {
        let left = until.since(runtime::now());
        if left.is_zero() {
            return;
        }
        runtime::sleep(left.min(FAILURE_CHECK)).await;
    }
}
