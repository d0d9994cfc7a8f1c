//! Cost held by counting: after warm-up the data path takes no memory from the system.

use runtime::uring::{block_on, counters};
use runtime::{Device, IoBuf, SharedBuf, TcpListener, TcpStream, spawn};
use std::path::{Path, PathBuf};

#[global_allocator]
static ALLOCATOR: counting::CountingAllocator = counting::CountingAllocator;

async fn echo(stream: TcpStream) {
    let mut parts = Vec::new();
    loop {
        let received = stream.recv().await.expect("receives");
        if received.is_empty() {
            return;
        }
        parts.push(received);
        stream.send(&mut parts).await.expect("sends");
    }
}

async fn round_trips(client: &TcpStream, message: &SharedBuf, count: usize) {
    let mut parts = Vec::with_capacity(2);
    for _ in 0..count {
        parts.push(message.slice(0..72));
        parts.push(message.slice(72..message.len()));
        client.send(&mut parts).await.expect("sends");
        let mut left = message.len();
        while left > 0 {
            left -= client.recv().await.expect("receives").len();
        }
    }
}

#[test]
fn a_thousand_round_trips_allocate_nothing() {
    block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0".parse().expect("an address")).expect("listens");
        let client = TcpStream::connect(listener.local_address()).await.expect("connects");
        spawn(echo(listener.accept().await.expect("accepts")));
        let message = IoBuf::zeroed(4168).freeze();
        round_trips(&client, &message, 200).await;
        let (before, counted) = (counting::on_this_thread(), counters());
        round_trips(&client, &message, 1000).await;
        assert!(
            counting::on_this_thread() - before <= 1,
            "only the list of parts: {}",
            counting::on_this_thread() - before
        );
        let enters = counters().enters - counted.enters;
        assert!(enters <= 4200, "both ends together: {enters} system calls for 1,000 round trips");
    })
    .expect("a ring");
}

async fn writes(device: &Device, block: &SharedBuf, count: u64) {
    let mut parts = Vec::with_capacity(2);
    for index in 0..count {
        parts.push(block.slice(0..4096));
        parts.push(block.slice(4096..8192));
        device.write(index % 64 * 8192, &mut parts).await.expect("writes");
    }
}

fn a_thousand_writes_allocate_nothing(directory: &Path) {
    let path: PathBuf = directory.join(format!("cairn-allocations-{}", std::process::id()));
    std::fs::File::create(&path).and_then(|file| file.set_len(1 << 20)).expect("a sparse file");
    let name = path.clone();
    let outcome = block_on(async move {
        let device = Device::open(&name).await.expect("opens");
        let block = IoBuf::zeroed(8192).freeze();
        writes(&device, &block, 100).await;
        let before = counting::on_this_thread();
        writes(&device, &block, 1000).await;
        counting::on_this_thread() - before
    });
    let _ = std::fs::remove_file(&path);
    assert!(outcome.expect("a ring") <= 1, "only the list of parts");
}

#[test]
fn a_thousand_writes_to_a_disk_allocate_nothing() {
    a_thousand_writes_allocate_nothing(Path::new(env!("CARGO_TARGET_TMPDIR")));
}

#[test]
fn a_thousand_writes_to_tmpfs_allocate_nothing() {
    a_thousand_writes_allocate_nothing(Path::new("/dev/shm"));
}

#[test]
fn a_thousand_tasks_allocate_nothing() {
    block_on(async {
        let (sender, mut receiver) = runtime::channel::bounded::<u64>(8);
        let mut before = 0;
        for index in 0..1100 {
            if index == 100 {
                before = counting::on_this_thread(); // warm
            }
            let sender = sender.clone();
            spawn(async move { sender.try_send(index).expect("room") });
            assert_eq!(receiver.recv().await, Ok(index));
        }
        assert_eq!(counting::on_this_thread() - before, 0, "a task lives in recycled memory");
    })
    .expect("a ring");
}
