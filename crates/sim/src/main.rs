//! `cairn-sim`: runs workloads in simulated worlds.

use sim::mutants;
use sim::runner::{self, Plan};
use sim::workload::{RunOptions, WORKLOADS, Workload};
use std::process::ExitCode;
use std::time::Duration;

const USAGE: &str = "\
usage: cairn-sim list
       cairn-sim run WORKLOAD --seed N [--crashes N] [--mutant M] [--trace]     one seed
       cairn-sim run WORKLOAD --seeds FROM..TO [--crashes N] [--seconds N] [--mutant M]
       cairn-sim mutants [WORKLOAD] [--seeds N]     (a build with --features mutants)";

/// What the code that ships logs, beside the events of a run that is traced.
struct Traced;

impl log::Log for Traced {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        eprintln!("log {} {}", record.level(), record.args());
    }

    fn flush(&self) {}
}

fn main() -> ExitCode {
    if std::env::args().any(|argument| argument == "--trace" || argument == "--log") {
        let _ = log::set_logger(&Traced);
        log::set_max_level(log::LevelFilter::Debug);
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match arguments.first().map(String::as_str) {
        Some("list") => {
            WORKLOADS.iter().for_each(|workload| println!("{:<12} {}", workload.name, workload.about));
            Ok(true)
        }
        Some("run") => Flags::parse(&arguments[1..]).and_then(|flags| run(&flags)),
        Some("mutants") => Flags::parse(&arguments[1..]).and_then(|flags| run_mutants(&flags)),
        _ => Err(String::new()),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(message) => {
            eprintln!("{message}\n{USAGE}");
            ExitCode::from(2)
        }
    }
}

/// What the command line says.
#[derive(Default)]
struct Flags {
    workload: Option<String>,
    seed: Option<u64>,
    seeds: Option<(u64, u64)>,
    crashes: Option<u32>,
    seconds: Option<u64>,
    mutant: Option<String>,
    trace: bool,
}

impl Flags {
    fn parse(arguments: &[String]) -> Result<Self, String> {
        let mut flags = Self::default();
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            let mut value = || rest.next().ok_or(format!("{argument} needs a value"));
            match argument.as_str() {
                "--seed" => flags.seed = Some(number(value()?)?),
                "--seeds" => flags.seeds = Some(range(value()?)?),
                "--crashes" => flags.crashes = Some(number(value()?)?),
                "--seconds" => flags.seconds = Some(number(value()?)?),
                "--mutant" => flags.mutant = Some(value()?.clone()),
                "--trace" => flags.trace = true,
                "--log" => {}
                name if !name.starts_with('-') && flags.workload.is_none() => flags.workload = Some(name.to_owned()),
                other => return Err(format!("what is {other}?")),
            }
        }
        Ok(flags)
    }
}

fn number<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("{text} is not a number that fits here"))
}

/// `FROM..TO`, or a count: that many from 1.
fn range(text: &str) -> Result<(u64, u64), String> {
    match text.split_once("..") {
        Some((from, to)) => Ok((number(from)?, number(to)?)),
        None => Ok((1, number::<u64>(text)? + 1)),
    }
}

fn run(flags: &Flags) -> Result<bool, String> {
    let name = flags.workload.as_deref().ok_or("which workload? (cairn-sim list)")?;
    let workload = Workload::named(name).ok_or(format!("there is no workload {name} (cairn-sim list)"))?;
    let mutant = match &flags.mutant {
        None => None,
        Some(name) => {
            let found = workload.mutants.iter().find(|mutant| format!("{mutant:?}") == *name);
            Some(*found.ok_or(format!("workload {} has no mutant {name}", workload.name))?)
        }
    };
    mutants::activate(mutant);
    let seeds = match (flags.seed, flags.seeds) {
        (Some(seed), None) => seed..seed + 1,
        (None, Some((from, to))) => from..to,
        _ => return Err("say --seed N or --seeds FROM..TO".to_owned()),
    };
    let plan = Plan {
        mutant,
        crashes: flags.crashes.unwrap_or(workload.default_crashes),
        time_limit: flags.seconds.map(Duration::from_secs),
        ..Plan::new(workload, seeds.clone())
    };
    if flags.trace {
        let options = RunOptions { trace: true, ..RunOptions::new(seeds.start, plan.crashes) };
        let outcome = runner::run_seed(workload, &options);
        println!("{}", outcome.as_ref().map_or_else(ToString::to_string, |report| format!("{report:?}")));
        return Ok(outcome.is_ok());
    }
    match runner::run(workload, &plan) {
        Ok(summary) => {
            println!("{}: {} seeds, {}", workload.name, summary.seeds, summary.total);
            Ok(true)
        }
        Err(failed) => {
            println!("{failed}");
            Ok(false)
        }
    }
}

fn run_mutants(flags: &Flags) -> Result<bool, String> {
    if !cfg!(feature = "mutants") {
        return Err("this build has no mutants: build it with --features mutants".to_owned());
    }
    let most_seeds = flags.seeds.map_or(mutants::MOST_SEEDS, |(_, to)| to - 1);
    let mut trials = Vec::new();
    for workload in WORKLOADS.iter().filter(|w| flags.workload.as_ref().is_none_or(|name| w.name == name)) {
        trials.extend(mutants::run_all(workload, most_seeds, |trial| {
            eprintln!("{:?}: {:?}", trial.mutant, trial.caught)
        }));
    }
    println!("{}", mutants::table(&trials));
    Ok(trials.iter().all(|trial| trial.caught.is_some()))
}
