//! The faults of a run: drawn up front and numbered, so that a run can be repeated without some of them.
//!
//! Swarm-style: each kind has a rate of its own, for most runs none, so that a few kinds meet often and no kind hides
//! another; how many kinds there are is drawn as well, one to most of them. A fault has a number, a moment, a duration and a place; nothing of it depends on what happens in the run.

use super::fault::{Fault, KINDS};
use super::layout::Layout;
use super::profile::{Profile, draw_clock_rate_ppm, draw_wall_clock_offset};
use cluster::MapFaults;
use runtime::sim::{DiskFaults, LinkOptions, Random};
use std::collections::BTreeSet;
use std::time::Duration;

/// Of how many runs one has faults of a kind that takes it far from what is usual.
const RARE: u64 = 24;
/// A usual kind happens in one of so many runs: drawn for each run.
const RARITIES: [u64; 4] = [2, 4, 8, 16];
/// Longest that anything lasts, and what is left of a run for it to end and be healed in.
const LASTS_MAX: Duration = Duration::from_secs(15);
/// After something that kept a node from working, the next is left alone for so long, where a run has one at a time.
const RECOVERY: Duration = Duration::from_secs(4);

/// A fault and when it happens.
#[derive(Clone, Debug)]
pub struct Event {
    /// From 1, in the order of time.
    pub number: u32,
    /// Since clients began.
    pub at: Duration,
    /// It is undone after this long, if it can be.
    pub lasts: Duration,
    pub fault: Fault,
}

impl std::fmt::Display for Event {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:>3} at {:>12?} for {:>12?}: {:?}", self.number, self.at, self.lasts, self.fault)
    }
}

/// Draws the faults of a run.
pub fn draw(profile: &Profile, layout: &Layout, random: &Random) -> Vec<Event> {
    let mut events = Vec::new();
    // Some runs have no faults at all, and have to be as good; all others have one at least.
    if !random.one_in(16) {
        let rarity = RARITIES[random.below(RARITIES.len() as u64) as usize];
        while events.is_empty() {
            events = draw_kinds(profile, layout, rarity, random);
        }
    }
    events.sort_by_key(|event| event.at);
    match profile.beyond_policy {
        true => destroy_each_once(&mut events, layout),
        false => destroy_at_one_place(&mut events, layout),
    }
    if events.iter().any(|event| matches!(event.fault, Fault::MapRestore { .. })) {
        // Of the members that the map forgets again nobody may be left whom those that it names have in common.
        events.retain(|event| !event.fault.changes_members());
    }
    // What a disk that lies forgets without a trace only one other member may hold, who has to be there.
    if profile.at_once == 1 || events.iter().any(|event| matches!(event.fault, Fault::Lies { .. })) {
        keep_one_at_a_time(&mut events, layout);
    }
    (1..).zip(&mut events).for_each(|(number, event)| event.number = number);
    events
}

/// Faults of some of the kinds, each of which happens in one of `rarity` runs.
fn draw_kinds(profile: &Profile, layout: &Layout, rarity: u64, random: &Random) -> Vec<Event> {
    let mut events = Vec::new();
    for (kind, name) in KINDS.iter().enumerate() {
        if *name == "added nodes" && profile.grows {
            let seed = random.next_u64();
            let at = profile.duration.mul_f64(random.below(100) as f64 / 200.0);
            let fault = Fault::Added { node: profile.nodes, seed };
            events.push(Event { number: 0, at, lasts: Duration::ZERO, fault });
        }
        for _ in 0..draw_count(kind, profile, rarity, random) {
            // All is drawn in any case, so that one kind does not shift what another draws.
            let own = Random::new(random.next_u64());
            events.extend(draw_one(kind, profile, layout, &own));
        }
    }
    events
}

/// How often a kind of fault happens in this run.
fn draw_count(kind: usize, profile: &Profile, rarity: u64, random: &Random) -> u64 {
    if profile.beyond_policy && matches!(KINDS[kind], "lost nodes" | "wiped devices" | "rotting blocks") {
        return random.below(3);
    }
    let happens = match KINDS[kind] {
        "map restores" => random.one_in(RARE),
        // What is lost with them, only the others have.
        "lost nodes" | "wiped devices" => random.one_in(4 * rarity),
        "added nodes" => false,
        "lying disks" | "rotting blocks" => random.one_in(2 * rarity),
        _ => random.one_in(rarity),
    };
    let count = match KINDS[kind] {
        "lost nodes" | "lying disks" | "rotting blocks" | "wiped devices" => 1,
        "blackouts" | "rolling restarts" | "map restores" => 1 + random.below(2),
        _ => 1 + random.below(if random.one_in(4) { 12 } else { 3 }),
    };
    if happens { count } else { 0 }
}

/// A time of any order of magnitude: 1 ms to the longest.
fn draw_lasts(random: &Random) -> Duration {
    Duration::from_nanos(random.below(1 << random.between(20, 34))).min(LASTS_MAX)
}

fn draw_one(kind: usize, profile: &Profile, layout: &Layout, random: &Random) -> Option<Event> {
    let at = Duration::from_nanos(random.below(profile.duration.as_nanos() as u64));
    let lasts = draw_lasts(random);
    let node = random.below(profile.nodes as u64) as usize;
    let at_first = (0..profile.nodes).map(|node| layout.stores_of(node).count()).sum::<usize>();
    let store = random.below(at_first as u64) as usize;
    let other = (node + 1 + random.below((profile.nodes as u64 - 1).max(1)) as usize) % profile.nodes;
    let both = random.one_in(2);
    let is_pair = node != other;
    let fault = match kind {
        0 => Fault::Crash { node },
        1 => Fault::Kill { node },
        2 => Fault::Blackout,
        3 => Fault::RollingRestart { gap: Duration::from_millis(random.between(1, 8_000)) },
        4 => Fault::Pause { node },
        5 => Fault::HungCore { node, core: random.below(profile.cores as u64) as usize },
        6 if is_pair => Fault::Cut { from: node, to: other, both },
        7 => {
            let outward = random.one_in(2);
            Fault::Isolation { node, outward, inward: both || !outward }
        }
        8 if is_pair => Fault::Reset { one: node, other },
        9 if is_pair => Fault::Silence { one: node, other },
        10 if is_pair => Fault::SlowLink { one: node, other, link: draw_slow_link(random) },
        11 => Fault::DiskErrors { store, faults: draw_errors(random) },
        12 => Fault::SlowDisk { store, delay: Duration::from_nanos(random.below(1 << random.between(20, 33))) },
        13 => Fault::HungDisk { store },
        14 => Fault::WallClock { node, offset_ns: draw_wall_clock_offset(random) },
        15 => Fault::ClockRate { node, ppm: draw_clock_rate_ppm(random) },
        16 => Fault::Map(draw_map_faults(profile, random)),
        17 => Fault::MapCutOff { node },
        18 => Fault::MapUnreachable,
        19 => Fault::MapLeader,
        20 if profile.may_restore() => Fault::MapRestore { age: Duration::from_millis(random.between(100, 20_000)) },
        21 if profile.beyond_policy || layout.stores_of(node).all(|store| can_do_without(layout, store)) => {
            Fault::Lost { node }
        }
        22 => Fault::Lies { store: spare(layout, random)?, faults: draw_lies(random) },
        23 if profile.beyond_policy => Fault::Rot { store, gap: draw_gap(random), seed: random.next_u64() },
        23 => Fault::Rot { store: spare(layout, random)?, gap: draw_gap(random), seed: random.next_u64() },
        24 => {
            let store = both.then_some(store);
            let node = store.map_or(node, |store| layout.stores[store].node);
            let mut lost = store.into_iter().chain(layout.stores_of(node).filter(|_| store.is_none()));
            let may_be = profile.beyond_policy || lost.all(|store| may_be_wiped(layout, store));
            may_be.then_some(Fault::Wipe { node, store })?
        }
        26 if is_pair => {
            let most = Duration::from_nanos(random.below(1 << random.between(20, 33)));
            Fault::Reordered { one: node, other, most }
        }
        _ => return None,
    };
    // A disk that lies does so early and for long: most lies are never met.
    match fault.lies() {
        true => Some(Event { number: 0, at: at / 4, lasts: lasts.max(LASTS_MAX / 2), fault }),
        false => Some(Event { number: 0, at, lasts, fault }),
    }
}

fn draw_slow_link(random: &Random) -> LinkOptions {
    LinkOptions { delay_ns: random.below(1 << random.between(20, 31)), spread_ns: random.below(1 << 30) }
}

fn draw_errors(random: &Random) -> DiskFaults {
    let some = |most: u64| if random.one_in(2) { random.below(most) as u32 } else { 0 };
    DiskFaults {
        read_error: some(20_000),
        write_error: some(20_000),
        flush_error: some(5_000),
        ..DiskFaults::default()
    }
}

/// Between two bits that turn over.
fn draw_gap(random: &Random) -> Duration {
    Duration::from_millis(random.between(20, if random.one_in(2) { 200 } else { 1_000 }))
}

fn draw_lies(random: &Random) -> DiskFaults {
    let some = |most: u64| if random.one_in(2) { random.below(most) as u32 } else { 0 };
    DiskFaults {
        lost_write: some(60_000),
        misplaced_write: some(60_000),
        bit_rot: some(200_000),
        ..DiskFaults::default()
    }
}

fn draw_map_faults(profile: &Profile, random: &Random) -> MapFaults {
    let some = |most: u64| if random.one_in(2) { random.below(most) as u32 } else { 0 };
    let time = |most_ms: u64| Duration::from_millis(random.below(most_ms));
    MapFaults {
        latency_max: profile.map_latency.max(time(3_000)),
        requests_lost: some(300),
        answers_lost: some(300),
        requests_late: some(300),
        late_max: time(20_000),
        watches_late: some(1_024),
        watch_lag_max: time(10_000),
        compactions: some(300),
        leader_changes: some(50),
    }
}

/// Whether every group of a store has, whoever is out of sync, another member that holds all it acknowledged, and enough
/// of them to go on.
fn can_do_without(layout: &Layout, store: usize) -> bool {
    let mut groups = layout.groups.iter().filter(|group| group.members().contains(&store));
    groups.all(|group| group.min_in_sync >= 2 && group.members().len() > group.min_in_sync)
}

/// Whether of everything that its groups acknowledged another member has a copy.
fn may_be_wiped(layout: &Layout, store: usize) -> bool {
    let mut groups = layout.groups.iter().filter(|group| group.members().contains(&store));
    groups.all(|group| group.min_in_sync >= 2)
}

/// A store that holds something, and that its groups can do without.
fn spare(layout: &Layout, random: &Random) -> Option<usize> {
    if layout.hoard_chunks > 0 {
        // The cleaner leaves segments alone in which something is damaged: a device that is full of them is to be replaced.
        return None;
    }
    let holds = |store: &usize| layout.groups.iter().any(|group| group.members().contains(store));
    let all = 0..layout.stores.len();
    let spare: Vec<usize> = all.filter(|store| holds(store) && can_do_without(layout, *store)).collect();
    spare.get(random.below((spare.len() as u64).max(1)) as usize).copied()
}

/// A store that is lost is not lost again; and no disk forgets without a trace, where nobody may be left to know better.
fn destroy_each_once(events: &mut Vec<Event>, layout: &Layout) {
    let mut lost = BTreeSet::new();
    events.retain(|event| match event.fault {
        Fault::Lies { .. } => false,
        Fault::Rot { .. } => true,
        _ => {
            let stores = event.fault.stores_destroyed(layout);
            let is_first = stores.iter().all(|store| !lost.contains(store));
            lost.extend(stores.into_iter().filter(|_| is_first));
            is_first
        }
    });
    events.retain(|event| !matches!(event.fault, Fault::MapRestore { .. }));
}

/// What destroys copies does so at one place, that of the first: as much as any policy here allows.
fn destroy_at_one_place(events: &mut Vec<Event>, layout: &Layout) {
    let mut place = None;
    events.retain(|event| {
        let here = event.fault.destroys(layout);
        here.is_none() || *place.get_or_insert(here) == here
    });
}

/// Leaves out what would keep a second node from working while the first is out or has just come back.
pub fn keep_one_at_a_time(events: &mut Vec<Event>, layout: &Layout) {
    let mut out: Vec<(usize, Duration)> = Vec::new();
    events.retain(|event| {
        let Some(node) = event.fault.keeps_out(layout) else { return true };
        out.retain(|(_, until)| *until > event.at);
        if out.iter().any(|(other, _)| *other != node) {
            return false;
        }
        out.push((node, event.at + event.lasts + RECOVERY));
        true
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_fault_is_drawn_by_some_seed_and_copies_are_destroyed_at_one_place() {
        let mut seen = BTreeSet::new();
        for seed in 0..400 {
            let random = Random::new(seed);
            let profile = Profile::draw(&random, &Random::for_purpose(seed, 4));
            let addresses = (0..profile.all_nodes()).map(|_| std::net::IpAddr::from([10, 0, 0, 1]));
            let layout = Layout::draw(&profile, addresses, &random);
            let events = draw(&profile, &layout, &random);
            assert!((1..).zip(&events).all(|(number, event)| event.number == number && event.at < profile.duration));
            let places: BTreeSet<_> = events.iter().filter_map(|event| event.fault.destroys(&layout)).collect();
            assert!(places.len() <= 1 || profile.beyond_policy, "{places:?}");
            seen.extend(events.iter().map(|event| event.fault.kind()));
        }
        assert_eq!(seen.len(), KINDS.len(), "{seen:?}");
    }
}
