//! Members of a group are compared by what their leaves say, wherever it lies and however it came there.

use crate::common::members::*;
use crate::common::*;
use store::format::{Codec, StoredLength};
use store::{BlockCoding, Entry, EntryKind, ReadError, Shard};
use types::*;

const LEAVES: [(LayerId, ChunkId); 4] =
    [(LAYER, ChunkId(0)), (LAYER, ChunkId(1)), (LAYER, ChunkId(2)), (LAYER, ChunkId(9))];

fn digest(shard: &Shard) -> u128 {
    shard.group_digest(LEAVES).expect("all of it is known")
}

fn zero(seq: u64, chunk: u32, range: BlockRange, hides_below: bool) -> Entry {
    entry(1, seq, ChunkId(chunk), EntryKind::Zero { range, hides_below })
}

/// One block of 512 bytes as stored, under a codec.
fn coded(codec: Codec) -> EntryKind {
    let bytes = bytes_of(ChunkId(2), BlockRange::new(0, 1), 5).slice(0..512);
    let coding = BlockCoding::new(KeyId(0), Some(&[StoredLength::new(1, codec)]));
    EntryKind::Write { range: BlockRange::new(7, 1), bytes, coding }
}

/// Chunk 0: blocks 0 to 2 and a zero that hides; chunk 1: once written, nothing is left; chunk 2: a coded block.
async fn written(shard: &Shard) {
    let (one, gone) = (BlockRange::new(3, 1), BlockRange::new(0, 1));
    let writes = [start(1, 1), write(1, 2, 0, 0), write(1, 3, 0, 1), write(1, 4, 0, 2), write(1, 5, 1, 0)];
    prepare(shard, writes).await;
    prepare(shard, [zero(6, 0, one, true), zero(7, 1, gone, false)]).await;
    prepare(shard, [entry(1, 8, ChunkId(2), coded(Codec::Lz4))]).await;
    assert!(shard.commit(GROUP, Seq(8)).is_done());
}

#[test]
fn equal_contents_have_equal_digests_however_they_came() {
    let rig = rig(90);
    let expected = rig.run(async {
        let (shard, _) = open_whole().await;
        assert_eq!((digest(&shard), shard.live_blocks(LEAVES)), (0, 0));
        written(&shard).await;
        assert_eq!(shard.live_blocks(LEAVES), 4);
        assert_eq!(shard.live_blocks([LEAVES[0], LEAVES[3]]), 3);
        let (first, rest) = LEAVES.split_at(1);
        let of = |leaves: &[_]| shard.group_digest(leaves.iter().copied()).expect("known");
        assert_eq!(of(first).wrapping_add(of(rest)), digest(&shard), "parts add up");
        // Written once more as it was: other places, another last entry.
        let again = entry(
            1,
            9,
            ChunkId(0),
            EntryKind::write(BlockRange::new(0, 1), bytes_of(ChunkId(0), BlockRange::new(0, 1), 2)),
        );
        let before = digest(&shard);
        prepare(&shard, [again]).await;
        shard.commit(GROUP, Seq(9));
        assert_eq!(digest(&shard), before);
        before
    });
    // Through a restart, and as another member has it that was given images.
    lose_power(&rig);
    let found = rig.run(async {
        let (shard, _) = open_whole().await;
        shard.commit(GROUP, Seq(9));
        digest(&shard)
    });
    assert_eq!(found, expected);
    let other = crate::common::members::rig(91);
    let found = other.run(async {
        let (shard, _) = open_whole().await;
        let install = |chunk: u32, kind| entry(0, 0, ChunkId(chunk), kind);
        let blocks = |block: u32| {
            let (range, version) = (BlockRange::new(block, 1), u64::from(block) + 2);
            let (bytes, coding) = (bytes_of(ChunkId(0), range, version), BlockCoding::PLAIN);
            install(0, EntryKind::Install { range, bytes, coding })
        };
        prepare(&shard, [install(0, EntryKind::InstallBegin { keeps: false }), blocks(2), blocks(0)]).await;
        let untrusted = ReadError::Untrusted { layer: LAYER, chunk: ChunkId(0) };
        assert_eq!(shard.group_digest(LEAVES), Err(untrusted));
        let hides = EntryKind::InstallZero { range: BlockRange::new(3, 1), hides_below: true };
        let EntryKind::Write { range, bytes, coding } = coded(Codec::Lz4) else { unreachable!("it is a write") };
        let rest = [blocks(1), install(0, hides), install(2, EntryKind::InstallBegin { keeps: false })];
        prepare(&shard, rest.into_iter().chain([install(2, EntryKind::Install { range, bytes, coding })])).await;
        let end = |chunk| install(chunk, EntryKind::InstallEnd { last_seq: Seq(77) });
        prepare(&shard, [end(0), end(2)]).await;
        assert_eq!(shard.live_blocks(LEAVES), 4);
        digest(&shard)
    });
    assert_eq!(found, expected);
}

#[test]
fn other_contents_have_other_digests() {
    let rig = rig(92);
    rig.run(async {
        let (shard, _) = open_whole().await;
        written(&shard).await;
        let mut seen = vec![digest(&shard)];
        let (range, hidden) = (BlockRange::new(2, 1), BlockRange::new(3, 1));
        let changes = [
            write(1, 9, 0, 1),                            // another version
            zero(10, 0, range, true),                     // zeroes instead of a block
            zero(11, 0, range, false),                    // nothing instead of zeroes
            zero(12, 0, hidden, false),                   // the same where none was stored
            entry(1, 13, ChunkId(2), coded(Codec::Zstd)), // the same bytes, of another codec
            write(1, 14, 9, 0),                           // in a leaf that was not there
            write(1, 15, 1, 1),                           // in one that was empty
        ];
        for (seq, change) in (9..).zip(changes) {
            prepare(&shard, [change]).await;
            assert!(shard.commit(GROUP, Seq(seq)).is_done());
            let now = digest(&shard);
            assert!(!seen.contains(&now), "entry {seq} changed nothing");
            seen.push(now);
        }
        // What is not asked for does not count.
        prepare(&shard, [write(1, 16, 20, 0)]).await;
        assert!(shard.commit(GROUP, Seq(16)).is_done());
        assert_eq!(digest(&shard), seen[seen.len() - 1]);
    });
}
