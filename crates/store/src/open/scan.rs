//! Reading the log: from where replay begins to the last record.
//!
//! ```text
//!   segment A (first record 1)          segment B (first record 5)        segment C (first record 9)
//!  ┌───┬───┬───┬─────┬───┬──────────┐  ┌───┬───┬───┬───┬─────────────┐   ┌───┬─ - ─┬────┬──────────┐
//!  │hdr│ 1 │ 2 │ 3 ✗ │ 4 │  (left)  │  │hdr│ 5 │ 6 │ 7 │ 8 ✗ (left)  │   │hdr│ 9 ✗ │ 10 │  (free)  │
//!  └───┴───┴───┴─────┴───┴──────────┘  └───┴───┴───┴───┴─────────────┘   └───┴─ - ─┴────┴──────────┘
//! ```
//!
//! Where the record that is due is not found, the scan goes on by device blocks: to the end of the segment if the shard
//! has a later one, else one in-flight window behind the last valid record. A record counts if its keyed hash is right
//! for this place, its sequence is still to come and belongs into this segment (below the first of the next), and its
//! incarnation is not older than one already seen. What is missing is only noted here; [`Findings::judge`] says, when
//! all is read, what of it is damage and what a hole.
//!
//! The hash covers header and entries, not the blocks: a power loss may have torn those off. So a record is *held* until
//! a later one says that it was durable; what is held at the end is read whole and its blocks are judged. One that is
//! torn is missing. The opening that accepts it names it as a gap, and so voids it: while it is held, the next time.

use super::replay::Replay;
use crate::error::{Damage, OpenError};
use crate::format::record::{IN_FLIGHT_WINDOW_BYTES, RECORD_MAGIC};
use crate::format::{
    EntryBody, MAX_RECORD_BYTES, Record, RecordHeader, RecordKind, RecordPlace, RecordPointer, RecordSeq, SegmentIndex,
    SeqRange,
};
use crate::shard::Place;
use crate::store::{FoundSegment, Store};
use runtime::{Device, IoBuf, SharedBuf};
use std::collections::VecDeque;
use std::sync::Arc;
use types::{Incarnation, Mutant, ShardIndex, mutant};

/// Read at once while records are short, and while they are long and mostly blocks, which need not be read.
const READ_AHEAD_BYTES: usize = 256 << 10;
const READ_AHEAD_OF_LONG_BYTES: usize = 64 << 10;

/// Records that were due and not found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Missing {
    pub(crate) records: SeqRange,
    pub(crate) segment: SegmentIndex,
    pub(crate) offset_bytes: u32,
}

/// What the scan saw.
#[derive(Default)]
pub(crate) struct Findings {
    pub(crate) missing: Vec<Missing>,
    /// Gaps that earlier openings accepted.
    pub(crate) accepted: Vec<SeqRange>,
    /// Highest `durable_through` of any record, and of the superblock.
    pub(crate) durable_through: RecordSeq,
    /// Damage that needs no judgement.
    pub(crate) damage: Vec<Damage>,
    /// The first sequence that was never used, as far as can be told.
    pub(crate) next_seq: RecordSeq,
    /// Behind the last record of the last segment.
    pub(crate) tail: Option<(FoundSegment, u32)>,
    /// Good bytes, and where, that no successful flush is known to have covered: see [`Findings::write_again`].
    doubtful: Vec<(u64, SharedBuf)>,
    pub(crate) records: u64,
    pub(crate) scanned_bytes: u64,
}

/// What is missing, judged.
#[derive(Default)]
pub(crate) struct Judgement {
    /// Were durable, so they are damaged.
    pub(crate) damaged: Vec<Missing>,
    /// Were never durable: accepted from now on.
    pub(crate) holes: Vec<SeqRange>,
}

impl Findings {
    /// Writes again what no record says was durable. A flush that failed may have left it readable and yet doomed: the
    /// next flush says nothing of it, and it is gone with the power. Equal bytes in the same place: nothing can be
    /// torn. The flush of the opening covers it.
    ///
    /// # Errors
    /// What the device says.
    pub(crate) async fn write_again(&mut self, device: &Device) -> Result<(), OpenError> {
        for (offset_bytes, bytes) in self.doubtful.drain(..) {
            let written = device.write(offset_bytes, &mut vec![bytes]).await;
            written.map_err(|error| crate::store::io_at(offset_bytes, &error))?;
        }
        Ok(())
    }

    fn note_missing(&mut self, first: RecordSeq, below: RecordSeq, segment: SegmentIndex, offset_bytes: u32) {
        let records = SeqRange { first, last: RecordSeq(below.0 - 1) };
        self.missing.push(Missing { records, segment, offset_bytes });
    }

    /// Damage at or below any `durable_through` seen, holes above; nothing where an earlier opening accepted the gap.
    pub(crate) fn judge(&self) -> Judgement {
        let mut judgement = Judgement::default();
        for missing in &self.missing {
            let mut from = missing.records.first;
            while from <= missing.records.last {
                let (verdict, last) = self.verdict(from, missing.records.last);
                let records = SeqRange { first: from, last };
                match verdict {
                    Verdict::Accepted => {}
                    Verdict::Damaged => judgement.damaged.push(Missing { records, ..*missing }),
                    Verdict::Hole => judgement.holes.push(records),
                }
                from = RecordSeq(last.0 + 1);
            }
        }
        judgement
    }

    /// What `from` is, and the last up to `last` that is the same.
    fn verdict(&self, from: RecordSeq, last: RecordSeq) -> (Verdict, RecordSeq) {
        let ignored = mutant(Mutant::AcceptedHoleCalledDamage);
        let accepted = || self.accepted.iter().filter(|_| !ignored);
        if let Some(gap) = accepted().find(|gap| gap.contains(from)) {
            return (Verdict::Accepted, gap.last.min(last));
        }
        let next_gap = accepted().map(|gap| gap.first).filter(|first| *first > from).min();
        let last = next_gap.map_or(last, |next| RecordSeq(next.0 - 1).min(last));
        if from > self.durable_through || mutant(Mutant::DamageTakenForHole) {
            return (Verdict::Hole, last);
        }
        (Verdict::Damaged, last.min(self.durable_through))
    }
}

enum Verdict {
    Accepted,
    Damaged,
    Hole,
}

/// The device's bytes around the place that is looked at.
struct Window {
    bytes: IoBuf,
    segment: SegmentIndex,
    start_bytes: u32,
}

/// Reads the device in large pieces and shows small ones.
struct Reader<'a> {
    device: &'a Device,
    store: &'a Store,
    shard: ShardIndex,
    window: Option<Window>,
    last_length_bytes: usize,
    unreadable: Vec<Damage>,
}

/// A record whose header and entries are good, and that nothing says yet was durable.
struct Held {
    header: RecordHeader,
    place: Place,
    /// Where something before it was missed, if it was.
    after_missing: bool,
    /// Header and entries; of a checkpoint record all of it.
    bytes: IoBuf,
}

/// One scan of one shard's log.
struct Scan<'a> {
    reader: Reader<'a>,
    held: VecDeque<Held>,
    /// Something is missing behind what is held.
    missing_behind: bool,
    expected: RecordSeq,
    incarnation: Incarnation,
    /// Highest `durable_through` of the records read. Not the superblock's: what an opening voided would be taken for
    /// durable before that opening is read.
    said: RecordSeq,
    findings: Findings,
}

/// Reads the shard's log into `replay`.
pub(crate) async fn scan(
    device: &Device,
    store: &Store,
    shard: ShardIndex,
    segments: &[FoundSegment],
    start: RecordPointer,
    replay: &mut Replay,
) -> Findings {
    let reader = Reader { device, store, shard, window: None, last_length_bytes: 0, unreadable: Vec::new() };
    let mut scan = Scan {
        reader,
        held: VecDeque::new(),
        missing_behind: false,
        expected: RecordSeq(1),
        incarnation: Incarnation(0),
        said: RecordSeq(0),
        findings: Findings { durable_through: store.root(shard).pass_last.seq, ..Findings::default() },
    };
    let segments = &without_superseded(segments);
    let block = store.geometry.block_size_bytes;
    let (mut at, mut offset_bytes) = (0, block);
    if !start.is_none() {
        scan.expected = start.seq;
        let found = segments.iter().position(|one| (one.segment, one.generation) == (start.segment, start.generation));
        (at, offset_bytes) = match found {
            Some(found) => (found, start.offset_bytes),
            None => {
                scan.findings.damage.push(Damage::ReplayStart {
                    shard,
                    record: start.seq,
                    segment: start.segment,
                    generation: start.generation,
                });
                (segments.partition_point(|one| one.first_record <= start.seq), block)
            }
        };
    }
    for (i, segment) in segments.iter().enumerate().skip(at) {
        let next = segments.get(i + 1);
        scan.segment(segment, next, offset_bytes, replay).await;
        offset_bytes = block;
    }
    scan.judge_held(replay).await;
    for young in segments.iter().filter(|one| one.first_record > scan.said) {
        // Its header went to the device with its first record.
        if let Some(header) = scan.reader.read(young.segment, 0, block as usize).await {
            scan.findings.doubtful.push((store.geometry.segment_start_bytes(young.segment), header.freeze()));
        }
    }
    if let Some(last) = segments.last().filter(|last| last.first_record >= scan.expected) {
        // Its header was written and its first record lost: that sequence was used.
        let below = RecordSeq(last.first_record.0 + 1);
        scan.findings.note_missing(scan.expected, below, last.segment, block);
        scan.missing_behind = true;
        scan.expected = below;
    }
    if scan.missing_behind || !scan.reader.unreadable.is_empty() {
        replay.something_is_missing();
    }
    scan.findings.next_seq = scan.expected;
    scan.findings.damage.append(&mut scan.reader.unreadable);
    scan.findings
}

/// Leaves out segments whose records were all written again elsewhere. When the last record of a segment is refused,
/// the next one may be in the next segment already; both go to a third, which begins with the sequence of the first.
/// `segments` are in the order of their first records, and of their generations where those are equal.
fn without_superseded(segments: &[FoundSegment]) -> Vec<FoundSegment> {
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

impl Scan<'_> {
    /// Reads one segment, from an offset on.
    async fn segment(
        &mut self,
        segment: &FoundSegment,
        next: Option<&FoundSegment>,
        mut offset_bytes: u32,
        replay: &mut Replay,
    ) {
        let geometry = self.reader.store.geometry;
        let block = geometry.block_size_bytes;
        let limit = next.map_or(RecordSeq(u64::MAX), |next| next.first_record);
        if segment.first_record > self.expected && segment.first_record < limit {
            self.findings.note_missing(self.expected, segment.first_record, segment.segment, block);
            self.missing_behind = true;
            self.expected = segment.first_record;
        }
        let mut behind_last = offset_bytes;
        let mut due_at = offset_bytes;
        while offset_bytes < geometry.segment_size_bytes && self.expected < limit {
            if let Some(header) = self.record(segment, offset_bytes, limit, due_at, replay).await {
                offset_bytes += header.length_bytes;
                behind_last = offset_bytes;
                due_at = offset_bytes;
                continue;
            }
            offset_bytes += block;
            if next.is_none() && offset_bytes > behind_last + IN_FLIGHT_WINDOW_BYTES as u32 {
                break;
            }
            offset_bytes = self.reader.next_candidate(segment, offset_bytes).await;
        }
        if next.is_none() {
            self.findings.tail = Some((*segment, behind_last));
        }
        self.findings.scanned_bytes += u64::from(behind_last);
    }

    /// Gives the record at this place to `replay`, if one that counts is there.
    async fn record(
        &mut self,
        segment: &FoundSegment,
        offset_bytes: u32,
        limit: RecordSeq,
        due_at: u32,
        replay: &mut Replay,
    ) -> Option<RecordHeader> {
        let (store, shard) = (self.reader.store, self.reader.shard);
        let geometry = store.geometry;
        let block = geometry.block_size_bytes;
        let room = (geometry.segment_size_bytes - offset_bytes) as usize;
        let peeked = {
            let bytes = self.reader.bytes(segment.segment, offset_bytes, block as usize).await?;
            RecordHeader::peek(bytes, block, room).ok()?
        };
        let needed = match peeked.kind {
            // Leaves lie where blocks do.
            RecordKind::Checkpoint => peeked.length_bytes as usize,
            _ => peeked.blocks_offset_bytes(block),
        };
        let (expected, incarnation) = (self.expected, self.incarnation);
        self.reader.last_length_bytes = peeked.length_bytes as usize;
        let bytes = self.reader.bytes(segment.segment, offset_bytes, needed).await?;
        let place = RecordPlace { segment: segment.segment, generation: segment.generation, offset_bytes };
        let record = Record::decode(&store.key, &place, block, room, bytes).ok()?;
        let header = record.header;
        let counts =
            header.shard == shard && header.seq >= expected && header.seq < limit && header.incarnation >= incarnation;
        if !counts {
            return None;
        }
        let pointer =
            RecordPointer { seq: header.seq, generation: segment.generation, segment: segment.segment, offset_bytes };
        let blocks = geometry.unit_at(segment.segment, offset_bytes + header.blocks_offset_bytes(block) as u32);
        for entry in record.entries() {
            if let EntryBody::Opening(opening) = entry.body {
                self.findings.accepted.extend(opening.gaps());
                let voids = |held: &RecordHeader| opening.voids(held.incarnation, held.seq);
                self.missing_behind |= void_held(&mut self.held, &mut self.findings, voids);
            }
        }
        let bytes = IoBuf::copy_of(&bytes[..needed]);
        if header.seq > expected {
            self.findings.note_missing(expected, header.seq, segment.segment, due_at);
            self.missing_behind = true;
        }
        let after_missing = std::mem::take(&mut self.missing_behind);
        self.held.push_back(Held { header, place: Place { pointer, blocks }, after_missing, bytes });
        self.findings.durable_through = self.findings.durable_through.max(header.durable_through);
        self.said = self.said.max(header.durable_through);
        self.findings.records += 1;
        self.expected = RecordSeq(header.seq.0 + 1);
        self.incarnation = header.incarnation;
        self.release_durable(replay);
        Some(header)
    }

    /// Gives to `replay` what is known to have been durable.
    fn release_durable(&mut self, replay: &mut Replay) {
        while self.held.front().is_some_and(|held| held.header.seq <= self.said) {
            let held = self.held.pop_front().expect("looked at just above");
            self.give(&held, replay);
        }
    }

    fn give(&self, held: &Held, replay: &mut Replay) {
        if held.after_missing {
            replay.something_is_missing();
        }
        let record = Record::again(held.header, self.reader.store.geometry.block_size_bytes, &held.bytes);
        replay.record(&record, held.place, &held.bytes);
    }

    /// The end of the log: what is held was perhaps torn.
    async fn judge_held(&mut self, replay: &mut Replay) {
        let mut missing = false;
        while let Some(mut held) = self.held.pop_front() {
            held.after_missing |= std::mem::take(&mut missing);
            let pointer = held.place.pointer;
            let length = held.header.length_bytes as usize;
            let whole = self.reader.read(pointer.segment, pointer.offset_bytes, length).await;
            let record = Record::again(held.header, self.reader.store.geometry.block_size_bytes, &held.bytes);
            match whole.filter(|whole| record.check_blocks(whole).is_ok()) {
                Some(whole) => {
                    self.give(&held, replay);
                    let at = self.reader.store.geometry.segment_start_bytes(pointer.segment);
                    self.findings.doubtful.push((at + u64::from(pointer.offset_bytes), whole.freeze()));
                }
                None => {
                    missing = true;
                    note_torn(&mut self.findings, &held);
                }
            }
        }
        self.missing_behind |= missing;
    }
}

fn note_torn(findings: &mut Findings, held: &Held) {
    let pointer = held.place.pointer;
    findings.note_missing(pointer.seq, RecordSeq(pointer.seq.0 + 1), pointer.segment, pointer.offset_bytes);
}

/// Takes out what an opening accepted as missing: it was torn, and is not to be taken for whole because its header is.
/// Returns whether the last was one of them.
fn void_held(held: &mut VecDeque<Held>, findings: &mut Findings, voids: impl Fn(&RecordHeader) -> bool) -> bool {
    let mut missing = false;
    held.retain_mut(|held| {
        let void = voids(&held.header);
        if void {
            note_torn(findings, held);
            missing = true;
        } else {
            held.after_missing |= std::mem::take(&mut missing);
        }
        !void
    });
    missing
}

impl Reader<'_> {
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

    /// The segment's bytes from an offset on: at least `len`, as far as the segment goes. `None` if they cannot be read.
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
            let want = len.max(ahead).min(room).min(MAX_RECORD_BYTES);
            self.window = None;
            let bytes = self.read(segment, offset_bytes, want).await?;
            self.window = Some(Window { bytes, segment, start_bytes: offset_bytes });
        }
        let window = self.window.as_ref()?;
        Some(&window.bytes[(offset_bytes - window.start_bytes) as usize..])
    }

    async fn read(&mut self, segment: SegmentIndex, offset_bytes: u32, len: usize) -> Option<IoBuf> {
        let from = self.store.geometry.segment_start_bytes(segment) + u64::from(offset_bytes);
        let mut last = None;
        for _ in 0..2 {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn found(segment: u32, generation: u64, first_record: u64) -> FoundSegment {
        FoundSegment {
            segment: SegmentIndex(segment),
            generation: crate::format::Generation(generation),
            first_record: RecordSeq(first_record),
            shard: ShardIndex(0),
        }
    }

    #[test]
    fn a_segment_that_was_given_up_hides_nothing_of_the_one_that_took_its_records() {
        // Record 9 was refused at the end of segment 4 while 10 went into segment 5: both went to segment 6.
        let in_order = [found(4, 1, 5), found(6, 3, 9), found(5, 2, 10), found(7, 4, 20)];
        let kept: Vec<u32> = without_superseded(&in_order).iter().map(|one| one.segment.0).collect();
        assert_eq!(kept, [4, 6, 7]);
        // The first record of segment 5 was refused, all of it: segment 6 begins where it did.
        let in_order = [found(4, 1, 5), found(5, 2, 9), found(6, 3, 9)];
        let kept: Vec<u32> = without_superseded(&in_order).iter().map(|one| one.segment.0).collect();
        assert_eq!(kept, [4, 6]);
    }
}
