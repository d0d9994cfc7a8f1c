//! Snapshots of several volumes at one instant, whoever serves them: any node is asked, and all are taken or none.

use super::administrator::{Administrator, Life, NotDone, Snapshot};
use crate::workload::cluster::story::tell;
use checker::history::Action;
use cluster::Wanted;
use runtime::random_u64;
use std::collections::BTreeSet;
use std::time::Duration;
use volume::VolumeError;

/// Longest that an answer is waited for: every epoch is raised first, as long as a group is away.
const PATIENCE: Duration = Duration::from_secs(25);

impl Administrator {
    /// Of all volumes that may have another, under names of their own.
    pub(super) async fn take_together(&self) -> Result<(), NotDone> {
        let count = self.known.borrow().len();
        let is_here = |number: &usize| self.may_have_another(*number) && !self.subject(*number).is_leaving.get();
        let numbers: Vec<usize> = (0..count).filter(is_here).collect();
        let machines = self.machines();
        let up: Vec<_> = machines.iter().filter(|machine| machine.assembly().is_some()).collect();
        let Some(machine) = up.get(random_u64() as usize % up.len().max(1)).filter(|_| numbers.len() > 1) else {
            return Ok(());
        };
        let mut taken = Vec::new();
        for number in numbers {
            let (subject, name) = (self.subject(number), self.ledger.new_name("g"));
            let blocks = self.ledger.profile.blocks as usize;
            let operation = self.start(Action::Snapshot(vec![None; blocks]), &subject);
            let snapshot = Snapshot { operation, life: Life::Asked };
            self.known.borrow_mut()[number].snapshots.insert(name.clone(), snapshot);
            taken.push((number, Wanted { volume: subject.name.clone(), name }, operation));
        }
        let operations: Vec<_> = taken.iter().map(|(_, _, operation)| *operation).collect();
        self.ledger.history.borrow_mut().are_together(&operations);
        let wanted: Vec<Wanted> = taken.iter().map(|(_, wanted, _)| wanted.clone()).collect();
        let ask = move |assembly: volume::Assembly, _| {
            let wanted = wanted.clone();
            async move { assembly.create_snapshots(&wanted).await.map(drop) }
        };
        match self.ask_at(machine, "", &ask, PATIENCE).await {
            Ok(Ok(())) => {
                operations.iter().for_each(|id| self.ledger.history.borrow_mut().done(*id));
                taken.iter().for_each(|(number, wanted, _)| self.set_life(*number, &wanted.name, Life::There));
                self.ledger.counts.borrow_mut().instants += 1;
                tell(format_args!("administrator: {} snapshots of one instant", taken.len()));
                for (number, wanted, _) in &taken {
                    self.look(*number, &wanted.name).await?;
                }
                Ok(())
            }
            Ok(Err(error @ (VolumeError::NoInstant(_) | VolumeError::NotTogether(_)))) => {
                for (number, wanted, operation) in taken {
                    self.ledger.history.borrow_mut().refused(operation);
                    self.known.borrow_mut()[number].snapshots.remove(&wanted.name);
                }
                Err(NotDone::Refused(error))
            }
            other => {
                self.together.borrow_mut().push(taken.into_iter().map(|(_, wanted, _)| wanted.name).collect());
                other?.map_err(NotDone::Refused)
            }
        }
    }

    /// Of what nobody answered for, all were taken or none.
    pub(super) fn all_or_none(&self, there: &BTreeSet<String>) {
        for names in &*self.together.borrow() {
            let found = names.iter().filter(|name| there.contains(*name)).count();
            if found != 0 && found != names.len() {
                self.ledger.fail("model", format!("{found} of the snapshots {names:?} are there, asked for as one"));
            }
        }
    }
}
