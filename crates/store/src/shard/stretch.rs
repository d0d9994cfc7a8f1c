//! The device's part of a read: which stretches of it are read, and what is done with them.

use super::ShardCore;
use super::read::{Lists, Pin, Wanted, told};
use super::watchdog::Asked;
use crate::error::ReadError;
use crate::format::{Crc32c, DeviceUnit, Geometry, SegmentIndex, StoredBlock, StoredLength};
use runtime::channel::WaitList;
use runtime::{IoBuf, spawn};
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io;
use std::ops::Range;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use types::{BLOCK_BYTES, Mutant, mutant};

/// Blocks that lie no farther apart are read together: what lies between costs less than another read.
const GAP_BYTES: u64 = 16 << 10;
/// Neighbouring blocks of this length are read to where they belong, whatever lies near: copying them costs more than
/// another read.
const LONG_BYTES: u64 = 64 << 10;
/// Longest read of blocks that do not lie one behind the other.
const MAX_GATHERED_BYTES: u64 = 1 << 20;

/// A stored block of a read, counted from its first.
#[derive(Clone, Copy)]
pub(super) struct Ordered {
    pub(super) block: u16,
    pub(super) stored: StoredBlock,
}

/// Bytes of the device, whole blocks of it.
pub(super) struct Piece {
    pub(super) offset_bytes: u64,
    pub(super) bytes: IoBuf,
}

/// One device read, and the blocks it brings.
struct Stretch {
    segment: SegmentIndex,
    offset_bytes: u64,
    len_bytes: usize,
    /// Which, in the order of the device.
    blocks: Range<usize>,
    /// The bytes are those of neighbouring plain blocks, in order, and nothing else.
    is_direct: bool,
}

/// Whether a device read may begin there.
pub(super) fn is_aligned(location: DeviceUnit, block_size_bytes: u32) -> bool {
    location.byte_offset().is_multiple_of(u64::from(block_size_bytes))
}

/// Cuts blocks, in the order of the device, into stretches of one segment each.
fn stretches(order: &[Ordered], geometry: &Geometry) -> impl Iterator<Item = Stretch> {
    let block = u64::from(geometry.block_size_bytes);
    let mut at = 0;
    std::iter::from_fn(move || {
        let first = order.get(at)?;
        let segment = geometry.segment_of(first.stored.location).expect("an indexed block lies in a segment");
        let start = first.stored.location.byte_offset() / block * block;
        let mut end = first.stored.end();
        let mut is_direct = start == first.stored.location.byte_offset() && first.stored.stored == StoredLength::RAW;
        let begin = at;
        at += 1;
        while let Some(next) = order.get(at) {
            let follows = next.stored.location == end
                && next.block == order[at - 1].block + 1
                && next.stored.stored == StoredLength::RAW;
            let is_near = next.stored.location.byte_offset() - end.byte_offset() <= GAP_BYTES
                && next.stored.end().byte_offset() - start <= MAX_GATHERED_BYTES
                && geometry.segment_of(next.stored.location) == Some(segment);
            let is_long = is_direct && end.byte_offset() - start >= LONG_BYTES;
            if !(is_direct && follows || is_near && !is_long) {
                break;
            }
            is_direct &= follows;
            end = next.stored.end();
            at += 1;
        }
        let len_bytes = (end.byte_offset().next_multiple_of(block) - start) as usize;
        Some(Stretch { segment, offset_bytes: start, len_bytes, blocks: begin..at, is_direct })
    })
}

impl ShardCore {
    pub(super) fn segment_of(&self, location: DeviceUnit) -> SegmentIndex {
        self.store.geometry.segment_of(location).expect("an indexed block lies in a segment")
    }

    /// Reads what is stored of the blocks listed in the order of the device.
    pub(super) async fn read_pieces(self: &Rc<Self>, wanted: Wanted, lists: &mut Lists) -> Result<(), ReadError> {
        let Lists { order, pieces, .. } = lists;
        let mut all = stretches(order, &self.store.geometry);
        let first = all.next().expect("a block is stored");
        let second = all.next();
        if second.is_none() {
            let _pin = self.pin(first.segment);
            let buf = IoBuf::new(first.len_bytes);
            let (result, bytes) = self.read_stretch(wanted, first.offset_bytes, order, buf).await;
            pieces.push(Piece { offset_bytes: first.offset_bytes, bytes });
            return result;
        }
        let all: Vec<Stretch> = [first].into_iter().chain(second).chain(all).collect();
        let bufs = all.iter().map(|stretch| IoBuf::new(stretch.len_bytes)).collect();
        let (result, bufs) = self.read_all(wanted, order, &all, bufs).await;
        let pieces_read = all.iter().zip(bufs).map(|(one, bytes)| Piece { offset_bytes: one.offset_bytes, bytes });
        pieces.extend(pieces_read);
        result
    }

    /// Reads plain blocks that lie in several places into their places in the buffer.
    pub(super) async fn read_scattered(
        self: &Rc<Self>,
        wanted: Wanted,
        lists: &mut Lists,
        buf: &mut IoBuf,
    ) -> Result<(), ReadError> {
        let len_bytes = buf.len();
        let mut all: Vec<Stretch> = stretches(&lists.order, &self.store.geometry).collect();
        // From the end, so that what is cut off the buffer is what lies behind.
        all.sort_unstable_by_key(|stretch| std::cmp::Reverse(lists.order[stretch.blocks.start].block));
        let mut tails = Vec::new();
        let mut bufs = Vec::with_capacity(all.len());
        for stretch in &all {
            if !stretch.is_direct {
                bufs.push(IoBuf::new(stretch.len_bytes));
                continue;
            }
            let start = usize::from(lists.order[stretch.blocks.start].block) * BLOCK_BYTES;
            tails.push(buf.split_off(start + stretch.len_bytes));
            bufs.push(buf.split_off(start));
        }
        let (result, bufs) = self.read_all(wanted, &lists.order, &all, bufs).await;
        if matches!(result, Err(ReadError::Stopped { .. })) {
            // The device may have one of the parts for ever.
            *buf = IoBuf::new(len_bytes);
            return result;
        }
        let mut gathered = Vec::new();
        for (stretch, bytes) in all.into_iter().zip(bufs).rev() {
            if stretch.is_direct {
                buf.unsplit(bytes);
                buf.unsplit(tails.pop().expect("cut off with its part"));
            } else {
                gathered.push((stretch, bytes));
            }
        }
        for (stretch, bytes) in gathered {
            for one in &lists.order[stretch.blocks] {
                let from = (one.stored.location.byte_offset() - stretch.offset_bytes) as usize;
                let to = usize::from(one.block) * BLOCK_BYTES;
                buf[to..to + BLOCK_BYTES].copy_from_slice(&bytes[from..from + BLOCK_BYTES]);
            }
        }
        let blocks = buf.chunks_exact_mut(BLOCK_BYTES).zip(&lists.states);
        blocks.filter(|(_, state)| state.stored().is_none()).for_each(|(block, _)| block.fill(0));
        result
    }

    /// Reads several stretches at once, each into its buffer; these come back in their order.
    async fn read_all(
        self: &Rc<Self>,
        wanted: Wanted,
        order: &[Ordered],
        stretches: &[Stretch],
        bufs: Vec<IoBuf>,
    ) -> (Result<(), ReadError>, Vec<IoBuf>) {
        let gather = Rc::new(Gather::default());
        gather.missing.set(stretches.len());
        gather.done.borrow_mut().resize_with(stretches.len(), || None);
        for (number, (stretch, buf)) in stretches.iter().zip(bufs).enumerate() {
            // The pin is taken now, in the turn that asked the index; the read itself may begin later.
            let pin = self.pin(stretch.segment);
            let blocks = order[stretch.blocks.clone()].to_vec();
            let place = (stretch.offset_bytes, number);
            spawn(self.clone().read_one(wanted, place, (blocks, pin), buf, gather.clone()));
        }
        gather.ended.until(|| (gather.missing.get() == 0).then_some(())).await;
        let mut result = Ok(());
        let mut back = Vec::with_capacity(stretches.len());
        for done in gather.done.borrow_mut().drain(..) {
            let (read, buf) = done.expect("none is missing");
            back.push(buf);
            if !matches!(result, Err(ReadError::Stopped { .. })) && read.is_err() {
                result = read;
            }
        }
        (result, back)
    }

    async fn read_one(
        self: Rc<Self>,
        wanted: Wanted,
        (offset_bytes, number): (u64, usize),
        (blocks, pin): (Vec<Ordered>, Pin),
        buf: IoBuf,
        gather: Rc<Gather>,
    ) {
        let done = self.read_stretch(wanted, offset_bytes, &blocks, buf).await;
        drop(pin);
        gather.done.borrow_mut()[number] = Some(done);
        gather.missing.set(gather.missing.get() - 1);
        gather.ended.wake_all();
    }

    /// Reads from `offset_bytes` of the device; `blocks` lie there.
    pub(super) async fn read_stretch(
        &self,
        wanted: Wanted,
        offset_bytes: u64,
        blocks: &[Ordered],
        mut buf: IoBuf,
    ) -> (Result<(), ReadError>, IoBuf) {
        let segment = self.segment_of(blocks[0].stored.location);
        let number = |one: &Ordered| u32::from(wanted.range.first) + u32::from(one.block);
        let mut last = Ok(());
        // What differs may have been disturbed on its way: it is asked for once more.
        for attempt in 0..2 {
            self.counters.borrow_mut().device_reads += 1;
            self.counters.borrow_mut().device_read_bytes += buf.len() as u64;
            self.counters.borrow_mut().read_retries += attempt;
            let (read, back) = self.ask(offset_bytes, buf).await;
            buf = back;
            let len_bytes = buf.len();
            last = match read {
                Ok(()) => check_blocks(&buf, offset_bytes, blocks).map_err(|(one, found)| ReadError::Checksum {
                    layer: wanted.layers_first,
                    chunk: wanted.chunk,
                    block: number(&one),
                    segment,
                    offset_bytes: one.stored.location.byte_offset(),
                    expected: one.stored.checksum.0,
                    found: found.0,
                }),
                Err(error) => Err(ReadError::Io {
                    layer: wanted.layers_first,
                    chunk: wanted.chunk,
                    block: number(&blocks[0]),
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
        self.counters.borrow_mut().checksum_errors += u64::from(matches!(last, Err(ReadError::Checksum { .. })));
        self.note_read(&last);
        (last, buf)
    }

    /// One read of the device, given up when the device is.
    pub(super) async fn ask(&self, offset_bytes: u64, buf: IoBuf) -> (io::Result<()>, IoBuf) {
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

/// The first block whose sum differs, with the sum found. `bytes` begin at `offset_bytes` of the device.
fn check_blocks(bytes: &[u8], offset_bytes: u64, blocks: &[Ordered]) -> Result<(), (Ordered, Crc32c)> {
    if mutant(Mutant::ChecksumSkipped) {
        return Ok(());
    }
    for one in blocks {
        let start = (one.stored.location.byte_offset() - offset_bytes) as usize;
        let found = Crc32c::of(&bytes[start..start + one.stored.stored.bytes()]);
        if found != one.stored.checksum {
            return Err((*one, found));
        }
    }
    Ok(())
}

/// What became of one stretch, and its buffer.
type StretchRead = (Result<(), ReadError>, IoBuf);

/// Where the parts of a scattered read come together.
#[derive(Default)]
struct Gather {
    done: RefCell<Vec<Option<StretchRead>>>,
    missing: Cell<usize>,
    ended: WaitList,
}
