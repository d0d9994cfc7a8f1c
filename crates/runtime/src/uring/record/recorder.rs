//! Writing a record.

use super::{HEADER_BYTES, MAGIC, RecordedDevice, RecordedOperation};
use crate::buf::SharedBuf;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};

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
    pub(in crate::uring) fn create(path: &Path) -> io::Result<Self> {
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
    pub(in crate::uring) fn device(&self, path: &Path, size_bytes: u64, volatile_cache: bool) -> RecordedDevice {
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

    pub(in crate::uring) fn write_issued(
        &self,
        device: RecordedDevice,
        offset: u64,
        parts: &[SharedBuf],
    ) -> RecordedOperation {
        let mut recording = self.recording();
        let operation = recording.take_operation();
        let Recording { file, scratch, .. } = &mut *recording;
        append(scratch, file, 2, device, operation.0, offset, 0, parts.iter().map(|part| &**part));
        operation
    }

    pub(in crate::uring) fn write_completed(
        &self,
        device: RecordedDevice,
        operation: RecordedOperation,
        result: &io::Result<()>,
    ) {
        self.recording().put(3, device, operation.0, 0, error_number(result), &[]);
    }

    pub(in crate::uring) fn sync_issued(&self, device: RecordedDevice) -> RecordedOperation {
        let mut recording = self.recording();
        let operation = recording.take_operation();
        recording.put(4, device, operation.0, 0, 0, &[]);
        operation
    }

    pub(in crate::uring) fn sync_completed(
        &self,
        device: RecordedDevice,
        operation: RecordedOperation,
        result: &io::Result<()>,
    ) {
        self.recording().put(5, device, operation.0, 0, error_number(result), &[]);
    }

    pub(in crate::uring) fn discard_issued(&self, device: RecordedDevice, offset: u64, len: u64) -> RecordedOperation {
        let mut recording = self.recording();
        let operation = recording.take_operation();
        recording.put(6, device, operation.0, offset, 0, &[&len.to_le_bytes()]);
        operation
    }

    pub(in crate::uring) fn discard_completed(
        &self,
        device: RecordedDevice,
        operation: RecordedOperation,
        result: &io::Result<()>,
    ) {
        self.recording().put(7, device, operation.0, 0, error_number(result), &[]);
    }

    pub(super) fn mark(&self, bytes: &[u8]) {
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
    scratch[32..40].copy_from_slice(&super::super::boot_clock_ns().to_le_bytes());
    file.write_all(scratch).expect("the record takes what is recorded");
}

fn error_number(result: &io::Result<()>) -> u32 {
    match result {
        Ok(()) => 0,
        Err(error) => error.raw_os_error().unwrap_or(libc::EIO) as u32,
    }
}
