//! Runs each deliberate bug until it is caught.

use crate::runner::{Plan, run, run_seed};
use crate::workload::{RunOptions, Workload};
use std::fmt::Write;
use types::Mutant;

/// Seeds a bug may need.
pub const MOST_SEEDS: u64 = 200;

/// How a deliberate bug fared.
#[derive(Clone, Debug)]
pub struct Trial {
    /// Which.
    pub mutant: Mutant,
    /// The workload that was to catch it.
    pub workload: &'static str,
    /// The lowest seed at which it was caught, by what, and what that said.
    pub caught: Option<(u64, &'static str, String)>,
}

/// Runs every mutant of a workload, each until it is caught or `most_seeds` were run.
/// One at a time: a mutant is on for the whole process.
pub fn run_all(workload: &Workload, most_seeds: u64, mut told: impl FnMut(&Trial)) -> Vec<Trial> {
    let mut trials = Vec::new();
    for &mutant in workload.mutants {
        activate(Some(mutant));
        let plan = Plan { mutant: Some(mutant), ..Plan::new(workload, 1..most_seeds + 1) };
        let failed = run(workload, &plan).err();
        activate(None);
        // What fails without the bug too has caught something else.
        let options = |seed| RunOptions::new(seed, workload.default_crashes);
        let caught = failed.filter(|failed| run_seed(workload, &options(failed.seed)).is_ok());
        let caught = caught.map(|failed| (failed.seed, failed.failure.checker, failed.failure.message));
        let trial = Trial { mutant, workload: workload.name, caught };
        told(&trial);
        trials.push(trial);
    }
    trials
}

impl Trial {
    /// The line that `tools/mutants.sh` counts.
    pub fn line(&self) -> String {
        let Self { mutant, workload, caught } = self;
        match caught {
            Some((seed, checker, _)) => {
                format!("mutant {mutant:?} caught by the workload {workload}: seed {seed}: {checker}")
            }
            None => format!("mutant {mutant:?} NOT CAUGHT by the workload {workload}"),
        }
    }
}

/// The table of docs/simulation.md, and its last line for scripts.
pub fn table(trials: &[Trial]) -> String {
    let mut out = "| mutant | workload | seeds | found by |\n|---|---|---:|---|\n".to_owned();
    for trial in trials {
        let (seeds, checker) = match &trial.caught {
            Some((seed, checker, _)) => (seed.to_string(), *checker),
            None => ("-".to_owned(), "NOT CAUGHT"),
        };
        let _ = writeln!(out, "| {:?} | {} | {seeds} | {checker} |", trial.mutant, trial.workload);
    }
    let caught = trials.iter().filter(|trial| trial.caught.is_some()).count();
    let _ = write!(out, "{caught} of {} mutants caught", trials.len());
    out
}

/// Switches a deliberate bug on or off.
///
/// # Panics
/// In a build without the feature `mutants`.
pub fn activate(mutant: Option<Mutant>) {
    #[cfg(feature = "mutants")]
    Mutant::activate(mutant);
    #[cfg(not(feature = "mutants"))]
    assert!(mutant.is_none(), "this build has no mutants: build it with --features mutants");
}
