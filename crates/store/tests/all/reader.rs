//! `tools/read-device.py` and the check of a device, under cleaning: segments are freed, blocks are moved and moved
//! again, the lights go out. What the reader extracts is what the store reads, and neither calls anything damage.

use crate::common::reader::DiskCopy;
use crate::common::*;
use runtime::sim::Random;
use std::time::Duration;
use store::Damage;
use store::check::{CheckOptions, Severity, What};
use types::*;

const GROUP: GroupId = GroupId(1);
const DEVICE_BYTES: u64 = 256 * MIB;
/// Two thirds of what is usable.
const CHUNKS: u32 = 136;
const ROUNDS: u64 = 4;

/// Every chunk once, in long writes.
async fn fill(client: &Client) {
    for chunk in (0..CHUNKS).map(ChunkId) {
        for part in 0..8 {
            client.write_with_room(GROUP, chunk, BlockRange::new(32 * part, 32)).await.expect("room");
            assert!(client.below(8).await);
        }
    }
}

/// Short writes anywhere, zeroes now and then, for ever.
async fn overwrite(client: Client, random: Random) {
    loop {
        let chunk = ChunkId(random.below(u64::from(CHUNKS)) as u32);
        let first = random.below(256) as u32;
        let range = BlockRange::new(first, (1 + random.below(16) as u32).min(256 - first));
        let asked = match random.one_in(20) {
            true => client.ask(GROUP, Op::Zero(chunk, range)),
            false => client.write_with_room(GROUP, chunk, range).await,
        };
        if asked.is_err() || !client.below(16).await {
            return;
        }
    }
}

fn assert_same(client: &Client, extracted: &[u8], round: u64) {
    let mut model = client.model.borrow_mut();
    let content = model.groups.get_mut(&GROUP).expect("the group").content();
    let mut expected = vec![0; BLOCK_BYTES];
    for (number, block) in (0..).zip(extracted.chunks_exact(BLOCK_BYTES)) {
        let (chunk, of_chunk) = (ChunkId(number / BLOCKS_PER_CHUNK), (number % BLOCKS_PER_CHUNK) as u16);
        let version = content.get(&(chunk, of_chunk)).copied().unwrap_or(0);
        fill_block(&mut expected, chunk, of_chunk, version);
        let found = version_of(block, chunk, of_chunk);
        assert!(block == expected, "round {round}: chunk {chunk} block {of_chunk} is {found} and not {version}");
    }
}

#[test]
fn what_was_cleaned_is_read_by_the_document_alone() {
    let (rig, client) = fresh(91, DEVICE_BYTES, 1);
    let model = client.model.clone();
    let filling = client.clone();
    rig.run(async move {
        fill(&filling).await;
        filling.settle().await;
    });
    let (mut client, mut cleaned, mut moved) = (client, 0, 0);
    for round in 0..ROUNDS {
        let (writing, random) = (client.clone(), Random::new(rig.random.next_u64()));
        rig.node.spawn(0, overwrite(writing, random));
        let shard = client.shard.clone();
        let enough = shard.statistics().segments_cleaned + 8;
        rig.world.run_until(|| shard.statistics().segments_cleaned >= enough).expect("the cleaner finds work");
        rig.world.run_for(Duration::from_micros(rig.random.between(1, 50_000)));
        let statistics = shard.statistics();
        (cleaned, moved) = (cleaned + statistics.segments_cleaned, moved + statistics.moved_bytes);
        drop(shard);
        end(&rig, 1);

        let checked = check(&rig, CheckOptions::default());
        let damage = checked.findings.iter().filter(|finding| finding.severity() > Severity::Trace);
        let of_data = damage.filter(|finding| !matches!(finding.what, What::Damage(Damage::Superblock { .. })));
        assert_eq!(of_data.collect::<Vec<_>>(), [] as [&store::check::Finding; 0], "round {round}");
        let copy = DiskCopy::of(&rig.disk, DEVICE_BYTES);
        let extracted = copy.extract(LAYER, u64::from(CHUNKS) * MIB);
        if round + 1 == ROUNDS {
            copy.verify();
        }
        client = reopen(&rig, &model);
        assert_same(&client, &extracted, round);
    }
    println!("{cleaned} segments cleaned, {} MiB moved", moved / MIB);
    assert!(cleaned > 30 && moved > MIB);
}
