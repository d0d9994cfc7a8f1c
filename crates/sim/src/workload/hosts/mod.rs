//! The workload `hosts`: whole nodes as they ship, several of them, and clients as they are: multipath NVMe/TCP hosts
//! that give up and send again, and NBD clients that go to any node, and move between them.
//!
//! ```text
//!   machines of clients: multipath hosts, NBD clients ──network──┐            administrator: asks the head
//!                                                                ▼
//!   nodes 2..4: both doors ─ volumes ─ accesses ─ groups ─ stores ──network── each other      the map, with etcd's vices
//!      │
//!   breaker: does what the schedule says, between nodes and clients too
//! ```
//!
//! Everything breaks for a while, for long enough that heads move; then all is mended, every volume is to be served
//! again by one node, everything that clients asked is to be answered, and the history is judged. In the end nodes are
//! stopped one by one, so that all copies are read.

mod administrator;
mod client;
mod duties;
mod ending;
mod exchange;
mod ledger;
mod machine;
mod moves;
mod profile;
mod schedule;
mod sick;
mod together;

pub use duties::ORDERS;

use super::cluster::breaker::{Breaker, Site, no_map_faults};
use super::cluster::fault::Fault;
use super::cluster::layout::{Layout, node_id};
use super::cluster::profile::Profile as ClusterProfile;
use super::cluster::schedule::Event;
use super::cluster::story::{Story, tell};
use super::volume::lock::{data_key, unused_wrap};
use super::{Failure, Report, RunOptions, Workload};
use administrator::Administrator;
use cluster::{
    Compression, DEFAULT_POOL, FailureDomain, Limits, NewPool, PoolRulesRecord, SimMap, VolumePlacement, ensure_pool,
};
use ledger::Ledger;
use machine::Machine;
use profile::Profile;
use runtime::sim::{NodeOptions, Random, SimDisk, SimNode, World};
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use types::{Mutant, NodeId, StoreId};
use volume::{Assembly, NewVolume, StartError, VolumeError, VolumeInfo};

/// See the module.
pub const WORKLOAD: Workload = Workload {
    name: "hosts",
    about: "whole nodes behind multipath hosts and NBD clients, in which everything goes wrong and heads move",
    default_crashes: 0,
    run,
    faults,
    operations: |options| Some(Plan::draw(options.seed).profile.cluster.operations),
    mutants: &[
        Mutant::SectorsAdmitted,
        Mutant::PartLeavesEarly,
        Mutant::ComparedAgain,
        Mutant::PartBeforeAll,
        Mutant::CompareAndWriteSplit,
        Mutant::SnapshotOldLayer,
        Mutant::LeavingForgotten,
        Mutant::RollbackKeepsNewer,
        Mutant::CloneSharesTop,
        Mutant::GrowthForgotten,
        Mutant::HomeForgotten,
        Mutant::InstantTopTakenEarly,
        Mutant::StoppedNotSaid,
        Mutant::WriteWaitsForMap,
        Mutant::TakenOutTooEarly,
        Mutant::CatchUpMissesChunk,
    ],
};

/// Longest that starting a new cluster may take.
const START_LIMIT: Duration = Duration::from_secs(60);
/// A process that has ended by itself is started anew after so long.
const PROCESS_PAUSE: Duration = Duration::from_secs(1);
/// How often somebody looks at the nodes.
const LOOK_EVERY: Duration = Duration::from_millis(20);

fn run(options: &RunOptions) -> Result<Report, Failure> {
    let mut run = Run::new(options);
    let outcome = run.whole();
    run.machines.iter().for_each(|machine| machine.forget());
    outcome
}

/// The faults of a run, one line each, by number from 1.
fn faults(options: &RunOptions) -> Vec<String> {
    let plan = Plan::draw(options.seed);
    schedule::draw(&plan.profile, &plan.faults).iter().map(ToString::to_string).collect()
}

/// What follows from the seed alone, each from numbers of its own.
struct Plan {
    profile: Profile,
    faults: Random,
    clocks: Random,
    layout: Random,
    /// Where volumes are led.
    placement: VolumePlacement,
}

impl Plan {
    fn draw(seed: u64) -> Self {
        let of = |purpose: u64| Random::for_purpose(seed, 0x4057_5000 + purpose);
        let placement = if of(4).below(2) == 0 { VolumePlacement::Gathered } else { VolumePlacement::Spread };
        Self { profile: Profile::draw(&of(0)), faults: of(1), clocks: of(2), layout: of(3), placement }
    }
}

struct Run {
    world: World,
    profile: Profile,
    placement: VolumePlacement,
    layout: Layout,
    machines: Vec<Rc<Machine>>,
    /// Machines of clients: hosts, then NBD clients.
    clients: Vec<SimNode>,
    /// Where the administrator is.
    outside: SimNode,
    map: Arc<SimMap>,
    ledger: Rc<Ledger>,
    administrator: Rc<Administrator>,
    /// All of the cluster's devices.
    stores: Vec<StoreId>,
    breaker: Breaker,
    /// For the breaker, once all is well.
    events: Vec<Event>,
    story: Option<Story>,
}

impl Run {
    fn new(options: &RunOptions) -> Self {
        let world = options.world();
        let Plan { profile, faults, clocks, layout, placement } = Plan::draw(options.seed);
        let events = schedule::draw(&profile, &faults);
        let events: Vec<Event> = events.into_iter().filter(|event| !options.without.contains(&event.number)).collect();
        let story = (options.trace || options.story).then(Story::begin);
        if story.is_some() {
            eprintln!("{profile:?}, {placement:?}");
            events.iter().for_each(|event| eprintln!("{event}"));
        }
        let map = SimMap::new();
        let machine = |index| {
            let node = world.add_node(profile.cluster.cores, ClusterProfile::draw_clock(&clocks));
            Machine::new(index, node, &map, &profile)
        };
        let machines: Vec<Rc<Machine>> = (0..profile.cluster.nodes).map(machine).collect();
        let clients: Vec<SimNode> =
            (0..profile.machines()).map(|_| world.add_node(1, ClusterProfile::draw_clock(&clocks))).collect();
        let outside = world.add_node(1, NodeOptions::default());
        let all: Vec<&SimNode> = machines.iter().map(|machine| &machine.node).chain(&clients).collect();
        for one in &all {
            all.iter().filter(|other| !std::ptr::eq(**other, *one)).for_each(|other| {
                world.set_link(one, other, profile.cluster.link);
            });
        }
        let operations =
            options.operations.map_or(profile.cluster.operations, |most| most.min(profile.cluster.operations));
        let disks_fail = events.iter().any(|event| {
            matches!(event.fault, Fault::DiskErrors { .. } | Fault::HungDisk { .. } | Fault::SlowDisk { .. })
        });
        let ledger = Ledger::new(&profile, operations, disks_fail);
        Self {
            administrator: Administrator::new(&ledger, &machines),
            layout: profile.layout(&layout),
            stores: Vec::new(),
            breaker: Breaker::default(),
            world,
            profile,
            placement,
            machines,
            clients,
            outside,
            map,
            ledger,
            events,
            story,
        }
    }

    fn whole(&mut self) -> Result<Report, Failure> {
        self.begin()?;
        self.break_things()?;
        self.finish()
    }

    /// A new cluster comes up, with its volumes: nothing is broken yet.
    fn begin(&mut self) -> Result<(), Failure> {
        let setup = |error: StartError| Failure::new("setup", error);
        for machine in &self.machines {
            self.stores.extend(self.world.run_on(&machine.node, 0, machine.clone().register())?.map_err(setup)?);
        }
        let stores = self.stores[..self.stores.len() - self.profile.spares()].to_vec();
        let pool = self.profile.cluster.pools[0];
        let (replicas, min_in_sync) = (pool.replicas as u32, pool.min_in_sync as u32);
        let rules = PoolRulesRecord {
            failure_domain: if replicas > 1 { FailureDomain::Node } else { FailureDomain::Device },
            placement: self.placement,
            ..PoolRulesRecord::unset(DEFAULT_POOL)
        };
        let pool = NewPool { name: DEFAULT_POOL.to_owned(), replicas, min_in_sync, rules: Some(rules), stores };
        let map = self.map.handle_for(NodeId(u32::MAX));
        let made = async move { ensure_pool(&*map, &pool).await.map(drop) };
        self.world.run_on(&self.outside, 0, made)?.map_err(|error| Failure::new("setup", error))?;
        self.map.set_faults(no_map_faults(&self.profile.cluster));
        self.machines.iter().for_each(Machine::start);
        self.until("a new cluster does not start", START_LIMIT, |run| {
            run.machines.iter().any(|machine| machine.assembly().is_none()).then(String::new)
        })?;
        for number in 0..self.profile.volumes {
            let machine = self.machines[number % self.machines.len()].clone();
            let assembly = machine.assembly().expect("it has started");
            let making = make_volume(assembly, self.profile.clone(), format!("v{number}"));
            let info = self.world.run_on(&machine.node, 0, making)?;
            let info = info.map_err(|error| Failure::new("setup", error))?;
            let subject = self.ledger.new_subject(&info.name, info.nsid);
            self.administrator.knows(&subject, info.size_bytes, false);
            self.ledger.add(subject);
        }
        Ok(())
    }

    fn addresses(&self) -> Vec<IpAddr> {
        self.machines.iter().map(|machine| machine.node.ip()).collect()
    }

    /// Clients run, and the schedule is followed to its end.
    fn break_things(&mut self) -> Result<(), Failure> {
        let began = self.world.now();
        self.breaker = Breaker::new(std::mem::take(&mut self.events), began);
        (0..self.clients.len()).for_each(|index| self.reach().start_clients(index));
        if self.profile.administrator {
            self.ledger.begin(self.clients.len());
            self.outside.spawn(0, self.administrator.clone().run(self.clients.len()));
        }
        if self.profile.mover {
            self.ledger.begin(self.clients.len());
            self.outside.spawn(0, self.administrator.clone().move_about(self.clients.len()));
        }
        if self.profile.operator {
            self.ledger.begin(self.clients.len());
            self.outside.spawn(0, self.administrator.clone().operate(self.stores.clone(), self.clients.len()));
        }
        self.go_on(began + self.profile.cluster.duration)
    }

    fn reach(&self) -> Reach<'_> {
        let Self { world, profile, layout, machines, clients, map, ledger, .. } = self;
        Reach { world, profile, layout, machines, clients, map, ledger }
    }

    fn change(&mut self, change: impl FnOnce(&mut Breaker, &Reach<'_>)) {
        let mut breaker = std::mem::take(&mut self.breaker);
        change(&mut breaker, &self.reach());
        self.breaker = breaker;
    }

    /// Lets the world go on to a time, breaks and mends what is due, and looks after processes that ended.
    fn go_on(&mut self, until: Duration) -> Result<(), Failure> {
        while self.world.now() < until {
            let next_look = self.world.now() + LOOK_EVERY;
            let next = self.breaker.next_due().map_or(next_look, |due| due.min(next_look)).min(until);
            self.world.run_to(next, || self.ledger.failure.borrow().is_some())?;
            self.ledger.failure.borrow_mut().take().map_or(Ok(()), Err)?;
            if self.story.is_some() {
                Story::pass(self.world.now());
            }
            self.change(|breaker, reach| breaker.advance(reach));
            self.look_after()?;
        }
        Ok(())
    }

    /// A process that did not come up is started anew, if there is a reason for it.
    fn look_after(&mut self) -> Result<(), Failure> {
        for index in 0..self.machines.len() {
            match self.machines[index].refusal() {
                None => {}
                Some(StartError::Map(_) | StartError::Volume(VolumeError::Map(_)) | StartError::CoreEnded) => {
                    self.change(|breaker, reach| breaker.restart(index, PROCESS_PAUSE, reach));
                }
                Some(error) if self.ledger.disks_fail => {
                    tell(format_args!("node {index} is looked after: {error}"));
                    self.change(|breaker, reach| breaker.restart(index, PROCESS_PAUSE, reach));
                }
                Some(error) => return Err(Failure::new("opening", format!("node {index}: {error}"))),
            }
        }
        Ok(())
    }

    /// Waits until nothing is wanting any more.
    fn until(
        &mut self,
        what: &str,
        limit: Duration,
        wants: impl Fn(&Self) -> Option<String>,
    ) -> Result<Duration, Failure> {
        let began = self.world.now();
        loop {
            let Some(why) = wants(self) else { return Ok(self.world.now() - began) };
            if self.world.now() - began > limit {
                return Err(Failure::new("liveness", format!("{what} after {limit:?}: {why}")));
            }
            self.go_on(self.world.now() + Duration::from_millis(50))?;
        }
    }
}

/// Makes a volume, which this node serves then, as its profile says.
async fn make_volume(assembly: Assembly, profile: Profile, name: String) -> Result<VolumeInfo, VolumeError> {
    if profile.compression != Compression::Off {
        assembly.set_compression(DEFAULT_POOL, profile.compression).await?;
    }
    let new = NewVolume {
        name,
        size_bytes: profile.volume_bytes(),
        block_size_bytes: profile.block_bytes as u32,
        limits: Limits::default(),
        hosts: Default::default(),
    };
    match profile.encrypted {
        true => {
            let place = assembly.new_key_place().await?;
            assembly.create_encrypted_volume(new, place, data_key(place.key), unused_wrap()).await
        }
        false => assembly.create_volume(new).await,
    }
}

/// What the breaker reaches. Machines of clients are numbered behind the nodes.
struct Reach<'a> {
    world: &'a World,
    profile: &'a Profile,
    layout: &'a Layout,
    machines: &'a [Rc<Machine>],
    clients: &'a [SimNode],
    map: &'a Arc<SimMap>,
    ledger: &'a Rc<Ledger>,
}

impl Reach<'_> {
    /// The clients of a machine begin to work.
    fn start_clients(&self, index: usize) {
        let (ledger, node) = (self.ledger.clone(), &self.clients[index]);
        let addresses: Vec<IpAddr> = self.machines.iter().map(|machine| machine.node.ip()).collect();
        match index < self.profile.hosts {
            true => node.spawn(0, async move { client::run_host(&ledger, index, &addresses) }),
            false => node.spawn(0, client::run_nbd(ledger, index, addresses)),
        }
    }
}

impl Site for Reach<'_> {
    fn world(&self) -> &World {
        self.world
    }
    fn map(&self) -> &Arc<SimMap> {
        self.map
    }
    fn profile(&self) -> &ClusterProfile {
        &self.profile.cluster
    }
    fn layout(&self) -> &Layout {
        self.layout
    }
    fn count(&self) -> usize {
        self.machines.len()
    }

    fn node(&self, index: usize) -> &SimNode {
        match self.machines.get(index) {
            Some(machine) => &machine.node,
            None => &self.clients[index - self.machines.len()],
        }
    }

    fn stop(&self, index: usize, power_lost: bool) {
        match self.machines.get(index) {
            Some(machine) => machine.stop(power_lost),
            None => {
                self.node(index).crash();
                self.ledger.machine_gone(index - self.machines.len());
            }
        }
    }

    fn start(&self, index: usize) {
        match self.machines.get(index) {
            _ if self.node(index).is_up() => {}
            Some(machine) => machine.start(),
            None => {
                self.node(index).start();
                self.start_clients(index - self.machines.len());
            }
        }
    }

    fn disk_of(&self, store: usize) -> SimDisk {
        self.machines[self.layout.stores[store].node].disk.clone()
    }

    fn needs_power_cycle(&self, index: usize) {
        self.machines[index].needs_power_cycle.set(true);
    }

    /// Whoever looks after a node starts it anew when its disk is well again, whatever it says.
    fn has_failed_stores(&self, _: usize) -> bool {
        true
    }

    fn destroy(&self, _: &Fault, _: u32) {}

    fn rot(&self, _: usize, _: u64) {}
}

/// The id of the machine's node.
fn id_of(machine: &Machine) -> NodeId {
    node_id(machine.index)
}
