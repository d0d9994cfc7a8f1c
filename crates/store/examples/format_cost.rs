//! What the format and the index cost per operation: `cargo run --release -p cairn-store --example format_cost`.

use std::hint::black_box;
use std::time::Instant;
use store::format::fuzz::samples::{self, BLOCK_SIZE_BYTES, PLACE, ordered_head};
use store::format::record::{RECORD_HEADER_BYTES, blocks_offset_bytes, record_length_bytes};
use store::format::{
    Crc32c, DeviceUnit, EntryHead, EntryKind, LeafData, LeafKey, Record, RecordHeader, RecordKind, RecordSeq,
    StoredBlock, StoredLength,
};
use store::index::Index;
use types::{BlockRange, ChunkId, Incarnation, LayerId, Seq, ShardIndex};

fn measure(name: &str, times: u32, mut run: impl FnMut(u32)) {
    for i in 0..times / 10 {
        run(i);
    }
    let start = Instant::now();
    for i in 0..times {
        run(i);
    }
    println!("{name:48} {:>9.1} ns", start.elapsed().as_nanos() as f64 / f64::from(times));
}

fn encode_record(entries: usize, area: &mut Vec<u8>) {
    let key = samples::key();
    let entries_bytes = entries * EntryHead::write_bytes(1);
    area.resize(blocks_offset_bytes(entries_bytes, BLOCK_SIZE_BYTES), 0);
    let header = RecordHeader {
        kind: RecordKind::Log,
        shard: ShardIndex(0),
        length_bytes: record_length_bytes(entries_bytes, entries * 4096, BLOCK_SIZE_BYTES) as u32,
        entries_bytes: entries_bytes as u32,
        entry_count: entries as u16,
        seq: RecordSeq(3),
        durable_through: RecordSeq(1),
        incarnation: Incarnation(1),
        wall_time_ns: 0,
    };
    measure(&format!("encode a record of {entries} one-block writes"), 200_000 / entries as u32, |_| {
        let mut at = RECORD_HEADER_BYTES;
        for i in 0..entries {
            let head = ordered_head(EntryKind::Write).with_range(BlockRange::new(i as u32, 1));
            at += head.encode_write(std::iter::once((Crc32c(i as u32), StoredLength::RAW)), &mut area[at..]);
        }
        header.encode(&key, &PLACE, BLOCK_SIZE_BYTES, area);
        black_box(&area);
    });
    measure(&format!("decode a record of {entries} one-block writes"), 200_000 / entries as u32, |_| {
        let record = Record::decode(&key, &PLACE, BLOCK_SIZE_BYTES, 4 << 20, black_box(area)).expect("good");
        black_box(record.entries().count());
    });
}

fn index_cost() {
    const CHUNKS: u32 = 4096;
    let whole = BlockRange::new(0, 256);
    let key = |i: u32| LeafKey { layer: LayerId(1), chunk: ChunkId(i.wrapping_mul(0x9e37_79b1) % CHUNKS) };
    let block = |location: u64| StoredBlock {
        location: DeviceUnit(location),
        stored: StoredLength::RAW,
        checksum: Crc32c(location as u32),
    };
    let mut index = Index::new();
    let mut seq = 0;
    measure("index: write 256 blocks in one entry", CHUNKS, |i| {
        seq += 1;
        let first = 4096 + u64::from(i) * 2048;
        index.apply_write(key(i), Seq(seq), whole, (0..256).map(|b| block(first + b * 8)), |_| ());
    });
    let mut random = 1u64;
    let mut next = move || {
        random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        random >> 33
    };
    let mut write = |name: &str, times: u32, index: &mut Index| {
        measure(name, times, |_| {
            seq += 1;
            let (chunk, at, location) = (next() as u32, next() as u32 % 256, 1 << 30 | next());
            index.apply_write(key(chunk), Seq(seq), BlockRange::new(at, 1), std::iter::once(block(location)), |old| {
                black_box(old);
            });
        });
    };
    write("index: random block into leaves of runs", CHUNKS * 8, &mut index);
    write("index: (making them dense)", CHUNKS * 1000, &mut index);
    write("index: random block into dense leaves", CHUNKS * 200, &mut index);
    measure("index: look up one block", 2_000_000, |i| {
        index.lookup(key(i), BlockRange::new(i % 256, 1), |_, state| {
            black_box(state);
        });
    });
    opening_cost(&index);
}

/// What opening does with each leaf of a checkpoint, and what that is for a tebibyte.
fn opening_cost(index: &Index) {
    let mut data = Vec::new();
    let leaves: Vec<_> = (0..index.slot_count())
        .filter_map(|slot| index.leaf_at(slot))
        .map(|(key, view)| {
            let at = data.len();
            (key, at, LeafData::append(&view, &mut data))
        })
        .collect();
    let mut loaded = Index::new();
    measure("opening: check a dense leaf's sum, load it", leaves.len() as u32, |i| {
        let (key, at, leaf) = &leaves[i as usize];
        loaded.load(*key, &leaf.decode(&data[*at..]).expect("as it was encoded"));
    });
    assert_eq!(loaded.digest(), index.digest());
    let (mut blocks, start) = (0u64, Instant::now());
    loaded.for_each_stored(|_, _, block| blocks += block.location.0 & 1);
    let counted = start.elapsed().as_nanos() as f64 / leaves.len() as f64;
    println!("{:48} {counted:>9.1} ns", "opening: walk the blocks of a dense leaf");
    black_box(blocks);
    let gib = loaded.memory_bytes() as f64 / leaves.len() as f64 * 1024.0 * 1024.0 / (1u64 << 30) as f64;
    println!("memory of 1 TiB of random 4 KiB blocks: {gib:.2} GiB");
}

fn main() {
    let mut area = Vec::new();
    for entries in [1, 16, 64] {
        encode_record(entries, &mut area);
    }
    let block = vec![7u8; 4096];
    measure("crc32c of 4 KiB", 1_000_000, |_| {
        black_box(Crc32c::of(black_box(&block)));
    });
    index_cost();
}
