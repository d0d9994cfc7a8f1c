//! A volume whose blocks the cleaner has moved is deleted, and everything that ever held a block of it, or the entry
//! that deleted it, is cleaned and used again.
//!
//! ```text
//!   hot  [ doomed ░ dead ][ … ]       [ tombstone, keepers, dead ]                        [ used again ]
//!   cold                  [ doomed ]                              [ keepers ]  [ used again ]
//!         written ────────▶ cleaned ──▶ deleted ──────────────────▶ cleaned ──▶ … every moment from here on is judged
//! ```

use super::moments::{Writer, versions_in};
use super::*;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deletion {
    /// Blocks read as zeroes, and nothing lies below.
    Discard,
    /// Blocks read as zeroes although a layer below holds something.
    HidingZeroes,
    /// All chunks of the layer, and the layer.
    Volume,
}

const GROUP: GroupId = GroupId(1);
/// Holds something of every doomed block, and is read below it.
const SNAPSHOT: LayerId = LayerId(1);
const DOOMED: LayerId = LayerId(2);
/// All else.
const OTHER: LayerId = LayerId(3);
const DOOMED_CHUNKS: u32 = 5;
/// Overwritten again and again.
const BUSY: std::ops::Range<u32> = 100..108;
/// Written with the tombstones, so that their segment has something that lives.
const KEEPERS: ChunkId = ChunkId(90);
/// Segments left free by the background: few, so that each is used again soon.
const FREE_SEGMENTS: u64 = 12;
/// Versions: of a doomed block, of the block below it, of what is kept, of the background.
const DOOMED_VERSION: u64 = 11;
const SNAPSHOT_VERSION: u64 = 22;
const KEEPER_VERSION: u64 = 33;
/// While the deletion is under way every moment is judged, later one of so many.
const JUDGED_EACH: u64 = 8;

/// What is known of the deletion at the moment of a crash.
#[derive(Clone, Copy, Default)]
struct Known {
    /// The last entry of the deletion, once all of them were asked for.
    asked: Option<Seq>,
    /// It was acknowledged.
    is_deleted: bool,
}

pub fn a_deleted_block_never_returns(seed: u64, deletion: Deletion) {
    let options = DiskOptions { block_size_bytes: 4096, ..DiskOptions::default() };
    let rig = Rig::formatted(seed, 256 * MIB, options);
    let writer = rig.run(async {
        let (shard, recovery) = open().await;
        Rc::new(Writer::begin(&shard, &recovery, GROUP).await)
    });
    let home = clean_the_doomed(&rig, &writer, deletion);
    let known = Rc::new(std::cell::Cell::new(Known::default()));
    let tombstone = hot_segment(&rig);
    let (deleting, told) = (writer.clone(), known.clone());
    let mut moments = rig.at_every_moment(1, delete(deleting, deletion, told), |image| {
        judge(image, deletion, known.get());
    });
    // Both are taken for something else, after what lives beside the tombstones was moved out.
    let first = rig.segments();
    let is_over = |rig: &Rig| [home, tombstone].iter().all(|s| rig.segments()[*s].generation > first[*s].generation);
    let mut round = 0;
    while !is_over(&rig) {
        round += 1;
        assert!(round < 400, "segments {home} and {tombstone} are not used again: {:?}", writer.shard.statistics());
        let busy = writer.clone();
        let task = async move { keep_busy(&busy, 1000 + round).await };
        moments += rig.at_every_moment(JUDGED_EACH, task, |image| judge(image, deletion, known.get()));
    }
    let cleaned = writer.shard.statistics().segments_cleaned;
    println!("{deletion:?}: {moments} losses of power, {cleaned} segments cleaned");
    assert!(moments > 50, "{moments} losses of power");
    assert_ne!(rig.segments_with(&keeper()), [tombstone], "its segment was cleaned, not only left");
    rig.node.crash();
    rig.node.start();
    judge(&rig, deletion, known.get());
}

/// The first block that is kept, as stored.
fn keeper() -> Vec<u8> {
    bytes_of(KEEPERS, BlockRange::new(0, 1), KEEPER_VERSION).to_vec()
}

/// Writes the doomed blocks beside others that die, fills the device, and has them cleaned. Returns the cold segment
/// in which the first of them is then.
fn clean_the_doomed(rig: &Rig, writer: &Rc<Writer>, deletion: Deletion) -> usize {
    let writing = writer.clone();
    rig.run(async move {
        let writer = writing;
        for chunk in (0..DOOMED_CHUNKS).map(ChunkId) {
            if deletion != Deletion::Discard {
                writer.write_chunk(SNAPSHOT, chunk, SNAPSHOT_VERSION).await;
            }
            for first in (0..BLOCKS_PER_CHUNK).step_by(32) {
                writer.write(DOOMED, chunk, BlockRange::new(first, 32), DOOMED_VERSION).await;
                writer.write(OTHER, chunk, BlockRange::new(first, 32), 1).await;
            }
            writer.settle().await;
        }
        for chunk in (0..DOOMED_CHUNKS).map(ChunkId).chain(BUSY.map(ChunkId)) {
            writer.write_chunk(OTHER, chunk, 2).await;
        }
        let store = writer.shard.store().clone();
        let free = || (store.usage().capacity_bytes - store.usage().used_bytes) / 4 / MIB;
        for chunk in (1000..).map(ChunkId) {
            if free() <= FREE_SEGMENTS {
                break;
            }
            writer.write_chunk(OTHER, chunk, 3).await;
        }
        writer.shard.pass_now().await.expect("an open shard");
        store.clean_below(u32::MAX);
    });
    let doomed = bytes_of(ChunkId(0), BlockRange::new(0, 1), DOOMED_VERSION);
    for round in 0..400 {
        let segments = rig.segments();
        let homes = rig.segments_with(&doomed);
        if let [home] = homes[..]
            && segments[home].is_cold
        {
            return home;
        }
        let busy = writer.clone();
        rig.run(async move { keep_busy(&busy, 100 + round).await });
    }
    panic!("the doomed blocks are not cleaned: {:?}", writer.shard.statistics())
}

/// Overwrites some of what is busy: credit for the cleaner, and segments used up.
async fn keep_busy(writer: &Writer, version: u64) {
    let chunk = BUSY.start + (version % u64::from(BUSY.end - BUSY.start)) as u32;
    writer.write_chunk(OTHER, ChunkId(chunk), version).await;
    if version.is_multiple_of(4) {
        writer.shard.pass_now().await.expect("an open shard");
    }
}

/// The open hot segment: the newest of those that are not cold.
fn hot_segment(rig: &Rig) -> usize {
    let segments = rig.segments();
    let hot = segments.iter().enumerate().filter(|(_, segment)| segment.is_hot);
    hot.max_by_key(|(_, segment)| segment.generation).expect("a segment").0
}

async fn delete(writer: Rc<Writer>, deletion: Deletion, known: Rc<std::cell::Cell<Known>>) {
    writer.write(OTHER, KEEPERS, BlockRange::new(0, 16), KEEPER_VERSION).await;
    let mut last = Seq(0);
    let chunks: Vec<_> = (0..DOOMED_CHUNKS).map(ChunkId).collect();
    match deletion {
        Deletion::Volume => {
            writer.ask(DOOMED, ChunkId(0), EntryKind::LayerDelete { chunks }).await;
            last = writer.ask(DOOMED, ChunkId(0), EntryKind::LayerDelete { chunks: Vec::new() }).await;
        }
        Deletion::Discard | Deletion::HidingZeroes => {
            let (range, hides_below) = (BlockRange::new(0, BLOCKS_PER_CHUNK), deletion == Deletion::HidingZeroes);
            for chunk in chunks {
                last = writer.ask(DOOMED, chunk, EntryKind::Zero { range, hides_below }).await;
            }
        }
    }
    known.set(Known { asked: Some(last), is_deleted: false });
    writer.settle().await;
    known.set(Known { asked: Some(last), is_deleted: true });
}

/// Opens what a crash has left, and reads what was doomed, what is kept, and what is below.
fn judge(image: &Rig, deletion: Deletion, known: Known) {
    image.run(async move {
        let (shard, recovery) = open().await;
        assert_eq!(recovery.damage, []);
        let found = recovery.groups.iter().find(|found| found.group == GROUP).expect("the group");
        shard.commit(GROUP, found.prepared_through);
        let is_all_deleted = known.asked.is_some_and(|asked| found.prepared_through >= asked);
        assert!(is_all_deleted || !known.is_deleted, "the deletion was acknowledged");
        let whole = BlockRange::new(0, BLOCKS_PER_CHUNK);
        for chunk in (0..DOOMED_CHUNKS).map(ChunkId) {
            let layers: &[LayerId] = match deletion {
                Deletion::Discard => &[DOOMED],
                Deletion::HidingZeroes => &[DOOMED, SNAPSHOT],
                Deletion::Volume => &[DOOMED],
            };
            let seen = versions_in(&shard, layers, chunk, whole).await;
            let due = |version: u64| version == 0 || !is_all_deleted && version == DOOMED_VERSION;
            assert!(seen.iter().all(|version| due(*version)), "chunk {chunk}: {seen:?}, deleted: {is_all_deleted}");
            assert!(seen.iter().all(|version| *version == seen[0]), "chunk {chunk} is deleted in part: {seen:?}");
            if deletion != Deletion::Discard {
                let below = versions_in(&shard, &[SNAPSHOT], chunk, whole).await;
                assert!(below.iter().all(|version| *version == SNAPSHOT_VERSION), "chunk {chunk} of the snapshot");
            }
        }
        if is_all_deleted {
            let kept = versions_in(&shard, &[OTHER], KEEPERS, BlockRange::new(0, 17)).await;
            assert!(kept[..16].iter().all(|version| *version == KEEPER_VERSION) && kept[16] == 0, "{kept:?}");
        }
    });
}
