//! The faults of a run: those of clusters that destroy nothing; some last until heads have moved, some are between
//! clients and nodes, or of clients' machines.

use super::profile::Profile;
use crate::workload::cluster::fault::Fault;
use crate::workload::cluster::schedule::{self, Event};
use runtime::sim::Random;
use std::time::Duration;

/// A session in the map is over by then, and somebody else is the head.
const LONG_SECONDS: (u64, u64) = (12, 35);

/// Draws the faults of a run. Machines of clients are numbered behind the nodes.
pub fn draw(profile: &Profile, random: &Random) -> Vec<Event> {
    let layout = profile.layout(random);
    let mut events = schedule::draw(&profile.cluster, &layout, random);
    events.retain(|event| {
        let fault = &event.fault;
        !fault.changes_members() && !fault.lies() && !matches!(fault, Fault::MapRestore { .. })
    });
    for event in &mut events {
        lengthen(event, random);
        move_to_clients(event, profile, random);
    }
    if !random.one_in(4) {
        (0..1 + random.below(3)).for_each(|_| events.push(draw_mover(profile, random)));
    }
    events.sort_by_key(|event| event.at);
    if profile.cluster.at_once == 1 {
        let is_of_clients = |event: &Event| of_clients(&event.fault, profile.cluster.nodes);
        let (apart, mut of_nodes): (Vec<Event>, Vec<Event>) = events.into_iter().partition(is_of_clients);
        schedule::keep_one_at_a_time(&mut of_nodes, &layout);
        events = apart.into_iter().chain(of_nodes).collect();
        events.sort_by_key(|event| event.at);
    }
    (1..).zip(&mut events).for_each(|(number, event)| event.number = number);
    events
}

fn long(random: &Random) -> Duration {
    Duration::from_millis(random.between(LONG_SECONDS.0 * 1000, LONG_SECONDS.1 * 1000))
}

/// Something after which another node is the head of what this one served.
fn draw_mover(profile: &Profile, random: &Random) -> Event {
    let node = random.below(profile.cluster.nodes as u64) as usize;
    let fault = match random.below(8) {
        0..4 => Fault::Pause { node },
        4 => Fault::Crash { node },
        5 => Fault::Kill { node },
        6 => Fault::Isolation { node, outward: true, inward: true },
        _ => Fault::MapCutOff { node },
    };
    let at = Duration::from_nanos(random.below(profile.cluster.duration.as_nanos() as u64));
    Event { number: 0, at, lasts: long(random), fault }
}

fn lengthen(event: &mut Event, random: &Random) {
    let lasts = long(random);
    let may_be_long = matches!(
        event.fault,
        Fault::Pause { .. }
            | Fault::Crash { .. }
            | Fault::Kill { .. }
            | Fault::Isolation { .. }
            | Fault::MapCutOff { .. }
            | Fault::MapUnreachable
    );
    if may_be_long && random.one_in(3) {
        event.lasts = lasts;
    }
}

/// Links between nodes may as well be those to a client; a machine of one may be what pauses or loses its power.
fn move_to_clients(event: &mut Event, profile: &Profile, random: &Random) {
    let machine = profile.cluster.nodes + random.below(profile.machines() as u64) as usize;
    let turned = random.one_in(2);
    let (is_link, is_machine) = (random.one_in(2), random.one_in(6));
    match &mut event.fault {
        Fault::Cut { from, to, .. } if is_link => *(if turned { from } else { to }) = machine,
        Fault::Reset { other, .. }
        | Fault::Silence { other, .. }
        | Fault::SlowLink { other, .. }
        | Fault::Reordered { other, .. }
            if is_link =>
        {
            *other = machine;
        }
        Fault::Crash { node } | Fault::Kill { node } | Fault::Pause { node } if is_machine => *node = machine,
        _ => {}
    }
}

/// Whether it leaves all nodes as they are.
fn of_clients(fault: &Fault, nodes: usize) -> bool {
    match *fault {
        Fault::Crash { node } | Fault::Kill { node } | Fault::Pause { node } => node >= nodes,
        Fault::Cut { from, to, .. } => from >= nodes || to >= nodes,
        Fault::Reset { other, .. }
        | Fault::Silence { other, .. }
        | Fault::SlowLink { other, .. }
        | Fault::Reordered { other, .. } => other >= nodes,
        _ => false,
    }
}
