//! Which blocks of a range are stored, and which have changed since a snapshot: asked of the index of each chunk's
//! group, in the order of the chunk, as a read would be. Nothing is read.

use crate::admission::Access;
use crate::api::{IoError, MAX_TRANSFER_BYTES, Volume};
use crate::command::{Command, Finished};
use crate::part::{Done, Work};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use store::KnownBlock;
use types::{BLOCK_BYTES, CHUNK_BYTES, LayerId};

/// Snapshots that one question may name: the bits of [`BlockExtent::changed_since`].
pub const MARKS_MAX: usize = 32;
/// Chunks of a long range that are asked at once, at first: most questions end with the first few extents.
const CHUNKS_AT_FIRST: usize = 4;
/// And at most.
const CHUNKS_AT_ONCE: usize = 64;

/// A point in a volume's history: what was written later is told as changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotMark(pub(crate) LayerId);

/// A stretch whose blocks are alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockExtent {
    /// How long it is.
    pub len_bytes: u64,
    /// Whether bytes of it are stored, in whichever layer. If not it reads as zeroes, and takes no space.
    pub is_stored: bool,
    /// Bit i: something was written, zeroed or discarded here since the i-th mark. May say more than differs, never
    /// less: since a snapshot that is not in the volume's history (any more) everything has changed.
    pub changed_since: u32,
}

/// Extents in order, up to a number of them.
pub(crate) struct Extents {
    list: Vec<BlockExtent>,
    most: usize,
    is_full: bool,
}

impl Extents {
    pub(crate) fn new(most: usize) -> Self {
        Self { list: Vec::new(), most, is_full: false }
    }

    /// Adds one behind the others; once there is no room for it nothing is added any more.
    pub(crate) fn push(&mut self, extent: BlockExtent) {
        if self.is_full {
            return;
        }
        let count = self.list.len();
        match self.list.last_mut() {
            Some(last) if (last.is_stored, last.changed_since) == (extent.is_stored, extent.changed_since) => {
                last.len_bytes += extent.len_bytes;
            }
            _ if count < self.most => self.list.push(extent),
            _ => self.is_full = true,
        }
    }

    fn add(&mut self, more: Vec<BlockExtent>) {
        more.into_iter().for_each(|extent| self.push(extent));
    }
}

/// What bytes `offset..offset + len` of a chunk look like whose blocks are `known`; the first of them holds `offset`.
pub(crate) fn extents_of(
    known: &[KnownBlock],
    layers: &[LayerId],
    since: &[LayerId],
    offset: u32,
    len: u32,
) -> Vec<BlockExtent> {
    // Everything above the mark's layer is newer than it.
    let depths: Vec<Option<u32>> =
        since.iter().map(|mark| layers.iter().position(|layer| layer == mark).map(|depth| depth as u32)).collect();
    let changed = |block: &KnownBlock| {
        let is_newer = |mark: &Option<u32>| match (mark, block.depth) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(mark), Some(depth)) => depth < *mark,
        };
        depths.iter().enumerate().fold(0, |bits, (i, mark)| bits | u32::from(is_newer(mark)) << i)
    };
    let mut extents = Extents::new(known.len());
    let (mut at, end) = (offset, offset + len);
    for block in known {
        let next = end.min((at / BLOCK_BYTES as u32 + 1) * BLOCK_BYTES as u32);
        let len_bytes = u64::from(next - at);
        extents.push(BlockExtent { len_bytes, is_stored: block.is_stored, changed_since: changed(block) });
        at = next;
    }
    debug_assert_eq!(at, end);
    extents.list
}

/// See [`Volume::block_status`].
pub(crate) fn block_status(
    volume: &Volume,
    offset: u64,
    len: u64,
    since: Arc<[LayerId]>,
    extents_max: usize,
) -> impl Future<Output = Result<Vec<BlockExtent>, IoError>> + use<> {
    assert!(len > 0 && extents_max > 0 && since.len() <= MARKS_MAX, "a question that has an answer");
    let short = (len <= u64::from(MAX_TRANSFER_BYTES)).then(|| begin(volume, offset, len, &since));
    let whole = volume.let_in(offset, len);
    let volume = volume.clone();
    async move {
        let (_, _running) = whole?;
        let mut extents = Extents::new(extents_max);
        match short {
            Some(command) => extents.add(finish(command?).await?),
            None => ask_long(&volume, offset, len, &since, &mut extents).await?,
        }
        Ok(extents.list)
    }
}

fn begin(volume: &Volume, offset: u64, len: u64, since: &Arc<[LayerId]>) -> Result<Command, IoError> {
    Command::begin(volume, offset, len as u32, Access::Read, |_, _| Work::Status(since.clone()))
}

async fn finish(command: Command) -> Result<Vec<BlockExtent>, IoError> {
    let Finished(first, second) = command.finish().await?;
    let extents = [Some(first), second].into_iter().flatten().flat_map(|done| match done {
        Done::Status(extents) => extents,
        _ => unreachable!("block status was asked for"),
    });
    Ok(extents.collect())
}

type Piece = Pin<Box<dyn Future<Output = Result<Vec<BlockExtent>, IoError>>>>;

/// Chunk by chunk, several at a time, until there are enough extents.
async fn ask_long(
    volume: &Volume,
    offset: u64,
    len: u64,
    since: &Arc<[LayerId]>,
    extents: &mut Extents,
) -> Result<(), IoError> {
    let (mut at, end, mut at_once) = (offset, offset + len, CHUNKS_AT_FIRST);
    while at < end && !extents.is_full {
        let mut pieces: Vec<Piece> = Vec::with_capacity(at_once);
        while at < end && pieces.len() < at_once {
            let cut = end.min((at / CHUNK_BYTES + 1) * CHUNK_BYTES);
            pieces.push(Box::pin(finish(begin(volume, at, cut - at, since)?)));
            at = cut;
        }
        for piece in all(pieces).await {
            extents.add(piece?);
        }
        at_once = (at_once * 4).min(CHUNKS_AT_ONCE);
        runtime::yield_now().await; // chunks of this core answer without a wait
    }
    Ok(())
}

/// Runs all to their end, at once; what they came to, in their order.
async fn all(mut pieces: Vec<Piece>) -> Vec<Result<Vec<BlockExtent>, IoError>> {
    let mut done: Vec<Option<_>> = pieces.iter().map(|_| None).collect();
    poll_fn(|cx| {
        for (piece, done) in pieces.iter_mut().zip(&mut done) {
            if done.is_none()
                && let Poll::Ready(came_to) = piece.as_mut().poll(cx)
            {
                *done = Some(came_to);
            }
        }
        if done.iter().all(Option::is_some) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    done.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(len_bytes: u64, is_stored: bool) -> BlockExtent {
        BlockExtent { len_bytes, is_stored, changed_since: 0 }
    }

    #[test]
    fn extents_are_joined_and_end_where_there_is_no_room() {
        let mut extents = Extents::new(2);
        for (len, is_stored) in [(1, true), (2, true), (4, false), (8, true), (16, false)] {
            extents.push(extent(len, is_stored));
        }
        assert!(extents.is_full);
        assert_eq!(extents.list, [extent(3, true), extent(4, false)], "nothing behind what is left out");
    }

    #[test]
    fn a_block_has_changed_if_a_layer_above_the_mark_knows_it() {
        let layers = [LayerId(9), LayerId(7), LayerId(4)];
        let since = [LayerId(7), LayerId(4), LayerId(9), LayerId(5)];
        let known = |depth, is_stored| KnownBlock { depth, is_stored };
        let blocks = [known(Some(0), true), known(Some(1), false), known(Some(2), true), known(None, false)];
        let found = extents_of(&blocks, &layers, &since, 4096 + 100, 3 * 4096);
        let bits: Vec<_> = found.iter().map(|e| (e.len_bytes, e.is_stored, e.changed_since)).collect();
        assert_eq!(
            bits,
            [(3996, true, 0b1011), (4096, false, 0b1010), (4096, true, 0b1000), (100, false, 0b1000)],
            "since a layer that is not there everything has changed, since the top nothing"
        );
    }
}
