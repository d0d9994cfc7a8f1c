//! Words of calls between nodes, as they are read.

/// Bytes that were not read yet.
pub(crate) struct Rest<'a>(pub(crate) &'a [u8]);

impl Rest<'_> {
    pub(crate) fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*first)
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.take().map(u8::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    /// No more is set aside than has come.
    pub(crate) fn list<T>(&mut self, count: u32, mut next: impl FnMut(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        (0..count).map(|_| next(self)).collect()
    }
}
