//! Counted cost: what one I/O costs is counted, not timed, so that it fails when it changes.

use e2e::directory::TemporaryDirectory;
use e2e::node::{Node, Spent};
use e2e::waves::{BLOCK_BYTES, Door, Kind, in_waves, open};
use std::sync::Mutex;

#[global_allocator]
static ALLOCATOR: counting::CountingAllocator = counting::CountingAllocator;

/// The counter is one for all: the tests here run one after the other.
static ALONE: Mutex<()> = Mutex::new(());

const DEVICE_BYTES: u64 = 2 << 30;
const VOLUME_BYTES: u64 = 64 << 20;
/// Requests of one count.
const COUNT: u64 = 1000;
/// Counts of the same: a pass of the store's checkpoint falls into some of them, so the middle one is taken, and of
/// allocations, of which each step of a pass has a few, the least: what a request takes, each of them shows.
const COUNTS: usize = 9;

/// What 1,000 requests cost the node once everything is warm.
#[derive(Clone, Copy, Debug)]
struct Cost {
    allocations: u64,
    spent: Spent,
}

impl Cost {
    fn system_calls(&self) -> u64 {
        self.spent.enters + self.spent.inline_operations
    }
}

/// Counts on a warm node. The device lies in memory, so that the figures do not depend on how fast a disk is; there
/// each device operation is a system call of its own.
fn count(door: Door, kind: Kind, depth: u64) -> Counts {
    let _alone = ALONE.lock().unwrap_or_else(|poison| poison.into_inner());
    stay_on_one_cpu();
    let directory = TemporaryDirectory::in_memory();
    let map = cluster::SimMap::new();
    let device = directory.path().join("device.img");
    let node = Node::start(&device, DEVICE_BYTES, map, None, ("v", VOLUME_BYTES));
    let served = node.served().clone();
    counting::watch_this_thread(false);
    let (node, costs) = runtime::uring::block_on(async move {
        let disk = open(door, &served, "v").await;
        // Twice over the whole volume: every index leaf has its final shape, every pool its size.
        in_waves(&disk, VOLUME_BYTES, Kind::Write, depth, 2 * VOLUME_BYTES / BLOCK_BYTES).await;
        in_waves(&disk, VOLUME_BYTES, kind, depth, 2 * COUNT).await;
        let mut costs = Vec::new();
        for _ in 0..COUNTS {
            let (spent, taken) = (node.spent(), counting::on_threads_watched());
            in_waves(&disk, VOLUME_BYTES, kind, depth, COUNT).await;
            let allocations = counting::on_threads_watched() - taken;
            costs.push(Cost { allocations, spent: node.spent() - spent });
        }
        (node, costs)
    })
    .expect("io_uring works here");
    counting::watch_this_thread(true);
    node.end();
    Counts(costs)
}

/// This thread, and those that it starts, run on the CPU where it is now. A wave is then sent whole before the node
/// looks for it; on two CPUs the node may receive the first part of it while the client still sends the rest.
fn stay_on_one_cpu() {
    // SAFETY: an all-zero set is an empty set; the set outlives the call, which reads it.
    let refused = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(libc::sched_getcpu().try_into().expect("the kernel says where a thread is"), &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set)
    };
    assert_eq!(refused, 0, "a thread may stay where it is: {}", std::io::Error::last_os_error());
}

/// Several counts of the same.
struct Counts(Vec<Cost>);

impl Counts {
    /// All of them by `key`, the smallest first.
    fn sorted(&self, key: impl Fn(&Cost) -> u64) -> [u64; COUNTS] {
        let mut all = std::array::from_fn(|i| key(&self.0[i]));
        all.sort_unstable();
        all
    }

    fn middle(&self, key: impl Fn(&Cost) -> u64) -> u64 {
        self.sorted(key)[COUNTS / 2]
    }
}

/// Stated cost is allowed to be exceeded by this: a timer or a keep-alive in between, a send that came in two parts.
const TOLERANCE: f64 = 1.10;
/// A pass of the store's checkpoint takes memory for each index leaf that it writes, of which the volume has 64.
const PASS_ALLOCATIONS_MAX: u64 = 400;
/// Beside other work one count of nine was seen to take two pieces for each request; in no quiet run. What takes them is not known.
const ODD_ALLOCATIONS_MAX: u64 = 2_500;

/// 1,000 requests at depth 32 take no memory and at most about `system_calls`.
fn assert_cost(door: Door, kind: Kind, system_calls: u64) {
    let counts = count(door, kind, 32);
    let [allocations, .., allocations_usual, allocations_most] = counts.sorted(|cost| cost.allocations);
    let enters = counts.middle(|cost| cost.spent.enters);
    let found = counts.middle(Cost::system_calls);
    eprintln!(
        "{door:?}, {kind:?}, depth 32, per 1,000: {allocations} allocations (at most {allocations_most}), \
         {found} system calls ({enters} of io_uring_enter)"
    );
    assert_eq!(allocations, 0, "{door:?} {kind:?}: allocations per 1,000");
    assert!(
        allocations_usual <= PASS_ALLOCATIONS_MAX,
        "{door:?} {kind:?}: {allocations_usual} allocations in two of 1,000"
    );
    assert!(allocations_most <= ODD_ALLOCATIONS_MAX, "{door:?} {kind:?}: {allocations_most} allocations in one 1,000");
    // Memory needs none: `cost_syncs.rs` counts them where they are needed.
    assert_eq!(counts.sorted(|cost| cost.spent.syncs), [0; COUNTS], "{door:?} {kind:?}: syncs per 1,000");
    let most = (system_calls as f64 * TOLERANCE) as u64;
    assert!(found <= most, "{door:?} {kind:?}: {found} system calls per 1,000, stated are {system_calls}");
}

#[test]
fn reads_take_no_memory_and_few_system_calls() {
    // A receive and a send for a wave, and for each request the read of its block, done at once in memory.
    assert_cost(Door::Nbd, Kind::Read, 1064);
    assert_cost(Door::Nvme, Kind::Read, 1064);
}

#[test]
fn writes_take_no_memory_and_few_system_calls() {
    // A wave and its headers fill one receive and a little of another; each may be followed by an append.
    assert_cost(Door::Nbd, Kind::Write, 200);
    assert_cost(Door::Nvme, Kind::Write, 206);
}

/// Device bytes per client byte of 4 KiB writes on a device with blocks of 512 bytes. At depth 1 a record holds one
/// write and has a block of its own for header and entry; what arrives together shares a record.
#[test]
fn few_device_bytes_are_written_per_client_byte() {
    for (depth, stated) in [(1, 1.13), (16, 1.04), (128, 1.03)] {
        for door in [Door::Nbd, Door::Nvme] {
            let counts = count(door, Kind::Write, depth);
            let all: u64 = counts.0.iter().map(|cost| cost.spent.device_bytes_written).sum();
            let found = all as f64 / (COUNTS as u64 * COUNT * BLOCK_BYTES) as f64;
            eprintln!("{door:?}, depth {depth}: {found:.3} device bytes per client byte");
            // A pass of the store's checkpoint is in it.
            assert!(found <= stated * 1.03, "{door:?}, depth {depth}: {found:.3}, stated {stated}");
            assert!(found > 1.0, "{door:?}, depth {depth}: {found:.3}: bytes were not counted");
        }
    }
}
