//! Moves: blocks that the cleaner copies to another place, and when the index follows.
//!
//! ```text
//!   queued (record 8, cold)            durable                     the old place dies
//!  ─────────┬─────────────────────────────┬───────────────────────────────▶
//!           │ reads: old place            │ applied where the index still names the old place
//!                                         │ reads: new place
//! ```
//!
//! A leaf that a pass writes in between names the old place, and replay, which takes the leaf for newer than the move,
//! ends there too. That is right as long as the old place is as it was: a segment is free only after a pass that began
//! when nothing in it lived any more ([`State::free_segments`]).

use super::State;
use crate::format::{DeviceUnit, EntryHead, EntryKind, LeafKey, RecordKind, RecordSeq, StoredBlock};
use std::collections::VecDeque;
use types::{BlockRange, Mutant, mutant};

/// Most blocks of one entry, as of a write.
pub(crate) const MAX_MOVED_BLOCKS: usize = crate::entry::MAX_ENTRY_BLOCKS as usize;

/// Neighbouring blocks of a chunk that go together, in order.
pub(crate) struct Moved<'a> {
    pub(crate) key: LeafKey,
    pub(crate) range: BlockRange,
    /// Where each is now.
    pub(crate) from: &'a [StoredBlock],
}

/// A move that is in the log and not in the index.
struct Pending {
    record: RecordSeq,
    /// Where its blocks begin, from the first block of the record.
    offset_bytes: u32,
    key: LeafKey,
    range: BlockRange,
    from: Vec<StoredBlock>,
}

/// Moves on their way to the device, in the order of the log.
#[derive(Default)]
pub(crate) struct Moves(VecDeque<Pending>);

impl State {
    /// Queues a move; `bytes` are what is stored of the blocks, in their order. Returns its record.
    pub(super) fn queue_move<'a>(&mut self, moved: &Moved<'_>, bytes: impl Iterator<Item = &'a [u8]>) -> RecordSeq {
        let count = moved.from.len();
        assert!(count <= MAX_MOVED_BLOCKS && count == usize::from(moved.range.count));
        let blocks_bytes = moved.from.iter().map(|block| block.stored.bytes()).sum();
        let mut head = EntryHead::new(EntryKind::Move).with_range(moved.range);
        (head.layer, head.chunk) = (moved.key.layer, moved.key.chunk);
        let (log, records) = (&mut self.log, &mut self.records);
        let entry_bytes = EntryHead::move_bytes(count);
        let batch = log.batch_for(records, RecordKind::Move, entry_bytes, blocks_bytes);
        let (record, offset_bytes) = (batch.seq, batch.blocks_bytes() as u32);
        batch.push_move(&head, moved.from, bytes);
        records.hold(record);
        let from = moved.from.to_vec();
        self.moves.0.push_back(Pending { record, offset_bytes, key: moved.key, range: moved.range, from });
        record
    }

    /// Applies the moves of all records up to `durable`.
    pub(super) fn apply_moves(&mut self, durable: RecordSeq) {
        while self.moves.0.front().is_some_and(|pending| pending.record <= durable) {
            let pending = self.moves.0.pop_front().expect("looked at just above");
            let first = self.records.place(pending.record).blocks.0 + u64::from(pending.offset_bytes) / 512;
            self.apply_move(pending.key, pending.range, &pending.from, DeviceUnit(first));
            self.records.release(pending.record);
        }
    }

    /// Applies a move whose blocks lie one behind the other from `first` on.
    pub(crate) fn apply_move(&mut self, key: LeafKey, range: BlockRange, from: &[StoredBlock], first: DeviceUnit) {
        // What was merged into another layer since is named there.
        let key = self.holder_of(key);
        let mut to = Vec::with_capacity(from.len());
        let mut location = first;
        for block in from {
            to.push(location);
            location.0 += u64::from(block.stored.units());
        }
        let (segments, gathering) = (&mut self.segments, self.log.gathering());
        let old = from.iter().map(|block| block.location);
        self.index.apply_move(key, range, old, to.iter().copied(), |was, now| {
            segments.born(now, u32::from(was.stored.units()));
            if !mutant(Mutant::MoveCountedTwice) {
                segments.displaced(was, gathering);
            }
        });
    }
}
