//! The command line: what may be said, and one line for what may not.

mod group;
mod machine;
mod pool;
mod upgrade;
mod volume;

use crate::help;
use crate::output::Format;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Parser, Subcommand, ValueEnum};
use node::config::DEFAULT_ADMIN_PORT;
use node::volume_spec::{SnapshotPath, VolumeName, VolumeSpec, shortened};
use std::ffi::OsString;
use ureq::http::Uri;

pub(crate) use group::GroupCommand;
pub(crate) use machine::{DemoArguments, DeviceCommand, InitArguments, JoinArguments, MachineArguments, NodeCommand};
pub(crate) use pool::{PoolChangeArguments, PoolCommand};
pub(crate) use upgrade::UpgradeCommand;
pub(crate) use volume::{HostCommand, SecretArguments, SnapshotCommand, TrashCommand, VolumeCommand, VolumePlacement};

/// Environment variable that names the cluster where no `--admin` does.
const ADMIN_VARIABLE: &str = "CAIRN_ADMIN";

/// Cairn: a distributed block store for NVMe flash.
#[derive(Debug, Parser)]
#[command(name = "cairn", version, args_override_self = true, help_template = help::OVERVIEW)]
pub(crate) struct Arguments {
    #[arg(long, global = true, value_name = "URL", value_parser = admin_url, help = format!(
        "Admin API of the cluster [env: {ADMIN_VARIABLE}; default: http://127.0.0.1:{DEFAULT_ADMIN_PORT}]"))]
    pub(crate) admin: Option<String>,
    /// How to print
    #[arg(short, long, global = true, value_enum, default_value_t, value_name = "FORMAT")]
    pub(crate) output: Format,
    /// Log lines as JSON (their level: CAIRN_LOG=off|error|warn|info|debug|trace)
    #[arg(long, global = true)]
    pub(crate) log_json: bool,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve a whole cluster from one directory, in one process, until Ctrl-C
    #[command(after_help = help::DEMO)]
    Demo(DemoArguments),
    /// Begin a cluster with this machine as its first node
    #[command(after_help = help::INIT)]
    Init(InitArguments),
    /// Make this machine a node of a cluster that is there
    #[command(after_help = help::JOIN)]
    Join(JoinArguments),
    /// What a machine of a cluster runs
    #[command(subcommand)]
    Node(NodeCommand),
    /// Volumes: create, ls, info, resize, set, rename, move, unlock, lock, rekey, delete
    #[command(subcommand)]
    Volume(VolumeCommand),
    /// NVMe hosts that may use volumes: allow, deny, ls
    #[command(subcommand, after_help = help::HOST)]
    Host(HostCommand),
    /// Pools: create, ls, info, set
    #[command(subcommand)]
    Pool(PoolCommand),
    /// Snapshots of volumes: create, ls, delete, rollback, changes
    #[command(subcommand, after_help = help::SNAPSHOT)]
    Snapshot(SnapshotCommand),
    /// Make a volume of a snapshot: it begins with what that holds, and shares its space
    Clone {
        /// VOLUME@NAME
        path: SnapshotPath,
        /// Name of the new volume
        new: VolumeName,
    },
    /// Devices: format, add, ls, drain, undrain, replace, rm, check
    #[command(subcommand)]
    Device(DeviceCommand),
    /// Deleted volumes that can still be restored: ls, restore, empty
    #[command(subcommand, after_help = help::TRASH)]
    Trash(TrashCommand),
    /// Measure block storage with fio, or play a hazard: eight, depth, mix, volumes, stress, layers, failure, network, scale, report, hazard, ls
    #[command(subcommand, after_help = crate::bench::HELP)]
    Bench(crate::bench::BenchCommand),
    /// Prove durability: kill what serves a volume while it is used, and judge every answer
    #[command(after_help = crate::torture::HELP)]
    Torture(Box<crate::torture::TortureArguments>),
    /// How the cluster is, why, what is being done, and when that ends
    #[command(after_help = help::STATUS)]
    Status {
        /// Draw it anew each second, until Ctrl-C
        #[arg(long)]
        watch: bool,
    },
    /// What happened in the cluster, the newest last
    #[command(after_help = help::EVENTS)]
    Events(crate::events::EventsArguments),
    /// Read all copies from their devices, and compare them: 0 only if every copy of every block agrees
    #[command(after_help = help::CHECK)]
    Check {
        /// Of this pool alone
        #[arg(long, value_name = "NAME")]
        pool: Option<String>,
    },
    /// Placement groups that nobody can serve, and whose copy counts: ls, force
    #[command(subcommand)]
    Group(GroupCommand),
    /// What release each node runs, and going on to it for good: status, finish
    Upgrade {
        #[command(subcommand)]
        command: Option<UpgradeCommand>,
    },
    /// The cluster's map as a file: export, import, gather, rebuild
    #[command(subcommand, after_help = crate::map::HELP)]
    Map(crate::map::MapCommand),
    /// What a report of a fault needs: bundle
    #[command(subcommand, after_help = crate::debug::HELP)]
    Debug(crate::debug::DebugCommand),
    /// Where the time of a volume's I/O goes, and its slowest commands
    #[command(after_help = help::WHY)]
    Why {
        /// The volume
        volume: VolumeName,
    },
}

impl ValueEnum for Format {
    fn value_variants<'a>() -> &'a [Self] {
        &[Self::Text, Self::Json]
    }

    fn to_possible_value(&self) -> Option<clap::builder::PossibleValue> {
        Some(match self {
            Self::Text => "text".into(),
            Self::Json => "json".into(),
        })
    }
}

/// `http://HOST:PORT`, as text without a slash at its end.
fn admin_url(text: &str) -> Result<String, String> {
    let wanted = || "write http://HOST:PORT, as the line `ready` of `cairn demo` says it".to_owned();
    let uri: Uri = text.parse().map_err(|_| wanted())?;
    let is_plain = uri.scheme_str() == Some("http") && uri.host().is_some_and(|host| !host.is_empty());
    let has_no_path = uri.path_and_query().is_none_or(|path| path.as_str() == "/");
    if is_plain && has_no_path { Ok(text.trim_end_matches('/').to_owned()) } else { Err(wanted()) }
}

/// The admin API to ask: the flag wins, then the environment, then where `cairn demo` has it by default.
pub(crate) fn admin_of(flag: Option<String>, environment: Option<OsString>) -> Result<String, UsageError> {
    match (flag, environment.filter(|value| !value.is_empty())) {
        (Some(url), _) => Ok(url),
        (None, None) => Ok(format!("http://127.0.0.1:{DEFAULT_ADMIN_PORT}")),
        (None, Some(value)) => {
            let value = value.to_string_lossy();
            admin_url(&value).map_err(|wanted| UsageError(format!("{ADMIN_VARIABLE} is '{value}': {wanted}")))
        }
    }
}

/// What [`admin_of`] finds in this process's environment.
pub(crate) fn admin_from_environment() -> Option<OsString> {
    std::env::var_os(ADMIN_VARIABLE)
}

/// What the command line asks for.
#[derive(Debug)]
pub(crate) enum Request {
    /// A command.
    Run(Box<Arguments>),
    /// Help or the version: this text.
    Show(String),
}

/// The command line is wrong: one line that says how, and what to write instead.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct UsageError(pub(crate) String);

/// Reads the command line.
pub(crate) fn parse(words: impl IntoIterator<Item = OsString>) -> Result<Request, UsageError> {
    let words: Vec<OsString> = words.into_iter().collect();
    let arguments = match Arguments::try_parse_from(&words) {
        Ok(arguments) => arguments,
        Err(error) => return instead(&error, &words),
    };
    match &arguments.command {
        Command::Demo(demo) => check_distinct(&demo.volumes)?,
        Command::Torture(torture) => torture.check().map_err(UsageError)?,
        Command::Volume(VolumeCommand::Set { limits, .. }) if limits.is_empty() => {
            return Err(UsageError("nothing is to be set: give --iops, --bandwidth or --burst".to_owned()));
        }
        _ => {}
    }
    Ok(Request::Run(Box::new(arguments)))
}

/// What clap's "errors" come to: help and version are no errors, the others become one line.
fn instead(error: &clap::Error, words: &[OsString]) -> Result<Request, UsageError> {
    let text = error.to_string();
    let line = match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => return Ok(Request::Show(text)),
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand | ErrorKind::MissingSubcommand => {
            format!("a command is missing: {}", commands_of(words))
        }
        ErrorKind::InvalidSubcommand => {
            let unknown = match error.get(ContextKind::InvalidSubcommand) {
                Some(ContextValue::String(word)) => shortened(word),
                _ => String::new(),
            };
            format!("there is no command '{unknown}': {}", commands_of(words))
        }
        _ => one_line(&without_long_words(error, text)),
    };
    Err(UsageError(line))
}

/// What clap says, with what was written cut where it is long.
fn without_long_words(error: &clap::Error, text: String) -> String {
    let cut = |text: String, kind| match error.get(kind) {
        Some(ContextValue::String(word)) => text.replace(word.as_str(), &shortened(word)),
        _ => text,
    };
    [ContextKind::InvalidValue, ContextKind::InvalidArg].into_iter().fold(text, cut)
}

/// The commands of the group that the words lead to.
fn commands_of(words: &[OsString]) -> String {
    let mut group = Arguments::command();
    group.build();
    let mut path = vec!["cairn".to_owned()];
    for word in words.iter().skip(1).filter_map(|word| word.to_str()) {
        let Some(next) = group.find_subcommand(word).filter(|next| next.has_subcommands()).cloned() else { continue };
        if word != "help" {
            path.push(word.to_owned());
        }
        group = next;
    }
    let names: Vec<&str> =
        group.get_subcommands().map(clap::Command::get_name).filter(|name| *name != "help").collect();
    let path = path.join(" ");
    format!("`{path}` has {}; `{} help` explains them", names.join(", "), path)
}

/// Clap's paragraphs (what is wrong, tips, the usage where it helps) as one line.
fn one_line(text: &str) -> String {
    let (message, usage) = text.split_once("Usage:").unwrap_or((text, ""));
    let words = |part: &str| part.split_whitespace().collect::<Vec<_>>().join(" ");
    let paragraphs = message.split("\n\n").map(words);
    // What clap advises about values that look like flags helps nobody here.
    let is_told = |part: &String| {
        !part.is_empty() && !part.starts_with("For more information") && !part.starts_with("tip: to pass")
    };
    let told: Vec<String> = paragraphs.filter(is_told).collect();
    let message = told.join("; ");
    let message = message.strip_prefix("error: ").unwrap_or(&message);
    match usage.lines().next().map(str::trim) {
        Some(usage) if !usage.is_empty() => format!("{message}; write: {usage}"),
        _ => message.to_owned(),
    }
}

fn check_distinct(volumes: &[VolumeSpec]) -> Result<(), UsageError> {
    for (index, volume) in volumes.iter().enumerate() {
        if volumes[..index].iter().any(|before| before.name == volume.name) {
            return Err(UsageError(format!("--volume names '{}' twice: name each volume once", volume.name)));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
