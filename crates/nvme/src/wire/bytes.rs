//! Little-endian fields at byte offsets, and text fields padded with spaces.

/// The `u16` at byte `at`.
pub(crate) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

/// The `u32` at byte `at`.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// The `u64` at byte `at`.
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

/// The `N` bytes at `at`.
pub(crate) fn array_at<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(&bytes[at..at + N]);
    array
}

pub(crate) fn put_u16(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_le_bytes());
}

pub(crate) fn put_u32(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

pub(crate) fn put_u64(bytes: &mut [u8], at: usize, value: u64) {
    bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
}

pub(crate) fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

/// Writes `text` into the `len` bytes at `at`, cut or padded with `pad`.
pub(crate) fn put_text(bytes: &mut [u8], at: usize, len: usize, text: &str, pad: u8) {
    let used = text.len().min(len);
    bytes[at..at + used].copy_from_slice(&text.as_bytes()[..used]);
    bytes[at + used..at + len].fill(pad);
}

/// Text up to the first zero byte or trailing spaces; bytes that are no UTF-8 become U+FFFD.
pub(crate) fn text_at(bytes: &[u8], at: usize, len: usize) -> String {
    let field = &bytes[at..at + len];
    let end = field.iter().position(|byte| *byte == 0).unwrap_or(len);
    String::from_utf8_lossy(&field[..end]).trim_end_matches(' ').to_owned()
}
