//! One stored block: where it is, how long it is there, and the sum its bytes must have.

use super::bytes::{put_u32, put_u40};
use types::BLOCK_BYTES;

/// Unit of locations and stored lengths: 512 bytes, the smallest sector.
pub const UNIT_BYTES: usize = 512;
/// Units of a block stored as it is.
pub const UNITS_PER_BLOCK: u8 = (BLOCK_BYTES / UNIT_BYTES) as u8;

/// Position on the device in 512-byte units; 40 bits when stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceUnit(pub u64);

impl DeviceUnit {
    /// The byte it stands for.
    pub fn byte_offset(self) -> u64 {
        self.0 * UNIT_BYTES as u64
    }
}

/// crc32c (Castagnoli, as in iSCSI and NVMe/TCP) of bytes as stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Crc32c(pub u32);

impl Crc32c {
    /// The sum of `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        Self(crc32c::crc32c(bytes))
    }
}

/// What was done to a block's bytes before they came here. The store never looks inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Codec {
    /// Nothing: 4,096 bytes as written (they may be encrypted).
    Raw = 0,
    /// Two bytes of exact length, then lz4.
    Lz4 = 1,
    /// Two bytes of exact length, then zstd.
    Zstd = 2,
}

/// Length of a stored block in units and its codec, in one byte: units in the low four bits, codec in the high four.
///
/// Raw blocks have 8 units; coded ones 1..=7, for a block that does not shrink is stored raw.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StoredLength(u8);

impl StoredLength {
    /// A whole block, as it is.
    pub const RAW: Self = Self(UNITS_PER_BLOCK);

    /// # Panics
    /// If the codec cannot have this length.
    pub fn new(units: u8, codec: Codec) -> Self {
        Self::from_byte(units | (codec as u8) << 4).expect("raw blocks have 8 units, coded ones 1 to 7")
    }

    /// Units of 512 bytes, 1..=8.
    pub fn units(self) -> u8 {
        self.0 & 15
    }

    /// Length in bytes.
    pub fn bytes(self) -> usize {
        usize::from(self.units()) * UNIT_BYTES
    }

    /// What was done to the bytes.
    pub fn codec(self) -> Codec {
        match self.0 >> 4 {
            0 => Codec::Raw,
            1 => Codec::Lz4,
            _ => Codec::Zstd,
        }
    }

    /// The byte as stored.
    pub fn byte(self) -> u8 {
        self.0
    }

    /// `None` for a byte that no writer writes.
    pub fn from_byte(byte: u8) -> Option<Self> {
        let (units, codec) = (byte & 15, byte >> 4);
        let good = match codec {
            0 => units == UNITS_PER_BLOCK,
            1 | 2 => (1..UNITS_PER_BLOCK).contains(&units),
            _ => false,
        };
        good.then_some(Self(byte))
    }
}

/// Where one 4 KiB block is stored, and the sum that its stored bytes must have.
///
/// | at | bytes | field |
/// |---|---|---|
/// | 0 | 5 | location, 512-byte units from the start of the device |
/// | 5 | 1 | stored length (low four bits, units) and codec (high four) |
/// | 6 | 4 | crc32c of the stored bytes |
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StoredBlock {
    /// First unit on the device, 40 bits: devices up to 512 TiB.
    pub location: DeviceUnit,
    /// Units there, and codec.
    pub stored: StoredLength,
    /// Sum of the bytes as stored, kept apart from them so that a lost or misplaced write is caught.
    pub checksum: Crc32c,
}

impl StoredBlock {
    /// Length as stored.
    pub const ENCODED_BYTES: usize = 10;

    /// One past its last unit.
    pub fn end(self) -> DeviceUnit {
        DeviceUnit(self.location.0 + u64::from(self.stored.units()))
    }

    pub(crate) fn encode(self, out: &mut [u8]) {
        put_u40(out, 0, self.location.0);
        out[5] = self.stored.byte();
        put_u32(out, 6, self.checksum.0);
    }
}
const _: () = assert!(StoredBlock::ENCODED_BYTES == 10);

/// No block lies below: the front area ends here.
pub const FIRST_DATA_UNIT: u64 = super::geometry::END_AREA_BYTES / UNIT_BYTES as u64;

/// What a leaf says of one block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum BlockState {
    /// Nothing was written in this layer: read the layer below, or zeroes if there is none.
    #[default]
    Absent,
    /// Zeroes, whatever the layer below holds.
    Zero,
    /// Stored here.
    Stored(StoredBlock),
}

impl BlockState {
    /// Where it is stored, if it is.
    pub fn stored(self) -> Option<StoredBlock> {
        match self {
            Self::Stored(block) => Some(block),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_bytes() {
        let block = StoredBlock {
            location: DeviceUnit(0x01_2345_6789),
            stored: StoredLength::new(3, Codec::Zstd),
            checksum: Crc32c(0xdead_beef),
        };
        let mut out = [0; 10];
        block.encode(&mut out);
        assert_eq!(out, [0x89, 0x67, 0x45, 0x23, 0x01, 0x23, 0xef, 0xbe, 0xad, 0xde]);
    }

    #[test]
    fn a_length_that_its_codec_cannot_have_is_refused() {
        let good: Vec<u8> = (0..=255).filter(|b| StoredLength::from_byte(*b).is_some()).collect();
        assert_eq!(good, [8, 17, 18, 19, 20, 21, 22, 23, 33, 34, 35, 36, 37, 38, 39]);
        assert!(good.iter().all(|b| StoredLength::from_byte(*b).is_some_and(|s| s.byte() == *b)));
    }

    #[test]
    fn the_sum_is_the_one_of_rfc_3720() {
        assert_eq!(Crc32c::of(&[0; 32]), Crc32c(0x8a91_36aa));
        assert_eq!(Crc32c::of(b"123456789"), Crc32c(0xe306_9283));
    }
}
