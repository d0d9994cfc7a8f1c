//! A device that does not answer is noticed: slow after two seconds, given up after thirty.
//!
//! No timer per operation and no clock: time passes in ticks, each operation counts in the tick it began in, and the
//! oldest tick that still counts one tells how long the oldest operation has been under way. Without one nothing ticks.

use super::ShardCore;
use super::trouble::Trouble;
use runtime::channel::WaitList;
use runtime::{Instant, now, sleep};
use std::cell::Cell;
use std::fmt;
use std::rc::Rc;
use std::time::Duration;
use types::{Mutant, mutant};

/// How exactly time is told: a quarter of the shortest that is asked for.
const TICK: Duration = Duration::from_millis(500);
/// An append or a read that takes longer makes the device slow.
pub const APPEND_SLOW: Duration = Duration::from_secs(2);
/// A device that leaves an operation unanswered for so long has failed.
pub const DEVICE_SILENT: Duration = Duration::from_secs(30);
/// A device that was slow counts as slow for this long, so that one that stutters is not told as a new one each time.
const SLOW_REMEMBERED: Duration = Duration::from_secs(60);
/// Ticks that are told apart: those up to the end of a silent device, and more than one besides.
const TICKS: usize = 64;
const _: () = assert!(DEVICE_SILENT.as_millis() / TICK.as_millis() + 2 < TICKS as u128);

const SLOW_TICKS: u32 = (APPEND_SLOW.as_millis() / TICK.as_millis()) as u32;
const SILENT_TICKS: u32 = (DEVICE_SILENT.as_millis() / TICK.as_millis()) as u32;

/// What is asked of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// A write or a flush of the log.
    Append,
    /// A read.
    Read,
}

impl fmt::Display for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Append => "an append",
            Self::Read => "a read",
        })
    }
}

/// What takes too long, and how long it has by now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slow {
    /// What was asked.
    pub what: Asked,
    /// So far.
    pub took: Duration,
}

/// Operations under way, by the tick they began in.
struct Ring([Cell<u32>; TICKS]);

impl Default for Ring {
    fn default() -> Self {
        Self([const { Cell::new(0) }; TICKS])
    }
}

impl Ring {
    fn add(&self, tick: u32, count: i32) {
        let cell = &self.0[tick as usize % TICKS];
        cell.set(cell.get().wrapping_add_signed(count));
    }

    /// Whole ticks that the oldest has been under way.
    fn oldest(&self, now: u32) -> Option<u32> {
        (0..TICKS as u32).rev().find(|age| self.0[now.wrapping_sub(*age) as usize % TICKS].get() > 0)
    }
}

/// See the module.
#[derive(Default)]
pub(crate) struct Watchdog {
    tick: Cell<u32>,
    appends: Ring,
    reads: Ring,
    /// Whether time passes.
    awake: Cell<bool>,
    woken: WaitList,
    /// When the device was last seen slow, and what had taken how long then.
    slow: Cell<Option<(Instant, Slow)>>,
}

/// An operation under way.
pub(crate) struct UnderWay<'a> {
    ring: &'a Ring,
    tick: u32,
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.ring.add(self.tick, -1);
    }
}

impl Watchdog {
    /// Watches an operation until the answer is dropped.
    pub(crate) fn begin(&self, what: Asked) -> UnderWay<'_> {
        let ring = if what == Asked::Append { &self.appends } else { &self.reads };
        let tick = self.tick.get();
        ring.add(tick, 1);
        if !self.awake.replace(true) {
            self.woken.wake_all();
        }
        UnderWay { ring, tick }
    }

    /// What took too long, if that is not long ago.
    pub(crate) fn slow(&self) -> Option<Slow> {
        let (seen, slow) = self.slow.get()?;
        (now().since(seen) < SLOW_REMEMBERED).then_some(slow)
    }

    /// When that was seen last.
    pub(crate) fn slow_at(&self) -> Option<Instant> {
        self.slow.get().map(|(seen, _)| seen)
    }

    pub(crate) fn wake(&self) {
        self.woken.wake_all();
    }

    /// One tick, which ends now. Returns what has been silent for too long.
    fn tick(&self, now: Instant) -> Option<Asked> {
        let tick = self.tick.get().wrapping_add(1);
        self.tick.set(tick);
        // An operation of the tick that just began has had no time yet: one of `age` has had at least `age - 1` ticks.
        let (append, read) = (self.appends.oldest(tick), self.reads.oldest(tick));
        let read_heard = read.filter(|_| !mutant(Mutant::SlowReadsUnseen));
        // Of both as old it is the append.
        let heard = [(Asked::Read, read_heard), (Asked::Append, append)];
        let late = heard.into_iter().filter_map(|(what, age)| Some((what, age.filter(|age| *age > SLOW_TICKS)?)));
        if let Some((what, age)) = late.max_by_key(|(_, age)| *age) {
            self.slow.set(Some((now, Slow { what, took: TICK * (age - 1) })));
        }
        self.awake.set(append.is_some() || read.is_some());
        let silent = |age: Option<u32>| age.is_some_and(|age| age > SILENT_TICKS);
        match (silent(append), silent(read)) {
            (true, _) => Some(Asked::Append),
            (false, true) => Some(Asked::Read),
            (false, false) => None,
        }
    }
}

/// Lets time pass while something is under way, for as long as the shard lives.
pub(crate) async fn run_watchdog(core: Rc<ShardCore>) {
    let dog = &core.watchdog;
    while core.until(&dog.woken, || dog.awake.get().then_some(())).await.is_some() {
        sleep(TICK).await;
        if core.check_open().is_err() {
            return;
        }
        let was_slow = dog.slow().is_some();
        if let Some(silent) = dog.tick(now()) {
            return core.fail(&format!("{silent} was not answered for {} s", DEVICE_SILENT.as_secs()));
        }
        if let Some(slow) = dog.slow().filter(|_| !was_slow) {
            core.troubles.tell(Trouble::Slow(slow));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant(1);

    #[test]
    fn the_oldest_operation_tells_how_long_it_has_been_under_way() {
        let dog = Watchdog::default();
        let first = dog.begin(Asked::Read);
        for tick in 1..=20 {
            let short = dog.begin(Asked::Append);
            drop(short);
            assert_eq!((dog.tick(NOW), dog.reads.oldest(dog.tick.get())), (None, Some(tick)));
        }
        let second = dog.begin(Asked::Read);
        dog.tick(NOW);
        drop(first);
        assert_eq!(dog.reads.oldest(dog.tick.get()), Some(1));
        assert!(dog.awake.get());
        drop(second);
        dog.tick(NOW);
        assert!(!dog.awake.get(), "nothing is under way: time stands still");
    }

    #[test]
    fn what_is_silent_for_thirty_seconds_is_named() {
        let dog = Watchdog::default();
        let _read = dog.begin(Asked::Read);
        for _ in 0..SILENT_TICKS {
            assert_eq!(dog.tick(NOW), None);
        }
        assert_eq!(dog.tick(NOW), Some(Asked::Read));
    }
}
