//! Power losses and kills at random moments, also while opening, also with appends that the disk refuses: what was
//! acknowledged is there, nothing is half there, nothing else is.

mod common;

use common::*;
use runtime::sim::{DiskFaults, DiskOptions, Random};
use runtime::spawn;
use std::time::Duration;
use store::FormatOptions;

const GROUPS: u32 = 4;
const CHUNKS: u32 = 3;

/// A disk of this seed's kind: either block size, passes rare (one shard) or frequent (the share of one in eight).
fn rig_of(seed: u64) -> Rig {
    let block_size_bytes = if seed.is_multiple_of(2) { 512 } else { 4096 };
    let rig = Rig::new(seed, 256 * MIB, DiskOptions { block_size_bytes, ..DiskOptions::default() });
    rig.run(async move {
        let shard_count = Some(if seed % 4 < 2 { 1 } else { 8 });
        let options = FormatOptions { shard_count, ..format_options() };
        store::format(&device().await, &options).await.expect("the disk can be formatted");
    });
    rig
}

/// The lights go out, or only the process ends.
fn stop(rig: &Rig) {
    if rig.random.one_in(4) { rig.node.kill() } else { rig.node.crash() }
}

/// Crashes while the store is being opened.
fn crash_while_opening(rig: &Rig) {
    rig.node.spawn(0, async {
        let _ = open().await;
    });
    rig.world.run_for(Duration::from_micros(rig.random.between(1, 30_000)));
    stop(rig);
    rig.node.start();
}

/// Writes until the lights go out.
fn crash_while_writing(rig: &Rig, client: Client, longest_us: u64) {
    let depth = [1, 4, 16, 64][rig.random.below(4) as usize];
    let random = Random::new(rig.random.next_u64());
    rig.node.spawn(0, async move {
        spawn(async move {
            loop {
                if random.one_in(200) {
                    runtime::sleep(Duration::from_millis(random.below(1500))).await;
                }
                if random_op(&client, &random, GROUPS, CHUNKS).is_err() || !client.below(depth).await {
                    return;
                }
            }
        });
    });
    rig.world.run_for(Duration::from_micros(rig.random.between(1, longest_us)));
    stop(rig);
    rig.node.start();
}

#[test]
fn power_losses_kills_and_refused_appends_at_random_moments() {
    let (mut passes, mut failures) = (0, 0);
    for seed in 0..8 {
        let rig = rig_of(seed);
        let model = model_of(GROUPS);
        for crash in 0..25 {
            while rig.random.one_in(6) {
                crash_while_opening(&rig);
            }
            let client = reopen(&rig, &model);
            let check = client.clone();
            rig.run(async move { check.verify().await });
            if rig.random.one_in(3) {
                let write_error = [2_000, 20_000][rig.random.below(2) as usize];
                rig.disk.set_faults(DiskFaults { write_error, ..DiskFaults::default() });
            }
            let shard = client.shard.clone();
            crash_while_writing(&rig, client, if crash % 8 == 0 { 400_000 } else { 20_000 });
            passes += shard.statistics().passes;
            failures += shard.statistics().append_failures;
            rig.disk.set_faults(DiskFaults::default());
        }
    }
    // Else the crashes met nothing of interest.
    assert!(passes > 20 && failures > 5, "{passes} passes, {failures} refused appends");
}
