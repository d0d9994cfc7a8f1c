//! Blocks of any stored length: cleaned, counted, opened again; and what is read in one go though it lies apart.

use crate::common::*;
use runtime::IoBuf;
use runtime::sim::{DiskOptions, Random};
use store::{Content, EntryKind, Want};
use types::*;

const GROUP: GroupId = GroupId(1);
/// Chunks that fill the device so far that the cleaner has to work.
const CHUNKS: u64 = 230;

fn coded_rig(seed: u64, block_size_bytes: u32) -> (Rig, Client) {
    let rig = Rig::formatted(seed, 256 * MIB, DiskOptions { block_size_bytes, ..DiskOptions::default() });
    let model = model_of(1);
    model.borrow_mut().coded = true;
    let client = reopen(&rig, &model);
    (rig, client)
}

/// Bytes that the model's blocks take.
fn stored_bytes(client: &Client) -> u64 {
    let mut model = client.model.borrow_mut();
    let blocks = model.groups.get_mut(&GROUP).expect("the one group").content();
    let stored = blocks.iter().filter(|(_, version)| **version > 0);
    stored.map(|((_, number), version)| coded_length(*number, *version).bytes() as u64).sum()
}

#[test]
fn the_cleaner_moves_blocks_of_any_length() {
    for (seed, block_size_bytes) in [(31, 512), (32, 4096)] {
        let (rig, client) = coded_rig(seed, block_size_bytes);
        let (model, shard) = (client.model.clone(), client.shard.clone());
        rig.run(async move {
            for chunk in 0..CHUNKS as u32 {
                for part in 0..8 {
                    let range = BlockRange::new(32 * part, 32);
                    client.write_with_room(GROUP, ChunkId(chunk), range).await.expect("there is room");
                    assert!(client.below(16).await);
                }
            }
            let random = Random::new(seed);
            for _ in 0..20_000 {
                let chunk = ChunkId(random.below(CHUNKS) as u32);
                let range = BlockRange::new(random.below(253) as u32, 1 + random.below(3) as u32);
                client.write_with_room(GROUP, chunk, range).await.expect("there is room");
                assert!(client.below(64).await);
            }
            client.settle().await;
            client.verify().await;
            assert_eq!(client.shard.statistics().live_bytes, stored_bytes(&client));
        });
        let statistics = shard.statistics();
        assert!(statistics.segments_cleaned > 5 && statistics.cleaning_errors == 0, "{statistics:?}");
        drop(shard);
        rig.node.restart();
        let client = reopen(&rig, &model);
        let usage = client.shard.layer_usage(LAYER);
        assert_eq!(usage.stored_units * 512, stored_bytes(&client));
        assert_eq!(client.shard.statistics().live_bytes, stored_bytes(&client));
        rig.run(async move { client.verify().await });
    }
}

/// A read of compressed blocks asks the device for whole blocks of it, wherever the stored bytes begin.
#[test]
fn any_part_of_a_chunk_of_compressed_blocks_can_be_read() {
    for block_size_bytes in [512, 4096] {
        let (rig, client) = coded_rig(33, block_size_bytes);
        rig.run(async move {
            for first in (0..256).step_by(5) {
                let range = BlockRange::new(first, 5.min(256 - first));
                client.write(GROUP, ChunkId(1), range).expect("there is room");
            }
            client.ask(GROUP, Op::Zero(ChunkId(1), BlockRange::new(100, 9))).expect("there is room");
            client.settle().await;
            let random = Random::new(33);
            for _ in 0..500 {
                let first = random.below(256) as u32;
                let range = BlockRange::new(first, 1 + random.below(u64::from(256 - first)) as u32);
                read_part(&client, range).await;
            }
        });
    }
}

async fn read_part(client: &Client, range: BlockRange) {
    let versions = client.model.borrow_mut().groups.get_mut(&GROUP).expect("the one group").content().clone();
    let want = if range.count.is_multiple_of(2) { Want::Plain } else { Want::Stored };
    let buf = IoBuf::new(range.bytes());
    let (read, _) = client.shard.read_stored(&[LAYER], ChunkId(1), range, want, buf, &mut Vec::new()).await;
    let Content::Stored(mut stored) = read.expect("it can be read") else {
        let plain = |number| match versions[&(ChunkId(1), number)] {
            0 => true,
            version => want == Want::Plain && coded_length(number, version).codec() == store::format::Codec::Raw,
        };
        assert!((range.first..range.end() as u16).all(plain), "{range:?} is not plain");
        return;
    };
    let (mut number, mut expected) = (range.first, vec![0; BLOCK_BYTES]);
    stored.for_each(|found| {
        let version = versions[&(ChunkId(1), number)];
        fill_block(&mut expected, ChunkId(1), number, version);
        match found {
            None => assert_eq!(version, 0, "block {number}"),
            Some((length, _, bytes)) => {
                assert_eq!(length, coded_length(number, version));
                assert!(bytes == &expected[..length.bytes()], "block {number} of {range:?}");
            }
        }
        number += 1;
    });
    assert_eq!(u32::from(number), range.end());
}

/// Blocks written one by one, in the order that `place` gives, between blocks of another chunk.
async fn write_apart(client: &Client, between: u32, place: impl Fn(u32) -> u32) {
    for block in 0..256 {
        client.write(GROUP, ChunkId(0), BlockRange::new(place(block), 1)).expect("there is room");
        let others = BlockRange::new(0, between);
        client.write(GROUP, ChunkId(1), others).expect("there is room");
        assert!(client.below(64).await);
    }
    client.settle().await;
}

/// Device reads for the whole of chunk 0.
async fn device_reads(client: &Client) -> u64 {
    let before = client.shard.statistics().device_reads;
    let (range, mut sums) = (BlockRange::new(0, 256), Vec::new());
    let (read, bytes) = client.shard.read(&[LAYER], ChunkId(0), range, IoBuf::new(range.bytes()), &mut sums).await;
    read.expect("it can be read");
    let reads = client.shard.statistics().device_reads - before;
    for (number, block) in (0..).zip(bytes.chunks_exact(BLOCK_BYTES)) {
        assert_eq!(sums[usize::from(number)], crc32c::crc32c(block));
        assert_ne!(version_of(block, ChunkId(0), number), 0, "block {number}");
    }
    client.verify().await;
    reads
}

#[test]
fn neighbours_within_16_kib_are_one_device_read() {
    // In whatever order they were written: what counts is the order on the device.
    for place in [|block| block, |block: u32| block * 77 % 256] {
        let (rig, client) = fresh(34, 256 * MIB, 1);
        let reads = rig.run(async move {
            write_apart(&client, 3, place).await;
            device_reads(&client).await
        });
        assert!(reads < 20, "{reads} device reads for a chunk whose blocks lie 12 KiB apart");
    }
    let (rig, client) = fresh(35, 256 * MIB, 1);
    let reads = rig.run(async move {
        write_apart(&client, 8, |block| block).await;
        device_reads(&client).await
    });
    assert!(reads > 200, "{reads} device reads for a chunk whose blocks lie 32 KiB apart");
}

/// A plain entry beside compressed ones, in one record: its blocks begin anywhere.
#[test]
fn plain_and_compressed_blocks_share_a_record() {
    for block_size_bytes in [512, 4096] {
        let (rig, client) = coded_rig(36, block_size_bytes);
        let model = client.model.clone();
        rig.run(async move {
            for round in 0..40_u32 {
                client.write(GROUP, ChunkId(0), BlockRange::new(round, 3)).expect("there is room");
                // 128 KiB, which would be written from where it lies if it began at a block of the device.
                client.model.borrow_mut().coded = false;
                client.write(GROUP, ChunkId(1), BlockRange::new(32 * (round % 8), 32)).expect("there is room");
                client.model.borrow_mut().coded = true;
                assert!(client.below(6).await);
            }
            client.settle().await;
            let range = BlockRange::new(0, 256);
            let buf = IoBuf::new(range.bytes());
            let (read, bytes) = client.shard.read(&[LAYER], ChunkId(1), range, buf, &mut Vec::new()).await;
            read.expect("nothing of it was compressed");
            let numbers = (0..).zip(bytes.chunks_exact(BLOCK_BYTES));
            assert!(numbers.clone().all(|(number, block)| version_of(block, ChunkId(1), number) > 0));
        });
        assert!(model.borrow().next_version == 80);
    }
}

/// What an entry of compressed blocks takes is what its blocks take, and not more.
#[test]
fn stored_lengths_must_be_those_of_the_bytes() {
    let range = BlockRange::new(0, 8);
    let EntryKind::Write { bytes, .. } = coded_write(ChunkId(0), range, 5) else { unreachable!("a write") };
    let expected: usize = (0..8).map(|number| coded_length(number, 5).bytes()).sum();
    assert_eq!(bytes.len(), expected);
    assert!(expected < range.bytes());
}
