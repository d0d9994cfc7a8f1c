//! A full device as its clients see it, over both protocols, and the way back to a working one.

use e2e::demo::{Demo, binary};
use e2e::directory::TemporaryDirectory;
use e2e::disk::{Disk, DiskError};
use runtime::buf::IoBuf;
use runtime::{SharedBuf, uring};
use std::process::Command;
use std::time::Duration;

const MIB: u64 = 1 << 20;
/// Longest that space may take to come back after a volume was deleted.
const PATIENCE: Duration = Duration::from_secs(60);

/// A MiB that says where it belongs and in which round it was written.
fn piece(at: u64, round: u64) -> SharedBuf {
    let mut bytes = IoBuf::new(MIB as usize);
    for (index, word) in bytes.chunks_exact_mut(8).enumerate() {
        word.copy_from_slice(&(at + index as u64 * 8).wrapping_mul(0x9e37_79b9_7f4a_7c15 ^ round).to_le_bytes());
    }
    bytes.freeze()
}

/// Writes a MiB after the other until one is refused; returns how many there are, and what the refusal said.
async fn fill(disk: &Disk, round: u64) -> (u64, String) {
    for index in 0.. {
        match disk.write(index * MIB, piece(index * MIB, round)).await {
            Ok(()) => {}
            Err(DiskError::Refused(why)) => return (index, why),
            Err(lost) => panic!("{lost}"),
        }
    }
    unreachable!("a device ends")
}

fn cairn(demo: &Demo, arguments: &[&str]) {
    let admin = format!("http://{}", demo.admin());
    let status = Command::new(binary()).args(["--admin", &admin]).args(arguments).status().expect("it runs");
    assert!(status.success(), "cairn {arguments:?}: {status}");
}

/// Fills the device twice over, with a deletion in between.
async fn full_and_back(refusal: &str, open: impl AsyncFn(&Demo, &str) -> Disk) {
    let directory = TemporaryDirectory::on_disk();
    let demo = Demo::start(directory.path(), &["--device-size", "512M", "--volume", "a:1G"]);
    assert_eq!(demo.status()["capacity"]["raw_bytes"], 512 * MIB);
    assert!(demo.status()["capacity"]["overcommit_percent"].as_u64().expect("a number") > 200);
    let disk = open(&demo, "a").await;
    let (filled, why) = fill(&disk, 1).await;
    assert!(why.contains(refusal), "{why}");
    assert!(filled > 256, "only {filled} MiB of 512 could be filled");

    // What is there can be read, overwritten and given back.
    disk.write(0, piece(0, 2)).await.expect("an overwrite");
    disk.trim(MIB, MIB as u32).await.expect("a discard");
    let status = demo.status();
    let reasons = status["reasons"].to_string();
    assert!(status["health"] == "degraded" && reasons.contains("% full"), "{status}");
    for (index, round) in [(0, 2), (2, 1), (filled - 1, 1)] {
        let read = disk.read(index * MIB, MIB as u32).await.expect("readable");
        assert!(read[..] == piece(index * MIB, round)[..], "MiB {index}");
    }
    drop(disk);

    cairn(&demo, &["volume", "delete", "a", "--now"]);
    cairn(&demo, &["volume", "create", "b", "--size", "1G"]);
    let disk = open(&demo, "b").await;
    let began = std::time::Instant::now();
    while demo.status()["volumes_deleting"] != 0 {
        assert!(began.elapsed() < PATIENCE, "{}", demo.status());
        runtime::sleep(Duration::from_millis(50)).await;
    }
    // The last of it is free when a checkpoint no longer needs it.
    let again = loop {
        let (again, _) = fill(&disk, 3).await;
        if again + 16 > filled {
            break again;
        }
        assert!(began.elapsed() < PATIENCE, "{again} MiB of {filled}");
        runtime::sleep(Duration::from_millis(200)).await;
    };
    let read = disk.read((again - 1) * MIB, MIB as u32).await.expect("readable");
    assert!(read[..] == piece((again - 1) * MIB, 3)[..]);
    drop(disk);
    demo.stop();
}

#[test]
fn an_nvme_host_is_told_capacity_exceeded_and_goes_on_after_a_deletion() {
    let open = async |demo: &Demo, name: &str| Disk::nvme(&demo.volume(name), false).await.expect("served");
    uring::block_on(full_and_back("capacity exceeded", open)).expect("io_uring works here");
}

#[test]
fn an_nbd_client_is_told_no_space_and_goes_on_after_a_deletion() {
    let open = async |demo: &Demo, name: &str| {
        let name = name.to_owned();
        Disk::nbd(demo.volume(&name).nbd, &name).await.expect("served")
    };
    // ENOSPC, as NBD numbers it.
    uring::block_on(full_and_back("with error 28", open)).expect("io_uring works here");
}
