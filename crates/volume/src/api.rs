//! What the front doors see of a volume.

use runtime::SharedBuf;
use std::rc::Rc;
use types::VolumeId;

/// What a host is told of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeInfo {
    /// Its id, for ever.
    pub id: VolumeId,
    /// Its name, today.
    pub name: String,
    /// Size in bytes, a multiple of 4 KiB.
    pub size_bytes: u64,
    /// Logical block of the NVMe namespace: 512 or 4,096. NBD takes any byte range whatever it is.
    pub block_size_bytes: u32,
    /// NVMe namespace id, stable.
    pub nsid: u32,
    /// NVMe namespace globally unique id, the same on all paths.
    pub nguid: [u8; 16],
}

/// Bytes to write: contiguous, with block checksums if the caller already has them (crc32c of each whole 4 KiB).
#[derive(Clone, Debug)]
pub struct Payload {
    /// The bytes.
    pub bytes: SharedBuf,
}

/// What a read returns: `bytes` is the range asked for and nothing else; `block_checksums` are the crc32c of the whole
/// 4 KiB blocks in it, in order, when the range is whole blocks (else empty), so that a data digest needs no second pass.
#[derive(Clone, Debug)]
pub struct ReadData {
    /// The bytes asked for.
    pub bytes: SharedBuf,
    /// One per block, or empty.
    pub block_checksums: Vec<u32>,
}

/// Why a command was not done. The front door turns it into its protocol's status.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IoError {
    /// The range runs past the end of the volume.
    #[error("bytes {offset_bytes}+{len_bytes} run past the end of the volume ({size_bytes} bytes)")]
    OutOfRange {
        /// Where it starts.
        offset_bytes: u64,
        /// How long it is.
        len_bytes: u64,
        /// The volume's size.
        size_bytes: u64,
    },
    /// No room for new blocks.
    #[error("no space: {0}")]
    NoSpace(String),
    /// What is stored fails its checksum or is missing, and there is no other copy.
    #[error("damaged data: {0}")]
    Damaged(String),
    /// The volume's bytes differ from the ones to compare with, first at this byte offset.
    #[error("the compared bytes differ at offset {0}")]
    CompareFailed(u64),
    /// The volume was deleted, or moved away from this head.
    #[error("the volume is gone from here: {0}")]
    Gone(String),
    /// The device or group cannot serve now and nothing is known to be wrong with the command.
    #[error("unavailable: {0}")]
    Unavailable(String),
}

/// A volume as one core sees it. Clones share it. All calls may be made from any task of that core.
///
/// Every command is admitted when it is called (not when first polled): commands that overlap in a 4 KiB block are
/// executed in the order of the calls. A write that has returned is durable.
#[derive(Clone)]
pub struct Volume(pub(crate) Rc<()>);

impl Volume {
    /// What a host is told of it, as of now.
    pub fn info(&self) -> VolumeInfo {
        todo!()
    }
    /// Reads `len_bytes` (1..=32 MiB) at `offset_bytes`, any alignment.
    pub async fn read(&self, _offset_bytes: u64, _len_bytes: u32) -> Result<ReadData, IoError> {
        todo!()
    }
    /// Writes `payload` at `offset_bytes`, any alignment. Durable when it returns.
    pub async fn write(&self, _offset_bytes: u64, _payload: Payload) -> Result<(), IoError> {
        todo!()
    }
    /// Makes the range read as zeroes; the space is given back.
    pub async fn write_zeroes(&self, _offset_bytes: u64, _len_bytes: u64) -> Result<(), IoError> {
        todo!()
    }
    /// Tells that the range holds nothing of value: the whole 4 KiB blocks in it read as zeroes afterwards, partial
    /// blocks at its edges are left alone.
    pub async fn discard(&self, _offset_bytes: u64, _len_bytes: u64) -> Result<(), IoError> {
        todo!()
    }
    /// All writes that had returned when this was called are durable when it returns.
    pub async fn flush(&self) -> Result<(), IoError> {
        todo!()
    }
    /// Compares the range with `payload`, in order with overlapping writes.
    pub async fn compare(&self, _offset_bytes: u64, _payload: Payload) -> Result<(), IoError> {
        todo!()
    }
}

/// The volumes that one core serves. Clones share it.
#[derive(Clone)]
pub struct Directory(pub(crate) Rc<()>);

impl Directory {
    /// The volume of this name.
    pub fn by_name(&self, _name: &str) -> Option<Volume> {
        todo!()
    }
    /// The volume of this NVMe namespace id.
    pub fn by_nsid(&self, _nsid: u32) -> Option<Volume> {
        todo!()
    }
    /// All volumes, by name.
    pub fn list(&self) -> Vec<Volume> {
        todo!()
    }
    /// Counts up with every change of the list or of a volume's info.
    pub fn generation(&self) -> u64 {
        todo!()
    }
    /// Resolves when [`generation`](Self::generation) has left `seen`.
    pub async fn changed(&self, _seen: u64) {
        todo!()
    }
}
