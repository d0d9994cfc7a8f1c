//! `cairn bench hazard ghost-write`: plays it against the target that is named, and says in numbers what was done.

use crate::Failure;
use crate::output::{Format, show};
use clap::{Args, Subcommand};
use hazard::{Freeze, Hooks, Plan, Report, Round};
use nvme::host::HostIdentity;
use std::net::SocketAddr;
use std::time::Duration;

const HELP: &str = "\
Examples:
  cairn bench hazard ghost-write --path 10.0.0.1:4420 --path 10.0.0.2:4420 --nqn NQN --nsid 1 --destroy-data \\
    --freeze 'ssh $HAZARD_HOST pkill -STOP target' --thaw 'ssh $HAZARD_HOST pkill -CONT target'
  cairn bench hazard ghost-write --path … --path … --nqn NQN --nsid 1 --destroy-data      without hooks

The host writes through one path, which freezes; what has no answer there it gives up, writes it again through another path, and
then newer contents. The path thaws, and all blocks are read through all paths: whatever is older than what was acknowledged is a
ghost, and the exit status 1. Without --freeze bytes of the host are held back between it and the target, from the midst of a
command on, and come later. 1 is also the exit status where nothing was proven: nothing hung, or nobody else went on.
docs/heads.md says more.";

#[derive(Debug, Subcommand)]
pub(crate) enum HazardCommand {
    /// Whether what a host gave up on one path is done later, over what it has written through another since
    #[command(after_help = HELP)]
    GhostWrite(Box<GhostWriteArguments>),
}

#[derive(Debug, Args)]
pub(crate) struct GhostWriteArguments {
    /// ADDRESS:PORT of the subsystem; two at least
    #[arg(long = "path", required = true, value_name = "ADDRESS:PORT")]
    paths: Vec<SocketAddr>,
    /// The subsystem
    #[arg(long)]
    nqn: String,
    /// The namespace: what is on it is written over
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    nsid: u32,
    /// Nobody needs what is on the namespace
    #[arg(long)]
    destroy_data: bool,
    /// Shell command that has whoever serves $HAZARD_ADDRESS ($HAZARD_HOST, $HAZARD_PORT) stand still
    #[arg(long, value_name = "COMMAND", requires = "thaw")]
    freeze: Option<String>,
    /// And one that has it go on
    #[arg(long, value_name = "COMMAND", requires = "freeze")]
    thaw: Option<String>,
    /// How often
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    rounds: u32,
    /// Commands under way when the path freezes
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=1024))]
    depth: u64,
    /// Blocks of 4 KiB that are used, evenly over the namespace
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u64).range(1..=65_536))]
    blocks: u64,
    /// Seconds after which the host gives up what has no answer [default: 5; without --freeze twice --keep-alive]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=600))]
    give_up: Option<u64>,
    /// Keep alive timeout that the host asks for
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=600))]
    keep_alive: u64,
    /// Seconds that all blocks are read again and again after the thaw
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    watch: u64,
    /// Seconds that another path may take to serve
    #[arg(long, value_name = "SECONDS", default_value_t = 120, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    patience: u64,
    /// Name that the host says it has
    #[arg(
        long,
        value_name = "NQN",
        default_value = "nqn.2014-08.org.nvmexpress:uuid:7d4ac1a2-91d4-4c26-a9e5-67686f737421"
    )]
    host_nqn: String,
}

pub(crate) fn run(HazardCommand::GhostWrite(arguments): HazardCommand, format: Format) -> Result<(), Failure> {
    let plan = plan(*arguments)?;
    let depth = plan.depth;
    // What is being done is for whoever watches; the report is the answer.
    let report = hazard::run(plan, |doing| eprintln!("{doing}")).map_err(Failure::of)?;
    show(format, &report, |report| text(report, depth))?;
    match report.is_pass() {
        true => Ok(()),
        false => Err(Failure::new(format!(
            "{} reads showed something else than what was acknowledged last: a ghost has written",
            report.ghost_reads
        ))),
    }
}

fn plan(arguments: GhostWriteArguments) -> Result<Plan, Failure> {
    let GhostWriteArguments { paths, nqn, nsid, freeze, thaw, give_up, keep_alive, .. } = arguments;
    let is_twice = paths.iter().enumerate().any(|(index, path)| paths[..index].contains(path));
    if paths.len() < 2 || is_twice {
        return Err(Failure::new(
            "one path is no multipath: name two addresses of the subsystem, each with --path".to_owned(),
        ));
    }
    if !arguments.destroy_data {
        return Err(Failure::new(format!(
            "namespace {nsid} of {nqn} would be written over: say --destroy-data if nobody needs what is on it"
        )));
    }
    let freeze = freeze.zip(thaw).map_or(Freeze::Held, |(freeze, thaw)| Freeze::Hooks(Hooks { freeze, thaw }));
    // What a target cannot know before the keep alive timeout is over it cannot be blamed for.
    let default_give_up = if matches!(freeze, Freeze::Held) { 2 * keep_alive } else { 5 };
    Ok(Plan {
        paths,
        subsystem: nqn,
        nsid,
        host: HostIdentity { nqn: arguments.host_nqn, id: *b"cairn-ghost-host" },
        freeze,
        rounds: arguments.rounds,
        blocks: arguments.blocks.max(arguments.depth),
        depth: arguments.depth,
        give_up: Duration::from_secs(give_up.unwrap_or(default_give_up)),
        keep_alive: Duration::from_secs(keep_alive),
        watch: Duration::from_secs(arguments.watch),
        patience: Duration::from_secs(arguments.patience),
    })
}

fn text(report: &Report, depth: u64) -> String {
    let mut text = String::new();
    for (number, round) in (1..).zip(&report.rounds) {
        text += &of_round(number, round, depth);
    }
    for ghost in &report.ghosts {
        let when = ghost.after_thaw_ms.map_or("before the thaw".to_owned(), |ms| format!("{ms} ms after the thaw"));
        text += &format!(
            "ghost    round {}, byte {}: write {} was acknowledged, {} was read through {} {when}\n",
            ghost.round, ghost.offset_bytes, ghost.acknowledged, ghost.found, ghost.path
        );
    }
    let rounds = report.rounds.len();
    let hanging: u64 = report.rounds.iter().map(|round| round.hanging).sum();
    let read: u64 = report.rounds.iter().flat_map(|round| &round.read).map(|(_, reads)| reads).sum();
    let verdict = if report.is_pass() { "PASS" } else { "FAIL" };
    text + &format!(
        "{verdict}     {rounds} rounds, {} writes, {hanging} left hanging and done elsewhere, {read} blocks read back, {} of them ghosts\n",
        report.written, report.ghost_reads
    )
}

fn of_round(number: u32, round: &Round, depth: u64) -> String {
    let read: Vec<String> = round.read.iter().map(|(path, reads)| format!("{reads} through {path}")).collect();
    let held = match round.held_bytes {
        0 => String::new(),
        held => format!(", {held} bytes held back, of which the target refused {}", round.refused_bytes),
    };
    format!(
        "round {number}  {} frozen for {} ms: {} of {depth} writes left hanging, {} resubmitted (the first done elsewhere after {} ms), \
         {} newer ones{held}; blocks read back: {}\n",
        round.frozen,
        round.frozen_ms,
        round.hanging,
        round.resubmitted,
        round.other_path_ms,
        round.overwritten,
        read.join(", ")
    )
}
