//! SIGTERM under writes: whatever was done is answered before the process ends, in time.

use e2e::demo::Demo;
use e2e::directory::TemporaryDirectory;
use e2e::disk::Disk;
use runtime::{IoBuf, SharedBuf};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

const DEMO: [&str; 6] = ["--device-size", "1G", "--volume", "v:64M", "--cores", "2"];
const BLOCK_BYTES: u64 = 4096;
const BLOCKS: u64 = (64 << 20) / BLOCK_BYTES;
const DEPTH: u64 = 64;
/// Two seconds are the contract; a busy machine gets more.
const STOP_TIME_MAX: Duration = Duration::from_secs(10);

fn block() -> SharedBuf {
    let mut buf = IoBuf::new(BLOCK_BYTES as usize);
    buf.fill(7);
    buf.freeze()
}

async fn is_stopped_with_answers(open: impl AsyncFn(&Demo) -> Disk) {
    let directory = TemporaryDirectory::on_disk();
    let demo = Demo::start(directory.path(), &DEMO);
    let disk = Rc::new(open(&demo).await);
    let answered = Rc::new(RefCell::new(vec![false; BLOCKS as usize]));
    let (count, running) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(DEPTH)));
    for first in 0..DEPTH {
        let (disk, answered, count, running) = (disk.clone(), answered.clone(), count.clone(), running.clone());
        runtime::spawn(async move {
            for number in (first..BLOCKS).step_by(DEPTH as usize) {
                if disk.write(number * BLOCK_BYTES, block()).await.is_err() {
                    break;
                }
                answered.borrow_mut()[number as usize] = true;
                count.set(count.get() + 1);
            }
            running.set(running.get() - 1);
        });
    }
    while count.get() < BLOCKS / 16 {
        runtime::sleep(Duration::from_millis(1)).await;
    }
    let began = Instant::now();
    let stopping = std::thread::spawn(move || demo.stop());
    while !stopping.is_finished() || running.get() > 0 {
        assert!(began.elapsed() < STOP_TIME_MAX, "still there, or clients are left waiting");
        runtime::sleep(Duration::from_millis(1)).await;
    }
    stopping.join().expect("it ended with 0");
    let answered = answered.take();
    assert!(count.get() < BLOCKS, "stopped in the middle");

    let demo = Demo::start(directory.path(), &DEMO);
    let disk = open(&demo).await;
    for number in 0..BLOCKS {
        let bytes = disk.read(number * BLOCK_BYTES, BLOCK_BYTES as u32).await.expect("served again");
        let is_written = bytes.iter().any(|byte| *byte != 0);
        assert_eq!(is_written, answered[number as usize], "block {number}: written and not answered, or the opposite");
    }
    demo.stop();
}

#[test]
fn a_stop_answers_what_nbd_clients_have_in_flight() {
    let open = async |demo: &Demo| Disk::nbd(demo.volume("v").nbd, "v").await.expect("NBD is served");
    runtime::uring::block_on(is_stopped_with_answers(open)).expect("io_uring works here");
}

#[test]
fn a_stop_answers_what_nvme_hosts_have_in_flight() {
    let open = async |demo: &Demo| Disk::nvme(&demo.volume("v"), false).await.expect("NVMe/TCP is served");
    runtime::uring::block_on(is_stopped_with_answers(open)).expect("io_uring works here");
}
