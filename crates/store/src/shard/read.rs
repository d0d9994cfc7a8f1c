//! Reads: index, device, checksum, straight into the caller's buffer.

use super::watchdog::Asked;
use super::{Shard, ShardCore};
use crate::error::ReadError;
use crate::format::blocks::BlockState;
use crate::format::{Crc32c, LeafKey, SegmentIndex, StoredLength};
use crate::index::{Extent, ExtentKind, extents};
use runtime::channel::WaitList;
use runtime::{IoBuf, spawn};
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use types::{BLOCK_BYTES, BlockRange, ChunkId, LayerId, Mutant, mutant};

/// crc32c of 4 KiB of zeroes.
pub const ZERO_BLOCK_CHECKSUM: u32 = 0x98f9_4189;

/// What the index said of each block of a read, when it began. The list is used again: an array for a whole chunk
/// would be 6 KiB in every command's task, moved and cleared for each 4 KiB that is read.
struct States {
    core: Rc<ShardCore>,
    list: Vec<BlockState>,
}

impl States {
    fn absent(core: &Rc<ShardCore>, count: u16) -> Self {
        let mut list = core.state.borrow_mut().spare_states.pop().unwrap_or_default();
        list.resize(usize::from(count), BlockState::Absent);
        Self { core: core.clone(), list }
    }
}

impl Drop for States {
    fn drop(&mut self) {
        self.list.clear();
        self.core.state.borrow_mut().spare_states.push(std::mem::take(&mut self.list));
    }
}

impl Shard {
    /// Reads `range` of `chunk`: each block from the first of `layers` (newest first) that knows it, zeroes if none
    /// does. The index is asked once, at the first poll: a commit is seen wholly or not at all. Pushes the crc32c of
    /// each plain block to `checksums`. The buffer comes back in any case, its contents undefined after an error.
    ///
    /// # Errors
    /// What the device returns, or does not, twice.
    ///
    /// # Panics
    /// If `buf` has not the length of the range, aligned to a block.
    pub async fn read(
        &self,
        layers: &[LayerId],
        chunk: ChunkId,
        range: BlockRange,
        mut buf: IoBuf,
        checksums: &mut Vec<u32>,
    ) -> (Result<(), ReadError>, IoBuf) {
        assert_eq!(buf.len(), range.bytes(), "a buffer of the range's length");
        let core = &self.core;
        core.counters.reads.add(1);
        if let Some(failed) = core.store.failed() {
            return (Err(ReadError::Stopped { reason: told(&failed) }), buf);
        }
        let mut states = States::absent(core, range.count);
        let states = &mut states.list[..];
        let found = core.guarded(|| core.look_up(layers, chunk, range, states));
        if let Err(error) = found.unwrap_or_else(|stopped| Err(ReadError::Stopped { reason: told(&stopped) })) {
            core.note_read(&Err(error.clone()));
            return (Err(error), buf);
        }
        for state in &*states {
            checksums.push(state.stored().map_or(ZERO_BLOCK_CHECKSUM, |block| block.checksum.0));
        }
        let place = Wanted { layers_first: layers.first().copied().unwrap_or_default(), chunk, range };
        let single = {
            let mut all = extents(states);
            let first = all.next();
            if all.next().is_none() { first } else { None }
        };
        if let Some(extent) = single {
            // The common read: one stretch of the device, no other task.
            let _pin = core.pin_of(extent);
            return core.read_pinned(place, extent, states, buf).await;
        }
        let result = core.read_scattered(place, states, &mut buf).await;
        (result, buf)
    }
}

fn told(error: &dyn std::fmt::Display) -> Arc<str> {
    Arc::from(error.to_string())
}

/// What a read is for, to say so in an error.
#[derive(Clone, Copy)]
struct Wanted {
    layers_first: LayerId,
    chunk: ChunkId,
    range: BlockRange,
}

/// A segment that is not given away while this lives.
pub(super) struct Pin {
    core: Rc<ShardCore>,
    segment: SegmentIndex,
}

impl Drop for Pin {
    fn drop(&mut self) {
        self.core.state.borrow_mut().unpin(&self.core, self.segment);
    }
}

impl ShardCore {
    fn look_up(
        &self,
        layers: &[LayerId],
        chunk: ChunkId,
        range: BlockRange,
        states: &mut [BlockState],
    ) -> Result<(), ReadError> {
        let state = self.state.borrow();
        for (depth, layer) in layers.iter().enumerate() {
            if depth > 0 && !states.contains(&BlockState::Absent) {
                break; // whatever lies below is hidden
            }
            let key = LeafKey { layer: *layer, chunk };
            if state.lost.has(key) {
                return Err(ReadError::IndexLost { layer: *layer, chunk });
            }
            state.index.fill(key, range, states);
        }
        for (i, block) in states.iter().enumerate() {
            if block.stored().is_some_and(|block| block.stored != StoredLength::RAW) {
                let layer = layers.first().copied().unwrap_or_default();
                return Err(ReadError::Codec { layer, chunk, block: u32::from(range.first) + i as u32 });
            }
        }
        Ok(())
    }

    pub(super) fn pin(self: &Rc<Self>, segment: SegmentIndex) -> Pin {
        self.state.borrow_mut().segments.get_mut(segment).pins += 1;
        Pin { core: self.clone(), segment }
    }

    /// Reads several stretches at once, each into its part of the buffer.
    async fn read_scattered(
        self: &Rc<Self>,
        wanted: Wanted,
        states: &[BlockState],
        buf: &mut IoBuf,
    ) -> Result<(), ReadError> {
        let gather = Rc::new(Gather::default());
        let len_bytes = buf.len();
        let mut rest = buf.split_off(0);
        for (number, extent) in extents(states).enumerate() {
            let mut part = rest;
            rest = part.split_off(usize::from(extent.count) * BLOCK_BYTES);
            gather.done.borrow_mut().push(None);
            gather.missing.set(gather.missing.get() + 1);
            let of_part: Vec<_> = states[usize::from(extent.first)..][..usize::from(extent.count)].to_vec();
            // The pin is taken now, in the turn that asked the index; the read itself may begin later.
            let read = self.clone().read_part(wanted, extent, of_part, part, gather.clone(), number);
            spawn(read);
        }
        gather.ended.until(|| (gather.missing.get() == 0).then_some(())).await;
        let mut result = Ok(());
        let parts: Vec<_> = gather.done.borrow_mut().drain(..).map(|done| done.expect("none is missing")).collect();
        if parts.iter().any(|(read, _)| matches!(read, Err(ReadError::Stopped { .. }))) {
            // The device may have one of the parts for ever.
            *buf = IoBuf::new(len_bytes);
            return parts.into_iter().try_for_each(|(read, _)| read);
        }
        for (read, part) in parts {
            buf.unsplit(part);
            result = result.and(read);
        }
        buf.unsplit(rest);
        result
    }

    fn read_part(
        self: Rc<Self>,
        wanted: Wanted,
        extent: Extent,
        states: Vec<BlockState>,
        part: IoBuf,
        gather: Rc<Gather>,
        number: usize,
    ) -> impl Future<Output = ()> {
        let pin = self.pin_of(extent);
        async move {
            let done = self.read_pinned(wanted, extent, &states, part).await;
            drop(pin);
            gather.done.borrow_mut()[number] = Some(done);
            gather.missing.set(gather.missing.get() - 1);
            gather.ended.wake_all();
        }
    }

    fn pin_of(self: &Rc<Self>, extent: Extent) -> Option<Pin> {
        let ExtentKind::Stored { location, .. } = extent.kind else { return None };
        Some(self.pin(self.store.geometry.segment_of(location).expect("an indexed block lies in a segment")))
    }

    /// Fills `buf` with the blocks of one stretch; `states` are theirs.
    async fn read_pinned(
        &self,
        wanted: Wanted,
        extent: Extent,
        states: &[BlockState],
        mut buf: IoBuf,
    ) -> (Result<(), ReadError>, IoBuf) {
        let ExtentKind::Stored { location, .. } = extent.kind else {
            buf.fill(0);
            return (Ok(()), buf);
        };
        let offset_bytes = location.byte_offset();
        let segment = self.store.geometry.segment_of(location).expect("an indexed block lies in a segment");
        let first_block = u32::from(wanted.range.first) + u32::from(extent.first);
        let mut last = Ok(());
        // What differs may have been disturbed on its way: it is asked for once more.
        for attempt in 0..2 {
            self.counters.device_reads.add(1);
            self.counters.device_read_bytes.add(buf.len() as u64);
            self.counters.read_retries.add(attempt);
            let (read, back) = self.ask(offset_bytes, buf).await;
            buf = back;
            let len_bytes = buf.len();
            last = match read {
                Ok(()) => check_blocks(&buf, states).map_err(|(i, expected, found)| ReadError::Checksum {
                    layer: wanted.layers_first,
                    chunk: wanted.chunk,
                    block: first_block + i as u32,
                    segment,
                    offset_bytes: offset_bytes + (i * BLOCK_BYTES) as u64,
                    expected: expected.0,
                    found: found.0,
                }),
                Err(error) => Err(ReadError::Io {
                    layer: wanted.layers_first,
                    chunk: wanted.chunk,
                    block: first_block,
                    segment,
                    offset_bytes,
                    len_bytes,
                    message: told(&error),
                }),
            };
            if let (Err(ReadError::Io { .. }), Some(failed)) = (&last, self.store.failed()) {
                // Nobody knows what the device would have said.
                return (Err(ReadError::Stopped { reason: told(&failed) }), buf);
            }
            if last.is_ok() {
                break;
            }
        }
        self.counters.checksum_errors.add(u64::from(matches!(last, Err(ReadError::Checksum { .. }))));
        self.note_read(&last);
        (last, buf)
    }

    /// One read of the device, given up when the device is.
    async fn ask(&self, offset_bytes: u64, buf: IoBuf) -> (io::Result<()>, IoBuf) {
        let len_bytes = buf.len();
        let _under_way = self.watchdog.begin(Asked::Read);
        let mut read = pin!(self.device.read(offset_bytes, buf));
        // Who gives the device up wakes all tasks of the core.
        poll_fn(|cx| match read.as_mut().poll(cx) {
            Poll::Pending if self.store.failed().is_some() => {
                Poll::Ready((Err(io::ErrorKind::TimedOut.into()), IoBuf::new(len_bytes)))
            }
            answer => answer,
        })
        .await
    }
}

/// The first block whose sum differs, with the sum expected and the one found.
fn check_blocks(bytes: &[u8], states: &[BlockState]) -> Result<(), (usize, Crc32c, Crc32c)> {
    if mutant(Mutant::ChecksumSkipped) {
        return Ok(());
    }
    for (i, (block, state)) in bytes.chunks_exact(BLOCK_BYTES).zip(states).enumerate() {
        let expected = state.stored().expect("a stored stretch").checksum;
        let found = Crc32c::of(block);
        if found != expected {
            return Err((i, expected, found));
        }
    }
    Ok(())
}

/// What became of one part, and its buffer.
type ReadPart = (Result<(), ReadError>, IoBuf);

/// Where the parts of a scattered read come together.
#[derive(Default)]
struct Gather {
    done: RefCell<Vec<Option<ReadPart>>>,
    missing: Cell<usize>,
    ended: WaitList,
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_sum_of_a_zero_block_is_right() {
        assert_eq!(super::ZERO_BLOCK_CHECKSUM, crc32c::crc32c(&[0; 4096]));
    }
}
