//! Breaks what the schedule says, and mends it when its time is over.

use super::control::Control;
use super::decay::rot;
use super::fault::{Fault, KINDS};
use super::layout::{Layout, node_id};
use super::machine::Machine;
use super::profile::Profile;
use super::schedule::Event;
use super::story::tell;
use cluster::{MapBackup, MapFaults, SimMap};
use runtime::sim::{DiskFaults, SimDisk, SimNode, World};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// A backup of the map is made so often, where one will be restored, and so many are kept.
const BACKUP_EVERY: Duration = Duration::from_millis(500);
const BACKUPS_MAX: usize = 64;
/// A disk that failed stays out for so long before somebody puts it back.
const REPAIR: Duration = Duration::from_secs(3);

/// Something that is to be done at a moment of the world.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    Begin(usize),
    End(usize),
    /// A node of a rolling restart, or one with a failed disk, is stopped, and started again after this.
    Restart(usize, Duration),
    Start(usize),
    Backup,
    /// The next bit of a fault turns over.
    Rot(usize),
}

/// See the module.
#[derive(Default)]
pub struct Breaker {
    /// When clients began.
    began: Duration,
    events: Vec<Event>,
    /// By time, then in the order of their making.
    due: BTreeMap<(Duration, u64), Step>,
    steps: u64,
    /// What is broken now: how often, where faults overlap.
    cuts: BTreeMap<(usize, usize), u32>,
    held: BTreeMap<(&'static str, usize, usize), u32>,
    /// Faults of the map under way: the newest holds.
    map_faults: Vec<(usize, MapFaults)>,
    backups: VecDeque<(Duration, MapBackup)>,
    /// Faults that have begun, by kind.
    pub counts: [u64; KINDS.len()],
    pub crashes: u64,
}

/// What can be broken, as the breaker reaches it. Numbers are indexes of nodes and stores of its layout.
pub trait Site {
    fn world(&self) -> &World;
    fn map(&self) -> &Arc<SimMap>;
    fn profile(&self) -> &Profile;
    fn layout(&self) -> &Layout;
    /// Storage nodes.
    fn count(&self) -> usize;
    /// A machine: a storage node, or whatever else faults name.
    fn node(&self, index: usize) -> &SimNode;
    /// The process of a node that is up ends.
    fn stop(&self, index: usize, power_lost: bool);
    /// A node that is down comes up, unless it is lost.
    fn start(&self, index: usize);
    fn disk_of(&self, store: usize) -> SimDisk;
    /// What a failed flush covered is in doubt until the node has lost power.
    fn needs_power_cycle(&self, index: usize);
    fn has_failed_stores(&self, index: usize) -> bool;
    /// A fault begins that destroys copies or changes who there is: what of it is not the same everywhere.
    fn destroy(&self, fault: &Fault, number: u32);
    /// A bit of what a store holds turns over.
    fn rot(&self, store: usize, seed: u64);
}

/// The cluster of the workloads `cluster` and `heads`.
pub struct Reach<'a> {
    pub world: &'a World,
    pub profile: &'a Profile,
    pub layout: &'a Layout,
    pub machines: &'a [Rc<Machine>],
    pub map: &'a Arc<SimMap>,
    pub control: &'a Rc<Control>,
}

impl Breaker {
    /// `began`: when clients began.
    pub fn new(events: Vec<Event>, began: Duration) -> Self {
        let mut breaker = Self { began, ..Self::default() };
        for (index, event) in events.iter().enumerate() {
            breaker.at(began + event.at, Step::Begin(index));
        }
        if events.iter().any(|event| matches!(event.fault, Fault::MapRestore { .. })) {
            breaker.at(began, Step::Backup);
        }
        breaker.events = events;
        breaker
    }

    fn at(&mut self, time: Duration, step: Step) {
        self.steps += 1;
        self.due.insert((time, self.steps), step);
    }

    /// When something is to be done next.
    pub fn next_due(&self) -> Option<Duration> {
        self.due.first_key_value().map(|((time, _), _)| *time)
    }

    /// Does all that is due.
    pub fn advance(&mut self, reach: &impl Site) {
        let now = reach.world().now();
        while let Some(entry) = self.due.first_entry().filter(|entry| entry.key().0 <= now) {
            match entry.remove() {
                Step::Begin(index) => self.begin(index, reach),
                Step::End(index) => self.end(index, reach),
                Step::Restart(node, down) => self.restart(node, down, reach),
                Step::Start(node) => reach.start(node),
                Step::Rot(index) => self.rot(index, reach),
                Step::Backup => {
                    self.backups.push_back((now, reach.map().backup()));
                    if self.backups.len() > BACKUPS_MAX {
                        self.backups.pop_front();
                    }
                    self.at(now + BACKUP_EVERY, Step::Backup);
                }
            }
        }
    }

    /// Ends a process; the next begins after `down`.
    pub fn restart(&mut self, node: usize, down: Duration, reach: &impl Site) {
        self.stop(node, false, reach);
        self.at(reach.world().now() + down, Step::Start(node));
    }

    fn stop(&mut self, node: usize, power_lost: bool, reach: &impl Site) {
        if reach.node(node).is_up() {
            reach.stop(node, power_lost);
            self.crashes += 1;
        }
    }

    fn begin(&mut self, index: usize, reach: &impl Site) {
        let Event { fault, lasts, number, .. } = self.events[index].clone();
        let now = reach.world().now();
        self.counts[fault.kind()] += 1;
        reach.world().note(u64::from(number), fault.kind() as u64, 1);
        tell(format_args!("fault {number} begins: {fault:?}"));
        match fault {
            Fault::Crash { node } => self.stop(node, true, reach),
            Fault::Kill { node } => self.stop(node, false, reach),
            Fault::Blackout => (0..reach.count()).for_each(|node| self.stop(node, true, reach)),
            Fault::RollingRestart { gap } => {
                for node in 0..reach.count() {
                    self.at(now + (gap + lasts) * node as u32, Step::Restart(node, lasts));
                }
            }
            Fault::Pause { node } => {
                self.hold("pause", node, 0);
                reach.node(node).pause();
            }
            Fault::HungCore { node, core } => {
                self.hold("core", node, core);
                reach.node(node).pause_core(core);
            }
            Fault::Cut { .. } | Fault::Isolation { .. } => {
                links_of(&fault, reach).into_iter().for_each(|link| self.cut(link, reach));
            }
            Fault::Reset { one, other } => reach.world().reset_connections(reach.node(one), reach.node(other)),
            Fault::Silence { one, other } => reach.world().silence_connections(reach.node(one), reach.node(other)),
            Fault::SlowLink { one, other, link } => {
                reach.world().set_link(reach.node(one), reach.node(other), link);
                reach.world().set_link(reach.node(other), reach.node(one), link);
            }
            Fault::DiskErrors { store, faults } | Fault::Lies { store, faults } => {
                reach.disk_of(store).set_faults(faults);
                let flushes_fail = faults.flush_error > 0;
                if flushes_fail {
                    reach.needs_power_cycle(reach.layout().stores[store].node);
                }
            }
            Fault::Rot { .. } => self.rot(index, reach),
            Fault::SlowDisk { store, delay } => reach.disk_of(store).set_delay(delay),
            Fault::HungDisk { store } => {
                self.hold("disk", store, 0);
                reach.disk_of(store).set_hanging(true);
            }
            Fault::WallClock { node, offset_ns } => reach.node(node).set_wall_clock_offset(offset_ns),
            Fault::ClockRate { node, ppm } => reach.node(node).set_clock_rate_offset(ppm),
            Fault::Map(faults) => {
                self.map_faults.push((index, faults));
                reach.map().set_faults(faults);
            }
            Fault::MapCutOff { node } => {
                self.hold("map", node, 0);
                reach.map().set_cut_off(node_id(node), true);
            }
            Fault::MapUnreachable => {
                self.hold("map", usize::MAX, 0);
                reach.map().set_unreachable(true);
            }
            Fault::MapLeader => reach.map().change_leader(),
            Fault::MapRestore { age } => {
                let backup = self.backups.iter().rfind(|(made, _)| *made + age <= now).or(self.backups.front());
                if let Some((_, backup)) = backup {
                    reach.map().restore(backup);
                }
            }
            Fault::Reordered { one, other, most } => {
                reach.world().lag_connections(reach.node(one), reach.node(other), most);
            }
            Fault::Lost { node } | Fault::Wipe { node, .. } => self.stop(node, true, reach),
            Fault::Added { .. } => {}
        }
        reach.destroy(&fault, number);
        self.at(now + lasts, Step::End(index));
    }

    fn end(&mut self, index: usize, reach: &impl Site) {
        let Event { fault, number, .. } = self.events[index];
        tell(format_args!("fault {number} ends: {fault:?}"));
        match fault {
            Fault::Crash { node } | Fault::Kill { node } | Fault::Wipe { node, .. } => reach.start(node),
            Fault::Blackout => (0..reach.count()).for_each(|node| reach.start(node)),
            Fault::Pause { node } => {
                if self.release("pause", node, 0) {
                    reach.node(node).resume();
                }
            }
            Fault::HungCore { node, core } => {
                if self.release("core", node, core) {
                    reach.node(node).resume_core(core);
                }
            }
            Fault::Cut { .. } | Fault::Isolation { .. } => {
                links_of(&fault, reach).into_iter().for_each(|link| self.heal(link, reach));
            }
            Fault::SlowLink { one, other, .. } => {
                reach.world().set_link(reach.node(one), reach.node(other), reach.profile().link);
                reach.world().set_link(reach.node(other), reach.node(one), reach.profile().link);
            }
            Fault::DiskErrors { store, .. } | Fault::Lies { store, .. } => {
                reach.disk_of(store).set_faults(DiskFaults::default());
                self.repair(store, reach);
            }
            Fault::SlowDisk { store, .. } => {
                reach.disk_of(store).set_delay(Duration::ZERO);
                self.repair(store, reach);
            }
            Fault::HungDisk { store } => {
                if self.release("disk", store, 0) {
                    reach.disk_of(store).set_hanging(false);
                    self.repair(store, reach);
                }
            }
            Fault::Map(_) => {
                self.map_faults.retain(|(other, _)| *other != index);
                let faults =
                    self.map_faults.last().map_or_else(|| no_map_faults(reach.profile()), |(_, faults)| *faults);
                reach.map().set_faults(faults);
            }
            Fault::MapCutOff { node } => {
                if self.release("map", node, 0) {
                    reach.map().set_cut_off(node_id(node), false);
                }
            }
            Fault::MapUnreachable => {
                if self.release("map", usize::MAX, 0) {
                    reach.map().set_unreachable(false);
                }
            }
            Fault::RollingRestart { .. } | Fault::Reset { .. } | Fault::Silence { .. } | Fault::Lost { .. } => {}
            Fault::WallClock { .. } | Fault::ClockRate { .. } | Fault::MapLeader | Fault::MapRestore { .. } => {}
            Fault::Rot { .. } | Fault::Added { .. } => {}
            Fault::Reordered { one, other, .. } => {
                reach.world().lag_connections(reach.node(one), reach.node(other), Duration::ZERO);
            }
        }
    }

    /// A bit turns over, and later the next, as long as the fault lasts.
    fn rot(&mut self, index: usize, reach: &impl Site) {
        let Event { fault: Fault::Rot { store, gap, seed }, at, lasts, .. } = self.events[index] else { return };
        let now = reach.world().now();
        reach.rot(store, seed ^ now.as_nanos() as u64);
        if now + gap < self.began + at + lasts {
            self.at(now + gap, Step::Rot(index));
        }
    }

    /// Somebody looks at the node when a disk has given up, and puts it back.
    fn repair(&mut self, store: usize, reach: &impl Site) {
        let node = reach.layout().stores[store].node;
        if reach.has_failed_stores(node) {
            self.at(reach.world().now() + REPAIR, Step::Restart(node, Duration::from_millis(100)));
        }
    }

    /// Counts one more that holds something; where it is released depends on the last of them.
    fn hold(&mut self, what: &'static str, place: usize, part: usize) {
        *self.held.entry((what, place, part)).or_default() += 1;
    }

    /// Whether that was the last.
    fn release(&mut self, what: &'static str, place: usize, part: usize) -> bool {
        let count = self.held.get_mut(&(what, place, part)).expect("what is released was held");
        *count -= 1;
        *count == 0
    }

    fn cut(&mut self, (from, to): (usize, usize), reach: &impl Site) {
        *self.cuts.entry((from, to)).or_default() += 1;
        reach.world().cut(reach.node(from), reach.node(to));
    }

    fn heal(&mut self, (from, to): (usize, usize), reach: &impl Site) {
        let count = self.cuts.get_mut(&(from, to)).expect("what is healed was cut");
        *count -= 1;
        if *count == 0 {
            reach.world().heal(reach.node(from), reach.node(to));
        }
    }

    /// The faults are over: all that is broken is mended, now. Backups are made no more.
    pub fn mend_all(&mut self, reach: &impl Site) {
        let due = std::mem::take(&mut self.due);
        for step in due.into_values() {
            if let Step::End(index) = step {
                self.end(index, reach);
            }
        }
        self.due.clear();
        (0..reach.count()).for_each(|node| reach.start(node));
    }
}

/// No faults, and the latency of the run.
pub fn no_map_faults(profile: &Profile) -> MapFaults {
    MapFaults { latency_max: profile.map_latency, ..MapFaults::NONE }
}

impl Site for Reach<'_> {
    fn world(&self) -> &World {
        self.world
    }
    fn map(&self) -> &Arc<SimMap> {
        self.map
    }
    fn profile(&self) -> &Profile {
        self.profile
    }
    fn layout(&self) -> &Layout {
        self.layout
    }
    fn count(&self) -> usize {
        self.machines.len()
    }
    fn node(&self, index: usize) -> &SimNode {
        &self.machines[index].node
    }
    fn stop(&self, index: usize, power_lost: bool) {
        self.machines[index].stop(power_lost);
    }

    fn start(&self, index: usize) {
        let machine = &self.machines[index];
        if !machine.node.is_up() && !machine.is_lost.get() {
            machine.start();
        }
    }

    /// Of the one in its place, if it was replaced.
    fn disk_of(&self, store: usize) -> SimDisk {
        let machine = &self.machines[self.layout.stores[store].node];
        let disk = machine.disk(store).or_else(|| machine.disk(self.layout.spare_of(store)?));
        disk.expect("a store has a disk, or a spare one")
    }

    fn needs_power_cycle(&self, index: usize) {
        self.machines[index].needs_power_cycle.set(true);
    }

    fn has_failed_stores(&self, index: usize) -> bool {
        !self.machines[index].failed_stores().is_empty()
    }

    fn destroy(&self, fault: &Fault, number: u32) {
        self.control.are_destroyed(&fault.stores_destroyed(self.layout));
        match *fault {
            Fault::Lost { node } => self.lose(node, number),
            Fault::Wipe { node, .. } => {
                for store in fault.wiped(self.layout) {
                    let spare = self.layout.spare_of(store).expect("one was made for it");
                    self.machines[node].replace_disk(store, spare, self.profile.disk);
                    self.control.replace(store, spare);
                }
            }
            Fault::Added { node, seed } => {
                self.machines[node].is_lost.set(false);
                self.start(node);
                self.control.add_node(node, seed);
            }
            _ => {}
        }
    }

    fn rot(&self, store: usize, seed: u64) {
        rot(self, store, seed);
    }
}

impl Reach<'_> {
    fn lose(&self, node: usize, number: u32) {
        let machine = &self.machines[node];
        machine.is_lost.set(true);
        machine.stores().into_iter().for_each(|store| self.control.lose(store));
        if self.layout.hoard_chunks == 0 {
            let usable = self.usable_stores();
            let lost: Vec<usize> = machine.stores();
            lost.into_iter().for_each(|store| self.control.give_away(store, &usable, u64::from(number)));
        }
    }

    /// Stores of all nodes that are not lost.
    fn usable_stores(&self) -> Vec<usize> {
        let there = self.machines.iter().filter(|machine| !machine.is_lost.get());
        there.flat_map(|machine| machine.stores()).collect()
    }
}

/// The links that a fault cuts.
fn links_of(fault: &Fault, reach: &impl Site) -> Vec<(usize, usize)> {
    match *fault {
        Fault::Cut { from, to, both } => std::iter::once((from, to)).chain(both.then_some((to, from))).collect(),
        Fault::Isolation { node, outward, inward } => {
            let others = (0..reach.count()).filter(|other| *other != node);
            let both = others
                .flat_map(|other| outward.then_some((node, other)).into_iter().chain(inward.then_some((other, node))));
            both.collect()
        }
        _ => Vec::new(),
    }
}
