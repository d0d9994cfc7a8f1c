//! The meta part of a body: a fixed part that begins with its own length, then lists.
//!
//! | at | bytes | field |
//! |---|---|---|
//! | 0 | 2 | length of the fixed part, these two bytes included: a multiple of 8 |
//! | 2 | … | fields |
//! | length | … | lists, each filled up with zeroes to a multiple of 8 |
//!
//! A later version appends fields to the fixed part and lists behind the others. A reader uses what it knows and skips
//! the rest.

use super::WireError;
use super::bytes::{put_u16, u16_at};

/// Lists begin at multiples of this, as entries do in a record.
const ALIGNMENT: usize = 8;

/// Appends a fixed part of `N` bytes: its length, and zeroes.
pub(super) fn begin_fixed<const N: usize>(out: &mut Vec<u8>) -> &mut [u8] {
    const { assert!(N.is_multiple_of(ALIGNMENT) && N >= ALIGNMENT) };
    let start = out.len();
    out.resize(start + N, 0);
    put_u16(out, start, N as u16);
    &mut out[start..]
}

/// Fills a list up that began at a multiple of 8 behind `start`.
pub(super) fn end_list(out: &mut Vec<u8>, start: usize) {
    let bytes = out.len() - start;
    out.resize(start + bytes.next_multiple_of(ALIGNMENT), 0);
}

/// Reads a meta part.
pub(super) struct Body<'a> {
    what: &'static str,
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Body<'a> {
    /// The fixed part, of at least `known` bytes, and a reader of what lies behind it.
    pub(super) fn begin(what: &'static str, bytes: &'a [u8], known: usize) -> Result<(&'a [u8], Self), WireError> {
        if bytes.len() < known {
            return Err(WireError::Short { what, expected: known, found: bytes.len() });
        }
        let fixed = usize::from(u16_at(bytes, 0));
        if fixed < known || fixed > bytes.len() || !fixed.is_multiple_of(ALIGNMENT) {
            return Err(WireError::field(what, "length of the fixed part", fixed as u64));
        }
        Ok((&bytes[..known], Self { what, bytes, at: fixed }))
    }

    /// Where the next list begins.
    pub(super) fn at(&self) -> usize {
        self.at
    }

    /// The next list.
    pub(super) fn list(&mut self, bytes: usize) -> Result<&'a [u8], WireError> {
        let rest = &self.bytes[self.at..];
        if rest.len() < bytes.next_multiple_of(ALIGNMENT) {
            return Err(WireError::Short { what: self.what, expected: bytes, found: rest.len() });
        }
        self.at += bytes.next_multiple_of(ALIGNMENT);
        Ok(&rest[..bytes])
    }
}
