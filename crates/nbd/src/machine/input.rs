//! What was received and not yet used.

use runtime::SharedBuf;

/// Received bytes and how far they are used. Payloads are cut out of it without a copy.
#[derive(Debug)]
pub struct Input {
    bytes: SharedBuf,
    at: usize,
}

impl Input {
    /// All of `bytes`, unused.
    pub fn new(bytes: SharedBuf) -> Self {
        Self { bytes, at: 0 }
    }

    /// Unused bytes.
    pub fn len(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// Whether everything is used.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The unused bytes.
    pub(super) fn rest(&self) -> &[u8] {
        &self.bytes[self.at..]
    }

    /// Uses up `count` bytes.
    pub(super) fn skip(&mut self, count: usize) {
        assert!(count <= self.len());
        self.at += count;
    }

    /// Cuts out the next `count` bytes, sharing their memory.
    pub(super) fn take(&mut self, count: usize) -> SharedBuf {
        let bytes = self.bytes.slice(self.at..self.at + count);
        self.at += count;
        bytes
    }
}

/// A fixed-size structure that may arrive in pieces.
#[derive(Default)]
pub(super) struct Stash {
    bytes: [u8; Stash::BYTES],
    len: usize,
}

impl Stash {
    /// Room for the largest fixed structure, a request.
    const BYTES: usize = crate::wire::transmission::Request::BYTES;

    /// The next `N` bytes of the stream, once they are all there.
    pub(super) fn read<const N: usize>(&mut self, input: &mut Input) -> Option<[u8; N]> {
        const { assert!(N <= Self::BYTES) };
        if self.len == 0
            && let Some(whole) = input.rest().first_chunk::<N>()
        {
            let whole = *whole;
            input.skip(N);
            return Some(whole);
        }
        let count = (N - self.len).min(input.len());
        self.bytes[self.len..self.len + count].copy_from_slice(&input.rest()[..count]);
        input.skip(count);
        self.len += count;
        if self.len < N {
            return None;
        }
        self.len = 0;
        self.bytes.first_chunk().copied()
    }
}
