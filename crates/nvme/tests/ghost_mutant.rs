//! The tests of ghost writes, of hosts that want more than their share, and of controllers that end would notice a target that does
//! otherwise. A process of its own: a bug is global.
#![cfg(feature = "mutants")]

#[path = "machine/ending.rs"]
mod ending;
#[path = "serve/ghost_write.rs"]
mod ghost_write;
#[path = "serve/good.rs"]
mod good;
#[path = "serve/greedy.rs"]
mod greedy;
#[path = "machine/harness.rs"]
#[allow(dead_code)]
mod harness;
#[path = "serve/node.rs"]
#[allow(dead_code)]
mod node;
#[path = "serve/raw.rs"]
#[allow(dead_code)]
mod raw;

use ghost_write::{ghost_write, read};
use std::sync::Mutex;
use std::time::Duration;
use types::Mutant;

static ALONE: Mutex<()> = Mutex::new(());

#[test]
fn without_the_rule_a_ghost_writes() {
    let _alone = ALONE.lock();
    let check = |seed| {
        let cluster = node::cluster(seed);
        let (_controller, namespace, first) = ghost_write(&cluster, Duration::from_millis(300));
        assert!(read(&cluster, &namespace) == first, "a ghost wrote");
    };
    assert!(Mutant::GhostExecuted.is_caught("ghost_write", 0..20, check), "no ghost in 20 seeds");
}

#[test]
fn without_a_share_one_host_has_all_the_memory() {
    let _alone = ALONE.lock();
    assert!(Mutant::GrantedAlone.is_caught("leaves_room_for_data", 2..3, greedy::leaves_room_for_data));
    assert!(Mutant::AnswersPileUp.is_caught("takes_no_answers", 3..4, greedy::takes_no_answers));
}

#[test]
fn what_comes_for_a_controller_that_ends_may_be_tried_elsewhere() {
    let _alone = ALONE.lock();
    assert!(Mutant::EndIsFinal.is_caught("tried_elsewhere", 0..1, |_| ending::tried_elsewhere()));
}
