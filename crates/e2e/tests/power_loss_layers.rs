//! Power loss for real, while the cleaner moves segments and layers come and go: a store on a recorded device is
//! written to, snapshots of it are taken, cloned, rolled back, merged away and deleted. At many points of the record
//! the power is lost in thought; the image that is left is opened by the shipped store, and each layer, each count and
//! each write of several blocks, which is there as a whole or not at all, is held against what was asked for and what
//! was acknowledged.

#![cfg(not(feature = "mutants"))]

#[path = "../../store/tests/common/mod.rs"]
mod common;

use common::layers::{Family, Tree, new_tree};
use e2e::directory::TemporaryDirectory;
use e2e::power::{Loss, Roller, written_ranges};
use e2e::random::Random;
use e2e::relay::boot_clock_ns;
use runtime::uring::record::{Reader, What};
use runtime::uring::{Cores, Options};
use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;
use std::sync::mpsc;
use std::time::Duration;

const DEVICE_BYTES: u64 = 256 << 20;
/// Moments at which the power is lost, and losses at each.
const CUTS: u32 = 40;
const LOSSES: [Loss; 3] = [Loss::All, Loss::Random, Loss::Random];
/// Steps of volumes and administrators between two of them, at most.
const STEPS_MAX: u64 = 60;
/// For a machine under load.
const TIME_MAX: Duration = Duration::from_secs(200);

/// What a run left besides its record.
struct Run {
    /// Times, and what was asked for and acknowledged then.
    cuts: Vec<(u64, Tree)>,
    statistics: store::Statistics,
}

/// Does something on a core of its own, whose device writes go into `record`.
fn on_a_core<T: Send + 'static, F>(record: &Path, work: impl FnOnce() -> F + Send + 'static) -> Result<T, String>
where
    F: Future<Output = T> + 'static,
{
    let options = Options { record: Some(record.to_owned()), ..Options::default() };
    let cores = Cores::start(1, &options).map_err(|error| error.to_string())?;
    let (sender, receiver) = mpsc::channel();
    cores.handles()[0].spawn_on(move || async move {
        let _ = sender.send(work().await);
    });
    let result = receiver.recv_timeout(TIME_MAX).map_err(|_| "it failed: what it said is above".to_owned());
    cores.stop();
    result
}

/// A family of volumes on the device `disk` of this directory.
async fn live(cuts: u32) -> Run {
    let device = common::device().await;
    let options = store::FormatOptions { shard_count: Some(8), ..common::format_options() };
    store::format(&device, &options).await.expect("a new device can be formatted");
    let (tree, mut random) = (new_tree(), Random::new(1));
    let family = Family::open(&tree, 1).await;
    family.fill().await;
    family.shard.store().clean_below(u32::MAX);
    let mut run = Run { cuts: Vec::new(), statistics: family.shard.statistics() };
    for _ in 0..cuts {
        let depth = 1 + random.below(24) as usize;
        for _ in 0..1 + random.below(STEPS_MAX) {
            family.step().await.expect("there is room");
            family.below(depth).await;
        }
        run.cuts.push((boot_clock_ns(), tree.borrow().clone()));
    }
    run.statistics = family.shard.statistics();
    run
}

/// Opens the device `disk` of this directory and compares it with what must be on it.
async fn judge(tree: Tree, seed: u64) {
    let family = Family::open(&Rc::new(RefCell::new(tree)), seed).await;
    family.verify().await;
    family.shard.close().await;
}

/// Runs, then loses the power at every cut. Returns what was wrong.
fn lose_power_again_and_again(cuts: u32) -> Vec<String> {
    let (directory, work) = (TemporaryDirectory::on_disk(), TemporaryDirectory::in_memory());
    let (record, reopened) = (directory.path().join("record"), work.path().join("record"));
    // The store's tests call their device `disk`, wherever they are.
    std::env::set_current_dir(directory.path()).expect("a directory of ours");
    std::fs::File::create_new("disk").and_then(|disk| disk.set_len(DEVICE_BYTES)).expect("room for a sparse file");
    let Run { cuts, statistics } = on_a_core(&record, move || live(cuts)).expect("a run without a fault");
    std::env::set_current_dir(work.path()).expect("a directory of ours");
    let mut events = Reader::open(&record).expect("the record").map(|event| event.expect("a whole event")).peekable();
    let volatile_cache = match events.next().map(|event| event.what) {
        Some(What::Device { volatile_cache, .. }) => volatile_cache,
        other => panic!("a record begins with its device, not {other:?}"),
    };
    assert!(volatile_cache, "the device of this proof must need its flushes: it lies on a disk");
    let mut roller = Roller::new(Path::new("disk"), DEVICE_BYTES, volatile_cache).expect("room in memory");
    let (mut random, mut wrong, mut images) = (Random::new(2), Vec::new(), 0);
    let last = cuts.last().expect("a cut").1.clone();
    for (number, (time_ns, tree)) in cuts.into_iter().enumerate() {
        while events.peek().is_some_and(|event| event.time_ns <= time_ns) {
            roller.step(events.next().expect("looked at just above"));
        }
        for loss in LOSSES {
            let what = roller.lose_power(loss, &mut random).expect("written");
            let (of_image, seed) = (tree.clone(), random.below(1 << 32));
            if let Err(error) = on_a_core(&reopened, move || judge(of_image, seed)) {
                wrong.push(format!("cut {number}, {what}: {error}"));
            }
            images += 1;
            written_ranges(&reopened).expect("its record").into_iter().for_each(|range| roller.changed(range));
        }
    }
    assert!(roller.is_restored().expect("read"), "every patch was undone");
    let store::Statistics { segments_cleaned, segments_freed, passes, .. } = statistics;
    eprintln!(
        "{images} images of a run of {} writes: {segments_cleaned} segments cleaned, {segments_freed} freed, {passes} passes, \
         {} layers made, {} ended, {} chunks merged: {} wrong",
        roller.writes(),
        last.layers_made(),
        last.ended_layers,
        last.merged_chunks,
        wrong.len()
    );
    assert!(segments_cleaned > 5 && last.ended_layers > 5 && last.merged_chunks > 50, "nothing of interest was met");
    wrong
}

#[test]
fn nothing_is_lost_with_the_power_under_cleaning_and_snapshots() {
    let wrong = lose_power_again_and_again(CUTS);
    assert!(wrong.is_empty(), "{} images, the first: {}", wrong.len(), wrong[0]);
}
