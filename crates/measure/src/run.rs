//! Fills, warms up, measures, repeats. Contestants take turns within each case, so that a slow minute of the machine hits all.

use crate::MeasureError;
use crate::fio::{self, Ask, Fio, FioResult, Times};
use crate::machine::{self, Use, Watch};
use crate::ping_pong;
use crate::profile::Profile;
use crate::record::{CaseRecord, FORMAT, Layer, Moment, Record, Sample, TargetRecord, VERSION};
use crate::setting::Setting;
use crate::target::Door;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How long the machine's speed is looked at before each repeat.
const PING_PONG: Duration = Duration::from_millis(if cfg!(test) { 1 } else { 100 });
/// Of the measured time, the share at each end in which the machine is not looked at: fio may start late.
const MARGIN_SHARE: u32 = 10;

/// Fewer I/Os per second of one job are no rate that could be divided into reads and writes.
const RATE_PER_JOB_MIN: u64 = 10;
/// More repeats than there are.
const REPEATS_MAX: usize = 1000;

/// Moments that a measurement is divided into, and how short one may be.
const MOMENTS: u32 = 50;
const MOMENT_MIN: Duration = Duration::from_millis(100);

/// What `rate` is where nobody holds the load back.
pub const UNLIMITED: &str = "as many as there can be";

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
    /// Fills it in place of fio: so many bytes from the first on.
    pub own_fill: Option<OwnFill>,
    /// Bits per second of each node's link, each way, if it is limited.
    pub link_bits_per_second: Option<u64>,
}

/// Makes a target ready for the next measurement.
pub type Preparation = Box<dyn FnMut() -> Result<(), MeasureError>>;
/// A load generator that is not fio; it warms up and measures, and says what was spent, if it looked.
pub type OwnLoad = Box<dyn Fn(&Ask, &Watch) -> Result<(FioResult, Option<Use>), MeasureError>>;
/// Writes so many bytes of a target once.
pub type OwnFill = Box<dyn Fn(u64) -> Result<(), MeasureError>>;

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
            own_fill: None,
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
    /// I/Os per second that each case offers; none: as many as there can be.
    pub rate: Option<u64>,
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
    let streams = |contestant: &Contestant, jobs: u32| u64::from(jobs) * contestant.doors.len().max(1) as u64;
    let most = contestants.iter().flat_map(|one| cases.iter().map(|case| streams(one, case.jobs))).max().unwrap_or(1);
    if let Some(rate) = plan.rate.filter(|rate| *rate < RATE_PER_JOB_MIN * most) {
        return Err(MeasureError::Target(format!(
            "a rate of {rate} I/Os per second cannot be divided among {most} jobs: give it {} or more",
            RATE_PER_JOB_MIN * most
        )));
    }
    let directory = WorkDirectory::new()?;
    let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    for contestant in &mut contestants {
        if contestant.is_filled {
            progress(&format!("filling {}", contestant.name));
            fill(plan, fio, contestant, &directory.path)?;
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
                let ask = Ask {
                    case: case.clone(),
                    span_bytes: plan.span_bytes,
                    times: plan.times,
                    seed: seed_of(number, repeat),
                    rate: plan.rate,
                };
                let sample = measure(plan.profile, fio, contestant, &ask, &directory.path)
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

/// Writes all of a contestant's span once.
fn fill(plan: &Plan, fio: &Fio, contestant: &Contestant, directory: &Path) -> Result<(), MeasureError> {
    let filled = match &contestant.own_fill {
        Some(fill) => fill(plan.span_bytes),
        None => {
            let job = fio::fill_job(&contestant.doors, plan.span_bytes, &contestant.job_lines);
            let deadline = fio::fill_deadline(contestant.doors.len(), plan.span_bytes);
            fio.start(directory, &job, &contestant.doors)?.result(deadline).map(drop)
        }
    };
    filled.map_err(|error| MeasureError::Fio(format!("{}: {error}", contestant.name)))
}

/// Of each case (from 0) and repeat (from 1) another; of all runs of a profile the same, and of all contestants.
fn seed_of(case: usize, repeat: usize) -> u64 {
    (case * REPEATS_MAX + repeat) as u64
}

/// What the plan and the machine add to a setting; what somebody has said stays.
fn describe(plan: &Plan, fio: &Fio, contestant: &mut Contestant) {
    let mut setting = Setting::default();
    setting.describe_machine();
    setting.set("fill", "all of the span, in order, 1 MiB each, random bytes");
    setting.set("span", format!("{} x {}", contestant.doors.len().max(1), plan.span_bytes));
    let Times { warm_up, measured } = plan.times;
    setting.set("times", format!("{} + {}", warm_up.as_secs_f64(), measured.as_secs_f64()));
    setting.set("rate", plan.rate.map_or_else(|| UNLIMITED.to_owned(), |rate| rate.to_string()));
    setting.set("fio", fio.version.as_str());
    for (field, _) in crate::setting::FIELDS {
        if contestant.setting.get(field) == crate::setting::UNKNOWN {
            contestant.setting.set(field, setting.get(field));
        }
    }
}

fn measure(
    profile: &Profile,
    fio: &Fio,
    contestant: &mut Contestant,
    ask: &Ask,
    directory: &Path,
) -> Result<Sample, MeasureError> {
    if let Some(prepare) = &mut contestant.before_each {
        prepare()?;
    }
    let ping_pong_per_second = ping_pong::round_trips_per_second(PING_PONG)
        .map_err(|error| MeasureError::Machine(format!("the loopback interface ({error})")))?;
    if let Some(load) = &contestant.own_load {
        let (FioResult { all, read, write, sync }, spent) = load(ask, &contestant.watch)?;
        return Ok(Sample { all, read, write, sync, spent, ping_pong_per_second, moments: Vec::new() });
    }
    let times = ask.times;
    let job = fio::case_job(ask, &contestant.doors, &contestant.job_lines);
    let deadline = fio::case_deadline(ask, contestant.doors.len());
    let began = Instant::now() + times.warm_up;
    let mut running = fio.start(directory, &job, &contestant.doors)?;
    let margin = times.measured / MARGIN_SHARE;
    let (mut spent, mut moments) = (None, Vec::new());
    if running.runs_until(began + margin)? {
        let client = running.id();
        let look = || machine::look(&contestant.watch, Some(client));
        let before = look()?;
        let until = began + times.measured - margin;
        if profile.looks_at_moments {
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

#[cfg(test)]
mod tests {
    use super::*;

    use crate::fio::{Flow, Latency};
    use std::cell::RefCell;
    use std::rc::Rc;

    type Asked = Rc<RefCell<Vec<(String, Ask)>>>;

    /// One that says what it was asked, and is a bit faster each time.
    fn contestant(name: &str, asked: &Asked) -> Contestant {
        let mut contestant =
            Contestant::new(name.to_owned(), Vec::new(), Setting::default(), BTreeMap::new(), Watch::default());
        let (asked, its) = (asked.clone(), name.to_owned());
        contestant.own_fill = Some(Box::new(|_| Ok(())));
        contestant.own_load = Some(Box::new(move |ask, _| {
            asked.borrow_mut().push((its.clone(), ask.clone()));
            let before = asked.borrow().iter().filter(|(name, of)| *name == its && of.case == ask.case).count() as f64;
            let latency = Latency { mean_us: 100.0 / before, p99_us: 10.0 * before, ..Latency::default() };
            let all = Flow { iops: 100.0 * before, mib_per_second: 1.0, ios: 1, latency, histogram: Vec::new() };
            Ok((FioResult { read: Some(all.clone()), write: None, all, sync: None }, None))
        }));
        contestant
    }

    fn plan(repeats: usize, rate: Option<u64>) -> Plan {
        let times = crate::fio::Times { warm_up: Duration::ZERO, measured: Duration::from_secs(1) };
        let profile = Profile::named("mix").unwrap();
        Plan { profile, quick: false, span_bytes: 1 << 20, times, repeats, rate }
    }

    #[test]
    fn contestants_take_turns_with_the_same_and_no_repeat_does_it_again() {
        let (asked, mut told) = (Asked::default(), Vec::new());
        let both = vec![contestant("a", &asked), contestant("b", &asked)];
        let record = run(&plan(3, None), &Fio::none(), both, &mut |doing| told.push(doing.to_owned())).unwrap();
        let asked = asked.borrow();
        assert_eq!(asked.len(), 5 * 3 * 2);
        for turn in asked.chunks(2) {
            assert_eq!((turn[0].0.as_str(), turn[1].0.as_str()), ("a", "b"));
            assert_eq!((&turn[0].1.case, turn[0].1.seed), (&turn[1].1.case, turn[1].1.seed));
        }
        assert!(asked.chunks(6).all(|case| case[0].1.seed != case[2].1.seed && case[2].1.seed != case[4].1.seed));
        assert_eq!(told[..3], ["filling a", "filling b", "1/5 4k random read, depth 64, 1 of 3, a"]);
        assert_eq!(told.last().map(String::as_str), Some("5/5 32k 80% random 50/50, depth 64, 3 of 3, b"));
        // 100, 200, 300 IOPS; 100, 50, 33.3 µs; 10, 20, 30 µs.
        let measured = &record.targets[0].cases[0];
        assert_eq!((measured.median.iops, measured.median.latency.mean_us), (200.0, 50.0));
        assert!((measured.iops_spread - 1.0).abs() < 1e-9 && (measured.p99_us_spread - 1.0).abs() < 1e-9);
        assert!((measured.mean_us_spread - (100.0 - 100.0 / 3.0) / 50.0).abs() < 1e-9);
        assert_eq!(record.targets[0].setting.get("rate"), UNLIMITED);
        assert_eq!(record.targets[0].setting.get("copies"), crate::setting::UNKNOWN);
    }

    #[test]
    fn a_rate_is_offered_and_told_and_one_that_cannot_be_divided_is_refused() {
        let asked = Asked::default();
        let record = run(&plan(1, Some(5000)), &Fio::none(), vec![contestant("a", &asked)], &mut |_| ()).unwrap();
        assert!(asked.borrow().iter().all(|(_, ask)| ask.rate == Some(5000)));
        assert_eq!(record.targets[0].setting.get("rate"), "5000");
        let few = run(&plan(1, Some(RATE_PER_JOB_MIN - 1)), &Fio::none(), vec![contestant("a", &asked)], &mut |_| ());
        assert!(few.unwrap_err().to_string().contains("10 or more"));
    }

    #[test]
    fn no_two_measurements_of_a_run_draw_the_same() {
        let mut seeds: Vec<u64> = (0..40).flat_map(|case| (1..=100).map(move |repeat| seed_of(case, repeat))).collect();
        seeds.sort_unstable();
        assert!(seeds.windows(2).all(|pair| pair[0] != pair[1]) && seeds[0] > 0);
    }
}
