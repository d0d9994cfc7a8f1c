//! Makes a run that fails smaller: fewer faults, fewer operations, as long as the same checker finds something.
//!
//! Which other failure it is does not matter: a smaller run draws other numbers, and the same bug shows elsewhere.

use crate::runner::{Plan, command, run_seed};
use crate::workload::{Failure, Workload};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// Time that a search takes unless told otherwise.
pub const DEFAULT_TIME: Duration = Duration::from_secs(300);
/// Rounds of both, one after the other, at most: where neither finds less, it is over.
const ROUNDS_MAX: u32 = 4;

/// A run that fails and is as small as it got.
#[derive(Clone, Debug)]
pub struct Smallest {
    /// Its one seed, its faults, its operations.
    pub plan: Plan,
    /// How it fails.
    pub failure: Failure,
    /// The faults that are left, one line each.
    pub faults: Vec<String>,
    /// Runs that it took.
    pub runs: u64,
}

impl Smallest {
    /// The one command that repeats it.
    pub fn command(&self, workload: &Workload) -> String {
        command(workload, self.plan.seeds.start, &self.plan)
    }
}

/// Looks for less. `plan`: its first seed is run. Ends when nothing can be left out, or when the time is over. `None`: it
/// does not fail.
pub fn minimise(workload: &Workload, plan: &Plan, told: impl FnMut(&str)) -> Option<Smallest> {
    let seed = plan.seeds.start;
    let until = plan.time_limit.map(|limit| Instant::now() + limit);
    let faults = (workload.faults)(&plan.options(seed));
    let failure = run_seed(workload, &plan.options(seed)).err()?;
    let mut search = Search { workload, plan: plan.clone(), failure, until, runs: 1, told };
    search.plan.seeds = seed..seed + 1;
    search.plan.operations = search.operations_of_a_run();
    search.note(faults.len());
    for _ in 0..ROUNDS_MAX {
        let before = (search.plan.without.clone(), search.plan.operations);
        search.fewer_faults(faults.len() as u32);
        search.fewer_operations();
        if before == (search.plan.without.clone(), search.plan.operations) {
            break;
        }
    }
    let is_left = |(index, _): &(usize, String)| !search.plan.without.contains(&(*index as u32 + 1));
    let faults = faults.into_iter().enumerate().filter(is_left).map(|(_, line)| line).collect();
    Some(Smallest { plan: search.plan, failure: search.failure, faults, runs: search.runs })
}

struct Search<'a, F> {
    workload: &'a Workload,
    plan: Plan,
    failure: Failure,
    until: Option<Instant>,
    runs: u64,
    told: F,
}

impl<F: FnMut(&str)> Search<'_, F> {
    fn is_late(&self) -> bool {
        self.until.is_some_and(|until| Instant::now() > until)
    }

    /// Runs that; whether the same checker finds something. If so it is the run from now on.
    fn try_out(&mut self, without: BTreeSet<u32>, operations: Option<u64>) -> bool {
        if self.is_late() {
            return false;
        }
        self.runs += 1;
        let plan = Plan { without, operations, ..self.plan.clone() };
        match run_seed(self.workload, &plan.options(plan.seeds.start)) {
            Err(failure) if failure.checker == self.failure.checker => {
                (self.plan, self.failure) = (plan, failure);
                true
            }
            _ => false,
        }
    }

    fn note(&mut self, faults: usize) {
        let (left, runs) = (faults - self.plan.without.len().min(faults), self.runs);
        let operations = self.plan.operations.map_or("all".to_owned(), |count| count.to_string());
        (self.told)(&format!("{runs} runs: {left} faults, {operations} operations, {}", self.failure));
    }

    /// Leaves out halves, quarters, … of the faults that are left, then each alone (Zeller's ddmin, complements only).
    fn fewer_faults(&mut self, count: u32) {
        let mut pieces = 2;
        loop {
            let left: Vec<u32> = (1..=count).filter(|number| !self.plan.without.contains(number)).collect();
            if left.is_empty() || self.is_late() {
                return;
            }
            let size = left.len().div_ceil(pieces);
            let is_less = left.chunks(size).any(|piece| {
                let mut without = self.plan.without.clone();
                without.extend(piece);
                self.try_out(without, self.plan.operations)
            });
            if is_less {
                self.note(count as usize);
                pieces = pieces.saturating_sub(1).max(2);
            } else if size == 1 {
                return;
            } else {
                pieces = (pieces * 2).min(left.len());
            }
        }
    }

    /// How many operations the run has at most, if it can be told to have fewer.
    fn operations_of_a_run(&self) -> Option<u64> {
        self.plan.operations.or((self.workload.operations)(&self.plan.options(self.plan.seeds.start)))
    }

    /// Halves the operations as long as that fails, then takes off smaller parts.
    fn fewer_operations(&mut self) {
        let Some(mut count) = self.plan.operations else { return };
        let mut part = count / 2;
        while part > 0 && !self.is_late() {
            match self.try_out(self.plan.without.clone(), Some(count - part)) {
                true => {
                    count -= part;
                    part = part.min(count / 2);
                    let faults = (self.workload.faults)(&self.plan.options(self.plan.seeds.start)).len();
                    self.note(faults);
                }
                false => part /= 2,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::{Report, RunOptions};

    /// Fails if faults 3 and 7 happen and 10 operations are done; with fault 9 left out, in another way.
    fn run(options: &RunOptions) -> Result<Report, Failure> {
        let happens = |number: u32| !options.without.contains(&number);
        match options.operations.is_none_or(|count| count >= 10) && happens(3) && happens(7) {
            true if happens(9) || options.seed == 1 => Err(Failure::new("order", "as planted")),
            true => Err(Failure::new("another", "not as planted")),
            false => Ok(Report::default()),
        }
    }

    const PLANTED: Workload = Workload {
        name: "planted",
        about: "",
        default_crashes: 0,
        run,
        faults: |_| (1..=20).map(|number: u32| number.to_string()).collect(),
        operations: |_| Some(1000),
        mutants: &[],
    };

    #[test]
    fn what_a_failure_does_not_need_is_left_out() {
        for (seed, left) in [(1, vec!["3", "7"]), (2, vec!["3", "7", "9"])] {
            let smallest = minimise(&PLANTED, &Plan::new(&PLANTED, seed..100), |_| ()).expect("it fails");
            assert_eq!(
                (smallest.faults, smallest.plan.operations),
                (left.iter().map(ToString::to_string).collect(), Some(10))
            );
            assert!(smallest.runs < 100, "{} runs", smallest.runs);
            assert_eq!(smallest.failure.checker, "order");
        }
    }

    #[test]
    fn the_command_names_what_is_left_out() {
        let smallest = minimise(&PLANTED, &Plan::new(&PLANTED, 1..2), |_| ()).expect("it fails");
        let command = smallest.command(&PLANTED);
        assert!(command.ends_with("run planted --seed 1 --without 1-2,4-6,8-20 --operations 10"), "{command}");
    }

    #[test]
    fn what_does_not_fail_has_nothing_to_be_left_out() {
        let plan = Plan { without: BTreeSet::from([3]), ..Plan::new(&PLANTED, 1..2) };
        assert!(minimise(&PLANTED, &plan, |_| ()).is_none());
    }
}
