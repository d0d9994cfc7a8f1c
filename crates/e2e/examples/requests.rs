//! For `tools/callgrind.sh`: starts `cairn demo` (what `CAIRN_BIN` names), sends it requests and stops it.
//!
//! ```text
//! requests nbd|nvme read|write DEPTH COUNT
//! ```
//!
//! What comes before the requests is the same for every COUNT: the difference of two runs is the requests alone.

use e2e::demo::Demo;
use e2e::directory::TemporaryDirectory;
use e2e::waves::{BLOCK_BYTES, Door, Kind, in_waves, open};

const DEMO: [&str; 6] = ["--device-size", "1G", "--volume", "v:16M", "--cores", "1"];

fn main() {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [door, kind, depth, count] = &arguments[..] else { panic!("requests nbd|nvme read|write DEPTH COUNT") };
    let door = if door == "nbd" { Door::Nbd } else { Door::Nvme };
    let kind = if kind == "read" { Kind::Read } else { Kind::Write };
    let number = |text: &str| text.parse().unwrap_or_else(|_| panic!("{text} is not a number"));
    let (depth, count): (u64, u64) = (number(depth), number(count));
    let directory = TemporaryDirectory::in_memory();
    let demo = Demo::start(&directory.path().join("d"), &DEMO);
    let served = demo.volume("v");
    let work = async move {
        let disk = open(door, &served, "v").await;
        in_waves(&disk, served.size_bytes, Kind::Write, depth, served.size_bytes / BLOCK_BYTES).await;
        in_waves(&disk, served.size_bytes, kind, depth, count).await;
    };
    runtime::uring::block_on(work).expect("io_uring works here");
    demo.stop();
}
