//! Little-endian fields at fixed offsets, and the check for zeroes. The callers have checked the length.

use super::FormatError;

pub(crate) fn u16_at(from: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([from[at], from[at + 1]])
}

pub(crate) fn u32_at(from: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(array_at(from, at))
}

pub(crate) fn u64_at(from: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(array_at(from, at))
}

pub(crate) fn u128_at(from: &[u8], at: usize) -> u128 {
    u128::from_le_bytes(array_at(from, at))
}

/// A 40-bit number.
pub(crate) fn u40_at(from: &[u8], at: usize) -> u64 {
    u64::from(u32_at(from, at)) | u64::from(from[at + 4]) << 32
}

pub(crate) fn array_at<const N: usize>(from: &[u8], at: usize) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(&from[at..at + N]);
    array
}

pub(crate) fn put_u16(out: &mut [u8], at: usize, value: u16) {
    out[at..at + 2].copy_from_slice(&value.to_le_bytes());
}

pub(crate) fn put_u32(out: &mut [u8], at: usize, value: u32) {
    out[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

pub(crate) fn put_u64(out: &mut [u8], at: usize, value: u64) {
    out[at..at + 8].copy_from_slice(&value.to_le_bytes());
}

pub(crate) fn put_u128(out: &mut [u8], at: usize, value: u128) {
    out[at..at + 16].copy_from_slice(&value.to_le_bytes());
}

pub(crate) fn put_u40(out: &mut [u8], at: usize, value: u64) {
    debug_assert!(value < 1 << 40);
    out[at..at + 5].copy_from_slice(&value.to_le_bytes()[..5]);
}

/// `bytes` up to the next multiple of `unit`, a power of two.
pub(crate) const fn round_up(bytes: usize, unit: usize) -> usize {
    (bytes + unit - 1) & !(unit - 1)
}

pub(crate) fn check_length(what: &'static str, from: &[u8], expected: usize) -> Result<(), FormatError> {
    if from.len() < expected {
        return Err(FormatError::Short { what, expected, found: from.len() });
    }
    Ok(())
}

/// Bytes that no field uses are zero; `offset` is where `from` begins in its structure.
pub(crate) fn check_zero(what: &'static str, offset: usize, from: &[u8]) -> Result<(), FormatError> {
    // Whole words first: padding is up to 4 KiB a record and recovery checks all of it.
    let (words, rest) = from.as_chunks::<8>();
    let first_word = words.iter().position(|word| u64::from_ne_bytes(*word) != 0);
    let from_byte = first_word.map_or(from.len() - rest.len(), |word| word * 8);
    match from[from_byte..].iter().position(|byte| *byte != 0) {
        Some(at) => Err(FormatError::NotZero { what, offset: offset + from_byte + at }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_that_is_not_zero_is_found_wherever_it_is() {
        for len in [1, 7, 8, 9, 31, 64] {
            let mut bytes = vec![0; len];
            assert_eq!(check_zero("t", 5, &bytes), Ok(()));
            for at in 0..len {
                bytes[at] = 0x40;
                assert_eq!(check_zero("t", 5, &bytes), Err(FormatError::NotZero { what: "t", offset: 5 + at }));
                bytes[at] = 0;
            }
        }
    }

    #[test]
    fn forty_bits_there_and_back() {
        let mut out = [0; 7];
        put_u40(&mut out, 1, 0x12_3456_789a);
        assert_eq!(out, [0, 0x9a, 0x78, 0x56, 0x34, 0x12, 0]);
        assert_eq!(u40_at(&out, 1), 0x12_3456_789a);
    }
}
