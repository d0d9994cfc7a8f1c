//! Sums and lengths of the blocks that an entry brings: the payload of writes and moves.

use super::{WHAT, WRITE_BYTES_PER_BLOCK};
use crate::format::FormatError;
use crate::format::blocks::{Crc32c, DeviceUnit, StoredBlock, StoredLength};
use crate::format::bytes::{put_u32, u32_at, u40_at};

pub(super) fn put_sums(out: &mut [u8], count: usize, sums: impl Iterator<Item = (Crc32c, StoredLength)>) -> usize {
    let (checksums, lengths) = out[..count * WRITE_BYTES_PER_BLOCK].split_at_mut(count * 4);
    let mut written = 0;
    for (checksum, stored) in sums {
        put_u32(checksums, written * 4, checksum.0);
        lengths[written] = stored.byte();
        written += 1;
    }
    written
}

/// Sums and stored lengths of an entry's blocks.
///
/// | at | bytes | field |
/// |---|---|---|
/// | 0 | 4 × count | crc32c of each block as stored |
/// | 4 × count | count | stored length and codec of each |
/// | 5 × count | 5 × count | of a move only: where each was, 512-byte units |
#[derive(Clone, Copy, Debug)]
pub struct StoredSums<'a> {
    bytes: &'a [u8],
    count: usize,
}

impl<'a> StoredSums<'a> {
    /// `bytes` is checked: it has room for `count`, and each length is one.
    pub(super) fn decode(bytes: &'a [u8], count: usize) -> Result<Self, FormatError> {
        for byte in &bytes[count * 4..count * WRITE_BYTES_PER_BLOCK] {
            if StoredLength::from_byte(*byte).is_none() {
                return Err(FormatError::Field { what: WHAT, field: "stored length", found: u64::from(*byte) });
            }
        }
        Ok(Self { bytes, count })
    }

    /// Number of blocks.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Sum and stored length of each block, in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (Crc32c, StoredLength)> + use<'a> {
        let (bytes, count) = (self.bytes, self.count);
        (0..count).map(move |i| {
            let stored = StoredLength::from_byte(bytes[count * 4 + i]).unwrap_or(StoredLength::RAW);
            (Crc32c(u32_at(bytes, i * 4)), stored)
        })
    }

    /// The blocks as the index keeps them, the first of them at `first` on the device, the others behind it.
    pub fn stored_from(&self, first: DeviceUnit) -> impl ExactSizeIterator<Item = StoredBlock> + use<'a> {
        let mut location = first;
        self.iter().map(move |(checksum, stored)| {
            let block = StoredBlock { location, stored, checksum };
            location = block.end();
            block
        })
    }

    /// Units that all of them take.
    pub fn units(&self) -> u64 {
        self.iter().map(|(_, stored)| u64::from(stored.units())).sum()
    }
}

/// The payload of a move.
#[derive(Clone, Copy, Debug)]
pub struct MovedBlocks<'a> {
    /// What is moved, as of a write.
    pub sums: StoredSums<'a>,
}

impl<'a> MovedBlocks<'a> {
    /// Where each block was.
    pub fn from(&self) -> impl ExactSizeIterator<Item = DeviceUnit> + use<'a> {
        let (bytes, count) = (self.sums.bytes, self.sums.count);
        (0..count).map(move |i| DeviceUnit(u40_at(bytes, count * WRITE_BYTES_PER_BLOCK + i * 5)))
    }
}
