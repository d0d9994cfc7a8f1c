//! Power loss for real: every device write of a real run is recorded; at a thousand points of it the power is lost in
//! thought, and the image that is left is opened by the shipped store and held against what had been acknowledged.

use e2e::directory::TemporaryDirectory;
use e2e::disk::Disk;
use e2e::load::{Load, Plan};
use e2e::pattern::SECTOR_BYTES;
use e2e::power::{Loss, Roller, written_ranges};
use e2e::random::Random;
use e2e::relay::{Answers, Log, Replay, relay};
use runtime::TcpListener;
use runtime::uring::record::{Reader, What};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

const DEVICE_BYTES: u64 = 256 << 20;
const VOLUME_BYTES: u64 = 64 << 20;
const VOLUME: &str = "v";
/// What is read after each loss: windows of this size (the unit of untorn writes).
const WINDOW_BYTES: u64 = 64 << 10;
/// Calls before the loss whose windows are always read.
const LATEST_CALLS: usize = 64;
/// Windows besides those, anywhere.
const RANDOM_WINDOWS: u64 = 8;
/// Every so many losses all windows are read.
const WHOLE_EVERY: usize = 50;
const FIO_TIME_MAX: Duration = Duration::from_secs(120);

/// What is left of a run: the record of its device and the log of its clients.
struct Run {
    /// Holds the files for as long as they are needed.
    _directory: TemporaryDirectory,
    record: PathBuf,
    map: Arc<dyn cluster::MapStore>,
    log: Log,
}

/// Clients on the target at `nbd`, through a relay: fio if `with_fio`, then a verified load with trims and zeroes.
fn run_clients(nbd: SocketAddr, with_fio: bool, requests: u64) -> Log {
    let clients = async move {
        let log = Rc::new(RefCell::new(Log::default()));
        let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).expect("a free port");
        let address = listener.local_address();
        let relay = runtime::spawn(relay(listener, nbd, VOLUME.into(), Answers::Truly, log.clone()));
        if with_fio {
            fio(address).await;
        }
        let disk = Disk::nbd(address, VOLUME).await.expect("NBD is served");
        let plan = Plan { seed: 11, volume: 1, depth: 16, sectors_max: 256, align_sectors: 1 };
        let load = Load::over_unknown(plan, &disk, VOLUME_BYTES).await;
        load.start(&disk);
        load.reach(requests).await;
        load.stop();
        load.ended().await;
        load.assert_sound();
        relay.cancel();
        log.take()
    };
    runtime::uring::block_on(clients).expect("io_uring works here")
}

/// A real client with contents and flushes of its own.
async fn fio(address: SocketAddr) {
    let mut fio = Command::new("fio")
        .args(["--name=power", "--ioengine=nbd", "--rw=randwrite", "--bsrange=512-64k"])
        .args(["--iodepth=32", "--size=64m", "--io_size=48m", "--fsync=50", "--refill_buffers", "--randseed=7"])
        .arg(format!("--uri=nbd://{address}/{VOLUME}"))
        .stdout(Stdio::null())
        .spawn()
        .expect("fio is installed (make deps)");
    for _ in 0..FIO_TIME_MAX.as_millis() / 10 {
        if let Some(status) = fio.try_wait().expect("a child of ours") {
            assert!(status.success(), "fio ended with {status}");
            return;
        }
        runtime::sleep(Duration::from_millis(10)).await;
    }
    let _ = fio.kill();
    let _ = fio.wait();
    panic!("fio did not end within {FIO_TIME_MAX:?}");
}

/// Loses power at `points` random points of the run. Returns what was wrong, point by point.
fn lose_power_at(run: &Run, points: usize, seed: u64) -> Vec<String> {
    let mut random = Random::new(seed);
    let work = TemporaryDirectory::in_memory();
    let (image, reopened) = (work.path().join("image"), work.path().join("record"));
    let from_ns = run.log.began_ns().expect("something was written");
    let events = || Reader::open(&run.record).expect("the record").map(|event| event.expect("a whole event"));
    let volatile_cache = events()
        .find_map(|event| match event.what {
            What::Device { volatile_cache, .. } => Some(volatile_cache),
            _ => None,
        })
        .expect("a record begins with its device");
    assert!(volatile_cache, "the device of this proof must need its flushes: it lies on a disk");
    let first = events().position(|event| event.time_ns >= from_ns).expect("events of the run");
    let count = events().count();
    let mut chosen = BTreeSet::new();
    while chosen.len() < points.min(count - first) {
        chosen.insert(first + random.below((count - first) as u64) as usize);
    }
    let mut roller = Roller::new(&image, DEVICE_BYTES, volatile_cache).expect("room in memory");
    let mut replay = Replay::new(&run.log, VOLUME_BYTES);
    let mut wrong = Vec::new();
    for (index, event) in events().enumerate() {
        roller.step(event);
        if !chosen.contains(&index) {
            continue;
        }
        let number = chosen.range(..=index).count();
        replay.go_to(roller.time_ns());
        let loss = [Loss::All, Loss::None, Loss::Random, Loss::Random, Loss::Random, Loss::Random][number % 6];
        let what = roller.lose_power(loss, &mut random).expect("written");
        let windows = choose_windows(&replay, &mut random, number % WHOLE_EVERY == 0);
        let ranges = windows.iter().map(|window| (window * WINDOW_BYTES, WINDOW_BYTES as u32)).collect();
        let read = e2e::node::open_and_read(&image, run.map.clone(), &reopened, VOLUME, ranges);
        let result = read.and_then(|all| {
            windows.iter().zip(all).try_for_each(|(window, bytes)| {
                let first = window * WINDOW_BYTES / SECTOR_BYTES as u64;
                replay.journal().permits_crash(first, &bytes).map_err(|violation| violation.to_string())
            })
        });
        if let Err(error) = result {
            wrong.push(format!("event {index} of {count}, {what}: {error}"));
        }
        for range in written_ranges(&reopened).expect("the record of the opening") {
            roller.changed(range);
        }
    }
    assert!(roller.is_restored().expect("read"), "every patch was undone");
    let (writes, syncs) = (roller.writes(), roller.syncs());
    eprintln!("{} points of a run of {writes} writes and {syncs} syncs: {} wrong", chosen.len(), wrong.len());
    wrong
}

/// Windows to read: those of the latest calls and of all in flight, and a few others; or all.
fn choose_windows(replay: &Replay<'_>, random: &mut Random, all: bool) -> BTreeSet<u64> {
    let count = VOLUME_BYTES / WINDOW_BYTES;
    if all {
        return (0..count).collect();
    }
    let window_sectors = WINDOW_BYTES / SECTOR_BYTES as u64;
    let latest = replay.latest(LATEST_CALLS).iter().copied().chain(replay.journal().ranges_in_flight());
    let touched = latest.flat_map(|(first, count)| first / window_sectors..=(first + count - 1) / window_sectors);
    touched.chain((0..RANDOM_WINDOWS).map(|_| random.below(count))).collect()
}

#[cfg(not(feature = "mutants"))]
#[test]
fn no_acknowledged_write_is_lost_with_the_power() {
    use e2e::demo::Demo;
    let directory = TemporaryDirectory::on_disk();
    let (home, record) = (directory.path().join("demo"), directory.path().join("record"));
    let arguments = ["--device-size", "256M", "--volume", "v:64M", "--cores", "1", "--record"];
    let arguments = [&arguments[..], &[path_text(&record)]].concat();
    let demo = Demo::start(&home, &arguments);
    let log = run_clients(demo.volume(VOLUME).nbd, true, 1500);
    demo.kill();
    let map = cluster::RedbMap::open(&home.join("map.redb")).expect("the demo's map");
    let wrong = lose_power_at(&Run { _directory: directory, record, map, log }, 1000, 5);
    assert!(wrong.is_empty(), "{} points, the first: {}", wrong.len(), wrong[0]);
}

/// A build without its flush: the check above must notice.
#[cfg(feature = "mutants")]
#[test]
fn a_build_with_flush_removed_loses_acknowledged_writes() {
    assert!(types::Mutant::FlushRemoved.is_caught("power_loss", 0..1, |_| lose_power_of_a_node()));
}

/// A node serves clients, and the power goes at some moments of that.
#[cfg(feature = "mutants")]
fn lose_power_of_a_node() {
    let directory = TemporaryDirectory::on_disk();
    let record = directory.path().join("record");
    let device = directory.path().join("device.img");
    let map: Arc<dyn cluster::MapStore> = cluster::RedbMap::open(&directory.path().join("map.redb")).expect("a map");
    let node = e2e::node::Node::start(&device, DEVICE_BYTES, map.clone(), Some(record.clone()), (VOLUME, VOLUME_BYTES));
    let log = run_clients(node.served().nbd, false, 500);
    node.end();
    let wrong = lose_power_at(&Run { _directory: directory, record, map, log }, 20, 5);
    assert!(wrong.is_empty(), "{} points, the first: {}", wrong.len(), wrong[0]);
}

#[cfg(not(feature = "mutants"))]
fn path_text(path: &std::path::Path) -> &str {
    path.to_str().expect("a path of ours")
}
