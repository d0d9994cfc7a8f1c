//! A connection that has ended: what was not admitted by then is never done, and what was is before all that comes
//! later.

use crate::common::{Machine, new_volume, payload};
use runtime::channel::cross;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use volume::{IoError, Session, Volume};

/// Large enough for two shards: one on each core.
const DISK_BYTES: u64 = 4 << 30;
const CHUNK: u64 = 1 << 20;
const BLOCK: usize = 4096;
/// One block in each of eight chunks, some of either core.
const OFFSETS: [u64; 8] = [0, CHUNK, 2 * CHUNK, 3 * CHUNK, 4 * CHUNK, 5 * CHUNK, 6 * CHUNK, 7 * CHUNK];

async fn write(volume: &Volume, offset: u64, byte: u8) {
    volume.write(offset, payload(&[byte; BLOCK])).await.expect("written");
}

async fn holds(volume: &Volume, offset: u64, byte: u8) -> bool {
    let read = volume.read(offset, BLOCK as u32).await.expect("readable");
    read.bytes.iter().all(|found| *found == byte)
}

/// A write over two chunks waits for its turn in the first. Its connection ends, and a newer write is done in the
/// second: the old one must not be done after it.
#[test]
fn a_write_over_two_chunks_is_not_done_if_its_connection_ended_before_its_turn() {
    for seed in 0..8 {
        let machine = Machine::with_disk(seed, 2, DISK_BYTES);
        let assembly = machine.start();
        machine.run(async move {
            assembly.create_volume(new_volume("v", 8 << 20)).await.expect("made");
            let volume = assembly.directory().by_name("v").expect("served");
            let session = Session::default();
            let border = CHUNK - BLOCK as u64;
            let ahead = volume.write(border, payload(&[2; BLOCK]));
            let old = volume.of_session(&session).write(border, payload(&[3; 2 * BLOCK]));
            session.end();
            write(&volume, CHUNK, 4).await;
            ahead.await.expect("written");
            assert_eq!(old.await, Err(IoError::Abandoned));
            assert!(holds(&volume, border, 2).await && holds(&volume, CHUNK, 4).await);
            assembly.stop().await;
        });
    }
}

#[test]
fn a_long_range_is_not_zeroed_further_when_its_connection_has_ended() {
    const CHUNKS: u64 = 80;
    let machine = Machine::with_disk(1, 2, DISK_BYTES);
    let assembly = machine.start();
    machine.run(async move {
        assembly.create_volume(new_volume("v", CHUNKS * CHUNK)).await.expect("made");
        let volume = assembly.directory().by_name("v").expect("served");
        for chunk in 0..CHUNKS {
            write(&volume, chunk * CHUNK, 1).await;
        }
        let (session, result) = (Session::default(), Rc::new(RefCell::new(None)));
        let (of_session, answer) = (volume.of_session(&session), result.clone());
        runtime::spawn(async move {
            let zeroed = of_session.write_zeroes(0, CHUNKS * CHUNK).await;
            answer.replace(Some(zeroed));
        });
        runtime::yield_now().await;
        session.end();
        while result.borrow().is_none() {
            runtime::sleep(std::time::Duration::from_millis(1)).await;
        }
        assert_eq!(result.take(), Some(Err(IoError::Abandoned)));
        assert!(holds(&volume, 0, 0).await, "it had begun");
        assert!(holds(&volume, (CHUNKS - 1) * CHUNK, 1).await, "and did not go on");
        assembly.stop().await;
    });
}

/// A write called on one core, a fence there, then a write of the same block on the other: done in this order.
#[test]
fn a_fence_puts_what_was_called_before_it_before_what_other_cores_call_after_it() {
    for seed in 0..2 {
        let machine = Machine::with_disk(seed, 2, DISK_BYTES);
        let assembly = machine.start();
        machine.run(async move {
            assembly.create_volume(new_volume("v", 8 << 20)).await.expect("made");
            // No message: the other core may know of it sooner than of what stands in the queue of messages.
            let go = Arc::new(AtomicU64::new(u64::MAX));
            let (done, mut newer_done) = cross::<()>(1);
            let gone = go.clone();
            assembly.spawn_on(1, move |directory| async move {
                let volume = directory.by_name("v").expect("served");
                for offset in OFFSETS {
                    while gone.load(Ordering::Relaxed) != offset {
                        runtime::yield_now().await;
                    }
                    write(&volume, offset, 2).await;
                    done.send(()).await.expect("somebody waits");
                }
            });
            let directory = assembly.directory();
            let volume = directory.by_name("v").expect("served");
            for offset in OFFSETS {
                // More than the line between two cores takes at once.
                let ahead: Vec<_> = (0..5000).map(|_| volume.read(offset + CHUNK / 2, BLOCK as u32)).collect();
                let old = volume.write(offset, payload(&[1; BLOCK]));
                runtime::spawn(async move { old.await.expect("written") });
                directory.fence().await;
                go.store(offset, Ordering::Relaxed);
                newer_done.recv().await.expect("the other core answers");
                drop(ahead);
                // Behind both: reads are ordered, too.
                assert!(holds(&volume, offset, 2).await, "seed {seed}, offset {offset}");
            }
            assembly.stop().await;
        });
    }
}
