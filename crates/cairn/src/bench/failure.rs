//! `cairn bench failure`: what a host sees while something fails, and until all copies are there again. Each fault has a cluster of its
//! own.

use super::clusters::contestant;
use super::lab::{Lab, Shape, device_file, runs, volume_of};
use super::network;
use super::own::OwnArguments;
use crate::Failure;
use crate::output::Progress;
use clap::{Args, ValueEnum};
use measure::fio::{self, Fio};
use measure::host::{Host, Volume};
use measure::profile::{Case, Profile};
use measure::record::{FORMAT, Record, TargetRecord, VERSION};
use measure::run::UNLIMITED;
use measure::series::{self, HostLoad, Mark, Times};
use measure::target::Door;
use node::admin::duty_types::{DutyAction, DutyOrder};
use std::process::Command;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const NODES: usize = 3;
/// It leads all of the volume and is its head; it is what fails.
const VICTIM: usize = 1;
/// It is asked how the cluster is.
const WITNESS: usize = 2;
const VOLUME: &str = "load";
const BLOCK_BYTES: u64 = 4096;
const READ_PERCENT: u8 = 50;
const DEVICE_BYTES: u64 = 1 << 30;
const QUICK_DEVICE_BYTES: u64 = 512 << 20;
/// What is left of a disk that was pulled.
const STUMP_BYTES: u64 = 48 << 20;
/// A volume that no pool here can hold.
const FILLER_BYTES: u64 = 1 << 40;
const FILLER: &str = "filler";
const LOOK: Duration = Duration::from_millis(50);
/// Full redundancy counts once it has lasted for so long.
const LASTS: Duration = Duration::from_millis(500);
/// Where status sees nothing of a fault, it is given so long after all was put right.
const UNNOTICED_SECONDS: f64 = 5.0;
const FILL_MAX: Duration = Duration::from_secs(300);

/// What fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Fault {
    /// kill -9 of the node with the head and of its supervisor; it is started again
    NodeKilled,
    /// The device of that node loses what it holds, and the node finds it so; another one takes its place
    DiskPulled,
    /// The link of that node is down, and up again; needs root
    LinkCut,
    /// Another volume fills the pool until it is refused, and is deleted
    PoolFull,
}

impl Fault {
    fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }
}

#[derive(Debug, Args)]
pub(crate) struct FailureArguments {
    #[command(flatten)]
    pub(crate) own: OwnArguments,
    /// What fails, each in a cluster of its own [default: all that this user may do]
    #[arg(long = "fault", value_enum, value_name = "FAULT")]
    pub(crate) faults: Vec<Fault>,
    /// Outstanding I/Os of the host
    #[arg(long, default_value_t = 16, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=256))]
    pub(crate) depth: u32,
    /// Seconds that what failed stays so [default: 10; quick: 2]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub(crate) away: Option<u32>,
    /// Before each fault, load the volume by fio over NBD in the same way: how the host's own load compares
    #[arg(long)]
    pub(crate) calibrate: bool,
    /// Seconds from then on in which all copies must be there again [default: 120; quick: 60]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=86_400))]
    pub(crate) patience: Option<u32>,
}

/// How long what takes.
#[derive(Clone, Copy)]
struct Plan {
    quick: bool,
    span_bytes: u64,
    /// Before the fault, and after all is whole again.
    around: Duration,
    away: Duration,
    patience: Duration,
    depth: u32,
    calibrates: bool,
}

pub(super) fn measure(arguments: &FailureArguments, progress: &mut Progress) -> Result<Record, Failure> {
    let own = &arguments.own;
    if own.rate.is_some() {
        return Err(Failure::new(
            "--rate is of no use here: a host's load keeps --depth under way; leave it out".to_owned(),
        ));
    }
    let fio = Fio::find(&own.fio).map_err(Failure::of)?;
    let seconds = |asked: Option<u32>, usual: u64| Duration::from_secs(asked.map_or(usual, u64::from));
    let usual_span = if own.quick { super::OWN_QUICK_SPAN_BYTES } else { profile().span_bytes };
    let plan = Plan {
        quick: own.quick,
        span_bytes: own.size.map_or(usual_span, |size| size.0),
        around: seconds(own.seconds, if own.quick { 1 } else { 10 }),
        away: seconds(arguments.away, if own.quick { 2 } else { 10 }),
        patience: seconds(arguments.patience, if own.quick { 60 } else { 120 }),
        depth: arguments.depth,
        calibrates: arguments.calibrate,
    };
    let mut faults = arguments.faults.clone();
    if faults.is_empty() {
        faults = Fault::value_variants().to_vec();
        if let Err(why) = network::is_possible() {
            progress.show(&format!("link-cut is left out: {}", why.line()));
            faults.retain(|fault| *fault != Fault::LinkCut);
        }
    }
    if faults.contains(&Fault::LinkCut) {
        network::is_possible()?;
    }
    let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let repeats = usize::from(own.repeats.unwrap_or(if own.quick { super::QUICK_REPEATS } else { super::REPEATS }));
    let mut targets = Vec::new();
    for repeat in 1..=repeats {
        for fault in &faults {
            let mut tell = |doing: &str| progress.show(&format!("{}, {repeat} of {repeats}: {doing}", fault.name()));
            let target = one_fault(own, plan, *fault, &fio, &mut tell)
                .map_err(|failure| Failure::new(format!("{}: {}", fault.name(), failure.line())))?;
            targets.push(target);
        }
    }
    Ok(Record {
        format: FORMAT.to_owned(),
        version: VERSION,
        profile: profile().name.to_owned(),
        quick: own.quick,
        started_unix_seconds: started.as_secs(),
        repeats,
        targets,
    })
}

fn profile() -> &'static Profile {
    Profile::named("failure").expect("it is one")
}

/// A cluster, a host that loads it, a fault, and what came of it.
fn one_fault(
    own: &OwnArguments,
    plan: Plan,
    fault: Fault,
    fio: &Fio,
    tell: &mut dyn FnMut(&str),
) -> Result<TargetRecord, Failure> {
    tell("starting a cluster of three nodes");
    let device_bytes = if plan.quick { QUICK_DEVICE_BYTES } else { DEVICE_BYTES.max(4 * plan.span_bytes) };
    let shape = Shape { nodes: NODES, replicas: 3, device_bytes, is_allocated: false };
    let mut lab = Lab::new(&own.place(), shape, fault == Fault::LinkCut)?;
    let wanted = volume_of(VOLUME, plan.span_bytes, Some("default"), Some(&format!("node-{VICTIM}")));
    let client = Rc::new(lab.client(VICTIM));
    let mut known = contestant(&lab, &client, &wanted)?;
    let volume = client.volume(VOLUME)?;
    let load = HostLoad {
        generator: "NVMe/TCP host with a path to each node".to_owned(),
        block_size_bytes: BLOCK_BYTES,
        read_percent: READ_PERCENT,
        depth: plan.depth,
    };
    known.about.remove("engine");
    known.about.insert("load".to_owned(), load.generator.clone());
    let setting = &mut known.setting;
    setting.describe_machine();
    setting.set("fill", "all of the span, in order, 64 KiB each");
    setting.set("span", format!("1 x {}", plan.span_bytes));
    setting.set("times", format!("{} + {}", plan.around.as_secs_f64(), plan.away.as_secs_f64()));
    setting.set("rate", UNLIMITED);
    setting.set("fio", "none: a host with several paths");
    if plan.calibrates {
        tell("fio loads the volume by NBD");
        known.about.insert("fio by NBD just before".to_owned(), by_fio(fio, &known.doors, plan)?);
    }
    let reached = Volume { paths: lab.nvme(), nqn: volume.nqn, nsid: volume.nsid, size_bytes: plan.span_bytes };
    let seen = watch(&mut lab, plan, fault, (fio, reached, &load), tell)?;
    Ok(TargetRecord {
        target: fault.name(),
        setting: known.setting,
        about: known.about,
        cases: Vec::new(),
        layer: None,
        failure: Some(series::Failure::new(&fault.name(), load, seen.times, seen.marks, &seen.log)),
        link_bits_per_second: None,
    })
}

/// The same load by fio: what it says of it.
fn by_fio(fio: &Fio, door: &[Door], plan: Plan) -> Result<String, Failure> {
    let directory = super::lab::Directory::new(&std::env::temp_dir())?;
    let fill = fio::fill_job(door, plan.span_bytes, &[]);
    let run = |job: &str, deadline| fio.start(directory.path(), job, door).and_then(|running| running.result(deadline));
    run(&fill, fio::fill_deadline(1, plan.span_bytes)).map_err(Failure::of)?;
    let times = fio::Times { warm_up: Duration::from_secs(1), measured: plan.around };
    let case = Case {
        name: String::new(),
        block_size_bytes: BLOCK_BYTES,
        read_percent: READ_PERCENT,
        random_percent: 100,
        depth: plan.depth,
        jobs: 1,
        fsync: false,
    };
    let ask = fio::Ask { case, span_bytes: plan.span_bytes, times, seed: 1, rate: None };
    let job = fio::case_job(&ask, door, &[]);
    let all = run(&job, fio::case_deadline(&ask, door.len())).map_err(Failure::of)?.all;
    let figure = measure::table::figure;
    let latency = &all.latency;
    Ok(format!("{} IOPS, p50 {} µs, p99 {} µs", figure(all.iops), figure(latency.p50_us), figure(latency.p99_us)))
}

/// What was seen of one fault.
struct Seen {
    times: Times,
    marks: Vec<Mark>,
    log: series::Log,
}

fn watch(
    lab: &mut Lab,
    plan: Plan,
    fault: Fault,
    (fio, volume, load): (&Fio, Volume, &HostLoad),
    tell: &mut dyn FnMut(&str),
) -> Result<Seen, Failure> {
    let host = Host::start(volume, load.clone());
    tell("the host writes all of its volume");
    super::lab::wait_until("the host has all paths and answers", super::lab::START_MAX, || {
        host.has_ended() || host.is_filled() && host.paths() == NODES && host.answered() > u64::from(load.depth)
    })?;
    if host.has_ended() {
        host.finish().map_err(Failure::of)?;
        return Err(Failure::new("the host's load has ended: is io_uring switched on here?".to_owned()));
    }
    // What came before is no part of what is compared: it began with writing, and with a cluster that had just begun.
    let begins = host.seconds();
    std::thread::sleep(plan.around);
    tell("fault");
    let witness = Witness::start(lab, host.seconds());
    let mut marks = Marks::new(&host);
    let fault_seconds = strike(lab, fault, plan, fio, &mut marks, tell)?;
    std::thread::sleep(plan.away);
    tell("mending");
    mend(lab, fault, &mut marks)?;
    let mended_seconds = host.seconds();
    tell("waiting until all copies are there");
    let until = Instant::now() + plan.patience;
    while Instant::now() < until && !witness.is_over(mended_seconds) {
        std::thread::sleep(LOOK);
    }
    let Redundancy { noticed: noticed_seconds, whole: whole_seconds } = witness.finish();
    std::thread::sleep(plan.around);
    let mut marks = marks.all;
    let log = host.finish().map_err(Failure::of)?;
    let mut mark =
        |at: Option<f64>, what: &str| marks.extend(at.map(|at_seconds| Mark { at_seconds, what: what.to_owned() }));
    mark(noticed_seconds, "status says so");
    mark(whole_seconds, "all copies are there again");
    let times = Times { fault_seconds, noticed_seconds, mended_seconds: Some(mended_seconds), whole_seconds };
    Ok(since(begins, Seen { times, marks, log }))
}

/// Everything in time from this instant on.
fn since(begins: f64, seen: Seen) -> Seen {
    let Seen { mut times, mut marks, mut log } = seen;
    times.fault_seconds -= begins;
    for time in [&mut times.noticed_seconds, &mut times.mended_seconds, &mut times.whole_seconds].into_iter().flatten()
    {
        *time -= begins;
    }
    marks.iter_mut().for_each(|mark| mark.at_seconds -= begins);
    marks.sort_by(|a, b| a.at_seconds.total_cmp(&b.at_seconds));
    let begins_us = (begins * 1e6) as u32;
    log.ios.retain(|io| io.at_us >= begins_us);
    log.ios.iter_mut().for_each(|io| io.at_us -= begins_us);
    log.seconds -= begins;
    Seen { times, marks, log }
}

/// What is done, with its time.
struct Marks<'a> {
    host: &'a Host,
    all: Vec<Mark>,
}

impl<'a> Marks<'a> {
    fn new(host: &'a Host) -> Self {
        Self { host, all: Vec::new() }
    }

    fn now(&mut self, what: &str) -> f64 {
        let at_seconds = self.host.seconds();
        self.all.push(Mark { at_seconds, what: what.to_owned() });
        at_seconds
    }
}

/// Does it; when, as the host's clock has it.
fn strike(
    lab: &mut Lab,
    fault: Fault,
    plan: Plan,
    fio: &Fio,
    marks: &mut Marks<'_>,
    tell: &mut dyn FnMut(&str),
) -> Result<f64, Failure> {
    match fault {
        Fault::NodeKilled => {
            lab.kill(VICTIM)?;
            Ok(marks.now("the node with the head is killed, and its supervisor"))
        }
        Fault::DiskPulled => {
            let path = lab.device(VICTIM).to_owned();
            let cut = std::fs::File::options().write(true).open(&path).and_then(|file| file.set_len(STUMP_BYTES));
            cut.map_err(|error| Failure::new(format!("{}: {error}", path.display())))?;
            lab.kill_worker(VICTIM);
            Ok(marks.now("the disk of the node with the head is gone"))
        }
        Fault::LinkCut => {
            lab.network().expect("each node has its own").cut(VICTIM, true)?;
            Ok(marks.now("the link of the node with the head is down"))
        }
        Fault::PoolFull => {
            let at = marks.now("another volume fills the pool");
            tell("filling the pool");
            fill(lab, plan, fio)?;
            marks.now("the pool is full");
            Ok(at)
        }
    }
}

/// Writes another volume until that is refused.
fn fill(lab: &Lab, plan: Plan, fio: &Fio) -> Result<(), Failure> {
    let filler = lab.volume(&volume_of(FILLER, FILLER_BYTES, Some("default"), Some(&format!("node-{WITNESS}"))))?;
    let door = [Door::Nbd { uri: filler.nbd_uri }];
    let directory = super::lab::Directory::new(&std::env::temp_dir())?;
    let job = fio::fill_job(&door, FILLER_BYTES, &[]);
    let running = fio.start(directory.path(), &job, &door).map_err(Failure::of)?;
    match running.result(Instant::now() + FILL_MAX) {
        Err(error) if error.to_string().contains("No space left") => Ok(()),
        Err(error) => Err(Failure::new(format!("the pool was to be filled, and {error}"))),
        Ok(_) => Err(Failure::new(format!("a pool of {} is never full", plan.span_bytes))),
    }
}

fn mend(lab: &mut Lab, fault: Fault, marks: &mut Marks<'_>) -> Result<(), Failure> {
    match fault {
        Fault::NodeKilled => {
            lab.start(VICTIM)?;
            marks.now("it is started again");
        }
        Fault::DiskPulled => {
            replace_device(lab)?;
            marks.now("another disk takes its place");
        }
        Fault::LinkCut => {
            lab.network().expect("each node has its own").cut(VICTIM, false)?;
            marks.now("the link is up again");
        }
        Fault::PoolFull => {
            lab.client(WITNESS).delete_volume(FILLER)?;
            marks.now("what filled it is deleted");
        }
    }
    Ok(())
}

/// Another device of the node takes the place of its first.
fn replace_device(lab: &Lab) -> Result<(), Failure> {
    let old = lab.device(VICTIM).to_owned();
    let new = old.with_file_name("device-2.img");
    let bytes = lab.client(WITNESS).devices()?.iter().map(|device| device.size_bytes).max().unwrap_or(DEVICE_BYTES);
    device_file(&new, bytes, false)?;
    let mut format = Command::new(super::lab::program()?);
    format.args(["device", "format"]).arg(&new);
    runs(format)?;
    let name = |path: &std::path::Path| path.display().to_string();
    let at_node = lab.client(VICTIM);
    super::lab::wait_until("the node takes another device", super::lab::START_MAX, || {
        at_node.add_device(&name(&new), false).is_ok()
    })?;
    let (subject, with) = (name(&old), Some(name(&new)));
    let order = DutyOrder { subject, action: DutyAction::Replace, with, minutes: None, dry_run: false };
    lab.client(WITNESS).order(&order).map(drop)
}

/// Asks a node that does not fail how the cluster is, all the time.
struct Witness {
    shared: Arc<Shared>,
    thread: JoinHandle<()>,
}

struct Shared {
    is_stopping: AtomicBool,
    seen: Mutex<Redundancy>,
    /// The host's clock when it began, and the instant.
    began: (f64, Instant),
}

impl Shared {
    fn now(&self) -> f64 {
        self.began.0 + self.began.1.elapsed().as_secs_f64()
    }
}

/// What status has said so far.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Redundancy {
    /// It said first that something is wrong.
    noticed: Option<f64>,
    /// It says since then that all is well again.
    whole: Option<f64>,
}

impl Redundancy {
    /// It says so now; `None`: it does not answer, and so says nothing.
    fn hears(&mut self, at: f64, is_whole: Option<bool>) {
        match (is_whole, self.noticed) {
            (Some(false), _) => {
                self.noticed.get_or_insert(at);
                self.whole = None;
            }
            (Some(true), Some(_)) => {
                self.whole.get_or_insert(at);
            }
            (Some(true), None) | (None, _) => {}
        }
    }

    /// Whether nothing more is to be waited for, what had failed having been put right.
    fn is_over(&self, now: f64, mended: f64) -> bool {
        match (self.noticed, self.whole) {
            (None, _) => now - mended > UNNOTICED_SECONDS,
            (Some(_), whole) => whole.is_some_and(|whole| now - whole.max(mended) >= LASTS.as_secs_f64()),
        }
    }
}

impl Witness {
    /// `now`: the host's clock.
    fn start(lab: &Lab, now: f64) -> Self {
        let shared = Arc::new(Shared {
            is_stopping: AtomicBool::new(false),
            seen: Mutex::default(),
            began: (now, Instant::now()),
        });
        let (of_thread, client) = (shared.clone(), lab.client(WITNESS));
        let thread = std::thread::spawn(move || {
            while !of_thread.is_stopping.load(Relaxed) {
                let is_whole = super::lab::is_whole(&client, NODES);
                of_thread.seen.lock().expect("nobody panics with it").hears(of_thread.now(), is_whole);
                std::thread::sleep(LOOK);
            }
        });
        Self { shared, thread }
    }

    fn is_over(&self, mended: f64) -> bool {
        self.shared.seen.lock().expect("nobody panics with it").is_over(self.shared.now(), mended)
    }

    /// When it was noticed, and when all was whole again.
    fn finish(self) -> Redundancy {
        self.shared.is_stopping.store(true, Relaxed);
        let _ = self.thread.join();
        *self.shared.seen.lock().expect("nobody panics with it")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redundancy_that_was_never_lost_or_never_came_back_has_no_time() {
        let mut seen = Redundancy::default();
        seen.hears(1.0, Some(true));
        assert_eq!(seen, Redundancy::default());
        assert!(!seen.is_over(3.0, 2.0) && seen.is_over(2.5 + UNNOTICED_SECONDS, 2.0));
        seen.hears(2.0, Some(false));
        seen.hears(3.0, None);
        assert_eq!(seen, Redundancy { noticed: Some(2.0), whole: None });
        assert!(!seen.is_over(1e6, 2.0));
    }

    #[test]
    fn redundancy_that_is_lost_again_is_not_back() {
        let mut seen = Redundancy::default();
        for (at, is_whole) in
            [(1.0, Some(false)), (2.0, Some(true)), (3.0, Some(false)), (4.0, Some(true)), (5.0, Some(true))]
        {
            seen.hears(at, is_whole);
        }
        assert_eq!(seen, Redundancy { noticed: Some(1.0), whole: Some(4.0) });
        assert!(!seen.is_over(4.1, 2.0) && seen.is_over(4.6, 2.0) && !seen.is_over(6.1, 6.0));
    }

    #[test]
    fn what_came_before_is_no_part_of_it() {
        let io = |at_us| measure::series::Io { at_us, latency_us: 1, writes: false, failed: false };
        let seen = Seen {
            times: Times { fault_seconds: 3.0, noticed_seconds: None, mended_seconds: Some(4.0), whole_seconds: None },
            marks: vec![Mark { at_seconds: 3.0, what: String::new() }],
            log: series::Log { ios: vec![io(1_000_000), io(2_500_000)], seconds: 9.0, unanswered: Vec::new() },
        };
        let seen = since(2.0, seen);
        assert_eq!(
            (seen.times.fault_seconds, seen.times.mended_seconds, seen.times.noticed_seconds),
            (1.0, Some(2.0), None)
        );
        assert_eq!((seen.log.ios, seen.log.seconds, seen.marks[0].at_seconds), (vec![io(500_000)], 7.0, 1.0));
    }
}
