//! Ranges of one volume are copied to another, several pieces at once.

use crate::api::{IoError, Payload, Volume};
use runtime::channel::cross;
use std::cell::Cell;
use std::rc::Rc;
use types::CHUNK_BYTES;

/// What is copied in one piece, and how many pieces at once.
const PIECE_BYTES: u64 = CHUNK_BYTES / 4;
const PIECES_AT_ONCE: usize = 8;

/// How far the copying is, and whether it is to end.
#[derive(Default)]
pub(super) struct Progress {
    pub(super) copied_bytes: Cell<u64>,
    pub(super) is_given_up: Cell<bool>,
}

/// What copies ranges of one volume to another.
#[derive(Clone)]
pub(super) struct Copier {
    pub(super) from: Volume,
    pub(super) to: Volume,
    pub(super) progress: Rc<Progress>,
    /// At the pace of catch-up and scrub.
    pub(super) is_paced: bool,
    /// No further piece is begun, once that is said.
    pub(super) ends_early: Option<Rc<Cell<bool>>>,
}

impl Copier {
    /// Copies ranges, several pieces at once: (first byte, length, whether anything is stored there).
    pub(super) async fn pieces(&self, ranges: Vec<(u64, u64, bool)>) -> Result<(), IoError> {
        let pieces: Rc<Vec<(u64, u64, bool)>> = Rc::new(ranges.into_iter().flat_map(cut).collect());
        let next = Rc::new(Cell::new(0));
        let (done, mut outcomes) = cross(PIECES_AT_ONCE);
        for _ in 0..PIECES_AT_ONCE.min(pieces.len()) {
            let (pieces, next, done) = (pieces.clone(), next.clone(), done.clone());
            let copier = self.clone();
            runtime::spawn(async move {
                let mut outcome = Ok(());
                while outcome.is_ok() && next.get() < pieces.len() {
                    let piece = pieces[next.get()];
                    next.set(next.get() + 1);
                    outcome = copier.piece(piece).await;
                }
                let _ = done.send(outcome).await;
            });
        }
        drop(done);
        let mut all = Ok(());
        while let Ok(outcome) = outcomes.recv().await {
            all = all.and(outcome);
        }
        all
    }

    /// Whether nothing more of it is wanted.
    pub(super) fn has_ended(&self) -> bool {
        self.ends_early.as_ref().is_some_and(|ends| ends.get())
    }

    async fn piece(&self, (at, len, is_stored): (u64, u64, bool)) -> Result<(), IoError> {
        if self.progress.is_given_up.get() {
            return Err(IoError::Unavailable("somebody gave the move up".to_owned()));
        }
        if self.has_ended() {
            return Err(IoError::Unavailable("it took too long".to_owned()));
        }
        match is_stored {
            true => {
                if self.is_paced
                    && let Some(head) = self.to.state.head()
                {
                    head.groups.background_bytes(len as usize).await;
                }
                let read = self.from.patiently(|| self.from.read(at, len as u32)).await?;
                self.to.patiently(|| self.to.write(at, Payload { bytes: read.bytes.clone() })).await?;
            }
            false => self.to.patiently(|| self.to.write_zeroes(at, len)).await?,
        }
        self.progress.copied_bytes.set(self.progress.copied_bytes.get() + len);
        Ok(())
    }
}

/// A range in pieces: one that holds nothing is one.
fn cut((at, len, is_stored): (u64, u64, bool)) -> impl Iterator<Item = (u64, u64, bool)> {
    let step = if is_stored { PIECE_BYTES } else { len };
    (0..len.div_ceil(step)).map(move |piece| {
        let begin = piece * step;
        (at + begin, step.min(len - begin), is_stored)
    })
}
