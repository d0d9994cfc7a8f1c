//! Little-endian fields at fixed offsets. The callers have checked the length.

pub(super) fn u16_at(from: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(array_at(from, at))
}

pub(super) fn u32_at(from: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(array_at(from, at))
}

pub(super) fn u64_at(from: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(array_at(from, at))
}

pub(super) fn u128_at(from: &[u8], at: usize) -> u128 {
    u128::from_le_bytes(array_at(from, at))
}

pub(super) fn array_at<const N: usize>(from: &[u8], at: usize) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(&from[at..at + N]);
    array
}

pub(super) fn put_u16(out: &mut [u8], at: usize, value: u16) {
    out[at..at + 2].copy_from_slice(&value.to_le_bytes());
}

pub(super) fn put_u32(out: &mut [u8], at: usize, value: u32) {
    out[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

pub(super) fn put_u64(out: &mut [u8], at: usize, value: u64) {
    out[at..at + 8].copy_from_slice(&value.to_le_bytes());
}

pub(super) fn put_u128(out: &mut [u8], at: usize, value: u128) {
    out[at..at + 16].copy_from_slice(&value.to_le_bytes());
}
