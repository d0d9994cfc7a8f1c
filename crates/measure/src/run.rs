//! Fills, warms up, measures, repeats. Contestants take turns within each case, so that a slow minute of the machine hits all.

use crate::MeasureError;
use crate::fio::FioResult;
use crate::fio::{self, Fio, Times};
use crate::machine::{self, Use, Watch};
use crate::ping_pong;
use crate::profile::{Case, Profile};
use crate::record::{CaseRecord, FORMAT, Layer, Moment, Record, Sample, TargetRecord, VERSION};
use crate::setting::Setting;
use crate::target::Door;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How long the machine's speed is looked at before each repeat.
const PING_PONG: Duration = Duration::from_millis(100);
/// Of the measured time, the share at each end in which the machine is not looked at: fio may start late.
const MARGIN_SHARE: u32 = 10;

/// Moments that a measurement is divided into, and how short one may be.
const MOMENTS: u32 = 50;
const MOMENT_MIN: Duration = Duration::from_millis(100);

/// Who is measured.
pub struct Contestant {
    /// As the command line names it.
    pub name: String,
    /// Where its I/O goes; several are loaded at once.
    pub doors: Vec<Door>,
    /// What it is, as far as it is known. The machine and what the plan decides are added.
    pub setting: Setting,
    /// What else is told of it.
    pub about: BTreeMap<String, String>,
    /// Its processes on this machine, and who counts its bytes.
    pub watch: Watch,
    /// Which step of a ladder it is.
    pub layer: Option<Layer>,
    /// Whether its span is written once before all; else `before_each` sees to what is there.
    pub is_filled: bool,
    /// More lines for fio, in each of its jobs.
    pub job_lines: Vec<String>,
    /// What is done before each repeat of each case.
    pub before_each: Option<Preparation>,
    /// Loads it in place of fio.
    pub own_load: Option<OwnLoad>,
    /// Bits per second of each node's link, each way, if it is limited.
    pub link_bits_per_second: Option<u64>,
}

/// Makes a target ready for the next measurement.
pub type Preparation = Box<dyn FnMut() -> Result<(), MeasureError>>;
/// A load generator that is not fio; it fills, warms up and measures, and says what was spent, if it looked.
pub type OwnLoad = Box<dyn Fn(&Case, Times) -> Result<(FioResult, Option<Use>), MeasureError>>;

impl Contestant {
    /// One that is filled once, and loaded by fio.
    pub fn new(
        name: String,
        doors: Vec<Door>,
        setting: Setting,
        about: BTreeMap<String, String>,
        watch: Watch,
    ) -> Self {
        Self {
            name,
            doors,
            setting,
            about,
            watch,
            layer: None,
            is_filled: true,
            job_lines: Vec::new(),
            before_each: None,
            own_load: None,
            link_bits_per_second: None,
        }
    }
}

/// What is done.
pub struct Plan {
    /// The profile.
    pub profile: &'static Profile,
    /// Whether it is shortened.
    pub quick: bool,
    /// Bytes of each door that the I/O goes to.
    pub span_bytes: u64,
    /// How long a case takes.
    pub times: Times,
    /// How often each case is measured.
    pub repeats: usize,
}

/// Measures. `progress` is told what is being done.
///
/// # Errors
/// If fio cannot reach a target or fails.
///
/// # Panics
/// If there is nobody to measure, or nothing to repeat.
pub fn run(
    plan: &Plan,
    fio: &Fio,
    mut contestants: Vec<Contestant>,
    progress: &mut dyn FnMut(&str),
) -> Result<Record, MeasureError> {
    assert!(plan.repeats > 0 && !contestants.is_empty(), "somebody is measured at least once");
    for door in contestants.iter().flat_map(|contestant| &contestant.doors) {
        fio.check(door)?;
    }
    let cases = plan.profile.cases(plan.quick);
    if let Some(case) = cases.iter().find(|case| plan.span_bytes / u64::from(case.jobs) < case.block_size_bytes) {
        let needed = case.block_size_bytes * u64::from(case.jobs);
        return Err(MeasureError::Target(format!(
            "{} bytes are too few for {}: give it {needed} bytes or more (a larger target, or --size)",
            plan.span_bytes, case.name
        )));
    }
    let directory = WorkDirectory::new()?;
    let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    for contestant in &mut contestants {
        if contestant.is_filled {
            progress(&format!("filling {}", contestant.name));
            let job = fio::fill_job(&contestant.doors, plan.span_bytes, &contestant.job_lines);
            let deadline = fio::fill_deadline(contestant.doors.len(), plan.span_bytes);
            let filled = fio.start(&directory.path, &job, &contestant.doors)?.result(deadline);
            filled.map_err(|error| MeasureError::Fio(format!("{}: {error}", contestant.name)))?;
        }
        describe(plan, fio, contestant);
    }
    let mut measured: Vec<Vec<CaseRecord>> = contestants.iter().map(|_| Vec::new()).collect();
    for (number, case) in cases.iter().enumerate() {
        let mut samples: Vec<Vec<Sample>> = contestants.iter().map(|_| Vec::new()).collect();
        for repeat in 1..=plan.repeats {
            for (contestant, samples) in contestants.iter_mut().zip(&mut samples) {
                progress(&format!(
                    "{}/{} {}, {repeat} of {}, {}",
                    number + 1,
                    cases.len(),
                    case.name,
                    plan.repeats,
                    contestant.name
                ));
                let sample = measure(plan, fio, contestant, case, &directory.path)
                    .map_err(|error| MeasureError::Fio(format!("{}, {}: {error}", contestant.name, case.name)))?;
                samples.push(sample);
            }
        }
        for (measured, samples) in measured.iter_mut().zip(samples) {
            measured.push(CaseRecord::new(case.clone(), samples));
        }
    }
    let target = |(contestant, cases): (Contestant, Vec<CaseRecord>)| TargetRecord {
        target: contestant.name,
        setting: contestant.setting,
        about: contestant.about,
        cases,
        layer: contestant.layer,
        failure: None,
        link_bits_per_second: contestant.link_bits_per_second,
    };
    Ok(Record {
        format: FORMAT.to_owned(),
        version: VERSION,
        profile: plan.profile.name.to_owned(),
        quick: plan.quick,
        started_unix_seconds: started.as_secs(),
        repeats: plan.repeats,
        targets: contestants.into_iter().zip(measured).map(target).collect(),
    })
}

/// What the plan and the machine add to a setting; what somebody has said stays.
fn describe(plan: &Plan, fio: &Fio, contestant: &mut Contestant) {
    let mut setting = Setting::default();
    setting.describe_machine();
    setting.set("fill", "all of the span, in order, 1 MiB each, random bytes");
    setting.set("span", format!("{} x {}", contestant.doors.len().max(1), plan.span_bytes));
    let Times { warm_up, measured } = plan.times;
    setting.set("times", format!("{} + {}", warm_up.as_secs_f64(), measured.as_secs_f64()));
    setting.set("fio", fio.version.as_str());
    for (field, _) in crate::setting::FIELDS {
        if contestant.setting.get(field) == crate::setting::UNKNOWN {
            contestant.setting.set(field, setting.get(field));
        }
    }
}

fn measure(
    plan: &Plan,
    fio: &Fio,
    contestant: &mut Contestant,
    case: &Case,
    directory: &Path,
) -> Result<Sample, MeasureError> {
    if let Some(prepare) = &mut contestant.before_each {
        prepare()?;
    }
    let ping_pong_per_second = ping_pong::round_trips_per_second(PING_PONG)
        .map_err(|error| MeasureError::Machine(format!("the loopback interface ({error})")))?;
    let times = plan.times;
    if let Some(load) = &contestant.own_load {
        let (FioResult { all, read, write, sync }, spent) = load(case, times)?;
        return Ok(Sample { all, read, write, sync, spent, ping_pong_per_second, moments: Vec::new() });
    }
    let job = fio::case_job(case, &contestant.doors, plan.span_bytes, times, &contestant.job_lines);
    let deadline = fio::case_deadline(times);
    let began = Instant::now() + times.warm_up;
    let mut running = fio.start(directory, &job, &contestant.doors)?;
    let margin = times.measured / MARGIN_SHARE;
    let (mut spent, mut moments) = (None, Vec::new());
    if running.runs_until(began + margin)? {
        let client = running.id();
        let look = || machine::look(&contestant.watch, Some(client));
        let before = look()?;
        let until = began + times.measured - margin;
        if plan.profile.looks_at_moments {
            moments = follow(&mut running, began, until, &look)?;
        }
        if running.runs_until(until)? {
            spent = Some(before.until(&look()?));
        }
    }
    let FioResult { all, read, write, sync } = running.result(deadline)?;
    Ok(Sample { all, read, write, sync, spent, ping_pong_per_second, moments })
}

/// What is spent, moment by moment, until an instant or fio's end.
fn follow(
    running: &mut fio::Running,
    began: Instant,
    until: Instant,
    look: &dyn Fn() -> Result<machine::Look, MeasureError>,
) -> Result<Vec<Moment>, MeasureError> {
    // The kernel counts in hundredths of a second: shorter moments would be told by chance.
    let step = (until.saturating_duration_since(Instant::now()) / MOMENTS).max(MOMENT_MIN);
    let mut moments = Vec::new();
    let mut before = look()?;
    while Instant::now() + step <= until && running.runs_until(Instant::now() + step)? {
        let now = look()?;
        moments.push(Moment::new(now.seconds_since(began), &before.until(&now)));
        before = now;
    }
    Ok(moments)
}

/// Holds fio's job and output; goes with this.
struct WorkDirectory {
    path: PathBuf,
}

impl WorkDirectory {
    fn new() -> Result<Self, MeasureError> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let path = std::env::temp_dir().join(format!("cairn-bench.{}.{}", std::process::id(), now.as_nanos()));
        // Not one that is there: it would be somebody else's.
        std::fs::create_dir(&path).map_err(|error| MeasureError::Fio(format!("{}: {error}", path.display())))?;
        Ok(Self { path })
    }
}

impl Drop for WorkDirectory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}
