//! kill -9 under verified writes: after every restart each block is what its journal allows.

use e2e::demo::Demo;
use e2e::directory::TemporaryDirectory;
use e2e::disk::Disk;
use e2e::load::{Load, Plan};
use e2e::random::Random;
use e2e::relay::{Answers, Log, relay};
use runtime::TcpListener;
use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;

const ROUNDS: u64 = 5;
const DEMO: [&str; 6] = ["--device-size", "1G", "--volume", "v:64M", "--cores", "1"];

/// Load, kill -9 after a random number of answers, restart, verify all; five times on one directory.
async fn survives_kills(seed: u64, align_sectors: u64, open: impl AsyncFn(&Demo) -> Disk) {
    let directory = TemporaryDirectory::on_disk();
    let mut random = Random::new(seed);
    let plan = Plan { seed, volume: seed, depth: 32, sectors_max: 1024, align_sectors };
    let mut demo = Demo::start(directory.path(), &DEMO);
    let load = Load::new(plan, demo.volume("v").size_bytes);
    for round in 1..=ROUNDS {
        let disk = open(&demo).await;
        load.start(&disk);
        load.reach(load.completed() + 500 + random.below(4000)).await;
        demo.kill();
        load.ended().await;
        load.assert_sound();
        drop(disk);
        demo = Demo::start(directory.path(), &DEMO);
        let disk = open(&demo).await;
        load.verify(&disk).await;
        eprintln!("round {round}: {} requests verified across kill -9", load.completed());
    }
    demo.stop();
}

#[test]
fn acknowledged_writes_survive_kill_9_over_nbd() {
    let run =
        survives_kills(1, 1, async |demo: &Demo| Disk::nbd(demo.volume("v").nbd, "v").await.expect("NBD is served"));
    runtime::uring::block_on(run).expect("io_uring works here");
}

#[test]
fn acknowledged_writes_survive_kill_9_over_nvme_tcp() {
    let run = survives_kills(2, 1, async |demo: &Demo| {
        Disk::nvme(&demo.volume("v"), false).await.expect("NVMe/TCP is served")
    });
    runtime::uring::block_on(run).expect("io_uring works here");
}

/// The same through a door that answers writes before the target has: the checks above must notice.
#[test]
fn a_door_that_answers_before_the_target_does_is_noticed() {
    let run = async {
        let directory = TemporaryDirectory::on_disk();
        let demo = Demo::start(directory.path(), &DEMO);
        let served = demo.volume("v");
        let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).expect("a free port");
        let address = listener.local_address();
        let log = Rc::new(RefCell::new(Log::default()));
        runtime::spawn(relay(listener, served.nbd, "v".into(), Answers::Early, log));
        let plan = Plan { seed: 3, volume: 3, depth: 32, sectors_max: 1024, align_sectors: 1 };
        let load = Load::new(plan, served.size_bytes);
        load.start(&Disk::nbd(address, "v").await.expect("the relay serves"));
        load.reach(1000).await;
        demo.kill();
        load.ended().await;
        load.assert_sound(); // as long as it lived nobody could tell
        let demo = Demo::start(directory.path(), &DEMO);
        load.check_all(&Disk::nbd(demo.volume("v").nbd, "v").await.expect("NBD is served")).await;
        demo.stop();
        load.violation()
    };
    let violation = runtime::uring::block_on(run).expect("io_uring works here");
    eprintln!("noticed: {}", violation.expect("writes were answered early, lost, and nobody noticed"));
}
