//! Closed-loop load: a number of workers that each keep one operation under way, warmed up and then measured, and the CPU that it takes.

use crate::cpu::{CpuMeter, CpuUse};
use measure::generator::{Kind, Load};
use runtime::sim::Random;
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

/// Runs `operation` (given the worker's number and its random numbers) on `depth` workers of the current core. It says what it was.
///
/// # Errors
/// The first error of an operation, or of reading /proc.
pub async fn run<F, O>(options: LoadOptions, operation: F) -> io::Result<LoadResult>
where
    F: Fn(u32, &Random) -> O + 'static,
    O: Future<Output = io::Result<Kind>> + 'static,
{
    let (load, operation) = (Load::new(None), Rc::new(operation));
    load.start(options.depth, |worker| {
        let (load, operation) = (load.clone(), operation.clone());
        async move {
            let random = Random::new(u64::from(worker) + 1);
            while load.turn().await {
                let begun = runtime::now();
                let kind = operation(worker, &random).await.map_err(|error| error.to_string())?;
                load.count(kind, begun);
            }
            Ok(())
        }
    });
    measured(&load, &options).await
}

/// What comes of a load whose workers have started.
///
/// # Errors
/// The first error of a worker, or of reading /proc.
pub async fn measured(load: &Load, options: &LoadOptions) -> io::Result<LoadResult> {
    load.warm_up(options.warm_up).await;
    let meter = CpuMeter::start(&options.pids, options.idle_cores)?;
    let seconds = load.measure(options.measured).await;
    let cpu = meter.finish()?;
    let all = load.end().await.map_err(io::Error::other)?.reads_and_writes();
    Ok(LoadResult {
        operations: all.operations(),
        iops: all.operations() as f64 / seconds,
        mean_us: all.mean_us(),
        p50_us: all.quantile_us(0.5),
        p90_us: all.quantile_us(0.9),
        p99_us: all.quantile_us(0.99),
        p999_us: all.quantile_us(0.999),
        max_us: all.max_us(),
        cpu,
    })
}
