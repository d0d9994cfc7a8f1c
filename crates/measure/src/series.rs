//! What a host sees of a failure: each of its I/Os, and what follows from them.
//!
//! ```text
//!   before ──▶ fault ──▶ noticed ──▶ mended ──▶ whole ──▶ after
//!              │  first read, first write: of those that were sent after the fault
//!              └─ longest silence: no answer to anything · longest wait: of one command
//! ```
//!
//! What did not come about has no time: it is never 0.

use serde::{Deserialize, Serialize};

/// Length of a step of a series.
pub const STEP_SECONDS: f64 = 0.1;

/// One I/O of a host, times since its load began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Io {
    /// When it was answered.
    pub at_us: u32,
    /// How long that took, retries on other paths included.
    pub latency_us: u32,
    /// Whether it wrote.
    pub writes: bool,
    /// Whether it ended with an error.
    pub failed: bool,
}

/// All that a load did.
#[derive(Clone, Debug, Default)]
pub struct Log {
    /// In the order of their answers.
    pub ios: Vec<Io>,
    /// Seconds until it ended.
    pub seconds: f64,
    /// How long each command had waited that had no answer when it ended, in seconds.
    pub unanswered: Vec<f64>,
}

/// The I/Os that were answered in one step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// When it began.
    pub at_seconds: f64,
    /// Answers without an error.
    pub ios: u64,
    /// Answers with one.
    pub errors: u64,
    /// 99 % of the answers took no longer; `null`: there was none.
    pub p99_us: Option<f64>,
    /// The longest; `null`: there was none.
    pub longest_us: Option<f64>,
}

/// Something that was done, or seen, at a time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Mark {
    /// When.
    pub at_seconds: f64,
    /// What.
    pub what: String,
}

/// The I/Os of a part of the time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Phase {
    /// How long it was.
    pub seconds: f64,
    /// Answers without an error.
    pub ios: u64,
    /// Answers with one.
    pub errors: u64,
    /// Answers without an error, per second.
    pub iops: f64,
    /// Median of these; `null`: there was none.
    pub p50_us: Option<f64>,
    /// 99 % took no longer.
    pub p99_us: Option<f64>,
    /// The longest.
    pub longest_us: Option<f64>,
}

/// The load that a host made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostLoad {
    /// What made it.
    pub generator: String,
    /// Bytes of one I/O.
    pub block_size_bytes: u64,
    /// Share of reads.
    pub read_percent: u8,
    /// Outstanding I/Os.
    pub depth: u32,
}

/// When things came about; `null`: not until the end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Times {
    /// The fault.
    pub fault_seconds: f64,
    /// Status said that something is wrong.
    pub noticed_seconds: Option<f64>,
    /// What had failed was put right, or given back.
    pub mended_seconds: Option<f64>,
    /// Status said that all copies are there again, after it had said that they are not.
    pub whole_seconds: Option<f64>,
}

/// What came of a failure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Failure {
    /// What failed.
    pub fault: String,
    /// What loaded the volume meanwhile.
    pub load: HostLoad,
    /// When what came about, since the load began.
    pub times: Times,
    /// How long the load went on.
    pub watched_seconds: f64,
    /// From the fault to the answer of the first read that was sent after it; `null`: none was answered.
    pub first_read_seconds: Option<f64>,
    /// The same of a write.
    pub first_write_seconds: Option<f64>,
    /// From the fault to full redundancy; `null`: not until the end, or status never said that it was lost.
    pub to_whole_seconds: Option<f64>,
    /// The longest time after the fault without an answer to any command.
    pub longest_silence_seconds: f64,
    /// The longest that one command waited that was answered after the fault, or never.
    pub longest_wait_seconds: f64,
    /// Commands without an answer when the load ended that had waited for a second or longer.
    pub unanswered: u64,
    /// Until the fault.
    pub before: Phase,
    /// From the fault until all copies are there again; or to the end.
    pub meanwhile: Phase,
    /// From then on; `null`: that never was.
    pub after: Option<Phase>,
    /// Length of a step of the series.
    pub step_seconds: f64,
    /// All of the time, step by step.
    pub series: Vec<Step>,
    /// What was done and seen.
    pub marks: Vec<Mark>,
}

/// Of a command that is under way for less than this nobody says that it has no answer.
const UNANSWERED_SECONDS: f64 = 1.0;

impl Io {
    fn at(&self) -> f64 {
        f64::from(self.at_us) / 1e6
    }

    fn sent(&self) -> f64 {
        (f64::from(self.at_us) - f64::from(self.latency_us)) / 1e6
    }
}

impl Failure {
    /// What follows from a log.
    pub fn new(fault: &str, load: HostLoad, times: Times, marks: Vec<Mark>, log: &Log) -> Self {
        let Times { fault_seconds, whole_seconds, .. } = times;
        let first = |writes: bool| {
            let its = log.ios.iter().filter(|io| io.writes == writes && !io.failed && io.sent() >= fault_seconds);
            its.map(|io| io.at() - fault_seconds).min_by(f64::total_cmp)
        };
        let until = whole_seconds.unwrap_or(log.seconds);
        let waits = log.ios.iter().filter(|io| io.at() >= fault_seconds).map(|io| f64::from(io.latency_us) / 1e6);
        Self {
            fault: fault.to_owned(),
            load,
            times,
            watched_seconds: log.seconds,
            first_read_seconds: first(false),
            first_write_seconds: first(true),
            to_whole_seconds: whole_seconds.map(|whole| whole - fault_seconds),
            longest_silence_seconds: silence(log, fault_seconds),
            longest_wait_seconds: waits.chain(log.unanswered.iter().copied()).fold(0.0, f64::max),
            unanswered: log.unanswered.iter().filter(|waited| **waited >= UNANSWERED_SECONDS).count() as u64,
            before: phase(log, 0.0, fault_seconds),
            meanwhile: phase(log, fault_seconds, until),
            after: whole_seconds.map(|whole| phase(log, whole, log.seconds)),
            step_seconds: STEP_SECONDS,
            series: series(log),
            marks,
        }
    }
}

/// The longest time from an instant on without an answer.
fn silence(log: &Log, from: f64) -> f64 {
    let (mut last, mut longest) = (from, 0.0_f64);
    for at in log.ios.iter().filter(|io| !io.failed).map(Io::at).filter(|at| *at >= from).chain([log.seconds]) {
        longest = longest.max(at - last);
        last = at;
    }
    longest
}

/// The least that so many percent do not exceed.
fn percentile(sorted: &[u32], percent: usize) -> Option<f64> {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).map(|us| f64::from(*us))
}

fn phase(log: &Log, from: f64, to: f64) -> Phase {
    let within = || log.ios.iter().filter(|io| (from..to).contains(&io.at()));
    let mut latencies: Vec<u32> = within().filter(|io| !io.failed).map(|io| io.latency_us).collect();
    latencies.sort_unstable();
    let seconds = (to - from).max(0.0);
    let ios = latencies.len() as u64;
    Phase {
        seconds,
        ios,
        errors: within().filter(|io| io.failed).count() as u64,
        iops: if seconds > 0.0 { ios as f64 / seconds } else { 0.0 },
        p50_us: percentile(&latencies, 50),
        p99_us: percentile(&latencies, 99),
        longest_us: latencies.last().map(|us| f64::from(*us)),
    }
}

/// Every step there was, those without an answer too.
fn series(log: &Log) -> Vec<Step> {
    let count = (log.seconds / STEP_SECONDS).ceil() as usize;
    let mut steps: Vec<(Vec<u32>, u64)> = vec![Default::default(); count];
    for io in &log.ios {
        // What was answered while the load ended belongs to the last.
        let at = ((io.at() / STEP_SECONDS) as usize).min(count.saturating_sub(1));
        let Some((latencies, errors)) = steps.get_mut(at) else { continue };
        if io.failed {
            *errors += 1;
        } else {
            latencies.push(io.latency_us);
        }
    }
    let step = |(index, (mut latencies, errors)): (usize, (Vec<u32>, u64))| {
        latencies.sort_unstable();
        Step {
            at_seconds: (index as f64 * STEP_SECONDS * 1e6).round() / 1e6,
            ios: latencies.len() as u64,
            errors,
            p99_us: percentile(&latencies, 99),
            longest_us: latencies.last().map(|us| f64::from(*us)),
        }
    };
    steps.into_iter().enumerate().map(step).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn io(at_ms: u32, latency_ms: u32, writes: bool) -> Io {
        Io { at_us: at_ms * 1000, latency_us: latency_ms * 1000, writes, failed: false }
    }

    fn load() -> HostLoad {
        HostLoad { generator: "test".to_owned(), block_size_bytes: 4096, read_percent: 50, depth: 2 }
    }

    /// Reads and writes each 10 ms, of which each takes 1 ms; nothing from 1.0 to 3.0 s, then again until 5.0 s.
    fn interrupted() -> Log {
        let mut ios = Vec::new();
        for at in (10..1000).step_by(10).chain((3010..5000).step_by(10)) {
            ios.push(io(at, 1, at % 20 == 0));
        }
        // Sent before the fault and answered after it: no sign that anybody serves.
        ios.push(Io { failed: false, ..io(1100, 200, false) });
        // It waited for all of the silence.
        ios.push(io(3000, 1990, true));
        ios.sort_by_key(|io| io.at_us);
        Log { ios, seconds: 5.0, unanswered: Vec::new() }
    }

    fn times(whole_seconds: Option<f64>) -> Times {
        Times { fault_seconds: 1.0, noticed_seconds: Some(1.5), mended_seconds: Some(2.0), whole_seconds }
    }

    fn near(a: Option<f64>, b: f64) {
        assert!((a.unwrap() - b).abs() < 1e-6, "{a:?} is not {b}");
    }

    #[test]
    fn the_first_io_is_one_that_was_sent_after_the_fault() {
        let failure = Failure::new("x", load(), times(Some(4.0)), Vec::new(), &interrupted());
        near(failure.first_read_seconds, 2.01);
        near(failure.first_write_seconds, 2.0);
        near(failure.to_whole_seconds, 3.0);
        near(Some(failure.longest_wait_seconds), 1.99);
        near(Some(failure.longest_silence_seconds), 1.9);
        assert_eq!(failure.before.ios, 99);
        near(failure.before.p99_us, 1000.0);
        near(failure.after.unwrap().p99_us, 1000.0);
        near(failure.meanwhile.longest_us, 1_990_000.0);
    }

    #[test]
    fn what_never_came_about_has_no_time() {
        let mut log = interrupted();
        log.ios.retain(|io| io.at_us < 1_000_000);
        log.unanswered = vec![4.0, 0.5];
        let failure = Failure::new("x", load(), times(None), Vec::new(), &log);
        assert_eq!(
            (failure.first_read_seconds, failure.first_write_seconds, failure.to_whole_seconds, failure.after.clone()),
            (None, None, None, None)
        );
        assert_eq!((failure.meanwhile.ios, failure.meanwhile.p99_us), (0, None));
        assert_eq!((failure.unanswered, failure.longest_wait_seconds, failure.longest_silence_seconds), (1, 4.0, 4.0));
        let json = serde_json::to_value(&failure).unwrap();
        assert!(json["to_whole_seconds"].is_null() && json["times"]["whole_seconds"].is_null());
    }

    #[test]
    fn an_error_is_no_answer() {
        let mut log = interrupted();
        log.ios.iter_mut().filter(|io| io.writes && io.at_us > 1_000_000).for_each(|io| io.failed = true);
        let failure = Failure::new("x", load(), times(Some(4.0)), Vec::new(), &log);
        assert_eq!(failure.first_write_seconds, None);
        assert!(failure.meanwhile.errors > 0 && failure.before.errors == 0);
    }

    #[test]
    fn every_step_is_there_and_no_io_is_lost() {
        let log = interrupted();
        let steps = series(&log);
        assert_eq!(steps.len(), 50);
        assert_eq!(steps.iter().map(|step| step.ios).sum::<u64>(), log.ios.len() as u64);
        let silent = &steps[20];
        assert_eq!((silent.ios, silent.p99_us, silent.longest_us), (0, None, None));
        near(Some(silent.at_seconds), 2.0);
        assert!(series(&Log::default()).is_empty());
    }

    #[test]
    fn percentiles_are_of_those_that_are_there() {
        let hundred: Vec<u32> = (1..=100).collect();
        assert_eq!((percentile(&hundred, 50), percentile(&hundred, 99)), (Some(50.0), Some(99.0)));
        assert_eq!((percentile(&[7], 50), percentile(&[], 99)), (Some(7.0), None));
    }
}
