//! The bytes on the device: that they are the ones of `docs/formats.md`, that every bit of them is watched, and that no
//! bytes whatever make a decoder panic or accept what it does not understand.

use store::format::fuzz::samples::{self, BLOCK_SIZE_BYTES, PLACE, Reader, Sample};
use store::format::fuzz::{fuzz_geometry, fuzz_leaf, fuzz_record, fuzz_segment_header, fuzz_superblock};
use store::format::{FormatError, Generation, HashKey, Record, RecordKey, RecordPlace, SegmentHeader, SegmentIndex};
use store::format::{SlotPosition, Superblock};
use types::StoreId;

/// Bytes as text; a run of more than 8 equal bytes as `xx*n`.
fn text_of(bytes: &[u8]) -> String {
    bytes
        .chunk_by(|a, b| a == b)
        .map(|run| {
            let hex = format!("{:02x}", run[0]);
            if run.len() > 8 { format!(" {hex}*{} ", run.len()) } else { hex.repeat(run.len()) }
        })
        .collect::<String>()
        .replace("  ", " ")
        .trim()
        .to_owned()
}

/// Bytes of a sample that the golden file holds: all fields, and not much of what a client wrote.
const GOLDEN_BYTES: usize = 1024;

#[test]
fn golden_bytes() {
    let lines = samples::all()
        .into_iter()
        .map(|sample| format!("{}: {}", sample.name, text_of(&sample.bytes[..sample.bytes.len().min(GOLDEN_BYTES)])));
    let golden = include_str!("golden.txt").lines().filter(|line| !line.starts_with('#'));
    let (found, expected): (Vec<_>, Vec<_>) = (lines.collect(), golden.collect());
    if found != expected {
        found.iter().for_each(|line| println!("{line}"));
        panic!("the bytes on the device have changed: old devices cannot be read; what is above is new");
    }
}

/// Proof 3, for each kind of structure by itself: each single bit flipped is noticed by who reads it.
#[test]
fn every_flipped_bit_is_noticed() {
    println!("{:36} {:>7} {:>7} {:>7} {:>7}", "structure", "bits", "by hash", "by zero", "else");
    for sample in samples::all() {
        assert_eq!(sample.read(&sample.bytes), Ok(()), "{} as written", sample.name);
        let (mut by_hash, mut by_zero, mut else_noticed) = (0, 0, 0);
        let mut bytes = sample.bytes.clone();
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            match sample.read(&bytes) {
                Ok(()) => panic!("{}: bit {} of byte {} is not watched", sample.name, bit % 8, bit / 8),
                Err(FormatError::Hash { .. }) => by_hash += 1,
                Err(FormatError::NotZero { .. }) => by_zero += 1,
                Err(_) => else_noticed += 1,
            }
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        let bits = by_hash + by_zero + else_noticed;
        println!("{:36} {bits:>7} {by_hash:>7} {by_zero:>7} {else_noticed:>7}", sample.name);
    }
}

/// Sector by sector, the rest is what lay there before: zeroes, or another structure of the same kind.
#[test]
fn a_torn_structure_is_noticed() {
    for sample in samples::all() {
        let sectors = sample.bytes.len() / 512;
        for torn in 1..(1u32 << sectors.min(6)) - 1 {
            let mut bytes = sample.bytes.clone();
            for (sector, part) in bytes.chunks_mut(512).enumerate() {
                if torn >> sector.min(5) & 1 == 0 {
                    part.fill(0);
                }
            }
            // A sector that is all zeroes anyway cannot be torn.
            assert!(bytes == sample.bytes || sample.read(&bytes).is_err(), "{} torn {torn:b}", sample.name);
        }
    }
}

#[test]
fn a_record_counts_only_where_it_was_written() {
    let record = samples::all().into_iter().find(|s| s.name == "record, write of 1 block").expect("a sample");
    let read = |key: &RecordKey, place: &RecordPlace| {
        Record::decode(key, place, BLOCK_SIZE_BYTES, 4 << 20, &record.bytes).map(drop)
    };
    let hash = Err(FormatError::Hash { what: "record header" });
    assert_eq!(read(&samples::key(), &PLACE), Ok(()));
    assert_eq!(read(&samples::key(), &RecordPlace { segment: SegmentIndex(6), ..PLACE }), hash);
    assert_eq!(read(&samples::key(), &RecordPlace { generation: Generation(78), ..PLACE }), hash);
    assert_eq!(read(&samples::key(), &RecordPlace { offset_bytes: 8704, ..PLACE }), hash);
    assert_eq!(read(&RecordKey::new(&samples::hash_key(), StoreId(1)), &PLACE), hash);
    assert_eq!(read(&RecordKey::new(&HashKey([0; 32]), samples::STORE), &PLACE), hash);
    let header = samples::all().into_iter().find(|s| s.reader == Reader::SegmentHeader).expect("a sample");
    assert!(SegmentHeader::decode(&samples::key(), SegmentIndex(6), &header.bytes).is_err());
}

/// A byte that a decoder accepts, whatever its value, and whatever the hash says, must come back in what it decoded.
#[test]
fn no_byte_is_ignored() {
    for sample in samples::all() {
        for at in 0..sample.bytes.len().min(2048) {
            for value in [0x00, 0x01, 0x80, 0xff] {
                let mut bytes = sample.bytes.clone();
                bytes[at] = value;
                fuzz_one(&sample, &bytes);
            }
        }
    }
}

fn fuzz_one(sample: &Sample, bytes: &[u8]) {
    match sample.reader {
        Reader::Superblock => fuzz_superblock(bytes),
        Reader::SegmentHeader => fuzz_segment_header(bytes),
        Reader::Record => fuzz_record(bytes),
    }
}

/// splitmix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A few bytes changed, most often where lengths and counts are; sometimes cut, sometimes nothing but noise.
    fn mutate(&mut self, bytes: &mut Vec<u8>) {
        if self.next().is_multiple_of(64) {
            bytes.iter_mut().for_each(|byte| *byte = self.next() as u8);
        }
        for _ in 0..=self.next() % 4 {
            let reach = if self.next().is_multiple_of(2) { bytes.len() } else { bytes.len().min(256) };
            if reach == 0 {
                return;
            }
            let at = self.next() as usize % reach;
            bytes[at] = match self.next() % 4 {
                0 => self.next() as u8,
                1 => bytes[at] ^ 1 << (self.next() % 8),
                2 => bytes[at].wrapping_add(1),
                _ => [0, 1, 0x7f, 0x80, 0xff][self.next() as usize % 5],
            };
        }
        if self.next().is_multiple_of(16) {
            bytes.truncate(self.next() as usize % (bytes.len() + 1));
        }
    }
}

#[test]
fn no_bytes_make_a_decoder_panic() {
    let mut random = Random(7);
    let corpus = samples::all();
    let leaves = samples::leaves();
    for _ in 0..60_000 {
        let sample = &corpus[random.next() as usize % corpus.len()];
        let mut bytes = sample.bytes.clone();
        random.mutate(&mut bytes);
        fuzz_one(sample, &bytes);
        let mut leaf = leaves[random.next() as usize % leaves.len()].1.clone();
        random.mutate(&mut leaf);
        fuzz_leaf(&leaf);
        fuzz_geometry(&leaf);
    }
}

#[test]
fn the_newest_good_superblock_counts_and_a_torn_update_loses_nothing() {
    let position = SlotPosition { back: false, odd: true };
    let sample = samples::all().into_iter().find(|s| s.reader == Reader::Superblock).expect("a sample");
    let older = Superblock::decode(position, &sample.bytes).expect("a good sample");
    let newer = Superblock { write_counter: older.write_counter + 1, ..older.clone() };
    // The device as the two updates leave it, with both slots of the newer one torn in every way at 512 bytes.
    let slot = |superblock: &Superblock, position| {
        let mut bytes = vec![0; 4096];
        superblock.encode(position, &mut bytes);
        bytes
    };
    let before = Superblock { write_counter: older.write_counter - 1, written_at_ns: 3, ..older.clone() };
    let mut whole = 0;
    for torn in 0..256u32 {
        let slots = SlotPosition::ALL.map(|position| {
            if position.odd {
                return Superblock::decode(position, &slot(&older, position));
            }
            let (mut bytes, new) = (slot(&before, position), slot(&newer, position));
            for sector in (0..8).filter(|sector| torn >> sector & 1 == 1) {
                bytes[sector * 512..][..512].copy_from_slice(&new[sector * 512..][..512]);
            }
            Superblock::decode(position, &bytes)
        });
        let found = Superblock::newest(slots).expect("one good slot at least");
        assert!(found == older || found == newer);
        whole += u32::from(found == newer);
    }
    assert!(whole > 0, "whole updates count");
    let foreign = Superblock { store: StoreId(1), ..older.clone() };
    let none = || Err(FormatError::Magic { what: "superblock" });
    assert!(Superblock::newest([none(), Ok(older.clone()), none(), Ok(foreign)]).is_err(), "two stores on one device");
    assert!(Superblock::newest([none(), none(), none(), none()]).is_err());
    let future = FormatError::Version { what: "superblock", found: 2, supported: 1 };
    assert_eq!(Superblock::newest([none(), Ok(older), Err(future.clone()), none()]), Err(future));
}
