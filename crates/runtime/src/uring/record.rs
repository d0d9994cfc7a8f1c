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

use crate::buf::SharedBuf;
use std::fs::File;
use std::io::{self, BufReader, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};

const MAGIC: [u8; 16] = *b"CAIRN-RECORD-1\n\0";
const HEADER_BYTES: usize = 40;
/// Largest data of one event that a reader believes: a write gathers at most 512 parts of 4 MiB, and is far smaller.
const DATA_BYTES_MAX: u32 = 256 << 20;

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

/// Writes a record. Shared by all cores of a process.
#[derive(Debug)]
pub(crate) struct Recorder(Mutex<Recording>);

#[derive(Debug)]
struct Recording {
    file: File,
    devices: Vec<PathBuf>,
    next_operation: u64,
    /// One event as it goes to the file.
    scratch: Vec<u8>,
}

impl Recorder {
    pub(super) fn create(path: &Path) -> io::Result<Self> {
        let mut file = File::create(path).map_err(|error| {
            io::Error::new(error.kind(), format!("the record {} can not be made: {error}", path.display()))
        })?;
        file.write_all(&MAGIC)?;
        Ok(Self(Mutex::new(Recording { file, devices: Vec::new(), next_operation: 1, scratch: Vec::new() })))
    }

    fn recording(&self) -> MutexGuard<'_, Recording> {
        self.0.lock().unwrap_or_else(|poison| poison.into_inner())
    }

    /// The number of the device at `path`.
    pub(super) fn device(&self, path: &Path, size_bytes: u64, volatile_cache: bool) -> RecordedDevice {
        let mut recording = self.recording();
        if let Some(index) = recording.devices.iter().position(|known| known == path) {
            return RecordedDevice(index as u32);
        }
        let device = RecordedDevice(recording.devices.len() as u32);
        recording.devices.push(path.to_owned());
        let path = path.as_os_str().as_encoded_bytes();
        recording.put(1, device, u64::from(volatile_cache), size_bytes, 0, &[path]);
        device
    }

    pub(super) fn write_issued(&self, device: RecordedDevice, offset: u64, parts: &[SharedBuf]) -> RecordedOperation {
        let mut recording = self.recording();
        let operation = recording.take_operation();
        let Recording { file, scratch, .. } = &mut *recording;
        append(scratch, file, 2, device, operation.0, offset, 0, parts.iter().map(|part| &**part));
        operation
    }

    pub(super) fn write_completed(
        &self,
        device: RecordedDevice,
        operation: RecordedOperation,
        result: &io::Result<()>,
    ) {
        self.recording().put(3, device, operation.0, 0, error_number(result), &[]);
    }

    pub(super) fn sync_issued(&self, device: RecordedDevice) -> RecordedOperation {
        let mut recording = self.recording();
        let operation = recording.take_operation();
        recording.put(4, device, operation.0, 0, 0, &[]);
        operation
    }

    pub(super) fn sync_completed(&self, device: RecordedDevice, operation: RecordedOperation, result: &io::Result<()>) {
        self.recording().put(5, device, operation.0, 0, error_number(result), &[]);
    }

    pub(super) fn discard_issued(&self, device: RecordedDevice, offset: u64, len: u64) -> RecordedOperation {
        let mut recording = self.recording();
        let operation = recording.take_operation();
        recording.put(6, device, operation.0, offset, 0, &[&len.to_le_bytes()]);
        operation
    }

    pub(super) fn discard_completed(
        &self,
        device: RecordedDevice,
        operation: RecordedOperation,
        result: &io::Result<()>,
    ) {
        self.recording().put(7, device, operation.0, 0, error_number(result), &[]);
    }

    fn mark(&self, bytes: &[u8]) {
        self.recording().put(8, RecordedDevice(0), 0, 0, 0, &[bytes]);
    }
}

impl Recording {
    fn take_operation(&mut self) -> RecordedOperation {
        self.next_operation += 1;
        RecordedOperation(self.next_operation - 1)
    }

    fn put(&mut self, kind: u8, device: RecordedDevice, operation: u64, offset: u64, error: u32, data: &[&[u8]]) {
        append(&mut self.scratch, &mut self.file, kind, device, operation, offset, error, data.iter().copied());
    }
}

/// Appends one event with one write, so that a kill leaves at most the last one cut off.
///
/// # Panics
/// If the file takes no more: a record with holes would prove what is not so.
#[expect(clippy::too_many_arguments, reason = "the fields of one header, in order")]
fn append<'a>(
    scratch: &mut Vec<u8>,
    file: &mut File,
    kind: u8,
    device: RecordedDevice,
    operation: u64,
    offset: u64,
    error: u32,
    data: impl Iterator<Item = &'a [u8]>,
) {
    scratch.clear();
    scratch.resize(HEADER_BYTES, 0);
    data.for_each(|bytes| scratch.extend_from_slice(bytes));
    let length = u32::try_from(scratch.len() - HEADER_BYTES).expect("far below 4 GiB");
    scratch[0] = kind;
    scratch[4..8].copy_from_slice(&device.0.to_le_bytes());
    scratch[8..16].copy_from_slice(&operation.to_le_bytes());
    scratch[16..24].copy_from_slice(&offset.to_le_bytes());
    scratch[24..28].copy_from_slice(&length.to_le_bytes());
    scratch[28..32].copy_from_slice(&error.to_le_bytes());
    scratch[32..40].copy_from_slice(&super::boot_clock_ns().to_le_bytes());
    file.write_all(scratch).expect("the record takes what is recorded");
}

fn error_number(result: &io::Result<()>) -> u32 {
    match result {
        Ok(()) => 0,
        Err(error) => error.raw_os_error().unwrap_or(libc::EIO) as u32,
    }
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

/// Reads a record back, event by event.
#[derive(Debug)]
pub struct Reader {
    file: BufReader<File>,
}

impl Reader {
    /// Opens the record at `path`.
    ///
    /// # Errors
    /// What the system says, or `InvalidData` if it is no record.
    pub fn open(path: &Path) -> io::Result<Self> {
        let mut file = BufReader::with_capacity(1 << 20, File::open(path)?);
        let mut magic = [0; MAGIC.len()];
        file.read_exact(&mut magic)?;
        if magic != MAGIC {
            return Err(invalid(format!("{} is not a record of device I/O", path.display())));
        }
        Ok(Self { file })
    }

    fn read_event(&mut self) -> io::Result<Event> {
        let mut header = [0; HEADER_BYTES];
        self.file.read_exact(&mut header)?;
        let u32_at = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().expect("four bytes"));
        let u64_at = |at: usize| u64::from_le_bytes(header[at..at + 8].try_into().expect("eight bytes"));
        let (operation, offset_bytes, length, error) =
            (RecordedOperation(u64_at(8)), u64_at(16), u32_at(24), u32_at(28));
        if length > DATA_BYTES_MAX {
            return Err(invalid(format!("an event of {length} bytes")));
        }
        let mut bytes = vec![0; length as usize];
        self.file.read_exact(&mut bytes)?;
        let what = match header[0] {
            1 => What::Device { path: path_of(bytes), size_bytes: offset_bytes, volatile_cache: operation.0 == 1 },
            2 => What::WriteIssued { operation, offset_bytes, bytes },
            3 => What::WriteCompleted { operation, error },
            4 => What::SyncIssued { operation },
            5 => What::SyncCompleted { operation, error },
            6 => {
                let len = bytes.try_into().map_err(|_| invalid("a discard without a length".to_owned()))?;
                What::DiscardIssued { operation, offset_bytes, len_bytes: u64::from_le_bytes(len) }
            }
            7 => What::DiscardCompleted { operation, error },
            8 => What::Mark { bytes },
            kind => return Err(invalid(format!("an event of kind {kind}"))),
        };
        Ok(Event { device: RecordedDevice(u32_at(4)), time_ns: u64_at(32), what })
    }
}

impl Iterator for Reader {
    type Item = io::Result<Event>;
    fn next(&mut self) -> Option<Self::Item> {
        match self.read_event() {
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => None,
            event => Some(event),
        }
    }
}

fn path_of(bytes: Vec<u8>) -> PathBuf {
    use std::os::unix::ffi::OsStringExt;
    std::ffi::OsString::from_vec(bytes).into()
}

fn invalid(what: String) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, what)
}
