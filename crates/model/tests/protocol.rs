//! The protocol as it ships breaks no rule in any state within these bounds. `make model` looks further.

use model::Bounds;
use model::search::{Found, Limits, all, long_ways};
use std::time::Duration;

/// A search that ends by the number of states, not by the time.
fn limits(states: usize) -> Limits {
    Limits { states, time: Duration::from_secs(600) }
}

fn assert_well(about: &str, found: &Found) {
    if let Some(broken) = &found.broken {
        panic!("{about}: {}\n{}", broken.rule, broken.way.join("\n"));
    }
}

#[test]
fn no_state_near_the_first_breaks_a_rule() {
    for (about, bounds) in Bounds::ALL {
        let found = all(bounds, limits(200_000));
        assert_well(about, &found);
        println!("{about}: {} states, {} different, {} steps", found.states, found.different, found.depth);
        assert!(found.different > 40_000 && found.depth >= 6, "{about}: nothing was searched: {found:?}");
    }
}

#[test]
fn no_long_way_breaks_a_rule() {
    for (about, bounds) in Bounds::ALL {
        let found = long_ways(bounds, limits(60_000), 1);
        assert_well(about, &found);
        println!("{about}: {} states on long ways; never seen: {:?}", found.states, found.never_seen);
    }
}

#[test]
fn groups_take_over_and_go_on() {
    let found = long_ways(Bounds::ALL[3].1, limits(150_000), 7);
    assert_well("leases", &found);
    assert_eq!(found.never_seen, [] as [&str; 0], "a search that sees no take-over proves nothing of them");
}
