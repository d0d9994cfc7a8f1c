//! The load of `torture` on a volume of a cluster that is hurt, and what its verdict is for a scenario.

use nbd::client::{Client, ClientError};
use nvme::host::HostIdentity;
use runtime::IoBuf;
use std::net::SocketAddr;
use std::time::Duration;
use torture::load::{Load, Outcome, Plan};
use torture::target::Target;

/// What is on its way has an answer by then, and all that is used was read.
const FINISH_MAX: Duration = Duration::from_secs(90);

/// No space left (NBD `doc/proto.md`, error values).
const NBD_ENOSPC: u32 = 28;

/// What a load on this volume is.
pub fn plan(target: Target, seed: u64) -> Plan {
    let process = std::process::id();
    let mut id = *b"cairn-faults-hst";
    id[12..].copy_from_slice(&process.to_le_bytes());
    Plan::new(target, HostIdentity { nqn: format!("nqn.2026-01.test:faults-{process}"), id }, seed)
}

/// Ends a load: what clients saw can be.
///
/// # Panics
/// Otherwise.
pub fn passes(load: Load) -> Outcome {
    let outcome = load.finish(FINISH_MAX);
    if let Some(found) = outcome.findings.first() {
        panic!("{found}\n{}({} findings)", found.story, outcome.findings.len());
    }
    outcome
}

/// Writes so many bytes of a volume from its beginning, or until there is no space left; whether there was.
///
/// # Panics
/// Of any other answer.
pub fn fill(address: SocketAddr, volume: &str, length: u64) -> bool {
    const PIECE: usize = 512 << 10;
    let volume = volume.to_owned();
    let run = move || async move {
        let client = Client::connect(address, &volume, true).await.expect("it is served");
        for piece in 0..length / PIECE as u64 {
            let mut buf = IoBuf::new(PIECE);
            buf.fill(piece as u8 | 1);
            match client.write(piece * PIECE as u64, buf.freeze(), false).await {
                Ok(()) => {}
                Err(ClientError::Refused { number: NBD_ENOSPC, .. }) => {
                    client.abort();
                    return false;
                }
                Err(why) => panic!("after {piece} pieces: {why}"),
            }
        }
        client.abort();
        true
    };
    let filled = std::thread::spawn(move || runtime::uring::block_on(run()).expect("io_uring works here")).join();
    filled.unwrap_or_else(|_| panic!("see above"))
}

/// Writes these blocks of 4 KiB of a volume, one after the other.
///
/// # Panics
/// If one is not written.
pub fn write_blocks(address: SocketAddr, volume: &str, blocks: Vec<u64>) {
    const BLOCK: usize = 4096;
    let volume = volume.to_owned();
    let run = move || async move {
        let client = Client::connect(address, &volume, true).await.expect("it is served");
        for (number, block) in blocks.into_iter().enumerate() {
            let mut buf = IoBuf::new(BLOCK);
            buf.fill(number as u8 | 1);
            client.write(block * BLOCK as u64, buf.freeze(), false).await.expect("it is written");
        }
        client.abort();
    };
    let written = std::thread::spawn(move || runtime::uring::block_on(run()).expect("io_uring works here")).join();
    written.unwrap_or_else(|_| panic!("see above"));
}
