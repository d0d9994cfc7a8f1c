//! Reading the log: from where replay begins to the last record.
//!
//! ```text
//!   segment A (first record 1)          segment B (first record 5)        segment C (first record 9)
//!  ┌───┬───┬───┬─────┬───┬──────────┐  ┌───┬───┬───┬───┬─────────────┐   ┌───┬─ - ─┬────┬──────────┐
//!  │hdr│ 1 │ 2 │ 3 ✗ │ 4 │  (left)  │  │hdr│ 5 │ 6 │ 7 │ 8 ✗ (left)  │   │hdr│ 9 ✗ │ 10 │  (free)  │
//!  └───┴───┴───┴─────┴───┴──────────┘  └───┴───┴───┴───┴─────────────┘   └───┴─ - ─┴────┴──────────┘
//! ```
//!
//! The streams (hot, cold, checkpoint) have segments of their own and one sequence. Each is read by a [`Cursor`]; the
//! records of all are taken in the order of their sequences.
//!
//! Where the record that is due is not found, a cursor goes on by device blocks, to the end of the segment. A record
//! counts if its keyed hash is right for this place, its sequence is still to come and belongs into this segment (below
//! the first of the stream's next), and its incarnation is not older than one already seen. What is missing is only
//! noted here; [`Findings::judge`] says, when all is read, what of it is damage and what a hole.
//!
//! The hash covers header and entries, not the blocks: a power loss may have torn those off. So a record is *held*
//! until a later one says that it was durable; what is held at the end is read whole and its blocks are judged. One
//! that is torn is missing. The opening that accepts it names it as a gap, and so voids it: while it is held, the next
//! time.

use super::cursor::{Candidate, Cursor, Reader};
use super::replay::Replay;
use crate::error::{Damage, OpenError};
use crate::format::{
    EntryBody, Record, RecordHeader, RecordPointer, RecordSeq, SegmentIndex, SegmentUse, SeqRange, ShardRoot, Stream,
};
use crate::shard::Place;
use crate::store::{FoundSegment, Store};
use runtime::{Device, IoBuf, SharedBuf};
use std::collections::VecDeque;
use types::{Incarnation, Mutant, ShardIndex, mutant};

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
    /// Where each stream ends that there is.
    pub(crate) tails: Vec<Tail>,
    /// Good bytes, and where, that no successful flush is known to have covered: see [`Findings::write_again`].
    doubtful: Vec<(u64, SharedBuf)>,
    pub(crate) records: u64,
    pub(crate) scanned_bytes: u64,
}

/// The last segment of a stream, and where its last record ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tail {
    pub(crate) stream: Stream,
    pub(crate) segment: FoundSegment,
    pub(crate) offset_bytes: u32,
    /// The last record found in it; 0 if there is none.
    pub(crate) last_record: RecordSeq,
}

impl Tail {
    /// Whether all was found that the last pass knew of. Where replay does not need a record, nobody misses it: behind
    /// one that is damaged may be others with blocks that live, and they are not to be written over.
    pub(crate) fn is_whole(&self, table: &[SegmentUse]) -> bool {
        let same =
            |used: &&SegmentUse| (used.segment, used.generation) == (self.segment.segment, self.segment.generation);
        table.iter().find(same).is_none_or(|used| used.last_record <= self.last_record)
            || mutant(Mutant::TailTakenUnseen)
    }
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
    /// Whether a tail's segment was begun behind the last pass and all that is missing: then all that was ever durable
    /// in it was read.
    pub(crate) fn is_behind_all_damage(&self, tail: &Tail, root: &ShardRoot) -> bool {
        let first = tail.segment.first_record;
        let judged = self.judge().damaged;
        let last_missing = judged.iter().map(|missing| missing.records.last).max();
        first > root.pass_last.seq && last_missing.is_none_or(|missing| first > missing)
    }

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

    /// Whether earlier openings accepted all of them as missing.
    fn were_accepted(&self, records: SeqRange) -> bool {
        let mut from = records.first;
        while from <= records.last {
            match self.verdict(from, records.last) {
                (Verdict::Accepted, last) => from = RecordSeq(last.0 + 1),
                _ => return false,
            }
        }
        true
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
    store: &'a Store,
    /// One per stream.
    cursors: [Cursor<'a>; Stream::ALL.len()],
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
    let cursors = Stream::ALL.map(|stream| Cursor::new(Reader::new(device, store, shard), segments, stream, start));
    let mut scan = Scan {
        store,
        cursors,
        held: VecDeque::new(),
        missing_behind: false,
        expected: RecordSeq(start.seq.0.max(1)),
        incarnation: Incarnation(0),
        said: RecordSeq(0),
        findings: Findings { durable_through: store.root(shard).pass_last.seq, ..Findings::default() },
    };
    if !start.is_none() && !scan.cursors.iter().any(|cursor| cursor.begins_at_start) {
        scan.findings.damage.push(Damage::ReplayStart {
            shard,
            record: start.seq,
            segment: start.segment,
            generation: start.generation,
        });
    }
    scan.records(replay).await;
    scan.judge_held(replay).await;
    scan.finish(segments, replay).await
}

impl Scan<'_> {
    /// Takes the records of all streams in the order of their sequences.
    async fn records(&mut self, replay: &mut Replay) {
        loop {
            for cursor in &mut self.cursors {
                cursor.peek().await;
            }
            // Two of one sequence: the one of the later life is tried first.
            let order = |found: &Candidate| (found.header.seq, std::cmp::Reverse(found.header.incarnation));
            let next =
                self.cursors.iter().enumerate().filter_map(|(i, cursor)| Some((order(cursor.found()?), i))).min();
            let Some((_, i)) = next else { return };
            let header = self.cursors[i].found().expect("it was just compared").header;
            if header.seq < self.expected || header.incarnation < self.incarnation {
                self.cursors[i].reject();
                continue;
            }
            if header.seq > self.expected {
                let (segment, offset_bytes) = self.place_of_missing(i).await;
                self.findings.note_missing(self.expected, header.seq, segment, offset_bytes);
                self.missing_behind = true;
            }
            let found = self.cursors[i].accept();
            self.take(found, replay);
        }
    }

    /// Where what is missing before the record that cursor `i` has found should have been: where a cursor skipped
    /// something, or behind the last that one found.
    async fn place_of_missing(&mut self, i: usize) -> (SegmentIndex, u32) {
        let found = |cursor: &Cursor<'_>| cursor.found().map(|found| (found.due, found.pointer()));
        let skipped = self.cursors.iter().filter_map(found).find(|(due, at)| *due != (at.segment, at.offset_bytes));
        if let Some((due, _)) = skipped {
            return due;
        }
        for cursor in &mut self.cursors {
            if let Some(place) = cursor.remains_at_end(self.expected).await {
                return place;
            }
        }
        found(&self.cursors[i]).expect("this one has found something").0
    }

    fn take(&mut self, found: Candidate, replay: &mut Replay) {
        let Candidate { header, place, bytes, .. } = found;
        let record = Record::again(header, self.store.geometry.block_size_bytes, &bytes);
        for entry in record.entries() {
            if let EntryBody::Opening(opening) = entry.body {
                self.findings.accepted.extend(opening.gaps());
                let voids = |held: &RecordHeader| opening.voids(held.incarnation, held.seq);
                self.missing_behind |= void_held(&mut self.held, &mut self.findings, voids);
            }
        }
        let after_missing = std::mem::take(&mut self.missing_behind);
        self.held.push_back(Held { header, place, after_missing, bytes });
        self.findings.durable_through = self.findings.durable_through.max(header.durable_through);
        self.said = self.said.max(header.durable_through);
        self.findings.records += 1;
        self.expected = RecordSeq(header.seq.0 + 1);
        self.incarnation = header.incarnation;
        self.release_durable(replay);
    }

    /// What is known when all records are read.
    async fn finish(mut self, segments: &[FoundSegment], replay: &mut Replay) -> Findings {
        let block = self.store.geometry.block_size_bytes;
        let reader = &mut self.cursors[0].reader;
        for young in segments.iter().filter(|one| one.first_record > self.said) {
            // Its header went to the device with its first record.
            if let Some(header) = reader.read(young.segment, 0, block as usize).await {
                let at = self.store.geometry.segment_start_bytes(young.segment);
                self.findings.doubtful.push((at, header.freeze()));
            }
        }
        let newest = self.cursors.iter().filter_map(Cursor::last_segment).max_by_key(|last| last.first_record);
        if let Some(last) = newest.filter(|last| last.first_record >= self.expected) {
            // Its header was written and its first record lost: that sequence was used.
            let below = RecordSeq(last.first_record.0 + 1);
            self.findings.note_missing(self.expected, below, last.segment, block);
            self.missing_behind = true;
            self.expected = below;
        }
        for (stream, cursor) in Stream::ALL.into_iter().zip(self.cursors) {
            let (offset_bytes, last_record) = (cursor.behind_last, cursor.last_record);
            let tail = cursor.last_segment().map(|segment| Tail { stream, segment, offset_bytes, last_record });
            self.findings.tails.extend(tail);
            self.findings.scanned_bytes += cursor.scanned_bytes;
            self.findings.damage.extend(cursor.reader.unreadable);
        }
        if self.missing_behind || self.findings.damage.iter().any(|one| matches!(one, Damage::Unreadable { .. })) {
            replay.something_is_missing(false);
        }
        self.findings.next_seq = self.expected;
        self.findings
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
            replay.something_is_missing(self.findings.were_accepted(replay.missing_before(held.header.seq)));
        }
        let record = Record::again(held.header, self.store.geometry.block_size_bytes, &held.bytes);
        replay.record(&record, held.place, &held.bytes);
    }

    /// The end of the log: what is held was perhaps torn.
    async fn judge_held(&mut self, replay: &mut Replay) {
        let mut missing = false;
        while let Some(mut held) = self.held.pop_front() {
            held.after_missing |= std::mem::take(&mut missing);
            let pointer = held.place.pointer;
            let length = held.header.length_bytes as usize;
            let whole = self.cursors[0].reader.read(pointer.segment, pointer.offset_bytes, length).await;
            let record = Record::again(held.header, self.store.geometry.block_size_bytes, &held.bytes);
            match whole.filter(|whole| record.check_blocks(whole).is_ok() || mutant(Mutant::TornWriteReplayed)) {
                Some(whole) => {
                    self.give(&held, replay);
                    let at = self.store.geometry.segment_start_bytes(pointer.segment);
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

#[cfg(test)]
mod tests {
    use super::super::cursor::without_superseded;
    use super::*;

    fn found(segment: u32, generation: u64, first_record: u64) -> FoundSegment {
        FoundSegment {
            segment: SegmentIndex(segment),
            generation: crate::format::Generation(generation),
            first_record: RecordSeq(first_record),
            shard: ShardIndex(0),
            stream: crate::format::Stream::Hot,
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
