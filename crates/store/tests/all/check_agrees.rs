//! A check of a device says what opening says, and names the block that a read refuses: on devices that were cleaned,
//! whose layers were merged and deleted, that crashed, and in which one bit of what was ever written turned over.

use crate::common::layers::layers_survive_watched;
use crate::common::*;
use runtime::IoBuf;
use store::check::{CheckOptions, Finding, Severity, What};
use store::{ReadError, Shard, Store};
use types::*;

/// Bits that turn over, each on a device of its own, after each crash.
const BITS: u64 = 5;
/// Chunks read where the check found nothing.
const SAMPLED: u32 = 4;

/// What was met.
#[derive(Clone, Copy, Debug, Default)]
struct Met {
    bits: u64,
    told_by_opening: u64,
    blocks: u64,
    of_no_use: u64,
}

#[test]
fn what_a_check_finds_is_what_opening_and_reading_say() {
    let (mut met, mut cleaned) = (Met::default(), 0);
    for seed in 60..62 {
        let of_seed = layers_survive_watched(seed, 6, 300, |rig, layer| {
            let whole = check(rig, CheckOptions::default());
            let is_slot = |finding: &&Finding| matches!(finding.what, What::Damage(store::Damage::Superblock { .. }));
            let worse = whole.findings.iter().filter(|finding| finding.severity() > Severity::Trace);
            assert_eq!(worse.filter(|finding| !is_slot(finding)).count(), 0, "{:?}", whole.findings);
            (0..BITS).for_each(|number| turn_one_over(rig, number, layer, &mut met));
            None
        });
        cleaned += of_seed.cleaned;
    }
    println!("{met:?}, {cleaned} segments cleaned");
    assert!(met.blocks > 10 && met.of_no_use > 5 && cleaned > 5, "{met:?}");
}

/// Turns one bit over on a copy of the disk, and compares.
fn turn_one_over(rig: &Rig, number: u64, layer: LayerId, met: &mut Met) {
    let copy = rig.after_power_loss(number + 1);
    let at = copy.disk.rot().expect("something was written");
    let checked = check(&copy, CheckOptions::default());
    met.bits += 1;
    let of_opening = |finding: &&Finding| matches!(finding.what, What::Damage(_));
    let told: Vec<_> = checked.findings.iter().filter(of_opening).map(|finding| finding.what.clone()).collect();
    let blocks: Vec<_> = checked.findings.iter().filter_map(block_of).collect();
    assert!(blocks.len() <= 1, "one bit: {:?}", checked.findings);
    met.told_by_opening += u64::from(!told.is_empty());
    met.blocks += blocks.len() as u64;
    met.of_no_use += u64::from(told.is_empty() && blocks.is_empty());
    copy.run(async move {
        let device = device().await;
        let opened = Store::open(&device).await.expect("one good slot is enough");
        let (shard, recovery) = Shard::open(&opened, device, ShardIndex(0)).await.expect("damage is no error");
        let said = recovery.damage.iter().chain(&recovery.harmless).chain(opened.damage()).chain(opened.repaired());
        let said: Vec<_> = said.cloned().map(What::Damage).collect();
        assert!(told.iter().all(|one| said.contains(one)), "byte {at}: told {told:?}, opening says {said:?}");
        assert!(said.iter().all(|one| told.contains(one)), "byte {at}: told {told:?}, opening says {said:?}");
        if !recovery.damage.is_empty() {
            return;
        }
        for group in &recovery.groups {
            shard.commit(group.group, group.prepared_through);
        }
        if let [(layer, chunk, block, offset_bytes)] = blocks[..] {
            let error = read(&shard, layer, chunk).await.expect_err("the check says so");
            let ReadError::Checksum { block: refused, offset_bytes: refused_at, .. } = error else { panic!("{error}") };
            assert_eq!((refused, refused_at), (u32::from(block), offset_bytes));
            return;
        }
        for chunk in (0..SAMPLED).map(|i| ChunkId((number as u32 * SAMPLED + i) % crate::common::layers::CHUNKS)) {
            read(&shard, layer, chunk).await.expect("the check found nothing");
        }
    });

    fn block_of(finding: &Finding) -> Option<(LayerId, ChunkId, u16, u64)> {
        let What::Block { place, layer, chunk, block, .. } = &finding.what else { return None };
        let start = MIB + u64::from(place.segment.0) * 4 * MIB;
        Some((*layer, *chunk, *block, start + u64::from(place.offset_bytes)))
    }
}

/// What a layer itself says of a chunk.
async fn read(shard: &Shard, layer: LayerId, chunk: ChunkId) -> Result<(), ReadError> {
    let range = BlockRange::new(0, BLOCKS_PER_CHUNK);
    shard.read(&[layer], chunk, range, IoBuf::new(range.bytes()), &mut Vec::new()).await.0
}
