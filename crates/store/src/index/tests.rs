//! The index against a plain model, and its figures.

use super::{Extent, ExtentKind, Index, extents};
use crate::format::blocks::BlockState;
use crate::format::leaf::BLOCKS;
use crate::format::{Codec, Crc32c, DeviceUnit, LeafKey, LeafView, StoredBlock, StoredLength};
use std::collections::BTreeMap;
use types::{BLOCKS_PER_CHUNK, BlockRange, ChunkId, LayerId, Seq};

/// splitmix64: a seed, and the same numbers every time.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
    fn range(&mut self) -> BlockRange {
        let first = self.below(256) as u32;
        let longest = if self.below(4) == 0 { 256 } else { 4 };
        BlockRange::new(first, 1 + self.below(longest.min(u64::from(BLOCKS_PER_CHUNK - first))) as u32)
    }
}

fn key(chunk: u64) -> LeafKey {
    LeafKey { layer: LayerId(1 + chunk % 3), chunk: ChunkId(chunk as u32 / 3) }
}

/// Blocks one behind the other; raw, or of any length if `coded`.
fn blocks_at(random: &mut Random, first: u64, count: u16, coded: bool) -> Vec<StoredBlock> {
    let mut location = DeviceUnit(first);
    (0..count)
        .map(|_| {
            let raw = !coded || random.below(2) == 0;
            let stored = if raw { StoredLength::RAW } else { StoredLength::new(1 + random.below(7) as u8, Codec::Lz4) };
            let block = StoredBlock { location, stored, checksum: Crc32c(random.next() as u32) };
            location = block.end();
            block
        })
        .collect()
}

/// The model: block → state, and what was displaced.
#[derive(Default)]
struct Model {
    blocks: BTreeMap<(LeafKey, u16), BlockState>,
    last_seq: BTreeMap<LeafKey, Seq>,
}

impl Model {
    fn set(&mut self, key: LeafKey, block: u16, state: BlockState) -> Option<StoredBlock> {
        self.blocks.insert((key, block), state).and_then(BlockState::stored)
    }
    fn get(&self, key: LeafKey, block: u16) -> BlockState {
        self.blocks.get(&(key, block)).copied().unwrap_or_default()
    }
}

/// One random operation on both; what the index says was displaced must be what the model displaced.
fn step(random: &mut Random, index: &mut Index, model: &mut Model, seq: u64, coded: bool) {
    let (key, range, mut displaced, mut expected) = (key(random.below(30)), random.range(), vec![], vec![]);
    let blocks = range.first..range.end() as u16;
    match random.below(10) {
        0..6 => {
            let stored = blocks_at(random, 2048 + seq * 4096, range.count, coded);
            let coming = stored.iter().copied();
            assert!(index.apply_write(key, Seq(seq), range, coming.clone(), |old| displaced.push(old)));
            expected.extend(blocks.zip(coming).filter_map(|(b, s)| model.set(key, b, BlockState::Stored(s))));
            model.last_seq.insert(key, Seq(seq));
        }
        6..8 => {
            let hides = random.below(2) == 0;
            let zero = if hides { BlockState::Zero } else { BlockState::Absent };
            assert!(index.apply_zero(key, Seq(seq), range, hides, |old| displaced.push(old)));
            expected.extend(blocks.filter_map(|b| model.set(key, b, zero)));
            model.last_seq.insert(key, Seq(seq));
        }
        8 => {
            // Some of the old places are right, some are not.
            let mut states = vec![BlockState::Absent; usize::from(range.count)];
            assert!(index.fill(key, range, &mut states));
            let from: Vec<_> = states
                .iter()
                .map(|s| s.stored().filter(|_| random.below(3) > 0).map_or(DeviceUnit(7), |b| b.location))
                .collect();
            let to: Vec<_> = (0..u64::from(range.count)).map(|i| DeviceUnit(2048 + seq * 4096 + i * 8)).collect();
            index.apply_move(key, range, from.iter().copied(), to.iter().copied(), |old, _| displaced.push(old));
            for (i, block) in blocks.enumerate() {
                if let Some(stored) = model.get(key, block).stored().filter(|s| s.location == from[i]) {
                    let moved = StoredBlock { location: to[i], ..stored };
                    expected.extend(model.set(key, block, BlockState::Stored(moved)));
                }
            }
        }
        _ => {
            // An entry that is in the leaf already changes nothing; compacting neither.
            let last = index.last_seq(key);
            let again = blocks_at(random, 2048, range.count, coded);
            if last.0 > 0 {
                assert!(!index.apply_write(key, last, range, again.into_iter(), |old| displaced.push(old)));
            }
            index.compact_at(random.below(30) as u32);
        }
    }
    assert_eq!(displaced, expected);
}

fn assert_same(index: &Index, model: &Model) {
    let whole = BlockRange::new(0, BLOCKS_PER_CHUNK);
    let mut stored = 0;
    for chunk in 0..30 {
        let key = key(chunk);
        index.lookup(key, whole, |block, state| {
            assert_eq!(state, model.get(key, block), "{key:?} block {block}");
            stored += u64::from(state.stored().is_some());
        });
        assert_eq!(index.last_seq(key), model.last_seq.get(&key).copied().unwrap_or_default());
    }
    assert_eq!(index.stored_blocks(), stored);
    for slot in 0..index.slot_count() {
        let Some((_, view)) = index.leaf_at(slot) else { continue };
        assert_eq!(super::Leaf::from_view(&view).check(), Ok(()));
    }
    let mut walked = 0;
    index.for_each_stored(|key, block, stored| {
        assert_eq!(model.get(key, block), BlockState::Stored(stored));
        walked += 1;
    });
    assert_eq!(walked, stored);
}

/// The same contents, from what a checkpoint would store, in another order.
fn rebuilt(index: &Index) -> Index {
    let mut other = Index::new();
    for slot in (0..index.slot_count()).rev() {
        let Some((key, view)) = index.leaf_at(slot) else { continue };
        let mut payload = vec![0xff; view.encoded_bytes()];
        assert_eq!(view.encode(&mut payload), payload.len());
        other.load(key, &LeafView::decode(&payload).expect("what was encoded decodes"));
    }
    other
}

#[test]
fn the_index_says_what_a_plain_map_says() {
    for seed in 0..6 {
        let mut random = Random(seed);
        let (mut index, mut model) = (Index::new(), Model::default());
        for seq in 1..=6000 {
            step(&mut random, &mut index, &mut model, seq, seed % 2 == 1);
            if seq % 500 == 0 {
                assert_same(&index, &model);
                let other = rebuilt(&index);
                assert_same(&other, &model);
                assert_eq!(other.digest(), index.digest());
            }
        }
    }
}

#[test]
fn every_shape_of_leaf_goes_to_the_device_and_back() {
    let mut shapes = std::collections::BTreeSet::new();
    for seed in 0..200 {
        let mut random = Random(seed);
        let (mut index, mut model) = (Index::new(), Model::default());
        for seq in 1..=1 + random.below(400) {
            step(&mut random, &mut index, &mut model, seq, seed % 2 == 1);
        }
        assert_same(&index, &model);
        if seed % 8 == 0 {
            for chunk in 0..30 {
                index.apply_zero(key(chunk), Seq(10_000), BlockRange::new(0, 256), false, |_| ());
            }
        }
        for slot in 0..index.slot_count() {
            let (_, view) = index.leaf_at(slot).expect("none was forgotten");
            shapes.insert(view.shape as u8);
            let mut payload = vec![0; view.encoded_bytes()];
            view.encode(&mut payload);
            let again = LeafView::decode(&payload).expect("what was encoded decodes");
            let (mut a, mut b) = ([BlockState::Absent; BLOCKS], [BlockState::Absent; BLOCKS]);
            view.unpack(&mut a);
            again.unpack(&mut b);
            assert_eq!(a, b);
            assert_eq!(super::Leaf::from_view(&again).check(), Ok(()));
        }
    }
    assert_eq!(shapes.into_iter().collect::<Vec<_>>(), [0, 1, 2, 3], "the test has met every shape");
}

#[test]
fn a_digest_differs_when_anything_differs() {
    let at = |location| StoredBlock { location: DeviceUnit(location), stored: StoredLength::RAW, checksum: Crc32c(5) };
    let build = |chunk: u64, seq: u64, block: u32, stored: StoredBlock| {
        let mut index = Index::new();
        index.apply_write(key(chunk), Seq(seq), BlockRange::new(block, 1), std::iter::once(stored), |_| ());
        index.digest()
    };
    let other_sum = StoredBlock { checksum: Crc32c(6), ..at(4096) };
    let digests = [
        Index::new().digest(),
        build(0, 1, 0, at(4096)),
        build(1, 1, 0, at(4096)),
        build(0, 2, 0, at(4096)),
        build(0, 1, 1, at(4096)),
        build(0, 1, 0, at(4097)),
        build(0, 1, 0, other_sum),
    ];
    let different: std::collections::BTreeSet<_> = digests.iter().collect();
    assert_eq!(different.len(), digests.len());
}

#[test]
fn only_an_empty_leaf_that_nobody_needs_is_forgotten() {
    let mut index = Index::new();
    let one = BlockRange::new(9, 1);
    let stored = StoredBlock { location: DeviceUnit(4096), stored: StoredLength::RAW, checksum: Crc32c(1) };
    index.apply_write(key(0), Seq(5), one, std::iter::once(stored), |_| ());
    assert!(!index.forget_empty(key(0), Seq(9)), "it holds a block");
    index.apply_zero(key(0), Seq(6), one, true, |_| ());
    assert!(!index.forget_empty(key(0), Seq(9)), "it hides a block");
    index.apply_zero(key(0), Seq(7), one, false, |_| ());
    assert!(!index.forget_empty(key(0), Seq(6)), "a member may still need to hear of it");
    assert_eq!(index.last_seq(key(0)), Seq(7));
    assert!(index.forget_empty(key(0), Seq(7)));
    assert!(!index.forget_empty(key(0), Seq(7)));
    assert_eq!((index.last_seq(key(0)), index.leaf_count()), (Seq(0), 0));
    index.apply_zero(key(1), Seq(1), one, false, |_| ());
    assert_eq!((index.slot_count(), index.leaf_count()), (1, 1), "its slot is used again");
}

#[test]
fn newer_layers_hide_older_ones_block_by_block() {
    let mut index = Index::new();
    let (new, old) = (LeafKey { layer: LayerId(2), ..key(0) }, LeafKey { layer: LayerId(1), ..key(0) });
    let at = |location| StoredBlock { location: DeviceUnit(location), stored: StoredLength::RAW, checksum: Crc32c(1) };
    let four = BlockRange::new(0, 4);
    index.apply_write(old, Seq(1), four, (0..4).map(|i| at(4096 + i * 8)), |_| ());
    index.apply_write(new, Seq(2), BlockRange::new(1, 1), std::iter::once(at(8192)), |_| ());
    index.apply_zero(new, Seq(3), BlockRange::new(2, 1), true, |_| ());
    let mut states = [BlockState::Absent; 4];
    assert!(index.fill(new, four, &mut states));
    assert!(index.fill(old, four, &mut states));
    let stored = |location| BlockState::Stored(at(location));
    assert_eq!(states, [stored(4096), stored(8192), BlockState::Zero, stored(4096 + 24)]);
}

#[test]
fn neighbours_are_read_at_once() {
    let at = |location| {
        BlockState::Stored(StoredBlock {
            location: DeviceUnit(location),
            stored: StoredLength::RAW,
            checksum: Crc32c(1),
        })
    };
    let states = [BlockState::Absent, BlockState::Zero, at(4096), at(4104), at(4120), BlockState::Absent];
    let stored = |location, units| ExtentKind::Stored { location: DeviceUnit(location), units };
    let expected = [
        Extent { first: 0, count: 2, kind: ExtentKind::Zeroes },
        Extent { first: 2, count: 2, kind: stored(4096, 16) },
        Extent { first: 4, count: 1, kind: stored(4120, 8) },
        Extent { first: 5, count: 1, kind: ExtentKind::Zeroes },
    ];
    assert_eq!(extents(&states).collect::<Vec<_>>(), expected);
    assert_eq!(extents(&[]).count(), 0);
}

/// The figures of the design: ≤ 2.5 GiB per TiB of 4 KiB-random data, far less in runs, 24 bytes and a slot for an
/// empty leaf. Counted for 16,384 chunks (16 GiB), stated per TiB.
#[test]
fn memory_per_tebibyte_stays_in_its_limit() {
    const CHUNKS: u32 = 16_384;
    let mut random = Random(1);
    let (mut dense, mut runs, mut empty) = (Index::new(), Index::new(), Index::new());
    for chunk in 0..CHUNKS {
        let key = LeafKey { layer: LayerId(1), chunk: ChunkId(chunk) };
        let whole = BlockRange::new(0, BLOCKS_PER_CHUNK);
        let scattered = |random: &mut Random| StoredBlock {
            location: DeviceUnit(2048 + random.below(1 << 39)),
            stored: StoredLength::RAW,
            checksum: Crc32c(random.next() as u32),
        };
        dense.apply_write(key, Seq(1), whole, (0..256).map(|_| scattered(&mut random)), |_| ());
        let in_order = blocks_at(&mut random, 4096 + u64::from(chunk) * 2048, 256, false);
        runs.apply_write(key, Seq(1), whole, in_order.into_iter(), |_| ());
        empty.apply_zero(key, Seq(1), whole, false, |_| ());
    }
    let gib_per_tib =
        |index: &Index| index.memory_bytes() as f64 / f64::from(CHUNKS) * 1024.0 * 1024.0 / (1u64 << 30) as f64;
    println!("dense  {:.3} GiB per TiB", gib_per_tib(&dense));
    println!("runs   {:.3} GiB per TiB", gib_per_tib(&runs));
    println!("empty  {:.3} GiB per TiB", gib_per_tib(&empty));
    assert!(gib_per_tib(&dense) <= 2.5);
    assert!(gib_per_tib(&runs) <= 1.1);
    assert!(empty.memory_bytes() / CHUNKS as usize <= 64);
}

/// A chunk of one layer goes to another, and is deleted there: what is displaced, and the counts, are those of the
/// model.
#[test]
fn a_merge_gives_what_is_not_hidden_and_tells_what_is() {
    for seed in 0..200 {
        let mut random = Random(seed);
        let (mut index, mut model) = (Index::new(), Model::default());
        for seq in 1..=random.below(120) {
            step(&mut random, &mut index, &mut model, seq, seed % 2 == 1);
        }
        let (from, into) = (key(0), key(1));
        let hides_below = random.below(2) == 0;
        let (mut expected, mut displaced) = (vec![], vec![]);
        for block in 0..256 {
            let below = model.blocks.remove(&(from, block)).unwrap_or_default();
            match model.get(into, block) {
                BlockState::Absent => drop(model.set(into, block, below)),
                _ => expected.extend(below.stored()),
            }
            if !hides_below && model.get(into, block) == BlockState::Zero {
                model.set(into, block, BlockState::Absent);
            }
        }
        model.last_seq.remove(&from);
        model.last_seq.insert(into, Seq(1000));
        index.apply_merge(from, into, Seq(1000), hides_below, |block| displaced.push(block));
        assert_eq!(displaced, expected);
        assert_same(&index, &model);
        for layer in (1..=3).map(LayerId) {
            let of_layer =
                model.blocks.iter().filter(|((key, _), state)| key.layer == layer && state.stored().is_some());
            assert_eq!(index.layer_usage(layer).stored_blocks, of_layer.count() as u64);
        }
        let (mut gone, usage) = (0, index.layer_usage(into.layer));
        let held = (0..256).filter(|block| model.get(into, *block).stored().is_some()).count() as u64;
        index.apply_delete(into, |_| gone += 1);
        assert_eq!(gone, held);
        assert_eq!(index.layer_usage(into.layer).leaves, usage.leaves - 1);
    }
}
