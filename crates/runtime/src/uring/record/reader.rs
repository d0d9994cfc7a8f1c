//! Reading a record.

use super::{Event, HEADER_BYTES, MAGIC, RecordedDevice, RecordedOperation, What};
use std::fs::File;
use std::io::{self, BufReader, ErrorKind, Read};
use std::path::{Path, PathBuf};

/// Largest data of one event that a reader believes: a write gathers at most 512 parts of 4 MiB, and is far smaller.
const DATA_BYTES_MAX: u32 = 256 << 20;

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
