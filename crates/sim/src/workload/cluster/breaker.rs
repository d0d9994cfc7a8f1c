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
use runtime::sim::{DiskFaults, SimDisk, World};
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

/// What the breaker needs to reach.
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
    pub fn advance(&mut self, reach: &Reach<'_>) {
        let now = reach.world.now();
        while let Some(entry) = self.due.first_entry().filter(|entry| entry.key().0 <= now) {
            match entry.remove() {
                Step::Begin(index) => self.begin(index, reach),
                Step::End(index) => self.end(index, reach),
                Step::Restart(node, down) => self.restart(node, down, reach),
                Step::Start(node) => start_if_down(&reach.machines[node]),
                Step::Rot(index) => self.rot(index, reach),
                Step::Backup => {
                    self.backups.push_back((now, reach.map.backup()));
                    if self.backups.len() > BACKUPS_MAX {
                        self.backups.pop_front();
                    }
                    self.at(now + BACKUP_EVERY, Step::Backup);
                }
            }
        }
    }

    /// Ends a process; the next begins after `down`.
    pub fn restart(&mut self, node: usize, down: Duration, reach: &Reach<'_>) {
        self.stop(&reach.machines[node], false);
        self.at(reach.world.now() + down, Step::Start(node));
    }

    fn stop(&mut self, machine: &Machine, power_lost: bool) {
        if machine.node.is_up() {
            machine.stop(power_lost);
            self.crashes += 1;
        }
    }

    fn begin(&mut self, index: usize, reach: &Reach<'_>) {
        let Event { fault, lasts, number, .. } = self.events[index].clone();
        let now = reach.world.now();
        self.counts[fault.kind()] += 1;
        reach.world.note(u64::from(number), fault.kind() as u64, 1);
        tell(format_args!("fault {number} begins: {fault:?}"));
        reach.control.are_destroyed(&fault.stores_destroyed(reach.layout));
        let machine = |node: usize| &reach.machines[node];
        match fault {
            Fault::Crash { node } => self.stop(machine(node), true),
            Fault::Kill { node } => self.stop(machine(node), false),
            Fault::Blackout => reach.machines.iter().for_each(|machine| self.stop(machine, true)),
            Fault::RollingRestart { gap } => {
                for node in 0..reach.machines.len() {
                    self.at(now + (gap + lasts) * node as u32, Step::Restart(node, lasts));
                }
            }
            Fault::Pause { node } => {
                self.hold("pause", node, 0);
                machine(node).node.pause();
            }
            Fault::HungCore { node, core } => {
                self.hold("core", node, core);
                machine(node).node.pause_core(core);
            }
            Fault::Cut { .. } | Fault::Isolation { .. } => {
                links_of(&fault, reach).into_iter().for_each(|link| self.cut(link, reach));
            }
            Fault::Reset { one, other } => reach.world.reset_connections(&machine(one).node, &machine(other).node),
            Fault::Silence { one, other } => reach.world.silence_connections(&machine(one).node, &machine(other).node),
            Fault::SlowLink { one, other, link } => {
                reach.world.set_link(&machine(one).node, &machine(other).node, link);
                reach.world.set_link(&machine(other).node, &machine(one).node, link);
            }
            Fault::DiskErrors { store, faults } | Fault::Lies { store, faults } => {
                reach.disk_of(store).set_faults(faults);
                let flushes_fail = faults.flush_error > 0;
                let machine = machine(reach.layout.stores[store].node);
                machine.needs_power_cycle.set(machine.needs_power_cycle.get() || flushes_fail);
            }
            Fault::Rot { .. } => self.rot(index, reach),
            Fault::SlowDisk { store, delay } => reach.disk_of(store).set_delay(delay),
            Fault::HungDisk { store } => {
                self.hold("disk", store, 0);
                reach.disk_of(store).set_hanging(true);
            }
            Fault::WallClock { node, offset_ns } => machine(node).node.set_wall_clock_offset(offset_ns),
            Fault::ClockRate { node, ppm } => machine(node).node.set_clock_rate_offset(ppm),
            Fault::Map(faults) => {
                self.map_faults.push((index, faults));
                reach.map.set_faults(faults);
            }
            Fault::MapCutOff { node } => {
                self.hold("map", node, 0);
                reach.map.set_cut_off(node_id(node), true);
            }
            Fault::MapUnreachable => {
                self.hold("map", usize::MAX, 0);
                reach.map.set_unreachable(true);
            }
            Fault::MapLeader => reach.map.change_leader(),
            Fault::MapRestore { age } => {
                let backup = self.backups.iter().rfind(|(made, _)| *made + age <= now).or(self.backups.front());
                if let Some((_, backup)) = backup {
                    reach.map.restore(backup);
                }
            }
            Fault::Reordered { one, other, most } => {
                reach.world.lag_connections(&machine(one).node, &machine(other).node, most);
            }
            Fault::Lost { node } => {
                self.stop(machine(node), true);
                machine(node).is_lost.set(true);
                machine(node).stores().into_iter().for_each(|store| reach.control.lose(store));
                if reach.layout.hoard_chunks == 0 {
                    let usable = reach.usable_stores();
                    let lost: Vec<usize> = machine(node).stores();
                    lost.into_iter().for_each(|store| reach.control.give_away(store, &usable, u64::from(number)));
                }
            }
            Fault::Wipe { node, .. } => {
                self.stop(machine(node), true);
                for store in fault.wiped(reach.layout) {
                    let spare = reach.layout.spare_of(store).expect("one was made for it");
                    machine(node).replace_disk(store, spare, reach.profile.disk);
                    reach.control.replace(store, spare);
                }
            }
            Fault::Added { node, seed } => {
                machine(node).is_lost.set(false);
                start_if_down(machine(node));
                reach.control.add_node(node, seed);
            }
        }
        self.at(now + lasts, Step::End(index));
    }

    fn end(&mut self, index: usize, reach: &Reach<'_>) {
        let Event { fault, number, .. } = self.events[index];
        tell(format_args!("fault {number} ends: {fault:?}"));
        let machine = |node: usize| &reach.machines[node];
        match fault {
            Fault::Crash { node } | Fault::Kill { node } | Fault::Wipe { node, .. } => start_if_down(machine(node)),
            Fault::Blackout => reach.machines.iter().for_each(start_if_down),
            Fault::Pause { node } => {
                if self.release("pause", node, 0) {
                    machine(node).node.resume();
                }
            }
            Fault::HungCore { node, core } => {
                if self.release("core", node, core) {
                    machine(node).node.resume_core(core);
                }
            }
            Fault::Cut { .. } | Fault::Isolation { .. } => {
                links_of(&fault, reach).into_iter().for_each(|link| self.heal(link, reach));
            }
            Fault::SlowLink { one, other, .. } => {
                reach.world.set_link(&machine(one).node, &machine(other).node, reach.profile.link);
                reach.world.set_link(&machine(other).node, &machine(one).node, reach.profile.link);
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
                let faults = self.map_faults.last().map_or_else(|| no_map_faults(reach.profile), |(_, faults)| *faults);
                reach.map.set_faults(faults);
            }
            Fault::MapCutOff { node } => {
                if self.release("map", node, 0) {
                    reach.map.set_cut_off(node_id(node), false);
                }
            }
            Fault::MapUnreachable => {
                if self.release("map", usize::MAX, 0) {
                    reach.map.set_unreachable(false);
                }
            }
            Fault::RollingRestart { .. } | Fault::Reset { .. } | Fault::Silence { .. } | Fault::Lost { .. } => {}
            Fault::WallClock { .. } | Fault::ClockRate { .. } | Fault::MapLeader | Fault::MapRestore { .. } => {}
            Fault::Rot { .. } | Fault::Added { .. } => {}
            Fault::Reordered { one, other, .. } => {
                reach.world.lag_connections(&machine(one).node, &machine(other).node, Duration::ZERO);
            }
        }
    }

    /// A bit turns over, and later the next, as long as the fault lasts.
    fn rot(&mut self, index: usize, reach: &Reach<'_>) {
        let Event { fault: Fault::Rot { store, gap, seed }, at, lasts, .. } = self.events[index] else { return };
        let now = reach.world.now();
        rot(reach, store, seed ^ now.as_nanos() as u64);
        if now + gap < self.began + at + lasts {
            self.at(now + gap, Step::Rot(index));
        }
    }

    /// Somebody looks at the node when a disk has given up, and puts it back.
    fn repair(&mut self, store: usize, reach: &Reach<'_>) {
        let node = reach.layout.stores[store].node;
        if !reach.machines[node].failed_stores().is_empty() {
            self.at(reach.world.now() + REPAIR, Step::Restart(node, Duration::from_millis(100)));
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

    fn cut(&mut self, (from, to): (usize, usize), reach: &Reach<'_>) {
        *self.cuts.entry((from, to)).or_default() += 1;
        reach.world.cut(&reach.machines[from].node, &reach.machines[to].node);
    }

    fn heal(&mut self, (from, to): (usize, usize), reach: &Reach<'_>) {
        let count = self.cuts.get_mut(&(from, to)).expect("what is healed was cut");
        *count -= 1;
        if *count == 0 {
            reach.world.heal(&reach.machines[from].node, &reach.machines[to].node);
        }
    }

    /// The faults are over: all that is broken is mended, now. Backups are made no more.
    pub fn mend_all(&mut self, reach: &Reach<'_>) {
        let due = std::mem::take(&mut self.due);
        for step in due.into_values() {
            if let Step::End(index) = step {
                self.end(index, reach);
            }
        }
        self.due.clear();
        reach.machines.iter().for_each(start_if_down);
    }
}

/// No faults, and the latency of the run.
pub fn no_map_faults(profile: &Profile) -> MapFaults {
    MapFaults { latency_max: profile.map_latency, ..MapFaults::NONE }
}

fn start_if_down(machine: &Rc<Machine>) {
    if !machine.node.is_up() && !machine.is_lost.get() {
        machine.start();
    }
}

impl Reach<'_> {
    /// The disk of a store; of the one in its place, if it was replaced.
    pub fn disk_of(&self, store: usize) -> SimDisk {
        let machine = &self.machines[self.layout.stores[store].node];
        let disk = machine.disk(store).or_else(|| machine.disk(self.layout.spare_of(store)?));
        disk.expect("a store has a disk, or a spare one")
    }

    /// Stores of all nodes that are not lost.
    fn usable_stores(&self) -> Vec<usize> {
        let there = self.machines.iter().filter(|machine| !machine.is_lost.get());
        there.flat_map(|machine| machine.stores()).collect()
    }
}

/// The links that a fault cuts.
fn links_of(fault: &Fault, reach: &Reach<'_>) -> Vec<(usize, usize)> {
    match *fault {
        Fault::Cut { from, to, both } => std::iter::once((from, to)).chain(both.then_some((to, from))).collect(),
        Fault::Isolation { node, outward, inward } => {
            let others = (0..reach.machines.len()).filter(|other| *other != node);
            let both = others
                .flat_map(|other| outward.then_some((node, other)).into_iter().chain(inward.then_some((other, node))));
            both.collect()
        }
        _ => Vec::new(),
    }
}
