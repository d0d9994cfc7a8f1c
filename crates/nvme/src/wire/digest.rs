//! Header and data digests: crc32c (NVMe/TCP §3.3.1.1), and how block checksums become one.

use std::sync::LazyLock;
use types::BLOCK_BYTES;

/// crc32c of `bytes`, as it is sent (little-endian).
pub fn crc32c(bytes: &[u8]) -> u32 {
    ::crc32c::crc32c(bytes)
}

/// crc32c of `bytes` that follow bytes with the sum `before`.
pub fn crc32c_append(before: u32, bytes: &[u8]) -> u32 {
    ::crc32c::crc32c_append(before, bytes)
}

/// What 4 KiB that follow do to the sum of what comes before: a linear map, as four tables of 256.
static BLOCK_SHIFT: LazyLock<[[u32; 256]; 4]> = LazyLock::new(|| {
    let mut tables = [[0; 256]; 4];
    for (byte, table) in tables.iter_mut().enumerate() {
        for (value, entry) in table.iter_mut().enumerate() {
            *entry = ::crc32c::crc32c_combine((value as u32) << (8 * byte), 0, BLOCK_BYTES);
        }
    }
    tables
});

/// The sum of 4 KiB blocks, one after the other, from the sums of each: the data is not touched, and a block costs
/// four lookups instead of 4,096 bytes. `None` if there is no block.
pub fn combine_blocks(checksums: &[u32]) -> Option<u32> {
    let (first, rest) = checksums.split_first()?;
    if rest.is_empty() {
        return Some(*first);
    }
    let tables = &*BLOCK_SHIFT;
    Some(rest.iter().fold(*first, |sum, next| {
        let shifted =
            sum.to_le_bytes().iter().zip(tables).fold(0, |all, (byte, table)| all ^ table[usize::from(*byte)]);
        shifted ^ next
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_check_value_of_crc32c() {
        assert_eq!(crc32c(b"123456789"), 0xE306_9283);
    }

    #[test]
    fn combined_block_sums_equal_one_pass() {
        let data: Vec<u8> = (0..3 * 4096u32).map(|i| ((i * 31) >> 3) as u8).collect();
        let sums: Vec<u32> = data.chunks(4096).map(crc32c).collect();
        assert_eq!(combine_blocks(&sums), Some(crc32c(&data)));
        assert_eq!(combine_blocks(&[]), None);
    }
}
