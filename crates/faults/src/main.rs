//! `cairn-faults [NAME...]`: runs the scenarios that are named, or all, and says of each what came of it; `--list` names them.
//! `cairn-faults pairs [--all] [--after FIRST+SECOND] [--logs DIR] [FAILURE | FIRST+SECOND]...`: some pairs of failures, every one,
//! or those that are named, as a table; half a minute each. `--after` goes on behind one, `--logs` leaves what nodes have said.
//! `cairn-faults failover [--rounds N] [--json FILE] [FAILURE...]`: how long a host waits when a node fails.
//! `cairn-faults --load ADMIN VOLUME SECONDS`: the load alone, until standard input says anything; no command may wait for so long.

use faults::scenario::{ALL, Scenario};
use faults::{failover, medium, outside, pairs};
use std::process::ExitCode;
use std::time::Instant;

fn main() -> ExitCode {
    let names: Vec<String> = std::env::args().skip(1).collect();
    if names == ["--list"] {
        ALL.iter().for_each(|(name, _)| println!("{name}"));
        return ExitCode::SUCCESS;
    }
    if let Some((_, words)) = names.split_first().filter(|(first, _)| *first == "--load") {
        let Some(wish) = outside::Wish::of(words) else {
            eprintln!("cairn-faults: write --load ADMIN VOLUME SECONDS");
            return ExitCode::from(2);
        };
        outside::run(&wish);
        return ExitCode::SUCCESS;
    }
    if let Some((_, words)) = names.split_first().filter(|(first, _)| *first == "failover") {
        return match failover::Wish::of(words) {
            Ok(wish) => {
                failover::run(&wish);
                ExitCode::SUCCESS
            }
            Err(error) => {
                eprintln!("cairn-faults: {error}");
                ExitCode::from(2)
            }
        };
    }
    if let Some((_, words)) = names.split_first().filter(|(first, _)| *first == "pairs") {
        medium::keep_mounts();
        return match pairs::Wish::of(words) {
            // On a thread of its own: it makes itself another network.
            Ok(wish) => match std::thread::spawn(move || pairs::play(&wish)).join() {
                Ok(()) => ExitCode::SUCCESS,
                Err(_) => ExitCode::FAILURE,
            },
            Err(error) => {
                eprintln!("cairn-faults: {error}");
                ExitCode::from(2)
            }
        };
    }
    if let Some(unknown) = names.iter().find(|name| ALL.iter().all(|(known, _)| known != name)) {
        let known: Vec<_> = ALL.iter().map(|(name, _)| *name).collect();
        eprintln!("cairn-faults: there is no scenario {unknown:?}: one or more of {}", known.join(", "));
        return ExitCode::from(2);
    }
    let wanted: Vec<_> =
        ALL.into_iter().filter(|(name, _)| names.is_empty() || names.iter().any(|wanted| wanted == name)).collect();
    run(&wanted)
}

fn run(scenarios: &[Scenario]) -> ExitCode {
    let mut failed = false;
    medium::keep_mounts();
    for (name, run) in scenarios {
        let began = Instant::now();
        // On a thread of its own: some make themselves another network.
        let passed = std::thread::spawn(*run).join().is_ok();
        println!("{}  {name} ({} s)", if passed { "ok  " } else { "FAIL" }, began.elapsed().as_secs());
        failed |= !passed;
    }
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
