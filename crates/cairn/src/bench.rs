//! `cairn bench`: measures with fio, keeps and draws what came of it; or plays a hazard.

mod clusters;
mod failure;
mod interrupt;
mod lab;
mod layers;
mod network;
mod own;

use crate::Failure;
use crate::bench_target::{self, Wish};
use crate::client::Client;
use crate::output::{Format, Progress, print, show, shown, table};
use clap::{Args, Subcommand};
use measure::compare;
use measure::fio::{Fio, Times};
use measure::profile::Profile;
use measure::record::Record;
use measure::run::{self, Plan};
use measure::target::Target;
use measure::{report, table as figures};
use node::size::ByteSize;
use serde::Serialize;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clusters::NetworkArguments;
use failure::FailureArguments;
use own::OwnArguments;

pub(crate) const HELP: &str = "\
Examples:
  cairn bench eight --target cairn:data                            a volume, by NBD
  cairn bench depth --target cairn:data --target rbd:rbd/image --overwrite   contestants, in turn
  cairn bench mix   --target file:/mnt/disk/test.img --size 8G     a file or /dev/…, past the page cache
  cairn bench volumes --dir /dev/shm                               3 clients with 5 volumes each, all at once
  cairn bench layers --dir /dev/shm                                what each layer costs; makes its own clusters
  cairn bench failure --fault node-killed                          what a host sees of it; makes its own cluster
  cairn bench network --mbit 1000                                  links of 1 Gbit/s, as root
  cairn bench stress --dir /dev/shm                                gathered, spread and local volumes of its own clusters
  cairn bench mix   --target cairn:data --rate 20000               how long an I/O takes at an offered load
  cairn bench eight --target nbd://host/export --overwrite --setting copies=2 --process qemu-nbd
  cairn bench ls
  cairn bench report A.json B.json --html both.html

Whatever is on a target is written over: one that holds something, or that cannot be looked at, is refused without
--overwrite. fio makes the load. Each run leaves PROFILE-TIME.json, .csv and .html in the directory --out. Results of unlike
settings are not compared: `cairn bench report` says which field differs. docs/bench.md has all fields.";

/// Where results go and are looked for.
const DIRECTORY: &str = "cairn-bench";

const MEASURED: Duration = Duration::from_secs(10);
const WARM_UP: Duration = Duration::from_secs(2);
const REPEATS: u8 = 3;
/// Enough to see that everything works, and no more.
const QUICK_MEASURED: Duration = Duration::from_millis(700);
const QUICK_WARM_UP: Duration = Duration::from_millis(200);
const QUICK_REPEATS: u8 = 1;
const QUICK_SPAN_BYTES: u64 = 64 << 20;
/// The same of volumes of a cluster of its own.
const OWN_QUICK_SPAN_BYTES: u64 = 16 << 20;
const OWN_QUICK_MEASURED: Duration = Duration::from_millis(400);

#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// 4k random at depth 1, 4 x 128 and 128, 4M sequential at 16: writes, then reads
    Eight(RunArguments),
    /// 4k random and 512k sequential, each at depths from 1 to 256; with --dir on a plain and a striped volume
    Depth(RunArguments),
    /// 4k reads, 4k writes, and mixes 8k 80/20, 16k 70/30 and 32k 50/50, at depth 64
    Mix(RunArguments),
    /// 4k random and 512k sequential at depth 128 on all of the targets at once: 15, 5 of each of 3 clients
    Volumes(RunArguments),
    /// 4k 75/25 at depth 64 by 1 to 24 clients
    Stress(RunArguments),
    /// What each layer costs, from the device's file to three copies; makes clusters of its own for that
    Layers(OwnArguments),
    /// What a host sees of a killed node, a pulled disk, a cut link, a full pool; makes a cluster of its own for each
    Failure(FailureArguments),
    /// Three copies over links of 1 Gbit/s; makes a cluster of its own, each node in a network of its own; needs root
    Network(NetworkArguments),
    /// What an I/O costs on 3, 4 and 5 nodes, with 1 to 16 clients; makes clusters of its own, all on this machine
    Scale(OwnArguments),
    /// Put results side by side; those of unlike settings are refused, and the field that differs is named
    Report {
        /// Results of `cairn bench`, the one that the others are set in relation to first
        #[arg(required = true, value_name = "FILE.json")]
        files: Vec<PathBuf>,
        /// Show those of unlike settings apart
        #[arg(long)]
        context: bool,
        /// Draw them, too: one HTML file that needs nothing else
        #[arg(long, value_name = "FILE")]
        html: Option<PathBuf>,
    },
    /// What may go wrong between a host and its target, played against any NVMe/TCP target: ghost-write
    #[command(subcommand)]
    Hazard(crate::hazard::HazardCommand),
    /// List results
    Ls {
        /// Where
        #[arg(default_value = DIRECTORY)]
        directory: PathBuf,
    },
}

#[derive(Debug, Args)]
pub(crate) struct RunArguments {
    /// cairn:VOLUME, nbd://HOST:PORT/EXPORT, file:PATH, /dev/NAME, rbd:POOL/IMAGE, vitastor:IMAGE or nvme-tcp://…; docs/bench.md has
    /// all forms; may be given several times
    #[arg(long = "target", required_unless_present = "dir", value_name = "TARGET")]
    targets: Vec<Target>,
    /// `depth`, `volumes`, `stress`, in place of targets: clusters of its own, with files of their devices here (/dev/shm: memory)
    #[arg(long, value_name = "DIR", conflicts_with = "targets")]
    dir: Option<PathBuf>,
    /// Directory for the results
    #[arg(long, default_value = DIRECTORY, value_name = "DIR")]
    out: PathBuf,
    /// Shorten times and sizes: shows that it works, not how fast it is
    #[arg(long)]
    quick: bool,
    /// Times each case is measured [default: 3; quick: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=100))]
    repeats: Option<u8>,
    /// Seconds that each is measured [default: 10; quick: 0.7, with --dir 0.4]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=86_400))]
    seconds: Option<u32>,
    /// Bytes of each target that the I/O goes to, written once before [default: 4G, volumes 1G, or all; quick: 64M. With --dir:
    /// stress 4G, depth 1G, volumes 128M; quick: 16M]
    #[arg(long)]
    size: Option<ByteSize>,
    /// I/Os per second that each case offers, all jobs together [default: as many as there can be]
    #[arg(long, value_name = "IOPS", value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    rate: Option<u64>,
    /// Nobody needs what is on the targets
    #[arg(long)]
    overwrite: bool,
    /// What a target cannot tell of its setting: copies=3, durability=each-write, checksums=crc32c, …
    #[arg(long = "setting", value_name = "FIELD=VALUE", value_parser = bench_target::said)]
    settings: Vec<(String, String)>,
    /// Names of processes of targets that are not known (`ps -o comm`), for CPU and memory
    #[arg(long = "process", value_name = "NAME")]
    processes: Vec<String>,
    /// Where targets that do not tell it have their blocks on this machine, a device or a directory: the kernel counts its bytes
    #[arg(long = "storage", value_name = "PATH")]
    storage: Vec<PathBuf>,
    /// libaio, io_uring: for files and devices; others: how volumes are reached, by NBD if nothing is said. libcairn: fio is their head
    /// (docs/libcairn.md); own-nvme, own-nbd: no fio, but cairn's own generator
    #[arg(long, default_value = bench_target::DEFAULT_ENGINE, value_parser = ["libaio", "io_uring", "libcairn", "own-nvme", "own-nbd"])]
    engine: String,
    /// The load generator
    #[arg(long, default_value = "fio", value_name = "PROGRAM")]
    fio: PathBuf,
}

/// Runs a command. Only those that measure a volume ask the cluster.
pub(crate) fn run(
    command: BenchCommand,
    client: impl FnOnce() -> Result<Client, Failure>,
    format: Format,
) -> Result<(), Failure> {
    let (name, arguments) = match command {
        BenchCommand::Eight(arguments) => ("eight", arguments),
        BenchCommand::Depth(arguments) => ("depth", arguments),
        BenchCommand::Mix(arguments) => ("mix", arguments),
        BenchCommand::Volumes(arguments) => ("volumes", arguments),
        BenchCommand::Stress(arguments) => ("stress", arguments),
        BenchCommand::Layers(arguments) => {
            return measure_own("layers", &arguments, format, |plan, fio, told| layers(&arguments, plan, fio, told));
        }
        BenchCommand::Network(arguments) => {
            let own = arguments.own.clone();
            return measure_own("network", &own, format, |plan, fio, told| {
                clusters::network(&arguments, plan, fio, told)
            });
        }
        BenchCommand::Scale(arguments) => {
            let place = arguments.place();
            return measure_own("scale", &arguments, format, |plan, fio, told| {
                clusters::scale(&place, plan, fio, told)
            });
        }
        BenchCommand::Failure(arguments) => {
            let mut progress = Progress::new();
            make_room(&arguments.own.out)?;
            let record = failure::measure(&arguments, &mut progress);
            progress.end();
            return tell(&record?, &arguments.own.out, format);
        }
        BenchCommand::Report { files, context, html } => return side_by_side(&files, context, html.as_deref(), format),
        BenchCommand::Hazard(command) => return crate::hazard::run(command, format),
        BenchCommand::Ls { directory } => return list(&directory, format),
    };
    let profile = Profile::named(name).expect("every command has its profile");
    measure(profile, arguments, client, format)
}

fn measure(
    profile: &'static Profile,
    arguments: RunArguments,
    client: impl FnOnce() -> Result<Client, Failure>,
    format: Format,
) -> Result<(), Failure> {
    if let Some(place) = &arguments.dir {
        return in_own_cluster(profile, place, &arguments, format);
    }
    let fio = Fio::find(&arguments.fio).map_err(Failure::of)?;
    let default_span = if arguments.quick { QUICK_SPAN_BYTES.min(profile.span_bytes) } else { profile.span_bytes };
    let wish = Wish {
        span_bytes: arguments.size.map_or(default_span, |size| size.0),
        is_span_asked: arguments.size.is_some(),
        overwrite: arguments.overwrite,
        settings: arguments.settings,
        processes: arguments.processes,
        storage: arguments.storage,
        engine: arguments.engine,
    };
    make_room(&arguments.out)?;
    let (contestants, span_bytes) =
        bench_target::contestants(&arguments.targets, &wish, &fio, profile.together, client)?;
    let (measured, warm_up, repeats) = match arguments.quick {
        true => (QUICK_MEASURED, QUICK_WARM_UP, QUICK_REPEATS),
        false => (MEASURED, WARM_UP, REPEATS),
    };
    let measured = arguments.seconds.map_or(measured, |seconds| Duration::from_secs(seconds.into()));
    let plan = Plan {
        profile,
        quick: arguments.quick,
        span_bytes,
        times: Times { warm_up, measured },
        repeats: arguments.repeats.unwrap_or(repeats).into(),
        rate: arguments.rate,
    };
    let mut progress = Progress::new();
    let record = run::run(&plan, &fio, contestants, &mut |doing| progress.show(doing));
    progress.end();
    tell(&record.map_err(Failure::of)?, &arguments.out, format)
}

/// A profile of targets against clusters of its own.
fn in_own_cluster(profile: &Profile, place: &Path, arguments: &RunArguments, format: Format) -> Result<(), Failure> {
    let how = match profile.name {
        "depth" => clusters::depth,
        "volumes" => clusters::volumes,
        "stress" => clusters::stress,
        name => return Err(Failure::new(format!("{name} has no cluster of its own: name a target with --target"))),
    };
    refuse_of_targets(arguments)?;
    let own = OwnArguments {
        dir: Some(place.to_owned()),
        out: arguments.out.clone(),
        quick: arguments.quick,
        repeats: arguments.repeats,
        seconds: arguments.seconds,
        size: arguments.size,
        rate: arguments.rate,
        engine: arguments.engine.clone(),
        fio: arguments.fio.clone(),
    };
    measure_own(profile.name, &own, format, |plan, fio, told| how(place, plan, fio, told))
}

/// What is said of targets says nothing of a cluster that is made.
fn refuse_of_targets(arguments: &RunArguments) -> Result<(), Failure> {
    let said = [
        ("--setting", !arguments.settings.is_empty()),
        ("--process", !arguments.processes.is_empty()),
        ("--storage", !arguments.storage.is_empty()),
        ("--engine", arguments.engine != bench_target::DEFAULT_ENGINE),
    ];
    match said.iter().find(|(_, is_said)| *is_said) {
        Some((what, _)) => {
            Err(Failure::new(format!("{what} is about targets, and --dir makes what is measured: leave one out")))
        }
        None => Ok(()),
    }
}

/// Bytes of each volume of a cluster of its own: memory holds three copies of all of them.
fn own_span_bytes(profile: &Profile) -> u64 {
    match profile.name {
        "depth" => 1 << 30,
        "volumes" => 128 << 20,
        _ => profile.span_bytes,
    }
}

/// What is done where a profile sets up what it measures.
fn own_plan(profile: &'static Profile, arguments: &OwnArguments) -> Plan {
    let (span_bytes, warm_up, measured, repeats) = match arguments.quick {
        true => (OWN_QUICK_SPAN_BYTES, QUICK_WARM_UP, OWN_QUICK_MEASURED, QUICK_REPEATS),
        false => (own_span_bytes(profile), WARM_UP, MEASURED, REPEATS),
    };
    Plan {
        profile,
        quick: arguments.quick,
        span_bytes: arguments.size.map_or(span_bytes, |size| size.0),
        times: Times {
            warm_up,
            measured: arguments.seconds.map_or(measured, |seconds| Duration::from_secs(seconds.into())),
        },
        repeats: arguments.repeats.unwrap_or(repeats).into(),
        rate: arguments.rate,
    }
}

/// A profile that sets up what it measures, which `how` does.
fn measure_own(
    name: &str,
    arguments: &OwnArguments,
    format: Format,
    how: impl FnOnce(&Plan, &Fio, &mut dyn FnMut(&str)) -> Result<Record, Failure>,
) -> Result<(), Failure> {
    let fio = Fio::find(&arguments.fio).map_err(Failure::of)?;
    let plan = own_plan(Profile::named(name).expect("every command has its profile"), arguments);
    make_room(&arguments.out)?;
    let mut progress = Progress::new();
    let record = how(&plan, &fio, &mut |doing| progress.show(doing));
    progress.end();
    tell(&record?, &arguments.out, format)
}

fn layers(arguments: &OwnArguments, plan: &Plan, fio: &Fio, told: &mut dyn FnMut(&str)) -> Result<Record, Failure> {
    let (layers, contestants) = layers::make(arguments, plan, fio, told)?;
    let record = run::run(plan, fio, contestants, told).map_err(Failure::of);
    layers.end();
    record
}

fn make_room(out: &Path) -> Result<(), Failure> {
    fs::create_dir_all(out).map_err(|error| Failure::new(format!("{}: {error}", out.display())))
}

/// Keeps a record, and says what came of it.
fn tell(record: &Record, out: &Path, format: Format) -> Result<(), Failure> {
    let files = keep(record, out)?;
    let text = || {
        let records = [(name_of(&files[0]), record.clone())];
        let names: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
        format!("{}\n{}\n", figures::text(&compare::entries(&records)), names.join("\n"))
    };
    show(format, record, |_| text())
}

/// Writes JSON, CSV and HTML under a name that no other result has.
fn keep(record: &Record, directory: &Path) -> Result<[PathBuf; 3], Failure> {
    let time = report::utc(record.started_unix_seconds).replace(['-', ':'], "").replace(' ', "-");
    for attempt in 1..=1000 {
        let number = if attempt == 1 { String::new() } else { format!("-{attempt}") };
        let name = format!("{}-{time}{number}", record.profile);
        let path = |ending: &str| directory.join(format!("{name}.{ending}"));
        let json = path("json");
        let write = |path: &Path, text: &str| {
            let file = OpenOptions::new().write(true).create_new(true).open(path);
            file.and_then(|mut file| file.write_all(text.as_bytes()))
        };
        let failed = |path: &Path, error: std::io::Error| Failure::new(format!("{}: {error}", path.display()));
        match write(&json, &record.to_json()) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => continue,
            written => written.map_err(|error| failed(&json, error))?,
        }
        let records = [(name_of(&json), record.clone())];
        let (csv, html) = (path("csv"), path("html"));
        write(&csv, &figures::csv(record)).map_err(|error| failed(&csv, error))?;
        write(&html, &report::html(&compare::entries(&records))).map_err(|error| failed(&html, error))?;
        return Ok([json, csv, html]);
    }
    Err(Failure::new(format!("{} has too many results of this second: name another --out", directory.display())))
}

fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

fn side_by_side(files: &[PathBuf], context: bool, html: Option<&Path>, format: Format) -> Result<(), Failure> {
    let read = |file: &PathBuf| Ok((file.display().to_string(), Record::read(file).map_err(Failure::of)?));
    let records: Vec<(String, Record)> = files.iter().map(read).collect::<Result<_, Failure>>()?;
    let entries = compare::entries(&records);
    if !context {
        compare::refuse_unlike(&entries).map_err(Failure::of)?;
    }
    if let Some(path) = html {
        fs::write(path, report::html(&entries))
            .map_err(|error| Failure::new(format!("{}: {error}", path.display())))?;
    }
    let all: Vec<&Record> = records.iter().map(|(_, record)| record).collect();
    print(&shown(format, &all, |_| figures::text(&entries))?)
}

/// A result, as `ls` shows it.
#[derive(Serialize)]
struct Kept {
    file: String,
    profile: String,
    started_unix_seconds: u64,
    quick: bool,
    targets: Vec<String>,
}

fn list(directory: &Path, format: Format) -> Result<(), Failure> {
    let unreadable = |error: std::io::Error| {
        Failure::new(format!(
            "{}: {error}: results are where `cairn bench PROFILE --out DIR` left them",
            directory.display()
        ))
    };
    let mut paths = Vec::new();
    for entry in fs::read_dir(directory).map_err(unreadable)? {
        paths.push(entry.map_err(unreadable)?.path());
    }
    paths.sort();
    // Files that are no results are not its business.
    let kept = |path: PathBuf| {
        let record = (path.extension()? == "json").then(|| Record::read(&path).ok())??;
        Some(Kept {
            file: path.display().to_string(),
            profile: record.profile,
            started_unix_seconds: record.started_unix_seconds,
            quick: record.quick,
            targets: record.targets.into_iter().map(|target| target.target).collect(),
        })
    };
    let results: Vec<Kept> = paths.into_iter().filter_map(kept).collect();
    show(format, &results, |results| {
        let row = |kept: &Kept| {
            let profile = if kept.quick { format!("{} (quick)", kept.profile) } else { kept.profile.clone() };
            [report::utc(kept.started_unix_seconds), profile, kept.targets.join(", "), kept.file.clone()]
        };
        table(["STARTED (UTC)", "PROFILE", "TARGETS", "FILE"], &results.iter().map(row).collect::<Vec<_>>())
    })
}
