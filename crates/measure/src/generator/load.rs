//! A load under way: so many workers with one operation each, a time to warm up, and one that is counted.
//!
//! ```text
//!   new ─► start: workers begin ─► warm_up ─► measure ─► end: none begins another; those under way are waited for
//!            each: while turn() { its operation; count() }
//! ```

use super::Histogram;
use runtime::channel::WaitList;
use runtime::{Instant, now, sleep_until, spawn, timeout};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

/// How long what is under way at the end is waited for.
const ANSWER_MAX: Duration = Duration::from_secs(60);
pub(super) const NO_ANSWER: &str = "the target answers nothing any more; look at it, then try again";

/// What an operation was: each is counted by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A read.
    Read,
    /// A write.
    Write,
    /// A flush.
    Flush,
}

/// What was counted.
#[derive(Clone, Default)]
pub struct Counted {
    /// Of reads.
    pub read: Histogram,
    /// Of writes.
    pub write: Histogram,
    /// Of flushes.
    pub flush: Histogram,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    WarmUp,
    Measured,
    Over,
}

/// See the module. It is its workers' and of whoever measures.
pub struct Load {
    phase: Cell<Phase>,
    /// Workers that have not ended.
    working: Cell<u32>,
    failed: RefCell<Option<String>>,
    /// A worker has ended.
    changed: WaitList,
    /// Between two operations, if there is a rate, and when the next one is due.
    interval: Option<Duration>,
    due: Cell<Instant>,
    counted: RefCell<Counted>,
}

impl Load {
    /// One that offers so many operations per second; none: as many as there can be.
    pub fn new(rate: Option<u64>) -> Rc<Self> {
        Rc::new(Self {
            phase: Cell::new(Phase::WarmUp),
            working: Cell::new(0),
            failed: RefCell::default(),
            changed: WaitList::default(),
            interval: rate.map(|rate| Duration::from_secs_f64(1.0 / rate as f64)),
            due: Cell::new(now()),
            counted: RefCell::default(),
        })
    }

    /// Starts workers, which go on for as long as [`turn`](Self::turn) says. The first error of one ends the load.
    pub fn start<F: Future<Output = Result<(), String>> + 'static>(
        self: &Rc<Self>,
        workers: u32,
        work: impl Fn(u32) -> F,
    ) {
        self.working.set(self.working.get() + workers);
        for number in 0..workers {
            let (load, work) = (self.clone(), work(number));
            spawn(async move {
                if let Err(why) = work.await {
                    load.failed.borrow_mut().get_or_insert(why);
                }
                load.working.set(load.working.get() - 1);
                load.changed.wake_all();
            });
        }
    }

    /// Waits until a worker's next operation is due; false: there is none. At a rate, late ones are due at once.
    pub async fn turn(&self) -> bool {
        if let Some(interval) = self.interval
            && self.goes_on()
        {
            let due = self.due.replace(self.due.get() + interval);
            if due > now() {
                sleep_until(due).await;
            }
        }
        self.goes_on()
    }

    fn goes_on(&self) -> bool {
        self.phase.get() != Phase::Over && self.failed.borrow().is_none()
    }

    /// An operation that was begun at an instant has ended.
    pub fn count(&self, kind: Kind, begun: Instant) {
        if self.phase.get() != Phase::Measured {
            return;
        }
        let counted = &mut *self.counted.borrow_mut();
        let histogram = match kind {
            Kind::Read => &mut counted.read,
            Kind::Write => &mut counted.write,
            Kind::Flush => &mut counted.flush,
        };
        histogram.count(now().since(begun));
    }

    /// Counts nothing for so long, or until something fails.
    pub async fn warm_up(&self, time: Duration) {
        self.pass(time).await;
    }

    /// Counts for so long, or until something fails; the seconds that it was. Then no worker begins anything.
    pub async fn measure(&self, time: Duration) -> f64 {
        self.phase.set(Phase::Measured);
        let began = now();
        self.pass(time).await;
        self.phase.set(Phase::Over);
        now().since(began).as_secs_f64()
    }

    async fn pass(&self, time: Duration) {
        let failed = self.changed.until(|| self.failed.borrow().is_some().then_some(()));
        // That it has failed is told at the end.
        let _ = timeout(time, failed).await;
    }

    /// Waits for what is under way.
    ///
    /// # Errors
    /// The first of a worker, or that the target answers nothing any more.
    pub async fn end(&self) -> Result<Counted, String> {
        let is_over = || (self.working.get() == 0 || self.failed.borrow().is_some()).then_some(());
        let ended = timeout(ANSWER_MAX, self.changed.until(is_over)).await;
        if let Some(why) = self.failed.take() {
            return Err(why);
        }
        ended.map_err(|_| NO_ANSWER.to_owned())?;
        Ok(self.counted.take())
    }
}

impl Counted {
    /// Reads and writes as one.
    pub fn reads_and_writes(&self) -> Histogram {
        let mut all = self.read.clone();
        all.add(&self.write);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use runtime::sim::{NodeOptions, World};
    use runtime::sleep;

    const WORKERS: u32 = 4;
    const TAKES: Duration = Duration::from_millis(10);

    /// In virtual time: what workers count whose operations are writes and take that long, in a second after one of warming up.
    fn counted<F>(rate: Option<u64>, operation: impl Fn(u32) -> F + 'static) -> (f64, Result<Counted, String>)
    where
        F: Future<Output = Result<(), String>> + 'static,
    {
        let world = World::new(1);
        let node = world.add_node(1, NodeOptions::default());
        let run = async move {
            let load = Load::new(rate);
            let operation = Rc::new(operation);
            load.start(WORKERS, |worker| {
                let (load, operation) = (load.clone(), operation.clone());
                async move {
                    while load.turn().await {
                        let begun = now();
                        operation(worker).await?;
                        load.count(Kind::Write, begun);
                    }
                    Ok(())
                }
            });
            load.warm_up(Duration::from_secs(1)).await;
            let seconds = load.measure(Duration::from_secs(1)).await;
            (seconds, load.end().await)
        };
        world.run_on(&node, 0, run).expect("the load ends")
    }

    async fn takes(_worker: u32) -> Result<(), String> {
        sleep(TAKES).await;
        Ok(())
    }

    #[test]
    fn what_ends_in_the_measured_time_is_counted_and_nothing_else() {
        let (seconds, counted) = counted(None, takes);
        let Counted { read, write, flush } = counted.unwrap();
        assert!((1.0..1.001).contains(&seconds), "{seconds}");
        let expected = u64::from(WORKERS) * 100;
        assert!((expected - 8..=expected).contains(&write.operations()), "{}", write.operations());
        assert!((10_000.0..10_100.0).contains(&write.mean_us()), "{}", write.mean_us());
        assert_eq!((read.operations(), flush.operations()), (0, 0));
    }

    #[test]
    fn a_rate_is_kept_and_what_is_late_follows_at_once() {
        let writes = |rate, takes_ms: u64| {
            let operation = move |_| async move {
                sleep(Duration::from_millis(takes_ms)).await;
                Ok(())
            };
            counted(Some(rate), operation).1.unwrap().write.operations()
        };
        assert!((98..=102).contains(&writes(100, 10)), "{}", writes(100, 10));
        // Each worker ends ten in a second: four times that is all there can be.
        assert!((36..=44).contains(&writes(100, 100)), "{}", writes(100, 100));
    }

    #[test]
    fn the_first_error_ends_it_and_is_told() {
        let begun = Rc::new(Cell::new(0));
        let of_workers = begun.clone();
        let operation = move |worker| {
            let begun = of_workers.clone();
            async move {
                begun.set(begun.get() + 1);
                sleep(TAKES).await;
                if worker == 2 && begun.get() > 8 { Err("it is gone".to_owned()) } else { Ok(()) }
            }
        };
        let (seconds, counted) = counted(None, operation);
        assert_eq!(counted.err().as_deref(), Some("it is gone"));
        assert!(seconds < 0.1 && begun.get() <= 16, "{seconds} s and {} were begun", begun.get());
    }

    #[test]
    fn a_target_that_answers_nothing_any_more_is_not_waited_for_without_end() {
        let (_, counted) = counted(None, |_| std::future::pending());
        assert_eq!(counted.err().as_deref(), Some(NO_ANSWER));
    }

    #[test]
    fn reads_and_writes_are_told_as_one() {
        let mut counted = Counted::default();
        counted.read.count(TAKES);
        counted.write.count(3 * TAKES);
        counted.flush.count(9 * TAKES);
        let all = counted.reads_and_writes();
        assert_eq!((all.operations(), all.mean_us()), (2, 20_000.0));
    }
}
