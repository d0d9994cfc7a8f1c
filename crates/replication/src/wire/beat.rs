//! Beats: a node lives, and grants leases (R7, R8, R19 of docs/replication.md).

use super::body::{Body, begin_fixed, end_list};
use super::bytes::{put_u16, put_u32, put_u64, u16_at, u32_at, u64_at, u128_at};
use super::{Features, WireError};
use types::{Epoch, GroupId, Incarnation, StoreId};

/// Most stores of one node.
pub const MAX_STORES_NAMED: usize = 64;
/// Most members that an answer excepts; where there are more, nothing is granted.
pub const MAX_EXCEPTED: usize = 4096;
/// In place of a number of members: nothing is granted.
const NOTHING: u32 = u32::MAX;
const STORE_BYTES: usize = 32;
const EXCEPTED_BYTES: usize = 12;

/// A store of a node, and where its groups are served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreLine {
    /// The store.
    pub store: StoreId,
    /// Which of its lives.
    pub life: Incarnation,
    /// Shards that it is divided into; not 0.
    pub shards: u16,
    /// The core of its first shard; each next shard is on the next core.
    pub first_core: u16,
    /// Cores of the node; not 0.
    pub cores: u16,
    /// It takes no new blocks.
    pub is_full: bool,
    /// The map has answered its node of late.
    pub reaches_map: bool,
}

impl StoreLine {
    /// The core that a group of this store is served on.
    pub fn core_of(&self, group: GroupId) -> u16 {
        let shard = group.0 % u32::from(self.shards.max(1));
        ((u32::from(self.first_core) + shard) % u32::from(self.cores.max(1))) as u16
    }
}

/// Cores of a node: a bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cores([u64; 4]);

impl Cores {
    /// Most cores of a node.
    pub const MOST: usize = 256;
    const BYTES: usize = Self::MOST / 8;

    /// # Panics
    /// If a node does not have so many cores.
    pub fn insert(&mut self, core: usize) {
        self.0[core / 64] |= 1 << (core % 64);
    }

    /// Whether it is among them.
    pub fn has(&self, core: usize) -> bool {
        core < Self::MOST && self.0[core / 64] >> (core % 64) & 1 == 1
    }

    fn encode(self, out: &mut [u8]) {
        self.0.into_iter().enumerate().for_each(|(i, word)| put_u64(out, i * 8, word));
    }

    fn decode(from: &[u8]) -> Self {
        Self(std::array::from_fn(|i| u64_at(from, i * 8)))
    }
}

/// Sent to each other node, four times a second.
///
/// | at | bytes | field |
/// |---|---|---|
/// | 0 | 2 | length of the fixed part: 56, or 64 |
/// | 2 | 2 | number of stores |
/// | 4 | 4 | zero |
/// | 8 | 8 | when it was sent: the sender's monotonic clock, ns; the answer has the same |
/// | 16 | 8 | incarnation of the node |
/// | 24 | 32 | cores that have turned since the last beat: bits |
/// | 56 | 8 | of a rehearsed release alone, and read by such: how many beats it has sent |
/// | 56 or 64 | 32 × stores | store (16), its incarnation (8), shards (2), core of the first (2), cores of the node (2), bits (2): 1 it takes no new blocks, 2 the map has answered its node within the last second |
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Beat {
    /// When it was sent, on the sender's clock.
    pub sent_ns: u64,
    /// Which life of the sending node.
    pub incarnation: Incarnation,
    /// Cores of it that have turned since its last beat: it speaks for these.
    pub cores: Cores,
    /// Its stores: at most [`MAX_STORES_NAMED`].
    pub stores: Vec<StoreLine>,
    /// Of a rehearsed release: how many it has sent.
    pub count: Option<u64>,
}

impl Beat {
    const WHAT: &'static str = "beat";
    const FIXED_BYTES: usize = 56;
    /// With the field that a rehearsed release appends.
    const LATER_BYTES: usize = 64;

    pub(super) fn encode(&self, out: &mut Vec<u8>) -> Result<(), WireError> {
        let start = out.len();
        match self.count {
            None => encode_stores::<{ Self::FIXED_BYTES }>(Self::WHAT, &self.stores, out)?,
            Some(count) => {
                encode_stores::<{ Self::LATER_BYTES }>(Self::WHAT, &self.stores, out)?;
                put_u64(&mut out[start..], Self::FIXED_BYTES, count);
            }
        }
        let fixed = &mut out[start..];
        put_u64(fixed, 8, self.sent_ns);
        put_u64(fixed, 16, self.incarnation.0);
        self.cores.encode(&mut fixed[24..]);
        Ok(())
    }

    pub(super) fn decode(meta: &[u8], agreed: Features) -> Result<Self, WireError> {
        let (fixed, mut body) = Body::begin(Self::WHAT, meta, Self::FIXED_BYTES)?;
        // Who does not have the feature is of an older release, and skips what it does not know.
        let is_later = agreed.has(Features::REHEARSAL) && body.at() >= Self::LATER_BYTES;
        Ok(Self {
            count: is_later.then(|| u64_at(meta, Self::FIXED_BYTES)),
            sent_ns: u64_at(fixed, 8),
            incarnation: Incarnation(u64_at(fixed, 16)),
            cores: Cores::decode(&fixed[24..24 + Cores::BYTES]),
            stores: decode_stores(Self::WHAT, fixed, &mut body)?,
        })
    }
}

/// A member that grants nothing. Of its group another may be on the same node, and grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Excepted {
    /// The group.
    pub group: GroupId,
    /// The place of the member's store among those of the answer.
    pub place: u16,
    /// Primaries of an epoch below this one get nothing.
    pub below: Epoch,
}

impl Excepted {
    /// Which of an answer it is: no two are of one member.
    fn member(&self) -> (GroupId, u16) {
        (self.group, self.place)
    }
}

/// For which of the beat's groups a lease is granted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Grants {
    /// By all members but these, which rise.
    AllBut(Vec<Excepted>),
    /// None.
    Nothing,
}

impl Grants {
    /// Whether the member of a group on the store in this place grants a lease to a primary of this epoch.
    pub fn grants(&self, group: GroupId, place: u16, epoch: Epoch) -> bool {
        let Self::AllBut(excepted) = self else { return false };
        let at = excepted.binary_search_by_key(&(group, place), Excepted::member);
        at.map_or(true, |at| epoch >= excepted[at].below)
    }
}

/// The answer to a [`Beat`].
///
/// | at | bytes | field |
/// |---|---|---|
/// | 0 | 2 | length of the fixed part: 56 |
/// | 2 | 2 | number of stores |
/// | 4 | 4 | number of members that are excepted; 0xffffffff: nothing is granted, and no member is named |
/// | 8 | 8 | when the beat was sent, as it says |
/// | 16 | 8 | incarnation of the answering node |
/// | 24 | 32 | its cores that have turned since the last beat: bits |
/// | 56 | 32 × stores | store (16), its incarnation (8), shards (2), core of the first (2), cores of the node (2), bits (2), as of a beat |
/// | … | 12 × members | rising: group (4), place of the member's store among the stores (2), zero (2), epoch below which nothing is granted (4) |
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BeatAnswer {
    /// [`Beat::sent_ns`] of what is answered.
    pub echo_ns: u64,
    /// Which life of the answering node.
    pub incarnation: Incarnation,
    /// Cores of it that have turned since the last beat.
    pub cores: Cores,
    /// Its stores: at most [`MAX_STORES_NAMED`].
    pub stores: Vec<StoreLine>,
    /// What is granted.
    pub grants: Grants,
}

impl BeatAnswer {
    const WHAT: &'static str = "answer to a beat";
    const FIXED_BYTES: usize = 56;

    pub(super) fn encode(&self, out: &mut Vec<u8>) -> Result<(), WireError> {
        let start = out.len();
        encode_stores::<{ Self::FIXED_BYTES }>(Self::WHAT, &self.stores, out)?;
        let named = match &self.grants {
            Grants::AllBut(excepted) if excepted.len() <= MAX_EXCEPTED => Some(excepted),
            // To grant too little is safe: whoever gets nothing does not read until the next beat.
            Grants::AllBut(_) | Grants::Nothing => None,
        };
        let fixed = &mut out[start..];
        put_u32(fixed, 4, named.map_or(NOTHING, |excepted| excepted.len() as u32));
        put_u64(fixed, 8, self.echo_ns);
        put_u64(fixed, 16, self.incarnation.0);
        self.cores.encode(&mut fixed[24..]);
        let list = out.len();
        assert!(named.is_none_or(|excepted| rise(excepted)), "members that an answer excepts rise");
        for Excepted { group, place, below } in named.into_iter().flatten() {
            out.extend_from_slice(&group.0.to_le_bytes());
            out.extend_from_slice(&u32::from(*place).to_le_bytes());
            out.extend_from_slice(&below.0.to_le_bytes());
        }
        end_list(out, list);
        Ok(())
    }

    pub(super) fn decode(meta: &[u8]) -> Result<Self, WireError> {
        let (fixed, mut body) = Body::begin(Self::WHAT, meta, Self::FIXED_BYTES)?;
        let stores = decode_stores(Self::WHAT, fixed, &mut body)?;
        let grants = match u32_at(fixed, 4) {
            NOTHING => Grants::Nothing,
            count if count as usize > MAX_EXCEPTED => {
                return Err(WireError::field(Self::WHAT, "number of members", count));
            }
            count => {
                let list = body.list(count as usize * EXCEPTED_BYTES)?;
                let excepted = |item: &[u8]| Excepted {
                    group: GroupId(u32_at(item, 0)),
                    place: u16_at(item, 4),
                    below: Epoch(u32_at(item, 8)),
                };
                let excepted: Vec<_> = list.chunks_exact(EXCEPTED_BYTES).map(excepted).collect();
                if !rise(&excepted) {
                    return Err(WireError::field(Self::WHAT, "order of members, of which there", count));
                }
                Grants::AllBut(excepted)
            }
        };
        Ok(Self {
            echo_ns: u64_at(fixed, 8),
            incarnation: Incarnation(u64_at(fixed, 16)),
            cores: Cores::decode(&fixed[24..24 + Cores::BYTES]),
            stores,
            grants,
        })
    }
}

fn rise(excepted: &[Excepted]) -> bool {
    excepted.is_sorted_by(|one, next| one.member() < next.member())
}

/// Appends a fixed part that says how many stores there are, and the stores.
fn encode_stores<const FIXED_BYTES: usize>(
    what: &'static str,
    stores: &[StoreLine],
    out: &mut Vec<u8>,
) -> Result<(), WireError> {
    if stores.len() > MAX_STORES_NAMED {
        return Err(WireError::field(what, "number of stores", stores.len() as u64));
    }
    put_u16(begin_fixed::<FIXED_BYTES>(out), 2, stores.len() as u16);
    for line in stores {
        out.extend_from_slice(&line.store.0.to_le_bytes());
        out.extend_from_slice(&line.life.0.to_le_bytes());
        let bits = u16::from(line.is_full) | u16::from(line.reaches_map) << 1;
        for number in [line.shards, line.first_core, line.cores, bits] {
            out.extend_from_slice(&number.to_le_bytes());
        }
    }
    Ok(())
}

fn decode_stores(what: &'static str, fixed: &[u8], body: &mut Body<'_>) -> Result<Vec<StoreLine>, WireError> {
    let count = u16_at(fixed, 2);
    if usize::from(count) > MAX_STORES_NAMED {
        return Err(WireError::field(what, "number of stores", count));
    }
    let list = body.list(usize::from(count) * STORE_BYTES)?;
    let line = |item: &[u8]| StoreLine {
        store: StoreId(u128_at(item, 0)),
        life: Incarnation(u64_at(item, 16)),
        shards: u16_at(item, 24),
        first_core: u16_at(item, 26),
        cores: u16_at(item, 28),
        is_full: u16_at(item, 30) & 1 != 0,
        reaches_map: u16_at(item, 30) & 2 != 0,
    };
    let lines: Vec<_> = list.chunks_exact(STORE_BYTES).map(line).collect();
    match lines.iter().find(|line| line.shards == 0 || line.cores == 0) {
        Some(_) => Err(WireError::field(what, "shards or cores of a store", 0u32)),
        None => Ok(lines),
    }
}
