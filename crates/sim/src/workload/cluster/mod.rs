//! The workload `cluster`: whole clusters running `store`, `replication` and `cluster` as they ship, in which everything
//! goes wrong that may.
//!
//! ```text
//!   clients ── on a machine of their own; a task on whichever node leads does an operation, and writes the history
//!      │
//!   nodes 1..7: cores, stores, groups ──network── each other        the map: in memory, with etcd's vices
//!      │
//!   breaker: does what the schedule says              watch: asks all members at once what must always hold
//! ```
//!
//! A run draws its cluster and its faults from the seed, lets clients run while things break, mends everything, demands
//! that all heals, and judges the history. What the faults are is known before it begins ([`schedule`]): a run can be
//! repeated without some of them, and with fewer operations.

mod bounds;
pub(super) mod breaker;
mod client;
mod control;
mod decay;
mod ending;
pub(super) mod fault;
mod heads;
mod heal;
mod hoard;
pub(super) mod layout;
mod lost;
mod machine;
mod numbers;
pub(super) mod profile;
pub(super) mod schedule;
mod space;
pub(super) mod story;
mod task;
mod watch;
mod witness;

pub use fault::KINDS;
pub use heads::WORKLOAD as HEADS;
pub use numbers::{format_numbers, parse_numbers};

use super::{Failure, Report, RunOptions, Workload};
use breaker::{Breaker, Reach, no_map_faults};
use client::Clients;
use cluster::SimMap;
use control::Control;
use heal::{is_quiet, is_whole};
use layout::{DISK_BYTES, Layout};
use machine::{Machine, Refusal};
use profile::Profile;
use runtime::sim::{NodeOptions, Random, SimNode, World};
use schedule::Event;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use story::Story;
use types::{Mutant, NodeId};
use watch::{Watch, describe, members};
use witness::Witness;

/// See the module.
pub const WORKLOAD: Workload = Workload {
    name: "cluster",
    about: "whole clusters: groups of several members on several nodes, in which everything goes wrong",
    default_crashes: 0,
    run: |options| run(options, false),
    faults,
    operations: |options| Some(Plan::draw(options.seed).profile.operations),
    mutants: &[
        Mutant::OldEpochAfterRestart,
        Mutant::LifeNotNamed,
        Mutant::IncarnationIgnored,
        Mutant::ReadPastLease,
        Mutant::CatchUpMissesChunk,
        Mutant::LastSeqIgnored,
        Mutant::AppliedBeforeUnit,
        Mutant::UnitOfOtherGroups,
    ],
};

/// How often all members are asked what must always hold.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// Longest that starting a new cluster may take.
const START_LIMIT: Duration = Duration::from_secs(30);
/// A process that has ended by itself is started anew after so long.
const PROCESS_PAUSE: Duration = Duration::from_secs(1);
/// Somebody looks after a node whose stores have failed, so often.
const CARE_EVERY: Duration = Duration::from_secs(10);

/// `through_heads`: see `heads`.
fn run(options: &RunOptions, through_heads: bool) -> Result<Report, Failure> {
    let mut run = Run::new(options)?;
    run.clients.head_node.set(through_heads.then_some(0));
    let outcome = run.whole();
    run.machines.iter().for_each(|machine| machine.forget());
    outcome
}

/// The faults of a run, one line each, by number from 1.
fn faults(options: &RunOptions) -> Vec<String> {
    let plan = Plan::draw(options.seed);
    let addresses = (0..plan.profile.all_nodes()).map(|_| std::net::IpAddr::from([10, 0, 0, 1]));
    let layout = Layout::draw(&plan.profile, addresses, &plan.layout);
    schedule::draw(&plan.profile, &layout, &plan.faults).iter().map(ToString::to_string).collect()
}

/// What follows from the seed alone, each from numbers of its own.
struct Plan {
    profile: Profile,
    layout: Random,
    faults: Random,
    clocks: Random,
}

impl Plan {
    fn draw(seed: u64) -> Self {
        let of = |purpose: u64| Random::for_purpose(seed, 0xc105_7e40 + purpose);
        Self { profile: Profile::draw(&of(0), &of(4)), layout: of(1), faults: of(2), clocks: of(3) }
    }
}

struct Run {
    world: World,
    profile: Profile,
    layout: Rc<Layout>,
    /// Where clients are.
    outside: SimNode,
    machines: Vec<Rc<Machine>>,
    map: Arc<SimMap>,
    clients: Rc<Clients>,
    control: Rc<Control>,
    breaker: Breaker,
    /// For the breaker, once all is well.
    events: Vec<Event>,
    watch: Watch,
    witness: Rc<Witness>,
    story: Option<Story>,
}

impl Run {
    fn new(options: &RunOptions) -> Result<Self, Failure> {
        let world = options.world();
        let Plan { profile, layout, faults, clocks } = Plan::draw(options.seed);
        let nodes: Vec<SimNode> =
            (0..profile.all_nodes()).map(|_| world.add_node(profile.cores, Profile::draw_clock(&clocks))).collect();
        let outside = world.add_node(1, NodeOptions::default());
        let mut layout = Layout::draw(&profile, nodes.iter().map(SimNode::ip), &layout);
        let events = schedule::draw(&profile, &layout, &faults);
        let wiped: Vec<usize> = events.iter().flat_map(|event| event.fault.wiped(&layout)).collect();
        wiped.into_iter().for_each(|store| layout.add_spare(store));
        let layout = Rc::new(layout);
        let is_left = |event: &Event| !options.without.contains(&event.number);
        let events: Vec<Event> = events.into_iter().filter(is_left).collect();
        let story = (options.trace || options.story).then(Story::begin);
        if story.is_some() {
            eprintln!("{profile:?}");
            layout.groups.iter().for_each(|group| eprintln!("{group:?}"));
            events.iter().for_each(|event| eprintln!("{event}"));
        }
        let map = SimMap::new();
        let witness: Rc<Witness> = Rc::default();
        let machine = |(index, node): (usize, &SimNode)| {
            let disk = |store: usize| (store, node.add_disk(&layout.stores[store].path, DISK_BYTES, profile.disk));
            let disks: BTreeMap<_, _> = layout.stores_of(index).map(disk).collect();
            Machine::new(index, node.clone(), disks, &layout, &map, &profile, &witness)
        };
        let machines: Vec<Rc<Machine>> = nodes.iter().enumerate().map(machine).collect();
        for (index, one) in nodes.iter().enumerate() {
            nodes.iter().enumerate().filter(|(other, _)| *other != index).for_each(|(_, other)| {
                world.set_link(one, other, profile.link);
            });
        }
        let operations = options.operations.map_or(profile.operations, |most| most.min(profile.operations));
        let clients = Clients::new(&layout, &machines, operations);
        let may_fail = |event: &Event| event.fault.lies() || event.fault.kind() == kind("disk errors");
        clients.reads_may_fail.set(events.iter().any(may_fail));
        let has_restored = events.iter().any(|event| event.fault.kind() == kind("map restores"));
        Ok(Self {
            control: Control::new(&layout, map.handle_for(NodeId(u32::MAX))),
            breaker: Breaker::default(),
            events,
            world,
            profile,
            layout,
            outside,
            machines,
            map,
            clients,
            watch: Watch::new(has_restored),
            witness,
            story,
        })
    }

    fn whole(&mut self) -> Result<Report, Failure> {
        self.begin()?;
        self.break_things()?;
        let healed = self.heal()?;
        self.finish(healed)
    }

    /// A new cluster comes up: nothing is broken yet.
    fn begin(&mut self) -> Result<(), Failure> {
        let (layout, profile) = (self.layout.clone(), self.profile.clone());
        let map = self.map.handle_for(NodeId(u32::MAX));
        self.world.run_on(&self.outside, 0, async move { layout.make_map(&profile, &*map).await })??;
        self.map.set_faults(no_map_faults(&self.profile));
        for machine in &self.machines {
            let formatted = self.world.run_on(&machine.node, 0, machine.clone().format())?;
            formatted.map_err(|error| Failure::new("setup", error))?;
        }
        // A node that comes later is down until then.
        let (at_first, later) = self.machines.split_at(self.profile.nodes);
        at_first.iter().for_each(Machine::start);
        later.iter().for_each(|machine| machine.node.kill());
        self.outside.spawn(0, self.control.clone().run());
        let all = 0..self.layout.groups.len();
        self.until("a new cluster does not serve", START_LIMIT, |run| run.wants(all.clone(), false))?;
        Ok(())
    }

    /// What is wrong with the first of these groups that is not whole; or, if they are to be quiet, not that.
    fn wants(&self, mut groups: std::ops::Range<usize>, quiet: bool) -> Option<String> {
        if self.control.pending() > 0 {
            return Some(format!("members are to be replaced: {:?}", self.control));
        }
        let all = members(&self.layout, &self.machines);
        groups.find_map(|group| {
            if !self.is_asked(group) {
                return None;
            }
            let whole = is_whole(&self.layout, &self.machines, group, &all);
            let why = whole.and_then(|()| if quiet { is_quiet(&self.layout, group, &all) } else { Ok(()) }).err()?;
            let id = self.layout.groups[group].id;
            let is_filled = self.layout.hoard_chunks > 0;
            let full = is_filled.then(|| {
                let queues = space::queues(&self.layout, &self.machines, group);
                space::describe(&self.layout, &self.machines, group) + &queues
            });
            let full = full.unwrap_or_default();
            Some(format!("group {id}: {why}{}{full}", describe(&self.layout, &self.machines, id)))
        })
    }

    /// Whether a group is to be as if nothing had happened: it lost no more than its policy allows for, and enough of its
    /// members are there.
    fn is_asked(&self, group: usize) -> bool {
        let plan = &self.layout.groups[group];
        let is_there = |store: &usize| !self.machines[self.layout.stores[*store].node].is_written_off(*store);
        self.control.is_judged(group)
            && plan.members().iter().filter(|store| is_there(store)).count() >= plan.min_in_sync
    }

    /// Clients run, and the schedule is followed to its end.
    fn break_things(&mut self) -> Result<(), Failure> {
        let began = self.world.now();
        self.breaker = Breaker::new(std::mem::take(&mut self.events), began);
        let (clients, burst) = (self.profile.clients as u64, self.profile.burst);
        let hoarders = self.profile.hoarders;
        self.clients.running.set(self.profile.clients + hoarders);
        (0..hoarders).for_each(|number| self.outside.spawn(0, self.clients.clone().hoard(number, hoarders)));
        for _ in 0..clients {
            self.outside.spawn(0, self.clients.clone().run(clients, burst, self.profile.duration));
        }
        self.go_on(began + self.profile.duration)
    }

    /// Lets the world go on to a time, breaks and mends what is due, and looks at everything now and then.
    fn go_on(&mut self, until: Duration) -> Result<(), Failure> {
        while self.world.now() < until {
            let next_look = self.world.now() + LOOK_EVERY;
            let next = self.breaker.next_due().map_or(next_look, |due| due.min(next_look)).min(until);
            self.world.run_to(next, || self.clients.failure.borrow().is_some())?;
            self.clients.failure.borrow_mut().take().map_or(Ok(()), Err)?;
            self.witness.failure.take().map_or(Ok(()), Err)?;
            self.change(|breaker, reach| breaker.advance(reach));
            if let Some(story) = &mut self.story {
                story.go_on(self.world.now(), &self.layout, &self.machines);
            }
            self.watch.look(&self.layout, &self.machines, &self.clients, &self.control)?;
            self.look_after()?;
        }
        Ok(())
    }

    fn change(&mut self, change: impl FnOnce(&mut Breaker, &Reach<'_>)) {
        let Self { world, profile, layout, machines, map, control, breaker, .. } = self;
        change(breaker, &Reach { world, profile, layout, machines, map, control });
    }

    /// A process that could not begin ends, and is started anew. One that has no reason to say so, and says that
    /// something is wrong with what it found, has failed.
    fn look_after(&mut self) -> Result<(), Failure> {
        for index in 0..self.machines.len() {
            let has_lied = self.machines[index].lies() > 0;
            if let Some(damage) = self.machines[index].damage().first().filter(|_| !has_lied) {
                return Err(Failure::new("damage", format!("node {index}, whose disks never lied: {damage}")));
            }
            for refusal in self.machines[index].refusals() {
                match refusal {
                    Refusal::Device(_) => {}
                    Refusal::Damage(_) if has_lied => {}
                    Refusal::Map(_) => self.change(|breaker, reach| breaker.restart(index, PROCESS_PAUSE, reach)),
                    _ => return Err(Failure::new("opening", format!("node {index}: {refusal}"))),
                }
            }
        }
        Ok(())
    }

    /// Waits until nothing is wanting any more. While it waits, nodes with a failed store are looked after.
    fn until(
        &mut self,
        what: &str,
        limit: Duration,
        wants: impl Fn(&Self) -> Option<String>,
    ) -> Result<Duration, Failure> {
        let began = self.world.now();
        let mut next_care = began + CARE_EVERY;
        loop {
            let Some(why) = wants(self) else { return Ok(self.world.now() - began) };
            if self.world.now() - began > limit {
                return Err(Failure::new("liveness", format!("{what} after {limit:?}: {why}")));
            }
            if self.world.now() >= next_care {
                next_care += CARE_EVERY;
                self.restart_failed();
            }
            self.go_on(self.world.now() + Duration::from_millis(50))?;
        }
    }

    /// Somebody looks after the nodes of which a store has failed, or was not opened.
    fn restart_failed(&self) {
        for machine in self.machines.iter().filter(|machine| !machine.failed_stores().is_empty()) {
            machine.stop(false);
            machine.start();
        }
    }
}

/// The place of a kind of fault.
fn kind(name: &str) -> usize {
    KINDS.iter().position(|kind| *kind == name).expect("it is one of the kinds")
}
