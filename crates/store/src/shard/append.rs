//! The way of a record to the device.
//!
//! ```text
//!  prepare ──▶ queue: [record 7][record 8, gathering]
//!                 │ end of the turn, and fewer than 2 under way
//!                 ▼
//!              in flight: [record 5: written][record 6: writing]
//!                 │ all before it written, then one sync
//!                 ▼
//!              durable, in order; the waiters are told
//! ```
//!
//! What clients write goes to one segment (hot), moves to another (cold), checkpoint records to a third: what dies
//! together lies together. All share one order of records. A record is gathered no longer than what is left of its
//! segment, so that segments are filled to their end.
//!
//! A record that the device refuses ends the open segments: it and all behind it are written again, with the same
//! sequences, into the next ones, whose first records void what the old ones may hold of them. Once; then the device
//! has failed.

use super::batch::{Batch, Progress, Stamp};
use super::records::{Place, Records};
use super::watchdog::Asked;
use super::{ShardCore, State};
use crate::entry::{AppendTimes, LogPosition};
use crate::format::record::{MAX_APPENDS_IN_FLIGHT, record_length_bytes};
use crate::format::{
    Generation, RecordKind, RecordPlace, RecordPointer, RecordSeq, SegmentHeader, SegmentIndex, Stream,
};
use runtime::{Instant, IoBuf, SharedBuf, now, sleep, turn_end, wall_clock_ns};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;
use types::{Mutant, mutant};

/// How long nothing is appended before a record is written for its `durable_through` alone: with it, the loss of the
/// last record is seen. With the write itself this stays below the second within which a loss shall be seen.
const IDLE_BEFORE_TICK: Duration = Duration::from_millis(500);
/// What makes a record worth a second device write at once: its header is a small part of it.
const SECOND_RECORD_BYTES: usize = 16 * types::BLOCK_BYTES;
/// Streams that a shard appends to: each has its open segment.
const STREAMS: usize = Stream::ALL.len();
/// Batches kept for the next records: two in flight, one gathering, one of a pass.
const SPARE_BATCHES: usize = 4;

/// Records that are not durable yet, and where the next one goes.
pub(crate) struct Log {
    /// Not issued, in order; the last may gather.
    queue: VecDeque<Batch>,
    /// Issued and not durable, in order.
    in_flight: VecDeque<Batch>,
    spare: Vec<Batch>,
    /// Sequence of the next record that begins to gather.
    next_seq: RecordSeq,
    position: LogPosition,
    /// Where the next record of each stream goes.
    open: [Option<OpenSegment>; STREAMS],
    /// Segments that were taken before the record that begins them, so that nobody else can take the last one
    /// meanwhile.
    taken: [Option<(SegmentIndex, Generation)>; STREAMS],
    syncing: bool,
    /// Bytes of clients' blocks in the queue.
    queued_bytes: usize,
    /// Bytes written since the last pass began.
    pub(super) written_since_pass: u64,
    /// The last record that was issued, and whether it was for its `durable_through` alone.
    last_issued: RecordSeq,
    last_is_tick: bool,
    /// So few segments are free that checkpoint records shall fill the hot one before they take another.
    pub(super) segments_are_short: bool,
    segment_size_bytes: u32,
    pub(crate) block_size_bytes: u32,
}

/// The segment that records are appended to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpenSegment {
    pub(crate) segment: SegmentIndex,
    pub(crate) generation: Generation,
    /// Where the next record goes; 0 while the header is not written.
    pub(crate) offset_bytes: u32,
}

impl OpenSegment {
    fn has_room(&self, core: &ShardCore, needed_bytes: u32) -> bool {
        self.offset_bytes + needed_bytes <= core.store.geometry.segment_size_bytes
    }
}

impl Log {
    pub(crate) fn new(segment_size_bytes: u32, block_size_bytes: u32) -> Self {
        Self {
            queue: VecDeque::new(),
            in_flight: VecDeque::new(),
            spare: Vec::new(),
            next_seq: RecordSeq(1),
            position: LogPosition(0),
            open: [None; STREAMS],
            taken: [None; STREAMS],
            syncing: false,
            queued_bytes: 0,
            written_since_pass: 0,
            last_issued: RecordSeq(0),
            last_is_tick: true,
            segments_are_short: false,
            segment_size_bytes,
            block_size_bytes,
        }
    }

    /// Goes on behind what recovery found: `open` are the last segments of the streams.
    pub(crate) fn go_on(
        &mut self,
        next_seq: RecordSeq,
        open: impl IntoIterator<Item = (Stream, OpenSegment)>,
        written_since_pass: u64,
    ) {
        self.next_seq = next_seq;
        for (stream, segment) in open {
            self.open[stream as usize] = Some(segment);
        }
        self.written_since_pass = written_since_pass;
    }

    /// The record that takes entries now, or will be the next to.
    pub(crate) fn gathering(&self) -> RecordSeq {
        match self.queue.back() {
            Some(last) => last.seq,
            None => self.next_seq,
        }
    }

    /// Position of the last entry queued.
    pub(crate) fn position(&self) -> LogPosition {
        self.position
    }

    /// What is left of the stream's open segment, behind what is queued for it, for a record of at least `needed`
    /// bytes: of a new one if that is less.
    fn room_for(&self, stream: Stream, needed: usize) -> usize {
        let size = self.segment_size_bytes as usize;
        let mut at = self.open[stream as usize].map_or(size, |open| open.offset_bytes as usize);
        let queued = self.queue.iter().filter(|batch| batch.stream == stream);
        for length in queued.map(|batch| batch.record_bytes(self.block_size_bytes)) {
            at = if at + length > size { self.block_size_bytes as usize + length } else { at + length };
        }
        let left = size - at.min(size);
        if left >= needed { left } else { size - self.block_size_bytes as usize }
    }

    /// Whether a record of this length fits into the stream's open segment, behind what is queued for it.
    pub(super) fn has_open(&self, stream: Stream, length_bytes: usize) -> bool {
        let fresh = (self.segment_size_bytes - self.block_size_bytes) as usize;
        let left = self.room_for(stream, length_bytes);
        left >= length_bytes && left != fresh
    }

    /// Segments that what clients have queued will take, when it is known where the open one ends.
    pub(crate) fn segments_queued(&self) -> u32 {
        let left = self.open[Stream::Hot as usize].map_or(0, |open| self.segment_size_bytes - open.offset_bytes);
        self.queued_bytes.saturating_sub(left as usize).div_ceil(self.segment_size_bytes as usize) as u32
    }

    pub(super) fn note_queued(&mut self, bytes: usize) {
        self.queued_bytes += bytes;
    }

    /// Records that wait or are under way.
    pub(super) fn backlog(&self) -> usize {
        self.queue.len() + self.in_flight.len()
    }

    /// Gives the entry just queued its position.
    pub(super) fn next_position(&mut self) -> LogPosition {
        self.position.0 += 1;
        self.queue.back_mut().expect("an entry was just queued").last = self.position;
        self.position
    }

    /// The record that an entry of this size goes into: the last of the queue, or a new one.
    pub(super) fn batch_for(
        &mut self,
        records: &mut Records,
        kind: RecordKind,
        entry_bytes: usize,
        blocks_bytes: usize,
    ) -> &mut Batch {
        let block_size_bytes = self.block_size_bytes;
        let fits = |last: &Batch| {
            // A record that is tried again keeps its contents.
            !last.retried && last.kind == kind && last.fits(entry_bytes, blocks_bytes, block_size_bytes)
        };
        if !self.queue.back().is_some_and(fits) {
            self.begin_with(records, kind, record_length_bytes(entry_bytes, blocks_bytes, block_size_bytes));
        }
        self.queue.back_mut().expect("begun just above")
    }

    /// Begins a record behind all others.
    pub(crate) fn begin(&mut self, records: &mut Records, kind: RecordKind) -> &mut Batch {
        self.begin_with(records, kind, self.block_size_bytes as usize)
    }

    /// Begins a record behind all others that will have at least `needed` bytes.
    fn begin_with(&mut self, records: &mut Records, kind: RecordKind, needed: usize) -> &mut Batch {
        let stream = match Stream::of(kind) {
            own @ Stream::Checkpoint if self.segments_are_short && !self.has_open(own, needed) => {
                if self.has_open(Stream::Hot, needed) { Stream::Hot } else { own }
            }
            own => own,
        };
        let room = self.room_for(stream, needed);
        let mut batch = self.spare.pop().unwrap_or_else(Batch::new);
        batch.begin(self.next_seq, kind, (stream, room), self.position);
        records.push(self.next_seq, None);
        self.next_seq.0 += 1;
        self.queue.push_back(batch);
        self.queue.back_mut().expect("pushed just above")
    }

    /// Whether the oldest record that waits leaves now: beside another one only with much to carry, or more than the
    /// other. A second half as large as it could be costs a device write, a flush and a block of header more, and no
    /// client waits shorter for it.
    fn may_issue(&self) -> bool {
        let Some(next) = self.queue.front() else { return false };
        let is_worth_it = self.in_flight.back().is_none_or(|other| {
            let gathered = next.blocks_bytes();
            let of_clients = next.kind == RecordKind::Log && other.kind == RecordKind::Log;
            !of_clients || self.queue.len() > 1 || gathered >= SECOND_RECORD_BYTES || gathered > other.blocks_bytes()
        });
        // Each later record says that all before it was durable, holes that the opening accepts too: to whoever finds
        // it and not the opening, those holes are damage. So the opening is durable first.
        let opening_first = |batch: &Batch| batch.kind != RecordKind::Opening || mutant(Mutant::RecordBesideOpening);
        // What an epoch begins with may cut what is before it. If that is torn, and another epoch that begins behind it is not, what was
        // cut stands there as if it were of the group's order: so each waits for what is before it.
        let waits = next.begins_epoch && !self.in_flight.is_empty() && !mutant(Mutant::EpochBesideRecord);
        is_worth_it
            && !waits
            && self.in_flight.len() < MAX_APPENDS_IN_FLIGHT
            && self.in_flight.iter().all(|batch| batch.progress != Progress::Failed && opening_first(batch))
    }

    /// Sequence of the last record that, with all before it, is written.
    fn written_through(&self) -> Option<RecordSeq> {
        self.in_flight.iter().take_while(|batch| batch.progress == Progress::Written).last().map(|batch| batch.seq)
    }

    /// Whether a refused record is the oldest that is left, and nothing else is under way.
    fn must_go_elsewhere(&self) -> bool {
        let ended = |batch: &Batch| batch.progress != Progress::Writing;
        !self.syncing
            && self.in_flight.front().is_some_and(|first| first.progress == Progress::Failed)
            && self.in_flight.iter().all(ended)
    }
}

/// One device write, ready to go.
struct Issue {
    offset_bytes: u64,
    seq: RecordSeq,
    parts: Vec<SharedBuf>,
    /// The header of the segment that this write begins.
    header: Option<SharedBuf>,
}

impl State {
    /// Gives the oldest queued record its place and lists what is to be written.
    fn issue(&mut self, core: &ShardCore) -> Result<Issue, &'static str> {
        let block_size_bytes = self.log.block_size_bytes;
        let next = self.log.queue.front().expect("the caller looked");
        let (needed, seq, stream) = (next.record_bytes(block_size_bytes), next.seq, next.stream);
        let open = self.segment_for(core, stream, seq, needed as u32)?;
        let mut batch = self.log.queue.pop_front().expect("the caller looked");
        let mut start = open.offset_bytes;
        let header = (start == 0).then(|| segment_header(core, &open, stream, seq));
        if let Some(header) = &header {
            batch.parts.push(header.clone());
            start = block_size_bytes;
        }
        let (segment, generation) = (open.segment, open.generation);
        let place = RecordPlace { segment, generation, offset_bytes: start };
        let stamp = Stamp {
            shard: core.index,
            durable_through: core.durable_record.get(),
            incarnation: core.store.incarnation(),
            wall_time_ns: wall_clock_ns(),
        };
        batch.encode(&core.store.key, &place, block_size_bytes, &stamp);
        batch.issued = now();
        let pointer = RecordPointer { seq, generation, segment, offset_bytes: start };
        let blocks_at = start + batch.blocks_offset_bytes(block_size_bytes) as u32;
        let blocks = core.store.geometry.unit_at(segment, blocks_at);
        self.records.set_place(seq, Place { pointer, blocks });
        let before = std::mem::replace(&mut self.segments.get_mut(segment).last_record, seq);
        batch.behind = Some((segment, before));
        if mutant(Mutant::MoveAppliedBeforeDurable) || mutant(Mutant::SegmentReusedBeforeMovesDurable) {
            self.apply_moves(seq);
        }
        if mutant(Mutant::SegmentReusedBeforeMovesDurable) {
            self.free_segments(core);
        }
        self.log.open[stream as usize] = Some(OpenSegment { offset_bytes: start + needed as u32, ..open });
        let written = (start + needed as u32 - open.offset_bytes) as u64;
        self.note_issued(core, &batch, written);
        let parts = std::mem::take(&mut batch.parts);
        let offset_bytes = core.store.geometry.segment_start_bytes(segment) + u64::from(open.offset_bytes);
        self.log.in_flight.push_back(batch);
        Ok(Issue { offset_bytes, seq, parts, header })
    }

    fn note_issued(&mut self, core: &ShardCore, batch: &Batch, written_bytes: u64) {
        if batch.kind == RecordKind::Log && !batch.retried {
            self.cleaning.note_written(written_bytes);
        }
        let log = &mut self.log;
        log.last_issued = batch.seq;
        log.last_is_tick = batch.is_empty();
        if batch.kind != RecordKind::Checkpoint {
            log.written_since_pass += written_bytes;
        }
        core.counters.borrow_mut().appends += 1;
        core.counters.borrow_mut().appended_bytes += written_bytes;
        if batch.kind == RecordKind::Checkpoint {
            core.counters.borrow_mut().checkpoint_bytes += written_bytes;
        } else if batch.kind == RecordKind::Log && !batch.retried {
            log.queued_bytes -= batch.queued_bytes();
        }
    }

    /// The stream's open segment if it has room, else a new one.
    fn segment_for(
        &mut self,
        core: &ShardCore,
        stream: Stream,
        first: RecordSeq,
        needed: u32,
    ) -> Result<OpenSegment, &'static str> {
        if let Some(open) = self.log.open[stream as usize] {
            if open.has_room(core, needed) {
                return Ok(open);
            }
            self.segments.seal(open.segment);
        }
        // Admission keeps segments back for what it lets in: this is reached only if that is wrong.
        let taken = self.log.taken[stream as usize].take().or_else(|| core.store.pool.take());
        let (segment, generation) = taken.ok_or("no free segment for what was admitted")?;
        if core.clients_wait() {
            // Or will: the cleaners of all shards go without a limit now.
            core.store.pool.tell();
        }
        self.segments.open(segment, generation, stream, first);
        Ok(OpenSegment { segment, generation, offset_bytes: 0 })
    }

    /// Makes sure that a record of this length finds room in its stream, if more than so many segments are free or none
    /// is needed.
    pub(super) fn secure(&mut self, core: &ShardCore, stream: Stream, length_bytes: usize, kept_back: u32) -> bool {
        if self.log.taken[stream as usize].is_some() || self.log.has_open(stream, length_bytes) {
            return true;
        }
        let own = core.store.pool.take_above(kept_back);
        self.log.taken[stream as usize] = own;
        own.is_some()
    }

    /// Makes sure that the oldest record that waits finds room, if any segment is free or none is needed.
    pub(crate) fn secure_next(&mut self, core: &ShardCore) -> bool {
        let next = self.log.queue.front().expect("the caller queued it");
        let (needed, stream) = (next.record_bytes(self.log.block_size_bytes) as u32, next.stream as usize);
        if self.log.taken[stream].is_some() || self.log.open[stream].is_some_and(|open| open.has_room(core, needed)) {
            return true;
        }
        self.log.taken[stream] = core.store.pool.take();
        self.log.taken[stream].is_some()
    }

    /// The next record goes into another segment. Returns its sequence.
    pub(crate) fn leave_segment(&mut self) -> RecordSeq {
        assert_eq!(self.log.backlog(), 0, "nothing is on its way");
        for open in std::mem::take(&mut self.log.open).into_iter().flatten() {
            self.segments.seal(open.segment);
        }
        self.log.next_seq
    }

    /// Forgets that records through `seq` were under way; returns the last entry's position, and when the last of them
    /// was issued.
    fn retire(&mut self, through: RecordSeq) -> (LogPosition, Instant) {
        let (mut last, mut issued) = (LogPosition(0), Instant::default());
        while self.log.in_flight.front().is_some_and(|batch| batch.seq <= through) {
            let mut batch = self.log.in_flight.pop_front().expect("looked at just above");
            (last, issued) = (batch.last, batch.issued);
            batch.retire();
            if self.log.spare.len() < SPARE_BATCHES {
                self.log.spare.push(batch);
            }
        }
        (last, issued)
    }

    /// Puts the refused record and all behind it back to the front of the queue. Returns false if one of them was
    /// tried twice.
    fn take_elsewhere(&mut self) -> bool {
        for open in std::mem::take(&mut self.log.open).into_iter().flatten() {
            self.segments.seal(open.segment);
        }
        while let Some(mut batch) = self.log.in_flight.pop_back() {
            if batch.retried {
                return false;
            }
            // What the old segment may hold of it is void.
            let (segment, before) = batch.behind.take().expect("it was issued");
            self.segments.get_mut(segment).last_record = before;
            batch.retried = true;
            batch.progress = Progress::Gathering;
            self.log.queue.push_front(batch);
        }
        true
    }
}

/// The header block of a segment that is taken now.
pub(crate) fn segment_header(
    core: &ShardCore,
    open: &OpenSegment,
    stream: Stream,
    first_record: RecordSeq,
) -> SharedBuf {
    let header = SegmentHeader {
        segment: open.segment,
        generation: open.generation,
        store: core.store.store_id(),
        first_record,
        incarnation: core.store.incarnation(),
        created_at_ns: wall_clock_ns(),
        shard: core.index,
        stream,
    };
    let mut block = IoBuf::new(core.store.geometry.block_size_bytes as usize);
    header.encode(&core.store.key, &mut block);
    block.freeze()
}

/// Issues what gathered, at the end of each turn in which something did, as long as the shard lives.
pub(crate) async fn run_appender(core: Rc<ShardCore>) {
    let ready = || core.state.borrow().log.may_issue().then_some(());
    while core.until(&core.work, ready).await.is_some() {
        // All that comes in this turn leaves in one write.
        turn_end().await;
        while core.check_open().is_ok() && core.state.borrow().log.may_issue() {
            let issue = core.state.borrow_mut().issue(&core);
            match issue {
                Ok(issue) => {
                    core.spawn(write_record(core.clone(), issue));
                    if core.has_room_for_overwrites() {
                        // What was queued may have stood in the way of others.
                        core.room_changed.wake_all();
                    }
                }
                Err(reason) => return core.fail(reason),
            }
        }
    }
}

async fn write_record(core: Rc<ShardCore>, mut issue: Issue) {
    let under_way = core.watchdog.begin(Asked::Append);
    let mut written = core.device.write(issue.offset_bytes, &mut issue.parts).await;
    drop(under_way);
    if let (Ok(()), Some(header)) = (&written, &issue.header) {
        let _under_way = core.watchdog.begin(Asked::Read);
        written = read_back(&core, issue.offset_bytes, header).await;
    }
    {
        let mut state = core.state.borrow_mut();
        let batch = state.log.in_flight.iter_mut().find(|batch| batch.seq == issue.seq);
        let batch = batch.expect("a record is in flight until it is durable");
        batch.parts = issue.parts;
        batch.parts.clear();
        batch.progress = if written.is_ok() { Progress::Written } else { Progress::Failed };
    }
    if written.is_err() {
        core.counters.borrow_mut().append_failures += 1;
    }
    make_durable(&core).await;
    if core.state.borrow().log.must_go_elsewhere() {
        let first_time = core.state.borrow_mut().take_elsewhere();
        if !first_time {
            let reason = written.err().map_or_else(|| "an append failed twice".to_owned(), |error| error.to_string());
            return core.fail(&format!("append: {reason}"));
        }
    }
    core.work.wake_all();
}

/// Whether the header that was just written is where it belongs. Any other write that the device loses is missed at the
/// next opening, since later records say that it was durable; with its header a segment would take those along.
async fn read_back(core: &ShardCore, offset_bytes: u64, header: &SharedBuf) -> std::io::Result<()> {
    let (read, found) = core.device.read(offset_bytes, IoBuf::new(header.len())).await;
    read?;
    if found[..] == header[..] {
        return Ok(());
    }
    Err(std::io::Error::other(format!("the segment header just written at {offset_bytes} reads otherwise")))
}

/// Syncs as long as there is something written that is not durable. One at a time: what is written meanwhile is
/// covered by the next.
async fn make_durable(core: &Rc<ShardCore>) {
    loop {
        let through = {
            let log = &mut core.state.borrow_mut().log;
            match log.written_through() {
                Some(through) if !log.syncing => {
                    log.syncing = true;
                    through
                }
                _ => return,
            }
        };
        let under_way = core.watchdog.begin(Asked::Append);
        let synced = match mutant(Mutant::AcknowledgeBeforeDurable) {
            true => Ok(()),
            false => core.device.sync().await,
        };
        drop(under_way);
        core.counters.borrow_mut().syncs += 1;
        core.state.borrow_mut().log.syncing = false;
        if let Err(error) = synced {
            // What was written may be lost, and a second sync would not say so.
            return core.fail(&format!("flush: {error}"));
        }
        if core.store.failed().is_some() {
            return;
        }
        let (last, issued) = core.state.borrow_mut().retire(through);
        core.last_append.set(AppendTimes { issued, durable: now() });
        core.durable_record.set(through);
        core.state.borrow_mut().apply_moves(through);
        core.state.borrow_mut().apply_member_entries(through);
        core.tell_use(&core.state.borrow());
        core.durable.set(core.durable.get().max(last));
        core.durable_changed.wake_all();
        core.work.wake_all();
    }
}

/// When nothing was appended for a while, appends a record that says how far everything is durable.
pub(crate) async fn run_ticker(core: Rc<ShardCore>) {
    let due = || core.state.borrow().log.unannounced();
    while let Some(seen) = core.until(&core.durable_changed, due).await {
        sleep(IDLE_BEFORE_TICK).await;
        if core.check_open().is_err() {
            return;
        }
        let mut state = core.state.borrow_mut();
        let length_bytes = core.store.geometry.block_size_bytes as usize;
        if state.log.unannounced() == Some(seen)
            && state.secure(&core, Stream::Hot, length_bytes, core.space().for_groups)
        {
            let State { log, records, .. } = &mut *state;
            log.begin(records, RecordKind::Log);
            drop(state);
            core.work.wake_all();
        }
    }
}

impl Log {
    /// The last record, if nothing is under way and no later record says yet that it is durable.
    fn unannounced(&self) -> Option<RecordSeq> {
        (self.backlog() == 0 && !self.last_is_tick).then_some(self.last_issued)
    }
}
