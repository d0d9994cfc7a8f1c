//! What an encrypted volume leaves on the disks, byte by byte: neither what was written, nor its compressed form, nor a
//! key. The same search finds both where nothing is encrypted, so that it can fail.

use cluster::{KeyRecord, RedbMap, SecretKind, keys, list};
use e2e::demo::{Demo, binary};
use e2e::directory::TemporaryDirectory;
use e2e::disk::Disk;
use runtime::buf::IoBuf;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::Duration;
use types::ClusterId;
use volume::{DataKey, Secret};

const BLOCK: usize = 4096;
const BLOCKS: u64 = 64;
/// What a block says again and again.
const WORD: &[u8] = b"Zq7wX3Lm";

/// A demo, its directory and its key files.
struct Subject {
    directory: TemporaryDirectory,
}

impl Subject {
    fn new() -> Self {
        let directory = TemporaryDirectory::on_disk();
        std::fs::write(directory.path().join("key"), key_file(1)).expect("a key file");
        std::fs::write(directory.path().join("other"), key_file(2)).expect("a key file");
        Self { directory }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn start(&self, more: &[&str]) -> Demo {
        Demo::start(&self.path("d"), &[&["--device-size", "512M", "--volume", "plain:16M"], more].concat())
    }

    fn cairn(&self, demo: &Demo, words: &str) -> Output {
        let mut command = Command::new(binary());
        command.env("CAIRN_ADMIN", format!("http://{}", demo.admin())).current_dir(self.directory.path());
        command.args(words.split(' ')).output().expect("cairn runs")
    }

    fn must(&self, demo: &Demo, words: &str) {
        let output = self.cairn(demo, words);
        assert!(output.status.success(), "{words}: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// Everything that outlives the process, but for blocks of zeroes.
    fn stored(&self) -> Vec<u8> {
        let mut stored = Vec::new();
        for name in ["d/node-1/device-1.img", "d/map.redb", "d/demo.toml", "d/node-1/node.toml"] {
            let bytes = std::fs::read(self.path(name)).expect("it is there");
            let written = bytes.chunks(BLOCK).filter(|block| block.iter().any(|byte| *byte != 0));
            written.for_each(|block| stored.extend_from_slice(block));
        }
        stored
    }

    async fn key_records(&self) -> (ClusterId, Vec<KeyRecord>) {
        let map = RedbMap::open(&self.path("d/map.redb")).expect("nobody has it");
        let keys = list::<KeyRecord>(&*map, keys::DATA_KEYS).await.expect("records");
        let cluster = cluster::get::<cluster::ClusterRecord>(&*map, keys::CLUSTER).await.expect("a record");
        (cluster.expect("the cluster").record.id, keys.into_iter().map(|found| found.record).collect())
    }
}

fn key_file(number: u8) -> Vec<u8> {
    (0..48).map(|index: u8| index.wrapping_mul(89).wrapping_add(number.wrapping_mul(57)) | 1).collect()
}

fn content(round: u8) -> Vec<u8> {
    let mut block = WORD.repeat(BLOCK / WORD.len());
    block[BLOCK - 1] = round;
    block
}

/// The same block as LZ4 makes it smaller (block format), as far as it is the same for all rounds.
fn lz4_form() -> Vec<u8> {
    let mut form = lz4_flex::block::compress(&content(0));
    form.truncate(20);
    form
}

fn holds(stored: &[u8], wanted: &[u8]) -> bool {
    stored.windows(wanted.len()).any(|window| window == wanted)
}

fn holds_plain(stored: &[u8]) -> bool {
    holds(stored, &WORD.repeat(4))
}

async fn write(demo: &Demo, name: &str, round: u8) {
    let disk = Disk::nbd(demo.volume(name).nbd, name).await.expect("NBD is served");
    for block in 0..BLOCKS {
        disk.write(block * BLOCK as u64, IoBuf::copy_of(&content(round)).freeze()).await.expect("written");
    }
    disk.flush().await.expect("flushed");
}

async fn reads(demo: &Demo, name: &str, round: u8) {
    let disk = Disk::nbd(demo.volume(name).nbd, name).await.expect("NBD is served");
    for block in 0..BLOCKS {
        let read = disk.read(block * BLOCK as u64, BLOCK as u32).await.expect("readable");
        assert!(read[..] == content(round)[..], "block {block} of {name}");
    }
}

fn run(work: impl Future<Output = ()> + 'static) {
    runtime::uring::block_on(work).expect("io_uring works here");
}

#[test]
fn the_search_finds_what_is_not_encrypted() {
    run(async {
        let subject = Subject::new();
        let demo = subject.start(&[]);
        write(&demo, "plain", 1).await;
        demo.stop();
        let stored = subject.stored();
        assert!(holds_plain(&stored) && !holds(&stored, &lz4_form()), "neither compressed nor encrypted");

        let subject = Subject::new();
        let demo = subject.start(&["--compression", "lz4"]);
        write(&demo, "plain", 1).await;
        demo.stop();
        let stored = subject.stored();
        assert!(!holds_plain(&stored) && holds(&stored, &lz4_form()), "compressed and not encrypted");
    });
}

#[test]
fn nothing_of_an_encrypted_volume_is_found_on_the_disks() {
    run(async {
        for compression in ["off", "lz4", "zstd"] {
            let subject = Subject::new();
            let demo = subject.start(&["--compression", compression]);
            subject.must(&demo, "volume create v --size 16M --encrypt --key-file key");
            write(&demo, "v", 1).await;
            subject.must(&demo, "snapshot create v@s");
            subject.must(&demo, "clone v@s copy");
            write(&demo, "copy", 2).await;
            demo.stop();

            let stored = subject.stored();
            assert!(!holds_plain(&stored), "{compression}: what was written");
            assert!(!holds(&stored, &lz4_form()), "{compression}: its LZ4 form");
            let (cluster, records) = subject.key_records().await;
            let secret = Secret::new(SecretKind::KeyFile, key_file(1).into()).expect("long enough");
            let (data_key, _) = DataKey::unwrap(cluster, &records[0], &secret).expect("it opens");
            for (what, secret) in [("key file", &key_file(1)[..]), ("data key", data_key.bytes())] {
                let digits: String = secret.iter().map(|byte| format!("{byte:02x}")).collect();
                for part in secret.chunks_exact(16).chain(digits.as_bytes().chunks_exact(32)) {
                    assert!(!holds(&stored, part), "{compression}: a part of the {what}");
                }
            }
            let wrapped: String = records[0].wraps[0].ciphertext.iter().map(|byte| format!("{byte:02x}")).collect();
            assert!(holds(&stored, wrapped.as_bytes()), "the wrapped key is there: the search reads the map");
        }
    });
}

#[test]
fn data_outlive_a_restart_and_a_change_of_the_key_file() {
    run(async {
        let subject = Subject::new();
        let demo = subject.start(&["--compression", "lz4"]);
        subject.must(&demo, "volume create v --size 16M --encrypt --key-file key");
        write(&demo, "v", 1).await;
        demo.kill();

        let demo = subject.start(&[]);
        let refused = subject.cairn(&demo, "volume unlock v --key-file other");
        let line = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(refused.status.code() == Some(1) && line.contains("not the one that opens this volume"), "{line}");
        let refused = Disk::nbd(demo.volume("v").nbd, "v").await.map(drop).expect_err("it is locked").to_string();
        assert!(refused.contains("cairn volume unlock v"), "{refused}");
        let disk = Disk::nvme(&demo.volume("v"), false).await.map(drop);
        assert!(disk.is_err(), "no namespace of a locked volume");
        subject.must(&demo, "volume unlock v --key-file key");
        reads(&demo, "v", 1).await;
        // What is stored already is read whatever the pool says by now.
        subject.must(&demo, "pool set default --compression zstd");
        reads(&demo, "v", 1).await;
        write(&demo, "v", 2).await;
        subject.must(&demo, "volume rekey v --key-file key --new-key-file other");
        demo.stop();
        let demo = subject.start(&[]);
        assert_eq!(subject.cairn(&demo, "volume unlock v --key-file key").status.code(), Some(1), "the old one");
        subject.must(&demo, "volume unlock v --key-file other");
        reads(&demo, "v", 2).await;
        demo.stop();
        let demo = subject.start(&["--key-file", subject.path("other").to_str().expect("plain letters")]);
        reads(&demo, "v", 2).await;

        subject.must(&demo, "volume delete v --now");
        while demo.status()["volumes_deleting"] != 0 {
            std::thread::sleep(Duration::from_millis(20));
        }
        demo.stop();
        assert_eq!(subject.key_records().await.1, [], "the key went with its last volume");
    });
}
