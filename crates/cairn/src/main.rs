//! # cairn: the one binary
//!
//! ```text
//!   args      what may be said, and one line for what may not
//!   client    the admin API of a running cluster; demo, init, join, node run, map, device format and device check do without
//!   volume, host, pool, snapshot, trash, status, events, check, group, upgrade, device, format, demo, join, nodes, duty, map, debug     one room per command
//!   bench, bench_target, hazard  cairn bench, whom it measures, and what it plays
//!   help      what `cairn help` says beyond the flags
//!   output    tables for people, JSON for programs
//! ```
//!
//! Exit status 0; 1 with one line on stderr that says what is wrong and what to do; 2 for a wrong command line.

mod args;
mod bench;
mod bench_target;
mod check;
mod client;
mod debug;
mod device;
mod duty;
mod events;
mod format;
mod group;
mod hazard;
mod help;
mod host;
mod join;
mod map;
#[cfg(feature = "mutants")]
mod mutant;
mod nodes;
mod output;
mod pool;
mod relocation;
mod serve;
mod snapshot;
mod status;
mod torture;
mod trash;
mod upgrade;
mod volume;
mod why;

use args::{Command, DeviceCommand, NodeCommand, Request, UsageError};
use client::Client;
use debug::DebugCommand;
use std::process::ExitCode;

/// What went wrong, as the one line that stderr gets, and the exit status.
#[derive(Debug)]
pub(crate) struct Failure {
    line: String,
    exit_status: u8,
}

const EXIT_FAILURE: u8 = 1;
const EXIT_USAGE: u8 = 2;

impl Failure {
    /// A line that says both what is wrong and what to do.
    pub(crate) fn new(line: String) -> Self {
        Self { line, exit_status: EXIT_FAILURE }
    }

    /// The line.
    pub(crate) fn line(&self) -> &str {
        &self.line
    }

    /// Any error that says both.
    pub(crate) fn of(error: impl std::fmt::Display) -> Self {
        Self::new(error.to_string())
    }
}

fn main() -> ExitCode {
    #[cfg(feature = "mutants")]
    mutant::activate();
    match args::parse(std::env::args_os()).map_err(usage).and_then(run) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure { line, exit_status }) => {
            eprintln!("cairn: {}", line.replace('\n', " "));
            ExitCode::from(exit_status)
        }
    }
}

fn run(request: Request) -> Result<(), Failure> {
    let arguments = match request {
        Request::Show(text) => return output::print(&text),
        Request::Run(arguments) => arguments,
    };
    let log_format = if arguments.log_json { node::log::LogFormat::Json } else { node::log::LogFormat::Text };
    node::log::start(log_format).map_err(|error| usage(UsageError(error.to_string())))?;
    let (admin, format) = (arguments.admin, arguments.output);
    let client = || args::admin_of(admin, args::admin_from_environment()).map_err(usage).map(|url| Client::new(&url));
    match arguments.command {
        Command::Demo(demo) => serve::demo(demo),
        Command::Init(init) => join::init(init, format),
        Command::Join(join) => join::join(join, format),
        Command::Node(NodeCommand::Run { config }) => serve::node(&config),
        Command::Node(NodeCommand::Ls) => nodes::list(&client()?, format),
        Command::Node(command) => duty::node(&client()?, command, format),
        Command::Volume(command) => volume::run(&client()?, command, format),
        Command::Pool(command) => pool::run(&client()?, command, format),
        Command::Snapshot(command) => snapshot::run(&client()?, command, format),
        Command::Clone { path, new } => snapshot::clone(&client()?, &path, &new, format),
        Command::Host(command) => host::run(&client()?, command, format),
        Command::Device(DeviceCommand::Format { path, force }) => format::run(&path, force, format),
        Command::Device(DeviceCommand::Check { path, repair }) => device::check(&path, repair, format),
        Command::Device(DeviceCommand::Add { path, dry_run }) => device::add(&client()?, &path, dry_run, format),
        Command::Device(DeviceCommand::Ls) => device::list(&client()?, format),
        Command::Device(command) => duty::device(&client()?, command, format),
        Command::Trash(command) => trash::run(&client()?, command, format),
        Command::Bench(command) => bench::run(command, client, format),
        Command::Torture(arguments) => torture::run(*arguments, client, format),
        Command::Status { watch } => status::run(&client()?, watch, format),
        Command::Events(asked) => events::run(&client()?, &asked, format),
        Command::Debug(DebugCommand::Bundle { file }) => debug::bundle(&client()?, file, format),
        Command::Map(command) => map::run(command, format),
        Command::Check { pool } => check::run(&client()?, pool, format),
        Command::Group(command) => group::run(&client()?, command, format),
        Command::Upgrade { command } => upgrade::run(&client()?, command, format),
        Command::Why { volume } => why::run(&client()?, volume.as_str(), format),
    }
}

fn usage(error: UsageError) -> Failure {
    Failure { line: error.0, exit_status: EXIT_USAGE }
}
