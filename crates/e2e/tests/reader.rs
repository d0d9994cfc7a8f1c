//! `tools/read-device.py`, written from docs/formats.md alone, against the store: it extracts what the volume reads,
//! after a clean stop and after kill -9, and says where a bit was flipped.

use e2e::demo::{Demo, Served, binary};
use e2e::directory::TemporaryDirectory;
use e2e::disk::Disk;
use e2e::load::{Load, Plan};
use e2e::random::Random;
use runtime::IoBuf;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::rc::Rc;
use std::time::Duration;

const DEMO: [&str; 10] =
    ["--device-size", "1G", "--volume", "v:48M", "--volume", "small:16M:4096", "--cores", "1", "--listen", "127.0.0.1"];
const VOLUMES: [&str; 2] = ["v", "small"];
const ROUNDS: u64 = 4;
const READ_BYTES: u64 = 256 << 10;
/// Parts of so many bytes that are written once more: some segments of the log.
const REWRITTEN: usize = 96;
const REWRITES_MAX: usize = 10;
/// The reader's exit status for damage.
const DAMAGED: i32 = 1;

fn tools() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools")
}

fn run_reader(arguments: &[&str], device: &Path) -> Output {
    let mut command = Command::new("python3");
    command.arg("-B").arg(tools().join("read-device.py")).args(&arguments[..1]).arg(device).args(&arguments[1..]);
    command.output().expect("python3 is installed: `make deps`")
}

/// As [`run_reader`]. A killed store's last device writes may still be under way: until they are not, it says "in use".
fn reader(arguments: &[&str], device: &Path) -> Output {
    for _ in 0..100 {
        let output = run_reader(arguments, device);
        if !String::from_utf8_lossy(&output.stderr).contains("in use") {
            return output;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    panic!("{} is in use for ever", device.display());
}

/// What the reader says as JSON, and its exit status.
fn reader_says(arguments: &[&str], device: &Path) -> (Value, i32) {
    let output = reader(&[arguments, &["--json"]].concat(), device);
    let said = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("{arguments:?}: {}", String::from_utf8_lossy(&output.stderr)));
    (said, output.status.code().expect("it was not killed"))
}

/// Exit status of `cairn device check`, which judges the same device with the store's own code.
fn cairn_says(device: &Path) -> Option<i32> {
    let output = Command::new(binary()).args(["device", "check"]).arg(device).output().expect("cairn runs");
    output.status.code()
}

fn expect_no_damage(arguments: &[&str], device: &Path) -> Value {
    let (said, status) = reader_says(arguments, device);
    assert_eq!((status, &said["damage"]), (0, &Value::Array(vec![])), "{arguments:?}");
    said
}

fn extract(device: &Path, layer: u64, size_bytes: u64, image: &Path) -> (Vec<u8>, i32) {
    let (layer, size, out) = (layer.to_string(), size_bytes.to_string(), image.to_str().expect("plain letters"));
    let (_, status) = reader_says(&["extract", "--layer", &layer, "--size", &size, "--out", out], device);
    (std::fs::read(image).expect("the image was written"), status)
}

async fn contents(disk: &Disk, size_bytes: u64) -> Vec<u8> {
    let mut all = Vec::new();
    for offset in (0..size_bytes).step_by(READ_BYTES as usize) {
        let part = READ_BYTES.min(size_bytes - offset) as u32;
        all.extend_from_slice(&disk.read(offset, part).await.expect("the volume is served"));
    }
    all
}

/// The first byte that differs, so that a failure does not print megabytes.
fn assert_same(extracted: &[u8], read: &[u8], what: &str) {
    assert_eq!(extracted.len(), read.len(), "{what}");
    let differs = extracted.iter().zip(read).position(|(a, b)| a != b);
    assert_eq!(differs, None, "{what}: the first byte that the reader extracts differently");
}

struct Subject {
    name: &'static str,
    served: Served,
    layer: u64,
    load: Rc<Load>,
}

fn subjects(demo: &Demo, seed: u64) -> Vec<Subject> {
    let subject = |(number, name): (u64, &'static str)| {
        let served = demo.volume(name);
        let info = e2e::admin::get(demo.admin(), &format!("/v1/volumes/{name}"));
        let layer = info["layers"][0].as_u64().expect("a volume has a layer");
        let plan = Plan { seed: seed + number, volume: number, depth: 16, sectors_max: 1024, align_sectors: 8 };
        let load = Load::new(plan, served.size_bytes);
        Subject { name, served, layer, load }
    };
    (0..).zip(VOLUMES).map(subject).collect()
}

/// Verified load on all volumes until each has had so many more answers; NBD and NVMe/TCP in turn.
async fn work(demo: &Demo, subjects: &[Subject], requests: u64, over_nvme: bool) -> Vec<Disk> {
    let mut disks = Vec::new();
    for subject in subjects {
        let served = demo.volume(subject.name);
        let disk = if over_nvme { Disk::nvme(&served, false).await } else { Disk::nbd(served.nbd, subject.name).await };
        disks.push(disk.expect("the volume is served"));
        subject.load.start(&disks[disks.len() - 1]);
    }
    for subject in subjects {
        subject.load.reach(subject.load.completed() + requests).await;
    }
    disks
}

async fn ended(subjects: &[Subject]) {
    for subject in subjects {
        subject.load.stop();
        subject.load.ended().await;
        subject.load.assert_sound();
    }
}

/// Random writes, overwrites, trims and zeroes; then the store is stopped, every other time by kill -9 in the middle.
/// What the reader extracts then is what the volumes read when they are served again.
#[test]
fn the_reader_extracts_what_the_volumes_read() {
    let run = async {
        let directory = TemporaryDirectory::on_disk();
        let device = directory.path().join("d/node-1/device-1.img");
        let image = directory.path().join("image.raw");
        let mut random = Random::new(41);
        let mut demo = Demo::start(&directory.path().join("d"), &DEMO);
        let subjects = subjects(&demo, 41);
        for round in 0..ROUNDS {
            let disks = work(&demo, &subjects, 300 + random.below(1500), round >= 2).await;
            if round % 2 == 0 {
                demo.kill();
                ended(&subjects).await;
            } else {
                ended(&subjects).await;
                drop(disks);
                demo.stop();
            }
            let verified = expect_no_damage(&["verify"], &device);
            assert_eq!(cairn_says(&device), Some(0));
            assert!(verified["blocks"].as_u64() > Some(1000), "{verified}");
            let extracted: Vec<_> = subjects
                .iter()
                .map(|subject| extract(&device, subject.layer, subject.served.size_bytes, &image))
                .collect();
            demo = Demo::start(&directory.path().join("d"), &DEMO);
            for (subject, (bytes, status)) in subjects.iter().zip(&extracted) {
                let disk = Disk::nbd(demo.volume(subject.name).nbd, subject.name).await.expect("NBD is served");
                let read = contents(&disk, subject.served.size_bytes).await;
                assert_eq!(*status, 0);
                assert_same(bytes, &read, &format!("round {round}, volume {}", subject.name));
                subject.load.verify(&disk).await;
            }
            eprintln!("round {round}: {} records, {} blocks", verified["records"], verified["blocks"]);
        }
        demo.stop();
    };
    runtime::uring::block_on(run).expect("io_uring works here");
}

fn flip(device: &File, offset: u64, bit: u8) {
    let mut byte = [0];
    device.read_exact_at(&mut byte, offset).expect("it is there");
    device.write_all_at(&[byte[0] ^ 1 << bit], offset).expect("it can be written");
}

/// Flips a bit at `offset`, lets the reader verify, flips it back. The reader must name `device_offset`.
fn expect_found(device: &Path, offset: u64, bit: u8, device_offset: u64, what: &str) {
    let file = OpenOptions::new().read(true).write(true).open(device).expect("the device");
    flip(&file, offset, bit);
    let (said, status) = reader_says(&["verify"], device);
    assert_eq!(cairn_says(device), Some(DAMAGED), "{what}, by cairn device check");
    flip(&file, offset, bit);
    let places: Vec<_> =
        said["damage"].as_array().into_iter().flatten().map(|damage| &damage["device_offset"]).collect();
    assert_eq!(status, DAMAGED, "{what}: {said}");
    assert!(places.iter().any(|place| place.as_u64() == Some(device_offset)), "{what} at {device_offset}: {said}");
}

/// Writes once more what the first volume holds, until there is a record of which no pass was written meanwhile: a machine
/// that is busy with other things takes so long for it that one may be.
async fn written_behind_a_pass(directory: &Path, device: &Path, read: &[u8]) -> (u64, u64) {
    for _ in 0..REWRITES_MAX {
        let demo = Demo::start(directory, &DEMO);
        let disk = Disk::nbd(demo.volume(VOLUMES[0]).nbd, VOLUMES[0]).await.expect("NBD is served");
        for (number, part) in read.chunks(READ_BYTES as usize).enumerate().take(REWRITTEN) {
            let bytes = IoBuf::copy_of(part).freeze();
            disk.write(number as u64 * READ_BYTES, bytes).await.expect("the volume is served");
        }
        drop(disk);
        demo.stop();
        if let Some(found) = needed_record(&expect_no_damage(&["list"], device)) {
            return found;
        }
    }
    panic!("no segment is behind the replay start after {REWRITES_MAX} times");
}

/// A log record that replay needs, with others behind it: (device offset of its segment, of the record).
fn needed_record(listed: &Value) -> Option<(u64, u64)> {
    let segments = listed["segments_used"].as_array().expect("segments");
    let shards = listed["shards"].as_array().expect("shards");
    let needed = segments.iter().find(|segment| {
        let shard = &shards[segment["shard"].as_u64().expect("a number") as usize];
        let first = segment["first"].as_u64();
        first >= shard["replay_from"].as_u64() && first.map(|first| first + 8) < shard["last_record"].as_u64()
    });
    let number = needed?["number"].as_u64().expect("a number");
    let start = (1 << 20) + number * listed["segment_size"].as_u64().expect("a size");
    Some((start, start + listed["device_block"].as_u64().expect("a size")))
}

/// One bit anywhere: superblock, segment header, record header, entries, a block. The reader says where; what it
/// extracts is right but for the block that is lost.
#[test]
fn the_reader_says_where_a_bit_was_flipped() {
    let run = async {
        let directory = TemporaryDirectory::on_disk();
        let device = directory.path().join("d/node-1/device-1.img");
        let demo = Demo::start(&directory.path().join("d"), &DEMO);
        let subjects = subjects(&demo, 43);
        let disks = work(&demo, &subjects, 500, false).await;
        ended(&subjects).await;
        let disk = Disk::nbd(subjects[0].served.nbd, "v").await.expect("NBD is served");
        let read = contents(&disk, subjects[0].served.size_bytes).await;
        drop((disks, disk));
        demo.stop();
        let (segment, record) = written_behind_a_pass(&directory.path().join("d"), &device, &read).await;
        expect_found(&device, (64 << 10) + 700, 3, 64 << 10, "superblock S1");
        expect_found(&device, segment + 17, 0, segment, "a segment's generation");
        expect_found(&device, segment + 41, 0, segment, "a segment's first record");
        expect_found(&device, record + 1, 7, record, "a record's magic");
        expect_found(&device, record + 33, 1, record, "a record's durable through");
        expect_found(&device, record + 90, 5, record, "a record's entry");

        let layer = subjects[0].layer.to_string();
        let blocks = expect_no_damage(&["blocks", "--layer", &layer], &device);
        let blocks = blocks["blocks"].as_array().expect("blocks");
        // None of the last record: nothing proves that one was durable, and damage of it is what a crash may leave. Half of the
        // volume was written last, from its beginning.
        let block = &blocks[blocks.len() / 4];
        let (at, place) = (block["byte"].as_u64().expect("a place"), block["device_offset"].as_u64().expect("a place"));
        expect_found(&device, place + 2048, 6, place, "a block");

        let file = OpenOptions::new().read(true).write(true).open(&device).expect("the device");
        flip(&file, place + 4095, 0);
        let image = directory.path().join("image.raw");
        let (extracted, status) = extract(&device, subjects[0].layer, subjects[0].served.size_bytes, &image);
        assert_eq!(status, DAMAGED);
        let mut expected = read;
        expected[at as usize..at as usize + types::BLOCK_BYTES].fill(0);
        assert_same(&extracted, &expected, "all but the block that is lost");
    };
    runtime::uring::block_on(run).expect("io_uring works here");
}

/// What no device has is no device, and what is in use is left alone.
#[test]
fn the_reader_refuses_what_is_not_a_device_or_is_in_use() {
    let directory = TemporaryDirectory::on_disk();
    let path = directory.path().join("no-device");
    std::fs::write(&path, vec![7; 4 << 20]).expect("a file");
    let output = reader(&["list"], &path);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("not a Cairn device"));
    let file = File::open(&path).expect("it was made");
    file.lock().expect("nobody else has it");
    let output = run_reader(&["list"], &path);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("in use"));
}

/// Runs the command line against the demo.
fn cairn(demo: &Demo, words: &[&str]) {
    let mut command = Command::new(binary());
    command.arg("--admin").arg(format!("http://{}", demo.admin())).args(words);
    let output = command.output().expect("cairn runs");
    assert!(output.status.success(), "cairn {words:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Bytes that shrink in one place and not in the other: every third block is noise.
fn half_compressible(seed: u64, len: usize) -> Vec<u8> {
    let mut random = Random::new(seed);
    let mut bytes = Vec::with_capacity(len);
    for block in 0..len / types::BLOCK_BYTES {
        let word = random.below(u64::MAX);
        for at in 0..types::BLOCK_BYTES as u64 / 8 {
            let number = if block % 3 == 2 { random.below(u64::MAX) } else { word ^ (at / (1 + block as u64 % 40)) };
            bytes.extend_from_slice(&number.to_le_bytes());
        }
    }
    bytes
}

/// The layer that a volume writes to.
fn layer_of(demo: &Demo, name: &str) -> u64 {
    let info = e2e::admin::get(demo.admin(), &format!("/v1/volumes/{name}"));
    info["layers"][0].as_u64().expect("a volume has a layer")
}

/// What the reader lists of a layer: how many blocks there are of each codec; all must be right.
fn codecs_of(device: &Path, layer: u64) -> BTreeMap<String, usize> {
    let listed = expect_no_damage(&["blocks", "--layer", &layer.to_string()], device);
    let mut codecs = BTreeMap::new();
    for block in listed["blocks"].as_array().expect("blocks") {
        assert_eq!(block["verdict"], "good", "{block}");
        *codecs.entry(block["codec"].as_str().expect("a codec").to_owned()).or_default() += 1;
    }
    codecs
}

/// Volumes under lz4 are extracted; of those under zstd, and of encrypted ones, every block is listed and judged.
#[test]
fn the_reader_opens_lz4_and_judges_zstd_and_what_is_encrypted() {
    const BYTES: usize = 4 << 20;
    let run = async {
        let directory = TemporaryDirectory::on_disk();
        let device = directory.path().join("d/node-1/device-1.img");
        let key = directory.path().join("key");
        std::fs::write(&key, half_compressible(9, 4096)).expect("a key file");
        let key = key.to_str().expect("plain letters");
        let demo = Demo::start(&directory.path().join("d"), &[&DEMO[..], &["--compression", "lz4"]].concat());
        cairn(&demo, &["volume", "create", "sealed", "--size", "16M", "--encrypt", "--key-file", key]);
        let content = half_compressible(1, BYTES);
        for (name, compression) in [("v", "lz4"), ("sealed", "lz4"), ("small", "zstd")] {
            cairn(&demo, &["pool", "set", "default", "--compression", compression]);
            let disk = Disk::nbd(demo.volume(name).nbd, name).await.expect("NBD is served");
            for (at, part) in (0..).step_by(256 << 10).zip(content.chunks(256 << 10)) {
                disk.write(at, IoBuf::copy_of(part).freeze()).await.expect("it can be written");
            }
            assert_same(&contents(&disk, BYTES as u64).await, &content, name);
        }
        let [plain, sealed, small] = ["v", "sealed", "small"].map(|name| layer_of(&demo, name));
        demo.stop();
        assert_eq!(cairn_says(&device), Some(0));
        let image = directory.path().join("image.raw");
        let (extracted, status) = extract(&device, plain, BYTES as u64, &image);
        assert_eq!(status, 0);
        assert_same(&extracted, &content, "what the reader makes of lz4");
        let blocks = BYTES / types::BLOCK_BYTES;
        for (layer, codec) in [(plain, "lz4"), (sealed, "lz4"), (small, "zstd")] {
            let codecs = codecs_of(&device, layer);
            let (shrunk, raw) = (codecs[codec], codecs["raw"]);
            assert!(shrunk + raw == blocks && shrunk * 3 > blocks && raw * 4 > blocks, "layer {layer}: {codecs:?}");
        }
        let layer = sealed.to_string();
        let out = image.to_str().expect("plain letters");
        let (said, status) = reader_says(&["extract", "--layer", &layer, "--out", out], &device);
        assert_eq!(status, DAMAGED, "an encrypted volume cannot be extracted: {said}");
        let damage = said["damage"].as_array().expect("a list");
        let told = damage[0]["what"].as_str().unwrap_or_default();
        assert!(damage.len() == 1 && told.contains(&format!("{blocks} blocks")), "one line for all of them: {said}");
    };
    runtime::uring::block_on(run).expect("io_uring works here");
}

/// What no device has by itself (every shape of a leaf, wrong bytes of lz4) is proved by examples.
#[test]
fn the_readers_own_tests_pass() {
    let output = Command::new("python3").arg("-B").arg(tools().join("read_device/tests.py")).output().expect("python3");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("OK") && !said.contains("Ran 0"), "{said}");
}
