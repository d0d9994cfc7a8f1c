//! One chunk's blocks in one layer, packed in memory as they are packed on the device.

use crate::format::FormatError;
use crate::format::StoredLength;
use crate::format::blocks::BlockState;
use crate::format::leaf::{
    BLOCKS, BlockStates, Census, LeafShape, LeafView, MIXED_BYTES, PLAIN_BYTES, Runs, column_state, pack_columns,
    pack_runs, set_column_state,
};
use types::{BlockRange, Seq};

/// In front of a packed body: number of stored blocks and number of runs, 2 bytes each.
const COUNTS_BYTES: usize = 4;
const PLAIN_LEN: usize = COUNTS_BYTES + PLAIN_BYTES;
const MIXED_LEN: usize = COUNTS_BYTES + MIXED_BYTES;
/// Runs longer than this become columns: above it runs save little and each change packs all of them again.
const MAX_RUNS_LEN: usize = 1536;
/// Lengths that bodies of runs are allocated with, so that a leaf that grows is not allocated anew for each block.
/// 1,040 is a chunk that was written in one go.
const RUNS_LENS: [usize; 13] = [32, 64, 96, 128, 192, 256, 384, 512, 640, 768, 1040, 1280, MAX_RUNS_LEN];
/// Columns become runs again (in [`Leaf::compact`]) when that takes half of their memory at most.
const WORTH_COMPACTING_BYTES: usize = PLAIN_BYTES / 2;

/// Where the blocks of one chunk are, in one layer.
///
/// 24 bytes, and a body whose length says its shape: none (empty), [`RUNS_LENS`] (runs), plain or mixed columns.
#[derive(Debug, Default)]
pub struct Leaf {
    last_seq: Seq,
    body: Box<[u8]>,
}
const _: () = assert!(size_of::<Leaf>() == 24);

impl Leaf {
    /// A leaf as a checkpoint stored it.
    pub fn from_view(view: &LeafView<'_>) -> Self {
        let mut leaf = Self { last_seq: view.last_seq, body: Box::default() };
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
        LeafView { last_seq: self.last_seq, stored_count, shape, run_count, body }
    }

    /// The last entry of its group that is in it.
    pub fn last_seq(&self) -> Seq {
        self.last_seq
    }

    pub(super) fn set_last_seq(&mut self, seq: Seq) {
        self.last_seq = seq;
    }

    /// Blocks that have bytes on the device.
    pub fn stored_count(&self) -> u16 {
        self.count_at(0)
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

    fn update_columns(&mut self, blocks: core::ops::Range<usize>, mut change: impl FnMut(BlockState) -> BlockState) {
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

    /// Makes columns into runs again where that is much smaller. Called when a checkpoint passes by.
    pub(super) fn compact(&mut self) {
        if !matches!(self.shape(), LeafShape::Plain | LeafShape::Mixed) {
            return;
        }
        let mut states = [BlockState::Absent; BLOCKS];
        self.view().unpack(&mut states);
        if Census::of(&states).runs_bytes() <= WORTH_COMPACTING_BYTES {
            self.pack(&states);
        }
    }

    /// Packs `states` in the shape that suits them.
    fn pack(&mut self, states: &BlockStates) {
        let census = Census::of(states);
        if census.run_count == 0 {
            self.body = Box::default();
        } else if let Some(len) = runs_len(census.runs_bytes()) {
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

/// Length of the allocation for runs of this many bytes; `None` if they should be columns.
fn runs_len(runs_bytes: usize) -> Option<usize> {
    RUNS_LENS.into_iter().find(|len| COUNTS_BYTES + runs_bytes <= *len)
}
