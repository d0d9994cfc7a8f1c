//! What a simulated disk holds: pages that were written, nothing for the rest.

/// Unit of memory; devices of a terabyte are mostly nothing.
const PAGE_BYTES: usize = 4096;
const PAGES_PER_EXTENT: usize = 256;

type Page = Box<[u8; PAGE_BYTES]>;
type Extent = Box<[Option<Page>; PAGES_PER_EXTENT]>;

/// Sparse bytes; what was never written reads as zeroes.
pub(super) struct Contents {
    extents: Vec<Option<Extent>>,
    /// Pages in the order of their first write: lets a fault pick one that holds something.
    written: Vec<u32>,
}

/// The part of each page that a range covers: page number, first byte in the page, bytes.
fn pieces(offset: u64, len: usize) -> impl Iterator<Item = (usize, usize, usize)> {
    let mut at = offset;
    let end = offset + len as u64;
    std::iter::from_fn(move || {
        let page = (at / PAGE_BYTES as u64) as usize;
        let start = (at % PAGE_BYTES as u64) as usize;
        let count = (PAGE_BYTES - start).min((end - at) as usize);
        at += count as u64;
        (count > 0).then_some((page, start, count))
    })
}

impl Contents {
    pub(super) fn new(size_bytes: u64) -> Self {
        let extents = size_bytes.div_ceil((PAGE_BYTES * PAGES_PER_EXTENT) as u64);
        Self { extents: (0..extents).map(|_| None).collect(), written: Vec::new() }
    }

    fn page(&self, page: usize) -> Option<&Page> {
        self.extents[page / PAGES_PER_EXTENT].as_ref()?[page % PAGES_PER_EXTENT].as_ref()
    }

    fn page_mut(&mut self, page: usize) -> &mut Page {
        let extent = self.extents[page / PAGES_PER_EXTENT].get_or_insert_with(|| Box::new([const { None }; _]));
        let written = &mut self.written;
        extent[page % PAGES_PER_EXTENT].get_or_insert_with(|| {
            written.push(page as u32);
            Box::new([0; PAGE_BYTES])
        })
    }

    pub(super) fn read(&self, offset: u64, into: &mut [u8]) {
        let mut rest = into;
        for (page, start, count) in pieces(offset, rest.len()) {
            let (piece, tail) = rest.split_at_mut(count);
            match self.page(page) {
                Some(bytes) => piece.copy_from_slice(&bytes[start..start + count]),
                None => piece.fill(0),
            }
            rest = tail;
        }
    }

    pub(super) fn write(&mut self, offset: u64, from: &[u8]) {
        let mut rest = from;
        for (page, start, count) in pieces(offset, from.len()) {
            let (piece, tail) = rest.split_at(count);
            self.page_mut(page)[start..start + count].copy_from_slice(piece);
            rest = tail;
        }
    }

    /// Zeroes what of the range holds something, page by page as `forget` says.
    pub(super) fn zero_where(&mut self, offset: u64, len: u64, mut forget: impl FnMut() -> bool) {
        let mut at = offset;
        while at < offset + len {
            let count = (PAGE_BYTES as u64 - at % PAGE_BYTES as u64).min(offset + len - at) as usize;
            let page = (at / PAGE_BYTES as u64) as usize;
            if self.page(page).is_some() && forget() {
                let start = (at % PAGE_BYTES as u64) as usize;
                self.page_mut(page)[start..start + count].fill(0);
            }
            at += count as u64;
        }
    }

    /// Turns one bit over.
    pub(super) fn flip_bit(&mut self, offset: u64, bit: u8) {
        let start = (offset % PAGE_BYTES as u64) as usize;
        self.page_mut((offset / PAGE_BYTES as u64) as usize)[start] ^= 1 << (bit & 7);
    }

    /// Offset of the `index`th page ever written (modulo their number); `None` on an empty disk.
    pub(super) fn written_offset(&self, index: u64) -> Option<u64> {
        let count = self.written.len() as u64;
        let page = *self.written.get(index.checked_rem(count)? as usize)?;
        Some(u64::from(page) * PAGE_BYTES as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back_across_pages_and_extents() {
        let mut contents = Contents::new(4 << 20);
        let bytes: Vec<u8> = (0..10_000u32).map(|i| i as u8).collect();
        let offset = (1 << 20) - 4096 - 512;
        contents.write(offset, &bytes);
        let mut back = vec![9; 11_024];
        contents.read(offset - 512, &mut back);
        assert!(back[..512].iter().all(|b| *b == 0) && back[512..10_512] == bytes[..]);
        assert!(back[10_512..].iter().all(|b| *b == 0));
    }

    #[test]
    fn zeroing_touches_only_its_range() {
        let mut contents = Contents::new(1 << 20);
        contents.write(0, &[7; 12_288]);
        contents.zero_where(512, 4096, || true);
        let mut back = [0; 12_288];
        contents.read(0, &mut back);
        assert!(back[..512].iter().all(|b| *b == 7) && back[512..4608].iter().all(|b| *b == 0));
        assert!(back[4608..].iter().all(|b| *b == 7));
    }
}
