//! The records of one stream of a shard's log, in order: see [`super::scan`].

use crate::error::Damage;
use crate::format::record::{MAX_APPENDS_IN_FLIGHT, RECORD_MAGIC};
use crate::format::{
    MAX_RECORD_BYTES, Record, RecordHeader, RecordKind, RecordPlace, RecordPointer, RecordSeq, SegmentIndex, Stream,
};
use crate::shard::Place;
use crate::store::{FoundSegment, Store};
use runtime::{Device, IoBuf, sleep};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use types::{Incarnation, Mutant, ShardIndex, mutant};

/// What cannot be read is asked for so often, with a pause: what stays away is damage, and a device may only have had
/// something else to do.
const READ_ATTEMPTS: u32 = 4;
const READ_PAUSE: Duration = Duration::from_millis(20);
/// Of so many places. A device with more of them is damaged.
const PATIENT_ABOUT: usize = 16;
/// Read at once while records are short, and while they are long and mostly blocks, which need not be read.
const READ_AHEAD_BYTES: usize = 256 << 10;
const READ_AHEAD_OF_LONG_BYTES: usize = 64 << 10;
/// Most that a power loss may tear.
const UNDER_WAY_BYTES: u32 = (MAX_APPENDS_IN_FLIGHT * MAX_RECORD_BYTES) as u32;

/// The device's bytes around the place that is looked at.
struct Window {
    bytes: IoBuf,
    segment: SegmentIndex,
    start_bytes: u32,
}

/// Reads the device in large pieces and shows small ones.
pub(super) struct Reader<'a> {
    device: &'a Device,
    store: &'a Store,
    shard: ShardIndex,
    window: Option<Window>,
    last_length_bytes: usize,
    /// Where something could not be read with what follows it: from there to here no more is read than is asked for.
    not_ahead: Option<(SegmentIndex, Range<u32>)>,
    pub(super) unreadable: Vec<Damage>,
}

/// A record whose header and entries are good, where it was found.
pub(super) struct Candidate {
    pub(super) header: RecordHeader,
    pub(super) place: Place,
    /// Where it was due: behind the one before it.
    pub(super) due: (SegmentIndex, u32),
    /// Header and entries; of a checkpoint record all of it.
    pub(super) bytes: IoBuf,
}

impl Candidate {
    pub(super) fn pointer(&self) -> RecordPointer {
        self.place.pointer
    }
}

/// Walks the segments of one stream.
pub(super) struct Cursor<'a> {
    pub(super) reader: Reader<'a>,
    segments: Vec<FoundSegment>,
    /// The segment looked at, and where in it.
    at: usize,
    offset_bytes: u32,
    /// Behind the last record accepted in this segment.
    pub(super) behind_last: u32,
    /// That record; 0 if there is none.
    pub(super) last_record: RecordSeq,
    /// What was found and not taken yet.
    found: Option<Candidate>,
    /// Replay begins with this; what lies before it is stepped over.
    start: RecordSeq,
    /// Below this, and of older lives than this, nothing counts any more.
    expected: RecordSeq,
    incarnation: Incarnation,
    /// Replay begins in this stream.
    pub(super) begins_at_start: bool,
    pub(super) scanned_bytes: u64,
}

impl<'a> Cursor<'a> {
    /// `segments` are all of the shard, in the order of their first records and generations.
    pub(super) fn new(reader: Reader<'a>, segments: &[FoundSegment], stream: Stream, start: RecordPointer) -> Self {
        let mut of_stream = segments.to_vec();
        of_stream.retain(|segment| segment.stream == stream);
        let segments = without_superseded(&of_stream);
        let first = reader.store.geometry.block_size_bytes;
        let named = segments.iter().position(|one| (one.segment, one.generation) == (start.segment, start.generation));
        let named = named.filter(|_| !start.is_none());
        let (at, offset_bytes) = match named {
            Some(at) => (at, start.offset_bytes),
            // What is due may be in the last segment that began before it.
            None => (segments.partition_point(|one| one.first_record <= start.seq).saturating_sub(1), first),
        };
        Self {
            reader,
            segments,
            at,
            offset_bytes,
            behind_last: offset_bytes,
            last_record: RecordSeq(0),
            found: None,
            start: start.seq,
            expected: RecordSeq(1),
            incarnation: Incarnation(0),
            begins_at_start: named.is_some(),
            scanned_bytes: 0,
        }
    }

    /// The record that comes next, if [`peek`](Self::peek) found one.
    pub(super) fn found(&self) -> Option<&Candidate> {
        self.found.as_ref()
    }

    /// The stream's newest segment.
    pub(super) fn last_segment(&self) -> Option<FoundSegment> {
        self.segments.last().copied()
    }

    /// Where the stream ends, if there is what may be left of the damaged record `seq`: its first bytes or its
    /// sequence.
    pub(super) async fn remains_at_end(&mut self, seq: RecordSeq) -> Option<(SegmentIndex, u32)> {
        let last = self.segments.last().filter(|_| self.found.is_none() && self.at >= self.segments.len())?.segment;
        let geometry = &self.reader.store.geometry;
        if self.behind_last >= geometry.segment_size_bytes {
            return None;
        }
        let bytes = self.reader.bytes(last, self.behind_last, geometry.block_size_bytes as usize).await?;
        RecordHeader::may_be_of(bytes, seq).then_some((last, self.behind_last))
    }

    /// Takes what was found.
    pub(super) fn accept(&mut self) -> Candidate {
        let found = self.found.take().expect("the caller looked");
        self.offset_bytes += found.header.length_bytes;
        self.behind_last = self.offset_bytes;
        self.last_record = found.header.seq;
        self.expected = RecordSeq(found.header.seq.0 + 1);
        self.incarnation = found.header.incarnation;
        found
    }

    /// What was found does not count: something that does may begin inside it.
    pub(super) fn reject(&mut self) {
        self.found = None;
        self.offset_bytes += self.reader.store.geometry.block_size_bytes;
    }

    /// Finds the next record of the stream that may count, unless it is found already.
    pub(super) async fn peek(&mut self) {
        let geometry = self.reader.store.geometry;
        while self.found.is_none()
            && let Some(segment) = self.segments.get(self.at).copied()
        {
            let limit = self.segments.get(self.at + 1).map_or(RecordSeq(u64::MAX), |next| next.first_record);
            let is_last = self.at + 1 == self.segments.len();
            // The newest segment is looked through to its end, too: more may be damaged than can be under way. Nothing that
            // lies there counts by accident: what an earlier use left has another generation, and what an earlier life
            // left an older incarnation than the records before it.
            let ends_early = || is_last && self.offset_bytes > self.behind_last + UNDER_WAY_BYTES;
            if self.offset_bytes >= geometry.segment_size_bytes
                || self.expected >= limit
                || mutant(Mutant::LogEndsInDamage) && ends_early()
            {
                self.scanned_bytes += u64::from(self.behind_last);
                self.at += 1;
                if !is_last {
                    self.offset_bytes = geometry.block_size_bytes;
                    self.behind_last = self.offset_bytes;
                    self.last_record = RecordSeq(0);
                }
                continue;
            }
            match self.record_at(&segment, limit).await {
                Some(found) if found.header.seq < self.start => {
                    self.offset_bytes += found.header.length_bytes;
                    self.behind_last = self.offset_bytes;
                    self.last_record = found.header.seq;
                }
                Some(found) => self.found = Some(found),
                None => {
                    let from = self.offset_bytes + geometry.block_size_bytes;
                    self.offset_bytes = self.reader.next_candidate(&segment, from).await;
                }
            }
        }
    }

    /// The record at this place, if one that may count is there.
    async fn record_at(&mut self, segment: &FoundSegment, limit: RecordSeq) -> Option<Candidate> {
        let (store, shard, offset_bytes) = (self.reader.store, self.reader.shard, self.offset_bytes);
        let geometry = store.geometry;
        let block = geometry.block_size_bytes;
        let room = (geometry.segment_size_bytes - offset_bytes) as usize;
        let peeked = {
            let bytes = self.reader.bytes(segment.segment, offset_bytes, block as usize).await?;
            RecordHeader::peek(bytes, block, room).ok()?
        };
        // Most of what earlier uses of the segment left is another shard's or behind: its header says so, and no more of
        // it is read.
        let counts = peeked.shard == shard
            && peeked.seq >= self.expected
            && peeked.seq < limit
            && peeked.incarnation >= self.incarnation;
        if !counts {
            return None;
        }
        let needed = match peeked.kind {
            // Leaves lie where blocks do.
            RecordKind::Checkpoint => peeked.length_bytes as usize,
            _ => peeked.blocks_offset_bytes(block),
        };
        self.reader.last_length_bytes = peeked.length_bytes as usize;
        let bytes = self.reader.bytes(segment.segment, offset_bytes, needed).await?;
        let place = RecordPlace { segment: segment.segment, generation: segment.generation, offset_bytes };
        let header = Record::decode(&store.key, &place, block, room, bytes).ok()?.header;
        let pointer =
            RecordPointer { seq: header.seq, generation: segment.generation, segment: segment.segment, offset_bytes };
        let blocks = geometry.unit_at(segment.segment, offset_bytes + header.blocks_offset_bytes(block) as u32);
        let bytes = IoBuf::copy_of(&bytes[..needed]);
        Some(Candidate { header, place: Place { pointer, blocks }, due: (segment.segment, self.behind_last), bytes })
    }
}

/// Leaves out segments whose records were all written again elsewhere. When the last record of a segment is refused,
/// the next one may be in the next segment already; both go to a third, which begins with the sequence of the first.
/// `segments` are in the order of their first records, and of their generations where those are equal.
pub(super) fn without_superseded(segments: &[FoundSegment]) -> Vec<FoundSegment> {
    let mut kept: Vec<FoundSegment> = Vec::with_capacity(segments.len());
    for segment in segments {
        if kept.last().is_some_and(|newest| newest.generation > segment.generation) {
            continue;
        }
        kept.pop_if(|last| last.first_record == segment.first_record);
        kept.push(*segment);
    }
    kept
}

impl<'a> Reader<'a> {
    pub(super) fn new(device: &'a Device, store: &'a Store, shard: ShardIndex) -> Self {
        Self { device, store, shard, window: None, last_length_bytes: 0, not_ahead: None, unreadable: Vec::new() }
    }

    /// The next place from `offset_bytes` on where a record may begin, or the end of the segment.
    async fn next_candidate(&mut self, segment: &FoundSegment, mut offset_bytes: u32) -> u32 {
        let geometry = self.store.geometry;
        let block = geometry.block_size_bytes;
        while offset_bytes < geometry.segment_size_bytes {
            let rest = (geometry.segment_size_bytes - offset_bytes) as usize;
            let Some(bytes) = self.bytes(segment.segment, offset_bytes, rest.min(READ_AHEAD_BYTES)).await else {
                // Noted as unreadable; what lies behind may be good.
                offset_bytes += rest.min(READ_AHEAD_BYTES) as u32;
                continue;
            };
            let found = bytes.chunks_exact(block as usize).position(|bytes| bytes.starts_with(&RECORD_MAGIC));
            match found {
                Some(at) => return offset_bytes + at as u32 * block,
                None => offset_bytes += (bytes.len() / block as usize) as u32 * block,
            }
        }
        offset_bytes
    }

    /// The segment's bytes from an offset on: at least `len`, as far as the segment goes. `None` if they cannot be
    /// read.
    async fn bytes(&mut self, segment: SegmentIndex, offset_bytes: u32, len: usize) -> Option<&[u8]> {
        let geometry = self.store.geometry;
        let room = (geometry.segment_size_bytes - offset_bytes) as usize;
        let len = len.min(room);
        let here = self.window.as_ref().is_some_and(|window| {
            window.segment == segment
                && window.start_bytes <= offset_bytes
                && (offset_bytes - window.start_bytes) as usize + len <= window.bytes.len()
        });
        if !here {
            let ahead = match self.last_length_bytes > READ_AHEAD_BYTES {
                true => READ_AHEAD_OF_LONG_BYTES,
                false => READ_AHEAD_BYTES,
            };
            let is_near_bad =
                self.not_ahead.as_ref().is_some_and(|(of, range)| *of == segment && range.contains(&offset_bytes));
            let want = if is_near_bad { len } else { len.max(ahead).min(room).min(MAX_RECORD_BYTES) };
            self.window = None;
            let known = self.unreadable.len();
            let bytes = match self.read(segment, offset_bytes, want).await {
                // It may be what lies behind, which is told of when it is needed.
                None if want > len && !mutant(Mutant::ReadAheadTakenForAll) => {
                    self.not_ahead = Some((segment, offset_bytes..offset_bytes + want as u32));
                    self.unreadable.truncate(known);
                    self.read(segment, offset_bytes, len).await?
                }
                bytes => bytes?,
            };
            self.window = Some(Window { bytes, segment, start_bytes: offset_bytes });
        }
        let window = self.window.as_ref()?;
        Some(&window.bytes[(offset_bytes - window.start_bytes) as usize..])
    }

    pub(super) async fn read(&mut self, segment: SegmentIndex, offset_bytes: u32, len: usize) -> Option<IoBuf> {
        let from = self.store.geometry.segment_start_bytes(segment) + u64::from(offset_bytes);
        let mut last = None;
        let is_patient = self.unreadable.len() < PATIENT_ABOUT;
        for attempt in 0..if is_patient { READ_ATTEMPTS } else { 2 } {
            if attempt > 0 && is_patient {
                sleep(READ_PAUSE).await;
            }
            let (read, bytes) = self.device.read(from, IoBuf::new(len)).await;
            match read {
                Ok(()) => return Some(bytes),
                Err(error) => last = Some(error),
            }
        }
        let message = Arc::from(last.map(|error| error.to_string()).unwrap_or_default());
        self.unreadable.push(Damage::Unreadable { shard: self.shard, segment, offset_bytes, message });
        None
    }
}
