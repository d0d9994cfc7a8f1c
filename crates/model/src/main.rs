//! `cairn-model [MINUTES] [SEED] [WORD]`: looks at more states than `make test` has time for; within the bounds whose name
//! contains the word.

use model::Bounds;
use model::search::{Found, Limits, all, long_ways};
use std::time::{Duration, Instant};

fn main() {
    #[cfg(feature = "mutants")]
    if std::env::args().nth(1).as_deref() == Some("mutants") {
        return mutants();
    }
    let number = |index| std::env::args().nth(index).and_then(|text: String| text.parse::<u64>().ok());
    let (minutes, seed) = (number(1).unwrap_or(20), number(2).unwrap_or(1));
    let word = std::env::args().nth(3).unwrap_or_default();
    let chosen: Vec<_> = Bounds::ALL.into_iter().filter(|(about, _)| about.contains(&word)).collect();
    let time = Duration::from_secs(minutes * 60 / (2 * chosen.len().max(1) as u64));
    let limits = Limits { states: usize::MAX, time };
    let mut is_well = true;
    for (about, bounds) in chosen {
        let begin = Instant::now();
        let mut tell = |how: &str, found: &Found| {
            let Found { states, different, depth, .. } = found;
            println!(
                "{about}, {how}: {states} states, {different} different, {depth} steps, {} s",
                begin.elapsed().as_secs()
            );
            if let Some(broken) = &found.broken {
                println!("BROKEN: {}\n{}", broken.rule, broken.way.join("\n"));
                is_well = false;
            }
        };
        tell("all", &all(bounds, limits));
        tell("long ways", &long_ways(bounds, limits, seed));
    }
    std::process::exit(i32::from(!is_well));
}

/// Each broken rule in each of the bounds: where it shows, and how soon.
#[cfg(feature = "mutants")]
fn mutants() {
    use model::mutants::{MUTANTS, Shows, caught};
    let seconds = std::env::args().nth(2).and_then(|text| text.parse().ok()).unwrap_or(10);
    let only = std::env::args().nth(3);
    for (mutant, _) in
        MUTANTS.iter().filter(|(mutant, _)| only.as_ref().is_none_or(|only| format!("{mutant:?}") == *only))
    {
        let word = std::env::args().nth(4).unwrap_or_default();
        for (index, (about, _)) in Bounds::ALL.iter().enumerate().filter(|(_, (about, _))| about.contains(&word)) {
            for shows in [Shows::Near(index), Shows::Far(index)] {
                let begin = Instant::now();
                let (states, broken) =
                    caught(*mutant, shows, Limits { states: usize::MAX, time: Duration::from_secs(seconds) });
                let rule = broken.map_or("-", |broken| broken.rule);
                println!("{mutant:?}, {about}, {shows:?}: {states} states, {} ms: {rule}", begin.elapsed().as_millis());
            }
        }
    }
}
