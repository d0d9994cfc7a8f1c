//! Bytes that are written: they do not compress, and not every block holds the same.

use runtime::sim::Random;
use runtime::{IoBuf, SharedBuf};

/// What there is of them, over and over from another place: the largest buffer that there is.
const BYTES: usize = 4 << 20;
const STEP_BYTES: u64 = 512;

/// See the module. Clones share it.
#[derive(Clone)]
pub(crate) struct Payload(SharedBuf);

impl Default for Payload {
    fn default() -> Self {
        let random = Random::new(7);
        let mut payload = IoBuf::zeroed(BYTES);
        payload.chunks_exact_mut(8).for_each(|word| word.copy_from_slice(&random.next_u64().to_le_bytes()));
        Self(payload.freeze())
    }
}

impl Payload {
    /// So many bytes, for a write at this offset: at another one others, until they repeat.
    pub(crate) fn at(&self, offset_bytes: u64, bytes: u64) -> SharedBuf {
        let places = (BYTES as u64 - bytes) / STEP_BYTES + 1;
        let begin = ((offset_bytes / STEP_BYTES) % places * STEP_BYTES) as usize;
        self.0.slice(begin..begin + bytes as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_not_always_the_same() {
        let payload = Payload::default();
        assert_ne!(payload.at(0, 4096)[..], payload.at(4096, 4096)[..]);
        assert_eq!(payload.at(1 << 40, 4 << 20).len(), 4 << 20);
        assert_ne!(payload.at(0, 512 << 10)[..], payload.at(512 << 10, 512 << 10)[..]);
    }
}
