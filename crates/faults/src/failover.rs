//! How long a host waits when a node fails: rounds of one failure each, on nodes in networks of their own with three etcds. A figure, not
//! a verdict: what was acknowledged is judged by scenarios.
//!
//! ```text
//!   whole ──▶ a volume of its own at the node that will fail ──▶ failure ──▶ groups are led, the host has answers ──▶ mended ──▶ whole
//! ```

use crate::cluster::{Cluster, GATHERED, HANG_MAX, Shape, StandsStill, signal};
use crate::network::Cut;
use crate::probe::{Probe, Seen};
use libc::SIGKILL;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// What fails: always the node that has the volume's head and leads its groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// The worker is killed: its supervisor lives and tells the others.
    Worker,
    /// Worker and supervisor are killed at once: nobody tells anything. etcd's leader is on another machine.
    Node,
    /// The same, and the etcd that leads with them: the machine is gone.
    NodeAndEtcd,
    /// It stands still, connections stay.
    Frozen,
    /// Whatever it sends and is sent is lost.
    Cut,
}

/// Most that a host should wait, and most until all groups are led.
struct Goal {
    host: Duration,
    groups: Option<Duration>,
}

impl Kind {
    const ALL: [(&'static str, Self); 5] = [
        ("worker-killed", Self::Worker),
        ("node-killed", Self::Node),
        ("node-and-etcd-leader-killed", Self::NodeAndEtcd),
        ("frozen", Self::Frozen),
        ("cut", Self::Cut),
    ];

    fn goal(self) -> Goal {
        let seconds = Duration::from_secs;
        match self {
            Self::Worker | Self::Node => Goal { host: seconds(1), groups: None },
            Self::NodeAndEtcd => Goal { host: seconds(4), groups: None },
            Self::Frozen | Self::Cut => Goal { host: seconds(8), groups: Some(seconds(3)) },
        }
    }
}

/// Nodes of the cluster.
const NODES: usize = GATHERED.nodes;
/// As `docs/node.md` has etcd started.
const ELECTION: Duration = Duration::from_millis(500);
/// Rounds unless told otherwise.
const ROUNDS: usize = 20;
/// Load before each failure; and more of it in each round, over all of the time between two keep alives of the host, which decides when
/// it notices that a node is silent.
const BEFORE: Duration = Duration::from_secs(1);
const KEEP_ALIVES: Duration = Duration::from_millis(2500);
const PHASES: u32 = 10;
/// A failure that is not over for the host by then ends the run.
const OVER_MAX: Duration = Duration::from_secs(60);
/// After which every worker of the host is at work again: so many each, once all groups are led.
const ANSWERS: u64 = 100;
/// Between two looks at who leads.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// What the command line says.
pub struct Wish {
    rounds: usize,
    json: Option<PathBuf>,
    kinds: Vec<(&'static str, Kind)>,
}

impl Wish {
    /// `[--rounds N] [--json FILE] [KIND...]`; an error says what is wrong.
    ///
    /// # Errors
    /// A word that is none of these, or a number that is none.
    pub fn of(words: &[String]) -> Result<Self, String> {
        let mut wish = Self { rounds: ROUNDS, json: None, kinds: Vec::new() };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            match word.as_str() {
                "--rounds" => {
                    let number = words.next().and_then(|number| number.parse().ok()).filter(|number| *number > 0);
                    wish.rounds = number.ok_or("--rounds takes a number from 1 on")?;
                }
                "--json" => wish.json = Some(words.next().ok_or("--json takes a file")?.into()),
                name => {
                    let known = Kind::ALL.iter().find(|(known, _)| *known == name);
                    let names = || Kind::ALL.map(|(known, _)| known).join(", ");
                    wish.kinds.push(*known.ok_or_else(|| format!("there is no failure {name:?}: {}", names()))?);
                }
            }
        }
        if wish.kinds.is_empty() {
            wish.kinds = Kind::ALL.to_vec();
        }
        Ok(wish)
    }
}

/// One failure, in seconds.
struct Round {
    /// The longest that a command waited.
    wait: f64,
    /// The longest time without an answer to any command.
    gap: f64,
    /// From the failure until other nodes lead all groups.
    groups: f64,
}

/// Does what is wished and prints a table. Failures are in turn, so that a change of the machine's speed meets all alike.
///
/// # Panics
/// A cluster that does not come up, or is not whole again between two failures; a file that cannot be written.
pub fn run(wish: &Wish) {
    let mut cluster = Cluster::in_networks(Shape { election: ELECTION, ..GATHERED }, &[]);
    let groups = cluster.ask("/v1/status").and_then(|status| status["groups"].as_u64()).expect("a number");
    let mut failed = 0;
    let mut kinds: Vec<(&str, Kind, Vec<Round>)> =
        wish.kinds.iter().map(|(name, kind)| (*name, *kind, Vec::new())).collect();
    for number in 1..=wish.rounds {
        for (name, kind, rounds) in &mut kinds {
            let (round, commands) = one_round(&mut cluster, *kind, (number, groups));
            failed += commands;
            let Round { wait, gap, groups } = round;
            println!(
                "      {number} {name}: longest wait {wait:.2} s, no answer for {gap:.2} s, groups led after {groups:.2} s"
            );
            rounds.push(round);
        }
        // Whatever ends the run later, what was seen is there.
        wish.json.as_ref().inspect(|path| write(path, &kinds, failed));
    }
    // What was started last is told to stop only when it hears that.
    cluster.until("all is whole", None, Cluster::is_whole);
    cluster.stop();
    print_table(&kinds);
    println!("\nCommands that failed: {failed}.");
}

fn one_round(cluster: &mut Cluster, kind: Kind, (number, groups): (usize, u64)) -> (Round, u64) {
    cluster.until("all is whole", None, Cluster::is_whole);
    let etcd = cluster.network().etcd_leader().expect("one leads");
    let victim = match kind {
        Kind::NodeAndEtcd => etcd + 1,
        _ => (etcd + 1) % NODES + 1,
    };
    // A node takes a volume from a silent head once a minute at most: failures in a row are not what is measured.
    cluster.another_volume(victim);
    let probe = Probe::start(cluster.target(None));
    cluster.until("the host has all paths and answers", None, |cluster| {
        probe.paths() == NODES
            && probe.answered().iter().all(|answers| *answers >= ANSWERS)
            && cluster.groups_led(victim).is_some_and(|led| led > 0)
    });
    std::thread::sleep(BEFORE + KEEP_ALIVES * (number as u32 % PHASES) / PHASES);
    let worker = cluster.node(victim).worker;
    probe.begin();
    let began = Instant::now();
    let still = (kind == Kind::Frozen).then(|| StandsStill::new(worker));
    match kind {
        Kind::Worker => signal(worker, SIGKILL),
        Kind::Node => cluster.network().kill_node(victim),
        Kind::NodeAndEtcd => {
            cluster.network().kill_node(victim);
            cluster.network().kill_etcd(etcd);
        }
        Kind::Frozen => {}
        Kind::Cut => cluster.network().cut(victim, Cut::All),
    }
    let led_by_others = || {
        let others = (1..=NODES).filter(|node| *node != victim);
        others.map(|node| cluster.groups_led(node).unwrap_or(0)).sum::<u64>() == groups
    };
    wait_for("other nodes lead all groups", led_by_others);
    let led_after = began.elapsed();
    let before = probe.answered();
    wait_for("every worker of the host has answers", || {
        probe.answered().iter().zip(&before).all(|(now, before)| now >= &(before + ANSWERS))
    });
    let Seen { longest_wait, longest_gap } = probe.seen();
    assert!(longest_wait < HANG_MAX, "a command waited for {longest_wait:?}");
    let failed = probe.finish();
    drop(still);
    match kind {
        // Started anew by hand: a supervisor waits longer each time that its worker ended soon.
        Kind::Worker => {
            cluster.network().kill_node(victim);
            cluster.network().start_node(victim);
        }
        Kind::Node => cluster.network().start_node(victim),
        Kind::NodeAndEtcd => {
            cluster.network().start_etcd(etcd);
            cluster.network().start_node(victim);
        }
        Kind::Frozen => {}
        Kind::Cut => cluster.network().heal(victim, Cut::All),
    }
    let [wait, gap, groups] = [longest_wait, longest_gap, led_after].map(|time| time.as_secs_f64());
    (Round { wait, gap, groups }, failed)
}

fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < OVER_MAX, "{what}: not within {OVER_MAX:?}");
        std::thread::sleep(LOOK_EVERY);
    }
}

/// Median and worst.
fn of_rounds(rounds: &[Round], what: impl Fn(&Round) -> f64) -> (f64, f64) {
    let mut all: Vec<f64> = rounds.iter().map(what).collect();
    all.sort_by(f64::total_cmp);
    let (low, high) = (all[(all.len() - 1) / 2], all[all.len() / 2]);
    ((low + high) / 2.0, all[all.len() - 1])
}

fn print_table(kinds: &[(&str, Kind, Vec<Round>)]) {
    println!(
        "\n| failure | rounds | longest wait of a command, s: median | worst | goal | no answer at all, s: median | worst | groups led, s: median | worst | goal |"
    );
    println!("|{}", "---|".repeat(10));
    for (name, kind, rounds) in kinds {
        let [wait, gap, groups] = [
            of_rounds(rounds, |round| round.wait),
            of_rounds(rounds, |round| round.gap),
            of_rounds(rounds, |round| round.groups),
        ];
        let Goal { host, groups: most } = kind.goal();
        let most = most.map(|most| format!("≤ {}", most.as_secs())).unwrap_or_default();
        println!(
            "| {name} | {} | {:.2} | {:.2} | ≤ {} | {:.2} | {:.2} | {:.2} | {:.2} | {most} |",
            rounds.len(),
            wait.0,
            wait.1,
            host.as_secs(),
            gap.0,
            gap.1,
            groups.0,
            groups.1,
        );
    }
}

fn write(path: &Path, kinds: &[(&str, Kind, Vec<Round>)], failed: u64) {
    let of_kind = |(name, kind, rounds): &(&str, Kind, Vec<Round>)| {
        let Goal { host, groups } = kind.goal();
        let figures = |what: fn(&Round) -> f64| {
            let (median, worst) = of_rounds(rounds, what);
            json!({ "median_s": median, "worst_s": worst, "rounds_s": rounds.iter().map(what).collect::<Vec<_>>() })
        };
        json!({
            "failure": name,
            "goal_host_s": host.as_secs(),
            "goal_groups_s": groups.map(|most| most.as_secs()),
            "longest_wait": figures(|round| round.wait),
            "no_answer": figures(|round| round.gap),
            "groups_led": figures(|round| round.groups),
        })
    };
    let all: Vec<Value> = kinds.iter().map(of_kind).collect();
    let text = format!("{:#}\n", json!({ "what": "failover", "commands_failed": failed, "failures": all }));
    std::fs::write(path, text).unwrap_or_else(|error| panic!("{} cannot be written: {error}", path.display()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_number_lies_between_the_two_in_the_middle() {
        let round = |wait| Round { wait, gap: 0.0, groups: 0.0 };
        let rounds = [4.0, 1.0, 9.0, 2.0].map(round);
        assert_eq!(of_rounds(&rounds, |round| round.wait), (3.0, 9.0));
        assert_eq!(of_rounds(&rounds[..3], |round| round.wait), (4.0, 9.0));
    }

    #[test]
    fn what_is_no_number_or_no_failure_is_refused() {
        let refused =
            |words: &[&str]| Wish::of(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>()).is_err();
        assert!(refused(&["--rounds", "0"]) && refused(&["--rounds"]) && refused(&["melted"]));
        assert!(!refused(&["--rounds", "3", "frozen"]));
    }
}
