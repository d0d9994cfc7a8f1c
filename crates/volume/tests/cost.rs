//! Cost by counting: once warm, a read or a write of one block takes no memory from the system, on the real backend.

mod common;

use cluster::{MapStore, RedbMap};
use common::{Random, new_volume};
use runtime::buf::IoBuf;
use runtime::uring::{Cores, Options};
use std::cell::Cell;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::{Arc, mpsc};
use types::NodeId;
use volume::{Assembly, Cost, NodeOptions, Payload, Volume};

#[global_allocator]
static ALLOCATOR: counting::CountingAllocator = counting::CountingAllocator;

const BLOCKS: u64 = 8192;
const DEPTH: usize = 32;
const COUNTS: usize = 41;
/// So few that a count lies between two beats of the node, which take memory, or beside one of them where the machine is slow.
const OPERATIONS: u64 = 200;
const BEATS_ALLOCATIONS_MAX: u64 = 10;
/// A pass of the store's checkpoint may fall into a count, where the machine is slow several: it takes memory for each index leaf that
/// it writes, 32 here.
const PASS_ALLOCATIONS_MAX: u64 = 1_000;

/// A directory that goes with the test.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// What the tasks are to do next.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    Wait,
    Write,
    Read,
}

struct Shared {
    order: Cell<Order>,
    left: Cell<u64>,
    running: Cell<usize>,
}

async fn work(volume: Volume, shared: Rc<Shared>, seed: u64) {
    let random = Random::new(seed);
    loop {
        while shared.order.get() == Order::Wait || shared.left.get() == 0 {
            runtime::turn_end().await;
            runtime::yield_now().await;
        }
        shared.left.set(shared.left.get() - 1);
        shared.running.set(shared.running.get() + 1);
        let offset = random.below(BLOCKS) * 4096;
        assert!(volume.hold(Cost::of(4096), || || false).is_none(), "as a door asks, of a volume without a limit");
        match shared.order.get() {
            Order::Read => drop(volume.read(offset, 4096).await.expect("readable")),
            _ => {
                let mut buf = IoBuf::new(4096);
                buf.fill(offset as u8 | 1);
                volume.write(offset, Payload { bytes: buf.freeze() }).await.expect("written");
            }
        }
        shared.running.set(shared.running.get() - 1);
    }
}

/// Lets the tasks do `count` operations; returns how often memory was taken meanwhile.
async fn run(shared: &Shared, order: Order, count: u64) -> u64 {
    let before = counting::on_threads_watched();
    shared.left.set(count);
    shared.order.set(order);
    while shared.left.get() > 0 || shared.running.get() > 0 {
        runtime::yield_now().await;
    }
    shared.order.set(Order::Wait);
    counting::on_threads_watched() - before
}

/// Several counts of writes, and of as many reads.
async fn measure(options: NodeOptions) -> [Vec<u64>; 2] {
    let assembly = Assembly::start(options).await.expect("the node starts");
    assembly.create_volume(new_volume("v", BLOCKS * 4096)).await.expect("made");
    let volume = assembly.directory().by_name("v").expect("served");
    let shared = Rc::new(Shared { order: Cell::new(Order::Wait), left: Cell::new(0), running: Cell::new(0) });
    for seed in 0..DEPTH as u64 {
        runtime::spawn(work(volume.clone(), shared.clone(), seed));
    }
    // Warm: every block written, every pool as full as it gets.
    for _ in 0..2 {
        run(&shared, Order::Write, 2 * BLOCKS).await;
        run(&shared, Order::Read, 2 * BLOCKS).await;
    }
    let mut counted = [Vec::new(), Vec::new()];
    for _ in 0..COUNTS {
        counted[0].push(run(&shared, Order::Write, OPERATIONS).await);
        counted[1].push(run(&shared, Order::Read, OPERATIONS).await);
    }
    assembly.stop().await;
    counted
}

#[test]
fn a_block_read_or_written_takes_no_memory_once_warm() {
    let scratch = Scratch(std::env::temp_dir().join(format!("cairn-cost-{}", std::process::id())));
    std::fs::create_dir_all(&scratch.0).expect("a temporary directory");
    let device = scratch.0.join("device.img");
    std::fs::File::create(&device).and_then(|file| file.set_len(1 << 30)).expect("a sparse file");
    let map: Arc<dyn MapStore> = RedbMap::open(&scratch.0.join("map.redb")).expect("a new map");
    let cores = Cores::start(1, &Options::default()).expect("io_uring is there");
    let (tell, told) = mpsc::channel();
    let handles = cores.handles().to_vec();
    let options = NodeOptions {
        node: NodeId(1),
        address: ([127, 0, 0, 1], 0).into(),
        cores: handles.clone(),
        devices: vec![device],
        blank: volume::Blank::Format,
        map,
    };
    handles[0].spawn_on(move || async move {
        let counted = measure(options).await;
        tell.send(counted).expect("the test waits");
    });
    let counted = told.recv().expect("the core answers");
    cores.stop();
    for mut counts in counted {
        counts.sort_unstable();
        // What takes memory in each operation, or in one of a few, does so in every count.
        assert_eq!(counts[0], 0, "memory taken per {OPERATIONS} writes or reads: {counts:?}");
        assert!(
            counts[COUNTS / 2] <= BEATS_ALLOCATIONS_MAX,
            "memory taken per {OPERATIONS} writes or reads: {counts:?}"
        );
        assert!(counts[COUNTS - 1] <= PASS_ALLOCATIONS_MAX, "memory taken beside a pass: {counts:?}");
    }
}
