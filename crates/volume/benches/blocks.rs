//! What a block costs above the store's own cost: CPU of one core per 4 KiB read and write, without any door; and what a
//! second core adds to one device, whose shards are then dealt to both.
//!
//! `cargo bench -p cairn-volume` (device in `/dev/shm`; CPU time, so that a busy machine disturbs it little; blocks per
//! second of both cores only mean something on a machine that has nothing else to do).

use cluster::{MapStore, RedbMap};
use runtime::buf::IoBuf;
use runtime::channel::cross;
use runtime::uring::{Cores, Options};
use std::cell::Cell;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::{Arc, mpsc};
use std::time::Instant;
use types::NodeId;
use volume::{Assembly, Blank, NewVolume, NodeOptions, Payload, Volume};

const DEVICE_BYTES: u64 = 2 << 30;
const BLOCKS: u64 = 65_536;
const OPERATIONS: u64 = 400_000;

struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Nanoseconds that this thread has been on a CPU.
fn cpu_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux");
    text.split(' ').next().and_then(|first| first.parse().ok()).expect("a number")
}

fn next(state: &Cell<u64>) -> u64 {
    state.set(state.get().wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407));
    state.get() >> 33
}

async fn run(volume: &Volume, depth: usize, write: bool) -> f64 {
    let (left, running) = (Rc::new(Cell::new(OPERATIONS)), Rc::new(Cell::new(depth)));
    let (done, mut all_done) = runtime::channel::bounded(1);
    let started = cpu_ns();
    for task in 0..depth {
        let (volume, left, running, done) = (volume.clone(), left.clone(), running.clone(), done.clone());
        runtime::spawn(async move {
            let state = Cell::new(task as u64 + 1);
            while left.get() > 0 {
                left.set(left.get() - 1);
                let offset = next(&state) % BLOCKS * 4096;
                if write {
                    let mut buf = IoBuf::new(4096);
                    buf[..8].copy_from_slice(&offset.to_le_bytes());
                    buf[8] = 1;
                    volume.write(offset, Payload { bytes: buf.freeze() }).await.expect("written");
                } else {
                    drop(volume.read(offset, 4096).await.expect("readable"));
                }
            }
            running.set(running.get() - 1);
            if running.get() == 0 {
                let _ = done.try_send(());
            }
        });
    }
    let _ = all_done.recv().await;
    (cpu_ns() - started) as f64 / OPERATIONS as f64
}

/// Keeps `depth` operations under way on each core. Blocks per second of all of them, and CPU ns of a core per block.
async fn run_on_all(assembly: &Assembly, cores: usize, depth: usize, write: bool) -> (f64, f64) {
    let (told, mut all_told) = cross(cores);
    let started = Instant::now();
    for core in 0..cores {
        let told = told.clone();
        assembly.spawn_on(core, move |directory| async move {
            let volume = directory.by_name("v").expect("served");
            let _ = told.send(run(&volume, depth, write).await).await;
        });
    }
    let mut cpu = 0.0;
    for _ in 0..cores {
        cpu += all_told.recv().await.expect("the core lives");
    }
    ((cores as u64 * OPERATIONS) as f64 / started.elapsed().as_secs_f64(), cpu / cores as f64)
}

async fn measure(options: NodeOptions) {
    let cores = options.cores.len();
    let assembly = Assembly::start(options).await.expect("the node starts");
    let new = NewVolume {
        name: "v".to_owned(),
        size_bytes: BLOCKS * 4096,
        block_size_bytes: 4096,
        limits: cluster::Limits::default(),
        hosts: Default::default(),
    };
    assembly.create_volume(new).await.expect("made");
    let volume = assembly.directory().by_name("v").expect("served");
    run(&volume, 128, true).await;
    for depth in [1, 16, 128] {
        for write in [true, false] {
            let (per_second, ns) = run_on_all(&assembly, cores, depth, write).await;
            let what = if write { "write" } else { "read" };
            println!("{cores} cores, {what:5} depth {depth:3} each: {per_second:9.0}/s, {ns:6.0} ns of CPU per block");
        }
    }
    assembly.stop().await;
}

/// On a new device, with so many cores.
fn on(scratch: &Scratch, core_count: usize) {
    let device = scratch.0.join(format!("device-{core_count}.img"));
    std::fs::File::create(&device).and_then(|file| file.set_len(DEVICE_BYTES)).expect("a sparse file");
    let map: Arc<dyn MapStore> = RedbMap::open(&scratch.0.join(format!("map-{core_count}.redb"))).expect("a new map");
    let cores = Cores::start(core_count, &Options::default()).expect("io_uring is there");
    let (tell, told) = mpsc::channel();
    let handles = cores.handles().to_vec();
    let address = ([127, 0, 0, 1], 0).into();
    let options = NodeOptions {
        node: NodeId(1),
        address,
        cores: handles.clone(),
        devices: vec![device],
        blank: Blank::Format,
        map,
    };
    handles[0].spawn_on(move || async move {
        measure(options).await;
        let _ = tell.send(());
    });
    let _ = told.recv();
    cores.stop();
}

fn main() {
    let scratch = Scratch(PathBuf::from(format!("/dev/shm/cairn-blocks-{}", std::process::id())));
    std::fs::create_dir_all(&scratch.0).expect("/dev/shm");
    for core_count in [1, 2] {
        on(&scratch, core_count);
    }
}
