//! A disk that lies: writes that were acknowledged and not done, or done elsewhere, bits that turn over. What is read is
//! right or an error; a group that lost something is said to be damaged.

mod common;

use common::*;
use runtime::IoBuf;
use runtime::sim::{DiskFaults, DiskOptions, Random};
use std::collections::BTreeMap;
use std::time::Duration;
use store::{Recovery, Shard, Store};
use types::*;

const GROUPS: u32 = 4;

fn faults_of(seed: u64, rate: u32) -> DiskFaults {
    match seed % 3 {
        0 => DiskFaults { lost_write: rate, ..DiskFaults::default() },
        1 => DiskFaults { misplaced_write: rate, ..DiskFaults::default() },
        _ => DiskFaults { bit_rot: rate, ..DiskFaults::default() },
    }
}

/// Writes on the lying disk, then something on an honest one, so that what was lost lies below what is known durable.
async fn write(client: Client, random: Random, disk: runtime::sim::SimDisk) {
    let depth = [1, 4, 16, 64][random.below(4) as usize];
    for _ in 0..50 + random.below(800) {
        if random_op(&client, &random, GROUPS, 3).is_err() || !client.below(depth).await {
            return;
        }
    }
    client.settle().await;
    disk.set_faults(DiskFaults::default());
    for group in 1..=GROUPS {
        let _ = client.ask(GroupId(group), Op::Other);
    }
    client.settle().await;
    runtime::sleep(Duration::from_secs(3)).await;
}

/// Everything that a group which is not said to be damaged must hold is right, or an error.
async fn check(shard: &Shard, store: &Store, recovery: &Recovery, model: &SharedModel) -> bool {
    let noticed = !recovery.damage.is_empty() || !store.damage().is_empty() || !store.repaired().is_empty();
    let mut wanted: BTreeMap<(ChunkId, u16), u64> = BTreeMap::new();
    for (id, group) in &mut model.borrow_mut().groups {
        let Some(found) = recovery.groups.iter().find(|found| found.group == *id) else {
            assert!(noticed, "group {id} is absent and nothing was said");
            continue;
        };
        if found.damaged {
            assert!(noticed);
            continue;
        }
        assert!(found.prepared_through >= group.acknowledged, "group {id}: acknowledged entries are absent");
        shard.commit(*id, found.prepared_through);
        wanted.extend(group.content().iter().map(|(place, version)| (*place, *version)));
    }
    let mut expected = vec![0; BLOCK_BYTES];
    for ((chunk, block), version) in wanted {
        let range = BlockRange::new(u32::from(block), 1);
        let (read, bytes) = shard.read(&[LAYER], chunk, range, IoBuf::new(BLOCK_BYTES), &mut Vec::new()).await;
        fill_block(&mut expected, chunk, block, version);
        assert!(read.is_err() || *bytes == expected[..], "chunk {chunk} block {block} is not version {version}");
    }
    noticed
}

#[test]
fn what_a_lying_disk_lost_is_never_served_as_if_it_were_there() {
    let mut noticed = 0;
    for seed in 0..60 {
        let block_size_bytes = if seed % 2 == 0 { 512 } else { 4096 };
        let rig = Rig::formatted(seed, 256 * MIB, DiskOptions { block_size_bytes, ..DiskOptions::default() });
        let model = model_of(GROUPS);
        let client = reopen(&rig, &model);
        let rate = [200, 2_000, 10_000][rig.random.below(3) as usize];
        rig.disk.set_faults(faults_of(seed, rate));
        rig.run(write(client, Random::new(rig.random.next_u64()), rig.node.disk(DISK.as_ref()).expect("the disk")));
        rig.disk.set_faults(DiskFaults::default());
        rig.node.restart();
        noticed += u32::from(rig.run(async move {
            let device = device().await;
            // No good superblock, or a log that cannot be gone on with, is noticed too.
            let Ok(store) = Store::open(&device).await else { return true };
            let Ok((shard, recovery)) = Shard::open(&store, device, ShardIndex(0)).await else { return true };
            check(&shard, &store, &recovery, &model).await
        }));
    }
    assert!(noticed > 15, "{noticed} of 60: the faults met nothing of interest");
}
