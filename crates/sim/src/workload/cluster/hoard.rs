//! Clients that fill the devices: they write chunks from end to end until new blocks are refused, then overwrite, discard
//! and write again here and there, as long as the run lasts.

use super::client::{Clients, End};
use super::task::What;
use runtime::{now, random_u64};
use std::rc::Rc;
use std::time::Duration;
use types::{BLOCKS_PER_CHUNK, BlockRange, ChunkId};

/// Blocks of one operation.
const PIECE_BLOCKS: u32 = 16;
/// Of a client of a device that is full, between two operations.
const REST: Duration = Duration::from_millis(20);
/// When all is given back, a chunk is zeroed again after so long if it was not.
const AGAIN: Duration = Duration::from_millis(50);

/// What is known of a piece.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Piece {
    Empty,
    Stored,
    /// Nobody knows: it is left alone.
    Unknown,
}

/// Blocks that one operation is about: group, chunk, first block.
type Place = (usize, ChunkId, u32);

impl Clients {
    /// Every piece of every chunk that is there to fill the devices; chunks of all groups in turn.
    fn pieces(&self) -> Vec<Place> {
        let groups = self.layout.groups.len();
        let mut places = Vec::new();
        for number in 0..self.layout.hoard_chunks as usize {
            for group in 0..groups {
                let chunk = self.layout.hoard_of(group).nth(number).expect("it is one of them");
                places.extend((0..BLOCKS_PER_CHUNK).step_by(PIECE_BLOCKS as usize).map(|first| (group, chunk, first)));
            }
        }
        places
    }

    /// One of `all` clients that fill the devices; each has pieces of its own.
    pub async fn hoard(self: Rc<Self>, number: usize, all: usize) {
        let places: Vec<Place> = self.pieces().into_iter().skip(number).step_by(all).collect();
        let mut pieces = vec![Piece::Empty; places.len()];
        let mut next = 0;
        let mut is_full = false;
        while !self.stop.get() && next < places.len() {
            // While there is room, one after the other; then any of those that were tried.
            let (at, what) = match is_full {
                false => (next, What::Write),
                true => (random_u64() as usize % (next + 1), draw_what()),
            };
            if pieces[at] == Piece::Unknown {
                next += usize::from(at == next);
                continue;
            }
            match (self.operate_piece(places[at], what).await, what) {
                (End::Done, What::Write) => {
                    pieces[at] = Piece::Stored;
                    next += usize::from(at == next);
                }
                (End::Done, What::Zero) => pieces[at] = Piece::Empty,
                (End::Open, What::Write | What::Zero) => pieces[at] = Piece::Unknown,
                (End::Full, _) => is_full = true,
                _ => {}
            }
            if is_full {
                is_full = !random_u64().is_multiple_of(64);
                self.rest(REST).await;
            }
        }
        self.running.set(self.running.get() - 1);
    }

    async fn operate_piece(self: &Rc<Self>, (group, chunk, first): Place, what: What) -> End {
        self.operate(group, chunk, BlockRange::new(first, PIECE_BLOCKS), what).await
    }

    /// Zeroes every second chunk of those that fill the devices: it is done however full they are. Returns false if it is
    /// not within `limit`.
    pub async fn give_back(self: Rc<Self>, limit: Duration) -> bool {
        let until = now() + limit;
        for group in 0..self.layout.groups.len() {
            for chunk in self.layout.hoard_of(group).step_by(2) {
                let all = BlockRange::new(0, BLOCKS_PER_CHUNK);
                while self.operate(group, chunk, all, What::Zero).await != End::Done {
                    if until.since(now()).is_zero() {
                        return false;
                    }
                    runtime::sleep(AGAIN).await;
                }
            }
        }
        true
    }

    /// What was given back of a group takes new blocks again.
    pub async fn write_anew(self: &Rc<Self>, group: usize, limit: Duration) -> bool {
        let until = now() + limit;
        let Some(chunk) = self.layout.hoard_of(group).next() else { return true };
        while self.operate_piece((group, chunk, 0), What::Write).await != End::Done {
            if until.since(now()).is_zero() {
                return false;
            }
            runtime::sleep(AGAIN).await;
        }
        true
    }
}

fn draw_what() -> What {
    match random_u64() % 8 {
        0..2 => What::Zero,
        2 => What::Read,
        _ => What::Write,
    }
}
