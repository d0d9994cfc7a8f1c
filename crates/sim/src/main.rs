//! `cairn-sim`: runs workloads in simulated worlds.

use sim::runner::{self, Plan, Summary};
use sim::workload::cluster::parse_numbers;
use sim::workload::{RunOptions, WORKLOADS, Workload};
use sim::{minimise, mutants};
use std::collections::BTreeSet;
use std::process::ExitCode;
use std::time::Duration;

/// Worlds take and give back memory without end.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const USAGE: &str = "\
usage: cairn-sim list
       cairn-sim run WORKLOAD --seed N [--crashes N] [--without FAULTS] [--operations N] [--mutant M]
                                         [--trace | --story]
       cairn-sim run WORKLOAD --seeds FROM..TO [--crashes N] [--seconds N] [--mutant M] [--all]
       cairn-sim faults WORKLOAD --seed N           what goes wrong in a run, by number (--without 3,7-9)
       cairn-sim minimise WORKLOAD --seed N [--without FAULTS] [--operations N] [--seconds N] [--mutant M]
       cairn-sim soak [--seeds N] [--first-seed N]  all workloads, until one fails or N seeds were run
       cairn-sim mutants [WORKLOAD] [--seeds N]     (a build with --features mutants)";

/// Seeds of each workload in one round of a soak: clusters are what is looked at most.
const SOAK_SEEDS: [(&str, u64); 4] = [("cluster", 64), ("hosts", 24), ("store", 4), ("volume", 2)];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match arguments.first().map(String::as_str) {
        Some("list") => {
            WORKLOADS.iter().for_each(|workload| println!("{:<12} {}", workload.name, workload.about));
            Ok(true)
        }
        Some("run") => Flags::parse(&arguments[1..]).and_then(|flags| run(&flags)),
        Some("faults") => Flags::parse(&arguments[1..]).and_then(|flags| list_faults(&flags)),
        Some("minimise") => Flags::parse(&arguments[1..]).and_then(|flags| run_minimise(&flags)),
        Some("soak") => Flags::parse(&arguments[1..]).and_then(|flags| soak(&flags)),
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
    first_seed: Option<u64>,
    seconds: Option<u64>,
    mutant: Option<String>,
    without: BTreeSet<u32>,
    operations: Option<u64>,
    trace: bool,
    story: bool,
    all: bool,
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
                "--first-seed" => flags.first_seed = Some(number(value()?)?),
                "--without" => flags.without = parse_numbers(value()?)?,
                "--operations" => flags.operations = Some(number(value()?)?),
                "--all" => flags.all = true,
                "--mutant" => flags.mutant = Some(value()?.clone()),
                "--trace" => flags.trace = true,
                "--story" => flags.story = true,
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

impl Flags {
    fn workload(&self) -> Result<&'static Workload, String> {
        let name = self.workload.as_deref().ok_or("which workload? (cairn-sim list)")?;
        Workload::named(name).ok_or(format!("there is no workload {name} (cairn-sim list)"))
    }

    /// What is to be run; a mutant is on from now on.
    fn plan(&self, workload: &'static Workload) -> Result<Plan, String> {
        let mutant = match &self.mutant {
            None => None,
            Some(name) => {
                let found = workload.mutants.iter().find(|mutant| format!("{mutant:?}") == *name);
                Some(*found.ok_or(format!("workload {} has no mutant {name}", workload.name))?)
            }
        };
        mutants::activate(mutant);
        let seeds = match (self.seed, self.seeds) {
            (Some(seed), None) => seed..seed + 1,
            (None, Some((from, to))) => from..to,
            _ => return Err("say --seed N or --seeds FROM..TO".to_owned()),
        };
        Ok(Plan {
            mutant,
            crashes: self.crashes.unwrap_or(workload.default_crashes),
            time_limit: self.seconds.map(Duration::from_secs),
            without: self.without.clone(),
            operations: self.operations,
            ..Plan::new(workload, seeds)
        })
    }
}

fn run(flags: &Flags) -> Result<bool, String> {
    let workload = flags.workload()?;
    let plan = flags.plan(workload)?;
    if flags.trace || flags.story {
        let options = RunOptions { trace: flags.trace, story: flags.story, ..plan.options(plan.seeds.start) };
        let outcome = runner::run_seed(workload, &options);
        println!("{}", outcome.as_ref().map_or_else(ToString::to_string, |report| format!("{report:?}")));
        return Ok(outcome.is_ok());
    }
    let mut is_good = true;
    let mut seeds = plan.seeds.clone();
    loop {
        match runner::run(workload, &Plan { seeds: seeds.clone(), ..plan.clone() }) {
            Ok(summary) => {
                println!("{}: {} seeds, {}", workload.name, summary.seeds, summary.total);
                eprintln!("{}", summary.speed());
                return Ok(is_good);
            }
            Err(failed) => {
                println!("{failed}");
                is_good = false;
                seeds.start = failed.seed + 1;
                if !flags.all || seeds.is_empty() {
                    return Ok(false);
                }
            }
        }
    }
}

fn list_faults(flags: &Flags) -> Result<bool, String> {
    let workload = flags.workload()?;
    let plan = flags.plan(workload)?;
    (workload.faults)(&plan.options(plan.seeds.start)).iter().for_each(|fault| println!("{fault}"));
    Ok(true)
}

fn run_minimise(flags: &Flags) -> Result<bool, String> {
    let workload = flags.workload()?;
    let plan = flags.plan(workload)?;
    let plan = Plan { time_limit: plan.time_limit.or(Some(minimise::DEFAULT_TIME)), ..plan };
    let Some(smallest) = minimise::minimise(workload, &plan, |line| eprintln!("{line}")) else {
        println!("seed {} does not fail", plan.seeds.start);
        return Ok(true);
    };
    smallest.faults.iter().for_each(|fault| println!("{fault}"));
    println!("after {} runs: {}", smallest.runs, smallest.failure);
    println!("repeat it with:\n    {}", smallest.command(workload));
    Ok(false)
}

/// Round after round of all workloads.
fn soak(flags: &Flags) -> Result<bool, String> {
    let first = flags.first_seed.unwrap_or(1);
    let rounds = flags.seeds.map_or(u64::MAX, |(_, to)| (to - 1).div_ceil(SOAK_SEEDS[0].1));
    let mut totals = SOAK_SEEDS.map(|_| Summary::default());
    for round in 0..rounds {
        for ((name, count), total) in SOAK_SEEDS.iter().zip(&mut totals) {
            let workload = Workload::named(name).ok_or(format!("there is no workload {name}"))?;
            let from = first + round * count;
            match runner::run(workload, &Plan::new(workload, from..from + count)) {
                Ok(summary) => total.add(&summary),
                Err(failed) => {
                    println!("{name}: {failed}");
                    return Ok(false);
                }
            }
            println!("{name}: seeds {first} to {}, {}; {}", from + count - 1, total.total, total.speed());
        }
    }
    Ok(true)
}

fn run_mutants(flags: &Flags) -> Result<bool, String> {
    if !cfg!(feature = "mutants") {
        return Err("this build has no mutants: build it with --features mutants".to_owned());
    }
    let most_seeds = flags.seeds.map_or(mutants::MOST_SEEDS, |(_, to)| to - 1);
    let mut trials = Vec::new();
    for workload in WORKLOADS.iter().filter(|w| flags.workload.as_ref().is_none_or(|name| w.name == name)) {
        trials.extend(mutants::run_all(workload, most_seeds, |trial| {
            println!("{}", trial.line());
            if let Some((_, _, why)) = &trial.caught {
                eprintln!("{why}");
            }
        }));
    }
    println!("{}", mutants::table(&trials));
    Ok(trials.iter().all(|trial| trial.caught.is_some()))
}
