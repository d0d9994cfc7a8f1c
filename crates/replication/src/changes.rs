//! Which blocks entries were about of late: who was away for a while is sent these alone (R14 of docs/replication.md).
//!
//! ```text
//!     since                                  newest
//!   ────┼──────────────┬───────────────────────┤
//!       │ sets of blocks, per chunk: while     │
//!       │ a member is away  │ a line per entry │
//! ```
//!
//! Each member notes what it takes in, so that whoever takes over knows. What was cut off again is named as well: to name
//! too much is harmless.

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use std::collections::VecDeque;
use store::{Entry, EntryKind};
use types::{BLOCKS_PER_CHUNK, BlockRange, ChunkId, Mutant, Seq, mutant};

/// Lines that are kept; 16 bytes each.
const LINES_MAX: usize = 4096;
/// Chunks of which sets are kept while a member is away: some 3 MiB.
const CHUNKS_MAX: usize = 1 << 16;

/// Blocks of a chunk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Blocks([u64; (BLOCKS_PER_CHUNK / 64) as usize]);

impl Blocks {
    fn add(&mut self, range: BlockRange) {
        (u32::from(range.first)..range.end()).for_each(|block| self.0[block as usize / 64] |= 1 << (block % 64));
    }

    /// The parts of `range` that are in the set.
    pub(crate) fn within(&self, range: BlockRange) -> impl Iterator<Item = BlockRange> + '_ {
        let has = |block: &u32| self.0[*block as usize / 64] >> (block % 64) & 1 == 1;
        let mut next = u32::from(range.first);
        std::iter::from_fn(move || {
            let first = (next..range.end()).find(has)?;
            next = (first..range.end()).find(|block| !has(block)).unwrap_or(range.end());
            Some(BlockRange::new(first, next - first))
        })
    }
}

/// An entry was about these blocks.
#[derive(Clone, Copy)]
struct Line {
    seq: Seq,
    chunk: ChunkId,
    first: u16,
    count: u16,
}

impl Line {
    fn range(&self) -> BlockRange {
        BlockRange::new(self.first.into(), self.count.into())
    }
}

/// See the module.
#[derive(Default)]
pub(crate) struct Changes {
    /// What entries up to here were about is not known.
    since: Seq,
    /// The newest of the entries that are in the sets, or are forgotten.
    folded: Seq,
    sets: HashMap<ChunkId, Blocks, FixedState>,
    lines: VecDeque<Line>,
}

impl Changes {
    /// Nothing is known of entries through `since`.
    pub(crate) fn from(since: Seq) -> Self {
        Self { since, folded: since, ..Self::default() }
    }

    /// Nothing is known of entries through `through` any more: there is nobody who could come back and be sent what changed,
    /// or nobody knows. Takes no memory.
    pub(crate) fn forget_through(&mut self, through: Seq) {
        (self.since, self.folded) = (through, through);
        self.lines.clear();
        if !self.sets.is_empty() {
            self.sets = HashMap::default();
        }
    }

    /// An entry takes its place. `is_away`: a member is not in sync, and may ask for what it lacks.
    pub(crate) fn note(&mut self, entry: &Entry, is_away: bool) {
        match &entry.kind {
            EntryKind::Write { range, .. } | EntryKind::Zero { range, .. } => self.push(entry, entry.chunk, *range),
            EntryKind::Merge { chunks, .. } | EntryKind::LayerDelete { chunks } => {
                let all = BlockRange::new(0, BLOCKS_PER_CHUNK);
                chunks.iter().for_each(|chunk| self.push(entry, *chunk, all));
            }
            _ => {}
        }
        while self.lines.len() > LINES_MAX {
            self.fold(is_away);
        }
    }

    fn push(&mut self, entry: &Entry, chunk: ChunkId, range: BlockRange) {
        self.lines.push_back(Line { seq: entry.seq, chunk, first: range.first, count: range.count });
    }

    /// The oldest line goes into its set, or is forgotten.
    fn fold(&mut self, is_away: bool) {
        let Some(line) = self.lines.pop_front() else { return };
        self.folded = self.folded.max(line.seq);
        if !is_away || self.sets.len() >= CHUNKS_MAX {
            self.sets = HashMap::default();
            self.since = self.folded;
        } else {
            self.sets.entry(line.chunk).or_default().add(line.range());
        }
    }

    /// The chunks that any entry behind `base` was about, each once or several times; nothing, if that is not known.
    pub(crate) fn chunks_behind(&self, base: Seq) -> Option<Vec<ChunkId>> {
        if base < self.since {
            return None;
        }
        let of_lines = self.lines.iter().filter(|line| line.seq > base).map(|line| line.chunk);
        let of_sets = self.sets.keys().copied().filter(|_| base < self.folded);
        Some(of_lines.chain(of_sets).collect())
    }

    /// The blocks of the chunk that any entry behind `base` was about; nothing, if that is not known.
    pub(crate) fn behind(&self, base: Seq, chunk: ChunkId) -> Option<Blocks> {
        if base < self.since {
            return None;
        }
        let mut blocks = match base < self.folded {
            true => self.sets.get(&chunk).copied().unwrap_or_default(),
            false => Blocks::default(),
        };
        let lines = self.lines.iter().filter(|line| line.chunk == chunk && line.seq > base);
        lines.for_each(|line| blocks.add(line.range()));
        if let Some(word) = blocks.0.iter_mut().find(|word| **word != 0).filter(|_| mutant(Mutant::ChangeForgotten)) {
            *word &= *word - 1;
        }
        Some(blocks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::{Epoch, GroupId, LayerId, VolumeEpoch};

    fn entry(seq: u64, chunk: u32, kind: EntryKind) -> Entry {
        Entry {
            group: GroupId(1),
            term: Epoch(1).into(),
            seq: Seq(seq),
            commit: Seq(0),
            volume_epoch: VolumeEpoch(0),
            layer: LayerId(1),
            chunk: ChunkId(chunk),
            kind,
        }
    }

    fn zero(seq: u64, chunk: u32, first: u32, count: u32) -> Entry {
        entry(seq, chunk, EntryKind::Zero { range: BlockRange::new(first, count), hides_below: false })
    }

    fn ranges(blocks: Option<Blocks>) -> Option<Vec<(u16, u16)>> {
        let all = BlockRange::new(0, BLOCKS_PER_CHUNK);
        blocks.map(|blocks| blocks.within(all).map(|range| (range.first, range.count)).collect())
    }

    #[test]
    fn what_is_behind_a_base_is_named() {
        let mut changes = Changes::from(Seq(10));
        for entry in [zero(11, 3, 0, 2), zero(12, 4, 62, 4), zero(13, 3, 200, 56)] {
            changes.note(&entry, false);
        }
        changes.note(&entry(14, 0, EntryKind::LayerDelete { chunks: vec![ChunkId(8)] }), false);
        let behind = |base, chunk| ranges(changes.behind(Seq(base), ChunkId(chunk)));
        assert_eq!(behind(9, 3), None);
        assert_eq!(behind(10, 3), Some(vec![(0, 2), (200, 56)]));
        assert_eq!(behind(11, 3), Some(vec![(200, 56)]));
        assert_eq!(behind(10, 4), Some(vec![(62, 4)]));
        assert_eq!((behind(13, 8), behind(13, 4)), (Some(vec![(0, 256)]), Some(vec![])));
        let blocks = changes.behind(Seq(10), ChunkId(3)).expect("it is known");
        let within: Vec<_> = blocks.within(BlockRange::new(1, 200)).collect();
        assert_eq!(within, [BlockRange::new(1, 1), BlockRange::new(200, 1)]);
    }

    /// Whatever was noted behind the base is named, however much came since, if anything is said at all.
    #[test]
    fn nothing_is_left_out_while_a_member_is_away() {
        let far = 3 * LINES_MAX as u64;
        let mut changes = Changes::from(Seq(0));
        (1..=far).for_each(|seq| changes.note(&zero(seq, seq as u32 % 5, seq as u32 % 251, 1), seq > 100));
        assert_eq!(changes.behind(Seq(0), ChunkId(1)).map(|_| ()), Some(()), "nothing had to be forgotten");
        for base in [0, 50, far / 2, far - 3] {
            for chunk in 0..5 {
                let mut due = Blocks::default();
                let noted = (base + 1..=far).filter(|seq| *seq as u32 % 5 == chunk);
                noted.for_each(|seq| due.add(BlockRange::new(seq as u32 % 251, 1)));
                let named = changes.behind(Seq(base), ChunkId(chunk)).expect("it is known");
                assert!(due.0.iter().zip(named.0).all(|(due, named)| due & !named == 0), "base {base}, chunk {chunk}");
            }
        }
        // All are in sync again: what is old is forgotten.
        (far + 1..far + 9).for_each(|seq| changes.note(&zero(seq, 1, 0, 1), false));
        assert_eq!(changes.behind(Seq(far - LINES_MAX as u64), ChunkId(1)), None);
        assert!(changes.behind(Seq(far), ChunkId(1)).is_some());
    }
}
