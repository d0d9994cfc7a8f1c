//! A volume against a plain byte array: random ranges of any alignment, reads, writes, zeroes, discards and compares,
//! restarts and crashes in between; on one core and on two; plain, compressed, encrypted, and both.

use crate::common::{Machine, Random, first_difference, new_volume, payload, read_all};
use cluster::{Compression, DEFAULT_POOL, SecretKind};
use volume::{Assembly, DataKey, IoError, Secret, Volume};

const SIZE: u64 = 5 << 20;

/// How the volume's blocks are stored.
#[derive(Clone, Copy)]
struct Stored {
    /// One after the other, round by round.
    compression: [Compression; 2],
    encrypted: bool,
}

const PLAIN: Stored = Stored { compression: [Compression::Off; 2], encrypted: false };

/// Makes the volume, or unlocks it.
async fn provide(assembly: &Assembly, stored: Stored, round: usize) {
    let compression = stored.compression[round % 2];
    assembly.set_compression(DEFAULT_POOL, compression).await.expect("the pool is there");
    let secret = Secret::new(SecretKind::KeyFile, vec![7; 32].into()).expect("long enough");
    if round > 0 && stored.encrypted {
        let record = assembly.key_record("model").await.expect("it is encrypted").record;
        let (key, _) = DataKey::unwrap(assembly.cluster_id(), &record, &secret).expect("it opens");
        assembly.unlock(record.id, key).await.expect("unlocked");
    } else if stored.encrypted {
        let place = assembly.new_key_place().await.expect("an id");
        let key = DataKey::from_bytes(std::array::from_fn(|byte| byte as u8));
        let wrap = key.wrap(place, &secret, 1).expect("wrapped");
        assembly.create_encrypted_volume(new_volume("model", SIZE), place, key, wrap).await.expect("made");
    } else if round == 0 {
        assembly.create_volume(new_volume("model", SIZE)).await.expect("made");
    }
}

/// Bytes that shrink, or do not.
fn bytes_to_write(random: &Random, len: usize) -> Vec<u8> {
    if random.below(2) == 0 {
        return random.bytes(len);
    }
    let (pattern, grain) = (random.bytes(1 + random.below(700) as usize), random.bytes(len));
    // Now and then a byte of its own, so that blocks come to all lengths.
    let rare = 1 + random.below(64) as usize;
    (0..len).map(|at| if at % 64 < rare / 8 { grain[at] } else { pattern[at % pattern.len()] }).collect()
}

/// Does one random operation on both.
async fn step(volume: &Volume, model: &mut [u8], random: &Random) {
    let (offset, len) = random.range(SIZE);
    let (from, to) = (offset as usize, (offset + len) as usize);
    match random.below(10) {
        0..=4 => {
            let bytes = bytes_to_write(random, len as usize);
            volume.write(offset, payload(&bytes)).await.expect("written");
            model[from..to].copy_from_slice(&bytes);
        }
        5 => {
            volume.write_zeroes(offset, len).await.expect("zeroed");
            model[from..to].fill(0);
        }
        6 => {
            volume.discard(offset, len).await.expect("discarded");
            let (first, end) = (from.next_multiple_of(4096), to / 4096 * 4096);
            if first < end {
                model[first..end].fill(0);
            }
        }
        7 => {
            let mut wanted = model[from..to].to_vec();
            volume.compare(offset, payload(&wanted)).await.expect("equal");
            let at = random.below(len) as usize;
            wanted[at] ^= 1;
            let differs = volume.compare(offset, payload(&wanted)).await;
            assert_eq!(differs, Err(IoError::CompareFailed(offset + at as u64)));
        }
        _ => {
            let read = volume.read(offset, len as u32).await.expect("readable");
            assert_eq!(first_difference(&read.bytes, &model[from..to]), None, "at {offset}+{len}");
            let whole = offset.is_multiple_of(4096) && len.is_multiple_of(4096);
            let sums: Vec<u32> = read.bytes.chunks(4096).map(crc32c::crc32c).collect();
            assert_eq!(&*read.block_checksums, if whole { &sums[..] } else { &[] });
        }
    }
}

fn against_the_model(seed: u64, cores: usize, stored: Stored, rounds: usize, steps: usize) {
    let machine = Machine::new(seed, cores);
    let mut model = vec![0; SIZE as usize];
    for round in 0..rounds {
        let assembly = machine.start();
        model = machine.run(async move {
            provide(&assembly, stored, round).await;
            let volume = assembly.directory().by_name("model").expect("served");
            let found = read_all(&volume).await;
            assert_eq!(first_difference(&found, &model), None, "round {round} of seed {seed}");
            let random = Random::new(seed.wrapping_mul(1000) + round as u64);
            for _ in 0..steps {
                step(&volume, &mut model, &random).await;
            }
            if round % 2 == 0 {
                assembly.stop().await;
            }
            model
        });
        machine.crash();
    }
}

#[test]
fn one_core_keeps_to_the_model() {
    for seed in 1..=4 {
        against_the_model(seed, 1, PLAIN, 4, 60);
    }
}

#[test]
fn two_cores_keep_to_the_model() {
    for seed in 11..=14 {
        against_the_model(seed, 2, PLAIN, 4, 60);
    }
}

#[test]
fn compressed_and_encrypted_volumes_keep_to_the_model() {
    use Compression::{Lz4, Off, Zstd};
    let kinds = [([Lz4, Lz4], false), ([Zstd, Lz4], false), ([Lz4, Off], false)];
    let encrypted = [([Off, Off], true), ([Lz4, Zstd], true), ([Off, Lz4], true)];
    for (seed, (compression, encrypted)) in (21..).zip(kinds.into_iter().chain(encrypted)) {
        against_the_model(seed, 1 + (seed % 2) as usize, Stored { compression, encrypted }, 4, 60);
    }
}
