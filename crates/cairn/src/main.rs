//! # cairn: the one binary
//!
//! ```text
//!   args      what may be said, and one line for what may not
//!   client    the admin API of a running cluster: all commands but demo and node use nothing else
//!   volume, status, demo, node      one room per command
//!   output    tables for people, JSON for programs
//! ```
//!
//! Exit status 0; 1 with one line on stderr that says what is wrong and what to do; 2 for a wrong command line.

mod args;
mod client;
mod output;
mod serve;
mod status;
mod volume;

use args::{Arguments, Command, NodeCommand};
use std::process::ExitCode;

/// What went wrong, as the one line that stderr gets.
#[derive(Debug)]
pub(crate) struct Failure(pub(crate) String);

impl Failure {
    /// Any error that says both what is wrong and what to do.
    pub(crate) fn of(error: impl std::fmt::Display) -> Self {
        Self(error.to_string())
    }
}

const EXIT_FAILURE: u8 = 1;
const EXIT_USAGE: u8 = 2;

fn main() -> ExitCode {
    let arguments = match args::parse(std::env::args_os()) {
        Ok(arguments) => arguments,
        Err(args::Stop::Shown(text)) => return finish(output::print(&text), EXIT_FAILURE),
        Err(args::Stop::Usage(line)) => return finish(Err(Failure(line)), EXIT_USAGE),
    };
    finish(run(arguments), EXIT_FAILURE)
}

fn run(arguments: Arguments) -> Result<(), Failure> {
    let format = arguments.output;
    let log_format = if arguments.log_json { node::log::LogFormat::Json } else { node::log::LogFormat::Text };
    node::log::start(log_format).map_err(Failure::of)?;
    let client = || client::Client::new(&arguments.admin);
    match arguments.command {
        Command::Demo(demo) => serve::demo(demo),
        Command::Node(NodeCommand::Run { config }) => serve::node(&config),
        Command::Volume(command) => volume::run(&client(), command, format),
        Command::Status => status::run(&client(), format),
    }
}

fn finish(result: Result<(), Failure>, failure_code: u8) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure(line)) => {
            eprintln!("cairn: {}", line.replace('\n', " "));
            ExitCode::from(failure_code)
        }
    }
}
