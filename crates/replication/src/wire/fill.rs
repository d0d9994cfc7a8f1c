//! Catch-up: what a primary and a member say to each other that lacks what no entry can bring (R14 of docs/replication.md).
//!
//! ```text
//!   primary                        member
//!     compare ───────────────────►           tell me your leaves
//!             ◄─────────────────── leaves    (several; the last says so)
//!     pending ───────────────────►           chunks that differ: nothing of them comes as an entry, until their unit
//!     skip    ───────────────────►           go on behind this place of the order
//!             ◄─────────────────── skipped
//!     layers  ───────────────────►           (several) what the entries between said of layers
//!     unit begin, parts, end ────►           all of one chunk, as of one moment
//!             ◄─────────────────── unit taken
//!     filled  ───────────────────►           you lack nothing
//! ```
//!
//! All of them name the attempt: 16 bytes of the fixed part are the same everywhere.
//!
//! | at | bytes | field |
//! |---|---|---|
//! | 0 | 2 | length of the fixed part: 40 |
//! | 2 | 2 | flags: 1 the last of its kind; 2 a unit with what changed alone |
//! | 4 | 4 | number of items of the first list |
//! | 8 | 8 | the attempt |
//! | 16 | 8 | a sequence, where one is named |
//! | 24 | 8 | the unit's number, where one is named |
//! | 32 | 4 | epoch (`skip`), chunk (`unit begin`, `digest`) |
//! | 36 | 4 | number of items of the second list |
//! | 40 | … | lists |
//!
//! | body | lists |
//! |---|---|
//! | `leaves`, `unit begin` | leaves, 24 bytes: layer (8), last sequence (8), chunk (4), zero (4) |
//! | `pending` | chunks, 4 bytes |
//! | `layers` | layers, 64 bytes as a store has them |
//! | `skip` | epochs, 16 bytes: epoch (4), mark (4), first sequence (8); volumes, 12 bytes: volume (8), epoch (4); the group's record, its length (8) before it |
//! | `digest` | the layer (8); the digest (16). The chunk is in the fixed part |
//! | `unit part` | its layer (8), key (4), zero (4); runs, 8 bytes: first block (2), blocks (2), 1 zeroes, 2 stored or 3 absent (1), zero (3); of each stored block, 8 bytes: crc32c (4), stored length and codec as the store has them (1), zero (3). Blocks behind the meta part |

use super::body::{Body, begin_fixed, end_list};
use super::bytes::{put_u16, put_u32, put_u64, u16_at, u32_at, u64_at, u128_at};
use super::history::{START_BYTES, decode_start, encode_start};
use super::{EPOCH_MAX, Kind, MAX_HISTORY_EPOCHS, SEQ_MAX, WireError};
use crate::protocol::Place;
use runtime::SharedBuf;
use store::format::{Crc32c, LayerRecord, StoredLength};
use types::{BLOCKS_PER_CHUNK, BlockRange, ChunkId, Epoch, KeyId, LayerId, Seq, Term, VolumeEpoch, VolumeId};

/// Most leaves of one frame.
pub const MAX_LEAVES: usize = 2048;
/// Most chunks of one frame.
pub const MAX_CHUNKS: usize = 8192;
/// Most layers of one frame.
pub const MAX_LAYERS: usize = 512;
/// Most volumes that a group knows of in one [`Fill::Skip`].
pub const MAX_VOLUMES: usize = 1024;
/// Longest record in one [`Fill::Skip`].
pub const MAX_RECORD_BYTES: usize = 16 << 10;
/// Most runs of one part.
const MAX_RUNS: usize = BLOCKS_PER_CHUNK as usize;
const FIXED_BYTES: usize = 40;
const LAST: u16 = 1;
const CHANGES: u16 = 2;
const WHAT: &str = "catch-up";

/// A leaf, as far as two members compare it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LeafLine {
    /// Its chunk.
    pub chunk: ChunkId,
    /// Its layer.
    pub layer: LayerId,
    /// The last entry that is in it; 0: there is none, or it is not to be trusted.
    pub last_seq: Seq,
}

/// Blocks of a leaf that follow each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Run {
    /// They are zeroes, and hide what lies below.
    Zero(BlockRange),
    /// The leaf says nothing of them: what lies below is read.
    Absent(BlockRange),
    /// They are stored: the sum and length of each.
    Stored(BlockRange, Vec<(Crc32c, StoredLength)>),
}

/// What an attempt to catch up says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FillMessage {
    /// Which attempt: its primary drew the number.
    pub attempt: u64,
    /// What.
    pub says: Fill,
}

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fill {
    /// Tell me your leaves.
    Compare,
    /// They are these, and more unless it is the last.
    Leaves {
        /// All of them are as they were when this was committed, the newest entry that is in any; 0: that is not known.
        base: Seq,
        /// In the order of their chunks.
        leaves: Vec<LeafLine>,
        /// Whether these are the last.
        is_last: bool,
    },
    /// These chunks differ; more follow unless it is the last.
    Pending {
        /// Rising.
        chunks: Vec<ChunkId>,
        /// Whether these are the last.
        is_last: bool,
    },
    /// The order goes on behind this place.
    Skip {
        /// The last entry that is not sent.
        at: Place,
        /// The epochs up to there.
        epochs: Vec<(Term, Seq)>,
        /// The highest epoch of each volume.
        volumes: Vec<(VolumeId, VolumeEpoch)>,
        /// The group's record, as the map has it.
        record: Vec<u8>,
    },
    /// There are these layers, and more.
    Layers {
        /// In any order.
        records: Vec<LayerRecord>,
    },
    /// It does.
    Skipped {
        /// The last entry that was not sent.
        through: Seq,
    },
    /// All of a chunk comes, as it is at this place of the order.
    UnitBegin {
        /// Counts up.
        unit: u64,
        /// The chunk.
        chunk: ChunkId,
        /// What is committed then: nothing behind it is in the unit.
        at: Seq,
        /// Its leaves, those that only the member has with sequence 0.
        leaves: Vec<LeafLine>,
        /// What is not in the parts is as the member has it; else it has nothing there.
        is_change: bool,
    },
    /// Blocks of one of its leaves.
    UnitPart {
        /// Of which unit.
        unit: u64,
        /// Of which layer.
        layer: LayerId,
        /// With which key they are encrypted; 0: with none.
        key: KeyId,
        /// What is stored, one block behind the other.
        runs: Vec<Run>,
        /// The bytes of all of it.
        blocks: SharedBuf,
    },
    /// That was all of it.
    UnitEnd {
        /// Which.
        unit: u64,
    },
    /// It is durable, and in the index.
    UnitTaken {
        /// Which.
        unit: u64,
    },
    /// Nothing differs any more.
    Filled,
    /// So much is in a leaf after this entry: is it the same with you? Belongs to no attempt.
    Digest {
        /// The layer.
        layer: LayerId,
        /// The chunk.
        chunk: ChunkId,
        /// The last entry that is in it.
        last_seq: Seq,
        /// Of its contents.
        digest: u128,
    },
}

impl FillMessage {
    pub(crate) fn kind(&self) -> Kind {
        match self.says {
            Fill::Compare => Kind::Compare,
            Fill::Leaves { .. } => Kind::Leaves,
            Fill::Pending { .. } => Kind::Pending,
            Fill::Skip { .. } => Kind::Skip,
            Fill::Layers { .. } => Kind::Layers,
            Fill::Skipped { .. } => Kind::Skipped,
            Fill::UnitBegin { .. } => Kind::UnitBegin,
            Fill::UnitPart { .. } => Kind::UnitPart,
            Fill::UnitEnd { .. } => Kind::UnitEnd,
            Fill::UnitTaken { .. } => Kind::UnitTaken,
            Fill::Filled => Kind::Filled,
            Fill::Digest { .. } => Kind::Digest,
        }
    }

    /// Appends the meta part; the blocks of a part go to `blocks`. Returns how many bytes of blocks there are.
    pub(super) fn encode(&self, out: &mut Vec<u8>, blocks: &mut Vec<SharedBuf>) -> Result<u32, WireError> {
        let start = out.len();
        put_u64(begin_fixed::<FIXED_BYTES>(out), 8, self.attempt);
        let mut put = Put { out, start };
        match &self.says {
            Fill::Compare | Fill::Filled => {}
            Fill::Leaves { base, leaves, is_last } => {
                put.flag(LAST, *is_last);
                put.number(16, base.0);
                put.leaves(leaves)?;
            }
            Fill::Layers { records } => {
                put.count(4, records.len(), MAX_LAYERS)?;
                put.list(records.iter().map(LayerRecord::encode));
            }
            Fill::Pending { chunks, is_last } => {
                put.flag(LAST, *is_last);
                put.count(4, chunks.len(), MAX_CHUNKS)?;
                put.list(chunks.iter().map(|chunk| chunk.0.to_le_bytes()));
            }
            Fill::Skip { at, epochs, volumes, record } => {
                put.number(16, at.1.0);
                put_u32(&mut put.out[start..], 32, at.0.epoch.0);
                put.count(4, epochs.len(), MAX_HISTORY_EPOCHS)?;
                put.list(epochs.iter().map(encode_start));
                put.count(36, volumes.len(), MAX_VOLUMES)?;
                put.list(volumes.iter().map(|(volume, epoch)| twelve(volume.0, epoch.0)));
                if record.len() > MAX_RECORD_BYTES {
                    return Err(WireError::field(WHAT, "length of the group's record", record.len() as u64));
                }
                put.list([(record.len() as u64).to_le_bytes()]);
                let list = put.out.len();
                put.out.extend_from_slice(record);
                end_list(put.out, list);
            }
            Fill::Skipped { through } => put.number(16, through.0),
            Fill::UnitBegin { unit, chunk, at, leaves, is_change } => {
                put.flag(CHANGES, *is_change);
                put.number(16, at.0);
                put.number(24, *unit);
                put_u32(&mut put.out[start..], 32, chunk.0);
                put.leaves(leaves)?;
            }
            Fill::UnitPart { unit, layer, key, runs, blocks: bytes } => {
                put.number(24, *unit);
                put.count(4, runs.len(), MAX_RUNS)?;
                put.list([layer.0.to_le_bytes(), u64::from(key.0).to_le_bytes()]);
                put.list(runs.iter().map(run_bytes));
                let sums = runs.iter().flat_map(|run| match run {
                    Run::Stored(_, sums) => &sums[..],
                    Run::Zero(_) | Run::Absent(_) => &[],
                });
                put.list(sums.map(|(sum, length)| {
                    let mut item = [0; 8];
                    put_u32(&mut item, 0, sum.0);
                    item[4] = length.byte();
                    item
                }));
                if !bytes.is_empty() {
                    blocks.push(bytes.clone());
                }
                return Ok(bytes.len() as u32);
            }
            Fill::UnitEnd { unit } | Fill::UnitTaken { unit } => put.number(24, *unit),
            Fill::Digest { layer, chunk, last_seq, digest } => {
                put.number(16, last_seq.0);
                put_u32(&mut put.out[start..], 32, chunk.0);
                put.list([layer.0.to_le_bytes()]);
                put.list([digest.to_le_bytes()]);
            }
        }
        Ok(0)
    }

    /// Reads a body whose meta part has its sum, and compares the blocks of a part with theirs.
    pub(super) fn decode(kind: Kind, meta_bytes: usize, body: &SharedBuf) -> Result<Self, WireError> {
        let (fixed, mut lists) = Body::begin(WHAT, &body[..meta_bytes], FIXED_BYTES)?;
        let (is_last, attempt) = (u16_at(fixed, 2) & LAST != 0, u64_at(fixed, 8));
        let (seq, unit) = (seq_of(u64_at(fixed, 16))?, u64_at(fixed, 24));
        let count = u32_at(fixed, 4) as usize;
        let says = match kind {
            Kind::Compare => Fill::Compare,
            Kind::Filled => Fill::Filled,
            Kind::Leaves => Fill::Leaves { base: seq, leaves: leaves_of(&mut lists, count)?, is_last },
            Kind::Layers => {
                let list = list_of(&mut lists, count, MAX_LAYERS, LayerRecord::ENCODED_BYTES)?;
                let records = list.chunks_exact(LayerRecord::ENCODED_BYTES).map(LayerRecord::decode);
                let is_bad = |_| WireError::field(WHAT, "layer, of which there are", count as u64);
                Fill::Layers { records: records.collect::<Result<_, _>>().map_err(is_bad)? }
            }
            Kind::Pending => {
                let list = list_of(&mut lists, count, MAX_CHUNKS, 4)?;
                let chunks: Vec<_> = list.chunks_exact(4).map(|item| ChunkId(u32_at(item, 0))).collect();
                Fill::Pending { chunks, is_last }
            }
            Kind::Skip => {
                let starts = list_of(&mut lists, count, MAX_HISTORY_EPOCHS, START_BYTES)?;
                let epochs: Vec<_> = starts.chunks_exact(START_BYTES).map(decode_start).collect();
                let list = list_of(&mut lists, u32_at(fixed, 36) as usize, MAX_VOLUMES, 12)?;
                let volume = |item: &[u8]| (VolumeId(u64_at(item, 0)), VolumeEpoch(u32_at(item, 8)));
                let volumes: Vec<_> = list.chunks_exact(12).map(volume).collect();
                let bytes = u64_at(lists.list(8)?, 0) as usize;
                let record = list_of(&mut lists, bytes, MAX_RECORD_BYTES, 1)?.to_vec();
                check_skip((Epoch(u32_at(fixed, 32)), seq), &epochs, &volumes)?;
                let at = (epochs.last().map_or(Term::NONE, |(newest, _)| *newest), seq);
                Fill::Skip { at, epochs, volumes, record }
            }
            Kind::Skipped => Fill::Skipped { through: seq },
            Kind::UnitBegin => {
                let chunk = ChunkId(u32_at(fixed, 32));
                let leaves = leaves_of(&mut lists, count)?;
                if leaves.iter().any(|leaf| leaf.chunk != chunk) {
                    return Err(WireError::field(WHAT, "leaf of another chunk than the unit's", chunk.0));
                }
                Fill::UnitBegin { unit, chunk, at: seq, leaves, is_change: u16_at(fixed, 2) & CHANGES != 0 }
            }
            Kind::UnitPart => part_of(unit, count, &mut lists, body, meta_bytes)?,
            Kind::UnitEnd => Fill::UnitEnd { unit },
            Kind::UnitTaken => Fill::UnitTaken { unit },
            Kind::Digest => {
                let (chunk, layer) = (ChunkId(u32_at(fixed, 32)), LayerId(u64_at(lists.list(8)?, 0)));
                Fill::Digest { layer, chunk, last_seq: seq, digest: u128_at(lists.list(16)?, 0) }
            }
            other => unreachable!("{other:?} is no part of catch-up"),
        };
        Ok(Self { attempt, says })
    }
}

/// A body that is written.
struct Put<'a> {
    out: &'a mut Vec<u8>,
    start: usize,
}

impl Put<'_> {
    fn flag(&mut self, flag: u16, is_set: bool) {
        put_u16(&mut self.out[self.start..], 2, if is_set { flag } else { 0 });
    }

    fn number(&mut self, at: usize, number: u64) {
        put_u64(&mut self.out[self.start..], at, number);
    }

    fn count(&mut self, at: usize, count: usize, most: usize) -> Result<(), WireError> {
        if count > most {
            return Err(WireError::field(WHAT, "number of items", count as u64));
        }
        put_u32(&mut self.out[self.start..], at, count as u32);
        Ok(())
    }

    fn list<const N: usize>(&mut self, items: impl IntoIterator<Item = [u8; N]>) {
        let list = self.out.len();
        items.into_iter().for_each(|item| self.out.extend_from_slice(&item));
        end_list(self.out, list);
    }

    fn leaves(&mut self, leaves: &[LeafLine]) -> Result<(), WireError> {
        self.count(4, leaves.len(), MAX_LEAVES)?;
        self.list(leaves.iter().map(|leaf| {
            let mut item = [0; 24];
            put_u64(&mut item, 0, leaf.layer.0);
            put_u64(&mut item, 8, leaf.last_seq.0);
            put_u32(&mut item, 16, leaf.chunk.0);
            item
        }));
        Ok(())
    }
}

fn twelve(long: u64, short: u32) -> [u8; 12] {
    let mut item = [0; 12];
    put_u64(&mut item, 0, long);
    put_u32(&mut item, 8, short);
    item
}

fn run_bytes(run: &Run) -> [u8; 8] {
    let (range, kind) = match run {
        Run::Zero(range) => (range, 1),
        Run::Stored(range, _) => (range, 2),
        Run::Absent(range) => (range, 3),
    };
    let mut item = [0; 8];
    put_u16(&mut item, 0, range.first);
    put_u16(&mut item, 2, range.count);
    item[4] = kind;
    item
}

fn seq_of(number: u64) -> Result<Seq, WireError> {
    let seq = Seq(number);
    if seq <= SEQ_MAX { Ok(seq) } else { Err(WireError::field(WHAT, "sequence", number)) }
}

fn list_of<'a>(lists: &mut Body<'a>, count: usize, most: usize, bytes: usize) -> Result<&'a [u8], WireError> {
    if count > most {
        return Err(WireError::field(WHAT, "number of items", count as u64));
    }
    lists.list(count * bytes)
}

fn leaves_of(lists: &mut Body<'_>, count: usize) -> Result<Vec<LeafLine>, WireError> {
    let list = list_of(lists, count, MAX_LEAVES, 24)?;
    let leaf = |item: &[u8]| {
        let last_seq = seq_of(u64_at(item, 8))?;
        Ok(LeafLine { layer: LayerId(u64_at(item, 0)), last_seq, chunk: ChunkId(u32_at(item, 16)) })
    };
    list.chunks_exact(24).map(leaf).collect()
}

/// What a log relies on.
fn check_skip(
    (epoch, through): (Epoch, Seq),
    epochs: &[(Term, Seq)],
    volumes: &[(VolumeId, VolumeEpoch)],
) -> Result<(), WireError> {
    let rises = epochs.is_sorted_by(|a, b| a.0 < b.0 && a.1 < b.1);
    let ends = epochs.last().is_some_and(|(newest, first)| newest.epoch == epoch && *first <= through);
    if !rises || !ends || epoch > EPOCH_MAX || through == Seq(0) {
        return Err(WireError::field(WHAT, "epochs that do not lead to", through.0));
    }
    if !volumes.is_sorted_by(|a, b| a.0 < b.0) {
        return Err(WireError::field(WHAT, "order of volumes, of which there", volumes.len() as u64));
    }
    Ok(())
}

fn part_of(
    unit: u64,
    count: usize,
    lists: &mut Body<'_>,
    body: &SharedBuf,
    meta_bytes: usize,
) -> Result<Fill, WireError> {
    let of_layer = lists.list(16)?;
    let (layer, key) = (LayerId(u64_at(of_layer, 0)), KeyId(u32_at(of_layer, 8)));
    let list = list_of(lists, count, MAX_RUNS, 8)?;
    let mut ranges = Vec::with_capacity(count);
    let mut stored = 0;
    for item in list.chunks_exact(8) {
        let (first, blocks) = (u32::from(u16_at(item, 0)), u32::from(u16_at(item, 2)));
        if blocks == 0 || first + blocks > BLOCKS_PER_CHUNK || !(1..=3).contains(&item[4]) {
            return Err(WireError::field(WHAT, "run of blocks that begins at", first));
        }
        let is_stored = item[4] == 2;
        if is_stored && blocks > u32::from(store::MAX_ENTRY_BLOCKS) {
            return Err(WireError::field(WHAT, "blocks of a run", blocks));
        }
        stored += if is_stored { blocks as usize } else { 0 };
        ranges.push((BlockRange::new(first, blocks), item[4]));
    }
    let mut sums = list_of(lists, stored, MAX_RUNS, 8)?.chunks_exact(8);
    let (mut runs, mut at) = (Vec::with_capacity(count), meta_bytes);
    for (range, kind) in ranges {
        if kind != 2 {
            runs.push(if kind == 1 { Run::Zero(range) } else { Run::Absent(range) });
            continue;
        }
        let mut of_run = Vec::with_capacity(range.count.into());
        for item in sums.by_ref().take(range.count.into()) {
            let Some(length) = StoredLength::from_byte(item[4]) else {
                return Err(WireError::field(WHAT, "stored length", item[4]));
            };
            let sum = Crc32c(u32_at(item, 0));
            let Some(block) = body.get(at..at + length.bytes()) else {
                return Err(WireError::Short { what: WHAT, expected: at + length.bytes(), found: body.len() });
            };
            let found = Crc32c::of(block);
            if found != sum {
                return Err(WireError::Sum { what: "block of a unit", expected: sum.0, found: found.0 });
            }
            at += length.bytes();
            of_run.push((sum, length));
        }
        runs.push(Run::Stored(range, of_run));
    }
    if at != body.len() {
        return Err(WireError::Short { what: "blocks of a unit", expected: at, found: body.len() });
    }
    Ok(Fill::UnitPart { unit, layer, key, runs, blocks: body.slice(meta_bytes..at) })
}
