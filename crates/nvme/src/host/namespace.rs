//! I/O on a namespace.

use super::queue::Queue;
use super::{Controller, HostError};
use crate::wire::identify::IdentifyNamespace;
use crate::wire::{DatasetRange, Sqe, nvm};
use runtime::{IoBuf, SharedBuf};
use std::cell::Cell;
use std::rc::Rc;

/// A namespace of a controller. Clones share it.
///
/// Offsets and lengths are in bytes and multiples of [`block_bytes`](Self::block_bytes); a command moves at most
/// [`max_transfer_bytes`](Self::max_transfer_bytes). Commands go to the queues in turn.
#[derive(Clone)]
pub struct Namespace(Rc<Inner>);

struct Inner {
    controller: Controller,
    nsid: u32,
    identity: IdentifyNamespace,
    max_transfer_bytes: u64,
    next_queue: Cell<usize>,
}

impl Namespace {
    pub(super) fn new(
        controller: Controller,
        nsid: u32,
        identity: IdentifyNamespace,
        max_transfer_bytes: u64,
    ) -> Result<Self, HostError> {
        if controller.queues().is_empty() {
            return Err(HostError::Unsupported("the controller has no I/O queue".into()));
        }
        let next_queue = Cell::new(0);
        Ok(Self(Rc::new(Inner { controller, nsid, identity, max_transfer_bytes, next_queue })))
    }

    /// Its id.
    pub fn nsid(&self) -> u32 {
        self.0.nsid
    }
    /// What the controller told of it.
    pub fn identity(&self) -> &IdentifyNamespace {
        &self.0.identity
    }
    /// Its logical block.
    pub fn block_bytes(&self) -> u32 {
        1 << self.0.identity.block_shift
    }
    /// Its size.
    pub fn size_bytes(&self) -> u64 {
        self.0.identity.size_blocks << self.0.identity.block_shift
    }
    /// The largest transfer of one command.
    pub fn max_transfer_bytes(&self) -> u64 {
        self.0.max_transfer_bytes
    }

    fn queue(&self) -> &Queue {
        let queues = self.0.controller.queues();
        let index = self.0.next_queue.get();
        self.0.next_queue.set(if index + 1 >= queues.len() { 0 } else { index + 1 });
        &queues[index]
    }

    fn command(&self, opcode: u8, offset_bytes: u64, len_bytes: u64) -> Result<Sqe, HostError> {
        let shift = self.0.identity.block_shift;
        let blocks = len_bytes >> shift;
        let whole = (offset_bytes | len_bytes) & (u64::from(self.block_bytes()) - 1) == 0;
        if !whole || blocks == 0 || blocks > 0x1_0000 {
            return Err(HostError::Unsupported(format!(
                "bytes {offset_bytes}+{len_bytes} are not 1 to 65,536 whole blocks of {} bytes",
                self.block_bytes()
            )));
        }
        let mut sqe = Sqe::new(opcode, self.0.nsid);
        sqe.set_slba(offset_bytes >> shift);
        sqe.cdw[2] = blocks as u32 - 1;
        Ok(sqe)
    }

    /// Reads.
    pub async fn read(&self, offset_bytes: u64, len_bytes: u32) -> Result<SharedBuf, HostError> {
        let sqe = self.command(nvm::READ, offset_bytes, u64::from(len_bytes))?;
        let completion = self.queue().submit(sqe, None, len_bytes).await?;
        Ok(completion.data.expect("the queue checked its length"))
    }

    /// Writes.
    pub async fn write(&self, offset_bytes: u64, data: SharedBuf) -> Result<(), HostError> {
        let sqe = self.command(nvm::WRITE, offset_bytes, data.len() as u64)?;
        self.queue().submit(sqe, Some(data), 0).await.map(|_| ())
    }

    /// Compares; a difference is the status "compare failure".
    pub async fn compare(&self, offset_bytes: u64, data: SharedBuf) -> Result<(), HostError> {
        let sqe = self.command(nvm::COMPARE, offset_bytes, data.len() as u64)?;
        self.queue().submit(sqe, Some(data), 0).await.map(|_| ())
    }

    /// Writes if the range holds `expected`, as one. What ended both halves: (compare, write).
    pub async fn compare_and_write(
        &self,
        offset_bytes: u64,
        expected: SharedBuf,
        data: SharedBuf,
    ) -> Result<(Result<(), HostError>, Result<(), HostError>), HostError> {
        let compare = self.command(nvm::COMPARE, offset_bytes, expected.len() as u64)?;
        let write = self.command(nvm::WRITE, offset_bytes, data.len() as u64)?;
        let [compare, write] = self.queue().submit_fused([(compare, expected), (write, data)]).await?;
        Ok((compare.map(drop), write.map(drop)))
    }

    /// Makes the range read as zeroes, and gives the space back if `deallocate`.
    pub async fn write_zeroes(&self, offset_bytes: u64, len_bytes: u64, deallocate: bool) -> Result<(), HostError> {
        let mut sqe = self.command(nvm::WRITE_ZEROES, offset_bytes, len_bytes)?;
        sqe.cdw[2] |= if deallocate { Sqe::DEALLOCATE } else { 0 };
        self.queue().submit(sqe, None, 0).await.map(|_| ())
    }

    /// Makes durable what was acknowledged.
    pub async fn flush(&self) -> Result<(), HostError> {
        self.queue().submit(Sqe::new(nvm::FLUSH, self.0.nsid), None, 0).await.map(|_| ())
    }

    /// Tells that these ranges (offset, length) hold nothing of value.
    pub async fn deallocate(&self, ranges: &[(u64, u64)]) -> Result<(), HostError> {
        let shift = self.0.identity.block_shift;
        if ranges.is_empty() || ranges.len() > DatasetRange::MAX_RANGES {
            return Err(HostError::Unsupported(format!("{} ranges: 1 to 256 fit in a command", ranges.len())));
        }
        let mut data = IoBuf::new(ranges.len() * DatasetRange::BYTES);
        for (bytes, (offset, len)) in data.chunks_exact_mut(DatasetRange::BYTES).zip(ranges) {
            let range = DatasetRange { block_count: (len >> shift) as u32, slba: offset >> shift };
            bytes.copy_from_slice(&range.encode());
        }
        let mut sqe = Sqe::new(nvm::DATASET_MANAGEMENT, self.0.nsid);
        sqe.cdw[0] = ranges.len() as u32 - 1;
        sqe.cdw[1] = DatasetRange::DEALLOCATE;
        self.queue().submit(sqe, Some(data.freeze()), 0).await.map(|_| ())
    }
}
