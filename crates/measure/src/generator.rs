//! A load generator of our own: what fio does with a case, through our NVMe/TCP host, which fio has not, or our NBD client.
//!
//! ```text
//!   one thread, one ring ── a connection or queue for each job ── `depth` workers on it: draw, send, wait, count
//! ```
//!
//! Jobs of fio are processes, and each may have a core of its own; all jobs here share one. docs/bench.md says how figures of the
//! two compare, and none of one is compared with one of the other: the setting says who made the load.

mod histogram;
mod link;
mod places;

use crate::MeasureError;
use crate::fio::{self, Ask, FioResult, Way, flow_of, latency_of};
use crate::machine::{self, Use, Watch};
use histogram::Histogram;
use link::Link;
use places::Places;
use runtime::channel::WaitList;
use runtime::{IoBuf, SharedBuf, sleep, spawn, timeout};
use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// What `fio` is in a setting.
pub const NAME: &str = "none: cairn's own generator";
/// What a fill writes at once, and how many such writes are under way: as fio's fill.
const FILL_BYTES: u64 = 1 << 20;
const FILL_DEPTH: u32 = 8;
/// What is written, over and over from another place: the largest buffer that there is.
const PAYLOAD_BYTES: usize = 4 << 20;
const PAYLOAD_STEP_BYTES: u64 = 512;
/// How long what is under way at the end is waited for, and how often something is looked at.
const ANSWER_MAX: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(5);
/// Of the measured time, the share at each end in which the machine is not looked at: as for fio.
const MARGIN_SHARE: u32 = 10;
const NO_ANSWER: &str = "the target answers nothing any more; look at it, then try again";
/// What a connection may take.
const CONNECT_MAX: Duration = Duration::from_secs(30);

/// A volume, and how it is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reached {
    /// By NVMe/TCP, with a path to each node.
    Nvme {
        /// Of all nodes.
        paths: Vec<SocketAddr>,
        /// The subsystem.
        nqn: String,
        /// The namespace.
        nsid: u32,
    },
    /// By NBD.
    Nbd {
        /// Of the server.
        address: SocketAddr,
        /// What it calls the volume.
        export: String,
    },
}

/// Writes so many bytes once, in order, 1 MiB each, and flushes.
///
/// # Errors
/// If it cannot be reached, a write fails, or it takes longer than fio's fill may.
pub fn fill(reached: &Reached, span_bytes: u64) -> Result<(), MeasureError> {
    let reached = reached.clone();
    in_ring(move || async move {
        let payload = payload();
        let link = Link::of_jobs(&reached, FILL_DEPTH, 1).await?.remove(0);
        let (next, failed) = (Rc::new(Cell::new(0)), Rc::new(RefCell::new(None)));
        let work = |_| {
            let (link, next, failed, payload) = (link.clone(), next.clone(), failed.clone(), payload.clone());
            async move {
                while failed.borrow().is_none() && next.get() < span_bytes {
                    let offset = next.replace(next.get() + FILL_BYTES);
                    let bytes = FILL_BYTES.min(span_bytes - offset);
                    if let Err(why) = link.write(offset, piece(&payload, offset, bytes)).await {
                        failed.borrow_mut().get_or_insert(why);
                    }
                }
            }
        };
        let most = fio::fill_deadline(1, span_bytes).saturating_duration_since(Instant::now());
        let flushed = timeout(most, async {
            all(FILL_DEPTH, work).await;
            link.flush().await
        });
        let flushed = flushed.await.unwrap_or_else(|_| Err(NO_ANSWER.to_owned()));
        link.close();
        failed.take().map_or(flushed, Err)
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

/// Waits for so many tasks.
async fn all<F: Future<Output = ()> + 'static>(count: u32, work: impl Fn(u32) -> F) {
    let (left, ended) = (Rc::new(Cell::new(count)), Rc::new(WaitList::default()));
    for number in 0..count {
        let (left, ended, task) = (left.clone(), ended.clone(), work(number));
        spawn(async move {
            task.await;
            left.set(left.get() - 1);
            ended.wake_all();
        });
    }
    ended.until(|| (left.get() == 0).then_some(())).await;
}

/// Random bytes.
fn payload() -> SharedBuf {
    let random = runtime::sim::Random::new(7);
    let mut payload = IoBuf::zeroed(PAYLOAD_BYTES);
    payload.chunks_exact_mut(8).for_each(|word| word.copy_from_slice(&random.next_u64().to_le_bytes()));
    payload.freeze()
}

/// So many bytes of it, from another place for another number.
fn piece(payload: &SharedBuf, number: u64, bytes: u64) -> SharedBuf {
    let places = (PAYLOAD_BYTES as u64 - bytes) / PAYLOAD_STEP_BYTES + 1;
    let at = ((number / PAYLOAD_STEP_BYTES) % places * PAYLOAD_STEP_BYTES) as usize;
    payload.slice(at..at + bytes as usize)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    WarmUp,
    Measured,
    Over,
}

/// What all workers share.
struct Work {
    ask: Ask,
    payload: SharedBuf,
    phase: Cell<Phase>,
    failed: RefCell<Option<String>>,
    /// When the next I/O is due, if there is a rate.
    due: Cell<Instant>,
    read: RefCell<Histogram>,
    write: RefCell<Histogram>,
    sync: RefCell<Histogram>,
}

/// What was counted.
struct Measured {
    seconds: f64,
    /// CPU cores that the thread kept busy.
    cores: f64,
    read: Histogram,
    write: Histogram,
    sync: Histogram,
}

async fn run(reached: Reached, ask: Ask, tell: mpsc::Sender<Instant>) -> Result<Measured, String> {
    let links = Link::of_jobs(&reached, ask.case.depth, ask.case.jobs).await?;
    let work = Rc::new(Work {
        payload: payload(),
        phase: Cell::new(Phase::WarmUp),
        failed: RefCell::default(),
        due: Cell::new(Instant::now()),
        read: RefCell::default(),
        write: RefCell::default(),
        sync: RefCell::default(),
        ask,
    });
    let (jobs, depth) = (work.ask.case.jobs, work.ask.case.depth);
    let left = Rc::new(Cell::new(jobs * depth));
    for (job, link) in links.iter().enumerate() {
        let places = Rc::new(Places::new(&work.ask, job as u64));
        for _ in 0..depth {
            let (work, link, places, left) = (work.clone(), link.clone(), places.clone(), left.clone());
            spawn(async move {
                if let Err(why) = work.runs(&link, &places).await {
                    work.failed.borrow_mut().get_or_insert(why);
                }
                left.set(left.get() - 1);
            });
        }
    }
    work.pass(work.ask.times.warm_up).await;
    let (began, cpu) = (Instant::now(), thread_cpu());
    work.phase.set(Phase::Measured);
    let _ = tell.send(began);
    drop(tell);
    work.pass(work.ask.times.measured).await;
    work.phase.set(Phase::Over);
    let seconds = began.elapsed().as_secs_f64();
    let cores = (thread_cpu() - cpu).as_secs_f64() / seconds;
    let patience = Instant::now() + ANSWER_MAX;
    while left.get() > 0 && Instant::now() < patience && work.failed.borrow().is_none() {
        sleep(LOOK).await;
    }
    links.iter().for_each(Link::close);
    if let Some(why) = work.failed.take() {
        return Err(why);
    }
    if left.get() > 0 {
        return Err(NO_ANSWER.to_owned());
    }
    let [read, write, sync] = [&work.read, &work.write, &work.sync].map(RefCell::take);
    Ok(Measured { seconds, cores, read, write, sync })
}

impl Work {
    /// For so long, or until something fails.
    async fn pass(&self, time: Duration) {
        let until = Instant::now() + time;
        while Instant::now() < until && self.failed.borrow().is_none() {
            sleep(LOOK.min(until.saturating_duration_since(Instant::now()))).await;
        }
    }

    /// One worker, to the end.
    async fn runs(&self, link: &Link, places: &Places) -> Result<(), String> {
        let case = &self.ask.case;
        while self.phase.get() != Phase::Over && self.failed.borrow().is_none() {
            self.wait_for_turn().await;
            let (offset, writes) = places.next();
            let sent = Instant::now();
            if writes {
                link.write(offset, piece(&self.payload, offset, case.block_size_bytes)).await?;
            } else {
                link.read(offset, case.block_size_bytes).await?;
            }
            self.count(if writes { &self.write } else { &self.read }, sent);
            if writes && case.fsync {
                let sent = Instant::now();
                link.flush().await?;
                self.count(&self.sync, sent);
            }
        }
        Ok(())
    }

    /// At a rate an I/O is sent when it is due, and late ones at once.
    async fn wait_for_turn(&self) {
        let Some(rate) = self.ask.rate else { return };
        let due = self.due.get();
        self.due.set(due + Duration::from_secs_f64(1.0 / rate as f64));
        let wait = due.saturating_duration_since(Instant::now());
        if !wait.is_zero() {
            sleep(wait).await;
        }
    }

    fn count(&self, histogram: &RefCell<Histogram>, sent: Instant) {
        if self.phase.get() == Phase::Measured {
            histogram.borrow_mut().count(sent.elapsed());
        }
    }
}

impl Measured {
    /// As fio's.
    fn result(&self, ask: &Ask) -> Result<FioResult, MeasureError> {
        let way = |histogram: &Histogram| Way {
            bw_bytes: histogram.ios() as f64 * ask.case.block_size_bytes as f64 / self.seconds,
            iops: histogram.ios() as f64 / self.seconds,
            total_ios: histogram.ios(),
            lat_ns: histogram.nanoseconds(),
        };
        let (read, write) = (way(&self.read), way(&self.write));
        let all = flow_of(&[&read, &write]);
        if all.ios == 0 {
            return Err(MeasureError::Target(
                "no I/O ended while it was measured: the target does not answer, or the time is too short (--seconds)"
                    .to_owned(),
            ));
        }
        let some = |way: &Way| (way.total_ios > 0).then(|| flow_of(&[way]));
        let sync = (self.sync.ios() > 0).then(|| latency_of(&[&self.sync.nanoseconds()]).0);
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
        let measured = Measured { seconds: 2.0, cores: 0.5, read, write, sync: histogram(&[50, 50]) };
        let result = measured.result(&ask(2)).unwrap();
        assert_eq!((result.all.ios, result.read.unwrap().ios, result.write.as_ref().unwrap().ios), (5, 4, 1));
        assert!((result.all.iops - 2.5).abs() < 1e-9 && (result.all.mib_per_second - 2.5 * 8.0 / 1024.0).abs() < 1e-9);
        assert!((result.all.latency.mean_us - 400.0).abs() < 0.1, "{:?}", result.all.latency);
        assert!((result.all.latency.max_us - 1000.0).abs() < 1e-6);
        assert!((result.sync.unwrap().mean_us - 50.0).abs() < 0.1);
        let nothing = Measured {
            seconds: 2.0,
            cores: 0.0,
            read: Histogram::default(),
            write: Histogram::default(),
            sync: Histogram::default(),
        };
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

    #[test]
    fn what_is_written_is_not_always_the_same() {
        let payload = payload();
        assert_ne!(piece(&payload, 0, 4096)[..], piece(&payload, 4096, 4096)[..]);
        assert_eq!(piece(&payload, 1 << 40, 4 << 20).len(), 4 << 20);
        assert_ne!(piece(&payload, 0, 512 << 10)[..], piece(&payload, 512 << 10, 512 << 10)[..]);
    }
}
