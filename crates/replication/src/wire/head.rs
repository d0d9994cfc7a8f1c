//! What a volume's head asks of a group, and its answer: see [docs/heads.md](../../../../docs/heads.md).
//!
//! A request goes from a node to the store that leads the group, as far as the node knows, and is answered with its number
//! on the same connection. Blocks lie behind the meta part, each with its sum in it.
//!
//! | body | lists, in this order |
//! |---|---|
//! | `request` | layers told, 64 bytes as a store has them; layers, 8 bytes; of a write of several pieces these, 4 bytes: first block (2), number of blocks (2); of a write its blocks, of several pieces a list for each, 8 bytes: crc32c (4), stored length and codec as the store has them (1), zero (3) |
//! | `answer` | of a read its blocks as of a write, with stored length 0: zeroes; of a status its blocks, 4 bytes: depth (2), 1 stored, 2 known (1), zero (1); the reason, UTF-8 |

use super::body::{Body, begin_fixed, end_list};
use super::bytes::{put_u16, put_u32, put_u64, put_u128, u16_at, u32_at, u64_at, u128_at};
use super::hello::{plain, plain_of};
use super::{Kind, MAX_LAYERS, MAX_REASON_BYTES, WireError};
use crate::layers::LayerEnd;
use runtime::SharedBuf;
use std::sync::Arc;
use store::format::{Crc32c, LayerRecord, StoredLength};
use store::{BlockCoding, KnownBlock, MAX_ENTRY_BLOCKS};
use types::{BLOCKS_PER_CHUNK, BlockRange, ChunkId, Epoch, KeyId, LayerId, StoreId, VolumeEpoch, VolumeId};

const SUM_BYTES: usize = 8;
const RANGE_BYTES: usize = 4;
const KNOWN_BYTES: usize = 4;

/// Sum and length of a block that is stored; nothing of one that is zeroes.
pub type AnsweredBlock = Option<(Crc32c, StoredLength)>;

/// What the head of a volume wants of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The volume.
    pub volume: VolumeId,
    /// The reign of its head.
    pub epoch: VolumeEpoch,
    /// The group's epoch, as far as the head knows: in another nothing is done.
    pub group_epoch: Epoch,
    /// Layers that the group is to know before it does anything else.
    pub told: Vec<LayerRecord>,
    /// What.
    pub wants: Wants,
}

/// See [`Request`]. Layers are named newest first; what is written goes to the first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wants {
    /// That it knows the head, and the layers told.
    Nothing,
    /// Blocks are stored.
    Write {
        /// To this layer.
        layer: LayerId,
        /// The chunk.
        chunk: ChunkId,
        /// Which blocks: at most [`MAX_ENTRY_BLOCKS`].
        range: BlockRange,
        /// As they are to be stored.
        bytes: SharedBuf,
        /// What was done to them.
        coding: BlockCoding,
    },
    /// The same of several pieces of a chunk, each stored as a whole or not at all.
    WriteAll {
        /// To this layer.
        layer: LayerId,
        /// The chunk.
        chunk: ChunkId,
        /// At least one; no more blocks than a chunk has, all with one key.
        pieces: Vec<Piece>,
    },
    /// Blocks read as zeroes.
    Zero {
        /// In the first of these; nothing is done where none holds anything.
        layers: Vec<LayerId>,
        /// The chunk.
        chunk: ChunkId,
        /// Which blocks.
        range: BlockRange,
    },
    /// What is stored.
    Read {
        /// In these layers.
        layers: Vec<LayerId>,
        /// The chunk.
        chunk: ChunkId,
        /// Which blocks.
        range: BlockRange,
    },
    /// What is known without reading.
    Status {
        /// In these layers.
        layers: Vec<LayerId>,
        /// The chunk.
        chunk: ChunkId,
        /// Which blocks.
        range: BlockRange,
    },
    /// All that the group holds of a layer goes to its only child, or goes. Wanted by the keeper of the family.
    End(LayerEnd),
    /// The group holds nothing of this layer any more: it is gone.
    Forget {
        /// The layer.
        layer: LayerId,
    },
}

/// A piece of what is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Which blocks: at most [`MAX_ENTRY_BLOCKS`].
    pub range: BlockRange,
    /// As they are to be stored.
    pub bytes: SharedBuf,
    /// What was done to them.
    pub coding: BlockCoding,
}

/// What came of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It is committed.
    Done,
    /// What was read: of each block its sum, and what is stored, one behind the other.
    Read(Vec<AnsweredBlock>, SharedBuf),
    /// What is known of each block.
    Known(Vec<KnownBlock>),
    /// It was not done, unless it says otherwise.
    Refused(Refusal),
}

/// Why a request was not done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The store does not lead the group.
    NotPrimary {
        /// Who does, as far as it knows.
        primary: Option<StoreId>,
        /// In which epoch.
        epoch: Epoch,
    },
    /// The volume has another head.
    OldHead {
        /// The epoch of the newest that was seen.
        seen: VolumeEpoch,
    },
    /// A member has no room.
    NoSpace {
        /// Which, and what to do.
        reason: Arc<str>,
    },
    /// What is stored is not what was written, and there is no other copy.
    Damaged {
        /// What is wrong.
        reason: Arc<str>,
    },
    /// The group serves nothing.
    Stopped {
        /// Why.
        reason: Arc<str>,
    },
    /// Whether it was or will be done nobody knows.
    Unknown,
    /// The group has not seen this reign of the head, and nothing was told of its layers.
    Untold,
    /// It has too much to do: later.
    Busy,
    /// The chunk is another group's.
    NotHeld,
}

/// Either.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeadMessage {
    /// To a group.
    Request(Request),
    /// From it.
    Answer(Answer),
}

impl HeadMessage {
    pub(crate) fn kind(&self) -> Kind {
        match self {
            Self::Request(_) => Kind::Request,
            Self::Answer(_) => Kind::Answer,
        }
    }

    /// Appends the meta part; blocks go to `blocks`. Returns how many bytes of blocks there are.
    pub(super) fn encode(&self, out: &mut Vec<u8>, blocks: &mut Vec<SharedBuf>) -> Result<u32, WireError> {
        match self {
            Self::Request(request) => request.encode(out, blocks),
            Self::Answer(answer) => answer.encode(out, blocks),
        }
    }

    /// Reads a body whose meta part has its sum, and compares its blocks with theirs.
    pub(super) fn decode(kind: Kind, meta_bytes: usize, body: &SharedBuf) -> Result<Self, WireError> {
        match kind {
            Kind::Request => Request::decode(meta_bytes, body).map(Self::Request),
            Kind::Answer => Answer::decode(meta_bytes, body).map(Self::Answer),
            other => unreachable!("{other:?} is no head's"),
        }
    }
}

// ---- request ---------------------------------------------------------------------------------------------------------

/// Fixed part of `request`.
///
/// | at | bytes | field |
/// |---|---|---|
/// | 0 | 2 | length of the fixed part: 48 |
/// | 2 | 1 | 0 nothing, 1 write, 2 zero, 3 read, 4 status, 5 end of a layer, 6 forget, 7 write of several pieces |
/// | 3 | 1 | of an end 1: zeroes hide what lies below |
/// | 4 | 4 | volume epoch |
/// | 8 | 8 | volume |
/// | 16 | 8 | of an end the child; 0 none; of a write of several pieces how many |
/// | 24 | 4 | chunk |
/// | 28 | 2 | first block |
/// | 30 | 2 | number of blocks |
/// | 32 | 4 | key that the blocks are encrypted with; 0 none |
/// | 36 | 4 | number of layers told |
/// | 40 | 4 | number of layers |
/// | 44 | 4 | the group's epoch |
impl Request {
    const BYTES: usize = 48;
    const WHAT: &'static str = "request";

    fn encode(&self, out: &mut Vec<u8>, blocks: &mut Vec<SharedBuf>) -> Result<u32, WireError> {
        const NONE: BlockRange = BlockRange { first: 0, count: 0 };
        let one = std::slice::from_ref::<LayerId>;
        let (number, layers, chunk, range): (u8, &[LayerId], ChunkId, BlockRange) = match &self.wants {
            Wants::Nothing => (0, &[], ChunkId(0), NONE),
            Wants::Write { layer, chunk, range, .. } => (1, one(layer), *chunk, *range),
            Wants::WriteAll { layer, chunk, .. } => (7, one(layer), *chunk, NONE),
            Wants::Zero { layers, chunk, range } => (2, layers, *chunk, *range),
            Wants::Read { layers, chunk, range } => (3, layers, *chunk, *range),
            Wants::Status { layers, chunk, range } => (4, layers, *chunk, *range),
            Wants::End(end) => (5, one(&end.layer), ChunkId(0), NONE),
            Wants::Forget { layer } => (6, one(layer), ChunkId(0), NONE),
        };
        let fixed = begin_fixed::<{ Self::BYTES }>(out);
        fixed[2] = number;
        put_u32(fixed, 4, self.epoch.0);
        put_u64(fixed, 8, self.volume.0);
        put_u32(fixed, 44, self.group_epoch.0);
        put_u32(fixed, 24, chunk.0);
        put_u16(fixed, 28, range.first);
        put_u16(fixed, 30, range.count);
        put_u32(fixed, 36, checked(Self::WHAT, self.told.len(), MAX_LAYERS)?);
        put_u32(fixed, 40, checked(Self::WHAT, layers.len(), MAX_LAYERS)?);
        if let Wants::End(LayerEnd { into, hides_below, .. }) = &self.wants {
            fixed[3] = u8::from(*hides_below);
            put_u64(fixed, 16, into.map_or(0, |into| into.0));
        }
        match &self.wants {
            Wants::Write { coding, .. } => put_u32(fixed, 32, coding.key().0),
            Wants::WriteAll { pieces, .. } => {
                let blocks = pieces.iter().map(|piece| usize::from(piece.range.count)).sum();
                put_u64(fixed, 16, pieces.len() as u64);
                put_u16(fixed, 30, checked(Self::WHAT, blocks, BLOCKS_PER_CHUNK as usize)? as u16);
                put_u32(fixed, 32, pieces.first().map_or(0, |first| first.coding.key().0));
            }
            _ => {}
        }
        put_list(out, self.told.iter().map(LayerRecord::encode));
        put_list(out, layers.iter().map(|layer| layer.0.to_le_bytes()));
        match &self.wants {
            Wants::Write { range, bytes, coding, .. } => put_piece(*range, bytes, coding, out, blocks),
            Wants::WriteAll { pieces, .. } => {
                put_list(out, pieces.iter().map(|piece| range_bytes(piece.range)));
                let mut all = 0;
                for Piece { range, bytes, coding } in pieces {
                    all += put_piece(*range, bytes, coding, out, blocks)?;
                }
                Ok(all)
            }
            _ => Ok(0),
        }
    }

    fn decode(meta_bytes: usize, body: &SharedBuf) -> Result<Self, WireError> {
        let (fixed, mut lists) = Body::begin(Self::WHAT, &body[..meta_bytes], Self::BYTES)?;
        let field = |field, found: u64| WireError::field(Self::WHAT, field, found);
        let told = list_of(Self::WHAT, &mut lists, u32_at(fixed, 36), MAX_LAYERS, LayerRecord::ENCODED_BYTES)?;
        let told = told.chunks_exact(LayerRecord::ENCODED_BYTES).map(LayerRecord::decode).collect::<Result<_, _>>();
        let told: Vec<LayerRecord> =
            told.map_err(|_| field("layers told, of which there are", u32_at(fixed, 36).into()))?;
        let layers = list_of(Self::WHAT, &mut lists, u32_at(fixed, 40), MAX_LAYERS, 8)?;
        let layers: Vec<_> = layers.chunks_exact(8).map(|item| LayerId(u64_at(item, 0))).collect();
        let is_own_parent = |record: &LayerRecord| record.parent == record.layer || record.layer == LayerId(0);
        if let Some(bad) = told.iter().find(|record| is_own_parent(record)) {
            return Err(field("layer told", bad.layer.0));
        }
        let chunk = ChunkId(u32_at(fixed, 24));
        let count = u32::from(u16_at(fixed, 30));
        let range = || range_of(&fixed[28..32]);
        let only = || match &layers[..] {
            [layer] => Ok(*layer),
            _ => Err(field("number of layers", layers.len() as u64)),
        };
        let some = |layers: Vec<LayerId>| match layers.is_empty() {
            true => Err(field("number of layers", 0)),
            false => Ok(layers),
        };
        let mut blocks_end = meta_bytes;
        let wants = match fixed[2] {
            0 => Wants::Nothing,
            1 => {
                let (layer, range) = (only()?, range()?);
                let key = KeyId(u32_at(fixed, 32));
                let Piece { range, bytes, coding } = piece_of(range, key, &mut lists, (body, &mut blocks_end))?;
                Wants::Write { layer, chunk, range, bytes, coding }
            }
            2 => Wants::Zero { layers: some(layers)?, chunk, range: range()? },
            3 => Wants::Read { layers: some(layers)?, chunk, range: range()? },
            4 => Wants::Status { layers: some(layers)?, chunk, range: range()? },
            5 => {
                let (layer, into) = (only()?, LayerId(u64_at(fixed, 16)));
                if layer == into {
                    return Err(field("layer that ends in itself", into.0));
                }
                let into = Some(into).filter(|into| *into != LayerId(0));
                Wants::End(LayerEnd { layer, into, hides_below: fixed[3] == 1 })
            }
            6 => Wants::Forget { layer: only()? },
            7 => {
                let (layer, key, number) = (only()?, KeyId(u32_at(fixed, 32)), u64_at(fixed, 16));
                if number == 0 || number > u64::from(count) || count > BLOCKS_PER_CHUNK {
                    return Err(field("number of pieces", number));
                }
                let ranges = lists.list(number as usize * RANGE_BYTES)?;
                let ranges: Vec<_> = ranges.chunks_exact(RANGE_BYTES).map(range_of).collect::<Result<_, _>>()?;
                if ranges.iter().map(|range| u32::from(range.count)).sum::<u32>() != count {
                    return Err(field("number of blocks", count.into()));
                }
                let pieces = ranges.into_iter().map(|range| piece_of(range, key, &mut lists, (body, &mut blocks_end)));
                Wants::WriteAll { layer, chunk, pieces: pieces.collect::<Result<_, _>>()? }
            }
            other => return Err(field("what is wanted", other.into())),
        };
        ends_at(blocks_end, body)?;
        let (volume, epoch) = (VolumeId(u64_at(fixed, 8)), VolumeEpoch(u32_at(fixed, 4)));
        Ok(Self { volume, epoch, group_epoch: Epoch(u32_at(fixed, 44)), told, wants })
    }
}

// ---- answer ----------------------------------------------------------------------------------------------------------

/// Fixed part of `answer`.
///
/// | at | bytes | field |
/// |---|---|---|
/// | 0 | 2 | length of the fixed part: 32 |
/// | 2 | 1 | 0 done, 1 read, 2 known; refused: 16 not primary, 17 old head, 18 no space, 19 damaged, 20 stopped, 21 unknown, 22 untold, 23 busy, 24 not held |
/// | 3 | 1 | zero |
/// | 4 | 4 | of an old head the epoch that was seen; of not primary the group's |
/// | 8 | 16 | who is primary; 0: not known |
/// | 24 | 2 | number of blocks |
/// | 26 | 2 | length of the reason |
/// | 28 | 4 | zero |
impl Answer {
    const BYTES: usize = 32;
    const WHAT: &'static str = "answer";

    fn encode(&self, out: &mut Vec<u8>, blocks: &mut Vec<SharedBuf>) -> Result<u32, WireError> {
        let fixed = begin_fixed::<{ Self::BYTES }>(out);
        let count = match self {
            Self::Read(of_blocks, _) => of_blocks.len(),
            Self::Known(known) => known.len(),
            Self::Done | Self::Refused(_) => 0,
        };
        put_u16(fixed, 24, checked(Self::WHAT, count, BLOCKS_PER_CHUNK as usize)? as u16);
        match self {
            Self::Done => {}
            Self::Read(of_blocks, bytes) => {
                fixed[2] = 1;
                put_list(out, of_blocks.iter().map(|block| sum_bytes(*block)));
                if !bytes.is_empty() {
                    blocks.push(bytes.clone());
                }
                return Ok(bytes.len() as u32);
            }
            Self::Known(known) => {
                fixed[2] = 2;
                put_list(out, known.iter().map(known_bytes));
            }
            Self::Refused(refusal) => refusal.encode(out),
        }
        Ok(0)
    }

    fn decode(meta_bytes: usize, body: &SharedBuf) -> Result<Self, WireError> {
        let (fixed, mut lists) = Body::begin(Self::WHAT, &body[..meta_bytes], Self::BYTES)?;
        let count = usize::from(u16_at(fixed, 24));
        checked(Self::WHAT, count, BLOCKS_PER_CHUNK as usize)?;
        let mut blocks_end = meta_bytes;
        let answer = match fixed[2] {
            0 => Self::Done,
            1 => {
                let sums = lists.list(count * SUM_BYTES)?;
                let (of_blocks, end) = blocks_of("block of an answer", sums, body, meta_bytes)?;
                blocks_end = end;
                Self::Read(of_blocks, body.slice(meta_bytes..end))
            }
            2 => {
                let list = lists.list(count * KNOWN_BYTES)?;
                Self::Known(list.chunks_exact(KNOWN_BYTES).map(known_of).collect::<Result<_, _>>()?)
            }
            _ => Self::Refused(Refusal::decode(fixed, &mut lists)?),
        };
        ends_at(blocks_end, body)?;
        Ok(answer)
    }
}

impl Refusal {
    fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len() - Answer::BYTES;
        let fixed = &mut out[start..];
        let (number, reason) = match self {
            Self::NotPrimary { primary, epoch } => {
                put_u32(fixed, 4, epoch.0);
                put_u128(fixed, 8, primary.map_or(0, |store| store.0));
                (16, "")
            }
            Self::OldHead { seen } => {
                put_u32(fixed, 4, seen.0);
                (17, "")
            }
            Self::NoSpace { reason } => (18, &**reason),
            Self::Damaged { reason } => (19, &**reason),
            Self::Stopped { reason } => (20, &**reason),
            Self::Unknown => (21, ""),
            Self::Untold => (22, ""),
            Self::Busy => (23, ""),
            Self::NotHeld => (24, ""),
        };
        let reason: String = plain(reason).collect();
        fixed[2] = number;
        put_u16(fixed, 26, reason.len() as u16);
        let list = out.len();
        out.extend_from_slice(reason.as_bytes());
        end_list(out, list);
    }

    fn decode(fixed: &[u8], lists: &mut Body<'_>) -> Result<Self, WireError> {
        let field = |field, found: u64| WireError::field(Answer::WHAT, field, found);
        let length = usize::from(u16_at(fixed, 26));
        checked(Answer::WHAT, length, MAX_REASON_BYTES)?;
        let reason = plain_of(Answer::WHAT, lists.list(length)?)?;
        let primary = Some(StoreId(u128_at(fixed, 8))).filter(|store| *store != StoreId(0));
        Ok(match fixed[2] {
            16 => Self::NotPrimary { primary, epoch: Epoch(u32_at(fixed, 4)) },
            17 => Self::OldHead { seen: VolumeEpoch(u32_at(fixed, 4)) },
            18 => Self::NoSpace { reason: reason.into() },
            19 => Self::Damaged { reason: reason.into() },
            20 => Self::Stopped { reason: reason.into() },
            21 => Self::Unknown,
            22 => Self::Untold,
            23 => Self::Busy,
            24 => Self::NotHeld,
            other => return Err(field("outcome", other.into())),
        })
    }
}

// ---- lists -----------------------------------------------------------------------------------------------------------

fn checked(what: &'static str, count: usize, most: usize) -> Result<u32, WireError> {
    if count > most {
        return Err(WireError::field(what, "number of items", count as u64));
    }
    Ok(count as u32)
}

fn put_list<const N: usize>(out: &mut Vec<u8>, items: impl Iterator<Item = [u8; N]>) {
    let list = out.len();
    items.for_each(|item| out.extend_from_slice(&item));
    end_list(out, list);
}

fn list_of<'a>(
    what: &'static str,
    lists: &mut Body<'a>,
    count: u32,
    most: usize,
    bytes: usize,
) -> Result<&'a [u8], WireError> {
    checked(what, count as usize, most)?;
    lists.list(count as usize * bytes)
}

fn range_bytes(range: BlockRange) -> [u8; RANGE_BYTES] {
    let mut item = [0; RANGE_BYTES];
    put_u16(&mut item, 0, range.first);
    put_u16(&mut item, 2, range.count);
    item
}

fn range_of(item: &[u8]) -> Result<BlockRange, WireError> {
    let (first, count) = (u32::from(u16_at(item, 0)), u32::from(u16_at(item, 2)));
    match count > 0 && first + count <= BLOCKS_PER_CHUNK {
        true => Ok(BlockRange::new(first, count)),
        false => Err(WireError::field(Request::WHAT, "number of blocks", u64::from(count))),
    }
}

/// Appends the sums of a piece's blocks, and has the blocks go to `blocks`. Returns their bytes.
fn put_piece(
    range: BlockRange,
    bytes: &SharedBuf,
    coding: &BlockCoding,
    out: &mut Vec<u8>,
    blocks: &mut Vec<SharedBuf>,
) -> Result<u32, WireError> {
    let (count, expected) = (usize::from(range.count), coding.bytes(range.count));
    checked(Request::WHAT, count, MAX_ENTRY_BLOCKS.into())?;
    if bytes.len() != expected {
        return Err(WireError::Short { what: "blocks of a request", expected, found: bytes.len() });
    }
    put_list(out, coding.blocks(range.count, bytes).map(|(_, sum, length)| sum_bytes(Some((sum, length)))));
    blocks.push(bytes.clone());
    Ok(bytes.len() as u32)
}

/// A piece of these blocks: its sums are the next list, and its blocks lie in the body from `at` on, which is moved behind them.
fn piece_of(
    range: BlockRange,
    key: KeyId,
    lists: &mut Body<'_>,
    (body, at): (&SharedBuf, &mut usize),
) -> Result<Piece, WireError> {
    let field = |field, found: u64| WireError::field(Request::WHAT, field, found);
    if range.count > MAX_ENTRY_BLOCKS {
        return Err(field("blocks of a write", range.count.into()));
    }
    let sums = lists.list(usize::from(range.count) * SUM_BYTES)?;
    let (blocks, end) = blocks_of("block of a request", sums, body, *at)?;
    let mut lengths = [StoredLength::RAW; MAX_ENTRY_BLOCKS as usize];
    for (to, block) in lengths.iter_mut().zip(&blocks) {
        *to = block.ok_or_else(|| field("stored length", 0))?.1;
    }
    let lengths = &lengths[..blocks.len()];
    let is_plain = lengths.iter().all(|length| *length == StoredLength::RAW);
    let sums = blocks.iter().map(|block| block.map_or(Crc32c(0), |(sum, _)| sum));
    let coding = BlockCoding::new(key, (!is_plain).then_some(lengths)).with_sums(sums);
    let bytes = body.slice(std::mem::replace(at, end)..end);
    Ok(Piece { range, bytes, coding })
}

fn sum_bytes(block: AnsweredBlock) -> [u8; SUM_BYTES] {
    let mut item = [0; SUM_BYTES];
    if let Some((sum, length)) = block {
        put_u32(&mut item, 0, sum.0);
        item[4] = length.byte();
    }
    item
}

/// What a list of sums says of the blocks that lie from `at` on, and where they end.
fn blocks_of(
    what: &'static str,
    sums: &[u8],
    body: &SharedBuf,
    mut at: usize,
) -> Result<(Vec<AnsweredBlock>, usize), WireError> {
    let mut blocks = Vec::with_capacity(sums.len() / SUM_BYTES);
    for item in sums.chunks_exact(SUM_BYTES) {
        if item[4] == 0 {
            blocks.push(None);
            continue;
        }
        let sum = Crc32c(u32_at(item, 0));
        let length = StoredLength::from_byte(item[4]).ok_or(WireError::field(what, "stored length", item[4]))?;
        let end = at + length.bytes();
        let Some(block) = body.get(at..end) else {
            return Err(WireError::Short { what, expected: end, found: body.len() });
        };
        let found = Crc32c::of(block);
        if found != sum {
            return Err(WireError::Sum { what, expected: sum.0, found: found.0 });
        }
        at = end;
        blocks.push(Some((sum, length)));
    }
    Ok((blocks, at))
}

/// No byte is left over.
fn ends_at(expected: usize, body: &SharedBuf) -> Result<(), WireError> {
    match body.len() == expected {
        true => Ok(()),
        false => Err(WireError::Short { what: "blocks", expected, found: body.len() }),
    }
}

fn known_bytes(known: &KnownBlock) -> [u8; KNOWN_BYTES] {
    let mut item = [0; KNOWN_BYTES];
    put_u16(&mut item, 0, known.depth.unwrap_or_default() as u16);
    item[2] = u8::from(known.is_stored) | u8::from(known.depth.is_some()) << 1;
    item
}

fn known_of(item: &[u8]) -> Result<KnownBlock, WireError> {
    if item[2] > 3 {
        return Err(WireError::field(Answer::WHAT, "what is known of a block", item[2]));
    }
    let depth = (item[2] & 2 != 0).then(|| u32::from(u16_at(item, 0)));
    Ok(KnownBlock { depth, is_stored: item[2] & 1 != 0 })
}
