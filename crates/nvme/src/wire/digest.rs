//! Header and data digests: crc32c (NVMe/TCP §3.3.1.1), and how block checksums become one.

/// crc32c of `bytes`, as it is sent (little-endian).
pub fn crc32c(bytes: &[u8]) -> u32 {
    ::crc32c::crc32c(bytes)
}

/// crc32c of `bytes` that follow bytes with the sum `before`.
pub fn crc32c_append(before: u32, bytes: &[u8]) -> u32 {
    ::crc32c::crc32c_append(before, bytes)
}

/// The sum of blocks of `block_bytes` each, one after the other, from the sums of each: the data is not touched.
/// `None` if there is no block.
pub fn combine_blocks(checksums: &[u32], block_bytes: usize) -> Option<u32> {
    let (first, rest) = checksums.split_first()?;
    Some(rest.iter().fold(*first, |sum, next| ::crc32c::crc32c_combine(sum, *next, block_bytes)))
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
        let data: Vec<u8> = (0..3 * 4096u32).map(|i| (i * 31 >> 3) as u8).collect();
        let sums: Vec<u32> = data.chunks(4096).map(crc32c).collect();
        assert_eq!(combine_blocks(&sums, 4096), Some(crc32c(&data)));
        assert_eq!(combine_blocks(&[], 4096), None);
    }
}
