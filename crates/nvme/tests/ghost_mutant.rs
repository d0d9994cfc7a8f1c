//! The test of ghost writes would notice a target that executes them. A process of its own: the bug is global.
#![cfg(feature = "mutants")]

#[path = "serve/ghost_write.rs"]
mod ghost_write;
#[path = "serve/node.rs"]
#[allow(dead_code)]
mod node;

use ghost_write::{ghost_write, read};
use std::time::Duration;

#[test]
fn without_the_rule_a_ghost_writes() {
    types::Mutant::activate(Some(types::Mutant::GhostExecuted));
    let seen = (0..20).any(|seed| {
        let cluster = node::cluster(seed);
        let (_controller, namespace, first) = ghost_write(&cluster, Duration::from_millis(300));
        read(&cluster, &namespace) != first
    });
    assert!(seen, "no ghost in 20 seeds");
}
