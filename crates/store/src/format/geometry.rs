//! How a device is divided. Decided once, at format, and kept in the superblock.

use super::SegmentIndex;
use crate::format::blocks::{DeviceUnit, UNIT_BYTES};

/// Room at each end for the superblock slots; 1 MiB so that segments stay aligned to any flash page.
pub const END_AREA_BYTES: u64 = 1 << 20;
/// Smallest device: below it the space kept back for cleaning would be most of it.
pub const MIN_DEVICE_BYTES: u64 = 256 << 20;
/// Largest device: locations have 40 bits of 512-byte units.
pub const MAX_DEVICE_BYTES: u64 = (1 << 40) * UNIT_BYTES as u64;
/// Smallest segment: four of the largest records.
pub const MIN_SEGMENT_BYTES: u32 = 4 << 20;
/// Largest segment: cleaning one at 100 MB/s takes less than a second.
pub const MAX_SEGMENT_BYTES: u32 = 64 << 20;
/// Most shards of one device.
pub const MAX_SHARDS: u8 = 8;

/// Sizes and counts of one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Size of the device at format, rounded down to 4 KiB. It may have grown since.
    pub device_size_bytes: u64,
    /// Alignment of records and block areas: 512, 1,024, 2,048 or 4,096.
    pub block_size_bytes: u32,
    /// A multiple of 1 MiB.
    pub segment_size_bytes: u32,
    /// Segments on the device.
    pub segment_count: u32,
    /// 1, 2, 4 or 8.
    pub shard_count: u8,
}

/// Why a device cannot be divided so.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GeometryError {
    /// Too small or too large.
    #[error("the device has {found} bytes; it must have between {MIN_DEVICE_BYTES} and {MAX_DEVICE_BYTES}")]
    DeviceSize {
        /// Its size.
        found: u64,
    },
    /// Not one of the block sizes.
    #[error("the block size is {found} bytes; it must be 512, 1024, 2048 or 4096")]
    BlockSize {
        /// The size asked for.
        found: u32,
    },
    /// Not a multiple of 1 MiB within the limits.
    #[error("the segment size is {found} bytes; it must be whole MiB from {MIN_SEGMENT_BYTES} to {MAX_SEGMENT_BYTES}")]
    SegmentSize {
        /// The size asked for.
        found: u32,
    },
    /// Not as many segments as fit.
    #[error("{found} segments where {expected} fit")]
    SegmentCount {
        /// Segments said.
        found: u32,
        /// Segments that fit.
        expected: u64,
    },
    /// Not a power of two up to 8.
    #[error("{found} shards; there must be 1, 2, 4 or 8")]
    ShardCount {
        /// The number asked for.
        found: u8,
    },
}

impl Geometry {
    /// The default division of a device: segments of clamp(size / 1,024, 4 MiB, 64 MiB) in whole MiB, and
    /// clamp(segments / 64, 1, 8) shards, rounded down to a power of two.
    ///
    /// # Errors
    /// Device too small or too large, or an unknown block size.
    pub fn for_device(size_bytes: u64, block_size_bytes: u32) -> Result<Self, GeometryError> {
        let share = (size_bytes / 1024).clamp(u64::from(MIN_SEGMENT_BYTES), u64::from(MAX_SEGMENT_BYTES));
        Self::with(size_bytes, block_size_bytes, (share >> 20 << 20) as u32, None)
    }

    /// As [`for_device`](Self::for_device), with the segment size and, if given, the shard count chosen.
    ///
    /// # Errors
    /// What [`GeometryError`] says.
    pub fn with(
        size_bytes: u64,
        block_size_bytes: u32,
        segment_size_bytes: u32,
        shard_count: Option<u8>,
    ) -> Result<Self, GeometryError> {
        let device_size_bytes = size_bytes & !4095;
        let room = device_size_bytes.saturating_sub(2 * END_AREA_BYTES);
        let segment_count = (room / u64::from(segment_size_bytes.max(1))).min(u64::from(u32::MAX)) as u32;
        let default_shards = 1 << (segment_count / 64).clamp(1, u32::from(MAX_SHARDS)).ilog2();
        let geometry = Self {
            device_size_bytes,
            block_size_bytes,
            segment_size_bytes,
            segment_count,
            shard_count: shard_count.unwrap_or(default_shards),
        };
        geometry.check()?;
        Ok(geometry)
    }

    /// Whether these numbers belong together. Decoders ask before they trust any of them.
    ///
    /// # Errors
    /// The first rule that is broken.
    pub fn check(&self) -> Result<(), GeometryError> {
        let size = self.device_size_bytes;
        if !(MIN_DEVICE_BYTES..=MAX_DEVICE_BYTES).contains(&size) || !size.is_multiple_of(4096) {
            return Err(GeometryError::DeviceSize { found: size });
        }
        if !matches!(self.block_size_bytes, 512 | 1024 | 2048 | 4096) {
            return Err(GeometryError::BlockSize { found: self.block_size_bytes });
        }
        let segment = self.segment_size_bytes;
        if !(MIN_SEGMENT_BYTES..=MAX_SEGMENT_BYTES).contains(&segment) || !segment.is_multiple_of(1 << 20) {
            return Err(GeometryError::SegmentSize { found: segment });
        }
        let expected = (size - 2 * END_AREA_BYTES) / u64::from(segment);
        if u64::from(self.segment_count) != expected {
            return Err(GeometryError::SegmentCount { found: self.segment_count, expected });
        }
        if !self.shard_count.is_power_of_two() || self.shard_count > MAX_SHARDS {
            return Err(GeometryError::ShardCount { found: self.shard_count });
        }
        Ok(())
    }

    /// Byte on the device where a segment begins.
    pub fn segment_start_bytes(&self, segment: SegmentIndex) -> u64 {
        END_AREA_BYTES + u64::from(segment.0) * u64::from(self.segment_size_bytes)
    }

    /// Unit on the device at a byte offset within a segment.
    pub fn unit_at(&self, segment: SegmentIndex, offset_bytes: u32) -> DeviceUnit {
        debug_assert!((offset_bytes as usize).is_multiple_of(UNIT_BYTES));
        DeviceUnit((self.segment_start_bytes(segment) + u64::from(offset_bytes)) / UNIT_BYTES as u64)
    }

    /// The segment that holds a unit; `None` for what lies in the end areas or past the last segment.
    pub fn segment_of(&self, unit: DeviceUnit) -> Option<SegmentIndex> {
        let byte = unit.0.checked_mul(UNIT_BYTES as u64)?.checked_sub(END_AREA_BYTES)?;
        let segment = byte / u64::from(self.segment_size_bytes);
        (segment < u64::from(self.segment_count)).then_some(SegmentIndex(segment as u32))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_divided_as_designed() {
        let of = |size: u64| {
            let g = Geometry::for_device(size, 4096).expect("a good size");
            (g.segment_size_bytes >> 20, g.segment_count, g.shard_count)
        };
        assert_eq!(of(256 << 20), (4, 63, 1));
        assert_eq!(of(4 << 30), (4, 1023, 8));
        assert_eq!(of(1 << 30), (4, 255, 2));
        assert_eq!(of((10 << 30) + 12345), (10, 1023, 8));
        assert_eq!(of(1 << 40), (64, 16383, 8));
        assert!(Geometry::for_device((256 << 20) - 1, 4096).is_err());
        assert!(Geometry::for_device(MAX_DEVICE_BYTES + 4096, 4096).is_err());
        assert!(Geometry::for_device(1 << 30, 520).is_err());
    }

    #[test]
    fn a_unit_belongs_to_the_segment_it_lies_in() {
        let g = Geometry::for_device(256 << 20, 512).expect("a good size");
        assert_eq!(g.segment_of(DeviceUnit(2047)), None);
        assert_eq!(g.segment_of(DeviceUnit(2048)), Some(SegmentIndex(0)));
        let last = g.unit_at(SegmentIndex(62), g.segment_size_bytes - 512);
        assert_eq!(g.segment_of(last), Some(SegmentIndex(62)));
        assert_eq!(g.segment_of(DeviceUnit(last.0 + 1)), None);
        assert_eq!(g.segment_of(DeviceUnit(u64::MAX)), None);
    }
}
