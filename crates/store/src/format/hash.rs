//! The keyed hash that makes a record a record.
//!
//! BLAKE2s with a 32-byte key and a 16-byte result: in Python `hashlib.blake2s(data, key=key, digest_size=16)`. The key
//! is made at format and never leaves the superblock, so a guest cannot write blocks that look like a header; and the
//! place (store, segment, generation, offset) is hashed too, so that a record is one only where it was written.

use super::{Generation, SegmentIndex, bytes};
use blake2::Blake2sMac;
use blake2::digest::consts::{U16, U32};
use blake2::digest::{Digest, FixedOutput, Update};
use types::StoreId;

/// Length of a keyed hash.
pub const HASH_BYTES: usize = 16;

/// The secret of one store.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct HashKey(pub [u8; 32]);

impl core::fmt::Debug for HashKey {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("HashKey(…)")
    }
}

/// A store's key made ready: key and store id are hashed once, each record begins from there.
#[derive(Clone)]
pub struct RecordKey {
    begun: Blake2sMac<U16>,
}

impl core::fmt::Debug for RecordKey {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("RecordKey(…)")
    }
}

impl RecordKey {
    /// Makes the key ready for a store.
    pub fn new(key: &HashKey, store: StoreId) -> Self {
        let mut begun =
            Blake2sMac::<U16>::new_with_salt_and_personal(&key.0, &[], &[]).expect("a key of 32 bytes is allowed");
        begun.update(&store.0.to_le_bytes());
        Self { begun }
    }

    /// The hash of `parts`, one after the other, at this place. Hashed are: store id (16 bytes), segment (4),
    /// offset in the segment (4), generation (8), then the parts.
    pub(crate) fn hash(
        &self,
        segment: SegmentIndex,
        offset_bytes: u32,
        generation: Generation,
        parts: [&[u8]; 2],
    ) -> [u8; HASH_BYTES] {
        let mut place = [0; 16];
        bytes::put_u32(&mut place, 0, segment.0);
        bytes::put_u32(&mut place, 4, offset_bytes);
        bytes::put_u64(&mut place, 8, generation.0);
        let mut mac = self.begun.clone();
        mac.update(&place);
        for part in parts {
            mac.update(part);
        }
        mac.finalize_fixed().into()
    }
}

/// The sum of a superblock: it holds the key, so its sum has none. BLAKE2s, 32 bytes.
pub(crate) fn plain_hash(bytes: &[u8]) -> [u8; 32] {
    blake2::Blake2s::<U32>::digest(bytes).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected bytes come from Python's hashlib, so that an independent reader agrees:
    /// `blake2s(store + segment + offset + generation + b"cairn" * 40, key=bytes(range(32)), digest_size=16)`.
    #[test]
    fn the_hash_is_the_one_of_other_languages() {
        let key = RecordKey::new(&HashKey(core::array::from_fn(|i| i as u8)), StoreId(7));
        let text = b"cairn".repeat(40);
        let hash = key.hash(SegmentIndex(3), 4096, Generation(9), [&text[..64], &text[64..]]);
        assert_eq!(hex(&hash), "e6f6c440f2ed21ab86bbafeee5476e78");
        assert_eq!(hex(&plain_hash(&text)), "be1604fa848270ccf90a6d85bd1d13bd0fdc88c38d7931d42aba5df711b5a0aa");
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|b| format!("{b:02x}")).collect()
    }
}
