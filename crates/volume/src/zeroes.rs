//! Ranges that become zero: of any length, so done chunk by chunk, many at a time.

use crate::admission::Access;
use crate::api::{IoError, MAX_TRANSFER_BYTES, Volume};
use crate::command::Command;
use crate::part::Work;
use runtime::{IoBuf, SharedBuf, now};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;
use types::CHUNK_BYTES;

/// Chunks of a long range that are worked on at once: enough to fill an append, few enough that others get their turn.
const CHUNKS_AT_ONCE: usize = 64;
/// The same where zeroes are written as data: 8 MiB, what a few groups take at once.
const STORED_CHUNKS_AT_ONCE: usize = 8;

/// What becomes of a range.
#[derive(Clone)]
pub(crate) enum Zeroing {
    /// Whole blocks read as zeroes, and take no space; parts of blocks are left alone.
    Discard,
    /// All of it reads as zeroes; whole blocks take no space.
    Zero,
    /// All of it reads as zeroes, and is stored: these, as many as one command takes.
    Store(SharedBuf),
}

impl Zeroing {
    /// Zeroes that are stored, for a range of that length.
    pub(crate) fn store(len: u64) -> Self {
        Self::Store(IoBuf::zeroed(len.min(CHUNK_BYTES) as usize).freeze())
    }

    fn work(&self, len: u32) -> Work {
        match self {
            Self::Discard => Work::Zero { partial: false },
            Self::Zero => Work::Zero { partial: true },
            Self::Store(zeroes) => Work::Fill(zeroes.slice(0..len as usize)),
        }
    }
}

/// Makes the range zero. One of at most 1 MiB is admitted at the call, a longer one piece by piece.
pub(crate) fn zero(
    volume: &Volume,
    offset: u64,
    len: u64,
    how: Zeroing,
) -> impl Future<Output = Result<(), IoError>> + use<> {
    let short = (1..=u64::from(MAX_TRANSFER_BYTES)).contains(&len);
    let command = short.then(|| begin(volume, offset, len, &how));
    let whole = volume.let_in(offset, len);
    let volume = volume.clone();
    async move {
        let (_, _running) = whole?;
        match command {
            Some(command) => command?.finish().await.map(drop),
            None => zero_long(&volume, offset, len, &how).await,
        }
    }
}

fn begin(volume: &Volume, offset: u64, len: u64, how: &Zeroing) -> Result<Command, IoError> {
    Command::begin(volume, offset, len as u32, Access::Write, |_, len| how.work(len))
}

type Piece = Pin<Box<dyn Future<Output = Result<(), IoError>>>>;

async fn zero_long(volume: &Volume, offset: u64, len: u64, how: &Zeroing) -> Result<(), IoError> {
    let (mut at, end) = (offset, offset + len);
    let at_once = if matches!(how, Zeroing::Store(_)) { STORED_CHUNKS_AT_ONCE } else { CHUNKS_AT_ONCE };
    let mut pieces: Vec<Piece> = Vec::with_capacity(at_once);
    while at < end {
        let began = now();
        while at < end && pieces.len() < at_once {
            let cut = end.min((at / CHUNK_BYTES + 1) * CHUNK_BYTES);
            let command = begin(volume, at, cut - at, how)?;
            pieces.push(Box::pin(async move { command.finish().await.map(drop) }));
            at = cut;
        }
        all(&mut pieces).await?;
        runtime::yield_now().await; // chunks that hold nothing are done without a wait
        if at < end {
            // What is admitted late may come after newer commands of a client that is back elsewhere.
            volume.session.may_go_on(began).await?;
        }
    }
    Ok(())
}

/// Runs all to their end; the first error, if there was one.
async fn all(pieces: &mut Vec<Piece>) -> Result<(), IoError> {
    let mut result = Ok(());
    poll_fn(|cx| {
        pieces.retain_mut(|piece| match piece.as_mut().poll(cx) {
            Poll::Pending => true,
            Poll::Ready(done) => {
                if result.is_ok() {
                    result = done;
                }
                false
            }
        });
        if pieces.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    result
}
