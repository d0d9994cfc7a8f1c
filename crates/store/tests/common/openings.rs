//! The first records of an incarnation, at every moment of an opening.

use super::moments::Writer;
use super::*;

const GROUP: GroupId = GroupId(1);
/// Large writes, so that two records are on their way at once and a power loss may keep the second alone.
const BLOCKS_PER_WRITE: u32 = 32;
/// So many that a pass is under way behind them, which an opening then begins anew at once.
const WRITES_BEFORE: u64 = 88;
const WRITES: u64 = 16;
/// Of the moments of the last writes, those whose losses are opened.
const LOSSES_JUDGED_EACH: u64 = 6;

/// A power loss leaves holes; the opening that accepts them is itself cut off, at each of its moments. The one after it
/// finds no damage. Returns how many openings were cut off that had a hole before them.
pub fn an_opening_that_is_cut_off_leaves_no_damage(seed: u64) -> u64 {
    let rig = Rig::formatted(seed, 256 * MIB, DiskOptions::default());
    let write = async |writer: &Writer, versions: std::ops::RangeInclusive<u64>| {
        for version in versions {
            writer.write(LAYER, ChunkId(version as u32), BlockRange::new(0, BLOCKS_PER_WRITE), version).await;
        }
        writer.settle().await;
    };
    let writer = rig.run(async move {
        let (shard, recovery) = open().await;
        let writer = Writer::begin(&shard, &recovery, GROUP).await;
        write(&writer, 1..=WRITES_BEFORE).await;
        writer
    });
    let writing = async move { write(&writer, WRITES_BEFORE + 1..=WRITES_BEFORE + WRITES).await };
    let mut with_holes = 0;
    rig.at_every_moment(LOSSES_JUDGED_EACH, writing, |lost| {
        let opening = async {
            let (_shard, recovery) = open().await;
            assert_eq!(recovery.damage, [], "after a first loss");
            runtime::sleep(Duration::from_millis(2)).await;
        };
        lost.at_every_moment(1, opening, |cut_off| {
            let (_, recovery) = cut_off.open();
            assert_eq!(recovery.damage, [], "seed {seed}: after an opening that was cut off");
            with_holes += u64::from(!recovery.gaps.is_empty());
        });
    });
    with_holes
}
