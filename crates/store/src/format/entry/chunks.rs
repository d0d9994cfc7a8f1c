//! Chunks that an entry names: the payload of merges and deletions of layers.

use super::{MAX_ENTRY_CHUNKS, WHAT};
use crate::format::FormatError;
use crate::format::bytes::u32_at;
use types::ChunkId;

/// Chunks, 4 bytes each, rising; at most [`MAX_ENTRY_CHUNKS`].
#[derive(Clone, Copy, Debug)]
pub struct ChunkList<'a>(&'a [u8]);

impl<'a> ChunkList<'a> {
    /// Length of one.
    pub const BYTES_PER_CHUNK: usize = 4;

    pub(super) fn decode(payload: &'a [u8]) -> Result<Self, FormatError> {
        let list = Self(payload);
        let whole = payload.len().is_multiple_of(Self::BYTES_PER_CHUNK);
        if !whole || payload.len() > MAX_ENTRY_CHUNKS * Self::BYTES_PER_CHUNK {
            return Err(FormatError::Field { what: WHAT, field: "payload length", found: payload.len() as u64 });
        }
        if !list.iter().is_sorted_by(|a, b| a < b) {
            return Err(FormatError::Field { what: WHAT, field: "order of chunks", found: 0 });
        }
        Ok(list)
    }

    /// Appends `chunks` to a payload.
    ///
    /// # Panics
    /// If they do not rise, or are too many.
    pub fn encode(chunks: &[ChunkId], out: &mut Vec<u8>) {
        assert!(chunks.len() <= MAX_ENTRY_CHUNKS, "{} chunks in one entry", chunks.len());
        assert!(chunks.is_sorted_by(|a, b| a < b), "chunks of an entry rise");
        chunks.iter().for_each(|chunk| out.extend_from_slice(&chunk.0.to_le_bytes()));
    }

    /// The chunks, in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = ChunkId> + use<'a> {
        let bytes = self.0;
        (0..bytes.len() / Self::BYTES_PER_CHUNK).map(move |i| ChunkId(u32_at(bytes, i * Self::BYTES_PER_CHUNK)))
    }

    /// The bytes as they are.
    pub fn bytes(&self) -> &'a [u8] {
        self.0
    }
}
