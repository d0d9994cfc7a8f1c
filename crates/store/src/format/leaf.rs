//! A leaf as it is stored by a checkpoint, and packed in memory: the places of one chunk's blocks in one layer.
//!
//! Three shapes, whichever is smallest: a list of **runs** (blocks stored one behind the other), **plain** columns
//! (9 bytes a block, if every block is stored raw), **mixed** columns (10 bytes a block). An empty leaf has only its
//! head.

use super::FormatError;
use super::blocks::{BlockState, Crc32c, DeviceUnit, FIRST_DATA_UNIT, StoredBlock, StoredLength};
use super::bytes::{
    check_length, check_zero, put_u16, put_u32, put_u40, put_u64, round_up, u16_at, u32_at, u40_at, u64_at,
};
use types::{BLOCKS_PER_CHUNK, Seq};

const WHAT: &str = "leaf";
/// Blocks of a chunk.
pub const BLOCKS: usize = BLOCKS_PER_CHUNK as usize;
/// Leaves begin at multiples of this in a record's block area.
pub const LEAF_ALIGNMENT: usize = 8;
/// Length of the head.
pub const LEAF_HEAD_BYTES: usize = 16;
/// Length of a run without its sums.
pub const RUN_BYTES: usize = 8;
/// Length of a block's sum.
pub const SUM_BYTES: usize = 4;
/// Length of the columns of locations and sums.
pub const PLAIN_BYTES: usize = BLOCKS * 9;
/// Length of all three columns.
pub const MIXED_BYTES: usize = BLOCKS * StoredBlock::ENCODED_BYTES;
/// Sequences are below this, so that one bit more says in memory what the flag says here.
pub(crate) const MAX_LAST_SEQ: u64 = 1 << 63;
const SUMS_AT: usize = BLOCKS * 5;
const LENGTHS_AT: usize = PLAIN_BYTES;
/// Location that stands for [`BlockState::Zero`]; 0 stands for [`BlockState::Absent`]. No block lies there.
const ZERO_LOCATION: u64 = 1;
const _: () = assert!(ZERO_LOCATION < FIRST_DATA_UNIT);

/// All blocks of a chunk, unpacked.
pub type BlockStates = [BlockState; BLOCKS];

/// How a leaf's body is packed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum LeafShape {
    /// No block; no body.
    #[default]
    Empty = 0,
    /// Runs.
    Runs = 1,
    /// Columns of locations and sums; every block there is raw.
    Plain = 2,
    /// Columns of locations, sums and lengths.
    Mixed = 3,
}

/// Where a leaf of a checkpoint is: payload of its entry. The leaf itself lies in the record's block area, at the next
/// multiple of 8 bytes: its sum is a crc32c, for the keyed hash of all leaves would cost opening seconds per TiB.
///
/// | at | bytes | field |
/// |---|---|---|
/// | 0 | 4 | length of the leaf, bytes |
/// | 4 | 4 | crc32c of the leaf |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeafData {
    bytes: u32,
    checksum: Crc32c,
}

impl LeafData {
    /// Length as stored.
    pub const ENCODED_BYTES: usize = 8;

    /// Appends the leaf, and zeroes to a multiple of 8 bytes, to `data`; what is returned says how to find it again.
    pub fn append(leaf: &LeafView<'_>, data: &mut Vec<u8>) -> Self {
        let (start, bytes) = (data.len(), leaf.encoded_bytes());
        data.resize(start + round_up(bytes, LEAF_ALIGNMENT), 0);
        leaf.encode(&mut data[start..]);
        Self { bytes: bytes as u32, checksum: Crc32c::of(&data[start..start + bytes]) }
    }

    /// The payload of its entry.
    pub fn encode(&self) -> [u8; Self::ENCODED_BYTES] {
        let mut out = [0; Self::ENCODED_BYTES];
        put_u32(&mut out, 0, self.bytes);
        put_u32(&mut out, 4, self.checksum.0);
        out
    }

    pub(crate) fn decode_payload(payload: &[u8]) -> Result<Self, FormatError> {
        if payload.len() != Self::ENCODED_BYTES {
            return Err(FormatError::Field { what: WHAT, field: "payload length", found: payload.len() as u64 });
        }
        let bytes = u32_at(payload, 0);
        if !(LEAF_HEAD_BYTES..=LEAF_HEAD_BYTES + MIXED_BYTES).contains(&(bytes as usize)) {
            return Err(FormatError::Field { what: WHAT, field: "length", found: u64::from(bytes) });
        }
        Ok(Self { bytes, checksum: Crc32c(u32_at(payload, 4)) })
    }

    /// Bytes it takes in the record, zeroes behind it included.
    pub fn stored_bytes(&self) -> usize {
        round_up(self.bytes as usize, LEAF_ALIGNMENT)
    }

    /// The leaf; `data` are the bytes of the record from the entry's data offset on.
    ///
    /// # Errors
    /// If they are too few, or not those that were written.
    pub fn decode<'a>(&self, data: &'a [u8]) -> Result<LeafView<'a>, FormatError> {
        check_length(WHAT, data, self.stored_bytes())?;
        let (leaf, rest) = data[..self.stored_bytes()].split_at(self.bytes as usize);
        if Crc32c::of(leaf) != self.checksum {
            return Err(FormatError::Hash { what: WHAT });
        }
        check_zero(WHAT, leaf.len(), rest)?;
        LeafView::decode(leaf)
    }
}

/// A leaf, checked.
///
/// | at | bytes | field |
/// |---|---|---|
/// | 0 | 8 | `last_seq`: the last entry of its group that is in it |
/// | 8 | 2 | number of stored blocks |
/// | 10 | 2 | number of runs (shape 1, else 0) |
/// | 12 | 1 | shape: 0 empty, 1 runs, 2 plain, 3 mixed |
/// | 13 | 1 | 1: it is not to be trusted, entries up to `last_seq` were left out; else 0 |
/// | 14 | 2 | zero |
/// | 16 | … | body |
///
/// Body of shape 1: the runs, 8 bytes each, in the order of blocks:
///
/// | at | bytes | field |
/// |---|---|---|
/// | 0 | 1 | first block |
/// | 1 | 1 | number of blocks − 1 |
/// | 2 | 1 | stored length and codec of each; 0 for blocks that are zeroes |
/// | 3 | 5 | location of the first, the others follow it; 1 for blocks that are zeroes |
///
/// then the crc32c of each stored block, 4 bytes, in the order of blocks. Body of shapes 2 and 3: 256 locations of 5
/// bytes (0 absent, 1 zeroes), 256 sums of 4; of shape 3 then 256 stored lengths of 1. Sum and length of a block that
/// is not stored are 0.
#[derive(Clone, Copy, Debug, Default)]
pub struct LeafView<'a> {
    /// The last entry of its group that is in it; of one that is not to be trusted, the last that was left out since
    /// its install began.
    pub last_seq: Seq,
    /// An install of it has begun and not ended.
    pub is_untrusted: bool,
    /// Blocks that have bytes on the device.
    pub stored_count: u16,
    /// How the body is packed.
    pub shape: LeafShape,
    /// Number of runs, of that shape.
    pub run_count: u16,
    /// The body.
    pub body: &'a [u8],
}

impl<'a> LeafView<'a> {
    /// Length as stored.
    pub fn encoded_bytes(&self) -> usize {
        LEAF_HEAD_BYTES + self.body.len()
    }

    /// Writes the leaf to the front of `out`, returns its length.
    ///
    /// # Panics
    /// If `out` is shorter.
    pub fn encode(&self, out: &mut [u8]) -> usize {
        out[..LEAF_HEAD_BYTES].fill(0);
        put_u64(out, 0, self.last_seq.0);
        put_u16(out, 8, self.stored_count);
        put_u16(out, 10, self.run_count);
        out[12] = self.shape as u8;
        out[13] = u8::from(self.is_untrusted);
        out[LEAF_HEAD_BYTES..self.encoded_bytes()].copy_from_slice(self.body);
        self.encoded_bytes()
    }

    pub(crate) fn decode(payload: &'a [u8]) -> Result<Self, FormatError> {
        check_length(WHAT, payload, LEAF_HEAD_BYTES)?;
        if payload[13] > 1 {
            return Err(FormatError::Field { what: WHAT, field: "trust", found: u64::from(payload[13]) });
        }
        check_zero(WHAT, 14, &payload[14..LEAF_HEAD_BYTES])?;
        let shape = match payload[12] {
            0 => LeafShape::Empty,
            1 => LeafShape::Runs,
            2 => LeafShape::Plain,
            3 => LeafShape::Mixed,
            other => return Err(FormatError::Field { what: WHAT, field: "shape", found: u64::from(other) }),
        };
        let view = Self {
            last_seq: Seq(u64_at(payload, 0)),
            is_untrusted: payload[13] == 1,
            stored_count: u16_at(payload, 8),
            run_count: u16_at(payload, 10),
            shape,
            body: &payload[LEAF_HEAD_BYTES..],
        };
        if view.last_seq.0 >= MAX_LAST_SEQ {
            return Err(FormatError::Field { what: WHAT, field: "last sequence", found: view.last_seq.0 });
        }
        let stored = view.check_body()?;
        if stored != view.stored_count {
            return Err(FormatError::Field { what: WHAT, field: "stored blocks", found: u64::from(view.stored_count) });
        }
        Ok(view)
    }

    /// Returns the number of stored blocks.
    fn check_body(&self) -> Result<u16, FormatError> {
        let field = |field, found: u64| Err(FormatError::Field { what: WHAT, field, found });
        let runs_bytes = usize::from(self.run_count) * RUN_BYTES;
        match self.shape {
            LeafShape::Runs => {
                check_length(WHAT, self.body, runs_bytes)?;
                let stored = check_runs(&self.body[..runs_bytes])?;
                if self.body.len() != runs_bytes + usize::from(stored) * 4 || stored == 0 && self.run_count == 0 {
                    return field("length", self.body.len() as u64);
                }
                Ok(stored)
            }
            _ if self.run_count != 0 => field("number of runs", u64::from(self.run_count)),
            LeafShape::Empty if self.body.is_empty() => Ok(0),
            LeafShape::Plain if self.body.len() == PLAIN_BYTES => check_columns(self.body),
            LeafShape::Mixed if self.body.len() == MIXED_BYTES => check_columns(self.body),
            _ => field("length", self.body.len() as u64),
        }
    }

    /// Fills `out` with what the leaf says of each block.
    pub fn unpack(&self, out: &mut BlockStates) {
        out.fill(BlockState::Absent);
        match self.shape {
            LeafShape::Empty => {}
            LeafShape::Runs => {
                for run in Runs::new(self.body, self.run_count) {
                    for (i, state) in out[run.first..run.end()].iter_mut().enumerate() {
                        *state = run.state(i);
                    }
                }
            }
            LeafShape::Plain | LeafShape::Mixed => {
                for (block, state) in out.iter_mut().enumerate() {
                    *state = column_state(self.body, block);
                }
            }
        }
    }
}

/// One run: blocks that are stored one behind the other, all with the same length and codec; or blocks that are zeroes.
#[derive(Clone, Copy)]
pub(crate) struct Run<'a> {
    pub(crate) first: usize,
    pub(crate) count: usize,
    /// `None` for zeroes.
    stored: Option<StoredLength>,
    location: u64,
    sums: &'a [u8],
}

impl Run<'_> {
    /// One past its last block.
    pub(crate) fn end(&self) -> usize {
        self.first + self.count
    }

    /// Its blocks that have a sum.
    pub(crate) fn stored_count(&self) -> usize {
        if self.stored.is_some() { self.count } else { 0 }
    }

    /// Its `i`-th block.
    pub(crate) fn state(&self, i: usize) -> BlockState {
        let Some(stored) = self.stored else { return BlockState::Zero };
        let location = DeviceUnit(self.location + i as u64 * u64::from(stored.units()));
        BlockState::Stored(StoredBlock { location, stored, checksum: Crc32c(u32_at(self.sums, i * 4)) })
    }
}

/// Walks the runs of a checked body.
pub(crate) struct Runs<'a> {
    runs: &'a [u8],
    sums: &'a [u8],
}

impl<'a> Runs<'a> {
    pub(crate) fn new(body: &'a [u8], run_count: u16) -> Self {
        let (runs, sums) = body.split_at(usize::from(run_count) * RUN_BYTES);
        Self { runs, sums }
    }
}

impl<'a> Iterator for Runs<'a> {
    type Item = Run<'a>;

    fn next(&mut self) -> Option<Run<'a>> {
        let (run, rest) = self.runs.split_at_checked(RUN_BYTES)?;
        self.runs = rest;
        let count = usize::from(run[1]) + 1;
        let stored = StoredLength::from_byte(run[2]);
        let (sums, rest) = self.sums.split_at(if stored.is_some() { count * 4 } else { 0 });
        self.sums = rest;
        Some(Run { first: usize::from(run[0]), count, stored, location: u40_at(run, 3), sums })
    }
}

fn check_runs(runs: &[u8]) -> Result<u16, FormatError> {
    let field = |field, found: u64| Err(FormatError::Field { what: WHAT, field, found });
    let (mut end, mut stored_count) = (0, 0);
    for run in runs.chunks_exact(RUN_BYTES) {
        let (first, count, location) = (usize::from(run[0]), usize::from(run[1]) + 1, u40_at(run, 3));
        if first < end || first + count > BLOCKS {
            return field("run", first as u64);
        }
        end = first + count;
        match StoredLength::from_byte(run[2]) {
            None if run[2] == 0 && location == ZERO_LOCATION => {}
            None => return field("stored length", u64::from(run[2])),
            Some(stored) => {
                if location < FIRST_DATA_UNIT || location + count as u64 * u64::from(stored.units()) > 1 << 40 {
                    return field("location", location);
                }
                stored_count += count as u16;
            }
        }
    }
    Ok(stored_count)
}

fn check_columns(body: &[u8]) -> Result<u16, FormatError> {
    let field = |field, found: u64| Err(FormatError::Field { what: WHAT, field, found });
    let mut stored_count = 0;
    for block in 0..BLOCKS {
        let location = u40_at(body, block * 5);
        let length = body.get(LENGTHS_AT + block).copied();
        if location < FIRST_DATA_UNIT {
            if location > ZERO_LOCATION {
                return field("location", location);
            }
            if u32_at(body, SUMS_AT + block * 4) != 0 || length.unwrap_or(0) != 0 {
                return Err(FormatError::NotZero { what: WHAT, offset: SUMS_AT + block * 4 });
            }
        } else {
            if length.is_some_and(|byte| StoredLength::from_byte(byte).is_none()) {
                return field("stored length", u64::from(length.unwrap_or(0)));
            }
            stored_count += 1;
        }
    }
    Ok(stored_count)
}

/// What a body of columns says of a block.
pub(crate) fn column_state(body: &[u8], block: usize) -> BlockState {
    let location = u40_at(body, block * 5);
    if location < FIRST_DATA_UNIT {
        return if location == ZERO_LOCATION { BlockState::Zero } else { BlockState::Absent };
    }
    let stored = body.get(LENGTHS_AT + block).and_then(|byte| StoredLength::from_byte(*byte));
    BlockState::Stored(StoredBlock {
        location: DeviceUnit(location),
        stored: stored.unwrap_or(StoredLength::RAW),
        checksum: Crc32c(u32_at(body, SUMS_AT + block * 4)),
    })
}

/// Writes what is to be said of a block into a body of columns.
///
/// # Panics
/// If the body is plain and the block not raw.
pub(crate) fn set_column_state(body: &mut [u8], block: usize, state: BlockState) {
    let (location, checksum, length) = match state {
        BlockState::Absent => (0, 0, 0),
        BlockState::Zero => (ZERO_LOCATION, 0, 0),
        BlockState::Stored(b) => (b.location.0, b.checksum.0, b.stored.byte()),
    };
    put_u40(body, block * 5, location);
    put_u32(body, SUMS_AT + block * 4, checksum);
    match body.get_mut(LENGTHS_AT + block) {
        Some(byte) => *byte = length,
        None => assert!(length == 0 || length == StoredLength::RAW.byte(), "a plain leaf holds raw blocks"),
    }
}

/// Whether `next`, the state of the block behind one in state `state`, continues its run.
pub(crate) fn continues(state: BlockState, next: BlockState) -> bool {
    match (state, next) {
        (BlockState::Zero, BlockState::Zero) => true,
        (BlockState::Stored(a), BlockState::Stored(b)) => a.stored == b.stored && a.end() == b.location,
        _ => false,
    }
}

/// What packing needs to know of a chunk's blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Census {
    pub(crate) stored_count: u16,
    pub(crate) run_count: u16,
    pub(crate) all_raw: bool,
}

impl Census {
    pub(crate) fn of(states: &BlockStates) -> Self {
        Self::within(states.iter().copied(), usize::MAX).expect("nothing is longer")
    }

    /// `None` as soon as it is known that as runs they take more than `most` bytes.
    pub(crate) fn within(states: impl Iterator<Item = BlockState>, most: usize) -> Option<Self> {
        let mut census = Self { stored_count: 0, run_count: 0, all_raw: true };
        let mut before = BlockState::Absent;
        for state in states {
            if state != BlockState::Absent && !continues(before, state) {
                census.run_count += 1;
                if census.runs_bytes() > most {
                    return None;
                }
            }
            if let BlockState::Stored(block) = state {
                census.stored_count += 1;
                census.all_raw &= block.stored == StoredLength::RAW;
            }
            before = state;
        }
        (census.runs_bytes() <= most).then_some(census)
    }

    /// Length of the body as runs.
    pub(crate) fn runs_bytes(&self) -> usize {
        usize::from(self.run_count) * RUN_BYTES + usize::from(self.stored_count) * 4
    }

    /// Length of the body as columns.
    pub(crate) fn columns_bytes(&self) -> usize {
        if self.all_raw { PLAIN_BYTES } else { MIXED_BYTES }
    }
}

/// Writes a run of `count` blocks from `first` on, the first of them in this state.
pub(crate) fn put_run(run: &mut [u8], first: usize, count: usize, state: BlockState) {
    let stored = state.stored();
    run[0] = first as u8;
    run[1] = (count - 1) as u8;
    run[2] = stored.map_or(0, |block| block.stored.byte());
    put_u40(run, 3, stored.map_or(ZERO_LOCATION, |block| block.location.0));
}

/// Packs runs into `body`, which has the length that [`Census::runs_bytes`] said.
pub(crate) fn pack_runs(states: &BlockStates, census: &Census, body: &mut [u8]) {
    let (runs, sums) = body.split_at_mut(usize::from(census.run_count) * RUN_BYTES);
    let (mut run_end, mut sum_at) = (0, 0);
    let mut before = BlockState::Absent;
    for (block, state) in states.iter().enumerate() {
        if *state != BlockState::Absent {
            if continues(before, *state) {
                runs[run_end - RUN_BYTES + 1] += 1;
            } else {
                put_run(&mut runs[run_end..run_end + RUN_BYTES], block, 1, *state);
                run_end += RUN_BYTES;
            }
        }
        if let BlockState::Stored(stored) = state {
            put_u32(sums, sum_at, stored.checksum.0);
            sum_at += 4;
        }
        before = *state;
    }
}

/// Packs columns into `body`, which has the length of a plain or a mixed one.
pub(crate) fn pack_columns(states: &BlockStates, body: &mut [u8]) {
    for (block, state) in states.iter().enumerate() {
        set_column_state(body, block, *state);
    }
}
