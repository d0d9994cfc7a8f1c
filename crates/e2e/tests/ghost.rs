//! The ghost write without a cluster: a target has not read what a host sent; the host gives the connection up, comes
//! back on another one, sends again and goes on writing; then the target reads the old bytes. None may be executed.

use e2e::demo::Demo;
use e2e::directory::TemporaryDirectory;
use e2e::disk::Disk;
use e2e::raw::RawNbd;
use runtime::IoBuf;
use std::time::Duration;

const BLOCK: usize = 4096;
/// Blocks that the old connection writes; the new one writes the first half of them.
const BLOCKS: u64 = 64;
const OLD: u8 = 0xa1;
const NEW: u8 = 0xb2;
/// A host needs longer than this to come back; the target's rule begins at 100 ms.
const PAUSE: Duration = Duration::from_millis(300);
/// What the old bytes get to do harm after the new ones were answered.
const AFTERMATH: Duration = Duration::from_millis(500);

fn start(directory: &TemporaryDirectory) -> Demo {
    Demo::start(directory.path(), &["--device-size", "512M", "--volume", "v:64M", "--cores", "1"])
}

fn send_old_writes(host: &mut RawNbd) {
    (0..BLOCKS).for_each(|block| host.send_write(1000 + block, block * BLOCK as u64, &[OLD; BLOCK]));
}

/// A new connection that writes the first half of the blocks; then all blocks are as if the old one had never been.
fn write_on_and_check(mut host: RawNbd) {
    (0..BLOCKS / 2).for_each(|block| host.write(block * BLOCK as u64, &[NEW; BLOCK]));
    std::thread::sleep(AFTERMATH);
    for block in 0..BLOCKS {
        let expected = if block < BLOCKS / 2 { NEW } else { 0 };
        let bytes = host.read_range(block * BLOCK as u64, BLOCK as u32);
        assert!(bytes.iter().all(|byte| *byte == expected), "block {block} holds {:#x}", bytes[0]);
    }
}

#[test]
fn what_a_paused_target_had_not_read_is_not_executed() {
    let directory = TemporaryDirectory::on_disk();
    let demo = start(&directory);
    let nbd = demo.volume("v").nbd;
    let mut old = RawNbd::connect(nbd, "v").opened();
    demo.pause();
    send_old_writes(&mut old);
    old.leave();
    std::thread::sleep(PAUSE);
    let new = RawNbd::connect(nbd, "v");
    demo.resume();
    write_on_and_check(new.opened());
    demo.stop();
}

/// The same without leaving: so the test above would notice.
#[test]
fn what_a_paused_target_had_not_read_is_executed_if_its_host_stays() {
    let directory = TemporaryDirectory::on_disk();
    let demo = start(&directory);
    let mut host = RawNbd::connect(demo.volume("v").nbd, "v").opened();
    demo.pause();
    send_old_writes(&mut host);
    std::thread::sleep(PAUSE);
    demo.resume();
    let mut answered: Vec<_> = (0..BLOCKS).map(|block| 1000 + block).collect();
    while !answered.is_empty() {
        let cookie = host.next_answer();
        answered.retain(|other| *other != cookie);
    }
    let bytes = host.read_range(0, (BLOCKS as usize * BLOCK) as u32);
    assert!(bytes.iter().all(|byte| *byte == OLD));
    demo.stop();
}

/// A host that takes no answers: the target stops reading it, so the writes behind the reads stay in the socket.
#[test]
fn what_stood_behind_back_pressure_is_not_executed() {
    let directory = TemporaryDirectory::on_disk();
    let demo = start(&directory);
    let nbd = demo.volume("v").nbd;
    let mut old = RawNbd::connect(nbd, "v").opened();
    // 64 MiB of answers: more than a connection's share of payload and all socket buffers between here and there.
    (0..64).for_each(|number| old.send_read(number, 0, 1 << 20));
    send_old_writes(&mut old);
    std::thread::sleep(PAUSE);
    old.leave();
    write_on_and_check(RawNbd::connect(nbd, "v").opened());
    demo.stop();
}

/// The same over NVMe/TCP: the host ends its queues and connects again as a new controller.
#[test]
fn what_a_paused_target_had_not_read_is_not_executed_over_nvme_tcp() {
    let scenario = async {
        let directory = TemporaryDirectory::on_disk();
        let demo = start(&directory);
        let served = demo.volume("v");
        let old = Disk::nvme(&served, false).await.expect("NVMe/TCP is served");
        demo.pause();
        for block in 0..BLOCKS {
            let disk = old.clone();
            runtime::spawn(async move {
                let bytes = IoBuf::copy_of(&[OLD; BLOCK]).freeze();
                disk.write(block * BLOCK as u64, bytes).await.expect_err("the target never answered");
            });
        }
        runtime::sleep(PAUSE / 2).await; // they are in the target's sockets
        old.abort();
        runtime::sleep(PAUSE).await;
        demo.resume();
        let new = Disk::nvme(&served, false).await.expect("NVMe/TCP is served");
        for block in 0..BLOCKS / 2 {
            new.write(block * BLOCK as u64, IoBuf::copy_of(&[NEW; BLOCK]).freeze()).await.expect("served");
        }
        runtime::sleep(AFTERMATH).await;
        for block in 0..BLOCKS {
            let expected = if block < BLOCKS / 2 { NEW } else { 0 };
            let bytes = new.read(block * BLOCK as u64, BLOCK as u32).await.expect("served");
            assert!(bytes.iter().all(|byte| *byte == expected), "block {block} holds {:#x}", bytes[0]);
        }
        demo.stop();
    };
    runtime::uring::block_on(scenario).expect("io_uring works here");
}
