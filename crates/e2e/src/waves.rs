//! Requests of 4 KiB in waves, for counting what they cost: a depth of requests leaves in one send, the next when all
//! of these are answered. So how many arrive together does not depend on how fast anybody is.

use crate::demo::Served;
use crate::disk::Disk;
use runtime::IoBuf;
use runtime::channel::WaitList;
use std::cell::Cell;
use std::rc::Rc;

/// Length of each request.
pub const BLOCK_BYTES: u64 = 4096;

/// How the target is reached.
#[derive(Clone, Copy, Debug)]
pub enum Door {
    /// NBD.
    Nbd,
    /// NVMe/TCP.
    Nvme,
}

/// What is requested.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// Reads.
    Read,
    /// Writes.
    Write,
}

/// Opens the volume `name` through `door`.
///
/// # Panics
/// If it is not served.
pub async fn open(door: Door, served: &Served, name: &str) -> Disk {
    let disk = match door {
        Door::Nbd => Disk::nbd(served.nbd, name).await,
        // One connection: with two, whether both halves of a wave arrive together is a matter of luck.
        Door::Nvme => Disk::nvme_with(served, 1, false).await,
    };
    disk.unwrap_or_else(|error| panic!("{name} is not served over {door:?}: {error}"))
}

/// `count` requests at `depth`, over a volume of `size_bytes` in a scattered order.
///
/// # Panics
/// If one of them fails.
pub async fn in_waves(disk: &Disk, size_bytes: u64, kind: Kind, depth: u64, count: u64) {
    let payload = IoBuf::copy_of(&[0x5a; BLOCK_BYTES as usize]).freeze();
    let (mut next, ended) = (0, Rc::new(WaitList::default()));
    while next < count {
        let left = Rc::new(Cell::new(depth.min(count - next)));
        for number in next..next + left.get() {
            let (disk, payload) = (disk.clone(), payload.clone());
            let (left, ended) = (left.clone(), ended.clone());
            runtime::spawn(async move {
                // A prime stride visits every block.
                let offset = number * 4099 % (size_bytes / BLOCK_BYTES) * BLOCK_BYTES;
                match kind {
                    Kind::Read => drop(disk.read(offset, BLOCK_BYTES as u32).await.expect("served")),
                    Kind::Write => disk.write(offset, payload).await.expect("served"),
                }
                left.set(left.get() - 1);
                ended.wake_all();
            });
        }
        next += left.get();
        ended.until(|| (left.get() == 0).then_some(())).await;
    }
}
