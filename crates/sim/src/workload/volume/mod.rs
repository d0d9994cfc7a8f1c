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
//! stopped, or after it was stopped cleanly. All clients use one volume, whose history goes on through all of them and is
//! judged as one. Other volumes come and go. In half of the runs snapshots of it are taken and deleted. In a third of the runs the operations are sectors of 512 bytes, so that
//! blocks are read, changed and written by several at once.

mod client;
mod door;
mod machine;
mod profile;
mod snapshots;

use super::{Failure, Report, RunOptions, Workload};
use crate::checker;
use client::{Clients, Way, spawn_on_core};
use cluster::SimMap;
use door::Door;
use machine::{DISK, DISK_BYTES, Machine, Serving, new_volume};
use profile::{Profile, Trouble};
use runtime::sim::{DiskFaults, NodeOptions, Random, SimDisk, SimNode, World};
use std::sync::Arc;
use std::time::Duration;
use types::Mutant;

/// See the module.
pub const WORKLOAD: Workload = Workload {
    name: "volume",
    about: "a whole node: clients on its cores, NVMe/TCP hosts and NBD clients on one volume",
    default_crashes: 30,
    run,
    mutants: &[Mutant::AcknowledgeBeforeDurable, Mutant::FlushRemoved],
};

/// Longest that a start, or the end of what clients do, may take in virtual time.
const LIMIT: Duration = Duration::from_secs(60);
/// Clients of another machine that are not done after this long are not waited for: their connection may be gone.
const PATIENCE: Duration = Duration::from_secs(1);
/// The volume that comes and goes.
const OTHER_VOLUME: &str = "other";

fn run(options: &RunOptions) -> Result<Report, Failure> {
    let mut run = Run::new(options);
    while run.crashes < u64::from(options.crashes) {
        run.round()?;
    }
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
        let disk = storage.add_disk(DISK, DISK_BYTES, profile.disk(&random));
        let (map, clients) = (machine::map(&profile), Clients::new(profile));
        Self { world, storage, host, disk, profile, random, map, clients, crashes: 0, trace: options.trace }
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

    /// One start of the node, to its end.
    fn round(&mut self) -> Result<(), Failure> {
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
        if let Some(refused) = &*machine.refused.borrow() {
            return Err(Failure::new("opening", refused));
        }
        let serving = machine.serving.borrow().clone();
        if let Some(serving) = serving {
            if let Some(reason) = serving.reasons.first() {
                return Err(Failure::new("damage", format!("reported though the disk never lied: {reason}")));
            }
            if end != End::Starting {
                self.serve(&serving, end)?;
            }
        }
        self.crash();
        Ok(())
    }

    fn serve(&mut self, serving: &Serving, end: End) -> Result<(), Failure> {
        if self.random.one_in(2) {
            self.read_all(serving)?;
        }
        self.disk.set_faults(self.profile.faults(&self.random));
        self.clients.set_stop(false);
        for core in 0..self.profile.cores {
            for _ in 0..self.profile.core_clients {
                self.spawn_on_core(serving, core, |clients, door| async move {
                    clients.run(&door).await;
                });
            }
        }
        self.start_remote(serving);
        if self.profile.churn {
            self.storage.spawn(0, churn(serving.clone()));
        }
        if self.profile.snapshots {
            self.storage.spawn(0, snapshots::administer(serving.clone(), self.clients.clone()));
        }
        let until = self.world.now() + self.moment();
        self.pass_until(serving, until)?;
        match end {
            End::Starting | End::Running => {}
            End::Quiet => self.settle()?,
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
        self.checked()
    }

    fn spawn_on_core<F: Future<Output = ()> + 'static>(
        &self,
        serving: &Serving,
        core: usize,
        task: impl FnOnce(Arc<Clients>, Door) -> F + Send + 'static,
    ) {
        self.clients.begin();
        let (clients, assembly) = (self.clients.clone(), serving.assembly.clone());
        self.storage.spawn(0, async move { spawn_on_core(clients, &assembly, core, task) });
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

    fn read_all(&self, serving: &Serving) -> Result<(), Failure> {
        let core = self.random.below(self.profile.cores as u64) as usize;
        self.clients.set_stop(false);
        self.spawn_on_core(serving, core, |clients, door| async move { clients.read_all(&door).await });
        let limit = self.world.now() + LIMIT;
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
            let history = &mut self.clients.ledger().history;
            history.processes_ended();
            history.operations().len() as u64
        };
        self.crashes += 1;
        self.world.note(self.crashes, operations, 0);
        self.storage.start();
    }

    /// The last start: everything is read, and all of the history judged.
    fn finish(self) -> Result<Report, Failure> {
        let machine = Machine::start(&self.storage, self.profile, &self.map);
        self.world.run_until(|| machine.is_decided())?;
        if let Some(refused) = &*machine.refused.borrow() {
            return Err(Failure::new("opening", refused));
        }
        let serving = machine.serving.borrow().clone().expect("it was decided");
        self.read_all(&serving)?;
        let history = &self.clients.ledger().history;
        if let Err(violation) = checker::check(history) {
            if self.trace {
                eprint!("{}", history.of_block(violation.block()));
            }
            return Err(violation.into());
        }
        Ok(Report {
            crashes: self.crashes,
            lies: self.disk.lies(),
            trace_hash: self.world.trace_hash(),
            trace_events: self.world.trace_events(),
            ..Report::of(history)
        })
    }
}

/// A volume is made, written to and deleted, for good or into the trash and out of it, again and again; its space comes
/// back meanwhile, also after a crash.
async fn churn(serving: Serving) {
    loop {
        for trashed in serving.assembly.trash() {
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
}
