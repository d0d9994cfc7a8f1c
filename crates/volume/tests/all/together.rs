//! Commands that run at the same time: what overlaps is done one after the other, on one core and across cores; and
//! when the machine loses its power in the middle, what was acknowledged is there and nothing is half there.

use crate::common::{Machine, Random, new_volume, payload, read_all};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;
use volume::{Directory, Volume};

const CHUNK: u64 = 1 << 20;
const BLOCK: usize = 4096;

/// A range whose blocks all carry `stamp`.
fn stamped(stamp: u64, len: usize) -> Vec<u8> {
    stamp.to_le_bytes().iter().copied().cycle().take(len).collect()
}

/// The one stamp that all blocks of the range carry.
fn stamp_of(bytes: &[u8]) -> Option<u64> {
    let stamp = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"));
    bytes.chunks(8).all(|part| *part == stamp.to_le_bytes()).then_some(stamp)
}

/// Runs `task` once on each core at the same time, until all are done.
fn on_cores(machine: &Machine, make: impl Fn(usize, Directory) -> Pin + Send + Clone + 'static) {
    let assembly = machine.start();
    let cores = machine.cores;
    machine.run(async move {
        if assembly.volumes().is_empty() {
            assembly.create_volume(new_volume("v", 8 << 20)).await.expect("made");
        }
        let (done, mut all_done) = runtime::channel::cross(cores);
        for core in 0..cores {
            let (make, done) = (make.clone(), done.clone());
            assembly.spawn_on(core, move |directory| async move {
                make(core, directory).await;
                done.send(()).await.expect("somebody waits");
            });
        }
        for _ in 0..cores {
            all_done.recv().await.expect("every core ends");
        }
        assembly.stop().await;
    });
}

type Pin = std::pin::Pin<Box<dyn Future<Output = ()>>>;

/// Several tasks of each core write and read ranges across the same chunk boundaries. Whoever reads sees one write,
/// whole.
async fn write_across_chunks(core: usize, directory: Directory) {
    let volume = directory.by_name("v").expect("served");
    let running = Rc::new(Cell::new(0));
    for task in 0..6_u64 {
        let (volume, running) = (volume.clone(), running.clone());
        running.set(running.get() + 1);
        runtime::spawn(async move {
            let random = Random::new(core as u64 * 100 + task);
            for round in 0..30 {
                // The same 16 KiB around one of three boundaries; every other task shifts by a block.
                let boundary = CHUNK * (1 + random.below(3));
                let offset = boundary - 2 * BLOCK as u64 + (task % 2) * BLOCK as u64;
                if random.below(3) == 0 {
                    let read = volume.read(offset, 2 * BLOCK as u32).await.expect("readable");
                    // Both blocks lie on different chunks for odd tasks, and every write covers both.
                    assert!(task % 2 == 0 || stamp_of(&read.bytes).is_some(), "half of one write, half of another");
                } else {
                    let stamp = (1 + core as u64) << 32 | task << 16 | round;
                    let (from, len) = (boundary - 2 * BLOCK as u64, 4 * BLOCK);
                    volume.write(from, payload(&stamped(stamp, len))).await.expect("written");
                }
            }
            running.set(running.get() - 1);
        });
    }
    while running.get() > 0 {
        runtime::sleep(Duration::from_millis(1)).await;
    }
    for boundary in 1..=3 {
        let read = volume.read(boundary * CHUNK - 2 * BLOCK as u64, 4 * BLOCK as u32).await.expect("readable");
        assert!(stamp_of(&read.bytes).is_some(), "the last write is there, whole");
    }
}

#[test]
fn commands_across_chunks_are_ordered_and_never_wait_for_each_other_in_a_ring() {
    for seed in 0..8 {
        for cores in [1, 2, 3] {
            let machine = Machine::new(seed, cores);
            on_cores(&machine, |core, directory| Box::pin(write_across_chunks(core, directory)));
        }
    }
}

/// A unit of 64 KiB: the largest write that is all or nothing.
const UNIT: usize = 64 << 10;
const UNITS: usize = 40;

/// What is known of each unit.
#[derive(Clone, Copy, Default)]
struct Known {
    acknowledged: u64,
    issued: u64,
}

/// Writes to random units, forever: a task owns its units, so that stamps rise.
async fn write_units(volume: Volume, task: usize, tasks: usize, known: Rc<RefCell<Vec<Known>>>, seed: u64) {
    let random = Random::new(seed * 1000 + task as u64);
    loop {
        let unit = random.below((UNITS / tasks) as u64) as usize * tasks + task;
        let stamp = {
            let mut known = known.borrow_mut();
            known[unit].issued += 1;
            known[unit].issued
        };
        let bytes = stamped(stamp, UNIT);
        volume.write((unit * UNIT) as u64, payload(&bytes)).await.expect("written");
        known.borrow_mut()[unit].acknowledged = stamp;
        if random.below(8) == 0 {
            runtime::sleep(Duration::from_micros(random.below(3000))).await;
        }
    }
}

fn power_losses(seed: u64, cores: usize, losses: usize) {
    let machine = Machine::new(seed, cores);
    let known = Rc::new(RefCell::new(vec![Known::default(); UNITS]));
    let random = Random::new(seed);
    for loss in 0..losses {
        let assembly = machine.start();
        let before = known.clone();
        let tasks = 8;
        let volume = machine.run(async move {
            if loss == 0 {
                assembly.create_volume(new_volume("v", (UNITS * UNIT) as u64)).await.expect("made");
            }
            let volume = assembly.directory().by_name("v").expect("served");
            let all = read_all(&volume).await;
            for (unit, bytes) in all.chunks(UNIT).enumerate() {
                let Known { acknowledged, issued } = before.borrow()[unit];
                let found = stamp_of(bytes).unwrap_or_else(|| panic!("seed {seed}, loss {loss}: unit {unit} is torn"));
                assert!(
                    (acknowledged..=issued).contains(&found),
                    "seed {seed}, loss {loss}: unit {unit} has {found}, not {acknowledged} to {issued}"
                );
                // What was read is what it is from now on.
                before.borrow_mut()[unit] = Known { acknowledged: found, issued };
            }
            volume
        });
        let writers = known.clone();
        machine.node.spawn(0, async move {
            for task in 0..tasks {
                runtime::spawn(write_units(volume.clone(), task, tasks, writers.clone(), seed * 100 + loss as u64));
            }
        });
        machine.world.run_for(Duration::from_micros(200 + random.below(30_000)));
        machine.crash();
    }
    let written: u64 = known.borrow().iter().map(|known| known.acknowledged).sum();
    assert!(written > losses as u64, "the workload wrote next to nothing: {written}");
}

#[test]
fn what_was_acknowledged_survives_power_loss_and_nothing_is_torn() {
    for seed in 1..=6 {
        power_losses(seed, 1 + seed as usize % 2, 25);
    }
}

/// Polls a future once and drops it.
async fn begin_and_drop<F: Future>(future: F) {
    let mut future = Box::pin(future);
    std::future::poll_fn(|cx| {
        assert!(future.as_mut().poll(cx).is_pending(), "nothing is durable at once");
        std::task::Poll::Ready(())
    })
    .await;
}

#[test]
fn a_write_that_was_dropped_keeps_its_place_in_the_order() {
    for cores in [1, 2] {
        let machine = Machine::new(3, cores);
        let assembly = machine.start();
        machine.run(async move {
            assembly.create_volume(new_volume("v", 8 << 20)).await.expect("made");
            let volume = assembly.directory().by_name("v").expect("served");
            // Once its group knows of the head, a write is asked for when it is polled first.
            for chunk in 0..8 {
                volume.write(chunk * CHUNK, payload(&[0; BLOCK])).await.expect("written");
            }
            for round in 1..41_u8 {
                let offset = u64::from(round % 8) * CHUNK;
                begin_and_drop(volume.write(offset, payload(&[round; BLOCK]))).await;
                // Part of the same block: it is read, changed and written after the first write, or that would vanish.
                volume.write(offset + 8, payload(&[0xee; 8])).await.expect("written");
                let read = volume.read(offset, BLOCK as u32).await.expect("readable");
                let mut expected = [round; BLOCK];
                expected[8..16].fill(0xee);
                assert_eq!(&*read.bytes, &expected[..], "round {round}");
            }
            // Dropped between two chunks, in every state: nothing is wedged.
            for round in 0..40_u64 {
                let offset = (1 + round % 6) * CHUNK - BLOCK as u64;
                let write = volume.write(offset, payload(&[7; 2 * BLOCK]));
                let _ = runtime::timeout(Duration::from_micros(round * 5), write).await;
            }
            let whole = volume.write(0, payload(&[9; 1 << 20])).await;
            assert_eq!(whole, Ok(()));
            for chunk in 0..8 {
                volume.write(chunk * CHUNK, payload(&[5; 1 << 20])).await.expect("written");
            }
            assert_eq!(stamp_of(&read_all(&volume).await), Some(0x0505_0505_0505_0505));
        });
    }
}
