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
    let check = |seed| {
        let cluster = node::cluster(seed);
        let (_controller, namespace, first) = ghost_write(&cluster, Duration::from_millis(300));
        assert!(read(&cluster, &namespace) == first, "a ghost wrote");
    };
    assert!(types::Mutant::GhostExecuted.is_caught("ghost_write", 0..20, check), "no ghost in 20 seeds");
}
