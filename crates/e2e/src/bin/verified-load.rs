//! `verified-load`: one of several clients of a cluster that is killed: writes, checks all of it, and after the kill
//! checks again that nothing which was acknowledged is lost. `e2e/together.sh` runs some beside clients of other makes.
//!
//! Each step is a line on standard output: `verified` (the first load is over and all was read back), `loading` (the
//! second one is under way: kill the node now), `kept` (the node was started again on the same ports, all was read
//! back). It waits for the file GO between the first two. A violation is a panic that names volume, sector and version.

use e2e::demo::Served;
use e2e::disk::{Disk, DiskError};
use e2e::load::{Load, Plan};
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

const USAGE: &str = "usage: verified-load HOST:PORT VOLUME nbd|nvme|nvme-digests MIB REQUESTS GO
  HOST:PORT of the admin API; MIB of the volume, from its beginning, that are loaded; REQUESTS of the first load;
  GO is a file for which it waits before the second";
/// How long each of its waits lasts at most: for GO, for the node that is started again.
const WAIT_MAX: Duration = Duration::from_secs(300);
/// Requests under way at once, and the longest one: 512 KiB.
const DEPTH: usize = 16;
const SECTORS_MAX: u64 = 1024;
/// Requests of the second load that are answered before anybody may kill the node.
const LOADED: u64 = 200;

#[derive(Clone)]
struct Arguments {
    admin: SocketAddr,
    volume: String,
    door: String,
    mib: u64,
    requests: u64,
    go: std::path::PathBuf,
}

fn arguments() -> Option<Arguments> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [admin, volume, door, mib, requests, go] = words.as_slice() else { return None };
    let admin = admin.parse().ok()?;
    let (mib, requests) = (mib.parse().ok().filter(|mib| *mib > 0)?, requests.parse().ok()?);
    ["nbd", "nvme", "nvme-digests"].contains(&door.as_str()).then(|| Arguments {
        admin,
        volume: volume.clone(),
        door: door.clone(),
        mib,
        requests,
        go: go.into(),
    })
}

impl Arguments {
    async fn open(&self) -> Result<Disk, DiskError> {
        let served = Served::of(self.admin, &self.volume);
        match self.door.as_str() {
            "nbd" => Disk::nbd(served.nbd, &self.volume).await,
            door => Disk::nvme(&served, door == "nvme-digests").await,
        }
    }
}

/// Waits until `ready`, which is asked ten times a second.
async fn wait(what: &str, ready: impl Fn() -> bool) {
    let pause = Duration::from_millis(100);
    for _ in 0..WAIT_MAX.as_millis() / pause.as_millis() {
        if ready() {
            return;
        }
        runtime::sleep(pause).await;
    }
    panic!("{what}: not within {} s", WAIT_MAX.as_secs());
}

async fn run(arguments: Arguments) {
    let served = Served::of(arguments.admin, &arguments.volume);
    let size_bytes = arguments.mib << 20;
    assert!(size_bytes <= served.size_bytes, "{} is smaller than {} MiB", arguments.volume, arguments.mib);
    // Whole 4 KiB blocks: right for both formats.
    let plan = Plan {
        seed: served.nsid.into(),
        volume: served.nsid.into(),
        depth: DEPTH,
        sectors_max: SECTORS_MAX,
        align_sectors: 8,
    };
    let load = Load::new(plan, size_bytes);
    let disk = arguments.open().await.expect("the volume is served");
    load.start(&disk);
    load.reach(arguments.requests).await;
    load.stop();
    load.ended().await;
    load.verify(&disk).await;
    println!("verified after {} requests", load.completed());

    let go = arguments.go.clone();
    wait("nobody says GO", || Path::new(&go).exists()).await;
    load.start(&disk);
    load.reach(load.completed() + LOADED).await;
    load.assert_sound();
    println!("loading");
    load.ended().await;
    load.assert_sound();
    drop(disk);

    let admin = arguments.admin;
    wait("the node does not come back", || e2e::admin::is_ready(admin)).await;
    let disk = arguments.open().await.expect("the volume is served again");
    load.verify(&disk).await;
    println!("kept: all of {} requests", load.completed());
}

fn main() -> std::process::ExitCode {
    let Some(arguments) = arguments() else {
        eprintln!("{USAGE}");
        return 2.into();
    };
    match runtime::uring::block_on(run(arguments)) {
        Ok(()) => 0.into(),
        Err(error) => {
            eprintln!("verified-load: io_uring does not work here: {error}");
            1.into()
        }
    }
}
