//! A record of device I/O: every write with its bytes, every sync, in the order they were issued and completed.
//!
//! A test rolls an image forward from it and knows at each point which writes a power loss could still take.
//!
//! File layout, little-endian. It begins with the 16 bytes `CAIRN-RECORD-1\n\0`; then event after event, a header
//! of 40 bytes and `length` bytes of data. An event cut off at the end of the file (a killed process) is not there.
//!
//! | bytes | field | what |
//! |---|---|---|
//! | 0 | kind | 1 device, 2 write issued, 3 write completed, 4 sync issued, 5 sync completed, 6 discard issued, 7 discard completed, 8 mark |
//! | 1–3 | – | zero |
//! | 4–7 | device | number of the device within this record, from 0 |
//! | 8–15 | operation | number of the operation, the same in `issued` and `completed`; for a device 1 if it has a volatile cache |
//! | 16–23 | offset | where a write or discard begins; a discard completed: 0; for a device its size |
//! | 24–27 | length | bytes of data that follow: what is written; the path of a device; what a mark says; the 8-byte length of a discard |
//! | 28–31 | error | completed: 0, or the error number |
//! | 32–39 | time | nanoseconds since boot (CLOCK_BOOTTIME: comparable between processes) |
//!
//! An event is in the file (in the page cache) before the operation goes to the kernel, or before its issuer is told
//! of its end: so whatever was acknowledged has its completion in front of it.

mod at_risk;
mod reader;
mod recorder;

pub use at_risk::{AtRisk, RiskyWrite};
pub use reader::Reader;
pub(crate) use recorder::Recorder;
use std::path::PathBuf;

const MAGIC: [u8; 16] = *b"CAIRN-RECORD-1\n\0";
const HEADER_BYTES: usize = 40;

/// Number of a device within one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RecordedDevice(pub u32);

/// Number of an operation within one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecordedOperation(pub u64);

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// A device was opened for the first time in this record.
    Device {
        /// Where it is.
        path: PathBuf,
        /// Its size.
        size_bytes: u64,
        /// Whether a completed write needs a sync to be durable.
        volatile_cache: bool,
    },
    /// A write goes to the device.
    WriteIssued {
        /// Which.
        operation: RecordedOperation,
        /// Where it begins.
        offset_bytes: u64,
        /// What it writes.
        bytes: Vec<u8>,
    },
    /// The device said that a write is done, or failed.
    WriteCompleted {
        /// Which.
        operation: RecordedOperation,
        /// Error number; 0 is success.
        error: u32,
    },
    /// A sync goes to the device.
    SyncIssued {
        /// Which.
        operation: RecordedOperation,
    },
    /// The device said that a sync is done, or failed.
    SyncCompleted {
        /// Which.
        operation: RecordedOperation,
        /// Error number; 0 is success.
        error: u32,
    },
    /// A discard goes to the device.
    DiscardIssued {
        /// Which.
        operation: RecordedOperation,
        /// Where it begins.
        offset_bytes: u64,
        /// How far it reaches.
        len_bytes: u64,
    },
    /// The device said that a discard is done, or failed.
    DiscardCompleted {
        /// Which.
        operation: RecordedOperation,
        /// Error number; 0 is success.
        error: u32,
    },
    /// Something that the process wanted to be found here: see [`mark`].
    Mark {
        /// What it said.
        bytes: Vec<u8>,
    },
}

/// One event of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// On which device; 0 for a mark.
    pub device: RecordedDevice,
    /// Nanoseconds since boot.
    pub time_ns: u64,
    /// What happened.
    pub what: What,
}

/// Puts `bytes` into the record, at this point of the order of events; nothing where nothing is recorded.
/// So a test finds what was acknowledged between which writes.
///
/// # Panics
/// Outside a task of a uring core.
pub fn mark(bytes: &[u8]) {
    if let Some(recorder) = super::Reactor::current().recorder() {
        recorder.mark(bytes);
    }
}
