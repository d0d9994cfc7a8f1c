//! A block device, or a file that serves as one.

use crate::buf::{IoBuf, SharedBuf};
use crate::core::{self, Backend};
use crate::{sim, uring};
use std::io;
use std::path::Path;

/// What the kernel (or the simulation) says of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Usable size, a multiple of `block_size_bytes`.
    pub size_bytes: u64,
    /// Smallest unit of an aligned write, 512 or 4,096: what a power loss may tear a write into.
    pub block_size_bytes: u32,
    /// Whether a completed write may still be lost with the power until [`Device::sync`] returns.
    pub volatile_cache: bool,
    /// Whether this is a file and not a block device.
    pub is_file: bool,
}

/// An open device. Belongs to the core that opened it; clones share it.
///
/// Offsets, lengths and buffer addresses are multiples of the device's block size. Operations run in parallel and in
/// no promised order; a buffer belongs to its operation until it ends, also when the future is dropped.
#[derive(Clone, Debug)]
pub struct Device(Inner);

#[derive(Clone, Debug)]
enum Inner {
    Uring(uring::UringDevice),
    Sim(sim::SimDevice),
}

/// Most buffers that one [`Device::write`] gathers.
pub const MAX_WRITE_PARTS: usize = 512;

impl Device {
    /// Opens the block device or regular file at `path` for direct I/O and exclusive use.
    ///
    /// # Errors
    /// What the system says: not found, permission, busy, no O_DIRECT on this file system.
    pub async fn open(path: &Path) -> io::Result<Self> {
        match core::with_current(|core| match &core.backend {
            Backend::Uring(_) => None,
            Backend::Sim(sim) => Some(sim.clone()),
        }) {
            None => uring::UringDevice::open(path).await.map(|d| Self(Inner::Uring(d))),
            Some(sim) => sim::SimDevice::open(&sim, path).await.map(|d| Self(Inner::Sim(d))),
        }
    }

    /// What is known of it.
    pub fn info(&self) -> &DeviceInfo {
        match &self.0 {
            Inner::Uring(device) => device.info(),
            Inner::Sim(device) => device.info(),
        }
    }

    /// Fills `buf` from `offset_bytes`. The buffer comes back in any case, its contents undefined after an error.
    pub async fn read(&self, offset_bytes: u64, buf: IoBuf) -> (io::Result<()>, IoBuf) {
        match &self.0 {
            Inner::Uring(device) => device.read(offset_bytes, buf).await,
            Inner::Sim(device) => device.read(offset_bytes, buf).await,
        }
    }

    /// Writes `parts` one after the other from `offset_bytes`, as one device write. Returns when the device says it is
    /// done: durable only if the device has no volatile cache, else after a later [`sync`](Self::sync).
    /// The list is taken, not consumed: it comes back empty with its room, so that it can be used again.
    ///
    /// # Panics
    /// Above [`MAX_WRITE_PARTS`] parts.
    pub async fn write(&self, offset_bytes: u64, parts: &mut Vec<SharedBuf>) -> io::Result<()> {
        assert!(parts.len() <= MAX_WRITE_PARTS);
        match &self.0 {
            Inner::Uring(device) => device.write(offset_bytes, parts).await,
            Inner::Sim(device) => device.write(offset_bytes, parts).await,
        }
    }

    /// Makes durable every write that had completed when this was called. At once if there is no volatile cache.
    ///
    /// # Errors
    /// After one, the state of the writes is unknown and asking again proves nothing: the device has failed.
    pub async fn sync(&self) -> io::Result<()> {
        if !self.info().volatile_cache || types::mutant(types::Mutant::FlushRemoved) {
            return Ok(());
        }
        match &self.0 {
            Inner::Uring(device) => device.sync().await,
            Inner::Sim(device) => device.sync().await,
        }
    }

    /// Tells the device that the range holds nothing of value; what it reads afterwards is undefined.
    /// Done where it can be done, without an error where it can not.
    pub async fn discard(&self, offset_bytes: u64, len_bytes: u64) -> io::Result<()> {
        match &self.0 {
            Inner::Uring(device) => device.discard(offset_bytes, len_bytes).await,
            Inner::Sim(device) => device.discard(offset_bytes, len_bytes).await,
        }
    }
}
