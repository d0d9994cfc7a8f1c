//! The end of a run: what is broken is mended, every volume is served again, all that was asked is answered; copies are
//! read wherever they are; and the history is judged.

use super::administrator::{head_said, standing};
use super::client::{HostVolume, options};
use super::machine::Machine;
use super::{Run, id_of, tell};
use crate::workload::volume::machine::NVME_PORT;
use crate::workload::{Failure, Report, saved_units};
use nvme::host::multipath::Multipath;
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;
use volume::{Encryption, Standing};

/// Longest that all takes to heal once nothing is broken any more: a session in the map, some take-overs, catch-up, a
/// device that is given up.
pub(super) const HEAL_LIMIT: Duration = Duration::from_secs(90);
/// Longest until all that clients had asked for is answered then: some of it waited for a controller to connect.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);
/// A volume may set out at the instant at which the map goes, so often at most.
const SET_OUT_MAX: u32 = 3;
/// Such a one is on its way by then; one that is given up later waits for the map, and that is an error.
const SET_OUT: Duration = Duration::from_secs(1);
/// Volumes that nobody uses go home after 30 s, and within 60 s of the last time.
const ALL_AT_HOME: Duration = Duration::from_secs(100);
/// Longest that reading everything takes when all is well.
const READ_LIMIT: Duration = Duration::from_secs(60);
/// Longest that reading all copies takes.
const CHECK_LIMIT: Duration = Duration::from_secs(120);
/// The map is away for so long, longer than sessions last, and nobody that reads or writes minds.
const MAP_AWAY: Duration = Duration::from_secs(15);
/// No write takes longer then.
const WRITE_LIMIT: Duration = Duration::from_secs(5);
/// Longest until another node serves what one served that is gone.
const TAKE_OVER_LIMIT: Duration = Duration::from_secs(60);

impl Run {
    pub fn finish(&mut self) -> Result<Report, Failure> {
        self.change(|breaker, reach| breaker.mend_all(reach));
        self.ledger.stop.set(true);
        self.restart_failed()?;
        let healed = self.until("not healed", HEAL_LIMIT, Self::lacks)?;
        // What was under way when all was mended may have failed since.
        if self.restart_failed()? {
            self.until("not healed", HEAL_LIMIT, Self::lacks)?;
        }
        tell(format_args!("all volumes are served"));
        self.until("clients wait", ANSWER_LIMIT, |run| (!run.ledger.all_ended()).then(|| run.describe_clients()))?;
        if self.profile.operator {
            self.end_duties()?;
        }
        if let Some(place) = self.profile.leaves {
            self.exchange_nodes(place)?;
        }
        self.look_at_all()?;
        self.read_all("all is whole", self.machines.len())?;
        self.note_codings()?;
        self.go_on_without_map()?;
        self.leave_others_alone()?;
        self.compare_copies()?;
        self.read_copies()?;
        self.judge(healed)
    }

    /// Somebody looks after the nodes of which a device has failed, now that it is well again. Returns whether there were any.
    fn restart_failed(&mut self) -> Result<bool, Failure> {
        let mut any = false;
        for machine in self.machines.clone() {
            let Some(failed) = self.failed_device(&machine)? else { continue };
            if !self.ledger.disks_fail {
                return Err(Failure::new(
                    "damage",
                    format!("node {}, no disk of which fails: {failed}", machine.index),
                ));
            }
            machine.stop(false);
            machine.start();
            any = true;
        }
        Ok(any)
    }

    /// Why a device of a node takes nothing more, as the node says if it is up.
    fn failed_device(&self, machine: &Machine) -> Result<Option<String>, Failure> {
        let Some(assembly) = machine.assembly() else { return Ok(None) };
        let status = self.world.run_on(&machine.node, 0, async move { assembly.status().await })?;
        Ok(status.devices.into_iter().find_map(|device| device.failed))
    }

    /// What keeps a volume from being served by one node, and all others from knowing which.
    pub(super) fn lacks(&self) -> Option<String> {
        if let Some(machine) = self.machines.iter().find(|machine| machine.assembly().is_none()) {
            return Some(format!("node {} is not up", machine.index));
        }
        let all: Vec<&Machine> = self.machines.iter().map(|machine| &**machine).collect();
        self.is_served_once(&all)
    }

    fn is_served_once(&self, machines: &[&Machine]) -> Option<String> {
        self.ledger.subjects.borrow().iter().find_map(|subject| {
            let heads: Vec<_> =
                machines.iter().filter(|machine| standing(machine, &subject.name) == Some(Standing::Here)).collect();
            let said: Vec<_> = machines.iter().map(|machine| head_said(machine, &subject.name)).collect();
            let is_known = heads.first().is_some_and(|head| said.iter().all(|said| *said == Some(id_of(head))));
            (heads.len() != 1 || !is_known).then(|| {
                let heads: Vec<usize> = heads.iter().map(|machine| machine.index).collect();
                format!("{} is served by {heads:?}; nodes say: {said:?}", subject.name)
            })
        })
    }

    /// Who is at work, and what hosts know of their paths.
    fn describe_clients(&self) -> String {
        let mut out = format!("at work on machines: {:?}", self.ledger.running.borrow());
        for (machine, host) in &*self.ledger.hosts.borrow() {
            let subjects = self.ledger.subjects.borrow();
            let states =
                subjects.iter().map(|subject| format!("{} {:?}", subject.name, host.path_states(subject.nsid)));
            out += &format!("; host {machine}: {}, {:?}", states.collect::<Vec<_>>().join(", "), host.counts());
        }
        out
    }

    fn look_at_all(&mut self) -> Result<(), Failure> {
        let machine = self.clients.len();
        self.ledger.begin(machine);
        self.outside.spawn(0, self.administrator.clone().look_at_all(machine));
        self.until("snapshots are not read", READ_LIMIT, |run| (!run.ledger.all_ended()).then(String::new)).map(drop)
    }

    /// A new host reads all volumes, over all nodes but one.
    fn read_all(&mut self, when: &str, without: usize) -> Result<(), Failure> {
        tell(format_args!("everything is read: {when}, without node {without}"));
        self.use_all(&format!("not everything is read ({when})"), async |volume| volume.read_all().await)
    }

    /// A new host does something with each volume.
    fn use_all(&mut self, what: &str, act: impl AsyncFn(HostVolume<'_>) + 'static) -> Result<(), Failure> {
        let done = Rc::new(Cell::new(false));
        let (ledger, end) = (self.ledger.clone(), done.clone());
        let addresses: Vec<_> = self.addresses().into_iter().map(|address| (address, NVME_PORT).into()).collect();
        self.outside.spawn(0, async move {
            let host = Multipath::new(&addresses, options(&ledger, ledger.profile.machines()));
            let subjects = ledger.subjects.borrow().clone();
            for subject in &subjects {
                act(HostVolume { ledger: &ledger, host: &host, subject }).await;
            }
            host.close();
            end.set(true);
        });
        self.until(what, READ_LIMIT, |_| (!done.get()).then(String::new)).map(drop)
    }

    /// No I/O waits for the map: what is served stays so while that is away. A volume that is on its way does wait: so first
    /// all of them go where they are at home; and if one has set out just then, the map comes back once more.
    fn go_on_without_map(&mut self) -> Result<(), Failure> {
        for tries in 1..=SET_OUT_MAX {
            self.go_on(self.world.now() + ALL_AT_HOME)?;
            self.until("volumes are on their way", HEAL_LIMIT, Self::lacks)?;
            // An NBD client whose connection fell silent keeps its volume where it is until the kernel ends that.
            self.until("volumes are not at home", HEAL_LIMIT, |this| this.administrator.is_not_at_home())?;
            self.map.set_unreachable(true);
            self.go_on(self.world.now() + SET_OUT)?;
            if tries == SET_OUT_MAX || self.lacks().is_none() {
                break;
            }
            self.map.set_unreachable(false);
        }
        self.go_on(self.world.now() + MAP_AWAY)?;
        tell(format_args!("everything is read and written: the map is away"));
        let used = self.use_all("not everything is read and written while the map is away", async |volume| {
            volume.read_all().await;
            volume.write_all(WRITE_LIMIT).await;
        });
        self.map.set_unreachable(false);
        used?;
        self.read_all("the map is back", self.machines.len())?;
        self.until("the map is back", HEAL_LIMIT, Self::lacks).map(drop)
    }

    /// What is encrypted, and what compression saves, as nodes say.
    fn note_codings(&mut self) -> Result<(), Failure> {
        for machine in &self.machines {
            let assembly = machine.assembly().expect("all is mended");
            let volumes = assembly.volumes();
            let usage = self.world.run_on(&machine.node, 0, async move { assembly.usage().await })?;
            let usage = usage.map_err(|error| Failure::new("status", error))?;
            let mut counts = self.ledger.counts.borrow_mut();
            counts.saved_units += usage.values().map(saved_units).sum::<u64>();
            if Rc::ptr_eq(machine, &self.machines[0]) {
                counts.encrypted += volumes.iter().filter(|info| info.encryption != Encryption::Off).count() as u64;
            }
        }
        Ok(())
    }

    /// Every copy of everything is read from its device, and all agree, as a node that is asked for it says.
    fn compare_copies(&mut self) -> Result<(), Failure> {
        let machine = self.machines[0].clone();
        let began = self.world.now();
        loop {
            let assembly = machine.assembly().expect("all is mended");
            self.world.run_on(&machine.node, 0, async move { assembly.begin_check(None) })?;
            let last = || machine.assembly().and_then(|assembly| assembly.last_check());
            let is_over = || last().is_some_and(|check| check.is_over);
            self.until("copies are not compared", CHECK_LIMIT, |_| (!is_over()).then(|| format!("{:?}", last())))?;
            let check = last().expect("it is over");
            self.ledger.counts.borrow_mut().compared += check.blocks_read;
            match check.all_agree() {
                true => return Ok(()),
                // A member may be on its way back, or space be given back still.
                false if self.world.now() - began < HEAL_LIMIT => {}
                false => return Err(Failure::new("copies", format!("{check:?}"))),
            }
            self.go_on(self.world.now() + Duration::from_secs(5))?;
        }
    }

    /// Each node is stopped for a while, where the others have copies enough: what was read from it is read from them.
    fn read_copies(&mut self) -> Result<(), Failure> {
        let pool = self.profile.cluster.pools[0];
        if pool.replicas == pool.min_in_sync {
            return Ok(());
        }
        for index in 0..self.machines.len() {
            // What was made last is with all members by then.
            self.until("before a node is stopped", HEAL_LIMIT, Self::lacks)?;
            self.go_on(self.world.now() + Duration::from_secs(5))?;
            if let Some(failed) = self.machines.iter().find_map(|machine| self.failed_device(machine).transpose()) {
                return Err(Failure::new("liveness", format!("a device failed when all was whole: {}", failed?)));
            }
            let mut others = self.machines.clone();
            let machine = others.remove(index);
            machine.stop(true);
            self.until("nobody takes over", TAKE_OVER_LIMIT, |run| {
                run.is_served_once(&others.iter().map(|machine| &**machine).collect::<Vec<_>>())
            })?;
            self.read_all("a node is gone", machine.index)?;
            machine.start();
        }
        Ok(())
    }

    fn judge(&self, healed: Duration) -> Result<Report, Failure> {
        let history = self.ledger.history.borrow();
        if let Err(violation) = checker::check(&history) {
            if self.story.is_some() {
                eprint!("{}", history.of_block(violation.block()));
            }
            return Err(violation.into());
        }
        let Report { operations, answered, .. } = Report::of(&history);
        Ok(Report {
            operations,
            answered,
            crashes: self.breaker.crashes,
            faults: self.breaker.counts,
            virtual_time: self.world.now(),
            healed_in: healed,
            trace_hash: self.world.trace_hash(),
            trace_events: self.world.trace_events(),
            ..*self.ledger.counts.borrow()
        })
    }
}
