//! One chunk's blocks in one layer, packed in memory as they are packed on the device.

use crate::format::FormatError;
use crate::format::blocks::{BlockState, UNITS_PER_BLOCK};
use crate::format::leaf::{
    BLOCKS, BlockStates, Census, LeafShape, LeafView, MAX_LAST_SEQ, MIXED_BYTES, PLAIN_BYTES, RUN_BYTES, Runs,
    SUM_BYTES, column_state, continues, pack_columns, pack_runs, put_run, set_column_state,
};
use crate::format::{StoredBlock, StoredLength};
use core::ops::Range;
use types::{BLOCKS_PER_CHUNK, BlockRange, Mutant, Seq, mutant};

/// In front of a packed body: number of stored blocks and number of runs, 2 bytes each.
const COUNTS_BYTES: usize = 4;
const PLAIN_LEN: usize = COUNTS_BYTES + PLAIN_BYTES;
const MIXED_LEN: usize = COUNTS_BYTES + MIXED_BYTES;
/// Changes of this many blocks at most are made in place in a list of runs.
const MAX_SMALL_BLOCKS: usize = 16;
/// Runs longer than this become columns: above it runs save little and each change packs all of them again.
const MAX_RUNS_LEN: usize = 1536;
/// Lengths that bodies of runs are allocated with, so that a leaf that grows is not allocated anew for each block.
/// 1,040 is a chunk that was written in one go.
const RUNS_LENS: [usize; 13] = [32, 64, 96, 128, 192, 256, 384, 512, 640, 768, 1040, 1280, MAX_RUNS_LEN];
/// A leaf with more blocks and more runs than these becomes columns early: it is a full chunk with random overwrites,
/// and will go on so. Columns take 9.6 bytes a block of it at most, and a change takes a tenth of the time.
const FULL_BLOCKS: u16 = 240;
const FULL_RUNS: u16 = 4;
/// Columns become runs again (in [`Leaf::compact`]) when they take this at most: a full chunk in one run.
const WORTH_COMPACTING_BYTES: usize = RUN_BYTES + BLOCKS * SUM_BYTES;

/// Where the blocks of one chunk are, in one layer.
///
/// 24 bytes, and a body whose length says its shape: none (empty), one of a few (runs), plain or mixed columns.
#[derive(Debug, Default)]
pub struct Leaf {
    /// The highest bit says that the leaf is not to be trusted; then the rest is the last entry that was left out.
    last_seq: Seq,
    body: Box<[u8]>,
}
const _: () = assert!(size_of::<Leaf>() == 24);
/// The bit.
const UNTRUSTED: u64 = MAX_LAST_SEQ;

impl Leaf {
    /// A leaf as a checkpoint stored it.
    pub fn from_view(view: &LeafView<'_>) -> Self {
        let mut leaf = Self { last_seq: view.last_seq, body: Box::default() };
        if view.is_untrusted {
            leaf.distrust(view.last_seq);
        }
        let len = match view.shape {
            LeafShape::Empty => return leaf,
            LeafShape::Runs => match runs_len(view.body.len()) {
                Some(len) => len,
                None => {
                    let mut states = [BlockState::Absent; BLOCKS];
                    view.unpack(&mut states);
                    leaf.pack(&states);
                    return leaf;
                }
            },
            LeafShape::Plain | LeafShape::Mixed => COUNTS_BYTES + view.body.len(),
        };
        leaf.set_len(len);
        leaf.body[COUNTS_BYTES..COUNTS_BYTES + view.body.len()].copy_from_slice(view.body);
        leaf.set_counts(view.stored_count, view.run_count);
        leaf
    }

    /// The leaf as it is packed, to be stored.
    pub fn view(&self) -> LeafView<'_> {
        let (stored_count, run_count) = (self.stored_count(), self.run_count());
        let shape = self.shape();
        let body = match shape {
            LeafShape::Empty => &[],
            LeafShape::Runs => {
                let len = Census { stored_count, run_count, all_raw: false }.runs_bytes();
                &self.body[COUNTS_BYTES..COUNTS_BYTES + len]
            }
            LeafShape::Plain | LeafShape::Mixed => &self.body[COUNTS_BYTES..],
        };
        LeafView { last_seq: self.reached(), is_untrusted: self.is_untrusted(), stored_count, shape, run_count, body }
    }

    /// The last entry of its group that is in it; 0 of a leaf that is not to be trusted.
    pub fn last_seq(&self) -> Seq {
        if self.is_untrusted() { Seq(0) } else { self.last_seq }
    }

    /// Whether an install of it has begun and not ended: it takes nothing of its group's order.
    pub fn is_untrusted(&self) -> bool {
        self.last_seq.0 & UNTRUSTED != 0
    }

    /// The last entry of its group that it took, or that was left out.
    pub(super) fn reached(&self) -> Seq {
        Seq(self.last_seq.0 & !UNTRUSTED)
    }

    /// From now on it is not to be trusted; `left_out` is the last entry that is not in it.
    pub(super) fn distrust(&mut self, left_out: Seq) {
        self.last_seq = Seq(left_out.0 | UNTRUSTED);
    }

    pub(super) fn set_last_seq(&mut self, seq: Seq) {
        assert!(seq.0 < UNTRUSTED, "sequence {seq}");
        self.last_seq = seq;
    }

    /// Blocks that have bytes on the device.
    pub fn stored_count(&self) -> u16 {
        self.count_at(0)
    }

    /// Units of 512 bytes that these take. Takes time in the number of runs, or of blocks if some are compressed.
    pub(super) fn stored_units(&self) -> u64 {
        let units = |state: BlockState| state.stored().map_or(0, |block| u64::from(block.stored.units()));
        match self.shape() {
            LeafShape::Empty => 0,
            LeafShape::Plain => u64::from(self.stored_count()) * u64::from(UNITS_PER_BLOCK),
            LeafShape::Runs => {
                let runs = Runs::new(&self.body[COUNTS_BYTES..], self.run_count());
                runs.map(|run| run.stored_count() as u64 * units(run.state(0))).sum()
            }
            LeafShape::Mixed => (0..BLOCKS).map(|block| units(column_state(&self.body[COUNTS_BYTES..], block))).sum(),
        }
    }

    fn run_count(&self) -> u16 {
        self.count_at(2)
    }

    fn count_at(&self, at: usize) -> u16 {
        self.body.get(at..at + 2).map_or(0, |bytes| u16::from_le_bytes([bytes[0], bytes[1]]))
    }

    fn set_counts(&mut self, stored_count: u16, run_count: u16) {
        self.body[..2].copy_from_slice(&stored_count.to_le_bytes());
        self.body[2..4].copy_from_slice(&run_count.to_le_bytes());
    }

    /// Whether it says nothing of any block.
    pub fn is_empty(&self) -> bool {
        self.body.is_empty()
    }

    fn shape(&self) -> LeafShape {
        match self.body.len() {
            0 => LeafShape::Empty,
            PLAIN_LEN => LeafShape::Plain,
            MIXED_LEN => LeafShape::Mixed,
            _ => LeafShape::Runs,
        }
    }

    /// Bytes of memory behind it, as the allocator counts them: 8 more, rounded up to 16.
    pub fn body_bytes(&self) -> usize {
        if self.body.is_empty() { 0 } else { (self.body.len() + 8).next_multiple_of(16) }
    }

    /// What it says of each block of `range`, in order: `told` gets the block's number and its state.
    pub fn read(&self, range: BlockRange, mut told: impl FnMut(u16, BlockState)) {
        let (first, end) = (range.first, range.end() as u16);
        match self.shape() {
            LeafShape::Empty => (first..end).for_each(|block| told(block, BlockState::Absent)),
            LeafShape::Plain | LeafShape::Mixed => {
                let body = &self.body[COUNTS_BYTES..];
                (first..end).for_each(|block| told(block, column_state(body, usize::from(block))));
            }
            LeafShape::Runs => {
                let mut block = usize::from(first);
                for run in Runs::new(&self.body[COUNTS_BYTES..], self.run_count()) {
                    while block < usize::from(end).min(run.end()) {
                        let state = if block < run.first { BlockState::Absent } else { run.state(block - run.first) };
                        told(block as u16, state);
                        block += 1;
                    }
                    if block == usize::from(end) {
                        return;
                    }
                }
                (block..usize::from(end)).for_each(|block| told(block as u16, BlockState::Absent));
            }
        }
    }

    /// Changes what it says of each block of `range`: `change` gets the old state and returns the new one.
    pub(super) fn update(&mut self, range: BlockRange, mut change: impl FnMut(BlockState) -> BlockState) {
        let blocks = usize::from(range.first)..range.end() as usize;
        match self.shape() {
            LeafShape::Plain | LeafShape::Mixed => self.update_columns(blocks, change),
            LeafShape::Runs if self.update_one_run(blocks.clone(), &mut change) => {}
            shape => {
                let mut states = [BlockState::Absent; BLOCKS];
                if shape == LeafShape::Runs {
                    self.view().unpack(&mut states);
                }
                for state in &mut states[blocks] {
                    *state = change(*state);
                }
                self.pack(&states);
            }
        }
    }

    /// The common small change, without unpacking: `blocks` are exactly one run, or in none. Returns whether it was
    /// that and is done; if not, `change` has not been called.
    fn update_one_run(&mut self, blocks: Range<usize>, change: &mut impl FnMut(BlockState) -> BlockState) -> bool {
        let mut states = [BlockState::Absent; MAX_SMALL_BLOCKS];
        let Some(new) = states.get_mut(..blocks.len()) else { return false };
        let run_count = self.run_count();
        // The first run that ends behind the start of `blocks`, and the sums of the runs before it.
        let (mut run_at, mut sum_at, mut before, mut here) = (0, 0, BlockState::Absent, None);
        for run in Runs::new(&self.body[COUNTS_BYTES..], run_count) {
            if run.end() > blocks.start {
                here = Some(run);
                break;
            }
            run_at += 1;
            sum_at += run.stored_count();
            before = if run.end() == blocks.start { run.state(run.count - 1) } else { BlockState::Absent };
        }
        let exact = here.is_some_and(|run| run.first == blocks.start && run.end() == blocks.end);
        let free = here.is_none_or(|run| run.first >= blocks.end);
        let used = COUNTS_BYTES + usize::from(run_count) * RUN_BYTES + usize::from(self.stored_count()) * SUM_BYTES;
        let room = self.body.len() - used;
        if !(exact && here.is_some_and(|run| run.stored_count() > 0)
            || free && room >= RUN_BYTES + new.len() * SUM_BYTES)
        {
            return false;
        }
        for (i, state) in new.iter_mut().enumerate() {
            *state = change(here.filter(|_| exact).map_or(BlockState::Absent, |run| run.state(i)));
        }
        let new = &states[..blocks.len()];
        let one_run = new[0].stored().is_some() && new.windows(2).all(|pair| continues(pair[0], pair[1]));
        if !one_run {
            let mut all = [BlockState::Absent; BLOCKS];
            self.view().unpack(&mut all);
            all[blocks].copy_from_slice(new);
            self.pack(&all);
        } else if exact {
            self.put_run(run_at, sum_at, blocks.start, new);
        } else {
            let joins = continues(before, new[0]);
            self.make_room(run_at, sum_at, new.len(), !joins);
            if joins {
                self.body[COUNTS_BYTES + (run_at - 1) * RUN_BYTES + 1] += new.len() as u8;
                self.put_sums(sum_at, new);
            } else {
                self.put_run(run_at, sum_at, blocks.start, new);
            }
        }
        true
    }

    /// Makes room for `sums` sums at `sum_at` and, with `run`, for one run at `run_at`, and counts them.
    fn make_room(&mut self, run_at: usize, sum_at: usize, sums: usize, run: bool) {
        let (run_count, stored_count) = (self.run_count(), self.stored_count());
        let sums_start = COUNTS_BYTES + usize::from(run_count) * RUN_BYTES;
        let used = sums_start + usize::from(stored_count) * SUM_BYTES;
        let shift = if run { RUN_BYTES } else { 0 };
        let split = sums_start + sum_at * SUM_BYTES;
        self.body.copy_within(split..used, split + shift + sums * SUM_BYTES);
        if run {
            self.body.copy_within(sums_start..split, sums_start + shift);
            let run_start = COUNTS_BYTES + run_at * RUN_BYTES;
            self.body.copy_within(run_start..sums_start, run_start + shift);
        }
        self.set_counts(stored_count + sums as u16, run_count + u16::from(run));
    }

    fn put_run(&mut self, run_at: usize, sum_at: usize, first: usize, states: &[BlockState]) {
        let start = COUNTS_BYTES + run_at * RUN_BYTES;
        put_run(&mut self.body[start..start + RUN_BYTES], first, states.len(), states[0]);
        self.put_sums(sum_at, states);
    }

    fn put_sums(&mut self, sum_at: usize, states: &[BlockState]) {
        let start = COUNTS_BYTES + usize::from(self.run_count()) * RUN_BYTES + sum_at * SUM_BYTES;
        for (sum, state) in self.body[start..].chunks_exact_mut(SUM_BYTES).zip(states) {
            sum.copy_from_slice(&state.stored().map_or(0, |block| block.checksum.0).to_le_bytes());
        }
    }

    fn update_columns(&mut self, blocks: Range<usize>, mut change: impl FnMut(BlockState) -> BlockState) {
        let mut stored_count = self.stored_count();
        for block in blocks {
            let old = column_state(&self.body[COUNTS_BYTES..], block);
            let new = change(old);
            if new.stored().is_some_and(|b| b.stored != StoredLength::RAW) && self.body.len() == PLAIN_LEN {
                self.plain_to_mixed();
            }
            set_column_state(&mut self.body[COUNTS_BYTES..], block, new);
            stored_count += u16::from(new.stored().is_some());
            stored_count -= u16::from(old.stored().is_some());
        }
        self.set_counts(stored_count, 0);
        if stored_count == 0 && self.body[COUNTS_BYTES..].iter().all(|byte| *byte == 0) {
            self.body = Box::default();
        }
    }

    fn plain_to_mixed(&mut self) {
        let mut mixed = vec![0; MIXED_LEN].into_boxed_slice();
        mixed[..PLAIN_LEN].copy_from_slice(&self.body);
        for block in 0..BLOCKS {
            let state = column_state(&self.body[COUNTS_BYTES..], block);
            set_column_state(&mut mixed[COUNTS_BYTES..], block, state);
        }
        self.body = mixed;
    }

    /// Takes what `below` says where this leaf says nothing; `hidden` is told of the blocks that it hides for good.
    /// With `hides_below` zeroes stay, for what lies deeper; without, there is nothing deeper.
    pub(super) fn take_below(&mut self, below: &Self, hides_below: bool, mut hidden: impl FnMut(StoredBlock)) {
        let mut states = [BlockState::Absent; BLOCKS];
        self.view().unpack(&mut states);
        below.read(BlockRange::new(0, BLOCKS_PER_CHUNK), |block, found| match &mut states[usize::from(block)] {
            state @ BlockState::Absent if !(found == BlockState::Zero && mutant(Mutant::MergeLosesZeroes)) => {
                *state = found;
            }
            _ => found.stored().into_iter().for_each(&mut hidden),
        });
        if !hides_below {
            states.iter_mut().filter(|state| **state == BlockState::Zero).for_each(|state| *state = BlockState::Absent);
        }
        self.pack(&states);
    }

    /// Makes columns into runs again where that is much smaller. Called when a checkpoint passes by.
    pub(super) fn compact(&mut self) {
        if !matches!(self.shape(), LeafShape::Plain | LeafShape::Mixed) {
            return;
        }
        // Most have been overwritten here and there: that is seen after the first blocks.
        let body = &self.body[COUNTS_BYTES..];
        let states = (0..BLOCKS).map(|block| column_state(body, block));
        if Census::within(states, WORTH_COMPACTING_BYTES).is_some() {
            let mut states = [BlockState::Absent; BLOCKS];
            self.view().unpack(&mut states);
            self.pack(&states);
        }
    }

    /// Packs `states` in the shape that suits them.
    fn pack(&mut self, states: &BlockStates) {
        let census = Census::of(states);
        if census.run_count == 0 {
            self.body = Box::default();
        } else if let Some(len) = runs_len_for(&census) {
            self.set_len(len);
            pack_runs(states, &census, &mut self.body[COUNTS_BYTES..COUNTS_BYTES + census.runs_bytes()]);
            self.set_counts(census.stored_count, census.run_count);
        } else {
            self.set_len(COUNTS_BYTES + census.columns_bytes());
            pack_columns(states, &mut self.body[COUNTS_BYTES..]);
            self.set_counts(census.stored_count, 0);
        }
    }

    fn set_len(&mut self, len: usize) {
        if self.body.len() != len {
            self.body = vec![0; len].into_boxed_slice();
        }
    }

    /// Whether the packed bytes hold what they must; tests ask after every change.
    ///
    /// # Errors
    /// What a reader of the checkpoint would say.
    pub fn check(&self) -> Result<(), FormatError> {
        let mut stored = vec![0; self.view().encoded_bytes()];
        self.view().encode(&mut stored);
        LeafView::decode(&stored).map(drop)
    }
}

/// Length of the allocation for these blocks as runs; `None` if they should be columns.
fn runs_len_for(census: &Census) -> Option<usize> {
    let full = census.stored_count >= FULL_BLOCKS && census.run_count > FULL_RUNS;
    if full { None } else { runs_len(census.runs_bytes()) }
}

/// Length of the allocation for runs of this many bytes; `None` if they should be columns.
fn runs_len(runs_bytes: usize) -> Option<usize> {
    RUNS_LENS.into_iter().find(|len| COUNTS_BYTES + runs_bytes <= *len)
}
