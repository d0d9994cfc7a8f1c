//! The workload `volume`: the whole data path of a node, from the front doors to the disk, crashed at every kind of
//! moment.
//!
//! ```text
//!   node "host": NVMe/TCP hosts, NBD clients ──network──┐
//!                                                       ▼
//!   node "storage": clients on each core ──► volume ──► replication ──► store ──► disk
//! ```
//!
//! A run is a row of starts of the storage node, each cut short: while it starts, while clients run, after they were
//! stopped, or after it was stopped cleanly. All clients use one volume, whose history goes on through all of them and
//! is judged as one; so are those of its clones, and each snapshot is judged as what there was at one instant. In a
//! third of the runs they are encrypted, and locked now and then; in a third the pool compresses; in some the
//! operations are sectors of 512 bytes, so that blocks are read, changed and written by several at once; in a quarter
//! the device is small and another volume fills it.

mod administrator;
mod client;
mod door;
mod hoard;
pub(super) mod lock;
pub(super) mod machine;
mod model;
pub(super) mod profile;

use super::{Failure, Report, RunOptions, Workload, saved_units};
use administrator::Administrator;
use checker::history::{Action, History, Value};
use client::{Clients, Way, spawn_on_core};
use cluster::{Compression, SimMap};
use door::Door;
use hoard::Hoarder;
use lock::Keeper;
use machine::{DISK, Machine, OTHER_VOLUME, Serving, new_volume};
use model::Subject;
use profile::{Profile, Trouble};
use runtime::sim::{DiskFaults, NodeOptions, Random, SimDisk, SimNode, World};
use std::sync::Arc;
use std::time::Duration;
use types::Mutant;
use volume::NodeStatus;

/// See the module.
pub const WORKLOAD: Workload = Workload {
    name: "volume",
    about: "a whole node: clients on its cores, NVMe/TCP hosts and NBD clients on one volume",
    default_crashes: 30,
    run,
    faults: super::no_faults,
    operations: super::no_count,
    mutants: &[
        Mutant::AcknowledgeBeforeDurable,
        Mutant::FlushRemoved,
        Mutant::UntornSplit,
        Mutant::LockedOnOneCore,
        Mutant::DiscardRevealsBelow,
        Mutant::StatusOfTopOnly,
        Mutant::RollbackKeepsNewer,
        Mutant::CloneSharesTop,
        Mutant::GrowthForgotten,
    ],
};

/// Volumes that come and go and are being deleted, at most: each has stored 192 KiB.
const DELETING_MAX: usize = 64;
/// Longest that a start, or the end of what clients do, may take in virtual time.
const LIMIT: Duration = Duration::from_secs(60);
/// Clients of another machine that are not done after this long are not waited for: their connection may be gone.
const PATIENCE: Duration = Duration::from_secs(1);
/// A device that leaves an operation unanswered is given up in this time, with all that it was asked for.
const SILENCE: Duration = Duration::from_secs(40);
/// After this long without an append the store has said that everything is durable.
const IDLE: Duration = Duration::from_secs(2);
/// Pieces of the hoard that are read at a start.
const HOARD_PIECES: usize = 64;

fn run(options: &RunOptions) -> Result<Report, Failure> {
    let mut run = Run::new(options);
    while run.crashes < u64::from(options.crashes) && run.round()? {}
    run.finish()
}

/// How a start of the node ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// While it starts.
    Starting,
    /// While clients run.
    Running,
    /// After they were stopped and what they asked was answered.
    Quiet,
    /// After it was stopped cleanly, with clients or without.
    Stopped,
}

struct Run {
    world: World,
    storage: SimNode,
    host: SimNode,
    disk: SimDisk,
    profile: Profile,
    random: Random,
    map: Arc<SimMap>,
    clients: Arc<Clients>,
    crashes: u64,
    damaged: u64,
    trace: bool,
}

impl Run {
    fn new(options: &RunOptions) -> Self {
        let world = options.world();
        let random = Random::for_purpose(options.seed, 0x7017_0000);
        let profile = Profile::draw(&random);
        if options.trace {
            eprintln!("{profile:?}");
        }
        let storage = world.add_node(profile.cores, NodeOptions::default());
        let host = world.add_node(1, NodeOptions::default());
        let disk = storage.add_disk(DISK, machine::disk_bytes(&profile), profile.disk(&random));
        let (map, clients) = (machine::map(&profile), Clients::new(profile));
        let trace = options.trace;
        Self { world, storage, host, disk, profile, random, map, clients, crashes: 0, damaged: 0, trace }
    }

    /// A time of any order of magnitude, up to the profile's.
    fn moment(&self) -> Duration {
        let magnitude = self.random.between(16, self.profile.longest_log2_ns);
        Duration::from_nanos(self.random.below(1 << magnitude))
    }

    fn draw_end(&self) -> End {
        match self.random.below(16) {
            0..3 => End::Starting,
            3..11 => End::Running,
            11..14 => End::Quiet,
            _ => End::Stopped,
        }
    }

    /// One start of the node, to its end. `false` if there can be no other: it says that it is damaged.
    fn round(&mut self) -> Result<bool, Failure> {
        let end = self.draw_end();
        let machine = Machine::start(&self.storage, self.profile, &self.map);
        if end == End::Starting {
            let until = self.world.now() + self.moment();
            self.world.run_until(|| self.world.now() >= until || machine.is_decided())?;
        } else {
            let limit = self.world.now() + LIMIT;
            self.world.run_until(|| machine.is_decided() || self.world.now() > limit)?;
            if !machine.is_decided() {
                return Err(Failure::new("liveness", format!("the node did not start within {LIMIT:?}")));
            }
        }
        if let Some(goes_on) = self.judge_start(&machine)? {
            return Ok(goes_on);
        }
        let serving = machine.serving.borrow().clone();
        if let Some(serving) = serving.filter(|_| end != End::Starting) {
            self.serve(&serving, end)?;
        }
        self.crash();
        Ok(true)
    }

    /// What the node says of itself when it has started. `Some(false)`: it says that it is damaged, and has been.
    fn judge_start(&mut self, machine: &Machine) -> Result<Option<bool>, Failure> {
        let refused = machine.refused.borrow().clone();
        let reason = machine.serving.borrow().as_ref().and_then(|serving| serving.reasons.first().cloned());
        let Some(told) = refused.clone().or(reason) else { return Ok(None) };
        if self.disk.lies() == 0 {
            let checker = if refused.is_some() { "opening" } else { "damage" };
            return Err(Failure::new(checker, format!("reported though the disk never lied: {told}")));
        }
        self.damaged += 1;
        // What it still gives has to be right.
        let serving = machine.serving.borrow().clone();
        if let Some(serving) = serving {
            self.read_all(&serving)?;
        }
        Ok(Some(false))
    }

    fn serve(&mut self, serving: &Serving, end: End) -> Result<(), Failure> {
        self.compare(serving)?;
        if self.random.one_in(2) {
            self.read_all(serving)?;
        }
        self.disk.set_faults(self.profile.faults(&self.random));
        self.clients.set_stop(false);
        for core in 0..self.profile.cores {
            for _ in 0..self.profile.core_clients {
                self.spawn_on_core(serving, core, |clients, door, subject| async move {
                    clients.run(&door, &subject).await;
                });
            }
        }
        self.start_remote(serving);
        self.start_others(serving);
        if self.profile.tight && !self.clients.ledger().hoard.filled {
            self.fill()?;
        }
        let until = self.world.now() + self.moment();
        self.pass_until(serving, until)?;
        match end {
            End::Starting | End::Running => {}
            End::Quiet => self.quiet(serving)?,
            End::Stopped => {
                if self.random.one_in(2) {
                    self.settle()?;
                }
                let assembly = serving.assembly.clone();
                // Commands that were let in are answered; those that come later are told that the volume is gone.
                self.clients.set_closing(true);
                self.world.run_on(&self.storage, 0, async move { assembly.stop().await })?;
            }
        }
        self.checked()?;
        match end {
            End::Stopped => Ok(()),
            _ => self.judge_status(serving),
        }
    }

    fn compare(&self, serving: &Serving) -> Result<(), Failure> {
        self.world.run_on(&self.storage, 0, model::compare(serving.assembly.clone(), self.clients.clone()))?
    }

    /// Those who work beside the clients.
    fn start_others(&self, serving: &Serving) {
        let clients = &self.clients;
        if self.profile.churn {
            clients.begin();
            self.storage.spawn(0, churn(serving.clone(), clients.clone()));
        }
        if self.profile.snapshots || self.profile.grows {
            clients.begin();
            self.storage.spawn(0, Administrator::new(serving, clients).run());
        }
        if self.profile.tight {
            clients.begin();
            self.storage.spawn(0, Hoarder::new(serving, clients).run());
        }
        if self.profile.encrypted || self.profile.compression != Compression::Off {
            clients.begin();
            self.storage.spawn(0, Keeper::new(serving, clients).run());
        }
    }

    /// Until the small device was filled for the first time.
    fn fill(&self) -> Result<(), Failure> {
        // A disk that fails is never filled.
        let limit = self.world.now() + if self.profile.trouble == Trouble::Disk { PATIENCE } else { LIMIT };
        let over = || {
            let ledger = self.clients.ledger();
            ledger.hoard.filled || ledger.failure.is_some() || self.world.now() > limit
        };
        self.run_until(over)?;
        self.checked()
    }

    /// Clients end, and nothing is under way.
    fn quiet(&mut self, serving: &Serving) -> Result<(), Failure> {
        self.settle()?;
        if self.profile.trouble == Trouble::Disk && self.clients.running() > 0 && self.random.one_in(2) {
            // Of a disk that hangs some wait, until it is given up.
            let until = self.world.now() + SILENCE;
            self.run_until(|| self.world.now() >= until || self.clients.running() == 0)?;
            if self.clients.running() > 0 {
                let message = format!("a disk hangs and clients were not answered within {SILENCE:?}");
                return Err(Failure::new("liveness", message));
            }
        }
        if self.profile.trouble == Trouble::Rot && self.clients.running() == 0 && self.random.one_in(2) {
            self.rot(serving)?;
        }
        Ok(())
    }

    /// A bit turns over: of a block that clients have read just now, or anywhere.
    fn rot(&mut self, serving: &Serving) -> Result<(), Failure> {
        self.world.run_for(IDLE);
        self.read_all(serving)?;
        let target = self.random.one_in(2).then(|| last_read(&self.clients.ledger().history, &self.random)).flatten();
        // What is compressed or encrypted is not found by what it says.
        let hit = target.and_then(|sector| self.disk.rot_sector(&sector)).or_else(|| self.disk.rot());
        if hit.is_some() {
            self.clients.ledger().rotten = true;
            self.read_all(serving)?;
        }
        Ok(())
    }

    /// What was refused for the sake of a disk, the node says of itself; and what it has cleaned is counted.
    fn judge_status(&self, serving: &Serving) -> Result<(), Failure> {
        let assembly = serving.assembly.clone();
        let NodeStatus { devices, reasons, .. } =
            self.world.run_on(&self.storage, 0, async move { assembly.status().await })?;
        let device = &devices[0];
        let ledger = &mut *self.clients.ledger();
        ledger.counts.cleaned += device.segments_cleaned;
        ledger.counts.failed_stores += u64::from(device.failed.is_some());
        if let Some(failed) = &device.failed
            && !reasons.iter().any(|reason| reason.contains(failed))
        {
            return Err(Failure::new("status", format!("the store has failed and the node does not say so: {failed}")));
        }
        match ledger.refused.take() {
            Some(why) if reasons.is_empty() && device.damage == 0 => {
                Err(Failure::new("status", format!("a client was told `{why}`, and the node says that all is well")))
            }
            _ => Ok(()),
        }
    }

    fn spawn_on_core<F: Future<Output = ()> + 'static>(
        &self,
        serving: &Serving,
        core: usize,
        task: impl FnOnce(Arc<Clients>, Door, Subject) -> F + Send + 'static,
    ) {
        self.spawn_on_subject(serving, core, Subject::judged(), task);
    }

    fn spawn_on_subject<F: Future<Output = ()> + 'static>(
        &self,
        serving: &Serving,
        core: usize,
        subject: Subject,
        task: impl FnOnce(Arc<Clients>, Door, Subject) -> F + Send + 'static,
    ) {
        let (clients, assembly) = (self.clients.clone(), serving.assembly.clone());
        self.storage.spawn(0, async move { spawn_on_core(clients, &assembly, core, subject, task) });
    }

    fn start_remote(&self, serving: &Serving) {
        let hosts = (0..self.profile.nvme_hosts).map(|host| Way::Nvme { host: host as u8 });
        let all = hosts.chain((0..self.profile.nbd_clients).map(|_| Way::Nbd));
        for way in all {
            self.clients.begin();
            self.host.spawn(0, self.clients.clone().run_remote(serving.clone(), way));
        }
    }

    /// Clients run, and their connections come to grief.
    fn pass_until(&self, serving: &Serving, until: Duration) -> Result<(), Failure> {
        while self.profile.trouble == Trouble::Network && self.world.now() < until {
            let next = until.min(self.world.now() + self.moment());
            self.run_until(|| self.world.now() >= next)?;
            if self.random.one_in(4) {
                // What these clients had asked for may still be done.
                self.host.restart();
                self.start_remote(serving);
            } else {
                self.world.reset_connections(&self.host, &self.storage);
            }
        }
        self.run_until(|| self.world.now() >= until)
    }

    fn run_until(&self, over: impl Fn() -> bool) -> Result<(), Failure> {
        Ok(super::run_until(&self.world, self.profile.trouble == Trouble::Disk, over)?)
    }

    /// Clients end after the operation they are at.
    fn settle(&self) -> Result<(), Failure> {
        self.clients.set_stop(true);
        let until = self.world.now() + PATIENCE;
        self.run_until(|| self.world.now() >= until || self.clients.running() == 0)?;
        self.checked()
    }

    /// Reads the volume and its clones, and a part of what fills the device.
    fn read_all(&self, serving: &Serving) -> Result<(), Failure> {
        self.clients.set_stop(false);
        let mut subjects = self.clients.ledger().model.served_clones();
        subjects.push(Subject::judged());
        for subject in subjects {
            let core = self.random.below(self.profile.cores as u64) as usize;
            self.spawn_on_subject(serving, core, subject, |clients, door, subject| async move {
                clients.read_all(&door, &subject).await;
            });
        }
        self.start_hoard_reader(serving, HOARD_PIECES);
        self.wait_for_readers()
    }

    fn start_hoard_reader(&self, serving: &Serving, most_pieces: usize) {
        if self.profile.tight {
            self.clients.begin();
            self.storage.spawn(0, Hoarder::new(serving, &self.clients).read(most_pieces));
        }
    }

    fn wait_for_readers(&self) -> Result<(), Failure> {
        let limit = self.world.now() + LIMIT;
        // The tasks that are spawned count themselves in first.
        self.world.run_for(Duration::from_micros(10));
        self.world.run_until(|| self.clients.running() == 0 || self.world.now() > limit)?;
        if self.clients.running() > 0 {
            return Err(Failure::new("liveness", format!("reading took more than {LIMIT:?}")));
        }
        self.checked()
    }

    fn checked(&self) -> Result<(), Failure> {
        self.clients.ledger().failure.take().map_or(Ok(()), Err)
    }

    fn crash(&mut self) {
        // What a failed flush covered is lost with the power, and with a kill it is in doubt: here the device is
        // looked at, that is power-cycled, before it is used again.
        match self.random.one_in(4) && self.profile.trouble != Trouble::Disk {
            true => self.storage.kill(),
            false => self.storage.crash(),
        }
        self.disk.set_faults(DiskFaults::default());
        self.host.restart();
        self.clients.all_gone();
        let operations = {
            let ledger = &mut *self.clients.ledger();
            ledger.refused = None;
            ledger.history.processes_ended();
            ledger.history.operations().len() as u64
        };
        self.crashes += 1;
        self.world.note(self.crashes, operations, 0);
        self.storage.start();
    }

    /// The last start: everything is read, snapshots too, and all of the history judged.
    fn finish(mut self) -> Result<Report, Failure> {
        if self.damaged == 0 {
            let machine = Machine::start(&self.storage, self.profile, &self.map);
            self.world.run_until(|| machine.is_decided())?;
            if self.judge_start(&machine)?.is_none() {
                let serving = machine.serving.borrow().clone().expect("it was decided");
                self.compare(&serving)?;
                self.read_all(&serving)?;
                self.start_hoard_reader(&serving, usize::MAX);
                self.clients.begin();
                self.storage.spawn(0, Administrator::new(&serving, &self.clients).look_at_all());
                self.wait_for_readers()?;
                self.judge_status(&serving)?;
                let assembly = serving.assembly.clone();
                let usage = self.world.run_on(&self.storage, 0, async move { assembly.usage().await })?;
                let usage = usage.map_err(|error| Failure::new("status", error))?;
                self.clients.ledger().counts.saved_units += usage.values().map(saved_units).sum::<u64>();
            }
        }
        let ledger = self.clients.ledger();
        if let Err(violation) = checker::check(&ledger.history) {
            if self.trace {
                eprint!("{}", ledger.history.of_block(violation.block()));
            }
            return Err(violation.into());
        }
        let Report { operations, answered, .. } = Report::of(&ledger.history);
        Ok(Report {
            operations,
            answered,
            crashes: self.crashes,
            lies: self.disk.lies(),
            damaged: self.damaged,
            trace_hash: self.world.trace_hash(),
            trace_events: self.world.trace_events(),
            ..ledger.counts
        })
    }
}

/// How the sector of some block that was read not long ago begins.
fn last_read(history: &History, random: &Random) -> Option<[u8; 16]> {
    let read = |operation: &checker::history::Operation| match &operation.action {
        Action::Read(values) if !values.is_empty() => Some((operation.first_block, values.clone())),
        _ => None,
    };
    let reads: Vec<_> = history.operations().iter().rev().take(64).filter_map(read).collect();
    let (first, values) = reads.get(random.below((reads.len() as u64).max(1)) as usize)?;
    let place = random.below(values.len() as u64);
    let value = values[place as usize];
    (value != Value::ZERO).then(|| checker::history::beginning(value, Subject::block_at(first + place)))
}

/// A volume is made, written to and deleted, for good or into the trash and out of it, again and again; its space comes
/// back meanwhile, also after a crash.
async fn churn(serving: Serving, clients: Arc<Clients>) {
    while !clients.stopped() {
        // Each start begins anew with what was to be deleted. What that takes of a small device is bounded: `hoard` counts on it.
        if serving.assembly.status().await.deleting_volumes >= DELETING_MAX {
            runtime::sleep(Duration::from_millis(1)).await;
            continue;
        }
        for trashed in serving.assembly.trash().into_iter().filter(|trashed| trashed.info.name == OTHER_VOLUME) {
            let _ = match runtime::random_u64() % 2 {
                0 => serving.assembly.restore_volume(trashed.info.id, None).await.map(drop),
                _ => serving.assembly.empty_trash(trashed.info.id).await,
            };
        }
        // It may be there since before the crash.
        let _ = serving.assembly.create_volume(new_volume(OTHER_VOLUME, 4096)).await;
        if let Some(volume) = serving.assembly.directory().by_name(OTHER_VOLUME) {
            for chunk in 0..3 {
                let bytes = runtime::IoBuf::copy_of(&[0xee; 64 << 10]).freeze();
                let _ = volume.write(chunk * types::CHUNK_BYTES, volume::Payload { bytes }).await;
            }
        }
        let _ = match runtime::random_u64() % 2 {
            0 => serving.assembly.delete_volume(OTHER_VOLUME).await,
            _ => serving.assembly.trash_volume(OTHER_VOLUME).await.map(drop),
        };
        runtime::sleep(Duration::from_micros(500)).await;
    }
    clients.end();
}
