//! Counted cost: what one I/O costs is counted, not timed, so that it fails when it changes.

use e2e::directory::TemporaryDirectory;
use e2e::node::Node;
use nbd::client::Client;
use runtime::IoBuf;
use runtime::channel::WaitList;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts what is taken from the system, by all threads of this process: node and client.
struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.realloc(pointer, layout, size) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The counter is one for all: the tests here run one after the other.
static ALONE: Mutex<()> = Mutex::new(());

const BLOCK_BYTES: u64 = 4096;
const DEVICE_BYTES: u64 = 2 << 30;
const VOLUME_BYTES: u64 = 64 << 20;

#[derive(Clone, Copy)]
enum Kind {
    Read,
    Write,
}

/// `count` requests of 4 KiB at `depth`, over all of the volume in a scattered order.
async fn requests(client: &Client, kind: Kind, depth: u64, count: u64) {
    let blocks = VOLUME_BYTES / BLOCK_BYTES;
    let payload = IoBuf::copy_of(&[0x5a; BLOCK_BYTES as usize]).freeze();
    let (next, left, ended) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(depth)), Rc::new(WaitList::default()));
    for _ in 0..depth {
        let (client, payload) = (client.clone(), payload.clone());
        let (next, left, ended) = (next.clone(), left.clone(), ended.clone());
        runtime::spawn(async move {
            while next.get() < count {
                let number = next.replace(next.get() + 1);
                let offset = number * 4099 % blocks * BLOCK_BYTES;
                match kind {
                    Kind::Read => drop(client.read(offset, BLOCK_BYTES as u32).await.expect("served")),
                    Kind::Write => client.write(offset, payload.clone(), false).await.expect("served"),
                }
            }
            left.set(left.get() - 1);
            ended.wake_all();
        });
    }
    ended.until(|| (left.get() == 0).then_some(())).await;
}

/// What 1,000 requests cost once everything is warm.
struct Cost {
    allocations: u64,
    spent: e2e::node::Spent,
}

/// Runs `count` requests on a warm node and counts. The device lies in memory, so that the figures do not depend on
/// how fast a disk is; only the number of system calls for a device write differs (one each, instead of none).
fn count(kind: Kind, depth: u64, count: u64) -> Cost {
    let _alone = ALONE.lock().unwrap_or_else(|poison| poison.into_inner());
    let directory = TemporaryDirectory::in_memory();
    let map = cluster::SimMap::new();
    let device = directory.path().join("device.img");
    let node = Node::start(&device, DEVICE_BYTES, map, None, ("v", VOLUME_BYTES));
    let address = node.served().nbd;
    let (node, cost) = runtime::uring::block_on(async move {
        let client = Client::connect(address, "v", true).await.expect("NBD is served");
        // Twice over the whole volume: every index leaf has its final shape, every pool its size.
        requests(&client, Kind::Write, depth, 2 * VOLUME_BYTES / BLOCK_BYTES).await;
        requests(&client, kind, depth, 2 * count).await;
        let before = (ALLOCATIONS.load(Ordering::Relaxed), node.spent());
        let taken = ALLOCATIONS.load(Ordering::Relaxed);
        requests(&client, kind, depth, count).await;
        let allocations = ALLOCATIONS.load(Ordering::Relaxed) - taken;
        let spent = node.spent() - before.1;
        (node, Cost { allocations, spent })
    })
    .expect("io_uring works here");
    node.end();
    cost
}
