//! A load generator of our own: what fio does with a case, through our NVMe/TCP host, which fio has not, or our NBD client.
//!
//! ```text
//!   one thread, one ring ── links: to a volume or to several ── jobs: `depth` workers each: draw, send, wait, count
//! ```
//!
//! | room | what it has |
//! |---|---|
//! | [`Load`] | workers in a closed loop or at a rate, a time to warm up, what was counted; of anything that is measured |
//! | [`Histogram`] | latencies |
//! | [`Jobs`], [`Pattern`] | what workers do, and what is drawn |
//! | [`Links`], [`Reached`] | who is asked, and how |
//! | [`fill()`], [`load()`] | all of it for a case of `cairn bench` |
//!
//! `bench`, which is not shipped, has its loads of this, too. Jobs of fio are processes, and each may have a core of its own; all
//! jobs here share one. docs/bench.md says how figures of the two compare, and none of one is compared with one of the other: the
//! setting says who made the load.

mod histogram;
mod jobs;
mod link;
mod load;
mod payload;
mod places;

use crate::MeasureError;
use crate::fio::{Ask, FioResult, Way, flow_of, latency_of};
use crate::machine::{self, Use, Watch};
pub use histogram::Histogram;
pub use jobs::{Jobs, Links, Namespaces};
pub use link::Reached;
pub(crate) use link::identity;
pub use load::{Counted, Kind, Load};
pub(crate) use payload::Payload;
pub use places::Pattern;
use std::rc::Rc;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// What `fio` is in a setting.
pub const NAME: &str = "none: cairn's own generator";
/// Of the measured time, the share at each end in which the machine is not looked at: as for fio.
const MARGIN_SHARE: u32 = 10;

/// Writes so many bytes once, in order, 1 MiB each, and flushes.
///
/// # Errors
/// If it cannot be reached, a write fails, or it takes longer than fio's fill may.
pub fn fill(reached: &Reached, span_bytes: u64) -> Result<(), MeasureError> {
    let reached = reached.clone();
    in_ring(move || async move {
        let links = Links::of_jobs(&reached, 1, 1).await?;
        let filled = links.fill(span_bytes).await;
        links.close();
        filled
    })
    .map_err(MeasureError::Target)
}

/// Does what is asked for, and says what was spent meanwhile.
///
/// # Errors
/// If it cannot be reached, or an I/O fails.
pub fn load(reached: &Reached, ask: &Ask, watch: &Watch) -> Result<(FioResult, Option<Use>), MeasureError> {
    let (tell, told) = mpsc::channel();
    let (reached, of_thread) = (reached.clone(), ask.clone());
    let thread = thread::spawn(move || in_ring(move || run(reached, of_thread, tell)));
    let spent = told.recv().ok().map(|began| look_while(began, ask.times.measured, watch));
    let measured = thread.join().map_err(|_| MeasureError::Target("the load has failed: see above".to_owned()))?;
    let measured = measured.map_err(MeasureError::Target)?;
    let spent = spent.transpose()?.map(|spent| Use { client_cores: Some(measured.cores), ..spent });
    Ok((measured.result(ask)?, spent))
}

/// What the machine spends in the middle of the measured time, which begins at an instant.
fn look_while(began: Instant, measured: Duration, watch: &Watch) -> Result<Use, MeasureError> {
    let margin = measured / MARGIN_SHARE;
    let sleep_until = |instant: Instant| thread::sleep(instant.saturating_duration_since(Instant::now()));
    sleep_until(began + margin);
    let before = machine::look(watch, None)?;
    sleep_until(began + measured - margin);
    Ok(before.until(&machine::look(watch, None)?))
}

/// Runs a future on a ring of this thread.
fn in_ring<T: 'static, F: Future<Output = Result<T, String>> + 'static>(make: impl FnOnce() -> F) -> Result<T, String> {
    let run = runtime::uring::block_on(make());
    run.map_err(|error| format!("the load cannot run here ({error}): is io_uring switched on?"))?
}

/// What was counted, and what it took.
struct Measured {
    seconds: f64,
    /// CPU cores that the thread kept busy.
    cores: f64,
    counted: Counted,
}

async fn run(reached: Reached, ask: Ask, tell: mpsc::Sender<Instant>) -> Result<Measured, String> {
    let (jobs, depth) = (ask.case.jobs, ask.case.depth);
    let links = Rc::new(Links::of_jobs(&reached, depth, jobs).await?);
    let load = Load::new(ask.rate);
    Jobs::new(links.clone(), Pattern::from(&ask.case), ask.span_bytes, jobs, ask.seed)?.start(&load, jobs * depth);
    load.warm_up(ask.times.warm_up).await;
    let cpu = thread_cpu();
    // Nobody may look any more.
    let _ = tell.send(Instant::now());
    drop(tell);
    let seconds = load.measure(ask.times.measured).await;
    let cores = (thread_cpu() - cpu).as_secs_f64() / seconds;
    let counted = load.end().await;
    links.close();
    Ok(Measured { seconds, cores, counted: counted? })
}

impl Measured {
    /// As fio's.
    fn result(&self, ask: &Ask) -> Result<FioResult, MeasureError> {
        let way = |histogram: &Histogram| Way {
            bw_bytes: histogram.operations() as f64 * ask.case.block_size_bytes as f64 / self.seconds,
            iops: histogram.operations() as f64 / self.seconds,
            total_ios: histogram.operations(),
            lat_ns: histogram.nanoseconds(),
        };
        let Counted { read, write, flush } = &self.counted;
        let (read, write) = (way(read), way(write));
        let all = flow_of(&[&read, &write]);
        if all.ios == 0 {
            return Err(MeasureError::Target(
                "no I/O ended while it was measured: the target does not answer, or the time is too short (--seconds)"
                    .to_owned(),
            ));
        }
        let some = |way: &Way| (way.total_ios > 0).then(|| flow_of(&[way]));
        let sync = (flush.operations() > 0).then(|| latency_of(&[&flush.nanoseconds()]).0);
        Ok(FioResult { read: some(&read), write: some(&write), all, sync })
    }
}

/// What this thread has used of a CPU.
fn thread_cpu() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: clock_gettime fills the structure, for which there is room.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fio::Times;
    use crate::profile::Profile;

    fn ask(case: usize) -> Ask {
        let times = Times { warm_up: Duration::ZERO, measured: Duration::from_secs(2) };
        let case = Profile::named("mix").unwrap().cases(false)[case].clone();
        Ask { case, span_bytes: 1 << 20, times, seed: 1, rate: None }
    }

    fn histogram(latencies_us: &[u64]) -> Histogram {
        let mut histogram = Histogram::default();
        latencies_us.iter().for_each(|us| histogram.count(Duration::from_micros(*us)));
        histogram
    }

    #[test]
    fn what_was_counted_is_told_as_fio_tells_it() {
        let (read, write) = (histogram(&[100, 200, 300, 400]), histogram(&[1000]));
        let counted = Counted { read, write, flush: histogram(&[50, 50]) };
        let measured = Measured { seconds: 2.0, cores: 0.5, counted };
        let result = measured.result(&ask(2)).unwrap();
        assert_eq!((result.all.ios, result.read.unwrap().ios, result.write.as_ref().unwrap().ios), (5, 4, 1));
        assert!((result.all.iops - 2.5).abs() < 1e-9 && (result.all.mib_per_second - 2.5 * 8.0 / 1024.0).abs() < 1e-9);
        assert!((result.all.latency.mean_us - 400.0).abs() < 0.1, "{:?}", result.all.latency);
        assert!((result.all.latency.max_us - 1000.0).abs() < 1e-6);
        assert!((result.sync.unwrap().mean_us - 50.0).abs() < 0.1);
        let nothing = Measured { seconds: 2.0, cores: 0.0, counted: Counted::default() };
        assert!(nothing.result(&ask(2)).unwrap_err().to_string().contains("no I/O ended"));
    }

    #[test]
    fn a_target_that_is_not_there_is_told_as_that() {
        let nobody = Reached::Nbd { address: "127.0.0.1:1".parse().unwrap(), export: "x".to_owned() };
        for failed in [fill(&nobody, 1 << 20), load(&nobody, &ask(0), &Watch::default()).map(drop)] {
            let said = failed.unwrap_err().to_string();
            assert!(said.contains("127.0.0.1:1"), "{said}");
        }
    }
}
