//! Entries that are in the log and not applied: what a member has that may never be committed. Told of, read back to be
//! sent to another member, and forgotten when it turns out that the group went another way.
//!
//! ```text
//!  group's order   1 2 3 4 │ 5 6 7 8 9         cut(group, 6): 7, 8 and 9 are forgotten, and lie in the log
//!                  applied │ prepared          as before; whatever comes next in the order says so there
//! ```
//!
//! **Cutting is not written down.** After a restart all of it is there again, and who cut it cuts it again. Where an
//! entry came behind the cut, replay drops what that one takes the place of: what has its sequence or a higher one, and
//! what is of a newer epoch, for nothing comes behind an entry of a newer epoch unless that was cut.

use super::read::told;
use super::{Action, BlockSum, Group, Prepared, Shard, ShardCore, State};
use crate::entry::Entry;
use crate::error::ReadError;
use crate::format::{self, EntryHead, Record, RecordHeader, RecordPlace, RecordPointer, RecordSeq};
use crate::ordered::entry_of;
use runtime::{IoBuf, SharedBuf};
use std::rc::Rc;
use types::{GroupId, Mutant, Seq, Term, mutant};

/// What differs may have been disturbed on its way: it is asked for once more.
const ATTEMPTS: u32 = 2;

/// A prepared entry that is to be read.
#[derive(Clone, Copy)]
pub(super) struct Wanted {
    seq: Seq,
    term: Term,
    record: RecordSeq,
}

impl Wanted {
    pub(super) fn of(entry: &Prepared) -> Self {
        Self { seq: entry.seq, term: entry.term, record: entry.record }
    }
}

/// Records that replay begins with, or before, as long as this lives: their segments are not given away.
pub(super) struct Kept {
    core: Rc<ShardCore>,
    records: Vec<RecordSeq>,
}

impl Drop for Kept {
    fn drop(&mut self) {
        let mut state = self.core.state.borrow_mut();
        self.records.iter().for_each(|record| state.records.release(*record));
        self.core.let_go();
    }
}

impl Shard {
    /// Forgets the entries of the group behind `through` that are not applied. What of them is on its way to the device
    /// still gets there, and is not in the group's order any more. Forgotten here, not on the device: after a restart
    /// they are there again unless others came behind `through`, and are to be cut again.
    ///
    /// Returns whether it was done: nothing is where an entry behind `through` is committed, or in a store that takes
    /// nothing more.
    pub fn cut(&self, group: GroupId, through: Seq) -> bool {
        if self.core.check_open().is_err() {
            return false;
        }
        let cut = self.core.guarded(|| self.core.state.borrow_mut().cut(group, through));
        self.core.let_go();
        cut.unwrap_or(false)
    }

    /// Each epoch of the group and the first sequence that it owns, prepared ones included.
    pub fn history(&self, group: GroupId) -> Vec<(Term, Seq)> {
        self.core.state.borrow().groups.get(&group).map_or_else(Vec::new, |of| of.seen().epochs)
    }

    /// The entries of the group from `from` on that are not applied, in order, as they were prepared: as many as take
    /// up to `max_bytes`, and one at least. What is not durable yet is waited for. They are those of the first poll:
    /// what is applied or cut meanwhile is among them.
    ///
    /// # Errors
    /// What the device returns twice that is not what was written; a store that has failed, a shard that was closed.
    pub async fn prepared_entries(&self, group: GroupId, from: Seq, max_bytes: usize) -> Result<Vec<Entry>, ReadError> {
        let core = &self.core;
        let stopped = || {
            let reason = core.check_open().err().map_or_else(|| told(&"it has ended"), |error| told(&error));
            ReadError::Stopped { reason }
        };
        core.check_open().map_err(|_| stopped())?;
        let wanted = core.state.borrow().prepared_from(group, from, max_bytes);
        let Some(last) = wanted.last() else { return Ok(Vec::new()) };
        let _kept = core.keep(&wanted);
        super::pass::durable_through(core, last.record).await.ok_or_else(stopped)?;
        let mut entries = Vec::with_capacity(wanted.len());
        for of_record in wanted.chunk_by(|a, b| a.record == b.record) {
            let read = core.read_entries(group, of_record, &mut entries).await;
            core.note_read(&read);
            read?;
        }
        Ok(entries)
    }
}

impl State {
    fn cut(&mut self, group: GroupId, through: Seq) -> bool {
        let Some(of) = self.groups.get_mut(&group) else { return true };
        if of.committed > through {
            return false;
        }
        let first = of.prepared.iter().find(|entry| entry.seq > through).map(|entry| entry.seq);
        of.cut_from = first.or(of.cut_from);
        if !mutant(Mutant::CutForgotten) {
            self.drop_last_while(group, |entry| entry.seq > through);
        }
        true
    }

    /// Takes entries off the end of a group's order, as long as `is_over` says so.
    pub(crate) fn drop_last_while(&mut self, group: GroupId, is_over: impl Fn(&Prepared) -> bool) {
        let Some(of) = self.groups.get_mut(&group) else { return };
        while of.prepared.back().is_some_and(&is_over) {
            let dropped = of.prepared.pop_back().expect("looked at just above");
            self.records.release(dropped.record);
            dropped.action.recycle(&mut self.spare_sums);
        }
    }

    fn prepared_from(&self, group: GroupId, from: Seq, max_bytes: usize) -> Vec<Wanted> {
        let prepared = self.groups.get(&group).map(|of| &of.prepared);
        let mut total = 0;
        let fits = |entry: &&Prepared| {
            let is_first = total == 0;
            total += entry.action.about_bytes();
            is_first || total <= max_bytes
        };
        let behind = prepared.into_iter().flatten().skip_while(|entry| entry.seq < from);
        behind.take_while(fits).map(Wanted::of).collect()
    }
}

impl Group {
    /// What is known of the group itself, prepared entries included.
    pub(crate) fn seen(&self) -> super::group::OwnState {
        let mut seen = self.own.clone();
        self.prepared.iter().for_each(|entry| seen.see(entry.seq, entry.term, &entry.action));
        seen
    }
}

impl Action {
    /// Gives its memory back to `spare`.
    pub(super) fn recycle(self, spare: &mut Vec<Vec<BlockSum>>) {
        if let Self::Write { sums, .. } = self {
            sums.recycle(spare);
        }
    }

    /// Bytes that the entry takes in a message, about.
    pub(super) fn about_bytes(&self) -> usize {
        let payload = match self {
            Self::Write { sums, .. } => sums.as_slice().iter().map(|(_, stored)| stored.bytes()).sum(),
            Self::GroupRecord(record) => record.len(),
            Self::Merge(merge) => merge.chunks.len() * size_of::<types::ChunkId>(),
            Self::LayerDelete(_, chunks) => chunks.len() * size_of::<types::ChunkId>(),
            Self::Layer(_) => format::LayerRecord::ENCODED_BYTES,
            Self::Zero { .. } | Self::EpochStart | Self::VolumeEpoch(..) | Self::Noop => 0,
        };
        EntryHead::encoded_bytes(payload)
    }
}

impl ShardCore {
    pub(super) fn keep(self: &Rc<Self>, wanted: &[Wanted]) -> Kept {
        let mut records: Vec<_> = wanted.iter().map(|one| one.record).collect();
        records.dedup();
        let mut state = self.state.borrow_mut();
        records.iter().for_each(|record| state.records.hold(*record));
        Kept { core: self.clone(), records }
    }

    /// Reads one durable record, and adds what is wanted of it.
    async fn read_entries(&self, group: GroupId, wanted: &[Wanted], entries: &mut Vec<Entry>) -> Result<(), ReadError> {
        let pointer = self.state.borrow_mut().records.place(wanted[0].record).pointer;
        let mut last = Ok(());
        for _ in 0..ATTEMPTS {
            let found = match self.read_record(pointer).await {
                Ok((header, bytes)) => self.find_entries(group, wanted, (header, bytes)),
                Err(why) => Err((wanted[0].seq, why)),
            };
            last = match found {
                Ok(found) => {
                    entries.extend(found);
                    return Ok(());
                }
                Err((seq, why)) => Err(ReadError::Prepared {
                    group,
                    seq,
                    segment: pointer.segment,
                    offset_bytes: self.offset_of(pointer),
                    message: told(&why),
                }),
            };
            if let Some(failed) = self.store.failed() {
                return Err(ReadError::Stopped { reason: told(&failed) });
            }
        }
        last
    }

    /// Reads what of all groups waits in one durable record, at once.
    ///
    /// # Errors
    /// Which entry could not be read, and why.
    pub(super) async fn read_waiting(
        &self,
        record: RecordSeq,
        wanted: &[(GroupId, Vec<Wanted>)],
    ) -> Result<Vec<Entry>, ReadError> {
        let pointer = self.state.borrow_mut().records.place(record).pointer;
        let damaged = |group, seq, why: String| ReadError::Prepared {
            group,
            seq,
            segment: pointer.segment,
            offset_bytes: self.offset_of(pointer),
            message: told(&why),
        };
        let read = self.read_record(pointer).await;
        let (header, bytes) = read.map_err(|why| damaged(wanted[0].0, wanted[0].1[0].seq, why))?;
        let mut entries = Vec::new();
        for (group, of_group) in wanted {
            let found = self.find_entries(*group, of_group, (header, bytes.clone()));
            entries.extend(found.map_err(|(seq, why)| damaged(*group, seq, why))?);
        }
        Ok(entries)
    }

    fn offset_of(&self, pointer: RecordPointer) -> u64 {
        self.store.geometry.segment_start_bytes(pointer.segment) + u64::from(pointer.offset_bytes)
    }

    /// The whole record, whose header and entries are as written.
    async fn read_record(&self, pointer: RecordPointer) -> Result<(RecordHeader, SharedBuf), String> {
        let geometry = &self.store.geometry;
        let block = geometry.block_size_bytes;
        let room = (geometry.segment_size_bytes - pointer.offset_bytes) as usize;
        let (read, front) = self.ask(self.offset_of(pointer), IoBuf::new(block as usize)).await;
        read.map_err(|error| error.to_string())?;
        let length = RecordHeader::peek(&front, block, room).map_err(|error| error.to_string())?.length_bytes;
        let (read, whole) = self.ask(self.offset_of(pointer), IoBuf::new(length as usize)).await;
        read.map_err(|error| error.to_string())?;
        let RecordPointer { segment, generation, offset_bytes, seq } = pointer;
        let place = RecordPlace { segment, generation, offset_bytes };
        let record = Record::decode(&self.store.key, &place, block, room, &whole).map_err(|error| error.to_string())?;
        let header = record.header;
        if header.seq != seq || header.length_bytes as usize > whole.len() {
            return Err(format!("another record ({}) lies there", header.seq.0));
        }
        Ok((header, whole.freeze()))
    }

    fn find_entries(
        &self,
        group: GroupId,
        wanted: &[Wanted],
        (header, bytes): (RecordHeader, SharedBuf),
    ) -> Result<Vec<Entry>, (Seq, String)> {
        let record = Record::again(header, self.store.geometry.block_size_bytes, &bytes);
        let mut found = Vec::with_capacity(wanted.len());
        for one in wanted {
            let is_it = |head: &EntryHead| {
                head.kind.is_ordered() && (head.group, head.seq, head.term) == (group, one.seq, one.term)
            };
            // One that was sent again in the same record took the place of the first.
            let entry = record.entries().filter(|entry| is_it(&entry.head)).last();
            let entry = entry.ok_or_else(|| (one.seq, "it is not in its record".to_owned()))?;
            found.push(entry_of(&entry, &bytes).map_err(|why| (one.seq, why.to_string()))?);
        }
        Ok(found)
    }
}
