//! Counters that many clients raise with compare-and-write and nothing else: each raise that is reported counts once.

use super::instant::{SEVERAL_SHARDS_BYTES, steady};
use super::{Machine, Random, new_volume, payload};
use runtime::channel::cross;
use std::time::Duration;
use volume::{CompareAndWriteError, IoError, Volume};

const CHUNK: u64 = 1 << 20;
const CLIENTS: u64 = 4;
const RAISES: u64 = 12;
/// Where a counter begins and how many bytes it fills: part of a block, in one chunk of either core, over two chunks.
const COUNTERS: [(u64, usize); 4] =
    [(512, 512), (CHUNK + 8192, 4096), (2 * CHUNK - 512, 1024), (3 * CHUNK - 65536, 131_072)];

/// `value`, as many bytes wide as the counter: all of them must be there.
fn image(value: u64, len: usize) -> Vec<u8> {
    value.to_le_bytes().repeat(len / 8)
}

async fn read(volume: &Volume, offset: u64, len: usize) -> u64 {
    let bytes = volume.read(offset, len as u32).await.expect("readable").bytes;
    let value = u64::from_le_bytes(bytes[..8].try_into().expect("8 bytes"));
    assert!(bytes[..] == image(value, len)[..], "a counter that is written in part");
    value
}

/// Raises the counter once; whether this client did it.
async fn raise(volume: &Volume, offset: u64, len: usize) -> bool {
    let value = read(volume, offset, len).await;
    let (expected, next) = (payload(&image(value, len)), payload(&image(value + 1, len)));
    match volume.compare_and_write(offset, expected, next).await {
        Ok(()) => true,
        Err(CompareAndWriteError::Compare(IoError::CompareFailed(at))) => {
            assert!((offset..offset + len as u64).contains(&at), "byte {at}");
            false
        }
        Err(error) => panic!("{error}"),
    }
}

/// Clients on two cores raise each counter until each has raised it so often; no raise may be lost.
pub fn no_raise_is_lost(seed: u64) {
    let machine = Machine::with_disk(seed, 2, 4 << 30);
    let assembly = machine.start();
    machine.run(async move {
        assembly.create_volume(new_volume("v", 8 << 20)).await.expect("made");
        for (offset, len) in COUNTERS {
            let (done, mut all_done) = cross::<()>(1);
            for client in 0..CLIENTS {
                let done = done.clone();
                assembly.spawn_on(client as usize % 2, move |directory| async move {
                    let volume = directory.by_name("v").expect("served");
                    let mut raised = 0;
                    while raised < RAISES {
                        raised += u64::from(raise(&volume, offset, len).await);
                    }
                    drop(done);
                });
            }
            drop(done);
            while all_done.recv().await.is_ok() {}
            let volume = assembly.directory().by_name("v").expect("served");
            assert_eq!(read(&volume, offset, len).await, CLIENTS * RAISES, "raises were lost at {offset}, seed {seed}");
        }
        assembly.stop().await;
    });
}

/// A compare-and-write over two chunks of two cores while the volume is rolled back: whichever of the two comes first,
/// what the snapshot holds is there afterwards, for it never holds what is compared with; every other time half of it.
pub fn is_before_or_after_a_rollback(seed: u64) {
    let machine = Machine::with_disk(seed, 2, 4 << 30);
    let assembly = machine.start();
    machine.run(async move {
        assembly.create_volume(new_volume("v", 8 << 20)).await.expect("made");
        let volume = assembly.directory().by_name("v").expect("served");
        let (random, len) = (Random::new(seed), 16384);
        // One half of what the snapshot holds, in this chunk or that, is what is compared with.
        let image = |round: u64, what: u64| {
            let mut bytes = image(round << 8 | what, len);
            let of_snapshot = image(round << 8 | 1, len);
            match (what, round % 4) {
                (2, 1) => bytes[len / 2..].copy_from_slice(&of_snapshot[len / 2..]),
                (2, 3) => bytes[..len / 2].copy_from_slice(&of_snapshot[..len / 2]),
                _ => {}
            }
            payload(&bytes)
        };
        for round in 0..24 {
            let offset = (1 + round % 7) * CHUNK - 8192;
            volume.write(offset, image(round, 1)).await.expect("written");
            assembly.create_snapshot("v", "s").await.expect("taken");
            volume.write(offset, image(round, 2)).await.expect("written");
            let (done, mut ended) = cross::<bool>(1);
            let swap = volume.compare_and_write(offset, image(round, 2), image(round, 3));
            runtime::spawn(async move {
                let _ = done.send(swap.await.is_ok()).await;
            });
            runtime::sleep(Duration::from_micros(random.below(400))).await;
            assembly.roll_back("v", "s").await.expect("rolled back");
            let swapped = ended.recv().await.expect("told");
            let read = volume.read(offset, len as u32).await.expect("readable").bytes;
            let expected = image(round, 1).bytes;
            assert!(read[..] == expected[..], "round {round}, swapped {swapped}: written after the rollback");
            assembly.delete_snapshot("v", "s").await.expect("deleted");
        }
        assembly.stop().await;
    });
}

/// Compare-and-writes over two chunks of two cores, one after the other begun while a snapshot is taken whose layer ends at once.
/// Of the chunks one is read from a slow device and the other, of zeroes, is not: one look may come before the snapshot and the
/// other after it, when the layer that was on top before is merged away. What is reported as written is there.
pub fn a_snapshot_takes_nothing_back(seed: u64) {
    const SWAPS: u64 = 200;
    let machine = steady(seed, 2, SEVERAL_SHARDS_BYTES, 50_000_000);
    let assembly = machine.start();
    machine.run(async move {
        assembly.create_volume(new_volume("v", (SWAPS + 1) << 20)).await.expect("made");
        let volume = assembly.directory().by_name("v").expect("served");
        // From now on all groups know the head: a snapshot takes as long as the next one.
        assembly.create_snapshot("v", "first").await.expect("taken");
        for border in 1..=SWAPS {
            volume.write(border * CHUNK - 4096, payload(&[1; 4096])).await.expect("written");
        }
        let (done, mut ended) = cross::<(u64, bool)>(SWAPS as usize);
        assembly.spawn_on(1, move |directory| async move {
            let volume = directory.by_name("v").expect("served");
            for border in 1..=SWAPS {
                let (expected, next) = ([vec![1; 4096], vec![0; 4096]].concat(), vec![2; 8192]);
                let swap = volume.compare_and_write(border * CHUNK - 4096, payload(&expected), payload(&next));
                let done = done.clone();
                runtime::spawn(async move {
                    let swapped = swap.await.is_ok();
                    done.send((border, swapped)).await.expect("somebody waits");
                });
                runtime::sleep(Duration::from_nanos(500)).await;
            }
        });
        runtime::sleep(Duration::from_micros(20 + seed * 10)).await;
        assembly.create_snapshot("v", "s").await.expect("taken");
        assembly.delete_snapshot("v", "s").await.expect("deleted");
        while let Ok((border, swapped)) = ended.recv().await {
            let read = volume.read(border * CHUNK - 4096, 8192).await.expect("readable").bytes;
            assert!(swapped, "nobody else writes at border {border}");
            assert!(read.iter().all(|byte| *byte == 2), "border {border}: reported as written, and not there");
        }
    });
}
