//! `cairn torture`: a load that is judged, on a volume or any NVMe/TCP namespace, while commands hurt and heal what serves it.

use crate::Failure;
use crate::client::Client;
use crate::output::{Format, Progress, show, table};
use ::torture::faults::{Fault, Schedule};
use ::torture::file;
use ::torture::finding::Finding;
use ::torture::judge::Judged;
use ::torture::layout::Layout;
use ::torture::load::Plan;
use ::torture::run::{Report, Torture};
use ::torture::target::{Abilities, Target, Uri, look};
use clap::{ArgGroup, Args};
use node::size::ByteSize;
use node::volume_spec::VolumeName;
use nvme::host::HostIdentity;
use serde::Serialize;
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::signal::unix::{SignalKind, signal};

pub(crate) const HELP: &str = "\
Examples:
  cairn volume create proof --size 1G
  cairn torture --volume proof --seconds 120 --every 20 \\
    --kill 'ssh node-2 systemctl kill -s KILL cairn' \\
    --kill 'ssh node-1 systemctl kill -s STOP cairn' --heal 'ssh node-1 systemctl kill -s CONT cairn'
  cairn torture --target nvme-tcp://10.0.0.1:4420,10.0.0.2:4420/NQN?nsid=1 --overwrite --until-interrupted
  cairn torture --volume proof --keep history.json
  cairn torture --judge history.json

Commands are shell commands, run in turn: one each --every seconds. A --heal follows its --kill after --kill-for seconds; give one
for each --kill, or none ('true' where nothing is to be healed). What is hurt is healed at the end, on Ctrl-C too; not after
kill -9 of the tool. At the end all is read again on new connections. 0 only if nothing that was acknowledged was lost, torn or
stale, no command failed, none waited for longer than --hang-guard, and every --kill and --heal did its work.

What is on the volume is written over: one that holds something is refused without --overwrite. docs/torture.md says how it judges.";

/// Who the host is unless told otherwise: so that a volume can let it in.
const HOST_NQN: &str = "nqn.2014-08.org.nvmexpress:uuid:0c1f6e0a-58f5-4b3c-9a51-3d6d0f6f7a90";
const HOST_ID: [u8; 16] = *b"cairn-torture-hs";
/// Between two looks at what others do with a volume.
const IN_USE_LOOK: Duration = Duration::from_secs(1);
/// Findings that are told.
const TOLD_MAX: usize = 8;

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("what").required(true).args(["volume", "target", "judge"]))]
pub(crate) struct TortureArguments {
    /// A volume of the cluster that the admin API tells of
    #[arg(long, value_name = "NAME")]
    volume: Option<VolumeName>,
    /// Any NVMe/TCP namespace: nvme-tcp://HOST:PORT[,HOST:PORT…]/NQN?nsid=N
    #[arg(long)]
    target: Option<Uri>,
    /// Judge what --keep has left, and do nothing else
    #[arg(long, value_name = "FILE")]
    judge: Option<PathBuf>,
    /// How long commands run
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=31_536_000))]
    seconds: u64,
    /// Until Ctrl-C, which ends it and judges
    #[arg(long, conflicts_with = "seconds")]
    until_interrupted: bool,
    /// Shell command that hurts whatever serves the volume; may be given several times: they take turns
    #[arg(long = "kill", value_name = "COMMAND")]
    kills: Vec<String>,
    /// Shell command that heals it again, one for each --kill, in the same order
    #[arg(long = "heal", value_name = "COMMAND", requires = "kills")]
    heals: Vec<String>,
    /// Seconds from one --kill to the next, and before the first
    #[arg(long, value_name = "SECONDS", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    every: u64,
    /// Seconds from a --kill to its --heal
    #[arg(long, value_name = "SECONDS", default_value_t = 8, value_parser = clap::value_parser!(u64).range(0..=86_400))]
    kill_for: u64,
    /// No command may wait longer for its answer
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    hang_guard: u64,
    /// Commands under way at a time
    #[arg(long, value_name = "N", default_value_t = 6, value_parser = clap::value_parser!(u16).range(1..=256))]
    workers: u16,
    /// Bytes that are used, in pieces of 64 KiB evenly over the volume: fewer are written more often, and judged harder
    #[arg(long, value_name = "SIZE", default_value = "16M")]
    span: ByteSize,
    /// Of what is drawn: which blocks, which commands [default: another one each time]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Nobody needs what is on it
    #[arg(long)]
    overwrite: bool,
    /// Leave there what was done and seen, a line of JSON for each operation
    #[arg(long, value_name = "FILE", conflicts_with = "judge")]
    keep: Option<PathBuf>,
    /// Name that the host says it has
    #[arg(long, value_name = "NQN", default_value = HOST_NQN)]
    host_nqn: String,
}

impl TortureArguments {
    /// What clap cannot see.
    pub(crate) fn check(&self) -> Result<(), String> {
        let (kills, heals) = (self.kills.len(), self.heals.len());
        if heals > 0 && heals != kills {
            return Err(format!(
                "{kills} --kill and {heals} --heal: give one --heal for each --kill, in the same order ('true' heals nothing), or none"
            ));
        }
        Ok(())
    }

    fn schedule(&self) -> Schedule {
        let fault =
            |(index, kill): (usize, &String)| Fault { kill: kill.clone(), heal: self.heals.get(index).cloned() };
        Schedule {
            faults: self.kills.iter().enumerate().map(fault).collect(),
            every: Duration::from_secs(self.every),
            kill_for: Duration::from_secs(self.kill_for),
        }
    }
}

pub(crate) fn run(
    arguments: TortureArguments,
    client: impl FnOnce() -> Result<Client, Failure>,
    format: Format,
) -> Result<(), Failure> {
    if let Some(path) = &arguments.judge {
        return judge(path, format);
    }
    let host = HostIdentity { nqn: arguments.host_nqn.clone(), id: HOST_ID };
    let (name, target, abilities) = match (&arguments.volume, &arguments.target) {
        (Some(volume), _) => of_volume(volume.as_str(), &client()?, &host, arguments.overwrite)?,
        (_, Some(uri)) => of_uri(uri, &host)?,
        _ => unreachable!("clap asks for one of them"),
    };
    let layout = Layout::new(abilities.size_bytes, arguments.span.0, abilities.block_bytes, abilities.most_bytes);
    let Some(layout) = layout else {
        return Err(Failure::new(format!("{name} has {} bytes: take a larger one", abilities.size_bytes)));
    };
    let keep = arguments.keep.as_deref().map(new_file).transpose()?;
    let torture = Torture {
        name: name.clone(),
        plan: Plan {
            layout,
            atomic_bytes: atomic_bytes(&abilities),
            workers: arguments.workers.into(),
            zeroes: abilities.zeroes,
            // Of others nobody says what is read of what was given back.
            discards: arguments.volume.is_some(),
            needs_flush: abilities.needs_flush,
            spares: !arguments.overwrite,
            keep,
            ..Plan::new(target, host, arguments.seed.unwrap_or_else(another_seed))
        },
        schedule: arguments.schedule(),
        time: (!arguments.until_interrupted).then(|| Duration::from_secs(arguments.seconds)),
        hang_guard: Duration::from_secs(arguments.hang_guard),
    };
    let is_interrupted = hear_interrupts()?;
    let mut progress = Progress::new();
    let report = torture.run(is_interrupted, |doing| progress.show(doing));
    progress.end();
    let report = report.map_err(|error| Failure::new(format!("{name}: {error}")))?;
    show(format, &report, text)?;
    verdict(&report.findings)
}

fn another_seed() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| u64::from(since.subsec_micros()))
}

/// The largest power of two of which it says that so much is written all or nothing.
fn atomic_bytes(abilities: &Abilities) -> u64 {
    let most = abilities.atomic_bytes.min(64 << 10).max(abilities.block_bytes);
    1 << most.ilog2()
}

fn of_volume(
    name: &str,
    client: &Client,
    host: &HostIdentity,
    overwrite: bool,
) -> Result<(String, Target, Abilities), Failure> {
    let volume = client.volume(name)?;
    if volume.locked {
        return Err(Failure::new(format!("{name} is locked: cairn volume unlock {name}")));
    }
    if !volume.any_host && !volume.hosts.contains(&host.nqn) {
        return Err(Failure::new(format!("{name} does not let this host in: cairn host allow {name} {}", host.nqn)));
    }
    let held = volume.usage.map_or(0, |usage| usage.unique_bytes + usage.shared_bytes);
    if held > 0 && !overwrite {
        return Err(Failure::new(format!(
            "{name} holds {}, which would be written over: take a new volume (cairn volume create), or say with --overwrite that \
             nobody needs it",
            ByteSize(held)
        )));
    }
    let used = commands_of(name, client)?;
    std::thread::sleep(IN_USE_LOOK);
    let used = commands_of(name, client)?.saturating_sub(used);
    if used > 0 {
        return Err(Failure::new(format!(
            "{name} is in use: somebody else had {used} commands answered within a second; take a volume that nobody uses"
        )));
    }
    let paths: Vec<_> = volume.nvme_addresses.iter().filter_map(|address| address.parse().ok()).collect();
    let (nqn, nsid) = (volume.nqn, volume.nsid);
    let abilities = look(&paths, &nqn, nsid, host).map_err(|why| Failure::new(format!("{name}: {why}")))?;
    Ok((name.to_owned(), Target { paths, nqn, nsid, nbd: None, size_bytes: abilities.size_bytes }, abilities))
}

/// Commands that were answered in the last minute or two.
fn commands_of(volume: &str, client: &Client) -> Result<u64, Failure> {
    Ok(client.latency(volume)?.operations.iter().map(|of| of.count).sum())
}

fn of_uri(uri: &Uri, host: &HostIdentity) -> Result<(String, Target, Abilities), Failure> {
    let name = format!("namespace {} of {}", uri.nsid, uri.nqn);
    let paths = uri.paths().map_err(Failure::new)?;
    let abilities = look(&paths, &uri.nqn, uri.nsid, host).map_err(Failure::new)?;
    let (nqn, nsid) = (uri.nqn.clone(), uri.nsid);
    Ok((name, Target { paths, nqn, nsid, nbd: None, size_bytes: abilities.size_bytes }, abilities))
}

fn new_file(path: &Path) -> Result<File, Failure> {
    File::create_new(path)
        .map_err(|error| Failure::new(format!("{}: {error}: name a file that is not there", path.display())))
}

/// Whether somebody has said that there is enough; who says it twice ends the process.
fn hear_interrupts() -> Result<&'static AtomicBool, Failure> {
    static IS_INTERRUPTED: AtomicBool = AtomicBool::new(false);
    let failed = |error: std::io::Error| Failure::new(format!("cannot wait for signals: {error}"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    let (mut interrupt, mut terminate) = {
        let _entered = runtime.enter();
        (signal(SignalKind::interrupt()).map_err(failed)?, signal(SignalKind::terminate()).map_err(failed)?)
    };
    std::thread::spawn(move || {
        runtime.block_on(async {
            loop {
                tokio::select! { _ = interrupt.recv() => {}, _ = terminate.recv() => {} }
                if IS_INTERRUPTED.swap(true, Ordering::Relaxed) {
                    eprintln!("cairn: ended at once: nothing was judged, and what was hurt is not healed");
                    std::process::exit(130);
                }
            }
        });
    });
    Ok(&IS_INTERRUPTED)
}

/// What is said of a history that was kept.
#[derive(Debug, Serialize)]
struct Verdict {
    file: String,
    histories: u64,
    operations: u64,
    findings: Vec<Finding>,
    passed: bool,
}

fn judge(path: &Path, format: Format) -> Result<(), Failure> {
    let failed = |why: String| Failure::new(format!("{}: {why}", path.display()));
    let file = File::open(path).map_err(|error| failed(error.to_string()))?;
    let mut judged = Judged::default();
    file::read(BufReader::new(file), |record| judged.add(&record)).map_err(|error| failed(error.to_string()))?;
    let Judged { findings, histories, operations, .. } = judged;
    let verdict_of =
        Verdict { file: path.display().to_string(), histories, operations, passed: findings.is_empty(), findings };
    show(format, &verdict_of, |verdict| {
        let mut text = told(&verdict.findings);
        text += if verdict.passed { "PASS" } else { "FAIL" };
        text + &format!("  {operations} operations judged\n")
    })?;
    verdict(&verdict_of.findings)
}

fn verdict(findings: &[Finding]) -> Result<(), Failure> {
    match findings {
        [] => Ok(()),
        [only] => Err(Failure::new(only.to_string())),
        [first, rest @ ..] => Err(Failure::new(format!("{first} (and {} more)", rest.len()))),
    }
}

fn told(findings: &[Finding]) -> String {
    let mut text = String::new();
    for finding in &findings[..findings.len().min(TOLD_MAX)] {
        text += &format!("{finding}\n");
        finding.story.lines().for_each(|line| text += &format!("  {line}\n"));
    }
    if findings.len() > TOLD_MAX {
        text += &format!("and {} more\n", findings.len() - TOLD_MAX);
    }
    text
}

fn seconds(ms: u64) -> String {
    format!("{:.1} s", ms as f64 / 1000.0)
}

fn text(report: &Report) -> String {
    let mut text = format!(
        "{}: {}, {} workers, {}, seed {}\n\n",
        report.target,
        seconds(report.ran_ms),
        report.workers,
        ByteSize(report.span_bytes),
        report.seed
    );
    let row = [
        report.commands.to_string(),
        report.reads.to_string(),
        report.writes.to_string(),
        report.flushes.to_string(),
        report.sent_again.to_string(),
        report.ambiguous.to_string(),
        seconds(report.longest_wait_ms),
    ];
    text += &table(["COMMANDS", "READS", "WRITES", "FLUSHES", "SENT AGAIN", "AMBIGUOUS", "LONGEST WAIT"], &[row]);
    if !report.faults.is_empty() {
        text += "\n";
        let rows = report.faults.iter().map(|hurt| {
            [
                seconds(hurt.began_ms),
                hurt.lasted_ms.map_or("not healed".to_owned(), seconds),
                seconds(hurt.longest_read_ms),
                seconds(hurt.longest_write_ms),
                seconds(hurt.no_answer_ms),
                hurt.sent_again.to_string(),
                hurt.kill.replace('\n', " "),
            ]
        });
        let headings = ["HURT AT", "FOR", "LONGEST READ", "LONGEST WRITE", "NO ANSWER FOR", "SENT AGAIN", "BY"];
        text += &table(headings, &rows.collect::<Vec<_>>());
    }
    text += "\n";
    text += &told(&report.findings);
    text + &if report.passed {
        format!(
            "PASS  {} operations judged, {} read again at the end: nothing was lost, torn or stale, and nothing waited for longer than {}\n",
            report.operations,
            ByteSize(report.read_again_blocks * report.block_bytes),
            seconds(report.longest_wait_ms)
        )
    } else {
        format!("FAIL  {} operations judged\n", report.operations)
    }
}
