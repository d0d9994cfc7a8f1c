//! Syncs are counted: a device with a volatile cache has done one before a write is acknowledged, one that keeps what it has
//! completed is asked for none.

use e2e::directory::TemporaryDirectory;
use e2e::node::Node;
use e2e::waves::{Door, Kind, in_waves, open};
use std::sync::Mutex;

/// Each test counts what one node on one core does; beside another one waves would be smaller.
static ALONE: Mutex<()> = Mutex::new(());

const DEVICE_BYTES: u64 = 1 << 30;
const VOLUME_BYTES: u64 = 64 << 20;
/// Writes of one count.
const COUNT: u64 = 1000;
/// Until leaves have their final size.
const WARM_UP: u64 = 2_000;

/// What 1,000 writes took, in waves of some depth.
struct Counted {
    syncs: u64,
    /// Waves that were acknowledged with no sync done since they were sent.
    waves_without: u64,
}

fn count(directory: &TemporaryDirectory, door: Door, depth: u64) -> Counted {
    let _alone = ALONE.lock().unwrap_or_else(|poison| poison.into_inner());
    let device = directory.path().join("device.img");
    let node = Node::start(&device, DEVICE_BYTES, cluster::SimMap::new(), None, ("v", VOLUME_BYTES));
    let served = node.served().clone();
    let (node, counted) = runtime::uring::block_on(async move {
        let disk = open(door, &served, "v").await;
        in_waves(&disk, VOLUME_BYTES, Kind::Write, 32, WARM_UP).await;
        let (first, mut waves_without) = (node.spent().syncs, 0);
        let mut before = first;
        for _ in 0..COUNT.div_ceil(depth) {
            in_waves(&disk, VOLUME_BYTES, Kind::Write, depth, depth).await;
            let now = node.spent().syncs;
            waves_without += u64::from(now == before);
            before = now;
        }
        (node, Counted { syncs: before - first, waves_without })
    })
    .expect("io_uring works here");
    node.end();
    eprintln!("{door:?}, depth {depth}: {} syncs of 1,000 writes", counted.syncs);
    counted
}

/// A file on a disk is taken for a device that loses what it was not told to keep; one at a time, and many that share a sync: how
/// many do depends on how fast it syncs, four at least.
fn each_write_is_behind_a_sync(door: Door) {
    for (depth, most) in [(1, COUNT * 11 / 10), (32, COUNT / 4)] {
        let directory = TemporaryDirectory::on_disk();
        let Counted { syncs, waves_without } = count(&directory, door, depth);
        assert_eq!(
            waves_without, 0,
            "{door:?}, depth {depth}: waves of writes acknowledged with no sync since they were sent (is the temporary directory in memory? TMPDIR=one on a disk)"
        );
        assert!(syncs <= most, "{door:?}, depth {depth}: {syncs} syncs of 1,000 writes, at most {most} are stated");
    }
}

fn each_write_of_both_doors() {
    each_write_is_behind_a_sync(Door::Nbd);
    each_write_is_behind_a_sync(Door::Nvme);
}

#[cfg(not(feature = "mutants"))]
#[test]
fn each_acknowledged_write_is_behind_a_sync() {
    each_write_of_both_doors();
}

#[test]
fn a_device_that_keeps_what_it_has_completed_is_asked_for_no_sync() {
    for depth in [1, 32] {
        let directory = TemporaryDirectory::in_memory();
        assert_eq!(count(&directory, Door::Nvme, depth).syncs, 0, "depth {depth}");
    }
}

/// Builds that acknowledge without a sync: the count above must notice, and holds without these bugs.
#[cfg(feature = "mutants")]
#[test]
fn builds_that_do_not_sync_are_noticed() {
    for mutant in [types::Mutant::FlushRemoved, types::Mutant::AcknowledgeBeforeDurable] {
        assert!(mutant.is_caught("cost_syncs", 0..1, |_| each_write_of_both_doors()));
    }
}
