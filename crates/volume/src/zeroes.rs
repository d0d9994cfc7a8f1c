//! Ranges that become zero: of any length, so done chunk by chunk, many at a time.

use crate::admission::Access;
use crate::api::{IoError, MAX_TRANSFER_BYTES, Volume};
use crate::command::Command;
use crate::part::Work;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;
use types::CHUNK_BYTES;

/// Chunks of a long range that are worked on at once: enough to fill an append, few enough that others get their turn.
const CHUNKS_AT_ONCE: usize = 64;

/// Makes the range zero; `partial`: also where it ends inside a block. A range of at most 1 MiB is admitted at the
/// call, a longer one piece by piece.
pub(crate) fn zero(
    volume: &Volume,
    offset: u64,
    len: u64,
    partial: bool,
) -> impl Future<Output = Result<(), IoError>> + use<> {
    let short = (1..=u64::from(MAX_TRANSFER_BYTES)).contains(&len);
    let command = short.then(|| begin(volume, offset, len, partial));
    let whole = volume.state.let_in(offset, len);
    let volume = volume.clone();
    async move {
        let (_, _running) = whole?;
        match command {
            Some(command) => command?.finish().await.map(drop),
            None => zero_long(&volume, offset, len, partial).await,
        }
    }
}

fn begin(volume: &Volume, offset: u64, len: u64, partial: bool) -> Result<Command, IoError> {
    Command::begin(volume, offset, len as u32, Access::Write, |_, _| Work::Zero { partial })
}

type Piece = Pin<Box<dyn Future<Output = Result<(), IoError>>>>;

async fn zero_long(volume: &Volume, offset: u64, len: u64, partial: bool) -> Result<(), IoError> {
    let (mut at, end) = (offset, offset + len);
    let mut pieces: Vec<Piece> = Vec::with_capacity(CHUNKS_AT_ONCE);
    while at < end {
        while at < end && pieces.len() < CHUNKS_AT_ONCE {
            let cut = end.min((at / CHUNK_BYTES + 1) * CHUNK_BYTES);
            let command = begin(volume, at, cut - at, partial)?;
            pieces.push(Box::pin(async move { command.finish().await.map(drop) }));
            at = cut;
        }
        all(&mut pieces).await?;
        runtime::yield_now().await; // chunks that hold nothing are done without a wait
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
