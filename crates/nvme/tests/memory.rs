//! Memory held by counting: what a thousand idle connections cost the target.

#[path = "serve/node.rs"]
#[allow(dead_code)]
mod node;

use nvme::host::{Controller, HostIdentity, Options};
use runtime::uring::{Cores, Options as CoreOptions, block_on};
use std::sync::mpsc;
use std::time::Duration;

#[global_allocator]
static ALLOCATOR: counting::CountingAllocator = counting::CountingAllocator;

/// Hosts, each with an admin queue and so many I/O queues of this depth.
const HOSTS: u8 = 20;
const IO_QUEUES: u16 = 49;
const DEPTH: u16 = 1023;
const CONNECTIONS: i64 = HOSTS as i64 * (IO_QUEUES as i64 + 1);
/// What docs/performance.md says, with some room: a connection that is idle takes no memory for the commands that it could
/// have under way.
const BYTES_MAX: i64 = 10 << 10;

#[test]
fn an_idle_connection_takes_a_few_kib_whatever_the_depth_of_its_queue() {
    let path = std::env::temp_dir().join(format!("cairn-nvme-memory-{}.img", std::process::id()));
    std::fs::File::create(&path).and_then(|file| file.set_len(512 << 20)).expect("a sparse file");
    let cores = Cores::start(2, &CoreOptions::default()).expect("two cores");
    let (tell, told) = mpsc::channel();
    let (handles, device) = (cores.handles().to_vec(), path.clone());
    cores.handles()[0].spawn_on(move || async move {
        let served = node::start(handles, [127, 0, 0, 1].into(), &device).await;
        tell.send(served.address).expect("the test waits");
        std::future::pending::<()>().await;
    });
    let address = told.recv().expect("the target starts");
    // The hosts are on this thread, and not counted.
    counting::watch_this_thread(false);
    let each = block_on(async move {
        let connect = |number: u8| async move {
            let identity = HostIdentity { nqn: format!("nqn.2026-01.io.example:{number}"), id: [number; 16] };
            let mut options = Options::new(identity, node::NQN);
            options.io_queues = IO_QUEUES;
            options.queue_depth = DEPTH;
            options.keep_alive = Duration::ZERO;
            Controller::connect(address, &options).await.expect("connected")
        };
        drop(connect(0).await); // what the first one brings with it is not counted
        runtime::sleep(Duration::from_millis(300)).await;
        let before = counting::bytes_held();
        let mut controllers = Vec::new();
        for number in 1..=HOSTS {
            controllers.push(connect(number).await);
        }
        runtime::sleep(Duration::from_millis(300)).await;
        (counting::bytes_held() - before) / CONNECTIONS
    })
    .expect("a reactor");
    cores.stop();
    let _ = std::fs::remove_file(&path);
    println!("{CONNECTIONS} idle connections: {each} bytes each");
    assert!(each > 0 && each <= BYTES_MAX, "{each} bytes each");
}
