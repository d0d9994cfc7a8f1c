//! Workload `store`: random operations on the groups of one store, crashed at every kind of moment.
//!
//! A run is a row of starts of the store. Each is cut short: while it opens, while clients write, or after they were
//! stopped; by a loss of power or by a kill. The history goes on through all of them and is judged as one.
//! Besides: the index that opening rebuilds is the one that was there (compared when nothing was under way), damage is
//! reported only where the disk lied, and whatever the disk did, no wrong byte is returned.

mod client;
mod forge;
mod member;
mod profile;

use super::{Failure, Report, RunOptions, Workload};
use client::Clients;
use member::{DISK, DISK_BYTES, Map, Member, Refusal};
use profile::{Profile, Trouble};
use runtime::sim::{DiskFaults, NodeOptions, Random, SimDisk, SimNode, World};
use std::rc::Rc;
use std::time::Duration;
use types::{Mutant, VolumeEpoch};

/// See the module.
pub const WORKLOAD: Workload = Workload {
    name: "store",
    about: "random operations on one store, crashed at every kind of moment",
    default_crashes: 100,
    run,
    faults: super::no_faults,
    operations: super::no_count,
    mutants: &[
        Mutant::AcknowledgeBeforeDurable,
        Mutant::DamageTakenForHole,
        Mutant::AcceptedHoleCalledDamage,
        Mutant::WrongKeyAccepted,
        Mutant::OldEpochAfterRestart,
        Mutant::ReplayFromPassStart,
        Mutant::SegmentReusedTooEarly,
        Mutant::ChecksumSkipped,
        Mutant::EntryAppliedTwice,
        Mutant::FlushRemoved,
        Mutant::MoveAppliedBlindly,
        Mutant::MoveAppliedBeforeDurable,
    ],
};

/// Longest that opening may take, in virtual time.
const OPENING_LIMIT: Duration = Duration::from_secs(20);
/// Longest that clients wait for their answers, in virtual time.
const PATIENCE: Duration = Duration::from_secs(10);
/// After this long without an append the store has said that everything is durable.
const IDLE: Duration = Duration::from_secs(2);

fn run(options: &RunOptions) -> Result<Report, Failure> {
    let mut run = Run::new(options)?;
    while run.crashes < u64::from(options.crashes) && run.round()? {}
    run.finish()
}

/// How a start of the store ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// While it opens.
    Opening,
    /// While clients run.
    Running,
    /// After they were stopped and everything was answered.
    Quiet,
}

struct Run {
    world: World,
    node: SimNode,
    disk: SimDisk,
    profile: Profile,
    random: Random,
    map: Rc<Map>,
    clients: Rc<Clients>,
    head: u32,
    crashes: u64,
    damaged: u64,
    cleaned: u64,
    trace: bool,
    /// Of the indexes, when nothing was under way at the last end.
    digest: Option<Vec<u128>>,
}

impl Run {
    fn new(options: &RunOptions) -> Result<Self, Failure> {
        let world = options.world();
        let random = Random::for_purpose(options.seed, 0x5704_e000);
        let profile = Profile::draw(&random);
        if options.trace {
            eprintln!("{profile:?}");
        }
        let node = world.add_node(profile.cores, NodeOptions::default());
        let disk = node.add_disk(DISK, DISK_BYTES, profile.disk(&random));
        world.run_on(&node, 0, member::format(profile))??;
        let (map, clients) = (Rc::default(), Clients::new(profile));
        Ok(Self {
            world,
            node,
            disk,
            profile,
            random,
            map,
            clients,
            head: 0,
            crashes: 0,
            damaged: 0,
            cleaned: 0,
            trace: options.trace,
            digest: None,
        })
    }

    /// A time of any order of magnitude, up to the profile's.
    fn moment(&self) -> Duration {
        let magnitude = self.random.between(8, self.profile.longest_log2_ns);
        Duration::from_nanos(self.random.below(1 << magnitude))
    }

    fn draw_end(&self) -> End {
        match self.random.below(16) {
            0..4 => End::Opening,
            4..12 => End::Running,
            _ => End::Quiet,
        }
    }

    /// One start of the store, to its end. `false` if there can be no other: the disk lied and the store says so.
    fn round(&mut self) -> Result<bool, Failure> {
        let end = self.draw_end();
        let member = Member::start(&self.node, self.profile, &self.map);
        if end == End::Opening {
            let until = self.world.now() + self.moment();
            let over =
                || self.world.now() >= until || member.refused.borrow().is_some() || member.is_open(&self.profile);
            self.world.run_until(over)?;
            if !self.may_go_on(&member)? {
                self.damaged += 1;
                return Ok(false);
            }
            self.crash();
            return Ok(true);
        }
        let limit = self.world.now() + OPENING_LIMIT;
        let ready = || member.is_open(&self.profile) || member.refused.borrow().is_some();
        self.world.run_until(|| ready() || self.world.now() > limit)?;
        if !ready() {
            return Err(Failure::new("liveness", format!("the store was not open after {OPENING_LIMIT:?}")));
        }
        if !self.may_go_on(&member)? {
            self.damaged += 1;
            return Ok(false);
        }
        if member.is_open(&self.profile) {
            self.serve(&member, end)?;
            let statistics = |shard: &Rc<replication::GroupShard>| shard.store().statistics().segments_cleaned;
            self.cleaned += member.shards.borrow().iter().map(statistics).sum::<u64>();
        }
        self.crash();
        Ok(true)
    }

    /// What a refusal means: the end of the run, an error, or that the next start may do better.
    fn may_go_on(&self, member: &Member) -> Result<bool, Failure> {
        let refused = member.refused.borrow();
        match &*refused {
            None => Ok(true),
            Some(Refusal::Device(_)) if self.profile.trouble == Trouble::Errors => Ok(true),
            Some(_) if self.disk.lies() > 0 => Ok(false),
            Some(Refusal::Damage(what)) => {
                Err(Failure::new("damage", format!("reported though the disk never lied: {what}")))
            }
            Some(Refusal::Device(what) | Refusal::Other(what)) => Err(Failure::new("opening", what)),
        }
    }

    fn serve(&mut self, member: &Rc<Member>, end: End) -> Result<(), Failure> {
        if let Some(before) = self.digest.take() {
            let after = member.digest();
            if before != after && self.disk.lies() == 0 {
                return Err(Failure::new("index", format!("rebuilt {after:x?}, was {before:x?}")));
            }
        }
        // The head moves now and then, and with it the volume's epoch.
        self.head += u32::from(self.head == 0 || self.random.one_in(4));
        if self.random.one_in(2) {
            self.spawn(member, 1, |clients, shard, head| clients.read_all(shard, head));
            self.wait_for_clients()?;
        }
        self.disk.set_faults(self.profile.faults(&self.random));
        self.clients.reads_may_fail.set(self.profile.trouble != Trouble::None);
        self.clients.stop.set(false);
        self.spawn(member, self.profile.clients, |clients, shard, head| clients.run(shard, head));
        let until = self.world.now() + self.moment();
        self.run_until(|| self.world.now() >= until || self.clients.running.get() == 0)?;
        // A disk that lies about the last records before a crash cannot be caught by anything on that disk.
        if end == End::Quiet || self.profile.trouble == Trouble::Lies {
            self.clients.stop.set(true);
            // Of a disk that hangs some wait for ever: until the power goes.
            let until = self.world.now() + PATIENCE;
            let over = || self.clients.running.get() == 0 || self.world.now() >= until;
            self.run_until(over)?;
            self.checked()?;
            match self.clients.running.get() == 0 {
                true => self.quiet(member),
                false if self.profile.trouble == Trouble::Errors => {}
                false => {
                    return Err(Failure::new("liveness", format!("clients were not answered within {PATIENCE:?}")));
                }
            }
        }
        self.checked()
    }

    /// Nothing is under way. What the index is now, it has to be after the next start.
    fn quiet(&mut self, member: &Rc<Member>) {
        self.disk.set_faults(DiskFaults::default());
        let serves =
            member.shards.borrow().iter().all(|shard| shard.groups().iter().all(|group| group.stopped().is_none()));
        if self.profile.trouble == Trouble::Lies || self.random.one_in(4) {
            self.world.run_for(IDLE);
        }
        if serves {
            self.digest = Some(member.digest());
        }
        if self.profile.trouble == Trouble::Lies && self.random.one_in(16) {
            self.disk.rot();
        }
    }

    fn spawn<F: Future<Output = ()> + 'static>(
        &self,
        member: &Rc<Member>,
        per_shard: usize,
        make: impl Fn(Rc<Clients>, Rc<replication::GroupShard>, VolumeEpoch) -> F,
    ) {
        for shard in member.shards.borrow().iter() {
            let core = usize::from(shard.store().index().0) % self.profile.cores;
            for _ in 0..per_shard {
                self.clients.running.set(self.clients.running.get() + 1);
                self.node.spawn(core, make(self.clients.clone(), shard.clone(), VolumeEpoch(self.head)));
            }
        }
    }

    fn run_until(&self, over: impl Fn() -> bool) -> Result<(), Failure> {
        Ok(super::run_until(&self.world, self.profile.trouble == Trouble::Errors, over)?)
    }

    fn wait_for_clients(&self) -> Result<(), Failure> {
        let over = || self.clients.running.get() == 0 || self.clients.failure.borrow().is_some();
        self.world.run_until(over)?;
        self.checked()
    }

    fn checked(&self) -> Result<(), Failure> {
        self.clients.failure.borrow_mut().take().map_or(Ok(()), Err)
    }

    fn crash(&mut self) {
        // What a failed flush covered is lost with the power, however often another flush succeeds before: the device
        // is out until somebody looks at it. Here that is the power cycle.
        match self.random.one_in(4) && self.profile.trouble != Trouble::Errors {
            true => self.node.kill(),
            false => self.node.crash(),
        }
        self.disk.set_faults(DiskFaults::default());
        self.clients.running.set(0);
        self.clients.history.borrow_mut().processes_ended();
        self.crashes += 1;
        self.world.note(self.crashes, self.clients.history.borrow().operations().len() as u64, 0);
        self.node.start();
    }

    /// The last start: everything is read, and all of the history judged.
    fn finish(mut self) -> Result<Report, Failure> {
        let member = Member::start(&self.node, self.profile, &self.map);
        self.world.run_until(|| member.is_open(&self.profile) || member.refused.borrow().is_some())?;
        if self.may_go_on(&member)? && member.is_open(&self.profile) {
            self.head += 1;
            self.spawn(&member, 1, |clients, shard, head| clients.read_all(shard, head));
            self.wait_for_clients()?;
        }
        let history = self.clients.history.borrow();
        if let Err(violation) = checker::check(&history) {
            if self.trace {
                eprint!("{}", history.of_block(violation.block()));
            }
            return Err(violation.into());
        }
        Ok(Report {
            crashes: self.crashes,
            lies: self.disk.lies(),
            cleaned: self.cleaned,
            damaged: self.damaged,
            trace_hash: self.world.trace_hash(),
            trace_events: self.world.trace_events(),
            ..Report::of(&history)
        })
    }
}
