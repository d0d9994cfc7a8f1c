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

/// A piece that can be sent.
struct Sealed {
    bytes: SharedBuf,
    is_small: bool,
}

#[derive(Default)]
pub(crate) struct Outbox {
    page: Option<IoBuf>,
    used: usize,
    /// Pieces whose small ones lie in `page`.
    open: Vec<Piece>,
    /// Pieces before those.
    sealed: VecDeque<Sealed>,
    /// Bytes of all small pieces.
    small_bytes: usize,
    /// Bytes of all pieces.
    bytes: usize,
    load: Load,
}

impl Outbox {
    pub(crate) fn is_empty(&self) -> bool {
        self.open.is_empty() && self.sealed.is_empty()
    }

    /// Bytes of the small structures that wait. Data is not counted: whoever asked for it was charged for it.
    pub(crate) fn small_bytes(&self) -> usize {
        self.small_bytes
    }

    /// Bytes that wait.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Queues a copy of `bytes`.
    pub(crate) fn push_bytes(&mut self, mut bytes: &[u8]) {
        self.small_bytes += bytes.len();
        self.bytes += bytes.len();
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
        self.bytes += data.len();
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
            let (bytes, is_small) = match (piece, &page) {
                (Piece::Small(range), Some(page)) => (page.slice(range), true),
                (Piece::Small(_), None) => unreachable!("small pieces lie in a page"),
                (Piece::Data(data), _) => (data, false),
            };
            self.sealed.push_back(Sealed { bytes, is_small });
        }
    }

    /// The load is given with the last piece, so that it is never given back too early.
    pub(crate) fn take(&mut self, parts: &mut Vec<SharedBuf>, parts_max: usize) -> Load {
        self.seal();
        let count = self.sealed.len().min(parts_max.saturating_sub(parts.len()));
        for Sealed { bytes, is_small } in self.sealed.drain(..count) {
            self.small_bytes -= if is_small { bytes.len() } else { 0 };
            self.bytes -= bytes.len();
            parts.push(bytes);
        }
        if self.sealed.is_empty() { std::mem::take(&mut self.load) } else { Load::default() }
    }
}
