//! What a simulated disk holds: pages that were written, nothing for the rest.

use std::cell::RefCell;

/// Unit in which is known what was ever written.
const PAGE_BYTES: usize = 4096;
/// Unit of memory.
const EXTENT_BYTES: u64 = 4 << 20;
/// Extents of disks that are gone are used again by the next, 1 GiB of them: memory costs more to be had than to be written.
const SPARE_EXTENTS_MAX: usize = 256;

thread_local! {
    /// What their pages hold means nothing.
    static SPARE_EXTENTS: RefCell<Vec<Extent>> = const { RefCell::new(Vec::new()) };
}

/// A page that was not written may hold anything.
struct Extent {
    bytes: Box<[u8]>,
    /// By page.
    written: Box<[bool]>,
}

/// Sparse bytes; what was never written reads as zeroes.
#[derive(Clone)]
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

impl Extent {
    const PAGES: usize = EXTENT_BYTES as usize / PAGE_BYTES;

    fn new() -> Self {
        let spare = SPARE_EXTENTS.with_borrow_mut(Vec::pop);
        spare.unwrap_or_else(|| Self {
            bytes: vec![0; EXTENT_BYTES as usize].into(),
            written: vec![false; Self::PAGES].into(),
        })
    }

    fn recycle(mut self) {
        // A thread that ends keeps nothing.
        let _ = SPARE_EXTENTS.try_with(|spare| {
            let mut spare = spare.borrow_mut();
            if spare.len() < SPARE_EXTENTS_MAX {
                self.written.fill(false);
                spare.push(self);
            }
        });
    }
}

impl Clone for Extent {
    /// Touches only what was written.
    fn clone(&self) -> Self {
        let mut other = Self::new();
        other.written.copy_from_slice(&self.written);
        let pages = self.bytes.chunks(PAGE_BYTES).zip(other.bytes.chunks_mut(PAGE_BYTES));
        for ((from, to), _) in pages.zip(&self.written).filter(|(_, written)| **written) {
            to.copy_from_slice(from);
        }
        other
    }
}

impl Contents {
    pub(super) fn new(size_bytes: u64) -> Self {
        Self { extents: (0..size_bytes.div_ceil(EXTENT_BYTES)).map(|_| None).collect(), written: Vec::new() }
    }

    fn page(&self, page: usize) -> Option<&[u8]> {
        let (extent, page) = (self.extents[page / Extent::PAGES].as_ref()?, page % Extent::PAGES);
        extent.written[page].then(|| &extent.bytes[page * PAGE_BYTES..(page + 1) * PAGE_BYTES])
    }

    /// `whole`: all of it is about to be written.
    fn page_mut(&mut self, page: usize, whole: bool) -> &mut [u8] {
        let extent = self.extents[page / Extent::PAGES].get_or_insert_with(Extent::new);
        let within = page % Extent::PAGES;
        let bytes = &mut extent.bytes[within * PAGE_BYTES..(within + 1) * PAGE_BYTES];
        if !std::mem::replace(&mut extent.written[within], true) {
            self.written.push(page as u32);
            if !whole {
                bytes.fill(0);
            }
        }
        bytes
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
            self.page_mut(page, count == PAGE_BYTES)[start..start + count].copy_from_slice(piece);
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
                self.page_mut(page, false)[start..start + count].fill(0);
            }
            at += count as u64;
        }
    }

    /// Turns one bit over.
    pub(super) fn flip_bit(&mut self, offset: u64, bit: u8) {
        let start = (offset % PAGE_BYTES as u64) as usize;
        self.page_mut((offset / PAGE_BYTES as u64) as usize, false)[start] ^= 1 << (bit & 7);
    }

    /// Offsets of the sectors of `sector_bytes` that were ever written and begin with these bytes, in the order in
    /// which their pages were first written.
    pub(super) fn find(&self, sector_bytes: usize, beginning: &[u8]) -> Vec<u64> {
        let mut found = Vec::new();
        for &page in &self.written {
            let bytes = self.page(page as usize).expect("it was written");
            let sectors = bytes.chunks_exact(sector_bytes).enumerate();
            let of_page = sectors.filter(|(_, sector)| sector.starts_with(beginning));
            found.extend(of_page.map(|(index, _)| (page as usize * PAGE_BYTES + index * sector_bytes) as u64));
        }
        found
    }

    /// Offset of the `index`th page ever written (modulo their number); `None` on an empty disk.
    pub(super) fn written_offset(&self, index: u64) -> Option<u64> {
        let count = self.written.len() as u64;
        let page = *self.written.get(index.checked_rem(count)? as usize)?;
        Some(u64::from(page) * PAGE_BYTES as u64)
    }
}

impl Drop for Contents {
    fn drop(&mut self) {
        self.extents.drain(..).flatten().for_each(Extent::recycle);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back_across_pages_and_extents() {
        let mut contents = Contents::new(2 * EXTENT_BYTES);
        let bytes: Vec<u8> = (0..10_000u32).map(|i| i as u8).collect();
        let offset = EXTENT_BYTES - 4096 - 512;
        contents.write(offset, &bytes);
        let mut back = vec![9; 11_024];
        contents.read(offset - 512, &mut back);
        assert!(back[..512].iter().all(|b| *b == 0) && back[512..10_512] == bytes[..]);
        assert!(back[10_512..].iter().all(|b| *b == 0));
    }

    #[test]
    fn a_clone_goes_its_own_way() {
        let mut contents = Contents::new(2 << 20);
        contents.write(0, &[1; 8192]);
        let mut other = contents.clone();
        contents.write(4096, &[2; 4096]);
        other.write(0, &[3; 512]);
        let byte_at = |contents: &Contents, offset| {
            let mut byte = [9];
            contents.read(offset, &mut byte);
            byte[0]
        };
        assert_eq!([0, 512, 4096, 8192].map(|at| byte_at(&contents, at)), [1, 1, 2, 0]);
        assert_eq!([0, 512, 4096, 8192].map(|at| byte_at(&other, at)), [3, 1, 1, 0]);
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
