//! Heads and hosts above a group: what they are told has one order, whoever is the head and whoever leads (docs/heads.md).

use model::Bounds;
use model::search::{Limits, all, long_ways};
use std::time::Duration;

/// More states than there are.
const NO_LIMIT: Limits = Limits { states: usize::MAX, time: Duration::from_secs(600) };

fn bounds(name: &str) -> Bounds {
    let found = Bounds::ALL.into_iter().find(|(about, _)| *about == name);
    found.unwrap_or_else(|| panic!("there are no bounds {name}")).1
}

/// Two nodes, one after the other the head; two writes and a read of one host, which goes elsewhere twice; one connection
/// that ends; the primary is on the node of the second. All states there are.
#[test]
fn no_state_of_heads_that_follow_each_other_breaks_a_rule() {
    let found = all(bounds("heads that follow each other"), NO_LIMIT);
    println!("all there are: {} states, {} different, {} steps", found.states, found.different, found.depth);
    assert!(found.broken.is_none(), "{:?}", found.broken);
    assert!(found.different > 50_000 && found.depth > 30, "little was searched: {found:?}");
    let expected = ["a write is acknowledged after a take-over"];
    assert_eq!(found.never_seen, expected, "here the primary stays, and heads move");
}

/// That heads move while primaries do, and are answered, is seen: else the searches prove nothing of it.
#[test]
fn heads_move_and_primaries_too() {
    let limits = Limits { states: 150_000, ..NO_LIMIT };
    for name in ["heads above changes of the primary", "heads above three members"] {
        let found = long_ways(bounds(name), limits, 7);
        assert!(found.broken.is_none(), "{name}: {:?}", found.broken);
        assert_eq!(found.never_seen, [] as [&str; 0], "{name}");
    }
}
