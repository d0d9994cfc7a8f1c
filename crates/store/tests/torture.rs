//! What `crash.rs` leaves out: crashes and kills also while the store is being opened, while appends and flushes fail,
//! after long idle times; and a device that loses, misplaces and rots what it was given.

mod common;

use common::*;
use runtime::IoBuf;
use runtime::sim::{DiskFaults, DiskOptions, Random};
use runtime::spawn;
use std::collections::BTreeMap;
use std::time::Duration;
use store::{FormatOptions, Shard, Store};
use types::*;

const GROUPS: u32 = 4;
const CHUNKS: u32 = 3;

/// Odd seeds have 4 KiB device blocks; every other pair has the short passes of eight shards.
fn rig_for(seed: u64) -> Rig {
    let block_size_bytes = if seed.is_multiple_of(2) { 512 } else { 4096 };
    let rig = Rig::new(seed, 256 * MIB, DiskOptions { block_size_bytes, ..DiskOptions::default() });
    let shard_count = if seed / 2 % 2 == 0 { 1 } else { 8 };
    rig.run(async move {
        let device = device().await;
        let options = FormatOptions { shard_count: Some(shard_count), ..format_options() };
        store::format(&device, &options).await.expect("the disk can be formatted");
    });
    rig
}

fn end(rig: &Rig, kills_of_4: u64) {
    if rig.random.below(4) < kills_of_4 {
        rig.node.kill();
    } else {
        rig.node.crash();
    }
    rig.node.start();
}

/// Opens, and is ended on the way, now and then.
fn open_in_vain(rig: &Rig) {
    while rig.random.one_in(6) {
        rig.node.spawn(0, async {
            drop(open().await);
        });
        rig.world.run_for(Duration::from_micros(rig.random.between(1, 30_000)));
        end(rig, 2);
    }
}

/// Writes in the background until it is ended or fails.
fn write_on(rig: &Rig, client: &Client) {
    let depth = [1, 4, 16, 64][rig.random.below(4) as usize];
    let random = Random::new(rig.random.next_u64());
    let client = client.clone();
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
}

/// Everything acknowledged is there after each of `count` ends.
fn survives(seed: u64, count: u32, faults: DiskFaults) {
    let rig = rig_for(seed);
    let model = model_of(GROUPS);
    for i in 0..count {
        open_in_vain(&rig);
        let client = reopen(&rig, &model);
        let check = client.clone();
        rig.run(async move { check.verify().await });
        if rig.random.one_in(3) {
            rig.disk.set_faults(faults);
        }
        write_on(&rig, &client);
        let longest_us = if i % 8 == 0 { 400_000 } else { 20_000 };
        rig.world.run_for(Duration::from_micros(rig.random.between(1, longest_us)));
        end(&rig, 1);
        drop(client);
        rig.disk.set_faults(DiskFaults::default());
    }
}

#[test]
fn what_was_acknowledged_survives_crashes_kills_and_crashes_while_opening() {
    for seed in 0..4 {
        survives(seed, 50, DiskFaults::default());
    }
}

#[test]
fn what_was_acknowledged_survives_failed_appends() {
    for seed in 100..104 {
        survives(seed, 50, DiskFaults { write_error: 20_000, ..DiskFaults::default() });
    }
}

/// A flush that failed has made durable what nobody knows, and the next one does not say: what is taken over from before
/// it is written again.
#[test]
fn what_was_acknowledged_survives_failed_flushes() {
    for seed in 200..208 {
        survives(seed, 40, DiskFaults { flush_error: 50_000, ..DiskFaults::default() });
    }
}

/// Writes on a disk with these faults, and more behind it without; opens, and demands that each block that is returned is
/// the one written, and each group that lost something says so. Returns whether anything was noticed.
fn is_honest(seed: u64, faults: DiskFaults) -> bool {
    let rig = rig_for(seed);
    let model = model_of(GROUPS);
    let client = reopen(&rig, &model);
    rig.disk.set_faults(faults);
    let (random, count) = (Random::new(rig.random.next_u64()), rig.random.between(50, 800));
    let depth = [1, 4, 16, 64][rig.random.below(4) as usize];
    let writing = client.clone();
    rig.run(async move {
        for _ in 0..count {
            if random_op(&writing, &random, GROUPS, CHUNKS).is_err() || !writing.below(depth).await {
                return;
            }
        }
        writing.settle().await;
    });
    rig.disk.set_faults(DiskFaults::default());
    let writing = client.clone();
    rig.run(async move {
        for group in 1..=GROUPS {
            writing.ask(GroupId(group), Op::Other).expect("room for nothing");
        }
        writing.settle().await;
        // The record of an idle store: from then on everything is known to have been durable.
        runtime::sleep(Duration::from_secs(3)).await;
    });
    drop(client);
    end(&rig, 2);
    rig.run(judge(model))
}

async fn judge(model: SharedModel) -> bool {
    let device = device().await;
    let Ok(store) = Store::open(&device).await else { return true };
    let Ok((shard, recovery)) = Shard::open(&store, device, ShardIndex(0)).await else { return true };
    let mut noticed = !recovery.damage.is_empty() || !store.damage().is_empty() || !store.repaired().is_empty();
    let mut expected: BTreeMap<(ChunkId, u16), u64> = BTreeMap::new();
    for (id, group) in &mut model.borrow_mut().groups {
        match recovery.groups.iter().find(|found| found.group == *id) {
            None => assert!(noticed, "group {id} is absent and nobody says so"),
            Some(found) if found.damaged => assert!(noticed, "damaged by what?"),
            Some(found) => {
                let (there, acknowledged) = (found.prepared_through, group.acknowledged);
                assert!(there >= acknowledged, "group {id}: {there} of {acknowledged} and nobody says so");
                shard.commit(*id, there);
                expected.extend(group.content());
            }
        }
    }
    for ((chunk, block), version) in expected {
        let range = BlockRange::new(u32::from(block), 1);
        let (read, bytes) = shard.read(&[LAYER], chunk, range, IoBuf::new(BLOCK_BYTES), &mut Vec::new()).await;
        let mut right = vec![0; BLOCK_BYTES];
        fill_block(&mut right, chunk, block, version);
        match read {
            Err(_) => noticed = true,
            Ok(()) => assert!(
                *bytes == right[..],
                "chunk {chunk} block {block} is not version {version} but {}; said: {:?}",
                version_of(&bytes, chunk, block),
                recovery.damage
            ),
        }
    }
    noticed
}

#[test]
fn a_disk_that_loses_misplaces_or_rots_is_found_out() {
    let none = DiskFaults::default();
    let mut noticed = 0;
    for seed in 0..90 {
        let rate = [200, 2_000, 10_000][seed as usize / 3 % 3];
        noticed += u32::from(is_honest(
            seed,
            match seed % 3 {
                0 => DiskFaults { lost_write: rate, ..none },
                1 => DiskFaults { misplaced_write: rate, ..none },
                _ => DiskFaults { bit_rot: rate, ..none },
            },
        ));
    }
    assert!(noticed > 10, "the faults happened: noticed {noticed} times");
}
