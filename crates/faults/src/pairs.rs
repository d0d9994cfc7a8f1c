//! Two failures at once: the second comes while the first stands, then both are healed. Five nodes with three copies, three etcds.
//!
//! The first hits the node that has the head and leads all groups of the volume, the second another that shares groups with it.
//! Where two members of a group are out, its commands wait until one is back, with no error; where not, they go on before
//! anything is healed. Status names either failure while both stand.

mod wish;

pub use wish::Wish;

use crate::cluster::{Cluster, FIVE, HANG_MAX, Shape, StandsStill};
use crate::devices::SLOW;
use crate::faulty::Fault;
use crate::load;
use crate::network::{Cut, Flaps};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};
use torture::load::{Load, Plan};

/// A failure by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Failure {
    /// kill -9 of a node and of its supervisor.
    Killed,
    /// SIGSTOP of a node.
    Frozen,
    /// A node reaches nobody.
    CutOff,
    /// What a node says to others is lost, and it hears them.
    OneWay,
    /// The link of a node goes down and comes back, over and over.
    Flapping,
    /// A node is stopped in order, as for a restart.
    Stopped,
    /// Each write and each sync of a device is an error.
    Erring,
    /// Each request of a device takes seconds.
    Slow,
    /// A device answers no write.
    Hanging,
    /// A device is not there when its node starts anew.
    Gone,
    /// Parts of a device are noise, and its node starts anew.
    Damaged,
    /// A node is drained.
    Draining,
    /// A device takes no new blocks, and others nearly none.
    Full,
    /// kill -9 of one of three etcds.
    EtcdMember,
    /// kill -9 of all etcds.
    Etcd,
}

/// What comes first, and what comes while it stands.
type Pair = (Failure, Failure);

use Failure::{
    CutOff, Damaged, Draining, Erring, Etcd, EtcdMember, Flapping, Frozen, Full, Gone, Hanging, Killed, OneWay, Slow,
    Stopped,
};

/// All of them, in the order in which they come where two are played.
const FAILURES: [Failure; 15] = [
    Draining, Full, Killed, Frozen, CutOff, OneWay, Flapping, Stopped, Erring, Slow, Hanging, Gone, Damaged,
    EtcdMember, Etcd,
];

/// Each failure twice, in little time; those that need small devices last.
const CHOSEN: [Pair; 15] = [
    (Draining, Killed),
    (Draining, Damaged),
    (Killed, Etcd),
    (Frozen, CutOff),
    (Frozen, Erring),
    (CutOff, EtcdMember),
    (OneWay, Flapping),
    (OneWay, Slow),
    (Flapping, Slow),
    (Stopped, Hanging),
    (Stopped, Damaged),
    (Hanging, Gone),
    (EtcdMember, Etcd),
    (Full, Erring),
    (Full, Gone),
];

/// Nodes on which failures come: the first has the head.
const NODES: [usize; 2] = [1, 2];
/// One that nothing happens to.
const UNHURT: usize = 5;
const SHAPE: Shape = Shape { device_size: "1G", placement: "local:node-1", ..FIVE };
/// Size of devices that are to be full soon.
const SMALL: &str = "320M";
const MIB: u64 = 1 << 20;
/// So many pairs in one cluster: what they write is less than its devices hold.
const IN_ONE_CLUSTER: usize = 12;
/// So long both stand at least, and commands wait where nothing can be served.
const STAND: Duration = Duration::from_secs(3);
/// What status says of a loss that could not be made good.
const NO_ROOM: &str = "a copy short: no device has room";
/// What was not answered for so long has waited; anything else went on.
const WENT_ON: Duration = Duration::from_secs(1);

impl Failure {
    fn name(self) -> &'static str {
        match self {
            Killed => "node killed",
            Frozen => "node frozen",
            CutOff => "node cut off",
            OneWay => "link one-way",
            Flapping => "link flapping",
            Stopped => "node stopped",
            Erring => "device erring",
            Slow => "device slow",
            Hanging => "device hanging",
            Gone => "device gone",
            Damaged => "device damaged",
            Draining => "node draining",
            Full => "device full",
            EtcdMember => "etcd member lost",
            Etcd => "etcd lost",
        }
    }

    /// Whether a copy is out as long as it stands; or for some seconds.
    fn takes_a_copy(self) -> bool {
        !matches!(self, Draining | Full | EtcdMember | Etcd)
    }

    /// What some cause says while it stands on this node.
    fn is_told(self, node: usize, cause: &str) -> bool {
        let says = |words: &str| cause.contains(words);
        let (name, device) = (format!("node-{node}"), format!("machine-{node}/disk/device-1.img"));
        match self {
            Killed | Frozen | CutOff | OneWay | Flapping | Stopped => says(&name) || says("do not serve"),
            Slow => says(&device) && says("slow"),
            Erring | Hanging | Gone | Damaged => says(&device) || says(&name) || says("damaged"),
            Draining => says(&name) && says("drain"),
            // The one that refuses new blocks may be away, and others be nearly full.
            Full => says("% full"),
            EtcdMember => says("has lost a member") || says("map does not answer"),
            Etcd => says("map does not answer"),
        }
    }

    /// What some risk says while it stands, whatever else does.
    fn risks(self) -> &'static [&'static str] {
        match self {
            Full => &["new blocks of "],
            EtcdMember | Etcd => &["one more loss of"],
            _ => &[],
        }
    }

    /// Whether status has a cause for it that is no note.
    fn is_red(self) -> bool {
        self != Draining
    }
}

/// What is needed to heal one.
#[derive(Default)]
struct Standing {
    still: Option<StandsStill>,
    flaps: Option<Flaps>,
}

struct Field {
    cluster: Cluster,
    /// Whether devices are so small that one can be full.
    has_small: bool,
    turn: u64,
}

/// What was seen of a pair.
struct Seen {
    reads: Duration,
    writes: Duration,
    waits_until_healed: bool,
    resent: u64,
    status: String,
    whole_after: Duration,
}

/// Plays the pairs, each of which says what comes of it; goes on behind one that fails, with another cluster. At the end there is
/// the table of those that passed, and what the others failed of.
///
/// # Panics
/// If any failed.
pub fn play(wish: &Wish) {
    let (mut rows, mut failed) = (Vec::new(), Vec::new());
    let mut field: Option<Field> = None;
    for pair in &wish.pairs {
        let needs_small = pair.0 == Full || pair.1 == Full;
        let fits = |field: &Field| field.has_small == needs_small && field.turn < IN_ONE_CLUSTER as u64;
        let words = format!("{} | {}", pair.0.name(), pair.1.name());
        let test = test_of(*pair);
        let began = Instant::now();
        let mut here = None;
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            if let Some(other) = field.take_if(|field| !fits(field)) {
                other.end();
            }
            here.insert(field.take().unwrap_or_else(|| Field::new(needs_small))).play(*pair)
        }));
        if let (Some(logs), Some(here)) = (&wish.logs, &here) {
            here.cluster.leave_logs(&logs.join(&test));
        }
        match outcome {
            Ok(seen) => {
                rows.push(format!("| {words} | {} | `pairs {test}` |", seen.row(*pair)));
                println!("{}\n      in {:.1} s", rows[rows.len() - 1], began.elapsed().as_secs_f64());
                field = here;
            }
            Err(why) => {
                let why = why.downcast_ref::<String>().map_or("see above", String::as_str);
                println!("FAILED: {words}: {}", why.lines().next().unwrap_or_default());
                failed.push(words);
            }
        }
    }
    let ended = catch_unwind(AssertUnwindSafe(|| field.into_iter().for_each(Field::end)));
    println!("\n{HEADER}\n{}|", "|---".repeat(HEADER.matches('|').count() - 1));
    rows.iter().for_each(|row| println!("{row}"));
    assert!(failed.is_empty(), "{} of {} pairs failed: {}", failed.len(), wish.pairs.len(), failed.join("; "));
    ended.expect("all copies agree at the end");
}

/// What the rows say.
const HEADER: &str =
    "| failure | and then | reads | writes | time | what the host sees | what status says, the most urgent | test |";

/// Pairs that did not pass each time, and what the host saw then: the row says it, too.
const BAD_RUNS: [(Pair, &str); 2] = [
    (
        (Draining, Etcd),
        "in one of seven runs nothing of some groups, which were changing hands, for 30 s: until etcd was back",
    ),
    (
        (Full, Damaged),
        "in two of five runs the same, and it was not whole again: the damaged device had no room for what it lacked, or its node did \
         not start, until the device was made anew",
    ),
];

/// What the command line calls a pair.
fn test_of((first, second): Pair) -> String {
    format!("{}+{}", first.name(), second.name()).replace(' ', "-")
}

impl Seen {
    /// Without its ends.
    fn row(&self, pair: Pair) -> String {
        let of = |longest: Duration| match (longest < WENT_ON, self.waits_until_healed) {
            (true, _) => "go on".to_owned(),
            (false, true) => format!("wait until one is healed, {:.1} s", longest.as_secs_f64()),
            (false, false) => format!("wait {:.1} s, then go on", longest.as_secs_f64()),
        };
        let (reads, writes, whole) = (of(self.reads), of(self.writes), self.whole_after.as_secs_f64());
        let known = BAD_RUNS.iter().find(|(known, _)| *known == pair);
        let sees = self.host_sees() + &known.map_or_else(String::new, |(_, then)| format!("; {then}"));
        format!("{reads} | {writes} | whole {whole:.0} s after both are healed | {sees} | {}", self.status)
    }

    /// No command has failed: that was looked at.
    fn host_sees(&self) -> String {
        let longest = self.reads.max(self.writes);
        match self.resent {
            0 if longest < WENT_ON => "nothing".to_owned(),
            0 => format!("answers up to {:.1} s late, no error", longest.as_secs_f64()),
            1 => "1 command sent again, no error".to_owned(),
            many => format!("{many} commands sent again, no error"),
        }
    }
}

impl Field {
    fn new(has_small: bool) -> Self {
        let device_size = if has_small { SMALL } else { SHAPE.device_size };
        let cluster = Cluster::in_networks(Shape { device_size, ..SHAPE }, &NODES);
        Self { cluster, has_small, turn: 0 }
    }

    /// All copies agree, and devices have no fault that nobody put there.
    fn end(self) {
        println!("      {}", self.cluster.agrees());
        self.cluster.stop();
    }

    fn play(&mut self, (first, second): (Failure, Failure)) -> Seen {
        self.turn += 1;
        self.cluster.use_volume(&format!("pair-{}", self.turn), SHAPE.placement);
        let target = self.cluster.target(Some(UNHURT));
        let load = Load::start(Plan { is_full: self.has_small, ..load::plan(target, self.turn) });
        self.cluster.until_answered("the load runs", &load);
        self.cluster.causes.take();
        let both = [(first, NODES[0]), (second, NODES[1])];
        load.longest();
        let resent = load.resent();

        let mut standing = [Standing::default(), Standing::default()];
        self.begins(both[0], &mut standing[0]);
        self.cluster.until_answered("the load has answers with the first", &load);
        self.is_said(&both[..1], &load);
        self.begins(both[1], &mut standing[1]);
        let since = Instant::now();
        let takes_both = first.takes_a_copy() && second.takes_a_copy();
        let has_map = !matches!((first, second), (_, Etcd) | (EtcdMember, EtcdMember));
        // A group that was changing hands when the map went waits for it.
        let must_go_on =
            !takes_both && (has_map || !first.takes_a_copy()) && !matches!((first, second), (Draining, Etcd));
        let before = load.completed();
        while must_go_on && load.completed() < before + 600 || since.elapsed() < STAND {
            self.cluster.pause(Duration::from_millis(250), &load);
            let waits = load.longest_wait();
            assert!(waits < HANG_MAX, "a command has no answer for {waits:?}, and copies are left");
        }
        let status = self.is_said(&both, &load);
        let waits_until_healed = load.longest_wait() > WENT_ON;
        if both.iter().any(|(failure, _)| *failure == Full) && !both.iter().any(|(failure, _)| *failure == Etcd) {
            self.has_room_or_says_so();
        }

        let healed = Instant::now();
        // What needs the map is taken back when it answers.
        for (failure, still) in both.into_iter().zip(standing).rev() {
            self.heals(failure, still);
        }
        self.cluster.until("the cluster is whole again", Some(&load), |cluster| {
            cluster.is_whole() && NODES.iter().all(|node| cluster.damage_of(*node) == Some(0))
        });
        let whole_after = healed.elapsed();
        if first == Damaged || second == Damaged {
            // What is damaged and nobody has read is to be mended before the next pair.
            self.cluster.agrees();
        }
        self.cluster.until_answered("the load goes on", &load);
        let ((reads, writes), resent) = (load.longest(), load.resent() - resent);
        load::passes(load);
        let unexplained = self.cluster.unexplained.take();
        assert!(unexplained.is_empty(), "{} findings do not explain themselves: {}", unexplained.len(), unexplained[0]);
        Seen { reads, writes, waits_until_healed, resent, status, whole_after }
    }

    /// Waits until status says each of them; returns what it says of the most urgent.
    fn is_said(&self, those: &[(Failure, usize)], load: &Load) -> String {
        let mut said = String::new();
        let names = those.iter().map(|(failure, _)| failure.name()).collect::<Vec<_>>().join(" and ");
        self.cluster.until(&format!("status says: {names}"), Some(load), |cluster| {
            cluster.is_whole();
            let status = cluster.ask("/v1/status").unwrap_or_default();
            let findings = status["findings"].as_array().cloned().unwrap_or_default();
            let causes: Vec<_> = findings.iter().filter_map(|one| one["cause"].as_str()).collect();
            let work: Vec<_> = findings.iter().filter_map(|one| one["doing"]["text"].as_str()).collect();
            // What is damaged may have come from others by now.
            let so_far = self.cluster.causes.borrow();
            let is_told = |(failure, node): &(Failure, usize)| {
                let so_far = so_far.iter().filter(|_| *failure == Damaged).map(String::as_str);
                causes.iter().chain(&work).copied().chain(so_far).any(|cause| failure.is_told(*node, cause))
            };
            let risks = findings.iter().flat_map(|one| one["at_risk"].as_array().into_iter().flatten());
            let risks: Vec<_> = risks.filter_map(|risk| risk["text"].as_str()).collect();
            let is_at_risk = |(failure, _): &(Failure, usize)| {
                failure.risks().iter().all(|words| risks.iter().any(|risk| risk.contains(words)))
            };
            let is_red = those.iter().all(|(failure, _)| !failure.is_red()) || status["health"] != "healthy";
            said = causes.first().map_or_else(String::new, |cause| in_short(&self.cluster.shortened(cause)));
            is_red && those.iter().all(is_told) && those.iter().all(is_at_risk)
        });
        said
    }

    /// Where status names a node of which what it holds has room nowhere, to drain it is refused.
    fn has_room_or_says_so(&self) {
        let status = self.cluster.ask("/v1/status").unwrap_or_default();
        let mut risks = status["at_risk"].as_array().into_iter().flatten();
        let short = risks.find(|risk| risk["text"].as_str().is_some_and(|text| text.contains(NO_ROOM)));
        let Some(node) = short.and_then(|risk| risk["of"][0].as_str()) else { return };
        let refused = self.cluster.is_refused(&["node", "drain", node]);
        assert!(refused.contains("add devices first"), "{node} cannot be drained: {refused}");
    }

    fn begins(&mut self, (failure, node): (Failure, usize), standing: &mut Standing) {
        let cluster = &mut self.cluster;
        match failure {
            Killed => cluster.network().kill_node(node),
            Frozen => standing.still = Some(StandsStill::new(worker(cluster, node))),
            CutOff => cluster.network().cut(node, Cut::All),
            OneWay => cluster.network().cut(node, Cut::ToNodes),
            Flapping => standing.flaps = Some(Flaps::new(node)),
            Stopped => cluster.network().stop_node(node),
            Erring => cluster.fault(node, Fault::WritesFail),
            Slow => cluster.fault(node, Fault::Slow(SLOW)),
            Hanging => cluster.fault(node, Fault::WritesHang),
            Gone => {
                cluster.fault(node, Fault::Gone);
                cluster.network().restart_node(node);
            }
            Damaged => {
                // In every other segment: some of that is in use.
                for offset in (24..152).step_by(8) {
                    cluster.write_over(node, offset * MIB, MIB as usize);
                }
                cluster.network().restart_node(node);
            }
            Draining => drop(cluster.cairn(&["node", "drain", &format!("node-{node}")])),
            Full => cluster.fills("ballast"),
            EtcdMember => cluster.network().kill_etcd(node - 1),
            Etcd => (0..3).for_each(|member| cluster.network().kill_etcd(member)),
        }
    }

    fn heals(&mut self, (failure, node): (Failure, usize), standing: Standing) {
        let cluster = &mut self.cluster;
        match failure {
            Killed | Stopped => cluster.network().start_node(node),
            Frozen | Flapping => drop(standing),
            CutOff => cluster.network().heal(node, Cut::All),
            OneWay => cluster.network().heal(node, Cut::ToNodes),
            Slow => cluster.fault(node, Fault::None),
            // A device that has failed is used again when its node starts anew.
            Erring | Hanging | Gone => {
                cluster.fault(node, Fault::None);
                cluster.network().restart_node(node);
            }
            // All that it lacks comes from others.
            Damaged => {}
            Draining => cluster.cairn_when_it_can(&["node", "undrain", &format!("node-{node}")]),
            Full => cluster.cairn_when_it_can(&["volume", "delete", "ballast", "--now"]),
            EtcdMember => cluster.network().start_etcd(node - 1),
            Etcd => (0..3).for_each(|member| cluster.network().start_etcd(member)),
        }
    }
}

/// What a table has room for: the first words.
fn in_short(cause: &str) -> String {
    const LENGTH_MAX: usize = 110;
    let cause = cause
        .replace(" (the cluster map did not answer; whether the request was done is unknown)", "")
        .replace('|', "/");
    match cause.char_indices().nth(LENGTH_MAX) {
        None => cause,
        Some((at, _)) => format!("{} …", cause[..at].rsplit_once(' ').map_or(&cause[..at], |(words, _)| words)),
    }
}

fn worker(cluster: &mut Cluster, node: usize) -> i32 {
    let began = Instant::now();
    loop {
        if let Some(worker) = cluster.network().worker_of(node) {
            return worker;
        }
        assert!(began.elapsed() < HANG_MAX, "node-{node} runs, or is started again");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(writes_ms: u64, resent: u64) -> Seen {
        let (reads, writes) = (Duration::from_millis(10), Duration::from_millis(writes_ms));
        let status = "node-1 is away".to_owned();
        Seen { reads, writes, waits_until_healed: false, resent, status, whole_after: Duration::from_secs(3) }
    }

    #[test]
    fn a_row_says_what_the_host_sees_and_what_plays_it() {
        let row = |seen: Seen| seen.row((Killed, Gone));
        let ends =
            |row: &str| row.ends_with(" | node-1 is away") && row.contains(" | whole 3 s after both are healed | ");
        let quiet = row(seen(20, 0));
        assert!(quiet.starts_with("go on | go on | ") && quiet.contains(" | nothing | ") && ends(&quiet), "{quiet}");
        let late = row(seen(2500, 0));
        assert!(
            late.contains(" | wait 2.5 s, then go on | ") && late.contains(" | answers up to 2.5 s late, no error | ")
        );
        assert!(row(seen(5000, 12)).contains(" | 12 commands sent again, no error | "));
        assert_eq!(test_of((Killed, Gone)), "node-killed+device-gone");
        let columns = format!("| a | b | {} | c |", row(seen(20, 0)));
        assert_eq!(columns.matches('|').count(), HEADER.matches('|').count());
    }

    #[test]
    fn a_row_says_of_runs_that_did_not_pass_what_came_of_them() {
        for (pair, then) in BAD_RUNS {
            assert!(seen(20, 0).row(pair).contains(&format!("nothing; {then} | ")), "{pair:?}");
        }
    }
}
