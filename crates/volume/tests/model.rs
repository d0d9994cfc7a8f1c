//! A volume against a plain byte array: random ranges of any alignment, reads, writes, zeroes, discards and compares,
//! restarts and crashes in between; on one core and on two.

mod common;

use common::{Machine, Random, first_difference, new_volume, payload, read_all};
use volume::{IoError, Volume};

const SIZE: u64 = 5 << 20;

/// Does one random operation on both.
async fn step(volume: &Volume, model: &mut [u8], random: &Random) {
    let (offset, len) = random.range(SIZE);
    let (from, to) = (offset as usize, (offset + len) as usize);
    match random.below(10) {
        0..=4 => {
            let bytes = random.bytes(len as usize);
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

fn against_the_model(seed: u64, cores: usize, rounds: usize, steps: usize) {
    let machine = Machine::new(seed, cores);
    let mut model = vec![0; SIZE as usize];
    for round in 0..rounds {
        let assembly = machine.start();
        model = machine.run(async move {
            if round == 0 {
                assembly.create_volume(new_volume("model", SIZE)).await.expect("made");
            }
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
        against_the_model(seed, 1, 4, 60);
    }
}

#[test]
fn two_cores_keep_to_the_model() {
    for seed in 11..=14 {
        against_the_model(seed, 2, 4, 60);
    }
}
