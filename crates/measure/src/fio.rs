//! fio, the load generator of record: its jobs, its runs, and what it says of them.

use crate::MeasureError;
use crate::profile::Case;
use crate::target::Door;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// What of the latencies fio is asked for.
const PERCENTILES: &str = "50:90:99:99.9";
/// What fio may take beyond its time: to open targets, and to end I/O that is under way.
const GRACE: Duration = Duration::from_secs(120);
/// What is slower than this is not waited for.
const FILL_BYTES_PER_SECOND_MIN: u64 = 4 << 20;
/// How often a run is looked at.
const LOOK: Duration = Duration::from_millis(20);
/// Buckets of a kept histogram per doubling of the latency.
const BUCKETS_PER_DOUBLING: f64 = 4.0;

/// The fio of this machine.
#[derive(Clone, Debug)]
pub struct Fio {
    program: PathBuf,
    /// `fio-3.33`.
    pub version: String,
    engines: Vec<String>,
}

/// How long a case is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// Before anything is counted.
    pub warm_up: Duration,
    /// While it is.
    pub measured: Duration,
}

#[cfg(test)]
impl Fio {
    /// One that is never run.
    pub(crate) fn none() -> Self {
        Self { program: "fio".into(), version: "fio-3.33".to_owned(), engines: Vec::new() }
    }
}

impl Fio {
    /// Asks this program what it is and which engines it has.
    ///
    /// # Errors
    /// If it is not there.
    pub fn find(program: &Path) -> Result<Self, MeasureError> {
        let ask = |argument: &str| {
            let answer = Command::new(program).arg(argument).stdin(Stdio::null()).output();
            let answer = answer.map_err(|error| {
                MeasureError::Fio(format!(
                    "cannot run {} ({error}): fio makes the load; install it (apt install fio), or name it with --fio",
                    program.display()
                ))
            })?;
            Ok(String::from_utf8_lossy(&answer.stdout).into_owned())
        };
        let version = ask("--version")?.trim().to_owned();
        if !version.starts_with("fio-") {
            return Err(MeasureError::Fio(format!("{} is no fio: its version is '{version}'", program.display())));
        }
        let engines = ask("--enghelp")?.lines().skip(1).map(|line| line.trim().to_owned()).collect();
        Ok(Self { program: program.to_owned(), version, engines })
    }

    /// Whether it can reach this.
    ///
    /// # Errors
    /// If it has no such engine: what to do.
    pub fn check(&self, door: &Door) -> Result<(), MeasureError> {
        if let Some(object) = door.object() {
            return if object.exists() { Ok(()) } else { Err(MeasureError::Fio(without(door, object))) };
        }
        let engine = door.engine();
        if self.engines.iter().any(|has| has == engine) {
            return Ok(());
        }
        Err(MeasureError::Fio(format!(
            "this {} ({}) has no engine '{engine}': install a fio that was built with it (Debian's is; elsewhere a package \
             fio-engine-{engine} may bring it), or name one with --fio; `fio --enghelp` lists those it has",
            self.version,
            self.program.display(),
        )))
    }

    /// Starts a job whose files lie in `directory`.
    ///
    /// # Errors
    /// If fio does not start, or the directory cannot be written to.
    pub fn start(&self, directory: &Path, job: &str, doors: &[Door]) -> Result<Running, MeasureError> {
        let [job_file, output, errors] = ["job.fio", "fio.json", "fio.err"].map(|name| directory.join(name));
        let failed = |error: std::io::Error| MeasureError::Fio(format!("{}: {error}", directory.display()));
        fs::write(&job_file, job).map_err(failed)?;
        let _ = fs::remove_file(&output);
        let stderr = File::create(&errors).map_err(failed)?;
        let child = Command::new(&self.program)
            .args(["--output-format=json+", "--eta=never"])
            .arg(format!("--output={}", output.display()))
            .arg(&job_file)
            .envs(doors.iter().filter_map(Door::environment))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(stderr)
            .spawn()
            .map_err(failed)?;
        Ok(Running { child, output, errors })
    }
}

/// That an engine is not there, and where it comes from.
fn without(door: &Door, object: &Path) -> String {
    let how = match door {
        Door::Vitastor { .. } => {
            "Vitastor's package vitastor-fio brings it for the fio of its distribution; where it lies elsewhere, name it: \
             vitastor:IMAGE?engine=FILE.so"
        }
        _ => {
            "`make libcairn-fio` builds it for the fio of this machine, and CAIRN_FIO_ENGINE says where it is, if not beside this \
             program"
        }
    };
    format!("fio's engine {} is not there: {how}", object.display())
}

/// A fio that runs; it is ended when this is dropped.
pub struct Running {
    child: Child,
    output: PathBuf,
    errors: PathBuf,
}

impl Running {
    /// Its process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits for an instant, or for fio's end if that comes first. Returns whether fio still runs.
    ///
    /// # Errors
    /// If the child cannot be waited for.
    pub fn runs_until(&mut self, instant: Instant) -> Result<bool, MeasureError> {
        while Instant::now() < instant {
            if self.status()?.is_some() {
                return Ok(false);
            }
            thread::sleep(LOOK.min(instant.saturating_duration_since(Instant::now())));
        }
        Ok(true)
    }

    /// Waits for the result.
    ///
    /// # Errors
    /// If fio fails, or does not end by `deadline`.
    pub fn result(mut self, deadline: Instant) -> Result<FioResult, MeasureError> {
        let status = loop {
            if let Some(status) = self.status()? {
                break status;
            }
            if Instant::now() > deadline {
                return Err(MeasureError::Fio(
                    "fio does not end: the target answers nothing any more; look at it, then try again".to_owned(),
                ));
            }
            thread::sleep(LOOK);
        };
        let text = fs::read_to_string(&self.output).unwrap_or_default();
        let said = fs::read_to_string(&self.errors).unwrap_or_default();
        let parsed = parse(&text);
        match parsed {
            Ok(result) if status.success() => Ok(result),
            Err(error) if status.success() => Err(error),
            _ => {
                // What it complains of comes on either way out, before the JSON.
                let before = text.split('{').next().unwrap_or_default();
                let lines: Vec<&str> =
                    said.lines().chain(before.lines()).map(str::trim).filter(|l| !l.is_empty()).collect();
                let why = if lines.is_empty() { "it says nothing" } else { &lines[..lines.len().min(3)].join("; ") };
                Err(MeasureError::Fio(format!("fio failed ({status}): {why}")))
            }
        }
    }

    fn status(&mut self) -> Result<Option<ExitStatus>, MeasureError> {
        self.child.try_wait().map_err(|error| MeasureError::Fio(format!("cannot wait for fio: {error}")))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !matches!(self.child.try_wait(), Ok(Some(_))) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// A job that writes all of the span of each door once. `lines`: what else is told to fio.
pub fn fill_job(doors: &[Door], span_bytes: u64, lines: &[String]) -> String {
    let mut job = format!(
        "[global]\nrw=write\nbs=1M\niodepth=8\nsize={span_bytes}\nend_fsync=1\nrefill_buffers=1\ngroup_reporting=1\n"
    );
    lines.iter().for_each(|line| job += &format!("{line}\n"));
    sections(&mut job, doors);
    job
}

/// When a fill must have ended that begins now.
pub fn fill_deadline(doors: usize, span_bytes: u64) -> Instant {
    Instant::now() + GRACE + Duration::from_secs(doors as u64 * span_bytes / FILL_BYTES_PER_SECOND_MIN)
}

/// What a load generator is asked for.
#[derive(Clone, Debug)]
pub struct Ask {
    /// The load.
    pub case: Case,
    /// Bytes of each target that it goes to.
    pub span_bytes: u64,
    /// How long.
    pub times: Times,
    /// Of what is drawn. Another one for each repeat, or each would do the same again; the same for all contestants of it.
    pub seed: u64,
    /// I/Os per second of all jobs together; none: as many as there can be.
    pub rate: Option<u64>,
}

/// What each of so many jobs offers in a second of a rate: reads, and writes.
pub fn shares(rate: u64, jobs: u64, read_percent: u8) -> (u64, u64) {
    let of = |percent: u64| match percent {
        0 => 0,
        percent => ((rate * percent + jobs * 50) / (jobs * 100)).max(1),
    };
    (of(read_percent.into()), of(100 - u64::from(read_percent)))
}

/// A job that does what is asked at all doors at once. `lines`: what else is told to fio.
pub fn case_job(ask: &Ask, doors: &[Door], lines: &[String]) -> String {
    let Ask { case, span_bytes, times, seed, rate } = ask;
    let rw = match (case.random_percent > 0, case.read_percent) {
        (false, 0) => "write",
        (false, 100) => "read",
        (false, _) => "rw",
        (true, 0) => "randwrite",
        (true, 100) => "randread",
        (true, _) => "randrw",
    };
    let mut job = format!(
        "[global]\nrw={rw}\nbs={}\niodepth={}\nnumjobs={}\ntime_based=1\nruntime={}ms\nramp_time={}ms\ngroup_reporting=1\n\
         norandommap=1\nrandrepeat=0\nrandseed={seed}\nlat_percentiles=1\npercentile_list={PERCENTILES}\n",
        case.block_size_bytes,
        case.depth,
        case.jobs,
        times.measured.as_millis(),
        times.warm_up.as_millis(),
    );
    let mut line = |text: String| job += &(text + "\n");
    if !matches!(case.read_percent, 0 | 100) {
        line(format!("rwmixread={}", case.read_percent));
    }
    if !matches!(case.random_percent, 0 | 100) {
        line(format!("percentage_random={}", case.random_percent));
    }
    if case.fsync {
        line("fsync=1".to_owned());
    }
    if let Some(rate) = rate {
        let (reads, writes) = shares(*rate, u64::from(case.jobs) * doors.len() as u64, case.read_percent);
        line(match (reads, writes) {
            (0, only) | (only, 0) => format!("rate_iops={only}"),
            (reads, writes) => format!("rate_iops={reads},{writes}"),
        });
    }
    // Jobs that go through the span in order do not go over the same blocks one after the other.
    let is_divided = case.random_percent < 100 && case.jobs > 1;
    let share = if is_divided {
        span_bytes / u64::from(case.jobs) / case.block_size_bytes * case.block_size_bytes
    } else {
        *span_bytes
    };
    line(format!("size={share}"));
    if is_divided {
        line(format!("offset_increment={share}"));
    }
    lines.iter().for_each(|text| line(text.clone()));
    sections(&mut job, doors);
    job
}

/// When a case must have ended that begins now: what is under way at its end is waited for.
pub fn case_deadline(ask: &Ask, doors: usize) -> Instant {
    let Ask { case, times, .. } = ask;
    let under_way = case.block_size_bytes * u64::from(case.depth * case.jobs) * doors as u64;
    Instant::now() + times.warm_up + times.measured + GRACE + Duration::from_secs(under_way / FILL_BYTES_PER_SECOND_MIN)
}

fn sections(job: &mut String, doors: &[Door]) {
    for (index, door) in doors.iter().enumerate() {
        let _ = writeln!(job, "[target-{index}]");
        for line in door.job_lines() {
            let _ = writeln!(job, "{line}");
        }
    }
}

/// Latencies of I/Os, from submission to completion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Mean, µs.
    pub mean_us: f64,
    /// Median, µs.
    pub p50_us: f64,
    /// 90 % took no longer, µs.
    pub p90_us: f64,
    /// 99 % took no longer, µs.
    pub p99_us: f64,
    /// 99.9 % took no longer, µs.
    pub p999_us: f64,
    /// The slowest, µs.
    pub max_us: f64,
}

/// I/Os that took up to so long, and longer than the bucket before says.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bucket {
    /// µs.
    pub up_to_us: f64,
    /// How many.
    pub ios: u64,
}

/// I/Os of one direction, or of both.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Flow {
    /// I/Os per second.
    pub iops: f64,
    /// MiB per second.
    pub mib_per_second: f64,
    /// I/Os that were measured.
    pub ios: u64,
    /// Their latencies.
    pub latency: Latency,
    /// How these are spread, four buckets per doubling.
    pub histogram: Vec<Bucket>,
}

/// What fio says of one run.
#[derive(Clone, Debug, PartialEq)]
pub struct FioResult {
    /// All I/Os.
    pub all: Flow,
    /// Reads, if any.
    pub read: Option<Flow>,
    /// Writes, if any.
    pub write: Option<Flow>,
    /// The flushes after writes, if any.
    pub sync: Option<Latency>,
}

#[derive(Deserialize)]
struct Output {
    jobs: Vec<Job>,
}

#[derive(Deserialize)]
struct Job {
    jobname: String,
    #[serde(default)]
    error: i64,
    read: Way,
    write: Way,
    #[serde(default)]
    sync: Option<Sync>,
}

/// I/Os of one direction, as fio tells them.
#[derive(Deserialize)]
pub(crate) struct Way {
    pub(crate) bw_bytes: f64,
    pub(crate) iops: f64,
    pub(crate) total_ios: u64,
    pub(crate) lat_ns: Nanoseconds,
}

#[derive(Deserialize)]
struct Sync {
    lat_ns: Nanoseconds,
}

/// Latencies, as fio tells them.
#[derive(Default, Deserialize)]
pub(crate) struct Nanoseconds {
    #[serde(default)]
    pub(crate) max: f64,
    #[serde(default)]
    pub(crate) mean: f64,
    #[serde(default, rename = "N")]
    pub(crate) count: u64,
    /// I/Os by their latency, as a decimal number.
    #[serde(default)]
    pub(crate) bins: BTreeMap<String, u64>,
}

/// Reads what `--output-format=json+` gives.
///
/// # Errors
/// If it is not that, or fio says that a job failed.
pub fn parse(text: &str) -> Result<FioResult, MeasureError> {
    // Warnings come before the JSON in the same file.
    let json = text.find('{').map_or("", |at| &text[at..]);
    let output: Output = serde_json::from_str(json)
        .map_err(|error| MeasureError::Fio(format!("fio's result is not as fio 3 writes it ({error}): update fio")))?;
    if let Some(job) = output.jobs.iter().find(|job| job.error != 0) {
        let error = std::io::Error::from_raw_os_error(job.error as i32);
        return Err(MeasureError::Fio(format!("fio's job {} failed: {error}", job.jobname)));
    }
    // Jobs of one group are reported as one; more than one is what a fio without groups would do.
    let flow = |of: &[fn(&Job) -> &Way]| {
        let ways: Vec<&Way> = output.jobs.iter().flat_map(|job| of.iter().map(move |way| way(job))).collect();
        flow_of(&ways)
    };
    let read: fn(&Job) -> &Way = |job| &job.read;
    let write: fn(&Job) -> &Way = |job| &job.write;
    let all = flow(&[read, write]);
    if all.ios == 0 {
        return Err(MeasureError::Fio(
            "no I/O ended while it was measured: the target does not answer, or the time is too short (--seconds)"
                .to_owned(),
        ));
    }
    let some = |flow: Flow| (flow.ios > 0).then_some(flow);
    let syncs: Vec<&Nanoseconds> = output.jobs.iter().filter_map(|job| Some(&job.sync.as_ref()?.lat_ns)).collect();
    let sync = (syncs.iter().map(|lat| lat.count).sum::<u64>() > 0).then(|| latency_of(&syncs).0);
    Ok(FioResult { read: some(flow(&[read])), write: some(flow(&[write])), all, sync })
}

/// All of these together.
pub(crate) fn flow_of(ways: &[&Way]) -> Flow {
    let latencies: Vec<&Nanoseconds> = ways.iter().map(|way| &way.lat_ns).collect();
    let (latency, histogram) = latency_of(&latencies);
    Flow {
        iops: ways.iter().map(|way| way.iops).sum(),
        mib_per_second: ways.iter().map(|way| way.bw_bytes).sum::<f64>() / f64::from(1 << 20),
        ios: ways.iter().map(|way| way.total_ios).sum(),
        latency,
        histogram,
    }
}

/// Percentiles of several distributions together: from their bins, which is how fio computes those of one.
pub(crate) fn latency_of(parts: &[&Nanoseconds]) -> (Latency, Vec<Bucket>) {
    let mut bins: BTreeMap<u64, u64> = BTreeMap::new();
    for (nanoseconds, ios) in parts.iter().flat_map(|part| &part.bins) {
        if let Ok(nanoseconds) = nanoseconds.parse() {
            *bins.entry(nanoseconds).or_default() += ios;
        }
    }
    let count: u64 = bins.values().sum();
    let percentile = |percent: f64| {
        let rank = (count as f64 * percent / 100.0).ceil() as u64;
        let mut seen = 0;
        let mut reached = |ios: &u64| {
            seen += ios;
            seen >= rank
        };
        bins.iter().find(|(_, ios)| reached(ios)).map_or(0.0, |(nanoseconds, _)| *nanoseconds as f64 / 1e3)
    };
    let total: u64 = parts.iter().map(|part| part.count).sum();
    let sum: f64 = parts.iter().map(|part| part.mean * part.count as f64).sum();
    let latency = Latency {
        mean_us: if total == 0 { 0.0 } else { sum / total as f64 / 1e3 },
        p50_us: percentile(50.0),
        p90_us: percentile(90.0),
        p99_us: percentile(99.0),
        p999_us: percentile(99.9),
        max_us: parts.iter().map(|part| part.max).fold(0.0, f64::max) / 1e3,
    };
    let mut histogram: BTreeMap<i32, u64> = BTreeMap::new();
    for (nanoseconds, ios) in &bins {
        let doublings = (*nanoseconds as f64 / 1e3).max(f64::MIN_POSITIVE).log2();
        *histogram.entry((doublings * BUCKETS_PER_DOUBLING).ceil() as i32).or_default() += ios;
    }
    let bucket = |(step, ios)| Bucket { up_to_us: (f64::from(step) / BUCKETS_PER_DOUBLING).exp2(), ios };
    (latency, histogram.into_iter().map(bucket).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Profile;

    /// What fio 3.33 said of a mix of 70/30, 4 KiB at depth 8 on a file, for one second.
    const MIXED: &str = include_str!("../tests/mixed.json");

    fn near(a: f64, b: f64) -> bool {
        (a - b).abs() <= b * 0.001
    }

    #[test]
    fn a_real_result_is_read() {
        let result = parse(MIXED).unwrap();
        let (read, write) = (result.read.unwrap(), result.write.unwrap());
        assert_eq!((read.ios, write.ios, result.all.ios), (24_880, 10_666, 35_546));
        assert!(near(read.iops, 24_855.14) && near(write.iops, 10_655.34) && near(result.all.iops, 35_510.49));
        assert!(near(read.mib_per_second, 97.11) && near(write.latency.mean_us, 278.95));
        assert!(near(result.all.latency.max_us, 24_132.2), "{:?}", result.all.latency);
        assert!(result.sync.is_none());
    }

    #[test]
    fn percentiles_from_bins_are_those_that_fio_prints() {
        let Latency { p50_us, p90_us, p99_us, p999_us, .. } = parse(MIXED).unwrap().read.unwrap().latency;
        for (ours, fios) in [(p50_us, 108.032), (p90_us, 125.44), (p99_us, 3_981.312), (p999_us, 8_290.304)] {
            assert!(near(ours, fios), "{ours} is not {fios}");
        }
    }

    #[test]
    fn the_histogram_loses_no_io() {
        let all = parse(MIXED).unwrap().all;
        let counted: u64 = all.histogram.iter().map(|bucket| bucket.ios).sum();
        // fio measures a few I/Os that it does not count, those that began in the warm-up.
        assert!(counted >= all.ios && counted - all.ios < 100, "{counted} {}", all.ios);
        assert!(all.histogram.windows(2).all(|pair| pair[0].up_to_us < pair[1].up_to_us));
    }

    #[test]
    fn warnings_before_the_json_do_no_harm_and_a_cut_result_is_an_error() {
        assert!(parse(&format!("fio: this is only a warning\n{MIXED}")).is_ok());
        assert!(parse(&MIXED[..MIXED.len() / 2]).is_err());
        assert!(parse("").is_err());
    }

    #[test]
    fn a_job_that_failed_is_an_error() {
        let failed = MIXED.replacen("\"error\" : 0", "\"error\" : 5", 1);
        assert_ne!(failed, MIXED);
        assert!(parse(&failed).unwrap_err().to_string().contains("Input/output error"));
    }

    #[test]
    fn a_job_says_what_the_case_says() {
        let door = Door::Nbd { uri: "nbd://h:1/x".to_owned() };
        let times = Times { warm_up: Duration::from_secs(2), measured: Duration::from_millis(1500) };
        let cases = Profile::named("mix").unwrap().cases(false);
        let ask = |case: &Case, span_bytes| Ask { case: case.clone(), span_bytes, times, seed: 7, rate: None };
        let lines = ["buffer_compress_percentage=50".to_owned()];
        let job = case_job(&ask(&cases[2], 1 << 30), std::slice::from_ref(&door), &lines);
        for line in [
            "rw=randrw",
            "bs=8192",
            "iodepth=64",
            "rwmixread=80",
            "percentage_random=80",
            "runtime=1500ms",
            "ramp_time=2000ms",
            "uri=nbd://h:1/x",
            "ioengine=nbd",
            "size=1073741824",
            "buffer_compress_percentage=50",
        ] {
            assert!(job.lines().any(|has| has == line), "{line} is not in\n{job}");
        }
        let mut case = cases[1].clone();
        (case.jobs, case.random_percent) = (3, 0);
        let job = case_job(&ask(&case, 3 << 30), &[door.clone(), door], &[]);
        assert!(job.contains("offset_increment=1073741824\n") && job.contains("[target-1]"), "{job}");
        assert!(!job.contains("rate_iops"), "{job}");
    }

    fn asked(case: usize, seed: u64, rate: Option<u64>) -> String {
        let times = Times { warm_up: Duration::ZERO, measured: Duration::from_secs(1) };
        let case = Profile::named("mix").unwrap().cases(false)[case].clone();
        let door = || Door::Nbd { uri: "nbd://h:1/x".to_owned() };
        case_job(&Ask { case, span_bytes: 1 << 30, times, seed, rate }, &[door(), door()], &[])
    }

    #[test]
    fn no_repeat_does_what_another_has_done() {
        let (one, again, other) = (asked(0, 1, None), asked(0, 1, None), asked(0, 2, None));
        assert_eq!(one, again, "contestants of a repeat are asked for the same");
        assert_ne!(one, other);
        for (job, seed) in [(&one, "randseed=1"), (&other, "randseed=2")] {
            assert!(job.lines().any(|line| line == "randrepeat=0") && job.lines().any(|line| line == seed), "{job}");
        }
    }

    #[test]
    fn an_offered_load_is_divided_among_jobs_and_directions() {
        let line = |case, rate| asked(case, 1, rate).lines().find(|line| line.starts_with("rate")).map(str::to_owned);
        // Two doors, a job each.
        assert_eq!(line(0, Some(1000)).as_deref(), Some("rate_iops=500"));
        assert_eq!(line(2, Some(1000)).as_deref(), Some("rate_iops=400,100"));
        assert_eq!(line(2, None), None);
        assert_eq!((shares(100, 3, 100), shares(1, 4, 50), shares(7, 1, 0)), ((33, 0), (1, 1), (0, 7)));
    }

    #[test]
    fn an_engine_that_is_not_there_is_told_with_where_it_comes_from() {
        let fio = Fio::none();
        let vitastor =
            |engine: &str| Door::Vitastor { image: "i".into(), etcd: None, conf: None, engine: engine.into() };
        let said = fio.check(&vitastor("/nowhere/libfio_vitastor.so")).unwrap_err().to_string();
        assert!(said.contains("/nowhere/libfio_vitastor.so") && said.contains("vitastor-fio"), "{said}");
        assert!(fio.check(&vitastor("/proc/self/exe")).is_ok());
        let said = fio.check(&Door::Libcairn { uri: String::new(), engine: "/nowhere/x.so".into() }).unwrap_err();
        assert!(said.to_string().contains("make libcairn-fio"), "{said}");
    }
}
