//! Power losses at random moments: what was acknowledged is there, nothing is half there, nothing else is.

mod common;

use common::*;
use runtime::sim::Random;
use runtime::spawn;
use std::time::Duration;

/// Writes until the lights go out.
fn crash_once(rig: &Rig, client: &Client, groups: u32, chunks: u32) {
    let depth = [1, 4, 16, 64][rig.random.below(4) as usize];
    let random = Random::new(rig.random.next_u64());
    let writing = client.clone();
    rig.node.spawn(0, async move {
        spawn(async move {
            loop {
                let _ = random_op(&writing, &random, groups, chunks);
                if !writing.below(depth).await {
                    return;
                }
            }
        });
    });
    rig.world.run_for(Duration::from_micros(rig.random.between(1, 20_000)));
    rig.node.crash();
}

fn crashes(seed: u64, count: u32) {
    let (rig, client) = fresh(seed, 256 * MIB, 4);
    let model = client.model.clone();
    let mut client = Some(client);
    for _ in 0..count {
        crash_once(&rig, client.as_ref().expect("open"), 4, 3);
        drop(client.take());
        rig.node.start();
        let opened = reopen(&rig, &model);
        let done = opened.clone();
        rig.run(async move { done.verify().await });
        client = Some(opened);
    }
}

#[test]
fn power_losses_at_random_moments() {
    for seed in 0..4 {
        crashes(seed, 25);
    }
}
