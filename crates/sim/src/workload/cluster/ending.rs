//! The end of a run: what is broken is mended, all has to heal and to be as if there had been nothing, and the history is
//! judged.

use super::watch::describe;
use super::{Run, heal, lost, space};
use crate::workload::{Failure, Report};
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

/// Longest that all takes to heal once nothing is broken any more: a session in the map, some take-overs, a look at the
/// map, a catch-up; and the time that a device may take to answer, or to be given up, when it is opened.
const HEAL_LIMIT: Duration = Duration::from_secs(90);
/// Longest that a read or write may take when all is whole.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);
/// Copies that differ are looked at again so often.
const COMPARED_AGAIN: u32 = 4;
/// When nobody writes any more, all that is committed is known to be committed everywhere after this.
const QUIET: Duration = Duration::from_secs(2);
/// Unless an old request to the map is done late: then as soon as all is whole again.
const QUIET_LIMIT: Duration = Duration::from_secs(30);

impl Run {
    /// Mends everything; all has to heal. Returns the time it took; nothing, if there is nothing to ask for: what a
    /// restored map stopped stays so.
    pub fn heal(&mut self) -> Result<Option<Duration>, Failure> {
        self.change(|breaker, reach| breaker.mend_all(reach));
        self.clients.stop();
        if self.watch.has_restored {
            self.go_on(self.world.now() + QUIET)?;
            return Ok(None);
        }
        self.restart_failed();
        let given_back = self.give_back();
        let all = 0..self.layout.groups.len();
        let took = self.until("not healed", HEAL_LIMIT, |run| run.wants(all.clone(), false))?;
        if self.machines.iter().any(|machine| machine.lies() > 0) {
            // Scrub finds what nobody read.
            self.go_on(self.world.now() + self.layout.scrub_time())?;
            self.until("what was damaged is not mended", HEAL_LIMIT, |run| run.wants(all.clone(), false))?;
        }
        let patience = self.clients.patience.get() + ANSWER_LIMIT;
        self.until("clients have not ended", patience, |run| {
            let running = run.clients.running.get();
            (running > 0).then(|| format!("{running} of them run"))
        })?;
        self.until("what is not needed was not given back", HEAL_LIMIT, |_| {
            given_back.get().is_none().then(String::new)
        })?;
        if given_back.get() == Some(false) {
            return Err(Failure::new("space", "zeroes were not written to a device that is full"));
        }
        Ok(Some(took))
    }

    /// Of what fills the devices a part is zeroed, so that all that is left finds room; says when it is.
    fn give_back(&self) -> Rc<Cell<Option<bool>>> {
        let (clients, given_back) = (self.clients.clone(), Rc::new(Cell::new(None)));
        let slot = given_back.clone();
        self.outside.spawn(0, async move { slot.set(Some(clients.give_back(HEAL_LIMIT).await)) });
        given_back
    }

    /// All members hold the same: now, or after a moment, for a change of the record that the map was asked for before may
    /// be made late.
    fn compare(&mut self, group: usize) -> Result<(), Failure> {
        for _ in 0..COMPARED_AGAIN {
            if heal::compare(&self.world, &self.layout, &self.machines, group).is_ok() {
                return Ok(());
            }
            self.go_on(self.world.now() + QUIET)?;
        }
        heal::compare(&self.world, &self.layout, &self.machines, group)
    }

    /// Everything is read, each group takes a write, all copies are compared, and the history is judged.
    pub fn finish(&mut self, healed: Option<Duration>) -> Result<Report, Failure> {
        if healed.is_some() {
            let asked = self.clients.history.borrow().operations().len();
            self.ask_all()?;
            self.go_on(self.world.now() + QUIET)?;
            // A change of a record that was asked long ago may be made only now, and begins an epoch.
            let all = 0..self.layout.groups.len();
            self.until("not quiet", QUIET_LIMIT, |run| run.wants(all.clone(), true))?;
            let asked_for: Vec<usize> = (0..self.layout.groups.len()).filter(|group| self.is_asked(*group)).collect();
            for &group in &asked_for {
                self.compare(group)?;
            }
            let stored = space::stored_blocks(&self.clients.history.borrow().operations()[asked..]);
            space::is_exact(&self.layout, &self.machines, &asked_for, &stored, &self.control.left.borrow())?;
        }
        if self.story.is_some() {
            eprintln!("{} entries, longest: {:?}", self.witness.count(), self.watch.longest);
        }
        let history = self.clients.history.borrow();
        lost::check_others(&self.layout, &self.control, &history)?;
        if let Err(violation) = checker::check(&lost::judged(&self.layout, &self.control, &history)) {
            if self.story.is_some() {
                eprint!("{}", history.of_block(violation.block()));
            }
            return Err(violation.into());
        }
        let spoken: Vec<_> = self.machines.iter().map(|machine| machine.spoken()).collect();
        if let Some(index) = spoken.iter().position(|spoken| spoken.refused > 0) {
            let message = format!("node {index} was sent what it does not know, {:?}", spoken[index]);
            return Err(Failure::new("releases", message));
        }
        Ok(Report {
            rehearsed: spoken.iter().map(|spoken| spoken.received + spoken.fields_received).sum(),
            crashes: self.breaker.crashes,
            full: self.clients.full.get(),
            damaged_reads: self.watch.damage_met(),
            lies: self.machines.iter().map(|machine| machine.lies()).sum(),
            faults: self.breaker.counts,
            replaced: self.control.replaced.get(),
            reigns: self.watch.reigns(),
            far: self.clients.far.get(),
            looks: self.watch.looks,
            virtual_time: self.world.now(),
            healed_in: healed.unwrap_or_default(),
            trace_hash: self.world.trace_hash(),
            trace_events: self.world.trace_events(),
            ..Report::of(&history)
        })
    }

    /// Each group answers reads of all it holds, and a write.
    fn ask_all(&mut self) -> Result<(), Failure> {
        self.clients.patience.set(ANSWER_LIMIT);
        for group in (0..self.layout.groups.len()).filter(|group| self.is_asked(*group)).collect::<Vec<_>>() {
            let (clients, answered) = (self.clients.clone(), Rc::new(Cell::new(None)));
            let slot = answered.clone();
            self.outside.spawn(0, async move {
                let written =
                    clients.write_one(group, ANSWER_LIMIT).await && clients.write_anew(group, ANSWER_LIMIT * 4).await;
                let all = written && clients.read_all(group).await;
                slot.set(Some(all));
            });
            let what = format!("group {} did not answer", self.layout.groups[group].id);
            self.until(&what, ANSWER_LIMIT * 8, |_| answered.get().is_none().then(String::new))?;
            if answered.get() != Some(true) {
                let id = self.layout.groups[group].id;
                let message = format!("{what} when all was whole{}", describe(&self.layout, &self.machines, id));
                return Err(Failure::new("liveness", message));
            }
        }
        Ok(())
    }
}
