//! What waits to be sent: small structures packed into shared memory, data as it came from the volume.

use runtime::{IoBuf, SharedBuf};
use std::collections::VecDeque;
use std::ops::Range;

/// Memory for the small structures of one send: a thousand simple replies.
const PAGE_BYTES: usize = 16 << 10;

/// What answers weigh: requests, and bytes of data that are held until they are sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Requests.
    pub commands: u32,
    /// Bytes of data.
    pub bytes: u64,
}

impl std::ops::AddAssign for Load {
    fn add_assign(&mut self, other: Self) {
        self.commands += other.commands;
        self.bytes += other.bytes;
    }
}

impl std::ops::SubAssign for Load {
    fn sub_assign(&mut self, other: Self) {
        self.commands -= other.commands;
        self.bytes -= other.bytes;
    }
}

enum Piece {
    /// Bytes of the page; neighbours are one piece.
    Small(Range<usize>),
    Data(SharedBuf),
}

#[derive(Default)]
pub(crate) struct Outbox {
    page: Option<IoBuf>,
    used: usize,
    /// Pieces whose small ones lie in `page`.
    open: Vec<Piece>,
    /// Pieces before those.
    sealed: VecDeque<SharedBuf>,
    load: Load,
}

impl Outbox {
    pub(crate) fn is_empty(&self) -> bool {
        self.open.is_empty() && self.sealed.is_empty()
    }

    /// Queues a copy of `bytes`.
    pub(crate) fn push_bytes(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.used == PAGE_BYTES {
                self.seal();
            }
            let page = self.page.get_or_insert_with(|| IoBuf::new(PAGE_BYTES));
            let count = bytes.len().min(PAGE_BYTES - self.used);
            let (now, later) = bytes.split_at(count);
            page[self.used..self.used + count].copy_from_slice(now);
            match self.open.last_mut() {
                Some(Piece::Small(range)) => range.end += count,
                _ => self.open.push(Piece::Small(self.used..self.used + count)),
            }
            self.used += count;
            bytes = later;
        }
    }

    /// Queues `data` itself.
    pub(crate) fn push_data(&mut self, data: SharedBuf) {
        self.open.push(Piece::Data(data));
    }

    pub(crate) fn add_load(&mut self, load: Load) {
        self.load += load;
    }

    /// Ends the page: its pieces can be sent, and new ones go to another.
    fn seal(&mut self) {
        let page = self.page.take().map(IoBuf::freeze);
        self.used = 0;
        for piece in self.open.drain(..) {
            match (piece, &page) {
                (Piece::Small(range), Some(page)) => self.sealed.push_back(page.slice(range)),
                (Piece::Small(_), None) => unreachable!("small pieces lie in a page"),
                (Piece::Data(data), _) => self.sealed.push_back(data),
            }
        }
    }

    /// The load is given with the last piece, so that it is never given back too early.
    pub(crate) fn take(&mut self, parts: &mut Vec<SharedBuf>, parts_max: usize) -> Load {
        self.seal();
        let count = self.sealed.len().min(parts_max.saturating_sub(parts.len()));
        parts.extend(self.sealed.drain(..count));
        if self.sealed.is_empty() { std::mem::take(&mut self.load) } else { Load::default() }
    }
}
