//! What a snapshot promises to who writes while it is taken: it is one instant, and stays what it was.

use super::{DISK, DISK_BYTES, Machine, new_volume, payload};
use cluster::{Compression, DEFAULT_POOL, SimMap};
use runtime::TaskHandle;
use runtime::channel::cross;
use runtime::sim::{DiskOptions, Latency, NodeOptions, World};
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;
use volume::{Assembly, Volume};

/// Enough for four shards, so that each core has groups of its own; a smaller device is one core's.
pub const SEVERAL_SHARDS_BYTES: u64 = (1 << 30) + (64 << 20);
const WRITERS: u64 = 8;
const CHUNKS_EACH: u64 = 3;
/// Moments of a snapshot at which a core stops, and the time from one to the next: about a turn of a core.
const MOMENTS: u64 = 300;
const MOMENT_NS: u64 = 500;

fn served(assembly: &Assembly, name: &str) -> Volume {
    assembly.directory().by_name(name).expect("served")
}

/// A machine with a disk that is always as fast: what a test arranges in time stays so.
pub fn steady(seed: u64, cores: usize, disk_bytes: u64, read_ns: u64) -> Machine {
    let constant = |base_ns| Latency { base_ns, spread_ns: 0, per_kib_ns: 0, slow: 0, slow_ns: 0 };
    let options = DiskOptions {
        read: constant(read_ns),
        write: constant(10_000),
        flush: constant(10_000),
        ..DiskOptions::default()
    };
    let world = World::new(seed);
    let node = world.add_node(cores, NodeOptions::default());
    node.add_disk(DISK, disk_bytes, options);
    Machine { world, node, map: SimMap::new(), cores }
}

/// Whoever writes block after block, each one when the one before has returned, finds in a snapshot what was written up
/// to one instant: never a later block without an earlier one. The blocks are on two cores and so are the writers; the
/// second core stands still for a while from some moment on while the snapshot is taken, whichever that is.
pub fn is_one_on_all_cores(seed: u64) {
    let machine = steady(seed, 2, SEVERAL_SHARDS_BYTES, 10_000);
    let assembly = machine.start();
    let (asked, over) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(false)));
    let (asks, ends) = (asked.clone(), over.clone());
    machine.node.spawn(0, async move {
        take_snapshots_of_writers(&assembly, &asks).await;
        ends.set(true);
    });
    for moment in 0..MOMENTS {
        machine.world.run_until(|| asked.get() > moment).expect("it is asked for");
        machine.world.run_for(Duration::from_nanos(moment * MOMENT_NS));
        machine.node.pause_core(1);
        machine.world.run_for(Duration::from_millis(1));
        machine.node.resume_core(1);
    }
    machine.world.run_until(|| over.get()).expect("it ends");
}

async fn take_snapshots_of_writers(assembly: &Assembly, asked: &Cell<u64>) {
    assembly.create_volume(new_volume("v", (WRITERS * CHUNKS_EACH) << 20)).await.expect("made");
    let writers: Vec<TaskHandle> = (0..WRITERS).map(|writer| begin_writing(assembly, writer)).collect();
    for moment in 0..MOMENTS {
        runtime::sleep(Duration::from_micros(300)).await;
        asked.set(moment + 1);
        assembly.create_snapshot("v", "s").await.expect("taken");
        assembly.clone_volume("v", "s", "c").await.expect("cloned");
        let clone = served(assembly, "c");
        for writer in 0..WRITERS {
            let mut versions = Vec::new();
            for chunk in writer * CHUNKS_EACH..(writer + 1) * CHUNKS_EACH {
                let read = clone.read(chunk << 20, 8).await.expect("readable");
                versions.push(u64::from_le_bytes(read.bytes[..].try_into().expect("eight bytes")));
            }
            assert!(versions.is_sorted_by(|a, b| a >= b), "a later write without an earlier one: {versions:?}");
            assert!(versions[0] - versions[CHUNKS_EACH as usize - 1] <= 1, "{versions:?}");
        }
        assembly.delete_volume("c").await.expect("deleted");
        assembly.delete_snapshot("v", "s").await.expect("deleted");
    }
    writers.into_iter().for_each(TaskHandle::cancel);
}

/// Writes a block of each of its chunks in turn, the last one from the second core, again and again.
fn begin_writing(assembly: &Assembly, writer: u64) -> TaskHandle {
    let (ask, mut asked) = cross::<(u64, Vec<u8>)>(1);
    let (tell, mut told) = cross(1);
    assembly.spawn_on(1, move |directory| async move {
        let volume = directory.by_name("v").expect("served");
        while let Ok((chunk, bytes)) = asked.recv().await {
            volume.write(chunk << 20, payload(&bytes)).await.expect("written");
            let _ = tell.send(()).await;
        }
    });
    let volume = served(assembly, "v");
    runtime::spawn(async move {
        for version in 1_u64.. {
            let bytes = version.to_le_bytes().repeat(512);
            for chunk in writer * CHUNKS_EACH..(writer + 1) * CHUNKS_EACH {
                if chunk % CHUNKS_EACH < CHUNKS_EACH - 1 {
                    volume.write(chunk << 20, payload(&bytes)).await.expect("written");
                } else {
                    ask.send((chunk, bytes.clone())).await.expect("somebody writes");
                    told.recv().await.expect("written");
                }
            }
        }
    })
}

/// A part of a block is written, and the device takes its time for the rest of it. Meanwhile the volume is changed,
/// perhaps several times, and then a snapshot is taken: the write is in it whenever one looks, or never.
pub fn waits_for_every_earlier_term(changes: u64) {
    let machine = steady(changes, 1, DISK_BYTES, 100_000_000);
    let assembly = machine.start();
    machine.run(async move {
        assembly.create_volume(new_volume("v", 1 << 20)).await.expect("made");
        let volume = served(&assembly, "v");
        volume.write(0, payload(&[1; 4096])).await.expect("written");
        let began = runtime::now();
        let (done, mut ended) = cross(1);
        let write = volume.write(512, payload(&[2; 512]));
        runtime::spawn(async move {
            let written = write.await;
            done.send(written).await.expect("somebody waits");
        });
        // It is let in, and reads.
        runtime::sleep(Duration::from_millis(1)).await;
        for change in 0..changes {
            let compression = [Compression::Lz4, Compression::Off][change as usize % 2];
            assembly.set_compression(DEFAULT_POOL, compression).await.expect("set");
        }
        assert!(runtime::now().since(began) < Duration::from_millis(50), "the device is still reading");
        assembly.create_snapshot("v", "s").await.expect("taken");
        assembly.clone_volume("v", "s", "c").await.expect("cloned");
        let clone = served(&assembly, "c");
        let seen = clone.read(0, 4096).await.expect("readable").bytes;
        ended.recv().await.expect("it ends").expect("written");
        let later = clone.read(0, 4096).await.expect("readable").bytes;
        assert!(seen[..] == later[..], "the snapshot was {} and is {}", seen[512], later[512]);
        assert_eq!(volume.read(512, 512).await.expect("readable").bytes[..], [2; 512]);
    });
}
